// Trains the network with cuBLASLt, whose products have epilogues: what follows a product is part
// of it. So a batch is five products and two small kernels.
#include <cublasLt.h>
#include <vector>

// A product of a certain shape: D = A·B + beta·C, with what follows it. D has the layout of C.
struct product {
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    float beta;
};

// The products of a batch.
struct products {
    size_t samples; // n
    struct product activations, outputs, d_activations, weights2, weights1;
};

struct library {
    cublasLtHandle_t handle;
    float *d_bias1, *d_bias2;              // H, 10: −lr·db1, −lr·db2
    void *mask;                            // N × H bits: a > 0
    size_t mask_stride;                    // in bits
    size_t batch;                          // samples in a whole batch
    std::vector<struct products> products; // for whole batches, and for the last of either data set
};

#include "cublas.cuh"

static void create_library(struct network *network, const struct options *options) {
    const size_t hidden = (size_t)options->hidden, n = largest_batch(options);
    struct library *library = &network->library;
    CHECK_CUBLAS(cublasLtCreate(&library->handle));
    library->d_bias1 = allocate(hidden);
    library->d_bias2 = allocate(CLASSES);
    library->mask_stride = (hidden + 127) / 128 * 128; // cuBLASLt asks for a multiple of 128
    CHECK_ALLOCATION(cudaMalloc(&library->mask, n * library->mask_stride / 8),
                     n * library->mask_stride / 8);
    library->batch = (size_t)options->batch;
}

static void destroy_product(const struct product *product) {
    CHECK_CUBLAS(cublasLtMatmulDescDestroy(product->what));
    CHECK_CUBLAS(cublasLtMatrixLayoutDestroy(product->a));
    CHECK_CUBLAS(cublasLtMatrixLayoutDestroy(product->b));
    CHECK_CUBLAS(cublasLtMatrixLayoutDestroy(product->c));
}

static void destroy_library(struct network *network) {
    struct library *library = &network->library;
    for (const struct products &products : library->products)
        for (const struct product *product :
             {&products.activations, &products.outputs, &products.d_activations, &products.weights2,
              &products.weights1})
            destroy_product(product);
    CHECK_CUBLAS(cublasLtDestroy(library->handle));
    CHECK(cudaFree(library->d_bias1));
    CHECK(cudaFree(library->d_bias2));
    CHECK(cudaFree(library->mask));
}

// A matrix as cuBLAS sees it: rows × columns in column-major order, with no gaps. Turned, it is its
// transpose that is multiplied.
struct matrix {
    size_t rows, columns;
    bool turned;
    unsigned alignment; // of its address, in bytes
};

static cublasLtMatrixLayout_t make_layout(const struct matrix *matrix) {
    cublasLtMatrixLayout_t layout;
    CHECK_CUBLAS(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, matrix->rows, matrix->columns,
                                            (int64_t)matrix->rows));
    return layout;
}

#define SET(what, attribute, value)                                                                \
    CHECK_CUBLAS(cublasLtMatmulDescSetAttribute((what), (attribute), &(value), sizeof(value)))
#define PREFER(preference, attribute, value)                                                       \
    CHECK_CUBLAS(                                                                                  \
        cublasLtMatmulPreferenceSetAttribute((preference), (attribute), &(value), sizeof(value)))

