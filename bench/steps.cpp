// Small steps from 00_serial to 01_vectorized, at hidden 256 and batch 128. They compute the two
// products that take nearly all of the time. Each step is one function and changes one thing.
//
//     forward    y = x·W        x n × 784, W 784 × H, y n × H
//     backward   W −= lr·xᵀ·d   d n × H
//
// All matrices are row-major until the step that packs. The operands are the same in each iteration
// and come from the caches. These figures are about the loops, those of the stages about training.
#include "bench/ceiling.h"
#include "common/data.h"
#include "common/memory.h"

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

static const size_t SAMPLES = 128, HIDDEN = 256, VECTORS = HIDDEN / LANES;
static const float LEARNING_RATE = 1e-6f; // so small that W stays the same while it is measured

// The compiler vectorizes a loop by itself where it may. It may not do so in the steps before the
// vectors, so that the gain of vectors counts for their own step.
#define NO_VECTORS __attribute__((optimize("no-tree-vectorize", "no-tree-slp-vectorize")))

struct operands {
    float *x;        // n × 784
    float *weights;  // 784 × H
    float *panels;   // H / LANES × 784 × LANES: weights, as 01 stores them
    float *y;        // n × H
    float *d;        // n × H
    float *d_panels; // H / LANES × n × LANES: d, as 01 stores it
    float *gradient; // 784 × H
};

// 1. The textbook: one sum after the other. It reads W down a column, a cache line for each number.
NO_VECTORS static void forward_textbook(const struct operands &o) {
    for (size_t s = 0; s < SAMPLES; ++s) {
        for (size_t h = 0; h < HIDDEN; ++h) {
            float sum = 0;
            for (size_t k = 0; k < PIXELS; ++k)
                sum += o.x[s * PIXELS + k] * o.weights[k * HIDDEN + h];
            o.y[s * HIDDEN + h] = sum;
        }
    }
}

// 2. The two inner loops exchanged. It reads W and y along their rows, and each addition goes
// to another sum than the one before.
NO_VECTORS static void forward_interchanged(const struct operands &o) {
    float *__restrict y = o.y;
    for (size_t s = 0; s < SAMPLES; ++s) {
        for (size_t h = 0; h < HIDDEN; ++h)
            y[s * HIDDEN + h] = 0;
        for (size_t k = 0; k < PIXELS; ++k)
            for (size_t h = 0; h < HIDDEN; ++h)
                y[s * HIDDEN + h] += o.x[s * PIXELS + k] * o.weights[k * HIDDEN + h];
    }
}

// 3. The same loops, LANES hidden units at once. Each multiply-add loads its sum and stores it.
static void forward_vectors(const struct operands &o) {
    const vec *weights = reinterpret_cast<const vec *>(o.weights);
    vec *__restrict y = reinterpret_cast<vec *>(o.y);
    for (size_t s = 0; s < SAMPLES; ++s) {
        for (size_t v = 0; v < VECTORS; ++v)
            y[s * VECTORS + v] = vec{};
        for (size_t k = 0; k < PIXELS; ++k)
            for (size_t v = 0; v < VECTORS; ++v)
                y[s * VECTORS + v] += o.x[s * PIXELS + k] * weights[k * VECTORS + v];
    }
}

// The tile of the next two steps: TILE_ROWS × TILE_COLUMNS sums stay in registers while k runs. `w`
// is the first vector of W. The next column is `column` vectors further, the next row `row`.
static inline __attribute__((always_inline)) void forward_tile(const float *x, const vec *w,
                                                               size_t row, size_t column, vec *y) {
    vec sum[TILE_ROWS][TILE_COLUMNS] = {};
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t r = 0; r < TILE_ROWS; ++r)
            for (size_t c = 0; c < TILE_COLUMNS; ++c)
                sum[r][c] += x[r * PIXELS + k] * w[k * row + c * column];
    for (size_t r = 0; r < TILE_ROWS; ++r)
        for (size_t c = 0; c < TILE_COLUMNS; ++c)
            y[r * VECTORS + c] = sum[r][c];
}

