// What peer_libxsmm and peer_onednn share: all but the products. A product computes on one thread,
// so each thread owns slices of the hidden units, as in 02.3. In a batch, it needs from the
// other threads only their units' share of the outputs, and −lr·dz of their samples.
//
// Shapes: n samples in a batch, at most N; H hidden units in S slices of U; T threads. Arrays are
// row-major. The last slice may have units that stand for no hidden unit. Their weights are zero
// and stay zero.
#ifndef BENCH_PEERS_SLICES_H
#define BENCH_PEERS_SLICES_H

#include "stages/training.h"

#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A slice is whole vectors. There are products for whole batches, and for the last of either data
// set.
enum { LANES = 16, SIZES = 3 };

struct network {
    size_t hidden, width, slices; // H, U, S
    size_t sizes[SIZES];          // n of whole batches, which is N, and of the last ones; 0: none
    size_t threads;               // T
    float *weights1;              // S × 784 × U
    float *bias1;                 // S × U
    float *weights2;              // S × 10 × U: W2ᵀ
    float *bias2;                 // 10
    float *activations;           // S × N × U: a
    float *d_hidden;              // T × N × U: da of one slice at a time
    float *outputs;               // N × 10: z, then p, then −lr·dz
    float *shares;                // T × N × 10: what each thread's hidden units add to z
    double *losses;               // T: of each thread's samples in an epoch
    struct products *products;    // T × 3: they may hold operands, so each thread has its own
};

// A slice's part of these arrays.
struct slice {
    size_t width;                                     // U
    float *weights1, *bias1, *weights2, *activations; // 784 × U, U, 10 × U, N × U
};

// A thread's part of the network.
struct part {
    size_t thread, threads; // 0 to T − 1, T
    size_t first, last;     // its slices, without the last
    size_t begin, end;      // its samples of the batch: begin to end − 1
    float *d_hidden;
};

// What a peer defines. Before it includes this file: WIDEST, the most units of a slice, and struct
// products, those of a batch for one slice. dz and da are multiplied by −lr.
static struct products compile_products(size_t n, size_t width);
static void discard_products(const struct products *products);
// a = max(0, x·W1 + b1), z += a·W2
static void predict(const struct products *products, const struct slice *slice,
                    const struct batch *batch, float *z);
// da = dz·W2ᵀ, then W2ᵀ += dzᵀ·a
static void propagate(const struct products *products, const struct slice *slice, const float *dz,
                      float *da);
// W1 += xᵀ·da
static void update(const struct products *products, const struct slice *slice,
                   const struct batch *batch, const float *da);

static size_t divide_up(size_t a, size_t b) {
    return (a + b - 1) / b;
}

static struct network create(const struct options *options) {
    const size_t hidden = (size_t)options->hidden, stride = largest_batch(options);
    const size_t vectors = divide_up(hidden, LANES);
    // Use no more threads than there are processors or vectors.
    size_t threads = (size_t)(options->threads ? options->threads : omp_get_max_threads());
    threads = threads < (size_t)omp_get_num_procs() ? threads : (size_t)omp_get_num_procs();
    threads = threads < vectors ? threads : vectors;
    // Make few slices, and about as many for one thread as for another.
    const size_t turns = divide_up(vectors * LANES, threads * WIDEST);
    const size_t width = divide_up(vectors, threads * turns) * LANES;
    const size_t slices = divide_up(hidden, width);
    struct network network = {
        .hidden = hidden,
        .width = width,
        .slices = slices,
        .sizes = {stride, (size_t)(options->train_samples % options->batch),
                  (size_t)(options->test_samples % options->batch)},
        .threads = threads,
        .weights1 = allocate_floats(slices * PIXELS * width),
        .bias1 = allocate_floats(slices * width),
        .weights2 = allocate_floats(slices * CLASSES * width),
        .bias2 = allocate_floats(CLASSES),
        .activations = allocate_floats(slices * stride * width),
        .d_hidden = allocate_floats(threads * stride * width),
        .outputs = allocate_floats(stride * CLASSES),
        .shares = allocate_floats(threads * stride * CLASSES),
        .losses = allocate_array(threads, sizeof(double)),
        .products = calloc(threads * SIZES, sizeof *network.products),
    };
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t h = 0; h < hidden; ++h)
            network.weights1[(h / width * PIXELS + k) * width + h % width] =
                draw_weight(&generator, PIXELS);
    generator = pcg32_start(options->seed, 2);
    for (size_t h = 0; h < hidden; ++h)
        for (size_t o = 0; o < CLASSES; ++o)
            network.weights2[(h / width * CLASSES + o) * width + h % width] =
                draw_weight(&generator, hidden);

    if (!network.products) {
        fprintf(stderr, STAGE ": out of memory\n");
        exit(EXIT_RUN_FAILED);
    }
    for (size_t i = 0; i < threads * SIZES; ++i)
        if (network.sizes[i % SIZES] > 0)
            network.products[i] = compile_products(network.sizes[i % SIZES], width);
    return network;
}

