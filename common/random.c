#include "common/random.h"

uint32_t pcg32_next(struct pcg32 *generator) {
    uint64_t state = generator->state;
    generator->state = state * 6364136223846793005u + generator->increment;
    uint32_t shifted = (uint32_t)(((state >> 18) ^ state) >> 27);
    uint32_t rotation = (uint32_t)(state >> 59);
    return shifted >> rotation | shifted << (-rotation & 31);
}

struct pcg32 pcg32_start(uint64_t seed, uint64_t stream) {
    struct pcg32 generator = {0, stream << 1 | 1};
    pcg32_next(&generator);
    generator.state += seed;
    pcg32_next(&generator);
    return generator;
}

float draw_uniform(struct pcg32 *generator, float limit) {
    return ((float)(pcg32_next(generator) >> 8) * 0x1p-23f - 1.0f) * limit;
}
