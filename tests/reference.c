#include "reference.h"

#include <err.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t part_offset(enum part part, size_t hidden) {
    const size_t sizes[PARTS] = {INPUTS * hidden, hidden, hidden * OUTPUTS, OUTPUTS};
    size_t offset = 0;
    for (int i = 0; i < (int)part; ++i)
        offset += sizes[i];
    return offset;
}

uint32_t draw_bits(struct generator *generator) {
    const uint64_t old = generator->state;
    generator->state = old * 0x5851f42d4c957f2d + generator->increment;
    const uint32_t bits = (uint32_t)((old ^ old >> 18) >> 27);
    const unsigned turn = (unsigned)(old >> 59);
    return turn ? bits >> turn | bits << (32 - turn) : bits;
}

struct generator start_generator(uint64_t seed, uint64_t stream) {
    struct generator generator = {.increment = 2 * stream + 1};
    draw_bits(&generator);
    generator.state += seed;
    draw_bits(&generator);
    return generator;
}

static void draw_weights(double *weights, size_t count, size_t fan_in, struct generator generator) {
    const float limit = sqrtf(6.0f / (float)fan_in);
    for (size_t i = 0; i < count; ++i) {
        // Everything before the product is exact. The product is rounded to float32 once.
        const double unit = ldexp(draw_bits(&generator) >> 8, -23) - 1;
        weights[i] = (float)(unit * limit);
    }
}

void initial_parameters(double *parameters, size_t hidden, uint64_t seed) {
    memset(parameters, 0, part_offset(PARTS, hidden) * sizeof *parameters);
    draw_weights(parameters + part_offset(WEIGHTS1, hidden), INPUTS * hidden, INPUTS,
                 start_generator(seed, 1));
    draw_weights(parameters + part_offset(WEIGHTS2, hidden), hidden * OUTPUTS, hidden,
                 start_generator(seed, 2));
}

static double *allocate(size_t count) {
    double *values = calloc(count, sizeof *values);
    if (!values)
        err(EXIT_FAILURE, "reference");
    return values;
}

// sum += factor · values
static void add_scaled(double *restrict sum, double factor, const double *restrict values,
                       size_t count) {
    for (size_t i = 0; i < count; ++i)
        sum[i] += factor * values[i];
}

// Activations (H) and probabilities (10) of one image. A pixel of zero adds nothing and is skipped:
// four fifths of MNIST's pixels are zero.
static void predict(const double *parameters, size_t hidden, const double *image,
                    double *activations, double probabilities[OUTPUTS]) {
    const double *weights1 = parameters + part_offset(WEIGHTS1, hidden);
    const double *weights2 = parameters + part_offset(WEIGHTS2, hidden);

    memcpy(activations, parameters + part_offset(BIAS1, hidden), hidden * sizeof *activations);
    for (size_t k = 0; k < INPUTS; ++k)
        if (image[k] != 0)
            add_scaled(activations, image[k], weights1 + k * hidden, hidden);
    for (size_t h = 0; h < hidden; ++h)
        activations[h] = fmax(activations[h], 0);

    memcpy(probabilities, parameters + part_offset(BIAS2, hidden), OUTPUTS * sizeof(double));
    for (size_t h = 0; h < hidden; ++h)
        add_scaled(probabilities, activations[h], weights2 + h * OUTPUTS, OUTPUTS);
    double largest = -INFINITY, sum = 0;
    for (int o = 0; o < OUTPUTS; ++o)
        largest = fmax(largest, probabilities[o]);
    for (int o = 0; o < OUTPUTS; ++o)
        sum += probabilities[o] = exp(probabilities[o] - largest);
    for (int o = 0; o < OUTPUTS; ++o)
        probabilities[o] /= sum;
}

// Adds one image's share of the gradient, by the chain rule, backwards from the loss.
static void add_gradient(const double *parameters, size_t hidden, const double *image,
                         const double *activations, const double d_logits[OUTPUTS],
                         double *d_activations, double *gradient) {
    const double *weights2 = parameters + part_offset(WEIGHTS2, hidden);
    double *d_weights1 = gradient + part_offset(WEIGHTS1, hidden);
    double *d_weights2 = gradient + part_offset(WEIGHTS2, hidden);

    add_scaled(gradient + part_offset(BIAS2, hidden), 1, d_logits, OUTPUTS);
    for (size_t h = 0; h < hidden; ++h) {
        add_scaled(d_weights2 + h * OUTPUTS, activations[h], d_logits, OUTPUTS);
        d_activations[h] = 0;
        for (int o = 0; o < OUTPUTS && activations[h] > 0; ++o)
            d_activations[h] += weights2[h * OUTPUTS + o] * d_logits[o];
    }
    add_scaled(gradient + part_offset(BIAS1, hidden), 1, d_activations, hidden);
    for (size_t k = 0; k < INPUTS; ++k)
        if (image[k] != 0)
            add_scaled(d_weights1 + k * hidden, image[k], d_activations, hidden);
}

double loss_and_gradient(const double *parameters, size_t hidden, struct samples samples,
                         double *gradient) {
    double *activations = allocate(hidden), *d_activations = allocate(hidden), loss = 0;
    double probabilities[OUTPUTS];
    if (gradient)
        memset(gradient, 0, part_offset(PARTS, hidden) * sizeof *gradient);
    for (size_t s = 0; s < samples.count; ++s) {
        const double *image = samples.images + s * INPUTS;
        predict(parameters, hidden, image, activations, probabilities);
        loss -= log(probabilities[samples.labels[s]]);
        if (!gradient)
            continue;
        probabilities[samples.labels[s]] -= 1;
        for (int o = 0; o < OUTPUTS; ++o)
            probabilities[o] /= (double)samples.count;
        add_gradient(parameters, hidden, image, activations, probabilities, d_activations,
                     gradient);
    }
    free(activations);
    free(d_activations);
    return loss / (double)samples.count;
}

double train_reference(double *parameters, size_t hidden, struct samples samples, size_t batch,
                       int epochs, double learning_rate) {
    const size_t count = part_offset(PARTS, hidden);
    double *gradient = allocate(count), loss = 0;
    for (int epoch = 0; epoch < epochs; ++epoch) {
        loss = 0;
        for (size_t first = 0; first < samples.count; first += batch) {
            const size_t left = samples.count - first;
            const struct samples slice = {left < batch ? left : batch,
                                          samples.images + first * INPUTS, samples.labels + first};
            loss += (double)slice.count * loss_and_gradient(parameters, hidden, slice, gradient);
            add_scaled(parameters, -learning_rate, gradient, count);
        }
    }
    free(gradient);
    return loss / (double)samples.count;
}

double reference_accuracy(const double *parameters, size_t hidden, struct samples samples) {
    double *activations = allocate(hidden), probabilities[OUTPUTS];
    size_t right = 0;
    for (size_t s = 0; s < samples.count; ++s) {
        predict(parameters, hidden, samples.images + s * INPUTS, activations, probabilities);
        int best = 0;
        for (int o = 1; o < OUTPUTS; ++o)
            if (probabilities[o] > probabilities[best])
                best = o;
        right += best == samples.labels[s];
    }
    free(activations);
    return (double)right / (double)samples.count;
}
