// Stage 06: no multiplication by zero. Four fifths of MNIST's pixels are zero and add nothing to a
// product. Before the training, each batch gets lists of its other pixels: by sample for x·W1, and
// by pixel for xᵀ·da. Both products are then the same sum: of the vectors that a list names.
//
// Shapes: n samples in a batch, at most N; H hidden units in V vectors; T threads. The last
// vector may have lanes without a hidden unit. They hold zeros and stay zero, because their
// weights, activations and gradients are products of each other.
#include "common/rows.h"
#include "stages/training.h"

#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

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
typedef int32_t vec_mask __attribute__((vector_size(VECTOR_BYTES)));

// A tile is one list × up to so many vectors of hidden units. More vectors share an entry's loads,
// but fewer of W1's vectors then stay in L1. A tile has SUMS sums, because an addition waits for
// the one before it.
enum { FORWARD_COLUMNS = 2, BACKWARD_COLUMNS = 4, SUMS = 8 };

// The ten outputs of a sample, padded to a power of two: one vector of AVX-512, two of AVX2.
enum { PADDED_CLASSES = 16 };
typedef float outputs __attribute__((vector_size(PADDED_CLASSES * sizeof(float))));
typedef uint32_t outputs_bits __attribute__((vector_size(PADDED_CLASSES * sizeof(float))));

// For the kernels: where a tile's size is a constant, the loops over the tile disappear.
#define INLINED static inline __attribute__((always_inline))

struct list {
    uint32_t owner;  // the sample or the pixel whose list it is
    uint32_t length; // entries
};

// The lists of a batch. An entry is a pixel that is not zero: its place and its value. Places and
// values lie one list after another. In the list of a sample, a place is a pixel. In that of a
// pixel, it is a sample of the batch.
struct lists {
    size_t count;
    struct list *lists;
    size_t total; // entries
    void *places; // uint16_t of pixels, to read less; uint32_t of samples
    float *values;
};

// A data set in lists.
struct sparse {
    size_t batches;
    struct lists *samples; // of each batch: a list for each sample, in order
    size_t sets;           // the batches, or with --rebuild the threads
    struct lists *pixels;  // of each set: the pixels whose lists have entries, the shortest first
    bool rebuild;          // a thread makes its set anew for each batch
};

struct network {
    size_t hidden;  // H
    size_t vectors; // V
    vec *weights1;  // V × 784: a panel for each vector of hidden units, read from end to end
    vec *bias1;     // V
    vec *weights2;  // V × 10: panels, too
    outputs *bias2; // T × 10, a copy for each thread; −∞ in the padding, so that its p is 0

    // One batch's intermediate values. An array holds one of them after another.
    size_t stride;    // N
    vec *activations; // V × N: a, then da
    outputs *logits;  // T × N × 10, a copy for each thread: z, then p, then dz
    outputs *shares;  // 2 × T × N × 10: what each thread's hidden units add to z

    size_t threads; // T
};

// A thread's part of the network.
struct slice {
    size_t thread, threads; // 0 to T − 1, T
    size_t first, last;     // its vectors of hidden units: first to last − 1
    size_t turn;            // which half of the shares belongs to this batch
    outputs *bias2, *logits;
};

static struct network create(const struct options *options) {
    const size_t hidden = (size_t)options->hidden, stride = largest_batch(options);
    const size_t vectors = (hidden + LANES - 1) / LANES;
    // More threads than cores would make each other wait at each barrier. More threads than vectors
    // of hidden units would have nothing to do.
    size_t threads = (size_t)(options->threads ? options->threads : omp_get_max_threads());
    threads = threads < (size_t)omp_get_num_procs() ? threads : (size_t)omp_get_num_procs();
    threads = threads < vectors ? threads : vectors;
    struct network network = {
        .hidden = hidden,
        .vectors = vectors,
        .weights1 = (vec *)allocate_floats(vectors * PIXELS * LANES),
        .bias1 = (vec *)allocate_floats(vectors * LANES),
        .weights2 = (vec *)allocate_floats(vectors * CLASSES * LANES),
        .stride = stride,
        .activations = (vec *)allocate_floats(vectors * stride * LANES),
        .bias2 = (outputs *)allocate_floats(threads * PADDED_CLASSES),
        .logits = (outputs *)allocate_floats(threads * stride * PADDED_CLASSES),
        .threads = threads,
        .shares = (outputs *)allocate_floats(2 * threads * stride * PADDED_CLASSES),
    };
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t h = 0; h < hidden; ++h)
            network.weights1[h / LANES * PIXELS + k][h % LANES] = draw_weight(&generator, PIXELS);
    generator = pcg32_start(options->seed, 2);
    for (size_t h = 0; h < hidden; ++h)
        for (size_t o = 0; o < CLASSES; ++o)
            network.weights2[h / LANES * CLASSES + o][h % LANES] = draw_weight(&generator, hidden);
    for (size_t t = 0; t < threads; ++t)
        for (size_t o = CLASSES; o < PADDED_CLASSES; ++o)
            network.bias2[t][o] = -INFINITY;
    return network;
}

