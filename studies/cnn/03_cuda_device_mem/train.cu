// Stage 03: the textbook's loops as kernels, one thread for each result, in device memory. The data
// sets are uploaded once. All weights, values and gradients stay on the device. Fresh device memory
// may hold any values. So each array is set here on purpose, or a kernel writes all of it before
// another reads it.
//
// Shapes: n samples in a batch, at most N. Arrays are row-major, in the order sample, channel, row,
// column. The formulas are in 00_serial.
#include "studies/cnn/training_cuda.h"

#include <math.h>
#include <stdlib.h>

enum {
    // A block of a dense layer has 32 × 32 threads, the most that it may have. Each warp lies along
    // a row, so that it writes neighbouring numbers.
    BLOCK_SIDE = 32,
    BLOCK_SIZE = BLOCK_SIDE * BLOCK_SIDE,
    WARP = 32,
    PARAMETERS =
        WEIGHTS1 + CHANNELS1 + WEIGHTS2 + CHANNELS2 + WEIGHTS3 + HIDDEN + WEIGHTS4 + CLASSES
};

struct layer {
    float *weights, *bias;     // W, b
    float *d_weights, *d_bias; // their gradients
};

struct network {
    struct layer layer[LAYERS];

    // All parameters lie one after another, as in the file of --save-weights. So do their gradients
    // and their velocities. So one kernel can update all of them.
    float *parameters, *gradient, *velocity;

    // One batch's values, with the shapes in 00_serial and N in place of n.
    float *a1, *m1, *a2, *m2, *a3, *z;
    // Their gradients. Those of a1, a2 and a3 are taken before the ReLU.
    float *d_a1, *d_m1, *d_a2, *d_m2, *d_a3, *d_z;

    struct score *scores; // N: of each place in a batch, added up over the batches of an epoch
    struct score *score;  // 1: their sum
};

// The grid of blocks for a matrix. Its rows lie along x, where a grid may be longer.
static dim3 blocks(size_t rows, size_t columns) {
    return dim3((unsigned)((rows + BLOCK_SIDE - 1) / BLOCK_SIDE),
                (unsigned)((columns + BLOCK_SIDE - 1) / BLOCK_SIDE));
}

static void *allocate_bytes(size_t bytes) {
    void *memory;
    CHECK_ALLOCATION(cudaMalloc(&memory, bytes), bytes);
    return memory;
}

static float *allocate(size_t count) {
    return (float *)allocate_bytes(count * sizeof(float));
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
    network.parameters = allocate(PARAMETERS);
    network.gradient = allocate(PARAMETERS);
    network.velocity = allocate(PARAMETERS);
    CHECK(cudaMemset(network.parameters, 0, PARAMETERS * sizeof(float)));
    CHECK(cudaMemset(network.velocity, 0, PARAMETERS * sizeof(float)));
    size_t place = 0;
    for (int l = 0; l < LAYERS; ++l) {
        struct layer *layer = &network.layer[l];
        layer->weights = network.parameters + place;
        layer->d_weights = network.gradient + place;
        layer->bias = layer->weights + weights[l];
        layer->d_bias = layer->d_weights + weights[l];
        place += weights[l] + biases[l];

        float *drawn = draw_weights(options, l + 1);
        CHECK(
            cudaMemcpy(layer->weights, drawn, weights[l] * sizeof(float), cudaMemcpyHostToDevice));
        free(drawn);
    }
    network.a1 = allocate(n * CHANNELS1 * SIDE1 * SIDE1);
    network.m1 = allocate(n * CHANNELS1 * POOLED1 * POOLED1);
    network.a2 = allocate(n * CHANNELS2 * SIDE2 * SIDE2);
    network.m2 = allocate(n * FEATURES);
    network.a3 = allocate(n * HIDDEN);
    network.z = allocate(n * CLASSES);
    network.d_a1 = allocate(n * CHANNELS1 * SIDE1 * SIDE1);
    network.d_m1 = allocate(n * CHANNELS1 * POOLED1 * POOLED1);
    network.d_a2 = allocate(n * CHANNELS2 * SIDE2 * SIDE2);
    network.d_m2 = allocate(n * FEATURES);
    network.d_a3 = allocate(n * HIDDEN);
    network.d_z = allocate(n * CLASSES);
    network.scores = (struct score *)allocate_bytes(n * sizeof(struct score));
    network.score = (struct score *)allocate_bytes(sizeof(struct score));
    return network;
}

