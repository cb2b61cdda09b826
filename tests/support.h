// What the tests of whole programs share: data sets as files, running a stage, reading its results.
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include "cmocka_tests.h"
#include "reference.h"

#include <stdbool.h>

enum { WORDS = 24, WORD_SIZE = 512 };

// Images and labels as an IDX file has them: bytes.
struct digits {
    size_t count;
    uint8_t *pixels; // count × 784
    uint8_t *labels; // count, each 0 to 9
};

// Random images with about a fifth of their pixels non-zero, as in MNIST; which ones depends on the
// label, so that there is something to learn and the gradients keep a direction.
struct digits draw_digits(size_t count, uint64_t seed);
void free_digits(struct digits *digits);

// The pixels as the network sees them: the float32 of pixel / 255.
double *images_of(const struct digits *digits);

// Creates a directory for a test's files, and removes it again with the files in it.
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

// Runs the command with its output thrown away and its standard error in the file `error`. Returns
// its exit status, TOO_SLOW if it had to be stopped, or 128 + the signal that ended it.
enum { TOO_SLOW = 124 };
int run_command(const struct command *command, const char *error);

// The first line of a file, without its end; empty if there is none.
void first_line(const char *path, char *line, size_t size);

// A file's bytes and their number, or NULL.
void *read_file(const char *path, size_t *size);

// The value in the last row of a CSV file below the column's name; empty if there is none.
void csv_value(const char *path, const char *column, char *value, size_t size);

// A stage's train, or a build of it with other flags.
struct program {
    const char *path;
    char name[64];
    char unavailable[256]; // why it cannot run here; empty: it can
    bool threads;          // accepts --threads 2
    bool hangs;            // had to be stopped once: is not run again
};

// Tries the program on the data set in `data`, for so many seconds (0: ten minutes); `directory` is
// for what it says.
struct program probe_program(const char *path, const char *data, const char *directory, int limit);

// Adds a test with a name of its own to an array that was all zeros at first.
__attribute__((format(printf, 5, 6))) void append_test(struct CMUnitTest *tests, size_t capacity,
                                                       CMUnitTestFunction function, void *state,
                                                       const char *format, ...);

// A test that only says why it is not run: its name does.
void skip_test(void **state);

// Zeroed memory; never NULL.
void *allocate(size_t count, size_t size);

#endif
