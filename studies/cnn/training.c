#include "studies/cnn/training.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// What a row is made of, that of a run or that of an epoch.
struct run {
    struct options options;
    struct data data;
    struct result result;
    int epoch;
    double epoch_s, samples_per_s, gflops, rss_mib, vram_mib;
};

// The settings of each epoch.
#define SETTINGS                                                                                   \
    OPTION("learning-rate", FLOAT_ABOVE_0, learning_rate, "0.01", "learning_rate",                 \
           "an update is so many times the gradient"),                                             \
        OPTION("momentum", FLOAT_BELOW_1, momentum, "0.9", "momentum",                             \
               "part of an update that the next one repeats"),                                     \
        OPTION("normalize", FLAG, normalize, NULL, "normalize",                                    \
               "take 0.1307 off the pixels / 255, and divide by 0.3081"),                          \
        OPTION("pad", FLAG, pad, NULL, "pad",                                                      \
               "repeat the first training images until the last batch is full"),                   \
        OPTION("seed", UINT64, seed, "1", "seed", "seed of the initial weights"),                  \
        OPTION("train", INT_FROM_1, train_samples, "60000", "train_samples",                       \
               "the first N training images"),                                                     \
        OPTION("test", INT_FROM_1, test_samples, "10000", "test_samples",                          \
               "the first N test images"),                                                         \
        COLUMN("dataset", TEXT, data.name)

static const struct field FIELDS[] = {
    COLUMN("device", TEXT, result.device),
    OPTIONAL("threads", INT_FROM_0, result.threads),
    OPTION("data", DIRECTORY, data, NULL, NULL,
           "MNIST as IDX files, raw or .gz, or Kaggle's train.csv ($MNIST_DIR, then the "
           "repository's data/mnist)"),
    OPTION("batch", INT_FROM_1, batch, "512", "batch", "samples in a batch"),
    OPTION("epochs", INT_FROM_0, epochs, "10", "epochs",
           "passes over the training set; 0 trains nothing"),
    SETTINGS,
    COLUMN("load_s", SECONDS, data.load_s),
    COLUMN("setup_s", SECONDS, result.setup_s),
    OPTIONAL("warmup_s", SECONDS, result.warmup_s),
    COLUMN("train_s", SECONDS, result.train_s),
    OPTIONAL("forward_s", SECONDS, result.forward.total),
    OPTIONAL("backward_s", SECONDS, result.backward.total),
    COLUMN("epoch_s", SECONDS, epoch_s),
    COLUMN("samples_per_s", NUMBER, samples_per_s),
    COLUMN("final_loss", NUMBER, result.final_loss),
    COLUMN("train_accuracy", NUMBER, result.train_accuracy),
    COLUMN("test_accuracy", NUMBER, result.test_accuracy),
    COLUMN("best_test_accuracy", NUMBER, result.best_test_accuracy),
    COLUMN("gflops", NUMBER, gflops),
    COLUMN("peak_rss_mib", NUMBER, rss_mib),
    OPTIONAL("peak_vram_mib", NUMBER, vram_mib),
    OPTION("epochs-csv", FILE_NAME, epochs_csv, NULL, NULL,
           "append a row for each epoch, after a header if FILE is new"),
    OPTION("epochs-columns", FLAG, epochs_columns, NULL, NULL,
           "print the header of --epochs-csv, and stop"),
    {0},
};

static const struct field EPOCH_FIELDS[] = {
    COLUMN("device", TEXT, result.device),
    OPTIONAL("threads", INT_FROM_0, result.threads),
    COLUMN("batch", INT_FROM_1, options.batch),
    SETTINGS,
    COLUMN("run", UINT64, options.run),
    COLUMN("epoch", INT_FROM_1, epoch),
    COLUMN("epoch_s", SECONDS, epoch_s),
    COLUMN("loss", NUMBER, result.final_loss),
    COLUMN("train_accuracy", NUMBER, result.train_accuracy),
    COLUMN("test_accuracy", NUMBER, result.test_accuracy),
    COLUMN("samples_per_s", NUMBER, samples_per_s),
    COLUMN("rss_mib", NUMBER, rss_mib),
    OPTIONAL("vram_mib", NUMBER, vram_mib),
    {0},
};

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

// A multiply-add is two operations.
static double gflops(const struct options *options, const struct data *data, double train_s) {
    const double samples = options->epochs * (double)data->train.samples;
    return train_s > 0 ? 2.0 * (FORWARD + BACKWARD) * samples / train_s / 1e9 : 0;
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

struct options parse_options(int argc, char **argv, const char *about, int max_threads) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct options options = {.data = data_directory("MNIST_DIR", "mnist"),
                              .run = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000};
    options.common = parse_common(
        argc, argv,
        &(struct command_line){
            .about = about,
            .max_threads = max_threads,
            .fields = FIELDS,
            .options = &options,
            .save = "save-weights",
            .save_help = "write W1, b1, W2, b2, ... as little-endian float32, row-major",
        });
    if (options.epochs_columns) {
        print_row(stdout, EPOCH_FIELDS, NULL);
        exit(0);
    }
    if (options.epochs_csv)
        check_rows("epochs-csv", options.epochs_csv, EPOCH_FIELDS);
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
            "%s: --pad: out of memory: %zu images as floats need %.1f MiB; try a smaller --batch\n",
            stage_name, padded, (double)padded * PIXELS * sizeof(float) / (1 << 20));
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
    struct pcg32 generator = pcg32_start(options->seed, (uint64_t)layer);
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
        fprintf(stderr, "%s: the loss became %g in epoch %d: try a --learning-rate below %g\n",
                stage_name, result->final_loss, epoch->number, (double)options->learning_rate);
        return EXIT_RUN_FAILED;
    }
    if (!options->common.quiet) {
        printf("epoch %d of %d: %.3f s, loss %#.5g, accuracy %.4f in training, %.4f in the test\n",
               epoch->number, options->epochs, epoch->epoch_s, result->final_loss,
               result->train_accuracy, result->test_accuracy);
        print_rest(epoch->number, options->epochs, epoch->epoch_s);
    }
    if (!options->epochs_csv)
        return 0;
    const struct run run = {.options = *options,
                            .data = *data,
                            .result = *result,
                            .epoch = epoch->number,
                            .epoch_s = epoch->epoch_s,
                            .samples_per_s = samples / epoch->epoch_s,
                            .rss_mib = resident_mib(),
                            .vram_mib = epoch->vram_mib};
    return append_row("epochs-csv", options->epochs_csv, EPOCH_FIELDS, &run);
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
    struct run run = {.options = *options,
                      .data = *data,
                      .result = *result,
                      .epoch_s = result->train_s / options->epochs,
                      .samples_per_s =
                          options->epochs * (double)data->train.samples / result->train_s,
                      .gflops = gflops(options, data, result->train_s),
                      .rss_mib = peak_rss_mib(),
                      .vram_mib = result->peak_vram_mib};
    if (options->epochs == 0) // empty fields
        run.result.final_loss = run.result.train_accuracy = run.result.best_test_accuracy = NAN;
    const char *csv = options->common.csv;
    const int status = csv ? append_row("csv", csv, FIELDS, &run) : 0;
    printf("%s: batch %d, epochs %d, %s: train %.3f s%s, %.1f GFLOP/s, loss %s, accuracy %.4f\n",
           stage_name, options->batch, options->epochs, data->name, result->train_s, phases,
           run.gflops, loss, result->test_accuracy);
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
