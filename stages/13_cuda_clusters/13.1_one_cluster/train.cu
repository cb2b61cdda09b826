// Stage 13.1: one cluster of blocks trains, with barriers of the cluster.
//
// Shapes: n samples in a batch, at most N; H hidden units. Arrays are row-major. H is padded to a
// whole number of UNITS. The surplus units hold zeros, and stay zero.
#include "common/newer_cuda.h"
#include "stages/training_cuda.h"

#include <cooperative_groups.h>
#include <math.h>

enum {
    THREADS = 256,
    WARP = 32,
    // Of the cluster, where the device allows it. All with clusters allow eight.
    MOST_BLOCKS = 16,
    // A block of the hidden layer has this many units, and a warp this many samples at a time.
    UNITS = 2,
    SAMPLES = 4,
    // The shared memory of such a pair of units' weights.
    PAIR_BYTES = UNITS * PIXELS * sizeof(float),
    // The rows of W2, b2 and dz are this long in memory, a multiple of 16 bytes.
    PADDED_CLASSES = 12
};

struct network {
    size_t units;  // as asked for
    size_t hidden; // H
    int blocks;    // of the cluster: all are alive at once
    size_t pairs;  // of units whose weights a block keeps in shared memory
    size_t kept;   // the first so many units have their weights in shared memory
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
    const size_t hidden = (units + UNITS - 1) / UNITS * UNITS;
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

// Returns where the weights of UNITS hidden units are during an epoch: in shared memory, or in the
// GPU's memory, if the block keeps no more. It is known which when this is compiled. With a pointer
// to either, all loads would be generic ones, which find out by the address.
template <bool KEPT> __device__ float *rows_of(const struct network &network, size_t h) {
    extern __shared__ float4 shared[];
    const size_t pair = h / UNITS / gridDim.x; // of the block
    return KEPT ? (float *)shared + pair * UNITS * PIXELS : network.weights1 + h * PIXELS;
}

// Sets a = max(0, x·W1 + b1) for UNITS hidden units. A warp has SAMPLES samples. Its even lanes
// have every other of them, and the odd lanes the rest. Such a pair of lanes has four pixels in 64,
// and loads the same weights. Past the last sample, a lane repeats it.
template <bool KEPT>
__device__ void forward_units(struct network network, struct byte_batch batch, size_t h) {
    const size_t n = batch.samples, hidden = network.hidden;
    const float *weights = rows_of<KEPT>(network, h);
    const int lane = threadIdx.x % WARP, odd = lane % 2;
    // Not of the cluster: a batch begins with parameters that only this block writes.
    __syncthreads();
    const float bias[UNITS] = {network.bias1[h], network.bias1[h + 1]};
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

// One warp finishes one sample: z = a·W2 + b2, p = softmax(z) and
// dz = (p − onehot(label)) / n. Adds −log p[label] to the losses. Then da = (dz·W2ᵀ) ⊙ [a > 0].
__device__ void output_layer(struct network network, struct byte_batch batch, size_t s) {
    const size_t hidden = network.hidden;
    const int lane = threadIdx.x % WARP;
    // Needed later. Loaded now, they arrive while the warp computes.
    const int label = batch.labels[s];
    const float loss = network.losses[s];
    float z = lane < CLASSES ? network.bias2[lane] : -INFINITY, part[CLASSES] = {};
    for (size_t h = lane; h < hidden; h += WARP) {
        const float a = network.activations[s * hidden + h];
        alignas(16) float w[PADDED_CLASSES];
        load_row(w, network.weights2 + h * PADDED_CLASSES);
        for (int o = 0; o < CLASSES; ++o)
            part[o] += a * w[o];
    }
    for (int o = 0; o < CLASSES; ++o) {
        const float sum = warp_sum(part[o]);
        z += lane == o ? sum : 0; // each of the first ten lanes has an output
    }
    const float shifted = z - warp_max(z), e = expf(shifted), sum = warp_sum(e);
    const float own = (e / sum - (lane == label)) / (float)batch.samples;
    if (lane < CLASSES) {
        network.logits[s * CLASSES + lane] = z;
        network.d_logits[s * PADDED_CLASSES + lane] = own;
    }
    if (lane == label)
        network.losses[s] = loss + logf(sum) - shifted;
    float dz[CLASSES]; // of all lanes
    for (int o = 0; o < CLASSES; ++o)
        dz[o] = __shfl_sync(0xffffffff, own, o);
    for (size_t h = lane; h < hidden; h += WARP) {
        alignas(16) float w[PADDED_CLASSES];
        load_row(w, network.weights2 + h * PADDED_CLASSES);
        float da = 0;
        for (int o = 0; o < CLASSES; ++o)
            da += dz[o] * w[o];
        network.d_activations[s * hidden + h] = network.activations[s * hidden + h] > 0 ? da : 0;
    }
}

// Updates all weights of UNITS hidden units, and b2 beside the first. A thread has four pixels. The
// last warp has none, and does all but W1ᵀ: a lane has a unit, and every sixteenth sample.
template <bool KEPT>
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
            float4 *w = (float4 *)(rows_of<KEPT>(network, h) + u * PIXELS + k);
            *w = make_float4(w->x - rate * sum[0][u], w->y - rate * sum[1][u],
                             w->z - rate * sum[2][u], w->w - rate * sum[3][u]);
        }
    }
    if (threadIdx.x < THREADS - WARP)
        return;
    const int lane = threadIdx.x % WARP, unit = lane % UNITS;
    float bias1 = 0, row[CLASSES] = {}, bias2[CLASSES] = {};
