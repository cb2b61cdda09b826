// What the stages share beside the network: options, initial weights, and the result.
#ifndef STAGES_TRAINING_H
#define STAGES_TRAINING_H

#include "common/data.h"
#include "common/program.h"
#include "common/random.h"
#include "common/timing.h"

#ifdef __cplusplus
extern "C" {
#endif

struct options {
    const char *data;         // directory of the IDX files or of train.csv
    int hidden;               // hidden units, >= 1
    int batch;                // samples in a batch, >= 1
    int epochs;               // passes over the training set, >= 0
    float learning_rate;      // > 0
    uint64_t seed;            // of the initial weights
    int train_samples;        // the first so many of the training file, >= 1
    int test_samples;         // the first so many of the test file, >= 1
    int threads;              // 0: not given, the stage chooses
    const char *csv;          // file that gets a result row, or NULL
    const char *save_weights; // file that gets the trained weights, or NULL
    bool quiet;               // print the result line only
};

// Parses the command line: see parse_common(). `about` is the stage's one line in --help, and
// `max_threads` is the largest --threads that it accepts.
struct options parse_options(int argc, char **argv, const char *about, int max_threads);

// Loads the data that the options name: see load_mnist().
int load_data(const struct options *options, struct data *data);

// Returns the samples of a run's largest batch. A stage allocates its buffers for this many.
static inline size_t largest_batch(const struct options *options) {
    int samples = options->train_samples > options->test_samples ? options->train_samples
                                                                 : options->test_samples;
    return (size_t)(options->batch < samples ? options->batch : samples);
}

// Returns the next initial weight, in row-major order: uniform in ±√(6 / fan_in), as in He et al.
// (2015). W1 uses stream 1 of the generator, W2 uses stream 2.
float draw_weight(struct pcg32 *generator, size_t fan_in);

// What a run measured. Times in seconds.
struct result {
    const char *device;    // "cpu", or the name of the GPU
    int threads;           // 0: does not apply
    double setup_s;        // allocation, initial weights; for CUDA also the context and the upload
    double warmup_s;       // CUDA: a first epoch, which changes no weight; 0: does not apply
    double train_s;        // wall clock from the first batch to the last weight being final
    struct timer forward;  // one duration a batch; on the simulated device none
    struct timer backward; // one duration a batch, the update included
    double final_loss;     // mean over the samples of the last epoch, as they were trained on
    double test_accuracy;  // 0 to 1
    double peak_vram_mib;  // 0: does not apply
};

// Prints an epoch's mean loss, unless --quiet. `epoch` counts from 0. Returns `start`, when the
// training began, moved by the time that this took, which is no training.
double report_epoch(const struct options *options, int epoch, double loss, double start);

// Prints the phases and the result line, and appends the row to --csv. Returns the exit status:
// 0, or EXIT_RUN_FAILED with one line if the loss is not finite or the row cannot be written.
int report_result(const struct options *options, const struct data *data,
                  const struct result *result);

// Writes weights1 (784 × hidden), bias1, weights2 (hidden × 10) and bias2, row-major: see
// write_arrays(). Returns the exit status.
int write_weights(const char *path, size_t hidden, const float *weights1, const float *bias1,
                  const float *weights2, const float *bias2);

#ifdef __cplusplus
}
#endif

#endif
