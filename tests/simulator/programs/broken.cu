// Wrong programs. Each is named after its fault: broken NAME.
#include "tests/simulator/programs/programs.h"

#include <cooperative_groups.h>

// ---- One side touches the memory of the other.

PROGRAM(kernel_reads_heap) {
    float *const heap = (float *)malloc(BYTES);
    memset(heap, 0, BYTES);
    copy<<<1, N>>>(x, heap, 0, 1);
}

PROGRAM(kernel_reads_stack) {
    float host[N] = {};
    copy<<<1, N>>>(x, host, 0, N);
}

PROGRAM(host_does_not_wait_for_managed_memory) {
    float *managed;
    cudaMallocManaged(&managed, BYTES);
    fill<<<1, N>>>(managed, N, 1);
    printf("%g\n", (double)managed[0]);
}

PROGRAM(host_does_not_wait_for_event) {
    float milliseconds;
    cudaEvent_t start, end;
    cudaEventCreate(&start);
    cudaEventCreate(&end);
    cudaEventRecord(start);
    cudaEventRecord(end);
    printf("%s\n", cudaGetErrorName(cudaEventElapsedTime(&milliseconds, start, end)));
    cudaEventDestroy(start);
    cudaEventDestroy(end);
}

PROGRAM(copy_in_the_wrong_direction) {
    float host[N] = {};
    fill<<<1, N>>>(x, N, 1);
    exit(cudaMemcpy(host, x, BYTES, cudaMemcpyHostToDevice) != cudaSuccess);
}

PROGRAM(copy_of_too_much) {
    static float host[2 * N];
    exit(cudaMemcpy(x, host, BYTES + 1, cudaMemcpyHostToDevice) != cudaSuccess);
}

// ---- Out of bounds.

PROGRAM(read_of_freed_device_memory) {
    cudaFree(x);
    copy<<<1, N>>>(device_memory(), x, 0, N);
}

__global__ void overrun_shared(float *x, int n) {
    __shared__ float tile[32];
    __shared__ float next[32];
    next[threadIdx.x] = 0;
    float *const start = tile; // a pointer, so that the compiler forgets the length
    start[threadIdx.x + n] = 1;
    __syncthreads();
    x[threadIdx.x] = tile[31 - threadIdx.x] + next[threadIdx.x];
}

__global__ void overrun_row(float *x, int n) {
    __shared__ float tile[4][32];
    for (int row = 0; row < 4; ++row)
        tile[row][threadIdx.x] = 0;
    __syncthreads();
    x[threadIdx.x] = tile[1][threadIdx.x + n];
}

__global__ void overrun_dynamic(float *x) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = 1;
    __syncthreads();
    x[threadIdx.x] = tile[31 - threadIdx.x];
}

__global__ void misalign(float4 *to, const float *from) {
    *to = *(const float4 *)(from + 1);
}

__global__ void fill_much(float *x) {
    __shared__ float first[8192];
    extern __shared__ float second[];
    for (int i = threadIdx.x; i < 8192; i += 32)
        first[i] = second[i] = 1;
    x[threadIdx.x] = first[threadIdx.x] + second[threadIdx.x];
}

// ---- Uninitialised memory.

PROGRAM(uninitialised_device_memory) {
    float *memory;
    cudaMalloc(&memory, BYTES);
    fill<<<1, N>>>(memory, N - 1, 0);
    print(memory);
    cudaFree(memory);
}

__global__ void forget_to_fill(float *x) {
    __shared__ float tile[32];
    if (threadIdx.x > 0)
        tile[threadIdx.x] = 0;
    __syncthreads();
    x[threadIdx.x] = tile[31 - threadIdx.x]; // one is unset
}

// ---- Barriers.

__global__ void reverse_without_barrier(float *x) {
    __shared__ float tile[N];
    tile[threadIdx.x] = (float)threadIdx.x;
    x[threadIdx.x] = tile[N - 1 - threadIdx.x];
}

// The second tile overwrites the first while other threads may be reading it.
__global__ void overwrite(float *x) {
    __shared__ float tile[N];
    float sum = 0;
    for (int k = 0; k < 3; ++k) {
        tile[threadIdx.x] = (float)(k + threadIdx.x);
        __syncthreads();
        sum += tile[(threadIdx.x + 100) % N];
    }
    x[threadIdx.x] = sum;
}

// Every block adds to the same sum, so the result depends on the order in which they run.
__global__ void add(float *x) {
    if (threadIdx.x == 0)
        x[0] = x[0] * 1.5f + (float)blockIdx.x;
}

// The same with threads.
__global__ void add_in_turn(float *x) {
    __shared__ float sum;
    sum = 0;
    __syncthreads();
    sum = sum * 1.01f + (float)threadIdx.x;
    __syncthreads();
    x[threadIdx.x] = sum;
}

