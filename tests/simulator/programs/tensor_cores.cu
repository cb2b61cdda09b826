// Right and wrong programs of common/tensor_cores.h: tensor_cores NAME.
#include "tests/simulator/programs/programs.h"

#include "common/tensor_cores.h"

enum { WARP = 32, COLUMNS = 8 };

// Whole numbers, which are exact in both formats: their upper 16 bits are those in bfloat16.
__device__ uint32_t pack(bool bf16, int first, int second) {
    if (!bf16)
        return pack_f16((float)first, (float)second);
    const float numbers[2] = {(float)first, (float)second};
    uint32_t bits[2];
    memcpy(bits, numbers, sizeof bits);
    return bits[0] >> 16 | bits[1];
}

__device__ int of_a(int row, int k) {
    return (row * 5 + k * 3) % 17 - 8;
}

__device__ int of_b(int k, int column) {
    return (k * 7 + column * 11) % 13 - 6;
}

// x = a·b + c, where c is row − column.
__global__ void multiply(float *x, bool bf16) {
    const int g = threadIdx.x / 4, t = threadIdx.x % 4 * 2;
    uint32_t a[4], b[2];
    for (int i = 0; i < 4; ++i) {
        const int row = g + i % 2 * 8, k = t + i / 2 * 8;
        a[i] = pack(bf16, of_a(row, k), of_a(row, k + 1));
    }
    for (int i = 0; i < 2; ++i)
        b[i] = pack(bf16, of_b(t + i * 8, g), of_b(t + i * 8 + 1, g));
    float sum[4];
    for (int i = 0; i < 4; ++i)
        sum[i] = (float)(g + i / 2 * 8 - t - i % 2);
    if (bf16)
        mma_bf16(sum, a, b);
    else
        mma_f16(sum, a, b);
    for (int i = 0; i < 4; ++i)
        x[(g + i / 2 * 8) * COLUMNS + t + i % 2] = sum[i];
}

// x = sum + count · product · factor, where only the first `count` products are not zero.
__global__ void add(float *x, float sum, int count, float product, float factor) {
    uint32_t a[4], b[2];
    const int t = threadIdx.x % 4 * 2;
    for (int i = 0; i < 4; ++i) {
        const int k = t + i / 2 * 8;
        a[i] = pack_f16(k < count ? product : 0, k + 1 < count ? product : 0);
    }
    b[0] = b[1] = pack_f16(factor, factor);
    float sums[4] = {sum, sum, sum, sum};
    mma_f16(sums, a, b);
    if (threadIdx.x == 0)
        *x = sums[0];
}

// Prints, in units of 2^−23, how much is added to a number.
static void print_added(float *x, float number, int count, float product, float factor) {
    float sum;
    add<<<1, WARP>>>(x, number, count, product, factor);
    if (cudaMemcpy(&sum, x, sizeof sum, cudaMemcpyDeviceToHost) != cudaSuccess)
        exit(3);
    printf("%g ", (sum - number) * 0x1p23);
}

PROGRAM(truncation) {
    print_added(x, 1, 1, 0x1p-12f, 0x1.8p-12f);   // 0.75 units: cut off
    print_added(x, -1, 1, -0x1p-12f, 0x1.8p-12f); // towards zero
    print_added(x, 1, 16, 0x1p-12f, 0x1p-13f);    // a quarter, 16 times: each has its place
    print_added(x, 1, 16, 0x1p-13f, 0x1p-13f);    // an eighth: each is cut off
    print_added(x, 0, 16, 0x1p-24f, 0x1p-24f);    // of zero nothing is
    printf("\n");
}

// Whole numbers of 12 bits, by all powers of two that float16 has, and some that it has not.
__global__ void convert(float *x) {
    const int i = threadIdx.x;
    const int exponent = i % 33 - 29;
    const float number = ldexpf((float)(i * 7919 % 4099 - 2048), exponent);
    const float2 both = unpack_f16(pack_f16(number, -2 * number));
    x[i] = ldexpf(both.x + 4 * both.y, -exponent);
}

__global__ void convert_bytes(float *x) {
    const int i = threadIdx.x;
    const uint32_t four = (uint32_t)(i | (255 - i) << 8 | i / 2 << 16) | 7u << 24;
    const float2 first = unpack_f16(bytes_as_f16(four, false));
    const float2 others = unpack_f16(bytes_as_f16(four, true));
    x[i] = first.x + 1000 * first.y + 2 * others.x + 3 * others.y;
}

// What a warp does wrong.
enum deed { RETURN, DIVERGE, COUNT_ON_ORDER };

__global__ void go_wrong(float *x, deed deed) {
    __shared__ float other[2 * WARP];
    const int i = threadIdx.x;
    const uint32_t none[4] = {};
    float sum[4] = {};
    other[i] = 1;
    if (deed == RETURN && i == 5)
        return;
    if (deed == DIVERGE && i < 16)
        mma_f16(sum, none, none); // of some
    else
        mma_f16(sum, none, none); // of the others
    x[i] = sum[0] + other[i ^ 1]; // another lane's
}

int main(int argc, char **argv) {
    programs["multiply_f16"] = [](float *x) {
        multiply<<<1, WARP>>>(x, false);
        print(x);
    };
    programs["multiply_bf16"] = [](float *x) {
        multiply<<<1, WARP>>>(x, true);
        print(x);
    };
    programs["convert"] = [](float *x) {
        convert<<<1, N>>>(x);
        print(x);
    };
    programs["convert_bytes"] = [](float *x) {
        convert_bytes<<<1, N>>>(x);
        print(x);
    };
    programs["lane_missing"] = [](float *x) { go_wrong<<<1, WARP>>>(x, RETURN); };
    programs["lanes_at_two_places"] = [](float *x) { go_wrong<<<1, WARP>>>(x, DIVERGE); };
    programs["order_expected"] = [](float *x) { go_wrong<<<1, WARP>>>(x, COUNT_ON_ORDER); };
    programs["warp_too_small"] = [](float *x) { go_wrong<<<1, WARP + 8>>>(x, COUNT_ON_ORDER); };
    return run_program(argc, argv);
}
