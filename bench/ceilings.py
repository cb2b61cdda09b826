"""Measures the machine's ceilings, or a stage under them: see bench/machine/README.md."""

import itertools
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from bench import calibrate, host, ladders, measuring, process, rows
from bench.base import ROOT, fail
from bench.options import given
from bench.stage import SPINNING

FILTER = given("FILTER")
COUNTERS = "cycles", "instructions", "L1_misses", "LLC_misses", "TLB_misses", "bytes"


def run(program, work, *words, environment=os.environ):
    """Runs a benchmark program and prints its medians. Returns them, and why they say little."""
    process.make("-C", "bench/machine", f"build/{program}")
    messages = Path(work, "messages")
    found = ""
    others = host.watch_others()
    with messages.open("w") as file, process.started(
            [f"{ROOT}/bench/machine/build/{program}", f"--benchmark_filter={FILTER or '.'}",
             "--benchmark_format=json", *shlex.split(given("OPTIONS")), *words],
            env={"BENCHMARK_REPETITIONS": "3", "BENCHMARK_REPORT_AGGREGATES_ONLY": "true",
                 **SPINNING, **environment},
            stdout=subprocess.PIPE, stderr=file, text=True) as benchmark:
        for line in benchmark.stdout:
            found += line
            if line.rstrip(",\n") == "    }":  # a benchmark ends
                show(json.loads(found[found.rindex("\n    {"):].rstrip(",\n")))
    # An error of one benchmark does not show in the exit status.
    if benchmark.returncode or '"error_occurred": true' in found:
        print(messages.read_text(), end="", file=sys.stderr)
        fail(f"{program} failed, see above", 1)
    if '"run_name"' not in found:
        fail(f"FILTER: found '{FILTER}', which no benchmark matches; expected part of a name such "
             "as ceilings/read/memory or 02_openmp/hidden:32/batch:32/forward")
    # Such as that of a clock rate that is not fixed. Debian's library is a debug build, which makes
    # no difference: it does no work while the clock runs.
    for line in re.findall("^.*WARNING(?!.*built as DEBUG).*$", messages.read_text(), re.MULTILINE):
        print(line, file=sys.stderr)
    if why := host.why_busy(others()):
        print(f"Disturbed: {why}", file=sys.stderr)
    return json.loads(found), why


def show(result):
    """Prints a median: a line with the time, and one with what was counted, with its rate."""
    if result.get("aggregate_name", "median") != "median":
        return
    name = result["run_name"].removesuffix("/iterations:1/manual_time")
    print(f"{name:57}{result['real_time']:10.4g} {result['time_unit']}")
    counted = []
    for key, value in result.items():
        if key.startswith("of_"):
            counted.append(f"{key} {100 * value:.0f} %")
        elif key in ("flops", "bytes_read") or (key == "bytes" and "bytes_read" not in result):
            counted.append(f"{key} {value / 1e9:.4g} G/s")
        elif key in COUNTERS:
            counted.append(f"{key} {value:.4g}")
    if counted:
        print(textwrap.fill(", ".join(counted), 80, initial_indent="  ", subsequent_indent="  "))


def measure_ceilings(work):
    found, why = run("ceilings", work)
    if (FILTER or why) and not given("RESULTS"):  # they do not replace complete, quiet ones
        return
    # Without the host's name and paths, because results are for sharing.
    for name in "host_name", "executable":
        found["context"].pop(name, None)
    found["benchmarks"] = [each for each in found["benchmarks"]
                           if each.get("aggregate_name") == "median"]
    calibrate.save(found)


def grid(ladder):
    """{option: value} of each cell of the grid. What is given is the only value."""
    options = ladder.options("step")
    axes = {axis["option"]: axis["values"] for axis in ladder.axes}
    axes |= {option: [options[option]] for option in axes if given(option)}
    found = [options | dict(zip(axes, place)) for place in itertools.product(*axes.values())]
    if "updates" in ladder.toml["tests"]:  # no short batch, and some that count
        _, items, size = ladder.toml["tests"]["updates"]
        for cell in found:
            each = int((ladder.settings | cell)[size])
            cell[items] = max(3, int((ladder.settings | cell)[items]) // each) * each
    return found


def ceilings(threads):
    """(operations a second, [(level, bytes that it holds, bytes a second)], the smallest first)."""
    path = calibrate.results()
    if not path.exists():
        return 0, []
    rates = {level: rate for level, count, rate in rows.read_ceilings(path) if count == threads}
    caches = json.loads(rows.read(path))["context"]["caches"]
    sizes = {f"L{each['level']}": each["size"] * threads / min(threads, each["num_sharing"])
             for each in caches if each["type"] != "Instruction"} | {"memory": math.inf}
    return rates.get("flops", 0), [(level, size, rates[level]) for level, size in sizes.items()
                                   if level in rates]


def phases_of(ladder, row):
    """(phase, operations, bytes) of a batch, for each phase in which a run had to do something."""
    batches = ladder.units(row)
    for phase in ladder.phases:
        if row.get(f"{phase}_s"):
            work = [ladder.work(row, phase, what) or 0 for what in ("operations", "bytes")]
            yield phase, *(each / batches for each in work)


def work_of(stage, program, options):
    """The lines that stage.cpp reads of a cell. The bytes of a phase are compared with what the
    smallest cache that holds them can read."""
    ladder = stage.ladder
    words = ladder.words(options)
    row = measuring.run(stage, words)  # its phases, its threads, and what it has to do
    peak, levels = ceilings(row["threads"])
    peak /= ladder.width
    command = f"{shlex.join([*stage.command[:-1], str(program), *words, '--quiet'])} >/dev/null"
    place = [f"{axis['option']}:{options[axis['option']]}" for axis in reversed(ladder.axes)]
    for phase, operations, read in phases_of(ladder, row):
        name = "/".join([stage.name, *place, phase])
        level, rate = next(((level, rate) for level, size, rate in levels if read <= size),
                           ("", 0))
        yield name, phase, command, level, operations, read, peak, rate


def measure_stage(work):
    stage = ladders.find_ladder(given("STUDY")).find(given("STAGE"))
    if stage.is_gpu:
        fail(f"STAGE: found '{stage.name}', expected one for the CPU; `make profile` looks at "
             "kernels")
    program = Path(work, stage.name)
    root = os.path.relpath(ROOT, stage.folder)
    process.make("-C", stage.folder, f"OUTPUT={program}",
                 f"EXTRA=-include bench/machine/laps.h {root}/bench/machine/laps.c")
    measuring.build(stage)
    path = Path(work, "lines")
    lines = [line for options in grid(stage.ladder) for line in work_of(stage, program, options)]
    path.write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))
    found, _ = run("stage", work, path, environment=stage.environment | {"LAPS": f"{work}/laps"})
    if not any("cycles" in each for each in found["benchmarks"]):
        print("No cycles or misses: this machine shows no processor's counters (perf_event_open).",
              file=sys.stderr)
    if not calibrate.results().exists():
        print("No shares of peak: `make bench` measures the ceilings.", file=sys.stderr)


def main():
    with tempfile.TemporaryDirectory() as work:
        if given("STAGE"):
            measure_stage(work)
            return 0
        measure_ceilings(work)
    return calibrate.measure_gpu() if host.has_gpu() and not FILTER else 0