// ---- Lost updates. Each result is right in every order of whole threads.

__device__ float total; // of all blocks

__global__ void add_to_variable(float *x) {
    total += x[blockIdx.x];
}

// As many threads as words of the histogram, or more, add to it.
__global__ void count_remainders(float *x, unsigned words) {
    __shared__ float histogram[32];
    if (threadIdx.x < 32)
        histogram[threadIdx.x] = 0;
    __syncthreads();
    histogram[threadIdx.x % words] += 1; // no atomic
    __syncthreads();
    if (threadIdx.x < words)
        x[threadIdx.x] = histogram[threadIdx.x];
}

__global__ void halve(unsigned char *x) {
    x[threadIdx.x] /= 2;
}

PROGRAM(bytes) { // is right, too: no thread touches the bytes of another
    halve<<<1, N>>>((unsigned char *)x);
}

// ---- Barriers and exchanges that not all reach.

__global__ void return_early(float *x, int n) {
    if ((int)threadIdx.x >= n)
        return;
    x[threadIdx.x] = 1;
    __syncthreads(); // not reached by all
    x[threadIdx.x] = x[n - 1 - threadIdx.x];
}

PROGRAM(barrier_not_reached_by_all) {
    return_early<<<1, 64>>>(x, 64); // right: the next launch must not count its threads
    return_early<<<dim3(2, 3), 64>>>(x, 31);
}

__global__ void shuffle_with_all(float *x) {
    if (threadIdx.x % 32 != 5)
        x[threadIdx.x] = __shfl_down_sync(0xffffffff, x[threadIdx.x], 1);
}

__global__ void wait_with_lower_half(float *x) {
    if (threadIdx.x == 20)
        __syncwarp(0xffff);
    x[threadIdx.x] = 1;
}

// ---- Streams.

static cudaStream_t other_stream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, flags);
    return stream;
}

// A stream fills x with ones. Another copies them, and the host waits for it.
static void hand_on(cudaStream_t from, cudaStream_t to, float *x) {
    float *const copied = device_memory();
    cudaDeviceSynchronize();
    fill<<<1, N, 0, from>>>(x, N, 1);
    copy<<<1, N, 0, to>>>(copied, x, 0, N);
    cudaStreamSynchronize(to);
    print(copied);
    cudaFree(copied);
}

// Says whether a copy to the host has arrived before the host waits for its stream, and after that.
static void fetch(cudaStream_t stream, float *x) {
    float *pinned;
    cudaMallocHost(&pinned, BYTES);
    fill<<<1, N, 0, stream>>>(x, N, 1);
    cudaMemcpyAsync(pinned, x, BYTES, cudaMemcpyDeviceToHost, stream);
    if (stream)
        cudaStreamSynchronize(0);
    printf("%s, ", pinned[0] == 1 ? "arrived" : "not arrived");
    cudaStreamSynchronize(stream);
    printf("%s\n", pinned[0] == 1 ? "arrived" : "not arrived");
    cudaFreeHost(pinned);
}

// ---- Graphs.

static cudaStream_t begin_capture() {
    cudaStream_t stream;
    if (cudaStreamCreate(&stream) != cudaSuccess ||
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) != cudaSuccess)
        exit(3);
    return stream;
}

// Prints the names of the error, and of the one that the capture ends with because of it.
static void print_error(cudaError_t error, cudaStream_t stream) {
    cudaGraph_t graph;
    const cudaError_t end = cudaStreamEndCapture(stream, &graph);
    printf("%s, %s\n", cudaGetErrorName(error), cudaGetErrorName(end));
    cudaGetLastError();
    if (graph)
        cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
}

PROGRAM(allocation_in_capture) {
    cudaStream_t stream = begin_capture();
    float *memory;
    print_error(cudaMalloc(&memory, BYTES), stream);
}

PROGRAM(launch_into_default_stream_in_capture) {
    cudaStream_t stream = begin_capture();
    fill<<<1, N>>>(x, N, 1);
    print_error(cudaGetLastError(), stream);
}

PROGRAM(capture_that_has_not_begun) {
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    print_error(cudaSuccess, stream);
}

PROGRAM(graph_of_freed_memory) {
    static float host[N];
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStream_t stream = begin_capture();
    cudaMemcpyAsync(x, host, BYTES, cudaMemcpyHostToDevice, stream);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiateWithFlags(&exec, graph, 0);
    cudaFree(x);
    exit(cudaGraphLaunch(exec, stream) != cudaSuccess);
}

PROGRAM(graph_never_destroyed) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStream_t stream = begin_capture();
    fill<<<1, N, 0, stream>>>(x, N, 1);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiateWithFlags(&exec, graph, 0);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
}

// ---- A grid whose blocks wait for each other.

enum { BLOCKS = 20 };

