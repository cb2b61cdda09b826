// What the stages share: the options, the features that are drawn, and the result.
#ifndef STUDIES_TENSOR_MEAN_RUN_H
#define STUDIES_TENSOR_MEAN_RUN_H

#include "common/program.h"
#include "common/timing.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct options {
    struct common_options common;
    int triplets;  // N, >= 1
    int features;  // D, 1 to 100,000
    uint64_t seed; // of the features
    float seconds; // the pass is repeated until so much was timed, >= 0
};

// Parses the command line. `about` is the stage's one line in --help, and `max_threads` is the
// largest --threads that it accepts. On a wrong argument, it prints one line and exits.
struct options parse_options(int argc, char **argv, const char *about, int max_threads);

// The features of N triplets. Each array is N × D, row-major, 64-byte aligned.
struct triplets {
    size_t count;    // N
    size_t features; // D
    float *x, *y, *z;
};

// Draws all features from −1 to 1. x, y and z come from streams 1, 2 and 3 of PCG32, each in
// row-major order.
struct triplets draw_triplets(const struct options *options);

void free_triplets(struct triplets *triplets);

// What a run measured. Times in seconds.
struct result {
    const char *device;         // "cpu", or the name of the GPU
    int threads;                // 0: does not apply
    double setup_s;             // allocation and the first pass; for CUDA also the context
    double time_s;              // wall clock of the passes after the first, over their number
    struct timer transfer_time; // to the device and back, two durations a pass; none on the CPU
    struct timer product_time;  // the sums of products, one duration a pass
    double peak_vram_mib;       // 0: does not apply
};

// Writes the mean, D × D × D, row-major, to the file of --save. Prints the phases and the result
// line, and appends the row to --csv. Returns the exit status: 0, or EXIT_RUN_FAILED with one line
// if an element is not finite, or if a file cannot be written.
int report_result(const struct options *options, const float *mean, const struct result *result);

#ifdef __cplusplus
}
#endif

#endif
