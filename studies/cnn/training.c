#include "studies/cnn/training.h"
#include "common/rows.h"
#include "common/terminal.h"

#include <argp.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Options without a short form have numbers that are not characters. parse_common() has others.
enum {
    DATA = 1024,
    BATCH,
    EPOCHS,
    LEARNING_RATE,
    MOMENTUM,
    TRAIN,
    TEST,
    NORMALIZE,
    PAD,
    EPOCHS_CSV,
    EPOCHS_COLUMNS
};

static const struct argp_option ARGP_OPTIONS[] = {
    {"data", DATA, "DIR", 0,
     "MNIST as IDX files, raw or .gz, or Kaggle's train.csv ($MNIST_DIR, then the repository's "
     "data/mnist)",
     1},
    {"batch", BATCH, "N", 0, "samples in a batch (512)", 1},
    {"epochs", EPOCHS, "N", 0, "passes over the training set; 0 trains nothing (10)", 1},
    {"learning-rate", LEARNING_RATE, "X", 0, "step of the gradient descent (0.01)", 1},
    {"momentum", MOMENTUM, "X", 0, "part of a step that the next one repeats (0.9)", 1},
    {"train", TRAIN, "N", 0, "the first N training images (60000)", 1},
    {"test", TEST, "N", 0, "the first N test images (10000)", 1},
    {"normalize", NORMALIZE, NULL, 0, "take 0.1307 off the pixels / 255, and divide by 0.3081", 1},
    {"pad", PAD, NULL, 0, "repeat the first training images until the last batch is full", 1},
    {"epochs-csv", EPOCHS_CSV, "FILE", 0,
     "append a row for each epoch, after a header if FILE is new", 1},
    {"epochs-columns", EPOCHS_COLUMNS, NULL, 0, "print the header of --epochs-csv, and stop", 1},
    {0}};

// Multiply-adds of a sample. A convolution needs the outputs that reach a pool: 10 × 10 of the
// second one's 11 × 11. A layer takes the same number for its outputs, for the gradient of its
// weights, and for that of its inputs. Nobody needs the gradient of the pixels.
enum {
    USED2 = POOL * POOLED2,
    PRODUCTS1 = SIDE1 * SIDE1 * WEIGHTS1,
    PRODUCTS2 = USED2 * USED2 * WEIGHTS2,
    FORWARD = PRODUCTS1 + PRODUCTS2 + WEIGHTS3 + WEIGHTS4,
    BACKWARD = PRODUCTS1 + 2 * (PRODUCTS2 + WEIGHTS3 + WEIGHTS4)
};

// Adds a column that is empty if it does not apply.
static void add_if(bool applies, struct row *row, const char *name, double value) {
    if (applies)
        add_number(row, name, value);
    else
        add_text(row, name, "");
}

static void add_settings(struct row *row, const struct options *options) {
    add_float(row, "learning_rate", options->learning_rate);
    add_float(row, "momentum", options->momentum);
    add_int(row, "normalize", options->normalize);
    add_int(row, "pad", options->pad);
    add_int(row, "seed", options->common.seed);
    add_int(row, "train_samples", (unsigned)options->train_samples);
    add_int(row, "test_samples", (unsigned)options->test_samples);
}

// A multiply-add is two operations.
static double gflops(const struct options *options, const struct data *data, double train_s) {
    const double samples = options->epochs * (double)data->train.samples;
    return train_s > 0 ? 2.0 * (FORWARD + BACKWARD) * samples / train_s / 1e9 : 0;
}

static struct row make_row(const struct options *options, const struct data *data,
                           const struct result *result) {
    const bool trained = options->epochs > 0;
    const double samples = options->epochs * (double)data->train.samples;
    struct row row = begin_row(result->device, result->threads);
    add_int(&row, "batch", (unsigned)options->batch);
    add_int(&row, "epochs", (unsigned)options->epochs);
    add_settings(&row, options);
    add_text(&row, "dataset", data->name);
    add_seconds(&row, "load_s", data->load_s);
    add_seconds(&row, "setup_s", result->setup_s);
    add_optional_seconds(&row, "warmup_s", result->warmup_s);
    add_seconds(&row, "train_s", result->train_s);
    add_optional_seconds(&row, "forward_s", result->forward.total);
    add_optional_seconds(&row, "backward_s", result->backward.total);
    add_optional_seconds(&row, "epoch_s", trained ? result->train_s / options->epochs : 0);
    add_if(trained, &row, "samples_per_s", samples / result->train_s);
    add_if(trained, &row, "final_loss", result->final_loss);
    add_if(trained, &row, "train_accuracy", result->train_accuracy);
    add_number(&row, "test_accuracy", result->test_accuracy);
    add_if(trained, &row, "best_test_accuracy", result->best_test_accuracy);
    add_number(&row, "gflops", gflops(options, data, result->train_s));
    add_peaks(&row, result->peak_vram_mib);
    return row;
}

