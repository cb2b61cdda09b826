// Stage 10, from 09: one kernel for all epochs. A block keeps its slice of W1 in shared memory, and
// the blocks wait for each other once a batch.
//
// Shapes: n samples in a batch, at most N; H hidden units. Arrays are row-major. H is padded to an
// even number. The surplus unit holds zeros, and stays zero.
#include "stages/training_cuda.h"

#include <cooperative_groups.h>
#include <math.h>

enum {
    THREADS = 256,
    // So many threads share a sample in the forward pass. A block has SAMPLES of them at once.
    LANES = 8,
    SAMPLES = THREADS / LANES,
    // A pixel that a thread has loaded serves so many hidden units.
    UNITS = 2,
    // Pixels are loaded in fours. A thread has so many fours of a sample in the forward pass.
    FOURS = PIXELS / 4,
    STEPS = (FOURS + LANES - 1) / LANES,
    // A row of W1ᵀ, in fours: a hidden unit's weights, and then its bias.
    ROW = FOURS + 1,
    // The rows of W2 are this long in memory, so that they are whole fours, too.
    PADDED_CLASSES = 12,
    // The shared memory of a block beside its rows of W1ᵀ: dz, a, da and the losses.
    SCRATCH_BYTES = SAMPLES * (CLASSES + 2 * UNITS + 1) * 4,
    WARP = 32
};

// A row of W2, or b2.
struct alignas(16) classes {
    float of[PADDED_CLASSES];
};

struct network {
    size_t units;  // as asked for
    size_t hidden; // H

    size_t blocks;   // of the kernel: all are alive at once
    size_t slice;    // so many hidden units belong to a block
    size_t resident; // the rows of W1ᵀ of so many of them fit in its shared memory

    float4 *weights1; // H × ROW: W1ᵀ, with b1 at the end of the rows
    // H + 1 rows: W2, then b2. The next batch reads weights2[now], and writes what comes after it
    // to the other. So no block waits until all have read.
    struct classes *weights2[2];
    size_t now;

    float *activations[2]; // N × H: a, of this batch, and of the one before or after
    float *logits;         // samples of the test × 10: z
    float *losses;         // epochs: the sum of −log p[label]; evaluate() needs one, too
    long long *marks;      // 1 + 2 · batches: when the phases of an epoch ended
};

// What the threads of a block share: its hidden units, and what it has of SAMPLES samples.
struct slice {
    size_t first, units, resident; // as in the network
    float4 *shared, *global;       // the rows of W1ᵀ
    float (*dz)[CLASSES];          // SAMPLES × 10
    float (*a)[UNITS];             // SAMPLES × 2
    float (*da)[UNITS];            // SAMPLES × 2
};

// Returns the batches of an epoch.
static size_t batches(const struct options *options) {
    return ((size_t)options->train_samples - 1) / (size_t)options->batch + 1;
}

