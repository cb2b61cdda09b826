// The options of a run: which data, which network, and where the results go.
#ifndef COMMON_OPTIONS_H
#define COMMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Exit statuses, the same for every stage.
enum { EXIT_RUN_FAILED = 1, EXIT_BAD_INPUT = 2, EXIT_NO_DEVICE = 77 };

struct options {
    const char *data;         // directory of the IDX files or of train.csv
    int hidden;               // hidden units, >= 1
    int batch;                // samples in a batch, >= 1
    int epochs;               // passes over the training set, >= 0
    float learning_rate;      // > 0
    uint64_t seed;            // of the initial weights
    int train_samples;        // the first so many of the training file, >= 1
    int test_samples;         // the first so many of the test file, >= 1
    int threads;              // 0: not given, the stage chooses
    const char *csv;          // file that gets a result row, or NULL
    const char *save_weights; // file that gets the trained weights, or NULL
    bool quiet;               // print the result line only
};

// data/mnist of the repository that the running program lies in, two folders below its root, as in
// stages/00_serial or tests/build. It is found at run time, so that the repository can be moved.
const char *default_data(void);

// Parses the command line that all stages share. `about` is the stage's one line in --help, and
// `max_threads` is the largest --threads that it accepts. Returns the options, complete and in
// range. On a wrong argument, prints one line that names the option, what was found and what was
// expected, and exits with EXIT_BAD_INPUT. It tries the output files without creating them, so that
// a long run does not end with a result that it cannot save. From here on, a standard output that
// cannot be written ends the program with EXIT_RUN_FAILED and one line.
struct options parse_options(int argc, char **argv, const char *about, int max_threads);

#ifdef __cplusplus
}
#endif

#endif
