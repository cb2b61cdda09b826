// Stage 10.2: W1 is turned in memory, and the block of two hidden units updates their rows of it.
//
// Shapes: n samples in a batch, at most N; H hidden units. Arrays are row-major. H is padded to a
// whole number of tiles. The surplus units hold zeros, and stay zero.
#include "stages/training_cuda.h"

#include <math.h>

enum {
    // A block computes TILE × TILE outputs, so it uses each number that it loads 32 times over.
    TILE = 32,
    // A thread computes ROWS × COLUMNS of them: 8 multiply-adds for 6 numbers.
    ROWS = 2,
    COLUMNS = 4,
    THREADS_X = TILE / COLUMNS, // bits 1 to 3 of a thread: lanes in pairs have the same columns
    THREADS_Y = TILE / ROWS,    // bits 0, 4, 5 and 6: lanes two apart have the same rows
    THREADS = THREADS_X * THREADS_Y,
    WARP = 32,
    // A block of the hidden layer has this many units, and a warp this many samples at a time.
    UNITS = 2,
    SAMPLES = 4,
    // This many samples of a weight gradient are in shared memory at once: two tiles of 8 KiB.
    DEPTH = 64,
    // The rows of W2, b2 and dz are this long in memory, a multiple of 16 bytes.
    PADDED_CLASSES = 12
};

struct network {
    size_t units;  // as asked for
    size_t hidden; // H
    cudaStream_t stream;

    float *weights1; // H × 784: W1ᵀ
    float *bias1;    // H
    float *weights2; // H × PADDED_CLASSES
    float *bias2;    // PADDED_CLASSES

    // One batch's intermediate values.
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

static float *allocate(size_t count) {
    float *floats;
    CHECK_ALLOCATION(cudaMalloc(&floats, count * sizeof(float)), count * sizeof(float));
    return floats;
}

// Copies a data set to the device, as the bytes that its files have.
static struct byte_dataset upload(const struct dataset *host) {
    const size_t pixels = (size_t)host->samples * PIXELS, samples = (size_t)host->samples;
    struct byte_dataset device = {host->samples, NULL, NULL};
    CHECK_ALLOCATION(cudaMalloc(&device.images, pixels), pixels);
    CHECK_ALLOCATION(cudaMalloc(&device.labels, samples), samples);
    std::vector<uint8_t> bytes(pixels);
    for (size_t i = 0; i < pixels; ++i)
        bytes[i] = (uint8_t)lrintf(255 * host->images[i]);
    CHECK(cudaMemcpy(device.images, bytes.data(), pixels, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device.labels, host->labels, samples, cudaMemcpyHostToDevice));
    return device;
}

static void release(struct byte_dataset *device) {
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
    CHECK(cudaStreamCreate(&network.stream));
    network.weights1 = allocate_zeroed(PIXELS * hidden);
    network.bias1 = allocate_zeroed(hidden);
    network.weights2 = allocate_zeroed(hidden * PADDED_CLASSES);
    network.bias2 = allocate_zeroed(PADDED_CLASSES);
    network.activations = allocate(n * hidden);
    network.d_activations = allocate(n * hidden);
    network.logits = allocate(n * CLASSES);
    network.d_logits = allocate_zeroed(n * PADDED_CLASSES);
    network.losses = allocate(n);
    network.epoch_loss = allocate(1);

    float *weights = allocate_floats(PIXELS * units);
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t i = 0; i < PIXELS * units; ++i)
        weights[i % units * PIXELS + i / units] = draw_weight(&generator, PIXELS);
    copy(network.weights1, weights, PIXELS * units, cudaMemcpyHostToDevice);
    generator = pcg32_start(options->seed, 2);
    for (size_t i = 0; i < units * CLASSES; ++i)
        weights[i] = draw_weight(&generator, units);
    copy_matrix(network.weights2, PADDED_CLASSES, weights, CLASSES, units, CLASSES,
                cudaMemcpyHostToDevice);
    free(weights);
    return network;
}

