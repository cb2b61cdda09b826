// The reference: the mean tensor in float64, from the formula in README.md. It shares nothing with
// the stages or common/, on purpose. It has its own generator, options and loops.
//
//     reference [--triplets N] [--features N] [--seed N] [--save FILE] ...
//
// It takes the options of a stage, and writes A as float64. It prints what bench/testing.py
// compares, and how far a stage may be off: see stages/reference.c.
#include <err.h>
#include <getopt.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// How far an element may be off, over the largest one. With 8192 triplets of 32 features, the
// stages' float32 sums were up to 4e-7 off, and one long sum would be 4e-6 off. The error of a sum
// grows with the root of its length, and reaches the bound at some 50,000 triplets.
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

// From −1 to 1. All of them are float32 numbers, too.
static double draw_feature(struct generator *generator) {
    return ldexp(draw_bits(generator) >> 8, -23) - 1;
}

static double *allocate(size_t count) {
    double *values = calloc(count, sizeof *values);
    if (!values)
        err(1, "reference");
    return values;
}

enum { TRIPLETS, FEATURES, NUMBERS };

struct options {
    size_t numbers[NUMBERS];
    uint64_t seed;
    const char *save;
};

static struct options parse_options(int argc, char **argv) {
    enum { SEED = NUMBERS, SAVE, IGNORED };
    static const struct option OPTIONS[] = {
        {"triplets", 1, 0, TRIPLETS}, {"features", 1, 0, FEATURES}, {"seed", 1, 0, SEED},
        {"save", 1, 0, SAVE},         {"seconds", 1, 0, IGNORED},   {"threads", 1, 0, IGNORED},
        {"csv", 1, 0, IGNORED},       {"quiet", 0, 0, IGNORED},     {0},
    };
    struct options options = {{8192, 32}, 1, NULL};
    for (int option; (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        if (option < NUMBERS)
            options.numbers[option] = strtoul(optarg, NULL, 10);
        else if (option == SEED)
            options.seed = strtoull(optarg, NULL, 10);
        else if (option == SAVE)
            options.save = optarg;
        else if (option != IGNORED)
            exit(2);
    }
    if (optind != argc)
        errx(2, "usage: reference [--triplets N] [--features N] [--seed N] [--save FILE] ...");
    return options;
}

// A = 1/N · Σ x[n] ⊗ y[n] ⊗ z[n]. Each array is drawn as it is used: a row of x, of y and of z.
static void average(double *mean, size_t triplets, size_t features, uint64_t seed) {
    struct generator generators[3];
    double *rows[3];
    for (int array = 0; array < 3; ++array) {
        generators[array] = start_generator(seed, (uint64_t)array + 1);
        rows[array] = allocate(features);
    }
    for (size_t n = 0; n < triplets; ++n) {
        for (int array = 0; array < 3; ++array)
            for (size_t i = 0; i < features; ++i)
                rows[array][i] = draw_feature(&generators[array]);
        for (size_t i = 0; i < features; ++i)
            for (size_t j = 0; j < features; ++j)
                for (size_t k = 0; k < features; ++k)
                    mean[(i * features + j) * features + k] +=
                        rows[0][i] * rows[1][j] * rows[2][k] / (double)triplets;
    }
    for (int array = 0; array < 3; ++array)
        free(rows[array]);
}

static void save_mean(const char *path, const double *mean, size_t count) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(mean, sizeof *mean, count, file) != count || fclose(file) != 0)
        err(1, "%s", path);
}

int main(int argc, char **argv) {
    const struct options options = parse_options(argc, argv);
    const size_t features = options.numbers[FEATURES], count = features * features * features;
    double *mean = allocate(count), largest = 0;
    average(mean, options.numbers[TRIPLETS], features, options.seed);
    for (size_t e = 0; e < count; ++e)
        largest = fmax(largest, fabs(mean[e]));
    printf("part A %zu %zu largest %g\n", features * features, features, BOUND);
    printf("result largest %.17g %g 0\n", largest, BOUND);
    if (options.save)
        save_mean(options.save, mean, count);
    free(mean);
}
