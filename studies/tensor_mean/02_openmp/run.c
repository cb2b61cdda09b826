// Stage 02: the same kernel, on all cores. Each thread owns a slice of A, that is, some features of
// x with all those of y and z. The threads share what they read, and nothing that they write.
//
// Shapes: N triplets, in blocks of B; D features; T threads. The features of y are padded with
// zeros to R, a whole number of tiles, and those of z to V vectors. So all tiles have the same
// size.
#include "studies/tensor_mean/run.h"

#include <limits.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

// The widest vectors of the machine that is compiled for. A tile has TILE_ROWS × TILE_COLUMNS
// vectors of sums and takes half of the registers. The other half is for its operands.
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, TILE_ROWS = 8, TILE_COLUMNS = 2 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, TILE_ROWS = 4, TILE_COLUMNS = 2 };
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, TILE_ROWS = 8, TILE_COLUMNS = 2 };
#else
enum { VECTOR_BYTES = 16, TILE_ROWS = 4, TILE_COLUMNS = 2 };
#endif
enum { LANES = VECTOR_BYTES / sizeof(float) };
typedef float vec __attribute__((vector_size(VECTOR_BYTES)));

#define INLINED static inline __attribute__((always_inline))

// The registers sum a block of triplets before they are added to the sums in memory. A block of so
// many is enough that adding takes little time, and its features stay in the nearest caches.
enum { SMALLEST_BLOCK = 128 };

struct tensor {
    size_t block;   // B
    size_t rows;    // R
    size_t vectors; // V
    size_t threads; // T
    float *y;       // T × B × R, a copy for each thread: a block of triplets, padded
    vec *z;         // T × B × V, a copy for each thread: the same
    vec *sums;      // D × R × V
    float *mean;    // D × D × D: A
};

// A thread's part of the work.
struct slice {
    size_t first, last; // its features of x: first to last − 1
    float *y;           // B × R
    vec *z;             // B × V
};

