// Stage 05: nothing but numbers leaves the GPU. The minimizer is the same, but its vectors lie in
// the device's memory, and the device computes with them. An evaluation copies the cost to the
// host, and a product of two vectors the product.
//
// Shapes: m samples, H hidden units. Arrays are row-major. W1 1024 × H, b1 H, W2 3 × H, b2 3.
//
//     a = σ(x·W1 + b1)      m × H         σ(z) = 1 / (1 + e^−z)
//     z = a·W2ᵀ + b2        m × 3         p = σ(z)
//     J = 1/m Σ Σ_k [−y log p − (1 − y) log(1 − p)] + λ/2m (Σ W1² + Σ W2²)
#include "common/cuda.h"
#include "studies/galaxy/training.h"

#include <math.h>
#include <stdlib.h>

// A block of a product has 8 hidden units × 32 rows, and a thread for each. It takes the inner
// dimension in tiles of 32, which it copies to shared memory.
enum { TILE_H = 8, TILE = 32, THREADS = TILE_H * TILE };
// So many blocks share the samples of a part of dW1, because its blocks alone are few.
enum { SLICES = 16 };
// How often an evaluation is timed with events.
enum { ROUNDS = 4 };
// The blocks that share a product of two vectors.
enum { DOT_BLOCKS = 64 };

struct network {
    size_t hidden;     // H
    size_t parameters; // 1024 × H + H + 3 × H + 3
    double lambda;     // λ

    // On the device.
    struct dataset images; // that the cost is about
    double *theta;         // W1, b1, W2, b2
    double *activations;   // m × H: a
    double *logits;        // m × 3: z
    double *d_activations; // m × H: δ2
    double *d_logits;      // m × 3: δ3
    double *slices;        // 16 × 1024 × H: parts of dW1
    double *parts;         // parts of J, a number a block
    double *cost;          // J
    double *products;      // 64 parts of a product of two vectors, and the product
};

static double *allocate(size_t count) {
    double *doubles;
    CHECK_ALLOCATION(cudaMalloc(&doubles, count * sizeof(double)), count * sizeof(double));
    return doubles;
}

static unsigned blocks(size_t count, size_t size) {
    return (unsigned)((count + size - 1) / size);
}

// Copies a data set to the device.
static struct dataset upload(const struct dataset *images) {
    struct dataset copy = {images->samples, allocate(images->samples * PIXELS), NULL};
    CHECK_ALLOCATION(cudaMalloc(&copy.labels, images->samples), images->samples);
    CHECK(cudaMemcpy(copy.images, images->images, images->samples * PIXELS * sizeof(double),
                     cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(copy.labels, images->labels, images->samples, cudaMemcpyHostToDevice));
    return copy;
}

static void release(struct dataset *images) {
    CHECK(cudaFree(images->images));
    CHECK(cudaFree(images->labels));
}

static struct network create(const struct options *options, const struct dataset *images,
                             size_t samples) {
    const size_t hidden = (size_t)options->hidden;
    struct network network = {};
    network.hidden = hidden;
    network.parameters = (PIXELS + 1 + CLASSES) * hidden + CLASSES;
    network.lambda = options->lambda;
    network.images = *images;
    network.theta = allocate(network.parameters);
    network.activations = allocate(samples * hidden);
    network.logits = allocate(samples * CLASSES);
    network.d_activations = allocate(samples * hidden);
    network.d_logits = allocate(samples * CLASSES);
    network.slices = allocate(SLICES * PIXELS * hidden);
    network.parts = allocate(blocks(samples, THREADS) + blocks(network.parameters, THREADS));
    network.cost = allocate(1);
    network.products = allocate(DOT_BLOCKS + 1);

    double *weights1 = allocate_doubles(network.parameters), *bias1 = weights1 + PIXELS * hidden;
    double *weights2 = bias1 + hidden, *bias2 = weights2 + CLASSES * hidden;
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t h = 0; h < hidden; ++h) {
        bias1[h] = draw_weight(&generator);
        for (size_t k = 0; k < PIXELS; ++k)
            weights1[k * hidden + h] = draw_weight(&generator);
    }
    generator = pcg32_start(options->seed, 2);
    for (size_t o = 0; o < CLASSES; ++o) {
        bias2[o] = draw_weight(&generator);
        for (size_t h = 0; h < hidden; ++h)
            weights2[o * hidden + h] = draw_weight(&generator);
    }
    CHECK(cudaMemcpy(network.theta, weights1, network.parameters * sizeof(double),
                     cudaMemcpyHostToDevice));
    free(weights1);
    return network;
}

