"""Measures with Google Benchmark: the machine's ceilings, or the phases of a stage under them.

make bench calls it. Options on make's command line:

    STAGE=02 STUDY= the stage; without one, the machine
    FILTER=regex   runs only the benchmarks whose names match, and does not write their results, so
                   that they never replace complete ones
    OPTIONS='...'  the library's own options, such as --benchmark_repetitions=9
    RESULTS=dir    where the ceilings are written, even with FILTER
    HIDDEN=256 ... options of a stage: without them, all cells of the grid

The ceilings' medians are written to report/results/<machine>/bench/ceilings.json, and a GPU's,
which calibrate.cu measures if there are one and nvcc, to gpu.csv beside it. A stage is built from
its own source with laps.c, and stage.cpp shows the mean of its batches. Its operations and
bytes are those of [work] in ladder.toml. The bytes are compared with what the smallest cache that
holds them can read.
"""

import functools
import itertools
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import compare, counts, host, ladders, rows
from bench.base import ROOT, fail
from bench.stage import SPINNING
from bench.options import given

BUILD, FILTER = ROOT / "bench/machine/build", given("FILTER")
DEFAULTS = {"BENCHMARK_REPETITIONS": "3", "BENCHMARK_REPORT_AGGREGATES_ONLY": "true"}


@functools.cache
def results(name="ceilings.json"):
    """A file of ceilings, by default the CPU's."""
    folder = given("RESULTS") or (
        ROOT / "report/results" / counts.run("bench/machine.sh", "--name").strip() / "bench")
    return Path(folder, name)


def run(program, work, *words, **environment):
    """Runs a benchmark program, with a folder to work in, and prints its medians. Returns them."""
    counts.run("make", "-s", "-C", "bench/machine", f"build/{program}")
    printed, messages = [], Path(work, "messages")
    with messages.open("w") as file, subprocess.Popen(
            [BUILD / program, f"--benchmark_filter={FILTER or '-textbook'}",  # no ceiling
             *shlex.split(given("OPTIONS")), *words],
            env={**DEFAULTS, **SPINNING, **os.environ, **environment}, stdout=subprocess.PIPE,
            stderr=file, text=True) as process:
        for line in process.stdout:
            if not re.search("_(mean|stddev|cv) ", line):
                printed.append(re.sub("(/iterations:1/manual_time)?_median", "", line))
                print(printed[-1], end="", flush=True)
    # An error of one benchmark does not show in the exit status.
    if process.returncode or "ERROR OCCURRED" in "".join(printed):
        print(messages.read_text(), end="", file=sys.stderr)
        fail(f"{program} failed, see above", 1)
    # Such as that of a clock rate that is not fixed. Debian's library is a debug build, which makes
    # no difference: it does no work while the clock runs.
    for line in re.findall("^.*WARNING(?!.*built as DEBUG).*$", messages.read_text(), re.MULTILINE):
        print(line, file=sys.stderr)
    return "".join(printed)


def check_filter(printed):
    return printed or fail(
        f"FILTER: found '{FILTER}', which no benchmark matches; expected part of a name such as "
        "ceilings/read/memory or 02_openmp/hidden:32/batch:32/forward")


def write(name, text):
    if not FILTER or given("RESULTS"):
        results(name).parent.mkdir(parents=True, exist_ok=True)
        rows.write(results(name), text)
        print(f"Written to {os.path.relpath(results(name), ROOT)}", file=sys.stderr)


def measure_ceilings(work):
    printed = run("ceilings", work, "--benchmark_out_format=json", f"--benchmark_out={work}/json")
    if not printed:
        return printed
    found = json.loads(Path(work, "json").read_text())
    # Without the host's name and paths, because results are for sharing.
    for name in "host_name", "executable":
        found["context"].pop(name, None)
    found["benchmarks"] = [each for each in found["benchmarks"]
                           if each.get("aggregate_name") == "median"]
    write("ceilings.json", json.dumps(found, indent=1) + "\n")
    return printed


def measure_gpu(program="calibrate"):
    """Prints a GPU's ceilings, with calibrate.cu, and returns their lines."""
    counts.run("make", "-s", "-C", "bench/machine", f"build/{program}")
    said = counts.run(BUILD / program)
    head, *lines = said[said.index("what,unit"):].splitlines()
    lines = [line for line in lines if re.search(FILTER, f"gpu/{line.partition(',')[0]}")]
    if lines:
        print("-" * 72, f"{'GPU':30}{'Median':>12}{'Least':>12}{'Most':>12}", "-" * 72, sep="\n")
        for what, unit, *figures in (line.split(",") for line in lines):
            print(f"{'gpu/' + what:30}", *(f"{float(each):11.5g}" for each in figures), unit)
        write("gpu.csv", "\n".join([head, *lines, ""]))
    return lines