// Describes a product, and has the library choose its kernel. `bias` is what the epilogue reads or
// writes.
static struct product make_product(const struct network *network, struct matrix a, struct matrix b,
                                   struct matrix c, float beta, cublasLtEpilogue_t epilogue,
                                   float *bias) {
    const struct library *library = &network->library;
    const cublasOperation_t turned_a = a.turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t turned_b = b.turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int64_t stride = (int64_t)library->mask_stride;
    const size_t workspace = WORKSPACE_BYTES;
    struct product product = {};
    product.beta = beta;
    CHECK_CUBLAS(cublasLtMatmulDescCreate(&product.what, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    SET(product.what, CUBLASLT_MATMUL_DESC_TRANSA, turned_a);
    SET(product.what, CUBLASLT_MATMUL_DESC_TRANSB, turned_b);
    SET(product.what, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (bias)
        SET(product.what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (epilogue == CUBLASLT_EPILOGUE_RELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD) {
        SET(product.what, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, library->mask);
        SET(product.what, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, stride);
    }
    product.a = make_layout(&a);
    product.b = make_layout(&b);
    product.c = make_layout(&c);

    cublasLtMatmulPreference_t preference;
    CHECK_CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
    PREFER(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    PREFER(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a.alignment);
    PREFER(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b.alignment);
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    CHECK_CUBLAS(cublasLtMatmulAlgoGetHeuristic(library->handle, product.what, product.a, product.b,
                                                product.c, product.c, preference, 1, &best,
                                                &found));
    CHECK_CUBLAS(found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK_CUBLAS(cublasLtMatmulPreferenceDestroy(preference));
    product.algorithm = best.algo;
    return product;
}

// Returns the products of a batch of so many samples. They are made when they are first needed.
static const struct products *find_products(struct network *network, size_t samples) {
    struct library *library = &network->library;
    for (const struct products &products : library->products)
        if (products.samples == samples)
            return &products;
    const size_t hidden = (size_t)network->hidden, most = 256; // bytes: cudaMalloc's alignment
    const size_t step = library->batch * PIXELS * sizeof(float), low = step & -step;
    const unsigned whole = most, image = (unsigned)(low < most ? low : most);
    const struct matrix x = {PIXELS, samples, false, image},
                        x_turned = {PIXELS, samples, true, image};
    const struct matrix a = {hidden, samples, false, whole},
                        a_turned = {hidden, samples, true, whole};
    const struct matrix z = {CLASSES, samples, false, whole};
    const struct matrix weights1 = {hidden, PIXELS, false, whole};
    const struct matrix weights2 = {CLASSES, hidden, false, whole};
    const struct matrix weights2_turned = {CLASSES, hidden, true, whole};
    library->products.push_back({
        samples,
        // a = max(0, x·W1 + b1), and the mask
        make_product(network, weights1, x, a, 0, CUBLASLT_EPILOGUE_RELU_AUX_BIAS, network->bias1),
        // z = a·W2
        make_product(network, weights2, a, z, 0, CUBLASLT_EPILOGUE_DEFAULT, NULL),
        // da = (dz·W2ᵀ) ⊙ [a > 0], db1 = Σ da
        make_product(network, weights2_turned, z, a, 0, CUBLASLT_EPILOGUE_DRELU_BGRAD,
                     library->d_bias1),
        // W2 += aᵀ·dz, db2 = Σ dz
        make_product(network, z, a_turned, weights2, 1, CUBLASLT_EPILOGUE_BGRADA, library->d_bias2),
        // W1 += xᵀ·da
        make_product(network, a, x_turned, weights1, 1, CUBLASLT_EPILOGUE_DEFAULT, NULL),
    });
    return &library->products.back();
}

static void multiply(const struct network *network, const struct product *product, const float *a,
                     const float *b, float *c) {
    const float one = 1;
    CHECK_CUBLAS(cublasLtMatmul(network->library.handle, product->what, &one, a, product->a, b,
                                product->b, &product->beta, c, product->c, c, product->c,
                                &product->algorithm, network->workspace, WORKSPACE_BYTES,
                                network->stream));
}

__global__ void add_gradients(float *bias1, const float *d_bias1, size_t hidden, float *bias2,
                              const float *d_bias2) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < hidden)
        bias1[i] += d_bias1[i];
    else if (i < hidden + CLASSES)
        bias2[i - hidden] += d_bias2[i - hidden];
}

static void predict(struct network *network, const struct batch *batch) {
    const struct products *products = find_products(network, batch->samples);
    multiply(network, &products->activations, network->weights1, batch->images,
             network->activations);
    multiply(network, &products->outputs, network->weights2, network->activations,
             network->outputs);
}

static void backward(struct network *network, const struct batch *batch) {
    const struct products *products = find_products(network, batch->samples);
    const struct library *library = &network->library;
    const size_t hidden = (size_t)network->hidden;
    const float *dz = network->outputs;
    multiply(network, &products->d_activations, network->weights2, dz, network->d_activations);
    multiply(network, &products->weights2, dz, network->activations, network->weights2);
    multiply(network, &products->weights1, network->d_activations, batch->images,
             network->weights1);
    add_gradients<<<blocks(hidden + CLASSES), THREADS, 0, network->stream>>>(
        network->bias1, library->d_bias1, hidden, network->bias2, library->d_bias2);
    CHECK(cudaGetLastError());
}

int main(int argc, char **argv) {
    return run(argc, argv, "Trains on a GPU with cuBLASLt.");
}
