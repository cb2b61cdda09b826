// Stage 07: a process has no weights but its own, so that the processes together can have more than
// one has memory for.
//
// Shapes: n samples in a batch, at most N; H hidden units in V vectors. The last vector may have
// lanes without a hidden unit. They hold zeros and stay zero: where a and W2 are zero, so are da,
// dW1 and dW2.
#include "stages/training_mpi.h"

#include <limits.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
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

struct network {
    size_t units;   // the hidden units that were asked for
    size_t vectors; // V, in this process
    size_t first;   // of all vectors, the first of this process
    vec *weights1;  // V × 784: a panel for each vector of hidden units, read from end to end
    vec *bias1;     // V
    vec *weights2;  // V × 10: panels, too
    outputs bias2;  // 10; −∞ in the padding, so that its share of the softmax is 0

    // One batch's intermediate values.
    size_t stride;      // N
    vec *activations;   // V × N: a
    vec *d_activations; // V × N: da
    outputs *logits;    // N × 10: z, then p, then dz
    outputs *shares;    // T × N × 10: what each thread's hidden units add to z
    double *losses;     // T: of each thread's samples in an epoch
    float *sums;        // N × 10: what all processes' hidden units add to z

    size_t threads; // T, in this process
};

// A thread's part of the network.
struct slice {
    size_t thread, threads; // 0 to T − 1, T
    size_t first, last;     // its vectors of hidden units: first to last − 1
    size_t begin, end;      // its samples of the batch: begin to end − 1
    outputs bias2;          // the same in all threads
};

// Returns how many threads all processes have together: --threads, or as many as OpenMP chooses in
// each, but no more than processors, or one each. Those that share processors divide them.
static size_t count_threads(const struct options *options) {
    cpu_set_t set;
    MPI_Comm machine; // the processes on this one
    sched_getaffinity(0, sizeof set, &set);
    int usable = CPU_COUNT(&set);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Allreduce(MPI_IN_PLACE, &usable, 1, MPI_INT, MPI_SUM, machine);
    MPI_Allreduce(MPI_IN_PLACE, &set, sizeof set, MPI_BYTE, MPI_BOR, machine);
    MPI_Comm_free(&machine);
    const int share = omp_get_num_procs() * CPU_COUNT(&set) / usable, own = share > 0 ? share : 1;
    const int chosen = omp_get_max_threads();
    int sums[] = {own, chosen < own ? chosen : own};
    MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    const int wanted = options->threads ? options->threads : sums[1];
    return (size_t)(wanted < sums[0] ? wanted : sums[0]);
}

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

static struct network create(const struct options *options) {
    const size_t units = (size_t)options->hidden, stride = largest_batch(options);
    const size_t all = (units + LANES - 1) / LANES;
    // More threads than cores would make each other wait at each barrier. More threads than vectors
    // of hidden units would idle in a batch.
    size_t threads = count_threads(options);
    threads = threads < all ? threads : all;
    // The processes divide these threads. Process 0 always has one: its clock gives the phases.
    const size_t process = (size_t)process_number(), processes = (size_t)process_count();
    const size_t begin = (threads * process + processes - 1) / processes;
    const size_t end = (threads * (process + 1) + processes - 1) / processes;
    const size_t first = all * begin / threads, vectors = all * end / threads - first;
    threads = end > begin ? end - begin : 1; // without a share: no vectors, so it adds zeros
    struct network network = {
        .units = units,
        .vectors = vectors,
        .first = first,
        .weights1 = allocate_panels(vectors, threads),
        .bias1 = (vec *)allocate_floats(vectors * LANES),
        .weights2 = (vec *)allocate_floats(vectors * CLASSES * LANES),
        .stride = stride,
        .activations = (vec *)allocate_floats(vectors * stride * LANES),
        .d_activations = (vec *)allocate_floats(vectors * stride * LANES),
        .logits = (outputs *)allocate_floats(stride * PADDED_CLASSES),
        .shares = (outputs *)allocate_floats(threads * stride * PADDED_CLASSES),
        .losses = allocate_array(threads, sizeof(double)),
        .sums = allocate_floats(stride * CLASSES + PADDED_CLASSES),
        .threads = threads,
    };
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t h = 0; h < units; ++h) {
            const float weight = draw_weight(&generator, PIXELS);
            const size_t v = h / LANES - first; // not this process's if it wraps around
            if (v < vectors)
                network.weights1[v * PIXELS + k][h % LANES] = weight;
        }
    generator = pcg32_start(options->seed, 2);
    for (size_t h = 0; h < units; ++h)
        for (size_t o = 0; o < CLASSES; ++o) {
            const float weight = draw_weight(&generator, units);
            const size_t v = h / LANES - first;
            if (v < vectors)
                network.weights2[v * CLASSES + o][h % LANES] = weight;
        }
    for (size_t o = CLASSES; o < PADDED_CLASSES; ++o)
        network.bias2[o] = -INFINITY;
    return network;
}

