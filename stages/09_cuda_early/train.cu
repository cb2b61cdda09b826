// Stage 09: a kernel begins before the one before it has ended, and loads what that does not store.
//
// Shapes: n samples in a batch, at most N; H hidden units. Arrays are row-major. H is padded to a
// whole number of tiles. The surplus units hold zeros, and stay zero.
#include "common/newer_cuda.h"
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
    // This many blocks share the pixels of a tile, or most of the GPU would be idle in a small
    // batch. Each has 112 of the 784. Its two tiles (29 KiB) are in shared memory at once.
    SLICES = 7,
    SLICE = PIXELS / SLICES,
    // This many samples of a weight gradient are in shared memory at once: two tiles of 8 KiB.
    DEPTH = 64,
    // The rows of W2, b2 and dz are this long in memory, a multiple of 16 bytes.
    PADDED_CLASSES = 12
};

struct network {
    size_t units;  // as asked for
    size_t hidden; // H
    cudaStream_t stream;

    float *weights1; // 784 × H
    float *bias1;    // H
    float *weights2; // H × PADDED_CLASSES
    float *bias2;    // PADDED_CLASSES

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

// Returns the grid of blocks for a matrix.
static dim3 blocks(size_t rows, size_t columns) {
    return dim3(groups(columns, TILE), groups(rows, TILE));
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
    CHECK(cudaStreamCreate(&network.stream));
    network.weights1 = allocate_zeroed(PIXELS * hidden);
    network.bias1 = allocate_zeroed(hidden);
    network.weights2 = allocate_zeroed(hidden * PADDED_CLASSES);
    network.bias2 = allocate_zeroed(PADDED_CLASSES);
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
    CHECK(cudaStreamDestroy(network->stream));
    CHECK(cudaFree(network->weights1));
    CHECK(cudaFree(network->bias1));
    CHECK(cudaFree(network->weights2));
    CHECK(cudaFree(network->bias2));
    CHECK(cudaFree(network->sums));
    CHECK(cudaFree(network->activations));
    CHECK(cudaFree(network->d_activations));
    CHECK(cudaFree(network->logits));
    CHECK(cudaFree(network->d_logits));
    CHECK(cudaFree(network->losses));
    CHECK(cudaFree(network->epoch_loss));
}

// Waits until the kernel before has ended and its stores can be seen. Only then may the next kernel
// begin. So when a kernel begins, all have ended but the one before it. Until it has called this,
// it loads only what that one does not store, and stores only to shared memory.
__device__ void wait_for_kernel_before() {
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
}

// Copies a tile of rows × columns numbers to shared memory, four at a time. Columns and strides are
// multiples of 4, rows × columns of 4 · THREADS. Rows from `rows_left` on, and columns from
// `columns_left` on, become zeros. The compiler knows the number of iterations. So it puts all
// loads before the first store, and a thread waits for memory once. Of 32 bits, indices are quick.
__device__ void load_tile(float *tile, int pitch, const float *matrix, unsigned stride, int rows,
                          int columns, unsigned rows_left, unsigned columns_left) {
    const unsigned thread = threadIdx.x;
#pragma unroll
    for (int first = 0; first < rows * columns / 4; first += THREADS) {
        const unsigned r = (first + thread) / (columns / 4);
        const unsigned c = (first + thread) % (columns / 4) * 4;
        float4 four = make_float4(0, 0, 0, 0);
        if (r < rows_left && c < columns_left)
            four = *(const float4 *)(matrix + r * stride + c);
        *(float4 *)(tile + r * pitch + c) = four;
    }
}

// A slice of x·W1: the sums over SLICE pixels from blockIdx.z · SLICE on, for a tile of samples and
// hidden units. Two blocks on a multiprocessor are enough, and leave registers for all loads.
__global__ void __launch_bounds__(THREADS, 2)
    hidden_sums(const float *x, const float *weights1, float *sums, size_t n, size_t hidden) {
    __shared__ alignas(16) float x_tile[TILE][SLICE + 4], weights_tile[SLICE][TILE];
    const size_t s = blockIdx.y * TILE, h = blockIdx.x * TILE, k = blockIdx.z * SLICE;
    const int thread = threadIdx.x, column = thread / 2 % THREADS_X * COLUMNS;
    const int row = (thread % 2 + thread / (2 * THREADS_X) * 2) * ROWS;
    load_tile(x_tile[0], SLICE + 4, x + s * PIXELS + k, PIXELS, TILE, SLICE, n - s, SLICE);
    wait_for_kernel_before(); // it has updated W1
    load_tile(weights_tile[0], TILE, weights1 + k * hidden + h, hidden, SLICE, TILE, SLICE, TILE);
    __syncthreads();
    float sum[ROWS][COLUMNS] = {};
    for (int i = 0; i < SLICE; ++i)
        for (int r = 0; r < ROWS; ++r)
            for (int c = 0; c < COLUMNS; ++c)
                sum[r][c] += x_tile[row + r][i] * weights_tile[i][column + c];
    for (int r = 0; r < ROWS && s + row + r < n; ++r)
        *(float4 *)(sums + (blockIdx.z * n + s + row + r) * hidden + h + column) =
            make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
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

// One block finishes one sample: a = max(0, Σ sums + b1), z = a·W2 + b2, p = softmax(z) and
// dz = (p − onehot(label)) / n. Adds −log p[label] to the losses. Then da = (dz·W2ᵀ) ⊙ [a > 0].
__global__ void __launch_bounds__(THREADS, 2)
    output_layer(const float *sums, const float *bias1, const float *weights2, const float *bias2,
                 const uint8_t *labels, float *activations, float *logits, float *d_logits,
                 float *d_activations, float *losses, size_t n, size_t hidden) {
    __shared__ float warps[THREADS / WARP][CLASSES], dz[CLASSES];
    const size_t s = blockIdx.x;
    const int lane = threadIdx.x % WARP;
    // One warp needs these later. Loaded now, they arrive while all wait or compute.
    const int label = labels[s];
    const float loss = losses[s];
    float z = lane < CLASSES ? bias2[lane] : -INFINITY, part[CLASSES] = {};
    wait_for_kernel_before(); // it has set the sums
    for (size_t h = threadIdx.x; h < hidden; h += THREADS) {
        // Behind the store of a, the loads of W2 would wait until the sums are there.
        alignas(16) float w[PADDED_CLASSES];
        load_row(w, weights2 + h * PADDED_CLASSES);
        float a = bias1[h];
        for (int slice = 0; slice < SLICES; ++slice)
            a += sums[(slice * n + s) * hidden + h];
        a = a > 0 ? a : 0;
        activations[s * hidden + h] = a;
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
            logits[s * CLASSES + lane] = z;
            dz[lane] = (e / sum - (lane == label)) / (float)n;
            d_logits[s * PADDED_CLASSES + lane] = dz[lane];
        }
        if (lane == label)
            losses[s] = loss + logf(sum) - shifted;
    }
    __syncthreads();
    for (size_t h = threadIdx.x; h < hidden; h += THREADS) {
        alignas(16) float w[PADDED_CLASSES];
        load_row(w, weights2 + h * PADDED_CLASSES);
        float da = 0;
        for (int o = 0; o < CLASSES; ++o)
            da += dz[o] * w[o];
        d_activations[s * hidden + h] = activations[s * hidden + h] > 0 ? da : 0;
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
    // Loaded now, the weights arrive with the tiles. Behind the sums, each row would be a wait.
    const bool is_inside = k + row < inputs && o + column < outputs; // ROWS divides the inputs
    float4 old[ROWS] = {};
    for (int r = 0; r < ROWS && is_inside; ++r)
        old[r] = *(const float4 *)(weights + (k + row + r) * outputs + o + column);
    for (size_t s = 0; s < n; s += DEPTH) {
        const int depth = n - s < DEPTH ? (int)(n - s) : DEPTH;
        load_tile(x_tile[0], TILE, x + s * inputs + k, inputs, DEPTH, TILE, depth, inputs - k);
        if (s == 0)
            wait_for_kernel_before(); // it has set dy
        load_tile(dy_tile[0], TILE, dy + s * outputs + o, outputs, DEPTH, TILE, depth, outputs - o);
        __syncthreads();
#pragma unroll 16
        for (int i = 0; i < depth; ++i)
            for (int r = 0; r < ROWS; ++r)
                for (int c = 0; c < COLUMNS; ++c)
                    sum[r][c] += x_tile[i][row + r] * dy_tile[i][column + c];
        if (k == 0 && thread < TILE)
            for (int i = 0; i < depth; ++i)
                bias_sum += dy_tile[i][thread];
        __syncthreads();
    }
    for (int r = 0; r < ROWS && is_inside; ++r)
        *(float4 *)(weights + (k + row + r) * outputs + o + column) =
            make_float4(old[r].x - learning_rate * sum[r][0], old[r].y - learning_rate * sum[r][1],
                        old[r].z - learning_rate * sum[r][2], old[r].w - learning_rate * sum[r][3]);
    if (k == 0 && thread < TILE && o + thread < outputs)
        bias[o + thread] -= learning_rate * bias_sum;
}

// Updates a tile of W1 in each block, or of W2 in the last row of blocks.
__global__ void __launch_bounds__(THREADS, 2)
    update_weights(struct network network, struct batch batch, float learning_rate) {
    const size_t n = batch.samples, hidden = network.hidden, k = blockIdx.y * TILE,
                 h = blockIdx.x * TILE;
    if (k < PIXELS)
        update_tile(batch.images, network.d_activations, network.weights1, network.bias1, n, PIXELS,
                    hidden, k, h, learning_rate);
    else {
        wait_for_kernel_before(); // it has set a, too
        update_tile(network.activations, network.d_logits, network.weights2, network.bias2, n,
                    hidden, PADDED_CLASSES, h, 0, learning_rate);
    }
}

// Sums the losses, in one thread: there are only as many as samples in a batch.
__global__ void sum_losses(const float *losses, size_t n, float *epoch_loss) {
    float sum = 0;
    for (size_t s = 0; s < n; ++s)
        sum += losses[s];
    *epoch_loss = sum;
}

// Returns how to launch a kernel that may begin before the one in front of it has ended.
static cudaLaunchConfig_t early(dim3 grid, cudaStream_t stream) {
    static cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = THREADS;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return config;
}

// Sets a, z, dz and da for a batch, and adds to the losses.
static void forward(struct network *network, const struct batch *batch) {
    const size_t n = batch->samples, hidden = network->hidden;
    dim3 grid = blocks(n, hidden);
    grid.z = SLICES;
    cudaLaunchConfig_t config = early(grid, network->stream);
    CHECK(cudaLaunchKernelEx(&config, hidden_sums, batch->images, network->weights1, network->sums,
                             n, hidden));
    config = early((unsigned)n, network->stream);
    CHECK(cudaLaunchKernelEx(&config, output_layer, network->sums, network->bias1,
                             network->weights2, network->bias2, batch->labels, network->activations,
                             network->logits, network->d_logits, network->d_activations,
                             network->losses, n, hidden));
}

// Updates the weights by the gradient of the batch that forward() has just seen.
static void backward(struct network *network, const struct batch *batch, float learning_rate) {
    dim3 grid = blocks(PIXELS, network->hidden);
    ++grid.y; // W2's
    const cudaLaunchConfig_t config = early(grid, network->stream);
    CHECK(cudaLaunchKernelEx(&config, update_weights, *network, *batch, learning_rate));
}

// Gives the stream an epoch over the training set in file order. The last batch may be short. Marks
// the phases, or none if `events` is NULL.
static void submit_epoch(struct network *network, const struct dataset *dataset,
                         const struct options *options, float learning_rate,
                         struct phase_events *events) {
    const size_t n = largest_batch(options);
    struct batch batch;
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
static cudaGraphExec_t record_epoch(struct network *network, const struct dataset *dataset,
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
static double wait_for_loss(const struct network *network, const struct dataset *dataset) {
    float loss;
    copy(&loss, network->epoch_loss, 1, cudaMemcpyDeviceToHost);
    return loss / dataset->samples;
}

// Runs all epochs. Before them come some with a learning rate of 0, which leave the weights as they
// are. The first is cold. Others raise the GPU's clock. The last times the phases.
static void train(struct network *network, const struct dataset *dataset,
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
