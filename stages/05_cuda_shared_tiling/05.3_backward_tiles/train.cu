// Stage 05.3: the backward products in tiles. A block copies a tile of each factor to shared
// memory. A thread computes several outputs, so a number that it reads there serves several sums.
//
// Shapes: n samples in a batch, at most N; H hidden units. Arrays are row-major.
#include "stages/training_cuda.h"

#include <math.h>

enum {
    // A block of weight_gradient computes TILE × TILE outputs, and uses each number 32 times over.
    TILE = 32,
    // A thread computes ROWS × COLUMNS of them: 8 multiply-adds for 6 numbers.
    ROWS = 2,
    COLUMNS = 4,
    THREADS_X = TILE / COLUMNS, // bits 1 to 3 of a thread: lanes in pairs have the same columns
    THREADS_Y = TILE / ROWS,    // bits 0, 4, 5 and 6: lanes two apart have the same rows
    THREADS = THREADS_X * THREADS_Y,
    // This many blocks share the pixels of a tile, or most of the GPU would be idle in a small
    // batch. Each has 112 of the 784.
    SLICES = 7,
    SLICE = PIXELS / SLICES,
    // Kernels without tiles have blocks of SIDE × SIDE threads.
    SIDE = 16
};

struct network {
    size_t hidden; // H

    // All parameters lie one after another, and so do their gradients. So one kernel can update all
    // of them.
    size_t parameters;
    float *weights1, *d_weights1; // 784 × H
    float *bias1, *d_bias1;       // H
    float *weights2, *d_weights2; // H × 10
    float *bias2, *d_bias2;       // 10

    // One batch's intermediate values.
    float *sums;          // SLICES × N × H: x·W1, each for a slice of the pixels
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

// Returns the grid of blocks of size × size for a matrix.
static dim3 blocks(size_t rows, size_t columns, size_t size) {
    return dim3(groups(columns, size), groups(rows, size));
}

static float *allocate(size_t count) {
    float *floats;
    CHECK_ALLOCATION(cudaMalloc(&floats, count * sizeof(float)), count * sizeof(float));
    return floats;
}

// Copies a data set to the device.
static struct dataset upload(const struct dataset *host) {
    const size_t pixels = (size_t)host->samples * PIXELS, samples = (size_t)host->samples;
    struct dataset device = {host->samples, allocate(pixels), NULL};
    CHECK_ALLOCATION(cudaMalloc(&device.labels, samples), samples);
    CHECK(cudaMemcpy(device.images, host->images, pixels * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device.labels, host->labels, samples, cudaMemcpyHostToDevice));
    return device;
}

static void release(struct dataset *device) {
    CHECK(cudaFree(device->images));
    CHECK(cudaFree(device->labels));
}

// Copies an array between host and device.
static void copy(float *to, const float *from, size_t count, enum cudaMemcpyKind kind) {
    CHECK(cudaMemcpy(to, from, count * sizeof(float), kind));
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
    network.d_weights1 = allocate(network.parameters);
    network.d_bias1 = network.d_weights1 + PIXELS * hidden;
    network.d_weights2 = network.d_bias1 + hidden;
    network.d_bias2 = network.d_weights2 + hidden * CLASSES;
    network.sums = allocate(SLICES * n * hidden);
    network.activations = allocate(n * hidden);
    network.d_activations = allocate(n * hidden);
    network.logits = allocate(n * CLASSES);
    network.d_logits = allocate(n * CLASSES);
    network.losses = allocate(n);
    network.epoch_loss = allocate(1);

    CHECK(cudaMemset(network.weights1, 0, network.parameters * sizeof(float)));
    float *weights = allocate_floats(PIXELS * hidden);
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t i = 0; i < PIXELS * hidden; ++i)
        weights[i] = draw_weight(&generator, PIXELS);
    copy(network.weights1, weights, PIXELS * hidden, cudaMemcpyHostToDevice);
    generator = pcg32_start(options->seed, 2);
    for (size_t i = 0; i < hidden * CLASSES; ++i)
        weights[i] = draw_weight(&generator, hidden);
    copy(network.weights2, weights, hidden * CLASSES, cudaMemcpyHostToDevice);
    free(weights);
    return network;
}

static void destroy(struct network *network) {
    CHECK(cudaFree(network->weights1));
    CHECK(cudaFree(network->d_weights1));
    CHECK(cudaFree(network->sums));
    CHECK(cudaFree(network->activations));
    CHECK(cudaFree(network->d_activations));
    CHECK(cudaFree(network->logits));
    CHECK(cudaFree(network->d_logits));
    CHECK(cudaFree(network->losses));
    CHECK(cudaFree(network->epoch_loss));
}

