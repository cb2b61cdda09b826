// Stage 01: four sums.
#include "../run.h"
#include "common/timing.h"

static double series(int terms) {
    double sums[4] = {0};
    int k = 0;
    for (; k + 4 <= terms; k += 4)
        for (int i = 0; i < 4; ++i)
            sums[i] += (i % 2 ? -4.0 : 4.0) / (2.0 * (k + i) + 1);
    for (; k < terms; ++k)
        sums[0] += (k % 2 ? -4.0 : 4.0) / (2.0 * k + 1);
    return sums[0] + sums[1] + sums[2] + sums[3];
}

int main(int argc, char **argv) {
    const struct options options = parse_options(argc, argv, "Pi, in four sums.");
    const double start = seconds();
    const double pi = series(options.terms);
    return report_result(&options, pi, seconds() - start);
}
