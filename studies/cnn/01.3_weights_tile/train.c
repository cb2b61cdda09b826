// Stage 01.3: a tile of a filter's gradient. The 9 weights of two filters are summed in registers,
// over all places of the image. Each input that is read serves up to 8 multiply-adds.
//
// Shapes: a block has LANES samples, the vectors' lanes. It goes forward and backward through the
// network before the next block does. Arrays of vectors are in the order channel, row, column.
#include "studies/cnn/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The widest vectors of the machine that is compiled for, and how many registers hold one.
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, REGISTERS = 32 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, REGISTERS = 16 };
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, REGISTERS = 32 };
#else
enum { VECTOR_BYTES = 16, REGISTERS = 16 };
#endif
enum { LANES = VECTOR_BYTES / sizeof(float) };
typedef float vec __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vec_mask __attribute__((vector_size(VECTOR_BYTES)));

// The sizes of the tiles. A third of the registers to a half has sums, the others operands.
enum {
    TILE_FILTERS = 2,                         // of a convolution, with the 4 outputs of each
    TILE_STEP = REGISTERS == 32 ? KERNEL : 1, // weights of a filter at a time
    TILE_KERNELS = REGISTERS / 16,            // of a convolution's weights, 9 each
};

enum {
    WINDOW = POOL * POOL,      // outputs of which a pool takes one
    PATCH = POOL + KERNEL - 1, // rows and columns of the inputs that they come from
    PIXELS1 = CHANNELS1 * POOLED1 * POOLED1,
    PARAMETERS =
        WEIGHTS1 + CHANNELS1 + WEIGHTS2 + CHANNELS2 + WEIGHTS3 + HIDDEN + WEIGHTS4 + CLASSES
};

// For the kernels: where a tile's size is a constant, the loops over the tile disappear.
#define INLINED static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 16")

// Weights, or their velocities.
struct parameters {
    float weights1[WEIGHTS1], bias1[CHANNELS1];
    float weights2[WEIGHTS2], bias2[CHANNELS2];
    float weights3[WEIGHTS3], bias3[HIDDEN];
    float weights4[WEIGHTS4], bias4[CLASSES];
};

// A batch's gradient, in the same order. Each has samples in its lanes, and is their sum.
struct gradient {
    vec weights1[WEIGHTS1], bias1[CHANNELS1];
    vec weights2[WEIGHTS2], bias2[CHANNELS2];
    vec weights3[WEIGHTS3], bias3[HIDDEN];
    vec weights4[WEIGHTS4], bias4[CLASSES];
};

// One block's values, with the names of stage 00. A pool's `taken` is which of its outputs is the
// largest, 0 to 3, or WINDOW if none is above 0.
struct values {
    vec x[PIXELS];
    vec d_a1[CHANNELS1 * SIDE1 * SIDE1], m1[PIXELS1], d_m1[PIXELS1];
    vec_mask taken1[PIXELS1];
    vec d_a2[CHANNELS2 * SIDE2 * SIDE2], m2[FEATURES], d_m2[FEATURES];
    vec_mask taken2[FEATURES];
    vec a3[HIDDEN], d_a3[HIDDEN];
    vec z[CLASSES]; // z, then p, then dz
};

struct network {
    struct parameters *parameters, *velocity;
    struct gradient *gradient;
    struct values *values;
};

