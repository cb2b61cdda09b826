// Small steps from 03_cuda_unified to 05_cuda_shared_tiling, at hidden 256 and batch 128. They
// compute the product that takes most of the time. Each step is one kernel and changes one thing.
//
//     y = x·W     x n × 784, W 784 × H, y n × H, all row-major and in the device's memory
#include "common/cuda.h"
#include "common/data.h"

#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <string>

enum { SAMPLES = 128, HIDDEN = 256, WARP = 32 };
// The tiles of steps 3 to 5. All of them divide the shapes, so that no kernel has to check.
enum { SIDE = 16, DEPTH = 16, TILE = 32, ROWS = 4, COLUMNS = 4, SLICES = 7 };
static_assert(PIXELS % (SLICES * DEPTH) == 0 && SAMPLES % TILE == 0 && HIDDEN % TILE == 0, "");

// How often a kernel is launched between two reads of the device's clock. That clock ticks in half
// microseconds.
#ifndef LAUNCHES
#define LAUNCHES 100
#endif

struct operands {
    float *x, *weights, *y;
    float *sums; // SLICES × n × H: what each slice of the pixels adds to y
};

// 1. A thread for each number of y. The threads of a warp are neighbours in a column. Each of them
// reads x in a row of its own, which takes a transaction of its own.
__global__ void naive(const float *x, const float *weights, float *y) {
    const int s = blockIdx.x * WARP + threadIdx.x, h = blockIdx.y * 8 + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < PIXELS; ++k)
        sum += x[s * PIXELS + k] * weights[k * HIDDEN + h];
    y[s * HIDDEN + h] = sum;
}

// 2. The threads of a warp are neighbours in a row. They read the same number of x and neighbouring
// numbers of W. This is how 03 and 04 do it.
__global__ void coalesced(const float *x, const float *weights, float *y) {
    const int h = blockIdx.x * WARP + threadIdx.x, s = blockIdx.y * 8 + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < PIXELS; ++k)
        sum += x[s * PIXELS + k] * weights[k * HIDDEN + h];
    y[s * HIDDEN + h] = sum;
}

// 3. A block fetches SIDE × SIDE numbers of x and of W into shared memory. The threads read each of
// them SIDE times from there.
__global__ void shared_tile(const float *x, const float *weights, float *y) {
    __shared__ float x_tile[SIDE][SIDE];
    __shared__ float weights_tile[SIDE][SIDE];
    const int column = threadIdx.x, row = threadIdx.y;
    const int h = blockIdx.x * SIDE + column, s = blockIdx.y * SIDE + row;
    float sum = 0;
    for (int k = 0; k < PIXELS; k += SIDE) {
        x_tile[row][column] = x[s * PIXELS + k + column];
        weights_tile[row][column] = weights[(k + row) * HIDDEN + h];
        __syncthreads();
        for (int i = 0; i < SIDE; ++i)
            sum += x_tile[row][i] * weights_tile[i][column];
        __syncthreads();
    }
    y[s * HIDDEN + h] = sum;
}

// The block of the next two steps sums TILE × TILE numbers of y over the pixels from `first` to
// `last`. Each thread has ROWS × COLUMNS of them in registers. These are TILE / ROWS and TILE /
// COLUMNS apart, so that neighbouring threads read neighbouring numbers of shared memory.
__device__ void tile_sums(const float *x, const float *weights, float *y, int first, int last) {
    __shared__ float x_tile[TILE][DEPTH + 1]; // padded: rows begin in different banks
    __shared__ float weights_tile[DEPTH][TILE];
    const int h = blockIdx.x * TILE, s = blockIdx.y * TILE;
    const int threads = TILE / COLUMNS * (TILE / ROWS);
    const int thread = threadIdx.y * (TILE / COLUMNS) + threadIdx.x;
    float sum[ROWS][COLUMNS] = {};
    for (int k = first; k < last; k += DEPTH) {
        for (int i = thread; i < TILE * DEPTH; i += threads) {
            x_tile[i / DEPTH][i % DEPTH] = x[(s + i / DEPTH) * PIXELS + k + i % DEPTH];
            weights_tile[i / TILE][i % TILE] = weights[(k + i / TILE) * HIDDEN + h + i % TILE];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < DEPTH; ++i)
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c)
                    sum[r][c] += x_tile[r * (TILE / ROWS) + threadIdx.y][i] *
                                 weights_tile[i][c * (TILE / COLUMNS) + threadIdx.x];
        __syncthreads();
    }
    for (int r = 0; r < ROWS; ++r)
        for (int c = 0; c < COLUMNS; ++c)
            y[(s + r * (TILE / ROWS) + threadIdx.y) * HIDDEN + h + c * (TILE / COLUMNS) +
              threadIdx.x] = sum[r][c];
}

// 4. Register blocking: 16 multiply-adds for 8 reads of shared memory, instead of one for two. But
// only 32 blocks are left, for a device that may have more than a hundred multiprocessors.
__global__ void register_blocking(const float *x, const float *weights, float *y) {
    tile_sums(x, weights, y, 0, PIXELS);
}

