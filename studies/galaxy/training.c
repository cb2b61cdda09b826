#include "studies/galaxy/training.h"
#include "common/rows.h"

#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

// Options without a short form have numbers that are not characters. parse_common() has others.
enum { DATA = 1024, HIDDEN, ITERATIONS, LAMBDA, TRAIN, TEST };

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct options *options = state->input;
    switch (key) {
    case DATA:
        options->data = arg;
        return 0;
    case HIDDEN:
        options->hidden = parse_int("hidden", arg, 1, INT_MAX);
        return 0;
    case ITERATIONS:
        options->iterations = parse_int("iterations", arg, 0, INT_MAX);
        return 0;
    case LAMBDA:
        options->lambda = parse_float("lambda", arg, false);
        return 0;
    case TRAIN:
        options->train_samples = parse_int("train", arg, 1, INT_MAX);
        return 0;
    case TEST:
        options->test_samples = parse_int("test", arg, 1, INT_MAX);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// A multiply-add is two operations. For each sample and evaluation, W1 takes part in two products
// and W2 in three. A second forward pass, where a stage makes one, is not counted.
static double gflops(const struct options *options, const struct result *result) {
    const double flops = (4.0 * PIXELS + 6.0 * CLASSES) * options->hidden;
    return (double)result->minimum.evaluations * options->train_samples * flops / result->train_s /
           1e9;
}

static struct row make_row(const struct options *options, const struct data *data,
                           const struct result *result) {
    struct row row = begin_row(result->device, result->threads);
    add_int(&row, "hidden", (unsigned)options->hidden);
    add_int(&row, "iterations", (unsigned)options->iterations);
    add_float(&row, "lambda", options->lambda);
    add_int(&row, "seed", options->common.seed);
    add_int(&row, "train_samples", (unsigned)options->train_samples);
    add_int(&row, "test_samples", (unsigned)options->test_samples);
    add_text(&row, "dataset", data->name);
    add_seconds(&row, "load_s", data->load_s);
    add_seconds(&row, "setup_s", result->setup_s);
    add_seconds(&row, "train_s", result->train_s);
    add_seconds(&row, "cost_s", result->cost.total);
    add_seconds(&row, "gradient_s", result->gradient.total);
    add_number(&row, "final_cost", result->minimum.cost);
    add_number(&row, "test_accuracy", result->test_accuracy);
    add_int(&row, "cost_evaluations", (unsigned long)result->minimum.evaluations);
    add_int(&row, "gradient_evaluations", (unsigned long)result->minimum.evaluations);
    add_number(&row, "gflops", gflops(options, result));
    add_peaks(&row, result->peak_vram_mib);
    return row;
}

struct options parse_options(int argc, char **argv, const char *about, int max_threads) {
    static const struct argp_option own_options[] = {
        {"data", DATA, "DIR", 0,
         "train.csv and test.csv, raw or .gz ($GALAXY_DIR, then the study's data/galaxy)", 1},
        {"hidden", HIDDEN, "N", 0, "hidden units (8)", 1},
        {"iterations", ITERATIONS, "N", 0, "of the minimizer; 0 trains nothing (300)", 1},
        {"lambda", LAMBDA, "X", 0, "weight of the squared weights in the cost (1)", 1},
        {"train", TRAIN, "N", 0, "the first N training images (2700)", 1},
        {"test", TEST, "N", 0, "the first N test images (675)", 1},
        {0}};
    const struct argp own = {own_options, parse_option, NULL, NULL, NULL, NULL, NULL};
    struct options options = {.data = data_directory("GALAXY_DIR", "galaxy"),
                              .hidden = 8,
                              .iterations = 300,
                              .lambda = 1,
                              .train_samples = 2700,
                              .test_samples = 675};
    const struct row row =
        make_row(&options, &(struct data){.name = ""}, &(struct result){.device = ""});
    options.common =
        parse_common(argc, argv,
                     &(struct command_line){
                         .about = about,
                         .max_threads = max_threads,
                         .own = &own,
                         .own_input = &options,
                         .row = &row,
                         .seed_help = "of the initial weights (1)",
                         .save = "save-weights",
                         .save_help = "write W1, b1, W2, b2 as little-endian float32, row-major",
                     });
    return options;
}

double *allocate_doubles(size_t count) {
    return (double *)allocate_floats(count > SIZE_MAX / 2 ? SIZE_MAX : 2 * count);
}

double draw_weight(struct pcg32 *generator) {
    return (double)draw_uniform(generator, 0.2f);
}

// --- the data ---

// A file of rows, and where its reading is.
struct csv {
    char path[PATH_MAX + 3];
    gzFile file;
    size_t row; // counted from 1
};

// Prints one line and returns the status of bad input.
__attribute__((format(printf, 2, 3))) static int complain(const struct csv *csv, const char *format,
                                                          ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", csv->path);
    if (csv->row > 0)
        fprintf(stderr, "row %zu: ", csv->row);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return EXIT_BAD_INPUT;
}

// Opens directory/name, or directory/name.gz if only that is there. Returns 0 or EXIT_BAD_INPUT.
static int open_csv(struct csv *csv, const char *directory, const char *name) {
    struct stat status;
    csv->row = 0;
    const int length = snprintf(csv->path, PATH_MAX, "%s/%s", directory, name);
    if (length >= PATH_MAX)
        return complain(csv, "the path is too long");
    if (stat(csv->path, &status) != 0 && stat(strcat(csv->path, ".gz"), &status) != 0) {
        csv->path[length] = '\0';
        return complain(csv, "%s; expected the galaxies: see studies/galaxy/README.md",
                        strerror(errno));
    }
    if (!S_ISREG(status.st_mode))
        return complain(csv, "found %s, expected a file",
                        S_ISDIR(status.st_mode) ? "a directory" : "a device or a pipe");
    csv->file = gzopen(csv->path, "rb");
    if (!csv->file)
        return complain(csv, "cannot read: %s", strerror(errno));
    gzbuffer(csv->file, 1 << 17);
    return 0;
}

// The longest row: a label, and 1024 pixels of three digits, each after a comma; "\r\n" and '\0'.
enum { LINE_SIZE = 1 + 4 * PIXELS + 3 };

// Reads the next row into `line`. Returns 1, 0 at the end of the file, or -1 after one line.
static int read_line(struct csv *csv, char line[LINE_SIZE]) {
    ++csv->row;
    const bool is_read = gzgets(csv->file, line, LINE_SIZE) != NULL;
    size_t length = is_read ? strlen(line) : 0;
    if (length == 0 || line[length - 1] != '\n') { // the end of the file, or damage, or a long row
        int error;
        const char *message = gzerror(csv->file, &error);
        if (error == Z_ERRNO)
            message = strerror(errno);
        const size_t known = strlen(csv->path); // zlib names the file too
        if (strncmp(message, csv->path, known) == 0 && strncmp(message + known, ": ", 2) == 0)
            message += known + 2;
        if (error != Z_OK && error != Z_STREAM_END) {
            complain(csv, "damaged or truncated gzip file: %s", message);
            return -1;
        }
        if (!is_read)
            return 0;
    }
    if (length == LINE_SIZE - 1 && line[length - 1] != '\n') {
        complain(csv, "found more than %d pixels, expected %d", PIXELS, PIXELS);
        return -1;
    }
    while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
        line[--length] = '\0';
    return 1;
}

// Reads a whole number up to `max` from `text` on, and moves `text` behind it. -1: there is none.
static int parse_number(const char **text, int max) {
    int value = 0;
    const char *start = *text;
    while (**text >= '0' && **text <= '9' && value <= max)
        value = 10 * value + (*(*text)++ - '0');
    return *text == start || value > max ? -1 : value;
}

// Takes a row apart. Returns 0, or EXIT_BAD_INPUT after one line.
static int parse_row(const struct csv *csv, const char *line, uint8_t *label, double *image) {
    const char *text = line;
    int value = parse_number(&text, CLASSES - 1);
    for (int k = 0; k < PIXELS && value >= 0; ++k) {
        if (k == 0)
            *label = (uint8_t)value;
        if (*text == '\0')
            return complain(csv, "found %d pixels, expected %d", k, PIXELS);
        value = *text == ',' ? (++text, parse_number(&text, 255)) : -1;
        image[k] = value / 255.0;
    }
    if (value >= 0 && *text == '\0')
        return 0;
    if (value >= 0 && *text == ',')
        return complain(csv, "found more than %d pixels, expected %d", PIXELS, PIXELS);
    while (text > line && text[-1] != ',') // to the start of the field
        --text;
    const int length = (int)strcspn(text, ",");
    return complain(csv, "found '%.*s', expected %s", length < 20 ? length : 20, text,
                    text == line ? "a label: 0, 1 or 2"
                                 : "1024 pixels, each a whole number from 0 to 255");
}

// Reads the first rows of a file, and checks the others. Returns 0, or EXIT_BAD_INPUT after one
// line.
static int load_csv(const char *directory, const char *name, int samples, const char *option,
                    struct dataset *dataset) {
    struct csv csv;
    char line[LINE_SIZE];
    double image[PIXELS];
    uint8_t label = 0;
    size_t room = 0;
    int status = open_csv(&csv, directory, name), found;
    if (status)
        return status;
    while (!status && (found = read_line(&csv, line)) != 0) {
        status = found < 0 ? EXIT_BAD_INPUT : parse_row(&csv, line, &label, image);
        if (status || dataset->samples == (size_t)samples)
            continue;
        if (dataset->samples == room) { // grows with the file, whatever --train asks for
            room = room ? 2 * room : 1024;
            const size_t floats = 2 * room * PIXELS;
            double *images = (double *)try_allocate_floats(floats);
            uint8_t *labels = realloc(dataset->labels, room);
            if (images && dataset->samples > 0)
                memcpy(images, dataset->images, dataset->samples * PIXELS * sizeof *images);
            free(dataset->images);
            dataset->images = images;
            dataset->labels = labels ? labels : dataset->labels;
            if (!images || !labels) {
                status = complain(&csv, "out of memory: try a smaller --%s", option);
                break;
            }
        }
        memcpy(dataset->images + dataset->samples * PIXELS, image, sizeof image);
        dataset->labels[dataset->samples++] = label;
    }
    gzclose(csv.file);
    csv.row = 0;
    if (!status && dataset->samples < (size_t)samples)
        status = complain(&csv, "found %zu rows, expected the %d of --%s", dataset->samples,
                          samples, option);
    return status;
}

int load_galaxies(const struct options *options, struct data *data) {
    char path[PATH_MAX];
    const double start = seconds();
    *data = (struct data){.name = "galaxy"};
    int status =
        load_csv(options->data, "train.csv", options->train_samples, "train", &data->train);
    if (!status)
        status = load_csv(options->data, "test.csv", options->test_samples, "test", &data->test);
    if (status) {
        free_galaxies(data);
        return status;
    }
    snprintf(path, sizeof path, "%s/SYNTHETIC", options->data);
    if (access(path, F_OK) == 0)
        data->name = "synthetic";
    data->load_s = seconds() - start;
    return 0;
}

void free_galaxies(struct data *data) {
    free(data->train.images);
    free(data->train.labels);
    free(data->test.images);
    free(data->test.labels);
    data->train = data->test = (struct dataset){0};
}

// --- the result ---

int report_result(const struct options *options, const struct data *data,
                  const struct result *result) {
    if (!isfinite(result->minimum.cost)) {
        fprintf(stderr, STAGE ": the cost became %g: try a smaller --lambda than %g\n",
                result->minimum.cost, (double)options->lambda);
        return EXIT_RUN_FAILED;
    }
    if (!options->common.quiet) {
        print_timer("cost", &result->cost, "evaluations");
        print_timer("gradient", &result->gradient, "evaluations");
    }
    const struct row row = make_row(options, data, result);
    const int status = options->common.csv ? append_row(options->common.csv, &row) : 0;
    print_line("%s: hidden %d, iterations %d, %s: train %.3f s, cost %.3f s, gradient %.3f s, "
               "%.1f GFLOP/s, %ld evaluations, cost %.6g, accuracy %.4f\n",
               STAGE, options->hidden, result->minimum.iterations, data->name, result->train_s,
               result->cost.total, result->gradient.total, gflops(options, result),
               result->minimum.evaluations, result->minimum.cost, result->test_accuracy);
    return status;
}

int write_weights(const char *path, size_t hidden, const double *weights) {
    const size_t count = (PIXELS + 1 + CLASSES) * hidden + CLASSES;
    float *floats = allocate_floats(count);
    for (size_t i = 0; i < count; ++i)
        floats[i] = (float)weights[i];
    const struct array array = {floats, count};
    const int status = write_arrays("save-weights", path, &array, 1);
    free(floats);
    return status;
}
