// What the stages share beside the network: options, initial weights, and the result.
#ifndef STUDIES_MLP_TRAINING_H
#define STUDIES_MLP_TRAINING_H

#include "common/data.h"
#include "common/program.h"
#include "common/random.h"
#include "common/timing.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_HIDDEN = 8, MAX_LAYERS = MAX_HIDDEN + 1, MAX_WIDTH = 100000000 };

struct options {
    struct common_options common;
    const char *data;             // directory of the IDX files or of train.csv
    const char *hidden;           // the list of --hidden
    int layers;                   // hidden layers and the output layer: 2 to 9
    size_t sizes[MAX_LAYERS + 1]; // 784, the units of the hidden layers, 10
    int batch;                    // samples in a batch, >= 1
    int epochs;                   // passes over the training set, >= 0
    float learning_rate;          // > 0
    uint64_t seed;                // of the initial weights
    int train_samples;            // the first so many of the training file, >= 1
    int test_samples;             // the first so many of the test file, >= 1
};

// Parses the command line. `about` is the stage's one line in --help, and `max_threads` is the
// largest --threads that it accepts. On a wrong argument, it prints one line and exits.
struct options parse_options(int argc, char **argv, const char *about, int max_threads);

// Loads the data that the options name: see load_mnist().
int load_data(const struct options *options, struct data *data);

// Returns the samples of a run's largest batch. A stage allocates its buffers for this many.
static inline size_t largest_batch(const struct options *options) {
    int samples = options->train_samples > options->test_samples ? options->train_samples
                                                                 : options->test_samples;
    return (size_t)(options->batch < samples ? options->batch : samples);
}

// Returns the units of the widest hidden layer.
size_t widest_layer(const struct options *options);

// Returns the initial weights of a layer, counted from 0: inputs × outputs, row-major, uniform in
// ±√(6 / inputs), as in He et al. (2015). Layer l draws from stream l + 1. free() releases them.
float *draw_weights(const struct options *options, int layer);

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

// Writes the weights of a layer (inputs × outputs, row-major) and its bias, for all layers in turn,
// to the file of --save-weights: see write_arrays(). Returns the exit status.
int write_weights(const struct options *options, float *const weights[], float *const biases[]);

#ifdef __cplusplus
}
#endif

#endif
