// Stage 00: the textbook. One core runs the loops in the order of the formulas, without tricks.
//
// Shapes: n samples in a batch. Arrays are row-major, in the order sample, channel, row, column.
//
//     a1 = max(0, W1 ∗ x + b1)     x   n × 1 × 28 × 28    W1  8 × 1 × 3 × 3     a1  n × 8 × 26 × 26
//     m1 = pool(a1)                m1  n × 8 × 13 × 13
//     a2 = max(0, W2 ∗ m1 + b2)    W2  16 × 8 × 3 × 3     a2  n × 16 × 11 × 11
//     m2 = pool(a2)                m2  n × 16 × 5 × 5, which is n × 400
//     a3 = max(0, m2·W3 + b3)      W3  400 × 128          a3  n × 128
//     z  = a3·W4 + b4              W4  128 × 10           z   n × 10
//     p  = softmax(z)
//     loss = mean over the batch of −log p[label]
#include "studies/cnn/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct layer {
    size_t weights_count, bias_count;
    float *weights, *bias;     // W, b
    float *d_weights, *d_bias; // their gradients
    float *v_weights, *v_bias; // their velocities
};

struct network {
    struct layer layer[LAYERS];

    // One batch's values, with the shapes above.
    float *a1, *m1, *a2, *m2, *a3, *z, *p;
    // Their gradients. Those of a1, a2 and a3 are taken before the ReLU.
    float *d_a1, *d_m1, *d_a2, *d_m2, *d_a3, *d_z;
};

static struct network create(const struct options *options) {
    const size_t n = largest_batch(options);
    const size_t weights[LAYERS] = {WEIGHTS1, WEIGHTS2, WEIGHTS3, WEIGHTS4};
    const size_t biases[LAYERS] = {CHANNELS1, CHANNELS2, HIDDEN, CLASSES};
    struct network network = {
        .a1 = allocate_floats(n * CHANNELS1 * SIDE1 * SIDE1),
        .m1 = allocate_floats(n * CHANNELS1 * POOLED1 * POOLED1),
        .a2 = allocate_floats(n * CHANNELS2 * SIDE2 * SIDE2),
        .m2 = allocate_floats(n * FEATURES),
        .a3 = allocate_floats(n * HIDDEN),
        .z = allocate_floats(n * CLASSES),
        .p = allocate_floats(n * CLASSES),
        .d_a1 = allocate_floats(n * CHANNELS1 * SIDE1 * SIDE1),
        .d_m1 = allocate_floats(n * CHANNELS1 * POOLED1 * POOLED1),
        .d_a2 = allocate_floats(n * CHANNELS2 * SIDE2 * SIDE2),
        .d_m2 = allocate_floats(n * FEATURES),
        .d_a3 = allocate_floats(n * HIDDEN),
        .d_z = allocate_floats(n * CLASSES),
    };
    for (int l = 0; l < LAYERS; ++l) {
        network.layer[l] = (struct layer){
            .weights_count = weights[l],
            .bias_count = biases[l],
            .weights = draw_weights(options, l + 1),
            .bias = allocate_floats(biases[l]),
            .d_weights = allocate_floats(weights[l]),
            .d_bias = allocate_floats(biases[l]),
            .v_weights = allocate_floats(weights[l]),
            .v_bias = allocate_floats(biases[l]),
        };
    }
    return network;
}

static void destroy(struct network *network) {
    for (int l = 0; l < LAYERS; ++l) {
        struct layer *layer = &network->layer[l];
        free(layer->weights);
        free(layer->bias);
        free(layer->d_weights);
        free(layer->d_bias);
        free(layer->v_weights);
        free(layer->v_bias);
    }
    free(network->a1);
    free(network->m1);
    free(network->a2);
    free(network->m2);
    free(network->a3);
    free(network->z);
    free(network->p);
    free(network->d_a1);
    free(network->d_m1);
    free(network->d_a2);
    free(network->d_m2);
    free(network->d_a3);
    free(network->d_z);
}

