#include "common/options.h"
#include "common/timing.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Options without a short form have numbers that are not characters.
enum {
    DATA = 256,
    HIDDEN,
    BATCH,
    EPOCHS,
    LEARNING_RATE,
    SEED,
    TRAIN,
    TEST,
    THREADS,
    CSV,
    SAVE_WEIGHTS,
    QUIET
};

static const struct argp_option ARGP_OPTIONS[] = {
    {"data", DATA, "DIR", 0,
     "MNIST as IDX files, raw or .gz, or Kaggle's train.csv ($MNIST_DIR, then the repository's "
     "data/mnist)",
     0},
    {"hidden", HIDDEN, "N", 0, "hidden units (128)", 0},
    {"batch", BATCH, "N", 0, "samples in a batch (64)", 0},
    {"epochs", EPOCHS, "N", 0, "passes over the training set; 0 trains nothing (5)", 0},
    {"learning-rate", LEARNING_RATE, "X", 0, "step of the gradient descent (0.1)", 0},
    {"seed", SEED, "N", 0, "seed of the initial weights (1)", 0},
    {"train", TRAIN, "N", 0, "the first N training images (37800)", 0},
    {"test", TEST, "N", 0, "the first N test images (4200)", 0},
    {"threads", THREADS, "N", 0, "threads, for a stage that can have several (as OpenMP chooses)",
     0},
    {"csv", CSV, "FILE", 0, "append the result as one row, after a header if FILE is new", 0},
    {"save-weights", SAVE_WEIGHTS, "FILE", 0,
     "write W1, b1, W2, b2 as little-endian float32, row-major", 0},
    {"quiet", QUIET, NULL, 0, "print the result line only", 0},
    {0}};

struct parse {
    struct options options;
    int max_threads;
};

// Returns the whole number in `text`, or prints one line on standard error and exits.
static int parse_int(const char *option, const char *text, int min, int max) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno == ERANGE || value < min || value > max) {
        if (min == max)
            fprintf(stderr, "--%s: found '%s', expected %d: " STAGE " has one thread\n", option,
                    text, min);
        else
            fprintf(stderr, "--%s: found '%s', expected a whole number from %d to %d\n", option,
                    text, min, max);
        exit(EXIT_BAD_INPUT);
    }
    return (int)value;
}

static uint64_t parse_seed(const char *text) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end != '\0' || errno == ERANGE || strchr(text, '-')) {
        fprintf(stderr, "--seed: found '%s', expected a whole number from 0 to %llu\n", text,
                ULLONG_MAX);
        exit(EXIT_BAD_INPUT);
    }
    return value;
}