static void destroy(struct network *network) {
    CHECK(cudaFree(network->parameters));
    CHECK(cudaFree(network->gradient));
    CHECK(cudaFree(network->velocity));
    CHECK(cudaFree(network->a1));
    CHECK(cudaFree(network->m1));
    CHECK(cudaFree(network->a2));
    CHECK(cudaFree(network->m2));
    CHECK(cudaFree(network->a3));
    CHECK(cudaFree(network->z));
    CHECK(cudaFree(network->d_a1));
    CHECK(cudaFree(network->d_m1));
    CHECK(cudaFree(network->d_a2));
    CHECK(cudaFree(network->d_m2));
    CHECK(cudaFree(network->d_a3));
    CHECK(cudaFree(network->d_z));
    CHECK(cudaFree(network->scores));
    CHECK(cudaFree(network->score));
}

// a = max(0, W ∗ x + b): x n × channels × side × side, W filters × channels × 3 × 3, a n × filters
// × out × out. A block is an image of a: its grid is n × filters, and its threads are out × out.
__global__ void convolve(const float *x, const float *weights, const float *bias, float *a,
                         int channels, int side) {
    const size_t s = blockIdx.x;
    const int f = blockIdx.y, filters = gridDim.y;
    const int row = threadIdx.y, column = threadIdx.x, out = blockDim.x;
    const float *corner = x + s * channels * side * side + row * side + column;
    const float *filter = weights + f * channels * TAPS;
    float sum = bias[f];
    for (int c = 0; c < channels; ++c)
        for (int i = 0; i < KERNEL; ++i)
            for (int j = 0; j < KERNEL; ++j)
                sum += filter[(c * KERNEL + i) * KERNEL + j] * corner[(c * side + i) * side + j];
    a[((s * filters + f) * out + row) * out + column] = sum > 0 ? sum : 0;
}

// Returns the place, in an image of so many columns, of the largest of the four values from (row,
// column) on. Of equal values, it is the first.
__device__ int largest(const float *image, int row, int column, int columns) {
    int best = row * columns + column;
    for (int i = 0; i < POOL; ++i)
        for (int j = 0; j < POOL; ++j)
            if (image[(row + i) * columns + column + j] > image[best])
                best = (row + i) * columns + column + j;
    return best;
}

// m = pool(a): the largest of each 2 × 2 values. A block is an image of m: its grid is n ×
// channels, and its threads are out × out. The images of a are side × side.
__global__ void pool(const float *a, float *m, int side) {
    const size_t image = (size_t)blockIdx.x * gridDim.y + blockIdx.y;
    const int row = threadIdx.y, column = threadIdx.x, out = blockDim.x;
    a += image * side * side;
    m[(image * out + row) * out + column] = a[largest(a, POOL * row, POOL * column, side)];
}

// y = x·W + b, or max(0, x·W + b): x n × inputs, W inputs × outputs, y n × outputs.
__global__ void multiply(const float *x, const float *weights, const float *bias, float *y,
                         size_t n, int inputs, int outputs, bool relu) {
    const size_t s = blockIdx.x * BLOCK_SIDE + threadIdx.y;
    const int o = blockIdx.y * BLOCK_SIDE + threadIdx.x;
    if (s >= n || o >= outputs)
        return;
    float sum = bias[o];
    for (int k = 0; k < inputs; ++k)
        sum += x[s * inputs + k] * weights[k * outputs + o];
    y[s * outputs + o] = relu && !(sum > 0) ? 0 : sum;
}

// p = softmax(z), shifted by the largest z; dz = (p − onehot(label)) / n. Adds the sample to the
// score of its place in the batch.
__global__ void softmax_gradient(const float *logits, const uint8_t *labels, float *d_logits,
                                 struct score *scores, size_t n) {
    const size_t s = blockIdx.x * BLOCK_SIDE + threadIdx.x;
    if (s >= n)
        return;
    const float *z = logits + s * CLASSES;
    float *d_z = d_logits + s * CLASSES, sum = 0;
    int best = 0;
    for (int o = 1; o < CLASSES; ++o)
        best = z[o] > z[best] ? o : best;
    for (int o = 0; o < CLASSES; ++o) {
        d_z[o] = expf(z[o] - z[best]);
        sum += d_z[o];
    }
    for (int o = 0; o < CLASSES; ++o)
        d_z[o] = (d_z[o] / sum - (o == labels[s])) / (float)n;
    scores[s].loss += logf(sum) - (z[labels[s]] - z[best]);
    scores[s].right += best == labels[s];
}

// dW = xᵀ·dy and db = Σ dy: x n × inputs, dy n × outputs, dW inputs × outputs. The row of threads
// after the last row of dW computes db.
__global__ void multiply_weight_gradient(const float *x, const float *d_y, float *d_weights,
                                         float *d_bias, size_t n, int inputs, int outputs) {
    const int k = blockIdx.x * BLOCK_SIDE + threadIdx.y;
    const int o = blockIdx.y * BLOCK_SIDE + threadIdx.x;
    if (k > inputs || o >= outputs)
        return;
    float sum = 0;
    if (k < inputs) {
        for (size_t s = 0; s < n; ++s)
            sum += x[s * inputs + k] * d_y[s * outputs + o];
        d_weights[k * outputs + o] = sum;
    } else {
        for (size_t s = 0; s < n; ++s)
            sum += d_y[s * outputs + o];
        d_bias[o] = sum;
    }
}

