// Trains the network with oneDNN. Every product is a matmul, which oneDNN compiles for its shape
// before the clock starts. The bias and the ReLU are fused into the first, the update into those of
// the weight gradients. A matmul computes on one thread. So each thread owns slices of the hidden
// units, as in 02_openmp. In a batch, it needs from the other threads only their units' share of
// the outputs.
//
// Shapes: n samples in a batch, at most N; H hidden units in S slices of U; T threads. Arrays are
// row-major. The last slice may have units that stand for no hidden unit. Their weights are zero
// and stay zero.
#include "stages/training.h"

#include <limits.h>
#include <math.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A slice is whole vectors. At WIDEST units, its 400 KB of W1 stay in the second-level cache.
enum { LANES = 16, WIDEST = 128 };

// What comes after a product: nothing, the sum with what was there, or a bias and the ReLU.
enum after { NOTHING, SUM, BIAS_AND_RELU };

// A product, dst = src·weights, and its operands: src, weights, dst, scratchpad, bias.
struct product {
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t operands[5];
    int count; // without a bias 4
};

// The products of a batch, for one slice.
struct products {
    size_t samples;             // n
    struct product activations; // a = max(0, x·W1 + b1)
    struct product outputs;     // z += a·W2
    struct product d_hidden;    // da = dz·W2ᵀ
    struct product weights2;    // W2ᵀ += dzᵀ·a
    struct product weights1;    // W1 += xᵀ·da
};

// There are products for whole batches, and for the last of either data set.
enum { SIZES = 3 };

struct network {
    size_t hidden, width, slices; // H, U, S
    size_t stride;                // N
    size_t threads;               // T
    float *weights1;              // S × 784 × U
    float *bias1;                 // S × U
    float *weights2;              // S × 10 × U: W2ᵀ
    float *bias2;                 // 10
    float *activations;           // S × N × U: a
    float *d_hidden;              // T × N × U: da of one slice at a time
    float *outputs;               // T × N × 10: z, then p, then −lr·dz, a copy for each thread
    float *shares;                // 2 × T × N × 10: what each thread's hidden units add to z
    dnnl_engine_t engine;
    struct products *products; // T × 3: they hold their operands, so each thread has its own
};

// A thread's part of the network.
struct part {
    size_t thread, threads; // 0 to T − 1, T
    size_t first, last;     // its slices, without the last
    size_t turn;            // which half of the shares belongs to this batch
    float *d_hidden, *outputs;
    struct products *products; // 3
};

static size_t divide_up(size_t a, size_t b) {
    return (a + b - 1) / b;
}

static void check(dnnl_status_t status) {
    if (status != dnnl_success) {
        fprintf(stderr, STAGE ": oneDNN failed with status %d\n", (int)status);
        exit(EXIT_RUN_FAILED);
    }
}

// oneDNN 3 has other functions for what oneDNN 2 does in these.
#if DNNL_VERSION_MAJOR < 3
#define dnnl_memory_desc_create_with_tag dnnl_memory_desc_init_by_tag
#define dnnl_memory_desc_destroy(layout) dnnl_success

static dnnl_status_t describe(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                              const dnnl_memory_desc_t layouts[4], enum after after,
                              const_dnnl_primitive_attr_t attributes) {
    dnnl_matmul_desc_t matmul;
    check(dnnl_matmul_desc_init(&matmul, &layouts[0], &layouts[1],
                                after == BIAS_AND_RELU ? &layouts[3] : NULL, &layouts[2]));
    return dnnl_primitive_desc_create(description, &matmul, attributes, engine, NULL);
}

static dnnl_status_t append(dnnl_post_ops_t operations, enum after after) {
    return after == SUM ? dnnl_post_ops_append_sum(operations, 1)
                        : dnnl_post_ops_append_eltwise(operations, 1, dnnl_eltwise_relu, 0, 0);
}
#else
static dnnl_status_t describe(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                              const dnnl_memory_desc_t layouts[4], enum after after,
                              const_dnnl_primitive_attr_t attributes) {
    return dnnl_matmul_primitive_desc_create(description, engine, layouts[0], layouts[1],
                                             after == BIAS_AND_RELU ? layouts[3] : NULL, layouts[2],
                                             attributes);
}

