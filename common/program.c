#include "common/program.h"

#include <argp.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

int report_error(const char *where, const char *format, ...) {
    char line[2 * PATH_MAX];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    for (char *byte = line; *byte; ++byte) // a value may have a line's end in it
        *byte = (char)(*byte == '\n' ? '?' : *byte);
    fprintf(stderr, "%s: %s\n", where, line);
    return EXIT_BAD_INPUT;
}

// The number of an option for argp is FIRST and its place in the command line.
enum { FIRST = 256, MOST = 32 };

struct parse {
    int count;
    struct argp_option options[MOST + 1];
    const struct field *fields[MOST];
    void *values[MOST]; // where an option's value is, at field->offset
};

static const char *const ARGUMENTS[] = {
    [FILE_NAME] = "FILE", [DIRECTORY] = "DIR",   [LIST] = "LIST",
    [INT_FROM_0] = "N",   [INT_FROM_1] = "N",    [UINT64] = "N",
    [FLOAT_FROM_0] = "X", [FLOAT_ABOVE_0] = "X", [FLOAT_BELOW_1] = "X",
};

static void parse_value(const struct field *field, const char *text, void *values) {
    void *value = (char *)values + field->offset;
    const int min = field->kind == INT_FROM_1, max = field->max ? field->max : INT_MAX;
    char expected[64], *end = NULL;
    bool is_right;
    errno = 0;
    switch (field->kind) {
    case FLAG:
        *(bool *)value = true;
        return;
    case INT_FROM_0:
    case INT_FROM_1: {
        const long number = strtol(text, &end, 10);
        *(int *)value = (int)number;
        is_right = number >= min && number <= max;
        snprintf(expected, sizeof expected, "a whole number from %d to %d", min, max);
        break;
    }
    case UINT64:
        *(uint64_t *)value = strtoull(text, &end, 10);
        is_right = errno != ERANGE && !strchr(text, '-');
        snprintf(expected, sizeof expected, "a whole number from 0 to %llu", ULLONG_MAX);
        break;
    case FLOAT_FROM_0:
    case FLOAT_ABOVE_0:
    case FLOAT_BELOW_1: {
        const bool is_above = field->kind == FLOAT_ABOVE_0, is_below = field->kind == FLOAT_BELOW_1;
        const float number = *(float *)value = strtof(text, &end);
        is_right = number >= 0 && !(is_above && number == 0) && number < (is_below ? 1 : INFINITY);
        snprintf(expected, sizeof expected, "a number %s 0%s", is_above ? "above" : "from",
                 is_below ? " to below 1" : "");
        break;
    }
    default:
        *(const char **)value = text;
        return;
    }
    if (end == text || *end || isspace((unsigned char)*text) || !is_right)
        exit(report_error(stage_name, "--%s: found '%s', expected %s", field->option, text,
                          expected));
}

