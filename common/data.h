// MNIST from files into memory.
#ifndef COMMON_DATA_H
#define COMMON_DATA_H

#include "common/options.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PIXELS = 784, CLASSES = 10 };

struct dataset {
    int samples;
    float *images;   // samples × 784, row-major, 64-byte aligned, pixel / 255: 0 to 1
    uint8_t *labels; // samples, each 0 to 9
};

struct data {
    struct dataset train;
    struct dataset test;
    const char *name; // "mnist", "synthetic" or "csv"
    double load_s;    // seconds from the files to float arrays in memory
};

// Consecutive samples of a data set.
struct batch {
    size_t samples;        // n
    const float *images;   // n × 784
    const uint8_t *labels; // n
};

// Returns the batch that begins at sample `first`: `size` samples, or the rest of the data set.
static inline struct batch batch_at(const struct dataset *dataset, size_t first, int size) {
    size_t left = (size_t)dataset->samples - first;
    struct batch batch = {left < (size_t)size ? left : (size_t)size,
                          dataset->images + first * PIXELS, dataset->labels + first};
    return batch;
}

// Returns the samples of a run's largest batch. A stage allocates its buffers for this many.
static inline size_t largest_batch(const struct options *options) {
    int samples = options->train_samples > options->test_samples ? options->train_samples
                                                                 : options->test_samples;
    return (size_t)(options->batch < samples ? options->batch : samples);
}

// Returns zeroed floats, 64-byte aligned; free() releases them. It never returns NULL: without
// enough memory, it says how much was asked for and exits with EXIT_RUN_FAILED.
float *allocate_floats(size_t count);

// Loads the first --train and the first --test samples from the directory --data. It looks for IDX
// first (LeCun's train-images-idx3-ubyte and its three companions, raw or .gz), then for Kaggle's
// train.csv (raw or .gz). In a CSV the training rows come first, then the test rows. Files are read
// to their end, so that damage after the last sample used is found too. Returns 0, or
// EXIT_BAD_INPUT after one line on standard error that names the file, what was found and what was
// expected. In that case `data` is empty.
int load_data(const struct options *options, struct data *data);

void free_data(struct data *data);

// The generator of the initial weights: PCG32 (XSH-RR 64/32, O'Neill 2014).
struct pcg32 {
    uint64_t state;
    uint64_t increment;
};

// Returns the generator at its start, for a run's --seed. W1 uses stream 1, W2 uses stream 2.
struct pcg32 seed_weights(uint64_t seed, uint64_t stream);

// Returns the next weight, in row-major order: uniform in ±√(6 / fan_in), as in He et al. (2015).
float draw_weight(struct pcg32 *generator, size_t fan_in);

// Writes weights1 (784 × hidden), bias1, weights2 (hidden × 10) and bias2, row-major, as float32 in
// the machine's byte order, which is little-endian on every machine that this is for. It writes to
// PATH.PID.partial and then renames that file. So an earlier file at `path` stays whole, whatever
// stops the run. Returns 0, or EXIT_RUN_FAILED after one line.
int write_weights(const char *path, size_t hidden, const float *weights1, const float *bias1,
                  const float *weights2, const float *bias2);

#ifdef __cplusplus
}
#endif

#endif
