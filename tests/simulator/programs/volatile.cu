// Two blocks hand numbers over to each other, with a volatile word: volatile BEFORE BEHIND SET.
// They say whether there is a fence before the word is set, and behind the loop that waits for it,
// and whether the second block sets it at all.
#include <cstdio>
#include <cstdlib>

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

__global__ void hand_over(volatile int *flag, float *x, bool fence_before, bool fence_behind,
                          bool sets) {
    for (int round = 0; round < ROUNDS; ++round) {
        if (blockIdx.x == 0) {
            wait_for(flag, 2 * round + 1, fence_behind);
            x[threadIdx.x] = x[2 * THREADS - 1 - threadIdx.x]; // handed over
            set(flag, 2 * round + 2, fence_before);
        } else if (sets) {
            x[THREADS + threadIdx.x] = (float)round; // to hand over
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

int main(int argc, char **argv) {
    float *x, result = 0;
    if (argc != 4 || cudaMalloc(&x, 1024) != cudaSuccess)
        return 2;
    cudaMemset(x, 0, 1024);
    count_in_turns<<<2, 1>>>((int *)x);
    cudaMemset(x, 0, 1024);
    hand_over<<<2, THREADS>>>((int *)(x + 2 * THREADS), x, atoi(argv[1]), atoi(argv[2]),
                              atoi(argv[3]));
    cudaMemcpy(&result, x, sizeof result, cudaMemcpyDeviceToHost);
    cudaFree(x);
    printf("%g\n", (double)result);
    return 0;
}
