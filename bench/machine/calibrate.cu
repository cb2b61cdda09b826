// Measures what a GPU can do at most, and what waiting costs on it. Prints the rows of README.md as
// CSV, each as soon as it is there. With --hold SECONDS it only holds a context, so that those of
// other programs start sooner. Without Google Benchmark, it runs where there is only a driver.
#include "common/cuda.h"
#include "common/tensor_cores.h"

#include <algorithm>
#include <cooperative_groups.h>
#include <unistd.h>

// The compute capability that this is compiled for, times ten.
#ifdef __CUDACC__
#define BUILT_FOR (__CUDA_ARCH_LIST__ / 10)
#else
#define BUILT_FOR CAPABILITY
#endif

// A chain comes to all of its CELLS or lines, a power of two, since STEP is odd. LINE is in bytes.
enum { REPEATS = 9, THREADS = 256, CHAINS = 8, CELLS = 64, LINE = 128, STEP = 7919 };
enum { WARP = 32, SLOTS = 1024, PAGE = 2 << 20 };

// What the rows are measured with.
struct device {
    cudaDeviceProp gpu;
    unsigned processors;
    unsigned blocks, threads; // of a full GPU
    unsigned n, steps;        // how often, and the loads of a chain
    unsigned *data;           // of so many bytes
    size_t l2, bytes;
    unsigned *result; // an element a thread
};

__global__ void nothing() {
}

// A node that needs the one before: a block adds 1 to what another block has written there.
__global__ void add_one(const unsigned *from, unsigned *to) {
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    to[i] = from[(i + THREADS) % (gridDim.x * THREADS)] + 1;
}

// What a kernel leaves in `result` shows that it has done its work.
__global__ void grid_barriers(unsigned rounds, unsigned *result) {
    for (unsigned i = 0; i < rounds; ++i)
        cooperative_groups::this_grid().sync();
    *result = rounds;
}

// Two blocks take turns: each waits for the other's number, and writes the next one. What it wrote
// before is there when the number is.
__global__ void take_turns(unsigned rounds, volatile unsigned *flag, unsigned *result) {
    for (unsigned i = blockIdx.x; i < rounds; i += 2) {
        while (*flag != i)
            ;
        __threadfence();
        *flag = i + 1;
    }
    *result = rounds;
}

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

// A warp multiplies CHAINS pairs of tiles, which need no sum of another. Lanes have different
// numbers, and their signs take turns: see multiply_adds. An odd number of rounds leaves 22.
template <bool is_bf16> __global__ void multiply_tiles(unsigned rounds, unsigned *result) {
#if BUILT_FOR >= 80
    float sums[CHAINS][4] = {};
    const unsigned number = is_bf16 ? 0x3f803f80 + threadIdx.x % 4 * 0x200020
                                    : 0x3c003c00 + threadIdx.x % 4 * 0x1000100;
    const unsigned one = is_bf16 ? 0x3f803f80 : 0x3c003c00;
    const unsigned a[] = {number, number, number, number};
    unsigned b[] = {one, one};
    for (unsigned round = 0; round < rounds; ++round) {
        for (int i = 0; i < CHAINS; ++i)
            is_bf16 ? mma_bf16(sums[i], a, b) : mma_f16(sums[i], a, b);
        b[0] = b[1] ^= 0x80008000;
    }
    float sum = 0;
    for (int i = 0; i < CHAINS; ++i)
        sum += sums[i][0];
    result[blockIdx.x * THREADS + threadIdx.x] = (unsigned)sum;
#endif
}

#if BUILT_FOR >= 90
__global__ void cluster_barriers(unsigned rounds, unsigned *result) {
    for (unsigned i = 0; i < rounds; ++i)
        cooperative_groups::this_cluster().sync();
    *result = rounds;
}

// As walk(), in the shared memory of each other block of the first one's cluster.
__global__ void walk_remote(unsigned steps, unsigned *result) {
    __shared__ unsigned cells[CELLS];
    const auto cluster = cooperative_groups::this_cluster();
    for (unsigned i = 0; i < CELLS; ++i)
        cells[i] = (i + STEP) % CELLS * sizeof *cells;
    cluster.sync();
    if (blockIdx.x == 0)
        for (unsigned rank = 1; rank < cluster.num_blocks(); ++rank)
            *result = follow((char *)cluster.map_shared_rank(cells, rank), *result, steps);
    cluster.sync(); // the others' memory is there until then
}

