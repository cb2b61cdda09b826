// The reference: the network in float64, from the formulas in README.md. It shares nothing with the
// stages or common/, on purpose. It has its own generator, options and loops, takes one sample at a
// time, and keeps the gradient apart from the update. A gradient goes back along the way that the
// value came: from a pool to the one place that it took, and from there to nine pixels a channel.
//
//     reference --data DIR [OPTION...]
//
// It takes the options of a stage, reads IDX files, and writes the weights as float64. It prints
// what bench/testing.py compares, and how far a stage may be off: see stages/reference.c.
//
//     reference --data DIR --check-gradients
//
// compares its gradient with central differences of the loss.
#include <err.h>
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { INPUTS = 784, OUTPUTS = 10, MOST_FILTERS = 16, UNITS = 128, FLAT = 400 };

// The two blocks of a convolution with a ReLU and a pool.
enum { BLOCKS = 2 };
static const struct {
    int channels, side; // of the input
    int filters;
    int out, pooled; // the sides after the convolution and after the pool
} BLOCK[BLOCKS] = {{1, 28, 8, 26, 13}, {8, 13, 16, 11, 5}};

// The parameters lie in one array, in the order of a stage's --save-weights. How far they may be
// off: rounding alone caused 1e-7 to 3e-7, and up to 5e-6 in a bias. But two values of a pool may
// be so close that rounding decides which is the largest, or a unit so close to zero that it
// decides whether it is on, for a sample in one batch. The bounds allow it. After more batches two
// right versions have different weights, but the same loss and accuracy.
enum { COMPARABLE_BATCHES = 50 };
enum part { W1, B1, W2, B2, W3, B3, W4, B4, PARTS };
static const struct {
    const char *name;
    size_t rows, columns;
    int inputs; // of a sum; 0: a bias
    double bound;
} PART[PARTS] = {{"W1", 8, 9, 9, 5e-5},
                 {"b1", 1, 8, 0, 5e-4},
                 {"W2", 16, 72, 72, 5e-5},
                 {"b2", 1, 16, 0, 5e-4},
                 {"W3", FLAT, UNITS, FLAT, 5e-5},
                 {"b3", 1, UNITS, 0, 5e-4},
                 {"W4", UNITS, OUTPUTS, UNITS, 5e-5},
                 {"b4", 1, OUTPUTS, 0, 5e-4}};
static const double TOTAL_BOUND = 5e-5;

struct samples {
    size_t count;
    const float *images;   // count × 784, as the network sees them
    const uint8_t *labels; // count, each 0 to 9
};

// What the network computes for one image.
struct values {
    double before[BLOCKS][MOST_FILTERS * 26 * 26]; // after the convolution
    double pooled[BLOCKS][MOST_FILTERS * 13 * 13]; // after ReLU and pool
    int place[BLOCKS][MOST_FILTERS * 13 * 13];     // where in `before` a pool's value comes from
    double units[UNITS];                           // after the ReLU
    double probabilities[OUTPUTS];
};

// PCG32, XSH-RR 64/32: O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
// Algorithms for Random Number Generation", 2014.
struct generator {
    uint64_t state;
    uint64_t increment;
};

static uint32_t draw_bits(struct generator *generator) {
    const uint64_t old = generator->state;
    generator->state = old * 0x5851f42d4c957f2d + generator->increment;
    const uint32_t bits = (uint32_t)((old ^ old >> 18) >> 27);
    const unsigned turn = (unsigned)(old >> 59);
    return turn ? bits >> turn | bits << (32 - turn) : bits;
}

static struct generator start_generator(uint64_t seed, uint64_t stream) {
    struct generator generator = {.increment = 2 * stream + 1};
    draw_bits(&generator);
    generator.state += seed;
    draw_bits(&generator);
    return generator;
}

static double *allocate(size_t count) {
    double *values = calloc(count, sizeof *values);
    if (!values)
        err(EXIT_FAILURE, "reference");
    return values;
}

// Where a part begins. For PARTS: the number of all parameters.
static size_t part_offset(enum part part) {
    size_t offset = 0;
    for (int i = 0; i < (int)part; ++i)
        offset += PART[i].rows * PART[i].columns;
    return offset;
}

