// Stage 12.1: pixels as bytes, as they are in the file. Each sum is divided by 255, not each pixel.
//
// Shapes: n samples in a batch, at most N; H hidden units in V vectors. The last vector may have
// lanes without a hidden unit. They hold zeros and stay zero: where a and W2 are zero, so are da,
// dW1 and dW2.
#include "stages/training.h"

#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

// The widest vectors of the machine that is compiled for. A tile has TILE_ROWS × TILE_COLUMNS
// vectors of sums: three quarters of the 32 registers, or of AVX2's 16. The others are for its
// operands. SSE has no FMA, and needs one more for the product. The rows divide 784 pixels.
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, TILE_ROWS = 8, TILE_COLUMNS = 3 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, TILE_ROWS = 4, TILE_COLUMNS = 3 };
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, TILE_ROWS = 8, TILE_COLUMNS = 3 };
#else
enum { VECTOR_BYTES = 16, TILE_ROWS = 4, TILE_COLUMNS = 2 };
#endif
enum { LANES = VECTOR_BYTES / sizeof(float) };
typedef float vec __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vec_mask __attribute__((vector_size(VECTOR_BYTES)));

// The ten outputs of a sample, padded to a power of two: one vector of AVX-512, two of AVX2.
enum { PADDED_CLASSES = 16 };
typedef float outputs __attribute__((vector_size(PADDED_CLASSES * sizeof(float))));
typedef uint32_t outputs_bits __attribute__((vector_size(PADDED_CLASSES * sizeof(float))));

// For the kernels: where a size is a constant, the loops over it disappear.
#define INLINED static inline __attribute__((always_inline))
#define OUTLINED static __attribute__((noinline)) // see backward_columns()

// Returns how many of so many vectors the next tile takes. Where it can, it leaves none alone.
static size_t count_columns(size_t left) {
    return left == TILE_COLUMNS + 1 ? 2 : left < TILE_COLUMNS ? left : TILE_COLUMNS;
}

// Tiles read past the last row. What they make of it is not used.
struct bytes {
    uint8_t *rows; // samples × 784: the pixels as they are in the file
};

struct network {
    size_t units;   // the hidden units that were asked for
    size_t vectors; // V
    vec *weights1;  // V × 784: a panel for each vector of hidden units, read from end to end
    vec *bias1;     // V
    vec *weights2;  // V × 10: panels, too
    outputs bias2;  // 10; −∞ in the padding, so that its share of the softmax is 0

    struct bytes bytes; // of the training set

    // One batch's intermediate values.
    size_t stride;      // N, as a multiple of the rows of a tile
    vec *activations;   // V × N: a
    vec *d_activations; // V × N: da
    outputs *logits;    // N × 10: z, then p, then dz
    outputs *shares;    // T × N × 10: what each thread's hidden units add to z
    double *losses;     // T: of each thread's samples in an epoch

    size_t threads; // T
};

// A thread's part of the network.
struct slice {
    size_t thread, threads; // 0 to T − 1, T
    size_t first, last;     // its vectors of hidden units: first to last − 1
    size_t begin, end;      // its samples of the batch: begin to end − 1
    outputs bias2;          // the same in all threads
};

// Returns the zeroed panels of W1. Its pages lie in the memory of the socket whose thread writes to
// them first. So each thread does this for the panels that it will compute with.
static vec *allocate_panels(size_t vectors, size_t threads) {
    vec *panels = (vec *)try_allocate_array(vectors * PIXELS, sizeof(vec));
    if (!panels) {
        report_error(stage_name, "out of memory: asked for %zu MiB; try fewer hidden units",
                     vectors * PIXELS * sizeof(vec) >> 20);
        exit(EXIT_RUN_FAILED);
    }
#pragma omp parallel for num_threads(threads)
    for (size_t v = 0; v < vectors; ++v)
        memset(panels + v * PIXELS, 0, PIXELS * sizeof(vec));
    return panels;
}