// a = max(0, W ∗ x + b): x n × channels × side × side, a n × filters × (side − 2) × (side − 2). An
// output is the sum of the products of a filter with the part of the image that begins there.
static void convolve(const struct layer *layer, const float *x, float *a, size_t n, size_t channels,
                     size_t side, size_t filters) {
    const size_t out = side - KERNEL + 1;
    const float(*weights)[channels][KERNEL][KERNEL] = (const void *)layer->weights;
    for (size_t s = 0; s < n; ++s) {
        const float(*image)[side][side] = (const void *)(x + s * channels * side * side);
        float(*result)[out][out] = (void *)(a + s * filters * out * out);
        for (size_t f = 0; f < filters; ++f) {
            for (size_t row = 0; row < out; ++row) {
                for (size_t column = 0; column < out; ++column) {
                    float sum = layer->bias[f];
                    for (size_t c = 0; c < channels; ++c)
                        for (size_t i = 0; i < KERNEL; ++i)
                            for (size_t j = 0; j < KERNEL; ++j)
                                sum += weights[f][c][i][j] * image[c][row + i][column + j];
                    result[f][row][column] = sum > 0 ? sum : 0;
                }
            }
        }
    }
}

// Returns the place, in an image of so many columns, of the largest of the four values from (row,
// column) on. Of equal values, it is the first.
static size_t largest(const float *image, size_t row, size_t column, size_t columns) {
    size_t best = row * columns + column;
    for (size_t i = 0; i < POOL; ++i)
        for (size_t j = 0; j < POOL; ++j)
            if (image[(row + i) * columns + column + j] > image[best])
                best = (row + i) * columns + column + j;
    return best;
}

// m = pool(a): the largest of each 2 × 2 values. The images are side × side, and there is one for
// each sample and channel. If the side is odd, the last row and column are in no pool.
static void pool(const float *a, float *m, size_t images, size_t side) {
    const size_t out = side / POOL;
    for (size_t s = 0; s < images; ++s) {
        const float *image = a + s * side * side;
        for (size_t row = 0; row < out; ++row)
            for (size_t column = 0; column < out; ++column)
                m[(s * out + row) * out + column] =
                    image[largest(image, POOL * row, POOL * column, side)];
    }
}

// y = x·W + b, and max(0, y) with `relu`: x n × inputs, W inputs × outputs, y n × outputs.
static void multiply(const struct layer *layer, const float *x, float *y, size_t n, size_t inputs,
                     size_t outputs, bool relu) {
    for (size_t s = 0; s < n; ++s) {
        for (size_t o = 0; o < outputs; ++o) {
            float sum = layer->bias[o];
            for (size_t k = 0; k < inputs; ++k)
                sum += x[s * inputs + k] * layer->weights[k * outputs + o];
            y[s * outputs + o] = relu && !(sum > 0) ? 0 : sum;
        }
    }
}

// dW = xᵀ·dy, db = Σ dy
static void multiply_weight_gradient(struct layer *layer, const float *x, const float *d_y,
                                     size_t n, size_t inputs, size_t outputs) {
    for (size_t k = 0; k < inputs; ++k) {
        for (size_t o = 0; o < outputs; ++o) {
            float sum = 0;
            for (size_t s = 0; s < n; ++s)
                sum += x[s * inputs + k] * d_y[s * outputs + o];
            layer->d_weights[k * outputs + o] = sum;
        }
    }
    for (size_t o = 0; o < outputs; ++o) {
        float sum = 0;
        for (size_t s = 0; s < n; ++s)
            sum += d_y[s * outputs + o];
        layer->d_bias[o] = sum;
    }
}

// dx = (dy·Wᵀ) ⊙ [x > 0], where x is the result of a ReLU.
static void multiply_input_gradient(const struct layer *layer, const float *d_y, const float *x,
                                    float *d_x, size_t n, size_t inputs, size_t outputs) {
    for (size_t s = 0; s < n; ++s) {
        for (size_t k = 0; k < inputs; ++k) {
            float sum = 0;
            for (size_t o = 0; o < outputs; ++o)
                sum += d_y[s * outputs + o] * layer->weights[k * outputs + o];
            d_x[s * inputs + k] = x[s * inputs + k] > 0 ? sum : 0;
        }
    }
}

// da: a pool's gradient goes to the value that the pool took, through the ReLU. All other values
// have a gradient of zero.
static void unpool(const float *a, const float *d_m, float *d_a, size_t images, size_t side) {
    const size_t out = side / POOL;
    memset(d_a, 0, images * side * side * sizeof *d_a);
    for (size_t s = 0; s < images; ++s) {
        const float *image = a + s * side * side;
        for (size_t row = 0; row < out; ++row) {
            for (size_t column = 0; column < out; ++column) {
                const size_t place = largest(image, POOL * row, POOL * column, side);
                if (image[place] > 0)
                    d_a[s * side * side + place] = d_m[(s * out + row) * out + column];
            }
        }
    }
}

