// Stage 01.1: loops exchanged. The inner loops of both large products run along the rows.
//
// Shapes: n samples in a batch, H hidden units. Arrays are row-major: x[s][k] is x[s * 784 + k].
//
//     a = max(0, x·W1 + b1)      x  n × 784    W1  784 × H    b1  H    a  n × H
//     z = a·W2 + b2              W2 H × 10     b2  10         z  n × 10
//     p = softmax(z)             loss = mean over the batch of −log p[label]
#include "stages/training.h"

#include <math.h>
#include <stdlib.h>

struct network {
    size_t hidden;   // H
    float *weights1; // 784 × H
    float *bias1;    // H
    float *weights2; // H × 10
    float *bias2;    // 10

    // One batch's intermediate values.
    float *activations;   // n × H: a
    float *logits;        // n × 10: z
    float *probabilities; // n × 10: p

    // The gradients: d_X is the gradient of X.
    float *d_logits;      // n × 10: dz
    float *d_activations; // n × H: da
    float *d_weights1;    // 784 × H
    float *d_bias1;       // H
    float *d_weights2;    // H × 10
    float *d_bias2;       // 10
};

static struct network create(const struct options *options) {
    const size_t hidden = (size_t)options->hidden, n = largest_batch(options);
    struct network network = {
        .hidden = hidden,
        .weights1 = allocate_floats(PIXELS * hidden),
        .bias1 = allocate_floats(hidden),
        .weights2 = allocate_floats(hidden * CLASSES),
        .bias2 = allocate_floats(CLASSES),
        .activations = allocate_floats(n * hidden),
        .logits = allocate_floats(n * CLASSES),
        .probabilities = allocate_floats(n * CLASSES),
        .d_logits = allocate_floats(n * CLASSES),
        .d_activations = allocate_floats(n * hidden),
        .d_weights1 = allocate_floats(PIXELS * hidden),
        .d_bias1 = allocate_floats(hidden),
        .d_weights2 = allocate_floats(hidden * CLASSES),
        .d_bias2 = allocate_floats(CLASSES),
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
    free(network->logits);
    free(network->probabilities);
    free(network->d_logits);
    free(network->d_activations);
    free(network->d_weights1);
    free(network->d_bias1);
    free(network->d_weights2);
    free(network->d_bias2);
}

// Sets a, z and p for a batch. Returns its loss.
static double forward(struct network *network, const struct batch *batch) {
    const size_t n = batch->samples, hidden = network->hidden;
    const float *x = batch->images;
    float *a = network->activations, *p = network->probabilities;

    // a = max(0, x·W1 + b1). The loops over h add to sums that do not wait for each other, and walk
    // along rows. So the compiler makes vectors of them by itself.
    for (size_t s = 0; s < n; ++s) {
        for (size_t h = 0; h < hidden; ++h)
            a[s * hidden + h] = network->bias1[h];
        for (size_t k = 0; k < PIXELS; ++k)
            for (size_t h = 0; h < hidden; ++h)
                a[s * hidden + h] += x[s * PIXELS + k] * network->weights1[k * hidden + h];
        for (size_t h = 0; h < hidden; ++h)
            a[s * hidden + h] = a[s * hidden + h] > 0 ? a[s * hidden + h] : 0;
    }

    // z = a·W2 + b2
    for (size_t s = 0; s < n; ++s) {
        for (size_t o = 0; o < CLASSES; ++o) {
            float sum = network->bias2[o];
            for (size_t h = 0; h < hidden; ++h)
                sum += a[s * hidden + h] * network->weights2[h * CLASSES + o];
            network->logits[s * CLASSES + o] = sum;
        }
    }

    // p = softmax(z), shifted by the largest z, so that exp() cannot overflow. The loss is taken
    // from z: there −log p is exact even if p underflows.
    double loss = 0;
    for (size_t s = 0; s < n; ++s) {
        const float *z = network->logits + s * CLASSES;
        float max = z[0], sum = 0;
        for (size_t o = 1; o < CLASSES; ++o)
            max = z[o] > max ? z[o] : max;
        for (size_t o = 0; o < CLASSES; ++o) {
            p[s * CLASSES + o] = expf(z[o] - max);
            sum += p[s * CLASSES + o];
        }
        for (size_t o = 0; o < CLASSES; ++o)
            p[s * CLASSES + o] /= sum;
        loss += logf(sum) - (z[batch->labels[s]] - max);
    }
    return loss / (double)n;
}

// θ ← θ − lr·dθ
static void update(float *parameters, const float *gradient, size_t count, float learning_rate) {
    for (size_t i = 0; i < count; ++i)
        parameters[i] -= learning_rate * gradient[i];
}

// Updates the weights by the gradient of the batch that forward() has just seen.
static void backward(struct network *network, const struct batch *batch, float learning_rate) {
    const size_t n = batch->samples, hidden = network->hidden;
    const float *x = batch->images, *a = network->activations, *p = network->probabilities;
    float *dz = network->d_logits, *da = network->d_activations;

    // dz = (p − onehot(label)) / n
    for (size_t s = 0; s < n; ++s)
        for (size_t o = 0; o < CLASSES; ++o)
            dz[s * CLASSES + o] = (p[s * CLASSES + o] - (o == batch->labels[s])) / (float)n;

    // dW2 = aᵀ·dz, db2 = Σ dz
    for (size_t h = 0; h < hidden; ++h) {
        for (size_t o = 0; o < CLASSES; ++o) {
            float sum = 0;
            for (size_t s = 0; s < n; ++s)
                sum += a[s * hidden + h] * dz[s * CLASSES + o];
            network->d_weights2[h * CLASSES + o] = sum;
        }
    }
    for (size_t o = 0; o < CLASSES; ++o) {
        float sum = 0;
        for (size_t s = 0; s < n; ++s)
            sum += dz[s * CLASSES + o];
        network->d_bias2[o] = sum;
    }

    // da = (dz·W2ᵀ) ⊙ [a > 0]
    for (size_t s = 0; s < n; ++s) {
        for (size_t h = 0; h < hidden; ++h) {
            float sum = 0;
            for (size_t o = 0; o < CLASSES; ++o)
                sum += dz[s * CLASSES + o] * network->weights2[h * CLASSES + o];
            da[s * hidden + h] = a[s * hidden + h] > 0 ? sum : 0;
        }
    }

    // dW1 = xᵀ·da, with the loop over h innermost, too; db1 = Σ da
    for (size_t k = 0; k < PIXELS; ++k) {
        for (size_t h = 0; h < hidden; ++h)
            network->d_weights1[k * hidden + h] = 0;
        for (size_t s = 0; s < n; ++s)
            for (size_t h = 0; h < hidden; ++h)
                network->d_weights1[k * hidden + h] += x[s * PIXELS + k] * da[s * hidden + h];
    }
    for (size_t h = 0; h < hidden; ++h) {
        float sum = 0;
        for (size_t s = 0; s < n; ++s)
            sum += da[s * hidden + h];
        network->d_bias1[h] = sum;
    }

    update(network->weights1, network->d_weights1, PIXELS * hidden, learning_rate);
    update(network->bias1, network->d_bias1, hidden, learning_rate);
    update(network->weights2, network->d_weights2, hidden * CLASSES, learning_rate);
    update(network->bias2, network->d_bias2, CLASSES, learning_rate);
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
            const float *p = network->probabilities + s * CLASSES;
            size_t best = 0;
            for (size_t o = 1; o < CLASSES; ++o)
                best = p[o] > p[best] ? o : best;
            right += best == batch.labels[s];
        }
    }
    return (double)right / dataset->samples;
}

// Writes the weights. They lie in memory in the order of the file. Returns the exit status.
static int save(const struct network *network, const char *path) {
    return write_weights(path, network->hidden, network->weights1, network->bias1,
                         network->weights2, network->bias2);
}

int main(int argc, char **argv) {
    struct options options =
        parse_options(argc, argv, "Trains on the vector units of one core.", 1);
    struct result result = {.device = "cpu", .threads = 1};
    struct data data;

    int status = load_data(&options, &data);
    if (status)
        return status;

    double clock = seconds();
    struct network network = create(&options);
    result.setup_s = seconds() - clock;

    train(&network, &data.train, &options, &result);
    result.test_accuracy = evaluate(&network, &data.test, &options);
    // NaNs must not replace good weights.
    if (options.save_weights && isfinite(result.final_loss))
        status = save(&network, options.save_weights);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy(&network);
    free_data(&data);
    return status;
}
