// Stage 10.7: W1 lies turned in memory, so that a hidden unit's weights are side by side.
//
// Shapes: n samples in a batch, at most N; H hidden units. Arrays are row-major. H is padded to a
// whole number of UNITS. The surplus units hold zeros, and stay zero.
#include "stages/training_cuda.h"

#include <cooperative_groups.h>
#include <math.h>

enum {
    THREADS = 256,
    WARP = 32,
    UNITS = 2,   // of a block
    SAMPLES = 8, // of a warp at a time
    // The rows of W2, b2 and dz are this long in memory.
    PADDED_CLASSES = 32
};

struct network {
    size_t units;  // as asked for
    size_t hidden; // H
    int blocks;    // of a launch: all are alive at once

    // One allocation holds all parameters, in this order.
    float *weights1; // H × 784: W1ᵀ
    float *bias1;    // H
    float *weights2; // H × PADDED_CLASSES
    float *bias2;    // PADDED_CLASSES

    // One batch's intermediate values.
    float *activations;   // N × H: a
    float *d_activations; // N × H: da
    float *logits;        // samples of the larger data set × 10: z
    float *d_logits;      // N × PADDED_CLASSES: dz
    float *losses;        // N: −log p[label], added up over the batches of an epoch
    float *epoch_loss;    // 1: the sum of the losses
    float *ticks;         // batches × 2: of a multiprocessor's clock, in each phase
};

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

// Copies a data set to the device, as the bytes that its files have.
static struct byte_dataset upload(const struct dataset *host) {
    const size_t pixels = (size_t)host->samples * PIXELS, samples = (size_t)host->samples;
    struct byte_dataset device = {host->samples, NULL, NULL};
    CHECK_ALLOCATION(cudaMalloc(&device.images, pixels), pixels);
    CHECK_ALLOCATION(cudaMalloc(&device.labels, samples), samples);
    std::vector<uint8_t> bytes(pixels);
    for (size_t i = 0; i < pixels; ++i)
        bytes[i] = (uint8_t)lrintf(255 * host->images[i]);
    copy_pinned(device.images, bytes.data(), pixels);
    copy_pinned(device.labels, host->labels, samples);
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

// Copies a matrix of rows × columns between host (dense) and device (rows of `stride`).
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
    CHECK(cudaDeviceGetAttribute(&network.blocks, cudaDevAttrMultiProcessorCount, 0));
    network.weights1 =
        allocate_zeroed(PIXELS * hidden + hidden + hidden * PADDED_CLASSES + PADDED_CLASSES);
    network.bias1 = network.weights1 + PIXELS * hidden;
    network.weights2 = network.bias1 + hidden;
    network.bias2 = network.weights2 + hidden * PADDED_CLASSES;
    network.activations = allocate(n * hidden);
    network.d_activations = allocate(n * hidden);
    network.logits = allocate((size_t)max(options->train_samples, options->test_samples) * CLASSES);
    network.d_logits = allocate_zeroed(n * PADDED_CLASSES);
    network.losses = allocate(n);
    network.epoch_loss = allocate(1);
    network.ticks = allocate(2 * batches(options));

    float *weights = allocate_floats(PIXELS * units);
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t i = 0; i < PIXELS * units; ++i)
        weights[i % units * PIXELS + i / units] = draw_weight(&generator, PIXELS);
    copy_matrix(network.weights1, PIXELS, weights, PIXELS, units, PIXELS, cudaMemcpyHostToDevice);
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
    CHECK(cudaFree(network->activations));
    CHECK(cudaFree(network->d_activations));
    CHECK(cudaFree(network->logits));
    CHECK(cudaFree(network->d_logits));
    CHECK(cudaFree(network->losses));
    CHECK(cudaFree(network->epoch_loss));
    CHECK(cudaFree(network->ticks));
}

// Returns four numbers from an address that is aligned to as many. Bytes become floats.
template <class T> __device__ float4 load_four(const T *from) {
    if (sizeof(T) > 1)
        return *(const float4 *)from;
    const uchar4 four = *(const uchar4 *)from;
    return make_float4(four.x, four.y, four.z, four.w);
}