// The initial parameters. They are float32 values, so a stage's must be equal to the bit.
static double *initial_parameters(uint64_t seed) {
    double *parameters = allocate(part_offset(PARTS));
    for (enum part part = W1; part < PARTS; part += 2) {
        struct generator generator = start_generator(seed, (uint64_t)part / 2 + 1);
        const float limit = sqrtf(6.0f / (float)PART[part].inputs);
        for (size_t i = part_offset(part); i < part_offset(part + 1); ++i) {
            // Everything before the product is exact. The product is rounded to float32 once.
            const double unit = ldexp(draw_bits(&generator) >> 8, -23) - 1;
            parameters[i] = (float)(unit * limit);
        }
    }
    return parameters;
}

// sum += factor · values
static void add_scaled(double *restrict sum, double factor, const double *restrict values,
                       size_t count) {
    for (size_t i = 0; i < count; ++i)
        sum[i] += factor * values[i];
}

// A block: `in` has channels × side × side numbers.
static void predict_block(int b, const double *parameters, const double *in,
                          struct values *values) {
    const ptrdiff_t side = BLOCK[b].side, out = BLOCK[b].out, pooled = BLOCK[b].pooled;
    const double *weight = parameters + part_offset(W1 + 2 * b);
    const double *bias = parameters + part_offset(B1 + 2 * b);
    for (int f = 0; f < BLOCK[b].filters; ++f) {
        double *plane = values->before[b] + f * out * out;
        for (int i = 0; i < out * out; ++i)
            plane[i] = bias[f];
        for (int c = 0; c < BLOCK[b].channels; ++c)
            for (int i = 0; i < 3; ++i)
                for (int j = 0; j < 3; ++j, ++weight)
                    for (int y = 0; y < out; ++y)
                        add_scaled(plane + y * out, *weight, in + (c * side + y + i) * side + j,
                                   (size_t)out);
        for (ptrdiff_t y = 0; y < pooled; ++y) {
            for (ptrdiff_t x = 0; x < pooled; ++x) {
                const ptrdiff_t corner = (f * out + 2 * y) * out + 2 * x;
                const ptrdiff_t four[] = {corner, corner + 1, corner + out, corner + out + 1};
                ptrdiff_t place = four[0];
                for (int i = 1; i < 4; ++i)
                    if (values->before[b][four[i]] > values->before[b][place])
                        place = four[i];
                values->place[b][(f * pooled + y) * pooled + x] = (int)place;
                values->pooled[b][(f * pooled + y) * pooled + x] =
                    fmax(values->before[b][place], 0);
            }
        }
    }
}

// A dense layer. An input of zero adds nothing and is skipped: about half of the units are zero.
static void predict_dense(enum part part, const double *parameters, const double *in, double *out) {
    const size_t inputs = PART[part].rows, outputs = PART[part].columns;
    const double *weights = parameters + part_offset(part);
    memcpy(out, parameters + part_offset(part + 1), outputs * sizeof *out);
    for (size_t k = 0; k < inputs; ++k)
        if (in[k] != 0)
            add_scaled(out, in[k], weights + k * outputs, outputs);
}

static void predict(const double *parameters, const float *image, struct values *values) {
    double pixels[INPUTS];
    for (int i = 0; i < INPUTS; ++i)
        pixels[i] = (double)image[i];
    predict_block(0, parameters, pixels, values);
    predict_block(1, parameters, values->pooled[0], values);
    predict_dense(W3, parameters, values->pooled[1], values->units);
    for (int h = 0; h < UNITS; ++h)
        values->units[h] = fmax(values->units[h], 0);

    double *p = values->probabilities, largest = -INFINITY, sum = 0;
    predict_dense(W4, parameters, values->units, p);
    for (int o = 0; o < OUTPUTS; ++o)
        largest = fmax(largest, p[o]);
    for (int o = 0; o < OUTPUTS; ++o)
        sum += p[o] = exp(p[o] - largest);
    for (int o = 0; o < OUTPUTS; ++o)
        p[o] /= sum;
}

// The gradient of a dense layer's weights is added to `sum`, that of its inputs is written to d_in.
// The inputs are results of a ReLU: where one is zero, its gradient is.
static void add_dense_gradient(enum part part, const double *parameters, const double *in,
                               const double *d_out, double *d_in, double *sum) {
    const size_t inputs = PART[part].rows, outputs = PART[part].columns;
    add_scaled(sum + part_offset(part + 1), 1, d_out, outputs);
    for (size_t k = 0; k < inputs; ++k) {
        d_in[k] = 0;
        if (in[k] == 0)
            continue;
        const double *weights = parameters + part_offset(part) + k * outputs;
        add_scaled(sum + part_offset(part) + k * outputs, in[k], d_out, outputs);
        for (size_t o = 0; o < outputs; ++o)
            d_in[k] += weights[o] * d_out[o];
    }
}

