// Stage 03: on the GPU, in the simplest way that works, which is the paper's. Each element of A has
// a thread, which computes it from beginning to end. In each pass the features are copied to the
// device, and A is copied back.
//
// Shapes: N triplets, D features. Arrays are row-major.
#include "common/cuda.h"
#include "studies/tensor_mean/run.h"

enum {
    THREADS = 256, // in a block: as many as in the paper
    // A float sums so many triplets, and is then added to a double: so few that the rounding errors
    // of float32 do not add up, and so many that double arithmetic, which is slow, does not count.
    BLOCK = 128
};

struct tensor {
    float *x, *y, *z; // N × D
    float *elements;  // D × D × D: A
    float *mean;      // D × D × D: A, on the host
};

static float *allocate(size_t count) {
    float *floats;
    CHECK_ALLOCATION(cudaMalloc(&floats, count * sizeof(float)), count * sizeof(float));
    return floats;
}

// Pins host memory, so that the device copies it without a detour through the driver's own buffer.
static void pin(float *floats, size_t count) {
    CHECK(cudaHostRegister(floats, count * sizeof(float), cudaHostRegisterDefault));
}

static struct tensor create(const struct triplets *data) {
    const size_t numbers = data->count * data->features;
    const size_t count = data->features * data->features * data->features;
    struct tensor tensor = {};
    tensor.x = allocate(numbers);
    tensor.y = allocate(numbers);
    tensor.z = allocate(numbers);
    tensor.elements = allocate(count);
    tensor.mean = allocate_floats(count);
    pin(data->x, numbers);
    pin(data->y, numbers);
    pin(data->z, numbers);
    pin(tensor.mean, count);
    return tensor;
}

static void destroy(struct tensor *tensor, const struct triplets *data) {
    CHECK(cudaHostUnregister(data->x));
    CHECK(cudaHostUnregister(data->y));
    CHECK(cudaHostUnregister(data->z));
    CHECK(cudaHostUnregister(tensor->mean));
    CHECK(cudaFree(tensor->x));
    CHECK(cudaFree(tensor->y));
    CHECK(cudaFree(tensor->z));
    CHECK(cudaFree(tensor->elements));
    free(tensor->mean);
}

// Sets an element of A in each thread. The lanes of a warp have neighbouring elements.
__global__ void __launch_bounds__(THREADS)
    average_elements(const float *x, const float *y, const float *z, float *elements,
                     size_t triplets, size_t features) {
    const size_t e = (size_t)blockIdx.x * THREADS + threadIdx.x;
    const size_t i = e / features / features, j = e / features % features, k = e % features;
    if (i >= features)
        return;
    double sum = 0;
    for (size_t first = 0; first < triplets; first += BLOCK) {
        const size_t last = triplets - first < BLOCK ? triplets : first + BLOCK;
        float part = 0;
        for (size_t n = first; n < last; ++n)
            part += x[n * features + i] * y[n * features + j] * z[n * features + k];
        sum += part;
    }
    elements[e] = (float)(sum / (double)triplets);
}

static void upload(struct tensor *tensor, const struct triplets *data) {
    const size_t bytes = data->count * data->features * sizeof(float);
    CHECK(cudaMemcpy(tensor->x, data->x, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(tensor->y, data->y, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(tensor->z, data->z, bytes, cudaMemcpyHostToDevice));
}

static void download(struct tensor *tensor, size_t features) {
    CHECK(cudaMemcpy(tensor->mean, tensor->elements, features * features * features * sizeof(float),
                     cudaMemcpyDeviceToHost));
}

// Sets A, from the features of all triplets.
static void average(struct tensor *tensor, const struct triplets *data) {
    const size_t features = data->features, count = features * features * features;
    average_elements<<<(unsigned)((count + THREADS - 1) / THREADS), THREADS>>>(
        tensor->x, tensor->y, tensor->z, tensor->elements, data->count, features);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
}

// Does all of the work once. At the end of each phase the host waits for the device, so that its
// clock is right.
static void pass(struct tensor *tensor, const struct triplets *data, struct result *result) {
    double clock = seconds();
    upload(tensor, data);
    clock = timer_lap(&result->transfer_time, clock);
    average(tensor, data);
    clock = timer_lap(&result->product_time, clock);
    download(tensor, data->features);
    timer_lap(&result->transfer_time, clock);
}

// Repeats the pass until --seconds have passed.
static void measure(struct tensor *tensor, const struct triplets *data,
                    const struct options *options, struct result *result) {
    const double start = seconds();
    do {
        pass(tensor, data, result);
        result->time_s = seconds() - start;
    } while (result->time_s < options->seconds);
    result->time_s /= (double)result->product_time.count;
}

int main(int argc, char **argv) {
    struct options options = parse_options(
        argc, argv, "Averages outer products on a GPU, with a thread for each element.", 1);
    struct result result = {};

    // The first pass loads the kernels, and is not measured.
    double clock = seconds();
    result.device = open_device();
    const double used = used_device_mib();
    struct triplets data = draw_triplets(&options);
    struct tensor tensor = create(&data);
    struct result first = {};
    pass(&tensor, &data, &first);
    result.setup_s = seconds() - clock;

    measure(&tensor, &data, &options, &result);
    result.peak_vram_mib = used_device_mib() - used;
    const int status = report_result(&options, tensor.mean, &result);
    destroy(&tensor, &data);
    free_triplets(&data);
    return status;
}
