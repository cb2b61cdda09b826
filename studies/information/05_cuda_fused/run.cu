// Stage 05: all of it in one kernel. x and y go to the device as they were drawn. A warp computes
// the softmax of a row and, with the double sum factored as in stage 04, all that is needed of it.
//
// Shapes: B samples (rows), D features. Arrays are row-major: x[b][i] is x[b * D + i].
#include "common/cuda.h"
#include "studies/information/run.h"

#include <math.h>
#include <string.h>

// A block has so many warps. At most so many blocks go through the rows, which occupies any GPU and
// leaves few sums for the host to add up.
enum { WARP = 32, WARPS = 8, THREADS = WARPS * WARP, BLOCKS = 1024 };

struct buffers {
    float *x, *y;               // B × D: a copy of the data in pinned memory of the host
    float *device_x, *device_y; // the same on the device
    double *sums, *device_sums; // 2 × blocks: each block's share of H, then of I
};

// Memory of the host that stays where it is, so that the device can fetch from it without a detour
// through the driver's own buffer.
static float *allocate_pinned(const float *values, size_t count) {
    float *floats;
    CHECK(cudaMallocHost(&floats, count * sizeof(float)));
    memcpy(floats, values, count * sizeof(float));
    return floats;
}

static float *allocate(size_t count) {
    float *floats;
    CHECK_ALLOCATION(cudaMalloc(&floats, count * sizeof(float)), count * sizeof(float));
    return floats;
}

static struct buffers create(const struct activations *data) {
    const size_t count = data->samples * data->features;
    struct buffers buffers = {};
    buffers.x = allocate_pinned(data->x, count);
    buffers.y = allocate_pinned(data->y, count);
    buffers.device_x = allocate(count);
    buffers.device_y = allocate(count);
    CHECK(cudaMallocHost(&buffers.sums, 2 * BLOCKS * sizeof(double)));
    CHECK(cudaMalloc(&buffers.device_sums, 2 * BLOCKS * sizeof(double)));
    return buffers;
}

static void destroy(struct buffers *buffers) {
    CHECK(cudaFreeHost(buffers->x));
    CHECK(cudaFreeHost(buffers->y));
    CHECK(cudaFreeHost(buffers->sums));
    CHECK(cudaFree(buffers->device_x));
    CHECK(cudaFree(buffers->device_y));
    CHECK(cudaFree(buffers->device_sums));
}

// Returns the sum over the threads of a warp, to all of them.
__device__ float warp_sum(float value) {
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(0xffffffff, value, distance);
    return value;
}

__device__ float warp_max(float value) {
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, distance));
    return value;
}

// Returns Σ p_i² of a row, p = softmax(x), to all threads of the warp. The row is read twice. The
// second time it comes from the first-level cache.
__device__ float row_squares(const float *row, size_t features) {
    const int lane = threadIdx.x % WARP;
    float max = -INFINITY, sum = 0, sum_squares = 0;
    for (size_t i = lane; i < features; i += WARP)
        max = fmaxf(max, row[i]);
    max = warp_max(max);
    for (size_t i = lane; i < features; i += WARP) {
        const float e = expf(row[i] - max);
        sum += e;
        sum_squares += e * e;
    }
    sum = warp_sum(sum);
    return warp_sum(sum_squares) / (sum * sum);
}

// Each warp takes a row, then the one that is as many rows further as there are warps. The block
// adds up what its warps found: Σ p_i² and Σ p_i² · Σ q_j².
__global__ void softmax_kernel(const float *x, const float *y, double *sums, size_t samples,
                               size_t features) {
    __shared__ double entropies[WARPS], informations[WARPS];
    const int warp = threadIdx.x / WARP;
    double entropy = 0, information = 0;
    for (size_t b = (size_t)blockIdx.x * WARPS + warp; b < samples;
         b += (size_t)gridDim.x * WARPS) {
        const float p_squares = row_squares(x + b * features, features);
        const float q_squares = row_squares(y + b * features, features);
        entropy += p_squares;
        information += p_squares * q_squares;
    }
    if (threadIdx.x % WARP == 0) {
        entropies[warp] = entropy;
        informations[warp] = information;
    }
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    for (int other = 1; other < WARPS; ++other) {
        entropy += entropies[other];
        information += informations[other];
    }
    sums[blockIdx.x] = entropy;
    sums[gridDim.x + blockIdx.x] = information;
}

// Returns the number of blocks for so many rows.
static size_t blocks(size_t samples) {
    const size_t needed = (samples + WARPS - 1) / WARPS, most = BLOCKS;
    return needed < most ? needed : most;
}

// Computes the blocks' sums, and copies them to the host, which waits for them.
static void softmax(struct buffers *buffers, size_t samples, size_t features) {
    softmax_kernel<<<(unsigned)blocks(samples), THREADS>>>(buffers->device_x, buffers->device_y,
                                                           buffers->device_sums, samples, features);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(buffers->sums, buffers->device_sums, 2 * blocks(samples) * sizeof(double),
                     cudaMemcpyDeviceToHost));
}

// Copies x and y to the device, and waits until they are there.
static void transfer(struct buffers *buffers, size_t count) {
    const size_t bytes = count * sizeof(float);
    CHECK(cudaMemcpy(buffers->device_x, buffers->x, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(buffers->device_y, buffers->y, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
}

// Returns the mean over the rows, from the blocks' sums.
static double mean(const double *sums, size_t samples) {
    double total = 0;
    for (size_t block = 0; block < blocks(samples); ++block)
        total += sums[block];
    return total / (double)samples;
}

// Returns H.
static double entropy(struct buffers *buffers, size_t samples) {
    return mean(buffers->sums, samples);
}

// Returns I.
static double information(struct buffers *buffers, size_t samples) {
    return mean(buffers->sums + blocks(samples), samples);
}

// Does all of the work once. At the end of each phase the host waits for the device. So the host's
// clock is right.
static void pass(struct buffers *buffers, const struct activations *data, struct result *result) {
    const size_t samples = data->samples, features = data->features;
    double clock = seconds();
    transfer(buffers, samples * features);
    clock = timer_lap(&result->transfer_time, clock);
    softmax(buffers, samples, features);
    clock = timer_lap(&result->softmax_time, clock);
    result->entropy = entropy(buffers, samples);
    clock = timer_lap(&result->entropy_time, clock);
    result->information = information(buffers, samples);
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
    struct options options = parse_options(argc, argv, "Computes all of it in one kernel.", 1);
    struct result result = {}, first = {};
    const double features = options.features;
    // Two rows of 5 operations a number: subtract, exponential, add, and 2 for e².
    result.operations = 2 * 5 * features * options.samples;

    double clock = seconds();
    result.device = open_device();
    result.setup_s = seconds() - clock;
    struct activations data = draw_activations(&options);

    // The first pass loads the kernel. It is not measured.
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
