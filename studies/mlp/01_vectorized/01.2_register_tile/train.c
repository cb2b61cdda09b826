// Stage 01.2: a tile of sums in registers, on rows of whole vectors. It serves all three products
// of a layer.
//
// Shapes: n samples in a batch; layer l has I inputs and O outputs, padded to whole vectors. The
// inputs of the first layer are the 784 pixels, those of another are the outputs of the layer
// before. Arrays are row-major. The padding holds zeros and stays zero, because its weights, values
// and gradients are products of each other.
//
//     z = x·W + b                x  n × I    W  I × O    b  O    z  n × O
//     a = max(0, z)              in a hidden layer; it is the next layer's x
//     p = softmax(z)             in the output layer, n × 10
//     loss = mean over the batch of −log p[label]
#include "studies/mlp/training.h"

#include <math.h>
#include <stdlib.h>

// The widest vectors of the machine that is compiled for. A tile has TILE_ROWS × TILE_COLUMNS
// vectors of sums: half of the registers, or three quarters where half would just hide the latency
// of an FMA. The others are for its operands. Where the rows are inputs, a tile has TILE_INPUTS of
// them. That divides LANES, so that no inputs are left over.
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, TILE_ROWS = 8, TILE_INPUTS = 8 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, TILE_ROWS = 6, TILE_INPUTS = 4 };
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, TILE_ROWS = 8, TILE_INPUTS = 4 };
#else
enum { VECTOR_BYTES = 16, TILE_ROWS = 4, TILE_INPUTS = 4 };
#endif
enum { LANES = VECTOR_BYTES / sizeof(float), TILE_COLUMNS = 2 };
typedef float vec __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vec_mask __attribute__((vector_size(VECTOR_BYTES)));

// For the kernels: where a tile's size is a constant, the loops over the tile disappear.
#define INLINED static inline __attribute__((always_inline))

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
        const size_t units = options->sizes[l + 1], outputs = (units + LANES - 1) / LANES * LANES;
        const size_t inputs = l > 0 ? network.layer[l - 1].outputs : PIXELS;
        network.layer[l] = (struct layer){
            .inputs = inputs,
            .outputs = outputs,
            .weights = allocate_floats(inputs * outputs),
            .transposed = l > 0 ? allocate_floats(outputs * inputs) : NULL,
            .bias = allocate_floats(outputs),
            .values = allocate_floats(n * outputs),
            .d_values = allocate_floats(n * outputs),
            .d_weights = allocate_floats(inputs * outputs),
            .d_bias = allocate_floats(outputs),
        };
        float *weights = draw_weights(options, l);
        for (size_t k = 0; k < options->sizes[l]; ++k)
            for (size_t o = 0; o < units; ++o)
                network.layer[l].weights[k * outputs + o] = weights[k * units + o];
        free(weights);
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

// A tile of it: `rows` samples from s on × `columns` vectors of y from v on. For each k it loads
// `columns` vectors of W and `rows` numbers of x, and does rows × columns multiply-adds. The sums
// stay in registers.
INLINED void product_tile(const struct product *product, size_t s, size_t rows, size_t v,
                          size_t columns) {
    const size_t inputs = product->inputs, vectors = product->outputs / LANES;
    const float *x = product->x + s * inputs;
    const vec *w = (vec *)product->weights + v, *bias = (vec *)product->bias;
    const vec *mask = (vec *)product->mask;
    vec *y = (vec *)product->y;
    vec sum[TILE_ROWS][TILE_COLUMNS] = {0};
    for (size_t r = 0; r < rows && bias; ++r)
        for (size_t c = 0; c < columns; ++c)
            sum[r][c] = bias[v + c];
    for (size_t k = 0; k < inputs; ++k)
        for (size_t r = 0; r < rows; ++r)
            for (size_t c = 0; c < columns; ++c)
                sum[r][c] += x[r * inputs + k] * w[k * vectors + c];
    for (size_t r = 0; r < rows; ++r) {
        for (size_t c = 0; c < columns; ++c) {
            const size_t place = (s + r) * vectors + v + c;
            y[place] = sum[r][c];
            if (mask)
                y[place] = (vec)((vec_mask)y[place] & (mask[place] > 0));
        }
    }
}