// dW and db of a convolution. A weight has a share in all outputs of its filter. With each, it was
// multiplied by the pixel that lies as far from the output as the weight from its filter's corner.
static void convolve_weight_gradient(struct layer *layer, const float *x, const float *d_a,
                                     size_t n, size_t channels, size_t side, size_t filters) {
    const size_t out = side - KERNEL + 1;
    float(*d_weights)[channels][KERNEL][KERNEL] = (void *)layer->d_weights;
    const float(*images)[channels][side][side] = (const void *)x;
    const float(*d_results)[filters][out][out] = (const void *)d_a;
    for (size_t f = 0; f < filters; ++f) {
        for (size_t c = 0; c < channels; ++c) {
            for (size_t i = 0; i < KERNEL; ++i) {
                for (size_t j = 0; j < KERNEL; ++j) {
                    float sum = 0;
                    for (size_t s = 0; s < n; ++s)
                        for (size_t row = 0; row < out; ++row)
                            for (size_t column = 0; column < out; ++column)
                                sum += images[s][c][row + i][column + j] *
                                       d_results[s][f][row][column];
                    d_weights[f][c][i][j] = sum;
                }
            }
        }
        float sum = 0;
        for (size_t s = 0; s < n; ++s)
            for (size_t row = 0; row < out; ++row)
                for (size_t column = 0; column < out; ++column)
                    sum += d_results[s][f][row][column];
        layer->d_bias[f] = sum;
    }
}

// dx of a convolution. A pixel has a share in the outputs that lie up to two rows and columns
// before it, if they are in the image, of all filters.
static void convolve_input_gradient(const struct layer *layer, const float *d_a, float *d_x,
                                    size_t n, size_t channels, size_t side, size_t filters) {
    const size_t out = side - KERNEL + 1;
    const float(*weights)[channels][KERNEL][KERNEL] = (const void *)layer->weights;
    for (size_t s = 0; s < n; ++s) {
        const float(*d_result)[out][out] = (const void *)(d_a + s * filters * out * out);
        float(*d_image)[side][side] = (void *)(d_x + s * channels * side * side);
        for (size_t c = 0; c < channels; ++c) {
            for (size_t row = 0; row < side; ++row) {
                for (size_t column = 0; column < side; ++column) {
                    float sum = 0;
                    for (size_t f = 0; f < filters; ++f)
                        for (size_t i = 0; i < KERNEL && i <= row; ++i)
                            for (size_t j = 0; j < KERNEL && j <= column; ++j)
                                if (row - i < out && column - j < out)
                                    sum += weights[f][c][i][j] * d_result[f][row - i][column - j];
                    d_image[c][row][column] = sum;
                }
            }
        }
    }
}

// v ← momentum·v − lr·dθ, θ ← θ + v
static void update(float *parameters, float *velocity, const float *gradient, size_t count,
                   const struct options *options) {
    for (size_t i = 0; i < count; ++i) {
        velocity[i] = options->momentum * velocity[i] - options->learning_rate * gradient[i];
        parameters[i] += velocity[i];
    }
}

// Sets all values of a batch, up to p. Adds its samples to the score.
static void forward(struct network *network, const struct batch *batch, struct score *score) {
    const size_t n = batch->samples;
    const struct layer *layer = network->layer;
    convolve(&layer[0], batch->images, network->a1, n, 1, SIDE, CHANNELS1);
    pool(network->a1, network->m1, n * CHANNELS1, SIDE1);
    convolve(&layer[1], network->m1, network->a2, n, CHANNELS1, POOLED1, CHANNELS2);
    pool(network->a2, network->m2, n * CHANNELS2, SIDE2);
    multiply(&layer[2], network->m2, network->a3, n, FEATURES, HIDDEN, true);
    multiply(&layer[3], network->a3, network->z, n, HIDDEN, CLASSES, false);

    // p = softmax(z), shifted by the largest z, so that exp() cannot overflow. The loss is taken
    // from z: there −log p is exact even if p underflows.
    for (size_t s = 0; s < n; ++s) {
        const float *z = network->z + s * CLASSES;
        float *p = network->p + s * CLASSES, sum = 0;
        size_t best = 0;
        for (size_t o = 1; o < CLASSES; ++o)
            best = z[o] > z[best] ? o : best;
        for (size_t o = 0; o < CLASSES; ++o) {
            p[o] = expf(z[o] - z[best]);
            sum += p[o];
        }
        for (size_t o = 0; o < CLASSES; ++o)
            p[o] /= sum;
        score->loss += logf(sum) - (z[batch->labels[s]] - z[best]);
        score->right += best == batch->labels[s];
    }
}

