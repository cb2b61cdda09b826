#include "stages/training.h"
#include "common/rows.h"
#include "common/terminal.h"

#include <argp.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// Options without a short form have numbers that are not characters.
enum { DATA = 256, HIDDEN, BATCH, EPOCHS, LEARNING_RATE, TRAIN, TEST, FLAG };

static const struct argp_option ARGP_OPTIONS[] = {
    {"data", DATA, "DIR", 0,
     "MNIST as IDX files, raw or .gz, or Kaggle's train.csv ($MNIST_DIR, then the repository's "
     "data/mnist)",
     0},
    {"hidden", HIDDEN, "N", 0, "hidden units (128)", 0},
    {"batch", BATCH, "N", 0, "samples in a batch (64)", 0},
    {"epochs", EPOCHS, "N", 0, "passes over the training set; 0 trains nothing (5)", 0},
    {"learning-rate", LEARNING_RATE, "X", 0, "step of the gradient descent (0.1)", 0},
    {"train", TRAIN, "N", 0, "the first N training images (37800)", 0},
    {"test", TEST, "N", 0, "the first N test images (4200)", 0},
    {0}};

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct options *options = state->input;
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
        options->learning_rate = parse_float("learning-rate", arg, true);
        return 0;
    case TRAIN:
        options->train_samples = parse_int("train", arg, 1, INT_MAX);
        return 0;
    case TEST:
        options->test_samples = parse_int("test", arg, 1, INT_MAX);
        return 0;
    case ARGP_KEY_INIT:
        state->child_inputs[0] = options;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_flag(int key, char *arg, struct argp_state *state) {
    struct options *options = state->input;
    (void)arg;
    if (key != FLAG)
        return ARGP_ERR_UNKNOWN;
    options->flag = true;
    return 0;
}

// A multiply-add is two operations. For each sample, W1 takes part in two products and W2 in three.
static double gflops(const struct options *options, double train_s) {
    double hidden = options->hidden;
    double flops = 4.0 * PIXELS * hidden + 6.0 * CLASSES * hidden;
    return train_s > 0 ? options->epochs * (double)options->train_samples * flops / train_s / 1e9
                       : 0;
}

static struct row make_row(const struct options *options, const struct data *data,
                           const struct result *result) {
    struct row row = begin_row(result->device, result->threads);
    add_int(&row, "hidden", options->hidden);
    add_int(&row, "batch", options->batch);
    add_int(&row, "epochs", options->epochs);
    add_float(&row, "learning_rate", options->learning_rate);
    add_int(&row, "seed", options->seed);
    add_int(&row, "train_samples", options->train_samples);
    add_int(&row, "test_samples", options->test_samples);
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
    return parse_options_and_flag(argc, argv, about, max_threads, NULL, NULL);
}

struct options parse_options_and_flag(int argc, char **argv, const char *about, int max_threads,
                                      const char *flag, const char *flag_help) {
    struct options options = {.data = default_data(),
                              .hidden = 128,
                              .batch = 64,
                              .epochs = 5,
                              .learning_rate = 0.1f,
                              .train_samples = 37800,
                              .test_samples = 4200};
    const struct argp_option flags[] = {{flag, flag ? FLAG : 0, NULL, 0, flag_help, 0}, {0}};
    const struct argp with_flag = {flags, parse_flag, NULL, NULL, NULL, NULL, NULL};
    const struct argp_child children[] = {{&with_flag, 0, NULL, 0}, {0}};
    const struct argp own = {ARGP_OPTIONS, parse_option, NULL, NULL, children, NULL, NULL};
    const struct row row =
        make_row(&options, &(struct data){.name = ""}, &(struct result){.device = ""});
    const struct common_options common =
        parse_common(argc, argv,
                     &(struct command_line){
                         .about = about,
                         .max_threads = max_threads,
                         .own = &own,
                         .own_input = &options,
                         .row = &row,
                         .seed_help = "seed of the initial weights (1)",
                         .save = "save-weights",
                         .save_help = "write W1, b1, W2, b2 as little-endian float32, row-major",
                     });
    options.seed = common.seed;
    options.threads = common.threads;
    options.csv = common.csv;
    options.save_weights = common.save;
    options.quiet = common.quiet;
    if (options.flag && options.csv) {
        fprintf(stderr,
                STAGE ": --%s: found --csv, whose rows have no column for it; expected one of "
                      "the two\n",
                flag);
        exit(EXIT_BAD_INPUT);
    }
    return options;
}

int load_data(const struct options *options, struct data *data) {
    return load_mnist(options->data, options->train_samples, options->test_samples, data);
}

float draw_weight(struct pcg32 *generator, size_t fan_in) {
    return draw_uniform(generator, sqrtf(6.0f / (float)fan_in));
}

double report_epoch(const struct options *options, int epoch, double loss, double start) {
    const double end = seconds();
    if (!options->quiet)
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
    if (!options->quiet) {
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
    int status = options->csv ? append_row(options->csv, &row) : 0;
    print_line("%s: hidden %d, batch %d, epochs %d, %s: train %.3f s%s, %.1f GFLOP/s, loss %s, "
               "accuracy %.4f\n",
               STAGE, options->hidden, options->batch, options->epochs, data->name, result->train_s,
               phases, gflops(options, result->train_s), loss, result->test_accuracy);
    return status;
}

int write_weights(const char *path, size_t hidden, const float *weights1, const float *bias1,
                  const float *weights2, const float *bias2) {
    const struct array arrays[] = {{weights1, PIXELS * hidden},
                                   {bias1, hidden},
                                   {weights2, hidden * CLASSES},
                                   {bias2, CLASSES}};
    return write_arrays("save-weights", path, arrays, sizeof arrays / sizeof *arrays);
}
