#include "common/options.h"
#include "common/files.h"
#include "common/rows.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// The number of an option for argp is FIRST and its place in the command line.
enum { FIRST = 256, MOST = 32 };

struct parse {
    int count;
    struct option_entry {
        const struct field *field;
        void *values; // where its value is, at field->offset
    } options[MOST];
};

static const char *const ARGUMENTS[] = {
    [FILE_NAME] = "FILE", [DIRECTORY] = "DIR",   [LIST] = "LIST",
    [INT_FROM_0] = "N",   [INT_FROM_1] = "N",    [UINT64] = "N",
    [FLOAT_FROM_0] = "X", [FLOAT_ABOVE_0] = "X", [FLOAT_BELOW_1] = "X",
};

_Noreturn __attribute__((format(printf, 3, 4))) static void
complain(const struct field *field, const char *text, const char *format, ...) {
    va_list values;
    fprintf(stderr, "%s: --%s: found '%s', expected ", stage_name, field->option, text);
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(EXIT_BAD_INPUT);
}

static int parse_int(const struct field *field, const char *text) {
    const int min = field->kind == INT_FROM_1, max = field->max ? field->max : INT_MAX;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end != text && *end == '\0' && errno != ERANGE && value >= min && value <= max)
        return (int)value;
    if (min == max)
        complain(field, text, "%d: it has one thread", min);
    complain(field, text, "a whole number from %d to %d", min, max);
}

static uint64_t parse_uint64(const struct field *field, const char *text) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end != '\0' || errno == ERANGE || strchr(text, '-'))
        complain(field, text, "a whole number from 0 to %llu", ULLONG_MAX);
    return value;
}

static float parse_float(const struct field *field, const char *text) {
    const bool above = field->kind == FLOAT_ABOVE_0;
    char *end;
    float value = strtof(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value < 0 || (above && value == 0))
        complain(field, text, "a number %s 0", above ? "above" : "from");
    if (field->kind == FLOAT_BELOW_1 && value >= 1)
        complain(field, text, "a number below 1");
    return value;
}

