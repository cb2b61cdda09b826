// Trains the network with LIBXSMM. It compiles a kernel for each shape of product before the clock
// starts. A kernel computes on one thread. slices.h has the rest, and the shapes.
//
// LIBXSMM's matrices are column-major, so it takes each array for its transpose, and computes
// a = x·W1 as aᵀ = W1ᵀ·xᵀ.
#include <libxsmm.h>
#include <omp.h>

// At WIDEST units, a slice's 200 KB of W1 stay in the second-level cache.
enum { WIDEST = 64 };

struct products {
    libxsmm_smmfunction activations; // a = x·W1
    libxsmm_smmfunction outputs;     // z += a·W2
    libxsmm_smmfunction d_hidden;    // da = dz·W2ᵀ
    libxsmm_smmfunction weights2;    // W2ᵀ += dzᵀ·a
    libxsmm_smmfunction weights1;    // W1 += xᵀ·da
};

#include "slices.h"

// Returns a kernel for C = A·B + beta·C in column-major order. A is m × k. B is k × n, or with
// TRANS_B n × k.
static libxsmm_smmfunction compile(size_t m, size_t n, size_t k, int flags, float beta) {
    libxsmm_smmfunction kernel =
        libxsmm_smmdispatch((libxsmm_blasint)m, (libxsmm_blasint)n, (libxsmm_blasint)k, NULL, NULL,
                            NULL, NULL, &beta, &flags, NULL);
    if (!kernel) {
        fprintf(stderr, STAGE ": LIBXSMM has no kernels for this processor\n");
        exit(EXIT_NO_DEVICE);
    }
    return kernel;
}

static struct products compile_products(size_t n, size_t width) {
    return (struct products){
        .activations = compile(width, n, PIXELS, LIBXSMM_GEMM_FLAG_NONE, 0),
        .outputs = compile(CLASSES, n, width, LIBXSMM_GEMM_FLAG_NONE, 1),
        .d_hidden = compile(width, n, CLASSES, LIBXSMM_GEMM_FLAG_NONE, 0),
        .weights2 = compile(width, CLASSES, n, LIBXSMM_GEMM_FLAG_TRANS_B, 1),
        .weights1 = compile(width, PIXELS, n, LIBXSMM_GEMM_FLAG_TRANS_B, 1),
    };
}

// LIBXSMM keeps its kernels until the program ends.
static void discard_products(const struct products *products) {
    (void)products;
}

static void predict(const struct products *products, const struct slice *slice,
                    const struct batch *batch, float *z) {
    const size_t n = batch->samples, width = slice->width;
    const float *restrict bias1 = slice->bias1, *restrict weights2 = slice->weights2;
    float *restrict a = slice->activations;
    float rows[WIDEST * CLASSES]; // of W2
    products->activations(slice->weights1, batch->images, a);
    for (size_t s = 0; s < n; ++s)
        for (size_t h = 0; h < width; ++h)
            a[s * width + h] = fmaxf(a[s * width + h] + bias1[h], 0);
    for (size_t h = 0; h < width; ++h)
        for (size_t o = 0; o < CLASSES; ++o)
            rows[h * CLASSES + o] = weights2[o * width + h];
    products->outputs(rows, a, z);
}

static void propagate(const struct products *products, const struct slice *slice, const float *dz,
                      float *da) {
    products->d_hidden(slice->weights2, dz, da);
    products->weights2(slice->activations, dz, slice->weights2);
}

static void update(const struct products *products, const struct slice *slice,
                   const struct batch *batch, const float *da) {
    products->weights1(da, batch->images, slice->weights1);
}

int main(int argc, char **argv) {
    return run(argc, argv, "Trains with LIBXSMM.");
}