// Each block reads the shared memory of the next one of its cluster, 16 bytes a thread.
__global__ void read_remote(unsigned rounds, unsigned *result) {
    __shared__ float4 slots[SLOTS];
    const auto cluster = cooperative_groups::this_cluster();
    const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
    const float4 *const from = cluster.map_shared_rank(slots, next);
    slots[threadIdx.x] = {1, 1, 1, 1};
    cluster.sync();
    float sum = 0;
#pragma unroll 8
    for (unsigned i = 0; i < rounds; ++i) {
        const float4 four = from[(threadIdx.x + i * WARP) % SLOTS];
        sum += four.x + four.y + four.z + four.w;
    }
    cluster.sync();
    result[blockIdx.x * SLOTS + threadIdx.x] = (unsigned)sum;
}
#endif

// Prints a row with the median and the range of `scale` times the seconds of `work`, or, per
// second, divided by them. Where the host prepares nothing, it launches the next while one runs.
// Returns 0, or EXIT_RUN_FAILED after a line if the result is wrong: other rows may be right.
template <typename Work>
static int measure(const char *row, double scale, unsigned *result, unsigned expected, Work work,
                   void (*prepare)(unsigned *) = NULL, unsigned *prepared = NULL) {
    const bool is_rate = strstr(row, "/s") || strstr(row, "Hz");
    struct phase_events events = create_events(2 * (REPEATS + 1));
    float values[REPEATS + 1];
    unsigned found;
    CHECK(cudaMemset(result, 0, sizeof found));
    for (int i = 0; i <= REPEATS; ++i) {
        if (prepare)
            prepare(prepared);
        mark_phase(&events);
        work();
        CHECK(cudaGetLastError());
        mark_phase(&events);
    }
    CHECK(cudaMemcpy(&found, result, sizeof found, cudaMemcpyDeviceToHost));
    if (found != expected)
        return report_error("calibrate", "%s: wrong result", row), EXIT_RUN_FAILED;
    for (int i = 0; i <= REPEATS; ++i) {
        const cudaEvent_t *both = &events.events[2 * i];
        CHECK(cudaEventElapsedTime(&values[i], both[0], both[1])); // in ms
        values[i] = (float)(is_rate ? 1e3 * scale / values[i] : 1e-3 * scale * values[i]);
    }
    std::sort(values + 1, values + REPEATS + 1); // the first does not count
    printf("%s,%g,%g,%g\n", row, values[1 + REPEATS / 2], values[1], values[REPEATS]);
    fflush(stdout);
    return 0;
}

static int measure_launches(const struct device *device) {
    unsigned n = device->n, processors = device->processors;
    unsigned *result = device->result, *data = device->data;
    int status = 0;
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
    for (unsigned i = 0; i < n; i += 2) {
        add_one<<<processors, THREADS, 0, stream>>>(result, data);
        add_one<<<processors, THREADS, 0, stream>>>(data, result);
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&nodes, graph, 0));
    status |= measure("dependent_node,µs", 1e6 / n, result, n, [=] {
        CHECK(cudaMemsetAsync(result, 0, processors * THREADS * sizeof *result, 0));
        CHECK(cudaGraphLaunch(nodes, 0));
    });
    CHECK(cudaGraphExecDestroy(nodes));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    void *barriers[] = {&n, &result}, *turns[] = {&n, &data, &result};
    status |= measure("grid_barrier,µs", 1e6 / n, result, n, [&] {
        CHECK(cudaLaunchCooperativeKernel((const void *)grid_barriers, processors, THREADS,
                                          barriers));
    });
    status |= measure("flag,µs", 1e6 / n, result, n, [&] {
        CHECK(cudaMemsetAsync(data, 0, sizeof *data, 0));
        CHECK(cudaLaunchCooperativeKernel((const void *)take_turns, 2, 1, turns));
    });
    return status;
}

