#include "studies/information/run.h"
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
enum { SAMPLES = 1024, FEATURES, SECONDS };

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct options *options = state->input;
    switch (key) {
    case SAMPLES:
        options->samples = parse_int("samples", arg, 1, INT_MAX);
        return 0;
    case FEATURES:
        options->features = parse_int("features", arg, 1, INT_MAX);
        return 0;
    case SECONDS:
        options->seconds = parse_float("seconds", arg, false);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static struct row make_row(const struct options *options, const struct result *result) {
    struct row row = begin_row(result->device, result->threads);
    add_int(&row, "samples", (unsigned)options->samples);
    add_int(&row, "features", (unsigned)options->features);
    add_float(&row, "seconds", options->seconds);
    add_int(&row, "seed", options->common.seed);
    add_text(&row, "dataset", "drawn");
    add_text(&row, "load_s", "");
    add_seconds(&row, "setup_s", result->setup_s);
    add_seconds(&row, "time_s", result->time_s);
    // A phase that a program does not have, or that it cannot tell from another, is an empty field.
    add_optional_seconds(&row, "transfer_s", result->transfer_time.mean);
    add_optional_seconds(&row, "softmax_s", result->softmax_time.mean);
    add_optional_seconds(&row, "entropy_s", result->entropy_time.mean);
    add_optional_seconds(&row, "information_s", result->information_time.mean);
    add_number(&row, "entropy", result->entropy);
    add_number(&row, "mutual_information", result->information);
    add_number(&row, "gflops", result->operations / result->time_s / 1e9);
    add_peaks(&row, result->peak_vram_mib);
    return row;
}

struct options parse_options(int argc, char **argv, const char *about, int max_threads) {
    static const struct argp_option own_options[] = {
        {"samples", SAMPLES, "N", 0, "rows of activations (4096)", 1},
        {"features", FEATURES, "N", 0, "activations in a row (256)", 1},
        {"seconds", SECONDS, "X", 0, "repeat the pass until so much was timed (0.1)", 1},
        {0}};
    const struct argp own = {own_options, parse_option, NULL, NULL, NULL, NULL, NULL};
    struct options options = {.samples = 4096, .features = 256, .seconds = 0.1f};
    const struct result nothing = {.device = "", .time_s = 1};
    const struct row row = make_row(&options, &nothing);
    const struct command_line command_line = {
        .about = about,
        .max_threads = max_threads,
        .own = &own,
        .own_input = &options,
        .row = &row,
        .seed_help = "of the activations",
    };
    options.common = parse_common(argc, argv, &command_line);
    return options;
}

// Draws a set of activations from a stream of the generator.
static float *draw(uint64_t seed, uint64_t stream, size_t count) {
    float *numbers = allocate_floats(count);
    struct pcg32 generator = pcg32_start(seed, stream);
    for (size_t i = 0; i < count; i += 2) {
        const double u = (pcg32_next(&generator) + 1.0) * 0x1p-32;
        const double v = pcg32_next(&generator) * 0x1p-32;
        const double radius = sqrt(-2 * log(u));
        numbers[i] = (float)(radius * cos(2 * M_PI * v));
        if (i + 1 < count)
            numbers[i + 1] = (float)(radius * sin(2 * M_PI * v));
    }
    return numbers;
}

struct activations draw_activations(const struct options *options) {
    const size_t samples = (size_t)options->samples, features = (size_t)options->features;
    return (struct activations){
        .samples = samples,
        .features = features,
        .x = draw(options->common.seed, 1, samples * features),
        .y = draw(options->common.seed, 2, samples * features),
    };
}

void free_activations(struct activations *activations) {
    free(activations->x);
    free(activations->y);
}

int report_result(const struct options *options, const struct result *result) {
    if (!isfinite(result->entropy) || !isfinite(result->information)) {
        fprintf(stderr, STAGE ": the entropy became %g and the mutual information %g\n",
                result->entropy, result->information);
        return EXIT_RUN_FAILED;
    }
    if (!options->common.quiet) {
        print_timer("transfer", &result->transfer_time, "passes");
        print_timer("softmax", &result->softmax_time, "passes");
        print_timer("entropy", &result->entropy_time, "passes");
        print_timer("information", &result->information_time, "passes");
    }
    const struct row row = make_row(options, result);
    const int status = options->common.csv ? append_row(options->common.csv, &row) : 0;
    print_line("%s: samples %d, features %d: pass %.6f s, %.1f GFLOP/s, entropy %.7g, "
               "mutual information %.7g\n",
               STAGE, options->samples, options->features, result->time_s,
               result->operations / result->time_s / 1e9, result->entropy, result->information);
    return status;
}