static void destroy(struct network *network) {
    for (size_t i = 0; i < network->threads * SIZES; ++i)
        if (network->sizes[i % SIZES] > 0)
            discard_products(&network->products[i]);
    free(network->products);
    free(network->weights1);
    free(network->bias1);
    free(network->weights2);
    free(network->bias2);
    free(network->activations);
    free(network->d_hidden);
    free(network->outputs);
    free(network->shares);
    free(network->losses);
}

// Returns the calling thread's part. The runtime may have granted fewer threads than asked for.
static struct part take_part(const struct network *network) {
    const size_t thread = (size_t)omp_get_thread_num(), threads = (size_t)omp_get_num_threads();
    return (struct part){
        .thread = thread,
        .threads = threads,
        .first = network->slices * thread / threads,
        .last = network->slices * (thread + 1) / threads,
        .d_hidden = network->d_hidden + thread * network->sizes[0] * network->width,
    };
}

static struct slice slice_at(const struct network *network, size_t i) {
    const size_t width = network->width;
    return (struct slice){
        .width = width,
        .weights1 = network->weights1 + i * PIXELS * width,
        .bias1 = network->bias1 + i * width,
        .weights2 = network->weights2 + i * CLASSES * width,
        .activations = network->activations + i * network->sizes[0] * width,
    };
}

// Returns the thread's products for a batch of n samples.
static const struct products *products_for(const struct network *network, const struct part *part,
                                           size_t n) {
    size_t i = 0;
    while (network->sizes[i] != n)
        ++i;
    return &network->products[part->thread * SIZES + i];
}

// Sets the part's a for a batch, and p of its samples. Returns their loss.
static double forward(struct network *network, struct part *part, const struct batch *batch) {
    const size_t n = batch->samples, share = network->sizes[0] * CLASSES;
    const struct products *products = products_for(network, part, n);
    float *z = network->shares + part->thread * share, *p = network->outputs;
    part->begin = n * part->thread / part->threads;
    part->end = n * (part->thread + 1) / part->threads;

    const float zeros[CLASSES] = {0}, *bias2 = part->thread == 0 ? network->bias2 : zeros;
    for (size_t s = 0; s < n; ++s)
        memcpy(z + s * CLASSES, bias2, CLASSES * sizeof(float));
    for (size_t i = part->first; i < part->last; ++i) {
        const struct slice slice = slice_at(network, i);
        predict(products, &slice, batch, z);
    }

#pragma omp barrier
    const size_t first = part->begin * CLASSES, last = part->end * CLASSES;
    memcpy(p + first, network->shares + first, (last - first) * sizeof(float));
    for (size_t t = 1; t < part->threads; ++t)
        for (size_t i = first; i < last; ++i)
            p[i] += network->shares[t * share + i];

    // These loops are separate, so that the compiler takes its vector functions for exp.
    double loss = 0;
    for (size_t s = part->begin; s < part->end; ++s) {
        float *row = p + s * CLASSES, max = row[0];
        for (size_t o = 1; o < CLASSES; ++o)
            max = row[o] > max ? row[o] : max;
        for (size_t o = 0; o < CLASSES; ++o)
            row[o] -= max;
        loss -= row[batch->labels[s]];
    }
    for (size_t i = first; i < last; ++i)
        p[i] = expf(p[i]);
    for (size_t s = part->begin; s < part->end; ++s) {
        float sum = 0;
        for (size_t o = 0; o < CLASSES; ++o)
            sum += p[s * CLASSES + o];
        for (size_t o = 0; o < CLASSES; ++o)
            p[s * CLASSES + o] /= sum;
        loss += logf(sum);
    }
    return loss;
}