static void destroy(struct network *network) {
    CHECK(cudaFree(network->theta));
    CHECK(cudaFree(network->activations));
    CHECK(cudaFree(network->logits));
    CHECK(cudaFree(network->d_activations));
    CHECK(cudaFree(network->d_logits));
    CHECK(cudaFree(network->slices));
    CHECK(cudaFree(network->parts));
    CHECK(cudaFree(network->cost));
    CHECK(cudaFree(network->products));
}

__device__ double sigmoid(double z) {
    return 1 / (1 + exp(-z));
}

// Returns the sum of the threads' values, to all threads of the block. A kernel calls it once.
__device__ double block_sum(double value) {
    __shared__ double parts[THREADS];
    parts[threadIdx.x] = value;
    __syncthreads();
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    return parts[0];
}

// a = σ(x·W1 + b1): a thread has an element.
__global__ void hidden_kernel(const double *x, const double *theta, double *activations,
                              size_t samples, size_t hidden) {
    __shared__ double tile_x[TILE][TILE + 1], tile_w[TILE][TILE_H];
    const size_t h = blockIdx.x * TILE_H + threadIdx.x;
    const size_t first = (size_t)blockIdx.y * TILE, s = first + threadIdx.y;
    const unsigned thread = threadIdx.y * TILE_H + threadIdx.x;
    double sum = h < hidden ? theta[PIXELS * hidden + h] : 0;
    for (size_t k = 0; k < PIXELS; k += TILE) {
        // The compiler knows the number of iterations. So it puts all loads before the first store.
#pragma unroll
        for (unsigned start = 0; start < TILE * TILE; start += THREADS) {
            const unsigned i = start + thread;
            const size_t row = first + i / TILE;
            tile_x[i / TILE][i % TILE] = row < samples ? x[row * PIXELS + k + i % TILE] : 0;
        }
        tile_w[threadIdx.y][threadIdx.x] = h < hidden ? theta[(k + threadIdx.y) * hidden + h] : 0;
        __syncthreads();
        for (unsigned i = 0; i < TILE; ++i)
            sum += tile_x[threadIdx.y][i] * tile_w[i][threadIdx.x];
        __syncthreads();
    }
    if (s < samples && h < hidden)
        activations[s * hidden + h] = sigmoid(sum);
}

// z = a·W2ᵀ + b2, δ3 = (p − y) / m, and the costs of the block's samples. A thread has a sample.
__global__ void output_kernel(const double *activations, const double *theta, const uint8_t *labels,
                              double *logits, double *d_logits, double *parts, size_t samples,
                              size_t hidden) {
    const size_t s = (size_t)blockIdx.x * THREADS + threadIdx.x;
    const double *weights2 = theta + (PIXELS + 1) * hidden, *bias2 = weights2 + CLASSES * hidden;
    double cost = 0;
    for (size_t o = 0; o < CLASSES && s < samples; ++o) {
        const double y = o == labels[s];
        double z = bias2[o];
        for (size_t h = 0; h < hidden; ++h)
            z += weights2[o * hidden + h] * activations[s * hidden + h];
        logits[s * CLASSES + o] = z;
        d_logits[s * CLASSES + o] = (sigmoid(z) - y) / (double)samples;
        cost += log1p(exp(-fabs(z))) + fmax(z, 0.0) - y * z;
    }
    cost = block_sum(cost);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = cost / (double)samples;
}

