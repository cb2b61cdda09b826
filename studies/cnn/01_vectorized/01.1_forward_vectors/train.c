// Stage 01.1: a sample in each lane. The samples of a block lie side by side, and the block goes
// forward and backward before the next one does. The forward pass computes with whole vectors: what
// is done to one sample is done to all of them by one instruction.
//
// Shapes of a sample's values, of which a block has n. Arrays are row-major, in the order channel,
// row, column, sample.
//
//     a1 = max(0, W1 ∗ x + b1)     x   1 × 28 × 28    W1  8 × 1 × 3 × 3   a1  8 × 26 × 26
//     m1 = pool(a1)                m1  8 × 13 × 13
//     a2 = max(0, W2 ∗ m1 + b2)    W2  16 × 8 × 3 × 3     a2  16 × 11 × 11
//     m2 = pool(a2)                m2  16 × 5 × 5, which is 400
//     a3 = max(0, m2·W3 + b3)      W3  400 × 128          a3  128
//     z  = a3·W4 + b4              W4  128 × 10           z   10
//     p  = softmax(z)
//     loss = mean over the batch of −log p[label]
#include "studies/cnn/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The widest vectors of the machine that is compiled for.
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32 };
#else
enum { VECTOR_BYTES = 16 };
#endif
enum { LANES = VECTOR_BYTES / sizeof(float), BLOCK = LANES }; // samples of a block
typedef float vec __attribute__((vector_size(VECTOR_BYTES))); // the same number of each of them
typedef int32_t vec_mask __attribute__((vector_size(VECTOR_BYTES)));

// Weights, or their velocities, or their gradients.
struct parameters {
    float weights1[WEIGHTS1], bias1[CHANNELS1];
    float weights2[WEIGHTS2], bias2[CHANNELS2];
    float weights3[WEIGHTS3], bias3[HIDDEN];
    float weights4[WEIGHTS4], bias4[CLASSES];
};
enum { PARAMETERS = sizeof(struct parameters) / sizeof(float) };

// One block's values, with the shapes above, and their gradients. Those of a1, a2 and a3 are taken
// before the ReLU.
struct values {
    vec x[PIXELS];
    vec a1[CHANNELS1 * SIDE1 * SIDE1], d_a1[CHANNELS1 * SIDE1 * SIDE1];
    vec m1[CHANNELS1 * POOLED1 * POOLED1], d_m1[CHANNELS1 * POOLED1 * POOLED1];
    vec a2[CHANNELS2 * SIDE2 * SIDE2], d_a2[CHANNELS2 * SIDE2 * SIDE2];
    vec m2[FEATURES], d_m2[FEATURES];
    vec a3[HIDDEN], d_a3[HIDDEN];
    vec z[CLASSES], p[CLASSES], d_z[CLASSES];
};

struct network {
    struct parameters *parameters, *velocity, *gradient;
    struct values *values;
};

static struct network create(const struct options *options) {
    const struct network network = {
        .parameters = allocate_array(1, sizeof *network.parameters),
        .velocity = allocate_array(1, sizeof *network.velocity),
        .gradient = allocate_array(1, sizeof *network.gradient),
        .values = allocate_array(1, sizeof *network.values),
    };
    float *const weights[LAYERS] = {network.parameters->weights1, network.parameters->weights2,
                                    network.parameters->weights3, network.parameters->weights4};
    const size_t counts[LAYERS] = {WEIGHTS1, WEIGHTS2, WEIGHTS3, WEIGHTS4};
    for (int l = 0; l < LAYERS; ++l) {
        float *drawn = draw_weights(options, l + 1);
        memcpy(weights[l], drawn, counts[l] * sizeof *drawn);
        free(drawn);
    }
    return network;
}

static void destroy(struct network *network) {
    free(network->parameters);
    free(network->velocity);
    free(network->gradient);
    free(network->values);
}

// Returns a where the mask is set, and b elsewhere.
static vec choose(vec_mask mask, vec a, vec b) {
    return (vec)((mask & (vec_mask)a) | (~mask & (vec_mask)b));
}

// a = max(0, W ∗ x + b): x channels × side × side, a filters × (side − 2) × (side − 2). An output
// is the sum of the products of a filter with the part of the image that begins there.
static void convolve(const float *weights, const float *bias, const vec *x, vec *a, size_t channels,
                     size_t side, size_t filters) {
    const size_t out = side - KERNEL + 1;
    const float(*w)[channels][KERNEL][KERNEL] = (const void *)weights;
    const vec(*image)[side][side] = (const void *)x;
    vec(*result)[out][out] = (void *)a;
    for (size_t f = 0; f < filters; ++f) {
        for (size_t row = 0; row < out; ++row) {
            for (size_t column = 0; column < out; ++column) {
                vec sum = bias[f] + (vec){0};
                for (size_t c = 0; c < channels; ++c)
                    for (size_t i = 0; i < KERNEL; ++i)
                        for (size_t j = 0; j < KERNEL; ++j)
                            sum += w[f][c][i][j] * image[c][row + i][column + j];
                result[f][row][column] = (vec)((vec_mask)sum & (sum > 0));
            }
        }
    }
}

