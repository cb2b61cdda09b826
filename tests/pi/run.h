// What the stages share: options and result.
#ifndef PI_RUN_H
#define PI_RUN_H

#include "common/program.h"

struct options {
    struct common_options common;
    int terms;     // of the series, >= 1
    uint64_t seed; // of nothing
};

struct options parse_options(int argc, char **argv, const char *about);

// Prints the result and appends the row to --csv. Returns the exit status.
int report_result(const struct options *options, double pi, double time_s);

#endif
