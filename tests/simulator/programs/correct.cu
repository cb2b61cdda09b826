// Right kernels, of the kinds that the stages have. Each result is compared with the host's, and
// printed as a checksum. It must be the same for every order of threads and blocks.
#include <cooperative_groups.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static void require(bool truth, const char *what, int line) {
    if (!truth) {
        printf("%s:%d: not so: %s\n", __FILE__, line, what);
        exit(1);
    }
}
#define REQUIRE(truth) require(truth, #truth, __LINE__)
#define CHECK(call) REQUIRE((call) == cudaSuccess)

// FNV-1a
static void print_checksum(const char *name, const void *data, size_t bytes) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < bytes; ++i)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3;
    printf("%s %016llx\n", name, (unsigned long long)hash);
}

// Allocates device memory for `count` values, and copies those of `from` there if it is given.
template <class T> static T *upload(const T *from, size_t count) {
    T *memory;
    CHECK(cudaMalloc(&memory, count * sizeof(T)));
    if (from)
        CHECK(cudaMemcpy(memory, from, count * sizeof(T), cudaMemcpyHostToDevice));
    return memory;
}

template <class T> static void download(T *to, T *memory, size_t count) {
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(to, memory, count * sizeof(T), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(memory));
}

// c = a·b: a rows × inner, b inner × columns. It has two arrays of shared memory, whose size
// depends on Tile, and a barrier in a loop.
template <int Tile>
__global__ void multiply(int rows, int inner, int columns, const float *__restrict__ a,
                         const float *__restrict__ b, float *__restrict__ c) {
    __shared__ float a_tile[Tile][Tile];
    __shared__ __align__(16) float b_tile[Tile][Tile + 1];
    const int row = blockIdx.y * Tile + threadIdx.y, column = blockIdx.x * Tile + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < inner; k += Tile) {
        const int x = k + threadIdx.x, y = k + threadIdx.y;
        a_tile[threadIdx.y][threadIdx.x] = row < rows && x < inner ? a[row * inner + x] : 0;
        b_tile[threadIdx.y][threadIdx.x] =
            y < inner && column < columns ? b[y * columns + column] : 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < Tile; ++i)
            sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
        __syncthreads();
    }
    if (row < rows && column < columns)
        c[row * columns + column] = sum;
}

template <int Tile> static void test_multiply(int rows, int inner, int columns) {
    std::vector<float> a(rows * inner), b(inner * columns), c(rows * columns);
    for (int i = 0; i < rows * inner; ++i)
        a[i] = (float)(i % 17) - 8; // small whole numbers: sums are exact in every order
    for (int i = 0; i < inner * columns; ++i)
        b[i] = (float)(i % 13) - 6;
    float *a_device = upload(a.data(), a.size()), *b_device = upload(b.data(), b.size());
    float *c_device = upload<float>(nullptr, rows * columns);
    const dim3 grid((columns + Tile - 1) / Tile, (rows + Tile - 1) / Tile), block(Tile, Tile);
    multiply<Tile><<<grid, block>>>(rows, inner, columns, a_device, b_device, c_device);
    download(c.data(), c_device, c.size());
    for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < columns; ++column) {
            float sum = 0;
            for (int i = 0; i < inner; ++i)
                sum += a[row * inner + i] * b[i * columns + column];
            REQUIRE(c[row * columns + column] == sum);
        }
    }
    print_checksum("multiply", c.data(), c.size() * sizeof(float));
    CHECK(cudaFree(a_device));
    CHECK(cudaFree(b_device));
}

// The sum over the warp, in lane 0.
__device__ float sum_of_warp(float value) {
    for (int delta = 16; delta > 0; delta /= 2)
        value += __shfl_down_sync(0xffffffff, value, delta);
    return value;
}

// The sum over the block, in every thread. Its shared memory is in a function that is not a kernel.
__device__ float sum_of_block(float value) {
    __shared__ float sums[32];
    __shared__ float total;
    const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    value = sum_of_warp(value);
    if (lane == 0)
        sums[warp] = value;
    __syncthreads();
    if (warp == 0) {
        value = lane < (int)(blockDim.x + 31) / 32 ? sums[lane] : 0;
        for (int bits = 16; bits > 0; bits /= 2)
            value += __shfl_xor_sync(0xffffffff, value, bits);
        if (lane == 0)
            total = value;
    }
    __syncthreads();
    return total;
}

