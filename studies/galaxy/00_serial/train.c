// Stage 00: as the paper's first program. One core takes one sample after another. The cost and the
// gradient are functions of their own, and each makes its own forward pass.
//
// Shapes: m samples, H hidden units. Arrays are row-major. A bias is a weight of a constant input
// 1, which goes before the others: Θ1 is H × 1025, Θ2 is 3 × (H + 1).
//
//     a1 = [1, x]           a2 = [1, σ(Θ1·a1)]        a3 = σ(Θ2·a2)       σ(z) = 1 / (1 + e^−z)
//     J = 1/m Σ Σ_k [−y log a3 − (1 − y) log(1 − a3)] + λ/2m (Σ Θ1² + Σ Θ2²), without the biases
#include "studies/galaxy/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct network {
    size_t hidden;         // H
    size_t parameters;     // H × 1025 + 3 × (H + 1)
    double lambda;         // λ
    struct dataset images; // that the cost is about
    double *theta;         // Θ1, then Θ2

    // One sample's values.
    double *inputs;          // 1025: a1
    double *activations;     // H + 1: a2
    double logits[CLASSES];  // Θ2·a2
    double outputs[CLASSES]; // a3

    struct timer *cost_time, *gradient_time;
};

static struct network create(const struct options *options, const struct dataset *images,
                             struct result *result) {
    const size_t hidden = (size_t)options->hidden;
    struct network network = {
        .hidden = hidden,
        .parameters = hidden * (PIXELS + 1) + CLASSES * (hidden + 1),
        .lambda = options->lambda,
        .images = *images,
        .inputs = allocate_doubles(PIXELS + 1),
        .activations = allocate_doubles(hidden + 1),
        .cost_time = &result->cost,
        .gradient_time = &result->gradient,
    };
    network.theta = allocate_doubles(network.parameters);
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t i = 0; i < hidden * (PIXELS + 1); ++i)
        network.theta[i] = draw_weight(&generator);
    generator = pcg32_start(options->seed, 2);
    for (size_t i = hidden * (PIXELS + 1); i < network.parameters; ++i)
        network.theta[i] = draw_weight(&generator);
    return network;
}

static void destroy(struct network *network) {
    free(network->theta);
    free(network->inputs);
    free(network->activations);
}

static double sigmoid(double z) {
    return 1 / (1 + exp(-z));
}

// Returns −y log σ(z) − (1 − y) log(1 − σ(z)). In this form σ(z) may round to 0 or 1.
static double cross_entropy(double z, bool y) {
    return log1p(exp(-fabs(z))) + (z > 0 ? z : 0) - (y ? z : 0);
}

// Sets a1, a2 and a3 for a sample.
static void forward(struct network *network, const double *theta, const double *x) {
    const size_t hidden = network->hidden;
    const double *theta1 = theta, *theta2 = theta + hidden * (PIXELS + 1);
    double *a1 = network->inputs, *a2 = network->activations;

    a1[0] = 1;
    memcpy(a1 + 1, x, PIXELS * sizeof *x);
    a2[0] = 1;
    for (size_t h = 0; h < hidden; ++h) {
        double sum = 0;
        for (size_t k = 0; k < PIXELS + 1; ++k)
            sum += theta1[h * (PIXELS + 1) + k] * a1[k];
        a2[1 + h] = sigmoid(sum);
    }
    for (size_t o = 0; o < CLASSES; ++o) {
        double sum = 0;
        for (size_t h = 0; h < hidden + 1; ++h)
            sum += theta2[o * (hidden + 1) + h] * a2[h];
        network->logits[o] = sum;
        network->outputs[o] = sigmoid(sum);
    }
}

// Returns J.
static double cost(struct network *network, const double *theta) {
    const size_t hidden = network->hidden, samples = network->images.samples;
    const double *theta1 = theta, *theta2 = theta + hidden * (PIXELS + 1);
    double sum = 0, squares = 0;
    for (size_t s = 0; s < samples; ++s) {
        forward(network, theta, network->images.images + s * PIXELS);
        for (size_t o = 0; o < CLASSES; ++o)
            sum += cross_entropy(network->logits[o], o == network->images.labels[s]);
    }
    for (size_t h = 0; h < hidden; ++h)
        for (size_t k = 1; k < PIXELS + 1; ++k)
            squares += theta1[h * (PIXELS + 1) + k] * theta1[h * (PIXELS + 1) + k];
    for (size_t o = 0; o < CLASSES; ++o)
        for (size_t h = 1; h < hidden + 1; ++h)
            squares += theta2[o * (hidden + 1) + h] * theta2[o * (hidden + 1) + h];
    return sum / (double)samples + network->lambda / (2 * (double)samples) * squares;
}

