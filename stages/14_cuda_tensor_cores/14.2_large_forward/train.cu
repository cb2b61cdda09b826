// Stage 14.2: tensor cores make x·W1 of a large network, from two halves of each weight.
//
// Shapes: n samples in a batch, at most N; H hidden units. Arrays are row-major. H is padded to a
// whole number of tiles. The surplus units hold zeros, and stay zero.
#include "common/newer_cuda.h"
#include "common/tensor_cores.h"
#include "stages/training_cuda.h"

#include <math.h>

enum {
    // A block computes TILE × TILE outputs, so it uses each number that it loads 64 times over.
    TILE = 64,
    // A thread computes ROWS × COLUMNS of them: 64 multiply-adds for 16 numbers.
    ROWS = 8,
    COLUMNS = 8,
    THREADS_X = TILE / COLUMNS, // bits 1 to 3 of a thread: lanes in pairs have the same columns
    THREADS_Y = TILE / ROWS,    // bits 0, 4 and 5: lanes two apart have the same rows
    TILE_THREADS = THREADS_X * THREADS_Y,
    // With tensor cores, each of a block's four warps computes a quarter of TALL × TILE outputs.
    TALL = 128,
    WARP = 32,
    // This many blocks share the pixels or samples of a tile, so that 132 multiprocessors share the
    // blocks more evenly. This many pixels or samples are in shared memory at once.
    SLICES = 3,
    DEPTH = 16,
    // Kernels without tiles have blocks of SIDE × SIDE threads.
    SIDE = 16,
    THREADS = 128, // or this many
    // The rows of W2, b2 and dz are this long in memory, a multiple of 16 bytes.
    PADDED_CLASSES = 12
};

struct network {
    size_t units;  // as asked for
    size_t hidden; // H

    // All parameters lie one after another, and so do their gradients. So one kernel can update all
    // of them.
    size_t parameters;
    float *weights1, *d_weights1; // 784 × H
    float *bias1, *d_bias1;       // H
    float *weights2, *d_weights2; // H × PADDED_CLASSES
    float *bias2, *d_bias2;       // PADDED_CLASSES

    // One batch's intermediate values.
    float *sums;          // SLICES × N × H: x·W1, each for a slice of the pixels
    float *activations;   // N × H: a
    float *d_activations; // N × H: da
    float *logits;        // N × 10: z
    float *d_logits;      // N × PADDED_CLASSES: dz
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

// Copies a matrix of rows × columns between host and device, each with its stride.
static void copy_matrix(float *to, size_t to_stride, const float *from, size_t from_stride,
                        size_t rows, size_t columns, enum cudaMemcpyKind kind) {
    CHECK(cudaMemcpy2D(to, to_stride * sizeof(float), from, from_stride * sizeof(float),
                       columns * sizeof(float), rows, kind));
}

static float *allocate_zeroed(size_t count) {
    float *floats = allocate(count);
    CHECK(cudaMemset(floats, 0, count * sizeof(float)));
    return floats;
}

static struct network create(const struct options *options) {
    const size_t units = (size_t)options->hidden, n = largest_batch(options);
    const size_t hidden = (units + TILE - 1) / TILE * TILE;
    struct network network = {};
    network.units = units;
    network.hidden = hidden;
    network.parameters = PIXELS * hidden + hidden + hidden * PADDED_CLASSES + PADDED_CLASSES;
    network.weights1 = allocate_zeroed(network.parameters);
    network.bias1 = network.weights1 + PIXELS * hidden;
    network.weights2 = network.bias1 + hidden;
    network.bias2 = network.weights2 + hidden * PADDED_CLASSES;
    network.d_weights1 = allocate(SLICES * network.parameters); // one after another
    network.d_bias1 = network.d_weights1 + PIXELS * hidden;
    network.d_weights2 = network.d_bias1 + hidden;
    network.d_bias2 = network.d_weights2 + hidden * PADDED_CLASSES;
    network.sums = allocate(SLICES * n * hidden);
    network.activations = allocate(n * hidden);
    network.d_activations = allocate(n * hidden);
    network.logits = allocate(n * CLASSES);
    network.d_logits = allocate_zeroed(n * PADDED_CLASSES);
    network.losses = allocate(n);
    network.epoch_loss = allocate(1);

