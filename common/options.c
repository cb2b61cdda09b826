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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Options without a short form have numbers that are not characters.
enum { SEED = 256, THREADS, CSV, COLUMNS, QUIET, SAVE };

struct parse {
    const struct command_line *command_line;
    struct common_options options;
};

int parse_int(const char *option, const char *text, int min, int max) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno == ERANGE || value < min || value > max) {
        if (min == max)
            fprintf(stderr, STAGE ": --%s: found '%s', expected %d: it has one thread\n", option,
                    text, min);
        else
            fprintf(stderr, STAGE ": --%s: found '%s', expected a whole number from %d to %d\n",
                    option, text, min, max);
        exit(EXIT_BAD_INPUT);
    }
    return (int)value;
}

float parse_float(const char *option, const char *text, bool positive) {
    char *end;
    float value = strtof(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value < 0 || (positive && value == 0)) {
        fprintf(stderr, STAGE ": --%s: found '%s', expected a number %s 0\n", option, text,
                positive ? "above" : "from");
        exit(EXIT_BAD_INPUT);
    }
    return value;
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

static uint64_t parse_seed(const char *text) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end != '\0' || errno == ERANGE || strchr(text, '-')) {
        fprintf(stderr, STAGE ": --seed: found '%s', expected a whole number from 0 to %llu\n",
                text, ULLONG_MAX);
        exit(EXIT_BAD_INPUT);
    }
    return value;
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
    fprintf(stderr, STAGE ": --%s: cannot write %s: %s; expected a file in a writable directory\n",
            option, *path ? path : "''", strerror(errno));
    exit(EXIT_BAD_INPUT);
}

// The files of two options must not be the same. `other` may be NULL.
static void check_other_file(const char *option, const char *path, const char *other_option,
                             const char *other) {
    char resolved[PATH_MAX] = "", others[PATH_MAX] = "";
    resolve(path, resolved);
    if (other)
        resolve(other, others);
    if (strcmp(resolved, others) == 0) {
        fprintf(stderr, STAGE ": --%s: found %s, the same file as --%s; expected another file\n",
                option, path, other_option);
        exit(EXIT_BAD_INPUT);
    }
}

// A new file will replace `path`. So it must be a regular file, and not the rows.
static void check_saved_file(const char *option, const char *path, const char *csv) {
    struct stat file;
    if (stat(path, &file) == 0 && !S_ISREG(file.st_mode) && !S_ISDIR(file.st_mode)) {
        fprintf(stderr,
                STAGE ": --%s: %s is not a regular file; expected a new file, or a regular one to "
                      "replace\n",
                option, path);
        exit(EXIT_BAD_INPUT);
    }
    check_written(option, path, try_file(path));
    check_other_file(option, path, "csv", csv);
}

void check_more_rows(const struct command_line *command_line, const struct common_options *options,
                     const char *path, const struct row *row) {
    check_written(row->option, path, is_writable(path));
    check_results_file(path, row);
    check_other_file(row->option, path, "csv", options->csv);
    check_other_file(row->option, path, command_line->save, options->save);
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct parse *parse = state->input;
    struct common_options *options = &parse->options;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = parse->command_line->own_input;
        return 0;
    case SEED:
        options->seed = parse_seed(arg);
        return 0;
    case THREADS:
        options->threads = parse_int("threads", arg, 1, parse->command_line->max_threads);
        return 0;
    case CSV:
        options->csv = arg;
        return 0;
    case COLUMNS:
        puts(parse->command_line->row->names);
        exit(0);
    case QUIET:
        options->quiet = true;
        return 0;
    case SAVE:
        options->save = arg;
        return 0;
    case ARGP_KEY_ARG:
        fprintf(stderr, STAGE ": found '%s', expected options only: see --help\n", arg);
        exit(EXIT_BAD_INPUT);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

struct common_options parse_common(int argc, char **argv, const struct command_line *command_line) {
    const char *save = command_line->save;
    const struct argp_option options[] = {
        {"seed", SEED, "N", 0, command_line->seed_help, 0},
        {"threads", THREADS, "N", 0,
         "threads, for a stage that can have several (as OpenMP chooses)", 0},
        {"csv", CSV, "FILE", 0, "append the result as one row, after a header if FILE is new", 0},
        {"columns", COLUMNS, NULL, 0, "print the header of --csv, and stop", 0},
        {"quiet", QUIET, NULL, 0, "print the result line only", 0},
        {save, save ? SAVE : 0, "FILE", 0, command_line->save_help, 0},
        {0}};
    const struct argp_child own[] = {{command_line->own, 0, NULL, 0}, {0}};
    const struct argp argp = {options, parse_option, NULL, command_line->about, own, NULL, NULL};
    struct parse parse = {command_line, {.seed = 1}};
    occupy_standard_streams();
    atexit(close_stdout);
    signal(SIGXFSZ, SIG_IGN); // a file above ulimit -f is an error, like a full disk
    argp_err_exit_status = EXIT_BAD_INPUT;
    argp_parse(&argp, argc, argv, 0, NULL, &parse);
    if (parse.options.csv) {
        check_written("csv", parse.options.csv, is_writable(parse.options.csv));
        check_results_file(parse.options.csv, command_line->row);
    }
    if (parse.options.save)
        check_saved_file(save, parse.options.save, parse.options.csv);
    return parse.options;
}
