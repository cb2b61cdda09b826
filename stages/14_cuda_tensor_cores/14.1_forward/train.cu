// Stage 14.1: tensor cores make x·W1, from two halves of each weight.
//
// Shapes: n samples in a batch, at most N; H hidden units, within a kernel those of the block's
// cluster; R blocks of a cluster, each with P pixels, which are 784 / R. Arrays are row-major. H is
// padded to a whole number of GROUP. The surplus units hold zeros, and stay zero.
#include "common/asynchronous.h"
#include "common/newer_cuda.h"
#include "common/tensor_cores.h"
#include "stages/training_cuda.h"

#include <cooperative_groups.h>
#include <math.h>

enum {
    THREADS = 256,
    WARP = 32,
    WARPS = THREADS / WARP,
    // Of the cluster, where the device allows it. All with clusters allow eight.
    MOST_BLOCKS = 16,
    LOG_MOST_BLOCKS = 4,
    // So many pixels are summed at a time. In a smaller cluster, a block has several such parts. So
    // it adds up in the same order, and has the same weights.
    PART = PIXELS / MOST_BLOCKS,
    // With fewer units, a cluster saves less time than a barrier of the grid takes.
    LEAST_UNITS = 32,
    // A thread has tiles of so many samples × units.
    QUAD = 4,
    // In the forward pass, a warp sums up so many samples × units, and takes so many pixels at
    // once.
    TILE = 16,
    // In the output layer, a lane sums over so many units.
    GROUP = 8,
    // Memory moves so many bytes at once.
    SECTOR = 32,
    // The rows of W2 and dz are this long in memory, a multiple of 16 bytes.
    PADDED_CLASSES = 12
};

// Where the arrays of a block begin, in numbers.
struct layout {
    size_t mbarriers; // a SECTOR of them
    size_t bytes;     // P × stride bytes: a batch's 255·xᵀ, as it comes
    size_t weights1;  // P × width: rows of H
    size_t pixels;    // P × stride: the same as floats
    size_t sums;      // N / R × MOST_BLOCKS × H: each part's x·W1 of the block's own samples
    size_t scores;    // N / R × H / GROUP × PADDED_CLASSES: each GROUP's a·W2 of these

    // All blocks have the same numbers here.
    size_t bias1;         // H
    size_t weights2;      // (H + 1) × PADDED_CLASSES: the last row is b2
    size_t d_activations; // N, a multiple of QUAD, × H: da
    size_t d_logits;      // N × PADDED_CLASSES: dz

    size_t activations; // N × (H / R + 1): a of the units whose number modulo R is the block's
    size_t size;
};

struct network {
    size_t units;   // as asked for
    size_t all;     // H, and
    size_t hidden;  // those of a cluster, at most; within a kernel, H
    size_t first;   // within a kernel: those of the clusters before the block's
    size_t most;    // N
    size_t stride;  // of a block's pixels
    size_t piece;   // bytes of a block's pixels of a batch
    size_t width;   // of a block's rows of W1
    int log_blocks; // 2 to the power of it is R, the blocks of a cluster: all are alive at once
    bool kept;      // a block's arrays are in shared memory
    struct layout at;
    int shared_bytes; // that a block can have
    cudaStream_t stream;

    float *weights1; // 784 × H
    float *bias1;    // H
    float *weights2; // H × PADDED_CLASSES
    float *bias2;    // PADDED_CLASSES: one more row of W2, whose a is 1
    float *scores;   // 2 × N × H / GROUP × PADDED_CLASSES: of all clusters, for two batches
    float *spilled;  // the arrays of each block, where they find no room in shared memory

    // One batch's intermediate values.
    float *logits;     // N × 10: z
    float *losses;     // N: −log p[label], added up over the batches of an epoch
    float *epoch_loss; // 1: the sum of the losses
};

