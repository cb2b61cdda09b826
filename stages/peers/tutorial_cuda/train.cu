// 03.2_grid with the habits of neural-network-cuda, a public program that the paper may have
// started from (PAPER.md). Each of these takes one of them away:
//
//     -DACROSS        neighbouring threads have neighbouring columns, not rows
//     -DREGISTER      a sum lies in a register, not in memory
//     -DNO_ATOMICS    a thread sums up what it stores, none adds to what others add to
//     -DNO_WAITS      the host does not wait for each kernel
//     -DNO_COPIES     the host copies no weights and clears no gradient in each batch
//
// Shapes: n samples in a batch, at most N; H hidden units. Arrays are row-major.
#include "stages/training_cuda.h"

#include <math.h>
#include <string.h>

enum {
    // A block has TILE × TILE threads, the most that it may have.
    TILE = 32,
    THREADS = TILE * TILE
};

struct network {
    size_t hidden; // H

    // All parameters lie one after another.
    size_t parameters;
    float *weights1; // 784 × H
    float *bias1;    // H
    float *weights2; // H × 10
    float *bias2;    // 10

    // One batch's intermediate values.
    float *activations;   // N × H: a
    float *d_activations; // N × H: da
    float *logits;        // N × 10: z
    float *d_logits;      // N × 10: dz
    float *losses;        // N: −log p[label], added up over the batches of an epoch
    float *epoch_loss;    // 1: the sum of the losses
};

// Returns how many groups of `size` hold `count`.
static unsigned groups(size_t count, size_t size) {
    return (unsigned)((count + size - 1) / size);
}

// Returns the grid of blocks for a matrix.
static dim3 blocks(size_t rows, size_t columns) {
#ifdef ACROSS
    return dim3(groups(columns, TILE), groups(rows, TILE));
#else
    return dim3(groups(rows, TILE), groups(columns, TILE));
#endif
}

// The row and the column of a thread.
__device__ size_t row_of() {
#ifdef ACROSS
    return blockIdx.y * TILE + threadIdx.y;
#else
    return blockIdx.x * TILE + threadIdx.x;
#endif
}

__device__ size_t column_of() {
#ifdef ACROSS
    return blockIdx.x * TILE + threadIdx.x;
#else
    return blockIdx.y * TILE + threadIdx.y;
#endif
}

static float *allocate(size_t count) {
    float *floats;
    CHECK_ALLOCATION(cudaMallocManaged(&floats, count * sizeof(float)), count * sizeof(float));
    return floats;
}

// Copies a data set to where the device sees it.
static struct dataset upload(const struct dataset *host) {
    const size_t pixels = (size_t)host->samples * PIXELS, samples = (size_t)host->samples;
    struct dataset device = {host->samples, allocate(pixels), NULL};
    CHECK_ALLOCATION(cudaMallocManaged(&device.labels, samples), samples);
    memcpy(device.images, host->images, pixels * sizeof(float));
    memcpy(device.labels, host->labels, samples);
    return device;
}

static void release(struct dataset *device) {
    CHECK(cudaFree(device->images));
    CHECK(cudaFree(device->labels));
}

static struct network create(const struct options *options) {
    const size_t hidden = (size_t)options->hidden, n = largest_batch(options);
    struct network network = {};
    network.hidden = hidden;
    network.parameters = PIXELS * hidden + hidden + hidden * CLASSES + CLASSES;
    network.weights1 = allocate(network.parameters);
    network.bias1 = network.weights1 + PIXELS * hidden;
    network.weights2 = network.bias1 + hidden;
    network.bias2 = network.weights2 + hidden * CLASSES;
    network.activations = allocate(n * hidden);
    network.d_activations = allocate(n * hidden);
    network.logits = allocate(n * CLASSES);
    network.d_logits = allocate(n * CLASSES);
    network.losses = allocate(n);
    network.epoch_loss = allocate(1);