// Returns an array that is not set: the system clears pages where a thread first writes to them, so
// all threads share that work.
static void *allocate_unset(size_t count, size_t size) {
    void *array = try_allocate_array(count, size);
    return array ? array : allocate_array(count, size); // which says that there is no memory
}

// Returns the pixels as bytes.
static struct bytes make_bytes(const struct dataset *dataset, size_t threads) {
    const size_t samples = (size_t)dataset->samples;
    struct bytes bytes = {.rows = allocate_unset(samples + TILE_ROWS, PIXELS)};
#pragma omp parallel for num_threads(threads)
    for (size_t s = 0; s < samples; ++s) {
        const float *x = dataset->images + s * PIXELS;
        uint8_t *row = bytes.rows + s * PIXELS;
        for (size_t k = 0; k < PIXELS; ++k)
            row[k] = (uint8_t)(int)(x[k] * 255 + 0.5f);
    }
    return bytes;
}

static void free_bytes(struct bytes *bytes) {
    free(bytes->rows);
}

static struct network create(const struct options *options) {
    const size_t units = (size_t)options->hidden;
    const size_t stride = (largest_batch(options) + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    const size_t vectors = (units + LANES - 1) / LANES;
    // More threads than cores would make each other wait at each barrier. More threads than vectors
    // of hidden units would idle in a batch.
    size_t threads = (size_t)(options->threads ? options->threads : omp_get_max_threads());
    threads = threads < (size_t)omp_get_num_procs() ? threads : (size_t)omp_get_num_procs();
    threads = threads < vectors ? threads : vectors;
    struct network network = {
        .units = units,
        .vectors = vectors,
        .weights1 = allocate_panels(vectors, threads),
        .bias1 = (vec *)allocate_floats(vectors * LANES),
        .weights2 = (vec *)allocate_floats(vectors * CLASSES * LANES),
        .stride = stride,
        .activations = (vec *)allocate_floats(vectors * stride * LANES),
        .d_activations = (vec *)allocate_floats(vectors * stride * LANES),
        .logits = (outputs *)allocate_floats(stride * PADDED_CLASSES),
        .shares = (outputs *)allocate_floats(threads * stride * PADDED_CLASSES),
        .losses = allocate_array(threads, sizeof(double)),
        .threads = threads,
    };
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t h = 0; h < units; ++h)
            network.weights1[h / LANES * PIXELS + k][h % LANES] = draw_weight(&generator, PIXELS);
    generator = pcg32_start(options->seed, 2);
    for (size_t h = 0; h < units; ++h)
        for (size_t o = 0; o < CLASSES; ++o)
            network.weights2[h / LANES * CLASSES + o][h % LANES] = draw_weight(&generator, units);
    for (size_t o = CLASSES; o < PADDED_CLASSES; ++o)
        network.bias2[o] = -INFINITY;
    return network;
}

static void destroy(struct network *network) {
    free(network->weights1);
    free(network->bias1);
    free(network->weights2);
    free_bytes(&network->bytes);
    free(network->activations);
    free(network->d_activations);
    free(network->logits);
    free(network->shares);
    free(network->losses);
}

// Returns the calling thread's slice. The runtime may have granted fewer threads than wanted.
static struct slice take_slice(const struct network *network) {
    const size_t thread = (size_t)omp_get_thread_num(), threads = (size_t)omp_get_num_threads();
    return (struct slice){
        .thread = thread,
        .threads = threads,
        .first = network->vectors * thread / threads,
        .last = network->vectors * (thread + 1) / threads,
        .bias2 = network->bias2,
    };
}