static void destroy(struct network *network) {
    free(network->weights1);
    free(network->bias1);
    free(network->weights2);
    free(network->activations);
    free(network->d_activations);
    free(network->logits);
    free(network->shares);
    free(network->losses);
    free(network->sums);
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

// A tile of a = max(0, x·W1 + b1): `rows` samples from s on × `columns` vectors of hidden units
// from v on. For each k it loads `columns` vectors of W1 and `rows` pixels, and does rows × columns
// multiply-adds. The sums stay in registers.
INLINED void forward_tile(const struct network *network, const struct batch *batch, size_t s,
                          size_t rows, size_t v, size_t columns) {
    const float *x = batch->images + s * PIXELS;
    const vec *weights1 = network->weights1 + v * PIXELS;
    vec sum[TILE_ROWS][TILE_COLUMNS];
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c)
            sum[r][c] = network->bias1[v + c];
    for (size_t line = 0; line < PIXELS; line += 16) { // a cache line's floats
        // Fetches this line of the next tile's samples: the core looks ahead only within a page.
        for (size_t r = 0; r < rows; ++r)
            __builtin_prefetch(x + (TILE_ROWS + r) * PIXELS + line);
#pragma GCC unroll 2 // else GCC, tuned for an AMD core, loads W1's vectors anew for each row
        for (size_t k = line; k < line + 16; ++k)
            for (size_t r = 0; r < rows; ++r)
                for (size_t c = 0; c < columns; ++c)
                    sum[r][c] += x[r * PIXELS + k] * weights1[c * PIXELS + k];
    }
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c)
            network->activations[(v + c) * network->stride + s + r] =
                (vec)((vec_mask)sum[r][c] & (sum[r][c] > 0));
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