static float parse_learning_rate(const char *text) {
    char *end;
    float value = strtof(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value <= 0) {
        fprintf(stderr, "--learning-rate: found '%s', expected a number above 0\n", text);
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

// Whether `path`, or a new file of that name, can be written. It does not create the file: a run
// that fails before it has something to write leaves no empty file. Sets errno.
static bool is_writable(const char *path) {
    struct stat file;
    if (stat(path, &file) == 0) {
        errno = EISDIR;
        return !S_ISDIR(file.st_mode) && access(path, W_OK) == 0;
    }
    char *copy = strdup(path);
    bool writable = *path && path[strlen(path) - 1] != '/' && errno == ENOENT && copy &&
                    access(dirname(copy), W_OK | X_OK) == 0;
    free(copy);
    return writable;
}

static void check_writable(const char *option, const char *path) {
    if (is_writable(path))
        return;
    fprintf(stderr, "--%s: cannot write %s: %s; expected a file in a writable directory\n", option,
            *path ? path : "''", strerror(errno));
    exit(EXIT_BAD_INPUT);
}

// Resolves links and dots in the path. Its last part may be a file that is not there yet.
static void resolve(const char *path, char resolved[PATH_MAX]) {
    char directory[PATH_MAX], name[PATH_MAX];
    if (realpath(path, resolved))
        return;
    snprintf(directory, sizeof directory, "%s", path);
    snprintf(name, sizeof name, "%s", path);
    if (realpath(dirname(directory), resolved)) {
        const size_t length = strlen(resolved);
        snprintf(resolved + length, PATH_MAX - length, "/%s", basename(name));
    }
}

// The weights are written beside `path` and then renamed. So `path` must be something that a new
// file may replace, and not the results.
static void check_weights_file(const char *path, const char *csv) {
    struct stat file;
    char weights[PATH_MAX] = "", rows[PATH_MAX] = "";
    check_writable("save-weights", path);
    if (stat(path, &file) == 0 && !S_ISREG(file.st_mode)) {
        fprintf(stderr,
                "--save-weights: %s is not a regular file; expected a new file, or a regular one "
                "to replace\n",
                path);
        exit(EXIT_BAD_INPUT);
    }
    resolve(path, weights);
    if (csv)
        resolve(csv, rows);
    if (strcmp(weights, rows) == 0) {
        fprintf(stderr, "--save-weights: found %s, the same file as --csv; expected another file\n",
                path);
        exit(EXIT_BAD_INPUT);
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct parse *parse = state->input;
    struct options *options = &parse->options;
    switch (key) {
    case DATA:
        options->data = arg;
        return 0;
    case HIDDEN:
        options->hidden = parse_int("hidden", arg, 1, INT_MAX);
        return 0;
    case BATCH:
        options->batch = parse_int("batch", arg, 1, INT_MAX);
        return 0;
    case EPOCHS:
        options->epochs = parse_int("epochs", arg, 0, INT_MAX);
        return 0;
    case LEARNING_RATE:
        options->learning_rate = parse_learning_rate(arg);
        return 0;
    case SEED:
        options->seed = parse_seed(arg);
        return 0;
    case TRAIN:
        options->train_samples = parse_int("train", arg, 1, INT_MAX);
        return 0;
    case TEST:
        options->test_samples = parse_int("test", arg, 1, INT_MAX);
        return 0;
    case THREADS:
        options->threads = parse_int("threads", arg, 1, parse->max_threads);
        return 0;
    case CSV:
        options->csv = arg;
        return 0;
    case SAVE_WEIGHTS:
        options->save_weights = arg;
        return 0;
    case QUIET:
        options->quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        fprintf(stderr, "found '%s', expected options only: see --help\n", arg);
        exit(EXIT_BAD_INPUT);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const char *default_data(void) {
    static char program[PATH_MAX], data[PATH_MAX + sizeof "/data/mnist"];
    const bool found = realpath("/proc/self/exe", program);
    snprintf(data, sizeof data, "%s/data/mnist", found ? dirname(dirname(dirname(program))) : ".");
    return data;
}

struct options parse_options(int argc, char **argv, const char *about, int max_threads) {
    const char *mnist_dir = getenv("MNIST_DIR");
    struct parse parse = {
        .options = {.data = mnist_dir && *mnist_dir ? mnist_dir : default_data(),
                    .hidden = 128,
                    .batch = 64,
                    .epochs = 5,
                    .learning_rate = 0.1f,
                    .seed = 1,
                    .train_samples = 37800,
                    .test_samples = 4200},
        .max_threads = max_threads,
    };
    const struct argp argp = {ARGP_OPTIONS, parse_option, NULL, about, NULL, NULL, NULL};
    occupy_standard_streams();
    atexit(close_stdout);
    argp_err_exit_status = EXIT_BAD_INPUT;
    argp_parse(&argp, argc, argv, 0, NULL, &parse);
    if (parse.options.csv) {
        check_writable("csv", parse.options.csv);
        check_results_file(parse.options.csv);
    }
    if (parse.options.save_weights)
        check_weights_file(parse.options.save_weights, parse.options.csv);
    return parse.options;
}
