// Timing: a clock, and accumulators for the phases of a run.
#ifndef COMMON_TIMING_H
#define COMMON_TIMING_H

#ifdef __cplusplus
extern "C" {
#endif

// Seconds on a monotonic clock, from an arbitrary start.
double seconds(void);

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
void timer_add(struct timer *timer, double duration);

// Makes the timer as if each duration had been added so many times.
void timer_repeat(struct timer *timer, long times);

// Adds the time since `start` and returns the time now, which is the start of the next phase. So a
// phase takes one read of the clock.
double timer_lap(struct timer *timer, double start);

// Returns the sample standard deviation in seconds, or 0 for fewer than two durations.
double timer_stddev(const struct timer *timer);

#ifdef __cplusplus
}
#endif

#endif
