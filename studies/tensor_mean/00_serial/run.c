// Stage 00: the textbook. One core forms the outer product of each triplet's features, and adds it
// to the sums.
//
// Shapes: N triplets, D features. Arrays are row-major: x[n][i] is x[n * D + i].
//
//     A = 1/N · Σ x[n] ⊗ y[n] ⊗ z[n]      x, y, z  N × D    A  D × D × D
//
//     A[i][j][k] = 1/N · Σ x[n][i]·y[n][j]·z[n][k]
#include "studies/tensor_mean/run.h"

#include <stdlib.h>
#include <string.h>

struct tensor {
    float *product; // D × D × D: the outer product of one triplet
    double *sums;   // D × D × D: the sum of the outer products; a float would lose digits
    float *mean;    // D × D × D: A
};

static struct tensor create(const struct triplets *data) {
    const size_t count = data->features * data->features * data->features;
    return (struct tensor){
        .product = allocate_floats(count),
        .sums = allocate_array(count, sizeof(double)),
        .mean = allocate_floats(count),
    };
}

static void destroy(struct tensor *tensor) {
    free(tensor->product);
    free(tensor->sums);
    free(tensor->mean);
}

// product = x ⊗ y ⊗ z for the features of one triplet.
static void outer_product(const float *x, const float *y, const float *z, float *product,
                          size_t features) {
    for (size_t i = 0; i < features; ++i)
        for (size_t j = 0; j < features; ++j)
            for (size_t k = 0; k < features; ++k)
                product[(i * features + j) * features + k] = x[i] * y[j] * z[k];
}

// Sets A, from the features of all triplets.
static void average(struct tensor *tensor, const struct triplets *data) {
    const size_t features = data->features, count = features * features * features;
    memset(tensor->sums, 0, count * sizeof *tensor->sums);
    for (size_t n = 0; n < data->count; ++n) {
        const size_t row = n * features;
        outer_product(data->x + row, data->y + row, data->z + row, tensor->product, features);
        for (size_t e = 0; e < count; ++e)
            tensor->sums[e] += tensor->product[e];
    }
    for (size_t e = 0; e < count; ++e)
        tensor->mean[e] = (float)(tensor->sums[e] / (double)data->count);
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
        parse_options(argc, argv, "Averages outer products on one core, by the textbook.", 1);
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