static void parse_value(const struct field *field, const char *text, void *values) {
    void *value = (char *)values + field->offset;
    switch (field->kind) {
    case FLAG:
        *(bool *)value = true;
        break;
    case INT_FROM_0:
    case INT_FROM_1:
        *(int *)value = parse_int(field, text);
        break;
    case UINT64:
        *(uint64_t *)value = parse_uint64(field, text);
        break;
    case FLOAT_FROM_0:
    case FLOAT_ABOVE_0:
    case FLOAT_BELOW_1:
        *(float *)value = parse_float(field, text);
        break;
    default:
        *(const char **)value = text;
    }
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

// A file that is opened takes the lowest free descriptor. If the caller has closed standard error,
// the file would take its descriptor, and error messages would land in the results.
static void occupy_standard_streams(void) {
    int descriptor;
    do
        descriptor = open("/dev/null", O_RDONLY);
    while (descriptor >= 0 && descriptor <= STDERR_FILENO);
    close(descriptor);
}

// At exit, some output may still be in the buffer, and the disk may be full.
static void close_stdout(void) {
    bool failed = ferror(stdout);
    if (fclose(stdout) != 0 || failed) {
        fprintf(stderr, "standard output: cannot write: %s\n", strerror(errno));
        _exit(EXIT_RUN_FAILED);
    }
}

// Whether a row can be appended to `path`, or to a new file of that name. It leaves no file:
// neither does a run that fails before it has something to write. Sets errno.
static bool is_writable(const char *path) {
    struct stat file;
    if (stat(path, &file) != 0)
        return try_file(path);
    errno = EISDIR;
    return !S_ISDIR(file.st_mode) && access(path, W_OK) == 0;
}

static void check_written(const char *option, const char *path, bool can_be_written) {
    if (can_be_written)
        return;
    fprintf(stderr, "%s: --%s: cannot write %s: %s; expected a file in a writable directory\n",
            stage_name, option, *path ? path : "''", strerror(errno));
    exit(EXIT_BAD_INPUT);
}

void check_other_file(const char *option, const char *path, const char *other_option,
                      const char *other) {
    char resolved[PATH_MAX] = "", others[PATH_MAX] = "";
    resolve(path, resolved);
    if (other)
        resolve(other, others);
    if (strcmp(resolved, others) == 0) {
        fprintf(stderr, "%s: --%s: found %s, the same file as --%s; expected another file\n",
                stage_name, option, path, other_option);
        exit(EXIT_BAD_INPUT);
    }
}

// A new file will replace `path`. So it must be a regular file, and not the rows.
static void check_saved_file(const char *option, const char *path, const char *csv) {
    struct stat file;
    if (stat(path, &file) == 0 && !S_ISREG(file.st_mode) && !S_ISDIR(file.st_mode)) {
        fprintf(stderr,
                "%s: --%s: %s is not a regular file; expected a new file, or a regular one to "
                "replace\n",
                stage_name, option, path);
        exit(EXIT_BAD_INPUT);
    }
    check_written(option, path, try_file(path));
    check_other_file(option, path, "csv", csv);
}

void check_rows_option(const char *option, const char *path, const struct field *fields) {
    check_written(option, path, is_writable(path));
    check_rows(option, path, fields);
}

// Adds options to a command line, and sets those that have an initial value.
static void add_options(struct parse *parse, const struct field *fields, void *values) {
    for (; fields && (fields->column || fields->option); ++fields) {
        if (!fields->option)
            continue;
        if (parse->count == MOST)
            abort(); // more options than a command line has room for
        parse->options[parse->count++] = (struct option_entry){fields, values};
        if (fields->initial)
            parse_value(fields, fields->initial, values);
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    const struct parse *parse = state->input;
    if (key == ARGP_KEY_ARG) {
        fprintf(stderr, "%s: found '%s', expected options only: see --help\n", stage_name, arg);
        exit(EXIT_BAD_INPUT);
    }
    if (key < FIRST || key >= FIRST + parse->count)
        return ARGP_ERR_UNKNOWN;
    parse_value(parse->options[key - FIRST].field, arg, parse->options[key - FIRST].values);
    return 0;
}

// Returns an option's text in --help with its initial value. argp releases it.
static char *add_initial(int key, const char *text, void *input) {
    const struct parse *parse = input;
    const bool is_option = key >= FIRST && key < FIRST + parse->count;
    const char *initial = is_option ? parse->options[key - FIRST].field->initial : NULL;
    char *added = initial ? malloc(strlen(text) + strlen(initial) + sizeof " ()") : NULL;
    if (!added)
        return (char *)text;
    sprintf(added, "%s (%s)", text, initial);
    return added;
}

struct common_options parse_common(int argc, char **argv, const struct command_line *command_line) {
    struct common_values {
        struct common_options options; // first, so that offsets in it are offsets here
        bool columns;
    } values = {0};
    const struct field common[] = {
        {NULL, INT_FROM_1, offsetof(struct common_options, threads), "threads", NULL,
         "threads, for a stage that can have several (as OpenMP chooses)",
         command_line->max_threads},
        {NULL, FILE_NAME, offsetof(struct common_options, csv), "csv", NULL,
         "append the result as one row, after a header if FILE is new", 0},
        {NULL, FLAG, offsetof(struct common_values, columns), "columns", NULL,
         "print the header of --csv, and stop", 0},
        {NULL, FLAG, offsetof(struct common_options, quiet), "quiet", NULL,
         "print the result line only", 0},
        {NULL, FILE_NAME, offsetof(struct common_options, save), command_line->save, NULL,
         command_line->save_help, 0},
        {0}};
    struct parse parse = {0};
    struct argp_option options[MOST + 1] = {0};
    const struct argp argp = {options, parse_option, NULL, command_line->about,
                              NULL,    add_initial,  NULL};
    occupy_standard_streams();
    atexit(close_stdout);
    signal(SIGXFSZ, SIG_IGN); // a file above ulimit -f is an error, like a full disk
    add_options(&parse, common, &values);
    add_options(&parse, command_line->fields, command_line->options);
    add_options(&parse, command_line->more, command_line->more_options);
    for (int i = 0; i < parse.count; ++i) {
        const struct field *field = parse.options[i].field;
        options[i] = (struct argp_option){field->option, FIRST + i, ARGUMENTS[field->kind], 0,
                                          field->help,   0};
    }
    argp_err_exit_status = EXIT_BAD_INPUT;
    argp_parse(&argp, argc, argv, 0, NULL, &parse);
    if (values.columns) {
        print_header(stdout, command_line->fields);
        exit(0);
    }
    const char *csv = values.options.csv, *save = values.options.save;
    if (csv)
        check_rows_option("csv", csv, command_line->fields);
    if (save)
        check_saved_file(command_line->save, save, csv);
    return values.options;
}
