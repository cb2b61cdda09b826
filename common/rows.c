#include "common/rows.h"
#include "common/options.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NUMBER_SIZE = 32 }; // 17 digits, a sign, a point and an exponent

// Appends a field, after a comma if it is not the first.
static void append(char *fields, size_t size, const char *field) {
    size_t length = strlen(fields);
    if (length + strlen(field) + 2 > size)
        abort(); // more columns than a row has room for
    sprintf(fields + length, "%s%s", length ? "," : "", field);
}

void add_text(struct row *row, const char *name, const char *value) {
    append(row->names, sizeof row->names, name);
    append(row->values, sizeof row->values, value);
}

void add_int(struct row *row, const char *name, unsigned long long value) {
    char text[NUMBER_SIZE];
    snprintf(text, sizeof text, "%llu", value);
    add_text(row, name, text);
}

void add_seconds(struct row *row, const char *name, double value) {
    char text[NUMBER_SIZE];
    snprintf(text, sizeof text, "%.9f", value);
    add_text(row, name, text);
}

void add_optional_seconds(struct row *row, const char *name, double value) {
    if (value > 0)
        add_seconds(row, name, value);
    else
        add_text(row, name, "");
}

void add_float(struct row *row, const char *name, float value) {
    char text[NUMBER_SIZE];
    int digits = 0;
    do
        snprintf(text, sizeof text, "%.*g", ++digits, (double)value);
    while (digits < FLT_DECIMAL_DIG && strtof(text, NULL) != value);
    add_text(row, name, text);
}

void add_number(struct row *row, const char *name, double value) {
    char text[NUMBER_SIZE];
    int digits = 0;
    do
        snprintf(text, sizeof text, "%.*g", ++digits, value);
    while (digits < DBL_DECIMAL_DIG && strtod(text, NULL) != value);
    add_text(row, name, text);
}

struct row begin_row(const char *device, int threads) {
    struct row row = {"stage", STAGE, "csv"};
    add_text(&row, "device", device);
    if (threads > 0)
        add_int(&row, "threads", threads);
    else
        add_text(&row, "threads", "");
    return row;
}

void add_peaks(struct row *row, double peak_vram_mib) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    add_number(row, "peak_rss_mib", (double)usage.ru_maxrss / 1024); // Linux counts it in KiB
    if (peak_vram_mib > 0)
        add_number(row, "peak_vram_mib", peak_vram_mib);
    else
        add_text(row, "peak_vram_mib", "");
}

// A single write keeps rows whole, for other readers and if this run is stopped. The lock keeps two
// runs from both writing a header. A write that came up short (a full disk) is taken back.
int append_row(const char *path, const struct row *row) {
    char text[sizeof *row + 2];
    struct stat before;
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0666);
    if (file < 0 || flock(file, LOCK_EX) < 0 || fstat(file, &before) < 0) {
        fprintf(stderr, STAGE ": --%s: cannot write %s: %s; this run's row is not saved\n",
                row->option, path, strerror(errno));
        if (file >= 0)
            close(file);
        return EXIT_RUN_FAILED;
    }
    int length = before.st_size == 0
                     ? snprintf(text, sizeof text, "%s\n%s\n", row->names, row->values)
                     : snprintf(text, sizeof text, "%s\n", row->values);
    ssize_t written = write(file, text, (size_t)length);
    if (written != length) {
        fprintf(stderr, STAGE ": --%s: cannot write %s: %s; this run's row is not saved\n",
                row->option, path, written < 0 ? strerror(errno) : "the disk is full");
        if (written > 0 && ftruncate(file, before.st_size) < 0)
            fprintf(stderr, STAGE ": --%s: %s ends with part of a row\n", row->option, path);
        close(file);
        return EXIT_RUN_FAILED;
    }
    close(file);
    return 0;
}

void check_results_file(const char *path, const struct row *row) {
    char line[sizeof row->names + 2] = ""; // with the end of the line
    struct stat kind;
    // Do not read from a pipe or a terminal: that would wait until somebody writes.
    if (stat(path, &kind) < 0 || !S_ISREG(kind.st_mode) || kind.st_size == 0)
        return;
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr,
                STAGE ": --%s: cannot read %s: %s; expected a new file or one that a stage wrote\n",
                row->option, path, strerror(errno));
        exit(EXIT_BAD_INPUT);
    }
    size_t length = strlen(row->names);
    const bool begins = fgets(line, sizeof line, file) && !strncmp(line, row->names, length);
    if (begins && strcmp(line + length, "\r\n") == 0) {
        fprintf(stderr,
                STAGE ": --%s: %s has the line ends of Windows; expected those of Linux: "
                      "sed -i 's/\\r$//' %s\n",
                row->option, path, path);
        exit(EXIT_BAD_INPUT);
    }
    if (!begins || strcmp(line + length, "\n") != 0) {
        fprintf(stderr,
                STAGE
                ": --%s: %s begins with other columns than a result row has; expected a new file, "
                "or one that a stage wrote\n",
                row->option, path);
        exit(EXIT_BAD_INPUT);
    }
    if (fseek(file, -1, SEEK_END) == 0 && getc(file) != '\n') {
        fprintf(stderr, STAGE ": --%s: %s ends within a row: complete or delete that row\n",
                row->option, path);
        exit(EXIT_BAD_INPUT);
    }
    fclose(file);
}
