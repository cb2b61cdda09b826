// Random numbers that are the same on every machine: PCG32 (XSH-RR 64/32, O'Neill 2014).
#ifndef COMMON_RANDOM_H
#define COMMON_RANDOM_H

#include <stdint.h>

struct pcg32 {
    uint64_t state;
    uint64_t increment;
};

// Returns the next 32 random bits.
static inline uint32_t pcg32_next(struct pcg32 *generator) {
    uint64_t state = generator->state;
    generator->state = state * 6364136223846793005u + generator->increment;
    uint32_t shifted = (uint32_t)(((state >> 18) ^ state) >> 27);
    uint32_t rotation = (uint32_t)(state >> 59);
    return shifted >> rotation | shifted << (-rotation & 31);
}

// Returns a stream of the generator at its start, seeded as by the author's pcg32_srandom().
static inline struct pcg32 pcg32_start(uint64_t seed, uint64_t stream) {
    struct pcg32 generator = {0, stream << 1 | 1};
    pcg32_next(&generator);
    generator.state += seed;
    pcg32_next(&generator);
    return generator;
}

// Returns the next number, uniform in ±limit: ((r >> 8)·2⁻²³ − 1)·limit for the next bits r.
static inline float draw_uniform(struct pcg32 *generator, float limit) {
    return ((float)(pcg32_next(generator) >> 8) * 0x1p-23f - 1.0f) * limit;
}

#endif