// Takes one step down the gradient of the batch that forward() has just seen.
static void backward(struct network *network, const struct batch *batch,
                     const struct options *options) {
    const size_t n = batch->samples;
    struct layer *layer = network->layer;

    // dz = (p − onehot(label)) / n
    for (size_t s = 0; s < n; ++s)
        for (size_t o = 0; o < CLASSES; ++o)
            network->d_z[s * CLASSES + o] =
                (network->p[s * CLASSES + o] - (o == batch->labels[s])) / (float)n;

    multiply_weight_gradient(&layer[3], network->a3, network->d_z, n, HIDDEN, CLASSES);
    multiply_input_gradient(&layer[3], network->d_z, network->a3, network->d_a3, n, HIDDEN,
                            CLASSES);
    multiply_weight_gradient(&layer[2], network->m2, network->d_a3, n, FEATURES, HIDDEN);
    multiply_input_gradient(&layer[2], network->d_a3, network->m2, network->d_m2, n, FEATURES,
                            HIDDEN);
    unpool(network->a2, network->d_m2, network->d_a2, n * CHANNELS2, SIDE2);
    convolve_weight_gradient(&layer[1], network->m1, network->d_a2, n, CHANNELS1, POOLED1,
                             CHANNELS2);
    convolve_input_gradient(&layer[1], network->d_a2, network->d_m1, n, CHANNELS1, POOLED1,
                            CHANNELS2);
    unpool(network->a1, network->d_m1, network->d_a1, n * CHANNELS1, SIDE1);
    convolve_weight_gradient(&layer[0], batch->images, network->d_a1, n, 1, SIDE, CHANNELS1);

    for (int l = 0; l < LAYERS; ++l) {
        update(layer[l].weights, layer[l].v_weights, layer[l].d_weights, layer[l].weights_count,
               options);
        update(layer[l].bias, layer[l].v_bias, layer[l].d_bias, layer[l].bias_count, options);
    }
}

// Returns the fraction of samples whose most probable class is their label.
static double evaluate(struct network *network, const struct dataset *dataset,
                       const struct options *options) {
    struct batch batch;
    struct score score = {0};
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        forward(network, &batch, &score);
    }
    return (double)score.right / dataset->samples;
}

// Runs all epochs over the training set in file order. The last batch of an epoch may be short.
// Returns the exit status.
static int train(struct network *network, const struct data *data, const struct options *options,
                 struct result *result) {
    int status = 0;
    for (int number = 1; number <= options->epochs && !status; ++number) {
        struct epoch epoch = {.number = number};
        struct batch batch;
        const double start = seconds();
        double clock = start;
        for (size_t first = 0; first < (size_t)data->train.samples; first += batch.samples) {
            batch = batch_at(&data->train, first, options->batch);
            forward(network, &batch, &epoch.score);
            clock = timer_lap(&result->forward, clock);
            backward(network, &batch, options);
            clock = timer_lap(&result->backward, clock);
        }
        epoch.epoch_s = clock - start;
        epoch.test_accuracy = evaluate(network, &data->test, options);
        status = report_epoch(options, data, result, &epoch);
    }
    return status;
}

// Writes the weights. They lie in memory in the order of the file. Returns the exit status.
static int save(const struct network *network, const struct options *options) {
    float *weights[LAYERS], *biases[LAYERS];
    for (int l = 0; l < LAYERS; ++l) {
        weights[l] = network->layer[l].weights;
        biases[l] = network->layer[l].bias;
    }
    return write_weights(options, weights, biases);
}

int main(int argc, char **argv) {
    struct options options = parse_options(argc, argv, "Trains on one core, by the textbook.", 1);
    struct result result = {.device = "cpu", .threads = 1};
    struct data data;

    int status = load_data(&options, &data);
    if (status)
        return status;

    double clock = seconds();
    struct network network = create(&options);
    result.setup_s = seconds() - clock;

    if (options.epochs == 0)
        result.test_accuracy = evaluate(&network, &data.test, &options);
    status = train(&network, &data, &options, &result);
    if (!status && options.common.save)
        status = save(&network, &options);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy(&network);
    free_data(&data);
    return status;
}
