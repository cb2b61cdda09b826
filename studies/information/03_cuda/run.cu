// Stage 03: the paper's program for a GPU. The host computes the softmax, as in stage 00, and
// copies p and q to the device. There, a block computes the sums of a row. The host adds up the
// rows' sums.
//
// Shapes: B samples (rows), D features. Arrays are row-major: p[b][i] is p[b * D + i].
#include "common/cuda.h"
#include "studies/information/run.h"

#include <math.h>
#include <stdlib.h>

// The threads of a block. With 256 features, each has one of the p_i.
enum { THREADS = 256 };

struct buffers {
    float *p, *q, *sums;                      // B × D, B × D, B: on the host
    float *device_p, *device_q, *device_sums; // the same on the device
};

static float *allocate(size_t count) {
    float *floats;
    CHECK_ALLOCATION(cudaMalloc(&floats, count * sizeof(float)), count * sizeof(float));
    return floats;
}

static struct buffers create(const struct activations *data) {
    const size_t count = data->samples * data->features;
    struct buffers buffers = {};
    buffers.p = allocate_floats(count);
    buffers.q = allocate_floats(count);
    buffers.sums = allocate_floats(data->samples);
    buffers.device_p = allocate(count);
    buffers.device_q = allocate(count);
    buffers.device_sums = allocate(data->samples);
    return buffers;
}

static void destroy(struct buffers *buffers) {
    free(buffers->p);
    free(buffers->q);
    free(buffers->sums);
    CHECK(cudaFree(buffers->device_p));
    CHECK(cudaFree(buffers->device_q));
    CHECK(cudaFree(buffers->device_sums));
}

// p = softmax(x), row by row, shifted by the row's largest x, so that exp() cannot overflow. The
// error of a sum grows with the number of its terms, so long sums are double.
static void softmax(const float *x, float *p, size_t samples, size_t features) {
    for (size_t b = 0; b < samples; ++b) {
        const float *row = x + b * features;
        float *out = p + b * features, max = row[0];
        for (size_t i = 1; i < features; ++i)
            max = row[i] > max ? row[i] : max;
        double sum = 0;
        for (size_t i = 0; i < features; ++i) {
            out[i] = expf(row[i] - max);
            sum += out[i];
        }
        for (size_t i = 0; i < features; ++i)
            out[i] /= (float)sum;
    }
}

// Copies p and q to the device, and waits until they are there.
static void transfer(struct buffers *buffers, size_t count) {
    const size_t bytes = count * sizeof(float);
    CHECK(cudaMemcpy(buffers->device_p, buffers->p, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(buffers->device_q, buffers->q, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
}

// Returns the sum of the threads' values, to all threads of the block. A kernel calls it once.
__device__ float block_sum(float value) {
    __shared__ float parts[THREADS];
    parts[threadIdx.x] = value;
    __syncthreads();
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    return parts[0];
}

// Σ_i p_i² of the block's row.
__global__ void entropy_kernel(const float *p, float *sums, size_t features) {
    const float *p_row = p + blockIdx.x * features;
    float sum = 0;
    for (size_t i = threadIdx.x; i < features; i += THREADS)
        sum += p_row[i] * p_row[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

// Σ_ij (p_i·q_j)² of the block's row. A thread takes every THREADS-th i, and all j.
__global__ void information_kernel(const float *p, const float *q, float *sums, size_t features) {
    const float *p_row = p + blockIdx.x * features, *q_row = q + blockIdx.x * features;
    float total = 0;
    for (size_t i = threadIdx.x; i < features; i += THREADS) {
        float sum = 0;
        for (size_t j = 0; j < features; ++j) {
            const float product = p_row[i] * q_row[j];
            sum += product * product;
        }
        total += sum;
    }
    total = block_sum(total);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = total;
}

// Copies the rows' sums to the host, which waits for them. Returns their mean.
static double mean(struct buffers *buffers, size_t samples) {
    CHECK(cudaMemcpy(buffers->sums, buffers->device_sums, samples * sizeof(float),
                     cudaMemcpyDeviceToHost));
    double total = 0;
    for (size_t b = 0; b < samples; ++b)
        total += buffers->sums[b];
    return total / (double)samples;
}

// Returns H.
static double entropy(struct buffers *buffers, size_t samples, size_t features) {
    entropy_kernel<<<(unsigned)samples, THREADS>>>(buffers->device_p, buffers->device_sums,
                                                   features);
    CHECK(cudaGetLastError());
    return mean(buffers, samples);
}

// Returns I.
static double information(struct buffers *buffers, size_t samples, size_t features) {
    information_kernel<<<(unsigned)samples, THREADS>>>(buffers->device_p, buffers->device_q,
                                                       buffers->device_sums, features);
    CHECK(cudaGetLastError());
    return mean(buffers, samples);
}

// Does all of the work once. At the end of each phase the host waits for the device. So the host's
// clock is right.
static void pass(struct buffers *buffers, const struct activations *data, struct result *result) {
    const size_t samples = data->samples, features = data->features;
    double clock = seconds();
    softmax(data->x, buffers->p, samples, features);
    softmax(data->y, buffers->q, samples, features);
    clock = timer_lap(&result->softmax_time, clock);
    transfer(buffers, samples * features);
    clock = timer_lap(&result->transfer_time, clock);
    result->entropy = entropy(buffers, samples, features);
    clock = timer_lap(&result->entropy_time, clock);
    result->information = information(buffers, samples, features);
    timer_lap(&result->information_time, clock);
}

// Repeats the pass until --seconds have passed.
static void measure(struct buffers *buffers, const struct activations *data,
                    const struct options *options, struct result *result) {
    const double start = seconds();
    do {
        pass(buffers, data, result);
        result->time_s = seconds() - start;
    } while (result->time_s < options->seconds);
    result->time_s /= (double)result->softmax_time.count;
}

int main(int argc, char **argv) {
    struct options options =
        parse_options(argc, argv, "Computes the softmax on a core, the sums on a GPU.", 1);
    struct result result = {}, first = {};
    const double features = options.features;
    // Two softmax of 4 operations a number, 2 for each p_i², 3 for each (p_i·q_j)².
    result.operations =
        options.samples * (2 * 4 * features + 2 * features + 3 * features * features);

    double clock = seconds();
    result.device = open_device();
    result.setup_s = seconds() - clock;
    struct activations data = draw_activations(&options);

    // The first pass loads the kernels and touches all pages of the buffers. It is not measured.
    clock = seconds();
    const double used = used_device_mib();
    struct buffers buffers = create(&data);
    pass(&buffers, &data, &first);
    result.setup_s += seconds() - clock;

    measure(&buffers, &data, &options, &result);
    result.peak_vram_mib = used_device_mib() - used;
    const int status = report_result(&options, &result);
    destroy(&buffers);
    free_activations(&data);
    return status;
}