// δ2 = (δ3·W2) ⊙ a ⊙ (1 − a): a thread has an element.
__global__ void delta_kernel(const double *activations, const double *theta, const double *d_logits,
                             double *d_activations, size_t samples, size_t hidden) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, s = i / hidden, h = i % hidden;
    const double *weights2 = theta + (PIXELS + 1) * hidden;
    if (s >= samples)
        return;
    double sum = 0;
    for (size_t o = 0; o < CLASSES; ++o)
        sum += d_logits[s * CLASSES + o] * weights2[o * hidden + h];
    d_activations[i] = sum * activations[i] * (1 - activations[i]);
}

// xᵀ·δ2 over a slice of the samples: a thread has an element.
__global__ void slice_kernel(const double *x, const double *d_activations, double *slices,
                             size_t samples, size_t hidden) {
    __shared__ double tile_x[TILE][TILE], tile_d[TILE][TILE_H];
    const size_t h = blockIdx.x * TILE_H + threadIdx.x;
    const size_t k = (size_t)blockIdx.y * TILE, slice = blockIdx.z;
    const size_t end = samples * (slice + 1) / SLICES;
    const unsigned thread = threadIdx.y * TILE_H + threadIdx.x;
    double sum = 0;
    for (size_t first = samples * slice / SLICES; first < end; first += TILE) {
#pragma unroll
        for (unsigned start = 0; start < TILE * TILE; start += THREADS) {
            const unsigned i = start + thread;
            const size_t s = first + i / TILE;
            tile_x[i / TILE][i % TILE] = s < end ? x[s * PIXELS + k + i % TILE] : 0;
        }
        const size_t s = first + threadIdx.y;
        tile_d[threadIdx.y][threadIdx.x] =
            s < end && h < hidden ? d_activations[s * hidden + h] : 0;
        __syncthreads();
        for (unsigned i = 0; i < TILE; ++i)
            sum += tile_x[i][threadIdx.y] * tile_d[i][threadIdx.x];
        __syncthreads();
    }
    if (h < hidden)
        slices[(slice * PIXELS + k + threadIdx.y) * hidden + h] = sum;
}