static void *allocate(size_t bytes) {
    void *memory;
    CHECK_ALLOCATION(cudaMalloc(&memory, bytes), bytes);
    return memory;
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

// Copies a matrix of rows × columns between host (dense) and device (rows of `stride`).
static void copy_matrix(void *to, size_t to_stride, const void *from, size_t from_stride,
                        size_t rows, size_t columns, enum cudaMemcpyKind kind) {
    CHECK(cudaMemcpy2D(to, to_stride * sizeof(float), from, from_stride * sizeof(float),
                       columns * sizeof(float), rows, kind));
}

static void *allocate_zeroed(size_t bytes) {
    void *memory = allocate(bytes);
    CHECK(cudaMemset(memory, 0, bytes));
    return memory;
}

// Sets how many blocks there are, and what each of them has.
static void divide(struct network *network) {
    int multiprocessors, shared_bytes;
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    const size_t pairs = network->hidden / UNITS;
    const size_t pairs_of_block = (pairs - 1) / (size_t)multiprocessors + 1;
    const size_t room = ((size_t)shared_bytes - SCRATCH_BYTES) / (UNITS * ROW * sizeof(float4));
    network->slice = UNITS * pairs_of_block;
    network->blocks = (pairs - 1) / pairs_of_block + 1;
    network->resident = UNITS * (pairs_of_block < room ? pairs_of_block : room);
}

static struct network create(const struct options *options) {
    const size_t units = (size_t)options->hidden, n = largest_batch(options);
    const size_t hidden = (units + UNITS - 1) / UNITS * UNITS;
    struct network network = {};
    network.units = units;
    network.hidden = hidden;
    divide(&network);
    network.weights1 = (float4 *)allocate_zeroed(hidden * ROW * sizeof(float4));
    for (struct classes *&weights2 : network.weights2)
        weights2 = (struct classes *)allocate_zeroed((hidden + 1) * sizeof(struct classes));
    for (float *&activations : network.activations)
        activations = (float *)allocate(n * hidden * sizeof(float));
    network.logits = (float *)allocate((size_t)options->test_samples * CLASSES * sizeof(float));
    network.losses = (float *)allocate(((size_t)options->epochs + 1) * sizeof(float));
    network.marks = (long long *)allocate((1 + 2 * batches(options)) * sizeof(long long));

    float *weights = allocate_floats(units * ROW * 4);
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t h = 0; h < units; ++h)
            weights[h * ROW * 4 + k] = draw_weight(&generator, PIXELS);
    CHECK(cudaMemcpy(network.weights1, weights, units * ROW * sizeof(float4),
                     cudaMemcpyHostToDevice));
    generator = pcg32_start(options->seed, 2);
    for (size_t i = 0; i < units * CLASSES; ++i)
        weights[i] = draw_weight(&generator, units);
    copy_matrix(network.weights2[0], PADDED_CLASSES, weights, CLASSES, units, CLASSES,
                cudaMemcpyHostToDevice);
    free(weights);
    return network;
}

static void destroy(struct network *network) {
    CHECK(cudaFree(network->weights1));
    CHECK(cudaFree(network->weights2[0]));
    CHECK(cudaFree(network->weights2[1]));
    CHECK(cudaFree(network->activations[0]));
    CHECK(cudaFree(network->activations[1]));
    CHECK(cudaFree(network->logits));
    CHECK(cudaFree(network->losses));
    CHECK(cudaFree(network->marks));
}

// Returns the sum over the threads that share a sample, to all of them.
__device__ float lanes_sum(float value) {
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(0xffffffff, value, distance);
    return value;
}

// Returns four pixels, 0 to 255, that lie side by side in memory.
__device__ float4 pixels(unsigned four) {
    return make_float4(four & 255, four >> 8 & 255, four >> 16 & 255, four >> 24);
}

// Sets a = max(0, x·W1 + b1) for two hidden units, from `unit` on, whose rows begin at `row`. Where
// there is no sample left, a thread takes the last one again, and does not store the result.
__device__ void hidden_units(const struct byte_batch *batch, const float4 *row, float *activations,
                             size_t unit, size_t hidden) {
    const int lane = threadIdx.x % LANES;
    for (size_t first = 0; first < batch->samples; first += SAMPLES) {
        const size_t s = first + threadIdx.x / LANES, last = batch->samples - 1;
        const unsigned *fours = (const unsigned *)(batch->images + min(s, last) * PIXELS);
        float sum[UNITS] = {};
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            const int k = step * LANES + lane;
            if (k >= FOURS)
                continue;
            const float4 x = pixels(fours[k]);
            for (int u = 0; u < UNITS; ++u) {
                const float4 w = row[u * ROW + k];
                sum[u] += x.x * w.x;
                sum[u] += x.y * w.y;
                sum[u] += x.z * w.z;
                sum[u] += x.w * w.w;
            }
        }
        for (int u = 0; u < UNITS; ++u) {
            const float a = lanes_sum(sum[u]) / 255 + row[u * ROW + FOURS].x;
            if (lane == 0 && s <= last)
                activations[s * hidden + unit + u] = a > 0 ? a : 0;
        }
    }
}

