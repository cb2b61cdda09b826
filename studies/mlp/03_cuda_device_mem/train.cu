// Stage 03: the textbook's loops as kernels, one thread for each result, in device memory. The data
// set is uploaded once. All weights, values and gradients stay on the device. Fresh device memory
// may hold any values. So each array is set here on purpose, or a kernel writes all of it before
// another reads it.
//
// Shapes: n samples in a batch, at most N; a layer has I inputs and O outputs. Arrays are
// row-major.
#include "studies/mlp/training_cuda.h"

#include <math.h>

// A block has 32 × 32 threads, the most that it may have. Each warp of 32 lies along a row, so that
// it writes neighbouring numbers.
enum { SIDE = 32 };

struct layer {
    size_t inputs, outputs;     // I, O
    float *weights, *d_weights; // I × O
    float *bias, *d_bias;       // O

    // One batch's values. Those of the output layer are z, the others a.
    float *values;   // N × O
    float *d_values; // N × O: dz
};

struct network {
    int layers; // the hidden ones and the output layer
    struct layer layer[MAX_LAYERS];

    // All parameters lie one after another, as in the file of --save-weights, and so do their
    // gradients. So one kernel can update all of them.
    size_t count;
    float *parameters, *gradient;

    float *losses;     // N: −log p[label], added up over the batches of an epoch
    float *epoch_loss; // 1: the sum of the losses
};