// The gradients of b1, W2 and b2, without λ: db1 = Σ δ2, dW2 = δ3ᵀ·a, db2 = Σ δ3. A block has one.
__global__ void small_kernel(const double *activations, const double *d_activations,
                             const double *d_logits, double *gradient, size_t samples,
                             size_t hidden) {
    const size_t i = blockIdx.x;
    double sum = 0;
    for (size_t s = threadIdx.x; s < samples; s += THREADS) {
        if (i < hidden) {
            sum += d_activations[s * hidden + i];
        } else if (i < hidden + CLASSES * hidden) {
            const size_t o = (i - hidden) / hidden, h = (i - hidden) % hidden;
            sum += d_logits[s * CLASSES + o] * activations[s * hidden + h];
        } else {
            sum += d_logits[s * CLASSES + i - hidden - CLASSES * hidden];
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        gradient[PIXELS * hidden + i] = sum;
}

// Adds up the slices of dW1, adds λ/m W to the gradient, and sums the block's part of λ/2m Σ W².
__global__ void regularize_kernel(const double *theta, const double *slices, double *gradient,
                                  double *parts, double factor, size_t hidden) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    const size_t weights1 = PIXELS * hidden, weights2 = weights1 + hidden;
    double square = 0;
    if (i < weights1 || (i >= weights2 && i < weights2 + CLASSES * hidden)) {
        double sum = i < weights1 ? 0 : gradient[i];
        for (size_t slice = 0; slice < SLICES && i < weights1; ++slice)
            sum += slices[slice * weights1 + i];
        gradient[i] = sum + factor * theta[i];
        square = theta[i] * theta[i];
    }
    square = block_sum(square);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = factor / 2 * square;
}

// Adds up the parts of J, in a block.
__global__ void total_kernel(const double *parts, size_t count, double *cost) {
    double sum = 0;
    for (size_t i = threadIdx.x; i < count; i += THREADS)
        sum += parts[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *cost = sum;
}

// Sets a, z and δ3 for all images, and the samples' part of J.
static void forward(struct network *network, const double *theta, const struct dataset *images) {
    const size_t hidden = network->hidden, samples = images->samples;
    const dim3 grid(blocks(hidden, TILE_H), blocks(samples, TILE)), block(TILE_H, TILE);
    hidden_kernel<<<grid, block>>>(images->images, theta, network->activations, samples, hidden);
    CHECK(cudaGetLastError());
    output_kernel<<<blocks(samples, THREADS), THREADS>>>(
        network->activations, theta, images->labels, network->logits, network->d_logits,
        network->parts, samples, hidden);
    CHECK(cudaGetLastError());
}

// Sets the gradient, and then J.
static void backward(struct network *network, const double *theta, double *gradient) {
    const size_t hidden = network->hidden, samples = network->images.samples;
    const unsigned before = blocks(samples, THREADS);
    const unsigned count = blocks(network->parameters, THREADS);
    const dim3 grid(blocks(hidden, TILE_H), PIXELS / TILE, SLICES), block(TILE_H, TILE);
    delta_kernel<<<blocks(samples * hidden, THREADS), THREADS>>>(
        network->activations, theta, network->d_logits, network->d_activations, samples, hidden);
    CHECK(cudaGetLastError());
    slice_kernel<<<grid, block>>>(network->images.images, network->d_activations, network->slices,
                                  samples, hidden);
    CHECK(cudaGetLastError());
    small_kernel<<<(unsigned)(hidden + CLASSES * hidden + CLASSES), THREADS>>>(
        network->activations, network->d_activations, network->d_logits, gradient, samples, hidden);
    CHECK(cudaGetLastError());
    regularize_kernel<<<count, THREADS>>>(theta, network->slices, gradient, network->parts + before,
                                          network->lambda / (double)samples, hidden);
    CHECK(cudaGetLastError());
    total_kernel<<<1, THREADS>>>(network->parts, before + count, network->cost);
    CHECK(cudaGetLastError());
}

// What the minimizer calls: returns J and writes its gradient, both vectors on the device.
static double evaluate(void *context, const double *theta, double *d_theta) {
    struct network *network = (struct network *)context;
    double cost;
    forward(network, theta, &network->images);
    backward(network, theta, d_theta);
    CHECK(cudaMemcpy(&cost, network->cost, sizeof cost, cudaMemcpyDeviceToHost));
    return cost;
}

// A block's part of x·y.
__global__ void dot_kernel(const double *x, const double *y, double *parts, size_t count) {
    double sum = 0;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += (size_t)DOT_BLOCKS * THREADS)
        sum += x[i] * y[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

// out = a·x + b·y. A vector may be given twice, so none is __restrict__.
__global__ void combine_kernel(double *out, double a, const double *x, double b, const double *y,
                               size_t count) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        out[i] = a * x[i] + b * y[i];
}

static void release_vector(double *vector) {
    CHECK(cudaFree(vector));
}

// Returns x·y. The host waits for it.
static double dot(void *context, const double *x, const double *y, size_t count) {
    const struct network *network = (const struct network *)context;
    double product;
    dot_kernel<<<DOT_BLOCKS, THREADS>>>(x, y, network->products, count);
    CHECK(cudaGetLastError());
    total_kernel<<<1, THREADS>>>(network->products, DOT_BLOCKS, network->products + DOT_BLOCKS);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&product, network->products + DOT_BLOCKS, sizeof product,
                     cudaMemcpyDeviceToHost));
    return product;
}

// Copies x to the host. The minimizer asks for it when it is about to stop, and only then.
static double largest(const double *x, size_t count) {
    double *copy = allocate_doubles(count);
    CHECK(cudaMemcpy(copy, x, count * sizeof(double), cudaMemcpyDeviceToHost));
    const double found = HOST_VECTORS.largest(copy, count);
    free(copy);
    return found;
}

static void combine(double *out, double a, const double *x, double b, const double *y,
                    size_t count) {
    combine_kernel<<<blocks(count, THREADS), THREADS>>>(out, a, x, b, y, count);
    CHECK(cudaGetLastError());
}

