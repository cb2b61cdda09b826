#include "common/data.h"
#include "common/memory.h"
#include "common/options.h"
#include "common/timing.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum {
    SIDE = 28,
    MAX_BLANK_LINES = 1000, // a small gzip file may hold a billion of them
    LINE_SIZE = 16384,
    GZ_BUFFER = 1 << 17
};

// An open IDX file, after its header was read and found right.
struct idx {
    char path[4096];
    gzFile file;
    uint32_t items;
    uint32_t item_bytes;
};

// Prints one line, "path: message", and returns the status of bad input.
__attribute__((format(printf, 2, 3))) static int complain(const char *path, const char *format,
                                                          ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", path);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return EXIT_BAD_INPUT;
}

// Allocates a data set of so many samples. Returns 0 or EXIT_BAD_INPUT.
static int allocate_dataset(struct dataset *dataset, const char *path, int samples) {
    dataset->samples = samples;
    dataset->images = try_allocate_array((size_t)samples * PIXELS, sizeof(float));
    dataset->labels = malloc((size_t)samples);
    if (!dataset->images || !dataset->labels)
        return complain(
            path,
            "out of memory: %d images as floats need %.1f MiB; try a smaller --train or --test",
            samples, (double)samples * PIXELS * sizeof(float) / (1 << 20));
    return 0;
}

static void pixels_to_floats(float *floats, const uint8_t *pixels) {
    for (int k = 0; k < PIXELS; ++k)
        floats[k] = (float)pixels[k] / 255.0f;
}

// Whether anything has that name. It may be something that cannot be opened: a loop of links, or a
// file in a directory that may not be searched.
static bool is_there(const char *path) {
    return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

// Writes directory/name, or directory/name.gz if only that is there, into path.
static bool find_file(char path[4096], const char *directory, const char *name) {
    if (snprintf(path, 4096, "%s/%s", directory, name) + 3 >= 4096)
        return false;
    if (is_there(path))
        return true;
    strcat(path, ".gz");
    if (is_there(path))
        return true;
    path[strlen(path) - 3] = '\0';
    return false;
}

// Opens a file, gzipped or not. Returns NULL after one line. zlib ignores what follows the end of
// gzipped data, as gzip does.
static gzFile open_file(const char *path) {
    struct stat status;
    gzFile file = NULL;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        complain(path, "found %s, expected a file",
                 S_ISDIR(status.st_mode) ? "a directory" : "a device or a pipe");
        return NULL;
    }
    file = gzopen(path, "rb");
    if (!file)
        complain(path, "cannot read: %s", strerror(errno));
    else
        gzbuffer(file, GZ_BUFFER);
    return file;
}

// Says whether a read stopped at the end of the file. Returns 0, or EXIT_BAD_INPUT after one line
// if it stopped at damage.
static int check_gzip(gzFile file, const char *path) {
    int error;
    const char *message = gzerror(file, &error);
    if (error == Z_OK || error == Z_STREAM_END)
        return 0;
    if (error == Z_ERRNO)
        message = strerror(errno);
    size_t length = strlen(path);
    if (strncmp(message, path, length) == 0 && strncmp(message + length, ": ", 2) == 0)
        message += length + 2; // zlib names the file too
    return complain(path, "damaged or truncated gzip file: %s", message);
}

// Reads exactly `size` bytes. Returns 0, or EXIT_BAD_INPUT after one line that says what is
// missing.
static int read_exactly(struct idx *idx, void *bytes, unsigned size) {
    int got = gzread(idx->file, bytes, size);
    if (got == (int)size)
        return 0;
    if (check_gzip(idx->file, idx->path))
        return EXIT_BAD_INPUT;
    if (idx->items == 0)
        return complain(idx->path, "truncated: ends inside the header of an IDX file");
    return complain(idx->path, "truncated: found %lld bytes, expected %lld (%u items of %u bytes)",
                    (long long)gztell(idx->file),
                    (long long)(idx->item_bytes == 1 ? 8 : 16) +
                        (long long)idx->items * idx->item_bytes,
                    idx->items, idx->item_bytes);
}

static uint32_t big_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

