// cuBLAS and cuBLASLt as far as the peers use them, with plain kernels, so that the simulated
// device can run the peers: see test_bench_peers.py. What the documentation demands is checked.
// Matrices are column-major: element (i, j) of a matrix lies at i + j·ld.
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_SUPPORTED = 15 };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasLtEpilogue_t {
    CUBLASLT_EPILOGUE_DEFAULT = 1,
    CUBLASLT_EPILOGUE_RELU_AUX_BIAS = 134,
    CUBLASLT_EPILOGUE_DRELU_BGRAD = 152,
    CUBLASLT_EPILOGUE_BGRADA = 256
};

static void demand(bool holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "fake cuBLAS: %s\n", what);
    exit(1);
}
#define DEMAND(condition) demand((condition), #condition)

struct fake_product {
    size_t m, n, k;
    bool turned_a, turned_b;
    float beta;
    const float *a, *b;
    float *c;
    size_t lda, ldb, ldc;
    int epilogue;
    float *bias;
    unsigned char *mask;
    size_t mask_stride;
};

// A thread computes a column of C = A·B + beta·C and what follows it.
__global__ void fake_multiply(fake_product p) {
    const size_t j = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= p.n)
        return;
    unsigned char *mask = p.mask + j * (p.mask_stride / 8);
    for (size_t i = 0; i < p.m; ++i) {
        float sum = p.beta != 0 ? p.beta * p.c[i + j * p.ldc] : 0;
        for (size_t k = 0; k < p.k; ++k)
            sum += (p.turned_a ? p.a[k + i * p.lda] : p.a[i + k * p.lda]) *
                   (p.turned_b ? p.b[j + k * p.ldb] : p.b[k + j * p.ldb]);
        const unsigned char bit = (unsigned char)(1 << i % 8);
        if (p.epilogue == CUBLASLT_EPILOGUE_RELU_AUX_BIAS) {
            sum += p.bias[i];
            mask[i / 8] = (unsigned char)(sum > 0 ? mask[i / 8] | bit : mask[i / 8] & ~bit);
            sum = sum > 0 ? sum : 0;
        }
        if (p.epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD && !(mask[i / 8] & bit))
            sum = 0;
        p.c[i + j * p.ldc] = sum;
    }
}

// A thread adds up a row: of C for DRELU_BGRAD, of A for BGRADA.
__global__ void fake_bias_gradient(fake_product p) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.m)
        return;
    float sum = 0;
    if (p.epilogue == CUBLASLT_EPILOGUE_BGRADA)
        for (size_t k = 0; k < p.k; ++k)
            sum += p.turned_a ? p.a[k + i * p.lda] : p.a[i + k * p.lda];
    else
        for (size_t j = 0; j < p.n; ++j)
            sum += p.c[i + j * p.ldc];
    p.bias[i] = sum;
}

static cublasStatus_t fake_run(const fake_product &product, cudaStream_t stream) {
    const unsigned columns = (unsigned)(product.n + 31) / 32,
                   rows = (unsigned)(product.m + 31) / 32;
    fake_multiply<<<columns, 32, 0, stream>>>(product);
    if (product.epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD ||
        product.epilogue == CUBLASLT_EPILOGUE_BGRADA)
        fake_bias_gradient<<<rows, 32, 0, stream>>>(product);
    return cudaGetLastError() ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

// ---- cuBLAS

struct fake_handle {
    cudaStream_t stream;
};
typedef fake_handle *cublasHandle_t;

static inline cublasStatus_t cublasCreate(cublasHandle_t *handle) {
    *handle = (cublasHandle_t)calloc(1, sizeof **handle);
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t op_a,
                                         cublasOperation_t op_b, int m, int n, int k,
                                         const float *alpha, const float *a, int lda,
                                         const float *b, int ldb, const float *beta, float *c,
                                         int ldc) {
    DEMAND(*alpha == 1);
    const fake_product product = {(size_t)m,
                                  (size_t)n,
                                  (size_t)k,
                                  op_a == CUBLAS_OP_T,
                                  op_b == CUBLAS_OP_T,
                                  *beta,
                                  a,
                                  b,
                                  c,
                                  (size_t)lda,
                                  (size_t)ldb,
                                  (size_t)ldc,
                                  CUBLASLT_EPILOGUE_DEFAULT,
                                  NULL,
                                  NULL,
                                  0};
    return fake_run(product, handle->stream);
}
// y = A·x + y is a product with one column. The peers need no other.
static inline cublasStatus_t cublasSgemv(cublasHandle_t handle, cublasOperation_t op, int m, int n,
                                         const float *alpha, const float *a, int lda,
                                         const float *x, int step_x, const float *beta, float *y,
                                         int step_y) {
    DEMAND(op == CUBLAS_OP_N && step_x == 1 && step_y == 1);
    return cublasSgemm(handle, op, CUBLAS_OP_N, m, 1, n, alpha, a, lda, x, n, beta, y, m);
}

// ---- cuBLASLt

enum fake_attribute {
    CUBLASLT_MATMUL_DESC_TRANSA,
    CUBLASLT_MATMUL_DESC_TRANSB,
    CUBLASLT_MATMUL_DESC_EPILOGUE,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
    FAKE_ATTRIBUTES
};
enum { CUBLAS_COMPUTE_32F, CUDA_R_32F };
struct fake_attributes {
    uint64_t values[FAKE_ATTRIBUTES];
};
struct fake_layout {
    uint64_t rows, columns;
    int64_t ld;
};
struct cublasLtMatmulAlgo_t {
    uint64_t alignment_a, alignment_b;
};
struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
};
typedef int *cublasLtHandle_t;
typedef fake_attributes *cublasLtMatmulDesc_t, *cublasLtMatmulPreference_t;
typedef fake_layout *cublasLtMatrixLayout_t;

