// Stage 04: a block for each image, and the dense layers in tiles. A block takes an image through
// both convolutions, forward and later back, and keeps its channels in shared memory. A thread
// keeps the four sums of a pool in registers, for several filters. A pool passes its gradient to
// one of its four values. So the gradient of a filter needs a quarter of the products. The update
// is fused into the gradients of the dense layers.
//
// Shapes: n samples in a batch, at most N. Arrays are row-major, in the order sample, channel, row,
// column. The formulas are in 00_serial. The last of m1's 13 rows and columns is not computed: it
// only reaches values of a2 that are in no pool.
#include "studies/cnn/training_cuda.h"

#include <math.h>
#include <stdlib.h>

enum {
    WARP = 32,
    PARAMETERS =
        WEIGHTS1 + CHANNELS1 + WEIGHTS2 + CHANNELS2 + WEIGHTS3 + HIDDEN + WEIGHTS4 + CLASSES,
    // The first of them are W1, b1, W2 and b2.
    FILTERS = WEIGHTS1 + CHANNELS1 + WEIGHTS2 + CHANNELS2,

    WINDOW = POOL * POOL,
    USED2 = POOL * POOLED2,     // 10: rows and columns of a2 that are in a pool
    USED1 = USED2 + KERNEL - 1, // 12: rows and columns of m1 that these need
    POOLS1 = USED1 * USED1,
    POOLS2 = POOLED2 * POOLED2,
    // The channels of m1 and the filters are some numbers longer than needed. So those that a warp
    // reads at once begin in different banks of the shared memory.
    STRIDE1 = POOLS1 + 4,
    FILTER2 = CHANNELS1 * TAPS + 2,
    TURNED2 = CHANNELS2 * TAPS + 4,
    BORDERED2 = USED2 + 2 * (KERNEL - 1), // 14: with a border of zeros, two wide
    IMAGE2 = BORDERED2 * BORDERED2,

    // Of the first convolution, a thread has four filters of a pool, and of the second two.
    FILTERS1 = 4,
    FILTERS2 = 2,
    IMAGE_THREADS = POOLS1 * CHANNELS1 / FILTERS1, // 288
    // On the way back, a thread has 2 × 2 values of m1, in two channels. Whole warps of other
    // threads have one channel of a filter each.
    PATCHES = POOLS1 / WINDOW,
    PATCH_CHANNELS = 2,
    PATCH_THREADS = PATCHES * CHANNELS1 / PATCH_CHANNELS,      // 144
    FILTER_THREADS = (PATCH_THREADS + WARP - 1) / WARP * WARP, // from 160 on

    // A block of a dense layer computes TILE × TILE outputs, a thread ROWS × COLUMNS.
    TILE = 32,
    ROWS = 2,
    COLUMNS = 4,
    THREADS_X = TILE / COLUMNS,
    THREADS_Y = TILE / ROWS,
    THREADS = THREADS_X * THREADS_Y,
    // So many blocks share the 400 inputs of a tile of the hidden layer.
    SLICES = 4,
    SLICE = FEATURES / SLICES,
    // So much of a gradient's sums is in shared memory at once.
    DEPTH = 64,
    // Rows of whole tiles.
    PADDED_FEATURES = (FEATURES + TILE - 1) / TILE * TILE, // 416
    PADDED_CLASSES = TILE,
    HIDDEN_TILES = PADDED_FEATURES / TILE * (HIDDEN / TILE), // of W3
    OUTPUT_TILES = HIDDEN / TILE                             // of W4
};
static_assert(POOLS2 * CHANNELS2 / FILTERS2 <= IMAGE_THREADS, "a thread for each pool");
static_assert(FILTER_THREADS + CHANNELS1 * CHANNELS2 == IMAGE_THREADS, "a thread for each channel");
static_assert(CHANNELS1 <= IMAGE_THREADS / WARP, "a warp for each filter");
static_assert(WEIGHTS2 % IMAGE_THREADS == 0, "whole rounds of W2");
static_assert(FILTERS % WARP == 0 && FEATURES % (4 * SLICES) == 0, "whole parts");

struct layer {
    float *weights, *bias;     // W, b
    float *v_weights, *v_bias; // their velocities
};

struct network {
    struct layer layer[LAYERS];

    // All parameters lie one after another, as in the file of --save-weights, and so do their
    // velocities.
    float *parameters, *velocity;
    float *d_filters; // N × FILTERS: each image's share in the gradient of W1, b1, W2, b2

    // One batch's values. A choice is the place, 0 to 3, of the largest value of a pool.
    float *m1;         // N × 8 × STRIDE1
    uint8_t *choices1; // N × 8 × 12 × 12
    float *m2;         // N × PADDED_FEATURES
    uint8_t *choices2; // N × 400
    float *sums;       // SLICES × N × 128: m2·W3, each for a slice of the inputs
    float *a3;         // N × 128
    // Their gradients. That of a3 is taken before the ReLU.
    float *d_m2; // N × PADDED_FEATURES
    float *d_a3; // N × 128
    float *d_z;  // N × PADDED_CLASSES