def cells(ladder):
    """{option: value} of each cell of the grid. What is given is the only value."""
    options = ladder.options("step")
    axes = [axis["option"] for axis in ladder.axes]
    grid = ([options[option]] if ladder.given(option) else
            axis["values"] for option, axis in zip(axes, ladder.axes))
    found = [options | dict(zip(axes, values)) for values in itertools.product(*grid)]
    if "updates" in ladder.toml.get("tests", {}):  # no short batch, and some that count
        _, items, size = ladder.toml["tests"]["updates"]
        for cell in found:
            each = int((ladder.settings | cell)[size])
            cell[items] = max(3, int((ladder.settings | cell)[items]) // each) * each
    return found


def ceilings(threads):
    """(operations a second, [(level, bytes that it holds, bytes a second)]) of so many threads, the
    smallest level first. Nothing where they have not been measured."""
    path = results()
    if not path.exists():
        return 0, []
    rates = {level: rate for level, count, rate in rows.read_ceilings(path) if count == threads}
    caches = json.loads(rows.read(path))["context"]["caches"]
    sizes = {f"L{each['level']}": each["size"] * threads / min(threads, each["num_sharing"])
             for each in caches if each["type"] != "Instruction"} | {"memory": math.inf}
    return rates.get("flops", 0), [(level, size, rates[level]) for level, size in sizes.items()
                                   if level in rates]


def roof_of(levels, read, is_cold):
    """(level, bytes a second) of the smallest cache that holds the bytes. Cold, it is memory."""
    for level, size, bandwidth in levels:
        if read <= size and (level == "memory" or not is_cold):
            return level, bandwidth
    return "", 0


def work_of(stage, program):
    """The lines that stage.cpp reads."""
    ladder = stage.ladder
    for options in cells(ladder):
        words, cell = ladder.words(options), "/".join(
            f"{axis['option']}:{options[axis['option']]}" for axis in reversed(ladder.axes))
        row = compare.run(stage, words)  # its phases, its threads, and what it has to do
        batches = ladder.sum_of(ladder.toml["units"], row)
        peak, levels = ceilings(row["threads"])
        command = shlex.join([*stage.command[:-1], str(program), *words, "--quiet"])
        # The caches are emptied between two laps. Where phases take turns within a batch, the stage
        # adds up their times itself. Other threads and processes would go on meanwhile.
        is_alone = not stage.declared("OPENMP") and not stage.declared("RUN")
        ways = ("", "COLD=1 ") if is_alone and "timer_lap(" in rows.read(stage.source) else ("",)
        for phase, cold in itertools.product(ladder.phases, ways):
            if row.get(f"{phase}_s"):
                operations, read = ((ladder.work(row, phase, what) or 0) / batches
                                    for what in ("operations", "bytes"))
                level, bandwidth = roof_of(levels, read, bool(cold))
                name = "/".join(filter(None, [stage.name, cell, phase, "cold" if cold else ""]))
                yield (name, phase, f"{cold}{command} >/dev/null", level, operations, read,
                       peak / ladder.width, bandwidth)


def measure_stage(work):
    stage = ladders.find_ladder(given("STUDY")).find(given("STAGE"))
    if stage.is_gpu:
        fail(f"STAGE: found '{stage.name}', expected one for the CPU; `make profile-gpu` looks at "
             "kernels")
    root, path = os.path.relpath(ROOT, stage.folder), Path(work, "work")
    program = BUILD / stage.ladder.name / stage.name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.unlink(missing_ok=True)  # make does not know that it depends on laps.c
    counts.run("make", "-s", "-C", stage.folder, f"OUTPUT={os.path.relpath(program, stage.folder)}",
               f"EXTRA=-include bench/machine/laps.h {root}/bench/machine/laps.c")
    compare.build(stage)
    path.write_text("".join("\t".join(map(str, line)) + "\n" for line in work_of(stage, program)))
    said = check_filter(run("stage", work, path, **stage.environment, LAPS=f"{work}/laps"))
    if " cycles=" not in said:
        print("No cycles or misses: this machine shows no processor's counters (perf_event_open).",
              file=sys.stderr)
    if not results().exists():
        print("No shares of peak: `make bench` measures the ceilings.", file=sys.stderr)


def main():
    with tempfile.TemporaryDirectory() as work:
        if given("STAGE"):
            measure_stage(work)
        else:
            printed = measure_ceilings(work)
            has_gpu = host.has_gpu() and counts.toolkit(os.environ.get("NVCC", "nvcc"))
            check_filter((has_gpu and measure_gpu()) or printed)