// Sets a for the slice. A row of W1ᵀ that has no room in shared memory stays in the L2 cache. The
// two calls differ in nothing else, but the compiler has other instructions for shared memory.
__device__ void forward(const struct slice *slice, const struct byte_batch *batch,
                        float *activations, size_t hidden) {
    for (size_t i = 0; i < slice->units; i += UNITS) {
        const size_t unit = slice->first + i;
        if (i < slice->resident)
            hidden_units(batch, slice->shared + i * ROW, activations, unit, hidden);
        else
            hidden_units(batch, slice->global + i * ROW, activations, unit, hidden);
    }
}

// Sets dz for SAMPLES samples from `first` on: z = a·W2 + b2, p = softmax(z) and
// dz = (p − onehot(label)) / n. Every block does the same. Returns −log p[label] in one thread of
// each sample. Writes z if `logits` is not NULL.
__device__ float output_layer(const struct slice *slice, const struct byte_batch *batch,
                              const float *activations, const struct classes *weights2,
                              float *logits, size_t first, size_t hidden) {
    const int lane = threadIdx.x % LANES, i = threadIdx.x / LANES;
    const size_t n = batch->samples, s = first + i;
    float z[CLASSES] = {}, e[CLASSES], sum = 0, loss = 0;
#pragma unroll 4
    for (size_t h = lane; h < (s < n ? hidden : 0); h += LANES) {
        const float a = activations[s * hidden + h];
        const struct classes w = weights2[h];
        for (int o = 0; o < CLASSES; ++o)
            z[o] += a * w.of[o];
    }
#pragma unroll
    for (int o = 0; o < CLASSES; ++o)
        z[o] = lanes_sum(z[o]) + weights2[hidden].of[o];
    if (lane > 0)
        return 0;

    const int label = s < n ? batch->labels[s] : 0;
    float max = z[0];
    for (int o = 1; o < CLASSES; ++o)
        max = fmaxf(max, z[o]);
#pragma unroll
    for (int o = 0; o < CLASSES; ++o)
        sum += e[o] = expf(z[o] - max);
    const float part = 1 / (float)n, scale = part / sum;
#pragma unroll
    for (int o = 0; o < CLASSES; ++o) {
        slice->dz[i][o] = s < n ? e[o] * scale - (o == label ? part : 0) : 0;
        loss += s < n && o == label ? logf(sum) - (z[o] - max) : 0;
        if (logits && s < n)
            logits[s * CLASSES + o] = z[o];
    }
    return loss;
}

// Loads a thread's four pixels of SAMPLES samples, from `first` on. Where there is no sample left,
// it takes the last one again. Its da is 0.
__device__ void load_pixels(const struct byte_batch *batch, size_t first, unsigned *x) {
    const unsigned *fours = (const unsigned *)batch->images + threadIdx.x;
    if (threadIdx.x >= FOURS)
        return;
#pragma unroll
    for (int i = 0; i < SAMPLES; ++i)
        x[i] = fours[min(first + i, batch->samples - 1) * FOURS];
}

// W1 −= lr·xᵀ·da for a thread's four pixels and two units.
__device__ void update_first(float4 *row, float (*da)[UNITS], const unsigned *x,
                             float learning_rate) {
    float4 sum[UNITS] = {};
#pragma unroll
    for (int i = 0; i < SAMPLES; ++i) {
        const float4 four = pixels(x[i]);
        for (int u = 0; u < UNITS; ++u) {
            sum[u].x += four.x * da[i][u];
            sum[u].y += four.y * da[i][u];
            sum[u].z += four.z * da[i][u];
            sum[u].w += four.w * da[i][u];
        }
    }
    const float step = learning_rate / 255;
    for (int u = 0; u < UNITS; ++u) {
        float4 *w = &row[u * ROW + threadIdx.x];
        *w = make_float4(w->x - step * sum[u].x, w->y - step * sum[u].y, w->z - step * sum[u].z,
                         w->w - step * sum[u].w);
    }
}

