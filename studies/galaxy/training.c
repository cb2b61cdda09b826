#include "studies/galaxy/training.h"

#include "common/gzip.h"

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

struct run {
    struct options options;
    struct data data;
    struct result result;
    double gflops, peak_rss_mib;
};

static const struct field FIELDS[] = {
    COLUMN("device", TEXT, result.device),
    OPTIONAL("threads", INT_FROM_0, result.threads),
    OPTION("data", DIRECTORY, data, NULL, NULL,
           "train.csv and test.csv, raw or .gz ($GALAXY_DIR, then the study's data/galaxy)"),
    OPTION("hidden", INT_FROM_1, hidden, "8", "hidden", "hidden units"),
    OPTION("iterations", INT_FROM_0, iterations, "300", "iterations",
           "of the minimizer; 0 trains nothing"),
    OPTION("lambda", FLOAT_FROM_0, lambda, "1", "lambda",
           "weight of the squared weights in the cost"),
    OPTION("seed", UINT64, seed, "1", "seed", "of the initial weights"),
    OPTION("train", INT_FROM_1, train_samples, "2700", "train_samples",
           "the first N training images"),
    OPTION("test", INT_FROM_1, test_samples, "675", "test_samples", "the first N test images"),
    COLUMN("dataset", TEXT, data.name),
    COLUMN("load_s", SECONDS, data.load_s),
    COLUMN("setup_s", SECONDS, result.setup_s),
    COLUMN("train_s", SECONDS, result.train_s),
    COLUMN("cost_s", SECONDS, result.cost.total),
    COLUMN("gradient_s", SECONDS, result.gradient.total),
    COLUMN("final_cost", NUMBER, result.minimum.cost),
    COLUMN("test_accuracy", NUMBER, result.test_accuracy),
    COLUMN("cost_evaluations", UINT64, result.minimum.evaluations),
    COLUMN("gradient_evaluations", UINT64, result.minimum.evaluations),
    COLUMN("gflops", NUMBER, gflops),
    COLUMN("peak_rss_mib", NUMBER, peak_rss_mib),
    OPTIONAL("peak_vram_mib", NUMBER, result.peak_vram_mib),
    {0},
};

// A multiply-add is two operations. For each sample and evaluation, W1 takes part in two products
// and W2 in three. A second forward pass, where a stage makes one, is not counted.
static double gflops(const struct options *options, const struct result *result) {
    const double flops = (4.0 * PIXELS + 6.0 * CLASSES) * options->hidden;
    return (double)result->minimum.evaluations * options->train_samples * flops / result->train_s /
           1e9;
}

struct options parse_options(int argc, char **argv, const char *about, int max_threads) {
    struct options options = {.data = data_directory("GALAXY_DIR", "galaxy")};
    options.common =
        parse_common(argc, argv,
                     &(struct command_line){
                         .about = about,
                         .max_threads = max_threads,
                         .fields = FIELDS,
                         .options = &options,
                         .save = "save-weights",
                         .save_help = "write W1, b1, W2, b2 as little-endian float32, row-major",
                     });
    return options;
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
            double *images = try_allocate_array(room * PIXELS, sizeof *images);
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
    csv.row = 0;
    if (!status && has_more_than_a_member(csv.file, csv.path))
        status = complain(&csv, "found more than a gzip member; expected nothing behind it");
    gzclose(csv.file);
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
        fprintf(stderr, "%s: the cost became %g: try a smaller --lambda than %g\n", stage_name,
                result->minimum.cost, (double)options->lambda);
        return EXIT_RUN_FAILED;
    }
    if (!options->common.quiet) {
        print_timer("cost", &result->cost, "evaluations");
        print_timer("gradient", &result->gradient, "evaluations");
    }
    const struct run run = {*options, *data, *result, gflops(options, result), peak_rss_mib()};
    const char *csv = options->common.csv;
    const int status = csv ? append_row("csv", csv, FIELDS, &run) : 0;
    printf("%s: hidden %d, iterations %d, %s: train %.3f s, cost %.3f s, gradient %.3f s, "
           "%.1f GFLOP/s, %ld evaluations, cost %.6g, accuracy %.4f\n",
           stage_name, options->hidden, result->minimum.iterations, data->name, result->train_s,
           result->cost.total, result->gradient.total, run.gflops, result->minimum.evaluations,
           result->minimum.cost, result->test_accuracy);
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