static struct tensor create(const struct triplets *data, const struct options *options) {
    const size_t features = data->features, columns = (size_t)TILE_COLUMNS * LANES;
    const size_t rows = (features + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    const size_t vectors = (features + columns - 1) / columns * TILE_COLUMNS;
    size_t block = SMALLEST_BLOCK;
    while (block * block < data->count)
        block *= 2; // at most as many blocks as triplets in a block: no sum of floats is long
    // More threads than cores would wait for each other. More threads than features would have
    // nothing to do.
    size_t threads =
        (size_t)(options->common.threads ? options->common.threads : omp_get_max_threads());
    threads = threads < (size_t)omp_get_num_procs() ? threads : (size_t)omp_get_num_procs();
    threads = threads < features ? threads : features;
    return (struct tensor){
        .block = block,
        .rows = rows,
        .vectors = vectors,
        .threads = threads,
        .y = allocate_floats(threads * block * rows),
        .z = (vec *)allocate_floats(threads * block * vectors * LANES),
        .sums = (vec *)allocate_floats(features * rows * vectors * LANES),
        .mean = allocate_floats(features * features * features),
    };
}

static void destroy(struct tensor *tensor) {
    free(tensor->y);
    free(tensor->z);
    free(tensor->sums);
    free(tensor->mean);
}

// Returns the calling thread's slice. The runtime may have granted fewer threads than wanted.
static struct slice take_slice(const struct tensor *tensor, size_t features) {
    const size_t thread = (size_t)omp_get_thread_num(), threads = (size_t)omp_get_num_threads();
    return (struct slice){
        .first = features * thread / threads,
        .last = features * (thread + 1) / threads,
        .y = tensor->y + thread * tensor->block * tensor->rows,
        .z = tensor->z + thread * tensor->block * tensor->vectors,
    };
}

// Copies rows of `features` numbers to rows of `stride` numbers. The padding stays zero.
static void copy_rows(float *to, size_t stride, const float *from, size_t features, size_t count) {
    for (size_t n = 0; n < count; ++n)
        memcpy(to + n * stride, from + n * features, features * sizeof *to);
}

// Adds a block of triplets to a tile of the sums: feature i, TILE_ROWS features of y from j on,
// TILE_COLUMNS vectors of z from v on. A step forms x·z once, and uses it for all rows.
INLINED void add_tile(const struct tensor *tensor, const struct slice *slice,
                      const struct triplets *block, size_t i, size_t j, size_t v) {
    const size_t features = block->features, rows = tensor->rows, vectors = tensor->vectors;
    const float *x = block->x + i, *y = slice->y + j;
    const vec *z = slice->z + v;
    vec sum[TILE_ROWS][TILE_COLUMNS] = {0};
    for (size_t n = 0; n < block->count; ++n) {
        vec product[TILE_COLUMNS];
        for (size_t c = 0; c < TILE_COLUMNS; ++c)
            product[c] = x[n * features] * z[n * vectors + c];
        for (size_t r = 0; r < TILE_ROWS; ++r)
            for (size_t c = 0; c < TILE_COLUMNS; ++c)
                sum[r][c] += y[n * rows + r] * product[c];
    }
    vec *sums = tensor->sums + (i * rows + j) * vectors + v;
    for (size_t r = 0; r < TILE_ROWS; ++r)
        for (size_t c = 0; c < TILE_COLUMNS; ++c)
            sums[r * vectors + c] += sum[r][c];
}

// Sets a slice of A, from the features of all triplets.
static void average(const struct tensor *tensor, const struct slice *slice,
                    const struct triplets *data) {
    const size_t features = data->features, rows = tensor->rows, vectors = tensor->vectors;
    memset(tensor->sums + slice->first * rows * vectors, 0,
           (slice->last - slice->first) * rows * vectors * sizeof *tensor->sums);
    for (size_t first = 0; first < data->count; first += tensor->block) {
        const size_t left = data->count - first, offset = first * features;
        const struct triplets block = {left < tensor->block ? left : tensor->block, features,
                                       data->x + offset, data->y + offset, data->z + offset};
        copy_rows(slice->y, rows, block.y, features, block.count);
        copy_rows((float *)slice->z, vectors * LANES, block.z, features, block.count);
        for (size_t i = slice->first; i < slice->last; ++i)
            for (size_t j = 0; j < rows; j += TILE_ROWS)
                for (size_t v = 0; v < vectors; v += TILE_COLUMNS)
                    add_tile(tensor, slice, &block, i, j, v);
    }

    const float scale = 1 / (float)data->count;
    for (size_t i = slice->first; i < slice->last; ++i)
        for (size_t j = 0; j < features; ++j) {
            const float *sums = (const float *)(tensor->sums + (i * rows + j) * vectors);
            for (size_t k = 0; k < features; ++k)
                tensor->mean[(i * features + j) * features + k] = scale * sums[k];
        }
}

// Does all of the work once.
static void pass(struct tensor *tensor, const struct triplets *data, struct result *result) {
    const double clock = seconds();
#pragma omp parallel num_threads(tensor->threads)
    {
        const struct slice slice = take_slice(tensor, data->features);
        average(tensor, &slice, data);
        if (slice.first == 0)
            result->threads = omp_get_num_threads();
    }
    timer_lap(&result->product_time, clock);
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
        parse_options(argc, argv, "Averages outer products on all cores.", INT_MAX);
    struct triplets data = draw_triplets(&options);
    struct result result = {.device = "cpu"};

    // The first pass touches all pages, and is not measured.
    double clock = seconds();
    struct tensor tensor = create(&data, &options);
    pass(&tensor, &data, &(struct result){0});
    result.setup_s = seconds() - clock;

    measure(&tensor, &data, &options, &result);
    const int status = report_result(&options, tensor.mean, &result);
    destroy(&tensor);
    free_triplets(&data);
    return status;
}
