// Trains the network with cuBLAS. Every product is a cublasSgemm. The products for the weight
// gradients include the update, W ← W − lr·gradient. The kernels here compute the rest.
//
// Shapes: n samples in a batch, H hidden units; arrays are row-major. cuBLAS takes a row-major
// matrix for its transpose. So each product below is that of the transposes, in reverse order.
#include "stages/training_cuda.h"

#include <cublas_v2.h>
#include <math.h>

#define CHECK_CUBLAS(call) check_cublas((call), #call, __LINE__)

static void check_cublas(cublasStatus_t status, const char *call, int line) {
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    fprintf(stderr, "%s:%d: %s: cuBLAS status %d\n", __FILE__, line, call, (int)status);
    exit(EXIT_RUN_FAILED);
}

struct network {
    cublasHandle_t cublas;
    int hidden;                                 // H
    float *weights1, *bias1, *weights2, *bias2; // 784 × H, H, H × 10, 10: one after another
    size_t parameters;                          // of all four
    float *activations, *d_activations;         // n × H: a, da
    float *outputs;                             // n × 10: z, then dz
    float *losses; // n: −log p[label], summed over an epoch's batches
    float *ones;   // n
};

static float *allocate(size_t count) {
    float *floats;
    CHECK_ALLOCATION(cudaMalloc(&floats, count * sizeof(float)), count * sizeof(float));
    return floats;
}

// Returns a copy of a data set on the device.
static struct dataset upload(const struct dataset *host) {
    const size_t pixels = (size_t)host->samples * PIXELS, samples = (size_t)host->samples;
    struct dataset device = {host->samples, allocate(pixels), NULL};
    CHECK_ALLOCATION(cudaMalloc(&device.labels, samples), samples);
    CHECK(cudaMemcpy(device.images, host->images, pixels * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device.labels, host->labels, samples, cudaMemcpyHostToDevice));
    return device;
}

static struct network create(const struct options *options) {
    const size_t hidden = (size_t)options->hidden, n = largest_batch(options);
    struct network network = {};
    CHECK_CUBLAS(cublasCreate(&network.cublas)); // computes in float32: TF32 is off by default
    network.hidden = options->hidden;
    network.parameters = PIXELS * hidden + hidden + hidden * CLASSES + CLASSES;
    network.weights1 = allocate(network.parameters);
    network.bias1 = network.weights1 + PIXELS * hidden;
    network.weights2 = network.bias1 + hidden;
    network.bias2 = network.weights2 + hidden * CLASSES;
    network.activations = allocate(n * hidden);
    network.d_activations = allocate(n * hidden);
    network.outputs = allocate(n * CLASSES);
    network.losses = allocate(n);
    network.ones = allocate(n);

    float *parameters = allocate_floats(network.parameters), *ones = allocate_floats(n);
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t i = 0; i < PIXELS * hidden; ++i)
        parameters[i] = draw_weight(&generator, PIXELS);
    generator = pcg32_start(options->seed, 2);
    for (size_t i = 0; i < hidden * CLASSES; ++i)
        parameters[PIXELS * hidden + hidden + i] = draw_weight(&generator, hidden);
    for (size_t s = 0; s < n; ++s)
        ones[s] = 1;
    CHECK(cudaMemcpy(network.weights1, parameters, network.parameters * sizeof(float),
                     cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(network.ones, ones, n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(network.losses, 0, n * sizeof(float)));
    free(parameters);
    free(ones);
    return network;
}

static void destroy(struct network *network) {
    CHECK_CUBLAS(cublasDestroy(network->cublas));
    CHECK(cudaFree(network->weights1));
    CHECK(cudaFree(network->activations));
    CHECK(cudaFree(network->d_activations));
    CHECK(cudaFree(network->outputs));
    CHECK(cudaFree(network->losses));
    CHECK(cudaFree(network->ones));
}

enum { THREADS = 128 };

static unsigned blocks(size_t count) {
    return (unsigned)((count + THREADS - 1) / THREADS);
}

// a = max(0, a + b1)
__global__ void add_bias_relu(float *a, const float *bias1, size_t count, size_t hidden) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const float sum = a[i] + bias1[i % hidden];
    a[i] = sum > 0 ? sum : 0;
}

