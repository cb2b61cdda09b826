// Stage 02: as fast as one core goes. It computes with vectors of hidden units, in tiles whose sums
// stay in registers. One forward pass serves the cost and the gradient: a block of images goes
// through both while it is in the cache.
//
// Shapes: m samples in blocks of n, H hidden units in V vectors. The last vector may have lanes
// without a hidden unit. Their activations are 0, and so are their weights and gradients. W1 has a
// panel of 1024 vectors for each vector of hidden units.
//
//     a = σ(x·W1 + b1)      n × V         σ(z) = 1 / (1 + e^−z)
//     z = a·W2ᵀ + b2        3 × n         p = σ(z)
//     J = 1/m Σ Σ_k [−y log p − (1 − y) log(1 − p)] + λ/2m (Σ W1² + Σ W2²)
#include "studies/galaxy/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The widest vectors of the machine that is compiled for. A tile has TILE_ROWS × TILE_COLUMNS
// vectors of sums and takes half of the registers.
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, TILE_ROWS = 8, TILE_COLUMNS = 2 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, TILE_ROWS = 4, TILE_COLUMNS = 2 };
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, TILE_ROWS = 8, TILE_COLUMNS = 2 };
#else
enum { VECTOR_BYTES = 16, TILE_ROWS = 4, TILE_COLUMNS = 2 };
#endif
enum { LANES = VECTOR_BYTES / sizeof(double) };
typedef double vec __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t vec_mask __attribute__((vector_size(VECTOR_BYTES))); // of a comparison
typedef uint64_t vec_bits __attribute__((vector_size(VECTOR_BYTES)));

// The images of a block: 512 KiB, which stay in the second cache between the two passes.
enum { BLOCK = 64 };

// For the kernels: where a tile's size is a constant, the loops over the tile disappear.
#define INLINED static inline __attribute__((always_inline))

struct network {
    size_t hidden;         // H
    size_t vectors;        // V
    size_t parameters;     // doubles in θ, with the padding
    double lambda;         // λ
    struct dataset images; // that the cost is about
    vec *theta;            // W1 V × 1024, b1 V, W2 3 × V, b2 1

    // A block's values.
    vec *activations;   // 64 × V: a
    vec *d_activations; // 64 × V: δ2
    vec *logits;        // 3 × 64 doubles: z, then δ3

    struct timer *cost_time, *gradient_time;
};

// Where the parts of the parameters begin, or of their gradient.
struct parts {
    vec *weights1, *bias1, *weights2, *bias2;
};

static struct parts parts_of(const struct network *network, const vec *theta) {
    vec *weights1 = (vec *)theta, *bias1 = weights1 + PIXELS * network->vectors;
    vec *weights2 = bias1 + network->vectors;
    return (struct parts){weights1, bias1, weights2, weights2 + CLASSES * network->vectors};
}

static vec *allocate_vectors(size_t count) {
    return (vec *)allocate_doubles(count * LANES);
}

static struct network create(const struct options *options, const struct dataset *images,
                             struct result *result) {
    const size_t hidden = (size_t)options->hidden, vectors = (hidden + LANES - 1) / LANES;
    const size_t count = (PIXELS + 1 + CLASSES) * vectors + (CLASSES + LANES - 1) / LANES;
    struct network network = {
        .hidden = hidden,
        .vectors = vectors,
        .parameters = count * LANES,
        .lambda = options->lambda,
        .images = *images,
        .theta = allocate_vectors(count),
        .activations = allocate_vectors(BLOCK * vectors),
        .d_activations = allocate_vectors(BLOCK * vectors),
        .logits = allocate_vectors(CLASSES * BLOCK / LANES),
        .cost_time = &result->cost,
        .gradient_time = &result->gradient,
    };
    const struct parts parts = parts_of(&network, network.theta);
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t h = 0; h < hidden; ++h) {
        parts.bias1[h / LANES][h % LANES] = draw_weight(&generator);
        for (size_t k = 0; k < PIXELS; ++k)
            parts.weights1[h / LANES * PIXELS + k][h % LANES] = draw_weight(&generator);
    }
    for (size_t h = hidden; h < vectors * LANES; ++h)
        parts.bias1[h / LANES][h % LANES] = -1e4; // σ is 0 there
    generator = pcg32_start(options->seed, 2);
    for (size_t o = 0; o < CLASSES; ++o) {
        parts.bias2[o / LANES][o % LANES] = draw_weight(&generator);
        for (size_t h = 0; h < hidden; ++h)
            parts.weights2[o * vectors + h / LANES][h % LANES] = draw_weight(&generator);
    }
    return network;
}