// Copies a tile of a matrix to shared memory. Rows from `rows_left` on, and columns from
// `columns_left` on, become zeros. The compiler knows the number of iterations. So it puts all
// loads before the first store, and a thread waits for several at once.
__device__ void load_tile(float tile[TILE][TILE], const float *matrix, size_t stride,
                          size_t rows_left, size_t columns_left) {
    const int thread = threadIdx.x;
#pragma unroll
    for (int first = 0; first < TILE * TILE; first += THREADS) {
        const int r = (first + thread) / TILE, c = (first + thread) % TILE;
        tile[r][c] = (size_t)r < rows_left && (size_t)c < columns_left ? matrix[r * stride + c] : 0;
    }
}

// A slice of x·W1: the sums over SLICE pixels from blockIdx.z · SLICE on. Four blocks on a
// multiprocessor are enough, so a thread may have 64 registers. They hold what it loads for 16
// pixels, before the first multiply-add.
__global__ void __launch_bounds__((SIDE * SIDE), 4)
    hidden_sums(const float *x, const float *weights1, float *sums, size_t n, size_t hidden) {
    const size_t s = blockIdx.y * SIDE + threadIdx.y, h = blockIdx.x * SIDE + threadIdx.x;
    const size_t k = blockIdx.z * SLICE;
    if (s >= n || h >= hidden)
        return;
    float sum = 0;
#pragma unroll 16
    for (size_t i = 0; i < SLICE; ++i)
        sum += x[s * PIXELS + k + i] * weights1[(k + i) * hidden + h];
    sums[(blockIdx.z * n + s) * hidden + h] = sum;
}

// a = max(0, Σ sums + b1), a block for each sample.
__global__ void hidden_layer(const float *sums, const float *bias1, float *activations, size_t n,
                             size_t hidden) {
    const size_t s = blockIdx.x;
    for (size_t h = threadIdx.x; h < hidden; h += THREADS) {
        float sum = bias1[h];
        for (int slice = 0; slice < SLICES; ++slice)
            sum += sums[(slice * n + s) * hidden + h];
        activations[s * hidden + h] = sum > 0 ? sum : 0;
    }
}

// z = a·W2 + b2
__global__ void output_layer(const float *activations, const float *weights2, const float *bias2,
                             float *logits, size_t n, size_t hidden) {
    const size_t s = blockIdx.y * SIDE + threadIdx.y, o = blockIdx.x * SIDE + threadIdx.x;
    if (s >= n || o >= CLASSES)
        return;
    float sum = bias2[o];
    for (size_t h = 0; h < hidden; ++h)
        sum += activations[s * hidden + h] * weights2[h * CLASSES + o];
    logits[s * CLASSES + o] = sum;
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

// dW = xᵀ·dy for a tile of dW, and db = Σ dy in the blocks of its first rows: x n × inputs,
// dy n × outputs, dW inputs × outputs.
__global__ void __launch_bounds__(THREADS, 2)
    weight_gradient(const float *x, const float *dy, float *d_weights, float *d_bias, size_t n,
                    size_t inputs, size_t outputs) {
    __shared__ alignas(16) float x_tile[TILE][TILE], dy_tile[TILE][TILE];
    const size_t k = blockIdx.y * TILE, o = blockIdx.x * TILE;
    const int thread = threadIdx.x, column = thread / 2 % THREADS_X * COLUMNS;
    const int row = (thread % 2 + thread / (2 * THREADS_X) * 2) * ROWS;
    float sum[ROWS][COLUMNS] = {}, bias_sum = 0;
    for (size_t s = 0; s < n; s += TILE) {
        load_tile(x_tile, x + s * inputs + k, inputs, n - s, inputs - k);
        load_tile(dy_tile, dy + s * outputs + o, outputs, n - s, outputs - o);
        __syncthreads();
        for (int i = 0; i < TILE; ++i)
            for (int r = 0; r < ROWS; ++r)
                for (int c = 0; c < COLUMNS; ++c)
                    sum[r][c] += x_tile[i][row + r] * dy_tile[i][column + c];
        if (k == 0 && thread < TILE)
            for (int i = 0; i < TILE; ++i)
                bias_sum += dy_tile[i][thread];
        __syncthreads();
    }
    for (int r = 0; r < ROWS && k + row + r < inputs; ++r)
        for (int c = 0; c < COLUMNS && o + column + c < outputs; ++c)
            d_weights[(k + row + r) * outputs + o + column + c] = sum[r][c];
    if (k == 0 && thread < TILE && o + thread < outputs)
        d_bias[o + thread] = bias_sum;
}

// da = (dz·W2ᵀ) ⊙ [a > 0]
__global__ void hidden_gradient(const float *d_logits, const float *weights2,
                                const float *activations, float *d_activations, size_t n,
                                size_t hidden) {
    const size_t s = blockIdx.y * SIDE + threadIdx.y, h = blockIdx.x * SIDE + threadIdx.x;
    if (s >= n || h >= hidden)
        return;
    float sum = 0;
    for (int o = 0; o < CLASSES; ++o)
        sum += d_logits[s * CLASSES + o] * weights2[h * CLASSES + o];
    d_activations[s * hidden + h] = activations[s * hidden + h] > 0 ? sum : 0;
}

// θ ← θ − lr·dθ
__global__ void update(float *parameters, const float *gradient, size_t count,
                       float learning_rate) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        parameters[i] -= learning_rate * gradient[i];
}

