#include "common/timing.h"

#include <math.h>
#include <time.h>

double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void timer_add(struct timer *timer, double duration) {
    double distance = duration - timer->mean;
    ++timer->count;
    timer->total += duration;
    timer->mean += distance / (double)timer->count;
    timer->squares += distance * (duration - timer->mean);
    timer->min = timer->count == 1 ? duration : fmin(timer->min, duration);
    timer->max = timer->count == 1 ? duration : fmax(timer->max, duration);
}

void timer_repeat(struct timer *timer, long times) {
    timer->count *= times;
    timer->total *= (double)times;
    timer->squares *= (double)times;
}

double timer_lap(struct timer *timer, double start) {
    double now = seconds();
    timer_add(timer, now - start);
    return now;
}

double timer_stddev(const struct timer *timer) {
    return timer->count < 2 ? 0 : sqrt(timer->squares / (double)(timer->count - 1));
}
