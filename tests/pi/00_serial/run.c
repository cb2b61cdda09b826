// Stage 00: term by term.
#include "../run.h"
#include "common/timing.h"

static double series(int terms) {
    double sum = 0;
    for (int k = 0; k < terms; ++k)
        sum += (k % 2 ? -4.0 : 4.0) / (2.0 * k + 1);
    return sum;
}

int main(int argc, char **argv) {
    const struct options options = parse_options(argc, argv, "Pi, term by term.");
    const double start = seconds();
    const double pi = series(options.terms);
    return report_result(&options, pi, seconds() - start);
}
