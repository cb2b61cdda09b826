// Measures the most that this GPU can do: multiply-adds in registers, reading its memory, copies
// from and to the host; and what it costs to start a kernel and to wait for others. The CUDA stages
// are compared with these ceilings.
#include "common/cuda.h"
#include "common/data.h"
#include "common/program.h"

#include <benchmark/benchmark.h>
#include <cooperative_groups.h>

#include <string>

// PAIRS are the pairs of sums of a thread that are independent of each other. COUNT is how many
// launches or barriers are timed together.
enum { PAIRS = 4, ROUNDS = 4096, THREADS = 1024, COUNT = 1000, CLUSTER = 8 };

// This is never true. The compiler does not know that, so it has to compute what is stored.
__device__ bool is_wanted(float value) {
    return value == -1;
}

// Each pair (a, b) turns around an ellipse, so that its bits change in every round. A sum that came
// to rest would take less power, and the clock would be higher than in a stage.
__global__ void multiply_adds(float angle, float *never_written) {
    float a[PAIRS], b[PAIRS];
    for (int i = 0; i < PAIRS; ++i) {
        a[i] = (float)threadIdx.x + (float)i; // different, or they would be computed once
        b[i] = 1;
    }
    for (int round = 0; round < ROUNDS; ++round) {
#pragma unroll
        for (int i = 0; i < PAIRS; ++i)
            a[i] = a[i] + angle * b[i];
#pragma unroll
        for (int i = 0; i < PAIRS; ++i)
            b[i] = b[i] - angle * a[i];
    }
    float total = 0;
    for (int i = 0; i < PAIRS; ++i)
        total += a[i] + b[i];
    if (is_wanted(total))
        *never_written = total;
}

// Neighbouring threads read neighbouring vectors of four.
__global__ void read_all(const float4 *data, size_t count, float *never_written) {
    float sum = 0;
    const size_t threads = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads)
        sum += data[i].x + data[i].y + data[i].z + data[i].w;
    if (is_wanted(sum))
        *never_written = sum;
}

__global__ void nothing() {
}

// All blocks wait for each other, COUNT times.
__global__ void grid_barriers() {
    for (int i = 0; i < COUNT; ++i)
        cooperative_groups::this_grid().sync();
}

// The blocks of a cluster wait for each other. Clusters came with compute capability 9.0.
__global__ void cluster_barriers() {
#if __CUDA_ARCH__ >= 900
    for (int i = 0; i < COUNT; ++i)
        cooperative_groups::this_cluster().sync();
#endif
}

static int attribute(cudaDeviceAttr attribute) {
    int value;
    CHECK(cudaDeviceGetAttribute(&value, attribute, 0));
    return value;
}

static unsigned whole_device() {
    return 8 * (unsigned)attribute(cudaDevAttrMultiProcessorCount);
}

// Takes the device's time for `work`, and counts the operations or bytes of it.
template <typename Work>
static void time_on_device(benchmark::State &state, const char *counter, double amount, Work work) {
    cudaEvent_t start, end;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    for (auto _ : state) {
        float milliseconds;
        CHECK(cudaEventRecord(start));
        work();
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&milliseconds, start, end));
        state.SetIterationTime(1e-3 * milliseconds);
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    state.counters[counter] =
        benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
}

static void multiply_add(benchmark::State &state) {
    const unsigned blocks = whole_device();
    time_on_device(state, "flops", 2.0 * 2 * PAIRS * ROUNDS * THREADS * blocks,
                   [&] { multiply_adds<<<blocks, THREADS>>>(0.7f, nullptr); });
}

// Reads a quarter of the free memory, at most 1 GiB: far more than any cache holds.
static void read_memory(benchmark::State &state) {
    size_t free_bytes, total_bytes;
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    const size_t quarter = free_bytes / 4, most = (size_t)1 << 30;
    const size_t count = (quarter < most ? quarter : most) / sizeof(float4);
    const size_t bytes = count * sizeof(float4);
    const unsigned blocks = whole_device();
    float4 *data;
    CHECK_ALLOCATION(cudaMalloc(&data, bytes), bytes);
    CHECK(cudaMemset(data, 0, bytes));
    time_on_device(state, "bytes_read", (double)bytes,
                   [&] { read_all<<<blocks, THREADS>>>(data, count, nullptr); });
    CHECK(cudaFree(data));
}

// Copies as many bytes as MNIST's training set has as floats. The device can read pinned memory by
// itself. The driver copies other memory to pinned memory first.
static void copy(benchmark::State &state, cudaMemcpyKind direction, bool pinned) {
    const size_t bytes = (size_t)60000 * PIXELS * sizeof(float);
    void *host, *device;
    CHECK_ALLOCATION(cudaMalloc(&device, bytes), bytes);
    if (pinned)
        CHECK(cudaMallocHost(&host, bytes));
    else
        host = allocate_floats(bytes / sizeof(float));
    memset(host, 1, bytes);
    void *to = direction == cudaMemcpyHostToDevice ? device : host;
    const void *from = direction == cudaMemcpyHostToDevice ? host : device;
    time_on_device(state, "bytes_copied", (double)bytes,
                   [&] { CHECK(cudaMemcpyAsync(to, from, bytes, direction)); });
    if (pinned)
        CHECK(cudaFreeHost(host));
    else
        free(host);
    CHECK(cudaFree(device));
}

