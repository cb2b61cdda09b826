// Trains the network with OpenBLAS. Every product is a cblas_sgemm. The products for the weight
// gradients include the update, W ← W − lr·gradient. The compiler vectorizes the other loops.
//
// Shapes: n samples in a batch, H hidden units; arrays are row-major.
#include "stages/training.h"

#include <cblas.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct network {
    int hidden;         // H
    float *weights1;    // 784 × H
    float *bias1;       // H
    float *weights2;    // H × 10
    float *bias2;       // 10
    float *activations; // n × H: a
    float *d_hidden;    // n × H: da
    float *outputs;     // n × 10: z, then p, then dz
};

static struct network create(const struct options *options) {
    const size_t hidden = (size_t)options->hidden, n = largest_batch(options);
    struct network network = {
        .hidden = options->hidden,
        .weights1 = allocate_floats(PIXELS * hidden),
        .bias1 = allocate_floats(hidden),
        .weights2 = allocate_floats(hidden * CLASSES),
        .bias2 = allocate_floats(CLASSES),
        .activations = allocate_floats(n * hidden),
        .d_hidden = allocate_floats(n * hidden),
        .outputs = allocate_floats(n * CLASSES),
    };
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t i = 0; i < PIXELS * hidden; ++i)
        network.weights1[i] = draw_weight(&generator, PIXELS);
    generator = pcg32_start(options->seed, 2);
    for (size_t i = 0; i < hidden * CLASSES; ++i)
        network.weights2[i] = draw_weight(&generator, hidden);
    return network;
}

static void destroy(struct network *network) {
    free(network->weights1);
    free(network->bias1);
    free(network->weights2);
    free(network->bias2);
    free(network->activations);
    free(network->d_hidden);
    free(network->outputs);
}

// Sets each of the n rows to the bias. A product is then added to them.
static void set_rows(float *rows, const float *bias, int n, int columns) {
    for (int s = 0; s < n; ++s)
        memcpy(rows + (size_t)s * columns, bias, (size_t)columns * sizeof(float));
}

// Sets a and p for a batch. Returns its loss.
static double forward(struct network *network, const struct batch *batch) {
    const int n = (int)batch->samples, hidden = network->hidden;
    float *restrict a = network->activations, *restrict p = network->outputs;

    set_rows(a, network->bias1, n, hidden);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, hidden, PIXELS, 1, batch->images,
                PIXELS, network->weights1, hidden, 1, a, hidden);
    for (size_t i = 0; i < (size_t)n * hidden; ++i)
        a[i] = a[i] > 0 ? a[i] : 0;
    set_rows(p, network->bias2, n, CLASSES);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, CLASSES, hidden, 1, a, hidden,
                network->weights2, CLASSES, 1, p, CLASSES);

    // These loops are separate, so that the compiler takes its vector functions for exp.
    double loss = 0;
    for (int s = 0; s < n; ++s) {
        float *z = p + (size_t)s * CLASSES, max = z[0];
        for (int o = 1; o < CLASSES; ++o)
            max = z[o] > max ? z[o] : max;
        for (int o = 0; o < CLASSES; ++o)
            z[o] -= max;
        loss -= z[batch->labels[s]];
    }
    for (int i = 0; i < n * CLASSES; ++i)
        p[i] = expf(p[i]);
    for (int s = 0; s < n; ++s) {
        float sum = 0;
        for (int o = 0; o < CLASSES; ++o)
            sum += p[s * CLASSES + o];
        for (int o = 0; o < CLASSES; ++o)
            p[s * CLASSES + o] /= sum;
        loss += logf(sum);
    }
    return loss / n;
}

