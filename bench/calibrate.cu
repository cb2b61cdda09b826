// Measures what a GPU can do at most, and what waiting costs on it. Prints the rows of README.md as
// CSV, each as soon as it is there. With --hold SECONDS it only holds a context, so that those of
// other programs start sooner. Without Google Benchmark, it runs where there is only a driver.
#include "common/cuda.h"

#include <algorithm>
#include <cooperative_groups.h>
#include <unistd.h>

// A chain of CELLS in shared memory, or of lines of LINE pointers, has a power of two of places. It
// comes to all of them, since STEP is odd.
enum { REPEATS = 9, THREADS = 512, CHAINS = 8, CELLS = 64, LINE = 16, STEP = 7919 };

// What a kernel leaves in `result` shows that it has done its work.
__global__ void nothing() {
}

__global__ void grid_barriers(unsigned rounds, unsigned *result) {
    for (unsigned i = 0; i < rounds; ++i)
        cooperative_groups::this_grid().sync();
    *result = rounds;
}

#if __CUDA_ARCH__ >= 900
__global__ void __cluster_dims__(8) cluster_barriers(unsigned rounds, unsigned *result) {
    for (unsigned i = 0; i < rounds; ++i)
        cooperative_groups::this_cluster().sync();
    *result = rounds;
}
#else // no clusters
__global__ void cluster_barriers(unsigned, unsigned *) {
}
#endif

__global__ void link_lines(void **lines) {
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    lines[i * LINE] = lines + (i + STEP) % (gridDim.x * THREADS) * LINE;
}

// Each load needs the one before. The next walk goes on where this one ends.
__global__ void walk_lines(void **lines, unsigned steps, unsigned *result) {
    void **at = lines + *result * LINE;
    for (unsigned i = 0; i < steps; ++i)
        at = (void **)*at;
    *result = (unsigned)((at - lines) / LINE);
}

// The same in shared memory, with addresses in bytes: a step is a load and nothing else.
__global__ void walk_cells(unsigned steps, unsigned *result) {
    __shared__ unsigned cells[CELLS];
    for (unsigned i = 0; i < CELLS; ++i)
        cells[i] = (i + STEP) % CELLS * 4;
    unsigned at = *result * 4;
    for (unsigned i = 0; i < steps; ++i)
        at = *(const unsigned *)((const char *)cells + at);
    *result = at / 4;
}

// Reads mask + 1 words again and again. The stride is a block more than the grid, so that another
// multiprocessor reads a word next, whose L1 does not have it.
__global__ void read_words(const unsigned *words, unsigned mask, unsigned rounds,
                           unsigned *result) {
    const unsigned thread = blockIdx.x * THREADS + threadIdx.x, stride = (gridDim.x + 1) * THREADS;
    unsigned sum = 0;
#pragma unroll 8
    for (unsigned i = 0; i < rounds; ++i)
        sum += words[(thread + i * stride) & mask];
    result[thread] = sum;
}

// If `sign` is -1, which the compiler does not know, a number takes turns with another, most of
// whose bits are different. Numbers at rest take less power than those of a stage, and the clock
// rises.
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

