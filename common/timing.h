// Timing: a clock, accumulators for the phases of a run, and the result row.
#ifndef COMMON_TIMING_H
#define COMMON_TIMING_H

#include "common/data.h"
#include "common/options.h"

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

// Adds the time since `start` and returns the time now, which is the start of the next phase. So a
// phase takes one read of the clock.
double timer_lap(struct timer *timer, double start);

// Returns the sample standard deviation in seconds, or 0 for fewer than two durations.
double timer_stddev(const struct timer *timer);

// What a run measured. Times in seconds.
struct result {
    const char *device;    // "cpu", or the name of the GPU
    int threads;           // 0: does not apply
    double setup_s;        // allocation, initial weights; for CUDA also the context and the upload
    double train_s;        // wall clock from the first batch to the last weight being final
    struct timer forward;  // one duration a batch
    struct timer backward; // one duration a batch, the update included
    double final_loss;     // mean over the samples of the last epoch, as they were trained on
    double test_accuracy;  // 0 to 1
    double peak_vram_mib;  // 0: does not apply
};

// Prints an epoch's mean loss, unless --quiet. `epoch` counts from 0.
void report_epoch(const struct options *options, int epoch, double loss);

// Prints the phases and the result line, and appends the row to --csv. Returns the exit status:
// 0, or EXIT_RUN_FAILED with one line if the loss is not finite or the row cannot be written.
int report_result(const struct options *options, const struct data *data,
                  const struct result *result);

// Tries the file that --csv names. It must be new, empty, or hold the header that is written here
// and whole rows. Otherwise prints one line and exits with EXIT_BAD_INPUT.
void check_results_file(const char *path);

#ifdef __cplusplus
}
#endif

#endif
