// Stage 12: products by AMX where the machine has it, 16 × 64 × 16 of them in one instruction. The
// program asks when it starts.
//
// Shapes: n samples in a batch, at most N; H hidden units in V vectors. The last vector may have
// lanes without a hidden unit. They hold zeros and stay zero: where a and W2 are zero, so are da,
// dW1 and dW2.
#include "stages/training.h"

#if defined(__AVX512F__) && defined(__linux__)
#define AMX __attribute__((target("amx-tile,amx-int8"), noinline)) // a function that may use it
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_MATMUL_INT8)
#include <arm_neon.h>
#endif
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The widest vectors of the machine that is compiled for. The sums of TILE_ROWS rows in three
// digits are three quarters of the 32 registers, or of AVX2's 16. The others are for the operands.
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, TILE_ROWS = 8 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, TILE_ROWS = 4 };
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, TILE_ROWS = 8 };
#else
enum { VECTOR_BYTES = 16, TILE_ROWS = 4 };
#endif
enum { AMX_ROWS = 16, AMX_BYTES = 64, AMX_GROUPS = 16 }; // of one tile of AMX
enum { AMX_PRODUCT = 2 * AMX_ROWS };                     // rows whose sums six tiles hold
enum { AHEAD = 8192 }; // bytes of rows to fetch ahead of time: memory is slow
enum { LANES = VECTOR_BYTES / sizeof(float) };
typedef float vec __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vec_mask __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vec_bits __attribute__((vector_size(VECTOR_BYTES)));
typedef uint8_t vec_bytes __attribute__((vector_size(VECTOR_BYTES)));

// Digits of four numbers in a row lie side by side in the lane of their hidden unit: a group. A
// number is at most 0x3f7f7f times its unit's `one`. LARGEST is a little less, since `one` is
// rounded.
enum { DIGITS = 3, GROUP = 4, GROUPS = PIXELS / GROUP, LARGEST = 0x3f7f70 };
enum { SUMMED = 65536 };      // samples, at most: 65,536 · 255 · 128 < 2^31
enum { PADDED_GROUPS = 208 }; // a multiple of AMX_GROUPS; the last 12 are zeros
enum { ROW_BYTES = 832 };     // of pixels, and room up to the end of a cache line
enum { TOGETHER = 8 };        // batches whose bytes lie without gaps
enum { ROOM = 8 };            // samples of room behind the last: tiles have up to 32 rows
typedef vec_bits digits[DIGITS];
typedef vec_mask sums[DIGITS];

// The ten outputs of a sample, padded to a power of two: one vector of AVX-512, two of AVX2.
enum { PADDED_CLASSES = 16 };
typedef float outputs __attribute__((vector_size(PADDED_CLASSES * sizeof(float))));
typedef uint32_t outputs_bits __attribute__((vector_size(PADDED_CLASSES * sizeof(float))));

// For the kernels: where a size is a constant, the loops over it disappear.
#define INLINED static inline __attribute__((always_inline))

struct network {
    size_t units;   // the hidden units that were asked for
    size_t vectors; // V
    vec *weights1;  // V × 784: a panel for each vector of hidden units, read from end to end
    vec *bias1;     // V
    vec *weights2;  // V × 10: panels, too
    outputs bias2;  // 10; −∞ in the padding, so that its share of the softmax is 0

    vec *ones1;      // V: what a one of W1's last digit counts for
    digits *digits1; // V × 208

    // One batch's intermediate values.
    size_t stride;      // N, as a multiple of the rows of a tile, or of 64 for AMX
    vec *activations;   // V × N: a
    vec *d_activations; // V × N: da
    vec *d_ones;        // V: what a one of its last digit counts for
    digits *d_digits;   // V × N / 4
    outputs *logits;    // N × 10: z, then p, then dz
    outputs *shares;    // T × N × 10: what each thread's hidden units add to z
    double *losses;     // T: of each thread's samples in an epoch

