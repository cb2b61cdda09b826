// Stage 02: the same kernels, on all cores. Each thread owns a slice of every layer's units: it
// computes their values and their gradients, and keeps their weights for the whole run. But a
// hidden layer behind another reads what all threads have computed, forward and backward, so the
// threads meet once for each such product. Every thread computes for itself what follows from the
// ten outputs (softmax, dz, the last bias).
//
// Shapes: n samples in a batch, at most N; layer l has I inputs and O outputs, padded to whole
// vectors: K and V of them; T threads. The padding holds zeros and stays zero, because its weights,
// values and gradients are products of each other.
#include "studies/mlp/training.h"

#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>

// The widest vectors of the machine that is compiled for. A tile has TILE_ROWS × TILE_COLUMNS
// vectors of sums: half of the registers, or three quarters where half would just hide the latency
// of an FMA. The others are for its operands. Where the rows are inputs, a tile has TILE_INPUTS of
// them. That divides LANES, so that no inputs are left over.
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, TILE_ROWS = 8, TILE_INPUTS = 8 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, TILE_ROWS = 6, TILE_INPUTS = 4 };
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, TILE_ROWS = 8, TILE_INPUTS = 4 };
#else
enum { VECTOR_BYTES = 16, TILE_ROWS = 4, TILE_INPUTS = 4 };
#endif
enum { LANES = VECTOR_BYTES / sizeof(float), TILE_COLUMNS = 2 };
typedef float vec __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vec_mask __attribute__((vector_size(VECTOR_BYTES)));

// The ten outputs of a sample, padded to a power of two: one vector of AVX-512, two of AVX2.
enum { PADDED_CLASSES = 16 };
typedef float outputs __attribute__((vector_size(PADDED_CLASSES * sizeof(float))));
typedef uint32_t outputs_bits __attribute__((vector_size(PADDED_CLASSES * sizeof(float))));

// So many samples go through a layer before the next ones: their pixels stay in the L2 cache.
enum { BLOCK = 128 };

// So many samples ahead, the gradient fetches inputs.
enum { AHEAD = 16 };

// For the kernels: where a tile's size is a constant, the loops over the tile disappear.
#define INLINED static inline __attribute__((always_inline))

// A hidden layer.
struct layer {
    size_t inputs, outputs; // I, O
    vec *weights;           // V × I: a panel for each vector of outputs, read from end to end
    vec *transposed; // K × O: the same of Wᵀ, as it was before the update; none in layer 1
    vec *bias;       // V

    // One batch's values: panels, too, each with one vector of outputs of all samples.
    vec *values;   // V × N: a
    vec *d_values; // V × N: dz, the gradient of z
};

struct network {
    int hidden; // hidden layers
    struct layer layer[MAX_HIDDEN];
    size_t stride; // N

    // The output layer. Its inputs are the values of the last hidden layer.
    vec *weights;    // V × 10: panels, too
    outputs *bias;   // T × 10, a copy for each thread; −∞ in the padding, so that its p is 0
    outputs *logits; // T × N × 10, a copy for each thread: z, then p, then dz
    outputs *shares; // 2 × T × N × 10: what each thread's units add to z

    size_t threads; // T
};

// A thread's part of the network.
struct slice {
    size_t thread, threads; // 0 to T − 1, T
    size_t turn;            // which half of the shares belongs to this batch
    outputs *bias, *logits;
};

// A thread's vectors of a layer's units: first to last − 1.
struct range {
    size_t first, last;
};

// What a layer reads. Input k of sample s is x[k / LANES * panel + s * row + k % LANES].
struct inputs {
    const float *x;
    size_t panel, row;
};

