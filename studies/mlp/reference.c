// The reference: the network in float64, from the formulas in README.md. It shares nothing with the
// stages or common/, on purpose. It has its own generator, options and loops, takes one sample at a
// time, and keeps the gradient apart from the update.
//
//     reference --data DIR [OPTION...]
//
// It takes the options of a stage, reads IDX files, and writes the weights as float64. It prints
// what bench/testing.py compares, and how far a stage may be off: see stages/reference.c.
#include <err.h>
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { INPUTS = 784, OUTPUTS = 10, MOST_LAYERS = 9 };

// How far the weights may be off. Rounding alone caused 1e-7 to 4e-7 over all of them and up to
// 1e-5 in a bias. But a hidden unit may be so close to zero that rounding decides whether it is on,
// for a sample in one batch. The bounds allow it. After more batches two right versions have
// different weights, but the same loss and accuracy.
enum { COMPARABLE_BATCHES = 50 };
static const double WEIGHTS_BOUND = 5e-5, BIAS_BOUND = 5e-4, TOTAL_BOUND = 5e-5;

// The layers from the pixels to the ten outputs. The parameters lie in one array, in the order of a
// stage's --save-weights: W1, b1, W2, b2, ...
struct shape {
    int layers;
    size_t sizes[MOST_LAYERS + 1];   // 784, the hidden units, 10
    size_t weights[MOST_LAYERS + 1]; // where a layer's weights begin; the last: the number of all
    size_t biases[MOST_LAYERS];      // where a layer's bias begins
    size_t values[MOST_LAYERS + 1];  // where a layer's outputs begin, for one sample; likewise
};

