// The options that the programs of all ladders have, and what a ladder needs to add its own.
#ifndef COMMON_OPTIONS_H
#define COMMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct argp;
struct row;

// Exit statuses, the same for every stage.
enum { EXIT_RUN_FAILED = 1, EXIT_BAD_INPUT = 2, EXIT_NO_DEVICE = 77 };

struct common_options {
    uint64_t seed;    // of the numbers that are drawn
    int threads;      // 0: not given, the stage chooses
    const char *csv;  // file that gets a result row, or NULL
    const char *save; // file that gets the result itself, or NULL
    bool quiet;       // print the result line only
};

// What distinguishes a program's command line from others.
struct command_line {
    const char *about;      // the stage's one line in --help
    int max_threads;        // the largest --threads that it accepts
    const struct argp *own; // the ladder's own options
    void *own_input;        // where their parser puts them: its state->input
    const struct row *row;  // a result row, for the names of its columns
    const char *seed_help;  // what --seed is for
    const char *save;       // the name of the option that saves the result; NULL: there is none
    const char *save_help;  // what it is for
};

// Parses a command line. Returns the common options, complete and in range. On a wrong argument,
// prints one line that names the option, what was found and what was expected, and exits with
// EXIT_BAD_INPUT. It tries the output files without creating them, so that a long run does not end
// with a result that it cannot save. From here on, a standard output that cannot be written ends
// the program with EXIT_RUN_FAILED and one line.
struct common_options parse_common(int argc, char **argv, const struct command_line *command_line);

// Checks a ladder's own file of rows as parse_common() checks its files. It must be another than
// those. row->option names it.
void check_more_rows(const struct command_line *command_line, const struct common_options *options,
                     const char *path, const struct row *row);

// Returns the whole number in `text`, the argument of --OPTION. If it is not in the range, prints
// one line and exits with EXIT_BAD_INPUT.
int parse_int(const char *option, const char *text, int min, int max);

// Returns the number in `text`, which must be finite and from 0, or above 0 if `positive`.
// Otherwise prints one line and exits with EXIT_BAD_INPUT.
float parse_float(const char *option, const char *text, bool positive);

// Returns what the environment variable names, or data/NAME of the repository that the running
// program lies in. That is found at run time, so that the repository can be moved.
const char *data_directory(const char *variable, const char *name);

#ifdef __cplusplus
}
#endif

#endif