static void destroy(struct network *network) {
    CHECK(cudaStreamDestroy(network->stream));
    CHECK(cudaFree(network->weights1));
    CHECK(cudaFree(network->bias1));
    CHECK(cudaFree(network->weights2));
    CHECK(cudaFree(network->bias2));
    CHECK(cudaFree(network->activations));
    CHECK(cudaFree(network->d_activations));
    CHECK(cudaFree(network->logits));
    CHECK(cudaFree(network->d_logits));
    CHECK(cudaFree(network->losses));
    CHECK(cudaFree(network->epoch_loss));
}

// Returns four numbers from an address that is aligned to as many.
__device__ float4 load_four(const float *from) {
    return *(const float4 *)from;
}

// Returns four bytes as floats.
__device__ float4 load_four(const uint8_t *from) {
    const uchar4 four = *(const uchar4 *)from;
    return make_float4(four.x, four.y, four.z, four.w);
}

// Copies a tile of rows × columns numbers to shared memory, four at a time. Columns and strides are
// multiples of 4, rows × columns of 4 · THREADS. Rows from `rows_left` on, and columns from
// `columns_left` on, become zeros. The compiler knows the number of iterations. So it puts all
// loads before the first store, and a thread waits for memory once.
__device__ void load_tile(float *tile, int pitch, const float *matrix, size_t stride, int rows,
                          int columns, size_t rows_left, size_t columns_left) {
    const int thread = threadIdx.x;
#pragma unroll
    for (int first = 0; first < rows * columns / 4; first += THREADS) {
        const int r = (first + thread) / (columns / 4), c = (first + thread) % (columns / 4) * 4;
        float4 four = make_float4(0, 0, 0, 0);
        if ((size_t)r < rows_left && (size_t)c < columns_left)
            four = load_four(matrix + r * stride + c);
        *(float4 *)(tile + r * pitch + c) = four;
    }
}

// Sets a = max(0, x·W1 + b1) for UNITS hidden units. A warp has SAMPLES samples. Its even lanes
// have every other of them, and the odd lanes the rest. Such a pair of lanes has four pixels in 64,
// and loads the same weights. Past the last sample, a lane repeats it.
__global__ void __launch_bounds__(THREADS, 2)
    forward_units(struct network network, struct byte_batch batch) {
    const size_t n = batch.samples, hidden = network.hidden;
    const size_t h = blockIdx.x * UNITS;
    const float *weights = network.weights1 + h * PIXELS;
    const float bias[UNITS] = {network.bias1[h], network.bias1[h + 1]};
    const int lane = threadIdx.x % WARP, odd = lane % 2;
    for (size_t s = threadIdx.x / WARP * SAMPLES; s < n; s += THREADS / WARP * SAMPLES) {
        float sum[SAMPLES / 2][UNITS] = {};
#pragma unroll
        for (int k = lane / 2 * 4; k < PIXELS; k += WARP / 2 * 4) {
            const float4 w[UNITS] = {load_four(weights + k), load_four(weights + PIXELS + k)};
            for (int i = 0; i < SAMPLES / 2; ++i) {
                const size_t sample = min(s + 2 * i + odd, n - 1);
                const float4 x = load_four(batch.images + sample * PIXELS + k);
                for (int u = 0; u < UNITS; ++u)
                    sum[i][u] =
                        sum[i][u] + x.x * w[u].x + x.y * w[u].y + x.z * w[u].z + x.w * w[u].w;
            }
        }
        // All sums take a step at once. One after the other, each would wait for its shuffles.
        for (int distance = WARP / 2; distance > 1; distance /= 2)
            for (int i = 0; i < SAMPLES / 2; ++i)
                for (int u = 0; u < UNITS; ++u)
                    sum[i][u] += __shfl_xor_sync(0xffffffff, sum[i][u], distance);
        for (int i = 0; i < SAMPLES / 2; ++i)
            for (int u = 0; u < UNITS; ++u) {
                const float a = sum[i][u] * (1.0f / 255) + bias[u];
                if (lane < 2 && s + 2 * i + odd < n)
                    network.activations[(s + 2 * i + odd) * hidden + h + u] = a > 0 ? a : 0;
            }
    }
}

// Returns the sum over the threads of a warp, to all of them.
__device__ float warp_sum(float value) {
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(0xffffffff, value, distance);
    return value;
}

__device__ float warp_max(float value) {
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, distance));
    return value;
}