struct samples {
    size_t count;
    const float *images;   // count × 784, as the network sees them: the float32 of pixel / 255
    const uint8_t *labels; // count, each 0 to 9
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

// Reads a list of widths, such as 128,128.
static struct shape make_shape(char *list) {
    struct shape shape = {.sizes = {INPUTS}};
    for (char *width; (width = strsep(&list, ",")) && shape.layers < MOST_LAYERS - 1;)
        shape.sizes[++shape.layers] = strtoul(width, NULL, 10);
    if (list)
        errx(2, "--hidden: more than %d layers", MOST_LAYERS - 1);
    shape.sizes[++shape.layers] = OUTPUTS;
    for (int l = 0; l < shape.layers; ++l) {
        shape.biases[l] = shape.weights[l] + shape.sizes[l] * shape.sizes[l + 1];
        shape.weights[l + 1] = shape.biases[l] + shape.sizes[l + 1];
        shape.values[l + 1] = shape.values[l] + shape.sizes[l + 1];
    }
    return shape;
}

// The initial parameters. They are float32 values, so a stage's must be equal to the bit.
static double *initial_parameters(const struct shape *shape, uint64_t seed) {
    double *parameters = allocate(shape->weights[shape->layers]);
    for (int l = 0; l < shape->layers; ++l) {
        struct generator generator = start_generator(seed, (uint64_t)l + 1);
        const float limit = sqrtf(6.0f / (float)shape->sizes[l]);
        for (size_t i = shape->weights[l]; i < shape->biases[l]; ++i) {
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

// The outputs of all layers for one image; those of the last become probabilities. An input of zero
// adds nothing and is skipped: four fifths of MNIST's pixels are zero, and half of the units.
static void predict(const struct shape *shape, const double *parameters, const float *image,
                    double *values) {
    for (int l = 0; l < shape->layers; ++l) {
        const size_t outputs = shape->sizes[l + 1];
        double *out = values + shape->values[l];
        const double *weights = parameters + shape->weights[l], *in = out - shape->sizes[l];
        memcpy(out, parameters + shape->biases[l], outputs * sizeof *out);
        for (size_t k = 0; k < shape->sizes[l]; ++k) {
            const double input = l > 0 ? in[k] : (double)image[k];
            if (input != 0)
                add_scaled(out, input, weights + k * outputs, outputs);
        }
        for (size_t o = 0; o < outputs && l + 1 < shape->layers; ++o)
            out[o] = fmax(out[o], 0);
    }
    double *p = values + shape->values[shape->layers - 1], largest = -INFINITY, sum = 0;
    for (int o = 0; o < OUTPUTS; ++o)
        largest = fmax(largest, p[o]);
    for (int o = 0; o < OUTPUTS; ++o)
        sum += p[o] = exp(p[o] - largest);
    for (int o = 0; o < OUTPUTS; ++o)
        p[o] /= sum;
}

// Adds one image's share of the gradient, by the chain rule, backwards from the loss. `gradients`
// has the derivative by the logits behind those of the hidden units, which are set here.
static void add_gradient(const struct shape *shape, const double *parameters, const float *image,
                         const double *values, double *gradients, double *sum) {
    for (int l = shape->layers - 1; l >= 0; --l) {
        const size_t inputs = shape->sizes[l], outputs = shape->sizes[l + 1];
        const double *out = gradients + shape->values[l];
        add_scaled(sum + shape->biases[l], 1, out, outputs);
        for (size_t k = 0; k < inputs; ++k) {
            const double *in = values + shape->values[l] - inputs;
            const double input = l > 0 ? in[k] : (double)image[k];
            const double *weights = parameters + shape->weights[l] + k * outputs;
            if (input != 0)
                add_scaled(sum + shape->weights[l] + k * outputs, input, out, outputs);
            if (l == 0)
                continue;
            double *d_input = gradients + shape->values[l] - inputs + k;
            *d_input = 0;
            for (size_t o = 0; o < outputs && input > 0; ++o)
                *d_input += weights[o] * out[o];
        }
    }
}

// Returns the mean loss over the samples, and writes its gradient, laid out as the parameters.
static double loss_and_gradient(const struct shape *shape, const double *parameters,
                                struct samples samples, double *gradient) {
    double *values = allocate(shape->values[shape->layers]), loss = 0;
    double *gradients = allocate(shape->values[shape->layers]);
    memset(gradient, 0, shape->weights[shape->layers] * sizeof *gradient);
    for (size_t s = 0; s < samples.count; ++s) {
        const float *image = samples.images + s * INPUTS;
        const double *p = values + shape->values[shape->layers - 1];
        double *d_logits = gradients + shape->values[shape->layers - 1];
        predict(shape, parameters, image, values);
        loss -= log(p[samples.labels[s]]);
        for (int o = 0; o < OUTPUTS; ++o)
            d_logits[o] = (p[o] - (o == samples.labels[s])) / (double)samples.count;
        add_gradient(shape, parameters, image, values, gradients, gradient);
    }
    free(values);
    free(gradients);
    return loss / (double)samples.count;
}

// Trains by plain gradient descent, in batches in file order. Returns the last epoch's mean loss:
// each sample's loss is taken when its batch is trained on.
static double train_reference(const struct shape *shape, double *parameters, struct samples samples,
                              size_t batch, size_t epochs, double learning_rate) {
    const size_t count = shape->weights[shape->layers];
    double *gradient = allocate(count), loss = 0;
    for (size_t epoch = 0; epoch < epochs; ++epoch) {
        loss = 0;
        for (size_t first = 0; first < samples.count; first += batch) {
            const size_t left = samples.count - first;
            const struct samples slice = {left < batch ? left : batch,
                                          samples.images + first * INPUTS, samples.labels + first};
            loss += (double)slice.count * loss_and_gradient(shape, parameters, slice, gradient);
            add_scaled(parameters, -learning_rate, gradient, count);
        }
    }
    free(gradient);
    return loss / (double)samples.count;
}

// The fraction of samples whose most probable class is their label.
static double reference_accuracy(const struct shape *shape, const double *parameters,
                                 struct samples samples) {
    double *values = allocate(shape->values[shape->layers]);
    size_t right = 0;
    for (size_t s = 0; s < samples.count; ++s) {
        const double *p = values + shape->values[shape->layers - 1];
        predict(shape, parameters, samples.images + s * INPUTS, values);
        int best = 0;
        for (int o = 1; o < OUTPUTS; ++o)
            if (p[o] > p[best])
                best = o;
        right += best == samples.labels[s];
    }
    free(values);
    return (double)right / (double)samples.count;
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
static struct samples read_samples(const char *directory, const char *set, size_t count) {
    char path[4096], name[64];
    float *images = malloc(count * INPUTS * sizeof *images);
    uint8_t *labels = malloc(count), pixels[INPUTS];
    if (!images || !labels)
        err(1, "reference");
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", set);
    gzFile file = open_idx(path, sizeof path, directory, name, 16);
    for (size_t s = 0; s < count; ++s) {
        read_idx(file, path, pixels, INPUTS);
        for (size_t k = 0; k < INPUTS; ++k)
            images[s * INPUTS + k] = (float)(pixels[k] / 255.0);
    }
    gzclose(file);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", set);
    file = open_idx(path, sizeof path, directory, name, 8);
    read_idx(file, path, labels, count);
    gzclose(file);
    return (struct samples){count, images, labels};
}

enum { BATCH, EPOCHS, TRAIN, TEST, NUMBERS, HIDDEN, SEED, RATE, DATA, SAVE, IGNORED };

struct options {
    size_t numbers[NUMBERS];
    struct shape shape;
    uint64_t seed;
    float learning_rate;
    const char *data, *save;
};

static struct options parse_options(int argc, char **argv) {
    static const struct option OPTIONS[] = {
        {"batch", 1, 0, BATCH},
        {"epochs", 1, 0, EPOCHS},
        {"train", 1, 0, TRAIN},
        {"test", 1, 0, TEST},
        {"hidden", 1, 0, HIDDEN},
        {"seed", 1, 0, SEED},
        {"learning-rate", 1, 0, RATE},
        {"data", 1, 0, DATA},
        {"save-weights", 1, 0, SAVE},
        {"threads", 1, 0, IGNORED},
        {"csv", 1, 0, IGNORED},
        {"quiet", 0, 0, IGNORED},
        {0},
    };
    char two[] = "128,128";
    struct options options = {{128, 2, 60000, 10000}, make_shape(two), 1, 0.1f, NULL, NULL};
    for (int option; (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        if (option < NUMBERS)
            options.numbers[option] = strtoul(optarg, NULL, 10);
        else if (option == HIDDEN)
            options.shape = make_shape(optarg);
        else if (option == SEED)
            options.seed = strtoull(optarg, NULL, 10);
        else if (option == RATE)
            options.learning_rate = strtof(optarg, NULL);
        else if (option == DATA)
            options.data = optarg;
        else if (option == SAVE)
            options.save = optarg;
        else if (option != IGNORED)
            exit(2);
    }
    if (!options.data || optind != argc)
        errx(2, "usage: reference --data DIR [--hidden LIST] [--save-weights FILE] ...");
    return options;
}

static void save_parameters(const char *path, const double *parameters, size_t count) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(parameters, sizeof *parameters, count, file) != count || fclose(file) != 0)
        err(1, "%s", path);
}

static void print_expected(const struct shape *shape, size_t batches, size_t test, double loss,
                           double accuracy) {
    const bool comparable = batches <= COMPARABLE_BATCHES;
    if (batches) // The loss is printed with six decimals.
        printf("result final_loss %.17g %g %g\n", loss, comparable ? 1e-5 : 0.01,
               comparable ? 1e-6 : 0);
    for (int l = 0; l < shape->layers && comparable; ++l) {
        const size_t inputs = shape->sizes[l], outputs = shape->sizes[l + 1];
        printf("part W%d %zu %zu norm %g\n", l + 1, inputs, outputs, batches ? WEIGHTS_BOUND : 0);
        printf("part b%d %d %zu norm %g\n", l + 1, 1, outputs, batches ? BIAS_BOUND : 0);
    }
    if (comparable)
        printf("total norm %g\n", TOTAL_BOUND);
    // One image may be a near tie.
    printf("result test_accuracy %.17g 0 %g\n", accuracy,
           comparable ? 1.0 / (double)test + 1e-6 : 0.005);
}

int main(int argc, char **argv) {
    const struct options options = parse_options(argc, argv);
    const struct shape *shape = &options.shape;
    const size_t batch = options.numbers[BATCH], epochs = options.numbers[EPOCHS];
    const struct samples train = read_samples(options.data, "train", options.numbers[TRAIN]);
    const struct samples test = read_samples(options.data, "t10k", options.numbers[TEST]);
    double *parameters = initial_parameters(shape, options.seed);
    const double loss =
        train_reference(shape, parameters, train, batch, epochs, options.learning_rate);
    print_expected(shape, epochs * ((train.count + batch - 1) / batch), test.count, loss,
                   reference_accuracy(shape, parameters, test));
    if (options.save)
        save_parameters(options.save, parameters, shape->weights[shape->layers]);
    free(parameters);
    return 0;
}