// Takes the part one step down the gradient of the batch that forward() has just seen. dz is
// multiplied by −lr, and so is all that follows. The results are updates, not gradients.
static void backward(struct network *network, struct part *part, const struct batch *batch,
                     float learning_rate) {
    const size_t n = batch->samples, width = network->width;
    const struct products *products = products_for(network, part, n);
    float *dz = network->outputs, *restrict da = part->d_hidden;

    for (size_t s = part->begin; s < part->end; ++s)
        dz[s * CLASSES + batch->labels[s]] -= 1;
    for (size_t i = part->begin * CLASSES; i < part->end * CLASSES; ++i)
        dz[i] *= -learning_rate / (float)n;
#pragma omp barrier
    for (size_t s = 0; part->thread == 0 && s < n; ++s)
        for (size_t o = 0; o < CLASSES; ++o)
            network->bias2[o] += dz[s * CLASSES + o];
    for (size_t i = part->first; i < part->last; ++i) {
        const struct slice slice = slice_at(network, i);
        const float *restrict a = slice.activations;
        float *restrict bias1 = slice.bias1;
        propagate(products, &slice, dz, da);
        for (size_t s = 0; s < n; ++s) {
            for (size_t h = 0; h < width; ++h) {
                const size_t j = s * width + h;
                da[j] = a[j] > 0 ? da[j] : 0;
                bias1[h] += da[j];
            }
        }
        update(products, &slice, batch, da);
    }
}

// Runs all epochs over the training set in file order. The last batch of an epoch may be short.
static void train(struct network *network, const struct dataset *dataset,
                  const struct options *options, struct result *result) {
    double start = seconds();
#pragma omp parallel num_threads(network->threads)
    {
        struct part part = take_part(network);
        for (int epoch = 0; epoch < options->epochs; ++epoch) {
            struct batch batch;
            double loss = 0, clock = seconds();
            for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
                batch = batch_at(dataset, first, options->batch);
                loss += forward(network, &part, &batch);
                if (part.thread == 0)
                    clock = timer_lap(&result->forward, clock);
                backward(network, &part, &batch, options->learning_rate);
                if (part.thread == 0)
                    clock = timer_lap(&result->backward, clock);
            }
            network->losses[part.thread] = loss;
#pragma omp barrier
            if (part.thread == 0) {
                for (size_t t = 1; t < part.threads; ++t)
                    loss += network->losses[t];
                result->final_loss = loss / dataset->samples;
                start = report_epoch(options, epoch, result->final_loss, start); // not timed
            }
        }
        if (part.thread == 0)
            result->threads = (int)part.threads;
    }
    result->train_s = seconds() - start;
}

// Returns the fraction of samples whose most probable class is their label.
static double evaluate(struct network *network, const struct dataset *dataset,
                       const struct options *options) {
    struct part part = take_part(network); // all of it: no other thread is at work
    struct batch batch;
    size_t right = 0;
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        forward(network, &part, &batch);
        for (size_t s = 0; s < batch.samples; ++s) {
            const float *p = network->outputs + s * CLASSES;
            size_t best = 0;
            for (size_t o = 1; o < CLASSES; ++o)
                best = p[o] > p[best] ? o : best;
            right += best == batch.labels[s];
        }
    }
    return (double)right / dataset->samples;
}

// Writes the weights, turned back from slices into rows. Returns the exit status.
static int save(const struct network *network, const char *path) {
    const size_t hidden = network->hidden, width = network->width;
    float *weights1 = allocate_floats(PIXELS * hidden);
    float *weights2 = allocate_floats(hidden * CLASSES);
    for (size_t h = 0; h < hidden; ++h) {
        const size_t i = h / width, unit = h % width;
        for (size_t k = 0; k < PIXELS; ++k)
            weights1[k * hidden + h] = network->weights1[(i * PIXELS + k) * width + unit];
        for (size_t o = 0; o < CLASSES; ++o)
            weights2[h * CLASSES + o] = network->weights2[(i * CLASSES + o) * width + unit];
    }
    int status = write_weights(path, hidden, weights1, network->bias1, weights2, network->bias2);
    free(weights1);
    free(weights2);
    return status;
}

static int run(int argc, char **argv, const char *about) {
    struct options options = parse_options(argc, argv, about, INT_MAX);
    struct result result = {.device = "cpu"};
    struct data data;

    int status = load_data(&options, &data);
    if (status)
        return status;

    // Warm up with a batch. At a learning rate of 0 it changes nothing.
    double clock = seconds();
    struct network network = create(&options);
    struct batch first = batch_at(&data.train, 0, options.batch);
#pragma omp parallel num_threads(network.threads)
    {
        struct part part = take_part(&network);
        forward(&network, &part, &first);
        backward(&network, &part, &first, 0);
    }
    result.setup_s = seconds() - clock;

    train(&network, &data.train, &options, &result);
    result.test_accuracy = evaluate(&network, &data.test, &options);
    // Weights that are not numbers must not replace good ones. With -ffast-math, isfinite() is
    // always true here, so report_result() decides.
    status = report_result(&options, &data, &result);
    if (!status && options.save_weights)
        status = save(&network, options.save_weights);
    destroy(&network);
    free_data(&data);
    return status;
}

#endif