// The same for all samples. The last tile may compute some samples of the tile before once more:
// that takes no longer than a smaller tile. In a batch smaller than a tile, samples go one by one.
INLINED void product_panels(const struct product *product, size_t n, size_t v, size_t columns) {
    size_t s = 0;
    for (; s + TILE_ROWS <= n; s += TILE_ROWS)
        product_tile(product, s, TILE_ROWS, v, columns);
    if (s < n && n > TILE_ROWS)
        product_tile(product, n - TILE_ROWS, TILE_ROWS, v, columns);
    else
        for (; s < n; ++s)
            product_tile(product, s, 1, v, columns);
}

// The same for all vectors of y.
static void multiply(const struct product *product, size_t n) {
    const size_t vectors = product->outputs / LANES;
    for (size_t v = 0; v < vectors; v += TILE_COLUMNS)
        if (v + TILE_COLUMNS <= vectors)
            product_panels(product, n, v, TILE_COLUMNS);
        else
            product_panels(product, n, v, 1);
}

// dW = xᵀ·dz for `columns` vectors of outputs from v on, in tiles of TILE_INPUTS inputs.
INLINED void gradient_panels(const struct layer *layer, const float *x, size_t n, size_t v,
                             size_t columns) {
    const size_t inputs = layer->inputs, vectors = layer->outputs / LANES;
    const vec *dz = (vec *)layer->d_values + v;
    vec *dw = (vec *)layer->d_weights + v;
    for (size_t k = 0; k < inputs; k += TILE_INPUTS) {
        vec sum[TILE_INPUTS][TILE_COLUMNS] = {0};
        for (size_t s = 0; s < n; ++s)
            for (size_t r = 0; r < TILE_INPUTS; ++r)
                for (size_t c = 0; c < columns; ++c)
                    sum[r][c] += x[s * inputs + k + r] * dz[s * vectors + c];
        for (size_t r = 0; r < TILE_INPUTS; ++r)
            for (size_t c = 0; c < columns; ++c)
                dw[(k + r) * vectors + c] = sum[r][c];
    }
}

// The same for all outputs; db = Σ dz
static void weight_gradient(struct layer *layer, const float *x, size_t n) {
    const size_t outputs = layer->outputs, vectors = outputs / LANES;
    for (size_t v = 0; v < vectors; v += TILE_COLUMNS)
        if (v + TILE_COLUMNS <= vectors)
            gradient_panels(layer, x, n, v, TILE_COLUMNS);
        else
            gradient_panels(layer, x, n, v, 1);
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
    const size_t outputs = network->layer[network->layers - 1].outputs;
    float *p = network->probabilities;
    double loss = 0;
    for (size_t s = 0; s < n; ++s) {
        const float *z = x + s * outputs;
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
    const struct layer *last = &network->layer[network->layers - 1];

    // dz = (p − onehot(label)) / n
    for (size_t s = 0; s < n; ++s)
        for (size_t o = 0; o < CLASSES; ++o)
            last->d_values[s * last->outputs + o] =
                (p[s * CLASSES + o] - (o == batch->labels[s])) / (float)n;

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

// Writes the weights, without the padding. Returns the exit status.
static int save(const struct network *network, const struct options *options) {
    float *weights[MAX_LAYERS], *biases[MAX_LAYERS];
    for (int l = 0; l < network->layers; ++l) {
        const struct layer *layer = &network->layer[l];
        const size_t inputs = options->sizes[l], units = options->sizes[l + 1];
        weights[l] = allocate_floats(inputs * units);
        biases[l] = layer->bias;
        for (size_t k = 0; k < inputs; ++k)
            for (size_t o = 0; o < units; ++o)
                weights[l][k * units + o] = layer->weights[k * layer->outputs + o];
    }
    int status = write_weights(options, weights, biases);
    for (int l = 0; l < network->layers; ++l)
        free(weights[l]);
    return status;
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