// Copies a padded row to registers, four numbers at a time.
__device__ void load_row(float *row, const float *from) {
    for (int o = 0; o < PADDED_CLASSES; o += 4)
        *(float4 *)(row + o) = *(const float4 *)(from + o);
}

// One block finishes one sample: z = a·W2 + b2, p = softmax(z) and
// dz = (p − onehot(label)) / n. Adds −log p[label] to the losses. Then da = (dz·W2ᵀ) ⊙ [a > 0].
__global__ void __launch_bounds__(THREADS, 2)
    output_layer(struct network network, struct byte_batch batch) {
    __shared__ float warps[THREADS / WARP][CLASSES], dz[CLASSES];
    const size_t hidden = network.hidden;
    const size_t s = blockIdx.x;
    const int lane = threadIdx.x % WARP;
    // One warp needs these later. Loaded now, they arrive while all compute.
    const int label = batch.labels[s];
    const float loss = network.losses[s];
    float z = lane < CLASSES ? network.bias2[lane] : -INFINITY, part[CLASSES] = {};
    for (size_t h = threadIdx.x; h < hidden; h += THREADS) {
        const float a = network.activations[s * hidden + h];
        alignas(16) float w[PADDED_CLASSES];
        load_row(w, network.weights2 + h * PADDED_CLASSES);
        for (int o = 0; o < CLASSES; ++o)
            part[o] += a * w[o];
    }
    for (int o = 0; o < CLASSES; ++o) {
        const float sum = warp_sum(part[o]);
        if (lane == 0)
            warps[threadIdx.x / WARP][o] = sum;
    }
    __syncthreads();
    if (threadIdx.x < WARP) { // each of the first ten lanes of one warp has an output
        for (int w = 0; w < THREADS / WARP && lane < CLASSES; ++w)
            z += warps[w][lane];
        const float shifted = z - warp_max(z), e = expf(shifted), sum = warp_sum(e);
        if (lane < CLASSES) {
            network.logits[s * CLASSES + lane] = z;
            dz[lane] = (e / sum - (lane == label)) / (float)batch.samples;
            network.d_logits[s * PADDED_CLASSES + lane] = dz[lane];
        }
        if (lane == label)
            network.losses[s] = loss + logf(sum) - shifted;
    }
    __syncthreads();
    for (size_t h = threadIdx.x; h < hidden; h += THREADS) {
        alignas(16) float w[PADDED_CLASSES];
        load_row(w, network.weights2 + h * PADDED_CLASSES);
        float da = 0;
        for (int o = 0; o < CLASSES; ++o)
            da += dz[o] * w[o];
        network.d_activations[s * hidden + h] = network.activations[s * hidden + h] > 0 ? da : 0;
    }
}

// W −= lr·xᵀ·dy for the tile of W at (k, o), and b −= lr·Σ dy if it has the first rows: x n ×
// inputs, dy n × outputs, W inputs × outputs.
__device__ void update_tile(const float *x, const float *dy, float *weights, float *bias, size_t n,
                            size_t inputs, size_t outputs, size_t k, size_t o,
                            float learning_rate) {
    __shared__ alignas(16) float x_tile[DEPTH][TILE], dy_tile[DEPTH][TILE];
    const int thread = threadIdx.x, column = thread / 2 % THREADS_X * COLUMNS;
    const int row = (thread % 2 + thread / (2 * THREADS_X) * 2) * ROWS;
    float sum[ROWS][COLUMNS] = {}, bias_sum = 0;
    for (size_t s = 0; s < n; s += DEPTH) {
        const int depth = n - s < DEPTH ? (int)(n - s) : DEPTH;
        load_tile(x_tile[0], TILE, x + s * inputs + k, inputs, DEPTH, TILE, depth, inputs - k);
        load_tile(dy_tile[0], TILE, dy + s * outputs + o, outputs, DEPTH, TILE, depth, outputs - o);
        __syncthreads();
        for (int i = 0; i < depth; ++i)
            for (int r = 0; r < ROWS; ++r)
                for (int c = 0; c < COLUMNS; ++c)
                    sum[r][c] += x_tile[i][row + r] * dy_tile[i][column + c];
        if (k == 0 && thread < TILE)
            for (int i = 0; i < depth; ++i)
                bias_sum += dy_tile[i][thread];
        __syncthreads();
    }
    for (int r = 0; r < ROWS && k + row + r < inputs && o + column < outputs; ++r) {
        float4 *four = (float4 *)(weights + (k + row + r) * outputs + o + column);
        const float4 old = *four;
        *four = make_float4(old.x - learning_rate * sum[r][0], old.y - learning_rate * sum[r][1],
                            old.z - learning_rate * sum[r][2], old.w - learning_rate * sum[r][3]);
    }
    if (k == 0 && thread < TILE && o + thread < outputs)
        bias[o + thread] -= learning_rate * bias_sum;
}

