// Stage 02.2: a tile of sums in registers, for the forward product. It takes whole vectors, so the
// rows of hidden units are padded.
//
// Shapes: m samples, H hidden units in V vectors. The last vector may have lanes without a hidden
// unit. Their activations are 0, and so are their weights and gradients. Arrays are row-major.
// W1 1024 × H, b1 H, W2 3 × H, b2 3.
//
//     a = σ(x·W1 + b1)      m × H         σ(z) = 1 / (1 + e^−z)
//     z = a·W2ᵀ + b2        m × 3         p = σ(z)
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

// For the kernels: where a tile's size is a constant, the loops over the tile disappear.
#define INLINED static inline __attribute__((always_inline))

struct network {
    size_t units;          // the hidden units that were asked for
    size_t vectors;        // V
    size_t parameters;     // 1024 × H + H + 3 × H + 3, with the padding
    double lambda;         // λ
    struct dataset images; // that the cost is about
    double *theta;         // W1, b1, W2, b2

    // All samples' values.
    double *activations;   // m × H: a
    double *logits;        // m × 3: z
    double *d_activations; // m × H: δ2
    double *d_logits;      // m × 3: δ3

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
                             size_t samples, struct result *result) {
    const size_t units = (size_t)options->hidden, vectors = (units + LANES - 1) / LANES;
    const size_t hidden = vectors * LANES;
    struct network network = {
        .units = units,
        .vectors = vectors,
        .parameters = (PIXELS + 1 + CLASSES) * hidden + CLASSES,
        .lambda = options->lambda,
        .images = *images,
        .activations = allocate_doubles(samples * hidden),
        .logits = allocate_doubles(samples * CLASSES),
        .d_activations = allocate_doubles(samples * hidden),
        .d_logits = allocate_doubles(samples * CLASSES),
        .cost_time = &result->cost,
        .gradient_time = &result->gradient,
    };
    network.theta = allocate_doubles(network.parameters);
    const struct parts parts = parts_of(&network, network.theta);
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t h = 0; h < units; ++h) {
        parts.bias1[h] = draw_weight(&generator);
        for (size_t k = 0; k < PIXELS; ++k)
            parts.weights1[k * hidden + h] = draw_weight(&generator);
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
    free(network->d_logits);
}

static double sigmoid(double z) {
    return 1 / (1 + exp(-z));
}

// Returns −y log σ(z) − (1 − y) log(1 − σ(z)). In this form σ(z) may round to 0 or 1.
static double cross_entropy(double z, bool y) {
    return log1p(exp(-fabs(z))) + (z > 0 ? z : 0) - (y ? z : 0);
}

// A tile of x·W1 + b1: `rows` samples from s on × `columns` vectors of hidden units from v on. For
// each pixel it loads `columns` vectors of W1 and `rows` pixels, and does rows × columns
// multiply-adds. The sums stay in registers.
INLINED void forward_tile(const struct network *network, const struct parts *parts,
                          const struct dataset *images, size_t s, size_t rows, size_t v,
                          size_t columns) {
    const double *x = images->images + s * PIXELS;
    const vec *weights1 = (vec *)parts->weights1 + v, *bias1 = (vec *)parts->bias1 + v;
    vec *a = (vec *)network->activations + s * network->vectors + v;
    vec sum[TILE_ROWS][TILE_COLUMNS];
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c)
            sum[r][c] = bias1[c];
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t r = 0; r < rows; ++r)
            for (size_t c = 0; c < columns; ++c)
                sum[r][c] += x[r * PIXELS + k] * weights1[k * network->vectors + c];
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c)
            a[r * network->vectors + c] = sum[r][c];
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

// Sets a and z for all images.
static void forward(struct network *network, const double *theta, const struct dataset *images) {
    const size_t vectors = network->vectors, hidden = vectors * LANES;
    const struct parts parts = parts_of(network, theta);
    for (size_t v = 0; v < vectors; v += TILE_COLUMNS)
        if (v + TILE_COLUMNS <= vectors)
            forward_columns(network, &parts, images, v, TILE_COLUMNS);
        else
            forward_columns(network, &parts, images, v, 1);
    for (size_t s = 0; s < images->samples; ++s) {
        double *a = network->activations + s * hidden;
        for (size_t h = 0; h < hidden; ++h)
            a[h] = sigmoid(a[h]);
        for (size_t o = 0; o < CLASSES; ++o) {
            double sum = parts.bias2[o];
            for (size_t h = 0; h < hidden; ++h)
                sum += parts.weights2[o * hidden + h] * a[h];
            network->logits[s * CLASSES + o] = sum;
        }
    }
}

