#include "stages/training.h"

#include <math.h>
#include <stdio.h>

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
    OPTION("hidden", INT_FROM_1, hidden, "128", "hidden", "hidden units"),
    OPTION("batch", INT_FROM_1, batch, "64", "batch", "samples in a batch"),
    OPTION("epochs", INT_FROM_0, epochs, "5", "epochs",
           "passes over the training set; 0 trains nothing"),
    OPTION("learning-rate", FLOAT_ABOVE_0, learning_rate, "0.1", "learning_rate",
           "an update is so many times the gradient"),
    OPTION("seed", UINT64, seed, "1", "seed", "seed of the initial weights"),
    OPTION("train", INT_FROM_1, train_samples, "37800", "train_samples",
           "the first N training images"),
    OPTION("test", INT_FROM_1, test_samples, "4200", "test_samples", "the first N test images"),
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

// A multiply-add is two operations. For each sample, W1 takes part in two products and W2 in three.
static double gflops(const struct options *options, double train_s) {
    double hidden = options->hidden;
    double flops = 4.0 * PIXELS * hidden + 6.0 * CLASSES * hidden;
    return train_s > 0 ? options->epochs * (double)options->train_samples * flops / train_s / 1e9
                       : 0;
}

struct options parse_options(int argc, char **argv, const char *about, int max_threads) {
    struct options options = {.data = data_directory("MNIST_DIR", "mnist")};
    const struct common_options common =
        parse_common(argc, argv,
                     &(struct command_line){
                         .about = about,
                         .max_threads = max_threads,
                         .fields = FIELDS,
                         .options = &options,
                         .save = "save-weights",
                         .save_help = "write W1, b1, W2, b2 as little-endian float32, row-major",
                     });
    options.threads = common.threads;
    options.csv = common.csv;
    options.save_weights = common.save;
    options.quiet = common.quiet;
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
    if (!options->quiet) {
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
    struct run run = {*options, *data, *result, gflops(options, result->train_s), peak_rss_mib()};
    if (options->epochs == 0)
        run.result.final_loss = NAN; // an empty field
    const int status = options->csv ? append_row("csv", options->csv, FIELDS, &run) : 0;
    printf("%s: hidden %d, batch %d, epochs %d, %s: train %.3f s%s, %.1f GFLOP/s, loss %s, "
           "accuracy %.4f\n",
           stage_name, options->hidden, options->batch, options->epochs, data->name,
           result->train_s, phases, run.gflops, loss, result->test_accuracy);
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