// p = softmax(z + b2), then dz = (p − onehot(label)) / n in place of z.
__global__ void softmax_gradient(float *outputs, const float *bias2, const uint8_t *labels,
                                 float *losses, size_t n) {
    const size_t s = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (s >= n)
        return;
    float z[CLASSES], max = -INFINITY, sum = 0;
    for (int o = 0; o < CLASSES; ++o) {
        z[o] = outputs[s * CLASSES + o] + bias2[o];
        max = z[o] > max ? z[o] : max;
    }
    for (int o = 0; o < CLASSES; ++o)
        sum += expf(z[o] - max);
    for (int o = 0; o < CLASSES; ++o)
        outputs[s * CLASSES + o] = (expf(z[o] - max) / sum - (o == labels[s])) / (float)n;
    losses[s] += logf(sum) - (z[labels[s]] - max);
}

// da = da ⊙ [a > 0]
__global__ void relu_gradient(float *d_activations, const float *activations, size_t count) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count && !(activations[i] > 0))
        d_activations[i] = 0;
}

// Sets a and z, without z's bias, for a batch.
static void predict(struct network *network, const struct batch *batch) {
    const int n = (int)batch->samples, hidden = network->hidden;
    const size_t count = batch->samples * (size_t)hidden;
    const float one = 1, zero = 0;
    CHECK_CUBLAS(cublasSgemm(network->cublas, CUBLAS_OP_N, CUBLAS_OP_N, hidden, n, PIXELS, &one,
                             network->weights1, hidden, batch->images, PIXELS, &zero,
                             network->activations, hidden));
    add_bias_relu<<<blocks(count), THREADS>>>(network->activations, network->bias1, count,
                                              (size_t)hidden);
    CHECK(cudaGetLastError());
    CHECK_CUBLAS(cublasSgemm(network->cublas, CUBLAS_OP_N, CUBLAS_OP_N, CLASSES, n, hidden, &one,
                             network->weights2, CLASSES, network->activations, hidden, &zero,
                             network->outputs, CLASSES));
}

// Sets a and dz for a batch and adds to its losses.
static void forward(struct network *network, const struct batch *batch) {
    predict(network, batch);
    softmax_gradient<<<blocks(batch->samples), THREADS>>>(
        network->outputs, network->bias2, batch->labels, network->losses, batch->samples);
    CHECK(cudaGetLastError());
}

// Takes one step down the gradient of the batch that forward() has just seen.
static void backward(struct network *network, const struct batch *batch, float learning_rate) {
    const int n = (int)batch->samples, hidden = network->hidden;
    const size_t count = batch->samples * (size_t)hidden;
    const float one = 1, zero = 0, step = -learning_rate;
    float *da = network->d_activations, *dz = network->outputs;
    // da = (dz·W2ᵀ) ⊙ [a > 0]
    CHECK_CUBLAS(cublasSgemm(network->cublas, CUBLAS_OP_T, CUBLAS_OP_N, hidden, n, CLASSES, &one,
                             network->weights2, CLASSES, dz, CLASSES, &zero, da, hidden));
    relu_gradient<<<blocks(count), THREADS>>>(da, network->activations, count);
    CHECK(cudaGetLastError());
    // W2 −= lr·aᵀ·dz, b2 −= lr·Σ dz
    CHECK_CUBLAS(cublasSgemm(network->cublas, CUBLAS_OP_N, CUBLAS_OP_T, CLASSES, hidden, n, &step,
                             dz, CLASSES, network->activations, hidden, &one, network->weights2,
                             CLASSES));
    CHECK_CUBLAS(cublasSgemv(network->cublas, CUBLAS_OP_N, CLASSES, n, &step, dz, CLASSES,
                             network->ones, 1, &one, network->bias2, 1));
    // W1 −= lr·xᵀ·da, b1 −= lr·Σ da
    CHECK_CUBLAS(cublasSgemm(network->cublas, CUBLAS_OP_N, CUBLAS_OP_T, hidden, PIXELS, n, &step,
                             da, hidden, batch->images, PIXELS, &one, network->weights1, hidden));
    CHECK_CUBLAS(cublasSgemv(network->cublas, CUBLAS_OP_N, hidden, n, &step, da, hidden,
                             network->ones, 1, &one, network->bias1, 1));
}