// Returns the place, in an image of so many columns, of the largest of the four values from (row,
// column) on. Of equal values, it is the first.
static size_t largest(const vec *image, size_t s, size_t row, size_t column, size_t columns) {
    size_t best = row * columns + column;
    for (size_t i = 0; i < POOL; ++i)
        for (size_t j = 0; j < POOL; ++j)
            if (image[(row + i) * columns + column + j][s] > image[best][s])
                best = (row + i) * columns + column + j;
    return best;
}

// m = pool(a): the largest of each 2 × 2 values. a is filters × side × side. If the side is odd,
// the last row and column are in no pool.
static void pool(const vec *a, vec *m, size_t filters, size_t side) {
    const size_t out = side / POOL;
    for (size_t f = 0; f < filters; ++f) {
        const vec *image = a + f * side * side;
        vec *result = m + f * out * out;
        for (size_t row = 0; row < out; ++row) {
            for (size_t column = 0; column < out; ++column) {
                vec best = {0};
                for (size_t i = 0; i < POOL; ++i) {
                    for (size_t j = 0; j < POOL; ++j) {
                        const vec x = image[(POOL * row + i) * side + POOL * column + j];
                        best = choose(x > best, x, best);
                    }
                }
                result[row * out + column] = best;
            }
        }
    }
}

// y = x·W + b, and max(0, y) with `relu`: x `inputs`, W inputs × outputs, y `outputs`.
static void multiply(const float *weights, const float *bias, const vec *x, vec *y, size_t inputs,
                     size_t outputs, bool relu) {
    for (size_t o = 0; o < outputs; ++o) {
        vec sum = bias[o] + (vec){0};
        for (size_t k = 0; k < inputs; ++k)
            sum += x[k] * weights[k * outputs + o];
        y[o] = relu ? (vec)((vec_mask)sum & (sum > 0)) : sum;
    }
}

// dW += xᵀ·dy, db += Σ dy
static void multiply_weight_gradient(const vec *x, const vec *d_y, float *d_weights, float *d_bias,
                                     size_t n, size_t inputs, size_t outputs) {
    for (size_t k = 0; k < inputs; ++k) {
        for (size_t o = 0; o < outputs; ++o) {
            float sum = 0;
            for (size_t s = 0; s < n; ++s)
                sum += x[k][s] * d_y[o][s];
            d_weights[k * outputs + o] += sum;
        }
    }
    for (size_t o = 0; o < outputs; ++o) {
        float sum = 0;
        for (size_t s = 0; s < n; ++s)
            sum += d_y[o][s];
        d_bias[o] += sum;
    }
}

// dx = (dy·Wᵀ) ⊙ [x > 0], where x is the result of a ReLU.
static void multiply_input_gradient(const float *weights, const vec *d_y, const vec *x, vec *d_x,
                                    size_t n, size_t inputs, size_t outputs) {
    for (size_t s = 0; s < n; ++s) {
        for (size_t k = 0; k < inputs; ++k) {
            float sum = 0;
            for (size_t o = 0; o < outputs; ++o)
                sum += d_y[o][s] * weights[k * outputs + o];
            d_x[k][s] = x[k][s] > 0 ? sum : 0;
        }
    }
}

// da: a pool's gradient goes to the value that the pool took, through the ReLU. All other values
// have a gradient of zero.
static void unpool(const vec *a, const vec *d_m, vec *d_a, size_t n, size_t filters, size_t side) {
    const size_t out = side / POOL;
    memset(d_a, 0, filters * side * side * sizeof *d_a);
    for (size_t s = 0; s < n; ++s) {
        for (size_t f = 0; f < filters; ++f) {
            const vec *image = a + f * side * side;
            const vec *d_result = d_m + f * out * out;
            vec *d_image = d_a + f * side * side;
            for (size_t row = 0; row < out; ++row) {
                for (size_t column = 0; column < out; ++column) {
                    const size_t place = largest(image, s, POOL * row, POOL * column, side);
                    if (image[place][s] > 0)
                        d_image[place][s] = d_result[row * out + column][s];
                }
            }
        }
    }
}