// 5. SLICES times as many blocks share the pixels, a slice each. A second kernel adds up their
// sums.
__global__ void slice_sums(const float *x, const float *weights, float *sums) {
    const int slice = PIXELS / SLICES, z = blockIdx.z;
    tile_sums(x, weights, sums + z * SAMPLES * HIDDEN, z * slice, (z + 1) * slice);
}

__global__ void add_slices(const float *sums, float *y) {
    const int i = blockIdx.x * HIDDEN + threadIdx.x;
    float sum = 0;
    for (int z = 0; z < SLICES; ++z)
        sum += sums[z * SAMPLES * HIDDEN + i];
    y[i] = sum;
}

static void run_naive(const struct operands &o) {
    naive<<<dim3(SAMPLES / WARP, HIDDEN / 8), dim3(WARP, 8)>>>(o.x, o.weights, o.y);
}

static void run_coalesced(const struct operands &o) {
    coalesced<<<dim3(HIDDEN / WARP, SAMPLES / 8), dim3(WARP, 8)>>>(o.x, o.weights, o.y);
}

static void run_shared_tile(const struct operands &o) {
    const dim3 blocks(HIDDEN / SIDE, SAMPLES / SIDE);
    shared_tile<<<blocks, dim3(SIDE, SIDE)>>>(o.x, o.weights, o.y);
}

static void run_register_blocking(const struct operands &o) {
    const dim3 blocks(HIDDEN / TILE, SAMPLES / TILE), threads(TILE / COLUMNS, TILE / ROWS);
    register_blocking<<<blocks, threads>>>(o.x, o.weights, o.y);
}

static void run_split_inner(const struct operands &o) {
    const dim3 blocks(HIDDEN / TILE, SAMPLES / TILE, SLICES);
    const dim3 threads(TILE / COLUMNS, TILE / ROWS);
    slice_sums<<<blocks, threads>>>(o.x, o.weights, o.sums);
    add_slices<<<SAMPLES, HIDDEN>>>(o.sums, o.y);
}

static float *managed(size_t count) {
    float *floats;
    CHECK_ALLOCATION(cudaMallocManaged(&floats, count * sizeof(float)), count * sizeof(float));
    return floats;
}

static void fill(float *numbers, size_t count) {
    static std::minstd_rand random(1);
    for (size_t i = 0; i < count; ++i)
        numbers[i] = (float)(random() % 1000) / 1000 - 0.5f;
}

// A wrong product may be a fast one. So this compares what a step has computed with sums in double.
static bool is_right(const struct operands &o) {
    for (size_t s = 0; s < SAMPLES; ++s)
        for (size_t h = 0; h < HIDDEN; ++h) {
            double sum = 0;
            for (size_t k = 0; k < PIXELS; ++k)
                sum += (double)o.x[s * PIXELS + k] * o.weights[k * HIDDEN + h];
            if (!(std::fabs(sum - o.y[s * HIDDEN + h]) < 1e-4))
                return false;
        }
    return true;
}

static void run_step(benchmark::State &state, void (*step)(const struct operands &)) {
    struct operands o = {managed(SAMPLES * PIXELS), managed(PIXELS * HIDDEN),
                         managed(SAMPLES * HIDDEN), managed(SLICES * SAMPLES * HIDDEN)};
    cudaEvent_t start, end;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    fill(o.x, SAMPLES * PIXELS);
    fill(o.weights, PIXELS * HIDDEN);
    step(o);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    if (!is_right(o))
        state.SkipWithError("wrong result");
    step(o); // moves back to the device what the host has just read
    while (state.KeepRunningBatch(LAUNCHES)) {
        float milliseconds;
        CHECK(cudaEventRecord(start));
        for (int i = 0; i < LAUNCHES; ++i)
            step(o);
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&milliseconds, start, end));
        state.SetIterationTime(1e-3 * milliseconds);
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    for (float *array : {o.x, o.weights, o.y, o.sums})
        CHECK(cudaFree(array));
    state.counters["flops"] = benchmark::Counter(2.0 * SAMPLES * HIDDEN * PIXELS,
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

int main(int argc, char **argv) {
    const struct {
        const char *name;
        void (*step)(const struct operands &);
    } steps[] = {
        {"1_naive", run_naive},
        {"2_coalesced", run_coalesced},
        {"3_shared_tile", run_shared_tile},
        {"4_register_blocking", run_register_blocking},
        {"5_split_inner", run_split_inner},
    };
    benchmark::AddCustomContext("gpu", open_device());
    for (const auto &step : steps)
        benchmark::RegisterBenchmark((std::string("gpu_steps/") + step.name).c_str(), run_step,
                                     step.step)
            ->Unit(benchmark::kMicrosecond)
            ->UseManualTime();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return EXIT_BAD_INPUT;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
