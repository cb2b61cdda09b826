// The errors of x·W1 and xᵀ·da in floats and on tensor cores, against the same products in float64:
// of the first batch of 128 images and the initial weights of 256 hidden units, or what --batch and
// --hidden say.
#include "stages/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MOST_PARTS = 3,
    BLOCK = 49 // a block of the stage has so many pixels, and their sum
};

// How a product is made. A factor is a sum of parts. Part i is used scale^i times as large.
struct method {
    const char *name;
    int digits; // binary, of a part
    int least;  // a part is a multiple of 2^least
    int parts;  // of the factors that are split
    float scale;
    int step;   // so many products are added up at once
    bool bytes; // the pixels are whole numbers, of one part
};

// TF32 and bfloat16 have the exponents of floats.
static const struct method METHODS[] = {
    {"FFMA", 24, -149, 1, 1, 1, false},       {"TF32", 11, -136, 1, 1, 8, false},
    {"3xTF32", 11, -136, 2, 1, 8, false},     {"fp16", 11, -24, 1, 1, 16, true},
    {"two fp16", 11, -24, 2, 2048, 16, true}, {"two bf16", 8, -133, 2, 1, 16, true},
    {"three bf16", 8, -133, 3, 1, 16, true},
};

// Returns the nearest number of so many digits.
static float round_number(float x, const struct method *method) {
    int exponent;
    frexpf(x, &exponent);
    const int last = exponent - method->digits;
    const int unit = last > method->least ? last : method->least;
    return ldexpf(rintf(ldexpf(x, -unit)), unit);
}

// Splits the numbers of each row. Its parts lie one after the other.
static float *split(const float *from, size_t rows, size_t n, const struct method *method) {
    float *to = allocate_floats(rows * MOST_PARTS * n);
    for (size_t i = 0; i < rows * n; ++i) {
        float rest = from[i], *part = to + i / n * MOST_PARTS * n + i % n;
        for (int p = 0; p < method->parts; ++p, part += n) {
            *part = round_number(rest, method);
            rest = (rest - *part) * method->scale;
        }
    }
    return to;
}

static int exponent_of(float x) {
    return x == 0 ? -1000 : ilogbf(x);
}

// Adds n products to a sum as an H100's tensor cores do: see sim/tensor_cores.cpp.
static float add_products(float sum, const float *a, const float *b, size_t n) {
    int largest = exponent_of(sum);
    for (size_t i = 0; i < n; ++i) {
        const int exponent = exponent_of(a[i]) + exponent_of(b[i]);
        largest = exponent > largest ? exponent : largest;
    }
    if (largest < -900)
        return 0;
    const double scale = ldexp(1, 25 - largest);
    double together = trunc(sum * scale);
    for (size_t i = 0; i < n; ++i)
        together += trunc((double)a[i] * b[i] * scale);
    together /= scale;
    const float nearest = (float)together;
    return fabs(nearest) > fabs(together) ? nextafterf(nearest, 0) : nearest;
}

// Returns the sum of n products of two rows, which are split. It is the sum of those of blocks.
static float multiply(const struct method *method, const float *a, const float *b, size_t n,
                      size_t block) {
    float sum = 0;
    for (size_t first = 0; first < n; first += block) {
        const size_t end = first + block < n ? first + block : n, step = (size_t)method->step;
        // Part i times part j is of level i + j, and scale^(i + j) times as large.
        float level[MOST_PARTS] = {0}, together = 0;
        for (int i = 0; i < (method->bytes ? 1 : method->parts); ++i)
            for (int j = 0; i + j < method->parts; ++j) {
                const float *x = a + (size_t)i * n, *y = b + (size_t)j * n;
                for (size_t k = first; k < end; k += step)
                    level[i + j] = step == 1 ? fmaf(x[k], y[k], level[i + j])
                                             : add_products(level[i + j], x + k, y + k,
                                                            end - k < step ? end - k : step);
            }
        for (int i = method->parts - 1; i >= 0; --i)
            together = together / method->scale + level[i];
        sum += together;
    }
    return sum;
}

