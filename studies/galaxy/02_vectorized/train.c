// Stage 02: all else on vectors: σ, the small sums, and the cost, with a sample in each lane. W1 is
// in panels, which a product reads from end to end. The steps from 01 to here change where the
// numbers lie and in which order the loops visit them, so that the core's vector units never wait
// for them.
//
// Shapes: m samples in blocks of n, H hidden units in V vectors. The last vector may have lanes
// without a hidden unit. Their activations are 0, and so are their weights and gradients. Arrays
// are row-major. b1 H, W2 3 × H, b2 3. W1 has a panel of 1024 vectors for each vector of hidden
// units.
//
//     a = σ(x·W1 + b1)      n × H         σ(z) = 1 / (1 + e^−z)
//     z = a·W2ᵀ + b2        3 × n         p = σ(z)
//     J = 1/m Σ Σ_k [−y log p − (1 − y) log(1 − p)] + λ/2m (Σ W1² + Σ W2²)
#include "studies/galaxy/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The widest vectors of the machine that is compiled for. A tile has TILE_ROWS × TILE_COLUMNS
// vectors of sums: half of the registers, or three quarters where half would just hide the latency
// of an FMA. The others are for its operands.
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, TILE_ROWS = 8 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, TILE_ROWS = 6 };
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, TILE_ROWS = 8 };
#else
enum { VECTOR_BYTES = 16, TILE_ROWS = 4 };
#endif
enum { LANES = VECTOR_BYTES / sizeof(double), TILE_COLUMNS = 2 };
typedef double vec __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t vec_mask __attribute__((vector_size(VECTOR_BYTES))); // of a comparison
typedef uint64_t vec_bits __attribute__((vector_size(VECTOR_BYTES)));

// The images of a block: 512 KiB, which stay in the second cache between the two passes.
enum { BLOCK = 64 };

// For the kernels: where a tile's size is a constant, the loops over the tile disappear.
#define INLINED static inline __attribute__((always_inline))

struct network {
    size_t units;          // the hidden units that were asked for
    size_t vectors;        // V
    size_t parameters;     // 1024 × H + H + 3 × H + 3, with the padding
    double lambda;         // λ
    struct dataset images; // that the cost is about
    double *theta;         // W1, b1, W2, b2

    // A block's values.
    double *activations;   // 64 × H: a
    double *logits;        // 3 × 64: z, then δ3
    double *d_activations; // 64 × H: δ2

    struct timer *cost_time, *gradient_time;
};

// Where the parts of the parameters begin, or of their gradient.
struct parts {
    double *weights1, *bias1, *weights2, *bias2;
};

static struct parts parts_of(const struct network *network, const double *theta) {
    const size_t hidden = network->vectors * LANES;
    double *weights1 = (double *)theta, *bias1 = weights1 + PIXELS * hidden;
    double *weights2 = bias1 + hidden;
    return (struct parts){weights1, bias1, weights2, weights2 + CLASSES * hidden};
}

static struct network create(const struct options *options, const struct dataset *images,
                             struct result *result) {
    const size_t units = (size_t)options->hidden, vectors = (units + LANES - 1) / LANES;
    const size_t hidden = vectors * LANES;
    struct network network = {
        .units = units,
        .vectors = vectors,
        .parameters = (PIXELS + 1 + CLASSES) * hidden + CLASSES,
        .lambda = options->lambda,
        .images = *images,
        .activations = allocate_doubles(BLOCK * hidden),
        .logits = allocate_doubles((size_t)BLOCK * CLASSES),
        .d_activations = allocate_doubles(BLOCK * hidden),
        .cost_time = &result->cost,
        .gradient_time = &result->gradient,
    };
    network.theta = allocate_doubles(network.parameters);
    const struct parts parts = parts_of(&network, network.theta);
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t h = 0; h < units; ++h) {
        parts.bias1[h] = draw_weight(&generator);
        for (size_t k = 0; k < PIXELS; ++k)
            ((vec *)parts.weights1)[h / LANES * PIXELS + k][h % LANES] = draw_weight(&generator);
    }
    for (size_t h = units; h < hidden; ++h)
        parts.bias1[h] = -1e4; // σ is 0 there
    generator = pcg32_start(options->seed, 2);
    for (size_t o = 0; o < CLASSES; ++o) {
        parts.bias2[o] = draw_weight(&generator);
        for (size_t h = 0; h < units; ++h)
            parts.weights2[o * hidden + h] = draw_weight(&generator);
    }
    return network;
}