// The same for the vectors first to last − 1 of hidden units.
static void forward_columns(const struct network *network, const struct batch *batch, size_t first,
                            size_t last) {
    for (size_t v = first, columns; v < last; v += columns) {
        columns = count_columns(last - v);
        if (columns == TILE_COLUMNS)
            forward_panels(network, batch, v, TILE_COLUMNS);
        else if (columns == 2)
            forward_panels(network, batch, v, 2);
        else
            forward_panels(network, batch, v, 1);
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

// Adds up the shares of this process's threads, and then those of all processes, unpadded.
static void add_shares(const struct network *network, size_t threads, size_t n) {
    for (size_t s = 0; s < n; ++s) {
        outputs sum = network->shares[s];
        for (size_t t = 1; t < threads; ++t)
            sum += network->shares[t * network->stride + s];
        memcpy(network->sums + s * CLASSES, &sum, CLASSES * sizeof(float));
    }
    MPI_Allreduce(MPI_IN_PLACE, network->sums, (int)(n * CLASSES), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
}

// Sets the slice's a for a batch, and p of its samples. Returns their loss.
static double forward(struct network *network, struct slice *slice, const struct batch *batch) {
    const size_t n = batch->samples;
    outputs *z = network->logits;
    outputs *share = network->shares + slice->thread * network->stride;
    slice->begin = n * slice->thread / slice->threads;
    slice->end = n * (slice->thread + 1) / slice->threads;

    forward_columns(network, batch, slice->first, slice->last);

    for (size_t s = 0; s < n; ++s)
        share[s] = (outputs){0};
    for (size_t v = slice->first; v < slice->last; ++v)
        add_logits(network, v, share, n);

#pragma omp barrier
    // One thread speaks for its process, and the others wait for it.
    if (slice->thread == 0)
        add_shares(network, slice->threads, n);
#pragma omp barrier
    double loss = 0;
    for (size_t s = slice->begin; s < slice->end; ++s) {
        outputs sum; // its padding is of the next sample: bias2 has −∞ there
        memcpy(&sum, network->sums + s * CLASSES, sizeof sum);
        z[s] = slice->bias2 + sum;
        loss += softmax(&z[s], batch->labels[s]);
    }
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
    MPI_Barrier(MPI_COMM_WORLD); // the clock starts when the last process is ready
    double start = seconds();
#pragma omp parallel num_threads(network->threads)
    {
        struct slice slice = take_slice(network);
        for (int epoch = 0; epoch < options->epochs; ++epoch) {
            struct batch batch;
            double loss = 0, clock = seconds();
            for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
                batch = batch_at(dataset, first, options->batch);
                loss += forward(network, &slice, &batch);
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
            result->threads = network->vectors ? omp_get_num_threads() : 0;
    }
    MPI_Barrier(MPI_COMM_WORLD); // the last weight of every process is final
    result->train_s = seconds() - start;
    MPI_Allreduce(MPI_IN_PLACE, &result->threads, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
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
            const outputs p = network->logits[s];
            size_t best = 0;
            for (size_t o = 1; o < CLASSES; ++o)
                best = p[o] > p[best] ? o : best;
            right += best == batch.labels[s];
        }
    }
    return (double)right / dataset->samples;
}

// Writes the weights, turned back from panels into rows. Each process sends its own hidden units
// and zeros for the others, and process 0 adds them up. Returns the exit status.
static int save(const struct network *network, const char *path) {
    const size_t units = network->units, first = network->first * LANES;
    const size_t last = first + network->vectors * LANES, end = last < units ? last : units;
    const bool is_first = process_number() == 0;
    float *row = allocate_floats(units), *part2 = allocate_floats(units * CLASSES);
    float *weights1 = allocate_floats(is_first ? PIXELS * units : 0);
    float *bias1 = allocate_floats(units), *weights2 = allocate_floats(units * CLASSES);
    for (size_t h = first; h < end; ++h) {
        const size_t v = h / LANES - network->first;
        row[h] = network->bias1[v][h % LANES];
        for (size_t o = 0; o < CLASSES; ++o)
            part2[h * CLASSES + o] = network->weights2[v * CLASSES + o][h % LANES];
    }
    MPI_Reduce(row, bias1, (int)units, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(part2, weights2, (int)(units * CLASSES), MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    for (size_t k = 0; k < PIXELS; ++k) {
        for (size_t h = first; h < end; ++h)
            row[h] = network->weights1[(h / LANES - network->first) * PIXELS + k][h % LANES];
        MPI_Reduce(row, is_first ? weights1 + k * units : NULL, (int)units, MPI_FLOAT, MPI_SUM, 0,
                   MPI_COMM_WORLD);
    }
    const float *bias2 = (const float *)&network->bias2;
    const int status = is_first ? write_weights(path, units, weights1, bias1, weights2, bias2) : 0;
    free(row);
    free(part2);
    free(weights1);
    free(bias1);
    free(weights2);
    return status;
}

int main(int argc, char **argv) {
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &(int){0});
    struct options options =
        parse_options_once(argc, argv, "Trains on all cores of several processes.", INT_MAX);
    struct result result = {.device = "cpu"};
    struct data data;

    int status = load_same_data(&options, &data);
    if (status) {
        MPI_Finalize();
        return status;
    }

    double clock = seconds();
    struct network network = create(&options);
    result.setup_s = seconds() - clock;

    train(&network, &data.train, &options, &result);
    result.test_accuracy = evaluate(&network, &data.test, &options);
    // NaNs must not replace good weights.
    if (options.save_weights && isfinite(result.final_loss))
        status = save(&network, options.save_weights);
    if (!status && process_number() == 0)
        status = report_result(&options, &data, &result);
    destroy(&network);
    free_data(&data);
    MPI_Finalize();
    return status;
}