// Sets a = max(0, x·W1 + b1) for two hidden units. A warp has eight samples, or the last again.
// Lanes in pairs have the same pixels of two samples, so they load the same weights.
__device__ void forward_units(struct network network, struct byte_batch batch, size_t h) {
    const float *weights = network.weights1 + h * PIXELS;
    const size_t n = batch.samples, hidden = network.hidden;
    const int lane = threadIdx.x % WARP;
    for (size_t s = threadIdx.x / WARP * SAMPLES; s < n; s += THREADS / WARP * SAMPLES) {
        float sum[SAMPLES / 2][UNITS] = {};
#pragma unroll
        for (int first = 0; first < PIXELS; first += 2 * WARP)
            if (const int k = first + lane / 2 * 4; k < PIXELS) {
                const float4 w[] = {load_four(weights + k), load_four(weights + PIXELS + k)};
                for (int i = 0; i < SAMPLES / 2; ++i) {
                    const size_t sample = min(s + 2 * i + lane % 2, n - 1);
                    const float4 x = load_four(batch.images + sample * PIXELS + k);
                    for (int u = 0; u < UNITS; ++u)
                        sum[i][u] += x.x * w[u].x + x.y * w[u].y + x.z * w[u].z + x.w * w[u].w;
                }
            }
        for (int i = 0; i < SAMPLES / 2; ++i)
            for (int u = 0; u < UNITS; ++u) {
                for (int distance = WARP / 2; distance > 1; distance /= 2)
                    sum[i][u] += __shfl_xor_sync(0xffffffff, sum[i][u], distance);
                const float a = sum[i][u] / 255 + network.bias1[h + u];
                if (lane < 2 && s + 2 * i + lane < n)
                    network.activations[(s + 2 * i + lane) * hidden + h + u] = a > 0 ? a : 0;
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

// One block finishes one sample: z = a·W2 + b2, p = softmax(z) and
// dz = (p − onehot(label)) / n. Adds −log p[label] to the losses.
__device__ void output_layer(struct network network, struct byte_batch batch, size_t s) {
    __shared__ float warps[THREADS / WARP][CLASSES];
    const size_t hidden = network.hidden;
    const int lane = threadIdx.x % WARP;
    float part[CLASSES] = {};
    for (size_t h = threadIdx.x; h < hidden; h += THREADS) {
        const float a = network.activations[s * hidden + h];
        for (int o = 0; o < CLASSES; ++o)
            part[o] += a * network.weights2[h * PADDED_CLASSES + o];
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
    float z = lane < CLASSES ? network.bias2[lane] : -INFINITY;
    for (int w = 0; w < THREADS / WARP && lane < CLASSES; ++w)
        z += warps[w][lane];
    const float shifted = z - warp_max(z), e = expf(shifted), sum = warp_sum(e);
    if (lane < CLASSES) {
        network.logits[s * CLASSES + lane] = z;
        network.d_logits[s * PADDED_CLASSES + lane] =
            (e / sum - (lane == batch.labels[s])) / (float)batch.samples;
    }
    if (lane == batch.labels[s])
        network.losses[s] += logf(sum) - shifted;
}

// Sets da = (dz·W2ᵀ) ⊙ [a > 0] for two hidden units. Then updates 32 parameters, a lane for
// each: two rows of W2, b2 (in the first block), and two numbers of b1.
__device__ void backward_units(struct network network, struct byte_batch batch, size_t h,
                               float learning_rate) {
    __shared__ float sums[THREADS / WARP][WARP];
    const size_t n = batch.samples, hidden = network.hidden;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int row = lane / CLASSES, o = lane % CLASSES;
    for (size_t i = threadIdx.x; i < n * UNITS; i += THREADS) {
        const size_t s = i / UNITS, u = h + i % UNITS;
        float da = 0;
        for (int c = 0; c < CLASSES; ++c)
            da +=
                network.d_logits[s * PADDED_CLASSES + c] * network.weights2[u * PADDED_CLASSES + c];
        network.d_activations[s * hidden + u] = network.activations[s * hidden + u] > 0 ? da : 0;
    }
    __syncthreads();
    float sum = 0;
    for (size_t s = warp; s < n; s += THREADS / WARP)
        sum += row > UNITS ? network.d_activations[s * hidden + h + o]
                           : (row < UNITS ? network.activations[s * hidden + h + row] : 1) *
                                 network.d_logits[s * PADDED_CLASSES + o];
    sums[warp][lane] = sum;
    __syncthreads();
    for (int w = 1; w < THREADS / WARP; ++w)
        sum += sums[w][lane];
    float *weight = row < UNITS    ? &network.weights2[(h + row) * PADDED_CLASSES + o]
                    : row == UNITS ? &network.bias2[o]
                                   : &network.bias1[h + o];
    if (warp == 0 && (row != UNITS || h == 0))
        *weight -= learning_rate * sum;

    // W1 −= lr·xᵀ·da. A thread has four pixels.
    const size_t k = 4 * threadIdx.x;
    if (k >= PIXELS)
        return;
    float gradient[4][UNITS] = {};
#pragma unroll 16
    for (size_t s = 0; s < n; ++s) {
        const float4 four = load_four(batch.images + s * PIXELS + k);
        const float x[] = {four.x, four.y, four.z, four.w};
        for (int r = 0; r < 4; ++r)
            for (int u = 0; u < UNITS; ++u)
                gradient[r][u] += x[r] * network.d_activations[s * hidden + h + u];
    }
    const float rate = learning_rate / 255;
    for (int u = 0; u < UNITS; ++u) {
        float4 *w = (float4 *)(network.weights1 + (h + u) * PIXELS + k);
        *w = make_float4(w->x - rate * gradient[0][u], w->y - rate * gradient[1][u],
                         w->z - rate * gradient[2][u], w->w - rate * gradient[3][u]);
    }
}

// Sets a, z and dz for a batch, adds to the losses, and updates the weights.
__device__ void run_batch(struct network network, struct byte_batch batch, float learning_rate,
                          float *ticks) {
    const auto grid = cooperative_groups::this_grid();
    const long long start = clock64();
    for (size_t h = UNITS * blockIdx.x; h < network.hidden; h += UNITS * gridDim.x)
        forward_units(network, batch, h);
    grid.sync();
    for (size_t s = blockIdx.x; s < batch.samples; s += gridDim.x) {
        output_layer(network, batch, s);
        __syncthreads();
    }
    grid.sync();
    const long long middle = lap(ticks, 0, start);
    for (size_t h = UNITS * blockIdx.x; h < network.hidden; h += UNITS * gridDim.x)
        backward_units(network, batch, h, learning_rate);
    lap(ticks, 1, middle);
}

// Runs an epoch over a data set in file order, in batches of `size`. The last batch may be short.
// Times the phases if `ticks` is not NULL.
__global__ void __launch_bounds__(THREADS, 1)
    run_epoch(struct network network, struct byte_dataset dataset, int size, float learning_rate,
              float *ticks) {
    struct byte_batch batch;
    for (size_t first = 0; first < (size_t)dataset.samples; first += batch.samples) {
        batch = batch_at(&dataset, first, size);
        run_batch(network, batch, learning_rate, ticks);
        __syncthreads(); // no more: a block reads nothing that others may still change
        network.logits += batch.samples * CLASSES;
        ticks += ticks ? 2 : 0;
    }
}

// Sums the losses, in one thread: there are only as many as samples in a batch.
__global__ void sum_losses(const float *losses, size_t n, float *epoch_loss) {
    float sum = 0;
    for (size_t s = 0; s < n; ++s)
        sum += losses[s];
    *epoch_loss = sum;
}

// Runs an epoch, in as many blocks as there are multiprocessors. Does not wait for it.
static void submit_epoch(struct network *network, const struct byte_dataset *dataset,
                         const struct options *options, float learning_rate, float *ticks) {
    const size_t n = largest_batch(options);
    int size = options->batch;
    void *arguments[] = {network, (void *)dataset, &size, &learning_rate, &ticks};
    CHECK(cudaMemset(network->losses, 0, n * sizeof(float)));
    // The cast is for CUDA 11.
    CHECK(cudaLaunchCooperativeKernel((const void *)run_epoch, network->blocks, THREADS, arguments,
                                      0, 0));
    sum_losses<<<1, 1>>>(network->losses, n, network->epoch_loss);
    CHECK(cudaGetLastError());
}

// Returns the mean loss of the last epoch, when its last weight is final.
static double wait_for_loss(const struct network *network, const struct byte_dataset *dataset) {
    float loss;
    copy(&loss, network->epoch_loss, 1, cudaMemcpyDeviceToHost);
    return loss / dataset->samples;
}

// Runs all epochs. Before them come some with a learning rate of 0, which leave the weights as they
// are. The first is cold. Others raise the GPU's clock. In the last, the kernel times the phases.
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
        start = seconds();
        submit_epoch(network, dataset, options, 0, network->ticks);
        wait_for_loss(network, dataset);
        collect_ticks(network->ticks, options, seconds() - start, result);
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
    submit_epoch(network, dataset, options, 0, NULL);
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        copy(logits, network->logits + first * CLASSES, batch.samples * CLASSES,
             cudaMemcpyDeviceToHost);
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
    copy_matrix(rows, PIXELS, network->weights1, PIXELS, units, PIXELS, cudaMemcpyDeviceToHost);
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
    struct options options = parse_options(argc, argv, "Trains on a GPU, in a kernel an epoch.", 1);
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