    memset(network.weights1, 0, network.parameters * sizeof(float));
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t i = 0; i < PIXELS * hidden; ++i)
        network.weights1[i] = draw_weight(&generator, PIXELS);
    generator = pcg32_start(options->seed, 2);
    for (size_t i = 0; i < hidden * CLASSES; ++i)
        network.weights2[i] = draw_weight(&generator, hidden);
    return network;
}

static void destroy(struct network *network) {
    CHECK(cudaFree(network->weights1));
    CHECK(cudaFree(network->activations));
    CHECK(cudaFree(network->d_activations));
    CHECK(cudaFree(network->logits));
    CHECK(cudaFree(network->d_logits));
    CHECK(cudaFree(network->losses));
    CHECK(cudaFree(network->epoch_loss));
}

// y = x·W + b: x n × inputs, W inputs × outputs
__global__ void linear_forward(const float *x, const float *weights, const float *bias, float *y,
                               size_t n, size_t inputs, size_t outputs) {
    const size_t s = row_of(), o = column_of();
    if (s >= n || o >= outputs)
        return;
#ifdef REGISTER
    float sum = bias[o];
    for (size_t k = 0; k < inputs; ++k)
        sum += x[s * inputs + k] * weights[k * outputs + o];
    y[s * outputs + o] = sum;
#else
    y[s * outputs + o] = bias[o];
    for (size_t k = 0; k < inputs; ++k)
        y[s * outputs + o] += x[s * inputs + k] * weights[k * outputs + o];
#endif
}

// a = max(0, a)
__global__ void relu_forward(float *a, size_t n, size_t hidden) {
    const size_t s = row_of(), h = column_of();
    if (s < n && h < hidden && !(a[s * hidden + h] > 0))
        a[s * hidden + h] = 0;
}

// p = softmax(z), shifted by the largest z; dz = (p − onehot(label)) / n. Adds to the losses. One
// block is enough for the samples of a batch.
__global__ void softmax_gradient(const float *logits, const uint8_t *labels, float *d_logits,
                                 float *losses, size_t n) {
    for (size_t s = threadIdx.x; s < n; s += THREADS) {
        const float *z = logits + s * CLASSES;
        float *dz = d_logits + s * CLASSES;
        float max = z[0], sum = 0;
        for (int o = 1; o < CLASSES; ++o)
            max = z[o] > max ? z[o] : max;
        for (int o = 0; o < CLASSES; ++o) {
            dz[o] = expf(z[o] - max);
            sum += dz[o];
        }
        for (int o = 0; o < CLASSES; ++o)
            dz[o] = (dz[o] / sum - (o == labels[s])) / (float)n;
        losses[s] += logf(sum) - (z[labels[s]] - max);
    }
}

// dx = dy·Wᵀ. dx is 0 before, if many threads add to it.
__global__ void linear_backward(const float *dy, const float *weights, float *dx, size_t n,
                                size_t inputs, size_t outputs) {
#ifdef NO_ATOMICS
    const size_t s = row_of(), k = column_of();
    if (s >= n || k >= inputs)
        return;
    float sum = 0;
    for (size_t o = 0; o < outputs; ++o)
        sum += dy[s * outputs + o] * weights[k * outputs + o];
    dx[s * inputs + k] = sum;
#else
    const size_t s = row_of(), o = column_of();
    if (s >= n || o >= outputs)
        return;
    for (size_t k = 0; k < inputs; ++k)
        atomicAdd(&dx[s * inputs + k], dy[s * outputs + o] * weights[k * outputs + o]);
#endif
}

// da = da ⊙ [a > 0]
__global__ void relu_backward(const float *a, float *da, size_t n, size_t hidden) {
    const size_t s = row_of(), h = column_of();
    if (s < n && h < hidden && !(a[s * hidden + h] > 0))
        da[s * hidden + h] = 0;
}

