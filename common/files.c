#include "common/files.h"

#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool resolve(const char *path, char resolved[PATH_MAX]) {
    char folder[PATH_MAX], name[PATH_MAX], link[PATH_MAX], next[2 * PATH_MAX];
    if (realpath(path, resolved))
        return true;
    if (strlen(path) >= PATH_MAX)
        errno = ENAMETOOLONG;
    if (errno != ENOENT || !*path || path[strlen(path) - 1] == '/')
        return false;
    // dirname() and basename() may change what they are given.
    const char *directory = dirname(strcpy(folder, path));
    const ssize_t length = readlink(path, link, sizeof link);
    if (length > 0) { // realpath() has seen that links do not lead round in a circle
        snprintf(next, sizeof next, "%s/%.*s", *link == '/' ? "" : directory, (int)length, link);
        return resolve(next, resolved);
    }
    if (!realpath(directory, resolved))
        return false;
    const size_t used = strlen(resolved), room = PATH_MAX - used;
    errno = ENAMETOOLONG;
    return (size_t)snprintf(resolved + used, room, "/%s", basename(strcpy(name, path))) < room;
}

// The name beside it has at most 100 bytes of the file's own, so that it is not too long.
bool begin_file(struct new_file *file, const char *path) {
    struct stat before;
    *file->partial = '\0';
    file->stream = NULL;
    if (!resolve(path, file->path))
        return false;
    if (stat(file->path, &before) == 0) {
        errno = S_ISDIR(before.st_mode) ? EISDIR : EEXIST;
        if (!S_ISREG(before.st_mode) || access(file->path, W_OK) != 0)
            return false;
    }
    const char *name = strrchr(file->path, '/') + 1;
    snprintf(file->partial, sizeof file->partial, "%.*s%.100s.%ld.partial",
             (int)(name - file->path), file->path, name, (long)getpid());
    unlink(file->partial); // of a program that was killed, with the same number
    file->stream = fopen(file->partial, "wbx");
    return file->stream != NULL;
}

bool end_file(struct new_file *file, bool keep) {
    if (!file->stream)
        return false;
    const bool failed = ferror(file->stream);
    bool ended = fclose(file->stream) == 0 && !failed;
    ended = ended && (!keep || rename(file->partial, file->path) == 0);
    const int error = errno;
    if (!ended || !keep)
        unlink(file->partial);
    errno = error;
    return ended;
}

bool try_file(const char *path) {
    struct new_file file;
    if (begin_file(&file, path))
        putc('\n', file.stream); // a full disk takes a name, but not a byte
    return end_file(&file, false);
}