    struct score *scores; // N: of each place in a batch, added up over the batches of an epoch
    struct score *score;  // 1: their sum
};

// Returns how many tiles so many rows take.
static unsigned tiles(size_t rows) {
    return (unsigned)((rows + TILE - 1) / TILE);
}

static void *allocate_bytes(size_t bytes) {
    void *memory;
    CHECK_ALLOCATION(cudaMalloc(&memory, bytes), bytes);
    return memory;
}

static float *allocate(size_t count) {
    return (float *)allocate_bytes(count * sizeof(float));
}

static float *allocate_zeroed(size_t count) {
    float *floats = allocate(count);
    CHECK(cudaMemset(floats, 0, count * sizeof(float)));
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
    struct dataset device = {host->samples, allocate(pixels), (uint8_t *)allocate_bytes(samples)};
    copy_pinned(device.images, host->images, pixels * sizeof(float));
    copy_pinned(device.labels, host->labels, samples);
    return device;
}

static void release(struct dataset *device) {
    CHECK(cudaFree(device->images));
    CHECK(cudaFree(device->labels));
}

static struct network create(const struct options *options) {
    const size_t n = largest_batch(options);
    const size_t weights[LAYERS] = {WEIGHTS1, WEIGHTS2, WEIGHTS3, WEIGHTS4};
    const size_t biases[LAYERS] = {CHANNELS1, CHANNELS2, HIDDEN, CLASSES};
    struct network network = {};
    network.parameters = allocate_zeroed(PARAMETERS);
    network.velocity = allocate_zeroed(PARAMETERS);
    size_t place = 0;
    for (int l = 0; l < LAYERS; ++l) {
        struct layer *layer = &network.layer[l];
        layer->weights = network.parameters + place;
        layer->v_weights = network.velocity + place;
        layer->bias = layer->weights + weights[l];
        layer->v_bias = layer->v_weights + weights[l];
        place += weights[l] + biases[l];

        float *drawn = draw_weights(options, l + 1);
        CHECK(
            cudaMemcpy(layer->weights, drawn, weights[l] * sizeof(float), cudaMemcpyHostToDevice));
        free(drawn);
    }
    network.d_filters = allocate(n * FILTERS);
    network.m1 = allocate(n * CHANNELS1 * STRIDE1);
    network.choices1 = (uint8_t *)allocate_bytes(n * CHANNELS1 * POOLS1);
    network.m2 = allocate_zeroed(n * PADDED_FEATURES);
    network.choices2 = (uint8_t *)allocate_bytes(n * FEATURES);
    network.sums = allocate(SLICES * n * HIDDEN);
    network.a3 = allocate(n * HIDDEN);
    network.d_m2 = allocate(n * PADDED_FEATURES);
    network.d_a3 = allocate(n * HIDDEN);
    network.d_z = allocate_zeroed(n * PADDED_CLASSES);
    network.scores = (struct score *)allocate_bytes(n * sizeof(struct score));
    network.score = (struct score *)allocate_bytes(sizeof(struct score));
    return network;
}

static void destroy(struct network *network) {
    CHECK(cudaFree(network->parameters));
    CHECK(cudaFree(network->velocity));
    CHECK(cudaFree(network->d_filters));
    CHECK(cudaFree(network->m1));
    CHECK(cudaFree(network->choices1));
    CHECK(cudaFree(network->m2));
    CHECK(cudaFree(network->choices2));
    CHECK(cudaFree(network->sums));
    CHECK(cudaFree(network->a3));
    CHECK(cudaFree(network->d_m2));
    CHECK(cudaFree(network->d_a3));
    CHECK(cudaFree(network->d_z));
    CHECK(cudaFree(network->scores));
    CHECK(cudaFree(network->score));
}

// Copies so many numbers, four at a time, with the threads of an image. The number of rounds is
// known to the compiler.
template <int COUNT> __device__ void copy(float *to, const float *from) {
    for (int round = 0; round < (COUNT / 4 + IMAGE_THREADS - 1) / IMAGE_THREADS; ++round) {
        const int i = round * IMAGE_THREADS + threadIdx.x;
        if (i < COUNT / 4)
            ((float4 *)to)[i] = ((const float4 *)from)[i];
    }
}

// Returns where a pool's value lies in its image of so many columns. The pools of a row come first,
// and `choice` is the value's place in the pool, 0 to 3.
__device__ int place_of(int pool, int pools_in_row, int choice, int columns) {
    const int row = POOL * (pool / pools_in_row) + choice / POOL;
    const int column = POOL * (pool % pools_in_row) + choice % POOL;
    return row * columns + column;
}