static struct network create(const struct options *options) {
    const size_t n = largest_batch(options);
    // More threads than cores would make each other wait at each barrier. More threads than vectors
    // of units in the widest layer would have nothing to do.
    const size_t widest = (widest_layer(options) + LANES - 1) / LANES;
    size_t threads =
        (size_t)(options->common.threads ? options->common.threads : omp_get_max_threads());
    threads = threads < (size_t)omp_get_num_procs() ? threads : (size_t)omp_get_num_procs();
    threads = threads < widest ? threads : widest;
    struct network network = {
        .hidden = options->layers - 1,
        .stride = n,
        .bias = (outputs *)allocate_floats(threads * PADDED_CLASSES),
        .logits = (outputs *)allocate_floats(threads * n * PADDED_CLASSES),
        .shares = (outputs *)allocate_floats(2 * threads * n * PADDED_CLASSES),
        .threads = threads,
    };
    for (int l = 0; l < network.hidden; ++l) {
        const size_t units = options->sizes[l + 1], outputs = (units + LANES - 1) / LANES * LANES;
        const size_t inputs = l > 0 ? network.layer[l - 1].outputs : PIXELS;
        network.layer[l] = (struct layer){
            .inputs = inputs,
            .outputs = outputs,
            .weights = (vec *)allocate_floats(inputs * outputs),
            .transposed = l > 0 ? (vec *)allocate_floats(outputs * inputs) : NULL,
            .bias = (vec *)allocate_floats(outputs),
            .values = (vec *)allocate_floats(n * outputs),
            .d_values = (vec *)allocate_floats(n * outputs),
        };
        float *weights = draw_weights(options, l);
        for (size_t k = 0; k < options->sizes[l]; ++k)
            for (size_t o = 0; o < units; ++o)
                network.layer[l].weights[o / LANES * inputs + k][o % LANES] =
                    weights[k * units + o];
        free(weights);
    }
    float *weights = draw_weights(options, network.hidden);
    network.weights = (vec *)allocate_floats(network.layer[network.hidden - 1].outputs * CLASSES);
    for (size_t k = 0; k < options->sizes[network.hidden]; ++k)
        for (size_t o = 0; o < CLASSES; ++o)
            network.weights[k / LANES * CLASSES + o][k % LANES] = weights[k * CLASSES + o];
    free(weights);
    for (size_t t = 0; t < threads; ++t)
        for (size_t o = CLASSES; o < PADDED_CLASSES; ++o)
            network.bias[t][o] = -INFINITY;
    return network;
}

static void destroy(struct network *network) {
    for (int l = 0; l < network->hidden; ++l) {
        struct layer *layer = &network->layer[l];
        free(layer->weights);
        free(layer->transposed);
        free(layer->bias);
        free(layer->values);
        free(layer->d_values);
    }
    free(network->weights);
    free(network->bias);
    free(network->logits);
    free(network->shares);
}

// Returns the calling thread's slice. The runtime may have granted fewer threads than wanted.
static struct slice take_slice(const struct network *network) {
    const size_t thread = (size_t)omp_get_thread_num(), threads = (size_t)omp_get_num_threads();
    return (struct slice){
        .thread = thread,
        .threads = threads,
        .bias = network->bias + thread,
        .logits = network->logits + thread * network->stride,
    };
}

// Returns the slice's part of a layer that has so many outputs.
static struct range part_of(const struct slice *slice, size_t outputs) {
    const size_t vectors = outputs / LANES;
    return (struct range){vectors * slice->thread / slice->threads,
                          vectors * (slice->thread + 1) / slice->threads};
}

// Returns what a layer reads: the images, or the values of the layer before.
static struct inputs inputs_of(const struct network *network, int layer,
                               const struct batch *batch) {
    if (layer == 0)
        return (struct inputs){batch->images, LANES, PIXELS};
    return (struct inputs){(const float *)network->layer[layer - 1].values, network->stride * LANES,
                           LANES};
}

// y = x·W + b, with zeros where `mask` is not above 0.
struct product {
    struct inputs x;
    const vec *weights; // panels of I
    const vec *bias;    // NULL: none
    const vec *mask;    // as y; y itself: the ReLU
    vec *y;             // V × N
    size_t inputs, stride;
};

// A tile of it: `rows` samples from s on × `columns` vectors of y from v on. For each k it loads
// `columns` vectors of W and `rows` numbers of x, and does rows × columns multiply-adds. The sums
// stay in registers. `row` is that of x, as a constant.
INLINED void product_tile(const struct product *product, size_t row, size_t s, size_t rows,
                          size_t v, size_t columns) {
    const size_t inputs = product->inputs;
    const float *x = product->x.x + s * row;
    const vec *w = product->weights + v * inputs;
    vec sum[TILE_ROWS][TILE_COLUMNS] = {0};
    for (size_t r = 0; r < rows && product->bias; ++r)
        for (size_t c = 0; c < columns; ++c)
            sum[r][c] = product->bias[v + c];
    for (size_t k = 0; k < inputs; k += LANES) {
        // Fetches the next tile's samples ahead of time. The hardware does so only up to the end
        // of a page, and a sample has most of one.
        for (size_t r = 0; r < rows; ++r)
            __builtin_prefetch(x + (TILE_ROWS + r) * row);
        for (size_t i = 0; i < LANES; ++i)
            for (size_t r = 0; r < rows; ++r)
                for (size_t c = 0; c < columns; ++c)
                    sum[r][c] += x[r * row + i] * w[c * inputs + k + i];
        x += product->x.panel;
    }
    for (size_t r = 0; r < rows; ++r) {
        for (size_t c = 0; c < columns; ++c) {
            const size_t place = (v + c) * product->stride + s + r;
            product->y[place] = sum[r][c];
            product->y[place] = (vec)((vec_mask)sum[r][c] & (product->mask[place] > 0));
        }
    }
}