#pragma unroll 2
    for (size_t s = lane / UNITS; s < n; s += WARP / UNITS) {
        bias1 += network.d_activations[s * hidden + h + unit];
        const float a = network.activations[s * hidden + h + unit];
        alignas(16) float dz[PADDED_CLASSES];
        load_row(dz, network.d_logits + s * PADDED_CLASSES);
        for (int o = 0; o < CLASSES; ++o) {
            row[o] += a * dz[o];
            bias2[o] += dz[o];
        }
    }
    for (int distance = WARP / 2; distance >= UNITS; distance /= 2) {
        bias1 += __shfl_xor_sync(0xffffffff, bias1, distance);
        for (int o = 0; o < CLASSES; ++o) {
            row[o] += __shfl_xor_sync(0xffffffff, row[o], distance);
            bias2[o] += __shfl_xor_sync(0xffffffff, bias2[o], distance);
        }
    }
    if (lane < UNITS) {
        network.bias1[h + unit] -= learning_rate * bias1;
        for (int o = 0; o < CLASSES; ++o)
            network.weights2[(h + unit) * PADDED_CLASSES + o] -= learning_rate * row[o];
    }
    for (int o = 0; o < CLASSES && h == 0 && lane == 0; ++o)
        network.bias2[o] -= learning_rate * bias2[o];
}

// Runs an epoch over a data set in file order, in batches of `size`. The last batch may be short.
// Times the phases if `ticks` is not NULL.
__global__ void __launch_bounds__(THREADS, 1)
    run_epoch(struct network network, struct byte_dataset dataset, int size, float learning_rate,
              float *ticks) {
    const auto cluster = cooperative_groups::this_cluster();
    const size_t warp = threadIdx.x / WARP;
    for (size_t h = blockIdx.x * UNITS; h < network.kept; h += gridDim.x * UNITS)
        for (int i = threadIdx.x; i < UNITS * PIXELS; i += THREADS)
            rows_of<true>(network, h)[i] = network.weights1[h * PIXELS + i];
    for (size_t first = 0; first < (size_t)dataset.samples; first += (size_t)size) {
        const struct byte_batch batch = batch_at(&dataset, first, size);
        const size_t phase = 2 * (first / (size_t)size);
        const long long start = clock64();
        for (size_t h = blockIdx.x * UNITS; h < network.hidden; h += gridDim.x * UNITS)
            h < network.kept ? forward_units<true>(network, batch, h)
                             : forward_units<false>(network, batch, h);
        cluster.sync();
        for (size_t s = warp * gridDim.x + blockIdx.x; s < batch.samples;
             s += THREADS / WARP * gridDim.x)
            output_layer(network, batch, s);
        cluster.sync();
        const long long middle = lap(ticks, phase, start);
        for (size_t h = blockIdx.x * UNITS; h < network.hidden; h += gridDim.x * UNITS)
            h < network.kept ? update_units<true>(network, batch, h, learning_rate)
                             : update_units<false>(network, batch, h, learning_rate);
        lap(ticks, phase + 1, middle);
    }
    __syncthreads();
    for (size_t h = blockIdx.x * UNITS; h < network.kept; h += gridDim.x * UNITS)
        for (int i = threadIdx.x; i < UNITS * PIXELS; i += THREADS)
            network.weights1[h * PIXELS + i] = rows_of<true>(network, h)[i];
}

