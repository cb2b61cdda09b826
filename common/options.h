// The options that the programs of all ladders have, and what a ladder needs to add its own.
#ifndef COMMON_OPTIONS_H
#define COMMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct field;

// The program's name, for messages. The stage's own source, which is compiled with -DSTAGE, has it.
// What stages share is compiled once for all of them.
extern const char stage_name[] __attribute__((weak));
#ifdef STAGE
const char stage_name[] = STAGE;
#endif

// Exit statuses, the same for every stage.
enum { EXIT_RUN_FAILED = 1, EXIT_BAD_INPUT = 2, EXIT_NO_DEVICE = 77 };

struct common_options {
    int threads;      // 0: not given, the stage chooses
    const char *csv;  // file that gets a result row, or NULL
    const char *save; // file that gets the result itself, or NULL
    bool quiet;       // print the result line only
};

// What distinguishes a program's command line from others.
struct command_line {
    const char *about;          // the stage's one line in --help
    int max_threads;            // the largest --threads that it accepts
    const struct field *fields; // the ladder's own options, and the columns of --csv: see rows.h
    void *options;              // where the values of its options go
    const struct field *more;   // the same of the stage alone; NULL: it has none
    void *more_options;         //
    const char *save;           // the option that saves the result; NULL: there is none
    const char *save_help;      // what it is for
};

// Parses a command line. Returns the common options, complete and in range. On a wrong argument,
// prints one line that names the option, what was found and what was expected, and exits with
// EXIT_BAD_INPUT. It tries the output files without creating them, so that a long run does not end
// with a result that it cannot save. From here on, a standard output that cannot be written ends
// the program with EXIT_RUN_FAILED and one line.
struct common_options parse_common(int argc, char **argv, const struct command_line *command_line);

// Checks another file of rows as parse_common() checks that of --csv. `fields` are its columns.
void check_rows_option(const char *option, const char *path, const struct field *fields);

// The files of two options must not be the same. `other` may be NULL.
void check_other_file(const char *option, const char *path, const char *other_option,
                      const char *other);

// Returns what the environment variable names, or data/NAME of the repository that the running
// program lies in. That is found at run time, so that the repository can be moved.
const char *data_directory(const char *variable, const char *name);

#ifdef __cplusplus
}
#endif

#endif