// Takes the times of the phases on the device, with events, at the initial weights. The first round
// warms up. They are times of the kernels, without the copies.
static void measure_phases(struct network *network, double *cost_time, double *gradient_time) {
    struct timer cost = {}, gradient = {}, between = {};
    double *d_theta = allocate(network->parameters);
    forward(network, network->theta, &network->images);
    backward(network, network->theta, d_theta);
    // A kernel's code is loaded at its first launch, so the minimizer's are launched here, too.
    combine(d_theta, 1, d_theta, 0, d_theta, network->parameters);
    dot(network, d_theta, d_theta, network->parameters);
    struct phase_events events = create_events(3 * ROUNDS);
    for (int round = 0; round < ROUNDS; ++round) {
        mark_phase(&events);
        forward(network, network->theta, &network->images);
        mark_phase(&events);
        backward(network, network->theta, d_theta);
        mark_phase(&events);
    }
    CHECK(cudaDeviceSynchronize());
    collect_events(&events, {&cost, &gradient, &between});
    *cost_time = cost.mean;
    *gradient_time = gradient.mean;
    CHECK(cudaFree(d_theta));
}

static void train(struct network *network, const struct options *options, struct result *result) {
    double cost_time, gradient_time;
    measure_phases(network, &cost_time, &gradient_time);
    const struct objective objective = {network, network->parameters, evaluate};
    const struct vectors vectors = {network, allocate, release_vector, dot, largest, combine};
    const double start = seconds();
    result->minimum = minimize(&objective, &vectors, network->theta, options->iterations);
    CHECK(cudaDeviceSynchronize());
    result->train_s = seconds() - start;
    for (long i = 0; i < result->minimum.evaluations; ++i) {
        timer_add(&result->cost, cost_time);
        timer_add(&result->gradient, gradient_time);
    }
}

// Returns the fraction of samples whose largest output is that of their label.
static double accuracy(struct network *network, const struct dataset *images,
                       const uint8_t *labels) {
    double *logits = allocate_doubles(images->samples * CLASSES);
    size_t right = 0;
    forward(network, network->theta, images);
    CHECK(cudaMemcpy(logits, network->logits, images->samples * CLASSES * sizeof(double),
                     cudaMemcpyDeviceToHost));
    for (size_t s = 0; s < images->samples; ++s) {
        const double *z = logits + s * CLASSES;
        size_t best = 0;
        for (size_t o = 1; o < CLASSES; ++o)
            best = z[o] > z[best] ? o : best;
        right += best == labels[s];
    }
    free(logits);
    return (double)right / (double)images->samples;
}

// Writes the weights, copied back to the host. Returns the exit status.
static int save(const struct network *network, const char *path) {
    double *weights = allocate_doubles(network->parameters);
    CHECK(cudaMemcpy(weights, network->theta, network->parameters * sizeof(double),
                     cudaMemcpyDeviceToHost));
    const int status = write_weights(path, network->hidden, weights);
    free(weights);
    return status;
}

int main(int argc, char **argv) {
    const struct options options =
        parse_options(argc, argv, "Trains on a GPU, the minimizer's vectors included.", 1);
    struct result result = {};
    struct data data;

    double clock = seconds();
    result.device = open_device();
    result.setup_s = seconds() - clock;
    int status = load_galaxies(&options, &data);
    if (status)
        return status;

    clock = seconds();
    const double used = used_device_mib();
    struct dataset training_set = upload(&data.train), test_set = upload(&data.test);
    struct network network = create(&options, &training_set, largest_set(&data));
    result.setup_s += seconds() - clock;

    train(&network, &options, &result);
    result.test_accuracy = accuracy(&network, &test_set, data.test.labels);
    // The minimizer has freed its four vectors by now.
    const double vectors_mib = 4.0 * (double)(network.parameters * sizeof(double)) / (1 << 20);
    result.peak_vram_mib = used_device_mib() - used + vectors_mib;
    // NaNs must not replace good weights.
    if (options.common.save && isfinite(result.minimum.cost))
        status = save(&network, options.common.save);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy(&network);
    release(&training_set);
    release(&test_set);
    free_galaxies(&data);
    return status;
}
