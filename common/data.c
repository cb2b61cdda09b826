#include "common/data.h"
#include "common/gzip.h"
#include "common/program.h"

#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { SIDE = 28, LINE_SIZE = 16384 };

// A file that is read, raw or gzipped: zlib sees which it is, whatever its name.
struct source {
    char path[PATH_MAX + 3];
    gzFile file;
    uint32_t items;     // of an IDX file, after its header was read
    long long expected; // bytes that it should have, as far as is known
};

// As gzopen(), but a FIFO that nobody writes to is an empty file, and nothing to wait for.
static gzFile open_file(const char *path) {
    const int file = open(path, O_RDONLY | O_NONBLOCK);
    return file < 0 ? NULL : gzdopen(file, "rb");
}

// Opens directory/name, or directory/name.gz if only that is there. Returns whether that went well,
// and sets errno.
static bool open_source(struct source *source, const char *directory, const char *name) {
    snprintf(source->path, PATH_MAX, "%s/%s", directory, name);
    source->file = open_file(source->path);
    if (!source->file && errno == ENOENT)
        source->file = open_file(strcat(source->path, ".gz"));
    return source->file != NULL;
}

// Whether a read stopped at the end of the file. Returns 0, or EXIT_BAD_INPUT after one line if it
// stopped at damage, or if there is more.
static int check_end(const struct source *source) {
    int error;
    if (gzgetc(source->file) >= 0)
        return report_error(source->path, "found more than the %lld bytes its header announces",
                            source->expected);
    const char *words = strchr(gzerror(source->file, &error), ' '); // the first is its number
    if (error != Z_OK && error != Z_STREAM_END)
        return report_error(source->path, "%s; expected a whole file, raw or gzipped", words + 1);
    if (has_more_than_a_member(source->file, source->path))
        return report_error(source->path,
                            "found more than a gzip member; expected nothing behind it");
    return 0;
}

// Allocates a data set of so many samples. Returns 0 or EXIT_BAD_INPUT.
static int allocate_dataset(struct dataset *dataset, const struct source *source, int samples) {
    const size_t pixels = (size_t)samples * PIXELS;
    dataset->samples = samples;
    dataset->images = try_allocate_array(pixels, sizeof(float));
    dataset->labels = malloc((size_t)samples);
    if (dataset->images && dataset->labels)
        return 0;
    return report_error(source->path, "out of memory: asked for %.1f MiB; try fewer images",
                        (double)pixels * sizeof(float) / (1 << 20));
}

// Sets a sample, unless it lies behind those that were asked for. `row` is its label and pixels.
static void set_sample(struct dataset *dataset, size_t sample, const uint8_t row[1 + PIXELS]) {
    if (sample >= (size_t)dataset->samples)
        return;
    dataset->labels[sample] = row[0];
    for (int k = 0; k < PIXELS; ++k)
        dataset->images[sample * PIXELS + k] = (float)row[1 + k] / 255.0f;
}

// Reads exactly `size` bytes. Returns 0 or EXIT_BAD_INPUT.
static int read_exactly(const struct source *source, void *bytes, unsigned size) {
    if (gzread(source->file, bytes, size) == (int)size)
        return 0;
    if (check_end(source))
        return EXIT_BAD_INPUT;
    return report_error(source->path, "truncated: found %lld bytes, expected at least %lld",
                        (long long)gztell(source->file), source->expected);
}

// Opens an IDX file and reads its header: magic number, items, and for images rows and columns.
// http://yann.lecun.com/exdb/mnist describes the format. Returns 0 or EXIT_BAD_INPUT.
static int open_idx(struct source *source, const char *directory, const char *set, bool images) {
    const uint32_t magic = images ? 0x803 : 0x801;
    const char *const what = images ? "images" : "labels";
    uint32_t header[4] = {0};
    char name[32];
    snprintf(name, sizeof name, "%s-%s-idx%d-ubyte", set, what, images ? 3 : 1);
    if (!open_source(source, directory, name))
        return report_error(source->path, "%s; expected MNIST, raw or .gz: see data/README.md",
                            strerror(errno));
    source->expected = images ? 16 : 8;
    if (read_exactly(source, header, (unsigned)source->expected))
        return EXIT_BAD_INPUT;
    for (int i = 0; i < 4; ++i)
        header[i] = be32toh(header[i]);
    if (header[0] != magic)
        return report_error(source->path, "wrong magic number: found 0x%08x, expected 0x%08x (%s)",
                            header[0], magic, what);
    if (images && (header[2] != SIDE || header[3] != SIDE))
        return report_error(source->path, "found images of %u x %u, expected 28 x 28", header[2],
                            header[3]);
    source->items = header[1];
    source->expected += (long long)source->items * (images ? PIXELS : 1);
    return 0;
}

// Reads what is left in both files of one set, keeping the first `wanted` samples.
static int read_idx(const struct source *images, const struct source *labels, int wanted,
                    const char *option, struct dataset *dataset) {
    uint8_t row[1 + PIXELS];
    if (images->items != labels->items)
        return report_error(labels->path, "found %u labels, expected %u, one for each image of %s",
                            labels->items, images->items, images->path);
    if (images->items < (uint32_t)wanted)
        return report_error(images->path, "found %u images, --%s expects at least %d",
                            images->items, option, wanted);
    if (allocate_dataset(dataset, images, wanted))
        return EXIT_BAD_INPUT;
    for (uint32_t s = 0; s < images->items; ++s) {
        if (read_exactly(labels, row, 1) || read_exactly(images, row + 1, PIXELS))
            return EXIT_BAD_INPUT;
        if (row[0] >= CLASSES)
            return report_error(labels->path, "label %u is %u, expected 0 to 9", s + 1, row[0]);
        set_sample(dataset, s, row);
    }
    return check_end(images) || check_end(labels) ? EXIT_BAD_INPUT : 0;
}

