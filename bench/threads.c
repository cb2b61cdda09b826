// Loaded before a stage (LD_PRELOAD), together with gperftools' libprofiler. Each thread of the
// stage is then sampled by its own timer, which counts that thread's CPU time.
//
// libprofiler's usual timer belongs to the process. The kernel looks at it when a processor ticks,
// and interrupts the thread that runs there. If two processors tick together, the same one tends to
// win, and also gets the other thread's samples. With CPUPROFILE_PER_THREAD_TIMERS=1 each thread
// has a timer, but only if it registers itself. A stage's threads do not, so they are made to start
// here.
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

// Replaces the C library's function, and calls it.
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
