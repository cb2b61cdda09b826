"""Profiles stages as they are timed: with gperftools where a CPU stage's time and memory go, with
Nsight Compute what a CUDA stage's kernels do. Without a GPU, the simulated device counts that.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

import pandas

from bench import counts, host, ladders
from bench.base import ROOT, fail, value
from bench.measuring import build
from bench.options import given
from bench.process import make, output
from bench.sampling import pprof, sample, sample_cpu


def write(path, stage, options, *texts):
    """Writes texts, after what every one begins with: the run, and what the machine is."""
    about = ", ".join([stage.name, *(f"{name} {value}" for name, value in options.items()
                                     if name != "runs")])
    machine = re.findall("^(?:cpu|compiler|gpu|nvcc): .*", output(["bench/machine.sh"]),
                         re.MULTILINE)
    text = "\n".join([about, *machine, *texts]).replace(f"{ROOT}/", "")
    path.write_text(text, encoding="utf-8")


def profile_cpu(stage, options, folder, work, seconds):
    build(stage)
    # pprof accepts no program's path with a space.
    program = shutil.copy(stage.program, work / "program")
    # Writes a dump whenever the use is 1 KiB above its earlier peak. The largest is the peak.
    sample(stage, options, work, "HEAPPROFILE", LD_PRELOAD="libtcmalloc.so",
           HEAP_PROFILE_INUSE_INTERVAL=1024)
    peak = max(work.glob("profile.*.heap"), key=lambda path: int(
        re.search(r"\d+: +(\d+)", path.read_text(encoding="utf-8"))[1]))
    write(folder / "heap.txt", stage, options, "",
          pprof("--text", "--lines", "--inuse_space", "--cum", program, peak))
    profile, about = sample_cpu(stage, options, work, seconds)
    for name, by in ("cpu.txt", "--functions"), ("lines.txt", "--lines"):
        write(folder / name, stage, options, about, "", pprof("--text", by, program, profile))
    (folder / "graph.svg").write_text(pprof("--svg", program, profile), encoding="utf-8")
    _, _, table = (folder / "cpu.txt").read_text(encoding="utf-8").partition("\nTotal: ")
    print("\n".join(table.splitlines()[1:6]), end="\n\n")


def profile_cuda(stage, folder):
    """What the kernels do: what Nsight Compute counts, or without a GPU the simulated device."""
    if not host.has_gpu():
        found = counts.count(stage)
        for cell, kernels in found.groupby("cell", sort=False):
            table = pandas.concat([counts.summed(kernels, by) for by in ("kernel", "cell")])
            print(f"{cell}\n{table.to_string()}\n")
        found.to_csv(folder / "counts.csv", index=False)
        return
    if not counts.toolkit("ncu"):
        fail("found no ncu (Nsight Compute) in PATH or the CUDA toolkit's folder", 77)
    build(stage)
    found = pandas.DataFrame(
        [line for each in counts.runs(stage) for line in counts.counters(stage, *each)],
        columns=counts.COUNTERS)
    print(found.drop(columns="program").to_string(index=False))
    found.to_csv(folder / "counters.csv", index=False)


def main():
    seconds = value("CPU_SECONDS", given("CPU_SECONDS", "6"), int, 1)
    ladder = ladders.find_ladder(given("STUDY"))
    stages = [ladder.find(name) for name in given("STAGE").split()] or [
        stage for stage in ladder.stages if not stage.is_cuda]
    if not all(stage.is_cuda for stage in stages):
        make("install-profile")
    output = Path(given("RESULTS") or ladder.profiles / "mine").resolve()
    os.chdir(ROOT)
    os.environ["LC_ALL"] = "C"  # a decimal point, not a comma
    for stage in stages:
        options = ladder.options("profile")
        folder = output / stage.name
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{stage.name}:")
        if stage.is_cuda:
            profile_cuda(stage, folder)
        else:
            with tempfile.TemporaryDirectory() as work:
                profile_cpu(stage, options, folder, Path(work), seconds)
        print(*sorted(map(os.path.relpath, folder.iterdir())), sep="\n")