// Each block writes a number, and adds up those of all blocks.
__global__ void add_all(float *x, bool with_barrier) {
    x[blockIdx.x] = (float)(blockIdx.x + 1);
    if (with_barrier)
        cooperative_groups::this_grid().sync(); // of the sum
    float sum = 0;
    for (unsigned block = 0; block < gridDim.x; ++block)
        sum += x[block];
    x[BLOCKS + blockIdx.x] = sum;
}

PROGRAM(missing_grid_barrier) {
    bool with_barrier = false;
    void *arguments[] = {(void *)&x, &with_barrier};
    cudaLaunchCooperativeKernel(add_all, BLOCKS, 1, arguments);
    print(x);
}

PROGRAM(more_blocks_than_fit) {
    bool with_barrier = true;
    void *arguments[] = {(void *)&x, &with_barrier};
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    int blocks;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add_all, 1, 0);
    const cudaError_t error = cudaLaunchCooperativeKernel(
        add_all, blocks * properties.multiProcessorCount + 1, 1, arguments);
    printf("%s\n", cudaGetErrorName(error));
}

__global__ void wait_in_some(int blocks, int threads) {
    if ((int)blockIdx.x < blocks && (int)threadIdx.x < threads)
        cooperative_groups::this_grid().sync(); // not in all
}

static void launch_wait_in_some(int blocks, int threads) {
    void *arguments[] = {&blocks, &threads};
    cudaLaunchCooperativeKernel(wait_in_some, BLOCKS, 64, arguments);
}

// ---- Threads that wait in a loop.

// The first block waits for what the second has.
__global__ void hand_over(float *x, int *flag, bool fence_before, bool fence_behind) {
    if (blockIdx.x == 1) {
        x[0] = 1; // to hand over
        if (fence_before)
            __threadfence();
        atomicExch(flag, 1);
    } else {
        while (atomicAdd(flag, 0) == 0)
            continue;
        if (fence_behind)
            __threadfence();
        x[1] = x[0]; // handed over
    }
}

// A right launch comes before. Its fences must not stand for those of the next.
static void launch_hand_over(float *x, bool fence_before, bool fence_behind) {
    hand_over<<<2, 1>>>(x, (int *)(x + N / 2), true, true);
    cudaMemset(x, 0, BYTES);
    hand_over<<<2, 1>>>(x, (int *)(x + N / 2), fence_before, fence_behind);
    print(x);
}

// A thread of each block waits for a number of blocks. The others wait for it.
__global__ void wait_for_blocks(int *arrived, int n) {
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < n) // blocks
            continue;
    }
    __syncthreads(); // behind the loop
}

// ---- The same with a volatile word: two blocks hand numbers over to each other.

enum { THREADS = 32, ROUNDS = 600 };

__device__ void set(volatile int *flag, int value, bool fence) {
    __syncwarp();
    if (threadIdx.x > 0)
        return;
    if (fence)
        __threadfence();
    *flag = value;
}

__device__ void wait_for(volatile int *flag, int value, bool fence) {
    if (threadIdx.x == 0) {
        while (*flag != value) // nobody has set it
            continue;
        if (fence)
            __threadfence();
    }
    __syncwarp();
}

__global__ void hand_numbers_over(volatile int *flag, float *x, bool fence_before,
                                  bool fence_behind, bool sets) {
    for (int round = 0; round < ROUNDS; ++round) {
        if (blockIdx.x == 0) {
            wait_for(flag, 2 * round + 1, fence_behind);
            x[threadIdx.x] = x[2 * THREADS - 1 - threadIdx.x];
            set(flag, 2 * round + 2, fence_before);
        } else if (sets) {
            x[THREADS + threadIdx.x] = (float)round;
            set(flag, 2 * round + 1, fence_before);
            wait_for(flag, 2 * round + 2, fence_behind);
        }
    }
}

// Two threads count in turns. Nothing but what they store shows that they go on.
__global__ void count_in_turns(volatile int *number) {
    while (*number < 5 * ROUNDS)
        if (*number % 2 == (int)blockIdx.x)
            *number = *number + 1;
}

// Says whether there is a fence before the word is set, and behind the loop that waits for it, and
// whether the second block sets it at all.
static void launch_volatile(float *x, bool fence_before, bool fence_behind, bool sets) {
    count_in_turns<<<2, 1>>>((int *)x);
    cudaMemset(x, 0, BYTES);
    hand_numbers_over<<<2, THREADS>>>((int *)(x + 2 * THREADS), x, fence_before, fence_behind,
                                      sets);
    float result;
    cudaMemcpy(&result, x, sizeof result, cudaMemcpyDeviceToHost);
    printf("%g\n", (double)result);
}

// ---- Left behind.