// Writes the gradient of J.
static void gradient(struct network *network, const double *theta, double *d_theta) {
    const size_t hidden = network->hidden, samples = network->images.samples;
    const double *theta1 = theta, *theta2 = theta + hidden * (PIXELS + 1);
    const double *a1 = network->inputs, *a2 = network->activations;
    double *d_theta1 = d_theta, *d_theta2 = d_theta + hidden * (PIXELS + 1);
    memset(d_theta, 0, network->parameters * sizeof *d_theta);

    for (size_t s = 0; s < samples; ++s) {
        forward(network, theta, network->images.images + s * PIXELS);

        // δ3 = a3 − y, dΘ2 += δ3·a2ᵀ
        double delta3[CLASSES];
        for (size_t o = 0; o < CLASSES; ++o) {
            delta3[o] = network->outputs[o] - (o == network->images.labels[s]);
            for (size_t h = 0; h < hidden + 1; ++h)
                d_theta2[o * (hidden + 1) + h] += delta3[o] * a2[h];
        }

        // δ2 = (Θ2ᵀ·δ3) ⊙ a2 ⊙ (1 − a2), dΘ1 += δ2·a1ᵀ
        for (size_t h = 0; h < hidden; ++h) {
            double sum = 0;
            for (size_t o = 0; o < CLASSES; ++o)
                sum += theta2[o * (hidden + 1) + 1 + h] * delta3[o];
            const double delta2 = sum * a2[1 + h] * (1 - a2[1 + h]);
            for (size_t k = 0; k < PIXELS + 1; ++k)
                d_theta1[h * (PIXELS + 1) + k] += delta2 * a1[k];
        }
    }

    // The mean over the samples, and λ/m Θ for all but the biases.
    for (size_t i = 0; i < network->parameters; ++i)
        d_theta[i] /= (double)samples;
    for (size_t h = 0; h < hidden; ++h)
        for (size_t k = 1; k < PIXELS + 1; ++k)
            d_theta1[h * (PIXELS + 1) + k] +=
                network->lambda / (double)samples * theta1[h * (PIXELS + 1) + k];
    for (size_t o = 0; o < CLASSES; ++o)
        for (size_t h = 1; h < hidden + 1; ++h)
            d_theta2[o * (hidden + 1) + h] +=
                network->lambda / (double)samples * theta2[o * (hidden + 1) + h];
}

// What the minimizer calls: returns J and writes its gradient.
static double evaluate(void *context, const double *theta, double *d_theta) {
    struct network *network = context;
    double clock = seconds();
    const double value = cost(network, theta);
    clock = timer_lap(network->cost_time, clock);
    gradient(network, theta, d_theta);
    timer_lap(network->gradient_time, clock);
    return value;
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
    for (size_t s = 0; s < images->samples; ++s) {
        forward(network, network->theta, images->images + s * PIXELS);
        size_t best = 0;
        for (size_t o = 1; o < CLASSES; ++o)
            best = network->logits[o] > network->logits[best] ? o : best;
        right += best == images->labels[s];
    }
    return (double)right / (double)images->samples;
}

// Writes the weights, with the biases taken out of Θ1 and Θ2. Returns the exit status.
static int save(const struct network *network, const char *path) {
    const size_t hidden = network->hidden;
    const double *theta1 = network->theta, *theta2 = theta1 + hidden * (PIXELS + 1);
    double *weights1 = allocate_doubles(network->parameters);
    double *bias1 = weights1 + PIXELS * hidden, *weights2 = bias1 + hidden;
    double *bias2 = weights2 + CLASSES * hidden;
    for (size_t h = 0; h < hidden; ++h) {
        bias1[h] = theta1[h * (PIXELS + 1)];
        for (size_t k = 0; k < PIXELS; ++k)
            weights1[k * hidden + h] = theta1[h * (PIXELS + 1) + 1 + k];
    }
    for (size_t o = 0; o < CLASSES; ++o) {
        bias2[o] = theta2[o * (hidden + 1)];
        memcpy(weights2 + o * hidden, theta2 + o * (hidden + 1) + 1, hidden * sizeof *theta2);
    }
    const int status = write_weights(path, hidden, weights1);
    free(weights1);
    return status;
}

int main(int argc, char **argv) {
    const struct options options =
        parse_options(argc, argv, "Trains on one core, sample by sample.", 1);
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