// Times a launch from the call until the host knows that the kernel has ended.
static void launch_and_wait(benchmark::State &state) {
    for (auto _ : state) {
        nothing<<<1, 1>>>();
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
    }
}

// Times one of many launches without waiting for any. This is how the stages launch. With an event
// after each launch, as in the epoch that times the phases, the difference is what an event costs.
static void launch_in_a_row(benchmark::State &state, bool events) {
    cudaEvent_t event;
    CHECK(cudaEventCreate(&event));
    while (state.KeepRunningBatch(COUNT)) {
        for (int i = 0; i < COUNT; ++i) {
            nothing<<<1, 1>>>();
            if (events)
                CHECK(cudaEventRecord(event));
        }
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaEventDestroy(event));
}

// Times one of `nodes` kernels in a row of a graph that is replayed again and again.
static void replay(benchmark::State &state, int nodes) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t recorded;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < nodes; ++i)
        nothing<<<1, 1, 0, stream>>>();
    CHECK(cudaGetLastError());
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&recorded, graph, 0));
    CHECK(cudaGraphLaunch(recorded, stream)); // the first one is slower
    CHECK(cudaStreamSynchronize(stream));
    while (state.KeepRunningBatch(COUNT)) {
        for (int i = 0; i < COUNT; i += nodes)
            CHECK(cudaGraphLaunch(recorded, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaGraphExecDestroy(recorded));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}

// Times a barrier of blocks that all arrive at once: one block on each multiprocessor, or the
// blocks of a cluster. The launch is COUNT barriers long, so that hardly any of the time is its
// own.
static void barrier(benchmark::State &state, bool cluster) {
    cudaLaunchAttribute wish = {};
    cudaLaunchConfig_t launch = {};
    wish.id = cluster ? cudaLaunchAttributeClusterDimension : cudaLaunchAttributeCooperative;
    if (cluster) {
        wish.val.clusterDim.x = CLUSTER;
        wish.val.clusterDim.y = wish.val.clusterDim.z = 1;
    } else {
        wish.val.cooperative = 1;
    }
    launch.gridDim =
        dim3(cluster ? (unsigned)CLUSTER : (unsigned)attribute(cudaDevAttrMultiProcessorCount));
    launch.blockDim = dim3(256);
    launch.attrs = &wish;
    launch.numAttrs = 1;
    while (state.KeepRunningBatch(COUNT)) {
        CHECK(cudaLaunchKernelEx(&launch, cluster ? cluster_barriers : grid_barriers));
        CHECK(cudaDeviceSynchronize());
    }
}

int main(int argc, char **argv) {
    benchmark::AddCustomContext("gpu", open_device());
    using benchmark::RegisterBenchmark;
    RegisterBenchmark("gpu_ceilings/multiply_add", multiply_add)->UseManualTime();
    RegisterBenchmark("gpu_ceilings/read/memory", read_memory)->UseManualTime();
    for (bool pinned : {true, false}) {
        const std::string memory = pinned ? "/pinned" : "/pageable";
        RegisterBenchmark(("gpu_ceilings/copy/to_device" + memory).c_str(), copy,
                          cudaMemcpyHostToDevice, pinned)
            ->UseManualTime();
        RegisterBenchmark(("gpu_ceilings/copy/to_host" + memory).c_str(), copy,
                          cudaMemcpyDeviceToHost, pinned)
            ->UseManualTime();
    }
    RegisterBenchmark("gpu_ceilings/launch/waited_for", launch_and_wait)->UseRealTime();
    RegisterBenchmark("gpu_ceilings/launch/in_a_row", launch_in_a_row, false)->UseRealTime();
    RegisterBenchmark("gpu_ceilings/launch/with_event", launch_in_a_row, true)->UseRealTime();
    RegisterBenchmark("gpu_ceilings/launch/in_a_graph", replay, COUNT)->UseRealTime();
    RegisterBenchmark("gpu_ceilings/launch/graph_of_one", replay, 1)->UseRealTime();
    if (attribute(cudaDevAttrCooperativeLaunch))
        RegisterBenchmark("gpu_ceilings/barrier/grid", barrier, false)->UseRealTime();
    cudaFuncAttributes compiled;
    CHECK(cudaFuncGetAttributes(&compiled, cluster_barriers));
    if (compiled.ptxVersion >= 90) // otherwise the kernel is empty
        RegisterBenchmark("gpu_ceilings/barrier/cluster", barrier, true)->UseRealTime();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return EXIT_BAD_INPUT;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
