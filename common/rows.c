#include "common/rows.h"
#include "common/options.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

double peak_rss_mib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024; // Linux counts it in KiB
}

void print_header(FILE *file, const struct field *fields) {
    fputs("stage", file);
    for (const struct field *field = fields; field->column || field->option; ++field)
        if (field->column)
            fprintf(file, ",%s", field->column);
    fputc('\n', file);
}

static void print_number(FILE *file, double value, bool is_float) {
    char text[32]; // 17 digits, a sign, a point and an exponent
    int digits = 0;
    do
        snprintf(text, sizeof text, "%.*g", ++digits, value);
    while (is_float ? strtof(text, NULL) != (float)value : strtod(text, NULL) != value);
    fputs(text, file);
}

static bool is_empty(double value, bool is_optional) {
    return isnan(value) || (is_optional && value == 0);
}

// A field with a comma stands in double quotes, as in every CSV file (RFC 4180).
static void print_value(FILE *file, const struct field *field, const void *run) {
    const enum kind kind = field->kind;
    const void *value = (const char *)run + field->offset;
    switch (kind) {
    case FLAG:
        fprintf(file, "%d", *(const bool *)value);
        break;
    case INT_FROM_0:
    case INT_FROM_1:
    case OPTIONAL_INT:
        if (!is_empty(*(const int *)value, kind == OPTIONAL_INT))
            fprintf(file, "%d", *(const int *)value);
        break;
    case UINT64:
        fprintf(file, "%llu", (unsigned long long)*(const uint64_t *)value);
        break;
    case FLOAT_FROM_0:
    case FLOAT_ABOVE_0:
    case FLOAT_BELOW_1:
        print_number(file, (double)*(const float *)value, true);
        break;
    case NUMBER:
    case OPTIONAL_NUMBER:
        if (!is_empty(*(const double *)value, kind == OPTIONAL_NUMBER))
            print_number(file, *(const double *)value, false);
        break;
    case SECONDS:
    case OPTIONAL_SECONDS:
        if (!is_empty(*(const double *)value, kind == OPTIONAL_SECONDS))
            fprintf(file, "%.9f", *(const double *)value);
        break;
    default: {
        const char *text = *(const char *const *)value;
        fprintf(file, strchr(text, ',') ? "\"%s\"" : "%s", text);
    }
    }
}

static void complain(const char *option, const char *path, const char *why) {
    fprintf(stderr, "%s: --%s: cannot write %s: %s; this run's row is not saved\n", stage_name,
            option, path, why);
}

// A single write keeps rows whole, for other readers and if this run is stopped. The lock keeps two
// runs from both writing a header. A write that came up short (a full disk) is taken back.
int append_row(const char *option, const char *path, const struct field *fields, const void *run) {
    char *text = NULL;
    size_t length = 0;
    struct stat before;
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0666);
    if (file < 0 || flock(file, LOCK_EX) < 0 || fstat(file, &before) < 0) {
        complain(option, path, strerror(errno));
        if (file >= 0)
            close(file);
        return EXIT_RUN_FAILED;
    }
    FILE *stream = open_memstream(&text, &length);
    if (before.st_size == 0)
        print_header(stream, fields);
    fputs(stage_name, stream);
    for (const struct field *field = fields; field->column || field->option; ++field)
        if (field->column) {
            fputc(',', stream);
            print_value(stream, field, run);
        }
    fputc('\n', stream);
    fclose(stream);
    const ssize_t written = write(file, text, length);
    const bool is_whole = written == (ssize_t)length;
    if (!is_whole) {
        complain(option, path, written < 0 ? strerror(errno) : "the disk is full");
        if (written > 0 && ftruncate(file, before.st_size) < 0)
            fprintf(stderr, "%s: --%s: %s ends with part of a row\n", stage_name, option, path);
    }
    free(text);
    close(file);
    return is_whole ? 0 : EXIT_RUN_FAILED;
}

void check_rows(const char *option, const char *path, const struct field *fields) {
    char *header = NULL, line[4096] = "";
    size_t length = 0;
    struct stat kind;
    // Do not read from a pipe or a terminal: that would wait until somebody writes.
    if (stat(path, &kind) < 0 || !S_ISREG(kind.st_mode) || kind.st_size == 0)
        return;
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr,
                "%s: --%s: cannot read %s: %s; expected a new file or one that a stage wrote\n",
                stage_name, option, path, strerror(errno));
        exit(EXIT_BAD_INPUT);
    }
    FILE *stream = open_memstream(&header, &length);
    print_header(stream, fields);
    fclose(stream);
    const bool begins = fgets(line, sizeof line, file) && !strncmp(line, header, length - 1);
    if (begins && strcmp(line + length - 1, "\r\n") == 0) {
        fprintf(stderr,
                "%s: --%s: %s has the line ends of Windows; expected those of Linux: "
                "sed -i 's/\\r$//' %s\n",
                stage_name, option, path, path);
        exit(EXIT_BAD_INPUT);
    }
    if (!begins || strcmp(line + length - 1, "\n") != 0) {
        fprintf(
            stderr,
            "%s: --%s: %s begins with other columns than a result row has; expected a new file, "
            "or one that a stage wrote\n",
            stage_name, option, path);
        exit(EXIT_BAD_INPUT);
    }
    if (fseek(file, -1, SEEK_END) == 0 && getc(file) != '\n') {
        fprintf(stderr, "%s: --%s: %s ends within a row: complete or delete that row\n", stage_name,
                option, path);
        exit(EXIT_BAD_INPUT);
    }
    free(header);
    fclose(file);
}