    size_t threads; // T
    bool has_amx;
};

// A thread's part of the network.
struct slice {
    size_t thread, threads; // 0 to T − 1, T
    size_t first, last;     // its vectors of hidden units: first to last − 1
    size_t begin, end;      // its samples of the batch: begin to end − 1
    outputs bias2;          // the same in all threads
};

// Returns the zeroed panels of W1. Its pages lie in the memory of the socket whose thread writes to
// them first. So each thread does this for the panels that it will compute with.
static vec *allocate_panels(size_t vectors, size_t threads) {
    vec *panels = (vec *)try_allocate_array(vectors * PIXELS, sizeof(vec));
    if (!panels) {
        report_error(stage_name, "out of memory: asked for %zu MiB; try fewer hidden units",
                     vectors * PIXELS * sizeof(vec) >> 20);
        exit(EXIT_RUN_FAILED);
    }
#pragma omp parallel for num_threads(threads)
    for (size_t v = 0; v < vectors; ++v)
        memset(panels + v * PIXELS, 0, PIXELS * sizeof(vec));
    return panels;
}

// Makes room behind the images, as tiles read past the last row of bytes.
static void make_room(struct dataset *dataset) {
    const size_t samples = (size_t)dataset->samples + ROOM;
    float *images = realloc(dataset->images, samples * PIXELS * sizeof(float));
    if (!images) {
        report_error(stage_name, "out of memory; try fewer images");
        exit(EXIT_RUN_FAILED);
    }
    dataset->images = images;
}

// Returns where the bytes of the batch that begins at sample `first` lie: its rows, and behind them
// the rows turned, the n samples of a pixel side by side. Both take half of its floats' room. Those
// of TOGETHER batches follow each other without a gap, as tiles fetch what follows. Tiles also read
// past the last row and its end. What they make of it is not used, or multiplied by zero.
static uint8_t *bytes_at(const struct dataset *dataset, size_t first, int size) {
    const size_t before = first % (TOGETHER * (size_t)size); // samples of these batches
    return (uint8_t *)(dataset->images + (first - before) * PIXELS) + before * (ROW_BYTES + PIXELS);
}

// Makes the bytes of all batches of `size` samples, in the place of their floats, which are lost.
static void make_bytes(const struct dataset *dataset, int size, size_t threads) {
#pragma omp parallel for num_threads(threads) schedule(static, TOGETHER)
    for (size_t first = 0; first < (size_t)dataset->samples; first += (size_t)size) {
        const struct batch batch = batch_at(dataset, first, size);
        const size_t n = batch.samples;
        uint8_t *rows = bytes_at(dataset, first, size), *turned = rows + n * ROW_BYTES;
        for (size_t s = 0; s < n; ++s)
            for (size_t k = 0; k < PIXELS; ++k)
                rows[s * ROW_BYTES + k] = (uint8_t)(int)(batch.images[s * PIXELS + k] * 255 + 0.5f);
        for (size_t k = 0; k < PIXELS; ++k)
            for (size_t s = 0; s < n; ++s)
                turned[k * n + s] = rows[s * ROW_BYTES + k];
    }
}

// Returns whether the processor has AMX for bytes, and the system lets the program use its tiles.
static bool ask_for_amx(void) {
#ifdef AMX
    enum { REQUEST = 0x1023, TILE_DATA = 18 }; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 25 & 1 &&
           !syscall(SYS_arch_prctl, REQUEST, TILE_DATA);
#else
    return false;
#endif
}

static void split_weights(const struct network *network, size_t v);

