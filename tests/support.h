// Data sets and files for the tests of common/.
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include "cmocka_tests.h"

enum { INPUTS = 784, WORD_SIZE = 512 };

// A generator of random numbers that shares nothing with common/.
struct generator {
    uint64_t state;
};

struct generator start_generator(uint64_t seed, uint64_t stream);
uint32_t draw_bits(struct generator *generator);

// Images and labels as bytes, as in an IDX file.
struct digits {
    size_t count;
    uint8_t *pixels; // count × 784
    uint8_t *labels; // count, each 0 to 9
};

struct digits draw_digits(size_t count, uint64_t seed);
void free_digits(struct digits *digits);

// Create a directory for a test's files, and remove it with the files in it.
void create_directory(char path[WORD_SIZE]);
void remove_directory(const char *path);

// Writes `set`-images-idx3-ubyte and `set`-labels-idx1-ubyte ("train" or "t10k").
void write_idx(const char *directory, const char *set, const struct digits *digits);

// Reads the first line of a file, without its newline. It is empty if there is none.
void first_line(const char *path, char *line, size_t size);

// Returns a file's bytes and sets `size` to their number, or returns NULL.
void *read_file(const char *path, size_t *size);

// Reads the value of a column in the last row of a CSV file. It is empty if there is none.
void csv_value(const char *path, const char *column, char *value, size_t size);

// Returns zeroed memory, and never NULL.
void *allocate(size_t count, size_t size);

#endif
