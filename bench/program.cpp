// Times a stage over the values on its ladder's axes: the ladder's time, and each of its phases.
// The stage's own program runs, and its row says how long they took. run.sh calls
//
//     program STAGE COLUMN,... OPTION=VALUE,... -- COMMAND... [option of Google Benchmark...]
#include "bench/ceiling.h"
#include "bench/work.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <spawn.h>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

typedef std::vector<std::string> words;

static words split(const std::string &text, char separator) {
    words parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);)
        parts.push_back(part);
    return parts;
}

// Starts a command and waits for it. Its standard output is not wanted.
static bool succeeds(words command) {
    std::vector<char *> arguments;
    for (std::string &word : command)
        arguments.push_back(&word[0]);
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t child;
    int status = 1;
    if (posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ) == 0)
        waitpid(child, &status, 0);
    posix_spawn_file_actions_destroy(&actions);
    return status == 0;
}

// Reads the last row. A number belongs to the name at its place in the header.
static numbers read_row(const char *path) {
    std::ifstream csv(path);
    std::string header, values;
    std::getline(csv, header);
    for (std::string line; std::getline(csv, line);)
        values = line;
    const words names = split(header, ','), fields = split(values, ',');
    numbers row;
    for (size_t i = 0; i < names.size() && i < fields.size(); ++i)
        row[names[i]] = std::atof(fields[i].c_str());
    return row;
}

// What some runs of a command have measured, on average.
struct measurement {
    numbers row; // empty if the command failed
    double flops;
    double ceiling; // operations a second, measured right after, at the clock rate that it left
};

// Runs the command until it has timed a tenth of a second, or has taken a second. The time is in
// this column.
static struct measurement measure(words command, const std::string &column) {
    char path[] = "/tmp/bench.XXXXXX";
    struct measurement mean = {};
    close(mkstemp(path));
    command.insert(command.end(), {"--quiet", "--csv", path});
    int runs = 0;
    const double start = seconds();
    do {
        if (!succeeds(command)) {
            unlink(path);
            return {};
        }
        ++runs;
        numbers row = read_row(path);
        mean.flops += (1e9 * row["gflops"] * row[column] - mean.flops) / runs;
        for (const auto &number : row)
            mean.row[number.first] += (number.second - mean.row[number.first]) / runs;
    } while (mean.row[column] * runs < 0.1 && seconds() - start < 1);
    unlink(path);
    mean.ceiling = measure_ceiling(std::max(1, static_cast<int>(mean.row["threads"])));
    return mean;
}

// A measurement serves all columns of a cell: the n-th repetition of each reads the n-th.
struct cell {
    std::string name;
    words command;
    std::vector<struct measurement> measurements;
    std::map<std::string, size_t> repetitions; // of each column
};

// The ladder's bench.cpp may replace this.
__attribute__((weak)) struct work work_of(const std::string &, const numbers &) {
    return {};
}

static void run_column(benchmark::State &state, const std::string &column, const std::string &time,
                       struct cell *cell) {
    const size_t repetition = cell->repetitions[column]++;
    if (repetition == cell->measurements.size())
        cell->measurements.push_back(measure(cell->command, time));
    numbers row = cell->measurements[repetition].row;
    if (row.empty()) {
        state.SkipWithError("the program failed");
        return;
    }
    for (auto _ : state)
        state.SetIterationTime(row[column]);

    struct work work = work_of(column, row);
    if (work.flops == 0 && column == time)
        work.flops = cell->measurements[repetition].flops;
    state.counters["stage_threads"] = row["threads"];
    if (work.flops > 0) {
        state.counters["flops"] =
            benchmark::Counter(work.flops, benchmark::Counter::kIsIterationInvariantRate);
        state.counters["percent_of_ceiling"] =
            100 * work.flops / row[column] / cell->measurements[repetition].ceiling;
    }
    if (work.bytes > 0) {
        state.counters["bytes"] = work.bytes;
        state.counters["flops_per_byte"] = work.flops / work.bytes;
    }
}

// Returns the cells of these axes, by their names: /hidden:32/batch:64. The first axis is
// innermost.
static std::vector<struct cell> make_cells(const words &axes, const words &command) {
    std::vector<struct cell> cells = {{"", command, {}, {}}};
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
        const words parts = split(*axis, '=');
        std::vector<struct cell> longer;
        for (const struct cell &cell : cells)
            for (const std::string &value : split(parts.at(1), ',')) {
                longer.push_back({"/" + parts[0] + ":" + value + cell.name, cell.command, {}, {}});
                words &longer_command = longer.back().command;
                longer_command.insert(longer_command.end(), {"--" + parts[0], value});
            }
        cells = longer;
    }
    return cells;
}

int main(int argc, char **argv) {
    benchmark::Initialize(&argc, argv);
    const words all(argv + 1, argv + argc);
    const auto dashes = std::find(all.begin(), all.end(), "--");
    if (dashes - all.begin() < 2 || dashes == all.end()) {
        std::fprintf(stderr, "program: see bench/program.cpp\n");
        return 2;
    }
    std::vector<struct cell> cells =
        make_cells(words(all.begin() + 2, dashes), words(dashes + 1, all.end()));
    const words columns = split(all[1], ',');
    // The first row shows which phases the stage has.
    cells[0].measurements.push_back(measure(cells[0].command, columns[0]));
    numbers first = cells[0].measurements[0].row;
    if (first.empty()) {
        std::fprintf(stderr, "%s: the program failed\n", argv[1]);
        return 1;
    }
    for (const std::string &column : columns)
        for (struct cell &cell : cells)
            if (first[column] > 0)
                benchmark::RegisterBenchmark(
                    (all[0] + "/" + column.substr(0, column.rfind("_s")) + cell.name).c_str(),
                    run_column, column, columns[0], &cell)
                    ->Unit(benchmark::kMillisecond)
                    ->UseManualTime()
                    ->Iterations(1);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
