#include "common/memory.h"
#include "common/files.h"
#include "common/options.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 }; // a cache line, and the widest vector

float *try_allocate_floats(size_t count) {
    if (count > SIZE_MAX / sizeof(float) - ALIGNMENT)
        return NULL;
    size_t bytes = count * sizeof(float);
    return aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

float *allocate_floats(size_t count) {
    float *floats = try_allocate_floats(count);
    if (!floats) {
        fprintf(stderr, STAGE ": out of memory: asked for %.1f MiB; try a smaller run\n",
                (double)count * sizeof(float) / (1 << 20));
        exit(EXIT_RUN_FAILED);
    }
    return memset(floats, 0, count * sizeof(float));
}

int write_arrays(const char *option, const char *path, const struct array *arrays, size_t count) {
    struct new_file file;
    bool written = begin_file(&file, path);
    for (size_t i = 0; written && i < count; ++i)
        written = fwrite(arrays[i].floats, sizeof(float), arrays[i].count, file.stream) ==
                  arrays[i].count;
    if (end_file(&file, true))
        return 0;
    fprintf(stderr, STAGE ": --%s: cannot write %s: %s\n", option, path, strerror(errno));
    return EXIT_RUN_FAILED;
}