static struct network create(const struct options *options) {
    const size_t units = (size_t)options->hidden;
    const bool has_amx = ask_for_amx();
    const size_t multiple = has_amx ? AMX_BYTES : TILE_ROWS;
    const size_t stride = (largest_batch(options) + multiple - 1) / multiple * multiple;
    const size_t vectors = (units + LANES - 1) / LANES;
    // More threads than cores would make each other wait at each barrier. More threads than vectors
    // of hidden units would idle in a batch.
    size_t threads = (size_t)(options->threads ? options->threads : omp_get_max_threads());
    threads = threads < (size_t)omp_get_num_procs() ? threads : (size_t)omp_get_num_procs();
    threads = threads < vectors ? threads : vectors;
    struct network network = {
        .units = units,
        .vectors = vectors,
        .weights1 = allocate_panels(vectors, threads),
        .bias1 = (vec *)allocate_floats(vectors * LANES),
        .weights2 = (vec *)allocate_floats(vectors * CLASSES * LANES),
        .ones1 = (vec *)allocate_floats(vectors * LANES),
        .digits1 = allocate_array(vectors * PADDED_GROUPS, sizeof(digits)),
        .stride = stride,
        .activations = (vec *)allocate_floats(vectors * stride * LANES),
        .d_activations = (vec *)allocate_floats(vectors * stride * LANES),
        .d_ones = (vec *)allocate_floats(vectors * LANES),
        .d_digits = allocate_array(vectors * stride / GROUP, sizeof(digits)),
        .logits = (outputs *)allocate_floats(stride * PADDED_CLASSES),
        .shares = (outputs *)allocate_floats(threads * stride * PADDED_CLASSES),
        .losses = allocate_array(threads, sizeof(double)),
        .threads = threads,
        .has_amx = has_amx,
    };
    struct pcg32 generator = pcg32_start(options->seed, 1);
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t h = 0; h < units; ++h)
            network.weights1[h / LANES * PIXELS + k][h % LANES] = draw_weight(&generator, PIXELS);
    generator = pcg32_start(options->seed, 2);
    for (size_t h = 0; h < units; ++h)
        for (size_t o = 0; o < CLASSES; ++o)
            network.weights2[h / LANES * CLASSES + o][h % LANES] = draw_weight(&generator, units);
    for (size_t o = CLASSES; o < PADDED_CLASSES; ++o)
        network.bias2[o] = -INFINITY;
#pragma omp parallel for num_threads(threads)
    for (size_t v = 0; v < vectors; ++v)
        split_weights(&network, v);
    return network;
}

static void destroy(struct network *network) {
    free(network->weights1);
    free(network->bias1);
    free(network->weights2);
    free(network->ones1);
    free(network->digits1);
    free(network->activations);
    free(network->d_activations);
    free(network->d_ones);
    free(network->d_digits);
    free(network->logits);
    free(network->shares);
    free(network->losses);
}

#ifdef AMX
// Makes the calling thread's eight tiles of 16 rows of 64 bytes.
AMX static void make_tiles(void) {
    static const struct {
        uint8_t palette, first_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } tiles = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&tiles);
}
#endif

// Returns the calling thread's slice. The runtime may have granted fewer threads than wanted.
static struct slice take_slice(const struct network *network) {
    const size_t thread = (size_t)omp_get_thread_num(), threads = (size_t)omp_get_num_threads();
#ifdef AMX
    if (network->has_amx)
        make_tiles();
#endif
    return (struct slice){
        .thread = thread,
        .threads = threads,
        .first = network->vectors * thread / threads,
        .last = network->vectors * (thread + 1) / threads,
        .bias2 = network->bias2,
    };
}

// Returns the larger of a magnitude and that of x in each lane.
INLINED vec larger(vec magnitude, vec x) {
    const vec own = (vec)((vec_mask)x & INT32_MAX); // without the sign
    const vec_mask is_larger = own > magnitude;
    return (vec)((is_larger & (vec_mask)own) | (~is_larger & (vec_mask)magnitude));
}

// Returns the largest magnitude in each lane of a multiple of four numbers.
INLINED vec find_largest(const vec *numbers, size_t count) {
    vec largest[GROUP] = {0}; // four, because each waits for the one before it
    for (size_t i = 0; i < count; i += GROUP)
        for (size_t j = 0; j < GROUP; ++j)
            largest[j] = larger(largest[j], numbers[i + j]);
    return larger(larger(largest[0], largest[1]), larger(largest[2], largest[3]));
}

