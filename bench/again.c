// Preloaded into a program (LD_PRELOAD), it calls the program's main() $AGAIN times, as long as
// that ends well and $AGAIN_S seconds have not passed: a GPU's context takes longer than an epoch.
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int (*program)(int, char **, char **);

static int repeat(int argc, char **argv, char **environment) {
    const char *times = getenv("AGAIN"), *seconds = getenv("AGAIN_S");
    const time_t ends = time(NULL) + (seconds ? atoi(seconds) : 0);
    int left = times ? atoi(times) : 1, status;
    do
        status = program(argc, argv, environment);
    while (--left > 0 && !status && time(NULL) < ends);
    return status;
}

// The C library's start, which calls main().
typedef int start(int (*main)(int, char **, char **), int argc, char **argv, void (*begin)(void),
                  void (*end)(void), void (*last)(void), void *stack);
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv,
                      void (*begin)(void), void (*end)(void), void (*last)(void), void *stack) {
    start *const next = (start *)dlsym(RTLD_NEXT, "__libc_start_main");
    program = main;
    return next(repeat, argc, argv, begin, end, last, stack);
}