static void destroy(struct network *network) {
    free(network->weights1);
    free(network->bias1);
    free(network->weights2);
    free(network->activations);
    free(network->bias2);
    free(network->logits);
    free(network->shares);
}

// Returns the calling thread's slice. The runtime may have granted fewer threads than wanted.
static struct slice take_slice(const struct network *network) {
    const size_t thread = (size_t)omp_get_thread_num(), threads = (size_t)omp_get_num_threads();
    return (struct slice){
        .thread = thread,
        .threads = threads,
        .first = network->vectors * thread / threads,
        .last = network->vectors * (thread + 1) / threads,
        .bias2 = network->bias2 + thread,
        .logits = network->logits + thread * network->stride,
    };
}

// Returns room for lists with so many entries in all, whose places have so many bytes.
static struct lists allocate_lists(size_t count, size_t entries, size_t place_bytes) {
    return (struct lists){
        .lists = allocate_array(count, sizeof(struct list)),
        .places = allocate_array(entries, place_bytes),
        .values = allocate_floats(entries),
    };
}

static void free_lists(struct lists *lists) {
    free(lists->lists);
    free(lists->places);
    free(lists->values);
}

// Returns the lists of a batch's samples.
static struct lists list_samples(const struct batch *batch) {
    const size_t pixels = batch->samples * PIXELS;
    size_t total = 0;
    for (size_t i = 0; i < pixels; ++i)
        total += batch->images[i] != 0;
    struct lists samples = allocate_lists(batch->samples, total + 1, sizeof(uint16_t));
    samples.count = batch->samples;
    samples.total = total;
    uint16_t *places = samples.places;
    size_t entry = 0;
    for (size_t s = 0; s < batch->samples; ++s) {
        const size_t first = entry;
        // Without a branch: each pixel is written, and the next one overwrites a zero. So there is
        // one entry more than the lists need.
        for (size_t k = 0; k < PIXELS; ++k) {
            places[entry] = (uint16_t)k;
            samples.values[entry] = batch->images[s * PIXELS + k];
            entry += batch->images[s * PIXELS + k] != 0;
        }
        samples.lists[s] = (struct list){(uint32_t)s, (uint32_t)(entry - first)};
    }
    return samples;
}

// Turns the lists of a batch's samples into those of its pixels. The loop over a list ends where a
// processor expects it if the list before was as long. So the shortest come first, sorted by
// counting.
static void list_pixels(const struct lists *samples, struct lists *pixels) {
    enum { LONGEST = 255 }; // lists from here on are not sorted: their ends matter less
    uint32_t length[PIXELS] = {0}, next_list[LONGEST + 2] = {0};
    size_t next_entry[PIXELS], total = 0, entry = 0;
    const uint16_t *from = samples->places;
    uint32_t *to = pixels->places;
    for (size_t i = 0; i < samples->total; ++i)
        ++length[from[i]];

    // next_list[l] is where the next list of length l goes.
    for (size_t k = 0; k < PIXELS; ++k)
        ++next_list[(length[k] < LONGEST ? length[k] : LONGEST) + 1];
    next_list[1] = 0; // empty lists are left out
    for (size_t l = 1; l <= LONGEST; ++l)
        next_list[l + 1] += next_list[l];
    pixels->count = next_list[LONGEST + 1];
    for (uint32_t k = 0; k < PIXELS; ++k)
        if (length[k])
            pixels->lists[next_list[length[k] < LONGEST ? length[k] : LONGEST]++] =
                (struct list){k, length[k]};

    for (size_t i = 0; i < pixels->count; ++i) {
        next_entry[pixels->lists[i].owner] = total;
        total += pixels->lists[i].length;
    }
    for (uint32_t s = 0; s < samples->count; ++s)
        for (uint32_t i = 0; i < samples->lists[s].length; ++i, ++entry) {
            const size_t place = next_entry[from[entry]]++;
            to[place] = s;
            pixels->values[place] = samples->values[entry];
        }
    pixels->total = total;
}