// Opens an IDX file and reads its header: magic number, items, and for images rows and columns.
// http://yann.lecun.com/exdb/mnist describes the format. Returns 0 or EXIT_BAD_INPUT.
static int open_idx(struct idx *idx, const char *directory, const char *name, bool images) {
    uint8_t header[16];
    const uint32_t magic = images ? 0x803 : 0x801;
    if (!find_file(idx->path, directory, name))
        return complain(idx->path,
                        "not found, with or without .gz; expected the four files of MNIST in %s",
                        directory);
    idx->file = open_file(idx->path);
    if (!idx->file)
        return EXIT_BAD_INPUT;
    if (gzgetc(idx->file) < 0)
        return check_gzip(idx->file, idx->path)
                   ? EXIT_BAD_INPUT
                   : complain(idx->path, "empty file, expected MNIST %s",
                              images ? "images" : "labels");
    gzrewind(idx->file);
    if (read_exactly(idx, header, images ? 16 : 8))
        return EXIT_BAD_INPUT;
    if (big_endian(header) != magic)
        return complain(idx->path, "wrong magic number: found 0x%08x, expected 0x%08x (%s)",
                        big_endian(header), magic, images ? "images" : "labels");
    if (images && (big_endian(header + 8) != SIDE || big_endian(header + 12) != SIDE))
        return complain(idx->path, "wrong dimensions: found images of %u x %u, expected 28 x 28",
                        big_endian(header + 8), big_endian(header + 12));
    idx->items = big_endian(header + 4);
    idx->item_bytes = images ? PIXELS : 1;
    return 0;
}

// Reads what is left in both files of one set into `dataset`, keeping the first `wanted` samples.
static int read_idx(struct idx *images, struct idx *labels, int wanted, const char *option,
                    struct dataset *dataset) {
    uint8_t pixels[PIXELS], label;
    if (images->items != labels->items)
        return complain(labels->path, "found %u labels, expected %u, one for each image of %s",
                        labels->items, images->items, images->path);
    if (images->items < (uint32_t)wanted)
        return complain(images->path, "found %u images, --%s expects at least %d", images->items,
                        option, wanted);
    if (allocate_dataset(dataset, images->path, wanted))
        return EXIT_BAD_INPUT;
    for (uint32_t s = 0; s < images->items; ++s) {
        if (read_exactly(images, pixels, sizeof pixels) || read_exactly(labels, &label, 1))
            return EXIT_BAD_INPUT;
        if (label >= CLASSES)
            return complain(labels->path, "label %u is %u, expected 0 to 9", s + 1, label);
        if (s < (uint32_t)wanted) {
            pixels_to_floats(dataset->images + (size_t)s * PIXELS, pixels);
            dataset->labels[s] = label;
        }
    }
    for (struct idx *idx = images; idx; idx = idx == images ? labels : NULL) {
        if (gzgetc(idx->file) >= 0)
            return complain(idx->path, "found more bytes than the %u items its header announces",
                            idx->items);
        if (check_gzip(idx->file, idx->path))
            return EXIT_BAD_INPUT;
    }
    return 0;
}

// Loads one set from its two IDX files. Returns 0 or EXIT_BAD_INPUT.
static int load_idx(const char *directory, const char *images_name, const char *labels_name,
                    int wanted, const char *option, struct dataset *dataset) {
    struct idx images = {0}, labels = {0};
    int status = open_idx(&images, directory, images_name, true);
    if (status == 0)
        status = open_idx(&labels, directory, labels_name, false);
    if (status == 0)
        status = read_idx(&images, &labels, wanted, option, dataset);
    gzclose(images.file);
    gzclose(labels.file);
    return status;
}

// Reads the next line that is not blank, without its end, and counts lines in `number`. Returns 1,
// 0 at the end of the file, or -1 after one line of complaint.
static int read_line(gzFile file, const char *path, char *line, long *number) {
    const long first = *number;
    do {
        if (*number - first > MAX_BLANK_LINES) {
            complain(path, "line %ld: over %d blank lines, expected rows", *number,
                     MAX_BLANK_LINES);
            return -1;
        }
        if (!gzgets(file, line, LINE_SIZE))
            return check_gzip(file, path) ? -1 : 0;
        ++*number;
        size_t length = strlen(line);
        if ((length == 0 || line[length - 1] != '\n') && !gzeof(file)) {
            complain(path,
                     "line %ld: not text, or over %d characters; expected a label and %d "
                     "pixels",
                     *number, LINE_SIZE - 2, PIXELS);
            return -1;
        }
        while (length > 0 && strchr("\r\n", line[length - 1]))
            line[--length] = '\0';
    } while (*line == '\0');
    return 1;
}

