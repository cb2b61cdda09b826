// Stage 02: the same kernels, on all cores. Each thread gets as many rows as the others, in one
// piece. A row needs nothing from another row. So the threads meet only at the end of a loop over
// the rows. There, one of them adds up the rows' sums.
//
// Shapes: B samples (rows), D features in V vectors. Arrays are row-major. The last vector of a row
// may have lanes without a feature. Their p and q are 0, and add nothing to a sum.
#include "studies/information/run.h"

#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// The widest vectors of the machine that is compiled for. A tile of q is so many vectors. With as
// many sums it takes half of the registers, or more of them where there are few.
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, TILE = 8 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, TILE = 6 };
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, TILE = 8 };
#else
enum { VECTOR_BYTES = 16, TILE = 6 };
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
    size_t vectors; // V
    vec *p, *q;     // B × V
    float *sums;    // B: of the rows
};

static struct buffers create(const struct activations *data) {
    const size_t vectors = (data->features + LANES - 1) / LANES;
    const size_t count = data->samples * vectors * LANES;
    return (struct buffers){
        .vectors = vectors,
        .p = (vec *)allocate_floats(count),
        .q = (vec *)allocate_floats(count),
        .sums = allocate_floats(data->samples),
    };
}

static void destroy(struct buffers *buffers) {
    free(buffers->p);
    free(buffers->q);
    free(buffers->sums);
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

// p = softmax(x), row by row, shifted by the row's largest x, so that it cannot overflow.
static void softmax(const float *x, vec *p, size_t samples, size_t features, size_t vectors) {
    const size_t whole = features / LANES, rest = features % LANES;
#pragma omp parallel for
    for (size_t b = 0; b < samples; ++b) {
        const float *row = x + b * features;
        vec *out = p + b * vectors, max = {0}, sum = {0}, last = {0};
        max -= INFINITY;
        for (size_t v = 0; v < whole; ++v)
            max = larger(max, load(row + v * LANES, LANES));
        if (rest > 0) {
            last = load(row + whole * LANES, rest);
            max = larger(max, last);
        }
        const float shift = largest_lane(max);
        for (size_t v = 0; v < whole; ++v) {
            out[v] = exponential(load(row + v * LANES, LANES) - shift);
            sum += out[v];
        }
        if (rest > 0) {
            out[whole] = exponential(last - shift);
            sum += out[whole];
        }
        const float scale = 1 / sum_lanes(sum);
        for (size_t v = 0; v < vectors; ++v)
            out[v] *= scale;
    }
}

// Returns the mean of the rows' sums. They are added in their order, so that the result does not
// depend on the threads.
static double mean(const float *sums, size_t samples) {
    double total = 0;
    for (size_t b = 0; b < samples; ++b)
        total += sums[b];
    return total / (double)samples;
}

// Returns H.
static double entropy(const vec *p, float *sums, size_t samples, size_t vectors) {
#pragma omp parallel for
    for (size_t b = 0; b < samples; ++b) {
        const vec *row = p + b * vectors;
        vec sum = {0};
        for (size_t v = 0; v < vectors; ++v)
            sum += row[v] * row[v];
        sums[b] = sum_lanes(sum);
    }
    return mean(sums, samples);
}

// Returns Σ (p_i·q_j)² for one row's p and `columns` vectors of its q. They stay in registers, and
// so do the sums. A step loads one p_i for 2 × columns operations on vectors.
INLINED vec information_tile(const float *p, const vec *q, size_t features, size_t columns) {
    vec tile[TILE], sum[TILE], total = {0};
    for (size_t c = 0; c < columns; ++c) {
        tile[c] = q[c];
        sum[c] = (vec){0};
    }
    for (size_t i = 0; i < features; ++i)
        for (size_t c = 0; c < columns; ++c) {
            const vec product = p[i] * tile[c];
            sum[c] += product * product;
        }
    for (size_t c = 0; c < columns; ++c)
        total += sum[c];
    return total;
}

// Returns I.
static double information(const vec *p, const vec *q, float *sums, size_t samples, size_t features,
                          size_t vectors) {
#pragma omp parallel for
    for (size_t b = 0; b < samples; ++b) {
        const float *p_row = (const float *)(p + b * vectors);
        const vec *q_row = q + b * vectors;
        vec sum = {0};
        size_t v = 0;
        for (; v + TILE <= vectors; v += TILE)
            sum += information_tile(p_row, q_row + v, features, TILE);
        for (; v < vectors; ++v)
            sum += information_tile(p_row, q_row + v, features, 1);
        sums[b] = sum_lanes(sum);
    }
    return mean(sums, samples);
}

// Does all of the work once.
static void pass(struct buffers *buffers, const struct activations *data, struct result *result) {
    const size_t samples = data->samples, features = data->features, vectors = buffers->vectors;
    double clock = seconds();
    softmax(data->x, buffers->p, samples, features, vectors);
    softmax(data->y, buffers->q, samples, features, vectors);
    clock = timer_lap(&result->softmax_time, clock);
    result->entropy = entropy(buffers->p, buffers->sums, samples, vectors);
    clock = timer_lap(&result->entropy_time, clock);
    result->information =
        information(buffers->p, buffers->q, buffers->sums, samples, features, vectors);
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
    struct options options = parse_options(argc, argv, "Computes on all cores.", INT_MAX);
    struct activations data = draw_activations(&options);
    const double features = options.features;
    struct result result = {
        .device = "cpu",
        // Two softmax of 4 operations a number, 2 for each p_i², 3 for each (p_i·q_j)².
        .operations = options.samples * (2 * 4 * features + 2 * features + 3 * features * features),
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