static void destroy(struct network *network) {
    free(network->theta);
    free(network->activations);
    free(network->d_activations);
    free(network->logits);
}

// Returns the sum of the lanes: of the two halves, then of the two quarters, and so on.
INLINED double sum_lanes(vec numbers) {
    double lanes[LANES];
    memcpy(lanes, &numbers, sizeof lanes);
#pragma GCC unroll 8
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t lane = 0; lane < half; ++lane)
            lanes[lane] += lanes[lane + half];
    return lanes[0];
}

// Returns a where the condition holds, else b.
INLINED vec choose(vec_mask condition, vec a, vec b) {
    return (vec)(((vec_mask)a & condition) | ((vec_mask)b & ~condition));
}

// Returns e^−|z| = 2^i·e^r with a whole number i and |r| <= ln 2 / 2. The Taylor series for e^r has
// an error below 1e-17. Adding 1.5·2^52 rounds to i and leaves it in the low bits. From there it is
// added to the exponent. ln 2 is two doubles, so that i·ln 2 is exact enough.
INLINED vec exponential(vec z) {
    const vec x = choose(z > 0, -z, z);
    const vec shifted = x * M_LOG2E + 0x1.8p52, i = shifted - 0x1.8p52;
    const vec r = x - i * 0x1.62e42fefap-1 - i * 0x1.cf79abc9e3b39p-40;
    vec e = 1.0 / 479001600 + r * (1.0 / 6227020800);
    e = 1.0 / 39916800 + r * e;
    e = 1.0 / 3628800 + r * e;
    e = 1.0 / 362880 + r * e;
    e = 1.0 / 40320 + r * e;
    e = 1.0 / 5040 + r * e;
    e = 1.0 / 720 + r * e;
    e = 1.0 / 120 + r * e;
    e = 1.0 / 24 + r * e;
    e = 1.0 / 6 + r * e;
    e = 1.0 / 2 + r * e;
    e = 1 + r * e;
    e = 1 + r * e;
    e = (vec)((vec_bits)e + ((vec_bits)shifted << 52));
    return (vec)((vec_mask)e & (x > -708)); // below that, it is no normal double
}

INLINED vec sigmoid(vec z, vec e) {
    const vec small = e / (1 + e);
    return choose(z > 0, 1 - small, small);
}

// A tile of a = σ(x·W1 + b1): `rows` samples × `columns` vectors of hidden units from v on. Each
// step loads `columns` vectors of W1 and `rows` pixels for rows × columns multiply-adds.
INLINED void forward_tile(const struct parts *parts, const double *x, vec *a, size_t vectors,
                          size_t rows, size_t v, size_t columns) {
    const vec *weights1 = parts->weights1 + v * PIXELS;
    vec sum[TILE_ROWS][TILE_COLUMNS];
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c)
            sum[r][c] = parts->bias1[v + c];
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t r = 0; r < rows; ++r)
            for (size_t c = 0; c < columns; ++c)
                sum[r][c] += x[r * PIXELS + k] * weights1[c * PIXELS + k];
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c)
            a[r * vectors + v + c] = sigmoid(sum[r][c], exponential(sum[r][c]));
}

// The tiles of some vectors of hidden units, for n samples.
INLINED void forward_columns(const struct parts *parts, const double *x, vec *a, size_t vectors,
                             size_t n, size_t v, size_t columns) {
    size_t s = 0;
    for (; s + TILE_ROWS <= n; s += TILE_ROWS)
        forward_tile(parts, x + s * PIXELS, a + s * vectors, vectors, TILE_ROWS, v, columns);
    for (; s < n; ++s)
        forward_tile(parts, x + s * PIXELS, a + s * vectors, vectors, 1, v, columns);
}

// Sets a and z for a block of n images.
static void forward(struct network *network, const struct parts *parts, const double *x, size_t n) {
    const size_t vectors = network->vectors;
    const double *bias2 = (const double *)parts->bias2;
    vec *a = network->activations;
    double *z = (double *)network->logits;
    size_t v = 0;
    for (; v + TILE_COLUMNS <= vectors; v += TILE_COLUMNS)
        forward_columns(parts, x, a, vectors, n, v, TILE_COLUMNS);
    for (; v < vectors; ++v)
        forward_columns(parts, x, a, vectors, n, v, 1);
    for (size_t s = 0; s < n; ++s) {
        vec sum[CLASSES] = {0};
        for (v = 0; v < vectors; ++v)
            for (size_t o = 0; o < CLASSES; ++o)
                sum[o] += parts->weights2[o * vectors + v] * a[s * vectors + v];
        for (size_t o = 0; o < CLASSES; ++o)
            z[o * BLOCK + s] = bias2[o] + sum_lanes(sum[o]);
    }
}