// W1ᵀ −= lr·daᵀ·x and b1 −= lr·Σ da for UNITS hidden units. A thread has four pixels. The last warp
// has the fewest, and does b1: a lane has a unit, and every sixteenth sample.
__device__ void update_units(struct network network, struct byte_batch batch, size_t h,
                             float learning_rate) {
    const size_t n = batch.samples, hidden = network.hidden;
    for (size_t k = 4 * threadIdx.x; k < PIXELS; k += 4 * THREADS) {
        float sum[4][UNITS] = {};
#pragma unroll 16
        for (size_t s = 0; s < n; ++s) {
            const float4 four = load_four(batch.images + s * PIXELS + k);
            const float x[] = {four.x, four.y, four.z, four.w};
            const float2 da = *(const float2 *)(network.d_activations + s * hidden + h);
            for (int r = 0; r < 4; ++r) {
                sum[r][0] += x[r] * da.x;
                sum[r][1] += x[r] * da.y;
            }
        }
        const float rate = learning_rate / 255; // x is 255 times as large
        for (int u = 0; u < UNITS; ++u) {
            float4 *w = (float4 *)(network.weights1 + (h + u) * PIXELS + k);
            *w = make_float4(w->x - rate * sum[0][u], w->y - rate * sum[1][u],
                             w->z - rate * sum[2][u], w->w - rate * sum[3][u]);
        }
    }
    if (threadIdx.x < THREADS - WARP)
        return;
    const int lane = threadIdx.x % WARP, unit = lane % UNITS;
    float bias1 = 0;
    for (size_t s = lane / UNITS; s < n; s += WARP / UNITS)
        bias1 += network.d_activations[s * hidden + h + unit];
    for (int distance = WARP / 2; distance >= UNITS; distance /= 2)
        bias1 += __shfl_xor_sync(0xffffffff, bias1, distance);
    if (lane < UNITS)
        network.bias1[h + unit] -= learning_rate * bias1;
}

// Updates the rows of W1ᵀ of UNITS hidden units, or a tile of W2 in the last blocks.
__global__ void __launch_bounds__(THREADS, 2)
    update_weights(struct network network, struct byte_batch batch, float learning_rate) {
    const size_t h = blockIdx.x * UNITS, hidden = network.hidden;
    if (h < hidden)
        update_units(network, batch, h, learning_rate);
    else
        update_tile(network.activations, network.d_logits, network.weights2, network.bias2,
                    batch.samples, hidden, PADDED_CLASSES, (h - hidden) / UNITS * TILE, 0,
                    learning_rate);
}

// Sums the losses, in one thread: there are only as many as samples in a batch.
__global__ void sum_losses(const float *losses, size_t n, float *epoch_loss) {
    float sum = 0;
    for (size_t s = 0; s < n; ++s)
        sum += losses[s];
    *epoch_loss = sum;
}

// Sets a, z, dz and da for a batch, and adds to the losses.
static void forward(struct network *network, const struct byte_batch *batch) {
    forward_units<<<groups(network->hidden, UNITS), THREADS, 0, network->stream>>>(*network,
                                                                                   *batch);
    CHECK(cudaGetLastError());
    output_layer<<<(unsigned)batch->samples, THREADS, 0, network->stream>>>(*network, *batch);
    CHECK(cudaGetLastError());
}