// Makes the digits of a multiple of four numbers in each lane, times a factor. A float from 2^23
// to 2^24 is a whole number. So adding 2^23 rounds, and leaves a number's bits where its digits
// are. Half of its range is added to each digit, so that none is negative, and taken off at the
// end. A number that does not fit has another sign or exponent than 2^23, whose upper bits are
// 0x4b00. The lane that is returned then has bits in 0xff80ff80.
INLINED vec_bits split(const vec *numbers, size_t count, vec factor, digits *to) {
    vec_bits other = {0};
    for (size_t g = 0; g < count / GROUP; ++g) {
        vec_bits b[GROUP];
        for (size_t j = 0; j < GROUP; ++j)
            b[j] = (vec_bits)(numbers[g * GROUP + j] * factor + (0x1p23f + 0x408080));
        const vec_bits low02 = (b[0] & 0xffff) | b[2] << 16, low13 = (b[1] & 0xffff) | b[3] << 16;
        const vec_bits top02 = b[0] >> 16 | (b[2] & 0xffff0000),
                       top13 = b[1] >> 16 | (b[3] & 0xffff0000);
        other |= (top02 ^ 0x4b004b00) | (top13 ^ 0x4b004b00);
        to[g][0] = ((low02 & 0x00ff00ff) | (low13 << 8 & 0xff00ff00)) ^ 0x80808080;
        to[g][1] = ((low02 >> 8 & 0x00ff00ff) | (low13 & 0xff00ff00)) ^ 0x80808080;
        to[g][2] = (vec_bits)((vec_bytes)((top02 & 0x00ff00ff) | (top13 << 8 & 0xff00ff00)) - 0x40);
    }
    return other;
}

// Returns whether split() returned that a number does not fit.
INLINED bool exceeds(vec_bits other) {
    uint32_t any = 0;
    for (size_t i = 0; i < LANES; ++i)
        any |= other[i];
    return any & 0xff80ff80;
}

// Makes the digits of vector v of the hidden units. Its weights may then grow by an eighth.
static void split_weights(const struct network *network, size_t v) {
    const vec *weights1 = network->weights1 + v * PIXELS;
    network->ones1[v] = (find_largest(weights1, PIXELS) * 1.125f + 1e-30f) / LARGEST;
    split(weights1, PIXELS, 1 / network->ones1[v], network->digits1 + v * PADDED_GROUPS);
}

// sum += the products of four pixels and their digits in each lane.
INLINED vec_mask dot(vec_mask sum, const uint8_t *x, vec_bits w) {
    int32_t four;
    memcpy(&four, x, sizeof four);
#if defined(__AVX512VNNI__)
#define DOT "VNNI"
    return (vec_mask)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(four), (__m512i)w);
#elif defined(__AVXVNNI__)
#define DOT "AVX-VNNI"
    return (vec_mask)_mm256_dpbusd_avx_epi32((__m256i)sum, _mm256_set1_epi32(four), (__m256i)w);
#elif defined(__ARM_FEATURE_MATMUL_INT8)
#define DOT "usdot"
    return (vec_mask)vusdotq_s32((int32x4_t)sum, (uint8x16_t)vdupq_n_s32(four), (int8x16_t)w);
#else
#define DOT "the compiler's loop"
    for (size_t j = 0; j < GROUP; ++j)
        sum += ((vec_mask)(w << (24 - 8 * j)) >> 24) * (four >> 8 * j & 255);
    return sum;
#endif
}