static inline __host__ __device__ size_t round_to(size_t n, size_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

// Returns R, so that a division by it becomes a shift. A GPU divides integers in some 25
// instructions.
static inline __host__ __device__ unsigned blocks_of(const struct network &network) {
    return 1u << network.log_blocks;
}

static float *allocate(size_t count) {
    float *floats;
    CHECK_ALLOCATION(cudaMalloc(&floats, count * sizeof(float)), count * sizeof(float));
    return floats;
}

// Returns how far apart rows of a batch's pixels are: neighbours begin in other banks of shared
// memory.
static size_t stride_of(size_t samples) {
    return round_to(samples, 16) + QUAD;
}

// Copies a data set to the device, as the bytes that its files have. Each batch is turned, and a
// block's pixels of it are in one piece: P × stride, as in shared memory.
static struct byte_dataset upload(const struct network *network, const struct dataset *host) {
    const size_t samples = (size_t)host->samples, size = network->most;
    const size_t blocks = blocks_of(*network), rows = PIXELS / blocks;
    const size_t pixels = ((samples - 1) / size + 1) * blocks * network->piece;
    struct byte_dataset device = {host->samples, NULL, NULL};
    CHECK_ALLOCATION(cudaMalloc(&device.images, pixels), pixels);
    CHECK_ALLOCATION(cudaMalloc(&device.labels, samples), samples);
    std::vector<uint8_t> bytes(pixels);
    for (size_t s = 0; s < samples; ++s)
        for (size_t k = 0; k < PIXELS; ++k)
            bytes[(s / size * blocks + k / rows) * network->piece + k % rows * network->stride +
                  s % size] = (uint8_t)lrintf(255 * host->images[s * PIXELS + k]);
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
    const size_t hidden = round_to(units, GROUP);
    struct network network = {};
    network.units = units;
    network.all = hidden;
    network.most = n;
    CHECK(cudaStreamCreate(&network.stream));
    network.weights1 = allocate_zeroed(PIXELS * hidden);
    network.bias1 = allocate_zeroed(hidden);
    network.weights2 = allocate_zeroed((hidden + 1) * PADDED_CLASSES);
    network.bias2 = network.weights2 + hidden * PADDED_CLASSES;
    network.scores = allocate(2 * n * hidden / GROUP * PADDED_CLASSES);
    network.logits = allocate(n * CLASSES);
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
    CHECK(cudaFree(network->spilled));
    CHECK(cudaFree(network->scores));
    CHECK(cudaFree(network->logits));
    CHECK(cudaFree(network->losses));
    CHECK(cudaFree(network->epoch_loss));
}

// Copies a row to registers, four numbers at a time. Both are aligned to as many.
template <int N> __device__ void load_floats(float (&row)[N], const float *from) {
    for (int i = 0; i < N; i += 4)
        *(float4 *)(row + i) = *(const float4 *)(from + i);
}

template <int N> __device__ void store_floats(float *to, const float (&row)[N]) {
    for (int i = 0; i < N; i += 4)
        *(float4 *)(to + i) = make_float4(row[i], row[i + 1], row[i + 2], row[i + 3]);
}

// Returns where this block's arrays are. It is known when this is compiled whether that is shared
// memory. With a pointer to either, all loads would be generic ones, which find out by the address.
template <bool KEPT> __device__ float *own_arrays(const struct network &network) {
    extern __shared__ float4 shared[];
    return KEPT ? (float *)shared : network.spilled + blockIdx.x * network.at.size;
}

// Returns the block's number in its cluster.
__device__ unsigned own_rank() {
    return cooperative_groups::this_cluster().block_rank();
}

// Returns the same place in the arrays of another block.
template <bool KEPT>
__device__ float *at_block(const struct network &network, float *place, size_t rank) {
    if (KEPT)
        return cooperative_groups::this_cluster().map_shared_rank(place, (int)rank);
    return place + ((ptrdiff_t)rank - (ptrdiff_t)own_rank()) * (ptrdiff_t)network.at.size;
}

// Returns where a unit's a of a sample is, in the block that updates the unit's row of W2.
template <bool KEPT>
__device__ float *activations_of(const struct network &network, size_t s, size_t h) {
    const size_t rows = network.hidden / blocks_of(network) + 1;
    return own_arrays<KEPT>(network) + network.at.activations + s * rows + h / blocks_of(network);
}

// Returns the mbarrier that counts the bytes of pixels. It is in shared memory, as they are.
__device__ uint64_t *mbarrier_of(const struct network &network) {
    return (uint64_t *)(own_arrays<true>(network) + network.at.mbarriers);
}

// Stores a number to the same place of all blocks' arrays.
template <bool KEPT>
__device__ void store_to_all(const struct network &network, float *place, float value) {
    for (size_t rank = 0; rank < blocks_of(network); ++rank)
        *at_block<KEPT>(network, place, rank) = value;
}

// Returns the block's pixels of a batch in the GPU's memory.
__device__ const uint8_t *piece_of(const struct network &network, const uint8_t *images,
                                   size_t batch) {
    return images + (batch * blocks_of(network) + own_rank()) * network.piece;
}

// Begins to copy a batch's pixels to shared memory, in one thread.
template <bool KEPT>
__device__ void load_ahead(const struct network &network, const uint8_t *images, size_t batch) {
    if (!KEPT || threadIdx.x > 0)
        return;
    uint64_t *const mbarrier = mbarrier_of(network);
    mbarrier_expect(mbarrier, (unsigned)network.piece);
    copy_async(own_arrays<KEPT>(network) + network.at.bytes, piece_of(network, images, batch),
               (unsigned)network.piece, mbarrier);
}

// Makes a batch's pixels floats, when they have come. Behind its last sample come zeros.
template <bool KEPT>
__device__ void load_pixels(const struct network &network, const uint8_t *images, size_t batch) {
    float *const block = own_arrays<KEPT>(network);
    const unsigned count = PIXELS / blocks_of(network) * (unsigned)network.stride / QUAD;
    const uchar4 *const from = (const uchar4 *)(KEPT ? (uint8_t *)(block + network.at.bytes)
                                                     : piece_of(network, images, batch));
    if (KEPT)
        mbarrier_wait(mbarrier_of(network), batch % 2);
    for (unsigned i = threadIdx.x; i < count; i += THREADS) {
        const uchar4 x = from[i];
        *(float4 *)(block + network.at.pixels + i * QUAD) = make_float4(x.x, x.y, x.z, x.w);
    }
    if (KEPT)
        fence_async(); // the next copy comes to what this thread has loaded
}

// Two tiles of sums, as tensor_cores.h says, of which number u has every other unit, from u on. So
// a lane has four units side by side. The second ones are of halves that are 2048 times as large.
struct sums {
    float high[2][4], low[2][4];
};

// Makes each of two numbers the sum of two halves.
__device__ void split(float first, float second, uint32_t *high, uint32_t *low) {
    *high = pack_f16(first, second);
    const float2 rounded = unpack_f16(*high);
    *low = pack_f16((first - rounded.x) * 2048, (second - rounded.y) * 2048);
}

// Adds the product of x, which is exact, and of TILE rows × units, of which `y` is the first that
// this lane has. They are `width` apart.
__device__ void add_product(struct sums *sums, const uint32_t (&x)[4], const float *y,
                            size_t width) {
    uint32_t high[2][2], low[2][2];
    for (int i = 0; i < 2; ++i) {
        const float2 first = *(const float2 *)(y + i * 8 * width);
        const float2 second = *(const float2 *)(y + (i * 8 + 1) * width);
        split(first.x, second.x, &high[0][i], &low[0][i]);
        split(first.y, second.y, &high[1][i], &low[1][i]);
    }
    for (int u = 0; u < 2; ++u) {
        mma_f16(sums->high[u], x, high[u]);
        mma_f16(sums->low[u], x, low[u]);
    }
}

// Returns sum i of the lane's first row, or of its second one.
__device__ float sum_of(const struct sums &sums, int row, int i) {
    return sums.high[i % 2][2 * row + i / 2] + sums.low[i % 2][2 * row + i / 2] / 2048;
}

// Sums x·W1 over each part of the block's pixels. The sums of sample s go to block s modulo R. Past
// the last sample or unit are sums that nobody needs.
template <bool KEPT> __device__ void forward(const struct network &network, size_t n) {
    float *const block = own_arrays<KEPT>(network);
    const size_t hidden = network.hidden, width = network.width, stride = network.stride;
    const unsigned blocks = blocks_of(network), columns = (unsigned)(hidden - 1) / TILE + 1;
    const unsigned tiles = ((unsigned)(n - 1) / TILE + 1) * columns;
    const unsigned g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    for (unsigned part = 0; part < MOST_BLOCKS / blocks; ++part)
        for (unsigned tile = threadIdx.x / WARP; tile < tiles; tile += WARPS) {
            const size_t s = tile / columns * TILE + g, h = tile % columns * TILE;
            const float *const x_at = block + network.at.pixels + part * PART * stride + s;
            const float *const w_at = block + network.at.weights1 + part * PART * width + h;
            struct sums sums = {};
#pragma unroll
            for (size_t k = 2 * t; k < PART - 1; k += TILE) {
                uint32_t x[4];
                for (int i = 0; i < 4; ++i) {
                    const float *const at = x_at + (k + i / 2 * 8) * stride + i % 2 * 8;
                    x[i] = pack_f16(at[0], at[stride]);
                }
                add_product(&sums, x, w_at + k * width + 2 * g, width);
            }
            static_assert(PART % TILE == 1, ""); // The last pixel is left.
            alignas(16) float w[QUAD], four[QUAD];
            load_floats(w, w_at + (PART - 1) * width + 4 * t);
            for (int i = 0; i < 2; ++i) {
                for (int u = 0; u < QUAD; ++u)
                    four[u] = sum_of(sums, i, u) + x_at[(PART - 1) * stride + i * 8] * w[u];
                const size_t sample = s + i * 8, unit = h + 4 * t;
                const size_t row =
                    sample / blocks * MOST_BLOCKS + own_rank() * (MOST_BLOCKS / blocks) + part;
                float *const to = block + network.at.sums + row * hidden + unit;
                if (sample < n && unit < hidden)
                    store_floats(at_block<KEPT>(network, to, sample % blocks), four);
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

// Returns where each part's x·W1 of one of the block's samples is.
template <bool KEPT> __device__ float *sums_of(const struct network &network, size_t s) {
    return own_arrays<KEPT>(network) + network.at.sums +
           s / blocks_of(network) * MOST_BLOCKS * network.hidden;
}

// One warp has one of the block's samples. It sets a = max(0, x·W1 + b1).
template <bool KEPT> __device__ void hidden_layer(const struct network &network, size_t s) {
    const size_t hidden = network.hidden, blocks = blocks_of(network);
    const float *const bias1 = own_arrays<KEPT>(network) + network.at.bias1;
    float *const sums = sums_of<KEPT>(network, s);
    for (size_t h = threadIdx.x % WARP; h < hidden; h += WARP) {
        float sum = 0;
        for (int part = 0; part < MOST_BLOCKS; ++part)
            sum += sums[part * hidden + h];
        // x is 255 times as large. This warp needs a, too, and has read the sums.
        const float a = fmaxf(sum * (1.0f / 255) + bias1[h], 0);
        sums[h] = a;
        *at_block<KEPT>(network, activations_of<KEPT>(network, s, h), h % blocks) = a;
    }
    __syncwarp();
}

// Returns where each GROUP's a·W2 of a sample is, of all clusters. Another cluster may still read
// those of the batch before.
template <bool KEPT>
__device__ float *scores_of(const struct network &network, size_t batch, size_t s) {
    const size_t size = network.all / GROUP * PADDED_CLASSES;
    if (gridDim.x > blocks_of(network))
        return network.scores + (batch % 2 * network.most + s) * size;
    return own_arrays<KEPT>(network) + network.at.scores + s / blocks_of(network) * size;
}

// The same warp sums a·W2 over each GROUP of units. A lane has an output of a GROUP.
template <bool KEPT>
__device__ void output_scores(const struct network &network, size_t batch, size_t s) {
    const float *const activations = sums_of<KEPT>(network, s);
    const float *const weights2 = own_arrays<KEPT>(network) + network.at.weights2;
    float *const scores =
        scores_of<KEPT>(network, batch, s) + network.first / GROUP * PADDED_CLASSES;
    const size_t count = network.hidden / GROUP * PADDED_CLASSES;
    for (size_t i = threadIdx.x % WARP; i < count; i += WARP) {
        const size_t first = i / PADDED_CLASSES * GROUP, o = i % PADDED_CLASSES;
        float sum = 0;
        for (size_t h = first; h < first + GROUP; ++h)
            sum += activations[h] * weights2[h * PADDED_CLASSES + o];
        scores[i] = sum;
    }
    __syncwarp();
}

// The same warp finishes it, and so do those of the other clusters: z = a·W2 + b2, p = softmax(z)
// and dz = (p − onehot(label)) / n. The first adds −log p[label] to the losses. Then da = (dz·W2ᵀ)
// ⊙ [a > 0].
template <bool KEPT>
__device__ void output_layer(const struct network &network, struct byte_batch batch, size_t number,
                             size_t s) {
    const size_t hidden = network.hidden;
    float *const block = own_arrays<KEPT>(network);
    const float *const activations = sums_of<KEPT>(network, s);
    const float *const weights2 = block + network.at.weights2;
    const int lane = threadIdx.x % WARP;
    // Needed later. Loaded now, they arrive while the warp computes.
    const int label = batch.labels[s];
    const bool is_first = blockIdx.x < blocks_of(network);
    const float loss = is_first ? network.losses[s] : 0;
    const float *const scores = scores_of<KEPT>(network, number, s);
    float z = lane < CLASSES ? weights2[hidden * PADDED_CLASSES + lane] : -INFINITY;
#pragma unroll 4
    for (size_t group = 0; group < network.all / GROUP; ++group)
        z += lane < CLASSES ? scores[group * PADDED_CLASSES + lane] : 0;
    const float shifted = z - warp_max(z), e = expf(shifted), sum = warp_sum(e);
    const float own = (e / sum - (lane == label)) / (float)batch.samples;
    if (lane < CLASSES) {
        if (is_first)
            network.logits[s * CLASSES + lane] = z;
        store_to_all<KEPT>(network, block + network.at.d_logits + s * PADDED_CLASSES + lane, own);
    }
    if (is_first && lane == label)
        network.losses[s] = loss + logf(sum) - shifted;
    float dz[CLASSES]; // of all lanes
    for (int o = 0; o < CLASSES; ++o)
        dz[o] = __shfl_sync(0xffffffff, own, o);
    for (size_t h = lane; h < hidden; h += WARP) {
        alignas(16) float w[PADDED_CLASSES];
        load_floats(w, weights2 + h * PADDED_CLASSES);
        float da = 0;
        for (int o = 0; o < CLASSES; ++o)
            da += dz[o] * w[o];
        store_to_all<KEPT>(network, block + network.at.d_activations + s * hidden + h,
                           activations[h] > 0 ? da : 0);
    }
}

// Updates the block's rows of W1. A thread has tiles of two pixels × QUAD units, neighbours the
// same units. Behind the last sample x is 0, and da is that of another batch.
template <bool KEPT>
__device__ void update_weights1(const struct network &network, size_t n, float learning_rate) {
    float *const block = own_arrays<KEPT>(network);
    const size_t hidden = network.hidden, stride = network.stride;
    const unsigned count = PIXELS / blocks_of(network), quads = (unsigned)hidden / QUAD;
    for (unsigned t = threadIdx.x; t < (count + 3) / 4 * 2 * quads; t += THREADS) {
        const size_t k = t / 2 / quads * 4 + t % 2 * 2, h = t / 2 % quads * QUAD;
        if (k >= count)
            continue;
        const size_t two = min((size_t)2, count - k); // or the last pixel alone, twice
        const float *const x_at = block + network.at.pixels + k * stride;
        float sum[2][QUAD] = {};
#pragma unroll 2
        for (size_t s = 0; s < n; s += QUAD) {
            alignas(16) float x[2][QUAD], da[QUAD];
            load_floats(x[0], x_at + s);
            load_floats(x[1], x_at + (two - 1) * stride + s);
            for (int i = 0; i < QUAD; ++i) {
                load_floats(da, block + network.at.d_activations + (s + i) * hidden + h);
                for (int u = 0; u < QUAD; ++u) {
                    sum[0][u] += x[0][i] * da[u];
                    sum[1][u] += x[1][i] * da[u];
                }
            }
        }
        for (size_t i = 0; i < two; ++i) {
            float *const at = block + network.at.weights1 + (k + i) * network.width + h;
            alignas(16) float w[QUAD];
            load_floats(w, at);
            for (int u = 0; u < QUAD; ++u)
                w[u] -= learning_rate / 255 * sum[i][u];
            store_floats(at, w);
        }
    }
}

// Updates the rows of W2 and b1 whose number modulo R is the block's, and b2 as one more row, whose
// a is 1, for all blocks. A warp has a row. The last warps begin, as they have the fewest pixels.
template <bool KEPT>
__device__ void update_rows(const struct network &network, size_t n, float learning_rate) {
    float *const block = own_arrays<KEPT>(network);
    const size_t hidden = network.hidden, blocks = blocks_of(network);
    const unsigned lane = threadIdx.x % WARP, warp = WARPS - 1 - threadIdx.x / WARP;
    for (size_t h = warp * blocks + own_rank(); h <= hidden; h += WARPS * blocks) {
        float bias1 = 0, row[CLASSES] = {};
        for (size_t s = lane; s < n; s += WARP) {
            const float a = h < hidden ? *activations_of<KEPT>(network, s, h) : 1;
            bias1 += h < hidden ? block[network.at.d_activations + s * hidden + h] : 0;
            alignas(16) float dz[PADDED_CLASSES];
            load_floats(dz, block + network.at.d_logits + s * PADDED_CLASSES);
            for (int o = 0; o < CLASSES; ++o)
                row[o] += a * dz[o];
        }
        float step = warp_sum(bias1); // of the lane's number: a lane has an output, or b1
        for (int o = 0; o < CLASSES; ++o) {
            const float sum = warp_sum(row[o]);
            step = lane == (unsigned)o ? sum : step;
        }
        float *const at = lane < CLASSES ? block + network.at.weights2 + h * PADDED_CLASSES + lane
                                         : block + network.at.bias1 + h;
        if (lane < CLASSES || (lane == CLASSES && h < hidden))
            store_to_all<KEPT>(network, at, *at - learning_rate * step);
    }
}

// Copies a matrix of rows × columns, each with its stride, with all threads of the block.
__device__ void copy_rows(float *to, size_t to_stride, const float *from, size_t from_stride,
                          size_t rows, size_t columns) {
    for (size_t i = threadIdx.x; i < rows * columns; i += THREADS)
        to[i / columns * to_stride + i % columns] = from[i / columns * from_stride + i % columns];
}

// Returns the network with the units of the block's cluster alone.
__device__ struct network share_of(struct network network) {
    network.first = blockIdx.x / blocks_of(network) * network.hidden;
    network.hidden = min(network.hidden, network.all - network.first);
    network.weights1 += network.first;
    network.bias1 += network.first;
    network.weights2 += network.first * PADDED_CLASSES;
    return network;
}

// Runs an epoch over a data set in file order, in batches of `size`. The last batch may be short.
// Times the phases if `ticks` is not NULL.
template <bool KEPT>
__global__ void __launch_bounds__(THREADS, 1)
    run_epoch(struct network network, struct byte_dataset dataset, int size, float learning_rate,
              float *ticks) {
    const auto cluster = cooperative_groups::this_cluster();
    network = share_of(network);
    const size_t warp = threadIdx.x / WARP, blocks = blocks_of(network), pixels = PIXELS / blocks;
    size_t number = 0; // of a batch
    const size_t hidden = network.hidden;
    float *const block = own_arrays<KEPT>(network), *const weights1 = block + network.at.weights1;
    float *const bias1 = block + network.at.bias1, *const weights2 = block + network.at.weights2;
    float *const bias2 = weights2 + hidden * PADDED_CLASSES;
    float *const rows = network.weights1 + own_rank() * pixels * network.all;
    copy_rows(weights1, network.width, rows, network.all, pixels, hidden);
    copy_rows(bias1, hidden, network.bias1, hidden, 1, hidden);
    copy_rows(weights2, PADDED_CLASSES, network.weights2, PADDED_CLASSES, hidden, PADDED_CLASSES);
    copy_rows(bias2, PADDED_CLASSES, network.bias2, PADDED_CLASSES, 1, PADDED_CLASSES);
    // Behind the last sample, these are multiplied by 0.
    for (size_t i = threadIdx.x; i < round_to(network.most, QUAD) * hidden; i += THREADS)
        block[network.at.d_activations + i] = 0;
    if (KEPT && threadIdx.x == 0) {
        mbarrier_init(mbarrier_of(network), 1);
        mbarrier_publish();
    }
    cluster.sync(); // all blocks have begun, so their shared memory is there
    load_ahead<KEPT>(network, dataset.images, 0);
    for (size_t first = 0; first < (size_t)dataset.samples; first += (size_t)size, ++number) {
        const struct byte_batch batch = batch_at(&dataset, first, size);
        const long long start = clock64();
        load_pixels<KEPT>(network, dataset.images, number);
        __syncthreads();
        if (first + (size_t)size < (size_t)dataset.samples)
            load_ahead<KEPT>(network, dataset.images, number + 1);
        forward<KEPT>(network, batch.samples);
        cluster.sync();
        for (size_t s = warp * blocks + own_rank(); s < batch.samples; s += WARPS * blocks) {
            hidden_layer<KEPT>(network, s);
            output_scores<KEPT>(network, number, s);
        }
        if (gridDim.x > blocks) // otherwise a warp needs what it has stored itself
            cooperative_groups::this_grid().sync();
        for (size_t s = warp * blocks + own_rank(); s < batch.samples; s += WARPS * blocks)
            output_layer<KEPT>(network, batch, number, s);
        cluster.sync();
        const long long middle = lap(ticks, 2 * number, start);
        update_weights1<KEPT>(network, batch.samples, learning_rate);
        update_rows<KEPT>(network, batch.samples, learning_rate);
        __syncthreads();
        lap(ticks, 2 * number + 1, middle);
    }
    cluster.sync(); // all blocks have stored to this one's memory, which lives until it ends
    copy_rows(rows, network.all, weights1, network.width, pixels, hidden);
    if (own_rank() > 0)
        return;
    copy_rows(network.bias1, hidden, bias1, hidden, 1, hidden);
    copy_rows(network.weights2, PADDED_CLASSES, weights2, PADDED_CLASSES, hidden, PADDED_CLASSES);
    if (blockIdx.x == 0)
        copy_rows(network.bias2, PADDED_CLASSES, bias2, PADDED_CLASSES, 1, PADDED_CLASSES);
}

// Sums the losses, in one thread: there are only as many as samples in a batch.
__global__ void sum_losses(const float *losses, size_t n, float *epoch_loss) {
    float sum = 0;
    for (size_t s = 0; s < n; ++s)
        sum += losses[s];
    *epoch_loss = sum;
}

// Returns the kernel for where a block's arrays are.
static auto kernel_of(const struct network *network) {
    return network->kept ? run_epoch<true> : run_epoch<false>;
}

// Returns a launch of clusters that wait for each other. Their blocks are neighbours in x. A block
// that keeps its arrays asks for all of a multiprocessor's shared memory, so that it has it for
// itself.
static cudaLaunchConfig_t launch_of(const struct network *network,
                                    cudaLaunchAttribute *attributes) {
    const size_t clusters = (network->all - 1) / network->hidden + 1;
    cudaLaunchConfig_t launch = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = blocks_of(*network);
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;
    launch.gridDim = dim3((unsigned)(blocks_of(*network) * clusters));
    launch.blockDim = dim3(THREADS);
    launch.dynamicSmemBytes = network->kept ? (size_t)network->shared_bytes : 0;
    launch.stream = network->stream;
    launch.attrs = attributes;
    launch.numAttrs = 2;
    return launch;
}

// Shares the units out to so many clusters, or to fewer. Lays out a block's arrays, in shared
// memory if there is room.
static void set_layout(struct network *network, size_t clusters) {
    network->hidden = round_to((network->all - 1) / clusters + 1, GROUP);
    const size_t pixels = PIXELS / blocks_of(*network);
    const size_t samples = (network->most - 1) / blocks_of(*network) + 1;
    struct layout *const at = &network->at;
    // Neighbouring rows begin in other banks of shared memory.
    network->stride = stride_of(network->most);
    network->width = round_to(network->hidden, 8) + QUAD;
    network->piece = round_to(pixels * network->stride, SECTOR); // copies in bulk need 16 bytes
    at->mbarriers = 0;
    at->bytes = SECTOR / sizeof(float);
    at->weights1 = at->bytes + network->piece / sizeof(float);
    at->pixels = at->weights1 + pixels * network->width;
    at->sums = at->pixels + pixels * network->stride;
    at->scores = at->sums + samples * MOST_BLOCKS * network->hidden;
    at->bias1 = at->scores + samples * (network->hidden / GROUP) * PADDED_CLASSES;
    at->weights2 = at->bias1 + network->hidden;
    at->d_activations = at->weights2 + (network->hidden + 1) * PADDED_CLASSES;
    at->d_logits = at->d_activations + round_to(network->most, QUAD) * network->hidden;
    at->activations = at->d_logits + network->most * PADDED_CLASSES;
    at->size = at->activations + network->most * (network->hidden / blocks_of(*network) + 1);
    at->size = round_to(at->size, QUAD); // the next block's begin in the GPU's memory
    network->kept = at->size * sizeof(float) <= (size_t)network->shared_bytes;
}

// Sets how many blocks a cluster has, and how many units. Its multiprocessors are neighbours, so
// the device is asked for how many clusters it finds room.
static void set_blocks(struct network *network) {
    CHECK(
        cudaDeviceGetAttribute(&network->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    for (const auto kernel : {run_epoch<true>, run_epoch<false>}) {
        CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
        // More than 48 KiB have to be asked for.
        CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   network->shared_bytes));
    }
    int clusters = 0;
    const size_t wanted = (network->all - 1) / LEAST_UNITS + 1;
    cudaLaunchAttribute attributes[2];
    for (network->log_blocks = LOG_MOST_BLOCKS;; --network->log_blocks) {
        set_layout(network, wanted);
        const cudaLaunchConfig_t launch = launch_of(network, attributes);
        if (cudaOccupancyMaxActiveClusters(&clusters, kernel_of(network), &launch) == cudaSuccess &&
            clusters)
            break;
        if (network->log_blocks == 0) // not even a block by itself
            CHECK(cudaErrorInvalidConfiguration);
        cudaGetLastError(); // or the next call that asks would get it
    }
    set_layout(network, min(wanted, (size_t)clusters));
    if (!network->kept)
        network->spilled = allocate(launch_of(network, attributes).gridDim.x * network->at.size);
}

// Runs an epoch. Does not wait for it.
static void submit_epoch(struct network *network, const struct byte_dataset *dataset,
                         const struct options *options, float learning_rate, float *ticks) {
    const size_t n = largest_batch(options);
    cudaLaunchAttribute attributes[2];
    const cudaLaunchConfig_t launch = launch_of(network, attributes);
    CHECK(cudaMemsetAsync(network->losses, 0, n * sizeof(float), network->stream));
    const auto run_epoch = kernel_of(network);
    CHECK(cudaLaunchKernelEx(&launch, run_epoch, *network, *dataset, options->batch, learning_rate,
                             ticks));
    sum_losses<<<1, 1, 0, network->stream>>>(network->losses, n, network->epoch_loss);
    CHECK(cudaGetLastError());
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
        float *ticks = allocate(2 * batches(options));
        start = seconds();
        submit_epoch(network, dataset, options, 0, ticks);
        wait_for_loss(network, dataset);
        collect_ticks(ticks, options, seconds() - start, result);
        CHECK(cudaFree(ticks));
    }

    start = seconds();
    for (int epoch = 0; epoch < options->epochs; ++epoch) {
        submit_epoch(network, dataset, options, options->learning_rate, NULL);
        result->final_loss = wait_for_loss(network, dataset);
        start = report_epoch(options, epoch, result->final_loss, start); // not timed
    }
    result->train_s = seconds() - start;
}

// Returns the fraction of samples whose most probable class is their label.
static double evaluate(struct network *network, const struct byte_dataset *dataset,
                       const uint8_t *labels, const struct options *options) {
    float *logits = allocate_floats(largest_batch(options) * CLASSES);
    struct byte_batch batch;
    size_t right = 0;
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        const size_t before = first / (size_t)options->batch * blocks_of(*network) * network->piece;
        const struct byte_dataset part = {(int)batch.samples, dataset->images + before,
                                          dataset->labels + first};
        submit_epoch(network, &part, options, 0, NULL);
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
    const size_t units = network->units, hidden = network->all;
    float *weights1 = allocate_floats(PIXELS * units), *bias1 = allocate_floats(units);
    float *weights2 = allocate_floats(units * CLASSES), *bias2 = allocate_floats(CLASSES);
    copy_matrix(weights1, units, network->weights1, hidden, PIXELS, units, cudaMemcpyDeviceToHost);
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
    struct network network = create(&options);
    set_blocks(&network);
    struct byte_dataset training_set = upload(&network, &data.train);
    struct byte_dataset test_set = upload(&network, &data.test);
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