// The same for the samples from `first` to `last` − 1. The last tile may compute some samples of
// the tile before once more: that takes no longer than a smaller tile. Where there are fewer
// samples than a tile has, they go one by one.
INLINED void product_panels(const struct product *product, size_t row, size_t first, size_t last,
                            size_t v, size_t columns) {
    size_t s = first;
    for (; s + TILE_ROWS <= last; s += TILE_ROWS)
        product_tile(product, row, s, TILE_ROWS, v, columns);
    if (s < last && last > TILE_ROWS)
        product_tile(product, row, last - TILE_ROWS, TILE_ROWS, v, columns);
    else
        for (; s < last; ++s)
            product_tile(product, row, s, 1, v, columns);
}

// The same for the vectors of y in a range.
INLINED void product_block(const struct product *product, size_t row, size_t first, size_t last,
                           struct range range) {
    for (size_t v = range.first; v < range.last; v += TILE_COLUMNS)
        if (v + TILE_COLUMNS <= range.last)
            product_panels(product, row, first, last, v, TILE_COLUMNS);
        else
            product_panels(product, row, first, last, v, 1);
}

// The same for all n samples.
static void multiply(const struct product *product, size_t n, struct range range) {
    for (size_t first = 0; first < n; first += BLOCK) {
        const size_t last = n - first < BLOCK ? n : first + BLOCK;
        if (product->x.row == PIXELS)
            product_block(product, PIXELS, first, last, range);
        else
            product_block(product, LANES, first, last, range);
    }
}

// W −= lr·xᵀ·dz for `columns` panels from v on, in tiles of TILE_INPUTS inputs, and b −= lr·Σ dz,
// for the samples from `first` to `last` − 1. The gradient goes from the registers straight to the
// weights, and dW is never written.
INLINED void gradient_panels(const struct layer *layer, const struct inputs *x, size_t row,
                             size_t stride, size_t first, size_t last, float learning_rate,
                             size_t v, size_t columns) {
    const vec *dz = layer->d_values + v * stride;
    vec *weights = layer->weights + v * layer->inputs;
    for (size_t c = 0; c < columns; ++c) {
        vec sum = {0};
        for (size_t s = first; s < last; ++s)
            sum += dz[c * stride + s];
        layer->bias[v + c] -= learning_rate * sum;
    }
    for (size_t k = 0; k < layer->inputs; k += TILE_INPUTS) {
        const float *inputs = x->x + k / LANES * x->panel + k % LANES;
        vec sum[TILE_INPUTS][TILE_COLUMNS] = {0};
        for (size_t s = first; s < last; ++s) {
            // A large batch's images come from the L3 cache, each in a page of its own. The
            // hardware does not look ahead across pages.
            __builtin_prefetch(inputs + (s + AHEAD) * row);
            for (size_t r = 0; r < TILE_INPUTS; ++r)
                for (size_t c = 0; c < columns; ++c)
                    sum[r][c] += inputs[s * row + r] * dz[c * stride + s];
        }
        for (size_t r = 0; r < TILE_INPUTS; ++r)
            for (size_t c = 0; c < columns; ++c)
                weights[c * layer->inputs + k + r] -= learning_rate * sum[r][c];
    }
}

// The same for all panels.
INLINED void gradient_block(const struct layer *layer, const struct inputs *x, size_t row,
                            size_t stride, size_t first, size_t last, float learning_rate,
                            struct range range) {
    for (size_t v = range.first; v < range.last; v += TILE_COLUMNS)
        if (v + TILE_COLUMNS <= range.last)
            gradient_panels(layer, x, row, stride, first, last, learning_rate, v, TILE_COLUMNS);
        else
            gradient_panels(layer, x, row, stride, first, last, learning_rate, v, 1);
}

