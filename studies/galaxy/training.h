// What the stages share beside the network: options, galaxies, initial weights, and the result.
#ifndef GALAXY_TRAINING_H
#define GALAXY_TRAINING_H

#include "common/program.h"
#include "common/random.h"
#include "common/timing.h"
#include "studies/galaxy/minimize.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PIXELS = 1024, CLASSES = 3 }; // elliptical, spiral, irregular

struct options {
    struct common_options common;
    const char *data;  // directory of train.csv and test.csv
    int hidden;        // hidden units, >= 1
    int iterations;    // of the minimizer, >= 0
    float lambda;      // weight of the squared weights in the cost, >= 0
    uint64_t seed;     // of the initial weights
    int train_samples; // the first so many of train.csv, >= 1
    int test_samples;  // the first so many of test.csv, >= 1
};

// Parses the command line: see parse_common(). `about` is the stage's one line in --help, and
// `max_threads` is the largest --threads that it accepts.
struct options parse_options(int argc, char **argv, const char *about, int max_threads);

struct dataset {
    size_t samples;  // m
    double *images;  // m × 1024, row-major, 64-byte aligned, pixel / 255: 0 to 1
    uint8_t *labels; // m, each 0 to 2
};

struct data {
    struct dataset train, test;
    const char *name; // "galaxy" or "synthetic"
    double load_s;    // seconds from the files to arrays in memory
};

// Loads the first samples of train.csv and test.csv, raw or .gz, from the directory of --data. A
// row is a label and 1024 pixels from 0 to 255. Files are read to their end, so that damage after
// the last sample used is found too. Returns 0, or EXIT_BAD_INPUT after one line that names the
// file, the row, what was found and what was expected. In that case `data` is empty.
int load_galaxies(const struct options *options, struct data *data);

void free_galaxies(struct data *data);

// Returns the samples of the larger data set. A stage allocates its buffers for this many.
static inline size_t largest_set(const struct data *data) {
    return data->train.samples > data->test.samples ? data->train.samples : data->test.samples;
}

static inline double *allocate_doubles(size_t count) {
    return (double *)allocate_array(count, sizeof(double));
}

// Returns the next initial weight, uniform in ±0.2. Θ1 has a row for each hidden unit: its bias,
// then its 1024 weights. It uses stream 1 of the generator. Θ2 has a row for each class: its bias,
// then H weights. It uses stream 2.
double draw_weight(struct pcg32 *generator);

// What a run found and measured. Times in seconds.
struct result {
    const char *device;     // "cpu", or the name of the GPU
    int threads;            // 0: does not apply
    double setup_s;         // allocation, initial weights; for CUDA also the context and the upload
    double train_s;         // wall clock from the first evaluation to the last weight being final
    struct timer cost;      // one duration an evaluation
    struct timer gradient;  // one duration an evaluation
    struct minimum minimum; // what the minimizer returned
    double test_accuracy;   // 0 to 1
    double peak_vram_mib;   // 0: does not apply
};

// Prints the phases and the result line, and appends the row to --csv. Returns the exit status:
// 0, or EXIT_RUN_FAILED with one line if the cost is not finite or the row cannot be written.
int report_result(const struct options *options, const struct data *data,
                  const struct result *result);

// Writes W1 (1024 × hidden), b1 (hidden), W2 (3 × hidden) and b2 (3), which lie one after another,
// as float32: see write_arrays(). Returns the exit status.
int write_weights(const char *path, size_t hidden, const double *weights);

#ifdef __cplusplus
}
#endif

#endif
