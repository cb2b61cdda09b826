// MNIST from files into memory, and its batches.
#ifndef COMMON_DATA_H
#define COMMON_DATA_H

#include <stddef.h>
#include <stdint.h>

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

// Loads the first samples (--train and --test) from the directory (--data). It looks for IDX first
// (LeCun's train-images-idx3-ubyte and its three companions, raw or .gz), then for Kaggle's
// train.csv (raw or .gz). In a CSV the training rows come first, then the test rows. Files are read
// to their end, so that damage after the last sample used is found too. Returns 0, or
// EXIT_BAD_INPUT after one line on standard error that names the file, what was found and what was
// expected. In that case `data` is empty.
int load_mnist(const char *directory, int train_samples, int test_samples, struct data *data);

void free_data(struct data *data);

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

#ifdef __cplusplus
}
#endif

#endif