// 4. A tile in registers. A step of k loads TILE_COLUMNS vectors and TILE_ROWS numbers for
// TILE_ROWS × TILE_COLUMNS multiply-adds, and stores nothing. Each step jumps to the next row of W.
static void forward_register_tile(const struct operands &o) {
    const vec *weights = reinterpret_cast<const vec *>(o.weights);
    vec *y = reinterpret_cast<vec *>(o.y);
    for (size_t v = 0; v < VECTORS; v += TILE_COLUMNS)
        for (size_t s = 0; s < SAMPLES; s += TILE_ROWS)
            forward_tile(o.x + s * PIXELS, weights + v, VECTORS, 1, y + s * VECTORS + v);
}

// 5. W packed into panels, one for each vector of hidden units. The tile reads each from end to
// end. A training packs them once and keeps them, so packing is not timed here.
static void forward_packed_panel(const struct operands &o) {
    const vec *panels = reinterpret_cast<const vec *>(o.panels);
    vec *y = reinterpret_cast<vec *>(o.y);
    for (size_t v = 0; v < VECTORS; v += TILE_COLUMNS)
        for (size_t s = 0; s < SAMPLES; s += TILE_ROWS)
            forward_tile(o.x + s * PIXELS, panels + v * PIXELS, 1, PIXELS, y + s * VECTORS + v);
}

// The tile of the backward product: TILE_ROWS pixels from k on, TILE_COLUMNS vectors from v on.
struct sums {
    vec tile[TILE_ROWS][TILE_COLUMNS];
};

static inline __attribute__((always_inline)) struct sums backward_tile(const struct operands &o,
                                                                       size_t k, size_t v) {
    const vec *d = reinterpret_cast<const vec *>(o.d_panels) + v * SAMPLES;
    struct sums sums = {};
    for (size_t s = 0; s < SAMPLES; ++s)
        for (size_t r = 0; r < TILE_ROWS; ++r)
            for (size_t c = 0; c < TILE_COLUMNS; ++c)
                sums.tile[r][c] += o.x[s * PIXELS + k + r] * d[c * SAMPLES + s];
    return sums;
}

// Where pixel k of vector v lies in a matrix of panels.
static inline vec *panel(float *panels, size_t k, size_t v) {
    return reinterpret_cast<vec *>(panels) + v * PIXELS + k;
}

// 6a. The backward product with the same tiles. It writes the gradient. The update is a pass of its
// own over gradient and weights.
static void backward_update_apart(const struct operands &o) {
    for (size_t v = 0; v < VECTORS; v += TILE_COLUMNS)
        for (size_t k = 0; k < PIXELS; k += TILE_ROWS) {
            const struct sums sums = backward_tile(o, k, v);
            for (size_t r = 0; r < TILE_ROWS; ++r)
                for (size_t c = 0; c < TILE_COLUMNS; ++c)
                    *panel(o.gradient, k + r, v + c) = sums.tile[r][c];
        }
    for (size_t i = 0; i < PIXELS * HIDDEN; ++i)
        o.panels[i] -= LEARNING_RATE * o.gradient[i];
}

// 6b. The update fused. The sums go from the registers to the weights, and no gradient is written.
static void backward_update_fused(const struct operands &o) {
    for (size_t v = 0; v < VECTORS; v += TILE_COLUMNS)
        for (size_t k = 0; k < PIXELS; k += TILE_ROWS) {
            const struct sums sums = backward_tile(o, k, v);
            for (size_t r = 0; r < TILE_ROWS; ++r)
                for (size_t c = 0; c < TILE_COLUMNS; ++c)
                    *panel(o.panels, k + r, v + c) -= LEARNING_RATE * sums.tile[r][c];
        }
}

static void fill(float *numbers, size_t count) {
    static std::minstd_rand random(1);
    for (size_t i = 0; i < count; ++i)
        numbers[i] = static_cast<float>(random() % 1000) / 1000 - 0.5f;
}

