// The time and the errors of x·W1 by LIBXSMM in floats, bf16 and bytes, on one thread: of the first
// batch of 128 images and the initial weights of 256 hidden units, or what --batch and --hidden
// say. Pixels are bytes, which bf16 holds, too, so only weights are rounded.
#include "stages/training.h"

#include <libxsmm.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 200 };

// The operands of a type: n samples × 784, and 784 × H, of which those of a unit are side by side
// for as many rows as four bytes hold.
struct operands {
    float *x, *weights;
    uint16_t *x_bf16, *weights_bf16;
    uint8_t *x_bytes;
    char *weights_bytes; // signed, as on every processor of LIBXSMM
    float *ones;         // H: what a one of a sum of bytes counts for
};

// Returns the nearest bf16, which is the upper half of a float.
static uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static struct operands make_operands(const struct batch *batch, uint64_t seed, size_t units) {
    const size_t pixels = batch->samples * PIXELS;
    struct operands operands = {
        .x = allocate_floats(pixels),
        .weights = allocate_floats(PIXELS * units),
        .x_bf16 = allocate_array(pixels, sizeof(uint16_t)),
        .weights_bf16 = allocate_array(PIXELS * units, sizeof(uint16_t)),
        .x_bytes = allocate_array(pixels, 1),
        .weights_bytes = allocate_array(PIXELS * units, 1),
        .ones = allocate_floats(units),
    };
    for (size_t i = 0; i < pixels; ++i) {
        operands.x_bytes[i] = (uint8_t)lrintf(batch->images[i] * 255);
        operands.x[i] = operands.x_bytes[i];
        operands.x_bf16[i] = to_bf16(operands.x[i]);
    }
    struct pcg32 generator = pcg32_start(seed, 1);
    for (size_t i = 0; i < PIXELS * units; ++i)
        operands.weights[i] = draw_weight(&generator, PIXELS);
    for (size_t h = 0; h < units; ++h) {
        float largest = 0;
        for (size_t k = 0; k < PIXELS; ++k)
            largest = fmaxf(largest, fabsf(operands.weights[k * units + h]));
        operands.ones[h] = largest / 127;
        for (size_t k = 0; k < PIXELS; ++k) {
            const float weight = operands.weights[k * units + h];
            operands.weights_bf16[(k / 2 * units + h) * 2 + k % 2] = to_bf16(weight);
            operands.weights_bytes[(k / 4 * units + h) * 4 + k % 4] =
                (char)lrintf(weight / operands.ones[h]);
        }
    }
    return operands;
}

static void free_operands(const struct operands *operands) {
    free(operands->x);
    free(operands->weights);
    free(operands->x_bf16);
    free(operands->weights_bf16);
    free(operands->x_bytes);
    free(operands->weights_bytes);
    free(operands->ones);
}

// Prints a product's shortest time, and its errors beside the same product in float64.
static void print(const char *name, double best, const float *result, const float *ones,
                  const struct operands *operands, size_t samples, size_t units) {
    double largest = 0, squares = 0;
    for (size_t s = 0; s < samples; ++s)
        for (size_t h = 0; h < units; ++h) {
            double exact = 0;
            for (size_t k = 0; k < PIXELS; ++k)
                exact += (double)operands->x[s * PIXELS + k] * operands->weights[k * units + h];
            const double found = (double)result[s * units + h] * (ones ? ones[h] : 1);
            const double error = (found - exact) / 255; // a pixel is at most 1
            largest = fmax(largest, fabs(error));
            squares += error * error;
        }
    printf("%-10s %8.1f %14.1e %14.1e\n", name, best * 1e6, largest,
           sqrt(squares / (double)(samples * units)));
}

int main(int argc, char **argv) {
    struct options options = parse_options(argc, argv, "Prints LIBXSMM's errors of x·W1.", 1);
    struct data data;
    int status = load_data(&options, &data);
    if (status)
        return status;

    const size_t units = (size_t)options.hidden;
    const struct batch batch = batch_at(&data.train, 0, options.batch);
    const struct operands operands = make_operands(&batch, options.seed, units);
    float *result = allocate_floats(batch.samples * units);
    float *result_bf16 = allocate_floats(batch.samples * units);
    int32_t *sums = allocate_array(batch.samples * units, sizeof(int32_t));

    // LIBXSMM's matrices are column-major, so it computes W1ᵀ·xᵀ.
    const libxsmm_blasint m = (libxsmm_blasint)units, n = (libxsmm_blasint)batch.samples;
    const int grouped = LIBXSMM_GEMM_FLAG_VNNI_A, zero = 0;
    const float beta = 0;
    const libxsmm_smmfunction floats =
        libxsmm_smmdispatch(m, n, PIXELS, NULL, NULL, NULL, NULL, &beta, NULL, NULL);
    const libxsmm_bsmmfunction bf16 =
        libxsmm_bsmmdispatch(m, n, PIXELS, NULL, NULL, NULL, NULL, &beta, &grouped, NULL);
    const libxsmm_subimmfunction bytes =
        libxsmm_subimmdispatch(m, n, PIXELS, NULL, NULL, NULL, NULL, &zero, &grouped, NULL);
    if (!floats || !bf16 || !bytes) {
        report_error(stage_name, "LIBXSMM has no product of floats, bf16 and bytes here");
        return EXIT_NO_DEVICE;
    }

    // In turn, so that a disturbance meets all three.
    double best[3] = {INFINITY, INFINITY, INFINITY};
    for (int round = 0; round < ROUNDS; ++round) {
        const double start = seconds();
        floats(operands.weights, operands.x, result);
        const double after_floats = seconds();
        bf16(operands.weights_bf16, operands.x_bf16, result_bf16);
        const double after_bf16 = seconds();
        bytes(operands.weights_bytes, operands.x_bytes, sums);
        const double end = seconds();
        best[0] = fmin(best[0], after_floats - start);
        best[1] = fmin(best[1], after_bf16 - after_floats);
        best[2] = fmin(best[2], end - after_bf16);
    }

    printf("%-10s %8s %14s %14s\n", "x·W1 in", "µs", "largest error", "rms error");
    print("floats", best[0], result, NULL, &operands, batch.samples, units);
    print("bf16", best[1], result_bf16, NULL, &operands, batch.samples, units);
    for (size_t i = 0; i < batch.samples * units; ++i)
        result[i] = (float)sums[i]; // below 2^24 here: exact
    print("bytes", best[2], result, operands.ones, &operands, batch.samples, units);

    free_operands(&operands);
    free(result);
    free(result_bf16);
    free(sums);
    free_data(&data);
    return 0;
}
