// Random numbers that are the same on every machine: PCG32 (XSH-RR 64/32, O'Neill 2014).
#ifndef COMMON_RANDOM_H
#define COMMON_RANDOM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pcg32 {
    uint64_t state;
    uint64_t increment;
};

// Returns a stream of the generator at its start, seeded as by the author's pcg32_srandom().
struct pcg32 pcg32_start(uint64_t seed, uint64_t stream);

// Returns the next 32 random bits.
uint32_t pcg32_next(struct pcg32 *generator);

// Returns the next number, uniform in ±limit: ((r >> 8)·2⁻²³ − 1)·limit for the next bits r.
float draw_uniform(struct pcg32 *generator, float limit);

#ifdef __cplusplus
}
#endif

#endif