// Sums the losses, in one thread: there are only as many as samples in a batch.
__global__ void sum_losses(const float *losses, size_t n, float *epoch_loss) {
    float sum = 0;
    for (size_t s = 0; s < n; ++s)
        sum += losses[s];
    *epoch_loss = sum;
}

// Sets a, z and dz for a batch, and adds to the losses.
static void forward(struct network *network, const struct batch *batch) {
    const size_t n = batch->samples, hidden = network->hidden;
    const dim3 block(SIDE, SIDE);
    dim3 grid = blocks(n, hidden, SIDE);
    grid.z = SLICES;
    hidden_sums<<<grid, block>>>(batch->images, network->weights1, network->sums, n, hidden);
    CHECK(cudaGetLastError());
    hidden_layer<<<(unsigned)n, THREADS>>>(network->sums, network->bias1, network->activations, n,
                                           hidden);
    CHECK(cudaGetLastError());
    output_layer<<<blocks(n, CLASSES, SIDE), block>>>(network->activations, network->weights2,
                                                      network->bias2, network->logits, n, hidden);
    CHECK(cudaGetLastError());
    softmax_gradient<<<1, THREADS>>>(network->logits, batch->labels, network->d_logits,
                                     network->losses, n);
    CHECK(cudaGetLastError());
}

// Updates the weights by the gradient of the batch that forward() has just seen.
static void backward(struct network *network, const struct batch *batch, float learning_rate) {
    const size_t n = batch->samples, hidden = network->hidden;
    hidden_gradient<<<blocks(n, hidden, SIDE), dim3(SIDE, SIDE)>>>(
        network->d_logits, network->weights2, network->activations, network->d_activations, n,
        hidden);
    CHECK(cudaGetLastError());
    weight_gradient<<<blocks(hidden, CLASSES, TILE), THREADS>>>(
        network->activations, network->d_logits, network->d_weights2, network->d_bias2, n, hidden,
        CLASSES);
    CHECK(cudaGetLastError());
    weight_gradient<<<blocks(PIXELS, hidden, TILE), THREADS>>>(
        batch->images, network->d_activations, network->d_weights1, network->d_bias1, n, PIXELS,
        hidden);
    CHECK(cudaGetLastError());
    update<<<groups(network->parameters, THREADS), THREADS>>>(
        network->weights1, network->d_weights1, network->parameters, learning_rate);
    CHECK(cudaGetLastError());
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
    float loss;
    copy(&loss, network->epoch_loss, 1, cudaMemcpyDeviceToHost);
    return loss / dataset->samples;
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
                       const uint8_t *labels, const struct options *options) {
    float *logits = allocate_floats(largest_batch(options) * CLASSES);
    struct batch batch;
    size_t right = 0;
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        forward(network, &batch);
        copy(logits, network->logits, batch.samples * CLASSES, cudaMemcpyDeviceToHost);
        for (size_t s = 0; s < batch.samples; ++s) {
            const float *z = logits + s * CLASSES;
            size_t best = 0;
            for (size_t o = 1; o < CLASSES; ++o)
                best = z[o] > z[best] ? o : best;
            right += best == labels[first + s];
        }
    }
    free(logits);
    return (double)right / dataset->samples;
}

// Writes the weights, copied back to the host. Returns the exit status.
static int save(const struct network *network, const char *path) {
    const size_t hidden = network->hidden;
    float *weights1 = allocate_floats(PIXELS * hidden), *bias1 = allocate_floats(hidden);
    float *weights2 = allocate_floats(hidden * CLASSES), *bias2 = allocate_floats(CLASSES);
    copy(weights1, network->weights1, PIXELS * hidden, cudaMemcpyDeviceToHost);
    copy(bias1, network->bias1, hidden, cudaMemcpyDeviceToHost);
    copy(weights2, network->weights2, hidden * CLASSES, cudaMemcpyDeviceToHost);
    copy(bias2, network->bias2, CLASSES, cudaMemcpyDeviceToHost);
    int status = write_weights(path, hidden, weights1, bias1, weights2, bias2);
    free(weights1);
    free(bias1);
    free(weights2);
    free(bias2);
    return status;
}

int main(int argc, char **argv) {
    struct options options = parse_options(argc, argv, "Trains on a GPU.", 1);
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
    result.test_accuracy = evaluate(&network, &test_set, data.test.labels, &options);
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
