// Trains the network with cuBLAS. Every product is a cublasSgemm. Those of the weight gradients
// include the update. The kernels here and in cublas.cuh compute the rest.
#include <cublas_v2.h>

struct library {
    cublasHandle_t handle;
    float *ones; // N
};

#include "cublas.cuh"

static void create_library(struct network *network, const struct options *options) {
    const size_t n = largest_batch(options);
    struct library *library = &network->library;
    float *ones = allocate_floats(n);
    for (size_t s = 0; s < n; ++s)
        ones[s] = 1;
    library->ones = allocate(n);
    CHECK(cudaMemcpy(library->ones, ones, n * sizeof(float), cudaMemcpyHostToDevice));
    free(ones);
    CHECK_CUBLAS(cublasCreate(&library->handle)); // computes in float32: TF32 is off by default
    CHECK_CUBLAS(cublasSetStream(library->handle, network->stream));
    CHECK_CUBLAS(cublasSetWorkspace(library->handle, network->workspace, WORKSPACE_BYTES));
}

static void destroy_library(struct network *network) {
    CHECK_CUBLAS(cublasDestroy(network->library.handle));
    CHECK(cudaFree(network->library.ones));
}

// a = max(0, a + b1)
__global__ void add_bias_relu(float *a, const float *bias1, size_t count, size_t hidden) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const float sum = a[i] + bias1[i % hidden];
    a[i] = sum > 0 ? sum : 0;
}

// da = da ⊙ [a > 0]
__global__ void relu_gradient(float *d_activations, const float *activations, size_t count) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count && !(activations[i] > 0))
        d_activations[i] = 0;
}

static void predict(struct network *network, const struct batch *batch) {
    const int n = (int)batch->samples, hidden = network->hidden;
    const size_t count = batch->samples * (size_t)hidden;
    const float one = 1, zero = 0;
    cublasHandle_t handle = network->library.handle;
    CHECK_CUBLAS(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, hidden, n, PIXELS, &one,
                             network->weights1, hidden, batch->images, PIXELS, &zero,
                             network->activations, hidden));
    add_bias_relu<<<blocks(count), THREADS, 0, network->stream>>>(
        network->activations, network->bias1, count, (size_t)hidden);
    CHECK(cudaGetLastError());
    CHECK_CUBLAS(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, CLASSES, n, hidden, &one,
                             network->weights2, CLASSES, network->activations, hidden, &zero,
                             network->outputs, CLASSES));
}

static void backward(struct network *network, const struct batch *batch) {
    const int n = (int)batch->samples, hidden = network->hidden;
    const size_t count = batch->samples * (size_t)hidden;
    const float one = 1, zero = 0, *ones = network->library.ones, *dz = network->outputs;
    float *da = network->d_activations;
    cublasHandle_t handle = network->library.handle;
    // da = (dz·W2ᵀ) ⊙ [a > 0]
    CHECK_CUBLAS(cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, hidden, n, CLASSES, &one,
                             network->weights2, CLASSES, dz, CLASSES, &zero, da, hidden));
    relu_gradient<<<blocks(count), THREADS, 0, network->stream>>>(da, network->activations, count);
    CHECK(cudaGetLastError());
    // W2 += aᵀ·dz, b2 += Σ dz
    CHECK_CUBLAS(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, CLASSES, hidden, n, &one, dz,
                             CLASSES, network->activations, hidden, &one, network->weights2,
                             CLASSES));
    CHECK_CUBLAS(cublasSgemv(handle, CUBLAS_OP_N, CLASSES, n, &one, dz, CLASSES, ones, 1, &one,
                             network->bias2, 1));
    // W1 += xᵀ·da, b1 += Σ da
    CHECK_CUBLAS(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, hidden, PIXELS, n, &one, da, hidden,
                             batch->images, PIXELS, &one, network->weights1, hidden));
    CHECK_CUBLAS(cublasSgemv(handle, CUBLAS_OP_N, hidden, n, &one, da, hidden, ones, 1, &one,
                             network->bias1, 1));
}

int main(int argc, char **argv) {
    return run(argc, argv, "Trains on a GPU with cuBLAS.");
}
