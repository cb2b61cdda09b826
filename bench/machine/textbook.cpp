// The paper's serial forward product as C++ programs often write it, built without optimization: a
// matrix is a vector of vectors, or one array as in 00_serial. stages/PAPER.md compares both with
// the paper's times.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <vector>

using matrix = std::vector<std::vector<float>>;

static const std::size_t samples = 32, pixels = 784;

static void count(benchmark::State &state) {
    state.counters["flops"] =
        benchmark::Counter(2.0 * samples * pixels * static_cast<double>(state.range(0)),
                           benchmark::Counter::kIsIterationInvariantRate);
}

// W1 has as many columns as there are hidden units.
static void vectors(benchmark::State &state) {
    const std::size_t hidden = static_cast<std::size_t>(state.range(0));
    const matrix x(samples, std::vector<float>(pixels, 1)),
        w(pixels, std::vector<float>(hidden, 1));
    matrix a(samples, std::vector<float>(hidden));
    for (auto _ : state)
        for (std::size_t s = 0; s < samples; ++s)
            for (std::size_t h = 0; h < hidden; ++h) {
                float sum = 0;
                for (std::size_t k = 0; k < pixels; ++k)
                    sum += x[s][k] * w[k][h];
                a[s][h] = sum;
            }
    count(state);
}

static void array(benchmark::State &state) {
    const std::size_t hidden = static_cast<std::size_t>(state.range(0));
    const std::vector<float> images(samples * pixels, 1), weights(pixels * hidden, 1);
    std::vector<float> activations(samples * hidden);
    const float *x = images.data(), *w = weights.data();
    float *a = activations.data();
    for (auto _ : state)
        for (std::size_t s = 0; s < samples; ++s)
            for (std::size_t h = 0; h < hidden; ++h) {
                float sum = 0;
                for (std::size_t k = 0; k < pixels; ++k)
                    sum += x[s * pixels + k] * w[k * hidden + h];
                a[s * hidden + h] = sum;
            }
    count(state);
}

BENCHMARK(vectors)->Name("textbook/vectors")->ArgName("hidden")->Arg(32)->Arg(256);
BENCHMARK(array)->Name("textbook/array")->ArgName("hidden")->Arg(32)->Arg(256);
