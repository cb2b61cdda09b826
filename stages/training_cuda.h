// What the CUDA stages share beside training.h: the device, the times of the phases, and data sets
// of bytes.
#ifndef STAGES_TRAINING_CUDA_H
#define STAGES_TRAINING_CUDA_H

#include "common/cuda.h"
#include "stages/training.h"

// Returns the batches of an epoch.
static inline size_t batches(const struct options *options) {
    return ((size_t)options->train_samples - 1) / (size_t)options->batch + 1;
}

// Creates the events of an epoch: for two phases in each batch, and one before the first.
static inline struct phase_events create_events(const struct options *options) {
    return create_events(1 + 2 * batches(options));
}

// Adds the times between the marks of an epoch to the timers of the two phases, as if all epochs of
// the run had taken them, and destroys the events.
static inline void collect_events(struct phase_events *events, const struct options *options,
                                  struct result *result) {
    collect_events(events, {&result->forward, &result->backward}, options->epochs);
}

// Returns how many blocks of a kernel are launched so that they can wait for each other: one a
// multiprocessor. If the device can't have all of them at once, prints one line and exits with
// EXIT_NO_DEVICE.
static inline int cooperative_blocks(const void *kernel, int threads) {
    int blocks, multiprocessors, is_able;
    CHECK(cudaDeviceGetAttribute(&is_able, cudaDevAttrCooperativeLaunch, 0));
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0));
    if (!is_able || blocks == 0) {
        report_error(STAGE, "this device can't launch blocks that wait for each other; try 08");
        exit(EXIT_NO_DEVICE);
    }
    return multiprocessors;
}

// Within a kernel, returns what the multiprocessor's clock says. If `ticks` is not NULL, the first
// block writes down how many there were since `start`.
static inline __device__ long long lap(float *ticks, size_t phase, long long start) {
    const long long now = clock64();
    if (ticks && blockIdx.x == 0 && threadIdx.x == 0)
        ticks[phase] = (float)(now - start);
    return now;
}

// Adds the phases' shares of an epoch of so many seconds to the timers, as if all epochs of the run
// had taken them. `ticks` is on the device: two phases in each batch.
static inline void collect_ticks(const float *ticks, const struct options *options, double epoch_s,
                                 struct result *result) {
    std::vector<float> host(2 * batches(options));
    CHECK(cudaMemcpy(host.data(), ticks, host.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double sum = 0;
    for (float each : host)
        sum += each;
    for (size_t i = 0; i < host.size(); ++i)
        timer_add(i % 2 ? &result->backward : &result->forward, epoch_s * host[i] / sum);
    timer_repeat(&result->forward, options->epochs);
    timer_repeat(&result->backward, options->epochs);
}

// A data set on the device. A pixel is the byte that its file has.
struct byte_dataset {
    int samples;
    uint8_t *images; // samples × 784: 255·x
    uint8_t *labels; // samples
};

// Consecutive samples of it.
struct byte_batch {
    size_t samples;        // n
    const uint8_t *images; // n × 784: 255·x
    const uint8_t *labels; // n
};

// Returns the batch that begins at sample `first`: `size` samples, or the rest of the data set.
static inline __host__ __device__ struct byte_batch batch_at(const struct byte_dataset *dataset,
                                                             size_t first, int size) {
    const size_t left = (size_t)dataset->samples - first;
    return {left < (size_t)size ? left : (size_t)size, dataset->images + first * PIXELS,
            dataset->labels + first};
}

#endif
