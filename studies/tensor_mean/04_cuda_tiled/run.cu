// Stage 04: the sums in tiles. A block of threads copies features to shared memory, and each thread
// sums a tile of A in registers. A has few tiles, so the triplets are divided among blocks, too. A
// second kernel adds up what they found.
//
// Shapes: N triplets, D features, S slices of the triplets. Arrays are row-major.
#include "common/cuda.h"
#include "studies/tensor_mean/run.h"

enum {
    // A block of threads has a feature of x for each warp, and TILE features of y and of z.
    WARP = 32,
    TILE = 32,
    WARPS = 4,
    THREADS = WARPS * WARP,
    // A thread sums ROWS × COLUMNS elements: a step is 32 multiply-adds for 13 numbers. The
    // compiler reads them from shared memory four at a time.
    ROWS = 8,
    COLUMNS = 4,
    // So many triplets are in shared memory at once: 8.5 KiB.
    DEPTH = 32,
    // This many blocks are enough to occupy a large GPU.
    BLOCKS = 512,
    // A float sums at most so many triplets. So few that the rounding errors of float32 do not add
    // up.
    LONGEST = 4096,
    // A grid has at most so many slices.
    MOST_SLICES = 65535
};

struct tensor {
    size_t slices;    // S
    float *x, *y, *z; // N × D
    float *sums;      // S × D × D × D
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

// The number of tiles that cover all features.
__host__ __device__ static size_t tiles(size_t features, size_t tile) {
    return (features + tile - 1) / tile;
}

// Into how many slices the triplets are divided: enough for BLOCKS blocks, if there are so many
// triplets that each slice has DEPTH.
static size_t count_slices(size_t triplets, size_t features) {
    const size_t across = tiles(features, TILE), blocks = tiles(features, WARPS) * across * across;
    const size_t most = tiles(triplets, DEPTH), least = tiles(triplets, LONGEST);
    size_t slices = tiles(BLOCKS, blocks);
    slices = slices < most ? slices : most;
    return slices > least ? slices : least;
}

static struct tensor create(const struct triplets *data) {
    const size_t numbers = data->count * data->features;
    const size_t count = data->features * data->features * data->features;
    struct tensor tensor = {};
    tensor.slices = count_slices(data->count, data->features);
    tensor.x = allocate(numbers);
    tensor.y = allocate(numbers);
    tensor.z = allocate(numbers);
    tensor.sums = allocate(tensor.slices * count);
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
    CHECK(cudaFree(tensor->sums));
    CHECK(cudaFree(tensor->elements));
    free(tensor->mean);
}

// Copies features of some triplets to shared memory: `columns` of them from `first` on. Where there
// is no feature or no triplet, it puts 0. The compiler knows the number of steps. So it puts all
// loads before the first store, and a thread waits for memory once.
__device__ void load_tile(float *tile, int columns, const float *matrix, size_t features,
                          size_t first, size_t triplets) {
#pragma unroll
    for (int step = 0; step < DEPTH * columns; step += THREADS) {
        const int e = step + threadIdx.x;
        const size_t n = e / columns, column = first + e % columns;
        tile[e] = n < triplets && column < features ? matrix[n * features + column] : 0;
    }
}

// Sums a slice of the triplets, blockIdx.z, for a tile of A: a feature of x for each warp, TILE
// features of y and of z. A step forms x·z once, and uses it for all rows.
__global__ void __launch_bounds__(THREADS)
    sum_slice(const float *x, const float *y, const float *z, float *sums, size_t triplets,
              size_t features) {
    __shared__ float x_tile[DEPTH][WARPS];
    __shared__ alignas(16) float y_tile[DEPTH][TILE];
    __shared__ alignas(16) float z_tile[DEPTH][TILE];
    const size_t across = tiles(features, TILE);
    const size_t i = blockIdx.x * WARPS, j = blockIdx.y / across * TILE,
                 k = blockIdx.y % across * TILE;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int row = lane / (TILE / COLUMNS) * ROWS, column = lane % (TILE / COLUMNS) * COLUMNS;
    const size_t last = triplets * (blockIdx.z + 1) / gridDim.z;
    float sum[ROWS][COLUMNS] = {};
    for (size_t n = triplets * blockIdx.z / gridDim.z; n < last; n += DEPTH) {
        load_tile(x_tile[0], WARPS, x + n * features, features, i, last - n);
        load_tile(y_tile[0], TILE, y + n * features, features, j, last - n);
        load_tile(z_tile[0], TILE, z + n * features, features, k, last - n);
        __syncthreads();
        for (int step = 0; step < DEPTH; ++step) {
            float product[COLUMNS];
            for (int c = 0; c < COLUMNS; ++c)
                product[c] = x_tile[step][warp] * z_tile[step][column + c];
            for (int r = 0; r < ROWS; ++r)
                for (int c = 0; c < COLUMNS; ++c)
                    sum[r][c] += y_tile[step][row + r] * product[c];
        }
        __syncthreads();
    }
    for (int r = 0; r < ROWS; ++r)
        for (int c = 0; c < COLUMNS; ++c)
            if (i + warp < features && j + row + r < features && k + column + c < features)
                sums[(((blockIdx.z * features + i + warp) * features + j + row + r) * features) +
                     k + column + c] = sum[r][c];
}

// Adds up the slices' sums, in a fixed order. Sets an element of A in each thread.
__global__ void __launch_bounds__(THREADS)
    average_slices(const float *sums, float *elements, size_t slices, size_t count,
                   size_t triplets) {
    const size_t e = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (e >= count)
        return;
    double sum = 0;
    for (size_t s = 0; s < slices; ++s)
        sum += sums[s * count + e];
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
    const size_t across = tiles(features, TILE);
    const dim3 grid((unsigned)tiles(features, WARPS), (unsigned)(across * across),
                    (unsigned)tensor->slices);
    sum_slice<<<grid, THREADS>>>(tensor->x, tensor->y, tensor->z, tensor->sums, data->count,
                                 features);
    CHECK(cudaGetLastError());
    average_slices<<<(unsigned)tiles(count, THREADS), THREADS>>>(
        tensor->sums, tensor->elements, tensor->slices, count, data->count);
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
    struct options options =
        parse_options(argc, argv, "Averages outer products on a GPU, in tiles.", 1);
    struct result result = {};
    if (tiles((size_t)options.triplets, LONGEST) > MOST_SLICES)
        return report_error(STAGE, "--triplets: found %d, expected at most %d", options.triplets,
                            MOST_SLICES * LONGEST);

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
