// Stage 02: the same kernels, on all cores. The threads divide the blocks of a batch. Each adds up
// a gradient of its own, so nobody waits within a block. Once a batch the threads meet: each sums a
// slice of the gradients of all, updates its slice of the weights, and they meet again.
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

#include <limits.h>
#include <math.h>
#include <omp.h>
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
enum { LANES = VECTOR_BYTES / sizeof(float), BLOCK = LANES }; // samples of a block
typedef float vec __attribute__((vector_size(VECTOR_BYTES))); // the same number of each of them
typedef int32_t vec_mask __attribute__((vector_size(VECTOR_BYTES)));

// The sizes of the tiles. A third of the registers to a half has sums, the others operands.
enum {
    TILE_FILTERS = 2,                         // of a convolution, with the 4 outputs of each
    TILE_TAPS = REGISTERS == 32 ? KERNEL : 1, // weights of a filter at a time
    TILE_ROWS = REGISTERS / 16, // of a pool's outputs, whose inputs' gradients are (2 + rows) × 4
    TILE_OUTPUTS = TILE_ROWS * POOL,
    TILE_KERNELS = REGISTERS / 16, // of a convolution's weights, 9 each
    TILE_SUMS = REGISTERS / 2,     // of a dense layer's outputs, or of its inputs' gradients
    TILE_INPUTS = 5,               // of the hidden layer's weights,
    TILE_UNITS = 2 * LANES,        // with so many hidden units
};

enum { WINDOW = POOL * POOL };      // outputs of which a pool takes one
enum { PATCH = POOL + KERNEL - 1 }; // rows and columns of the inputs that they come from

// For the kernels: where a tile's size is a constant, the loops over the tile disappear.
#define INLINED static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 16")

// Weights, or their velocities.
struct parameters {
    float weights3[WEIGHTS3];
    float weights1[WEIGHTS1], bias1[CHANNELS1];
    float weights2[WEIGHTS2], bias2[CHANNELS2];
    float bias3[HIDDEN];
    float weights4[WEIGHTS4], bias4[CLASSES];
};
enum { OTHERS = sizeof(struct parameters) / sizeof(float) - WEIGHTS3 };

// A batch's gradient, in the same order. That of W3 has hidden units in its lanes. Each of the
// others has samples in its lanes, and is their sum.
struct gradient {
    vec weights3[WEIGHTS3 / LANES];
    vec weights1[WEIGHTS1], bias1[CHANNELS1];
    vec weights2[WEIGHTS2], bias2[CHANNELS2];
    vec bias3[HIDDEN];
    vec weights4[WEIGHTS4], bias4[CLASSES];
};

// One block's values, with the shapes above, and their gradients. Those of a1, a2 and a3 are taken
// before the ReLU. A pool's `taken` says which of its outputs is the largest, 0 to 3, or WINDOW if
// none is above 0.
struct values {
    vec x[PIXELS];
    vec m1[CHANNELS1 * POOLED1 * POOLED1], d_m1[CHANNELS1 * POOLED1 * POOLED1];
    vec m2[FEATURES], d_m2[FEATURES];
    vec_mask taken1[CHANNELS1 * POOLED1 * POOLED1], taken2[FEATURES];
    vec d_a2[FEATURES][WINDOW]; // of a pool's four outputs
    vec a3[HIDDEN], d_a3[HIDDEN];
    vec turned_d_a3[HIDDEN]; // a sample's hidden units in a vector
    vec z[CLASSES], p[CLASSES], d_z[CLASSES];
};

struct network {
    struct parameters *parameters, *velocity;
    struct gradient *gradient; // T: the sums of each thread's blocks
    struct values *values;     // T
    struct score *scores;      // T
    size_t threads;            // T
};

// A thread's part of the network.
struct worker {
    size_t thread, threads; // 0 to T − 1, T
    struct gradient *gradient;
    struct values *values;
};

// A thread's part of some blocks or parameters: first to last − 1.
struct range {
    size_t first, last;
};

