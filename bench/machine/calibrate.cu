// Measures what a GPU can do at most, and what waiting costs on it. Prints the rows of README.md as
// CSV, each as soon as it is there. With --hold SECONDS it only holds a context, so that those of
// other programs start sooner. Without Google Benchmark, it runs where there is only a driver.
#include "common/cuda.h"

#include <algorithm>
#include <cooperative_groups.h>
#include <unistd.h>

// A chain comes to all of its CELLS or lines, a power of two, since STEP is odd. LINE is in bytes.
enum { REPEATS = 9, THREADS = 256, CHAINS = 8, CELLS = 64, LINE = 128, STEP = 7919 };

__global__ void nothing() {
}

// What a kernel leaves in `result` shows that it has done its work.
__global__ void grid_barriers(unsigned rounds, unsigned *result) {
    for (unsigned i = 0; i < rounds; ++i)
        cooperative_groups::this_grid().sync();
    *result = rounds;
}

#if __CUDA_ARCH__ >= 900 // below, nvcc refuses a cluster
__global__ void __cluster_dims__(8) cluster_barriers(unsigned rounds, unsigned *result) {
    for (unsigned i = 0; i < rounds; ++i)
        cooperative_groups::this_cluster().sync();
    *result = rounds;
}
#else
__global__ void cluster_barriers(unsigned, unsigned *) {
}
#endif

__global__ void link_lines(char *lines) {
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    *(unsigned *)(lines + i * LINE) = (i + STEP) % (gridDim.x * THREADS) * LINE;
}

// Each load needs the one before, which has the next place in bytes.
__device__ unsigned follow(const char *places, unsigned at, unsigned steps) {
    for (unsigned i = 0; i < steps; ++i)
        at = *(const unsigned *)(places + at);
    return at;
}

// Goes on where the last walk has ended, so that no cache has what comes. NULL is shared memory.
__global__ void walk(const char *lines, unsigned steps, unsigned *result) {
    __shared__ unsigned cells[CELLS];
    for (unsigned i = 0; i < CELLS; ++i)
        cells[i] = (i + STEP) % CELLS * sizeof *cells;
    *result = lines ? follow(lines, *result, steps) : follow((char *)cells, *result, steps);
}

// Reads mask + 1 words again and again, past the L1 caches (__ldcg): with a stride of a block more
// than the grid, a word comes to another multiprocessor next, but soon to one that has had it.
__global__ void read_words(const unsigned *data, unsigned mask, unsigned rounds, unsigned *result) {
    const unsigned thread = blockIdx.x * THREADS + threadIdx.x, stride = (gridDim.x + 1) * THREADS;
    unsigned sum = 0;
#pragma unroll 8
    for (unsigned i = 0; i < rounds; ++i)
        sum += __ldcg(&data[(thread + i * stride) & mask]);
    result[thread] = sum;
}

// With a sign of -1, which the compiler does not know, a number takes turns with one of other bits:
// one at rest would take less power than those of a stage, and the clock would rise.
__global__ void multiply_adds(float sign, unsigned rounds, long long ticks, unsigned *result) {
    const long long start = clock64();
    float chains[CHAINS], sum = 0;
    for (int i = 0; i < CHAINS; ++i)
        chains[i] = (float)(threadIdx.x * CHAINS + i);
    do
#pragma unroll 16
        for (unsigned round = 0; round < rounds; ++round)
            for (int i = 0; i < CHAINS; ++i)
                chains[i] = fmaf(sign, chains[i], (1 << 20) - 1);
    while (clock64() - start < ticks);
    for (int i = 0; i < CHAINS; ++i)
        sum += chains[i];
    result[blockIdx.x * THREADS + threadIdx.x] = (unsigned)sum;
}