// The same for a block. The gradient of its inputs is added to d_in, unless that is NULL.
static void add_block_gradient(int b, const double *parameters, const double *in,
                               const struct values *values, const double *d_pooled, double *d_in,
                               double *sum) {
    const int side = BLOCK[b].side, out = BLOCK[b].out, pooled = BLOCK[b].pooled;
    const int taps = BLOCK[b].channels * 9;
    for (int f = 0; f < BLOCK[b].filters; ++f) {
        const size_t first = part_offset(W1 + 2 * b) + (size_t)(f * taps);
        for (int i = f * pooled * pooled; i < (f + 1) * pooled * pooled; ++i) {
            if (!(values->pooled[b][i] > 0)) // the ReLU is off
                continue;
            const int place = values->place[b][i] - f * out * out;
            sum[part_offset(B1 + 2 * b) + (size_t)f] += d_pooled[i];
            for (int tap = 0; tap < taps; ++tap) {
                const int channel = tap / 9, y = place / out + tap % 9 / 3,
                          x = place % out + tap % 3;
                const int pixel = (channel * side + y) * side + x;
                sum[first + (size_t)tap] += d_pooled[i] * in[pixel];
                if (d_in)
                    d_in[pixel] += d_pooled[i] * parameters[first + (size_t)tap];
            }
        }
    }
}

// Adds one image's share of the gradient, by the chain rule, backwards from the loss.
static void add_gradient(const double *parameters, const float *image, uint8_t label, double share,
                         const struct values *values, double *sum) {
    double pixels[INPUTS], d_logits[OUTPUTS], d_units[UNITS], d_flat[FLAT];
    double d_pooled[8 * 13 * 13] = {0};
    for (int i = 0; i < INPUTS; ++i)
        pixels[i] = (double)image[i];
    for (int o = 0; o < OUTPUTS; ++o)
        d_logits[o] = (values->probabilities[o] - (o == label)) * share;
    add_dense_gradient(W4, parameters, values->units, d_logits, d_units, sum);
    add_dense_gradient(W3, parameters, values->pooled[1], d_units, d_flat, sum);
    add_block_gradient(1, parameters, values->pooled[0], values, d_flat, d_pooled, sum);
    add_block_gradient(0, parameters, pixels, values, d_pooled, NULL, sum);
}

// The class that the network takes an image for.
static int best_class(const struct values *values) {
    int best = 0;
    for (int o = 1; o < OUTPUTS; ++o)
        if (values->probabilities[o] > values->probabilities[best])
            best = o;
    return best;
}

struct score {
    double loss; // the mean
    double accuracy;
};

// The score of `count` samples from `first` on. The samples come again from the beginning when they
// end. Writes the loss's gradient, laid out as the parameters, unless that is NULL.
static struct score loss_and_gradient(const double *parameters, struct samples samples,
                                      size_t first, size_t count, double *gradient) {
    struct values values;
    struct score score = {0, 0};
    if (gradient)
        memset(gradient, 0, part_offset(PARTS) * sizeof *gradient);
    for (size_t i = first; i < first + count; ++i) {
        const size_t s = i % samples.count;
        const float *image = samples.images + s * INPUTS;
        const uint8_t label = samples.labels[s];
        predict(parameters, image, &values);
        score.loss -= log(values.probabilities[label]) / (double)count;
        score.accuracy += (best_class(&values) == label) / (double)count;
        if (gradient)
            add_gradient(parameters, image, label, 1 / (double)count, &values, gradient);
    }
    return score;
}

enum {
    BATCH,
    EPOCHS,
    TRAIN,
    TEST,
    NUMBERS,
    SEED,
    RATE,
    MOMENTUM,
    NORMALIZE,
    PAD,
    DATA,
    SAVE,
    CHECK,
    IGNORED
};

struct options {
    size_t numbers[NUMBERS];
    uint64_t seed;
    float learning_rate, momentum;
    bool normalize, pad, check;
    const char *data, *save;
};

// The samples of an epoch: with --pad, some come twice.
static size_t samples_of_epoch(const struct options *options) {
    const size_t train = options->numbers[TRAIN], batch = options->numbers[BATCH];
    return options->pad ? (train + batch - 1) / batch * batch : train;
}

