"""How long the CPU stages take as each compiler builds them, over the time with the first compiler:
make compilers [COMPILERS="gcc-12 clang-19"] [MARCH=native] [RUNS= HIDDEN= ...] [KEEP=FILE]"""

import copy
import os
import re
import shutil
import tempfile
from pathlib import Path

from bench import compare, host, ladders, pairs, process, record, rows
from bench.options import given
from bench.process import make
from bench.testing import check_cell

COLUMNS = "program", "build", "sources", "cell", "cpu", "revision"  # and the compilers


def compilers():
    """Those given, or make's own, and each gcc-* and clang-* in PATH that has OpenMP. A link is no
    other one."""
    if given("COMPILERS"):
        return given("COMPILERS").split()
    found = [shutil.which("gcc")]
    for folder in os.get_exec_path():
        found += [path for path in sorted(Path(folder).glob("*"))
                  if re.fullmatch(r"(gcc|clang)(-\d+)?", path.name)
                  and not process.run([path, "-fopenmp", "-include", "omp.h", "-xc", "-E",
                                       "/dev/null"]).status]
    return [*{os.path.realpath(path): str(path) for path in found}.values()]


def build(stage, folder, compiler, march):
    built = copy.copy(stage)
    built.name = f"{stage.name} by {Path(compiler).name} for {march}"
    built.program = Path(folder, compiler.replace("/", "_"))
    make("-C", stage.folder, f"CC={compiler}", f"MARCH={march}", f"OUTPUT={built.program}")
    return built


def ratios(stage, march, names, options):
    """How long a stage takes with each compiler over the first, from rounds of one run each."""
    with tempfile.TemporaryDirectory() as folder:
        programs = [build(stage, folder, name, march) for name in names]
        check_cell(programs, options)
        rounds = [[compare.run(program, stage.ladder.words(options))[stage.ladder.time]
                   for program in programs] for _ in range(int(options["runs"]))]
    times = [*zip(*rounds)]
    return [pairs.digits(pairs.ratio(times[0], each).median) for each in times]


def main():
    ladder = ladders.find_ladder(given("STUDY"))
    options = compare.read_options(ladder, "step")
    cell = ", ".join(f"{name} {value}" for name, value in options.items())
    about = re.findall("^(?:cpu|revision): (.*)", process.output(["bench/machine.sh"]),
                       re.MULTILINE)
    names = compilers()
    shown = [Path(name).name for name in names]
    lines = [[*COLUMNS, *(process.output([name, "--version"]).partition("\n")[0]
                          for name in names)]]
    others = host.watch_others()
    for stage in ladder.stages:
        if stage.is_gpu or stage.is_step or stage.declared("RUN"):
            continue
        for march in given("MARCH", "native x86-64-v3").split():
            found = ratios(stage, march, names, options)
            print(f"{stage.name} for {march}:", ", ".join(map("{} {}".format, shown, found)))
            lines.append([stage.name, march, stage.sources, cell, *about, *found])
    if (why := host.why_busy(others())) and not given("BUSY"):
        print(f"No verdict: {why}.")
    elif given("KEEP"):
        rows.write(given("KEEP"), record.csv_lines(*lines))