// Returns the block's part of m·J, without Θ², and turns z into δ3 = (p − y) / m. The cost of an
// output is log(1 + e^−|z|) + max(0, z) − y·z. The sum of the logarithms is that of the product,
// whose factors are at most 2, so that a block takes one logarithm.
static double cost(struct network *network, const uint8_t *labels, size_t n) {
    const double scale = 1 / (double)network->images.samples;
    vec product = {0}, sum = {0};
    double all = 1;
    product += 1;
    for (size_t o = 0; o < CLASSES; ++o) {
        vec *row = network->logits + o * BLOCK / LANES;
        double y[BLOCK] = {0};
        for (size_t s = 0; s < n; ++s)
            y[s] = labels[s] == o;
        for (size_t s = n; s % LANES != 0; ++s)
            ((double *)row)[s] = -1e4; // a lane without a sample costs nothing, and p is 0
        for (size_t s = 0; s < n; s += LANES) {
            const vec z = row[s / LANES], e = exponential(z);
            vec is_label;
            memcpy(&is_label, y + s, sizeof is_label);
            product *= 1 + e;
            sum += choose(z > 0, z, z - z) - is_label * z;
            row[s / LANES] = (sigmoid(z, e) - is_label) * scale;
        }
    }
    for (size_t lane = 0; lane < LANES; ++lane)
        all *= product[lane];
    return log(all) + sum_lanes(sum);
}

// A tile of dW1 += xᵀ·δ2: `TILE_ROWS` pixels from k on × `columns` vectors of hidden units from v
// on.
INLINED void gradient_tile(const struct parts *d_parts, const double *x, const vec *delta2,
                           size_t vectors, size_t n, size_t k, size_t v, size_t columns) {
    vec *d_weights1 = d_parts->weights1 + v * PIXELS + k;
    vec sum[TILE_ROWS][TILE_COLUMNS];
    for (size_t r = 0; r < TILE_ROWS; ++r)
        for (size_t c = 0; c < columns; ++c)
            sum[r][c] = d_weights1[c * PIXELS + r];
    for (size_t s = 0; s < n; ++s)
        for (size_t r = 0; r < TILE_ROWS; ++r)
            for (size_t c = 0; c < columns; ++c)
                sum[r][c] += x[s * PIXELS + k + r] * delta2[s * vectors + v + c];
    for (size_t r = 0; r < TILE_ROWS; ++r)
        for (size_t c = 0; c < columns; ++c)
            d_weights1[c * PIXELS + r] = sum[r][c];
}

// Adds a block's part of the gradient, from a and δ3.
static void gradient(struct network *network, const struct parts *parts,
                     const struct parts *d_parts, const double *x, size_t n) {
    const size_t vectors = network->vectors;
    const vec *a = network->activations;
    const double *delta3 = (const double *)network->logits;
    vec *delta2 = network->d_activations;
    size_t v = 0;

    // δ2 = (δ3·W2) ⊙ a ⊙ (1 − a), db1 += Σ δ2, dW2 += δ3ᵀ·a, db2 += Σ δ3
    for (size_t s = 0; s < n; ++s)
        for (size_t o = 0; o < CLASSES; ++o)
            ((double *)d_parts->bias2)[o] += delta3[o * BLOCK + s];
    for (v = 0; v < vectors; ++v) {
        vec d_bias1 = d_parts->bias1[v], d_weights2[CLASSES];
        for (size_t o = 0; o < CLASSES; ++o)
            d_weights2[o] = d_parts->weights2[o * vectors + v];
        for (size_t s = 0; s < n; ++s) {
            const vec active = a[s * vectors + v];
            vec sum = {0};
            for (size_t o = 0; o < CLASSES; ++o) {
                sum += delta3[o * BLOCK + s] * parts->weights2[o * vectors + v];
                d_weights2[o] += delta3[o * BLOCK + s] * active;
            }
            delta2[s * vectors + v] = sum * active * (1 - active);
            d_bias1 += delta2[s * vectors + v];
        }
        d_parts->bias1[v] = d_bias1;
        for (size_t o = 0; o < CLASSES; ++o)
            d_parts->weights2[o * vectors + v] = d_weights2[o];
    }

    // dW1 += xᵀ·δ2
    for (v = 0; v + TILE_COLUMNS <= vectors; v += TILE_COLUMNS)
        for (size_t k = 0; k < PIXELS; k += TILE_ROWS)
            gradient_tile(d_parts, x, delta2, vectors, n, k, v, TILE_COLUMNS);
    for (; v < vectors; ++v)
        for (size_t k = 0; k < PIXELS; k += TILE_ROWS)
            gradient_tile(d_parts, x, delta2, vectors, n, k, v, 1);
}