// Takes one step down the gradient of the batch that forward() has just seen.
static void backward(struct network *network, const struct batch *batch, float learning_rate) {
    const int n = (int)batch->samples, hidden = network->hidden;
    float *restrict a = network->activations, *restrict da = network->d_hidden;
    float *restrict dz = network->outputs, *restrict bias1 = network->bias1;

    for (int s = 0; s < n; ++s)
        dz[s * CLASSES + batch->labels[s]] -= 1;
    for (int i = 0; i < n * CLASSES; ++i)
        dz[i] /= (float)n;
    for (int s = 0; s < n; ++s)
        for (int o = 0; o < CLASSES; ++o)
            network->bias2[o] -= learning_rate * dz[s * CLASSES + o];
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, hidden, CLASSES, 1, dz, CLASSES,
                network->weights2, CLASSES, 0, da, hidden);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, hidden, CLASSES, n, -learning_rate, a,
                hidden, dz, CLASSES, 1, network->weights2, CLASSES);
    for (int s = 0; s < n; ++s) {
        for (int h = 0; h < hidden; ++h) {
            const size_t i = (size_t)s * hidden + h;
            da[i] = a[i] > 0 ? da[i] : 0;
            bias1[h] -= learning_rate * da[i];
        }
    }
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, PIXELS, hidden, n, -learning_rate,
                batch->images, PIXELS, da, hidden, 1, network->weights1, hidden);
}

// Runs all epochs over the training set in file order. The last batch of an epoch may be short.
static void train(struct network *network, const struct dataset *dataset,
                  const struct options *options, struct result *result) {
    double start = seconds();
    for (int epoch = 0; epoch < options->epochs; ++epoch) {
        struct batch batch;
        double loss = 0, clock = seconds();
        for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
            batch = batch_at(dataset, first, options->batch);
            loss += forward(network, &batch) * (double)batch.samples;
            clock = timer_lap(&result->forward, clock);
            backward(network, &batch, options->learning_rate);
            clock = timer_lap(&result->backward, clock);
        }
        result->final_loss = loss / dataset->samples;
        start = report_epoch(options, epoch, result->final_loss, start); // not timed
    }
    result->train_s = seconds() - start;
}

// Returns the fraction of samples whose most probable class is their label.
static double evaluate(struct network *network, const struct dataset *dataset,
                       const struct options *options) {
    struct batch batch;
    size_t right = 0;
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        forward(network, &batch);
        for (size_t s = 0; s < batch.samples; ++s) {
            const float *p = network->outputs + s * CLASSES;
            size_t best = 0;
            for (size_t o = 1; o < CLASSES; ++o)
                best = p[o] > p[best] ? o : best;
            right += best == batch.labels[s];
        }
    }
    return (double)right / dataset->samples;
}

static int save(const struct network *network, const char *path) {
    return write_weights(path, (size_t)network->hidden, network->weights1, network->bias1,
                         network->weights2, network->bias2);
}

// Uses as many threads as --threads or the environment says, but no more than there are processors.
static int set_threads(const struct options *options) {
    cpu_set_t set;
    int threads = options->threads ? options->threads : openblas_get_num_threads();
    if (sched_getaffinity(0, sizeof set, &set) == 0 && threads > CPU_COUNT(&set))
        threads = CPU_COUNT(&set);
    openblas_set_num_threads(threads);
    return openblas_get_num_threads();
}

int main(int argc, char **argv) {
    struct options options = parse_options(argc, argv, "Trains with OpenBLAS.", 1024);
    struct result result = {.device = "cpu", .threads = set_threads(&options)};
    struct data data;

    int status = load_data(&options, &data);
    if (status)
        return status;

    // Warm up with a batch. At a learning rate of 0 it changes nothing.
    double clock = seconds();
    struct network network = create(&options);
    struct batch first = batch_at(&data.train, 0, options.batch);
    forward(&network, &first);
    backward(&network, &first, 0);
    result.setup_s = seconds() - clock;

    train(&network, &data.train, &options, &result);
    result.test_accuracy = evaluate(&network, &data.test, &options);
    // Weights that are not numbers must not replace good ones. With -ffast-math, isfinite() is
    // always true here, so report_result() decides.
    status = report_result(&options, &data, &result);
    if (!status && options.save_weights)
        status = save(&network, options.save_weights);
    destroy(&network);
    free_data(&data);
    return status;
}