// Packs a rows × H matrix into panels of LANES columns, one panel after another.
static void pack(const float *matrix, size_t rows, float *panels) {
    for (size_t h = 0; h < HIDDEN; ++h)
        for (size_t i = 0; i < rows; ++i)
            panels[(h / LANES * rows + i) * LANES + h % LANES] = matrix[i * HIDDEN + h];
}

static struct operands make_operands() {
    struct operands o = {allocate_floats(SAMPLES * PIXELS), allocate_floats(PIXELS * HIDDEN),
                         allocate_floats(PIXELS * HIDDEN),  allocate_floats(SAMPLES * HIDDEN),
                         allocate_floats(SAMPLES * HIDDEN), allocate_floats(SAMPLES * HIDDEN),
                         allocate_floats(PIXELS * HIDDEN)};
    fill(o.x, SAMPLES * PIXELS);
    fill(o.weights, PIXELS * HIDDEN);
    fill(o.d, SAMPLES * HIDDEN);
    pack(o.weights, PIXELS, o.panels);
    pack(o.d, SAMPLES, o.d_panels);
    return o;
}

// A wrong product may be a fast one. So this compares what a step has computed with sums in double.
static bool forward_is_right(const struct operands &o) {
    for (size_t s = 0; s < SAMPLES; ++s)
        for (size_t h = 0; h < HIDDEN; ++h) {
            double sum = 0;
            for (size_t k = 0; k < PIXELS; ++k)
                sum += static_cast<double>(o.x[s * PIXELS + k]) * o.weights[k * HIDDEN + h];
            if (!(std::fabs(sum - o.y[s * HIDDEN + h]) < 1e-4))
                return false;
        }
    return true;
}

// The same for the backward product. `before` has the panels before one step down the gradient.
static bool backward_is_right(const struct operands &o, const float *before) {
    for (size_t k = 0; k < PIXELS; ++k)
        for (size_t h = 0; h < HIDDEN; ++h) {
            const size_t i = (h / LANES * PIXELS + k) * LANES + h % LANES;
            double sum = 0;
            for (size_t s = 0; s < SAMPLES; ++s)
                sum += static_cast<double>(o.x[s * PIXELS + k]) * o.d[s * HIDDEN + h];
            if (!(std::fabs(before[i] - LEARNING_RATE * sum - o.panels[i]) < 1e-7))
                return false;
        }
    return true;
}

enum direction { FORWARD, BACKWARD };

static void run_step(benchmark::State &state, void (*step)(const struct operands &),
                     enum direction direction) {
    struct operands o = make_operands();
    float *before = allocate_floats(PIXELS * HIDDEN);
    pack(o.weights, PIXELS, before);
    step(o);
    if (!(direction == FORWARD ? forward_is_right(o) : backward_is_right(o, before)))
        state.SkipWithError("wrong result");
    const double start = seconds();
    for (auto _ : state) {
        step(o);
        benchmark::ClobberMemory();
    }
    const double duration = seconds() - start;
    for (float *array : {o.x, o.weights, o.panels, o.y, o.d, o.d_panels, o.gradient, before})
        std::free(array);

    const double flops = 2.0 * SAMPLES * HIDDEN * PIXELS;
    const double rate = flops * static_cast<double>(state.iterations()) / duration;
    state.counters["flops"] =
        benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
    state.counters["percent_of_ceiling"] = 100 * rate / measure_ceiling(1);
}

int main(int argc, char **argv) {
    const struct {
        const char *name;
        void (*step)(const struct operands &);
        enum direction direction;
    } steps[] = {
        {"1_textbook", forward_textbook, FORWARD},
        {"2_interchanged", forward_interchanged, FORWARD},
        {"3_vectors", forward_vectors, FORWARD},
        {"4_register_tile", forward_register_tile, FORWARD},
        {"5_packed_panel", forward_packed_panel, FORWARD},
        {"6a_update_apart", backward_update_apart, BACKWARD},
        {"6b_update_fused", backward_update_fused, BACKWARD},
    };
    for (const auto &step : steps)
        benchmark::RegisterBenchmark((std::string("steps/") + step.name).c_str(), run_step,
                                     step.step, step.direction)
            ->Unit(benchmark::kMicrosecond)
            ->UseRealTime();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