    float *weights = allocate_floats(PIXELS * units);
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t i = 0; i < PIXELS * units; ++i)
        weights[i] = draw_weight(&generator, PIXELS);
    copy_matrix(network.weights1, hidden, weights, units, PIXELS, units, cudaMemcpyHostToDevice);
    generator = pcg32_start(options->seed, 2);
    for (size_t i = 0; i < units * CLASSES; ++i)
        weights[i] = draw_weight(&generator, units);
    copy_matrix(network.weights2, PADDED_CLASSES, weights, CLASSES, units, CLASSES,
                cudaMemcpyHostToDevice);
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

// Copies a tile of rows × columns numbers to shared memory, four at a time. Columns and strides are
// multiples of 4, rows × columns of 4 · TILE_THREADS. Rows from `rows_left` on, and columns from
// `columns_left` on, become zeros. The compiler knows the number of iterations. So it puts all
// loads before the first store, and a thread waits for memory once.
__device__ void load_tile(float *tile, int pitch, const float *matrix, size_t stride, int rows,
                          int columns, size_t rows_left, size_t columns_left) {
    const int thread = threadIdx.x;
#pragma unroll
    for (int first = 0; first < rows * columns / 4; first += TILE_THREADS) {
        const int r = (first + thread) / (columns / 4), c = (first + thread) % (columns / 4) * 4;
        float4 four = make_float4(0, 0, 0, 0);
        if ((size_t)r < rows_left && (size_t)c < columns_left)
            four = *(const float4 *)(matrix + r * stride + c);
        *(float4 *)(tile + r * pitch + c) = four;
    }
}

// Makes each of two numbers the sum of two halves.
__device__ void split(float first, float second, uint32_t *high, uint32_t *low) {
    *high = pack_f16(first, second);
    const float2 rounded = unpack_f16(*high);
    *low = pack_f16((first - rounded.x) * 2048, (second - rounded.y) * 2048);
}

// A factor of a tile, as words of two halves, which are neighbours along the sums. A lane gives
// four of them to an `mma`: of 16 rows of x, or of 16 columns of the other factor.
struct alignas(16) factor {
    uint32_t high[TALL / 16][WARP][4], low[TALL / 16][WARP][4];
};

// Returns where the word of a row of x, or of a column, and of a pair along the sums is.
__device__ uint32_t *word_at(uint32_t (*words)[WARP][4], bool is_x, int row, int pair) {
    const int half = row / 8 % 2, other = pair / 4;
    return &words[row / 16][row % 8 * 4 + pair % 4][is_x ? half + 2 * other : other + 2 * half];
}

// Splits DEPTH rows of a matrix, four numbers at a time.
__device__ void load_rows(struct factor *factor, const float *matrix, size_t stride) {
    const int pair = threadIdx.x % (DEPTH / 2), c = threadIdx.x / (DEPTH / 2) * 4;
    alignas(16) float two[2][4];
    for (int j = 0; j < 2; ++j)
        *(float4 *)two[j] = *(const float4 *)(matrix + (2 * pair + j) * stride + c);
    for (int j = 0; j < 4; ++j)
        split(two[0][j], two[1][j], word_at(factor->high, false, c + j, pair),
              word_at(factor->low, false, c + j, pair));
}

// The sums of a warp, 64 rows × 32 columns: tiles of 16 × 8, as tensor_cores.h says. The second
// ones are of halves that are 2048 times as large.
struct sums {
    float high[4][4][4], low[4][4][4];
};

// Adds the products of DEPTH numbers each. x is exact, so it has no second halves.
__device__ void add_product(struct sums *sums, const struct factor &x, const struct factor &y) {
    const int row = threadIdx.x / WARP / 2 * 4, column = threadIdx.x / WARP % 2 * 2;
    const int lane = threadIdx.x % WARP;
    alignas(16) uint32_t a[4], high[2][4], low[2][4];
    for (int j = 0; j < 2; ++j) {
        *(uint4 *)high[j] = *(const uint4 *)y.high[column + j][lane];
        *(uint4 *)low[j] = *(const uint4 *)y.low[column + j][lane];
    }
    for (int i = 0; i < 4; ++i) {
        *(uint4 *)a = *(const uint4 *)x.high[row + i][lane];
        for (int j = 0; j < 4; ++j) {
            mma_f16(sums->high[i][j], a, high[j / 2] + j % 2 * 2);
            mma_f16(sums->low[i][j], a, low[j / 2] + j % 2 * 2);
        }
    }
}

// Stores them, times `factor`.
__device__ void store_sums(const struct sums &sums, float factor, float *to, size_t stride,
                           size_t rows_left) {
    const int row = threadIdx.x / WARP / 2 * 64 + threadIdx.x % WARP / 4;
    const int column = threadIdx.x / WARP % 2 * 32 + threadIdx.x % 4 * 2;
    for (int i = 0; i < 8 && row + i * 8 < (int)rows_left; ++i)
        for (int j = 0; j < 4; ++j) {
            const float *const high = &sums.high[i / 2][j][i % 2 * 2];
            const float *const low = &sums.low[i / 2][j][i % 2 * 2];
            *(float2 *)(to + (row + i * 8) * stride + column + j * 8) =
                make_float2(factor * (high[0] + low[0] / 2048), factor * (high[1] + low[1] / 2048));
        }
}

// A slice of x·W1, for a tile of samples and hidden units.
__global__ void __launch_bounds__(THREADS, 2)
    hidden_sums(const float *x, const float *weights1, float *sums, size_t n, size_t hidden) {
    __shared__ struct factor x_tile, weights_tile;
    const size_t s = blockIdx.y * TALL, h = blockIdx.x * TILE;
    struct sums sum = {};
    for (size_t k = blockIdx.z * DEPTH; k < PIXELS; k += SLICES * DEPTH) {
#pragma unroll
        for (int first = 0; first < TALL * DEPTH / 4; first += THREADS) {
            const int i = first + (int)threadIdx.x, r = i / (DEPTH / 4), pair = i % (DEPTH / 4) * 2;
            const float *const at = x + (s + r) * PIXELS + k + 2 * pair;
            const float4 four = s + r < n ? *(const float4 *)at : make_float4(0, 0, 0, 0);
            *word_at(x_tile.high, true, r, pair) = pack_f16(255 * four.x, 255 * four.y);
            *word_at(x_tile.high, true, r, pair + 1) = pack_f16(255 * four.z, 255 * four.w);
        }
        load_rows(&weights_tile, weights1 + k * hidden + h, hidden);
        __syncthreads();
        add_product(&sum, x_tile, weights_tile);
        __syncthreads();
    }
    store_sums(sum, 1.0f / 255, sums + (blockIdx.z * n + s) * hidden + h, hidden, n - s);
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
        sum += activations[s * hidden + h] * weights2[h * PADDED_CLASSES + o];
    logits[s * CLASSES + o] = sum;
}

// p = softmax(z), shifted by the largest z; dz = (p − onehot(label)) / n. Adds to the losses. One
// block is enough for the samples of a batch.
__global__ void softmax_gradient(const float *logits, const uint8_t *labels, float *d_logits,
                                 float *losses, size_t n) {
    for (size_t s = threadIdx.x; s < n; s += THREADS) {
        const float *z = logits + s * CLASSES;
        float *dz = d_logits + s * PADDED_CLASSES;
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
__global__ void __launch_bounds__(TILE_THREADS, 6)
    weight_gradient(const float *x, const float *dy, float *d_weights, float *d_bias, size_t n,
                    size_t inputs, size_t outputs, size_t parameters) {
    __shared__ alignas(16) float x_tile[DEPTH][TILE], dy_tile[DEPTH][TILE];
    const size_t k = blockIdx.y * TILE, o = blockIdx.x * TILE;
    const int thread = threadIdx.x, column = thread / 2 % THREADS_X * 4;
    const int row = (thread % 2 + thread / (2 * THREADS_X) * 2) * ROWS;
    float sum[ROWS][COLUMNS] = {}, bias_sum = 0;
    for (size_t s = blockIdx.z * DEPTH; s < n; s += SLICES * DEPTH) {
        const int depth = n - s < DEPTH ? (int)(n - s) : DEPTH;
        load_tile(x_tile[0], TILE, x + s * inputs + k, inputs, DEPTH, TILE, depth, inputs - k);
        load_tile(dy_tile[0], TILE, dy + s * outputs + o, outputs, DEPTH, TILE, depth, outputs - o);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < DEPTH; ++i)
            for (int r = 0; r < ROWS; ++r)
                for (int c = 0; c < COLUMNS; ++c)
                    sum[r][c] += x_tile[i][row + r] * dy_tile[i][column + c / 4 * TILE / 2 + c % 4];
        if (k == 0 && thread < TILE)
            for (int i = 0; i < depth; ++i)
                bias_sum += dy_tile[i][thread];
        __syncthreads();
    }
    d_weights += blockIdx.z * parameters;
    d_bias += blockIdx.z * parameters;
    for (int r = 0; r < ROWS && k + row + r < inputs; ++r)
        for (size_t c = 0; c < COLUMNS && o + column + c / 4 * TILE / 2 < outputs; c += 4)
            *(float4 *)(d_weights + (k + row + r) * outputs + o + column + c / 4 * TILE / 2) =
                make_float4(sum[r][c], sum[r][c + 1], sum[r][c + 2], sum[r][c + 3]);
    if (k == 0 && thread < TILE && o + thread < outputs)
        d_bias[o + thread] = bias_sum;
}

// da = (dz·W2ᵀ) ⊙ [a > 0]
__global__ void hidden_gradient(const float *d_logits, const float *weights2,
                                const float *activations, float *d_activations, size_t n,
                                size_t hidden) {
    const size_t s = blockIdx.y * SIDE + threadIdx.y, h = blockIdx.x * SIDE + threadIdx.x;
    if (s >= n)
        return;
    float sum = 0;
    for (int o = 0; o < PADDED_CLASSES; o += 4) { // two surplus classes, which are zero
        const float4 dz = *(const float4 *)(d_logits + s * PADDED_CLASSES + o);
        const float4 w = *(const float4 *)(weights2 + h * PADDED_CLASSES + o);
        sum += dz.x * w.x + dz.y * w.y + dz.z * w.z + dz.w * w.w;
    }
    d_activations[s * hidden + h] = activations[s * hidden + h] > 0 ? sum : 0;
}

// θ ← θ − lr·dθ
__global__ void update(float *parameters, const float *gradient, size_t count,
                       float learning_rate) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    float sum = 0;
    for (int slice = 0; slice < SLICES && i < count; ++slice)
        sum += gradient[slice * count + i];
    if (i < count)
        parameters[i] -= learning_rate * sum;
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
    const dim3 grid(groups(hidden, TILE), groups(n, TALL), SLICES);
    hidden_sums<<<grid, THREADS>>>(batch->images, network->weights1, network->sums, n, hidden);
    CHECK(cudaGetLastError());
    hidden_layer<<<(unsigned)n, THREADS>>>(network->sums, network->bias1, network->activations, n,
                                           hidden);
    CHECK(cudaGetLastError());
    output_layer<<<blocks(n, CLASSES, SIDE), dim3(SIDE, SIDE)>>>(
        network->activations, network->weights2, network->bias2, network->logits, n, hidden);
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
    dim3 grid = blocks(hidden, PADDED_CLASSES, TILE);
    grid.z = SLICES;
    weight_gradient<<<grid, TILE_THREADS>>>(network->activations, network->d_logits,
                                            network->d_weights2, network->d_bias2, n, hidden,
                                            PADDED_CLASSES, network->parameters);
    CHECK(cudaGetLastError());
    grid = blocks(PIXELS, hidden, TILE);
    grid.z = SLICES;
    weight_gradient<<<grid, TILE_THREADS>>>(batch->images, network->d_activations,
                                            network->d_weights1, network->d_bias1, n, PIXELS,
                                            hidden, network->parameters);
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

// Writes the weights, copied back to the host without the padding. Returns the exit status.
static int save(const struct network *network, const char *path) {
    const size_t units = network->units;
    float *weights1 = allocate_floats(PIXELS * units), *bias1 = allocate_floats(units);
    float *weights2 = allocate_floats(units * CLASSES), *bias2 = allocate_floats(CLASSES);
    copy_matrix(weights1, units, network->weights1, network->hidden, PIXELS, units,
                cudaMemcpyDeviceToHost);
    copy(bias1, network->bias1, units, cudaMemcpyDeviceToHost);
    copy_matrix(weights2, CLASSES, network->weights2, PADDED_CLASSES, units, CLASSES,
                cudaMemcpyDeviceToHost);
    copy(bias2, network->bias2, CLASSES, cudaMemcpyDeviceToHost);
    int status = write_weights(path, units, weights1, bias1, weights2, bias2);
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
    result.device = open_newer_device();
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
