"""Counts what a CUDA stage's kernels do with memory, without a GPU: `make profile-gpu`.

The simulated device counts the accesses of all threads (sim/README.md). [[counts]] in ladder.toml
says what is counted: mostly a batch, which is the difference of two runs. If there is nvcc, it says
what it makes of each kernel for ARCHITECTURE. All this is exact, and the same each time with the
same data.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas

from harness.ladders import ROOT, fail

ARCHITECTURE, MULTIPROCESSORS = "sm_90", 132  # of an H100
# What predicts its time, in µs: from one kernel to the next, from a node of a graph to the next, a
# barrier of the grid (sim/README.md says from where), and cycles.
LAUNCH, NODE, BARRIER, CYCLE = 2.4, 1.2, 1.3, 1 / 1750
COMPILED = ["registers", "spilled", "shared"]


def toolkit(name):
    """The path of a program of the CUDA toolkit, or None. Its folder is often not in PATH."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/local/cuda/bin")


def run(*words, text=None, **variables):
    """What a tool says, given a text. If it fails, its errors are shown, and the program ends."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, input=text,
                          env={**os.environ, **variables})
    if done.returncode:
        print(done.stderr or done.stdout, end="", file=sys.stderr)
        fail(f"{Path(words[0]).name} failed", 1)
    return done.stdout


def simulate(stage, options, work, apart):
    """The counts of a run, a row for each kernel. In the kernels that are `apart`, no load from
    shared memory is joined with that of the next iteration: nvcc does so in most, and which it
    leaves apart is what the counts in the repository say."""
    path = Path(work, "counts.csv")
    run(stage.folder / f"{stage.program.name}.counted.sim", *stage.ladder.data, *options.split(),
        "--quiet", SIM_COUNTS=str(path), SIM_APART=f",{','.join(apart)},",
        SIM_MULTIPROCESSORS=str(MULTIPROCESSORS))
    return pandas.read_csv(path, index_col="kernel").fillna(0).astype(int)


def compiled(stage, work):
    """{kernel: {registers, spilled, shared}}: registers of a thread, bytes of it that go to local
    memory, bytes of a block. Without nvcc, none."""
    if not (nvcc := toolkit("nvcc")):
        return {}
    # The stage's own Makefile knows the flags. ptxas says it on standard error.
    made = run("sh", "-c", 'exec "$@" 2>&1', "sh", "make", "-s", "-C", stage.folder,
               f"OUTPUT={work}/train", f"NVCC={nvcc}", f"CUDA_ARCH={ARCHITECTURE}",
               "EXTRA=-Xptxas -v")
    found, patterns = {}, ("Used (\\d+) registers", "(\\d+) bytes stack frame", "(\\d+) bytes smem")
    for kernel in run("c++filt", text=made).split("Compiling entry function '")[1:]:
        numbers = [re.search(pattern, kernel) for pattern in patterns]
        found[kernel[:kernel.index("(")]] = dict(zip(COMPILED, (
            int(number[1]) if number else 0 for number in numbers)))
    return found


def count(stage, counts=None):
    """A frame with a row for each kernel of each of [[counts]], and for copies."""
    counts = counts or stage.ladder.toml["counts"]
    if not counts:
        fail(f"{stage.name}: found no GPU (nvidia-smi lists none), and no [[counts]] in "
             f"{stage.ladder.file.relative_to(ROOT)}, which say what to count", 77)
    run("make", "-s", "-C", stage.folder, "sim", "COUNT=1")
    known, frames = read(stage), []
    apart = {*known["kernel"][known["apart"] == 1]}
    with tempfile.TemporaryDirectory() as work:
        facts = pandas.DataFrame.from_dict(compiled(stage, work), "index", columns=COMPILED)
        for each in counts:
            frame = simulate(stage, each["run"], work, apart)
            if each.get("less"):
                less = simulate(stage, each["less"], work, apart)
                frame -= less.reindex(frame.index, fill_value=0)
            frame = frame[frame.any(axis=1)].join(facts.astype("Int64"))
            frame.insert(frame.columns.get_loc(COMPILED[0]), "apart",
                         frame.index.isin(apart).astype(int))
            frames.append(frame.rename_axis("kernel").reset_index())
            frames[-1].insert(0, "stage", stage.name)
            frames[-1].insert(1, "cell", each["cell"])
    return pandas.concat(frames, ignore_index=True)


def read(stage):
    """The counts of a stage in the repository, or an empty frame."""
    path = stage.ladder.profiles / stage.name / "counts.csv"
    if not path.exists():
        return pandas.DataFrame(columns=["cell", "kernel", "apart"])
    return pandas.read_csv(path, dtype=dict.fromkeys(COMPILED, "Int64"))


def summed(frame, by):
    """What tables show of counts, over what they are grouped by, without what is copied between
    host and device. The time on an H100, in two digits, is if nothing but these took any."""
    sums = frame[frame["bytes"] == 0].groupby(by, sort=False).sum(numeric_only=True)
    kinds = "load", "store", "atomic"
    times = (LAUNCH * sums["launches"] + NODE * sums["nodes"] + BARRIER * sums["grid_barriers"]
             + CYCLE * sums["busiest"])
    return pandas.DataFrame({
        "µs predicted": times.map(lambda time: f"{float(f'{time:.2g}'):,g}"),
        **{head: sums[[*columns]].sum(axis=1).map("{:,}".format) for head, columns in {
            "launches": ("launches", "nodes"),
            "sectors": (f"{kind}_sectors" for kind in kinds),
            "passes": (f"shared_{kind}_passes" for kind in kinds),
            "barriers": ("barriers", "grid_barriers"), "cycles": ("busiest",)}.items()}})