// Tests shared memory of three dimensions and of vectors, three-dimensional blocks, and atomics.
__global__ void histogram(const float4 *__restrict__ values, int *counts, unsigned *blocks) {
    __shared__ int bins[2][2][4];
    __shared__ float4 vectors[8];
    const int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    vectors[t] = values[block * 8 + t];
    for (int k = t; k < 16; k += 8)
        (&bins[0][0][0])[k] = 0;
    __syncthreads();
    const float4 v = vectors[7 - t];
    const int keys[] = {(int)v.x, (int)v.y, (int)v.z, (int)v.w};
    for (int k : keys)
        atomicAdd(&bins[k / 8][k / 4 % 2][k % 4], 1);
    __syncthreads();
    for (int k = t; k < 16; k += 8)
        atomicAdd(&counts[k], bins[k / 8][k / 4 % 2][k % 4]);
    if (t == 0)
        atomicAdd(blocks, 1);
}

static void test_histogram() {
    enum { BLOCKS = 5 * 3 * 7, N = BLOCKS * 8 };
    float4 values[N];
    int expected[16] = {}, *counts;
    unsigned *blocks;
    for (int i = 0; i < N; ++i) {
        values[i] = make_float4((float)(i % 16), (float)(i % 5), (float)(i % 3), 15);
        ++expected[i % 16], ++expected[i % 5], ++expected[i % 3], ++expected[15];
    }
    float4 *values_device = upload(values, N);
    CHECK(cudaMallocManaged(&counts, sizeof expected));
    CHECK(cudaMallocManaged(&blocks, sizeof *blocks));
    CHECK(cudaMemset(counts, 0, sizeof expected));
    CHECK(cudaDeviceSynchronize());
    *blocks = 0;
    histogram<<<dim3(5, 3, 7), dim3(2, 2, 2)>>>(values_device, counts, blocks);
    CHECK(cudaDeviceSynchronize());
    REQUIRE(memcmp(counts, expected, sizeof expected) == 0 && *blocks == BLOCKS);
    print_checksum("histogram", counts, sizeof expected);
    CHECK(cudaFree(values_device));
    CHECK(cudaFree(counts));
    CHECK(cudaFree(blocks));
}

struct line {
    float slope, offset;
};
__global__ void __launch_bounds__(256) evaluate(struct line line, int n, float *x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = fmaf(line.slope, x[i], line.offset);
}

// Tests pinned memory, and what orders streams: the default one and those that block with it, and
// events. A stream may be destroyed before its work is done.
static void test_streams() {
    enum { N = 1000, BYTES = N * sizeof(float), BLOCKS = (N + 255) / 256 };
    float *x, *pinned, milliseconds = -1;
    cudaStream_t blocking, other;
    cudaEvent_t start, event, end;
    CHECK(cudaMallocHost(&pinned, BYTES));
    CHECK(cudaMalloc(&x, BYTES));
    CHECK(cudaStreamCreate(&blocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (cudaEvent_t *each : {&start, &event, &end})
        CHECK(cudaEventCreate(each));
    for (int i = 0; i < N; ++i)
        pinned[i] = (float)i;
    CHECK(cudaEventRecord(start, blocking));
    CHECK(cudaMemcpyAsync(x, pinned, BYTES, cudaMemcpyHostToDevice, blocking));
    evaluate<<<BLOCKS, 256, 0, blocking>>>({1, 1}, N, x);
    evaluate<<<BLOCKS, 256>>>({2, 0}, N, x);
    CHECK(cudaEventRecord(event));
    CHECK(cudaStreamWaitEvent(other, event));
    evaluate<<<BLOCKS, 256, 0, other>>>({3, 0}, N, x);
    CHECK(cudaEventRecord(event, other));
    CHECK(cudaStreamDestroy(other));
    CHECK(cudaStreamWaitEvent(blocking, event));
    CHECK(cudaEventDestroy(event));
    evaluate<<<BLOCKS, 256, 0, blocking>>>({1, 5}, N, x);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(pinned, x, BYTES, cudaMemcpyDeviceToHost, blocking));
    CHECK(cudaEventRecord(end, blocking));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&milliseconds, start, end));
    REQUIRE(milliseconds >= 0);
    for (int i = 0; i < N; ++i)
        REQUIRE(pinned[i] == 3 * 2 * ((float)i + 1) + 5);
    print_checksum("streams", pinned, BYTES);
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaStreamDestroy(blocking));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(x));
}

