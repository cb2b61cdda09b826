#include "studies/tensor_mean/run.h"
#include "common/memory.h"
#include "common/random.h"
#include "common/rows.h"
#include "common/terminal.h"

#include <argp.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// Options without a short form have numbers that are not characters. parse_common() has others.
enum { TRIPLETS = 1024, FEATURES, SECONDS };

// So that the size of D × D × D numbers has no overflow.
enum { MAX_FEATURES = 100000 };

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct options *options = state->input;
    switch (key) {
    case TRIPLETS:
        options->triplets = parse_int("triplets", arg, 1, INT_MAX);
        return 0;
    case FEATURES:
        options->features = parse_int("features", arg, 1, MAX_FEATURES);
        return 0;
    case SECONDS:
        options->seconds = parse_float("seconds", arg, false);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// For each triplet, a product of each pair x[i]·y[j], and with it a multiply-add for each z[k]. No
// arrangement of the formula has fewer.
static double gflops(const struct options *options, double time_s) {
    const double features = options->features, pairs = features * features;
    return time_s > 0 ? options->triplets * (pairs + 2 * pairs * features) / time_s / 1e9 : 0;
}

static struct row make_row(const struct options *options, const struct result *result,
                           float largest) {
    const double passes = fmax(1, (double)result->product_time.count);
    struct row row = begin_row(result->device, result->threads);
    add_int(&row, "triplets", (unsigned)options->triplets);
    add_int(&row, "features", (unsigned)options->features);
    add_float(&row, "seconds", options->seconds);
    add_int(&row, "seed", options->common.seed);
    add_text(&row, "dataset", "drawn");
    add_text(&row, "load_s", "");
    add_seconds(&row, "setup_s", result->setup_s);
    add_seconds(&row, "time_s", result->time_s);
    add_optional_seconds(&row, "transfer_s", result->transfer_time.total / passes);
    add_optional_seconds(&row, "product_s", result->product_time.total / passes);
    add_float(&row, "largest", largest);
    add_number(&row, "gflops", gflops(options, result->time_s));
    add_peaks(&row, result->peak_vram_mib);
    return row;
}

struct options parse_options(int argc, char **argv, const char *about, int max_threads) {
    static const struct argp_option own_options[] = {
        {"triplets", TRIPLETS, "N", 0, "triplets to average over (8192)", 1},
        {"features", FEATURES, "N", 0, "features of x, of y and of z (32)", 1},
        {"seconds", SECONDS, "X", 0, "repeat the pass until so much was timed (0.1)", 1},
        {0}};
    const struct argp own = {own_options, parse_option, NULL, NULL, NULL, NULL, NULL};
    struct options options = {.triplets = 8192, .features = 32, .seconds = 0.1f};
    const struct row row = make_row(&options, &(struct result){.device = ""}, 0);
    const struct command_line command_line = {
        .about = about,
        .max_threads = max_threads,
        .own = &own,
        .own_input = &options,
        .row = &row,
        .seed_help = "seed of the features (1)",
        .save = "save",
        .save_help = "write the mean as little-endian float32, row-major",
    };
    options.common = parse_common(argc, argv, &command_line);
    return options;
}

static float *draw(uint64_t seed, uint64_t stream, size_t count) {
    float *features = allocate_floats(count);
    struct pcg32 generator = pcg32_start(seed, stream);
    for (size_t i = 0; i < count; ++i)
        features[i] = draw_uniform(&generator, 1);
    return features;
}

struct triplets draw_triplets(const struct options *options) {
    const size_t count = (size_t)options->triplets, features = (size_t)options->features;
    return (struct triplets){
        .count = count,
        .features = features,
        .x = draw(options->common.seed, 1, count * features),
        .y = draw(options->common.seed, 2, count * features),
        .z = draw(options->common.seed, 3, count * features),
    };
}

void free_triplets(struct triplets *triplets) {
    free(triplets->x);
    free(triplets->y);
    free(triplets->z);
}

// Returns the largest absolute value, or an element that is not finite, if there is one.
static float find_largest(const float *mean, size_t count) {
    float largest = 0;
    for (size_t e = 0; e < count; ++e) {
        if (!isfinite(mean[e]))
            return mean[e];
        largest = fmaxf(largest, fabsf(mean[e]));
    }
    return largest;
}

int report_result(const struct options *options, const float *mean, const struct result *result) {
    const size_t features = (size_t)options->features;
    const struct array array = {mean, features * features * features};
    const float largest = find_largest(mean, array.count);
    if (!isfinite(largest)) {
        fprintf(stderr, STAGE ": an element of the mean became %g\n", (double)largest);
        return EXIT_RUN_FAILED;
    }
    if (!options->common.quiet) {
        print_timer("transfer", &result->transfer_time, "transfers");
        print_timer("product", &result->product_time, "passes");
    }
    int status = 0;
    if (options->common.save)
        status = write_arrays("save", options->common.save, &array, 1);
    if (status)
        return status;
    const struct row row = make_row(options, result, largest);
    if (options->common.csv)
        status = append_row(options->common.csv, &row);
    print_line("%s: triplets %d, features %d: pass %.6f s, %.1f GFLOP/s, largest element %.7g\n",
               STAGE, options->triplets, options->features, result->time_s,
               gflops(options, result->time_s), (double)largest);
    return status;
}