// Trains by gradient descent with momentum, in batches in file order. Returns the last epoch's
// score: each sample counts when its batch is trained on. Sets the best accuracy in the test.
static struct score train_reference(const struct options *options, double *parameters,
                                    struct samples samples, struct samples test, double *best) {
    const size_t count = part_offset(PARTS), all = samples_of_epoch(options);
    double *gradient = allocate(count), *velocity = allocate(count);
    struct score score = {0, 0};
    for (size_t epoch = 0; epoch < options->numbers[EPOCHS]; ++epoch) {
        score = (struct score){0, 0};
        for (size_t first = 0; first < all; first += options->numbers[BATCH]) {
            const size_t left = all - first;
            const size_t n = left < options->numbers[BATCH] ? left : options->numbers[BATCH];
            const struct score slice = loss_and_gradient(parameters, samples, first, n, gradient);
            score.loss += slice.loss * (double)n / (double)all;
            score.accuracy += slice.accuracy * (double)n / (double)all;
            for (size_t i = 0; i < count; ++i) {
                velocity[i] = (double)options->momentum * velocity[i] -
                              (double)options->learning_rate * gradient[i];
                parameters[i] += velocity[i];
            }
        }
        *best = fmax(*best, loss_and_gradient(parameters, test, 0, test.count, NULL).accuracy);
    }
    free(gradient);
    free(velocity);
    return score;
}

// Compares the gradient with central differences, (L(θ + h) − L(θ − h)) / 2h, and prints what is
// wrong. The biases are drawn: where one is zero, so are the sums over black pixels, and there the
// ReLU has no derivative. Of W3, every 16th element is enough: they are all alike, and slow.
// A difference is wrong by h² / 6 times a third derivative, and by 1e-16 / h. Returns the exit
// status.
static int check_gradients(double *parameters, struct samples samples) {
    const double step = 1e-6, tolerance = 1e-8;
    double *gradient = allocate(part_offset(PARTS));
    struct generator generator = start_generator(7, 3);
    for (enum part part = B1; part < PARTS; part += 2)
        for (size_t i = part_offset(part); i < part_offset(part + 1); ++i)
            parameters[i] = ldexp(draw_bits(&generator), -32) - 0.3;
    loss_and_gradient(parameters, samples, 0, samples.count, gradient);
    size_t wrong = 0;
    for (enum part part = W1; part < PARTS; ++part) {
        double largest = 0;
        for (size_t i = part_offset(part); i < part_offset(part + 1); i += part == W3 ? 16 : 1) {
            const double here = parameters[i];
            parameters[i] = here + step;
            const double above =
                loss_and_gradient(parameters, samples, 0, samples.count, NULL).loss;
            parameters[i] = here - step;
            const double below =
                loss_and_gradient(parameters, samples, 0, samples.count, NULL).loss;
            parameters[i] = here;
            const double difference = (above - below) / (2 * step);
            largest = fmax(largest, fabs(gradient[i]));
            if (fabs(difference - gradient[i]) <= tolerance)
                continue;
            if (++wrong <= 10)
                printf("%s[%zu]: gradient %.12g, central difference %.12g\n", PART[part].name,
                       i - part_offset(part), gradient[i], difference);
        }
        // The two would also agree if both were zero everywhere.
        printf("%s: largest gradient %.3g\n", PART[part].name, largest);
        wrong += largest < 1e-3;
    }
    free(gradient);
    puts(wrong ? "WRONG" : "right");
    return wrong != 0;
}

static void read_idx(gzFile file, const char *path, void *bytes, size_t size) {
    if (gzread(file, bytes, (unsigned)size) != (int)size)
        errx(2, "%s: too short", path);
}

// Opens an IDX file, raw or gzipped, behind its header.
static gzFile open_idx(char *path, size_t size, const char *directory, const char *name,
                       unsigned header) {
    uint8_t skipped[16];
    snprintf(path, size, "%s/%s", directory, name);
    gzFile file = gzopen(path, "rb");
    if (!file) {
        snprintf(path, size, "%s/%s.gz", directory, name);
        file = gzopen(path, "rb");
    }
    if (!file)
        err(2, "%s", path);
    read_idx(file, path, skipped, header);
    return file;
}

// Reads the first `count` samples of a set, "train" or "t10k".
static struct samples read_samples(const struct options *options, const char *set, size_t count) {
    char path[4096], name[64];
    float *images = malloc(count * INPUTS * sizeof *images);
    uint8_t *labels = malloc(count), pixels[INPUTS];
    if (!images || !labels)
        err(1, "reference");
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", set);
    gzFile file = open_idx(path, sizeof path, options->data, name, 16);
    for (size_t s = 0; s < count; ++s) {
        read_idx(file, path, pixels, INPUTS);
        for (size_t k = 0; k < INPUTS; ++k)
            images[s * INPUTS + k] =
                (float)(options->normalize ? (pixels[k] / 255.0 - 0.1307) / 0.3081
                                           : pixels[k] / 255.0);
    }
    gzclose(file);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", set);
    file = open_idx(path, sizeof path, options->data, name, 8);
    read_idx(file, path, labels, count);
    gzclose(file);
    return (struct samples){count, images, labels};
}