// The same for the small parameters. The lanes of a warp have the two rows of W2, the two numbers
// of b1 and, with unit 0, b2.
__device__ void update_second(const struct slice *slice, float4 *row, const struct classes *old,
                              struct classes *next, size_t unit, size_t hidden,
                              float learning_rate) {
    const int lane = threadIdx.x % WARP, o = lane % CLASSES, u = lane / CLASSES;
    float sum = 0;
    if (u < UNITS) {
        for (int i = 0; i < SAMPLES; ++i)
            sum += slice->a[i][u] * slice->dz[i][o];
        next[unit + u].of[o] = old[unit + u].of[o] - learning_rate * sum;
    } else if (u == UNITS) {
        for (int i = 0; i < SAMPLES; ++i)
            sum += slice->dz[i][o];
        if (unit == 0)
            next[hidden].of[o] = old[hidden].of[o] - learning_rate * sum;
    } else {
        for (int i = 0; i < SAMPLES; ++i)
            sum += slice->da[i][o];
        row[o * ROW + FOURS].x -= learning_rate * sum;
    }
}

// Takes a step down the gradient of SAMPLES samples from `first` on, of which dz is known. That of
// W2 and b2 goes to `next`, because other blocks still read `weights2`.
__device__ void backward(const struct slice *slice, const struct byte_batch *batch,
                         const unsigned *x, const float *activations,
                         const struct classes *weights2, struct classes *next, size_t first,
                         size_t hidden, float learning_rate) {
    const size_t left = batch->samples - first;
    const int i = threadIdx.x / UNITS, u = threadIdx.x % UNITS;
    for (size_t k = 0; k < slice->units; k += UNITS) {
        const size_t unit = slice->first + k;
        if (i < SAMPLES) {
            const float a = (size_t)i < left ? activations[(first + i) * hidden + unit + u] : 0;
            float sum = 0;
            for (int o = 0; o < CLASSES; ++o)
                sum += slice->dz[i][o] * weights2[unit + u].of[o];
            slice->a[i][u] = a;
            slice->da[i][u] = a > 0 ? sum : 0;
        }
        __syncthreads();
        const struct classes *old = first == 0 ? weights2 : next;
        float4 *shared = slice->shared + k * ROW, *global = slice->global + k * ROW;
        const bool resident = k < slice->resident;
        if (threadIdx.x >= THREADS - WARP)
            update_second(slice, resident ? shared : global, old, next, unit, hidden,
                          learning_rate);
        else if (threadIdx.x < FOURS && resident)
            update_first(shared, slice->da, x, learning_rate);
        else if (threadIdx.x < FOURS)
            update_first(global, slice->da, x, learning_rate);
        __syncthreads();
    }
}

// Sums the losses of the block's threads, in the order of the samples.
__device__ void sum_losses(float *losses, float loss, float *epoch_loss) {
    if (threadIdx.x % LANES == 0)
        losses[threadIdx.x / LANES] = loss;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    float sum = 0;
    for (int i = 0; i < SAMPLES; ++i)
        sum += losses[i];
    *epoch_loss = sum;
}

// Writes down what the clock of the first block's multiprocessor says, if that is wanted.
__device__ void mark(long long **marks) {
    if (*marks && blockIdx.x == 0 && threadIdx.x == 0)
        *(*marks)++ = clock64();
}

