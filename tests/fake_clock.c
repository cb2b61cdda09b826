// Tests preload this. Each look at the clock finds it a quarter of a second later, or LOOK
// quarters.
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static long quarters = 4000;
    const char *look = getenv("LOOK");
    (void)clock;
    quarters += look ? atol(look) : 1;
    *now = (struct timespec){quarters / 4, quarters % 4 * 250000000};
    return 0;
}
