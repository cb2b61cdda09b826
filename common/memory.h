// Arrays in memory, and arrays of floats in a file.
#ifndef COMMON_MEMORY_H
#define COMMON_MEMORY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Returns an array of so many elements, each of `size` bytes: zeroed, and 64-byte aligned. free()
// releases it. It never returns NULL: without enough memory, it says how much was asked for and
// exits with EXIT_RUN_FAILED.
void *allocate_array(size_t count, size_t size);

// The same with any values, or NULL.
void *try_allocate_array(size_t count, size_t size);

static inline float *allocate_floats(size_t count) {
    return (float *)allocate_array(count, sizeof(float));
}

struct array {
    const float *floats;
    size_t count;
};

// Writes the arrays one after another, as float32 in the machine's byte order, which is
// little-endian on every machine that this is for. They replace an earlier file at `path` when they
// are written: see files.h. Returns 0, or EXIT_RUN_FAILED after one line, which names --OPTION.
int write_arrays(const char *option, const char *path, const struct array *arrays, size_t count);

#ifdef __cplusplus
}
#endif

#endif
