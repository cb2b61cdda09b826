// Stage 04: the double sum, factored. Σ_ij (p_i·q_j)² = Σ_i p_i² · Σ_j q_j², so that D² products
// become 2·D. Of a row, only these two sums are needed, and no p or q is stored.
//
// Shapes: B samples (rows), D features. Arrays are row-major. A row is read in vectors. In the last
// one, lanes without a feature hold −∞. Their exponential is 0, and adds nothing to a sum.
#include "studies/information/run.h"

#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
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
enum { LANES = VECTOR_BYTES / sizeof(float) };
typedef float vec __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vec_bits __attribute__((vector_size(VECTOR_BYTES)));

// For the kernels: where a size is a constant, the loops over it disappear.
#define INLINED static inline __attribute__((always_inline))

// Starts the threads, and returns how many there are. More threads than cores would make each other
// wait. More threads than rows would have nothing to do. The runtime may grant fewer than wanted.
static int start_threads(const struct options *options) {
    int threads = options->common.threads ? options->common.threads : omp_get_max_threads();
    threads = threads < omp_get_num_procs() ? threads : omp_get_num_procs();
    threads = threads < options->samples ? threads : options->samples;
    omp_set_num_threads(threads);
#pragma omp parallel
#pragma omp single
    threads = omp_get_num_threads();
    return threads;
}

struct buffers {
    float *p_squares, *q_squares; // B: Σ p_i², Σ q_j²
};

static struct buffers create(const struct activations *data) {
    return (struct buffers){
        .p_squares = allocate_floats(data->samples),
        .q_squares = allocate_floats(data->samples),
    };
}

static void destroy(struct buffers *buffers) {
    free(buffers->p_squares);
    free(buffers->q_squares);
}

// Returns a vector of the numbers from x on. If there are fewer than LANES, the rest is −∞. Where
// the count is a constant, the copy is a single load.
INLINED vec load(const float *x, size_t count) {
    vec numbers = {0};
    numbers -= INFINITY;
    memcpy(&numbers, x, count * sizeof(float));
    return numbers;
}

// Returns the larger number of each lane.
INLINED vec larger(vec a, vec b) {
    const vec_bits is_larger = (vec_bits)(a > b);
    return (vec)(((vec_bits)a & is_larger) | ((vec_bits)b & ~is_larger));
}

// Returns the largest of the lanes: the larger ones of two halves, then of two quarters, and so on.
INLINED float largest_lane(vec numbers) {
    float lanes[LANES];
    memcpy(lanes, &numbers, sizeof lanes);
#pragma GCC unroll 8
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t lane = 0; lane < half; ++lane)
            lanes[lane] = lanes[lane] > lanes[lane + half] ? lanes[lane] : lanes[lane + half];
    return lanes[0];
}

// Returns the sum of the lanes, in the same order.
INLINED float sum_lanes(vec numbers) {
    float lanes[LANES];
    memcpy(lanes, &numbers, sizeof lanes);
#pragma GCC unroll 8
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t lane = 0; lane < half; ++lane)
            lanes[lane] += lanes[lane + half];
    return lanes[0];
}

// Returns e^x for x <= 0: x = i·ln 2 + r, and the Taylor series for e^r. Its error is below 2e-7.
// Adding 1.5·2^23 rounds to the whole number i and leaves it in the low bits. From there it is
// added to the exponent.
INLINED vec exponential(vec x) {
    const vec shifted = x * (float)M_LOG2E + 0x1.8p23f, i = shifted - 0x1.8p23f;
    const vec r = x - i * (float)M_LN2;
    vec e = 1.0f / 120 + r * (1.0f / 720);
    e = 1.0f / 24 + r * e;
    e = 1.0f / 6 + r * e;
    e = 1.0f / 2 + r * e;
    e = 1 + r * e;
    e = 1 + r * e;
    e = (vec)((vec_bits)e + ((vec_bits)shifted << 23));
    return (vec)((vec_bits)e & (vec_bits)(x > -87)); // below that, e^x is no normal float
}

// Sets the squares to Σ p_i² of each row, p = softmax(x), shifted by the row's largest x, so that
// it cannot overflow. With e = exp(x − shift) it is Σ e_i² / (Σ e_i)².
static void softmax(const float *x, float *squares, size_t samples, size_t features) {
    const size_t whole = features / LANES, rest = features % LANES;
#pragma omp parallel for
    for (size_t b = 0; b < samples; ++b) {
        const float *row = x + b * features;
        vec max = {0}, sum = {0}, sum_squares = {0}, last = {0};
        max -= INFINITY;
        for (size_t v = 0; v < whole; ++v)
            max = larger(max, load(row + v * LANES, LANES));
        if (rest > 0) {
            last = load(row + whole * LANES, rest);
            max = larger(max, last);
        }
        const float shift = largest_lane(max);
        for (size_t v = 0; v < whole; ++v) {
            const vec e = exponential(load(row + v * LANES, LANES) - shift);
            sum += e;
            sum_squares += e * e;
        }
        if (rest > 0) {
            const vec e = exponential(last - shift);
            sum += e;
            sum_squares += e * e;
        }
        const float total = sum_lanes(sum);
        squares[b] = sum_lanes(sum_squares) / (total * total);
    }
}

// Returns H.
static double entropy(const float *p_squares, size_t samples) {
    double total = 0;
    for (size_t b = 0; b < samples; ++b)
        total += p_squares[b];
    return total / (double)samples;
}

// Returns I.
static double information(const float *p_squares, const float *q_squares, size_t samples) {
    double total = 0;
    for (size_t b = 0; b < samples; ++b)
        total += p_squares[b] * q_squares[b];
    return total / (double)samples;
}

// Does all of the work once.
static void pass(struct buffers *buffers, const struct activations *data, struct result *result) {
    const size_t samples = data->samples, features = data->features;
    double clock = seconds();
    softmax(data->x, buffers->p_squares, samples, features);
    softmax(data->y, buffers->q_squares, samples, features);
    clock = timer_lap(&result->softmax_time, clock);
    result->entropy = entropy(buffers->p_squares, samples);
    clock = timer_lap(&result->entropy_time, clock);
    result->information = information(buffers->p_squares, buffers->q_squares, samples);
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
    struct options options =
        parse_options(argc, argv, "Computes on all cores, with the double sum factored.", INT_MAX);
    struct activations data = draw_activations(&options);
    const double features = options.features;
    struct result result = {
        .device = "cpu",
        // Two rows of 5 operations a number: subtract, exponential, add, and 2 for e².
        .operations = 2 * 5 * features * options.samples,
    };

    // The first pass touches all pages of the buffers, and is not measured.
    double clock = seconds();
    result.threads = start_threads(&options);
    struct buffers buffers = create(&data);
    pass(&buffers, &data, &(struct result){0});
    result.setup_s = seconds() - clock;

    measure(&buffers, &data, &options, &result);
    const int status = report_result(&options, &result);
    destroy(&buffers);
    free_activations(&data);
    return status;
}
