// Files that are written beside an earlier one and then take its place. So the earlier one stays
// whole, whatever stops the program.
#ifndef COMMON_FILES_H
#define COMMON_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct new_file {
    FILE *stream;
    char path[PATH_MAX];         // the place it takes; a link stays a link
    char partial[PATH_MAX + 32]; // its name until then
};

// Resolves links and dots in a path. Its last part may be a file that is not there yet, also as the
// target of a link. Returns whether that is a file's path, and sets errno.
bool resolve(const char *path, char resolved[PATH_MAX]);

// Begins a file for `path`, which must be a regular file or a new name. Returns whether there is a
// stream for it, and sets errno.
bool begin_file(struct new_file *file, const char *path);

// Ends what begin_file() began, also where it could not. If all is written and `keep` is true, the
// file takes its place, and otherwise it is deleted. Returns whether all went well, and sets errno.
bool end_file(struct new_file *file, bool keep);

// Whether `path` can take a new file, as far as can be known before. Tries it, and leaves nothing.
// Sets errno.
bool try_file(const char *path);

#ifdef __cplusplus
}
#endif

#endif