// The memory that the process has now, in MiB. Linux counts it in pages.
static double resident_mib(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (file) {
        if (fscanf(file, "%*u %lu", &pages) != 1)
            pages = 0;
        fclose(file);
    }
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static struct row make_epoch_row(const struct options *options, const struct data *data,
                                 const struct result *result, const struct epoch *epoch) {
    const double samples = data->train.samples;
    struct row row = begin_row(result->device, result->threads);
    row.option = "epochs-csv";
    add_int(&row, "batch", (unsigned)options->batch);
    add_settings(&row, options);
    add_text(&row, "dataset", data->name);
    add_int(&row, "run", options->run);
    add_int(&row, "epoch", (unsigned)epoch->number);
    add_seconds(&row, "epoch_s", epoch->epoch_s);
    add_number(&row, "loss", epoch->score.loss / samples);
    add_number(&row, "train_accuracy", (double)epoch->score.right / samples);
    add_number(&row, "test_accuracy", epoch->test_accuracy);
    add_number(&row, "samples_per_s", samples / epoch->epoch_s);
    add_number(&row, "rss_mib", resident_mib());
    add_if(epoch->vram_mib > 0, &row, "vram_mib", epoch->vram_mib);
    return row;
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct options *options = state->input;
    switch (key) {
    case DATA:
        options->data = arg;
        return 0;
    case BATCH:
        options->batch = parse_int("batch", arg, 1, INT_MAX);
        return 0;
    case EPOCHS:
        options->epochs = parse_int("epochs", arg, 0, INT_MAX);
        return 0;
    case LEARNING_RATE:
        options->learning_rate = parse_float("learning-rate", arg, true);
        return 0;
    case MOMENTUM:
        options->momentum = parse_float("momentum", arg, false);
        if (options->momentum >= 1) {
            fprintf(stderr, STAGE ": --momentum: found '%s', expected a number below 1\n", arg);
            exit(EXIT_BAD_INPUT);
        }
        return 0;
    case TRAIN:
        options->train_samples = parse_int("train", arg, 1, INT_MAX);
        return 0;
    case TEST:
        options->test_samples = parse_int("test", arg, 1, INT_MAX);
        return 0;
    case NORMALIZE:
        options->normalize = true;
        return 0;
    case PAD:
        options->pad = true;
        return 0;
    case EPOCHS_CSV:
        options->epochs_csv = arg;
        return 0;
    case EPOCHS_COLUMNS: {
        const struct row row = make_epoch_row(options, &(struct data){.name = ""},
                                              &(struct result){.device = ""}, &(struct epoch){0});
        puts(row.names);
        exit(0);
    }
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

struct options parse_options(int argc, char **argv, const char *about, int max_threads) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct options options = {.data = default_data(),
                              .batch = 512,
                              .epochs = 10,
                              .learning_rate = 0.01f,
                              .momentum = 0.9f,
                              .train_samples = 60000,
                              .test_samples = 10000,
                              .run = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000};
    const struct argp own = {ARGP_OPTIONS, parse_option, NULL, NULL, NULL, NULL, NULL};
    const struct data no_data = {.name = ""};
    const struct result no_result = {.device = ""};
    const struct row row = make_row(&options, &no_data, &no_result);
    const struct row epoch_row = make_epoch_row(&options, &no_data, &no_result, &(struct epoch){0});
    const struct command_line command_line = {
        .about = about,
        .max_threads = max_threads,
        .own = &own,
        .own_input = &options,
        .row = &row,
        .seed_help = "seed of the initial weights (1)",
        .save = "save-weights",
        .save_help = "write W1, b1, W2, b2, ... as little-endian float32, row-major",
    };
    options.common = parse_common(argc, argv, &command_line);
    if (options.epochs_csv)
        check_more_rows(&command_line, &options.common, options.epochs_csv, &epoch_row);
    return options;
}

// Continues a data set with its first samples, up to a multiple of the batch. Returns 0 or
// EXIT_BAD_INPUT.
static int pad(struct dataset *dataset, int batch) {
    const size_t samples = (size_t)dataset->samples, size = (size_t)batch;
    const size_t padded = (samples + size - 1) / size * size;
    float *images = padded <= INT_MAX ? try_allocate_array(padded * PIXELS, sizeof *images) : NULL;
    uint8_t *labels = images ? malloc(padded) : NULL;
    if (!labels) {
        fprintf(
            stderr,
            STAGE
            ": --pad: out of memory: %zu images as floats need %.1f MiB; try a smaller --batch\n",
            padded, (double)padded * PIXELS * sizeof(float) / (1 << 20));
        free(images);
        return EXIT_BAD_INPUT;
    }
    for (size_t s = 0; s < padded; ++s) {
        memcpy(images + s * PIXELS, dataset->images + s % samples * PIXELS,
               PIXELS * sizeof *images);
        labels[s] = dataset->labels[s % samples];
    }
    free(dataset->images);
    free(dataset->labels);
    *dataset = (struct dataset){(int)padded, images, labels};
    return 0;
}

static void normalize(struct dataset *dataset) {
    for (size_t i = 0; i < (size_t)dataset->samples * PIXELS; ++i)
        dataset->images[i] = (dataset->images[i] - 0.1307f) / 0.3081f;
}

int load_data(const struct options *options, struct data *data) {
    const double start = seconds();
    int status = load_mnist(options->data, options->train_samples, options->test_samples, data);
    if (!status && options->normalize) {
        normalize(&data->train);
        normalize(&data->test);
    }
    if (!status && options->pad && pad(&data->train, options->batch)) {
        free_data(data);
        status = EXIT_BAD_INPUT;
    }
    data->load_s = seconds() - start;
    return status;
}

// The sizes of the layers. A sum has so many inputs.
static const struct {
    size_t inputs, weights, biases;
} SIZES[LAYERS] = {{TAPS, WEIGHTS1, CHANNELS1},
                   {(size_t)CHANNELS1 * TAPS, WEIGHTS2, CHANNELS2},
                   {FEATURES, WEIGHTS3, HIDDEN},
                   {HIDDEN, WEIGHTS4, CLASSES}};

float *draw_weights(const struct options *options, int layer) {
    const size_t count = SIZES[layer - 1].weights;
    const float limit = sqrtf(6.0f / (float)SIZES[layer - 1].inputs);
    float *weights = allocate_floats(count);
    struct pcg32 generator = pcg32_start(options->common.seed, (uint64_t)layer);
    for (size_t i = 0; i < count; ++i)
        weights[i] = draw_uniform(&generator, limit);
    return weights;
}

int report_epoch(const struct options *options, const struct data *data, struct result *result,
                 const struct epoch *epoch) {
    const double samples = data->train.samples;
    result->train_s += epoch->epoch_s;
    result->final_loss = epoch->score.loss / samples;
    result->train_accuracy = (double)epoch->score.right / samples;
    result->test_accuracy = epoch->test_accuracy;
    result->best_test_accuracy = fmax(result->best_test_accuracy, epoch->test_accuracy);
    if (!isfinite(result->final_loss)) {
        fprintf(stderr, STAGE ": the loss became %g in epoch %d: try a --learning-rate below %g\n",
                result->final_loss, epoch->number, (double)options->learning_rate);
        return EXIT_RUN_FAILED;
    }
    if (!options->common.quiet)
        print_epoch(epoch->number, options->epochs, result->train_s / epoch->number,
                    "epoch %d of %d: %.3f s, loss %#.5g, accuracy %.4f in training, %.4f in the "
                    "test\n",
                    epoch->number, options->epochs, epoch->epoch_s, result->final_loss,
                    result->train_accuracy, result->test_accuracy);
    if (!options->epochs_csv)
        return 0;
    const struct row row = make_epoch_row(options, data, result, epoch);
    return append_row(options->epochs_csv, &row);
}

int report_result(const struct options *options, const struct data *data,
                  const struct result *result) {
    if (!options->common.quiet) {
        print_timer("forward", &result->forward, "batches");
        print_timer("backward", &result->backward, "batches");
    }
    char loss[32] = "untrained", phases[80] = "";
    if (options->epochs > 0)
        snprintf(loss, sizeof loss, "%#.5g", result->final_loss);
    if (result->forward.count > 0)
        snprintf(phases, sizeof phases, ", forward %.3f s, backward %.3f s", result->forward.total,
                 result->backward.total);
    const struct row row = make_row(options, data, result);
    int status = options->common.csv ? append_row(options->common.csv, &row) : 0;
    print_line(
        "%s: batch %d, epochs %d, %s: train %.3f s%s, %.1f GFLOP/s, loss %s, accuracy %.4f\n",
        STAGE, options->batch, options->epochs, data->name, result->train_s, phases,
        gflops(options, data, result->train_s), loss, result->test_accuracy);
    return status;
}

int write_weights(const struct options *options, float *const weights[LAYERS],
                  float *const biases[LAYERS]) {
    struct array arrays[2 * LAYERS];
    for (size_t l = 0; l < LAYERS; ++l) {
        arrays[2 * l] = (struct array){weights[l], SIZES[l].weights};
        arrays[2 * l + 1] = (struct array){biases[l], SIZES[l].biases};
    }
    return write_arrays("save-weights", options->common.save, arrays,
                        sizeof arrays / sizeof *arrays);
}
