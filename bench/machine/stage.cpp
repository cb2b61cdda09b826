// Times the phases of a stage with Google Benchmark. ceilings.py builds the stage with laps.c and
// writes what is to be measured: a file of lines with tabs between
//
//     name, phase, command, level, operations and bytes of a batch, the most of each in a second
//
// where 0 is not known. The level is the cache that the bytes come from. The command trains once,
// which is an iteration, and the time is the mean of its batches.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

struct Work {
    std::string name, phase, command, level;
    double operations, bytes, peak, bandwidth;
};

struct Laps {
    double batches = 0, seconds = 0;
    std::vector<std::string> counts;
};

static const std::vector<std::string> EVENTS = {"cycles", "instructions", "L1_misses", "LLC_misses",
                                                "TLB_misses"};

// Runs the stage. Of several processes, the slowest counts. Without laps, it has failed.
static Laps train(const Work &work) {
    const std::string path = std::getenv("LAPS");
    std::remove(path.c_str());
    Laps slowest;
    if (std::system(work.command.c_str()))
        return slowest;
    std::ifstream file(path);
    for (std::string line, name, count; std::getline(file, line);) {
        std::istringstream words(line);
        Laps laps;
        words >> name >> laps.batches >> laps.seconds;
        while (words >> count)
            laps.counts.push_back(count);
        if (name == work.phase && laps.seconds > slowest.seconds)
            slowest = laps;
    }
    return slowest;
}

static void measure(benchmark::State &state, const Work &work) {
    Laps laps = train(work);
    if (!laps.batches) {
        state.SkipWithError("the stage failed, see above, or has no second batch");
        return;
    }
    for (auto _ : state)
        state.SetIterationTime(laps.seconds / laps.batches);
    const auto show = [&](const std::string &name, double amount, double most) {
        const double rate = amount * laps.batches / laps.seconds;
        if (amount > 0)
            state.counters[name] = rate;
        if (amount > 0 && most > 0)
            state.counters["of_" + (name == "flops" ? "peak" : work.level)] = rate / most;
    };
    show("flops", work.operations, work.peak);
    show("bytes", work.bytes, work.bandwidth);
    for (size_t i = 0; i < laps.counts.size(); ++i)
        if (laps.counts[i] != "-")
            state.counters[EVENTS[i]] = std::stod(laps.counts[i]) / laps.batches;
}

int main(int argc, char **argv) {
    benchmark::Initialize(&argc, argv);
    if (argc < 2 || benchmark::ReportUnrecognizedArguments(argc - 1, argv))
        return 2;
    std::ifstream file(argv[argc - 1]);
    for (std::string line; std::getline(file, line);) {
        std::istringstream fields(line);
        Work work;
        std::getline(fields, work.name, '\t');
        std::getline(fields, work.phase, '\t');
        std::getline(fields, work.command, '\t');
        std::getline(fields, work.level, '\t');
        fields >> work.operations >> work.bytes >> work.peak >> work.bandwidth;
        benchmark::RegisterBenchmark(work.name.c_str(), measure, work)
            ->Iterations(1)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
    }
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
