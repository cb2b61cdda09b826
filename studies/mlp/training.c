#include "studies/mlp/training.h"
#include "common/rows.h"
#include "common/terminal.h"

#include <argp.h>
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Options without a short form have numbers that are not characters. parse_common() has others.
enum { DATA = 1024, HIDDEN, BATCH, EPOCHS, LEARNING_RATE, TRAIN, TEST };

static const struct argp_option ARGP_OPTIONS[] = {
    {"data", DATA, "DIR", 0,
     "MNIST as IDX files, raw or .gz, or Kaggle's train.csv ($MNIST_DIR, then the repository's "
     "data/mnist)",
     1},
    {"hidden", HIDDEN, "LIST", 0, "units of each hidden layer, one to eight (128,128)", 1},
    {"batch", BATCH, "N", 0, "samples in a batch (128)", 1},
    {"epochs", EPOCHS, "N", 0, "passes over the training set; 0 trains nothing (2)", 1},
    {"learning-rate", LEARNING_RATE, "X", 0, "step of the gradient descent (0.1)", 1},
    {"train", TRAIN, "N", 0, "the first N training images (60000)", 1},
    {"test", TEST, "N", 0, "the first N test images (10000)", 1},
    {0}};

static void parse_hidden(struct options *options, const char *text) {
    const char *next = text;
    int count = 0;
    for (;;) {
        char *end;
        const unsigned long width = isdigit((unsigned char)*next) ? strtoul(next, &end, 10) : 0;
        if (width < 1 || width > MAX_WIDTH || count == MAX_HIDDEN || (*end && *end != ',')) {
            fprintf(stderr,
                    STAGE
                    ": --hidden: found '%s', expected the units of one to %d layers, from 1 to %d "
                    "each, such as 128,128\n",
                    text, MAX_HIDDEN, MAX_WIDTH);
            exit(EXIT_BAD_INPUT);
        }
        options->sizes[++count] = width;
        if (!*end)
            break;
        next = end + 1;
    }
    options->sizes[0] = PIXELS;
    options->sizes[count + 1] = CLASSES;
    options->layers = count + 1;
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct options *options = state->input;
    switch (key) {
    case DATA:
        options->data = arg;
        return 0;
    case HIDDEN:
        parse_hidden(options, arg);
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

// The list of --hidden.
struct list {
    char text[16 * MAX_HIDDEN];
};

static struct list hidden_list(const struct options *options) {
    struct list list = {""};
    for (int l = 1; l < options->layers; ++l)
        sprintf(list.text + strlen(list.text), "%s%zu", l > 1 ? "," : "", options->sizes[l]);
    return list;
}

// A multiply-add is two operations. For each sample, the weights of a layer take part in three
// products, and those of the first layer in two: nobody needs the gradient of the pixels.
static double gflops(const struct options *options, double train_s) {
    double flops = 0;
    for (int l = 0; l < options->layers; ++l)
        flops += (l > 0 ? 6.0 : 4.0) * (double)options->sizes[l] * (double)options->sizes[l + 1];
    return train_s > 0 ? options->epochs * (double)options->train_samples * flops / train_s / 1e9
                       : 0;
}

static struct row make_row(const struct options *options, const struct data *data,
                           const struct result *result) {
    struct row row = begin_row(result->device, result->threads);
    // A field with a comma stands in double quotes, as in every CSV file (RFC 4180).
    struct list quoted = {"\""}, list = hidden_list(options);
    add_text(&row, "hidden",
             strchr(list.text, ',') ? strcat(strcat(quoted.text, list.text), "\"") : list.text);
    add_int(&row, "batch", (unsigned)options->batch);
    add_int(&row, "epochs", (unsigned)options->epochs);
    add_float(&row, "learning_rate", options->learning_rate);
    add_int(&row, "seed", options->common.seed);
    add_int(&row, "train_samples", (unsigned)options->train_samples);
    add_int(&row, "test_samples", (unsigned)options->test_samples);
    add_text(&row, "dataset", data->name);
    add_seconds(&row, "load_s", data->load_s);
    add_seconds(&row, "setup_s", result->setup_s);
    add_optional_seconds(&row, "warmup_s", result->warmup_s);
    add_seconds(&row, "train_s", result->train_s);
    add_optional_seconds(&row, "forward_s", result->forward.total);
    add_optional_seconds(&row, "backward_s", result->backward.total);
    if (options->epochs > 0)
        add_number(&row, "final_loss", result->final_loss);
    else
        add_text(&row, "final_loss", "");
    add_number(&row, "test_accuracy", result->test_accuracy);
    add_number(&row, "gflops", gflops(options, result->train_s));
    add_peaks(&row, result->peak_vram_mib);
    return row;
}

struct options parse_options(int argc, char **argv, const char *about, int max_threads) {
    struct options options = {.data = default_data(),
                              .layers = 3,
                              .sizes = {PIXELS, 128, 128, CLASSES},
                              .batch = 128,
                              .epochs = 2,
                              .learning_rate = 0.1f,
                              .train_samples = 60000,
                              .test_samples = 10000};
    const struct argp own = {ARGP_OPTIONS, parse_option, NULL, NULL, NULL, NULL, NULL};
    const struct row row =
        make_row(&options, &(struct data){.name = ""}, &(struct result){.device = ""});
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
    return options;
}

int load_data(const struct options *options, struct data *data) {
    return load_mnist(options->data, options->train_samples, options->test_samples, data);
}

size_t widest_layer(const struct options *options) {
    size_t widest = 0;
    for (int l = 1; l < options->layers; ++l)
        widest = options->sizes[l] > widest ? options->sizes[l] : widest;
    return widest;
}

float *draw_weights(const struct options *options, int layer) {
    const size_t inputs = options->sizes[layer], count = inputs * options->sizes[layer + 1];
    float *weights = allocate_floats(count);
    struct pcg32 generator = pcg32_start(options->common.seed, (uint64_t)layer + 1);
    for (size_t i = 0; i < count; ++i)
        weights[i] = draw_uniform(&generator, sqrtf(6.0f / (float)inputs));
    return weights;
}

double report_epoch(const struct options *options, int epoch, double loss, double start) {
    const double end = seconds();
    if (!options->common.quiet)
        print_epoch(epoch + 1, options->epochs, (end - start) / (epoch + 1),
                    "epoch %d of %d: loss %#.5g\n", epoch + 1, options->epochs, loss);
    return start + (seconds() - end);
}

int report_result(const struct options *options, const struct data *data,
                  const struct result *result) {
    if (options->epochs > 0 && !isfinite(result->final_loss)) {
        fprintf(stderr, STAGE ": the loss became %g: try a --learning-rate below %g\n",
                result->final_loss, (double)options->learning_rate);
        return EXIT_RUN_FAILED;
    }
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
    print_line("%s: hidden %s, batch %d, epochs %d, %s: train %.3f s%s, %.1f GFLOP/s, loss %s, "
               "accuracy %.4f\n",
               STAGE, hidden_list(options).text, options->batch, options->epochs, data->name,
               result->train_s, phases, gflops(options, result->train_s), loss,
               result->test_accuracy);
    return status;
}

int write_weights(const struct options *options, float *const weights[], float *const biases[]) {
    struct array arrays[2 * MAX_LAYERS];
    for (size_t l = 0; l < (size_t)options->layers; ++l) {
        const size_t inputs = options->sizes[l], outputs = options->sizes[l + 1];
        arrays[2 * l] = (struct array){weights[l], inputs * outputs};
        arrays[2 * l + 1] = (struct array){biases[l], outputs};
    }
    return write_arrays("save-weights", options->common.save, arrays, 2 * (size_t)options->layers);
}