static int measure_memory(const struct device *device) {
    const unsigned n = device->n, steps = device->steps;
    const unsigned end = (REPEATS + 1) * steps * STEP;
    unsigned *const result = device->result, *const data = device->data;
    int status = measure("load_shared,ns", 1e9 / steps, result, end % CELLS * sizeof *data,
                         [=] { walk<<<1, 1>>>(NULL, steps, result); });
    for (const size_t bytes : {device->l2, device->bytes}) {
        const bool is_l2 = bytes == device->l2;
        const unsigned lines = (unsigned)(bytes / 2 / LINE), mask = (unsigned)(bytes / 4 - 1);
        CHECK(cudaMemset(data, 1, bytes));
        status |= measure(is_l2 ? "read_L2,GB/s" : "read_memory,GB/s", 16e-9 * n * device->threads,
                          result, n * 0x04040404, [=] {
                              read_words<<<device->blocks, THREADS>>>(data, mask, 4 * n, result);
                          });
        // The lines are the first half. The other takes their place in L2.
        link_lines<<<lines / THREADS, THREADS>>>((char *)data);
        CHECK(cudaMemset((char *)data + bytes / 2, 1, bytes / 2));
        status |= measure(is_l2 ? "load_L2,ns" : "load_memory,ns", 1e9 / steps, result,
                          end % lines * LINE, [=] { walk<<<1, 1>>>((char *)data, steps, result); });
    }
    return status;
}

static int measure_arithmetic(const struct device *device) {
    const unsigned n = device->n, processors = device->processors, blocks = device->blocks;
    unsigned *const result = device->result;
    const unsigned chains = CHAINS * (CHAINS - 1) / 2;
    int status = measure("fma,GFLOP/s", 32e-9 * CHAINS * n * device->threads, result, chains,
                         [=] { multiply_adds<<<blocks, THREADS>>>(-1, 16 * n, 0, result); });
    status |= measure("clock,MHz", 4e-6 * n * n, result, chains,
                      [=] { multiply_adds<<<processors, THREADS>>>(-1, 16, 4 * n * n, result); });
#if BUILT_FOR >= 80
    const unsigned rounds = n + 1; // an odd number
    const double operations = 2.0 * 16 * 8 * 16 * CHAINS * rounds * (device->threads / WARP);
    status |= measure("mma_f16,GFLOP/s", 1e-9 * operations, result, 22 * CHAINS,
                      [=] { multiply_tiles<false><<<blocks, THREADS>>>(rounds, result); });
    status |= measure("mma_bf16,GFLOP/s", 1e-9 * operations, result, 22 * CHAINS,
                      [=] { multiply_tiles<true><<<blocks, THREADS>>>(rounds, result); });
#endif
    return status;
}

// The host writes to the first PAGES pages: to each, where the next one is.
enum { PAGES = 16 };
static void link_pages(unsigned *pages) {
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < PAGES; ++i)
        pages[i * (PAGE / sizeof *pages)] = (i + 1) * PAGE;
}

static int measure_copies(const struct device *device) {
    const unsigned n = device->n;
    const size_t bytes = (size_t)n << 14;
    unsigned *const result = device->result, *const data = device->data, *pages;
    std::vector<unsigned> host(bytes / sizeof *data, n);
    int status = 0;
    for (const bool pinned : {false, true}) {
        CHECK(pinned ? cudaHostRegister(host.data(), bytes, 0) : cudaSuccess);
        status |=
            measure(pinned ? "copy_pinned,GB/s" : "copy_pageable,GB/s", 1e-9 * bytes, data, n,
                    [&] { CHECK(cudaMemcpyAsync(data, host.data(), bytes, cudaMemcpyDefault)); });
    }
    CHECK(cudaHostUnregister(host.data()));
    CHECK_ALLOCATION(cudaMallocManaged(&pages, (PAGES + 1) * PAGE), (PAGES + 1) * PAGE);
    status |= measure(
        "page_fault,µs", 1e6 / PAGES, result, PAGES * PAGE,
        [=] {
            CHECK(cudaMemsetAsync(result, 0, sizeof *result, 0));
            walk<<<1, 1>>>((char *)pages, PAGES, result);
        },
        link_pages, pages);
    CHECK(cudaFree(pages));
    return status;
}