// Adds options to a command line, and sets those that have an initial value.
static void add_options(struct parse *parse, const struct field *field, void *values) {
    for (; field->column || field->option; ++field) {
        const int i = parse->count;
        if (!field->option)
            continue;
        if (++parse->count > MOST)
            abort(); // more options than a command line has room for
        parse->fields[i] = field;
        parse->values[i] = values;
        parse->options[i] = (struct argp_option){
            field->option, FIRST + i, ARGUMENTS[field->kind], 0, field->help, 0};
        if (field->initial)
            parse_value(field, field->initial, values);
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    const struct parse *parse = state->input;
    if (key == ARGP_KEY_ARG)
        exit(report_error(stage_name, "found '%s', expected options only: see --help", arg));
    if (key < FIRST || key >= FIRST + parse->count)
        return ARGP_ERR_UNKNOWN;
    parse_value(parse->fields[key - FIRST], arg, parse->values[key - FIRST]);
    return 0;
}

// Returns an option's text in --help with its initial value. argp releases it.
static char *add_initial(int key, const char *text, void *input) {
    const struct parse *parse = input;
    const bool is_option = key >= FIRST && key < FIRST + parse->count;
    const char *initial = is_option ? parse->fields[key - FIRST]->initial : NULL;
    char *added;
    return initial && asprintf(&added, "%s (%s)", text, initial) > 0 ? added : (char *)text;
}

const char *data_directory(const char *variable, const char *name) {
    static char data[PATH_MAX + sizeof "/data/" + NAME_MAX];
    char program[PATH_MAX];
    const char *given = getenv(variable);
    if (given && *given)
        return given;
    char *folder = realpath("/proc/self/exe", program) ? program : strcpy(program, ".");
    do {
        folder = dirname(folder);
        snprintf(data, sizeof data, "%s/data", folder);
    } while (access(data, F_OK) != 0 && folder[1] != '\0');
    return strncat(strcat(data, "/"), name, NAME_MAX);
}

// Exits with one line unless the file of --OPTION can be written. Leaves no new one.
static void check_writable(const char *option, const char *path) {
    struct stat file;
    const bool is_there = stat(path, &file) == 0;
    const int opened =
        open(path, O_WRONLY | O_APPEND | O_NONBLOCK | (is_there ? 0 : O_CREAT | O_EXCL), 0666);
    if (opened < 0)
        exit(report_error(stage_name,
                          "--%s: cannot write %s: %s; expected a file in a writable directory",
                          option, *path ? path : "''",
                          errno == EEXIST ? "its link leads nowhere" : strerror(errno)));
    close(opened);
    if (!is_there)
        unlink(path);
}

void check_rows(const char *option, const char *path, const struct field *fields) {
    char *header = NULL, line[4096] = "";
    size_t length = 0;
    struct stat kind;
    check_writable(option, path);
    // Do not read from a pipe or a terminal: that would wait until somebody writes.
    if (stat(path, &kind) < 0 || !S_ISREG(kind.st_mode) || kind.st_size == 0)
        return;
    FILE *stream = open_memstream(&header, &length), *file = fopen(path, "r");
    print_row(stream, fields, NULL);
    fclose(stream);
    if (!file || !fgets(line, sizeof line, file) || strcmp(line, header) != 0)
        exit(report_error(
            stage_name, "--%s: %s begins with other columns than a result row; expected a new file",
            option, path));
    if (fseek(file, -1, SEEK_END) == 0 && getc(file) != '\n')
        exit(report_error(stage_name, "--%s: %s ends within a row: complete or delete that row",
                          option, path));
    free(header);
    fclose(file);
}

// Whether a file is one of a directory, also by another name.
static bool is_in(const char *directory, const struct stat *file) {
    struct stat each;
    bool is_found = false;
    DIR *const entries = opendir(directory);
    for (struct dirent *entry; !is_found && entries && (entry = readdir(entries));)
        is_found = fstatat(dirfd(entries), entry->d_name, &each, 0) == 0 &&
                   each.st_dev == file->st_dev && each.st_ino == file->st_ino;
    if (entries)
        closedir(entries);
    return is_found;
}

// The result may take the place of an earlier one, but not of data.
static void check_saved_file(const char *option, const char *path, const struct parse *parse) {
    char partial[PATH_MAX];
    struct stat file;
    snprintf(partial, sizeof partial, "%s.%ld.partial", path, (long)getpid());
    check_writable(option, path);
    check_writable(option, partial);
    if (stat(path, &file) < 0)
        return;
    if (!S_ISREG(file.st_mode))
        exit(report_error(stage_name, "--%s: found %s, expected a regular file or a new one",
                          option, path));
    for (int i = 0; i < parse->count; ++i) {
        const struct field *field = parse->fields[i];
        const void *value = (char *)parse->values[i] + field->offset;
        if (field->kind == DIRECTORY && is_in(*(char *const *)value, &file))
            exit(report_error(stage_name, "--%s: found %s, a file of --%s; expected another",
                              option, path, field->option));
    }
}

// Whether two names are of one file, which may be new. Its folder is there.
static bool is_same_file(const char *path, const char *other) {
    struct stat one, two;
    return strcmp(basename(strdupa(path)), basename(strdupa(other))) == 0 &&
           stat(dirname(strdupa(path)), &one) == 0 && stat(dirname(strdupa(other)), &two) == 0 &&
           one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

// No two options may name the same file.
static void check_names(const struct parse *parse) {
    const char *paths[MOST];
    for (int i = 0; i < parse->count; ++i) {
        void *value = (char *)parse->values[i] + parse->fields[i]->offset;
        paths[i] = parse->fields[i]->kind == FILE_NAME ? *(char **)value : NULL;
        for (int j = 0; j < i; ++j)
            if (paths[i] && paths[j] && is_same_file(paths[i], paths[j]))
                exit(report_error(stage_name,
                                  "--%s: found %s, the same file as --%s; expected another",
                                  parse->fields[i]->option, paths[i], parse->fields[j]->option));
    }
}

// At exit, some output may still be in the buffer, and the disk may be full.
static void flush_stdout(void) {
    if (ferror(stdout) || fflush(stdout) != 0) {
        report_error("standard output", "cannot write: %s", strerror(errno));
        _exit(EXIT_RUN_FAILED);
    }
}

struct common_options parse_common(int argc, char **argv, const struct command_line *command_line) {
#define COMMON(member) offsetof(struct common_options, member)
    const struct field common[] = {
        {NULL, INT_FROM_1, COMMON(threads), "threads", NULL,
         "threads, for a stage that can have several (as OpenMP chooses)",
         command_line->max_threads, false},
        {NULL, FILE_NAME, COMMON(csv), "csv", NULL,
         "append the result as one row, after a header if FILE is new", 0, false},
        {NULL, FLAG, COMMON(columns), "columns", NULL, "print the header of --csv, and stop", 0,
         false},
        {NULL, FLAG, COMMON(quiet), "quiet", NULL, "print the result line only", 0, false},
        {NULL, FILE_NAME, COMMON(save), command_line->save, NULL, command_line->save_help, 0,
         false},
        {0}};
    struct common_options values = {0};
    struct parse parse = {0};
    const struct argp argp = {parse.options, parse_option, NULL, command_line->about,
                              NULL,          add_initial,  NULL};
    atexit(flush_stdout);
    setvbuf(stdout, NULL, _IOLBF, 0); // a line is seen when it is printed, also through a pipe
    signal(SIGXFSZ, SIG_IGN);         // a file above ulimit -f is an error, like a full disk
    add_options(&parse, common, &values);
    add_options(&parse, command_line->fields, command_line->options);
    argp_err_exit_status = EXIT_BAD_INPUT;
    argp_parse(&argp, argc, argv, 0, NULL, &parse);
    if (values.columns) {
        print_row(stdout, command_line->fields, NULL);
        exit(0);
    }
    check_names(&parse);
    if (values.csv)
        check_rows("csv", values.csv, command_line->fields);
    if (values.save)
        check_saved_file(command_line->save, values.save, &parse);
    return values;
}

// Prints a field, or its name if `run` is NULL. A text with a comma is quoted, as in RFC 4180.
static void print_value(FILE *file, const struct field *field, const void *run) {
    const void *value = run ? (const void *)((const char *)run + field->offset) : &field->column;
    char text[32]; // 17 digits, a sign, a point and an exponent
    double number;
    int digits = 1;
    bool is_float = false;
    switch (run ? field->kind : TEXT) {
    case FLAG:
        number = *(const bool *)value;
        break;
    case INT_FROM_0:
    case INT_FROM_1:
        number = *(const int *)value;
        digits = 10; // no exponent
        break;
    case UINT64:
        fprintf(file, "%llu", (unsigned long long)*(const uint64_t *)value);
        return;
    case FLOAT_FROM_0:
    case FLOAT_ABOVE_0:
    case FLOAT_BELOW_1:
        number = (double)*(const float *)value;
        is_float = true;
        break;
    case NUMBER:
    case SECONDS:
        number = *(const double *)value;
        break;
    default:
        fprintf(file, strchr(*(char *const *)value, ',') ? "\"%s\"" : "%s", *(char *const *)value);
        return;
    }
    if (isnan(number) || (field->is_optional && number == 0))
        return;
    if (field->kind == SECONDS)
        snprintf(text, sizeof text, "%.9f", number);
    else
        do
            snprintf(text, sizeof text, "%.*g", digits++, number);
        while (is_float ? strtof(text, NULL) != (float)number : strtod(text, NULL) != number);
    fputs(text, file);
}

void print_row(FILE *file, const struct field *fields, const void *run) {
    fputs(run ? stage_name : "stage", file);
    for (const struct field *field = fields; field->column || field->option; ++field)
        if (field->column) {
            fputc(',', file);
            print_value(file, field, run);
        }
    fputc('\n', file);
}

int append_row(const char *option, const char *path, const struct field *fields, const void *run) {
    FILE *file = fopen(path, "a");
    struct stat before = {0};
    if (file) {
        fstat(fileno(file), &before);
        if (before.st_size == 0)
            print_row(file, fields, NULL);
        print_row(file, fields, run);
        if (fclose(file) == 0) // the row leaves the buffer here
            return 0;
    }
    report_error(stage_name, "--%s: cannot write %s: %s; this run's row is not saved", option, path,
                 strerror(errno));
    if (S_ISREG(before.st_mode) && before.st_size == 0)
        unlink(path); // it was new
    return EXIT_RUN_FAILED;
}

double peak_rss_mib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024; // Linux counts it in KiB
}

int write_arrays(const char *option, const char *path, const struct array *arrays, size_t count) {
    char partial[PATH_MAX];
    snprintf(partial, sizeof partial, "%s.%ld.partial", path, (long)getpid());
    FILE *file = fopen(partial, "wb");
    bool written = file != NULL;
    for (size_t i = 0; written && i < count; ++i)
        written = fwrite(arrays[i].floats, sizeof(float), arrays[i].count, file) == arrays[i].count;
    if (file && fclose(file) == 0 && written && rename(partial, path) == 0)
        return 0;
    report_error(stage_name, "--%s: cannot write %s: %s", option, path, strerror(errno));
    unlink(partial);
    return EXIT_RUN_FAILED;
}

void print_rest(int epoch, int epochs, double epoch_s) {
    if (epoch == 1 && epochs > 1 && epoch_s > 2 && isatty(STDERR_FILENO))
        fprintf(stderr, "the other epochs will take about %.0f s\n", (epochs - 1) * epoch_s);
}

void print_timer(const char *phase, const struct timer *timer, const char *rounds) {
    if (timer->count > 0)
        printf("%-8s %8.3f s in %ld %s: mean %.1f us, deviation %.1f, min %.1f, max %.1f\n", phase,
               timer->total, timer->count, rounds, 1e6 * timer->mean, 1e6 * timer_stddev(timer),
               1e6 * timer->min, 1e6 * timer->max);
}

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
        report_error(stage_name, "out of memory: asked for %.1f MiB; try a smaller run",
                     (double)count * (double)size / (1 << 20));
        exit(EXIT_RUN_FAILED);
    }
    return memset(array, 0, count * size);
}