// A tile of a = max(0, x·W1 + b1): TILE_ROWS samples from s on × vector v of the hidden units. The
// sums stay in registers.
static void forward_tile(const struct network *network, const uint8_t *x, size_t s, size_t v) {
    const vec *weights1 = network->weights1 + v * PIXELS;
    vec *a = network->activations + v * network->stride + s;
    vec sum[TILE_ROWS] = {0};
    x += s * PIXELS;
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t r = 0; r < TILE_ROWS; ++r)
            sum[r] += (float)x[r * PIXELS + k] * weights1[k];
    for (size_t r = 0; r < TILE_ROWS; ++r) {
        const vec z = sum[r] * (1.0f / 255) + network->bias1[v];
        a[r] = (vec)((vec_mask)z & (z > 0));
    }
}

// A tile of W1 −= lr·xᵀ·da: TILE_ROWS pixels × `columns` vectors of hidden units, from k and v on.
// The gradient goes from the registers straight to the weights, and dW1 is never written.
INLINED void backward_tile(const struct network *network, const struct batch *batch,
                           float learning_rate, size_t k, size_t v, size_t columns) {
    const float *x = batch->images + k;
    const vec *da = network->d_activations + v * network->stride;
    vec *weights1 = network->weights1 + v * PIXELS + k;
    vec sum[TILE_ROWS][TILE_COLUMNS] = {0};
#pragma GCC unroll 2 // else GCC loads da's vectors anew for each row: 01.4
    for (size_t s = 0; s < batch->samples; ++s)
        for (size_t r = 0; r < TILE_ROWS; ++r)
            for (size_t c = 0; c < columns; ++c)
                sum[r][c] += x[s * PIXELS + r] * da[c * network->stride + s];
    for (size_t r = 0; r < TILE_ROWS; ++r)
        for (size_t c = 0; c < columns; ++c)
            weights1[c * PIXELS + r] -= learning_rate * sum[r][c];
}

// The same for all pixels.
INLINED void backward_panels(const struct network *network, const struct batch *batch,
                             float learning_rate, size_t v, size_t columns) {
    for (size_t k = 0; k < PIXELS; k += TILE_ROWS)
        backward_tile(network, batch, learning_rate, k, v, columns);
}

// The same for the vectors first to last − 1. If inlined for AVX2, GCC 12 keeps a sum in memory.
OUTLINED void backward_columns(const struct network *network, const struct batch *batch,
                               float learning_rate, size_t first, size_t last) {
    for (size_t v = first, columns; v < last; v += columns) {
        columns = count_columns(last - v);
        if (columns == TILE_COLUMNS)
            backward_panels(network, batch, learning_rate, v, TILE_COLUMNS);
        else if (columns == 2)
            backward_panels(network, batch, learning_rate, v, 2);
        else
            backward_panels(network, batch, learning_rate, v, 1);
    }
}

// z += a·W2 for vector v of the hidden units. This part of W2 is turned back into rows, so that the
// ten outputs are summed side by side.
static void add_logits(const struct network *network, size_t v, outputs *z, size_t n) {
    const vec *a = network->activations + v * network->stride;
    // In vectors of the machine: of longer ones, GCC 14 makes the product number by number.
    enum { PARTS = PADDED_CLASSES / LANES };
    vec row[LANES][PARTS] = {0}, *to = (vec *)z;
    for (size_t o = 0; o < CLASSES; ++o)
        for (size_t i = 0; i < LANES; ++i)
            row[i][o / LANES][o % LANES] = network->weights2[v * CLASSES + o][i];
    for (size_t s = 0; s < n; ++s)
        for (size_t p = 0; p < PARTS; ++p) {
            vec sum[4] = {0}; // four, because an addition waits for the one before it
            for (size_t i = 0; i < LANES; ++i)
                sum[i % 4] += a[s][i] * row[i][p];
            to[s * PARTS + p] += (sum[0] + sum[1]) + (sum[2] + sum[3]);
        }
}