// The same for all samples.
static void weight_gradient(const struct layer *layer, const struct inputs *x, size_t stride,
                            size_t n, float learning_rate, struct range range) {
    for (size_t first = 0; first < n; first += BLOCK) {
        const size_t last = n - first < BLOCK ? n : first + BLOCK;
        if (x->row == PIXELS)
            gradient_block(layer, x, PIXELS, stride, first, last, learning_rate, range);
        else
            gradient_block(layer, x, LANES, stride, first, last, learning_rate, range);
    }
}

// Sets the part of Wᵀ that belongs to the outputs in a range. The square of outputs o and inputs k
// on goes to the place that is opposite in the other array, and its rows become columns.
static void transpose(const struct layer *layer, struct range range) {
    for (size_t o = range.first * LANES; o < range.last * LANES; o += LANES)
        for (size_t k = 0; k < layer->inputs; k += LANES)
            for (size_t i = 0; i < LANES; ++i)
                for (size_t j = 0; j < LANES; ++j)
                    layer->transposed[k / LANES * layer->outputs + o + j][i] =
                        layer->weights[o / LANES * layer->inputs + k + i][j];
}

// z += a·W for vector v of the last hidden layer's units. This part of W is turned back into rows,
// so that the ten outputs are summed side by side.
static void add_logits(const struct network *network, size_t v, outputs *z, size_t n) {
    const vec *a = network->layer[network->hidden - 1].values + v * network->stride;
    // In vectors of the machine: of longer ones, GCC 14 makes the product number by number.
    enum { PARTS = PADDED_CLASSES / LANES };
    vec row[LANES][PARTS] = {0}, *to = (vec *)z;
    for (size_t o = 0; o < CLASSES; ++o)
        for (size_t i = 0; i < LANES; ++i)
            row[i][o / LANES][o % LANES] = network->weights[v * CLASSES + o][i];
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
    // added to the exponent. ln 2 is subtracted in two parts. The first has few enough bits to be
    // exact.
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

// Sets the slice's part of all a, and all of z and p, for a batch. Returns its loss.
static double forward(struct network *network, struct slice *slice, const struct batch *batch) {
    const size_t n = batch->samples;
    outputs *z = slice->logits;
    outputs *shares = network->shares + slice->turn * slice->threads * network->stride;
    outputs *share = shares + slice->thread * network->stride;
    for (int l = 0; l < network->hidden; ++l) {
        const struct layer *layer = &network->layer[l];
        const struct inputs x = inputs_of(network, l, batch);
        const struct product product = {.x = x,
                                        .weights = layer->weights,
                                        .bias = layer->bias,
                                        .mask = layer->values,
                                        .y = layer->values,
                                        .inputs = layer->inputs,
                                        .stride = network->stride};
        multiply(&product, n, part_of(slice, layer->outputs));
        // The next layer reads all values of this one. The output layer reads the slice's only.
        if (l + 1 < network->hidden) {
#pragma omp barrier
        }
    }

    const struct range range = part_of(slice, network->layer[network->hidden - 1].outputs);
    for (size_t s = 0; s < n; ++s)
        share[s] = (outputs){0};
    for (size_t v = range.first; v < range.last; ++v)
        add_logits(network, v, share, n);

    // Past this barrier, a thread may write the next batch's shares while another still reads this
    // one's. No thread gets further ahead than that, so two sets in turn are enough.
    slice->turn ^= 1;
#pragma omp barrier
    double loss = 0;
    for (size_t s = 0; s < n; ++s) {
        z[s] = *slice->bias;
        for (size_t t = 0; t < slice->threads; ++t)
            z[s] += shares[t * network->stride + s];
        loss += softmax(&z[s], batch->labels[s]);
    }
    return loss / (double)n;
}

// Updates the slice's weights by the gradient of the batch that forward() has just seen.
static void backward(struct network *network, struct slice *slice, const struct batch *batch,
                     float learning_rate) {
    const size_t n = batch->samples, stride = network->stride;
    const struct layer *last = &network->layer[network->hidden - 1];
    struct range range = part_of(slice, last->outputs);
    outputs *dz = slice->logits;

    // The output layer: dz = (p − onehot(label)) / n, db = Σ dz
    outputs db = {0};
    for (size_t s = 0; s < n; ++s) {
        dz[s][batch->labels[s]] -= 1;
        dz[s] /= (float)n;
        db += dz[s];
    }
    *slice->bias -= learning_rate * db;

    // dW = aᵀ·dz, its update, and the last hidden layer's dz = (dz·Wᵀ) ⊙ [a > 0]. One vector of
    // units goes after another, so that its part of W and of dW stays in registers.
    for (size_t v = range.first; v < range.last; ++v) {
        const vec *restrict a = last->values + v * stride;
        vec *restrict d_values = last->d_values + v * stride;
        vec *restrict w = network->weights + v * CLASSES;
        vec dw[CLASSES] = {0};
        for (size_t s = 0; s < n; ++s) {
            vec da = {0};
            for (size_t o = 0; o < CLASSES; ++o) {
                dw[o] += dz[s][o] * a[s];
                da += dz[s][o] * w[o];
            }
            d_values[s] = (vec)((vec_mask)da & (a[s] > 0));
        }
        for (size_t o = 0; o < CLASSES; ++o)
            w[o] -= learning_rate * dw[o];
    }

    for (int l = network->hidden - 1; l >= 0; --l) {
        const struct layer *layer = &network->layer[l];
        const struct inputs x = inputs_of(network, l, batch);
        // Wᵀ keeps the weights from before the update, for the threads that still need them.
        if (l > 0)
            transpose(layer, range);
        weight_gradient(layer, &x, stride, n, learning_rate, range);
        if (l == 0)
            return;
        // The dz of the layer before needs all of this layer's: (dz·Wᵀ) ⊙ [a > 0]
        const struct inputs d_values = {(const float *)layer->d_values, stride * LANES, LANES};
        const struct product product = {.x = d_values,
                                        .weights = layer->transposed,
                                        .mask = layer[-1].values,
                                        .y = layer[-1].d_values,
                                        .inputs = layer->outputs,
                                        .stride = stride};
        range = part_of(slice, layer->inputs);
#pragma omp barrier
        multiply(&product, n, range);
    }
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
                loss += forward(network, &slice, &batch) * (double)batch.samples;
                if (slice.thread == 0)
                    clock = timer_lap(&result->forward, clock);
                backward(network, &slice, &batch, options->learning_rate);
                if (slice.thread == 0)
                    clock = timer_lap(&result->backward, clock);
            }
            if (slice.thread == 0) {
                result->final_loss = loss / dataset->samples;
                start = report_epoch(options, epoch, result->final_loss, start); // not timed
            }
        }
        if (slice.thread == 0)
            result->threads = (int)slice.threads;
    }
    result->train_s = seconds() - start;
}