// Adds λ/m W. Returns Σ W².
static double regularize(const vec *weights, vec *d_weights, size_t count, double factor) {
    vec squares = {0};
    for (size_t i = 0; i < count; ++i) {
        squares += weights[i] * weights[i];
        d_weights[i] += factor * weights[i];
    }
    return sum_lanes(squares);
}

// What the minimizer calls: returns J and writes its gradient, block by block.
static double evaluate(void *context, const double *theta, double *d_theta) {
    struct network *network = context;
    const size_t vectors = network->vectors, samples = network->images.samples;
    const struct parts parts = parts_of(network, (const vec *)theta);
    const struct parts d_parts = parts_of(network, (vec *)d_theta);
    const double factor = network->lambda / (double)samples;
    double clock = seconds(), cost_time = 0, gradient_time = 0, value = 0;

    memset(d_theta, 0, network->parameters * sizeof *d_theta);
    for (size_t first = 0; first < samples; first += BLOCK) {
        const size_t n = samples - first < BLOCK ? samples - first : BLOCK;
        const double *x = network->images.images + first * PIXELS;
        forward(network, &parts, x, n);
        value += cost(network, network->images.labels + first, n);
        const double middle = seconds();
        gradient(network, &parts, &d_parts, x, n);
        const double end = seconds();
        cost_time += middle - clock;
        gradient_time += end - middle;
        clock = end;
    }
    double squares = regularize(parts.weights1, d_parts.weights1, PIXELS * vectors, factor);
    squares += regularize(parts.weights2, d_parts.weights2, CLASSES * vectors, factor);
    timer_add(network->cost_time, cost_time);
    timer_add(network->gradient_time, gradient_time);
    return value / (double)samples + factor / 2 * squares;
}

static void train(struct network *network, const struct options *options, struct result *result) {
    const struct objective objective = {network, network->parameters, evaluate};
    const double start = seconds();
    result->minimum =
        minimize(&objective, &HOST_VECTORS, (double *)network->theta, options->iterations);
    result->train_s = seconds() - start;
}

// Returns the fraction of samples whose largest output is that of their label.
static double accuracy(struct network *network, const struct dataset *images) {
    const struct parts parts = parts_of(network, network->theta);
    const double *z = (const double *)network->logits;
    size_t right = 0;
    for (size_t first = 0; first < images->samples; first += BLOCK) {
        const size_t left = images->samples - first, n = left < BLOCK ? left : BLOCK;
        forward(network, &parts, images->images + first * PIXELS, n);
        for (size_t s = 0; s < n; ++s) {
            size_t best = 0;
            for (size_t o = 1; o < CLASSES; ++o)
                best = z[o * BLOCK + s] > z[best * BLOCK + s] ? o : best;
            right += best == images->labels[first + s];
        }
    }
    return (double)right / (double)images->samples;
}

// Writes the weights, without the padding. Returns the exit status.
static int save(const struct network *network, const char *path) {
    const size_t hidden = network->hidden, vectors = network->vectors;
    const struct parts parts = parts_of(network, network->theta);
    double *weights1 = allocate_doubles(network->parameters), *bias1 = weights1 + PIXELS * hidden;
    double *weights2 = bias1 + hidden, *bias2 = weights2 + CLASSES * hidden;
    for (size_t h = 0; h < hidden; ++h) {
        const size_t v = h / LANES, lane = h % LANES;
        bias1[h] = parts.bias1[v][lane];
        for (size_t k = 0; k < PIXELS; ++k)
            weights1[k * hidden + h] = parts.weights1[v * PIXELS + k][lane];
        for (size_t o = 0; o < CLASSES; ++o)
            weights2[o * hidden + h] = parts.weights2[o * vectors + v][lane];
    }
    memcpy(bias2, parts.bias2, CLASSES * sizeof *bias2);
    const int status = write_weights(path, hidden, weights1);
    free(weights1);
    return status;
}

int main(int argc, char **argv) {
    const struct options options =
        parse_options(argc, argv, "Trains on one core, with vectors.", 1);
    struct result result = {.device = "cpu", .threads = 1};
    struct data data;

    int status = load_galaxies(&options, &data);
    if (status)
        return status;

    const double clock = seconds();
    struct network network = create(&options, &data.train, &result);
    result.setup_s = seconds() - clock;

    train(&network, &options, &result);
    result.test_accuracy = accuracy(&network, &data.test);
    // NaNs must not replace good weights.
    if (options.common.save && isfinite(result.minimum.cost))
        status = save(&network, options.common.save);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy(&network);
    free_galaxies(&data);
    return status;
}
