// peer_openblas with the loops of neural-network-cuda, a public program that the paper may have
// started from (PAPER.md): sums lie in memory, and both products of the first layer go down the
// columns of W1. No table has it, because it takes minutes.
#include <cblas.h>

static void multiply(CBLAS_TRANSPOSE turn_a, CBLAS_TRANSPOSE turn_b, int rows, int columns,
                     int inner, float alpha, const float *a, int lda, const float *b, int ldb,
                     float beta, float *c, int ldc) {
    if (turn_a == CblasTrans) { // an update, sample by sample
        for (int i = 0; i < inner; ++i)
            for (int column = 0; column < columns; ++column)
                for (int row = 0; row < rows; ++row)
                    c[row * ldc + column] += alpha * a[i * lda + row] * b[i * ldb + column];
        return;
    }
    const int step = turn_b == CblasTrans ? 1 : ldb, across = turn_b == CblasTrans ? ldb : 1;
    for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < columns; ++column) {
            c[row * ldc + column] *= beta;
            for (int i = 0; i < inner; ++i)
                c[row * ldc + column] += a[row * lda + i] * b[i * step + column * across];
        }
    }
}

#define cblas_sgemm(order, ...) multiply(__VA_ARGS__)
#define openblas_get_num_threads() 1
#define openblas_set_num_threads(n) (void)(n)
#include "../peer_openblas.c" // NOLINT(bugprone-suspicious-include)