// z becomes softmax(z). Returns −log p[label].
static float softmax(outputs *z, uint8_t label) {
    float max = (*z)[0], sum = 0;
    for (size_t o = 1; o < CLASSES; ++o)
        max = (*z)[o] > max ? (*z)[o] : max;
    const outputs x = *z - max;

    // e^x for all outputs at once, with x <= 0: x = i·ln 2 + r, and the Taylor series for e^r.
    // Adding 1.5·2^23 rounds to the whole number i and leaves it in the low bits. From there it is
    // added to the exponent. ln 2 is 0.693359375 − 2.12194440e-4. The first part has few enough
    // bits for i times it to be exact.
    const outputs shifted = x * (float)M_LOG2E + 0x1.8p23f, i = shifted - 0x1.8p23f;
    const outputs r = x - i * 0.693359375f + i * 2.12194440e-4f;
    outputs e = 1 + r * (1.0f / 8);
    for (int degree = 7; degree > 0; --degree)
        e = 1 + r * (1.0f / (float)degree) * e;
    e = (outputs)((outputs_bits)e + ((outputs_bits)shifted << 23));
    e = (outputs)((outputs_bits)e & (outputs_bits)(x > -87)); // below that, e^x is no normal float

    for (size_t o = 0; o < CLASSES; ++o)
        sum += e[o];
    *z = e / sum;
    return logf(sum) - x[label];
}

// Sets the slice's a for a batch, and p of its samples. Returns their loss.
static double forward(struct network *network, struct slice *slice, const struct batch *batch,
                      const uint8_t *rows) {
    const size_t n = batch->samples;
    outputs *z = network->logits;
    outputs *share = network->shares + slice->thread * network->stride;
    slice->begin = n * slice->thread / slice->threads;
    slice->end = n * (slice->thread + 1) / slice->threads;

    for (size_t v = slice->first; v < slice->last; ++v)
        for (size_t s = 0; s < n; s += TILE_ROWS)
            forward_tile(network, rows, s, v);

    for (size_t s = 0; s < n; ++s)
        share[s] = (outputs){0};
    for (size_t v = slice->first; v < slice->last; ++v)
        add_logits(network, v, share, n);

#pragma omp barrier
    // Apart from softmax no turn waits for another, so many of the others' lines travel at once.
    for (size_t s = slice->begin; s < slice->end; ++s) {
        z[s] = slice->bias2;
        for (size_t t = 0; t < slice->threads; ++t)
            z[s] += network->shares[t * network->stride + s];
    }
    double loss = 0;
    for (size_t s = slice->begin; s < slice->end; ++s)
        loss += softmax(&z[s], batch->labels[s]);
    return loss;
}

// Updates the weights by the gradient of the batch that forward() has just seen.
static void backward(struct network *network, struct slice *slice, const struct batch *batch,
                     float learning_rate) {
    const size_t n = batch->samples;
    outputs *dz = network->logits;

    // dz = (p − onehot(label)) / n, db2 = Σ dz. A comparison of vectors is −1 where it holds. A
    // store to one lane would make the vector's load wait until it is in the cache.
    const outputs_bits lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (size_t s = slice->begin; s < slice->end; ++s) {
        dz[s] += __builtin_convertvector(lane == batch->labels[s], outputs);
        dz[s] /= (float)n;
    }
#pragma omp barrier
    outputs db2 = {0};
    for (size_t s = 0; s < n; ++s)
        db2 += dz[s];
    slice->bias2 -= learning_rate * db2;

    // dW2 = aᵀ·dz, da = (dz·W2ᵀ) ⊙ [a > 0], db1 = Σ da, and their updates. One vector of hidden
    // units goes after another, so that its part of dW2 stays in registers.
    for (size_t v = slice->first; v < slice->last; ++v) {
        const vec *restrict a = network->activations + v * network->stride;
        vec *restrict da = network->d_activations + v * network->stride;
        vec *restrict w2 = network->weights2 + v * CLASSES;
        vec dw2[CLASSES] = {0}, db1 = {0};
        for (size_t s = 0; s < n; ++s) {
            vec sum = {0};
            for (size_t o = 0; o < CLASSES; ++o) {
                dw2[o] += dz[s][o] * a[s];
                sum += dz[s][o] * w2[o];
            }
            da[s] = (vec)((vec_mask)sum & (a[s] > 0));
            db1 += da[s];
        }
        for (size_t o = 0; o < CLASSES; ++o)
            w2[o] -= learning_rate * dw2[o];
        network->bias1[v] -= learning_rate * db1;
    }

    backward_columns(network, batch, learning_rate, slice->first, slice->last);
}

