// Stage 01.3: the same tile backward, with the update fused in, and W1 in panels.
//
// Shapes: n samples in a batch, at most N; H hidden units in V vectors. The last vector may have
// lanes without a hidden unit. They hold zeros and stay zero: where a and W2 are zero, so are da,
// dW1 and dW2. Arrays but W1 are row-major: x[s][k] is x[s * 784 + k].
//
//     a = max(0, x·W1 + b1)      x  n × 784    W1  784 × H    b1  H    a  n × H
//     z = a·W2 + b2              W2 H × 10     b2  10         z  n × 10
//     p = softmax(z)             loss = mean over the batch of −log p[label]
#include "stages/training.h"

#include <math.h>
#include <stdlib.h>

// The widest vectors of the machine that is compiled for.
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32 };
#else
enum { VECTOR_BYTES = 16 };
#endif
// A tile has 4 × 2 vectors of sums. So many chains of FMAs hide the latency of one: at most two
// start in a cycle, and each takes four.
enum { LANES = VECTOR_BYTES / sizeof(float), TILE_ROWS = 4, TILE_COLUMNS = 2 };
typedef float vec __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vec_mask __attribute__((vector_size(VECTOR_BYTES)));

// For the kernels: where a size is a constant, the loops over it disappear.
#define INLINED static inline __attribute__((always_inline))

struct network {
    size_t units;   // the hidden units that were asked for
    size_t vectors; // V

    vec *weights1;   // V × 784: a panel for each vector of hidden units, read from end to end
    float *bias1;    // H
    float *weights2; // H × 10
    float *bias2;    // 10

    // One batch's intermediate values.
    float *activations;   // n × H: a
    float *logits;        // n × 10: z
    float *probabilities; // n × 10: p
    float *d_logits;      // n × 10: dz
    float *d_activations; // n × H: da
};

static struct network create(const struct options *options) {
    const size_t units = (size_t)options->hidden, n = largest_batch(options);
    const size_t vectors = (units + LANES - 1) / LANES, hidden = vectors * LANES;
    struct network network = {
        .units = units,
        .vectors = vectors,
        .weights1 = (vec *)allocate_floats(PIXELS * hidden),
        .bias1 = allocate_floats(hidden),
        .weights2 = allocate_floats(hidden * CLASSES),
        .bias2 = allocate_floats(CLASSES),
        .activations = allocate_floats(n * hidden),
        .logits = allocate_floats(n * CLASSES),
        .probabilities = allocate_floats(n * CLASSES),
        .d_logits = allocate_floats(n * CLASSES),
        .d_activations = allocate_floats(n * hidden),
    };
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t h = 0; h < units; ++h)
            network.weights1[h / LANES * PIXELS + k][h % LANES] = draw_weight(&generator, PIXELS);
    generator = pcg32_start(options->seed, 2);
    for (size_t h = 0; h < units; ++h)
        for (size_t o = 0; o < CLASSES; ++o)
            network.weights2[h * CLASSES + o] = draw_weight(&generator, units);
    return network;
}

static void destroy(struct network *network) {
    free(network->weights1);
    free(network->bias1);
    free(network->weights2);
    free(network->bias2);
    free(network->activations);
    free(network->logits);
    free(network->probabilities);
    free(network->d_logits);
    free(network->d_activations);
}

// A tile of a = max(0, x·W1 + b1): `rows` samples from s on × `columns` vectors of hidden units
// from v on. For each k it loads `columns` vectors of W1 and `rows` pixels, and does rows × columns
// multiply-adds. The sums stay in registers.
INLINED void forward_tile(const struct network *network, const struct batch *batch, size_t s,
                          size_t rows, size_t v, size_t columns) {
    const size_t vectors = network->vectors;
    const float *x = batch->images + s * PIXELS;
    const vec *weights1 = network->weights1 + v * PIXELS, *bias1 = (vec *)network->bias1 + v;
    vec *a = (vec *)network->activations + s * vectors + v;
    vec sum[TILE_ROWS][TILE_COLUMNS];
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c)
            sum[r][c] = bias1[c];
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t r = 0; r < rows; ++r)
            for (size_t c = 0; c < columns; ++c)
                sum[r][c] += x[r * PIXELS + k] * weights1[c * PIXELS + k];
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c)
            a[r * vectors + c] = (vec)((vec_mask)sum[r][c] & (sum[r][c] > 0));
}

