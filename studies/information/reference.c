// The reference: entropy and mutual information in float64, from the formulas in README.md. It
// shares nothing with the stages or common/, on purpose. It has its own generator, options and
// loops.
//
//     reference [--samples N] [--features N] [--seed N] ...
//
// It takes the options of a stage. It prints what bench/testing.py compares, and how far a stage
// may be off: see stages/reference.c. There is nothing to save.
#include <err.h>
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// How far a result may be off, over the result itself. Of the sizes in ladder.toml, float32 was off
// by up to 4e-7. The paper allows 1e-3.
static const double BOUND = 1e-5;

// PCG32, XSH-RR 64/32: O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
// Algorithms for Random Number Generation", 2014.
struct generator {
    uint64_t state;
    uint64_t increment;
};

static uint32_t draw_bits(struct generator *generator) {
    const uint64_t old = generator->state;
    generator->state = old * 0x5851f42d4c957f2d + generator->increment;
    const uint32_t bits = (uint32_t)((old ^ old >> 18) >> 27);
    const unsigned turn = (unsigned)(old >> 59);
    return turn ? bits >> turn | bits << (32 - turn) : bits;
}

static struct generator start_generator(uint64_t seed, uint64_t stream) {
    struct generator generator = {.increment = 2 * stream + 1};
    draw_bits(&generator);
    generator.state += seed;
    draw_bits(&generator);
    return generator;
}

// Standard normal numbers, two at a time: Box and Muller, "A Note on the Generation of Random
// Normal Deviates", 1958.
struct normal {
    struct generator generator;
    double second;
    bool has_second;
};

// The next number, as the float32 that a stage gets.
static double draw_normal(struct normal *normal) {
    normal->has_second = !normal->has_second;
    if (!normal->has_second)
        return (float)normal->second;
    const double u = ldexp(draw_bits(&normal->generator) + 1.0, -32);
    const double v = ldexp(draw_bits(&normal->generator), -32);
    normal->second = sqrt(-2 * log(u)) * sin(2 * M_PI * v);
    return (float)(sqrt(-2 * log(u)) * cos(2 * M_PI * v));
}

struct options {
    size_t samples, features;
    uint64_t seed;
};

static struct options parse_options(int argc, char **argv) {
    enum { SAMPLES, FEATURES, SEED, IGNORED };
    static const struct option OPTIONS[] = {
        {"samples", 1, 0, SAMPLES}, {"features", 1, 0, FEATURES},
        {"seed", 1, 0, SEED},       {"seconds", 1, 0, IGNORED},
        {"threads", 1, 0, IGNORED}, {"csv", 1, 0, IGNORED},
        {"quiet", 0, 0, IGNORED},   {0},
    };
    struct options options = {4096, 256, 1};
    for (int option; (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        if (option == SAMPLES)
            options.samples = strtoul(optarg, NULL, 10);
        else if (option == FEATURES)
            options.features = strtoul(optarg, NULL, 10);
        else if (option == SEED)
            options.seed = strtoull(optarg, NULL, 10);
        else if (option != IGNORED)
            exit(2);
    }
    if (optind != argc)
        errx(2, "usage: reference [--samples N] [--features N] [--seed N] ...");
    return options;
}

// Draws a row and turns it into its softmax.
static void draw_softmax(struct normal *normal, double *p, size_t features) {
    double sum = 0;
    for (size_t i = 0; i < features; ++i)
        sum += p[i] = exp(draw_normal(normal)); // at most e^6.7: nothing can overflow
    for (size_t i = 0; i < features; ++i)
        p[i] /= sum;
}

int main(int argc, char **argv) {
    const struct options options = parse_options(argc, argv);
    const size_t features = options.features;
    struct normal x = {.generator = start_generator(options.seed, 1)};
    struct normal y = {.generator = start_generator(options.seed, 2)};
    double *p = calloc(features, sizeof *p), *q = calloc(features, sizeof *q);
    if (!p || !q)
        err(1, "reference");
    double entropy = 0, information = 0;
    for (size_t b = 0; b < options.samples; ++b) {
        draw_softmax(&x, p, features);
        draw_softmax(&y, q, features);
        for (size_t i = 0; i < features; ++i) {
            entropy += p[i] * p[i];
            for (size_t j = 0; j < features; ++j)
                information += p[i] * q[j] * p[i] * q[j];
        }
    }
    printf("result entropy %.17g %g 0\n", entropy / (double)options.samples, BOUND);
    printf("result mutual_information %.17g %g 0\n", information / (double)options.samples, BOUND);
    free(p);
    free(q);
}
