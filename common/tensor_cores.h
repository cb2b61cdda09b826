// The instructions of tensor cores that CUDA C++ has no function for. nvcc gets the PTX. The
// simulated device has functions for it (sim/tensor_cores.cpp).
//
// Lane `l` of a warp has row g = l / 4 and column t = l % 4, and of the matrices
//
//     a, 16 × 16: a[0]: (g, 2t), (g, 2t + 1)            b, 16 × 8: b[0]: (2t, g), (2t + 1, g)
//                 a[1]: (g + 8, 2t), (g + 8, 2t + 1)               b[1]: (2t + 8, g), (2t + 9, g)
//                 a[2]: (g, 2t + 8), (g, 2t + 9)
//                 a[3]: (g + 8, 2t + 8), (g + 8, 2t + 9)
//     sum, 16 × 8: sum[0], sum[1]: (g, 2t), (g, 2t + 1)
//                  sum[2], sum[3]: (g + 8, 2t), (g + 8, 2t + 1)
//
// A word of a or b holds two numbers of 16 bits, the first in its lower half.
#ifndef COMMON_TENSOR_CORES_H
#define COMMON_TENSOR_CORES_H

#include <stdint.h>

#ifdef __CUDACC__
// Volatile, because a compiler might otherwise move it to where only some lanes use the sum.
#define PTX_MMA(format)                                                                            \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." format "." format                        \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// Adds a·b to sum, in float16. All lanes of the warp call it.
static __device__ inline void mma_f16(float *sum, const uint32_t *a, const uint32_t *b) {
    PTX_MMA("f16");
}

// The same in bfloat16.
static __device__ inline void mma_bf16(float *sum, const uint32_t *a, const uint32_t *b) {
    PTX_MMA("bf16");
}

#undef PTX_MMA

// Returns two numbers, rounded to float16, in a word.
static __device__ inline uint32_t pack_f16(float first, float second) {
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}

// Returns the two numbers of a word.
static __device__ inline float2 unpack_f16(uint32_t word) {
    float2 two;
    asm("{.reg .f16 f, s; mov.b32 {f, s}, %2; cvt.f32.f16 %0, f; cvt.f32.f16 %1, s;}"
        : "=f"(two.x), "=f"(two.y)
        : "r"(word));
    return two;
}

// Returns the first two bytes of a word as two numbers in float16, and the other two. The number
// 1024 + byte has the bits 0x6400 + byte.
static __device__ inline uint32_t bytes_as_f16(uint32_t bytes, bool others) {
    uint32_t word = __byte_perm(bytes, 0x64646464, others ? 0x4342 : 0x4140);
    asm("sub.f16x2 %0, %0, %1;" : "+r"(word) : "r"(0x64006400));
    return word;
}
#else
inline void mma_f16(float *sum, const uint32_t *a, const uint32_t *b,
                    const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    simulator::multiply(simulator::F16, sum, a, b, "mma_f16", file, line);
}
inline void mma_bf16(float *sum, const uint32_t *a, const uint32_t *b,
                     const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    simulator::multiply(simulator::BF16, sum, a, b, "mma_bf16", file, line);
}
inline uint32_t pack_f16(float first, float second) {
    return simulator::pack_f16(first, second);
}
inline float2 unpack_f16(uint32_t word) {
    return simulator::unpack_f16(word);
}
inline uint32_t bytes_as_f16(uint32_t bytes, bool others) {
    bytes >>= others ? 16 : 0;
    return simulator::pack_f16((float)(bytes & 255), (float)(bytes >> 8 & 255));
}
#endif

#endif