// W ← W − lr·xᵀ·dy, b ← b − lr·Σ dy
__global__ void linear_update(const float *x, const float *dy, float *weights, float *bias,
                              size_t n, size_t inputs, size_t outputs, float learning_rate) {
#ifdef NO_ATOMICS
    const size_t k = row_of(), o = column_of();
    if (k >= inputs || o >= outputs)
        return;
    float sum = 0, bias_sum = 0;
    for (size_t s = 0; s < n; ++s)
        sum += x[s * inputs + k] * dy[s * outputs + o];
    weights[k * outputs + o] -= learning_rate * sum;
    if (k == 0) {
        for (size_t s = 0; s < n; ++s)
            bias_sum += dy[s * outputs + o];
        bias[o] -= learning_rate * bias_sum;
    }
#else
    const size_t s = row_of(), o = column_of();
    if (s >= n || o >= outputs)
        return;
    atomicAdd(&bias[o], -learning_rate * dy[s * outputs + o]);
    for (size_t k = 0; k < inputs; ++k)
        atomicAdd(&weights[k * outputs + o],
                  -learning_rate * x[s * inputs + k] * dy[s * outputs + o]);
#endif
}

// Sums the losses, in one thread: there are only as many as samples in a batch.
__global__ void sum_losses(const float *losses, size_t n, float *epoch_loss) {
    float sum = 0;
    for (size_t s = 0; s < n; ++s)
        sum += losses[s];
    *epoch_loss = sum;
}

// Asks whether the last kernel was launched, and waits for it.
static void finish() {
    CHECK(cudaGetLastError());
#ifndef NO_WAITS
    CHECK(cudaDeviceSynchronize());
#endif
}

// Sets a, z and dz for a batch, and adds to the losses.
static void forward(struct network *network, const struct batch *batch) {
    const size_t n = batch->samples, hidden = network->hidden;
    float *const a = network->activations;
    const dim3 block(TILE, TILE);
    linear_forward<<<blocks(n, hidden), block>>>(batch->images, network->weights1, network->bias1,
                                                 a, n, PIXELS, hidden);
    finish();
    relu_forward<<<blocks(n, hidden), block>>>(a, n, hidden);
    finish();
    linear_forward<<<blocks(n, CLASSES), block>>>(a, network->weights2, network->bias2,
                                                  network->logits, n, hidden, CLASSES);
    finish();
    softmax_gradient<<<1, THREADS>>>(network->logits, batch->labels, network->d_logits,
                                     network->losses, n);
    finish();
}

// W ← W − lr·xᵀ·dy, and then dx = dy·Wᵀ by a copy of the old W, or no dx if it is NULL.
static void backward_layer(const float *x, const float *dy, float *weights, float *bias, float *dx,
                           size_t n, size_t inputs, size_t outputs, float learning_rate) {
    const dim3 block(TILE, TILE);
#ifdef NO_ATOMICS
    const dim3 of_weights = blocks(inputs, outputs), of_inputs = blocks(n, inputs);
#else
    const dim3 of_weights = blocks(n, outputs), of_inputs = of_weights;
#endif
#ifdef NO_COPIES
    // The gradient of x comes first, so nobody needs the old W afterwards.
    const float *copy = weights;
    if (dx)
        CHECK(cudaMemset(dx, 0, n * inputs * sizeof(float)));
#else
    CHECK(cudaDeviceSynchronize()); // before the host touches what a kernel may use
    float *copy = allocate(inputs * outputs);
    memcpy(copy, weights, inputs * outputs * sizeof(float));
    if (dx)
        memset(dx, 0, n * inputs * sizeof(float));
#endif
    if (dx) {
        linear_backward<<<of_inputs, block>>>(dy, copy, dx, n, inputs, outputs);
        finish();
        relu_backward<<<blocks(n, inputs), block>>>(x, dx, n, inputs);
        finish();
    }
    linear_update<<<of_weights, block>>>(x, dy, weights, bias, n, inputs, outputs, learning_rate);
    finish();
#ifndef NO_COPIES
    CHECK(cudaFree(copy));
#endif
}