#ifdef AMX
// sum[r] = row r of x · the digits of so many groups: AMX_PRODUCT rows in tiles 0 to 5, three
// digits each. Each load of rows (tile 6) or digits (tile 7) is for two products, where it can be.
AMX static void multiply_tiles(const uint8_t *x, size_t stride, const digits *w, size_t groups,
                               sums *sum) {
    __asm__ volatile("" ::: "memory"); // GCC's functions do not say that they read memory
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (size_t g = 0; g < groups; g += AMX_GROUPS) {
        const uint8_t *upper = x + g * GROUP, *lower = upper + AMX_ROWS * stride;
        _tile_loadd(7, &w[g][0], sizeof(digits));
        _tile_loadd(6, upper, stride);
        _tile_dpbusd(0, 6, 7);
        _tile_loadd(6, lower, stride);
        _tile_dpbusd(3, 6, 7);
        _tile_loadd(7, &w[g][1], sizeof(digits));
        _tile_dpbusd(4, 6, 7);
        _tile_loadd(6, upper, stride);
        _tile_dpbusd(1, 6, 7);
        _tile_loadd(7, &w[g][2], sizeof(digits));
        _tile_dpbusd(2, 6, 7);
        _tile_loadd(6, lower, stride);
        _tile_dpbusd(5, 6, 7);
    }
    _tile_stored(0, &sum[0][0], sizeof(sums));
    _tile_stored(1, &sum[0][1], sizeof(sums));
    _tile_stored(2, &sum[0][2], sizeof(sums));
    _tile_stored(3, &sum[AMX_ROWS][0], sizeof(sums));
    _tile_stored(4, &sum[AMX_ROWS][1], sizeof(sums));
    _tile_stored(5, &sum[AMX_ROWS][2], sizeof(sums));
}
#endif

// Sets sum[r], which are zeros, to row `row` + r of x · the digits of so many groups. AMX makes the
// sums of AMX_PRODUCT rows when asked for the first of them. So rows have to be asked for in order.
INLINED void multiply(const struct network *network, const uint8_t *x, size_t stride, size_t row,
                      const digits *w, size_t groups, sums sum[TILE_ROWS]) {
    x += row * stride;
#ifdef AMX
    static _Thread_local sums product[AMX_PRODUCT];
    if (network->has_amx && row % AMX_PRODUCT == 0)
        multiply_tiles(x, stride, w, groups, product);
    if (network->has_amx) {
        memcpy(sum, product[row % AMX_PRODUCT], TILE_ROWS * sizeof *sum);
        return;
    }
#else
    (void)network;
#endif
    for (size_t g = 0; g < groups; ++g) {
        __builtin_prefetch(x + TILE_ROWS * g * GROUP + AHEAD);
        for (size_t r = 0; r < TILE_ROWS; ++r)
            for (size_t d = 0; d < DIGITS; ++d)
                sum[r][d] = dot(sum[r][d], x + r * stride + g * GROUP, w[g][d]);
    }
}

// Returns what the sums of three digits make together.
INLINED vec join(const sums sum) {
    const vec low = __builtin_convertvector(sum[0], vec);
    const vec middle = __builtin_convertvector(sum[1], vec);
    return (__builtin_convertvector(sum[2], vec) * 256 + middle) * 256 + low;
}

// A tile of a = max(0, x·W1 + b1): TILE_ROWS samples from s on × vector v of the hidden units. At
// most 784 · 255 · 128 < 2^31 fits in a sum.
static void forward_tile(const struct network *network, const uint8_t *x, size_t s, size_t v) {
    const digits *w = network->digits1 + v * PADDED_GROUPS;
    const vec one = network->ones1[v] / 255;
    vec *a = network->activations + v * network->stride + s;
    sums sum[TILE_ROWS] = {0};
    multiply(network, x, ROW_BYTES, s, w, GROUPS, sum);
    for (size_t r = 0; r < TILE_ROWS; ++r) {
        const vec z = join(sum[r]) * one + network->bias1[v];
        a[r] = (vec)((vec_mask)z & (z > 0));
    }
}