// Updates the weights by the gradient of the batch that forward() has just seen.
static void backward(struct network *network, const struct byte_batch *batch, float learning_rate) {
    const unsigned count = groups(network->hidden, UNITS) + groups(network->hidden, TILE);
    update_weights<<<count, THREADS, 0, network->stream>>>(*network, *batch, learning_rate);
    CHECK(cudaGetLastError());
}

// Gives the stream an epoch over the training set in file order. The last batch may be short. Marks
// the phases, or none if `events` is NULL.
static void submit_epoch(struct network *network, const struct byte_dataset *dataset,
                         const struct options *options, float learning_rate,
                         struct phase_events *events) {
    const size_t n = largest_batch(options);
    struct byte_batch batch;
    CHECK(cudaMemsetAsync(network->losses, 0, n * sizeof(float), network->stream));
    mark_phase(events, network->stream);
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        forward(network, &batch);
        mark_phase(events, network->stream);
        backward(network, &batch, learning_rate);
        mark_phase(events, network->stream);
    }
    sum_losses<<<1, 1, 0, network->stream>>>(network->losses, n, network->epoch_loss);
    CHECK(cudaGetLastError());
}

// Records an epoch, with its pointers, its batches and the learning rate. Nothing of it runs yet.
static cudaGraphExec_t record_epoch(struct network *network, const struct byte_dataset *dataset,
                                    const struct options *options) {
    cudaGraph_t graph;
    cudaGraphExec_t epoch;
    CHECK(cudaStreamBeginCapture(network->stream, cudaStreamCaptureModeGlobal));
    submit_epoch(network, dataset, options, options->learning_rate, NULL);
    CHECK(cudaStreamEndCapture(network->stream, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&epoch, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphUpload(epoch, network->stream)); // or the first launch would do it
    CHECK(cudaStreamSynchronize(network->stream));
    return epoch;
}

// Returns the mean loss of the last epoch, when its last weight is final.
static double wait_for_loss(const struct network *network, const struct byte_dataset *dataset) {
    float loss;
    copy(&loss, network->epoch_loss, 1, cudaMemcpyDeviceToHost);
    return loss / dataset->samples;
}

// Runs all epochs. Before them come some with a learning rate of 0, which leave the weights as they
// are. The first is cold. Others raise the GPU's clock. The last times the phases.
static void train(struct network *network, const struct byte_dataset *dataset,
                  const struct options *options, struct result *result) {
    if (options->epochs == 0)
        return;
    double start = seconds();
    if (!is_simulated(result->device)) {
        submit_epoch(network, dataset, options, 0, NULL);
        wait_for_loss(network, dataset);
        result->warmup_s = seconds() - start;
        while (seconds() - start < warmup_seconds()) {
            submit_epoch(network, dataset, options, 0, NULL);
            wait_for_loss(network, dataset);
        }
        struct phase_events events = create_events(options);
        submit_epoch(network, dataset, options, 0, &events);
        wait_for_loss(network, dataset);
        collect_events(&events, options, result);
    }

    start = seconds();
    cudaGraphExec_t recorded = record_epoch(network, dataset, options);
    result->setup_s += seconds() - start;

    start = seconds();
    for (int epoch = 0; epoch < options->epochs; ++epoch) {
        CHECK(cudaGraphLaunch(recorded, network->stream));
        result->final_loss = wait_for_loss(network, dataset);
        start = report_epoch(options, epoch, result->final_loss, start); // not timed
    }
    result->train_s = seconds() - start;
    CHECK(cudaGraphExecDestroy(recorded));
}

// Returns the fraction of samples whose most probable class is their label.
static double evaluate(struct network *network, const struct byte_dataset *dataset,
                       const uint8_t *labels, const struct options *options) {
    float *logits = allocate_floats(largest_batch(options) * CLASSES);
    struct byte_batch batch;
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
    float *rows = allocate_floats(units * PIXELS);
    copy(rows, network->weights1, units * PIXELS, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < PIXELS * units; ++i)
        weights1[i] = rows[i % units * PIXELS + i / units];
    free(rows);
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
    result.device = open_device();
    result.setup_s = seconds() - clock;
    int status = load_data(&options, &data);
    if (status)
        return status;

    clock = seconds();
    const double used = used_device_mib();
    struct byte_dataset training_set = upload(&data.train), test_set = upload(&data.test);
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
