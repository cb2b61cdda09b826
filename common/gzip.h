// What zlib does not say of a gzipped file.
#ifndef COMMON_GZIP_H
#define COMMON_GZIP_H

#include <endian.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>
#include <zlib.h>

// Whether a file that was read to its end is more than one gzip member: bytes behind it, which zlib
// leaves out, or another member. A member ends with the size of its content (RFC 1952).
static inline bool has_more_than_a_member(gzFile file, const char *path) {
    uint32_t size = 0;
    if (gzdirect(file))
        return false;
    const int again = open(path, O_RDONLY);
    const off_t end = lseek(again, 0, SEEK_END);
    const ssize_t bytes = pread(again, &size, sizeof size, end - (off_t)sizeof size);
    close(again);
    return bytes != sizeof size || le32toh(size) != (uint32_t)gztell(file);
}

#endif