static void destroy(struct network *network) {
    free(network->theta);
    free(network->activations);
    free(network->logits);
    free(network->d_activations);
}

// Returns the block that begins at image `first`. The last one may be shorter.
static struct dataset block_at(const struct dataset *images, size_t first) {
    const size_t left = images->samples - first;
    return (struct dataset){left < BLOCK ? left : BLOCK, images->images + first * PIXELS,
                            images->labels + first};
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
    vec e = 1 + r * (1.0 / 13);
    for (int degree = 12; degree > 0; --degree)
        e = 1 + r * (1.0 / degree) * e;
    e = (vec)((vec_bits)e + ((vec_bits)shifted << 52));
    return (vec)((vec_mask)e & (x > -708)); // below that, it is no normal double
}

// σ(z), where e is e^−|z|.
INLINED vec sigmoids(vec z, vec e) {
    const vec small = e / (1 + e);
    return choose(z > 0, 1 - small, small);
}

// A tile of a = σ(x·W1 + b1): `rows` samples from s on × `columns` vectors of hidden units from v
// on. For each pixel it loads `columns` vectors of W1 and `rows` pixels, and does rows × columns
// multiply-adds. The sums stay in registers.
INLINED void forward_tile(const struct network *network, const struct parts *parts,
                          const struct dataset *images, size_t s, size_t rows, size_t v,
                          size_t columns) {
    const double *x = images->images + s * PIXELS;
    const vec *weights1 = (vec *)parts->weights1 + v * PIXELS, *bias1 = (vec *)parts->bias1 + v;
    vec *a = (vec *)network->activations + s * network->vectors + v;
    vec sum[TILE_ROWS][TILE_COLUMNS];
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c)
            sum[r][c] = bias1[c];
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t r = 0; r < rows; ++r)
            for (size_t c = 0; c < columns; ++c)
                sum[r][c] += x[r * PIXELS + k] * weights1[c * PIXELS + k];
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c)
            a[r * network->vectors + c] = sigmoids(sum[r][c], exponential(sum[r][c]));
}

// The same for all samples. The last tile may compute some samples of the tile before once more:
// that takes no longer than a smaller tile. Fewer samples than a tile has go one by one.
INLINED void forward_columns(const struct network *network, const struct parts *parts,
                             const struct dataset *images, size_t v, size_t columns) {
    const size_t n = images->samples;
    size_t s = 0;
    for (; s + TILE_ROWS <= n; s += TILE_ROWS)
        forward_tile(network, parts, images, s, TILE_ROWS, v, columns);
    if (s < n && n > TILE_ROWS)
        forward_tile(network, parts, images, n - TILE_ROWS, TILE_ROWS, v, columns);
    else
        for (; s < n; ++s)
            forward_tile(network, parts, images, s, 1, v, columns);
}

// Sets a and z for a block of images.
static void forward(struct network *network, const double *theta, const struct dataset *images) {
    const size_t vectors = network->vectors;
    const struct parts parts = parts_of(network, theta);
    for (size_t v = 0; v < vectors; v += TILE_COLUMNS)
        if (v + TILE_COLUMNS <= vectors)
            forward_columns(network, &parts, images, v, TILE_COLUMNS);
        else
            forward_columns(network, &parts, images, v, 1);
    for (size_t s = 0; s < images->samples; ++s) {
        const vec *a = (vec *)network->activations + s * vectors;
        vec sum[CLASSES] = {0};
        for (size_t v = 0; v < vectors; ++v)
            for (size_t o = 0; o < CLASSES; ++o)
                sum[o] += ((vec *)parts.weights2)[o * vectors + v] * a[v];
        for (size_t o = 0; o < CLASSES; ++o)
            network->logits[o * BLOCK + s] = parts.bias2[o] + sum_lanes(sum[o]);
    }
}

