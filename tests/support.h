// Writes data sets, runs stages and reads their results, for the tests of whole programs.
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include "cmocka_tests.h"
#include "reference.h"

#include <stdbool.h>

enum { WORDS = 24, WORD_SIZE = 512 };

// Images and labels as bytes, as in an IDX file.
struct digits {
    size_t count;
    uint8_t *pixels; // count × 784
    uint8_t *labels; // count, each 0 to 9
};

// Draws random images with about a fifth of their pixels non-zero, as in MNIST. The label decides
// which, so that there is something to learn and the gradients keep a direction.
struct digits draw_digits(size_t count, uint64_t seed);
void free_digits(struct digits *digits);

// Returns the pixels as the network sees them: the float32 of pixel / 255.
double *images_of(const struct digits *digits);

// Create a directory for a test's files, and remove it with the files in it.
void create_directory(char path[WORD_SIZE]);
void remove_directory(const char *path);

// Writes `set`-images-idx3-ubyte and `set`-labels-idx1-ubyte ("train" or "t10k").
void write_idx(const char *directory, const char *set, const struct digits *digits);

// A command line under construction.
struct command {
    int count;
    int limit; // seconds that it may take; 0: ten minutes
    char words[WORDS][WORD_SIZE];
};

__attribute__((format(printf, 2, 3))) void add_word(struct command *command, const char *format,
                                                    ...);

// Runs the command. Its output is discarded, and its standard error goes to the file `error`.
// Returns its exit status, TOO_SLOW if it had to be stopped, or 128 + the signal that ended it.
enum { TOO_SLOW = 124 };
int run_command(const struct command *command, const char *error);

// Reads the first line of a file, without its newline. It is empty if there is none.
void first_line(const char *path, char *line, size_t size);

// Returns a file's bytes and sets `size` to their number, or returns NULL.
void *read_file(const char *path, size_t *size);

// Reads the value of a column in the last row of a CSV file. It is empty if there is none.
void csv_value(const char *path, const char *column, char *value, size_t size);

// A stage's train, or a build of it with other flags.
struct program {
    const char *path;
    char name[64];
    char unavailable[256]; // why it cannot run here; empty: it can
    bool threads;          // accepts --threads 2
    bool hangs;            // had to be stopped once, and is not run again
};

// Tries the program on the data set in `data`, for up to `limit` seconds (0: ten minutes). Its
// messages go to a file in `directory`.
struct program probe_program(const char *path, const char *data, const char *directory, int limit);

// Adds a test with a formatted name to an array that was all zeros at first.
__attribute__((format(printf, 5, 6))) void append_test(struct CMUnitTest *tests, size_t capacity,
                                                       CMUnitTestFunction function, void *state,
                                                       const char *format, ...);

// A test that is only skipped. Its name says why.
void skip_test(void **state);

// Returns zeroed memory, and never NULL.
void *allocate(size_t count, size_t size);

#endif
