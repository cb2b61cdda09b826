// Times a stage's forward and backward pass over the grid of hidden sizes and batch sizes.
#include "bench/ceiling.h"
#include "bench/stage.h"

#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <string>

// 123 MiB of pixels are about as many as a stage trains on by default, so that they come from
// memory as in training. An iteration trains on one part. Its samples make whole batches of every
// size measured.
enum { PART = 4096, PARTS = 10 };

enum phase { FORWARD, BACKWARD };

// Makes random pixels, a fifth of them not zero as in MNIST, and random labels. No stage's time
// depends on the values, as long as they are ordinary numbers.
static struct dataset make_dataset() {
    const size_t samples = static_cast<size_t>(PART) * PARTS;
    struct dataset dataset = {static_cast<int>(samples), allocate_floats(samples * PIXELS),
                              new uint8_t[samples]};
    std::minstd_rand random(1);
    for (size_t i = 0; i < samples * PIXELS; ++i) {
        const unsigned pixel = static_cast<unsigned>(random()) >> 8;
        dataset.images[i] = pixel % 5 ? 0 : static_cast<float>(pixel / 5 % 256) / 255;
    }
    for (size_t i = 0; i < samples; ++i)
        dataset.labels[i] = static_cast<uint8_t>((random() >> 8) % CLASSES);
    return dataset;
}

// Returns the operations in a batch: x·W1 and a·W2; xᵀ·da, aᵀ·dz and dz·W2ᵀ. A multiply-add is two.
static double batch_flops(enum phase phase, double n, double hidden) {
    return phase == FORWARD ? 2 * n * hidden * (PIXELS + CLASSES)
                            : 2 * n * hidden * (PIXELS + 2 * CLASSES);
}

// Returns the compulsory traffic of a batch: each operand of the formulas is read once and each
// result is written once, wherever it lies. Forward reads x, the labels and the parameters and
// writes a and p. Backward reads x, the labels, a and p, and reads and writes the parameters. What
// a stage moves beyond that (00 writes dW1 and reads it again) does not count.
static double batch_bytes(enum phase phase, double n, double hidden) {
    const double parameters = PIXELS * hidden + hidden + hidden * CLASSES + CLASSES;
    const double batch = n * PIXELS + n * hidden + n * CLASSES;
    return n + sizeof(float) * (batch + (phase == FORWARD ? parameters : 2 * parameters));
}

static void run_phase(benchmark::State &state, enum phase phase) {
    static const struct dataset dataset = make_dataset(); // made when the first benchmark runs
    struct options options = {};
    options.hidden = static_cast<int>(state.range(0));
    options.batch = static_cast<int>(state.range(1));
    options.epochs = 1;
    options.learning_rate = 0.1f;
    options.seed = 1;
    options.train_samples = PART;
    options.test_samples = 1;
    options.quiet = true;

    struct network *network = stage_create(&options);
    const struct dataset first_batch = {options.batch, dataset.images, dataset.labels};
    struct result warm_up = {};
    stage_train(network, &first_batch, &options, &warm_up); // page faults, thread starts
    const size_t batches = PART / static_cast<size_t>(options.batch);
    size_t part = 0;
    int threads = 1;
    double duration = 0;
    // The stage's own timers say how long the phase took. So an iteration of the benchmark is one
    // batch, and its time is what the stage times.
    while (state.KeepRunningBatch(batches)) {
        const struct dataset slice = {PART, dataset.images + part * PART * PIXELS,
                                      dataset.labels + part * PART};
        struct result result = {};
        result.threads = 1;
        stage_train(network, &slice, &options, &result);
        const struct timer *timer = phase == FORWARD ? &result.forward : &result.backward;
        if (timer->count != static_cast<long>(batches) || !std::isfinite(result.final_loss)) {
            state.SkipWithError("the stage has not trained every batch to a finite loss");
            break;
        }
        state.SetIterationTime(timer->total);
        duration += timer->total;
        threads = result.threads;
        part = (part + 1) % PARTS;
    }
    stage_destroy(network);

    const double flops = batch_flops(phase, options.batch, options.hidden);
    const double bytes = batch_bytes(phase, options.batch, options.hidden);
    const double rate = flops * static_cast<double>(state.iterations()) / duration;
    state.counters["flops"] =
        benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
    // Measure right after the stage, at the clock rate that it has left.
    state.counters["percent_of_ceiling"] = 100 * rate / measure_ceiling(threads);
    state.counters["bytes"] = bytes;
    state.counters["flops_per_byte"] = flops / bytes;
    state.counters["stage_threads"] = threads;
}

int main(int argc, char **argv) {
    for (enum phase phase : {FORWARD, BACKWARD})
        benchmark::RegisterBenchmark(
            (std::string(stage_name) + (phase == FORWARD ? "/forward" : "/backward")).c_str(),
            run_phase, phase)
            ->ArgNames({"hidden", "batch"})
            ->ArgsProduct({{32, 64, 128, 256}, {32, 64, 128}})
            ->Unit(benchmark::kMicrosecond)
            ->UseManualTime();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
