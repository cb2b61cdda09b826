#include "studies/tensor_mean/run.h"
#include "common/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// So that the size of D × D × D numbers has no overflow.
enum { MAX_FEATURES = 100000 };

struct run {
    struct options options;
    struct result result;
    const char *dataset, *load_s;
    double transfer_s, product_s; // of a pass
    float largest;
    double gflops, peak_rss_mib;
};

static const struct field FIELDS[] = {
    COLUMN("device", TEXT, result.device),
    OPTIONAL("threads", INT_FROM_0, result.threads),
    OPTION("triplets", INT_FROM_1, triplets, "8192", "triplets", "triplets to average over"),
    {"features", INT_FROM_1, offsetof(struct options, features), "features", "32",
     "features of x, of y and of z", MAX_FEATURES, false},
    OPTION("seconds", FLOAT_FROM_0, seconds, "0.1", "seconds",
           "repeat the pass until so much was timed"),
    OPTION("seed", UINT64, seed, "1", "seed", "seed of the features"),
    COLUMN("dataset", TEXT, dataset),
    COLUMN("load_s", TEXT, load_s),
    COLUMN("setup_s", SECONDS, result.setup_s),
    COLUMN("time_s", SECONDS, result.time_s),
    OPTIONAL("transfer_s", SECONDS, transfer_s),
    OPTIONAL("product_s", SECONDS, product_s),
    COLUMN("largest", FLOAT_FROM_0, largest),
    COLUMN("gflops", NUMBER, gflops),
    COLUMN("peak_rss_mib", NUMBER, peak_rss_mib),
    OPTIONAL("peak_vram_mib", NUMBER, result.peak_vram_mib),
    {0},
};

// For each triplet, a product of each pair x[i]·y[j], and with it a multiply-add for each z[k]. No
// arrangement of the formula has fewer.
static double gflops(const struct options *options, double time_s) {
    const double features = options->features, pairs = features * features;
    return time_s > 0 ? options->triplets * (pairs + 2 * pairs * features) / time_s / 1e9 : 0;
}

struct options parse_options(int argc, char **argv, const char *about, int max_threads) {
    struct options options = {0};
    options.common =
        parse_common(argc, argv,
                     &(struct command_line){
                         .about = about,
                         .max_threads = max_threads,
                         .fields = FIELDS,
                         .options = &options,
                         .save = "save",
                         .save_help = "write the mean as little-endian float32, row-major",
                     });
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
        .x = draw(options->seed, 1, count * features),
        .y = draw(options->seed, 2, count * features),
        .z = draw(options->seed, 3, count * features),
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
        fprintf(stderr, "%s: an element of the mean became %g\n", stage_name, (double)largest);
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
    const double passes = fmax(1, (double)result->product_time.count);
    const struct run run = {.options = *options,
                            .result = *result,
                            .dataset = "drawn",
                            .load_s = "",
                            .transfer_s = result->transfer_time.total / passes,
                            .product_s = result->product_time.total / passes,
                            .largest = largest,
                            .gflops = gflops(options, result->time_s),
                            .peak_rss_mib = peak_rss_mib()};
    if (options->common.csv)
        status = append_row("csv", options->common.csv, FIELDS, &run);
    printf("%s: triplets %d, features %d: pass %.6f s, %.1f GFLOP/s, largest element %.7g\n",
           stage_name, options->triplets, options->features, result->time_s, run.gflops,
           (double)largest);
    return status;
}