static struct options parse_options(int argc, char **argv) {
    static const struct option OPTIONS[] = {
        {"batch", 1, 0, BATCH},
        {"epochs", 1, 0, EPOCHS},
        {"train", 1, 0, TRAIN},
        {"test", 1, 0, TEST},
        {"seed", 1, 0, SEED},
        {"learning-rate", 1, 0, RATE},
        {"momentum", 1, 0, MOMENTUM},
        {"normalize", 0, 0, NORMALIZE},
        {"pad", 0, 0, PAD},
        {"data", 1, 0, DATA},
        {"save-weights", 1, 0, SAVE},
        {"check-gradients", 0, 0, CHECK},
        {"threads", 1, 0, IGNORED},
        {"csv", 1, 0, IGNORED},
        {"epochs-csv", 1, 0, IGNORED},
        {"quiet", 0, 0, IGNORED},
        {0},
    };
    struct options options = {
        .numbers = {512, 10, 60000, 10000}, .seed = 1, .learning_rate = 0.01f, .momentum = 0.9f};
    for (int option; (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        if (option < NUMBERS)
            options.numbers[option] = strtoul(optarg, NULL, 10);
        else if (option == SEED)
            options.seed = strtoull(optarg, NULL, 10);
        else if (option == RATE)
            options.learning_rate = strtof(optarg, NULL);
        else if (option == MOMENTUM)
            options.momentum = strtof(optarg, NULL);
        else if (option == NORMALIZE)
            options.normalize = true;
        else if (option == PAD)
            options.pad = true;
        else if (option == DATA)
            options.data = optarg;
        else if (option == SAVE)
            options.save = optarg;
        else if (option == CHECK)
            options.check = true;
        else if (option != IGNORED)
            exit(2);
    }
    if (!options.data || optind != argc)
        errx(2, "usage: reference --data DIR [--save-weights FILE] ...");
    return options;
}

static void save_parameters(const char *path, const double *parameters, size_t count) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(parameters, sizeof *parameters, count, file) != count || fclose(file) != 0)
        err(1, "%s", path);
}

static void print_expected(const struct options *options, struct score score, double accuracy,
                           double best) {
    const size_t all = samples_of_epoch(options), batch = options->numbers[BATCH];
    const size_t batches = options->numbers[EPOCHS] * ((all + batch - 1) / batch);
    const bool comparable = batches <= COMPARABLE_BATCHES;
    // One image may be a near tie.
    const double off = comparable ? 1.0 / (double)options->numbers[TEST] + 1e-6 : 0.005;
    if (batches) { // The loss is printed with six decimals.
        printf("result final_loss %.17g %g %g\n", score.loss, comparable ? 1e-5 : 0.01,
               comparable ? 1e-6 : 0);
        printf("result train_accuracy %.17g 0 %g\n", score.accuracy,
               comparable ? 1.0 / (double)all + 1e-6 : 0.005);
        printf("result best_test_accuracy %.17g 0 %g\n", best, off);
    }
    for (enum part part = W1; part < PARTS && comparable; ++part)
        printf("part %s %zu %zu norm %g\n", PART[part].name, PART[part].rows, PART[part].columns,
               batches ? PART[part].bound : 0);
    if (comparable)
        printf("total norm %g\n", TOTAL_BOUND);
    printf("result test_accuracy %.17g 0 %g\n", accuracy, off);
}

int main(int argc, char **argv) {
    const struct options options = parse_options(argc, argv);
    const struct samples train = read_samples(&options, "train", options.numbers[TRAIN]);
    double *parameters = initial_parameters(options.seed), best = 0;
    if (options.check)
        return check_gradients(parameters, train);
    const struct samples test = read_samples(&options, "t10k", options.numbers[TEST]);
    const struct score score = train_reference(&options, parameters, train, test, &best);
    print_expected(&options, score,
                   loss_and_gradient(parameters, test, 0, test.count, NULL).accuracy, best);
    if (options.save)
        save_parameters(options.save, parameters, part_offset(PARTS));
    free(parameters);
    return 0;
}
