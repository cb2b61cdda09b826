// Timing: a clock, and accumulators for the phases of a run.
#ifndef COMMON_TIMING_H
#define COMMON_TIMING_H

#include <math.h>
#include <time.h>

// Seconds on a monotonic clock, from an arbitrary start.
static inline double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// The durations of a phase, in seconds. Starts as {0}.
struct timer {
    long count;
    double total;
    double mean;
    double squares; // sum of squared distances from the mean
    double min;
    double max;
};

// Adds one duration. Mean and variance are updated as in Welford (1962), which does not cancel.
static inline void timer_add(struct timer *timer, double duration) {
    double distance = duration - timer->mean;
    ++timer->count;
    timer->total += duration;
    timer->mean += distance / (double)timer->count;
    timer->squares += distance * (duration - timer->mean);
    timer->min = timer->count == 1 ? duration : fmin(timer->min, duration);
    timer->max = timer->count == 1 ? duration : fmax(timer->max, duration);
}

// Makes the timer as if each duration had been added so many times.
static inline void timer_repeat(struct timer *timer, long times) {
    timer->count *= times;
    timer->total *= (double)times;
    timer->squares *= (double)times;
}

// Adds the time since `start` and returns the time now, which is the start of the next phase. So a
// phase takes one read of the clock.
static inline double timer_lap(struct timer *timer, double start) {
    double now = seconds();
    timer_add(timer, now - start);
    return now;
}

// Returns the sample standard deviation in seconds, or 0 for fewer than two durations.
static inline double timer_stddev(const struct timer *timer) {
    return timer->count < 2 ? 0 : sqrt(timer->squares / (double)(timer->count - 1));
}

#endif
