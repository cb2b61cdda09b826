#include "studies/information/run.h"
#include "common/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct run {
    struct options options;
    struct result result;
    const char *dataset, *load_s;
    double gflops, peak_rss_mib;
};

// A phase that a program does not have, or that it cannot tell from another, is an empty field.
static const struct field FIELDS[] = {
    COLUMN("device", TEXT, result.device),
    OPTIONAL("threads", INT_FROM_0, result.threads),
    OPTION("samples", INT_FROM_1, samples, "4096", "samples", "rows of activations"),
    OPTION("features", INT_FROM_1, features, "256", "features", "activations in a row"),
    OPTION("seconds", FLOAT_FROM_0, seconds, "0.1", "seconds",
           "repeat the pass until so much was timed"),
    OPTION("seed", UINT64, seed, "1", "seed", "of the activations"),
    COLUMN("dataset", TEXT, dataset),
    COLUMN("load_s", TEXT, load_s),
    COLUMN("setup_s", SECONDS, result.setup_s),
    COLUMN("time_s", SECONDS, result.time_s),
    OPTIONAL("transfer_s", SECONDS, result.transfer_time.mean),
    OPTIONAL("softmax_s", SECONDS, result.softmax_time.mean),
    OPTIONAL("entropy_s", SECONDS, result.entropy_time.mean),
    OPTIONAL("information_s", SECONDS, result.information_time.mean),
    COLUMN("entropy", NUMBER, result.entropy),
    COLUMN("mutual_information", NUMBER, result.information),
    COLUMN("gflops", NUMBER, gflops),
    COLUMN("peak_rss_mib", NUMBER, peak_rss_mib),
    OPTIONAL("peak_vram_mib", NUMBER, result.peak_vram_mib),
    {0},
};

struct options parse_options(int argc, char **argv, const char *about, int max_threads) {
    struct options options = {0};
    options.common = parse_common(argc, argv,
                                  &(struct command_line){
                                      .about = about,
                                      .max_threads = max_threads,
                                      .fields = FIELDS,
                                      .options = &options,
                                  });
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
        .x = draw(options->seed, 1, samples * features),
        .y = draw(options->seed, 2, samples * features),
    };
}

void free_activations(struct activations *activations) {
    free(activations->x);
    free(activations->y);
}

int report_result(const struct options *options, const struct result *result) {
    if (!isfinite(result->entropy) || !isfinite(result->information)) {
        fprintf(stderr, "%s: the entropy became %g and the mutual information %g\n", stage_name,
                result->entropy, result->information);
        return EXIT_RUN_FAILED;
    }
    if (!options->common.quiet) {
        print_timer("transfer", &result->transfer_time, "passes");
        print_timer("softmax", &result->softmax_time, "passes");
        print_timer("entropy", &result->entropy_time, "passes");
        print_timer("information", &result->information_time, "passes");
    }
    const struct run run = {
        *options, *result, "drawn", "", result->operations / result->time_s / 1e9, peak_rss_mib()};
    const char *csv = options->common.csv;
    const int status = csv ? append_row("csv", csv, FIELDS, &run) : 0;
    printf("%s: samples %d, features %d: pass %.6f s, %.1f GFLOP/s, entropy %.7g, "
           "mutual information %.7g\n",
           stage_name, options->samples, options->features, result->time_s, run.gflops,
           result->entropy, result->information);
    return status;
}
