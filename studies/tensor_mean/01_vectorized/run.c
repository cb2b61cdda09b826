// Stage 01: as fast as one core goes. The sums of a part of A stay in registers for a whole block
// of triplets, and no outer product is ever written.
//
// Shapes: N triplets, in blocks of B; D features. The features of y are padded with zeros to R, a
// whole number of tiles, and those of z to V vectors. So all tiles have the same size.
#include "studies/tensor_mean/run.h"

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
    float *y;       // B × R: the features of a block of triplets, padded
    vec *z;         // B × V: the same
    vec *sums;      // D × R × V
    float *mean;    // D × D × D: A
};

static struct tensor create(const struct triplets *data) {
    const size_t features = data->features, columns = (size_t)TILE_COLUMNS * LANES;
    const size_t rows = (features + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    const size_t vectors = (features + columns - 1) / columns * TILE_COLUMNS;
    size_t block = SMALLEST_BLOCK;
    while (block * block < data->count)
        block *= 2; // at most as many blocks as triplets in a block: no sum of floats is long
    return (struct tensor){
        .block = block,
        .rows = rows,
        .vectors = vectors,
        .y = allocate_floats(block * rows),
        .z = (vec *)allocate_floats(block * vectors * LANES),
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

// Copies rows of `features` numbers to rows of `stride` numbers. The padding stays zero.
static void copy_rows(float *to, size_t stride, const float *from, size_t features, size_t count) {
    for (size_t n = 0; n < count; ++n)
        memcpy(to + n * stride, from + n * features, features * sizeof *to);
}

// Adds a block of triplets to a tile of the sums: feature i, TILE_ROWS features of y from j on,
// TILE_COLUMNS vectors of z from v on. A step forms x·z once, and uses it for all rows.
INLINED void add_tile(const struct tensor *tensor, const struct triplets *block, size_t i, size_t j,
                      size_t v) {
    const size_t features = block->features, rows = tensor->rows, vectors = tensor->vectors;
    const float *x = block->x + i, *y = tensor->y + j;
    const vec *z = tensor->z + v;
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

// Sets A, from the features of all triplets.
static void average(struct tensor *tensor, const struct triplets *data) {
    const size_t features = data->features, rows = tensor->rows, vectors = tensor->vectors;
    memset(tensor->sums, 0, features * rows * vectors * sizeof *tensor->sums);
    for (size_t first = 0; first < data->count; first += tensor->block) {
        const size_t left = data->count - first, offset = first * features;
        const struct triplets block = {left < tensor->block ? left : tensor->block, features,
                                       data->x + offset, data->y + offset, data->z + offset};
        copy_rows(tensor->y, rows, block.y, features, block.count);
        copy_rows((float *)tensor->z, vectors * LANES, block.z, features, block.count);
        for (size_t i = 0; i < features; ++i)
            for (size_t j = 0; j < rows; j += TILE_ROWS)
                for (size_t v = 0; v < vectors; v += TILE_COLUMNS)
                    add_tile(tensor, &block, i, j, v);
    }

    const float scale = 1 / (float)data->count;
    for (size_t i = 0; i < features; ++i)
        for (size_t j = 0; j < features; ++j) {
            const float *sums = (const float *)(tensor->sums + (i * rows + j) * vectors);
            for (size_t k = 0; k < features; ++k)
                tensor->mean[(i * features + j) * features + k] = scale * sums[k];
        }
}

// Does all of the work once.
static void pass(struct tensor *tensor, const struct triplets *data, struct result *result) {
    const double clock = seconds();
    average(tensor, data);
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
        parse_options(argc, argv, "Averages outer products on the vector units of one core.", 1);
    struct triplets data = draw_triplets(&options);
    struct result result = {.device = "cpu", .threads = 1};

    // The first pass touches all pages, and is not measured.
    double clock = seconds();
    struct tensor tensor = create(&data);
    pass(&tensor, &data, &(struct result){0});
    result.setup_s = seconds() - clock;

    measure(&tensor, &data, &options, &result);
    const int status = report_result(&options, tensor.mean, &result);
    destroy(&tensor);
    free_triplets(&data);
    return status;
}