// Tests a graph: what is recorded is done only when it is launched, and with the values of its
// recording.
static void test_graph() {
    enum { N = 1000 };
    float *x, *pinned;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaMallocHost(&pinned, N * sizeof(float)));
    CHECK(cudaMalloc(&x, 2 * N * sizeof(float)));
    CHECK(cudaStreamCreate(&stream));
    struct line line = {2, 3};
    CHECK(cudaMemset(x, 0, 2 * N * sizeof(float)));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemsetAsync(x + N, 0, N * sizeof(float), stream));
    for (int i = 0; i < 3; ++i) {
        evaluate<<<(2 * N + 255) / 256, 256, 0, stream>>>(line, 2 * N, x);
        CHECK(cudaGetLastError());
        line.offset = 1; // of the second and the third
    }
    CHECK(cudaMemcpyAsync(pinned, x, N * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphUpload(exec, stream));
    line = {0, 0};
    for (int i = 0; i < 2; ++i)
        CHECK(cudaGraphLaunch(exec, stream));
    evaluate<<<1, 1, 0, stream>>>({1, 1}, 1, x); // after what the graph copies
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < N; ++i) // each replay: 8 x + 15
        REQUIRE(pinned[i] == 8 * 15 + 15);
    CHECK(cudaMemcpy(pinned, x + N, N * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; ++i) // set to 0 by each replay
        REQUIRE(pinned[i] == 15);
    print_checksum("graph", pinned, N * sizeof(float));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(x));
}

// Each block doubles what its neighbour had in the round before. So every round needs a barrier.
// The sums of the blocks' threads are in shared memory, which keeps them from round to round.
__global__ void pass_on(struct line line, int rounds, float *x, float *sums) {
    __shared__ float total;
    const int neighbour = (blockIdx.x + 1) % gridDim.x;
    if (threadIdx.x == 0)
        total = 0;
    for (int round = 0; round < rounds; ++round) {
        const float *from = x + round % 2 * gridDim.x;
        if (threadIdx.x == 0)
            x[(round + 1) % 2 * gridDim.x + blockIdx.x] = line.slope * from[neighbour];
        const float sum = sum_of_block(from[neighbour]);
        if (threadIdx.x == 1)
            total += sum;
        cooperative_groups::this_grid().sync();
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = total + line.offset;
}

// Tests as many blocks as fit, all alive at once.
static void test_cooperative() {
    enum { THREADS = 96, SHARED = 10000 };
    int each, multiprocessors, rounds = 5;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, pass_on, THREADS, SHARED));
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    const int blocks = each * multiprocessors;
    float *host = (float *)malloc(2 * blocks * sizeof(float));
    for (int i = 0; i < blocks; ++i)
        host[i] = (float)(i + 1);
    float *x = upload(host, 2 * blocks), *sums = upload<float>(nullptr, blocks);
    struct line line = {2, 1};
    void *arguments[] = {&line, &rounds, &x, &sums};
    CHECK(cudaLaunchCooperativeKernel(pass_on, blocks, THREADS, arguments, SHARED));
    REQUIRE(cudaLaunchCooperativeKernel(pass_on, blocks + 1, THREADS, arguments, SHARED) ==
            cudaErrorCooperativeLaunchTooLarge);
    REQUIRE(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge);
    download(host, sums, blocks);
    for (int i = 0; i < blocks; ++i) {
        float sum = 1;
        for (int round = 0; round < rounds; ++round)
            sum += THREADS * (float)(1 << round) * (float)((i + round + 1) % blocks + 1);
        REQUIRE(host[i] == sum);
    }
    print_checksum("cooperative", host, blocks * sizeof(float));
    CHECK(cudaFree(x));
    free(host);
}