// Makes the digits of da of n samples, and zeros up to N.
static void split_d_activations(const struct network *network, size_t v, size_t n) {
    vec *da = network->d_activations + v * network->stride;
    for (size_t s = n; s < network->stride; ++s)
        da[s] = (vec){0};
    network->d_ones[v] = (find_largest(da, network->stride) + 1e-30f) / LARGEST;
    split(da, network->stride, 1 / network->d_ones[v],
          network->d_digits + v * network->stride / GROUP);
}

// W1 −= lr·xᵀ·da for vector v of the hidden units, in tiles of TILE_ROWS pixels, and the digits of
// these. Where GCC 12 inlines this, it keeps one of the sums in memory.
__attribute__((noinline)) static void backward_panel(const struct network *network,
                                                     const uint8_t *x, size_t n,
                                                     float learning_rate, size_t v) {
    const digits *da = network->d_digits + v * network->stride / GROUP;
    const vec factor = learning_rate / 255 * network->d_ones[v], per_one = 1 / network->ones1[v];
    vec *weights1 = network->weights1 + v * PIXELS;
    digits *digits1 = network->digits1 + v * PADDED_GROUPS;
    vec_bits other = {0};
    for (size_t s = 0; s < n; s += SUMMED) {
        const size_t groups = (n - s < SUMMED ? n - s + GROUP - 1 : SUMMED) / GROUP;
        for (size_t k = 0; k < PIXELS; k += TILE_ROWS) {
            sums sum[TILE_ROWS] = {0};
            multiply(network, x + s, n, k, da + s / GROUP, groups, sum);
            for (size_t r = 0; r < TILE_ROWS; ++r)
                weights1[k + r] -= factor * join(sum[r]);
            other |= split(weights1 + k, TILE_ROWS, per_one, digits1 + k / GROUP);
        }
    }
    if (exceeds(other))
        split_weights(network, v);
}

// z += a·W2 for vector v of the hidden units. This part of W2 is turned back into rows, so that the
// ten outputs are summed side by side.
static void add_logits(const struct network *network, size_t v, outputs *z, size_t n) {
    const vec *a = network->activations + v * network->stride;
    // In vectors of the machine: of longer ones, GCC 14 makes the product number by number.
    enum { PARTS = PADDED_CLASSES / LANES };
    vec row[LANES][PARTS] = {0}, *to = (vec *)z;
    for (size_t o = 0; o < CLASSES; ++o)
        for (size_t i = 0; i < LANES; ++i)
            row[i][o / LANES][o % LANES] = network->weights2[v * CLASSES + o][i];
    for (size_t s = 0; s < n; ++s)
        for (size_t p = 0; p < PARTS; ++p) {
            vec sum[4] = {0}; // four, because an addition waits for the one before it
            for (size_t i = 0; i < LANES; ++i)
                sum[i % 4] += a[s][i] * row[i][p];
            to[s * PARTS + p] += (sum[0] + sum[1]) + (sum[2] + sum[3]);
        }
}

// z becomes softmax(z). Returns −log p[label].
static float softmax(outputs *z, uint8_t label) {
    float max = (*z)[0], sum = 0;
    for (size_t o = 1; o < CLASSES; ++o)
        max = (*z)[o] > max ? (*z)[o] : max;
    const outputs x = *z - max;

    // e^x for all outputs at once, with x <= 0: x = i·ln 2 + r, and the Taylor series for e^r.
    // Adding 1.5·2^23 rounds to the whole number i and leaves it in the low bits. From there it is
    // added to the exponent. ln 2 is 0.693359375 − 2.12194440e-4. The first part has few enough
    // bits for i times it to be exact.
    const outputs shifted = x * (float)M_LOG2E + 0x1.8p23f, i = shifted - 0x1.8p23f;
    const outputs r = x - i * 0.693359375f + i * 2.12194440e-4f;
    outputs e = 1 + r * (1.0f / 8);
    for (int degree = 7; degree > 0; --degree)
        e = 1 + r * (1.0f / (float)degree) * e;
    e = (outputs)((outputs_bits)e + ((outputs_bits)shifted << 23));
    e = (outputs)((outputs_bits)e & (outputs_bits)(x > -87)); // below that, e^x is no normal float

    for (size_t o = 0; o < CLASSES; ++o)
        sum += e[o];
    *z = e / sum;
    return logf(sum) - x[label];
}