// Loads a set, "train" or "t10k", from its two IDX files. Returns 0 or EXIT_BAD_INPUT.
static int load_idx(const char *directory, const char *set, int wanted, const char *option,
                    struct dataset *dataset) {
    struct source images = {0}, labels = {0};
    const bool is_loaded = open_idx(&images, directory, set, true) == 0 &&
                           open_idx(&labels, directory, set, false) == 0 &&
                           read_idx(&images, &labels, wanted, option, dataset) == 0;
    gzclose(images.file);
    gzclose(labels.file);
    return is_loaded ? 0 : EXIT_BAD_INPUT;
}

// Parses "label,pixel,...,pixel". Returns 0 or EXIT_BAD_INPUT.
static int parse_row(const struct source *source, long line, const char *text,
                     uint8_t row[1 + PIXELS]) {
    int numbers = 1;
    for (const char *comma = text; (comma = strchr(comma, ',')); ++comma)
        ++numbers;
    if (numbers != 1 + PIXELS)
        return report_error(source->path,
                            "line %ld: found %d numbers, expected a label and %d pixels", line,
                            numbers, PIXELS);
    for (int column = 0; column <= PIXELS; ++column) {
        const int length = (int)strcspn(text, ","), largest = column ? 255 : CLASSES - 1;
        char *end;
        const long value = strtol(text, &end, 10);
        if (!isdigit((unsigned char)*text) || end != text + length || value > largest)
            return report_error(source->path, "line %ld, column %d: found '%.*s', expected 0 to %d",
                                line, column + 1, length < 20 ? length : 20, text, largest);
        row[column] = (uint8_t)value;
        text = end + 1;
    }
    return 0;
}

// Reads Kaggle's train.csv: its first rows into the training set, the next ones into the test set.
// Returns 0 or EXIT_BAD_INPUT.
static int read_csv(const struct source *source, int train_samples, int test_samples,
                    struct data *data) {
    const size_t train = (size_t)train_samples, test = (size_t)test_samples;
    uint8_t row[1 + PIXELS] = {0};
    char text[LINE_SIZE];
    size_t rows = 0;
    data->name = "csv";
    if (allocate_dataset(&data->train, source, train_samples) ||
        allocate_dataset(&data->test, source, test_samples))
        return EXIT_BAD_INPUT;
    for (long line = 1; gzgets(source->file, text, LINE_SIZE); ++line) {
        size_t length = strlen(text);
        if (length == 0 || text[length - 1] != '\n') { // the end of the file, or damage
            if (!gzeof(source->file))
                return report_error(source->path, "line %ld: not text, or over %d characters", line,
                                    LINE_SIZE - 2);
            if (check_end(source))
                return EXIT_BAD_INPUT;
        }
        while (length > 0 && strchr("\r\n", text[length - 1]))
            text[--length] = '\0';
        if (line == 1 && strncmp(text, "label,", 6) != 0)
            return report_error(
                source->path, "line 1: found '%.20s', expected the header label,pixel0,...", text);
        if (line == 1 || length == 0)
            continue;
        if (parse_row(source, line, text, row))
            return EXIT_BAD_INPUT;
        if (rows < train)
            set_sample(&data->train, rows, row);
        else
            set_sample(&data->test, rows - train, row);
        ++rows;
    }
    if (check_end(source))
        return EXIT_BAD_INPUT;
    if (rows < train + test)
        return report_error(source->path,
                            "found %zu rows, --train and --test expect at least %zu + %zu", rows,
                            train, test);
    return 0;
}

static int load_directory(const char *directory, int train_samples, int test_samples,
                          struct data *data) {
    struct source images, rows, drawn;
    if (!open_source(&images, directory, "train-images-idx3-ubyte") &&
        open_source(&rows, directory, "train.csv")) {
        const int status = read_csv(&rows, train_samples, test_samples, data);
        gzclose(rows.file);
        return status;
    }
    gzclose(images.file);
    // data/synthesize leaves this file beside the digits it drew, so that no table calls them
    // MNIST.
    data->name = open_source(&drawn, directory, "SYNTHETIC") ? "synthetic" : "mnist";
    gzclose(drawn.file);
    const int status = load_idx(directory, "train", train_samples, "train", &data->train);
    return status ? status : load_idx(directory, "t10k", test_samples, "test", &data->test);
}

int load_mnist(const char *directory, int train_samples, int test_samples, struct data *data) {
    const double start = seconds();
    *data = (struct data){0};
    const int status = load_directory(directory, train_samples, test_samples, data);
    if (status)
        free_data(data);
    data->load_s = seconds() - start;
    return status;
}

void free_data(struct data *data) {
    free(data->train.images);
    free(data->train.labels);
    free(data->test.images);
    free(data->test.labels);
    *data = (struct data){0};
}