// Returns a block's part of m·J, without W². Leaves a and δ3 = (p − y) / m for gradient(). The cost
// of an output is log(1 + e^−|z|) + max(0, z) − y·z. The sum of the logarithms is that of the
// product, whose factors are at most 2, so that a block takes one logarithm.
static double cost(struct network *network, const double *theta, const struct dataset *images) {
    const double scale = 1 / (double)network->images.samples;
    vec product = {0}, sum = {0};
    double all = 1;
    product += 1;
    forward(network, theta, images);
    for (size_t o = 0; o < CLASSES; ++o) {
        double *z = network->logits + o * BLOCK, y[BLOCK] = {0};
        for (size_t s = 0; s < images->samples; ++s)
            y[s] = o == images->labels[s];
        for (size_t s = images->samples; s % LANES != 0; ++s)
            z[s] = -1e4; // a lane without a sample costs nothing, and p is 0
        for (size_t s = 0; s < images->samples; s += LANES) {
            vec logits, is_label;
            memcpy(&logits, z + s, sizeof logits);
            memcpy(&is_label, y + s, sizeof is_label);
            const vec e = exponential(logits);
            product *= 1 + e;
            sum += choose(logits > 0, logits, logits - logits) - is_label * logits;
            logits = (sigmoids(logits, e) - is_label) * scale;
            memcpy(z + s, &logits, sizeof logits);
        }
    }
    for (size_t lane = 0; lane < LANES; ++lane)
        all *= product[lane];
    return log(all) + sum_lanes(sum);
}

// A tile of dW1 += xᵀ·δ2: `rows` pixels from k on × `columns` vectors of hidden units from v on.
INLINED void gradient_tile(const struct network *network, const struct parts *d_parts,
                           const struct dataset *images, size_t k, size_t rows, size_t v,
                           size_t columns) {
    const double *x = images->images + k;
    const vec *delta2 = (vec *)network->d_activations + v;
    vec *d_weights1 = (vec *)d_parts->weights1 + v * PIXELS + k;
    vec sum[TILE_ROWS][TILE_COLUMNS];
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c)
            sum[r][c] = d_weights1[c * PIXELS + r];
    for (size_t s = 0; s < images->samples; ++s)
        for (size_t r = 0; r < rows; ++r)
            for (size_t c = 0; c < columns; ++c)
                sum[r][c] += x[s * PIXELS + r] * delta2[s * network->vectors + c];
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c)
            d_weights1[c * PIXELS + r] = sum[r][c];
}

// The same for all pixels.
INLINED void gradient_columns(const struct network *network, const struct parts *d_parts,
                              const struct dataset *images, size_t v, size_t columns) {
    size_t k = 0;
    for (; k + TILE_ROWS <= PIXELS; k += TILE_ROWS)
        gradient_tile(network, d_parts, images, k, TILE_ROWS, v, columns);
    if (k < PIXELS)
        gradient_tile(network, d_parts, images, k, PIXELS % TILE_ROWS, v, columns);
}

// Adds a block's part of the gradient, without λ, from the a and δ3 of cost().
static void gradient(struct network *network, const double *theta, double *d_theta,
                     const struct dataset *images) {
    const size_t vectors = network->vectors, samples = images->samples;
    const vec *a = (vec *)network->activations;
    vec *delta2 = (vec *)network->d_activations;
    const double *delta3 = network->logits;
    const struct parts parts = parts_of(network, theta), d_parts = parts_of(network, d_theta);

    // δ2 = (δ3·W2) ⊙ a ⊙ (1 − a), dW1 += xᵀ·δ2, db1 += Σ δ2, dW2 += δ3ᵀ·a, db2 += Σ δ3
    for (size_t s = 0; s < samples; ++s)
        for (size_t o = 0; o < CLASSES; ++o)
            d_parts.bias2[o] += delta3[o * BLOCK + s];
    for (size_t v = 0; v < vectors; ++v) {
        vec d_bias1 = {0}, d_weights2[CLASSES] = {0};
        for (size_t s = 0; s < samples; ++s) {
            const vec active = a[s * vectors + v];
            vec sum = {0};
            for (size_t o = 0; o < CLASSES; ++o) {
                sum += delta3[o * BLOCK + s] * ((vec *)parts.weights2)[o * vectors + v];
                d_weights2[o] += delta3[o * BLOCK + s] * active;
            }
            delta2[s * vectors + v] = sum * active * (1 - active);
            d_bias1 += delta2[s * vectors + v];
        }
        ((vec *)d_parts.bias1)[v] += d_bias1;
        for (size_t o = 0; o < CLASSES; ++o)
            ((vec *)d_parts.weights2)[o * vectors + v] += d_weights2[o];
    }
    for (size_t v = 0; v < vectors; v += TILE_COLUMNS)
        if (v + TILE_COLUMNS <= vectors)
            gradient_columns(network, &d_parts, images, v, TILE_COLUMNS);
        else
            gradient_columns(network, &d_parts, images, v, 1);
}