// Sets the slice's a for a batch, and p of its samples. Returns their loss.
static double forward(struct network *network, struct slice *slice, const struct batch *batch,
                      const uint8_t *rows) {
    const size_t n = batch->samples;
    outputs *z = network->logits;
    outputs *share = network->shares + slice->thread * network->stride;
    slice->begin = n * slice->thread / slice->threads;
    slice->end = n * (slice->thread + 1) / slice->threads;

    for (size_t v = slice->first; v < slice->last; ++v)
        for (size_t s = 0; s < n; s += TILE_ROWS)
            forward_tile(network, rows, s, v);

    for (size_t s = 0; s < n; ++s)
        share[s] = (outputs){0};
    for (size_t v = slice->first; v < slice->last; ++v)
        add_logits(network, v, share, n);

#pragma omp barrier
    // Apart from softmax no turn waits for another, so many of the others' lines travel at once.
    for (size_t s = slice->begin; s < slice->end; ++s) {
        z[s] = slice->bias2;
        for (size_t t = 0; t < slice->threads; ++t)
            z[s] += network->shares[t * network->stride + s];
    }
    double loss = 0;
    for (size_t s = slice->begin; s < slice->end; ++s)
        loss += softmax(&z[s], batch->labels[s]);
    return loss;
}

// Updates the weights by the gradient of the batch that forward() has just seen.
static void backward(struct network *network, struct slice *slice, const struct batch *batch,
                     const uint8_t *turned, float learning_rate) {
    const size_t n = batch->samples;
    outputs *dz = network->logits;

    // dz = (p − onehot(label)) / n, db2 = Σ dz. A comparison of vectors is −1 where it holds. A
    // store to one lane would make the vector's load wait until it is in the cache.
    const outputs_bits lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (size_t s = slice->begin; s < slice->end; ++s) {
        dz[s] += __builtin_convertvector(lane == batch->labels[s], outputs);
        dz[s] /= (float)n;
    }
#pragma omp barrier
    outputs db2 = {0};
    for (size_t s = 0; s < n; ++s)
        db2 += dz[s];
    slice->bias2 -= learning_rate * db2;

    // dW2 = aᵀ·dz, da = (dz·W2ᵀ) ⊙ [a > 0], db1 = Σ da, and their updates. One vector of hidden
    // units goes after another, so that its part of dW2 stays in registers.
    for (size_t v = slice->first; v < slice->last; ++v) {
        const vec *restrict a = network->activations + v * network->stride;
        vec *restrict da = network->d_activations + v * network->stride;
        vec *restrict w2 = network->weights2 + v * CLASSES;
        vec dw2[CLASSES] = {0}, db1 = {0};
        for (size_t s = 0; s < n; ++s) {
            vec sum = {0};
            for (size_t o = 0; o < CLASSES; ++o) {
                dw2[o] += dz[s][o] * a[s];
                sum += dz[s][o] * w2[o];
            }
            da[s] = (vec)((vec_mask)sum & (a[s] > 0));
            db1 += da[s];
        }
        for (size_t o = 0; o < CLASSES; ++o)
            w2[o] -= learning_rate * dw2[o];
        network->bias1[v] -= learning_rate * db1;
        split_d_activations(network, v, n);
    }

    for (size_t v = slice->first; v < slice->last; ++v)
        backward_panel(network, turned, n, learning_rate, v);
}