// Tests threads that wait in a loop. Each block adds a number to those of its neighbour, and all
// wait for all, by hand.
__global__ void pass_by_hand(int rounds, unsigned *arrived, float *x) {
    const int n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < rounds; ++round) {
        x[(round + 1) % 2 * n + i] = x[round % 2 * n + (i + blockDim.x) % n] + 1;
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(arrived, 1u);
            while (atomicAdd(arrived, 0u) < (round + 1) * gridDim.x)
                continue;
            __threadfence();
        }
        __syncthreads();
    }
}

// The threads of a block take turns, the last one first. Then its last thread takes a lock.
__global__ void take_turns(int *lock, float *sums) {
    __shared__ int turn;
    __shared__ float sum;
    if (threadIdx.x == 0) {
        turn = blockDim.x - 1;
        sum = 0;
    }
    __syncthreads();
    while (atomicAdd(&turn, 0) != (int)threadIdx.x)
        continue;
    __threadfence();
    sum = sum / 2 + (float)threadIdx.x;
    __threadfence();
    atomicAdd(&turn, -1);
    __syncthreads();
    if (threadIdx.x < blockDim.x - 1)
        return;
    while (atomicCAS(lock, 0, 1) != 0)
        continue;
    __threadfence();
    sums[0] += sum;
    __threadfence();
    atomicExch(lock, 0);
}

static void test_waiting() {
    enum { BLOCKS = 20, THREADS = 64, N = BLOCKS * THREADS };
    int rounds = 5, words[2] = {};
    float host[2 * N] = {}, sum = 0, sums;
    for (int i = 0; i < N; ++i)
        host[i] = (float)i;
    float *x = upload(host, 2 * N);
    int *arrived = upload(words, 2), *lock = arrived + 1;
    void *arguments[] = {&rounds, &arrived, &x};
    CHECK(cudaLaunchCooperativeKernel((const void *)pass_by_hand, BLOCKS, THREADS, arguments));
    take_turns<<<BLOCKS, THREADS>>>(lock, x);
    download(host, x, 2 * N);
    CHECK(cudaFree(arrived));
    for (int i = THREADS - 1; i >= 0; --i)
        sum = sum / 2 + (float)i;
    sums = (float)(THREADS * (rounds - 1) + rounds - 1); // of the last round but one
    for (int block = 0; block < BLOCKS; ++block)
        sums += sum;
    REQUIRE(host[0] == sums);
    for (int i = 0; i < N; ++i)
        REQUIRE(host[N + i] == (float)((i + rounds * THREADS) % N + rounds));
    print_checksum("waiting", host, sizeof host);
}

static void test_errors() {
    float *x;
    size_t available, total;
    CHECK(cudaMemGetInfo(&available, &total));
    REQUIRE(cudaMalloc(&x, total + 1) == cudaErrorMemoryAllocation);
    REQUIRE(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError());
    CHECK(cudaMalloc(&x, 4));
    const struct {
        dim3 grid, block;
        size_t shared_bytes;
        cudaError_t error;
    } launches[] = {
        {1, 1025, 0, cudaErrorInvalidConfiguration},
        {1, dim3(32, 33), 0, cudaErrorInvalidConfiguration},
        {1, dim3(1, 1, 65), 0, cudaErrorInvalidConfiguration},
        {1, 0, 0, cudaErrorInvalidConfiguration},
        {0, 1, 0, cudaErrorInvalidConfiguration},
        {dim3(1, 65536), 1, 0, cudaErrorInvalidConfiguration},
        {dim3(1, 1, 65536), 1, 0, cudaErrorInvalidConfiguration},
        {1, 1, 49153, cudaErrorInvalidValue},
        {1, 1, 49152, cudaSuccess},
    };
    for (const auto &launch : launches) {
        evaluate<<<launch.grid, launch.block, launch.shared_bytes>>>({1, 0}, 0, x);
        REQUIRE(cudaPeekAtLastError() == launch.error);
        REQUIRE(cudaGetLastError() == launch.error);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(x));
}

int main() {
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    printf("%s\n", properties.name);
    test_multiply<32>(70, 100, 45);
    test_multiply<16>(70, 100, 45);
    test_multiply<8>(1, 1, 1);
    test_histogram();
    test_streams();
    test_graph();
    test_cooperative();
    test_waiting();
    test_errors();
    return 0;
}
