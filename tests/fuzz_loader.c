// A fuzz target for the loader. The first byte of the input says which file the rest becomes: the
// training images ('i') or labels ('l') of an IDX data set that is otherwise sound, or train.csv
// ('c'). The loader reads gzip whatever a file's name is, so the input may be gzipped or not.
//
// With libFuzzer (clang -fsanitize=fuzzer) it searches. With -DREPLAY, for compilers without it,
// its own main runs the inputs named on the command line.
#include "common/data.h"
#include "common/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRAIN_SAMPLES = 2, TEST_SAMPLES = 1 };

static const char *const NAMES[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                    "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
                                    "train.csv"};
enum { IMAGES, LABELS, TEST_IMAGES, TEST_LABELS, ROWS, FILES };
static const char KINDS[] = "il??c"; // of the inputs. The test files stay as they are.

static char directory[64];

// A condition that does not hold is a finding, as a crash is.
static void require(bool holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "fuzz_loader: %s\n", what);
    abort();
}

static char *path_of(int file) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, NAMES[file]);
    return path;
}

static void write_file(int file, const void *bytes, size_t size) {
    FILE *stream = fopen(path_of(file), "wb");
    require(stream && fwrite(bytes, 1, size, stream) == size && fclose(stream) == 0, "a file");
}

static void remove_files(void) {
    for (int file = 0; file < FILES; ++file)
        unlink(path_of(file));
    rmdir(directory);
}

// Writes the sound version of a file of the IDX data set.
static void write_sound(int file) {
    const uint8_t samples = file == IMAGES || file == LABELS ? TRAIN_SAMPLES : TEST_SAMPLES;
    const uint8_t images[16 + TRAIN_SAMPLES * PIXELS] = {0, 0, 8, 3,  0, 0, 0, samples,
                                                         0, 0, 0, 28, 0, 0, 0, 28};
    const uint8_t labels[8 + TRAIN_SAMPLES] = {0, 0, 8, 1, 0, 0, 0, samples};
    if (file == IMAGES || file == TEST_IMAGES)
        write_file(file, images, 16 + (size_t)samples * PIXELS);
    else
        write_file(file, labels, 8 + (size_t)samples);
}

static void create_files(void) {
    strcpy(directory, access("/dev/shm", W_OK) == 0 ? "/dev/shm/fuzz.XXXXXX" : "/tmp/fuzz.XXXXXX");
    require(mkdtemp(directory), "mkdtemp");
    atexit(remove_files);
    for (int file = IMAGES; file <= TEST_LABELS; ++file)
        write_sound(file);
}

static void check_dataset(const struct dataset *dataset, int samples) {
    require(dataset->samples == samples, "the samples asked for");
    require((uintptr_t)dataset->images % 64 == 0, "images are aligned");
    for (int i = 0; i < samples * PIXELS; ++i)
        require(dataset->images[i] >= 0 && dataset->images[i] <= 1, "pixels are 0 to 1");
    for (int s = 0; s < samples; ++s)
        require(dataset->labels[s] < CLASSES, "labels are 0 to 9");
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    const char *kind = size > 0 ? memchr(KINDS, input[0], FILES) : NULL;
    if (!kind || *kind == '?')
        return 0;
    const int file = (int)(kind - KINDS);
    if (!*directory)
        create_files();
    if (file == ROWS) // they are read only without training images
        unlink(path_of(IMAGES));
    write_file(file, input + 1, size - 1);

    struct data data;
    char *text = NULL;
    size_t length = 0;
    FILE *standard_error = stderr;
    stderr = open_memstream(&text, &length);
    require(stderr, "open_memstream");
    const int status = load_mnist(directory, TRAIN_SAMPLES, TEST_SAMPLES, &data);
    fclose(stderr);
    stderr = standard_error;

    require(status == 0 || status == EXIT_BAD_INPUT, "the status is 0 or 2");
    if (status == 0) {
        require(length == 0, "success is silent");
        check_dataset(&data.train, TRAIN_SAMPLES);
        check_dataset(&data.test, TEST_SAMPLES);
    } else {
        require(length > 1 && strchr(text, '\n') == text + length - 1, "failure is one line");
        require(!data.train.images && !data.test.images, "failure leaves nothing behind");
    }
    free(text);
    free_data(&data);
    if (file == ROWS)
        unlink(path_of(ROWS));
    write_sound(file == ROWS ? IMAGES : file);
    return 0;
}

#ifdef REPLAY
int main(int argc, char **argv) {
    for (int i = 1; i < argc; ++i) {
        static uint8_t input[1 << 20];
        FILE *file = fopen(argv[i], "rb");
        require(file, argv[i]);
        const size_t size = fread(input, 1, sizeof input, file);
        fclose(file);
        LLVMFuzzerTestOneInput(input, size);
    }
    printf("%d inputs hold\n", argc - 1);
    return 0;
}
#endif