static dnnl_status_t append(dnnl_post_ops_t operations, enum after after) {
    return after == SUM ? dnnl_post_ops_append_sum(operations, 1, 0, dnnl_data_type_undef)
                        : dnnl_post_ops_append_eltwise(operations, dnnl_eltwise_relu, 0, 0);
}
#endif

// Compiles a product of an m × k and a k × n matrix. dnnl_ab is row-major, dnnl_ba column-major.
static struct product compile(dnnl_engine_t engine, size_t m, size_t n, size_t k,
                              dnnl_format_tag_t src, dnnl_format_tag_t weights, enum after after) {
    static const int OPERANDS[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                   DNNL_ARG_SCRATCHPAD, DNNL_ARG_BIAS};
    const size_t rows[] = {m, k, m, 1}, columns[] = {k, n, n, n};
    const dnnl_format_tag_t order[] = {src, weights, dnnl_ab, dnnl_ab};
    struct product product = {.count = after == BIAS_AND_RELU ? 5 : 4};
    dnnl_memory_desc_t layouts[4];
    dnnl_primitive_attr_t attributes;
    dnnl_post_ops_t operations;
    dnnl_primitive_desc_t description;

    for (int i = 0; i < 4; ++i) {
        const dnnl_dims_t sizes = {(dnnl_dim_t)rows[i], (dnnl_dim_t)columns[i]};
        check(dnnl_memory_desc_create_with_tag(&layouts[i], 2, sizes, dnnl_f32, order[i]));
    }
    check(dnnl_primitive_attr_create(&attributes));
    check(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    check(dnnl_post_ops_create(&operations));
    if (after != NOTHING)
        check(append(operations, after));
    check(dnnl_primitive_attr_set_post_ops(attributes, operations));
    check(describe(&description, engine, layouts, after, attributes));
    check(dnnl_primitive_create(&product.primitive, description));
    check(dnnl_stream_create(&product.stream, engine, dnnl_stream_default_flags));
    for (int i = 0; i < product.count; ++i) {
        const bool is_scratchpad = OPERANDS[i] == DNNL_ARG_SCRATCHPAD;
        product.operands[i].arg = OPERANDS[i];
        check(dnnl_memory_create(
            &product.operands[i].memory,
            dnnl_primitive_desc_query_md(description, dnnl_query_exec_arg_md, OPERANDS[i]), engine,
            is_scratchpad ? DNNL_MEMORY_ALLOCATE : DNNL_MEMORY_NONE));
    }
    check(dnnl_primitive_desc_destroy(description));
    check(dnnl_post_ops_destroy(operations));
    check(dnnl_primitive_attr_destroy(attributes));
    for (int i = 0; i < 4; ++i)
        check(dnnl_memory_desc_destroy(layouts[i]));
    return product;
}

static void discard(const struct product *product) {
    for (int i = 0; i < product->count; ++i)
        check(dnnl_memory_destroy(product->operands[i].memory));
    check(dnnl_stream_destroy(product->stream));
    check(dnnl_primitive_destroy(product->primitive));
}

// dst = src·weights, and what comes after it.
static void multiply(const struct product *product, const float *src, const float *weights,
                     float *dst, const float *bias) {
    const float *const operands[] = {src, weights, dst, NULL, bias};
    for (int i = 0; i < product->count; ++i)
        if (operands[i])
            check(dnnl_memory_set_data_handle(product->operands[i].memory, (void *)operands[i]));
    check(dnnl_primitive_execute(product->primitive, product->stream, product->count,
                                 product->operands));
}

static struct products compile_all(dnnl_engine_t engine, size_t n, size_t width) {
    if (n == 0)
        return (struct products){0};
    return (struct products){
        .samples = n,
        .activations = compile(engine, n, width, PIXELS, dnnl_ab, dnnl_ab, BIAS_AND_RELU),
        .outputs = compile(engine, n, CLASSES, width, dnnl_ab, dnnl_ba, SUM),
        .d_hidden = compile(engine, n, width, CLASSES, dnnl_ab, dnnl_ab, NOTHING),
        .weights2 = compile(engine, CLASSES, width, n, dnnl_ba, dnnl_ab, SUM),
        .weights1 = compile(engine, PIXELS, width, n, dnnl_ba, dnnl_ab, SUM),
    };
}

static struct network create(const struct options *options) {
    const size_t hidden = (size_t)options->hidden, stride = largest_batch(options);
    const size_t vectors = divide_up(hidden, LANES);
    // Use no more threads than there are processors or vectors.
    size_t threads = (size_t)(options->threads ? options->threads : omp_get_max_threads());
    threads = threads < (size_t)omp_get_num_procs() ? threads : (size_t)omp_get_num_procs();
    threads = threads < vectors ? threads : vectors;
    // Make as few slices as possible, and as many for one thread as for another.
    const size_t turns = divide_up(vectors * LANES, threads * WIDEST);
    const size_t width = divide_up(vectors, threads * turns) * LANES;
    const size_t slices = divide_up(hidden, width);
    struct network network = {
        .hidden = hidden,
        .width = width,
        .slices = slices,
        .stride = stride,
        .threads = threads,
        .weights1 = allocate_floats(slices * PIXELS * width),
        .bias1 = allocate_floats(slices * width),
        .weights2 = allocate_floats(slices * CLASSES * width),
        .bias2 = allocate_floats(CLASSES),
        .activations = allocate_floats(slices * stride * width),
        .d_hidden = allocate_floats(threads * stride * width),
        .outputs = allocate_floats(threads * stride * CLASSES),
        .shares = allocate_floats(2 * threads * stride * CLASSES),
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

    if (!network.products)
        check(dnnl_out_of_memory);
    const size_t sizes[SIZES] = {stride, (size_t)(options->train_samples % options->batch),
                                 (size_t)(options->test_samples % options->batch)};
    check(dnnl_engine_create(&network.engine, dnnl_cpu, 0));
    omp_set_num_threads(1); // oneDNN compiles for so many
    for (size_t i = 0; i < threads * SIZES; ++i)
        network.products[i] = compile_all(network.engine, sizes[i % SIZES], width);
    return network;
}

static void destroy(struct network *network) {
    for (size_t i = 0; i < network->threads * SIZES; ++i) {
        const struct products *products = &network->products[i];
        if (products->samples == 0)
            continue;
        discard(&products->activations);
        discard(&products->outputs);
        discard(&products->d_hidden);
        discard(&products->weights2);
        discard(&products->weights1);
    }
    check(dnnl_engine_destroy(network->engine));
    free(network->products);
    free(network->weights1);
    free(network->bias1);
    free(network->weights2);
    free(network->bias2);
    free(network->activations);
    free(network->d_hidden);
    free(network->outputs);
    free(network->shares);
}

// Returns the calling thread's part. The runtime may have granted fewer threads than asked for.
static struct part take_part(const struct network *network) {
    const size_t thread = (size_t)omp_get_thread_num(), threads = (size_t)omp_get_num_threads();
    return (struct part){
        .thread = thread,
        .threads = threads,
        .first = network->slices * thread / threads,
        .last = network->slices * (thread + 1) / threads,
        .d_hidden = network->d_hidden + thread * network->stride * network->width,
        .outputs = network->outputs + thread * network->stride * CLASSES,
        .products = network->products + thread * SIZES,
    };
}

static const struct products *products_for(const struct part *part, size_t n) {
    const struct products *products = part->products;
    while (products->samples != n)
        ++products;
    return products;
}

// Sets the part's a and all of p for a batch. Returns its loss.
static double forward(struct network *network, struct part *part, const struct batch *batch) {
    const size_t n = batch->samples, width = network->width, share = network->stride * CLASSES;
    const struct products *products = products_for(part, n);
    float *shares = network->shares + part->turn * part->threads * share;
    float *z = shares + part->thread * share, *restrict p = part->outputs;

    const float zeros[CLASSES] = {0}, *bias2 = part->thread == 0 ? network->bias2 : zeros;
    for (size_t s = 0; s < n; ++s)
        memcpy(z + s * CLASSES, bias2, CLASSES * sizeof(float));
    for (size_t i = part->first; i < part->last; ++i) {
        float *a = network->activations + i * network->stride * width;
        multiply(&products->activations, batch->images, network->weights1 + i * PIXELS * width, a,
                 network->bias1 + i * width);
        multiply(&products->outputs, a, network->weights2 + i * CLASSES * width, z, NULL);
    }

    // After this barrier, a thread may write the next batch's share while another still reads this
    // batch's. So there are two sets, used in turn.
    part->turn ^= 1;
#pragma omp barrier
    memcpy(p, shares, n * CLASSES * sizeof(float));
    for (size_t t = 1; t < part->threads; ++t)
        for (size_t i = 0; i < n * CLASSES; ++i)
            p[i] += shares[t * share + i];

    // These loops are separate, so that the compiler takes its vector functions for exp.
    double loss = 0;
    for (size_t s = 0; s < n; ++s) {
        float *row = p + s * CLASSES, max = row[0];
        for (size_t o = 1; o < CLASSES; ++o)
            max = row[o] > max ? row[o] : max;
        for (size_t o = 0; o < CLASSES; ++o)
            row[o] -= max;
        loss -= row[batch->labels[s]];
    }
    for (size_t i = 0; i < n * CLASSES; ++i)
        p[i] = expf(p[i]);
    for (size_t s = 0; s < n; ++s) {
        float sum = 0;
        for (size_t o = 0; o < CLASSES; ++o)
            sum += p[s * CLASSES + o];
        for (size_t o = 0; o < CLASSES; ++o)
            p[s * CLASSES + o] /= sum;
        loss += logf(sum);
    }
    return loss / (double)n;
}

// Takes the part one step down the gradient of the batch that forward() has just seen. dz is
// multiplied by −lr, and so is all that follows. The results are updates, not gradients.
static void backward(struct network *network, struct part *part, const struct batch *batch,
                     float learning_rate) {
    const size_t n = batch->samples, width = network->width;
    const struct products *products = products_for(part, n);
    float *restrict dz = part->outputs, *restrict da = part->d_hidden;

    for (size_t s = 0; s < n; ++s)
        dz[s * CLASSES + batch->labels[s]] -= 1;
    for (size_t i = 0; i < n * CLASSES; ++i)
        dz[i] *= -learning_rate / (float)n;
    for (size_t s = 0; part->thread == 0 && s < n; ++s)
        for (size_t o = 0; o < CLASSES; ++o)
            network->bias2[o] += dz[s * CLASSES + o];
    for (size_t i = part->first; i < part->last; ++i) {
        const float *restrict a = network->activations + i * network->stride * width;
        float *restrict bias1 = network->bias1 + i * width;
        float *weights2 = network->weights2 + i * CLASSES * width;
        multiply(&products->d_hidden, dz, weights2, da, NULL);
        multiply(&products->weights2, dz, a, weights2, NULL);
        for (size_t s = 0; s < n; ++s) {
            for (size_t h = 0; h < width; ++h) {
                const size_t j = s * width + h;
                da[j] = a[j] > 0 ? da[j] : 0;
                bias1[h] += da[j];
            }
        }
        multiply(&products->weights1, batch->images, da, network->weights1 + i * PIXELS * width,
                 NULL);
    }
}
// Runs all epochs over the training set in file order. The last batch of an epoch may be short.
static void train(struct network *network, const struct dataset *dataset,
                  const struct options *options, struct result *result) {
    const double start = seconds();
#pragma omp parallel num_threads(network->threads)
    {
        struct part part = take_part(network);
        double clock = start;
        for (int epoch = 0; epoch < options->epochs; ++epoch) {
            struct batch batch;
            double loss = 0;
            for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
                batch = batch_at(dataset, first, options->batch);
                loss += forward(network, &part, &batch) * (double)batch.samples;
                if (part.thread == 0)
                    clock = timer_lap(&result->forward, clock);
                backward(network, &part, &batch, options->learning_rate);
                if (part.thread == 0)
                    clock = timer_lap(&result->backward, clock);
            }
            if (part.thread == 0) {
                result->final_loss = loss / dataset->samples;
                report_epoch(options, epoch, result->final_loss);
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
            const float *p = part.outputs + s * CLASSES;
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

int main(int argc, char **argv) {
    struct options options = parse_options(argc, argv, "Trains with oneDNN.", INT_MAX);
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
    if (options.save_weights)
        status = save(&network, options.save_weights);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy(&network);
    free_data(&data);
    return status;
}
