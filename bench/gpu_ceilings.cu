// Measures the most that this GPU can do: multiply-adds in registers, reading its memory, copies
// from and to the host, and a launch. The CUDA stages are compared with these ceilings.
#include "common/cuda.h"
#include "common/data.h"
#include "common/memory.h"

#include <benchmark/benchmark.h>

#include <string>

// CHAINS are the sums of a thread that are independent of each other.
enum { CHAINS = 8, ROUNDS = 4096, THREADS = 1024 };

// This is never true. The compiler does not know that, so it has to compute what is stored.
__device__ bool is_wanted(float value) {
    return value == -1;
}

__global__ void multiply_adds(float factor, float term, float *never_written) {
    float sum[CHAINS];
    for (int i = 0; i < CHAINS; ++i)
        sum[i] = (float)threadIdx.x + (float)i; // different, or they would be computed once
    for (int round = 0; round < ROUNDS; ++round)
#pragma unroll
        for (int i = 0; i < CHAINS; ++i)
            sum[i] = sum[i] * factor + term;
    float total = 0;
    for (int i = 0; i < CHAINS; ++i)
        total += sum[i];
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

static unsigned whole_device() {
    int processors;
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    return 8 * (unsigned)processors;
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
    time_on_device(state, "flops", 2.0 * CHAINS * ROUNDS * THREADS * blocks,
                   [&] { multiply_adds<<<blocks, THREADS>>>(0.5f, 1, nullptr); });
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

// Times one of many launches without waiting for any. This is how the stages launch.
static void launch_in_a_row(benchmark::State &state) {
    const int count = 1000;
    while (state.KeepRunningBatch(count)) {
        for (int i = 0; i < count; ++i)
            nothing<<<1, 1>>>();
        CHECK(cudaGetLastError());
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
    RegisterBenchmark("gpu_ceilings/launch/in_a_row", launch_in_a_row)->UseRealTime();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return EXIT_BAD_INPUT;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