// Adds one channel's products to the four sums of a pool, for COUNT filters. The pool's first
// output begins at `corner`, so all four together need 4 × 4 pixels. They are read in pairs, and so
// the corner's row and column are even.
template <int COUNT>
__device__ void add_products(float sum[COUNT][WINDOW], const float *corner, int columns,
                             const float *filters, int filter_stride) {
    float pixels[POOL + KERNEL - 1][POOL + KERNEL - 1];
    for (int i = 0; i < POOL + KERNEL - 1; ++i) {
        for (int j = 0; j < POOL + KERNEL - 1; j += 2) {
            const float2 two = *(const float2 *)(corner + i * columns + j);
            pixels[i][j] = two.x;
            pixels[i][j + 1] = two.y;
        }
    }
    for (int f = 0; f < COUNT; ++f)
        for (int i = 0; i < KERNEL; ++i)
            for (int j = 0; j < KERNEL; ++j) {
                const float weight = filters[f * filter_stride + i * KERNEL + j];
                for (int k = 0; k < WINDOW; ++k)
                    sum[f][k] += weight * pixels[k / POOL + i][k % POOL + j];
            }
}

// Returns the largest of the four sums of a pool, or 0 if it is below, and sets which it is. Of
// equal ones, it is the first.
__device__ float pool(const float sum[WINDOW], uint8_t *choice) {
    float max = sum[0];
    int best = 0;
    for (int k = 1; k < WINDOW; ++k) {
        if (sum[k] > max) {
            max = sum[k];
            best = k;
        }
    }
    *choice = (uint8_t)best;
    return max > 0 ? max : 0;
}

// Takes an image through both convolutions, with ReLU and pool: m1 from x, then m2 from m1. One
// block takes one image.
__global__ void __launch_bounds__(IMAGE_THREADS)
    convolve(const float *images, const float *parameters, float *m1, uint8_t *choices1, float *m2,
             uint8_t *choices2) {
    __shared__ alignas(16) float image[PIXELS];
    __shared__ alignas(16) float channels[CHANNELS1 * STRIDE1];
    __shared__ alignas(16) float filters1[WEIGHTS1 + CHANNELS1]; // W1, b1
    __shared__ float filters2[CHANNELS2 * FILTER2];              // W2
    const float *bias1 = filters1 + WEIGHTS1;
    const float *weights2 = parameters + WEIGHTS1 + CHANNELS1, *bias2 = weights2 + WEIGHTS2;
    const size_t s = blockIdx.x;
    copy<PIXELS>(image, images + s * PIXELS);
    copy<WEIGHTS1 + CHANNELS1>(filters1, parameters);
    for (int round = 0; round < WEIGHTS2 / IMAGE_THREADS; ++round) {
        const int i = round * IMAGE_THREADS + threadIdx.x;
        filters2[i / (CHANNELS1 * TAPS) * FILTER2 + i % (CHANNELS1 * TAPS)] = weights2[i];
    }
    __syncthreads();

    const int pool1 = threadIdx.x % POOLS1, first1 = threadIdx.x / POOLS1 * FILTERS1;
    float sum1[FILTERS1][WINDOW];
    for (int f = 0; f < FILTERS1; ++f)
        for (int k = 0; k < WINDOW; ++k)
            sum1[f][k] = bias1[first1 + f];
    add_products<FILTERS1>(sum1, image + place_of(pool1, USED1, 0, SIDE), SIDE,
                           filters1 + first1 * TAPS, TAPS);
    for (int f = 0; f < FILTERS1; ++f)
        channels[(first1 + f) * STRIDE1 + pool1] =
            pool(sum1[f], &choices1[(s * CHANNELS1 + first1 + f) * POOLS1 + pool1]);
    __syncthreads();
    copy<CHANNELS1 * STRIDE1>(m1 + s * CHANNELS1 * STRIDE1, channels);

    constexpr int GROUPS2 = CHANNELS2 / FILTERS2;
    const int pool2 = threadIdx.x / GROUPS2, first2 = threadIdx.x % GROUPS2 * FILTERS2;
    if (pool2 >= POOLS2)
        return;
    float sum2[FILTERS2][WINDOW];
    for (int f = 0; f < FILTERS2; ++f)
        for (int k = 0; k < WINDOW; ++k)
            sum2[f][k] = bias2[first2 + f];
    for (int c = 0; c < CHANNELS1; ++c)
        add_products<FILTERS2>(sum2, channels + c * STRIDE1 + place_of(pool2, POOLED2, 0, USED1),
                               USED1, filters2 + first2 * FILTER2 + c * TAPS, FILTER2);
    for (int f = 0; f < FILTERS2; ++f)
        m2[s * PADDED_FEATURES + (first2 + f) * POOLS2 + pool2] =
            pool(sum2[f], &choices2[s * FEATURES + (first2 + f) * POOLS2 + pool2]);
}

// What a thread copies of a tile of R × C numbers, four at a time. It loads its parts of all tiles
// before it stores the first. So it waits for memory once.
template <int R, int C> struct part {
    static constexpr int ROUNDS = (R * C / 4 + THREADS - 1) / THREADS;
    float4 fours[ROUNDS];
};

