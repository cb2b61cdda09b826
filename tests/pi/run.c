#include "run.h"
#include "common/rows.h"

#include <argp.h>
#include <limits.h>
#include <stdio.h>

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct options *options = state->input;
    if (key != 't')
        return ARGP_ERR_UNKNOWN;
    options->terms = parse_int("terms", arg, 1, INT_MAX);
    return 0;
}

static struct row make_row(const struct options *options, double pi, double time_s) {
    struct row row = begin_row("cpu", 1);
    add_int(&row, "terms", (unsigned)options->terms);
    add_text(&row, "dataset", "drawn");
    add_text(&row, "load_s", "");
    add_seconds(&row, "setup_s", 0);
    add_seconds(&row, "time_s", time_s);
    add_number(&row, "pi", pi);
    add_number(&row, "gflops", time_s > 0 ? 2 * options->terms / time_s / 1e9 : 0);
    add_peaks(&row, 0);
    return row;
}

struct options parse_options(int argc, char **argv, const char *about) {
    static const struct argp_option own_options[] = {{"terms", 't', "N", 0, "of the series", 1},
                                                     {0}};
    const struct argp own = {own_options, parse_option, NULL, NULL, NULL, NULL, NULL};
    struct options options = {.terms = 1000};
    const struct row row = make_row(&options, 0, 0);
    const struct command_line command_line = {.about = about,
                                              .max_threads = 1,
                                              .own = &own,
                                              .own_input = &options,
                                              .row = &row,
                                              .seed_help = "of nothing"};
    options.common = parse_common(argc, argv, &command_line);
    return options;
}

int report_result(const struct options *options, double pi, double time_s) {
    const struct row row = make_row(options, pi, time_s);
    printf("%s: %d terms: %.6f s, pi %.9f\n", STAGE, options->terms, time_s, pi);
    return options->common.csv ? append_row(options->common.csv, &row) : 0;
}