// Prints a row with the median and the range of `scale` times the seconds of `work`, or, per
// second, divided by them. While one runs, the host launches the next. Returns 0, or
// EXIT_RUN_FAILED after a line if the result is wrong: other rows may be right.
template <typename Work>
static int measure(const char *row, double scale, unsigned *result, unsigned expected, Work work) {
    const bool is_rate = strstr(row, "/s") || strstr(row, "Hz");
    struct phase_events events = create_events(REPEATS + 1);
    float values[REPEATS];
    unsigned found;
    CHECK(cudaMemset(result, 0, sizeof found));
    for (int i = 0; i <= REPEATS; ++i) {
        work();
        CHECK(cudaGetLastError());
        mark_phase(&events);
    }
    CHECK(cudaMemcpy(&found, result, sizeof found, cudaMemcpyDeviceToHost));
    if (found != expected)
        return report_error("calibrate", "%s: wrong result", row), EXIT_RUN_FAILED;
    for (int i = 0; i < REPEATS; ++i) {
        CHECK(cudaEventElapsedTime(&values[i], events.events[i], events.events[i + 1])); // in ms
        values[i] = (float)(is_rate ? 1e3 * scale / values[i] : 1e-3 * scale * values[i]);
    }
    std::sort(values, values + REPEATS);
    printf("%s,%g,%g,%g\n", row, values[REPEATS / 2], values[0], values[REPEATS - 1]);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv) {
    char *rest = NULL;
    const double hold = argc == 3 && !strcmp(argv[1], "--hold") ? strtod(argv[2], &rest) : 0;
    if (argc > 1 && (!(hold > 0 && hold < 4000) || *rest))
        return report_error("calibrate", "found '%s', expected --hold SECONDS", argv[argc - 1]);
    const bool is_real = !is_simulated(open_device());
    if (argc > 1)
        return usleep((unsigned)(1e6 * hold));
    cudaDeviceProp gpu;
    CHECK(cudaGetDeviceProperties(&gpu, 0));
    const int processors = gpu.multiProcessorCount;
    const unsigned blocks = (unsigned)(processors * (gpu.maxThreadsPerMultiProcessor / THREADS));
    const size_t l2 = (size_t)1 << (int)log2(gpu.l2CacheSize / 4), memory = 128 * l2;
    unsigned n = is_real ? 1024 : 16, steps = 16 * n, threads = blocks * THREADS, *data;
    const unsigned end = (REPEATS + 1) * steps * STEP, copied = n << 14;
    CHECK_ALLOCATION(cudaMalloc(&data, memory + threads * sizeof *data), memory);
    unsigned *result = data + memory / sizeof *data;

    int status = 0;
    puts("what,unit,value,least,most");
    multiply_adds<<<blocks, THREADS>>>(-1, n, is_real ? 1e9 : 0, result); // idle, its clock is slow
    CHECK(cudaDeviceSynchronize());
    for (const bool waits : {false, true})
        status |= measure(waits ? "launch_wait,µs" : "launch,µs", 1e6 / n, result, 0, [=] {
            for (unsigned i = 0; i < n; ++i) {
                nothing<<<1, 1>>>();
                CHECK(waits ? cudaDeviceSynchronize() : cudaSuccess);
            }
        });
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t nodes;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (unsigned i = 0; i < n; ++i)
        nothing<<<1, 1, 0, stream>>>();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&nodes, graph, 0));
    status |= measure("node,µs", 1e6 / n, result, 0, [=] { CHECK(cudaGraphLaunch(nodes, 0)); });
    CHECK(cudaGraphExecDestroy(nodes));
    CHECK(cudaGraphDestroy(graph));
    void *words[] = {&n, &result};
    status |= measure("grid_barrier,µs", 1e6 / n, result, n, [&] {
        CHECK(cudaLaunchCooperativeKernel((const void *)grid_barriers, processors, THREADS, words));
    });
    status |= measure("load_shared,ns", 1e9 / steps, result, end % CELLS * sizeof *data,
                      [=] { walk<<<1, 1>>>(NULL, steps, result); });
    for (const size_t bytes : {l2, memory}) {
        const unsigned lines = (unsigned)(bytes / 2 / LINE), mask = (unsigned)(bytes / 4 - 1);
        CHECK(cudaMemset(data, 1, bytes));
        status |= measure(bytes == l2 ? "read_L2,GB/s" : "read_memory,GB/s", 16e-9 * n * threads,
                          result, n * 0x04040404,
                          [=] { read_words<<<blocks, THREADS>>>(data, mask, 4 * n, result); });
        // The lines are the first half. The other takes their place in L2.
        link_lines<<<lines / THREADS, THREADS>>>((char *)data);
        CHECK(cudaMemset((char *)data + bytes / 2, 1, bytes / 2));
        status |= measure(bytes == l2 ? "load_L2,ns" : "load_memory,ns", 1e9 / steps, result,
                          end % lines * LINE, [=] { walk<<<1, 1>>>((char *)data, steps, result); });
    }
    status |=
        measure("fma,GFLOP/s", 32e-9 * CHAINS * n * threads, result, CHAINS * (CHAINS - 1) / 2,
                [=] { multiply_adds<<<blocks, THREADS>>>(-1, 16 * n, 0, result); });
    status |= measure("clock,MHz", 4e-6 * n * n, result, CHAINS * (CHAINS - 1) / 2,
                      [=] { multiply_adds<<<processors, THREADS>>>(-1, 16, 4 * n * n, result); });
    std::vector<unsigned> host(copied / sizeof *data, n);
    for (const bool pinned : {false, true}) {
        CHECK(pinned ? cudaHostRegister(host.data(), copied, 0) : cudaSuccess);
        status |=
            measure(pinned ? "copy_pinned,GB/s" : "copy_pageable,GB/s", 1e-9 * copied, data, n,
                    [&] { CHECK(cudaMemcpyAsync(data, host.data(), copied, cudaMemcpyDefault)); });
    }
    CHECK(cudaHostUnregister(host.data()));
#if __CUDA_ARCH_LIST__ >= 900
    if (gpu.major >= 9)
        status |= measure("cluster_barrier,µs", 1e6 / n, result, n,
                          [=] { cluster_barriers<<<8, THREADS>>>(n, result); });
#endif
    CHECK(cudaFree(data));
    return status;
}
