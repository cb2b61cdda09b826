// The arithmetic ceiling: multiply-adds that never wait for memory or for each other.
#ifndef BENCH_CEILING_H
#define BENCH_CEILING_H

#include "common/timing.h"

#include <omp.h>

// The widest vectors of the machine that is compiled for, as in stages/01_vectorized.
// VECTOR_REGISTER is the inline assembler's name for any register that holds one.
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, REGISTERS = 32 };
#define VECTOR_REGISTER "v"
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, REGISTERS = 16 };
#define VECTOR_REGISTER "x"
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, REGISTERS = 32 };
#define VECTOR_REGISTER "w"
#else
enum { VECTOR_BYTES = 16, REGISTERS = 16 };
#define VECTOR_REGISTER "x"
#endif
enum { LANES = VECTOR_BYTES / 4 }; // of float32
typedef float vec __attribute__((vector_size(VECTOR_BYTES)));

// Sums that are independent of each other. Two units with a latency of four cycles need eight. As
// many as the registers hold are enough for every core that we know of.
enum { CHAINS = REGISTERS - REGISTERS / 4 };

// The operations in one round of multiply_adds(). A multiply-add is two operations.
static const double ROUND_FLOPS = 2.0 * CHAINS * LANES;

// Not inlined: a caller that also calls other functions would keep the sums in memory.
__attribute__((noinline)) static void multiply_adds(long rounds) {
    const vec zero = {0};
    vec factor = zero + 0.5f, term = zero + 1.0f, sum[CHAINS];
    // The assembler statements are empty. The compiler must assume that they change the values. So
    // it cannot compute anything in advance, and it must keep each sum in a register.
    asm volatile("" : "+" VECTOR_REGISTER(factor), "+" VECTOR_REGISTER(term));
#pragma GCC unroll 32
    for (int i = 0; i < CHAINS; ++i)
        sum[i] = zero;
    for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
        for (int i = 0; i < CHAINS; ++i) {
            sum[i] = sum[i] * factor + term;
            asm volatile("" : "+" VECTOR_REGISTER(sum[i]));
        }
    }
}

// Returns the operations a second of so many threads together. It is the best of some short
// measurements, because other rates are divided by it. Takes a few milliseconds.
static inline double measure_ceiling(int threads) {
    const long rounds = 100000;
    double best = 0;
    for (int i = 0; i < 10; ++i) {
        double start = 0;
#pragma omp parallel num_threads(threads)
        {
#pragma omp barrier
#pragma omp master
            start = seconds();
            multiply_adds(rounds);
        }
        const double rate = threads * (double)rounds * ROUND_FLOPS / (seconds() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

#endif