// Adds λ/m W to the gradient, for so many vectors of W. Returns Σ W².
static double regularize(const double *weights, double *d_weights, size_t count, double factor) {
    const vec *w = (vec *)weights;
    vec *d_w = (vec *)d_weights, squares = {0};
    for (size_t i = 0; i < count; ++i) {
        squares += w[i] * w[i];
        d_w[i] += factor * w[i];
    }
    return sum_lanes(squares);
}

// What the minimizer calls: returns J and writes its gradient, block by block.
static double evaluate(void *context, const double *theta, double *d_theta) {
    struct network *network = context;
    const size_t vectors = network->vectors, samples = network->images.samples;
    const struct parts parts = parts_of(network, theta), d_parts = parts_of(network, d_theta);
    const double factor = network->lambda / (double)samples;
    double cost_time = 0, gradient_time = 0, value = 0;
    memset(d_theta, 0, network->parameters * sizeof *d_theta);
    for (size_t first = 0; first < samples; first += BLOCK) {
        const struct dataset block = block_at(&network->images, first);
        const double start = seconds();
        value += cost(network, theta, &block);
        const double middle = seconds();
        gradient(network, theta, d_theta, &block);
        cost_time += middle - start;
        gradient_time += seconds() - middle;
    }
    timer_add(network->cost_time, cost_time);
    timer_add(network->gradient_time, gradient_time);
    double squares = regularize(parts.weights1, d_parts.weights1, PIXELS * vectors, factor);
    squares += regularize(parts.weights2, d_parts.weights2, CLASSES * vectors, factor);
    return value / (double)samples + factor / 2 * squares;
}

static void train(struct network *network, const struct options *options, struct result *result) {
    const struct objective objective = {network, network->parameters, evaluate};
    const double start = seconds();
    result->minimum = minimize(&objective, &HOST_VECTORS, network->theta, options->iterations);
    result->train_s = seconds() - start;
}

// Returns the fraction of samples whose largest output is that of their label.
static double accuracy(struct network *network, const struct dataset *images) {
    size_t right = 0;
    for (size_t first = 0; first < images->samples; first += BLOCK) {
        const struct dataset block = block_at(images, first);
        forward(network, network->theta, &block);
        for (size_t s = 0; s < block.samples; ++s) {
            const double *z = network->logits + s;
            size_t best = 0;
            for (size_t o = 1; o < CLASSES; ++o)
                best = z[o * BLOCK] > z[best * BLOCK] ? o : best;
            right += best == block.labels[s];
        }
    }
    return (double)right / (double)images->samples;
}

// Writes the weights, turned back from panels into rows. Returns the exit status.
static int save(const struct network *network, const char *path) {
    const size_t units = network->units, hidden = network->vectors * LANES;
    const struct parts parts = parts_of(network, network->theta);
    double *weights1 = allocate_doubles(network->parameters), *bias1 = weights1 + PIXELS * units;
    double *weights2 = bias1 + units, *bias2 = weights2 + CLASSES * units;
    for (size_t h = 0; h < units; ++h) {
        bias1[h] = parts.bias1[h];
        for (size_t k = 0; k < PIXELS; ++k)
            weights1[k * units + h] = ((vec *)parts.weights1)[h / LANES * PIXELS + k][h % LANES];
        for (size_t o = 0; o < CLASSES; ++o)
            weights2[o * units + h] = parts.weights2[o * hidden + h];
    }
    memcpy(bias2, parts.bias2, CLASSES * sizeof *bias2);
    const int status = write_weights(path, units, weights1);
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