// Parses "label,pixel,...,pixel". Returns 0 or EXIT_BAD_INPUT.
static int parse_row(const char *path, long number, const char *line, float *image,
                     uint8_t *label) {
    uint8_t pixels[PIXELS];
    for (int column = 0; column <= PIXELS; ++column) {
        const char *start = line;
        unsigned value = 0;
        while (*line >= '0' && *line <= '9' && line - start < 4)
            value = 10 * value + (unsigned)(*line++ - '0');
        if (line == start && *line == '\0')
            return complain(path, "line %ld: found %d numbers, expected a label and %d pixels",
                            number, column, PIXELS);
        size_t length = strcspn(start, ",");
        if (line == start || start + length != line || value > (column ? 255 : CLASSES - 1))
            return complain(path, "line %ld, column %d: found '%.*s', expected %s", number,
                            column + 1, length > 20 ? 20 : (int)length, start,
                            column ? "a pixel, 0 to 255" : "a label, 0 to 9");
        if (column)
            pixels[column - 1] = (uint8_t)value;
        else
            *label = (uint8_t)value;
        if (*line == ',' && column < PIXELS)
            ++line;
    }
    if (*line)
        return complain(path,
                        "line %ld: found more than %d numbers, expected a label and %d pixels",
                        number, PIXELS + 1, PIXELS);
    pixels_to_floats(image, pixels);
    return 0;
}

// Reads Kaggle's train.csv twice. The first time counts the rows, so that memory is only taken for
// rows that are there. The second time parses them. Returns 0 or EXIT_BAD_INPUT.
static int read_csv(gzFile file, const char *path, int train_samples, int test_samples,
                    struct data *data) {
    char line[LINE_SIZE];
    float unused[PIXELS];
    long number = 0, rows = 0;
    int more = read_line(file, path, line, &number);
    if (more == 0)
        return complain(path, "empty file, expected the header label,pixel0,...,pixel783");
    if (more > 0 && strncmp(line, "label,", 6) != 0)
        return complain(path, "line %ld: found '%.20s', expected the header label,pixel0,...",
                        number, line);
    while (more > 0 && (more = read_line(file, path, line, &number)) > 0)
        ++rows;
    if (more < 0)
        return EXIT_BAD_INPUT;
    if (rows < (long)train_samples + test_samples)
        return complain(path, "found %ld rows, --train and --test expect at least %d + %d", rows,
                        train_samples, test_samples);
    if (allocate_dataset(&data->train, path, train_samples) ||
        allocate_dataset(&data->test, path, test_samples))
        return EXIT_BAD_INPUT;

    number = 0;
    gzrewind(file);
    read_line(file, path, line, &number);
    for (long row = 0; row < rows; ++row) {
        if (read_line(file, path, line, &number) <= 0)
            return complain(path, "changed while it was read");
        float *image = unused;
        uint8_t unused_label, *label = &unused_label;
        long test_row = row - data->train.samples;
        if (test_row < 0) {
            image = data->train.images + row * PIXELS;
            label = data->train.labels + row;
        } else if (test_row < data->test.samples) {
            image = data->test.images + test_row * PIXELS;
            label = data->test.labels + test_row;
        }
        if (parse_row(path, number, line, image, label))
            return EXIT_BAD_INPUT;
    }
    return 0;
}

static int load_csv(const char *path, int train_samples, int test_samples, struct data *data) {
    gzFile file = open_file(path);
    if (!file)
        return EXIT_BAD_INPUT;
    int status = read_csv(file, path, train_samples, test_samples, data);
    gzclose(file);
    data->name = "csv";
    return status;
}

static int load_directory(const char *directory, int train_samples, int test_samples,
                          struct data *data) {
    char path[4096];
    struct stat status;
    if (stat(directory, &status) < 0)
        return complain(directory,
                        "%s; expected a directory with MNIST: data/fetch.sh downloads "
                        "it, data/synthesize draws a stand-in",
                        strerror(errno));
    if (!S_ISDIR(status.st_mode))
        return complain(directory, "not a directory; expected the directory that holds MNIST");
    if (!find_file(path, directory, "train-images-idx3-ubyte") &&
        find_file(path, directory, "train.csv"))
        return load_csv(path, train_samples, test_samples, data);
    // data/synthesize leaves this file beside the digits it drew, so that no table calls them
    // MNIST.
    bool synthetic = snprintf(path, sizeof path, "%s/SYNTHETIC", directory) < (int)sizeof path &&
                     access(path, F_OK) == 0;
    data->name = synthetic ? "synthetic" : "mnist";
    int failed = load_idx(directory, "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                          train_samples, "train", &data->train);
    return failed ? failed
                  : load_idx(directory, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
                             test_samples, "test", &data->test);
}

int load_mnist(const char *directory, int train_samples, int test_samples, struct data *data) {
    const double start = seconds();
    *data = (struct data){0};
    int status = load_directory(directory, train_samples, test_samples, data);
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

const char *default_data(void) {
    return data_directory("MNIST_DIR", "mnist");
}