// Returns the lists of a data set. With --rebuild, those of the pixels are one set for each thread.
// They have room for any batch, and no entries yet.
static struct sparse create_lists(const struct dataset *dataset, const struct options *options,
                                  size_t threads, bool rebuild) {
    const size_t size = (size_t)options->batch;
    const size_t batches = ((size_t)dataset->samples + size - 1) / size;
    const size_t sets = rebuild ? threads : batches;
    struct sparse sparse = {
        .batches = batches,
        .samples = allocate_array(batches, sizeof(struct lists)),
        .sets = sets,
        .pixels = allocate_array(sets, sizeof(struct lists)),
        .rebuild = rebuild,
    };
    size_t largest = 0;
#pragma omp parallel for num_threads(threads) reduction(max : largest)
    for (size_t b = 0; b < batches; ++b) {
        const struct batch batch = batch_at(dataset, b * size, options->batch);
        const struct lists samples = sparse.samples[b] = list_samples(&batch);
        largest = samples.total > largest ? samples.total : largest;
        if (!sparse.rebuild) {
            const size_t most = samples.total < PIXELS ? samples.total : PIXELS;
            sparse.pixels[b] = allocate_lists(most, samples.total, sizeof(uint32_t));
            list_pixels(&samples, &sparse.pixels[b]);
        }
    }
    for (size_t t = 0; sparse.rebuild && t < threads; ++t)
        sparse.pixels[t] = allocate_lists(PIXELS, largest, sizeof(uint32_t));
    return sparse;
}

static void destroy_lists(struct sparse *sparse) {
    for (size_t b = 0; b < sparse->batches; ++b)
        free_lists(&sparse->samples[b]);
    for (size_t i = 0; i < sparse->sets; ++i)
        free_lists(&sparse->pixels[i]);
    free(sparse->samples);
    free(sparse->pixels);
}

INLINED size_t place_of(const struct lists *lists, size_t entry, bool is_pixel) {
    return is_pixel ? ((const uint16_t *)lists->places)[entry]
                    : ((const uint32_t *)lists->places)[entry];
}

// sum += Σ value · rows[place] over the entries from `entry` to `last` − 1, for `columns` columns
// of rows that are `stride` apart. Entries take turns in using several sets of sums.
INLINED void add_products(vec *sum, const struct lists *lists, size_t entry, size_t last,
                          bool is_pixel, const vec *rows, size_t stride, size_t columns) {
    const size_t sets = SUMS / columns;
    const float *values = lists->values;
    vec part[SUMS] = {0};
    for (; entry + sets <= last; entry += sets)
        for (size_t j = 0; j < sets; ++j)
            for (size_t c = 0; c < columns; ++c)
                part[j * columns + c] +=
                    values[entry + j] * rows[c * stride + place_of(lists, entry + j, is_pixel)];
    for (; entry < last; ++entry)
        for (size_t c = 0; c < columns; ++c)
            part[c] += values[entry] * rows[c * stride + place_of(lists, entry, is_pixel)];
    for (size_t j = 0; j < sets; ++j)
        for (size_t c = 0; c < columns; ++c)
            sum[c] += part[j * columns + c];
}

// a = max(0, x·W1 + b1) for `columns` vectors of hidden units from v on.
INLINED void forward_panels(const struct network *network, const struct lists *samples, size_t v,
                            size_t columns) {
    size_t entry = 0;
    for (size_t s = 0; s < samples->count; ++s) {
        const size_t last = entry + samples->lists[s].length;
        vec sum[FORWARD_COLUMNS];
        for (size_t c = 0; c < columns; ++c)
            sum[c] = network->bias1[v + c];
        add_products(sum, samples, entry, last, true, network->weights1 + v * PIXELS, PIXELS,
                     columns);
        for (size_t c = 0; c < columns; ++c)
            network->activations[(v + c) * network->stride + s] =
                (vec)((vec_mask)sum[c] & (sum[c] > 0));
        entry = last;
    }
}

