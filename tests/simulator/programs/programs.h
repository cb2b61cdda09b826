// What programs with faults share: each is a function that the command line names.
#ifndef TESTS_SIMULATOR_PROGRAMS_H
#define TESTS_SIMULATOR_PROGRAMS_H

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

static std::map<std::string, void (*)(float *)> programs;

// Defines a program, which is given device memory of N zeros. Those of one line are in main().
#define PROGRAM(name)                                                                              \
    static void name(float *);                                                                     \
    [[maybe_unused]] static const auto name##_program = programs.emplace(#name, name);             \
    static void name([[maybe_unused]] float *x)

enum { N = 256, BYTES = N * sizeof(float) };

__global__ void fill(float *x, int n, float value) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = value;
}

__global__ void copy(float *to, const float *from, int first, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        to[i] = from[first + i];
}

static float *device_memory() {
    float *memory;
    if (cudaMalloc(&memory, BYTES) != cudaSuccess)
        exit(3);
    cudaMemset(memory, 0, BYTES);
    return memory;
}

// Prints one number made of all values. A NaN among them makes it a NaN.
static void print(const float *memory) {
    float host[N];
    if (cudaMemcpy(host, memory, BYTES, cudaMemcpyDeviceToHost) != cudaSuccess)
        exit(3);
    double sum = 0;
    for (int i = 0; i < N; ++i)
        sum += host[i] * (i + 1);
    printf("%.10g\n", sum);
}

static int run_program(int argc, char **argv) {
    const auto program = programs.find(argc == 2 ? argv[1] : "");
    if (program == programs.end())
        return 2;
    float *const x = device_memory();
    program->second(x);
    cudaDeviceSynchronize();
    cudaFree(x);
    return 0;
}

#endif
