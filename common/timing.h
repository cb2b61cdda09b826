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
// phase takes one read of the clock. After watch_epochs(), it also draws the progress, once a
// second.
double timer_lap(struct timer *timer, double start);

// Returns the sample standard deviation in seconds, or 0 for fewer than two durations.
double timer_stddev(const struct timer *timer);

// From here on, an epoch of so many batches that takes over two seconds has a line of progress on
// the terminal. Where standard output is no terminal, or where TERM is dumb, nothing changes. The
// stages of a GPU call no timer_lap(): to know how far the GPU is, they would have to wait for it.
// Their line has the time that the epoch should take.
void watch_epochs(int epochs, long batches);

// Prints a line as printf() does. On a terminal, a line that is too long goes on in the next, after
// a comma or a colon.
__attribute__((format(printf, 1, 2))) void print_line(const char *format, ...);

// Prints the line of a finished epoch, which counts from 1, as print_line() does. It takes the
// place of the progress.
__attribute__((format(printf, 2, 3))) void print_epoch(int epoch, const char *format, ...);

// Takes the progress off the terminal, for a message that ends the run.
void erase_progress(void);

// Prints a phase's time and its spread, or nothing if no duration was added. `rounds` says what was
// timed each time, such as "batches".
void print_timer(const char *phase, const struct timer *timer, const char *rounds);

#ifdef __cplusplus
}
#endif

#endif