// Runs all epochs over the training set in file order. The last batch of an epoch may be short.
static void train(struct network *network, const struct dataset *dataset,
                  const struct options *options, struct result *result) {
    double start = seconds();
#pragma omp parallel num_threads(network->threads)
    {
        struct slice slice = take_slice(network);
        for (int epoch = 0; epoch < options->epochs; ++epoch) {
            struct batch batch;
            double loss = 0, clock = seconds();
            for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
                batch = batch_at(dataset, first, options->batch);
                loss += forward(network, &slice, &batch, network->bytes.rows + first * PIXELS);
                if (omp_get_thread_num() == 0)
                    clock = timer_lap(&result->forward, clock);
                backward(network, &slice, &batch, options->learning_rate);
                if (omp_get_thread_num() == 0)
                    clock = timer_lap(&result->backward, clock);
            }
            network->losses[slice.thread] = loss;
#pragma omp barrier
            if (omp_get_thread_num() == 0) {
                for (size_t t = 1; t < slice.threads; ++t)
                    loss += network->losses[t];
                result->final_loss = loss / dataset->samples;
                network->bias2 = slice.bias2;
                start = report_epoch(options, epoch, result->final_loss, start); // not timed
            }
        }
        if (omp_get_thread_num() == 0)
            result->threads = omp_get_num_threads();
    }
    result->train_s = seconds() - start;
}

// Returns the fraction of samples whose most probable class is their label.
static double evaluate(struct network *network, const struct dataset *dataset,
                       const struct options *options) {
    struct slice slice = take_slice(network); // all units: no other thread is at work
    struct batch batch;
    size_t right = 0;
    struct bytes bytes = make_bytes(dataset, network->threads);
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        forward(network, &slice, &batch, bytes.rows + first * PIXELS);
        for (size_t s = 0; s < batch.samples; ++s) {
            const outputs p = network->logits[s];
            size_t best = 0;
            for (size_t o = 1; o < CLASSES; ++o)
                best = p[o] > p[best] ? o : best;
            right += best == batch.labels[s];
        }
    }
    free_bytes(&bytes);
    return (double)right / dataset->samples;
}

// Writes the weights, turned back from panels into rows. Returns the exit status.
static int save(const struct network *network, const char *path) {
    const size_t units = network->units;
    float *weights1 = allocate_floats(PIXELS * units);
    float *weights2 = allocate_floats(units * CLASSES);
    for (size_t h = 0; h < units; ++h) {
        const size_t v = h / LANES, i = h % LANES;
        for (size_t k = 0; k < PIXELS; ++k)
            weights1[k * units + h] = network->weights1[v * PIXELS + k][i];
        for (size_t o = 0; o < CLASSES; ++o)
            weights2[h * CLASSES + o] = network->weights2[v * CLASSES + o][i];
    }
    int status = write_weights(path, units, weights1, (const float *)network->bias1, weights2,
                               (const float *)&network->bias2);
    free(weights1);
    free(weights2);
    return status;
}

int main(int argc, char **argv) {
    struct options options = parse_options(argc, argv, "Trains on all cores.", INT_MAX);
    struct result result = {.device = "cpu"};
    struct data data;

    int status = load_data(&options, &data);
    if (status)
        return status;

    double clock = seconds();
    struct network network = create(&options);
    network.bytes = make_bytes(&data.train, network.threads);
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
