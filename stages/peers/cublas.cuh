// What the peers with cuBLAS share: all but the products. The epoch is recorded as a CUDA graph and
// replayed. The gradient of the outputs includes the step, −lr, and so do all gradients that follow
// from it. So a product adds its result to the weights.
//
// Shapes: n samples in a batch, at most N; H hidden units; arrays are row-major. cuBLAS takes a
// row-major matrix for its transpose. So each product is that of the transposes, in reverse order.
#ifndef BENCH_PEERS_CUBLAS_CUH
#define BENCH_PEERS_CUBLAS_CUH

#include "stages/training_cuda.h"

#include <math.h>

#define CHECK_CUBLAS(call) check_cublas((call), #call, __FILE__, __LINE__)

static void check_cublas(int status, const char *call, const char *file, int line) {
    if (status == 0)
        return;
    fprintf(stderr, "%s:%d: %s: cuBLAS status %d\n", file, line, call, status);
    exit(EXIT_RUN_FAILED);
}

enum { THREADS = 128, WORKSPACE_BYTES = 32 << 20 }; // as cuBLAS asks for on Hopper

struct network {
    cudaStream_t stream;
    int hidden;                                 // H
    float *weights1, *bias1, *weights2, *bias2; // 784 × H, H, H × 10, 10
    float *activations, *d_activations;         // N × H: a, −lr·da
    float *outputs;                             // N × 10: z without b2, then −lr·dz
    float *losses;                              // N: −log p[label], added up over an epoch
    void *workspace;                            // the library's
    struct library library;                     // the peer's own
};

// What a peer defines. create_library() comes after all else is there.
static void create_library(struct network *network, const struct options *options);
static void destroy_library(struct network *network);
// Sets a, and z without b2.
static void predict(struct network *network, const struct batch *batch);
// Takes one step, after add_softmax() has computed −lr·dz.
static void backward(struct network *network, const struct batch *batch);

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

// Returns weights of inputs × outputs on the device.
static float *draw_weights(const struct options *options, int layer, size_t inputs,
                           size_t outputs) {
    float *drawn = allocate_floats(inputs * outputs), *weights = allocate(inputs * outputs);
    struct pcg32 generator = pcg32_start(options->seed, layer);
    for (size_t i = 0; i < inputs * outputs; ++i)
        drawn[i] = draw_weight(&generator, inputs);
    CHECK(cudaMemcpy(weights, drawn, inputs * outputs * sizeof(float), cudaMemcpyHostToDevice));
    free(drawn);
    return weights;
}

static struct network create(const struct options *options) {
    const size_t hidden = (size_t)options->hidden, n = largest_batch(options);
    struct network network = {};
    CHECK(cudaStreamCreate(&network.stream)); // the default stream cannot be recorded
    network.hidden = options->hidden;
    network.weights1 = draw_weights(options, 1, PIXELS, hidden);
    network.bias1 = allocate(hidden);
    network.weights2 = draw_weights(options, 2, hidden, CLASSES);
    network.bias2 = allocate(CLASSES);
    CHECK(cudaMemset(network.bias1, 0, hidden * sizeof(float)));
    CHECK(cudaMemset(network.bias2, 0, CLASSES * sizeof(float)));
    network.activations = allocate(n * hidden);
    network.d_activations = allocate(n * hidden);
    network.outputs = allocate(n * CLASSES);
    network.losses = allocate(n);
    CHECK_ALLOCATION(cudaMalloc(&network.workspace, WORKSPACE_BYTES), WORKSPACE_BYTES);
    create_library(&network, options);
    return network;
}

static void destroy(struct network *network) {
    destroy_library(network);
    CHECK(cudaFree(network->weights1));
    CHECK(cudaFree(network->bias1));
    CHECK(cudaFree(network->weights2));
    CHECK(cudaFree(network->bias2));
    CHECK(cudaFree(network->activations));
    CHECK(cudaFree(network->d_activations));
    CHECK(cudaFree(network->outputs));
    CHECK(cudaFree(network->losses));
    CHECK(cudaFree(network->workspace));
    CHECK(cudaStreamDestroy(network->stream));
}

static unsigned blocks(size_t count) {
    return (unsigned)((count + THREADS - 1) / THREADS);
}

