// Loaded before a stage (LD_PRELOAD), together with gperftools' libprofiler, so that each of its
// threads is sampled by a timer of its own, of that thread's CPU time.
//
// libprofiler's usual timer is the process's. The kernel looks at it when a processor ticks and
// interrupts the thread that runs there; where two processors tick together, the same one tends to
// win, and the other thread's samples are charged to it. With CPUPROFILE_PER_THREAD_TIMERS=1 there
// is a timer a thread, but only for threads that register themselves, which a stage's do not. So
// each thread is made to start here.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <gperftools/profiler.h>
#include <pthread.h>
#include <stdlib.h>

struct start {
    void *(*function)(void *);
    void *argument;
};

static void *run(void *argument) {
    const struct start start = *(struct start *)argument;
    free(argument);
    ProfilerRegisterThread();
    return start.function(start.argument);
}

// Takes the place of the C library's, and calls it.
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                   void *argument) {
    static int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!create)
        *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    struct start *start = malloc(sizeof *start);
    if (!start)
        abort();
    *start = (struct start){function, argument};
    return create(thread, attributes, run, start);
}
