// The arithmetic ceiling: multiply-adds that never wait for memory or for each other.
#ifndef BENCH_CEILING_H
#define BENCH_CEILING_H

#include "bench/vectors.h"
#include "common/timing.h"

#include <omp.h>

// Sums that are independent of each other. Two units with a latency of four cycles need eight; what
// the machine has registers for is enough for every core that we know of.
enum { CHAINS = REGISTERS - REGISTERS / 4 };

// What one round of multiply_adds() computes; a multiply-add is two operations.
const double ROUND_FLOPS = 2.0 * CHAINS * LANES;

// Not inlined, because a caller that calls others meanwhile would have the sums put into memory.
__attribute__((noinline)) static void multiply_adds(long rounds) {
    vec factor = vec{} + 0.5f, term = vec{} + 1.0f, sum[CHAINS];
    // The assembler statements are empty. The compiler has to take it that they change the values,
    // so that it can neither compute anything in advance nor keep a sum elsewhere than in a
    // register.
    asm volatile("" : "+" VECTOR_REGISTER(factor), "+" VECTOR_REGISTER(term));
#pragma GCC unroll 32
    for (int i = 0; i < CHAINS; ++i)
        sum[i] = vec{};
    for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
        for (int i = 0; i < CHAINS; ++i) {
            sum[i] = sum[i] * factor + term;
            asm volatile("" : "+" VECTOR_REGISTER(sum[i]));
        }
    }
}

// Operations a second of so many threads together: the best of some short measurements, because
// this is what others are divided by. Takes a few milliseconds.
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