// The grid of blocks for a matrix. Its rows lie along x, where a grid may be longer.
static dim3 blocks(size_t rows, size_t columns) {
    return dim3((unsigned)((rows + SIDE - 1) / SIDE), (unsigned)((columns + SIDE - 1) / SIDE));
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

static struct network create(const struct options *options) {
    const size_t n = largest_batch(options);
    struct network network = {};
    network.layers = options->layers;
    for (int l = 0; l < network.layers; ++l)
        network.count += (options->sizes[l] + 1) * options->sizes[l + 1];
    network.parameters = allocate(network.count);
    network.gradient = allocate(network.count);
    network.losses = allocate(n);
    network.epoch_loss = allocate(1);
    CHECK(cudaMemset(network.parameters, 0, network.count * sizeof(float)));

    size_t place = 0;
    for (int l = 0; l < network.layers; ++l) {
        struct layer *layer = &network.layer[l];
        layer->inputs = options->sizes[l];
        layer->outputs = options->sizes[l + 1];
        const size_t size = layer->inputs * layer->outputs;
        layer->weights = network.parameters + place;
        layer->d_weights = network.gradient + place;
        layer->bias = layer->weights + size;
        layer->d_bias = layer->d_weights + size;
        layer->values = allocate(n * layer->outputs);
        layer->d_values = allocate(n * layer->outputs);
        place += size + layer->outputs;

        float *weights = draw_weights(options, l);
        CHECK(cudaMemcpy(layer->weights, weights, size * sizeof(float), cudaMemcpyHostToDevice));
        free(weights);
    }
    return network;
}

static void destroy(struct network *network) {
    for (int l = 0; l < network->layers; ++l) {
        CHECK(cudaFree(network->layer[l].values));
        CHECK(cudaFree(network->layer[l].d_values));
    }
    CHECK(cudaFree(network->parameters));
    CHECK(cudaFree(network->gradient));
    CHECK(cudaFree(network->losses));
    CHECK(cudaFree(network->epoch_loss));
}

// y = x·W + b, or max(0, x·W + b): x n × inputs, W inputs × outputs, y n × outputs.
__global__ void linear_forward(const float *x, const float *weights, const float *bias, float *y,
                               size_t n, size_t inputs, size_t outputs, bool relu) {
    const size_t s = blockIdx.x * SIDE + threadIdx.y, o = blockIdx.y * SIDE + threadIdx.x;
    if (s >= n || o >= outputs)
        return;
    float sum = bias[o];
    for (size_t k = 0; k < inputs; ++k)
        sum += x[s * inputs + k] * weights[k * outputs + o];
    y[s * outputs + o] = relu && !(sum > 0) ? 0 : sum;
}

// p = softmax(z), shifted by the largest z; dz = (p − onehot(label)) / n. Adds −log p[label] to the
// loss at the sample's place in the batch.
__global__ void softmax_gradient(const float *logits, const uint8_t *labels, float *d_logits,
                                 float *losses, size_t n) {
    const size_t s = blockIdx.x * SIDE + threadIdx.x;
    if (s >= n)
        return;
    const float *z = logits + s * CLASSES;
    float *dz = d_logits + s * CLASSES;
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

// dW = xᵀ·dy and db = Σ dy: x n × inputs, dy n × outputs, dW inputs × outputs. The row of threads
// after the last row of dW computes db.
__global__ void weight_gradient(const float *x, const float *dy, float *d_weights, float *d_bias,
                                size_t n, size_t inputs, size_t outputs) {
    const size_t k = blockIdx.x * SIDE + threadIdx.y, o = blockIdx.y * SIDE + threadIdx.x;
    if (k > inputs || o >= outputs)
        return;
    float sum = 0;
    if (k < inputs) {
        for (size_t s = 0; s < n; ++s)
            sum += x[s * inputs + k] * dy[s * outputs + o];
        d_weights[k * outputs + o] = sum;
    } else {
        for (size_t s = 0; s < n; ++s)
            sum += dy[s * outputs + o];
        d_bias[o] = sum;
    }
}

// dx = (dy·Wᵀ) ⊙ [x > 0]: dy n × outputs, W inputs × outputs, x and dx n × inputs. The threads of a
// warp have neighbouring k. So they read W a row apart, and not number beside number.
__global__ void input_gradient(const float *dy, const float *weights, const float *x, float *dx,
                               size_t n, size_t inputs, size_t outputs) {
    const size_t s = blockIdx.x * SIDE + threadIdx.y, k = blockIdx.y * SIDE + threadIdx.x;
    if (s >= n || k >= inputs)
        return;
    float sum = 0;
    for (size_t o = 0; o < outputs; ++o)
        sum += dy[s * outputs + o] * weights[k * outputs + o];
    dx[s * inputs + k] = x[s * inputs + k] > 0 ? sum : 0;
}

// θ ← θ − lr·dθ
__global__ void update(float *parameters, const float *gradient, size_t count,
                       float learning_rate) {
    const size_t i = (size_t)blockIdx.x * SIDE * SIDE + threadIdx.x;
    if (i < count)
        parameters[i] -= learning_rate * gradient[i];
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
    const float *x = batch->images;
    for (int l = 0; l < network->layers; ++l) {
        const struct layer *layer = &network->layer[l];
        linear_forward<<<blocks(n, layer->outputs), dim3(SIDE, SIDE)>>>(
            x, layer->weights, layer->bias, layer->values, n, layer->inputs, layer->outputs,
            l + 1 < network->layers);
        CHECK(cudaGetLastError());
        x = layer->values;
    }
    softmax_gradient<<<blocks(n, 1), SIDE>>>(
        x, batch->labels, network->layer[network->layers - 1].d_values, network->losses, n);
    CHECK(cudaGetLastError());
}

// Updates the weights by the gradient of the batch that forward() has just seen.
static void backward(struct network *network, const struct batch *batch, float learning_rate) {
    const size_t n = batch->samples;
    const dim3 block(SIDE, SIDE);
    for (int l = network->layers - 1; l >= 0; --l) {
        const struct layer *layer = &network->layer[l];
        const float *x = l > 0 ? layer[-1].values : batch->images;
        weight_gradient<<<blocks(layer->inputs + 1, layer->outputs), block>>>(
            x, layer->d_values, layer->d_weights, layer->d_bias, n, layer->inputs, layer->outputs);
        CHECK(cudaGetLastError());
        if (l == 0)
            break;
        input_gradient<<<blocks(n, layer->inputs), block>>>(layer->d_values, layer->weights, x,
                                                            layer[-1].d_values, n, layer->inputs,
                                                            layer->outputs);
        CHECK(cudaGetLastError());
    }
    update<<<(unsigned)((network->count + SIDE * SIDE - 1) / (SIDE * SIDE)), SIDE * SIDE>>>(
        network->parameters, network->gradient, network->count, learning_rate);
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
        CHECK(cudaMemcpy(logits, network->layer[network->layers - 1].values,
                         batch.samples * CLASSES * sizeof(float), cudaMemcpyDeviceToHost));
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

// Writes the weights, copied back to the host. Returns the exit status.
static int save(const struct network *network, const struct options *options) {
    float *weights[MAX_LAYERS], *biases[MAX_LAYERS];
    float *parameters = allocate_floats(network->count);
    CHECK(cudaMemcpy(parameters, network->parameters, network->count * sizeof(float),
                     cudaMemcpyDeviceToHost));
    for (int l = 0; l < network->layers; ++l) {
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