// dW += Σ x·da, db += Σ da. A weight has a share in all outputs of its filter. With each, it was
// multiplied by the pixel that lies as far from the output as the weight from its filter's corner.
static void convolve_weight_gradient(const vec *x, const vec *d_a, float *d_weights, float *d_bias,
                                     size_t n, size_t channels, size_t side, size_t filters) {
    const size_t out = side - KERNEL + 1;
    float(*d_w)[channels][KERNEL][KERNEL] = (void *)d_weights;
    const vec(*image)[side][side] = (const void *)x;
    const vec(*d_result)[out][out] = (const void *)d_a;
    for (size_t f = 0; f < filters; ++f) {
        for (size_t c = 0; c < channels; ++c) {
            for (size_t i = 0; i < KERNEL; ++i) {
                for (size_t j = 0; j < KERNEL; ++j) {
                    float sum = 0;
                    for (size_t s = 0; s < n; ++s)
                        for (size_t row = 0; row < out; ++row)
                            for (size_t column = 0; column < out; ++column)
                                sum +=
                                    image[c][row + i][column + j][s] * d_result[f][row][column][s];
                    d_w[f][c][i][j] += sum;
                }
            }
        }
        float sum = 0;
        for (size_t s = 0; s < n; ++s)
            for (size_t row = 0; row < out; ++row)
                for (size_t column = 0; column < out; ++column)
                    sum += d_result[f][row][column][s];
        d_bias[f] += sum;
    }
}

// dx of a convolution. A pixel has a share in the outputs that lie up to two rows and columns
// before it, if they are in the image, of all filters.
static void convolve_input_gradient(const float *weights, const vec *d_a, vec *d_x, size_t n,
                                    size_t channels, size_t side, size_t filters) {
    const size_t out = side - KERNEL + 1;
    const float(*w)[channels][KERNEL][KERNEL] = (const void *)weights;
    const vec(*d_result)[out][out] = (const void *)d_a;
    vec(*d_image)[side][side] = (void *)d_x;
    for (size_t s = 0; s < n; ++s) {
        for (size_t c = 0; c < channels; ++c) {
            for (size_t row = 0; row < side; ++row) {
                for (size_t column = 0; column < side; ++column) {
                    float sum = 0;
                    for (size_t f = 0; f < filters; ++f)
                        for (size_t i = 0; i < KERNEL && i <= row; ++i)
                            for (size_t j = 0; j < KERNEL && j <= column; ++j)
                                if (row - i < out && column - j < out)
                                    sum += w[f][c][i][j] * d_result[f][row - i][column - j][s];
                    d_image[c][row][column][s] = sum;
                }
            }
        }
    }
}

// v ← momentum·v − lr·dθ, θ ← θ + v. Then the gradient is set to 0 for the next batch.
static void update(struct network *network, const struct options *options) {
    const float *gradient = (const float *)network->gradient;
    float *parameters = (float *)network->parameters, *velocity = (float *)network->velocity;
    for (size_t i = 0; i < PARAMETERS; ++i) {
        velocity[i] = options->momentum * velocity[i] - options->learning_rate * gradient[i];
        parameters[i] += velocity[i];
    }
    memset(network->gradient, 0, sizeof *network->gradient);
}

// p = softmax(z), shifted by the largest z, so that exp() cannot overflow. Adds the samples to the
// score. The loss is taken from z: there −log p is exact even if p underflows.
static void softmax(const vec *z, vec *p, const struct batch *batch, struct score *score) {
    for (size_t s = 0; s < batch->samples; ++s) {
        float sum = 0;
        size_t best = 0;
        for (size_t o = 1; o < CLASSES; ++o)
            best = z[o][s] > z[best][s] ? o : best;
        for (size_t o = 0; o < CLASSES; ++o) {
            p[o][s] = expf(z[o][s] - z[best][s]);
            sum += p[o][s];
        }
        for (size_t o = 0; o < CLASSES; ++o)
            p[o][s] /= sum;
        score->loss += logf(sum) - (z[batch->labels[s]][s] - z[best][s]);
        score->right += best == batch->labels[s];
    }
}

// Sets all values of a block, up to p. Adds its samples to the score.
static void forward(struct network *network, const struct batch *block, struct score *score) {
    const size_t n = block->samples;
    const struct parameters *parameters = network->parameters;
    struct values *values = network->values;

    // Lanes without a sample keep an older one. backward() takes no gradient from them.
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t s = 0; s < n; ++s)
            values->x[k][s] = block->images[s * PIXELS + k];
    convolve(parameters->weights1, parameters->bias1, values->x, values->a1, 1, SIDE, CHANNELS1);
    pool(values->a1, values->m1, CHANNELS1, SIDE1);
    convolve(parameters->weights2, parameters->bias2, values->m1, values->a2, CHANNELS1, POOLED1,
             CHANNELS2);
    pool(values->a2, values->m2, CHANNELS2, SIDE2);
    multiply(parameters->weights3, parameters->bias3, values->m2, values->a3, FEATURES, HIDDEN,
             true);
    multiply(parameters->weights4, parameters->bias4, values->a3, values->z, HIDDEN, CLASSES,
             false);
    softmax(values->z, values->p, block, score);
}