// Loads the thread's part of a tile that begins at `matrix`. Rows from `rows_left` on are zeros.
template <int R, int C>
__device__ part<R, C> load_part(const float *matrix, size_t stride, size_t rows_left) {
    part<R, C> part;
    for (int round = 0; round < part.ROUNDS; ++round) {
        const int i = round * THREADS + threadIdx.y * THREADS_X + threadIdx.x;
        const int r = i / (C / 4), c = i % (C / 4) * 4;
        part.fours[round] = make_float4(0, 0, 0, 0);
        if (r < R && (size_t)r < rows_left)
            part.fours[round] = *(const float4 *)(matrix + r * stride + c);
    }
    return part;
}

// Stores it to shared memory.
template <int R, int C> __device__ void store_part(float tile[R][C], const part<R, C> &part) {
    for (int round = 0; round < part.ROUNDS; ++round) {
        const int i = round * THREADS + threadIdx.y * THREADS_X + threadIdx.x;
        if (i < R * C / 4)
            ((float4 *)tile)[i] = part.fours[round];
    }
}

// The same, turned: element (r, c) goes to row c. A row is a float4 longer, so that a warp
// writes to four banks at once, not to two.
template <int R, int C> __device__ void store_turned(float tile[C][R + 4], const part<R, C> &part) {
    for (int round = 0; round < part.ROUNDS; ++round) {
        const int i = round * THREADS + threadIdx.y * THREADS_X + threadIdx.x;
        const int r = i / (C / 4), c = i % (C / 4) * 4;
        if (r < R) {
            tile[c][r] = part.fours[round].x;
            tile[c + 1][r] = part.fours[round].y;
            tile[c + 2][r] = part.fours[round].z;
            tile[c + 3][r] = part.fours[round].w;
        }
    }
}

// A slice of m2·W3: the sums over the inputs from blockIdx.z · SLICE on, for a tile of samples and
// outputs. The sums of the slices are written one after another.
__global__ void __launch_bounds__(THREADS)
    multiply(const float *x, const float *weights, float *sums, size_t n) {
    // Rows of 100 numbers: those that a warp reads begin in different banks.
    __shared__ alignas(16) float x_tile[TILE][SLICE];
    __shared__ alignas(16) float weights_tile[SLICE][TILE];
    const size_t s = blockIdx.x * TILE;
    const int o = blockIdx.y * TILE, k = blockIdx.z * SLICE;
    const int row = threadIdx.y * ROWS, column = threadIdx.x * COLUMNS;
    const auto x_part = load_part<TILE, SLICE>(x + s * PADDED_FEATURES + k, PADDED_FEATURES, n - s);
    const auto weights_part = load_part<SLICE, TILE>(weights + k * HIDDEN + o, HIDDEN, SLICE);
    __syncthreads(); // all loads come before it
    store_part(x_tile, x_part);
    store_part(weights_tile, weights_part);
    __syncthreads();
    float sum[ROWS][COLUMNS] = {};
    for (int i = 0; i < SLICE; ++i)
        for (int r = 0; r < ROWS; ++r)
            for (int c = 0; c < COLUMNS; ++c)
                sum[r][c] += x_tile[row + r][i] * weights_tile[i][column + c];
    for (int r = 0; r < ROWS && s + row + r < n; ++r)
        *(float4 *)(sums + (blockIdx.z * n + s + row + r) * HIDDEN + o + column) =
            make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
}

// Returns the sum over the threads of a warp, to all of them, in the same order each time.
__device__ float warp_sum(float value) {
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(0xffffffff, value, distance);
    return value;
}

// One block takes one sample, and a thread one hidden unit: a3 = max(0, Σ sums + b3), z = a3·W4 +
// b4, p = softmax(z), dz = (p − onehot(label)) / n, and da3 = (dz·W4ᵀ) ⊙ [a3 > 0]. Every thread
// computes all of z and dz: that is quicker than to ask another. Adds the sample to the score of
// its place in the batch.
__global__ void __launch_bounds__(HIDDEN)
    output_layer(const float *sums, const float *bias3, const float *weights4, const float *bias4,
                 const uint8_t *labels, float *a3, float *d_a3, float *d_z, struct score *scores,
                 size_t n) {
    __shared__ float warps[HIDDEN / WARP][CLASSES];
    const size_t s = blockIdx.x;
    const int h = threadIdx.x, label = labels[s];
    float a = bias3[h];
    for (int slice = 0; slice < SLICES; ++slice)
        a += sums[(slice * n + s) * HIDDEN + h];
    a = a > 0 ? a : 0;
    a3[s * HIDDEN + h] = a;

    float weights[CLASSES], z[CLASSES];
    for (int o = 0; o < CLASSES; ++o) {
        weights[o] = weights4[h * CLASSES + o];
        const float sum = warp_sum(a * weights[o]);
        if (h % WARP == 0)
            warps[h / WARP][o] = sum;
    }
    __syncthreads();
    for (int o = 0; o < CLASSES; ++o) {
        z[o] = bias4[o];
        for (int w = 0; w < HIDDEN / WARP; ++w)
            z[o] += warps[w][o];
    }
    float max = z[0], sum = 0, shifted = 0, d_a = 0;
    int best = 0;
    for (int o = 1; o < CLASSES; ++o) {
        if (z[o] > max) {
            max = z[o];
            best = o;
        }
    }
    for (int o = 0; o < CLASSES; ++o) {
        if (o == label)
            shifted = z[o] - max;
        z[o] = expf(z[o] - max);
        sum += z[o];
    }
    for (int o = 0; o < CLASSES; ++o) {
        const float gradient = (z[o] / sum - (o == label)) / (float)n;
        d_a += gradient * weights[o];
        if (o == h)
            d_z[s * PADDED_CLASSES + o] = gradient;
    }
    d_a3[s * HIDDEN + h] = a > 0 ? d_a : 0;
    if (h == 0) {
        scores[s].loss += logf(sum) - shifted;
        scores[s].right += best == label;
    }
}

