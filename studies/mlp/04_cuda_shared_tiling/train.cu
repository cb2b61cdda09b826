// Stage 04: the products in tiles. A block copies the numbers that its threads need to shared
// memory, once. Each thread keeps the sums of several outputs in registers. All three products of a
// layer have two matrices in rows that do not fit each other, and a tile turns what has to be
// turned. The update is fused into the weight gradient, the bias and the ReLU into the product.
//
// Shapes: n samples in a batch, at most N; a layer has I inputs and O outputs, both padded to a
// whole number of tiles. Only the 784 pixels are not padded. The surplus units hold zeros, and stay
// zero. Arrays are row-major.
#include "studies/mlp/training_cuda.h"

#include <math.h>

enum {
    // A block computes TILE × TILE outputs: enough to use what it loads 32 times, and few enough
    // that a batch of 32 occupies more than a few blocks.
    TILE = 32,
    // A thread computes ROWS × COLUMNS outputs: a step is 8 multiply-adds for 6 numbers. The
    // compiler reads them from shared memory two or four at a time.
    ROWS = 2,
    COLUMNS = 4,
    THREADS_X = TILE / COLUMNS,
    THREADS_Y = TILE / ROWS,
    THREADS = THREADS_X * THREADS_Y,
    // A block sums at most so many products of a forward tile. More inputs are shared among blocks,
    // or most of the GPU would be idle. Both tiles (33 KiB) are in shared memory at once.
    MAX_SLICE = 128,
    // So much of a gradient's sums is in shared memory at once.
    DEPTH = 64,
    // The last weights and dz have this many columns, so that they are whole tiles too.
    PADDED_CLASSES = TILE,
    WARP = 32
};

struct layer {
    size_t inputs, outputs;             // I, O
    size_t input_stride, output_stride; // padded
    size_t slices, slice; // the inputs that the blocks of a tile share, and each one's

    float *weights; // I × O, padded
    float *bias;    // O, padded

    // One batch's values; none of them in the output layer, except dz.
    float *values;   // N × O, padded: a
    float *d_values; // N × O, padded: dz
};

struct network {
    int layers; // the hidden ones and the output layer
    struct layer layer[MAX_LAYERS];
    float *sums;       // slices × N × O, padded: x·W, each for a slice of the inputs
    float *logits;     // N × 10: z
    float *losses;     // N: −log p[label], added up over the batches of an epoch
    float *epoch_loss; // 1: the sum of the losses
};

// The grid of blocks for a matrix. Its rows lie along x, where a grid may be longer.
static dim3 blocks(size_t rows, size_t columns) {
    return dim3((unsigned)((rows + TILE - 1) / TILE), (unsigned)((columns + TILE - 1) / TILE));
}

static float *allocate(size_t count) {
    float *floats;
    CHECK_ALLOCATION(cudaMalloc(&floats, count * sizeof(float)), count * sizeof(float));
    return floats;
}

// Copies host memory to the device. It is pinned during the copy, so that the device can fetch it
// without a detour through the driver's own buffer.
static void copy_pinned(void *device, const void *host, size_t bytes) {
    CHECK(cudaHostRegister((void *)host, bytes, cudaHostRegisterDefault));
    CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaHostUnregister((void *)host));
}

// Copies a data set to the device.
static struct dataset upload(const struct dataset *host) {
    const size_t pixels = (size_t)host->samples * PIXELS, samples = (size_t)host->samples;
    struct dataset device = {host->samples, allocate(pixels), NULL};
    CHECK_ALLOCATION(cudaMalloc(&device.labels, samples), samples);
    copy_pinned(device.images, host->images, pixels * sizeof(float));
    copy_pinned(device.labels, host->labels, samples);
    return device;
}