// Adds the gradient of the block that forward() has just seen, a part of a batch.
static void backward(struct network *network, const struct batch *block, size_t batch_samples) {
    const size_t n = block->samples;
    const struct parameters *parameters = network->parameters;
    struct parameters *gradient = network->gradient;
    struct values *values = network->values;

    // dz = (p − onehot(label)) / batch_samples
    for (size_t s = 0; s < n; ++s)
        for (size_t o = 0; o < CLASSES; ++o)
            values->d_z[o][s] = (values->p[o][s] - (o == block->labels[s])) / (float)batch_samples;

    multiply_weight_gradient(values->a3, values->d_z, gradient->weights4, gradient->bias4, n,
                             HIDDEN, CLASSES);
    multiply_input_gradient(parameters->weights4, values->d_z, values->a3, values->d_a3, n, HIDDEN,
                            CLASSES);
    multiply_weight_gradient(values->m2, values->d_a3, gradient->weights3, gradient->bias3, n,
                             FEATURES, HIDDEN);
    multiply_input_gradient(parameters->weights3, values->d_a3, values->m2, values->d_m2, n,
                            FEATURES, HIDDEN);
    unpool(values->a2, values->d_m2, values->d_a2, n, CHANNELS2, SIDE2);
    convolve_weight_gradient(values->m1, values->d_a2, gradient->weights2, gradient->bias2, n,
                             CHANNELS1, POOLED1, CHANNELS2);
    convolve_input_gradient(parameters->weights2, values->d_a2, values->d_m1, n, CHANNELS1, POOLED1,
                            CHANNELS2);
    unpool(values->a1, values->d_m1, values->d_a1, n, CHANNELS1, SIDE1);
    convolve_weight_gradient(values->x, values->d_a1, gradient->weights1, gradient->bias1, n, 1,
                             SIDE, CHANNELS1);
}

// Returns the block that begins at sample s of a batch.
static struct batch block_at(const struct batch *batch, size_t s) {
    const size_t left = batch->samples - s;
    return (struct batch){left < BLOCK ? left : BLOCK, batch->images + s * PIXELS,
                          batch->labels + s};
}

// Returns the fraction of samples whose most probable class is their label.
static double evaluate(struct network *network, const struct dataset *dataset) {
    struct batch block;
    struct score score = {0};
    for (size_t first = 0; first < (size_t)dataset->samples; first += block.samples) {
        block = batch_at(dataset, first, BLOCK);
        forward(network, &block, &score);
    }
    return (double)score.right / dataset->samples;
}

// Adds the time since *clock to a phase, and sets *clock to now.
static void lap(double *phase, double *clock) {
    const double now = seconds();
    *phase += now - *clock;
    *clock = now;
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
            double forward_s = 0, backward_s = 0;
            batch = batch_at(&data->train, first, options->batch);
            for (size_t s = 0; s < batch.samples; s += BLOCK) {
                const struct batch block = block_at(&batch, s);
                forward(network, &block, &epoch.score);
                lap(&forward_s, &clock);
                backward(network, &block, batch.samples);
                lap(&backward_s, &clock);
            }
            update(network, options);
            lap(&backward_s, &clock);
            timer_add(&result->forward, forward_s);
            timer_add(&result->backward, backward_s);
        }
        epoch.epoch_s = clock - start;
        epoch.test_accuracy = evaluate(network, &data->test);
        status = report_epoch(options, data, result, &epoch);
    }
    return status;
}

// Writes the weights. They lie in memory in the order of the file. Returns the exit status.
static int save(const struct network *network, const struct options *options) {
    struct parameters *parameters = network->parameters;
    float *const weights[LAYERS] = {parameters->weights1, parameters->weights2,
                                    parameters->weights3, parameters->weights4};
    float *const biases[LAYERS] = {parameters->bias1, parameters->bias2, parameters->bias3,
                                   parameters->bias4};
    return write_weights(options, weights, biases);
}

int main(int argc, char **argv) {
    struct options options =
        parse_options(argc, argv, "Trains on one core, forward on its vector units.", 1);
    struct result result = {.device = "cpu", .threads = 1};
    struct data data;

    int status = load_data(&options, &data);
    if (status)
        return status;

    double clock = seconds();
    struct network network = create(&options);
    result.setup_s = seconds() - clock;

    if (options.epochs == 0)
        result.test_accuracy = evaluate(&network, &data.test);
    status = train(&network, &data, &options, &result);
    if (!status && options.common.save)
        status = save(&network, &options);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy(&network);
    free_data(&data);
    return status;
}