// v ← momentum·v − lr·dθ, θ ← θ + v
__device__ void update(float *parameter, float *velocity, float gradient, float learning_rate,
                       float momentum) {
    *velocity = momentum * *velocity - learning_rate * gradient;
    *parameter += *velocity;
}

// A dense layer with what its gradient is made of.
struct dense {
    struct layer layer;       // W is inputs × outputs
    const float *x, *d_y;     // n × x_stride, n × d_y_stride
    int inputs, outputs;      // of a row, the numbers that count
    int x_stride, d_y_stride; // whole tiles
};

// dW = xᵀ·dy for a tile of W, and db = Σ dy in the blocks of its first rows. The gradient goes from
// the registers to the weights. The first blocks have the tiles of W3, the last those of W4.
__global__ void __launch_bounds__(THREADS)
    multiply_weight_gradient(struct dense hidden, struct dense output, size_t n,
                             float learning_rate, float momentum) {
    __shared__ alignas(16) float x_tile[DEPTH][TILE];
    __shared__ alignas(16) float d_y_tile[DEPTH][TILE];
    const bool is_hidden = blockIdx.x < HIDDEN_TILES;
    const struct dense dense = is_hidden ? hidden : output;
    const int tile = is_hidden ? blockIdx.x : blockIdx.x - HIDDEN_TILES;
    const int tiles_in_row = dense.d_y_stride / TILE;
    const int k = tile / tiles_in_row * TILE, o = tile % tiles_in_row * TILE;
    const int row = threadIdx.y * ROWS, column = threadIdx.x * COLUMNS;
    const int thread = threadIdx.y * THREADS_X + threadIdx.x;
    float sum[ROWS][COLUMNS] = {}, bias_sum = 0;
    for (size_t s = 0; s < n; s += DEPTH) {
        const auto x_part =
            load_part<DEPTH, TILE>(dense.x + s * dense.x_stride + k, dense.x_stride, n - s);
        const auto d_y_part =
            load_part<DEPTH, TILE>(dense.d_y + s * dense.d_y_stride + o, dense.d_y_stride, n - s);
        __syncthreads(); // the last tiles are used
        store_part(x_tile, x_part);
        store_part(d_y_tile, d_y_part);
        __syncthreads();
        for (int i = 0; i < DEPTH; ++i)
            for (int r = 0; r < ROWS; ++r)
                for (int c = 0; c < COLUMNS; ++c)
                    sum[r][c] += x_tile[i][row + r] * d_y_tile[i][column + c];
        if (k == 0 && thread < TILE)
            for (int i = 0; i < DEPTH; ++i)
                bias_sum += d_y_tile[i][thread];
    }
    // The compiler cannot know that a store changes nothing that is still to be loaded. So all
    // loads come first.
    float old[ROWS][COLUMNS] = {}, velocity[ROWS][COLUMNS] = {};
    const size_t place = (size_t)(k + row) * dense.outputs + o + column;
    const int rows = dense.inputs - k - row, columns = dense.outputs - o - column;
    for (int r = 0; r < ROWS; ++r) {
        for (int c = 0; c < COLUMNS; ++c) {
            if (r < rows && c < columns) {
                old[r][c] = dense.layer.weights[place + r * dense.outputs + c];
                velocity[r][c] = dense.layer.v_weights[place + r * dense.outputs + c];
            }
        }
    }
    for (int r = 0; r < ROWS; ++r) {
        for (int c = 0; c < COLUMNS; ++c) {
            update(&old[r][c], &velocity[r][c], sum[r][c], learning_rate, momentum);
            if (r < rows && c < columns) {
                dense.layer.weights[place + r * dense.outputs + c] = old[r][c];
                dense.layer.v_weights[place + r * dense.outputs + c] = velocity[r][c];
            }
        }
    }
    if (k == 0 && thread < TILE && o + thread < dense.outputs)
        update(&dense.layer.bias[o + thread], &dense.layer.v_bias[o + thread], bias_sum,
               learning_rate, momentum);
}