// Prints the errors of the products of each row of x, whole numbers that stand for 255ths, and each
// row of b.
static void print_errors(const char *title, const float *x, size_t rows, const float *b,
                         size_t columns, size_t n, size_t block) {
    float *pixels = allocate_floats(rows * n);
    for (size_t i = 0; i < rows * n; ++i)
        pixels[i] = x[i] * (1.0f / 255);
    printf("%s %14s %14s %14s\n", title, "largest error", "rms error", "of the rms");
    for (size_t m = 0; m < sizeof METHODS / sizeof *METHODS; ++m) {
        const struct method *method = &METHODS[m];
        float *a_parts = split(method->bytes ? x : pixels, rows, n, method);
        float *b_parts = split(b, columns, n, method);
        double largest = 0, squares = 0, exact_squares = 0;
        for (size_t r = 0; r < rows; ++r)
            for (size_t c = 0; c < columns; ++c) {
                double exact = 0;
                for (size_t i = 0; i < n; ++i)
                    exact += (double)x[r * n + i] * b[c * n + i];
                exact /= 255;
                const float found = multiply(method, a_parts + r * MOST_PARTS * n,
                                             b_parts + c * MOST_PARTS * n, n, block);
                const double error = found * (method->bytes ? 1.0f / 255 : 1) - exact;
                largest = fmax(largest, fabs(error));
                squares += error * error;
                exact_squares += exact * exact;
            }
        printf("%-10s %14.1e %14.1e %14.1e\n", method->name, largest,
               sqrt(squares / (double)(rows * columns)), sqrt(squares / exact_squares));
        free(a_parts);
        free(b_parts);
    }
    free(pixels);
}

// Returns n · da, units × samples, of a network with these weights, whose biases are 0.
static float *d_activations(const float *x, const uint8_t *labels, size_t n, const float *weights1,
                            const float *weights2, size_t units) {
    float *d_activations = allocate_floats(units * n);
    double *a = allocate_array(units, sizeof *a);
    for (size_t s = 0; s < n; ++s) {
        double p[CLASSES] = {0}, sum = 0;
        for (size_t h = 0; h < units; ++h) {
            double z = 0;
            for (size_t k = 0; k < PIXELS; ++k)
                z += (double)x[s * PIXELS + k] * weights1[h * PIXELS + k] / 255;
            a[h] = fmax(z, 0);
            for (size_t o = 0; o < CLASSES; ++o)
                p[o] += a[h] * weights2[h * CLASSES + o];
        }
        for (size_t o = 0; o < CLASSES; ++o)
            sum += p[o] = exp(p[o]);
        for (size_t h = 0; h < units; ++h) {
            double da = 0;
            for (size_t o = 0; o < CLASSES; ++o)
                da += (p[o] / sum - (o == labels[s])) * weights2[h * CLASSES + o];
            d_activations[h * n + s] = a[h] > 0 ? (float)da : 0;
        }
    }
    free(a);
    return d_activations;
}

int main(int argc, char **argv) {
    struct options options = parse_options(argc, argv, "Prints the errors of two products.", 1);
    struct data data;
    int status = load_data(&options, &data);
    if (status)
        return status;

    const size_t units = (size_t)options.hidden;
    const struct batch batch = batch_at(&data.train, 0, options.batch);
    const size_t n = batch.samples;
    float *weights1 = allocate_floats(units * PIXELS); // a unit's weights side by side
    float *weights2 = allocate_floats(units * CLASSES);
    float *x = allocate_floats(n * PIXELS), *turned = allocate_floats(PIXELS * n);
    struct pcg32 generator = pcg32_start(options.seed, 1);
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t h = 0; h < units; ++h)
            weights1[h * PIXELS + k] = draw_weight(&generator, PIXELS);
    generator = pcg32_start(options.seed, 2);
    for (size_t i = 0; i < units * CLASSES; ++i)
        weights2[i] = draw_weight(&generator, units);
    for (size_t i = 0; i < n * PIXELS; ++i)
        x[i] = turned[i % PIXELS * n + i / PIXELS] = rintf(batch.images[i] * 255);
    float *da = d_activations(x, batch.labels, n, weights1, weights2, units);

    print_errors("x·W1      ", x, n, weights1, units, PIXELS, BLOCK);
    print_errors("xᵀ·n·da   ", turned, PIXELS, da, units, n, n);
    free(weights1);
    free(weights2);
    free(x);
    free(turned);
    free(da);
    free_data(&data);
    return 0;
}
