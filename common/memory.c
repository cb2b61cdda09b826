#include "common/memory.h"
#include "common/files.h"
#include "common/options.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 }; // a cache line, and the widest vector

void *try_allocate_array(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - ALIGNMENT)
        return NULL;
    return aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

void *allocate_array(size_t count, size_t size) {
    void *array = try_allocate_array(count, size);
    if (!array) {
        fprintf(stderr, "%s: out of memory: asked for %.1f MiB; try a smaller run\n", stage_name,
                (double)count * (double)size / (1 << 20));
        exit(EXIT_RUN_FAILED);
    }
    return memset(array, 0, count * size);
}

int write_arrays(const char *option, const char *path, const struct array *arrays, size_t count) {
    struct new_file file;
    bool written = begin_file(&file, path);
    for (size_t i = 0; written && i < count; ++i)
        written = fwrite(arrays[i].floats, sizeof(float), arrays[i].count, file.stream) ==
                  arrays[i].count;
    if (end_file(&file, true))
        return 0;
    fprintf(stderr, "%s: --%s: cannot write %s: %s\n", stage_name, option, path, strerror(errno));
    return EXIT_RUN_FAILED;
}