// dm2 = (da3·W3ᵀ) ⊙ [m2 > 0] for a tile of samples and inputs. The sums run along the rows of both.
// So both tiles are turned on their way to shared memory: there an iteration reads one row of each.
__global__ void __launch_bounds__(THREADS)
    multiply_input_gradient(const float *d_y, const float *weights, const float *x, float *d_x,
                            size_t n) {
    __shared__ alignas(16) float d_y_tile[DEPTH][TILE + 4];
    __shared__ alignas(16) float weights_tile[DEPTH][TILE + 4];
    const size_t s = blockIdx.x * TILE;
    const int k = blockIdx.y * TILE;
    const int row = threadIdx.y * ROWS, column = threadIdx.x * COLUMNS;
    float sum[ROWS][COLUMNS] = {};
    for (int o = 0; o < HIDDEN; o += DEPTH) {
        const auto d_y_part = load_part<TILE, DEPTH>(d_y + s * HIDDEN + o, HIDDEN, n - s);
        const auto weights_part =
            load_part<TILE, DEPTH>(weights + k * HIDDEN + o, HIDDEN, FEATURES - k);
        __syncthreads(); // the last tiles are used
        store_turned(d_y_tile, d_y_part);
        store_turned(weights_tile, weights_part);
        __syncthreads();
        for (int i = 0; i < DEPTH; ++i)
            for (int r = 0; r < ROWS; ++r)
                for (int c = 0; c < COLUMNS; ++c)
                    sum[r][c] += d_y_tile[i][row + r] * weights_tile[i][column + c];
    }
    for (int r = 0; r < ROWS && s + row + r < n; ++r) {
        const size_t place = (s + row + r) * PADDED_FEATURES + k + column;
        const float4 m = *(const float4 *)(x + place);
        *(float4 *)(d_x + place) = make_float4(m.x > 0 ? sum[r][0] : 0, m.y > 0 ? sum[r][1] : 0,
                                               m.z > 0 ? sum[r][2] : 0, m.w > 0 ? sum[r][3] : 0);
    }
}

// Adds the share of one output in the gradient of its filter, for a channel, and of its bias. The
// filter lay with its corner on the pixel `corner`.
__device__ void add_share(float sum[TAPS + 1], const float *corner, int columns, float d_a) {
    for (int i = 0; i < KERNEL; ++i)
        for (int j = 0; j < KERNEL; ++j)
            sum[i * KERNEL + j] += d_a * corner[i * columns + j];
    sum[TAPS] += d_a;
}

// Takes the gradient of an image back through both convolutions. One block takes one image, and
// writes the image's share in the gradients of W1, b1, W2 and b2.
__global__ void __launch_bounds__(IMAGE_THREADS)
    convolve_gradient(const float *images, const float *weights, const float *m1,
                      const uint8_t *choices1, const uint8_t *choices2, const float *d_m2,
                      float *d_filters) {
    __shared__ alignas(16) float image[PIXELS];
    __shared__ alignas(16) float channels[CHANNELS1 * STRIDE1];
    __shared__ alignas(16) float d_a2[CHANNELS2 * IMAGE2]; // with the border
    __shared__ float turned[CHANNELS1 * TURNED2];   // W2 for each channel, turned by half a turn
    __shared__ float d_channels[CHANNELS1][POOLS1]; // dm1
    __shared__ float d_pools[CHANNELS2][POOLS2];    // dm2
    __shared__ uint8_t places[CHANNELS2][POOLS2];   // of the outputs that the pools took
    const size_t s = blockIdx.x;
    const int thread = threadIdx.x;
    float *d_weights1 = d_filters + s * FILTERS, *d_bias1 = d_weights1 + WEIGHTS1;
    float *d_weights2 = d_bias1 + CHANNELS1, *d_bias2 = d_weights2 + WEIGHTS2;

    copy<PIXELS>(image, images + s * PIXELS);
    copy<CHANNELS1 * STRIDE1>(channels, m1 + s * CHANNELS1 * STRIDE1);
    for (int round = 0; round < WEIGHTS2 / IMAGE_THREADS; ++round) {
        const int i = round * IMAGE_THREADS + thread;
        const int f = i / (CHANNELS1 * TAPS), c = i / TAPS % CHANNELS1, tap = i % TAPS;
        turned[c * TURNED2 + f * TAPS + TAPS - 1 - tap] = weights[i];
    }
    for (int i = thread; i < CHANNELS2 * IMAGE2; i += IMAGE_THREADS)
        d_a2[i] = 0;
    __syncthreads();
    for (int i = thread; i < FEATURES; i += IMAGE_THREADS) {
        const int f = i / POOLS2, pool = i % POOLS2, choice = choices2[s * FEATURES + i];
        d_pools[f][pool] = d_m2[s * PADDED_FEATURES + i];
        places[f][pool] = (uint8_t)place_of(pool, POOLED2, choice, USED1);
        d_a2[f * IMAGE2 + (KERNEL - 1) * (BORDERED2 + 1) +
             place_of(pool, POOLED2, choice, BORDERED2)] = d_pools[f][pool];
    }
    __syncthreads();

    if (thread < PATCH_THREADS) {
        // dm1 is the convolution of da2, with its border, with the turned filters. The 2 × 2 values
        // are a window of m1, as a pool's are one of a2.
        constexpr int GROUPS = CHANNELS1 / PATCH_CHANNELS;
        const int patch = thread / GROUPS, first = thread % GROUPS * PATCH_CHANNELS;
        float sum[PATCH_CHANNELS][WINDOW] = {};
        for (int f = 0; f < CHANNELS2; ++f)
            add_products<PATCH_CHANNELS>(
                sum, d_a2 + f * IMAGE2 + place_of(patch, USED1 / POOL, 0, BORDERED2), BORDERED2,
                turned + first * TURNED2 + f * TAPS, TURNED2);
        for (int c = 0; c < PATCH_CHANNELS; ++c) {
            for (int k = 0; k < WINDOW; ++k) {
                const int place = place_of(patch, USED1 / POOL, k, USED1);
                d_channels[first + c][place] =
                    channels[(first + c) * STRIDE1 + place] > 0 ? sum[c][k] : 0;
            }
        }
    } else if (thread >= FILTER_THREADS) {
        const int pair = thread - FILTER_THREADS, f = pair / CHANNELS1, c = pair % CHANNELS1;
        float sum[TAPS + 1] = {};
        for (int pool = 0; pool < POOLS2; ++pool)
            add_share(sum, channels + c * STRIDE1 + places[f][pool], USED1, d_pools[f][pool]);
        for (int tap = 0; tap < TAPS; ++tap)
            d_weights2[pair * TAPS + tap] = sum[tap];
        if (c == 0)
            d_bias2[f] = sum[TAPS];
    }
    __syncthreads();

    // A warp has a filter of the first convolution, and its threads share the pools.
    const int f = thread / WARP, lane = thread % WARP;
    if (f >= CHANNELS1)
        return;
    float sum[TAPS + 1] = {};
    for (int pool = lane; pool < POOLS1; pool += WARP) {
        const int choice = choices1[(s * CHANNELS1 + f) * POOLS1 + pool];
        add_share(sum, image + place_of(pool, USED1, choice, SIDE), SIDE, d_channels[f][pool]);
    }
    for (int tap = 0; tap <= TAPS; ++tap) {
        const float total = warp_sum(sum[tap]);
        if (lane == 0)
            *(tap < TAPS ? &d_weights1[f * TAPS + tap] : &d_bias1[f]) = total;
    }
}