// Runs all epochs over the training set in file order. The last batch of an epoch may be short.
static void train(struct network *network, const struct dataset *dataset,
                  const struct options *options, struct result *result) {
    double start = seconds();
#pragma omp parallel num_threads(network->threads)
    {
        struct slice slice = take_slice(network);
        for (int epoch = 0; epoch < options->epochs; ++epoch) {
            struct batch batch;
            double loss = 0, clock = seconds();
            for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
                batch = batch_at(dataset, first, options->batch);
                const uint8_t *rows = bytes_at(dataset, first, options->batch);
                loss += forward(network, &slice, &batch, rows);
                if (omp_get_thread_num() == 0)
                    clock = timer_lap(&result->forward, clock);
                backward(network, &slice, &batch, rows + batch.samples * ROW_BYTES,
                         options->learning_rate);
                if (omp_get_thread_num() == 0)
                    clock = timer_lap(&result->backward, clock);
            }
            network->losses[slice.thread] = loss;
#pragma omp barrier
            if (omp_get_thread_num() == 0) {
                for (size_t t = 1; t < slice.threads; ++t)
                    loss += network->losses[t];
                result->final_loss = loss / dataset->samples;
                network->bias2 = slice.bias2;
                start = report_epoch(options, epoch, result->final_loss, start); // not timed
            }
        }
        if (omp_get_thread_num() == 0)
            result->threads = omp_get_num_threads();
    }
    result->train_s = seconds() - start;
}

// Returns the fraction of samples whose most probable class is their label.
static double evaluate(struct network *network, const struct dataset *dataset,
                       const struct options *options) {
    struct slice slice = take_slice(network); // all units: no other thread is at work
    struct batch batch;
    size_t right = 0;
    make_bytes(dataset, options->batch, network->threads);
    for (size_t first = 0; first < (size_t)dataset->samples; first += batch.samples) {
        batch = batch_at(dataset, first, options->batch);
        forward(network, &slice, &batch, bytes_at(dataset, first, options->batch));
        for (size_t s = 0; s < batch.samples; ++s) {
            const outputs p = network->logits[s];
            size_t best = 0;
            for (size_t o = 1; o < CLASSES; ++o)
                best = p[o] > p[best] ? o : best;
            right += best == batch.labels[s];
        }
    }
    return (double)right / dataset->samples;
}

// Writes the weights, turned back from panels into rows. Returns the exit status.
static int save(const struct network *network, const char *path) {
    const size_t units = network->units;
    float *weights1 = allocate_floats(PIXELS * units);
    float *weights2 = allocate_floats(units * CLASSES);
    for (size_t h = 0; h < units; ++h) {
        const size_t v = h / LANES, i = h % LANES;
        for (size_t k = 0; k < PIXELS; ++k)
            weights1[k * units + h] = network->weights1[v * PIXELS + k][i];
        for (size_t o = 0; o < CLASSES; ++o)
            weights2[h * CLASSES + o] = network->weights2[v * CLASSES + o][i];
    }
    int status = write_weights(path, units, weights1, (const float *)network->bias1, weights2,
                               (const float *)&network->bias2);
    free(weights1);
    free(weights2);
    return status;
}

int main(int argc, char **argv) {
    struct options options = parse_options(argc, argv, "Trains on all cores.", INT_MAX);
    struct result result = {.device = "cpu"};
    struct data data;

    int status = load_data(&options, &data);
    if (status)
        return status;

    double clock = seconds();
    struct network network = create(&options);
    make_room(&data.train);
    make_room(&data.test);
    make_bytes(&data.train, options.batch, network.threads);
    result.setup_s = seconds() - clock;
    if (!options.quiet)
        printf("products by %s\n", network.has_amx ? "AMX" : DOT);

    train(&network, &data.train, &options, &result);
    result.test_accuracy = evaluate(&network, &data.test, &options);
    // NaNs must not replace good weights.
    if (options.save_weights && isfinite(result.final_loss))
        status = save(&network, options.save_weights);
    if (!status)
        status = report_result(&options, &data, &result);
    destroy(&network);
    free_data(&data);
    return status;
}