// Returns the fraction of samples whose most probable class is their label.
static double evaluate(struct network *network, const struct dataset *dataset,
                       const struct options *options) {
    struct slice slice = take_slice(network); // all units: no other thread is at work
    struct batch batch;
    size_t right = 0;
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        forward(network, &slice, &batch);
        for (size_t s = 0; s < batch.samples; ++s) {
            const outputs p = slice.logits[s];
            size_t best = 0;
            for (size_t o = 1; o < CLASSES; ++o)
                best = p[o] > p[best] ? o : best;
            right += best == batch.labels[s];
        }
    }
    return (double)right / dataset->samples;
}

// Writes the weights, turned back from panels into rows. Returns the exit status.
static int save(const struct network *network, const struct options *options) {
    float *weights[MAX_LAYERS], *biases[MAX_LAYERS], bias[CLASSES];
    for (int l = 0; l <= network->hidden; ++l) {
        const struct layer *layer = &network->layer[l];
        const bool is_hidden = l < network->hidden;
        const size_t inputs = options->sizes[l], units = options->sizes[l + 1];
        weights[l] = allocate_floats(inputs * units);
        biases[l] = is_hidden ? (float *)layer->bias : bias;
        for (size_t k = 0; k < inputs; ++k)
            for (size_t o = 0; o < units; ++o)
                weights[l][k * units + o] =
                    is_hidden ? layer->weights[o / LANES * layer->inputs + k][o % LANES]
                              : network->weights[k / LANES * CLASSES + o][k % LANES];
    }
    for (size_t o = 0; o < CLASSES; ++o)
        bias[o] = (*network->bias)[o];
    int status = write_weights(options, weights, biases);
    for (int l = 0; l <= network->hidden; ++l)
        free(weights[l]);
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
    result.setup_s = seconds() - clock;

    train(&network, &data.train, &options, &result);
    result.test_accuracy = evaluate(&network, &data.test, &options);
    // NaNs must not replace good weights.
    if (options.common.save && isfinite(result.final_loss))
        status = save(&network, &options);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy(&network);
    free_data(&data);
    return status;
}