// Updates the weights by the gradient of the batch that forward() has just seen.
static void backward(struct network *network, const struct batch *batch, float learning_rate) {
    const size_t n = batch->samples, hidden = network->hidden;
    backward_layer(network->activations, network->d_logits, network->weights2, network->bias2,
                   network->d_activations, n, hidden, CLASSES, learning_rate);
    backward_layer(batch->images, network->d_activations, network->weights1, network->bias1, NULL,
                   n, PIXELS, hidden, learning_rate);
}

// Runs an epoch over the training set in file order. The last batch may be short. Marks the phases,
// or none if `events` is NULL. Returns the mean loss when the last weight is final.
static double run_epoch(struct network *network, const struct dataset *dataset,
                        const struct options *options, float learning_rate,
                        struct phase_events *events) {
    const size_t n = largest_batch(options);
    struct batch batch;
    CHECK(cudaMemset(network->losses, 0, n * sizeof(float)));
    mark_phase(events);
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        forward(network, &batch);
        mark_phase(events);
        backward(network, &batch, learning_rate);
        mark_phase(events);
    }
    sum_losses<<<1, 1>>>(network->losses, n, network->epoch_loss);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    return *network->epoch_loss / dataset->samples;
}

// Runs all epochs. Before them come some with a learning rate of 0, which leave the weights as they
// are. The first is cold. Others raise the GPU's clock. The last times the phases.
static void train(struct network *network, const struct dataset *dataset,
                  const struct options *options, struct result *result) {
    double start = seconds();
    if (options->epochs > 0 && !is_simulated(result->device)) {
        run_epoch(network, dataset, options, 0, NULL);
        result->warmup_s = seconds() - start;
        while (seconds() - start < warmup_seconds())
            run_epoch(network, dataset, options, 0, NULL);
        struct phase_events events = create_events(options);
        run_epoch(network, dataset, options, 0, &events);
        collect_events(&events, options, result);
    }

    start = seconds();
    for (int epoch = 0; epoch < options->epochs; ++epoch) {
        result->final_loss = run_epoch(network, dataset, options, options->learning_rate, NULL);
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
        CHECK(cudaDeviceSynchronize());
        for (size_t s = 0; s < batch.samples; ++s) {
            const float *z = network->logits + s * CLASSES;
            size_t best = 0;
            for (size_t o = 1; o < CLASSES; ++o)
                best = z[o] > z[best] ? o : best;
            right += best == batch.labels[s];
        }
    }
    return (double)right / dataset->samples;
}

// Writes the weights. They lie in memory in the order of the file. Returns the exit status.
static int save(const struct network *network, const char *path) {
    return write_weights(path, network->hidden, network->weights1, network->bias1,
                         network->weights2, network->bias2);
}

int main(int argc, char **argv) {
    struct options options =
        parse_options(argc, argv, "Trains as a tutorial does, in a GPU's unified memory.", 1);
    struct result result = {};
    struct data data;

    double clock = seconds();
    result.device = open_device();
    result.setup_s = seconds() - clock;
    int status = load_data(&options, &data);
    if (status)
        return status;

    clock = seconds();
    const double used = used_device_mib();
    struct dataset training_set = upload(&data.train), test_set = upload(&data.test);
    struct network network = create(&options);
    result.setup_s += seconds() - clock;

    train(&network, &training_set, &options, &result);
    result.test_accuracy = evaluate(&network, &test_set, &options);
    result.peak_vram_mib = used_device_mib() - used;
    // NaNs must not replace good weights.
    if (options.save_weights && isfinite(result.final_loss))
        status = save(&network, options.save_weights);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy(&network);
    release(&training_set);
    release(&test_set);
    free_data(&data);
    return status;
}