// W1 −= lr·xᵀ·da for `columns` panels, pixel by pixel. The gradient goes from the registers
// straight to the weights. That of a pixel without a list is zero.
INLINED void backward_panels(const struct network *network, const struct lists *pixels,
                             float learning_rate, size_t v, size_t columns) {
    size_t entry = 0;
    for (size_t i = 0; i < pixels->count; ++i) {
        const size_t k = pixels->lists[i].owner, last = entry + pixels->lists[i].length;
        vec sum[BACKWARD_COLUMNS] = {0};
        add_products(sum, pixels, entry, last, false, network->activations + v * network->stride,
                     network->stride, columns);
        for (size_t c = 0; c < columns; ++c)
            network->weights1[(v + c) * PIXELS + k] -= learning_rate * sum[c];
        entry = last;
    }
}

// z += a·W2 for vector v of the hidden units. This part of W2 is turned back into rows, so that the
// ten outputs are summed side by side.
static void add_logits(const struct network *network, size_t v, outputs *z, size_t n) {
    const vec *a = network->activations + v * network->stride;
    outputs row[LANES] = {0};
    for (size_t o = 0; o < CLASSES; ++o)
        for (size_t i = 0; i < LANES; ++i)
            row[i][o] = network->weights2[v * CLASSES + o][i];
    for (size_t s = 0; s < n; ++s) {
        outputs sum[4] = {0}; // four, because an addition waits for the one before it
        for (size_t i = 0; i < LANES; ++i)
            sum[i % 4] += a[s][i] * row[i];
        z[s] += (sum[0] + sum[1]) + (sum[2] + sum[3]);
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

// Sets the slice's a and all of p for a batch. Returns its loss.
static double forward(struct network *network, struct slice *slice, const struct batch *batch,
                      const struct lists *samples) {
    const size_t n = batch->samples;
    outputs *z = slice->logits;
    outputs *shares = network->shares + slice->turn * slice->threads * network->stride;
    outputs *share = shares + slice->thread * network->stride;

    size_t v = slice->first;
    for (; v + FORWARD_COLUMNS <= slice->last; v += FORWARD_COLUMNS)
        forward_panels(network, samples, v, FORWARD_COLUMNS);
    for (; v < slice->last; ++v)
        forward_panels(network, samples, v, 1);

    for (size_t s = 0; s < n; ++s)
        share[s] = (outputs){0};
    for (v = slice->first; v < slice->last; ++v)
        add_logits(network, v, share, n);

    // Past this barrier, a thread may write the next batch's shares while another still reads this
    // one's. No thread gets further ahead than that, so two sets in turn are enough.
    slice->turn ^= 1;
#pragma omp barrier
    double loss = 0;
    for (size_t s = 0; s < n; ++s) {
        z[s] = *slice->bias2;
        for (size_t t = 0; t < slice->threads; ++t)
            z[s] += shares[t * network->stride + s];
        loss += softmax(&z[s], batch->labels[s]);
    }
    return loss / (double)n;
}

// Takes the slice one step down the gradient of the batch that forward() has just seen.
static void backward(struct network *network, struct slice *slice, const struct batch *batch,
                     const struct lists *pixels, float learning_rate) {
    const size_t n = batch->samples;
    outputs *dz = slice->logits;

    // dz = (p − onehot(label)) / n, db2 = Σ dz
    outputs db2 = {0};
    for (size_t s = 0; s < n; ++s) {
        dz[s][batch->labels[s]] -= 1;
        dz[s] /= (float)n;
        db2 += dz[s];
    }
    *slice->bias2 -= learning_rate * db2;

    // dW2 = aᵀ·dz, da = (dz·W2ᵀ) ⊙ [a > 0], db1 = Σ da, and their updates. One vector of hidden
    // units goes after another, so that its part of dW2 stays in registers.
    for (size_t v = slice->first; v < slice->last; ++v) {
        vec *restrict a = network->activations + v * network->stride;
        vec *restrict w2 = network->weights2 + v * CLASSES;
        vec dw2[CLASSES] = {0}, db1 = {0};
        for (size_t s = 0; s < n; ++s) {
            vec da = {0};
            for (size_t o = 0; o < CLASSES; ++o) {
                dw2[o] += dz[s][o] * a[s];
                da += dz[s][o] * w2[o];
            }
            a[s] = (vec)((vec_mask)da & (a[s] > 0));
            db1 += a[s];
        }
        for (size_t o = 0; o < CLASSES; ++o)
            w2[o] -= learning_rate * dw2[o];
        network->bias1[v] -= learning_rate * db1;
    }

    size_t v = slice->first;
    for (; v + BACKWARD_COLUMNS <= slice->last; v += BACKWARD_COLUMNS)
        backward_panels(network, pixels, learning_rate, v, BACKWARD_COLUMNS);
    for (; v + 2 <= slice->last; v += 2)
        backward_panels(network, pixels, learning_rate, v, 2);
    for (; v < slice->last; ++v)
        backward_panels(network, pixels, learning_rate, v, 1);
}

// Runs all epochs over the training set in file order. The last batch of an epoch may be short.
static void train(struct network *network, const struct dataset *dataset,
                  const struct sparse *sparse, const struct options *options,
                  struct result *result) {
    double start = seconds();
#pragma omp parallel num_threads(network->threads)
    {
        struct slice slice = take_slice(network);
        for (int epoch = 0; epoch < options->epochs; ++epoch) {
            double loss = 0, clock = seconds();
            for (size_t b = 0; b < sparse->batches; ++b) {
                const struct batch batch =
                    batch_at(dataset, b * (size_t)options->batch, options->batch);
                loss +=
                    forward(network, &slice, &batch, &sparse->samples[b]) * (double)batch.samples;
                if (omp_get_thread_num() == 0)
                    clock = timer_lap(&result->forward, clock);
                struct lists *pixels = &sparse->pixels[sparse->rebuild ? slice.thread : b];
                if (sparse->rebuild)
                    list_pixels(&sparse->samples[b], pixels);
                backward(network, &slice, &batch, pixels, options->learning_rate);
                if (omp_get_thread_num() == 0)
                    clock = timer_lap(&result->backward, clock);
            }
            if (omp_get_thread_num() == 0) {
                result->final_loss = loss / dataset->samples;
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
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        struct lists samples = list_samples(&batch);
        forward(network, &slice, &batch, &samples);
        free_lists(&samples);
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
static int save(const struct network *network, const char *path) {
    const size_t hidden = network->hidden;
    float *weights1 = allocate_floats(PIXELS * hidden);
    float *weights2 = allocate_floats(hidden * CLASSES);
    for (size_t h = 0; h < hidden; ++h) {
        const size_t v = h / LANES, i = h % LANES;
        for (size_t k = 0; k < PIXELS; ++k)
            weights1[k * hidden + h] = network->weights1[v * PIXELS + k][i];
        for (size_t o = 0; o < CLASSES; ++o)
            weights2[h * CLASSES + o] = network->weights2[v * CLASSES + o][i];
    }
    int status = write_weights(path, hidden, weights1, (const float *)network->bias1, weights2,
                               (const float *)network->bias2);
    free(weights1);
    free(weights2);
    return status;
}

int main(int argc, char **argv) {
    static const struct field own[] = {
        {.option = "rebuild",
         .kind = FLAG,
         .help = "make the lists by pixel anew for each batch, as shuffled batches would need"},
        {0},
    };
    bool rebuild = false;
    struct options options =
        parse_more_options(argc, argv, "Trains on all cores, without multiplications by zero.",
                           INT_MAX, own, &rebuild);
    struct result result = {.device = "cpu"};
    struct data data;

    if (rebuild && options.csv) {
        fprintf(stderr, STAGE ": --rebuild: found --csv, whose rows have no column for it; "
                              "expected one of the two\n");
        return EXIT_BAD_INPUT;
    }
    int status = load_data(&options, &data);
    if (status)
        return status;

    double clock = seconds();
    struct network network = create(&options);
    struct sparse sparse = create_lists(&data.train, &options, network.threads, rebuild);
    result.setup_s = seconds() - clock;

    train(&network, &data.train, &sparse, &options, &result);
    result.test_accuracy = evaluate(&network, &data.test, &options);
    // NaNs must not replace good weights.
    if (options.save_weights && isfinite(result.final_loss))
        status = save(&network, options.save_weights);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy_lists(&sparse);
    destroy(&network);
    free_data(&data);
    return status;
}
