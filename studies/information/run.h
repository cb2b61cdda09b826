// What the stages share: the options, the numbers that are drawn, and the result row.
#ifndef INFORMATION_RUN_H
#define INFORMATION_RUN_H

#include "common/program.h"
#include "common/timing.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct options {
    struct common_options common;
    int samples;   // B, >= 1
    int features;  // D, >= 1
    uint64_t seed; // of the activations
    float seconds; // the pass is repeated until so much was timed, >= 0
};

// Parses the command line. `about` is the stage's one line in --help, and `max_threads` is the
// largest --threads that it accepts. On a wrong argument, it prints one line and exits.
struct options parse_options(int argc, char **argv, const char *about, int max_threads);

// Two sets of activations: in each, a row of D numbers for each of B samples.
struct activations {
    size_t samples;  // B
    size_t features; // D
    float *x, *y;    // B × D, row-major, 64-byte aligned
};

// Draws all numbers from the standard normal distribution, by Box and Muller's method. x comes from
// stream 1 of PCG32, y from stream 2. Two draws r, s become two numbers of a row, the last number
// of a set perhaps one: √(−2·ln u)·cos 2πv and √(−2·ln u)·sin 2πv, where u = (r + 1)·2⁻³² and
// v = s·2⁻³². They are computed in double. No number is further than 6.7 from 0.
struct activations draw_activations(const struct options *options);

void free_activations(struct activations *activations);

// What a run found and measured. Times in seconds.
struct result {
    const char *device;            // "cpu", or the name of the GPU
    int threads;                   // 0: does not apply
    double entropy;                // H
    double information;            // I
    double setup_s;                // allocation and the first pass; for CUDA also the context
    double time_s;                 // wall clock of the passes after the first, over their number
    struct timer transfer_time;    // copies to the device, one duration a pass; none in a CPU stage
    struct timer softmax_time;     // one duration a pass, as in the two that follow
    struct timer entropy_time;     //
    struct timer information_time; //
    double operations;             // in a pass; an exponential is one, and so is a division
    double peak_vram_mib;          // 0: does not apply
};

// Prints the phases and the result line, and appends the row to --csv. Returns the exit status:
// 0, or EXIT_RUN_FAILED with one line if a result is not finite or the row cannot be written.
int report_result(const struct options *options, const struct result *result);

#ifdef __cplusplus
}
#endif

#endif
