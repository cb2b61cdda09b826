// A run's values, listed once: the options of its command line, and the columns of its row in a CSV
// file.
#ifndef COMMON_ROWS_H
#define COMMON_ROWS_H

#include <stddef.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

// What a value is. As an option, it must be in the range.
enum kind {
    TEXT,             // const char *
    FILE_NAME,        // the same
    DIRECTORY,        // the same
    LIST,             // the same: numbers with commas between them
    FLAG,             // bool: an option without an argument
    INT_FROM_0,       // int
    INT_FROM_1,       // int
    UINT64,           // uint64_t
    FLOAT_FROM_0,     // float
    FLOAT_ABOVE_0,    // float
    FLOAT_BELOW_1,    // float, from 0
    NUMBER,           // double
    SECONDS,          // double, in nanoseconds as the clock
    OPTIONAL_INT,     // these as columns only: a 0 is an empty field
    OPTIONAL_NUMBER,  //
    OPTIONAL_SECONDS, //
};

// An option, a column, or both. A list of them ends with {0}.
struct field {
    const char *column; // its name; NULL: it has none
    enum kind kind;
    size_t offset;       // of its value in the options, or in the run
    const char *option;  // its name; NULL: it is none
    const char *initial; // the argument without the option; NULL: the value stays as it is
    const char *help;
    int max; // of an int; 0: INT_MAX
};

// A ladder has a struct run, of all that a row is made of. It begins with a struct options, so that
// an option has the same place in both. The columns of a row are in the order of the list: device,
// threads, the ladder's parameters, dataset, load_s, setup_s, the ladder's time, its phases, its
// results, gflops, peak_rss_mib, peak_vram_mib.
#define COLUMN(name, kind, member)                                                                 \
    { name, kind, offsetof(struct run, member), NULL, NULL, NULL, 0 }
#define OPTION(name, kind, member, initial, column, help)                                          \
    { column, kind, offsetof(struct options, member), name, initial, help, 0 }

// Prints the header: "stage", and the names of the columns.
void print_header(FILE *file, const struct field *fields);

// Appends a row to the file of --OPTION, after the header if the file is empty. Its first column is
// the stage. A number has the fewest digits that read back as the same: 0.1 instead of 0.100000001.
// A NaN is an empty field. Returns 0, or EXIT_RUN_FAILED after one line.
int append_row(const char *option, const char *path, const struct field *fields, const void *run);

// Tries the file of --OPTION. It must be new, empty, or hold the header of these fields and whole
// rows. Otherwise prints one line and exits with EXIT_BAD_INPUT.
void check_rows(const char *option, const char *path, const struct field *fields);

// Returns the most memory that the process had so far, in MiB.
double peak_rss_mib(void);

#ifdef __cplusplus
}
#endif

#endif