// p = softmax(z + b2), then −lr·dz = −lr·(p − onehot(label)) / n in place of z.
__global__ void softmax_gradient(float *outputs, const float *bias2, const uint8_t *labels,
                                 float *losses, size_t n, float learning_rate) {
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
        outputs[s * CLASSES + o] =
            -learning_rate * (expf(z[o] - max) / sum - (o == labels[s])) / (float)n;
    losses[s] += logf(sum) - (z[labels[s]] - max);
}

// Queues an epoch over the training set in file order. The last batch may be short.
static void queue_epoch(struct network *network, const struct dataset *dataset,
                        const struct options *options, float learning_rate,
                        struct phase_events *events) {
    struct batch batch;
    CHECK(cudaMemsetAsync(network->losses, 0, largest_batch(options) * sizeof(float),
                          network->stream));
    mark_phase(events, network->stream);
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        predict(network, &batch);
        softmax_gradient<<<blocks(batch.samples), THREADS, 0, network->stream>>>(
            network->outputs, network->bias2, batch.labels, network->losses, batch.samples,
            learning_rate);
        CHECK(cudaGetLastError());
        mark_phase(events, network->stream);
        backward(network, &batch);
        mark_phase(events, network->stream);
    }
}

// Waits for the epoch and returns its mean loss.
static double mean_loss(struct network *network, const struct options *options) {
    const size_t n = largest_batch(options);
    float *losses = allocate_floats(n);
    double sum = 0;
    CHECK(cudaStreamSynchronize(network->stream));
    CHECK(cudaMemcpy(losses, network->losses, n * sizeof(float), cudaMemcpyDeviceToHost));
    for (size_t s = 0; s < n; ++s)
        sum += losses[s];
    free(losses);
    return sum / options->train_samples;
}

static cudaGraphExec_t record_epoch(struct network *network, const struct dataset *dataset,
                                    const struct options *options) {
    cudaGraph_t graph;
    cudaGraphExec_t recorded;
    CHECK(cudaStreamBeginCapture(network->stream, cudaStreamCaptureModeGlobal));
    queue_epoch(network, dataset, options, options->learning_rate, NULL);
    CHECK(cudaStreamEndCapture(network->stream, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&recorded, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphUpload(recorded, network->stream));
    CHECK(cudaStreamSynchronize(network->stream));
    return recorded;
}

// Runs all epochs. Before them come some with a learning rate of 0, as in the stages.
static void train(struct network *network, const struct dataset *dataset,
                  const struct options *options, struct result *result) {
    if (options->epochs == 0)
        return;
    double start = seconds();
    queue_epoch(network, dataset, options, 0, NULL);
    mean_loss(network, options);
    result->warmup_s = seconds() - start;
    while (seconds() - start < warmup_seconds()) {
        queue_epoch(network, dataset, options, 0, NULL);
        mean_loss(network, options);
    }
    struct phase_events events = create_events(options);
    queue_epoch(network, dataset, options, 0, &events);
    mean_loss(network, options);
    CHECK(cudaDeviceSynchronize());
    collect_events(&events, options, result);

    start = seconds();
    cudaGraphExec_t recorded = record_epoch(network, dataset, options);
    result->setup_s += seconds() - start;

    start = seconds();
    for (int epoch = 0; epoch < options->epochs; ++epoch) {
        CHECK(cudaGraphLaunch(recorded, network->stream));
        result->final_loss = mean_loss(network, options);
        start = report_epoch(options, epoch, result->final_loss, start); // not timed
    }
    result->train_s = seconds() - start;
    CHECK(cudaGraphExecDestroy(recorded));
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
        CHECK(cudaStreamSynchronize(network->stream));
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

// Returns a copy in the host's memory.
static float *download(const float *device, size_t count) {
    float *host = allocate_floats(count);
    CHECK(cudaMemcpy(host, device, count * sizeof(float), cudaMemcpyDeviceToHost));
    return host;
}

// Writes the weights. Returns the exit status.
static int save(const struct network *network, const char *path) {
    const size_t hidden = (size_t)network->hidden;
    float *weights1 = download(network->weights1, PIXELS * hidden);
    float *bias1 = download(network->bias1, hidden);
    float *weights2 = download(network->weights2, hidden * CLASSES);
    float *bias2 = download(network->bias2, CLASSES);
    int status = write_weights(path, hidden, weights1, bias1, weights2, bias2);
    free(weights1);
    free(bias1);
    free(weights2);
    free(bias2);
    return status;
}

static int run(int argc, char **argv, const char *about) {
    struct options options = parse_options(argc, argv, about, 1);
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

#endif