int main(int argc, char **argv) {
    programs["uninitialised_shared_memory"] = [](float *x) {
        forget_to_fill<<<1, 32>>>(x);
        print(x);
    };
    programs["missing_barrier"] = [](float *x) {
        reverse_without_barrier<<<1, N>>>(x);
        print(x);
    };
    programs["missing_second_barrier"] = [](float *x) {
        overwrite<<<1, N>>>(x);
        print(x);
    };
    programs["blocks_in_need_of_an_order"] = [](float *x) {
        add<<<20, 32>>>(x);
        print(x);
    };
    programs["threads_in_need_of_an_order"] = [](float *x) {
        add_in_turn<<<1, 64>>>(x);
        print(x);
    };
    programs["blocks_lose_updates"] = [](float *x) { add_to_variable<<<N, 1>>>(x); };
    programs["lanes_lose_updates"] = [](float *x) {
        count_remainders<<<1, 32>>>(x, 1);
        print(x);
    };
    programs["launch_error_nobody_asked_for"] = [](float *x) { fill<<<1, 2048>>>(x, N, 1); };
    programs["host_reads_device_memory"] = [](float *x) { printf("%g\n", (double)x[3]); };
    programs["kernel_reads_null"] = [](float *x) { copy<<<1, N>>>(x, nullptr, 0, N); };
    programs["read_behind_device_memory"] = [](float *x) {
        copy<<<2, N / 2>>>(device_memory(), x, 1, N);
    };
    programs["write_in_front_of_device_memory"] = [](float *x) { fill<<<1, N>>>(x - 1, N, 1); };
    programs["write_behind_shared_memory"] = [](float *x) { overrun_shared<<<1, 32>>>(x, 1); };
    programs["read_behind_row_of_shared_memory"] = [](float *x) { overrun_row<<<1, 32>>>(x, 1); };
    programs["write_behind_dynamic_shared_memory"] = [](float *x) {
        overrun_dynamic<<<1, 32, 31 * sizeof(float)>>>(x);
    };
    programs["misaligned_vector"] = [](float *x) { misalign<<<1, 1>>>((float4 *)x, x); };
    programs["too_much_shared_memory"] = [](float *x) {
        fill_much<<<1, 32, 8192 * sizeof(float)>>>(x);
    };
    programs["lane_missing_in_shuffle"] = [](float *x) { shuffle_with_all<<<1, 64>>>(x); };
    programs["lane_not_in_mask"] = [](float *x) { wait_with_lower_half<<<1, 32>>>(x); };
    programs["capture_of_default_stream"] = [](float *) {
        printf("%s\n", cudaGetErrorName(cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal)));
    };
    programs["grid_barrier_without_cooperative_launch"] = [](float *x) {
        add_all<<<BLOCKS, 1>>>(x, true);
    };
    programs["grid_barrier_not_reached_by_all_blocks"] = [](float *) {
        launch_wait_in_some(BLOCKS - 1, 64);
    };
    programs["grid_barrier_not_reached_by_all_threads"] = [](float *) {
        launch_wait_in_some(BLOCKS, 31);
    };
    programs["hand_over_without_fence_before"] = [](float *x) { launch_hand_over(x, false, true); };
    programs["hand_over_without_fence_behind"] = [](float *x) { launch_hand_over(x, true, false); };
    programs["hand_over_with_fences"] = [](float *x) { launch_hand_over(x, true, true); };
    programs["wait_that_never_ends"] = [](float *x) { wait_for_blocks<<<2, 32>>>((int *)x, 3); };
    programs["wait_in_one_block"] = [](float *x) { wait_for_blocks<<<1, 32>>>((int *)x, 2); };
    programs["wait_for_blocks_without_room"] = [](float *x) {
        wait_for_blocks<<<20, 1024>>>((int *)x, 20);
    };
    programs["host_does_not_wait_for_pinned_memory"] = [](float *x) { fetch(0, x); };
    programs["host_does_not_wait_for_stream"] = [](float *x) { fetch(other_stream(), x); };
    programs["does_not_wait_for_default"] = [](float *x) { hand_on(0, other_stream(), x); };
    programs["default_does_not_wait"] = [](float *x) { hand_on(other_stream(), 0, x); };
    programs["blocking_does_not_wait"] = [](float *x) {
        hand_on(other_stream(cudaStreamDefault), other_stream(cudaStreamDefault), x);
    };
    programs["leaked_device_memory"] = [](float *) { device_memory(); };
    programs["volatile_with_fences"] = [](float *x) { launch_volatile(x, true, true, true); };
    programs["volatile_without_fence_before"] = [](float *x) {
        launch_volatile(x, false, true, true);
    };
    programs["volatile_without_fence_behind"] = [](float *x) {
        launch_volatile(x, true, false, true);
    };
    programs["volatile_that_nobody_sets"] = [](float *x) { launch_volatile(x, true, true, false); };
    return run_program(argc, argv);
}