static inline cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = (cublasLtHandle_t)malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, int, int) {
    *made = (fake_attributes *)calloc(1, sizeof **made);
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t made,
                                                            fake_attribute attribute,
                                                            const void *value, size_t bytes) {
    memcpy(&made->values[attribute], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t made) {
    free(made);
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made) {
    cublasLtMatmulDescCreate(made, 0, 0);
    (*made)->values[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = 256;
    (*made)->values[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES] = 256;
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t made,
                                                                  fake_attribute attribute,
                                                                  const void *value, size_t bytes) {
    return cublasLtMatmulDescSetAttribute(made, attribute, value, bytes);
}
static inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t made) {
    return cublasLtMatmulDescDestroy(made);
}
static inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, int,
                                                        uint64_t rows, uint64_t columns,
                                                        int64_t ld) {
    *made = (fake_layout *)malloc(sizeof **made);
    **made = {rows, columns, ld};
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t made) {
    free(made);
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                               cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                               cublasLtMatrixLayout_t, cublasLtMatmulPreference_t preference, int,
                               cublasLtMatmulHeuristicResult_t *best, int *found) {
    best->algo = {preference->values[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                  preference->values[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES]};
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t
cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t what, const float *alpha, const float *a,
               cublasLtMatrixLayout_t layout_a, const float *b, cublasLtMatrixLayout_t layout_b,
               const float *beta, const float *c, cublasLtMatrixLayout_t layout_c, float *d,
               cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t *algorithm, void *,
               size_t, cudaStream_t stream) {
    const uint64_t *const values = what->values;
    fake_product product = {};
    product.turned_a = values[CUBLASLT_MATMUL_DESC_TRANSA] == CUBLAS_OP_T;
    product.turned_b = values[CUBLASLT_MATMUL_DESC_TRANSB] == CUBLAS_OP_T;
    product.m = product.turned_a ? layout_a->columns : layout_a->rows;
    product.k = product.turned_a ? layout_a->rows : layout_a->columns;
    product.n = product.turned_b ? layout_b->rows : layout_b->columns;
    DEMAND(product.k == (product.turned_b ? layout_b->columns : layout_b->rows));
    DEMAND(product.m == layout_c->rows && product.n == layout_c->columns);
    DEMAND(*alpha == 1 && c == d && layout_c == layout_d);
    DEMAND((uintptr_t)a % algorithm->alignment_a == 0 &&
           (uintptr_t)b % algorithm->alignment_b == 0);
    product.beta = *beta;
    product.a = a;
    product.b = b;
    product.c = d;
    product.lda = (size_t)layout_a->ld;
    product.ldb = (size_t)layout_b->ld;
    product.ldc = (size_t)layout_c->ld;
    product.epilogue = (int)values[CUBLASLT_MATMUL_DESC_EPILOGUE];
    product.bias = (float *)values[CUBLASLT_MATMUL_DESC_BIAS_POINTER];
    product.mask = (unsigned char *)values[CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER];
    product.mask_stride = values[CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD];
    DEMAND(product.epilogue == CUBLASLT_EPILOGUE_DEFAULT || product.bias);
    DEMAND(!product.mask || (product.mask_stride >= product.m && product.mask_stride % 128 == 0));
    return fake_run(product, stream);
}
