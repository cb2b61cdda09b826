#include "run.h"

#include <stdio.h>

struct run {
    struct options options;
    const char *device, *dataset, *load_s;
    int threads;
    double setup_s, time_s, pi, gflops, peak_rss_mib, peak_vram_mib;
};

static const struct field FIELDS[] = {
    COLUMN("device", TEXT, device),
    OPTIONAL("threads", INT_FROM_0, threads),
    OPTION("terms", INT_FROM_1, terms, "1000", "terms", "of the series"),
    OPTION("seed", UINT64, seed, "1", NULL, "of nothing"),
    COLUMN("dataset", TEXT, dataset),
    COLUMN("load_s", TEXT, load_s),
    COLUMN("setup_s", SECONDS, setup_s),
    COLUMN("time_s", SECONDS, time_s),
    COLUMN("pi", NUMBER, pi),
    COLUMN("gflops", NUMBER, gflops),
    COLUMN("peak_rss_mib", NUMBER, peak_rss_mib),
    OPTIONAL("peak_vram_mib", NUMBER, peak_vram_mib),
    {0},
};

struct options parse_options(int argc, char **argv, const char *about) {
    struct options options = {0};
    options.common =
        parse_common(argc, argv,
                     &(struct command_line){
                         .about = about, .max_threads = 1, .fields = FIELDS, .options = &options});
    return options;
}

int report_result(const struct options *options, double pi, double time_s) {
    const struct run run = {.options = *options,
                            .device = "cpu",
                            .dataset = "drawn",
                            .load_s = "",
                            .threads = 1,
                            .time_s = time_s,
                            .pi = pi,
                            .gflops = time_s > 0 ? 2 * options->terms / time_s / 1e9 : 0,
                            .peak_rss_mib = peak_rss_mib()};
    printf("%s: %d terms: %.6f s, pi %.9f\n", stage_name, options->terms, time_s, pi);
    return options->common.csv ? append_row("csv", options->common.csv, FIELDS, &run) : 0;
}