// Adds up the images' shares in the gradients of W1, b1, W2 and b2, in the same order each time,
// and updates them. A block has 32 parameters. Each row of its threads adds up every 32nd image.
__global__ void __launch_bounds__(WARP *WARP)
    update_filters(const float *d_filters, float *parameters, float *velocity, size_t n,
                   float learning_rate, float momentum) {
    __shared__ float sums[WARP][WARP];
    const int i = blockIdx.x * WARP + threadIdx.x;
    float sum = 0;
    for (size_t s = threadIdx.y; s < n; s += WARP)
        sum += d_filters[s * FILTERS + i];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0)
        return;
    for (int row = 1; row < WARP; ++row)
        sum += sums[row][threadIdx.x];
    update(&parameters[i], &velocity[i], sum, learning_rate, momentum);
}

// Sums the scores, in one thread: there are only as many as samples in a batch.
__global__ void sum_scores(const struct score *scores, size_t n, struct score *score) {
    struct score sum = {0, 0};
    for (size_t s = 0; s < n; ++s) {
        sum.loss += scores[s].loss;
        sum.right += scores[s].right;
    }
    *score = sum;
}

// Sets all values of a batch, and the gradients of z and a3. Adds its samples to the scores.
static void forward(struct network *network, const struct batch *batch) {
    const size_t n = batch->samples;
    const struct layer *layer = network->layer;
    convolve<<<(unsigned)n, IMAGE_THREADS>>>(batch->images, network->parameters, network->m1,
                                             network->choices1, network->m2, network->choices2);
    CHECK(cudaGetLastError());
    multiply<<<dim3(tiles(n), HIDDEN / TILE, SLICES), dim3(THREADS_X, THREADS_Y)>>>(
        network->m2, layer[2].weights, network->sums, n);
    CHECK(cudaGetLastError());
    output_layer<<<(unsigned)n, HIDDEN>>>(network->sums, layer[2].bias, layer[3].weights,
                                          layer[3].bias, batch->labels, network->a3, network->d_a3,
                                          network->d_z, network->scores, n);
    CHECK(cudaGetLastError());
}