// Returns m·J, without W². Leaves a and z for gradient().
static double cost(struct network *network, const double *theta) {
    double sum = 0;
    forward(network, theta, &network->images);
    for (size_t s = 0; s < network->images.samples; ++s)
        for (size_t o = 0; o < CLASSES; ++o)
            sum += cross_entropy(network->logits[s * CLASSES + o], o == network->images.labels[s]);
    return sum;
}

// Adds the gradient of J, without λ, from the a and z of cost().
static void gradient(struct network *network, const double *theta, double *d_theta) {
    const size_t hidden = network->vectors * LANES, samples = network->images.samples;
    const double *a = network->activations;
    double *delta2 = network->d_activations, *delta3 = network->d_logits;
    const struct parts parts = parts_of(network, theta), d_parts = parts_of(network, d_theta);

    // δ3 = (p − y) / m
    for (size_t s = 0; s < samples; ++s)
        for (size_t o = 0; o < CLASSES; ++o)
            delta3[s * CLASSES + o] =
                (sigmoid(network->logits[s * CLASSES + o]) - (o == network->images.labels[s])) /
                (double)samples;

    // δ2 = (δ3·W2) ⊙ a ⊙ (1 − a)
    for (size_t s = 0; s < samples; ++s) {
        for (size_t h = 0; h < hidden; ++h) {
            double sum = 0;
            for (size_t o = 0; o < CLASSES; ++o)
                sum += delta3[s * CLASSES + o] * parts.weights2[o * hidden + h];
            delta2[s * hidden + h] = sum * a[s * hidden + h] * (1 - a[s * hidden + h]);
        }
    }

    // dW1 += xᵀ·δ2, db1 += Σ δ2, dW2 += δ3ᵀ·a, db2 += Σ δ3
    for (size_t s = 0; s < samples; ++s) {
        const double *x = network->images.images + s * PIXELS, *delta = delta2 + s * hidden;
        for (size_t k = 0; k < PIXELS; ++k)
            for (size_t h = 0; h < hidden; ++h)
                d_parts.weights1[k * hidden + h] += x[k] * delta[h];
        for (size_t h = 0; h < hidden; ++h)
            d_parts.bias1[h] += delta[h];
        for (size_t o = 0; o < CLASSES; ++o) {
            for (size_t h = 0; h < hidden; ++h)
                d_parts.weights2[o * hidden + h] += delta3[s * CLASSES + o] * a[s * hidden + h];
            d_parts.bias2[o] += delta3[s * CLASSES + o];
        }
    }
}

// Adds λ/m W to the gradient. Returns Σ W².
static double regularize(const double *weights, double *d_weights, size_t count, double factor) {
    double squares = 0;
    for (size_t i = 0; i < count; ++i) {
        squares += weights[i] * weights[i];
        d_weights[i] += factor * weights[i];
    }
    return squares;
}

// What the minimizer calls: returns J and writes its gradient.
static double evaluate(void *context, const double *theta, double *d_theta) {
    struct network *network = context;
    const size_t hidden = network->vectors * LANES, samples = network->images.samples;
    const struct parts parts = parts_of(network, theta), d_parts = parts_of(network, d_theta);
    const double factor = network->lambda / (double)samples;
    memset(d_theta, 0, network->parameters * sizeof *d_theta);
    double clock = seconds();
    const double value = cost(network, theta);
    clock = timer_lap(network->cost_time, clock);
    gradient(network, theta, d_theta);
    double squares = regularize(parts.weights1, d_parts.weights1, PIXELS * hidden, factor);
    squares += regularize(parts.weights2, d_parts.weights2, CLASSES * hidden, factor);
    timer_lap(network->gradient_time, clock);
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
    forward(network, network->theta, images);
    for (size_t s = 0; s < images->samples; ++s) {
        const double *z = network->logits + s * CLASSES;
        size_t best = 0;
        for (size_t o = 1; o < CLASSES; ++o)
            best = z[o] > z[best] ? o : best;
        right += best == images->labels[s];
    }
    return (double)right / (double)images->samples;
}

// Writes the weights, without the padding. Returns the exit status.
static int save(const struct network *network, const char *path) {
    const size_t units = network->units, hidden = network->vectors * LANES;
    const struct parts parts = parts_of(network, network->theta);
    double *weights1 = allocate_doubles(network->parameters), *bias1 = weights1 + PIXELS * units;
    double *weights2 = bias1 + units, *bias2 = weights2 + CLASSES * units;
    for (size_t h = 0; h < units; ++h) {
        bias1[h] = parts.bias1[h];
        for (size_t k = 0; k < PIXELS; ++k)
            weights1[k * units + h] = parts.weights1[k * hidden + h];
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
    struct network network = create(&options, &data.train, largest_set(&data), &result);
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
