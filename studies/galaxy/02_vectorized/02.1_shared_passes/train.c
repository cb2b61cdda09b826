// Stage 02.1: shared passes. Cost and gradient need the same forward pass, and the same weights.
//
// Shapes: m samples, H hidden units. Arrays are row-major. W1 1024 × H, b1 H, W2 3 × H, b2 3.
//
//     a = σ(x·W1 + b1)      m × H         σ(z) = 1 / (1 + e^−z)
//     z = a·W2ᵀ + b2        m × 3         p = σ(z)
//     J = 1/m Σ Σ_k [−y log p − (1 − y) log(1 − p)] + λ/2m (Σ W1² + Σ W2²)
#include "studies/galaxy/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct network {
    size_t hidden;         // H
    size_t parameters;     // 1024 × H + H + 3 × H + 3
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
    double *weights1 = (double *)theta, *bias1 = weights1 + PIXELS * network->hidden;
    double *weights2 = bias1 + network->hidden;
    return (struct parts){weights1, bias1, weights2, weights2 + CLASSES * network->hidden};
}

static struct network create(const struct options *options, const struct dataset *images,
                             size_t samples, struct result *result) {
    const size_t hidden = (size_t)options->hidden;
    struct network network = {
        .hidden = hidden,
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
    for (size_t h = 0; h < hidden; ++h) {
        parts.bias1[h] = draw_weight(&generator);
        for (size_t k = 0; k < PIXELS; ++k)
            parts.weights1[k * hidden + h] = draw_weight(&generator);
    }
    generator = pcg32_start(options->seed, 2);
    for (size_t o = 0; o < CLASSES; ++o) {
        parts.bias2[o] = draw_weight(&generator);
        for (size_t h = 0; h < hidden; ++h)
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

// Sets a and z for all images.
static void forward(struct network *network, const double *theta, const struct dataset *images) {
    const size_t hidden = network->hidden;
    const struct parts parts = parts_of(network, theta);
    for (size_t s = 0; s < images->samples; ++s) {
        const double *x = images->images + s * PIXELS;
        double *restrict a = network->activations + s * hidden;
        memcpy(a, parts.bias1, hidden * sizeof *a);
        for (size_t k = 0; k < PIXELS; ++k)
            for (size_t h = 0; h < hidden; ++h)
                a[h] += x[k] * parts.weights1[k * hidden + h];
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
    const size_t hidden = network->hidden, samples = network->images.samples;
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
    const size_t hidden = network->hidden, samples = network->images.samples;
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

// Writes the weights. They lie in memory in the order of the file. Returns the exit status.
static int save(const struct network *network, const char *path) {
    return write_weights(path, network->hidden, network->theta);
}

int main(int argc, char **argv) {
    const struct options options = parse_options(argc, argv, "Trains on one core, by matrices.", 1);
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