// Updates the weights by the gradient of the batch that forward() has just seen. The gradient of m2
// needs W3 as it was before the update, so it comes first. Only update_filters() changes W2.
static void backward(struct network *network, const struct batch *batch,
                     const struct options *options, float learning_rate) {
    const size_t n = batch->samples;
    const struct layer *layer = network->layer;
    const struct dense hidden = {layer[2], network->m2,     network->d_a3, FEATURES,
                                 HIDDEN,   PADDED_FEATURES, HIDDEN};
    const struct dense output = {layer[3], network->a3, network->d_z,  HIDDEN,
                                 CLASSES,  HIDDEN,      PADDED_CLASSES};
    const dim3 block(THREADS_X, THREADS_Y);
    multiply_input_gradient<<<dim3(tiles(n), tiles(FEATURES)), block>>>(
        network->d_a3, layer[2].weights, network->m2, network->d_m2, n);
    CHECK(cudaGetLastError());
    multiply_weight_gradient<<<HIDDEN_TILES + OUTPUT_TILES, block>>>(
        hidden, output, n, learning_rate, options->momentum);
    CHECK(cudaGetLastError());
    convolve_gradient<<<(unsigned)n, IMAGE_THREADS>>>(batch->images, layer[1].weights, network->m1,
                                                      network->choices1, network->choices2,
                                                      network->d_m2, network->d_filters);
    CHECK(cudaGetLastError());
    update_filters<<<FILTERS / WARP, dim3(WARP, WARP)>>>(network->d_filters, network->parameters,
                                                         network->velocity, n, learning_rate,
                                                         options->momentum);
    CHECK(cudaGetLastError());
}

// Returns the score of the batches since the scores were set to zero. Waits for the device.
static struct score read_score(const struct network *network, const struct options *options) {
    struct score score;
    sum_scores<<<1, 1>>>(network->scores, largest_batch(options), network->score);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&score, network->score, sizeof score, cudaMemcpyDeviceToHost));
    return score;
}

static void clear_scores(struct network *network, const struct options *options) {
    CHECK(cudaMemset(network->scores, 0, largest_batch(options) * sizeof(struct score)));
}

// Returns the fraction of samples whose most probable class is their label.
static double evaluate(struct network *network, const struct dataset *dataset,
                       const struct options *options) {
    struct batch batch;
    clear_scores(network, options);
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        forward(network, &batch);
    }
    return (double)read_score(network, options).right / dataset->samples;
}

// Runs an epoch over the training set in file order. The last batch may be short. Marks the phases,
// or none if `events` is NULL. Returns the score when the last weight is final.
static struct score run_epoch(struct network *network, const struct dataset *dataset,
                              const struct options *options, float learning_rate,
                              struct phase_events *events) {
    struct batch batch;
    clear_scores(network, options);
    mark_phase(events);
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        forward(network, &batch);
        mark_phase(events);
        backward(network, &batch, options, learning_rate);
        mark_phase(events);
    }
    return read_score(network, options);
}

// Runs all epochs. Before them come some with a learning rate of 0, which leave the weights and the
// velocities as they are. The first is cold. Others raise the GPU's clock. In the last, events time
// the phases. `used` is the device memory that was in use before. Returns the exit status.
static int train(struct network *network, const struct data *data, const struct options *options,
                 double used, struct result *result) {
    double start = seconds();
    if (options->epochs > 0 && !is_simulated(result->device)) {
        run_epoch(network, &data->train, options, 0, NULL);
        result->warmup_s = seconds() - start;
        while (seconds() - start < warmup_seconds())
            run_epoch(network, &data->train, options, 0, NULL);
        struct phase_events events = create_events(options, &data->train);
        run_epoch(network, &data->train, options, 0, &events);
        collect_events(&events, options, result);
    }

    int status = 0;
    for (int number = 1; number <= options->epochs && !status; ++number) {
        struct epoch epoch = {};
        epoch.number = number;
        start = seconds();
        epoch.score = run_epoch(network, &data->train, options, options->learning_rate, NULL);
        epoch.epoch_s = seconds() - start;
        epoch.test_accuracy = evaluate(network, &data->test, options);
        epoch.vram_mib = used_device_mib() - used;
        status = report_epoch(options, data, result, &epoch);
    }
    return status;
}

// Writes the weights, copied back to the host. Returns the exit status.
static int save(const struct network *network, const struct options *options) {
    float *weights[LAYERS], *biases[LAYERS];
    float *parameters = allocate_floats(PARAMETERS);
    CHECK(cudaMemcpy(parameters, network->parameters, PARAMETERS * sizeof(float),
                     cudaMemcpyDeviceToHost));
    for (int l = 0; l < LAYERS; ++l) {
        weights[l] = parameters + (network->layer[l].weights - network->parameters);
        biases[l] = parameters + (network->layer[l].bias - network->parameters);
    }
    int status = write_weights(options, weights, biases);
    free(parameters);
    return status;
}

int main(int argc, char **argv) {
    struct options options =
        parse_options(argc, argv, "Trains on a GPU, a block for each image.", 1);
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
    struct data device = data;
    device.train = upload(&data.train);
    device.test = upload(&data.test);
    struct network network = create(&options);
    result.setup_s += seconds() - clock;

    if (options.epochs == 0)
        result.test_accuracy = evaluate(&network, &device.test, &options);
    status = train(&network, &device, &options, used, &result);
    result.peak_vram_mib = used_device_mib() - used;
    if (!status && options.common.save)
        status = save(&network, &options);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy(&network);
    release(&device.train);
    release(&device.test);
    free_data(&data);
    return status;
}
