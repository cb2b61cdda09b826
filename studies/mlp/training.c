#include "studies/mlp/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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
           "MNIST as IDX files, raw or .gz, or Kaggle's train.csv ($MNIST_DIR, then the "
           "repository's data/mnist)"),
    OPTION("hidden", LIST, hidden, "128,128", "hidden", "units of each hidden layer, one to eight"),
    OPTION("batch", INT_FROM_1, batch, "128", "batch", "samples in a batch"),
    OPTION("epochs", INT_FROM_0, epochs, "2", "epochs",
           "passes over the training set; 0 trains nothing"),
    OPTION("learning-rate", FLOAT_ABOVE_0, learning_rate, "0.1", "learning_rate",
           "an update is so many times the gradient"),
    OPTION("seed", UINT64, seed, "1", "seed", "seed of the initial weights"),
    OPTION("train", INT_FROM_1, train_samples, "60000", "train_samples",
           "the first N training images"),
    OPTION("test", INT_FROM_1, test_samples, "10000", "test_samples", "the first N test images"),
    COLUMN("dataset", TEXT, data.name),
    COLUMN("load_s", SECONDS, data.load_s),
    COLUMN("setup_s", SECONDS, result.setup_s),
    OPTIONAL("warmup_s", SECONDS, result.warmup_s),
    COLUMN("train_s", SECONDS, result.train_s),
    OPTIONAL("forward_s", SECONDS, result.forward.total),
    OPTIONAL("backward_s", SECONDS, result.backward.total),
    COLUMN("final_loss", NUMBER, result.final_loss),
    COLUMN("test_accuracy", NUMBER, result.test_accuracy),
    COLUMN("gflops", NUMBER, gflops),
    COLUMN("peak_rss_mib", NUMBER, peak_rss_mib),
    OPTIONAL("peak_vram_mib", NUMBER, result.peak_vram_mib),
    {0},
};

// Sets the sizes of the layers.
static void parse_hidden(struct options *options) {
    const char *next = options->hidden;
    int count = 0;
    for (;;) {
        char *end;
        const unsigned long width = *next >= '1' && *next <= '9' ? strtoul(next, &end, 10) : 0;
        if (width < 1 || width > MAX_WIDTH || count == MAX_HIDDEN || (*end && *end != ',')) {
            fprintf(
                stderr,
                "%s: --hidden: found '%s', expected the units of one to %d layers, from 1 to %d "
                "each, such as 128,128\n",
                stage_name, options->hidden, MAX_HIDDEN, MAX_WIDTH);
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

// A multiply-add is two operations. For each sample, the weights of a layer take part in three
// products, and those of the first layer in two: nobody needs the gradient of the pixels.
static double gflops(const struct options *options, double train_s) {
    double flops = 0;
    for (int l = 0; l < options->layers; ++l)
        flops += (l > 0 ? 6.0 : 4.0) * (double)options->sizes[l] * (double)options->sizes[l + 1];
    return train_s > 0 ? options->epochs * (double)options->train_samples * flops / train_s / 1e9
                       : 0;
}

struct options parse_options(int argc, char **argv, const char *about, int max_threads) {
    struct options options = {.data = data_directory("MNIST_DIR", "mnist")};
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
    parse_hidden(&options);
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
    struct pcg32 generator = pcg32_start(options->seed, (uint64_t)layer + 1);
    for (size_t i = 0; i < count; ++i)
        weights[i] = draw_uniform(&generator, sqrtf(6.0f / (float)inputs));
    return weights;
}

double report_epoch(const struct options *options, int epoch, double loss, double start) {
    const double end = seconds();
    if (!options->common.quiet) {
        printf("epoch %d of %d: loss %#.5g\n", epoch + 1, options->epochs, loss);
        print_rest(epoch + 1, options->epochs, (end - start) / (epoch + 1));
    }
    return start + (seconds() - end);
}

int report_result(const struct options *options, const struct data *data,
                  const struct result *result) {
    if (options->epochs > 0 && !isfinite(result->final_loss)) {
        fprintf(stderr, "%s: the loss became %g: try a --learning-rate below %g\n", stage_name,
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
    struct run run = {*options, *data, *result, gflops(options, result->train_s), peak_rss_mib()};
    if (options->epochs == 0)
        run.result.final_loss = NAN; // an empty field
    const char *csv = options->common.csv;
    const int status = csv ? append_row("csv", csv, FIELDS, &run) : 0;
    printf("%s: hidden %s, batch %d, epochs %d, %s: train %.3f s%s, %.1f GFLOP/s, loss %s, "
           "accuracy %.4f\n",
           stage_name, options->hidden, options->batch, options->epochs, data->name,
           result->train_s, phases, run.gflops, loss, result->test_accuracy);
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