// Runs epochs over the data set in file order, in batches of `size`. The last batch may be short.
// Computes z alone if `logits` is not NULL.
__global__ void __launch_bounds__(THREADS, 1)
    run_epochs(struct network network, struct byte_dataset dataset, int size, int epochs,
               float learning_rate, float *logits, long long *marks) {
    extern __shared__ float4 rows[];
    __shared__ float dz[SAMPLES][CLASSES], a[SAMPLES][UNITS], da[SAMPLES][UNITS], losses[SAMPLES];
    const size_t first_unit = blockIdx.x * network.slice, hidden = network.hidden;
    const size_t units = min(network.slice, hidden - first_unit);
    const struct slice slice = {first_unit,
                                units,
                                min(network.resident, units),
                                rows,
                                network.weights1 + first_unit * ROW,
                                dz,
                                a,
                                da};
    struct classes *weights2 = network.now == 0 ? network.weights2[0] : network.weights2[1];
    struct classes *next = network.now == 0 ? network.weights2[1] : network.weights2[0];
    float *activations = network.activations[0], *others = network.activations[1];
    for (size_t i = threadIdx.x; i < slice.resident * ROW; i += THREADS)
        rows[i] = slice.global[i];
    __syncthreads();

    mark(&marks);
    for (int epoch = 0; epoch < epochs; ++epoch) {
        float loss = 0;
        struct byte_batch batch;
        for (size_t start = 0; start < (size_t)dataset.samples; start += batch.samples) {
            batch = batch_at(&dataset, start, size);
            forward(&slice, &batch, activations, hidden);
            cooperative_groups::this_grid().sync(); // the only one: a and W2 are complete
            mark(&marks);
            for (size_t first = 0; first < batch.samples; first += SAMPLES) {
                unsigned x[SAMPLES]; // under way while dz is computed
                load_pixels(&batch, first, x);
                loss += output_layer(&slice, &batch, activations, weights2,
                                     logits && blockIdx.x == 0 ? logits + start * CLASSES : NULL,
                                     first, hidden);
                __syncthreads();
                if (!logits)
                    backward(&slice, &batch, x, activations, weights2, next, first, hidden,
                             learning_rate);
            }
            mark(&marks);
            // A block may be ahead by a forward pass while others still read a and W2.
            float *const read = activations;
            activations = others;
            others = read;
            if (!logits) {
                struct classes *const old = weights2;
                weights2 = next;
                next = old;
            }
        }
        if (blockIdx.x == 0)
            sum_losses(losses, loss, &network.losses[epoch]);
    }
    for (size_t i = threadIdx.x; i < slice.resident * ROW; i += THREADS)
        slice.global[i] = rows[i];
}