// Sums the losses, in one thread: there are only as many as samples in a batch.
__global__ void sum_losses(const float *losses, size_t n, float *epoch_loss) {
    float sum = 0;
    for (size_t s = 0; s < n; ++s)
        sum += losses[s];
    *epoch_loss = sum;
}

// Returns a launch of one cluster. Its blocks are neighbours in x.
static cudaLaunchConfig_t launch_of(const struct network *network, cudaLaunchAttribute *size) {
    cudaLaunchConfig_t launch = {};
    size->id = cudaLaunchAttributeClusterDimension;
    size->val.clusterDim.x = (unsigned)network->blocks;
    size->val.clusterDim.y = size->val.clusterDim.z = 1;
    launch.gridDim = dim3((unsigned)network->blocks);
    launch.blockDim = dim3(THREADS);
    launch.dynamicSmemBytes = network->pairs * PAIR_BYTES;
    launch.stream = network->stream;
    launch.attrs = size;
    launch.numAttrs = 1;
    return launch;
}

// Sets how many blocks the cluster has, and how many pairs of units' weights each of them keeps.
// The multiprocessors of a cluster are neighbours, so the device is asked whether one finds room.
static void set_blocks(struct network *network) {
    int bytes, clusters = 0;
    cudaLaunchAttribute size;
    CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    CHECK(cudaFuncSetAttribute(run_epoch, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    const size_t most = (size_t)bytes / PAIR_BYTES;
    for (network->blocks = MOST_BLOCKS;; network->blocks /= 2) {
        const size_t pairs = (network->hidden / UNITS - 1) / (size_t)network->blocks + 1;
        network->pairs = pairs < most ? pairs : most;
        network->kept = pairs <= most ? network->hidden : most * (size_t)network->blocks * UNITS;
        const cudaLaunchConfig_t launch = launch_of(network, &size);
        // More than 48 KiB have to be asked for.
        CHECK(cudaFuncSetAttribute(run_epoch, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   (int)launch.dynamicSmemBytes));
        if (cudaOccupancyMaxActiveClusters(&clusters, run_epoch, &launch) == cudaSuccess &&
            clusters)
            return;
        if (network->blocks == 1) // not even a block by itself
            CHECK(cudaErrorInvalidConfiguration);
        cudaGetLastError(); // or the next call that asks would get it
    }
}

// Runs an epoch. Does not wait for it.
static void submit_epoch(struct network *network, const struct byte_dataset *dataset,
                         const struct options *options, float learning_rate, float *ticks) {
    const size_t n = largest_batch(options);
    cudaLaunchAttribute size;
    const cudaLaunchConfig_t launch = launch_of(network, &size);
    CHECK(cudaMemsetAsync(network->losses, 0, n * sizeof(float), network->stream));
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
        const struct byte_dataset part = {(int)batch.samples, dataset->images + first * PIXELS,
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
    result.device = open_newer_device();
    result.setup_s = seconds() - clock;
    int status = load_data(&options, &data);
    if (status)
        return status;

    clock = seconds();
    const double used = used_device_mib();
    struct byte_dataset training_set = upload(&data.train), test_set = upload(&data.test);
    struct network network = create(&options);
    set_blocks(&network);
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
