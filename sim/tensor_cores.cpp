// Tensor cores: what a warp multiplies with one instruction, and the conversions for it.
#include "simulator.h"

#include <algorithm>

namespace simulator {
namespace {

enum { ROWS = 16, COLUMNS = 8, DEPTH = 16 }; // of the product, and the length of its sums
constexpr int NONE = -500;                   // the exponent of a zero

// Rows of a, or columns of b. A number's exponent is that of its first digit.
template <int N> struct numbers {
    double values[N][DEPTH];
    int exponents[N][DEPTH];

    void set(number_format format, int i, int k, uint32_t word) {
        const uint32_t bits[] = {word << 16, word & 0xffff0000};
        const float2 two = unpack_f16(word);
        for (int j = 0; j < 2; ++j) {
            float x = j ? two.y : two.x;
            if (format == BF16)
                memcpy(&x, &bits[j], sizeof x);
            values[i][k + j] = x;
            exponents[i][k + j] = x != 0 && isfinite(x) ? ilogbf(x) : NONE;
        }
    }
};

float towards_zero(double x) {
    const float nearest = (float)x;
    return fabs(nearest) > fabs(x) ? nextafterf(nearest, 0) : nearest;
}

// Adds 16 products to a sum as an H100 does. All are cut off 25 binary digits behind the first one
// of the largest. The largest is that with the largest sum of exponents. Their sum is exact, and
// cut off to a float. See Khattak and Mikaitis, Accurate Models of NVIDIA Tensor Cores, 2025.
float add_products(float sum, const double *a, const int *a_exponents, const double *b,
                   const int *b_exponents) {
    double products[DEPTH], together = sum;
    int largest = sum != 0 && isfinite(sum) ? ilogbf(sum) : NONE;
    for (int k = 0; k < DEPTH; ++k) {
        products[k] = a[k] * b[k];
        together += products[k];
        largest = std::max(largest, a_exponents[k] + b_exponents[k]);
    }
    if (largest == NONE || !isfinite(together))
        return (float)together;
    const double scale = ldexp(1, 25 - largest);
    together = trunc(sum * scale);
    for (int k = 0; k < DEPTH; ++k)
        together += trunc(products[k] * scale);
    return towards_zero(together / scale);
}

uint32_t half_of(float x) {
    const uint32_t sign = signbit(x) ? 0x8000 : 0;
    const float size = fabsf(x);
    if (!(size < 65520)) // the first number that is rounded to infinity
        return sign | (isnan(x) ? 0x7e00 : 0x7c00);
    const int exponent = size >= 0x1p-14f ? ilogbf(size) : -14;
    return sign + (uint32_t)(exponent + 14) * 1024 + (uint32_t)lrintf(ldexpf(size, 10 - exponent));
}

float number_of(uint32_t half) {
    const uint32_t bits = (half & 0x7fff) << 13;
    float size;
    memcpy(&size, &bits, sizeof size);
    size = bits < 0x7c00 << 13 ? size * 0x1p112f : bits == 0x7c00 << 13 ? INFINITY : NAN;
    return half & 0x8000 ? -size : size;
}

} // namespace

uint32_t pack_f16(float first, float second) {
    return half_of(first) | half_of(second) << 16;
}

float2 unpack_f16(uint32_t word) {
    return {number_of(word & 0xffff), number_of(word >> 16)};
}

void multiply(number_format format, const fragments *const *lanes) {
    numbers<ROWS> a;
    numbers<COLUMNS> b;
    for (int lane = 0; lane < warpSize; ++lane) {
        const int g = lane / 4, k = lane % 4 * 2;
        for (int i = 0; i < 4; ++i)
            a.set(format, g + i % 2 * 8, k + i / 2 * 8, lanes[lane]->a[i]);
        for (int i = 0; i < 2; ++i)
            b.set(format, g, k + i * 8, lanes[lane]->b[i]);
    }
    for (int lane = 0; lane < warpSize; ++lane)
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            float &sum = lanes[lane]->sum[i];
            sum = add_products(sum, a.values[row], a.exponents[row], b.values[column],
                               b.exponents[column]);
        }
}

} // namespace simulator