static struct network create(const struct options *options) {
    // More threads than cores would make each other wait at each barrier. More threads than blocks
    // would have nothing to do.
    const size_t blocks = (largest_batch(options) + BLOCK - 1) / BLOCK;
    size_t threads =
        (size_t)(options->common.threads ? options->common.threads : omp_get_max_threads());
    threads = threads < (size_t)omp_get_num_procs() ? threads : (size_t)omp_get_num_procs();
    threads = threads < blocks ? threads : blocks;
    const struct network network = {
        .parameters = allocate_array(1, sizeof *network.parameters),
        .velocity = allocate_array(1, sizeof *network.velocity),
        .gradient = allocate_array(threads, sizeof *network.gradient),
        .values = allocate_array(threads, sizeof *network.values),
        .scores = allocate_array(threads, sizeof *network.scores),
        .threads = threads,
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
    free(network->scores);
}

// Returns the calling thread's part. The runtime may have granted fewer threads than wanted.
static struct worker take_worker(const struct network *network) {
    const size_t thread = (size_t)omp_get_thread_num(), threads = (size_t)omp_get_num_threads();
    return (struct worker){thread, threads, network->gradient + thread, network->values + thread};
}

// Returns the worker's part of `count` things.
static struct range part_of(const struct worker *worker, size_t count) {
    return (struct range){count * worker->thread / worker->threads,
                          count * (worker->thread + 1) / worker->threads};
}

// Returns a where the mask is set, and b elsewhere.
INLINED vec choose(vec_mask mask, vec a, vec b) {
    return (vec)((mask & (vec_mask)a) | (~mask & (vec_mask)b));
}

// m = pool(max(0, W ∗ x + b)) for TILE_FILTERS filters, in one place. `x` is the first of its 4 × 4
// inputs in each channel, and images are side × side. The first filter's weights begin at
// `weights`. Each iteration has 8 inputs and 6 weights for 24 multiply-adds, or with few registers
// 4 inputs and 2 weights for 8.
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
#pragma GCC unroll TILE_TAPS
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

// y = x·W + b, and max(0, y) with `relu`: x `inputs`, W inputs × outputs, y `outputs`. A tile has
// so many outputs.
INLINED void multiply(const float *weights, const float *bias, const vec *x, vec *y, size_t inputs,
                      size_t outputs, size_t tile, bool relu) {
    for (size_t o = 0; o < outputs; o += tile) {
        vec sum[TILE_SUMS];
        for (size_t t = 0; t < tile; ++t)
            sum[t] = bias[o + t] + (vec){0};
        for (size_t k = 0; k < inputs; ++k)
            for (size_t t = 0; t < tile; ++t)
                sum[t] += x[k] * weights[k * outputs + o + t];
        for (size_t t = 0; t < tile; ++t)
            y[o + t] = relu ? (vec)((vec_mask)sum[t] & (sum[t] > 0)) : sum[t];
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

// Rows become columns: number l of row s, where a row has as many numbers as there are rows.
static void turn(const vec *rows, vec *columns) {
    for (size_t l = 0; l < LANES; ++l)
        for (size_t s = 0; s < LANES; ++s)
            columns[s][l] = rows[l][s];
}

// dW3 += m2ᵀ·da3, db3 += da3. A vector of dW3 has hidden units in its lanes. For them da3 is
// turned.
static void hidden_weight_gradient(const vec *m2, const vec *d_a3, vec *turned_d_a3, vec *d_weights,
                                   vec *d_bias) {
    for (size_t h = 0; h < HIDDEN; ++h)
        d_bias[h] += d_a3[h];
    for (size_t h = 0; h < HIDDEN; h += LANES)
        turn(d_a3 + h, turned_d_a3 + h);
    for (size_t h = 0; h < HIDDEN; h += TILE_UNITS) {
        for (size_t k = 0; k < FEATURES; k += TILE_INPUTS) {
            vec *gradient = d_weights + (k * HIDDEN + h) / LANES;
            vec sum[TILE_INPUTS][2];
            for (size_t r = 0; r < TILE_INPUTS; ++r)
                for (size_t c = 0; c < 2; ++c)
                    sum[r][c] = gradient[r * HIDDEN / LANES + c];
            for (size_t s = 0; s < LANES; ++s)
                for (size_t r = 0; r < TILE_INPUTS; ++r)
                    for (size_t c = 0; c < 2; ++c)
                        sum[r][c] +=
                            ((const float *)&m2[k + r])[s] * turned_d_a3[h + c * LANES + s];
            for (size_t r = 0; r < TILE_INPUTS; ++r)
                for (size_t c = 0; c < 2; ++c)
                    gradient[r * HIDDEN / LANES + c] = sum[r][c];
        }
    }
}

// dx = (dy·Wᵀ) ⊙ [x > 0], where x is the result of a ReLU.
INLINED void multiply_input_gradient(const float *weights, const vec *d_y, const vec *x, vec *d_x,
                                     size_t inputs, size_t outputs) {
    for (size_t k = 0; k < inputs; k += TILE_SUMS) {
        vec sum[TILE_SUMS] = {0};
        for (size_t o = 0; o < outputs; ++o)
            for (size_t t = 0; t < TILE_SUMS; ++t)
                sum[t] += d_y[o] * weights[(k + t) * outputs + o];
        for (size_t t = 0; t < TILE_SUMS; ++t)
            d_x[k + t] = (vec)((vec_mask)sum[t] & (x[k + t] > 0));
    }
}

// The gradient of output q of a pool's four: that of the pool in the samples where the pool took
// it, and 0 in the others.
INLINED vec unpool(vec d_m, vec_mask taken, size_t q) {
    return (vec)((vec_mask)d_m & (taken == (int32_t)q));
}

// dW += Σ x·da, db += Σ da. A tile has the weights of TILE_KERNELS filters for one channel. A
// pool's place has 16 inputs and 4 gradients of each filter for 36 multiply-adds of each. The
// gradients are in d_a, or are made here if d_a is NULL.
INLINED void convolve_weight_gradient(const vec *x, const vec *d_m, const vec_mask *taken,
                                      const vec (*d_a)[WINDOW], vec *d_weights, vec *d_bias,
                                      size_t channels, size_t side, size_t filters) {
    const size_t out = (side - KERNEL + 1) / POOL, places = out * out;
    for (size_t f = 0; f < filters; f += TILE_KERNELS) {
        for (size_t c = 0; c < channels; ++c) {
            vec sum[TILE_KERNELS][TAPS], bias_sum[TILE_KERNELS] = {0};
            for (size_t g = 0; g < TILE_KERNELS; ++g)
                for (size_t t = 0; t < TAPS; ++t)
                    sum[g][t] = d_weights[((f + g) * channels + c) * TAPS + t];
            for (size_t row = 0; row < out; ++row) {
                for (size_t column = 0; column < out; ++column) {
                    const size_t place = f * places + row * out + column;
                    const vec *image = x + (c * side + POOL * row) * side + POOL * column;
                    vec d_output[TILE_KERNELS][WINDOW];
                    for (size_t g = 0; g < TILE_KERNELS; ++g) {
                        const size_t of_filter = place + g * places;
                        for (size_t q = 0; q < WINDOW; ++q)
                            d_output[g][q] = d_a ? d_a[of_filter][q]
                                                 : unpool(d_m[of_filter], taken[of_filter], q);
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

// dx of a convolution. A tile has the 4 × 4 inputs of a pool's outputs, or of one row of outputs,
// in one channel. Each filter has 4 gradients and 9 weights for 36 multiply-adds. Inputs belong to
// up to four tiles, which are added up. The outputs' gradients go to d_a.
static void convolve_input_gradient(const float *weights, const vec *d_m, const vec_mask *taken,
                                    vec (*d_a)[WINDOW], vec *d_x) {
    const size_t out = POOLED2, places = out * out;
    memset(d_x, 0, sizeof(vec[CHANNELS1 * POOLED1 * POOLED1]));
    for (size_t row = 0; row < POOLED2; ++row) {
        for (size_t column = 0; column < POOLED2; ++column) {
            const size_t place = row * POOLED2 + column;
            for (size_t f = 0; f < CHANNELS2; ++f) {
                const size_t of_filter = f * places + place;
                for (size_t q = 0; q < WINDOW; ++q)
                    d_a[of_filter][q] = unpool(d_m[of_filter], taken[of_filter], q);
            }
            for (size_t c = 0; c < CHANNELS1; ++c) {
                for (size_t r = 0; r < POOL; r += TILE_ROWS) {
                    vec *image = d_x + (c * POOLED1 + POOL * row + r) * POOLED1 + POOL * column;
                    vec sum[TILE_ROWS + KERNEL - 1][PATCH];
                    for (size_t i = 0; i < TILE_ROWS + KERNEL - 1; ++i)
                        for (size_t j = 0; j < PATCH; ++j)
                            sum[i][j] = image[i * POOLED1 + j];
                    for (size_t f = 0; f < CHANNELS2; ++f) {
                        const float *w = weights + (f * CHANNELS1 + c) * TAPS;
                        UNROLLED
                        for (size_t t = 0; t < TAPS; ++t)
                            for (size_t q = 0; q < TILE_OUTPUTS; ++q)
                                sum[t / KERNEL + q / POOL][t % KERNEL + q % POOL] +=
                                    w[t] * d_a[f * places + place][r * POOL + q];
                    }
                    for (size_t i = 0; i < TILE_ROWS + KERNEL - 1; ++i)
                        for (size_t j = 0; j < PATCH; ++j)
                            image[i * POOLED1 + j] = sum[i][j];
                }
            }
        }
    }
}

// Returns the sum of all threads' gradients, of vector i of it.
static vec sum_gradients(const struct network *network, size_t threads, size_t i) {
    vec sum = {0};
    for (size_t t = 0; t < threads; ++t)
        sum += ((const vec *)(network->gradient + t))[i];
    return sum;
}

// v ← momentum·v − lr·dθ, θ ← θ + v, for the worker's slice. Then its gradient is set to 0 for the
// next batch.
static void update(struct network *network, const struct worker *worker,
                   const struct options *options) {
    const float momentum = options->momentum, learning_rate = options->learning_rate;
    vec *weights3 = (vec *)network->parameters, *velocity3 = (vec *)network->velocity;
    struct range range = part_of(worker, WEIGHTS3 / LANES);
    // All threads' gradients are complete.
#pragma omp barrier
    for (size_t i = range.first; i < range.last; ++i) {
        const vec gradient = sum_gradients(network, worker->threads, i);
        velocity3[i] = momentum * velocity3[i] - learning_rate * gradient;
        weights3[i] += velocity3[i];
    }
    float *parameters = (float *)network->parameters + WEIGHTS3;
    float *velocity = (float *)network->velocity + WEIGHTS3;
    range = part_of(worker, OTHERS);
    for (size_t i = range.first; i < range.last; ++i) {
        const vec gradient = sum_gradients(network, worker->threads, WEIGHTS3 / LANES + i);
        float sum = 0;
        for (size_t l = 0; l < LANES; ++l)
            sum += gradient[l];
        velocity[i] = momentum * velocity[i] - learning_rate * sum;
        parameters[i] += velocity[i];
    }
    // All weights are new, and nobody reads this thread's gradient any more.
#pragma omp barrier
    memset(worker->gradient, 0, sizeof *worker->gradient);
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
static void forward(const struct network *network, const struct worker *worker,
                    const struct batch *block, struct score *score) {
    const size_t n = block->samples;
    const struct parameters *parameters = network->parameters;
    struct values *values = worker->values;

    // Lanes without a sample keep an older one. backward() takes no gradient from them.
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t s = 0; s < n; ++s)
            values->x[k][s] = block->images[s * PIXELS + k];
    convolve(parameters->weights1, parameters->bias1, values->x, values->m1, values->taken1, 1,
             SIDE, CHANNELS1);
    convolve(parameters->weights2, parameters->bias2, values->m1, values->m2, values->taken2,
             CHANNELS1, POOLED1, CHANNELS2);
    multiply(parameters->weights3, parameters->bias3, values->m2, values->a3, FEATURES, HIDDEN,
             TILE_SUMS, true);
    multiply(parameters->weights4, parameters->bias4, values->a3, values->z, HIDDEN, CLASSES,
             CLASSES / 2, false);
    softmax(values->z, values->p, block, score);
}

// Adds the gradient of the block that forward() has just seen, a part of a batch.
static void backward(const struct network *network, const struct worker *worker,
                     const struct batch *block, size_t batch_samples) {
    const struct parameters *parameters = network->parameters;
    struct gradient *gradient = worker->gradient;
    struct values *values = worker->values;

    // dz = (p − onehot(label)) / batch_samples, and 0 in lanes without a sample
    memset(values->d_z, 0, sizeof values->d_z);
    for (size_t s = 0; s < block->samples; ++s)
        for (size_t o = 0; o < CLASSES; ++o)
            values->d_z[o][s] = (values->p[o][s] - (o == block->labels[s])) / (float)batch_samples;

    multiply_weight_gradient(values->a3, values->d_z, gradient->weights4, gradient->bias4, HIDDEN,
                             CLASSES);
    multiply_input_gradient(parameters->weights4, values->d_z, values->a3, values->d_a3, HIDDEN,
                            CLASSES);
    hidden_weight_gradient(values->m2, values->d_a3, values->turned_d_a3, gradient->weights3,
                           gradient->bias3);
    multiply_input_gradient(parameters->weights3, values->d_a3, values->m2, values->d_m2, FEATURES,
                            HIDDEN);
    convolve_input_gradient(parameters->weights2, values->d_m2, values->taken2, values->d_a2,
                            values->d_m1);
    convolve_weight_gradient(values->m1, NULL, NULL, values->d_a2, gradient->weights2,
                             gradient->bias2, CHANNELS1, POOLED1, CHANNELS2);
    convolve_weight_gradient(values->x, values->d_m1, values->taken1, NULL, gradient->weights1,
                             gradient->bias1, 1, SIDE, CHANNELS1);
}

// Returns the block that begins at sample s of a batch.
static struct batch block_at(const struct batch *batch, size_t s) {
    const size_t left = batch->samples - s;
    return (struct batch){left < BLOCK ? left : BLOCK, batch->images + s * PIXELS,
                          batch->labels + s};
}

// Returns the fraction of samples whose most probable class is their label.
static double evaluate(const struct network *network, const struct dataset *dataset) {
    const struct worker worker = take_worker(network); // the only one: no other thread is at work
    struct batch block;
    struct score score = {0};
    for (size_t first = 0; first < (size_t)dataset->samples; first += block.samples) {
        block = batch_at(dataset, first, BLOCK);
        forward(network, &worker, &block, &score);
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
        const double start = seconds();
#pragma omp parallel num_threads(network->threads)
        {
            const struct worker worker = take_worker(network);
            struct score score = {0};
            struct batch batch;
            double clock = start;
            for (size_t first = 0; first < (size_t)data->train.samples; first += batch.samples) {
                double forward_s = 0, backward_s = 0;
                batch = batch_at(&data->train, first, options->batch);
                const struct range blocks = part_of(&worker, (batch.samples + BLOCK - 1) / BLOCK);
                for (size_t b = blocks.first; b < blocks.last; ++b) {
                    const struct batch block = block_at(&batch, b * BLOCK);
                    forward(network, &worker, &block, &score);
                    lap(&forward_s, &clock);
                    backward(network, &worker, &block, batch.samples);
                    lap(&backward_s, &clock);
                }
                update(network, &worker, options);
                lap(&backward_s, &clock);
                if (worker.thread == 0) {
                    timer_add(&result->forward, forward_s);
                    timer_add(&result->backward, backward_s);
                }
            }
            network->scores[worker.thread] = score;
            if (worker.thread == 0)
                result->threads = (int)worker.threads;
        }
        epoch.epoch_s = seconds() - start;
        // In the order of the threads, so that the sum is the same in each run.
        for (int t = 0; t < result->threads; ++t) {
            epoch.score.loss += network->scores[t].loss;
            epoch.score.right += network->scores[t].right;
        }
        epoch.test_accuracy = evaluate(network, &data->test);
        status = report_epoch(options, data, result, &epoch);
    }
    return status;
}

// Writes the weights. Each array lies in memory as in the file. Returns the exit status.
static int save(const struct network *network, const struct options *options) {
    struct parameters *parameters = network->parameters;
    float *const weights[LAYERS] = {parameters->weights1, parameters->weights2,
                                    parameters->weights3, parameters->weights4};
    float *const biases[LAYERS] = {parameters->bias1, parameters->bias2, parameters->bias3,
                                   parameters->bias4};
    return write_weights(options, weights, biases);
}

int main(int argc, char **argv) {
    struct options options = parse_options(argc, argv, "Trains on all cores.", INT_MAX);
    struct result result = {.device = "cpu"};
    struct data data;

    int status = load_data(&options, &data);
    if (status)
        return status;

    double clock = seconds();
    struct network network = create(&options);
    result.setup_s = seconds() - clock;
    result.threads = (int)network.threads;

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