// Runs the kernel on all its blocks at once, and waits for it. With `logits`, it trains nothing.
static void launch(struct network *network, const struct byte_dataset *dataset,
                   const struct options *options, int epochs, float learning_rate, float *logits,
                   long long *marks) {
    int size = options->batch;
    const size_t bytes = network->resident * ROW * sizeof(float4);
    void *arguments[] = {network, (void *)dataset, &size, &epochs, &learning_rate, &logits, &marks};
    CHECK(
        cudaFuncSetAttribute(run_epochs, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    // The cast is for CUDA 11.
    CHECK(cudaLaunchCooperativeKernel((const void *)run_epochs, (unsigned)network->blocks, THREADS,
                                      arguments, bytes, 0));
    CHECK(cudaDeviceSynchronize());
    if (!logits)
        network->now = (network->now + (size_t)epochs * batches(options)) % 2;
}

// Adds the times between the marks of an epoch, which took so many seconds, to the timers of the
// two phases, as if all epochs of the run had taken them.
static void collect_marks(const struct network *network, const struct options *options,
                          double epoch_s, struct result *result) {
    std::vector<long long> marks(1 + 2 * batches(options));
    CHECK(cudaMemcpy(marks.data(), network->marks, marks.size() * sizeof(long long),
                     cudaMemcpyDeviceToHost));
    const double tick_s = epoch_s / (double)(marks.back() - marks.front());
    for (size_t i = 1; i < marks.size(); ++i)
        timer_add(i % 2 ? &result->forward : &result->backward,
                  tick_s * (double)(marks[i] - marks[i - 1]));
    timer_repeat(&result->forward, options->epochs);
    timer_repeat(&result->backward, options->epochs);
}

// Runs all epochs. Before them come two with a learning rate of 0, which leave the weights as they
// are. The first is cold. In the second, the kernel marks the phases.
static void train(struct network *network, const struct byte_dataset *dataset,
                  const struct options *options, struct result *result) {
    if (options->epochs == 0)
        return;
    if (!is_simulated(result->device)) {
        double start = seconds();
        launch(network, dataset, options, 1, 0, NULL, NULL);
        result->warmup_s = seconds() - start;
        start = seconds();
        launch(network, dataset, options, 1, 0, NULL, network->marks);
        collect_marks(network, options, seconds() - start, result);
    }

    const double start = seconds();
    launch(network, dataset, options, options->epochs, options->learning_rate, NULL, NULL);
    result->train_s = seconds() - start;
    std::vector<float> losses((size_t)options->epochs);
    CHECK(cudaMemcpy(losses.data(), network->losses, losses.size() * sizeof(float),
                     cudaMemcpyDeviceToHost));
    for (int epoch = 0; epoch < options->epochs; ++epoch) {
        result->final_loss = losses[(size_t)epoch] / dataset->samples;
        report_epoch(options, epoch, result->final_loss, seconds());
    }
}

// Returns the fraction of samples whose most probable class is their label.
static double evaluate(struct network *network, const struct byte_dataset *dataset,
                       const uint8_t *labels, const struct options *options) {
    const size_t samples = (size_t)dataset->samples;
    float *logits = allocate_floats(samples * CLASSES);
    launch(network, dataset, options, 1, 0, network->logits, NULL);
    CHECK(cudaMemcpy(logits, network->logits, samples * CLASSES * sizeof(float),
                     cudaMemcpyDeviceToHost));
    size_t right = 0;
    for (size_t s = 0; s < samples; ++s) {
        const float *z = logits + s * CLASSES;
        size_t best = 0;
        for (size_t o = 1; o < CLASSES; ++o)
            best = z[o] > z[best] ? o : best;
        right += best == labels[s];
    }
    free(logits);
    return (double)right / dataset->samples;
}

// Writes the weights, copied back to the host without the padding. Returns the exit status.
static int save(const struct network *network, const char *path) {
    const size_t units = network->units;
    const struct classes *const outputs = network->weights2[network->now];
    float *rows = allocate_floats(units * ROW * 4);
    float *weights1 = allocate_floats(PIXELS * units), *bias1 = allocate_floats(units);
    float *weights2 = allocate_floats(units * CLASSES), *bias2 = allocate_floats(CLASSES);
    CHECK(
        cudaMemcpy(rows, network->weights1, units * ROW * sizeof(float4), cudaMemcpyDeviceToHost));
    for (size_t h = 0; h < units; ++h) {
        for (size_t k = 0; k < PIXELS; ++k)
            weights1[k * units + h] = rows[h * ROW * 4 + k];
        bias1[h] = rows[h * ROW * 4 + PIXELS];
    }
    copy_matrix(weights2, CLASSES, outputs, PADDED_CLASSES, units, CLASSES, cudaMemcpyDeviceToHost);
    copy_matrix(bias2, CLASSES, outputs + network->hidden, PADDED_CLASSES, 1, CLASSES,
                cudaMemcpyDeviceToHost);
    int status = write_weights(path, units, weights1, bias1, weights2, bias2);
    free(rows);
    free(weights1);
    free(bias1);
    free(weights2);
    free(bias2);
    return status;
}

int main(int argc, char **argv) {
    struct options options = parse_options(argc, argv, "Trains on a GPU, in one kernel.", 1);
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