static struct network create(const struct options *options) {
    const struct network network = {.parameters = allocate_array(1, sizeof *network.parameters),
                                    .velocity = allocate_array(1, sizeof *network.velocity),
                                    .gradient = allocate_array(1, sizeof *network.gradient),
                                    .values = allocate_array(1, sizeof *network.values)};
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
INLINED vec choose(vec_mask mask, vec a, vec b) {
    return (vec)((mask & (vec_mask)a) | (~mask & (vec_mask)b));
}

// Rows become columns: number i of row l goes to lane l of column i.
static void turn(const float *const rows[LANES], vec *columns, size_t count) {
    for (size_t k = 0; k < count; ++k) {
        float column[LANES];
        for (size_t l = 0; l < LANES; ++l)
            column[l] = rows[l][k];
        memcpy(&columns[k], column, sizeof column);
    }
}

// m = pool(max(0, W ∗ x + b)) for TILE_FILTERS filters, in one place. `x` is the first of its 4 × 4
// inputs in each channel, and images are side × side. The first filter's weights begin at
// `weights`. Each step has 8 inputs and 6 weights for 24 multiply-adds, or with few registers 4
// inputs and 2 weights for 8.
INLINED void convolve_tile(const float *weights, const float *bias, const vec *x, vec *m,
                           vec_mask *taken, size_t channels, size_t side, size_t places) {
    vec sum[TILE_FILTERS][WINDOW];
    for (size_t f = 0; f < TILE_FILTERS; ++f)
        for (size_t q = 0; q < WINDOW; ++q)
            sum[f][q] = bias[f] + (vec){0};
    for (size_t c = 0; c < channels; ++c) {
        for (size_t i = 0; i < KERNEL; ++i) {
            const vec *image = x + (c * side + i) * side;
            const float *w = weights + c * TAPS + i * KERNEL;
#pragma GCC unroll TILE_STEP
            for (size_t j = 0; j < KERNEL; ++j)
                for (size_t f = 0; f < TILE_FILTERS; ++f)
                    for (size_t q = 0; q < WINDOW; ++q)
                        sum[f][q] +=
                            w[f * channels * TAPS + j] * image[q / POOL * side + q % POOL + j];
        }
    }
    // The ReLU and the pool in one: the largest that is above 0. Of equal values, it is the first.
    for (size_t f = 0; f < TILE_FILTERS; ++f) {
        vec best = {0};
        vec_mask which = (vec_mask){0} + WINDOW;
        for (size_t q = 0; q < WINDOW; ++q) {
            const vec_mask higher = sum[f][q] > best;
            best = choose(higher, sum[f][q], best);
            which = (higher & (int32_t)q) | (~higher & which);
        }
        m[f * places] = best;
        taken[f * places] = which;
    }
}

// The same for all filters and places: x channels × side × side, m and taken filters × the places
// of the pool.
INLINED void convolve(const float *weights, const float *bias, const vec *x, vec *m,
                      vec_mask *taken, size_t channels, size_t side, size_t filters) {
    const size_t out = (side - KERNEL + 1) / POOL, places = out * out;
    for (size_t row = 0; row < out; ++row) {
        for (size_t column = 0; column < out; ++column) {
            for (size_t f = 0; f < filters; f += TILE_FILTERS) {
                const size_t place = f * places + row * out + column;
                convolve_tile(weights + f * channels * TAPS, bias + f,
                              x + POOL * row * side + POOL * column, m + place, taken + place,
                              channels, side, places);
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
            sum += weights[k * outputs + o] * x[k];
        y[o] = relu ? (vec)((vec_mask)sum & (sum > 0)) : sum;
    }
}

// dW += xᵀ·dy, db += dy
static void multiply_weight_gradient(const vec *x, const vec *d_y, vec *d_weights, vec *d_bias,
                                     size_t inputs, size_t outputs) {
    for (size_t k = 0; k < inputs; ++k)
        for (size_t o = 0; o < outputs; ++o)
            d_weights[k * outputs + o] += x[k] * d_y[o];
    for (size_t o = 0; o < outputs; ++o)
        d_bias[o] += d_y[o];
}

// dx = (dy·Wᵀ) ⊙ [x > 0], where x is the result of a ReLU.
static void multiply_input_gradient(const float *weights, const vec *d_y, const vec *x, vec *d_x,
                                    size_t inputs, size_t outputs) {
    for (size_t k = 0; k < inputs; ++k) {
        vec sum = {0};
        for (size_t o = 0; o < outputs; ++o)
            sum += weights[k * outputs + o] * d_y[o];
        d_x[k] = (vec)((vec_mask)sum & (x[k] > 0));
    }
}

// da: a pool's gradient goes to the output that it took, in each sample. All other outputs have a
// gradient of zero. The outputs are side × side.
static void unpool(const vec *d_m, const vec_mask *taken, vec *d_a, size_t filters, size_t side) {
    const size_t out = side / POOL;
    memset(d_a, 0, filters * side * side * sizeof *d_a);
    for (size_t f = 0; f < filters; ++f)
        for (size_t row = 0; row < out; ++row)
            for (size_t column = 0; column < out; ++column)
                for (size_t q = 0; q < WINDOW; ++q) {
                    const size_t place = (f * out + row) * out + column;
                    d_a[(f * side + POOL * row + q / POOL) * side + POOL * column + q % POOL] =
                        (vec)((vec_mask)d_m[place] & (taken[place] == (int32_t)q));
                }
}

// dW and db of a convolution are added up. A tile has the weights of TILE_KERNELS filters for one
// channel. Each step has 16 inputs and 4 gradients of each filter for 36 multiply-adds of each.
INLINED void convolve_weight_gradient(const vec *x, const vec *d_a, vec *d_weights, vec *d_bias,
                                      size_t channels, size_t side, size_t filters) {
    const size_t out = side - KERNEL + 1;
    for (size_t f = 0; f < filters; f += TILE_KERNELS) {
        for (size_t c = 0; c < channels; ++c) {
            vec sum[TILE_KERNELS][TAPS], bias_sum[TILE_KERNELS] = {0};
            for (size_t g = 0; g < TILE_KERNELS; ++g)
                for (size_t t = 0; t < TAPS; ++t)
                    sum[g][t] = d_weights[((f + g) * channels + c) * TAPS + t];
            for (size_t row = 0; row < out / POOL; ++row) {
                for (size_t column = 0; column < out / POOL; ++column) {
                    const vec *outputs = d_a + (f * out + POOL * row) * out + POOL * column;
                    const vec *image = x + (c * side + POOL * row) * side + POOL * column;
                    vec d_output[TILE_KERNELS][WINDOW];
                    for (size_t g = 0; g < TILE_KERNELS; ++g) {
                        for (size_t q = 0; q < WINDOW; ++q)
                            d_output[g][q] = outputs[(g * out + q / POOL) * out + q % POOL];
                        bias_sum[g] +=
                            (d_output[g][0] + d_output[g][1]) + (d_output[g][2] + d_output[g][3]);
                    }
                    // Input (i, j) has a share in output q through the weight at their distance.
                    UNROLLED
                    for (size_t i = 0; i < PATCH; ++i) {
                        UNROLLED
                        for (size_t j = 0; j < PATCH; ++j) {
                            const vec pixel = image[i * side + j];
                            for (size_t q = 0; q < WINDOW; ++q) {
                                const size_t ki = i - q / POOL, kj = j - q % POOL;
                                if (ki < KERNEL && kj < KERNEL)
                                    for (size_t g = 0; g < TILE_KERNELS; ++g)
                                        sum[g][ki * KERNEL + kj] += pixel * d_output[g][q];
                            }
                        }
                    }
                }
            }
            for (size_t g = 0; g < TILE_KERNELS; ++g) {
                for (size_t t = 0; t < TAPS; ++t)
                    d_weights[((f + g) * channels + c) * TAPS + t] = sum[g][t];
                if (c == 0)
                    d_bias[f + g] += bias_sum[g];
            }
        }
    }
}

// dx of the second convolution. A pixel has a share in the outputs that lie up to two rows and
// columns before it, if they reach a pool, of all filters.
static void convolve_input_gradient(const float *weights, const vec *d_a, vec *d_x) {
    const size_t side = SIDE2, used = side / POOL * POOL;
    for (size_t c = 0; c < CHANNELS1; ++c) {
        for (size_t row = 0; row < POOLED1; ++row) {
            for (size_t column = 0; column < POOLED1; ++column) {
                vec sum = {0};
                for (size_t f = 0; f < CHANNELS2; ++f)
                    for (size_t i = 0; i < KERNEL && i <= row; ++i)
                        for (size_t j = 0; j < KERNEL && j <= column; ++j)
                            if (row - i < used && column - j < used)
                                sum += weights[((f * CHANNELS1 + c) * KERNEL + i) * KERNEL + j] *
                                       d_a[(f * side + row - i) * side + column - j];
                d_x[(c * POOLED1 + row) * POOLED1 + column] = sum;
            }
        }
    }
}

// v ← momentum·v − lr·dθ, θ ← θ + v. Then the gradient is set to 0 for the next batch.
static void update(struct network *network, const struct options *options) {
    const vec *gradient = (const vec *)network->gradient;
    float *parameters = (float *)network->parameters, *velocity = (float *)network->velocity;
    for (size_t i = 0; i < PARAMETERS; ++i) {
        float sum = 0;
        for (size_t l = 0; l < LANES; ++l)
            sum += gradient[i][l];
        velocity[i] = options->momentum * velocity[i] - options->learning_rate * sum;
        parameters[i] += velocity[i];
    }
    memset(network->gradient, 0, sizeof *network->gradient);
}

// z becomes p = softmax(z), sample by sample. Adds the block's samples to the score.
static void softmax(vec *z, const struct batch *block, struct score *score) {
    for (size_t s = 0; s < block->samples; ++s) {
        const uint8_t label = block->labels[s];
        const float of_label = z[label][s];
        float sum = 0;
        size_t best = 0;
        for (size_t o = 1; o < CLASSES; ++o)
            best = z[o][s] > z[best][s] ? o : best;
        const float max = z[best][s];
        for (size_t o = 0; o < CLASSES; ++o) {
            z[o][s] = expf(z[o][s] - max);
            sum += z[o][s];
        }
        for (size_t o = 0; o < CLASSES; ++o)
            z[o][s] /= sum;
        score->loss += logf(sum) - (of_label - max);
        score->right += best == label;
    }
}

// Sets all values of a block, up to p. Adds its samples to the score.
static void forward(struct network *network, const struct batch *block, struct score *score) {
    const struct parameters *parameters = network->parameters;
    struct values *values = network->values;

    // Lanes without a sample repeat the first one. backward() takes no gradient from them.
    const float *images[LANES];
    for (size_t l = 0; l < LANES; ++l)
        images[l] = block->images + (l < block->samples ? l : 0) * PIXELS;
    turn(images, values->x, PIXELS);

    convolve(parameters->weights1, parameters->bias1, values->x, values->m1, values->taken1, 1,
             SIDE, CHANNELS1);
    convolve(parameters->weights2, parameters->bias2, values->m1, values->m2, values->taken2,
             CHANNELS1, POOLED1, CHANNELS2);
    multiply(parameters->weights3, parameters->bias3, values->m2, values->a3, FEATURES, HIDDEN,
             true);
    multiply(parameters->weights4, parameters->bias4, values->a3, values->z, HIDDEN, CLASSES,
             false);
    softmax(values->z, block, score);
}

// Adds the gradient of the block that forward() has just seen, a part of a batch of n samples.
static void backward(struct network *network, const struct batch *block, size_t n) {
    const struct parameters *parameters = network->parameters;
    struct gradient *gradient = network->gradient;
    struct values *values = network->values;
    vec *dz = values->z;

    // dz = (p − onehot(label)) / n, and 0 in lanes without a sample
    vec_mask labels = (vec_mask){0} - 1;
    for (size_t s = 0; s < block->samples; ++s)
        labels[s] = block->labels[s];
    for (size_t o = 0; o < CLASSES; ++o) {
        dz[o] = (dz[o] + __builtin_convertvector(labels == (int32_t)o, vec)) / (float)n;
        dz[o] = (vec)((vec_mask)dz[o] & (labels >= 0));
    }

    multiply_weight_gradient(values->a3, dz, gradient->weights4, gradient->bias4, HIDDEN, CLASSES);
    multiply_input_gradient(parameters->weights4, dz, values->a3, values->d_a3, HIDDEN, CLASSES);
    multiply_weight_gradient(values->m2, values->d_a3, gradient->weights3, gradient->bias3,
                             FEATURES, HIDDEN);
    multiply_input_gradient(parameters->weights3, values->d_a3, values->m2, values->d_m2, FEATURES,
                            HIDDEN);
    unpool(values->d_m2, values->taken2, values->d_a2, CHANNELS2, SIDE2);
    convolve_weight_gradient(values->m1, values->d_a2, gradient->weights2, gradient->bias2,
                             CHANNELS1, POOLED1, CHANNELS2);
    convolve_input_gradient(parameters->weights2, values->d_a2, values->d_m1);
    unpool(values->d_m1, values->taken1, values->d_a1, CHANNELS1, SIDE1);
    convolve_weight_gradient(values->x, values->d_a1, gradient->weights1, gradient->bias1, 1, SIDE,
                             CHANNELS1);
}

// Returns the block that begins at sample s of a batch.
static struct batch block_at(const struct batch *batch, size_t s) {
    const size_t left = batch->samples - s;
    return (struct batch){left < LANES ? left : LANES, batch->images + s * PIXELS,
                          batch->labels + s};
}

// Returns the fraction of samples whose most probable class is their label.
static double evaluate(struct network *network, const struct dataset *dataset) {
    const struct batch batch = batch_at(dataset, 0, dataset->samples);
    struct score score = {0};
    for (size_t s = 0; s < batch.samples; s += LANES) {
        const struct batch block = block_at(&batch, s);
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
            for (size_t s = 0; s < batch.samples; s += LANES) {
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
        parse_options(argc, argv, "Trains on the vector units of one core.", 1);
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
