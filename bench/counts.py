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

from bench.base import ROOT, fail

ARCHITECTURE, MULTIPROCESSORS = "sm_90", 132  # of an H100
SECTOR = 32  # bytes
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


def costs_file():
    """What each counted thing costs: by the first machine whose GPU is measured, or by others."""
    measured = sorted(ROOT.glob("report/results/*/bench/gpu.csv"))
    return measured[0] if measured else ROOT / "bench/h100.csv"


def predicted(frame, by):
    """The µs of what is counted, summed over what it is grouped by (sim/README.md says why). The
    device takes kernel after kernel, and the host launches the next ones meanwhile."""
    cost = pandas.read_csv(costs_file(), index_col="what")["value"]
    traffic = SECTOR * frame["L2 sectors"] / cost["read_L2"] / 1000
    waits = cost["load_L2"] * frame["waits"] + cost["load_shared"] * frame["shared_waits"]
    device = ((frame["busiest"] / cost["clock"]).clip(lower=traffic) + waits / 1000
              + cost["node"] * (frame["launches"] + frame["nodes"])
              + cost["grid_barrier"] * frame["grid_barriers"])
    times = frame.assign(device=device, host=cost["launch"] * frame["launches"])
    return times.groupby(by, sort=False)[["device", "host"]].sum().max(axis=1)


def summed(frame, by):
    """What tables show of counts, over what they are grouped by, without what is copied between
    host and device. The time on an H100 has two digits."""
    kinds = "load", "store", "atomic"
    frame = frame[frame["bytes"] == 0]
    frame = frame.assign(**{
        "L2 sectors": frame[["misses", "store_sectors", "atomic_sectors"]].sum(axis=1)})
    sums = frame.groupby(by, sort=False).sum(numeric_only=True)
    return pandas.DataFrame({
        "µs predicted": predicted(frame, by).map(lambda time: f"{float(f'{time:.2g}'):,g}"),
        **{head: sums[[*columns]].sum(axis=1).map("{:,}".format) for head, columns in {
            "launches": ("launches", "nodes"),
            "sectors": (f"{kind}_sectors" for kind in kinds), "L2 sectors": ("L2 sectors",),
            "passes": (f"shared_{kind}_passes" for kind in kinds),
            "barriers": ("barriers", "grid_barriers"), "cycles": ("busiest",),
            "waits": ("waits",)}.items()}})
