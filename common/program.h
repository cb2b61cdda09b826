// What a program has around its work: command line, result row and file, memory, printing.
#ifndef COMMON_PROGRAM_H
#define COMMON_PROGRAM_H

#include "common/timing.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

// The program's name, for messages. The stage's own source, which is compiled with -DSTAGE, has it.
// What stages share is compiled once for all of them.
extern const char stage_name[] __attribute__((weak));
#ifdef STAGE
const char stage_name[] = STAGE;
#endif

// Exit statuses, the same for every stage.
enum { EXIT_RUN_FAILED = 1, EXIT_BAD_INPUT = 2, EXIT_NO_DEVICE = 77 };

// Prints a line on standard error: where, a colon, and what is wrong. Returns EXIT_BAD_INPUT.
__attribute__((format(printf, 2, 3))) int report_error(const char *where, const char *format, ...);

// What a value is. As an option, it must be in the range.
enum kind {
    TEXT,          // const char *
    FILE_NAME,     // the same
    DIRECTORY,     // the same
    LIST,          // the same: numbers with commas between them
    FLAG,          // bool: an option without an argument
    INT_FROM_0,    // int
    INT_FROM_1,    // int
    UINT64,        // uint64_t
    FLOAT_FROM_0,  // float
    FLOAT_ABOVE_0, // float
    FLOAT_BELOW_1, // float, from 0
    NUMBER,        // double
    SECONDS,       // double, in nanoseconds as the clock
};

// An option, a column, or both. A list of them ends with {0}.
struct field {
    const char *column; // its name; NULL: it has none
    enum kind kind;
    size_t offset;       // of its value in the options, or in the run
    const char *option;  // its name; NULL: it is none
    const char *initial; // the argument without the option; NULL: the value stays as it is
    const char *help;
    int max;          // of an int; 0: INT_MAX
    bool is_optional; // as a column: a 0 is an empty field
};

// A ladder has a struct run, of all that a row is made of. It begins with a struct options, so that
// an option has the same place in both. The columns of a row are in the order of the list: device,
// threads, the ladder's parameters, dataset, load_s, setup_s, the ladder's time, its phases, its
// results, gflops, peak_rss_mib, peak_vram_mib.
#define COLUMN(name, kind, member)                                                                 \
    { name, kind, offsetof(struct run, member), NULL, NULL, NULL, 0, false }
#define OPTIONAL(name, kind, member)                                                               \
    { name, kind, offsetof(struct run, member), NULL, NULL, NULL, 0, true }
#define OPTION(name, kind, member, initial, column, help)                                          \
    { column, kind, offsetof(struct options, member), name, initial, help, 0, false }

// The options that the programs of all ladders have.
struct common_options {
    int threads;      // 0: not given, the stage chooses
    const char *csv;  // file that gets a result row, or NULL
    const char *save; // file that gets the result itself, or NULL
    bool quiet;       // print the result line only
    bool columns;     // print the header of --csv, and stop
};

// What distinguishes a program's command line from others.
struct command_line {
    const char *about;          // the stage's one line in --help
    int max_threads;            // the largest --threads that it accepts
    const struct field *fields; // the ladder's own options, and the columns of --csv
    void *options;              // where the values of its options go
    const char *save;           // the option that saves the result; NULL: there is none
    const char *save_help;      // what it is for
};

// Parses a command line. Returns the common options, complete and in range. A wrong argument, and
// an output file that cannot be written, end the program with EXIT_BAD_INPUT and one line: option,
// what was found, what was expected. From here on, a standard output that cannot be written ends it
// with EXIT_RUN_FAILED and one line.
struct common_options parse_common(int argc, char **argv, const struct command_line *command_line);

// Exits with EXIT_BAD_INPUT and one line unless rows of these fields can be appended to the file of
// --OPTION: new, empty, or with their header and whole rows. parse_common() does it for --csv.
void check_rows(const char *option, const char *path, const struct field *fields);

// Returns what the environment variable names, or data/NAME of the repository that the running
// program lies in. That is found at run time, so that the repository can be moved.
const char *data_directory(const char *variable, const char *name);

// Prints a row: the stage and the run's values, or the names of the columns if `run` is NULL. A
// number has the fewest digits that read back as the same: 0.1 instead of 0.100000001. A NaN is an
// empty field.
void print_row(FILE *file, const struct field *fields, const void *run);

// Appends a row to the file of --OPTION, after the header if the file is empty. Returns 0, or
// EXIT_RUN_FAILED after one line.
int append_row(const char *option, const char *path, const struct field *fields, const void *run);

// Returns the most memory that the process had so far, in MiB.
double peak_rss_mib(void);

struct array {
    const float *floats;
    size_t count;
};

// Writes the arrays one after another, as little-endian float32 (the machine's order). They take
// the place of an earlier file when they are whole, whatever stops the program. Returns 0, or
// EXIT_RUN_FAILED after one line, which names --OPTION.
int write_arrays(const char *option, const char *path, const struct array *arrays, size_t count);

// After the first epoch, which counts from 1, tells a terminal on standard error how long the
// others will take, if each takes over two seconds.
void print_rest(int epoch, int epochs, double epoch_s);

// Prints a phase's time and its spread, or nothing if no duration was added. `rounds` says what was
// timed each time, such as "batches".
void print_timer(const char *phase, const struct timer *timer, const char *rounds);

// Returns a zeroed, 64-byte aligned array of so many elements of `size` bytes, for free(). Without
// enough memory, says how much was asked for and exits with EXIT_RUN_FAILED.
void *allocate_array(size_t count, size_t size);

// The same with any values, or NULL.
void *try_allocate_array(size_t count, size_t size);

static inline float *allocate_floats(size_t count) {
    return (float *)allocate_array(count, sizeof(float));
}

#ifdef __cplusplus
}
#endif

#endif
