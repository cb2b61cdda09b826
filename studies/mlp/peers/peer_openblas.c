// Trains the network with OpenBLAS. Every product is a cblas_sgemm. The products for the weight
// gradients include the update, W ← W − lr·gradient. The compiler vectorizes the other loops.
//
// Shapes: n samples in a batch; a layer has I inputs and O outputs; arrays are row-major.
#include "studies/mlp/training.h"

#include <cblas.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct network {
    int layers; // the hidden ones and the output layer
    int sizes[MAX_LAYERS + 1];
    float *weights[MAX_LAYERS];  // I × O
    float *biases[MAX_LAYERS];   // O
    float *values[MAX_LAYERS];   // n × O: a; in the output layer z, then p, then dz
    float *d_values[MAX_LAYERS]; // n × O: dz of a hidden layer
};

static struct network create(const struct options *options) {
    const size_t n = largest_batch(options);
    struct network network = {.layers = options->layers, .sizes = {PIXELS}};
    for (int l = 0; l < options->layers; ++l) {
        const size_t outputs = options->sizes[l + 1];
        network.sizes[l + 1] = (int)outputs;
        network.weights[l] = draw_weights(options, l);
        network.biases[l] = allocate_floats(outputs);
        network.values[l] = allocate_floats(n * outputs);
        network.d_values[l] = l + 1 < options->layers ? allocate_floats(n * outputs) : NULL;
    }
    return network;
}

static void destroy(struct network *network) {
    for (int l = 0; l < network->layers; ++l) {
        free(network->weights[l]);
        free(network->biases[l]);
        free(network->values[l]);
        free(network->d_values[l]);
    }
}

// Sets all a and p for a batch. Returns its loss.
static double forward(struct network *network, const struct batch *batch) {
    const int n = (int)batch->samples;
    const float *x = batch->images;
    for (int l = 0; l < network->layers; ++l) {
        const int inputs = network->sizes[l], outputs = network->sizes[l + 1];
        float *restrict a = network->values[l];
        // Each row begins as the bias. The product is added to it.
        for (int s = 0; s < n; ++s)
            memcpy(a + (size_t)s * outputs, network->biases[l], (size_t)outputs * sizeof *a);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, outputs, inputs, 1, x, inputs,
                    network->weights[l], outputs, 1, a, outputs);
        for (size_t i = 0; i < (size_t)n * outputs && l + 1 < network->layers; ++i)
            a[i] = a[i] > 0 ? a[i] : 0;
        x = a;
    }

    // These loops are separate, so that the compiler takes its vector functions for exp.
    float *restrict p = network->values[network->layers - 1];
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

// Updates the weights by the gradient of the batch that forward() has just seen.
static void backward(struct network *network, const struct batch *batch, float learning_rate) {
    const int n = (int)batch->samples;
    float *restrict dz = network->values[network->layers - 1];
    for (int s = 0; s < n; ++s)
        dz[s * CLASSES + batch->labels[s]] -= 1;
    for (int i = 0; i < n * CLASSES; ++i)
        dz[i] /= (float)n;
    for (int l = network->layers; l-- > 0;) {
        const int inputs = network->sizes[l], outputs = network->sizes[l + 1];
        const float *restrict x = l > 0 ? network->values[l - 1] : batch->images;
        float *restrict dx = l > 0 ? network->d_values[l - 1] : NULL;
        float *restrict bias = network->biases[l];
        if (l > 0) {
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, inputs, outputs, 1, dz, outputs,
                        network->weights[l], outputs, 0, dx, inputs);
            for (size_t i = 0; i < (size_t)n * inputs; ++i)
                dx[i] = x[i] > 0 ? dx[i] : 0;
        }
        for (int s = 0; s < n; ++s)
            for (int o = 0; o < outputs; ++o)
                bias[o] -= learning_rate * dz[(size_t)s * outputs + o];
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, inputs, outputs, n, -learning_rate, x,
                    inputs, dz, outputs, 1, network->weights[l], outputs);
        dz = dx;
    }
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
            const float *p = network->values[network->layers - 1] + s * CLASSES;
            size_t best = 0;
            for (size_t o = 1; o < CLASSES; ++o)
                best = p[o] > p[best] ? o : best;
            right += best == batch.labels[s];
        }
    }
    return (double)right / dataset->samples;
}

// Uses as many threads as --threads or the environment says, but no more than there are processors.
static int set_threads(const struct options *options) {
    cpu_set_t set;
    int threads = options->common.threads ? options->common.threads : openblas_get_num_threads();
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
    // Weights that are not numbers must not replace good ones.
    if (options.common.save && isfinite(result.final_loss))
        status = write_weights(&options, network.weights, network.biases);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy(&network);
    free_data(&data);
    return status;
}
