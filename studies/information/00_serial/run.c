// Stage 00: the textbook. One core runs the loops in the order of the formulas, without tricks.
//
// Shapes: B samples (rows), D features. Arrays are row-major: x[b][i] is x[b * D + i].
//
//     p = softmax(x_b), q = softmax(y_b)      row by row: x, y, p, q  B × D
//     H = mean over b of Σ_i p_i²             the approximate entropy
//     I = mean over b of Σ_ij (p_i·q_j)²      the approximate mutual information
#include "studies/information/run.h"

#include <math.h>
#include <stdlib.h>

struct buffers {
    float *p, *q; // B × D
};

static struct buffers create(const struct activations *data) {
    const size_t count = data->samples * data->features;
    return (struct buffers){.p = allocate_floats(count), .q = allocate_floats(count)};
}

static void destroy(struct buffers *buffers) {
    free(buffers->p);
    free(buffers->q);
}

// p = softmax(x), row by row, shifted by the row's largest x, so that exp() cannot overflow. The
// error of a sum grows with the number of its terms, so long sums are double.
static void softmax(const float *x, float *p, size_t samples, size_t features) {
    for (size_t b = 0; b < samples; ++b) {
        const float *row = x + b * features;
        float *out = p + b * features, max = row[0];
        for (size_t i = 1; i < features; ++i)
            max = row[i] > max ? row[i] : max;
        double sum = 0;
        for (size_t i = 0; i < features; ++i) {
            out[i] = expf(row[i] - max);
            sum += out[i];
        }
        for (size_t i = 0; i < features; ++i)
            out[i] /= (float)sum;
    }
}

// Returns H.
static double entropy(const float *p, size_t samples, size_t features) {
    double total = 0;
    for (size_t i = 0; i < samples * features; ++i)
        total += p[i] * p[i];
    return total / (double)samples;
}

// Returns I. A float adds up no more than D terms.
static double information(const float *p, const float *q, size_t samples, size_t features) {
    double total = 0;
    for (size_t b = 0; b < samples; ++b) {
        for (size_t i = 0; i < features; ++i) {
            float sum = 0;
            for (size_t j = 0; j < features; ++j) {
                const float product = p[b * features + i] * q[b * features + j];
                sum += product * product;
            }
            total += sum;
        }
    }
    return total / (double)samples;
}

// Does all of the work once.
static void pass(struct buffers *buffers, const struct activations *data, struct result *result) {
    const size_t samples = data->samples, features = data->features;
    double clock = seconds();
    softmax(data->x, buffers->p, samples, features);
    softmax(data->y, buffers->q, samples, features);
    clock = timer_lap(&result->softmax_time, clock);
    result->entropy = entropy(buffers->p, samples, features);
    clock = timer_lap(&result->entropy_time, clock);
    result->information = information(buffers->p, buffers->q, samples, features);
    timer_lap(&result->information_time, clock);
}

// Repeats the pass until --seconds have passed.
static void measure(struct buffers *buffers, const struct activations *data,
                    const struct options *options, struct result *result) {
    const double start = seconds();
    do {
        pass(buffers, data, result);
        result->time_s = seconds() - start;
    } while (result->time_s < options->seconds);
    result->time_s /= (double)result->softmax_time.count;
}

int main(int argc, char **argv) {
    struct options options = parse_options(argc, argv, "Computes on one core, by the textbook.", 1);
    struct activations data = draw_activations(&options);
    const double features = options.features;
    struct result result = {
        .device = "cpu",
        .threads = 1,
        // Two softmax of 4 operations a number, 2 for each p_i², 3 for each (p_i·q_j)².
        .operations = options.samples * (2 * 4 * features + 2 * features + 3 * features * features),
    };

    // The first pass touches all pages of the buffers, and is not measured.
    double clock = seconds();
    struct buffers buffers = create(&data);
    pass(&buffers, &data, &(struct result){0});
    result.setup_s = seconds() - clock;

    measure(&buffers, &data, &options, &result);
    const int status = report_result(&options, &result);
    destroy(&buffers);
    free_activations(&data);
    return status;
}
