// What the stages share beside the network: its sizes, options, initial weights, and the results.
#ifndef STUDIES_CNN_TRAINING_H
#define STUDIES_CNN_TRAINING_H

#include "common/data.h"
#include "common/program.h"
#include "common/random.h"
#include "common/timing.h"

#ifdef __cplusplus
extern "C" {
#endif

// The sizes of the network. A number after a name is the layer.
enum {
    LAYERS = 4,
    SIDE = 28,  // rows and columns of an image: 784 pixels
    KERNEL = 3, // rows and columns of a filter
    TAPS = KERNEL * KERNEL,
    POOL = 2, // rows and columns of which a pool keeps the largest value

    CHANNELS1 = 8,             // filters of the first convolution
    SIDE1 = SIDE - KERNEL + 1, // 26: rows and columns that it gives
    POOLED1 = SIDE1 / POOL,    // 13: rows and columns after the pool

    CHANNELS2 = 16,               // filters of the second convolution, over CHANNELS1 channels
    SIDE2 = POOLED1 - KERNEL + 1, // 11
    POOLED2 = SIDE2 / POOL,       // 5: the last row and column of the 11 reach no pool

    FEATURES = CHANNELS2 * POOLED2 * POOLED2, // 400: channel by channel, row by row
    HIDDEN = 128,

    // Weights of each layer. Filters are in the order filter, channel, row, column.
    WEIGHTS1 = CHANNELS1 * TAPS,
    WEIGHTS2 = CHANNELS2 * CHANNELS1 * TAPS,
    WEIGHTS3 = FEATURES * HIDDEN,
    WEIGHTS4 = HIDDEN * CLASSES
};

struct options {
    struct common_options common;
    const char *data;       // directory of the IDX files or of train.csv
    int batch;              // samples in a batch, >= 1
    int epochs;             // passes over the training set, >= 0
    float learning_rate;    // > 0
    float momentum;         // 0 to below 1
    uint64_t seed;          // of the initial weights
    int train_samples;      // the first so many of the training file, >= 1
    int test_samples;       // the first so many of the test file, >= 1
    bool normalize;         // pixels get the mean 0 and the deviation 1 of MNIST
    bool pad;               // the training set is continued to a multiple of the batch
    const char *epochs_csv; // file that gets a row for each epoch, or NULL
    bool epochs_columns;    // print the header of that file, and stop
    uint64_t run;           // when the program started, in microseconds: it tells runs apart
};

// Parses the command line. `about` is the stage's one line in --help, and `max_threads` is the
// largest --threads that it accepts. On a wrong argument, it prints one line and exits.
struct options parse_options(int argc, char **argv, const char *about, int max_threads);

// Loads the data that the options name: see load_mnist(). With --normalize, a pixel of both sets
// becomes (pixel / 255 − 0.1307) / 0.3081. With --pad, data->train.samples is the next multiple of
// the batch, and the samples after the last one are the first ones again.
int load_data(const struct options *options, struct data *data);

// Returns the samples of a run's largest batch. A stage allocates its buffers for this many.
static inline size_t largest_batch(const struct options *options) {
    int samples = options->train_samples > options->test_samples ? options->train_samples
                                                                 : options->test_samples;
    return (size_t)(options->pad || options->batch < samples ? options->batch : samples);
}

// Returns the initial weights of a layer, 1 to 4: WEIGHTS1 and so on of them, row-major, uniform in
// ±√(6 / inputs), as in He et al. (2015). The inputs of a sum are 9, 72, 400 and 128. Layer l draws
// from stream l. free() releases them.
float *draw_weights(const struct options *options, int layer);

// How well the samples of some batches were classified, before the update that learns from them.
struct score {
    double loss;  // the sum of −log p[label]
    size_t right; // samples whose most probable class is their label
};

// What an epoch measured.
struct epoch {
    int number;           // from 1
    double epoch_s;       // wall clock from the first batch to the last weight being final
    struct score score;   // of the samples as they were trained on
    double test_accuracy; // 0 to 1, after the epoch and outside its time
    double vram_mib;      // device memory in use, 0: does not apply
};

// What a run measured. Times in seconds. report_epoch() sets what stands below the line.
struct result {
    const char *device;    // "cpu", or the name of the GPU
    int threads;           // 0: does not apply
    double setup_s;        // allocation, initial weights; for CUDA also the context and the upload
    double warmup_s;       // CUDA: a first epoch, which changes no weight; 0: does not apply
    struct timer forward;  // one duration a batch; on the simulated device none
    struct timer backward; // one duration a batch, the update included
    double peak_vram_mib;  // 0: does not apply
    // ----
    double train_s;            // the sum of the epochs' times
    double final_loss;         // mean over the samples of the last epoch
    double train_accuracy;     // of the last epoch
    double test_accuracy;      // after the last epoch; without epochs, main() sets it
    double best_test_accuracy; // the largest of all epochs
};

// Puts an epoch into the result, prints its line, unless --quiet, and appends its row to
// --epochs-csv. Returns 0, or EXIT_RUN_FAILED with one line if the loss is not finite or the row
// cannot be written. Then the run has failed.
int report_epoch(const struct options *options, const struct data *data, struct result *result,
                 const struct epoch *epoch);

// Prints the phases and the result line, and appends the row to --csv. Returns the exit status: 0,
// or EXIT_RUN_FAILED with one line if the row cannot be written.
int report_result(const struct options *options, const struct data *data,
                  const struct result *result);

// Writes W1, b1, W2, b2, W3, b3, W4, b4 to the file of --save-weights, row-major: see
// write_arrays(). Element 0 belongs to layer 1. Returns the exit status.
int write_weights(const struct options *options, float *const weights[LAYERS],
                  float *const biases[LAYERS]);

#ifdef __cplusplus
}
#endif

#endif
