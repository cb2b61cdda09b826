// The errors of x·W1 in floats and in digits, against the same product in float64: of the first
// batch of 128 images and the initial weights of 256 hidden units, or what --batch and --hidden
// say.
#include "stages/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// How a product is made. Whole numbers are from −largest to largest. Added to each of their digits
// is one of `half`.
struct product {
    const char *name;
    int digits; // 0: floats
    int half, largest;
};

// Returns the sum over the pixels in floats, as the FMAs of 02 make it.
static double sum_floats(const float *x, const float *w) {
    float sum = 0;
    for (size_t k = 0; k < PIXELS; ++k)
        sum = fmaf(x[k], w[k], sum);
    return sum;
}

// Returns it from whole numbers, the largest weight being the largest number. A sum of digits is
// exact. Then floats put the sums together, as the stages do.
static double sum_digits(const uint8_t *x, const float *w, const struct product *product) {
    float largest = 0;
    for (size_t k = 0; k < PIXELS; ++k)
        largest = fmaxf(largest, fabsf(w[k]));
    const float one = largest / (float)product->largest;
    int32_t sum[3] = {0};
    for (size_t k = 0; k < PIXELS; ++k) {
        const int bits = (int)lrintf(w[k] / one) + product->half;
        for (int d = 0; d < product->digits; ++d)
            sum[d] += x[k] * ((bits >> 8 * d & 255) - (product->half >> 8 * d & 255));
    }
    float together = 0;
    for (int d = product->digits - 1; d >= 0; --d)
        together = together * 256 + (float)sum[d];
    return together * (one / 255);
}

int main(int argc, char **argv) {
    const struct product products[] = {
        {"floats", 0, 0, 0}, {"2 digits", 2, 0x8080, 0x7f70}, {"3 digits", 3, 0x408080, 0x3f7f70}};
    struct options options = parse_options(argc, argv, "Prints the errors of x·W1.", 1);
    struct data data;
    int status = load_data(&options, &data);
    if (status)
        return status;

    const size_t units = (size_t)options.hidden;
    const struct batch batch = batch_at(&data.train, 0, options.batch);
    float *weights = allocate_floats(units * PIXELS); // a unit's weights side by side
    uint8_t *bytes = allocate_array(batch.samples, PIXELS);
    struct pcg32 generator = pcg32_start(options.seed, 1);
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t h = 0; h < units; ++h)
            weights[h * PIXELS + k] = draw_weight(&generator, PIXELS);
    for (size_t i = 0; i < batch.samples * PIXELS; ++i)
        bytes[i] = (uint8_t)lrintf(batch.images[i] * 255);

    printf("%-10s %14s %14s\n", "x·W1 in", "largest error", "rms error");
    for (size_t p = 0; p < sizeof products / sizeof *products; ++p) {
        double largest = 0, squares = 0;
        for (size_t s = 0; s < batch.samples; ++s)
            for (size_t h = 0; h < units; ++h) {
                const uint8_t *x = bytes + s * PIXELS;
                const float *w = weights + h * PIXELS;
                double exact = 0;
                for (size_t k = 0; k < PIXELS; ++k)
                    exact += (double)x[k] * w[k] / 255;
                const double found = products[p].digits ? sum_digits(x, w, &products[p])
                                                        : sum_floats(batch.images + s * PIXELS, w);
                largest = fmax(largest, fabs(found - exact));
                squares += (found - exact) * (found - exact);
            }
        printf("%-10s %14.1e %14.1e\n", products[p].name, largest,
               sqrt(squares / (double)(batch.samples * units)));
    }
    free(weights);
    free(bytes);
    free_data(&data);
    return 0;
}