// Returns the sum of the losses since the last call.
static double take_losses(struct network *network, size_t n) {
    float *losses = allocate_floats(n);
    double sum = 0;
    CHECK(cudaMemcpy(losses, network->losses, n * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemset(network->losses, 0, n * sizeof(float)));
    for (size_t s = 0; s < n; ++s)
        sum += losses[s];
    free(losses);
    return sum;
}

// Runs all epochs over the training set in file order. The last batch of an epoch may be short.
static void train(struct network *network, const struct dataset *dataset,
                  const struct options *options, struct result *result) {
    const size_t n = largest_batch(options);
    double start = seconds();
    struct phase_events events = create_events(options);

    // Warm up with a batch. At a learning rate of 0 it changes nothing.
    struct batch batch = batch_at(dataset, 0, options->batch);
    forward(network, &batch);
    backward(network, &batch, 0);
    take_losses(network, n);
    CHECK(cudaDeviceSynchronize());
    result->setup_s += seconds() - start;

    start = seconds();
    mark_phase(&events);
    for (int epoch = 0; epoch < options->epochs; ++epoch) {
        for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
            batch = batch_at(dataset, first, options->batch);
            forward(network, &batch);
            mark_phase(&events);
            backward(network, &batch, options->learning_rate);
            mark_phase(&events);
        }
        result->final_loss = take_losses(network, n) / dataset->samples;
        report_epoch(options, epoch, result->final_loss);
    }
    CHECK(cudaDeviceSynchronize());
    result->train_s = seconds() - start;
    collect_events(&events, result);
}

// Returns the fraction of samples whose most probable class is their label.
static double evaluate(struct network *network, const struct dataset *dataset,
                       const uint8_t *labels, const struct options *options) {
    float *outputs = allocate_floats(largest_batch(options) * CLASSES), bias2[CLASSES];
    struct batch batch;
    size_t right = 0;
    CHECK(cudaMemcpy(bias2, network->bias2, sizeof bias2, cudaMemcpyDeviceToHost));
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        predict(network, &batch);
        CHECK(cudaMemcpy(outputs, network->outputs, batch.samples * CLASSES * sizeof(float),
                         cudaMemcpyDeviceToHost));
        for (size_t s = 0; s < batch.samples; ++s) {
            const float *z = outputs + s * CLASSES;
            size_t best = 0;
            for (size_t o = 1; o < CLASSES; ++o)
                best = z[o] + bias2[o] > z[best] + bias2[best] ? o : best;
            right += best == labels[first + s];
        }
    }
    free(outputs);
    return (double)right / dataset->samples;
}

// Writes the weights, copied back to the host. Returns the exit status.
static int save(const struct network *network, const char *path) {
    const size_t hidden = (size_t)network->hidden;
    float *weights1 = allocate_floats(network->parameters);
    CHECK(cudaMemcpy(weights1, network->weights1, network->parameters * sizeof(float),
                     cudaMemcpyDeviceToHost));
    const float *bias1 = weights1 + PIXELS * hidden, *weights2 = bias1 + hidden;
    int status =
        write_weights(path, hidden, weights1, bias1, weights2, weights2 + hidden * CLASSES);
    free(weights1);
    return status;
}

int main(int argc, char **argv) {
    struct options options = parse_options(argc, argv, "Trains on a GPU with cuBLAS.", 1);
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
    result.peak_vram_mib = used_device_mib() - used;
    result.test_accuracy = evaluate(&network, &test_set, data.test.labels, &options);
    // Weights that are not numbers must not replace good ones.
    if (options.save_weights && isfinite(result.final_loss))
        status = save(&network, options.save_weights);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy(&network);
    CHECK(cudaFree(training_set.images));
    CHECK(cudaFree(training_set.labels));
    CHECK(cudaFree(test_set.images));
    CHECK(cudaFree(test_set.labels));
    free_data(&data);
    return status;
}