// dx = (dy·Wᵀ) ⊙ [x > 0], where x is the result of a ReLU: dy n × outputs, W inputs × outputs, x
// and dx n × inputs.
__global__ void multiply_input_gradient(const float *d_y, const float *weights, const float *x,
                                        float *d_x, size_t n, int inputs, int outputs) {
    const size_t s = blockIdx.x * BLOCK_SIDE + threadIdx.y;
    const int k = blockIdx.y * BLOCK_SIDE + threadIdx.x;
    if (s >= n || k >= inputs)
        return;
    float sum = 0;
    for (int o = 0; o < outputs; ++o)
        sum += d_y[s * outputs + o] * weights[k * outputs + o];
    d_x[s * inputs + k] = x[s * inputs + k] > 0 ? sum : 0;
}

// da: a pool's gradient goes to the value that the pool took, through the ReLU. All other values
// have a gradient of zero. A block is an image of da: its grid is n × channels, and its threads are
// side × side.
__global__ void unpool(const float *a, const float *d_m, float *d_a) {
    const size_t image = (size_t)blockIdx.x * gridDim.y + blockIdx.y;
    const int side = blockDim.x, out = side / POOL, thread = threadIdx.y * side + threadIdx.x;
    const int row = threadIdx.y / POOL, column = threadIdx.x / POOL;
    a += image * side * side;
    float gradient = 0;
    if (row < out && column < out && a[thread] > 0 &&
        thread == largest(a, POOL * row, POOL * column, side))
        gradient = d_m[(image * out + row) * out + column];
    d_a[image * side * side + thread] = gradient;
}

// dW and db of a convolution. A block computes the gradient of one weight. Each of its out × out
// threads has a place in the images of da, and goes through the samples. The last block of a filter
// computes the gradient of its bias. The block adds the threads' sums in the same order each time.
// So two runs agree to the last bit.
__global__ void convolve_weight_gradient(const float *x, const float *d_a, float *d_weights,
                                         float *d_bias, size_t n, int channels, int side) {
    __shared__ float sums[BLOCK_SIZE];
    const int f = blockIdx.x, k = blockIdx.y, filters = gridDim.x, taps = channels * TAPS;
    const int out = blockDim.x, threads = out * out, thread = threadIdx.y * out + threadIdx.x;
    const int c = k / TAPS, row = threadIdx.y + k % TAPS / KERNEL,
              column = threadIdx.x + k % KERNEL;
    float sum = 0;
    for (size_t s = 0; s < n; ++s) {
        const float pixel = k < taps ? x[((s * channels + c) * side + row) * side + column] : 1;
        sum += pixel * d_a[(s * filters + f) * threads + thread];
    }
    sums[thread] = sum;
    __syncthreads();
    if (thread >= WARP)
        return;
    for (int t = thread + WARP; t < threads; t += WARP)
        sum += sums[t];
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
    if (thread == 0)
        *(k < taps ? &d_weights[f * taps + k] : &d_bias[f]) = sum;
}

// dx of a convolution. A pixel has a share in the outputs that lie up to two rows and columns
// before it, if they are in the image, of all filters. A block is an image of dx: its grid is n ×
// channels, and its threads are side × side.
__global__ void convolve_input_gradient(const float *d_a, const float *weights, float *d_x,
                                        int filters) {
    const size_t s = blockIdx.x;
    const int c = blockIdx.y, channels = gridDim.y, side = blockDim.x, out = side - KERNEL + 1;
    float sum = 0;
    for (int f = 0; f < filters; ++f) {
        for (int i = 0; i < KERNEL; ++i) {
            for (int j = 0; j < KERNEL; ++j) {
                const int row = (int)threadIdx.y - i, column = (int)threadIdx.x - j;
                if (row >= 0 && row < out && column >= 0 && column < out)
                    sum += weights[((f * channels + c) * KERNEL + i) * KERNEL + j] *
                           d_a[((s * filters + f) * out + row) * out + column];
            }
        }
    }
    d_x[((s * channels + c) * side + threadIdx.y) * side + threadIdx.x] = sum;
}

// v ← momentum·v − lr·dθ, θ ← θ + v
__global__ void update(float *parameters, float *velocity, const float *gradient,
                       float learning_rate, float momentum) {
    const int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < PARAMETERS) {
        velocity[i] = momentum * velocity[i] - learning_rate * gradient[i];
        parameters[i] += velocity[i];
    }
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

