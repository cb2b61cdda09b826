// Measures the most that this machine can do: multiply-adds in registers, reading from each cache
// and from memory, a barrier. The stages are compared with these ceilings. Two more show what a
// line of the cache that threads share costs, and a page that the TLB does not know.
#include "bench/machine/ceiling.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>

static const int SHARING = 16; // so many floats are in a line, so no more threads share one

static void multiply_add(benchmark::State &state) {
    const long rounds = 1000;
    for (auto _ : state)
        multiply_adds(rounds);
    state.counters["flops"] =
        benchmark::Counter(ROUND_FLOPS * rounds * static_cast<double>(state.iterations()),
                           benchmark::Counter::kIsRate);
}

// A chain: each addition waits for the one before. One is an iteration.
static void addition(benchmark::State &state) {
    float sum = 0;
    for (auto _ : state) {
        sum += 1;
        asm volatile("" : "+" VECTOR_REGISTER(sum));
    }
}

// Loads each vector once and does nothing with it.
static void read_vectors(const vec *data, size_t count) {
    for (size_t i = 0; i < count; i += 8)
        asm volatile("" ::VECTOR_REGISTER(data[i]), VECTOR_REGISTER(data[i + 1]),
                     VECTOR_REGISTER(data[i + 2]), VECTOR_REGISTER(data[i + 3]),
                     VECTOR_REGISTER(data[i + 4]), VECTOR_REGISTER(data[i + 5]),
                     VECTOR_REGISTER(data[i + 6]), VECTOR_REGISTER(data[i + 7]));
}

// Each thread reads `bytes` of its own again and again.
static void read(benchmark::State &state, size_t bytes) {
    bytes = (bytes + 4095) / 4096 * 4096;
    vec *data = static_cast<vec *>(std::aligned_alloc(4096, bytes));
    if (!data) {
        state.SkipWithError("out of memory");
        return;
    }
    std::memset(data, 1, bytes); // unwritten pages would all be one page of zeros
    for (auto _ : state)
        read_vectors(data, bytes / sizeof(vec));
    std::free(data);
    state.counters["bytes"] = static_cast<double>(bytes);
    state.counters["bytes_read"] =
        benchmark::Counter(static_cast<double>(bytes) * static_cast<double>(state.iterations()),
                           benchmark::Counter::kIsRate);
}

// Times a barrier inside a region, where all threads arrive at once.
static void barrier(benchmark::State &state) {
    const int count = 1000, threads = static_cast<int>(state.range(0));
    while (state.KeepRunningBatch(count)) {
        double start = 0, end = 0;
#pragma omp parallel num_threads(threads)
        {
#pragma omp barrier
#pragma omp master
            start = seconds();
            for (int i = 0; i < count; ++i) {
#pragma omp barrier
            }
#pragma omp master
            end = seconds();
        }
        state.SetIterationTime(end - start);
    }
}

// Times the start and the end of a region with nothing in it.
static void parallel_region(benchmark::State &state) {
    const int threads = static_cast<int>(state.range(0));
    for (auto _ : state) {
#pragma omp parallel num_threads(threads)
        asm volatile("");
    }
}

// Each thread adds to a float of its own in memory: all of them in one line of the cache, or each
// in a line of its own.
static void share_line(benchmark::State &state, int distance) {
    alignas(64) static float sums[SHARING * SHARING];
    float *sum = &sums[state.thread_index() * distance];
    for (auto _ : state) {
        *sum += 1;
        asm volatile("" : "+m"(*sum));
    }
}

// Loads from one page after another, each from the address that the load before has found. It reads
// a line of each page: a cache holds all of them, but the TLB only some of the pages, if small.
static void visit_pages(benchmark::State &state, int advice) {
    const size_t pages = 4096, page = 4096;
    char *data = static_cast<char *>(std::aligned_alloc(1 << 21, pages * page));
    if (!data || madvise(data, pages * page, advice)) {
        state.SkipWithError("found no memory, or a kernel without huge pages");
        return;
    }
    const auto line = [&](size_t i) { return data + i % pages * page + i % 64 * 64; };
    for (size_t i = 0, next; i < pages; ++i) {
        next = (i + 7919) % pages; // far away, and a prime: so it comes to all of them
        *reinterpret_cast<char **>(line(i)) = line(next);
    }
    char *place = data;
    for (auto _ : state) {
        place = *reinterpret_cast<char **>(place);
        asm volatile("" : "+r"(place));
    }
    std::free(data);
}

// Registers it for one core and for all cores. As many as share a cache, or memory, divide it.
static void register_read(const std::string &level, size_t bytes, size_t sharing) {
    const size_t all = static_cast<size_t>(omp_get_max_threads());
    for (size_t threads = 1; threads <= all; threads += all > 1 ? all - 1 : 1)
        benchmark::RegisterBenchmark(("ceilings/read/" + level).c_str(), read,
                                     bytes / std::min(threads, sharing))
            ->Threads(static_cast<int>(threads))
            ->UseRealTime();
}

int main(int argc, char **argv) {
    const int all = omp_get_max_threads();
    auto *multiply_adds = benchmark::RegisterBenchmark("ceilings/multiply_add", multiply_add);
    multiply_adds->UseRealTime()->Threads(1);
    if (all > 1)
        multiply_adds->Threads(all);

    benchmark::RegisterBenchmark("ceilings/addition", addition);

    // Read half of each cache, so that the rest of the program has room beside it. Of the memory,
    // read so much that a cache holds only a small part of it.
    size_t largest = 1 << 20;
    for (const auto &cache : benchmark::CPUInfo::Get().caches) {
        if (cache.type == "Instruction")
            continue;
        const size_t size = static_cast<size_t>(cache.size);
        register_read("L" + std::to_string(cache.level), size / 2,
                      static_cast<size_t>(cache.num_sharing));
        largest = size > largest ? size : largest;
    }
    register_read("memory", 8 * largest, SIZE_MAX);

    benchmark::RegisterBenchmark("ceilings/pages/4_KiB", visit_pages, MADV_NOHUGEPAGE);
    benchmark::RegisterBenchmark("ceilings/pages/2_MiB", visit_pages, MADV_HUGEPAGE);

    if (all > 1) {
        for (const int distance : {1, SHARING})
            benchmark::RegisterBenchmark(distance == 1 ? "ceilings/sharing/one_line"
                                                       : "ceilings/sharing/own_lines",
                                         share_line, distance)
                ->Threads(std::min<int>(all, SHARING))
                ->UseRealTime();
        benchmark::RegisterBenchmark("ceilings/barrier", barrier)
            ->ArgName("threads")
            ->Arg(all)
            ->UseManualTime();
        benchmark::RegisterBenchmark("ceilings/parallel_region", parallel_region)
            ->ArgName("threads")
            ->Arg(all)
            ->UseRealTime();
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