#if BUILT_FOR >= 90
// How many clusters of so many blocks, each alone on its multiprocessor, find room at once: at most
// as many as of the blocks. Then their barriers, and what it takes to read another block's memory.
static int measure_clusters(const struct device *device, unsigned size) {
    const unsigned n = device->n, steps = device->steps;
    const unsigned end = (REPEATS + 1) * (size - 1) * steps * STEP;
    unsigned *const result = device->result;
    const int alone = (int)device->gpu.sharedMemPerBlockOptin - SLOTS * (int)sizeof(float4);
    int clusters = 0, status = 0;
    char row[32];
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {size, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = size;
    config.blockDim = SLOTS;
    config.dynamicSmemBytes = alone;
    config.attrs = &attribute;
    config.numAttrs = 1;
    for (const void *kernel :
         {(const void *)cluster_barriers, (const void *)walk_remote, (const void *)read_remote}) {
        CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, alone));
        CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    }
    if (cudaOccupancyMaxActiveClusters(&clusters, read_remote, &config) != cudaSuccess) {
        cudaGetLastError(); // too large for any
        clusters = 0;
    }
    printf("clusters_%u,clusters,%d,%d,%d\n", size, clusters, clusters, clusters);
    if (clusters == 0)
        return 0;
    config.gridDim = size * clusters;
    snprintf(row, sizeof row, "read_remote_%u,GB/s", size);
    status |= measure(row, 16e-9 * n * SLOTS * config.gridDim.x, result, 4 * n,
                      [&] { CHECK(cudaLaunchKernelEx(&config, read_remote, n, result)); });
    config.blockDim = THREADS;
    snprintf(row, sizeof row, "cluster_barrier_%u,µs", size);
    status |= measure(row, 1e6 / n, result, n,
                      [&] { CHECK(cudaLaunchKernelEx(&config, cluster_barriers, n, result)); });
    config.gridDim = size;
    config.blockDim = 1;
    snprintf(row, sizeof row, "load_remote_%u,ns", size);
    status |= measure(row, 1e9 / (steps * (size - 1)), result, end % CELLS * sizeof *result,
                      [&] { CHECK(cudaLaunchKernelEx(&config, walk_remote, steps, result)); });
    return status;
}
#endif

static struct device describe(bool is_real) {
    struct device device = {};
    CHECK(cudaGetDeviceProperties(&device.gpu, 0));
    device.processors = (unsigned)device.gpu.multiProcessorCount;
    device.blocks = device.processors * (device.gpu.maxThreadsPerMultiProcessor / THREADS);
    device.threads = device.blocks * THREADS;
    device.n = is_real ? 1024 : 4;
    device.steps = 16 * device.n + 1;
    device.l2 = (size_t)1 << (int)log2(device.gpu.l2CacheSize / 4);
    device.bytes = 128 * device.l2;
    const size_t all = device.bytes + device.threads * sizeof *device.data;
    CHECK_ALLOCATION(cudaMalloc(&device.data, all), all);
    device.result = device.data + device.bytes / sizeof *device.data;
    return device;
}

int main(int argc, char **argv) {
    char *rest = NULL;
    const double hold = argc == 3 && !strcmp(argv[1], "--hold") ? strtod(argv[2], &rest) : 0;
    if (argc > 1 && (!(hold > 0 && hold < 4000) || *rest))
        return report_error("calibrate", "found '%s', expected --hold SECONDS", argv[argc - 1]);
    const bool is_real = !is_simulated(open_device());
    if (argc > 1)
        return usleep((unsigned)(1e6 * hold));
    const struct device device = describe(is_real);
    puts("what,unit,value,least,most");
    multiply_adds<<<device.blocks, THREADS>>>(-1, device.n, is_real ? 1e9 : 0,
                                              device.result); // idle, its clock is slow
    CHECK(cudaDeviceSynchronize());
    int status = measure_launches(&device);
    status |= measure_memory(&device);
    status |= measure_arithmetic(&device);
    status |= measure_copies(&device);
#if BUILT_FOR >= 90
    for (unsigned size = 2; size <= 16; size *= 2)
        status |= measure_clusters(&device, size);
#endif
    CHECK(cudaFree(device.data));
    return status;
}