// Sets all values of a batch, and the gradient of z. Adds its samples to the scores.
static void forward(struct network *network, const struct batch *batch) {
    const size_t n = batch->samples;
    const unsigned images = (unsigned)n;
    const struct layer *layer = network->layer;
    const dim3 block(BLOCK_SIDE, BLOCK_SIDE);
    convolve<<<dim3(images, CHANNELS1), dim3(SIDE1, SIDE1)>>>(batch->images, layer[0].weights,
                                                              layer[0].bias, network->a1, 1, SIDE);
    CHECK(cudaGetLastError());
    pool<<<dim3(images, CHANNELS1), dim3(POOLED1, POOLED1)>>>(network->a1, network->m1, SIDE1);
    CHECK(cudaGetLastError());
    convolve<<<dim3(images, CHANNELS2), dim3(SIDE2, SIDE2)>>>(
        network->m1, layer[1].weights, layer[1].bias, network->a2, CHANNELS1, POOLED1);
    CHECK(cudaGetLastError());
    pool<<<dim3(images, CHANNELS2), dim3(POOLED2, POOLED2)>>>(network->a2, network->m2, SIDE2);
    CHECK(cudaGetLastError());
    multiply<<<blocks(n, HIDDEN), block>>>(network->m2, layer[2].weights, layer[2].bias,
                                           network->a3, n, FEATURES, HIDDEN, true);
    CHECK(cudaGetLastError());
    multiply<<<blocks(n, CLASSES), block>>>(network->a3, layer[3].weights, layer[3].bias,
                                            network->z, n, HIDDEN, CLASSES, false);
    CHECK(cudaGetLastError());
    softmax_gradient<<<blocks(n, 1), BLOCK_SIDE>>>(network->z, batch->labels, network->d_z,
                                                   network->scores, n);
    CHECK(cudaGetLastError());
}

// Updates the weights by the gradient of the batch that forward() has just seen.
static void backward(struct network *network, const struct batch *batch,
                     const struct options *options, float learning_rate) {
    const size_t n = batch->samples;
    const unsigned images = (unsigned)n;
    const struct layer *layer = network->layer;
    const dim3 block(BLOCK_SIDE, BLOCK_SIDE);
    multiply_weight_gradient<<<blocks(HIDDEN + 1, CLASSES), block>>>(
        network->a3, network->d_z, layer[3].d_weights, layer[3].d_bias, n, HIDDEN, CLASSES);
    CHECK(cudaGetLastError());
    multiply_input_gradient<<<blocks(n, HIDDEN), block>>>(
        network->d_z, layer[3].weights, network->a3, network->d_a3, n, HIDDEN, CLASSES);
    CHECK(cudaGetLastError());
    multiply_weight_gradient<<<blocks(FEATURES + 1, HIDDEN), block>>>(
        network->m2, network->d_a3, layer[2].d_weights, layer[2].d_bias, n, FEATURES, HIDDEN);
    CHECK(cudaGetLastError());
    multiply_input_gradient<<<blocks(n, FEATURES), block>>>(
        network->d_a3, layer[2].weights, network->m2, network->d_m2, n, FEATURES, HIDDEN);
    CHECK(cudaGetLastError());
    unpool<<<dim3(images, CHANNELS2), dim3(SIDE2, SIDE2)>>>(network->a2, network->d_m2,
                                                            network->d_a2);
    CHECK(cudaGetLastError());
    convolve_weight_gradient<<<dim3(CHANNELS2, CHANNELS1 * TAPS + 1), dim3(SIDE2, SIDE2)>>>(
        network->m1, network->d_a2, layer[1].d_weights, layer[1].d_bias, n, CHANNELS1, POOLED1);
    CHECK(cudaGetLastError());
    convolve_input_gradient<<<dim3(images, CHANNELS1), dim3(POOLED1, POOLED1)>>>(
        network->d_a2, layer[1].weights, network->d_m1, CHANNELS2);
    CHECK(cudaGetLastError());
    unpool<<<dim3(images, CHANNELS1), dim3(SIDE1, SIDE1)>>>(network->a1, network->d_m1,
                                                            network->d_a1);
    CHECK(cudaGetLastError());
    convolve_weight_gradient<<<dim3(CHANNELS1, TAPS + 1), dim3(SIDE1, SIDE1)>>>(
        batch->images, network->d_a1, layer[0].d_weights, layer[0].d_bias, n, 1, SIDE);
    CHECK(cudaGetLastError());
    update<<<(PARAMETERS + BLOCK_SIZE - 1) / BLOCK_SIZE, BLOCK_SIZE>>>(
        network->parameters, network->velocity, network->gradient, learning_rate,
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
    struct options options = parse_options(argc, argv, "Trains on a GPU, in device memory.", 1);
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
