// Stage 01.1: the inner loops run along rows, and Wᵀ lies beside W. Then dz·Wᵀ is the same product
// as x·W.
//
// Shapes: n samples in a batch; layer l has I inputs and O outputs. The inputs of the first layer
// are the 784 pixels, those of another are the outputs of the layer before. Arrays are row-major.
//
//     z = x·W + b                x  n × I    W  I × O    b  O    z  n × O
//     a = max(0, z)              in a hidden layer; it is the next layer's x
//     p = softmax(z)             in the output layer, n × 10
//     loss = mean over the batch of −log p[label]
#include "studies/mlp/training.h"

#include <math.h>
#include <stdlib.h>

struct layer {
    size_t inputs, outputs; // I, O
    float *weights;         // I × O: W
    float *transposed;      // O × I: Wᵀ; none in the first layer
    float *bias;            // O: b

    float *values;    // n × O: a; in the output layer z
    float *d_values;  // n × O: dz, the gradient of z
    float *d_weights; // I × O
    float *d_bias;    // O
};

struct network {
    int layers; // the hidden ones and the output layer
    struct layer layer[MAX_LAYERS];
    float *probabilities; // n × 10: p
};

static struct network create(const struct options *options) {
    const size_t n = largest_batch(options);
    struct network network = {.layers = options->layers,
                              .probabilities = allocate_floats(n * CLASSES)};
    for (int l = 0; l < network.layers; ++l) {
        const size_t inputs = options->sizes[l], outputs = options->sizes[l + 1];
        network.layer[l] = (struct layer){
            .inputs = inputs,
            .outputs = outputs,
            .weights = draw_weights(options, l),
            .transposed = l > 0 ? allocate_floats(outputs * inputs) : NULL,
            .bias = allocate_floats(outputs),
            .values = allocate_floats(n * outputs),
            .d_values = allocate_floats(n * outputs),
            .d_weights = allocate_floats(inputs * outputs),
            .d_bias = allocate_floats(outputs),
        };
    }
    return network;
}

static void destroy(struct network *network) {
    for (int l = 0; l < network->layers; ++l) {
        struct layer *layer = &network->layer[l];
        free(layer->weights);
        free(layer->transposed);
        free(layer->bias);
        free(layer->values);
        free(layer->d_values);
        free(layer->d_weights);
        free(layer->d_bias);
    }
    free(network->probabilities);
}

// y = x·W + b, with zeros where `mask` is not above 0.
struct product {
    const float *x;       // n × I
    const float *weights; // I × O
    const float *bias;    // O; NULL: none
    const float *mask;    // n × O; y itself: the ReLU; NULL: none
    float *y;             // n × O
    size_t inputs, outputs;
};

// The loops over o add to sums that do not wait for each other, and walk along rows. So the
// compiler makes vectors of them by itself.
static void multiply(const struct product *product, size_t n) {
    const size_t inputs = product->inputs, outputs = product->outputs;
    for (size_t s = 0; s < n; ++s) {
        float *y = product->y + s * outputs;
        for (size_t o = 0; o < outputs; ++o)
            y[o] = product->bias ? product->bias[o] : 0;
        for (size_t k = 0; k < inputs; ++k)
            for (size_t o = 0; o < outputs; ++o)
                y[o] += product->x[s * inputs + k] * product->weights[k * outputs + o];
        for (size_t o = 0; o < outputs && product->mask; ++o)
            y[o] = product->mask[s * outputs + o] > 0 ? y[o] : 0;
    }
}

// dW = xᵀ·dz, in the same order; db = Σ dz
static void weight_gradient(struct layer *layer, const float *x, size_t n) {
    const size_t inputs = layer->inputs, outputs = layer->outputs;
    for (size_t k = 0; k < inputs; ++k) {
        float *dw = layer->d_weights + k * outputs;
        for (size_t o = 0; o < outputs; ++o)
            dw[o] = 0;
        for (size_t s = 0; s < n; ++s)
            for (size_t o = 0; o < outputs; ++o)
                dw[o] += x[s * inputs + k] * layer->d_values[s * outputs + o];
    }
    for (size_t o = 0; o < outputs; ++o) {
        float sum = 0;
        for (size_t s = 0; s < n; ++s)
            sum += layer->d_values[s * outputs + o];
        layer->d_bias[o] = sum;
    }
}

// Sets Wᵀ.
static void transpose(const struct layer *layer) {
    for (size_t o = 0; o < layer->outputs; ++o)
        for (size_t k = 0; k < layer->inputs; ++k)
            layer->transposed[o * layer->inputs + k] = layer->weights[k * layer->outputs + o];
}

// θ ← θ − lr·dθ
static void update(float *parameters, const float *gradient, size_t count, float learning_rate) {
    for (size_t i = 0; i < count; ++i)
        parameters[i] -= learning_rate * gradient[i];
}

// Sets all a, z and p for a batch. Returns its loss.
static double forward(struct network *network, const struct batch *batch) {
    const size_t n = batch->samples;
    const float *x = batch->images;
    for (int l = 0; l < network->layers; ++l) {
        const struct layer *layer = &network->layer[l];
        const struct product product = {.x = x,
                                        .weights = layer->weights,
                                        .bias = layer->bias,
                                        .mask = l + 1 < network->layers ? layer->values : NULL,
                                        .y = layer->values,
                                        .inputs = layer->inputs,
                                        .outputs = layer->outputs};
        multiply(&product, n);
        x = layer->values;
    }

    // p = softmax(z), shifted by the largest z, so that exp() cannot overflow. The loss is taken
    // from z: there −log p is exact even if p underflows.
    float *p = network->probabilities;
    double loss = 0;
    for (size_t s = 0; s < n; ++s) {
        const float *z = x + s * CLASSES;
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

// Updates the weights by the gradient of the batch that forward() has just seen.
static void backward(struct network *network, const struct batch *batch, float learning_rate) {
    const size_t n = batch->samples;
    const float *p = network->probabilities;
    float *dz = network->layer[network->layers - 1].d_values;

    // dz = (p − onehot(label)) / n
    for (size_t s = 0; s < n; ++s)
        for (size_t o = 0; o < CLASSES; ++o)
            dz[s * CLASSES + o] = (p[s * CLASSES + o] - (o == batch->labels[s])) / (float)n;

    for (int l = network->layers - 1; l >= 0; --l) {
        struct layer *layer = &network->layer[l];
        weight_gradient(layer, l > 0 ? layer[-1].values : batch->images, n);
        if (l > 0) {
            // The dz of the layer before: (dz·Wᵀ) ⊙ [a > 0]
            const struct product product = {.x = layer->d_values,
                                            .weights = layer->transposed,
                                            .mask = layer[-1].values,
                                            .y = layer[-1].d_values,
                                            .inputs = layer->outputs,
                                            .outputs = layer->inputs};
            transpose(layer);
            multiply(&product, n);
        }
        update(layer->weights, layer->d_weights, layer->inputs * layer->outputs, learning_rate);
        update(layer->bias, layer->d_bias, layer->outputs, learning_rate);
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
static int save(const struct network *network, const struct options *options) {
    float *weights[MAX_LAYERS], *biases[MAX_LAYERS];
    for (int l = 0; l < network->layers; ++l) {
        weights[l] = network->layer[l].weights;
        biases[l] = network->layer[l].bias;
    }
    return write_weights(options, weights, biases);
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
    if (options.common.save && isfinite(result.final_loss))
        status = save(&network, &options);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy(&network);
    free_data(&data);
    return status;
}