static void release(struct dataset *device) {
    CHECK(cudaFree(device->images));
    CHECK(cudaFree(device->labels));
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

// Returns the next whole number of tiles.
static size_t padded(size_t count) {
    return (count + TILE - 1) / TILE * TILE;
}

static struct network create(const struct options *options) {
    const size_t n = largest_batch(options);
    struct network network = {};
    network.layers = options->layers;
    size_t sums = 0;
    for (int l = 0; l < network.layers; ++l) {
        struct layer *layer = &network.layer[l];
        const bool is_hidden = l + 1 < network.layers;
        layer->inputs = options->sizes[l];
        layer->outputs = options->sizes[l + 1];
        layer->input_stride = l > 0 ? padded(layer->inputs) : (size_t)PIXELS;
        layer->output_stride = padded(layer->outputs);
        // As even as a slice that is a multiple of 4 can be.
        layer->slices = (layer->input_stride + MAX_SLICE - 1) / MAX_SLICE;
        layer->slice = (layer->input_stride / 4 + layer->slices - 1) / layer->slices * 4;
        layer->weights = allocate_zeroed(layer->input_stride * layer->output_stride);
        layer->bias = allocate_zeroed(layer->output_stride);
        layer->values = is_hidden ? allocate(n * layer->output_stride) : NULL;
        layer->d_values = allocate_zeroed(n * layer->output_stride);
        if (is_hidden && layer->slices > 1 && layer->slices * layer->output_stride > sums)
            sums = layer->slices * layer->output_stride;

        float *weights = draw_weights(options, l);
        copy_matrix(layer->weights, layer->output_stride, weights, layer->outputs, layer->inputs,
                    layer->outputs, cudaMemcpyHostToDevice);
        free(weights);
    }
    network.sums = allocate(n * sums);
    network.logits = allocate(n * CLASSES);
    network.losses = allocate(n);
    network.epoch_loss = allocate(1);
    return network;
}

static void destroy(struct network *network) {
    for (int l = 0; l < network->layers; ++l) {
        const struct layer *layer = &network->layer[l];
        CHECK(cudaFree(layer->weights));
        CHECK(cudaFree(layer->bias));
        CHECK(cudaFree(layer->values));
        CHECK(cudaFree(layer->d_values));
    }
    CHECK(cudaFree(network->sums));
    CHECK(cudaFree(network->logits));
    CHECK(cudaFree(network->losses));
    CHECK(cudaFree(network->epoch_loss));
}

// Copies a tile of rows × columns numbers to shared memory, four at a time. Columns and strides are
// multiples of 4, rows × columns of 4 · THREADS. Rows from `rows_left` on, and columns from
// `columns_left` on, become zeros. The compiler knows the number of steps. So it puts all loads
// before the first store, and a thread waits for memory once.
__device__ void load_tile(float *tile, int tile_stride, const float *matrix, size_t stride,
                          int rows, int columns, size_t rows_left, size_t columns_left) {
    const int thread = threadIdx.y * THREADS_X + threadIdx.x;
#pragma unroll
    for (int first = 0; first < rows * columns / 4; first += THREADS) {
        const int r = (first + thread) / (columns / 4), c = (first + thread) % (columns / 4) * 4;
        float4 four = make_float4(0, 0, 0, 0);
        if ((size_t)r < rows_left && (size_t)c < columns_left)
            four = *(const float4 *)(matrix + r * stride + c);
        *(float4 *)(tile + r * tile_stride + c) = four;
    }
}

// The same, turned: element (r, c) goes to row c of the tile.
__device__ void load_turned(float *tile, int tile_stride, const float *matrix, size_t stride,
                            int rows, int columns, size_t rows_left, size_t columns_left) {
    const int thread = threadIdx.y * THREADS_X + threadIdx.x;
#pragma unroll
    for (int first = 0; first < rows * columns / 4; first += THREADS) {
        const int r = (first + thread) / (columns / 4), c = (first + thread) % (columns / 4) * 4;
        float4 four = make_float4(0, 0, 0, 0);
        if ((size_t)r < rows_left && (size_t)c < columns_left)
            four = *(const float4 *)(matrix + r * stride + c);
        tile[c * tile_stride + r] = four.x;
        tile[(c + 1) * tile_stride + r] = four.y;
        tile[(c + 2) * tile_stride + r] = four.z;
        tile[(c + 3) * tile_stride + r] = four.w;
    }
}

// A slice of x·W: the sums over the inputs from blockIdx.z · slice on, for a tile of samples and
// outputs. With a bias there is only one slice, and y = max(0, x·W + b). Otherwise the sums of the
// slices are written one after another. Two blocks on a multiprocessor are enough. So the compiler
// has registers for all loads at once.
__global__ void __launch_bounds__(THREADS, 2)
    forward_products(const float *x, const float *weights, const float *bias, float *y, size_t n,
                     size_t inputs, size_t outputs, size_t slice) {
    // The rows are a float4 longer, so that the rows that a warp reads begin in different banks.
    __shared__ alignas(16) float x_tile[TILE][MAX_SLICE + 4];
    __shared__ alignas(16) float weights_tile[MAX_SLICE][TILE];
    const size_t s = blockIdx.x * TILE, o = blockIdx.y * TILE, k = blockIdx.z * slice;
    const int row = threadIdx.y * ROWS, column = threadIdx.x * COLUMNS;
    const int depth = inputs - k < slice ? (int)(inputs - k) : (int)slice;
    load_tile(x_tile[0], MAX_SLICE + 4, x + s * inputs + k, inputs, TILE, MAX_SLICE, n - s, depth);
    load_tile(weights_tile[0], TILE, weights + k * outputs + o, outputs, MAX_SLICE, TILE, depth,
              TILE);
    __syncthreads();

    float sum[ROWS][COLUMNS] = {};
    for (int i = 0; i < depth; ++i)
        for (int r = 0; r < ROWS; ++r)
            for (int c = 0; c < COLUMNS; ++c)
                sum[r][c] += x_tile[row + r][i] * weights_tile[i][column + c];

    if (bias != NULL) {
        for (int c = 0; c < COLUMNS; ++c) {
            const float b = bias[o + column + c];
            for (int r = 0; r < ROWS; ++r)
                sum[r][c] = sum[r][c] + b > 0 ? sum[r][c] + b : 0;
        }
    }
    for (int r = 0; r < ROWS && s + row + r < n; ++r)
        *(float4 *)(y + (blockIdx.z * n + s + row + r) * outputs + o + column) =
            make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
}

// a = max(0, Σ sums + b), for n × outputs values.
__global__ void __launch_bounds__(THREADS)
    finish_layer(const float *sums, const float *bias, float *y, size_t count, size_t outputs,
                 size_t slices) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    float a = bias[i % outputs];
    for (size_t slice = 0; slice < slices; ++slice)
        a += sums[slice * count + i];
    y[i] = a > 0 ? a : 0;
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

// One block takes one sample: z = a·W + b, p = softmax(z) and dz = (p − onehot(label)) / n. Adds
// −log p[label] to the losses.
__global__ void __launch_bounds__(THREADS)
    output_layer(const float *values, const float *weights, const float *bias,
                 const uint8_t *labels, float *logits, float *d_logits, float *losses, size_t n,
                 size_t stride) {
    __shared__ float warps[THREADS / WARP][CLASSES];
    const size_t s = blockIdx.x;
    const int lane = threadIdx.x % WARP;
    float part[CLASSES] = {};
    for (size_t h = threadIdx.x; h < stride; h += THREADS) {
        const float a = values[s * stride + h];
        for (int o = 0; o < CLASSES; ++o)
            part[o] += a * weights[h * PADDED_CLASSES + o];
    }
    for (int o = 0; o < CLASSES; ++o) {
        const float sum = warp_sum(part[o]);
        if (lane == 0)
            warps[threadIdx.x / WARP][o] = sum;
    }
    __syncthreads();
    if (threadIdx.x >= WARP)
        return;

    // Only one warp goes on. Each of its first ten lanes has an output.
    float z = -INFINITY;
    if (lane < CLASSES) {
        z = bias[lane];
        for (int w = 0; w < THREADS / WARP; ++w)
            z += warps[w][lane];
        logits[s * CLASSES + lane] = z;
    }
    const float shifted = z - warp_max(z), e = expf(shifted), sum = warp_sum(e);
    if (lane < CLASSES)
        d_logits[s * PADDED_CLASSES + lane] = (e / sum - (lane == labels[s])) / (float)n;
    if (lane == labels[s])
        losses[s] += logf(sum) - shifted;
}

// W −= lr·xᵀ·dy for a tile of W, and b −= lr·Σ dy in the blocks of its first rows: x n × inputs,
// dy n × outputs, W inputs × outputs. The gradient goes from the registers to the weights.
__global__ void __launch_bounds__(THREADS, 2)
    weight_gradient(const float *x, const float *dy, float *weights, float *bias, size_t n,
                    size_t inputs, size_t outputs, float learning_rate) {
    __shared__ alignas(16) float x_tile[DEPTH][TILE];
    __shared__ alignas(16) float dy_tile[DEPTH][TILE];
    const size_t k = blockIdx.x * TILE, o = blockIdx.y * TILE;
    const int row = threadIdx.y * ROWS, column = threadIdx.x * COLUMNS;
    const int thread = threadIdx.y * THREADS_X + threadIdx.x;
    float sum[ROWS][COLUMNS] = {}, bias_sum = 0;
    for (size_t first = 0; first < n; first += DEPTH) {
        const int depth = n - first < DEPTH ? (int)(n - first) : DEPTH;
        load_tile(x_tile[0], TILE, x + first * inputs + k, inputs, DEPTH, TILE, depth, inputs - k);
        load_tile(dy_tile[0], TILE, dy + first * outputs + o, outputs, DEPTH, TILE, depth, TILE);
        __syncthreads();
        for (int i = 0; i < depth; ++i)
            for (int r = 0; r < ROWS; ++r)
                for (int c = 0; c < COLUMNS; ++c)
                    sum[r][c] += x_tile[i][row + r] * dy_tile[i][column + c];
        if (blockIdx.x == 0 && thread < TILE)
            for (int i = 0; i < depth; ++i)
                bias_sum += dy_tile[i][thread];
        __syncthreads();
    }
    for (int r = 0; r < ROWS && k + row + r < inputs; ++r) {
        float4 *four = (float4 *)(weights + (k + row + r) * outputs + o + column);
        const float4 old = *four;
        *four = make_float4(old.x - learning_rate * sum[r][0], old.y - learning_rate * sum[r][1],
                            old.z - learning_rate * sum[r][2], old.w - learning_rate * sum[r][3]);
    }
    if (blockIdx.x == 0 && thread < TILE)
        bias[o + thread] -= learning_rate * bias_sum;
}

// dx = (dy·Wᵀ) ⊙ [x > 0] for a tile of samples and inputs: dy n × outputs, W inputs × outputs. The
// sums run along the rows of both. So both tiles are turned on their way to shared memory: there a
// step reads one row of each.
__global__ void __launch_bounds__(THREADS, 2)
    input_gradient(const float *dy, const float *weights, const float *x, float *dx, size_t n,
                   size_t inputs, size_t outputs) {
    // The rows are a float4 longer, so that a warp writes to four banks at once, not to two.
    __shared__ alignas(16) float dy_tile[DEPTH][TILE + 4];
    __shared__ alignas(16) float weights_tile[DEPTH][TILE + 4];
    const size_t s = blockIdx.x * TILE, k = blockIdx.y * TILE;
    const int row = threadIdx.y * ROWS, column = threadIdx.x * COLUMNS;
    const int samples = n - s < TILE ? (int)(n - s) : TILE;
    float sum[ROWS][COLUMNS] = {};
    for (size_t first = 0; first < outputs; first += DEPTH) {
        const int depth = outputs - first < DEPTH ? (int)(outputs - first) : DEPTH;
        load_turned(dy_tile[0], TILE + 4, dy + s * outputs + first, outputs, TILE, DEPTH, samples,
                    depth);
        load_turned(weights_tile[0], TILE + 4, weights + k * outputs + first, outputs, TILE, DEPTH,
                    TILE, depth);
        __syncthreads();
        for (int i = 0; i < depth; ++i)
            for (int r = 0; r < ROWS; ++r)
                for (int c = 0; c < COLUMNS; ++c)
                    sum[r][c] += dy_tile[i][row + r] * weights_tile[i][column + c];
        __syncthreads();
    }
    for (int r = 0; r < ROWS && row + r < samples; ++r) {
        const size_t place = (s + row + r) * inputs + k + column;
        const float4 a = *(const float4 *)(x + place);
        *(float4 *)(dx + place) = make_float4(a.x > 0 ? sum[r][0] : 0, a.y > 0 ? sum[r][1] : 0,
                                              a.z > 0 ? sum[r][2] : 0, a.w > 0 ? sum[r][3] : 0);
    }
}

// Sums the losses, in one thread: there are only as many as samples in a batch.
__global__ void sum_losses(const float *losses, size_t n, float *epoch_loss) {
    float sum = 0;
    for (size_t s = 0; s < n; ++s)
        sum += losses[s];
    *epoch_loss = sum;
}

// Sets all a, z and its dz for a batch, and adds to the losses.
static void forward(struct network *network, const struct batch *batch) {
    const size_t n = batch->samples;
    const dim3 block(THREADS_X, THREADS_Y);
    const float *x = batch->images;
    for (int l = 0; l + 1 < network->layers; ++l) {
        const struct layer *layer = &network->layer[l];
        const bool is_whole = layer->slices == 1;
        const size_t count = n * layer->output_stride;
        dim3 grid = blocks(n, layer->output_stride);
        grid.z = (unsigned)layer->slices;
        forward_products<<<grid, block>>>(x, layer->weights, is_whole ? layer->bias : NULL,
                                          is_whole ? layer->values : network->sums, n,
                                          layer->input_stride, layer->output_stride, layer->slice);
        CHECK(cudaGetLastError());
        if (!is_whole) {
            finish_layer<<<(unsigned)((count + THREADS - 1) / THREADS), THREADS>>>(
                network->sums, layer->bias, layer->values, count, layer->output_stride,
                layer->slices);
            CHECK(cudaGetLastError());
        }
        x = layer->values;
    }
    const struct layer *last = &network->layer[network->layers - 1];
    output_layer<<<(unsigned)n, THREADS>>>(x, last->weights, last->bias, batch->labels,
                                           network->logits, last->d_values, network->losses, n,
                                           last->input_stride);
    CHECK(cudaGetLastError());
}

// Updates the weights by the gradient of the batch that forward() has just seen. The gradient of a
// layer's inputs needs its weights as they were before the update, so it comes first.
static void backward(struct network *network, const struct batch *batch, float learning_rate) {
    const size_t n = batch->samples;
    const dim3 block(THREADS_X, THREADS_Y);
    for (int l = network->layers - 1; l >= 0; --l) {
        const struct layer *layer = &network->layer[l];
        const float *x = l > 0 ? layer[-1].values : batch->images;
        if (l > 0) {
            input_gradient<<<blocks(n, layer->input_stride), block>>>(
                layer->d_values, layer->weights, x, layer[-1].d_values, n, layer->input_stride,
                layer->output_stride);
            CHECK(cudaGetLastError());
        }
        weight_gradient<<<blocks(layer->input_stride, layer->output_stride), block>>>(
            x, layer->d_values, layer->weights, layer->bias, n, layer->input_stride,
            layer->output_stride, learning_rate);
        CHECK(cudaGetLastError());
    }
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
    CHECK(cudaMemcpy(&loss, network->epoch_loss, sizeof loss, cudaMemcpyDeviceToHost));
    return loss / dataset->samples;
}

// Runs all epochs. Before them come some with a learning rate of 0, which leave the weights as they
// are. The first is cold. Others raise the GPU's clock. In the last, events time the phases.
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
        CHECK(cudaMemcpy(logits, network->logits, batch.samples * CLASSES * sizeof(float),
                         cudaMemcpyDeviceToHost));
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
static int save(const struct network *network, const struct options *options) {
    float *weights[MAX_LAYERS], *biases[MAX_LAYERS];
    for (int l = 0; l < network->layers; ++l) {
        const struct layer *layer = &network->layer[l];
        weights[l] = allocate_floats(layer->inputs * layer->outputs);
        biases[l] = allocate_floats(layer->outputs);
        copy_matrix(weights[l], layer->outputs, layer->weights, layer->output_stride, layer->inputs,
                    layer->outputs, cudaMemcpyDeviceToHost);
        copy_matrix(biases[l], layer->outputs, layer->bias, layer->output_stride, 1, layer->outputs,
                    cudaMemcpyDeviceToHost);
    }
    int status = write_weights(options, weights, biases);
    for (int l = 0; l < network->layers; ++l) {
        free(weights[l]);
        free(biases[l]);
    }
    return status;
}

int main(int argc, char **argv) {
    struct options options = parse_options(argc, argv, "Trains on a GPU, in tiles.", 1);
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
    if (options.common.save && isfinite(result.final_loss))
        status = save(&network, &options);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy(&network);
    release(&training_set);
    release(&test_set);
    free_data(&data);
    return status;
}