// Prints a row, with the median and the range of `scale` times the seconds of `work`, or divided by
// them. The host launches the next one meanwhile.
template <typename Work>
static void measure(const char *row, double scale, unsigned *result, unsigned expected, Work work) {
    const bool is_rate = strstr(row, "/s") || strstr(row, "Hz");
    struct phase_events events = create_events(REPEATS + 1);
    double values[REPEATS];
    unsigned found;
    CHECK(cudaMemset(result, 0, sizeof found));
    for (int i = 0; i <= REPEATS; ++i) {
        work();
        CHECK(cudaGetLastError());
        mark_phase(&events);
    }
    CHECK(cudaMemcpy(&found, result, sizeof found, cudaMemcpyDeviceToHost));
    if (found != expected)
        exit((report_error("calibrate", "%s: wrong result", row), EXIT_RUN_FAILED));
    for (int i = 0; i < REPEATS; ++i) {
        float ms;
        CHECK(cudaEventElapsedTime(&ms, events.events[i], events.events[i + 1]));
        values[i] = is_rate ? scale / (1e-3 * ms) : scale * 1e-3 * ms;
    }
    std::sort(values, values + REPEATS);
    printf("%s,%g,%g,%g\n", row, values[REPEATS / 2], values[0], values[REPEATS - 1]);
    fflush(stdout);
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
    unsigned n = is_real ? 1 << 10 : 1 << 4, processors = (unsigned)gpu.multiProcessorCount;
    const unsigned blocks = processors * (unsigned)(gpu.maxThreadsPerMultiProcessor / THREADS);
    const unsigned steps = 16 * n, threads = blocks * THREADS;
    const size_t l2 = (size_t)1 << (int)log2(gpu.l2CacheSize / 4), memory = 128 * l2; // bytes
    unsigned *data, *result;
    CHECK_ALLOCATION(cudaMalloc(&data, memory), memory);
    CHECK(cudaMalloc(&result, threads * sizeof *result));
    puts("what,unit,value,least,most");
    // An idle GPU has slow clocks.
    multiply_adds<<<blocks, THREADS>>>(-1, n, is_real ? 1000000000 : 0, result);
    for (const bool waits : {false, true})
        measure(waits ? "launch_wait,µs" : "launch,µs", 1e6 / n, result, 0, [=] {
            for (unsigned i = 0; i < n; ++i) {
                nothing<<<1, 1>>>();
                if (waits)
                    CHECK(cudaDeviceSynchronize());
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
    measure("node,µs", 1e6 / n, result, 0, [=] { CHECK(cudaGraphLaunch(nodes, 0)); });
    void *words[] = {&n, &result};
    measure("grid_barrier,µs", 1e6 / n, result, n, [&] {
        CHECK(cudaLaunchCooperativeKernel((const void *)grid_barriers, processors, THREADS, words));
    });
#if __CUDA_ARCH_LIST__ >= 900
    if (gpu.major >= 9)
        measure("cluster_barrier,µs", 1e6 / n, result, n,
                [=] { cluster_barriers<<<8, THREADS>>>(n, result); });
#endif
    measure("load_shared,ns", 1e9 / steps, result, (REPEATS + 1) * steps * STEP % CELLS,
            [=] { walk_cells<<<1, 1>>>(steps, result); });
    for (const size_t bytes : {l2, memory}) {
        const unsigned lines = (unsigned)(bytes / 256), words = (unsigned)(bytes / 4);
        CHECK(cudaMemset(data, 1, bytes));
        measure(bytes == l2 ? "read_L2,GB/s" : "read_memory,GB/s", 16e-9 * n * threads, result,
                4 * n * 0x01010101,
                [=] { read_words<<<blocks, THREADS>>>(data, words - 1, 4 * n, result); });
        // A chain through half of it. The rest takes its place in L2.
        link_lines<<<lines / THREADS, THREADS>>>((void **)data);
        CHECK(cudaMemset((char *)data + bytes / 2, 1, bytes / 2));
        measure(bytes == l2 ? "load_L2,ns" : "load_memory,ns", 1e9 / steps, result,
                (REPEATS + 1) * steps * STEP % lines,
                [=] { walk_lines<<<1, 1>>>((void **)data, steps, result); });
    }
    measure("fma,GFLOP/s", 2e-9 * CHAINS * 16 * n * threads, result, CHAINS * (CHAINS - 1) / 2,
            [=] { multiply_adds<<<blocks, THREADS>>>(-1, 16 * n, 0, result); });
    measure("clock,MHz", 4e-6 * n * n, result, CHAINS * (CHAINS - 1) / 2,
            [=] { multiply_adds<<<blocks, THREADS>>>(-1, 16, 4 * n * n, result); });
    std::vector<unsigned> pageable(n << 12, n);
    unsigned *pinned;
    CHECK(cudaMallocHost(&pinned, n << 14));
    std::copy(pageable.begin(), pageable.end(), pinned);
    for (const unsigned *from : {pinned, pageable.data()})
        measure(from == pinned ? "copy_pinned,GB/s" : "copy_pageable,GB/s", 1e-9 * (n << 14), data,
                n, [=] { CHECK(cudaMemcpyAsync(data, from, n << 14, cudaMemcpyHostToDevice)); });
    CHECK(cudaGraphExecDestroy(nodes));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(result));
    CHECK(cudaFree(data));
}