// The same for all samples. The last tile may compute some samples of the tile before once more, so
// that all tiles have one size. In a batch smaller than a tile, samples go one by one.
INLINED void forward_panels(const struct network *network, const struct batch *batch, size_t v,
                            size_t columns) {
    const size_t n = batch->samples;
    size_t s = 0;
    for (; s + TILE_ROWS <= n; s += TILE_ROWS)
        forward_tile(network, batch, s, TILE_ROWS, v, columns);
    if (s < n && n > TILE_ROWS)
        forward_tile(network, batch, n - TILE_ROWS, TILE_ROWS, v, columns);
    else
        for (; s < n; ++s)
            forward_tile(network, batch, s, 1, v, columns);
}

// A tile of W1 −= lr·xᵀ·da: TILE_ROWS pixels × `columns` vectors of hidden units, from k and v on.
// The gradient goes from the registers straight to the weights, and dW1 is never written.
INLINED void backward_tile(const struct network *network, const struct batch *batch,
                           float learning_rate, size_t k, size_t v, size_t columns) {
    const size_t vectors = network->vectors;
    const float *x = batch->images + k;
    const vec *da = (vec *)network->d_activations + v;
    vec *weights1 = network->weights1 + v * PIXELS + k;
    vec sum[TILE_ROWS][TILE_COLUMNS] = {0};
    for (size_t s = 0; s < batch->samples; ++s)
        for (size_t r = 0; r < TILE_ROWS; ++r)
            for (size_t c = 0; c < columns; ++c)
                sum[r][c] += x[s * PIXELS + r] * da[s * vectors + c];
    for (size_t r = 0; r < TILE_ROWS; ++r)
        for (size_t c = 0; c < columns; ++c)
            weights1[c * PIXELS + r] -= learning_rate * sum[r][c];
}

// The same for all pixels, whose number is a multiple of TILE_ROWS.
INLINED void backward_panels(const struct network *network, const struct batch *batch,
                             float learning_rate, size_t v, size_t columns) {
    for (size_t k = 0; k < PIXELS; k += TILE_ROWS)
        backward_tile(network, batch, learning_rate, k, v, columns);
}

// Sets a, z and p for a batch. Returns its loss.
static double forward(struct network *network, const struct batch *batch) {
    const size_t n = batch->samples, vectors = network->vectors, hidden = vectors * LANES;
    float *a = network->activations, *p = network->probabilities;

    for (size_t v = 0; v < vectors; v += TILE_COLUMNS)
        if (v + TILE_COLUMNS <= vectors)
            forward_panels(network, batch, v, TILE_COLUMNS);
        else
            forward_panels(network, batch, v, 1);

    // z = a·W2 + b2
    for (size_t s = 0; s < n; ++s) {
        for (size_t o = 0; o < CLASSES; ++o) {
            float sum = network->bias2[o];
            for (size_t h = 0; h < hidden; ++h)
                sum += a[s * hidden + h] * network->weights2[h * CLASSES + o];
            network->logits[s * CLASSES + o] = sum;
        }
    }

    // p = softmax(z), shifted by the largest z, so that exp() cannot overflow. The loss is taken
    // from z: there −log p is exact even if p underflows.
    double loss = 0;
    for (size_t s = 0; s < n; ++s) {
        const float *z = network->logits + s * CLASSES;
        float max = z[0], sum = 0;
        for (size_t o = 1; o < CLASSES; ++o)
            max = z[o] > max ? z[o] : max;
        for (size_t o = 0; o < CLASSES; ++o) {
            p[s * CLASSES + o] = expf(z[o] - max);
            sum += p[s * CLASSES + o];
        }
        for (size_t o = 0; o < CLASSES; ++o)
            p[s * CLASSES + o] /= sum;
        loss += logf(sum) - (z[batch->labels[s]] - max);
    }
    return loss / (double)n;
}

// Updates the weights by the gradient of the batch that forward() has just seen.
static void backward(struct network *network, const struct batch *batch, float learning_rate) {
    const size_t n = batch->samples, vectors = network->vectors, hidden = vectors * LANES;
    const float *a = network->activations, *p = network->probabilities;
    float *dz = network->d_logits, *da = network->d_activations;

    // dz = (p − onehot(label)) / n
    for (size_t s = 0; s < n; ++s)
        for (size_t o = 0; o < CLASSES; ++o)
            dz[s * CLASSES + o] = (p[s * CLASSES + o] - (o == batch->labels[s])) / (float)n;

    // da = (dz·W2ᵀ) ⊙ [a > 0], with W2 as it was in forward()
    for (size_t s = 0; s < n; ++s) {
        for (size_t h = 0; h < hidden; ++h) {
            float sum = 0;
            for (size_t o = 0; o < CLASSES; ++o)
                sum += dz[s * CLASSES + o] * network->weights2[h * CLASSES + o];
            da[s * hidden + h] = a[s * hidden + h] > 0 ? sum : 0;
        }
    }

    // W2 −= lr·aᵀ·dz, b2 −= lr·Σ dz
    for (size_t h = 0; h < hidden; ++h) {
        for (size_t o = 0; o < CLASSES; ++o) {
            float sum = 0;
            for (size_t s = 0; s < n; ++s)
                sum += a[s * hidden + h] * dz[s * CLASSES + o];
            network->weights2[h * CLASSES + o] -= learning_rate * sum;
        }
    }
    for (size_t o = 0; o < CLASSES; ++o) {
        float sum = 0;
        for (size_t s = 0; s < n; ++s)
            sum += dz[s * CLASSES + o];
        network->bias2[o] -= learning_rate * sum;
    }

    // W1 −= lr·xᵀ·da, b1 −= lr·Σ da
    for (size_t v = 0; v < vectors; v += TILE_COLUMNS)
        if (v + TILE_COLUMNS <= vectors)
            backward_panels(network, batch, learning_rate, v, TILE_COLUMNS);
        else
            backward_panels(network, batch, learning_rate, v, 1);
    for (size_t h = 0; h < hidden; ++h) {
        float sum = 0;
        for (size_t s = 0; s < n; ++s)
            sum += da[s * hidden + h];
        network->bias1[h] -= learning_rate * sum;
    }
}

// Runs all epochs over the training set in file order. The last batch of an epoch may be short.
static void train(struct network *network, const struct dataset *dataset,
                  const struct options *options, struct result *result) {
    double start = seconds();
    for (int epoch = 0; epoch < options->epochs; ++epoch) {
        struct batch batch;
        double loss = 0, clock = seconds();
        for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
            batch = batch_at(dataset, first, options->batch);
            loss += forward(network, &batch) * (double)batch.samples;
            clock = timer_lap(&result->forward, clock);
            backward(network, &batch, options->learning_rate);
            clock = timer_lap(&result->backward, clock);
        }
        result->final_loss = loss / dataset->samples;
        start = report_epoch(options, epoch, result->final_loss, start); // not timed
    }
    result->train_s = seconds() - start;
}

// Returns the fraction of samples whose most probable class is their label.
static double evaluate(struct network *network, const struct dataset *dataset,
                       const struct options *options) {
    struct batch batch;
    size_t right = 0;
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        forward(network, &batch);
        for (size_t s = 0; s < batch.samples; ++s) {
            const float *p = network->probabilities + s * CLASSES;
            size_t best = 0;
            for (size_t o = 1; o < CLASSES; ++o)
                best = p[o] > p[best] ? o : best;
            right += best == batch.labels[s];
        }
    }
    return (double)right / dataset->samples;
}

// Writes the weights, with W1 turned back into rows. Returns the exit status.
static int save(const struct network *network, const char *path) {
    const size_t units = network->units;
    float *weights1 = allocate_floats(PIXELS * units);
    for (size_t h = 0; h < units; ++h)
        for (size_t k = 0; k < PIXELS; ++k)
            weights1[k * units + h] = network->weights1[h / LANES * PIXELS + k][h % LANES];
    int status =
        write_weights(path, units, weights1, network->bias1, network->weights2, network->bias2);
    free(weights1);
    return status;
}

int main(int argc, char **argv) {
    struct options options =
        parse_options(argc, argv, "Trains on the vector units of one core.", 1);
    struct result result = {.device = "cpu", .threads = 1};
    struct data data;

    int status = load_data(&options, &data);
    if (status)
        return status;

    double clock = seconds();
    struct network network = create(&options);
    result.setup_s = seconds() - clock;

    train(&network, &data.train, &options, &result);
    result.test_accuracy = evaluate(&network, &data.test, &options);
    // NaNs must not replace good weights.
    if (options.save_weights && isfinite(result.final_loss))
        status = save(&network, options.save_weights);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy(&network);
    free_data(&data);
    return status;
}
