"""Counts what a CUDA stage's kernels do with memory, without a GPU: `make profile`.

The simulated device counts the accesses of all threads (sim/README.md). [[counts]] in ladder.toml
says what is counted: mostly a batch, which is the difference of two runs.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pandas

from bench.base import ROOT, fail
from bench.process import make, output

MULTIPROCESSORS = 132  # of an H100 or an H200


def toolkit(name):
    """The path of a program of the CUDA toolkit, or None. Its folder is often not in PATH."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/local/cuda/bin")


def program(stage):
    """The stage's program for the simulated device that counts."""
    return stage.folder / f"{stage.program.name}.counted.sim"


def simulate(command, work, apart=(), **variables):
    """The counts of a run, a row for each kernel. In the kernels that are `apart`, no load from
    shared memory is joined with that of the next iteration, as nvcc does in most."""
    path = Path(work, "counts.csv")
    output([*command, "--quiet"],
           env={**os.environ, "SIM_COUNTS": str(path), "SIM_APART": f",{','.join(apart)},",
                "SIM_MULTIPROCESSORS": str(MULTIPROCESSORS), **variables})
    return pandas.read_csv(path, index_col="kernel").fillna(0).astype(int)


def difference(command, run, less, work, apart=()):
    """The counts of a program with the options `run`, without those with `less`, if it has any."""
    frame = simulate([*command, *run.split()], work, apart)
    if less:
        other = simulate([*command, *less.split()], work, apart)
        frame -= other.reindex(frame.index, fill_value=0)
    return frame[frame.any(axis=1)]


def apart_in(stage):
    """The kernels that are `apart` in the repository's counts of a stage."""
    return {*read(stage).query("apart == 1")["kernel"]}


def count(stage, counts=None):
    """A frame with a row for each kernel of each of [[counts]], and for copies."""
    counts = counts or stage.ladder.toml["counts"]
    if not counts:
        fail(f"{stage.name}: found no GPU (nvidia-smi lists none), and no [[counts]] in "
             f"{stage.ladder.file.relative_to(ROOT)}, which say what to count", 77)
    make("-C", stage.folder, "sim", "COUNT=1")
    apart = apart_in(stage)
    frames = {}
    with tempfile.TemporaryDirectory() as work:
        for each in counts:
            frame = difference([program(stage), *stage.ladder.data], each["run"], each.get("less"),
                               work, apart)
            frames[stage.name, each["cell"]] = frame.assign(
                apart=frame.index.isin(apart).astype(int))
    return pandas.concat(frames, names=["stage", "cell"]).reset_index()


def read(stage):
    """The counts of a stage in the repository, or an empty frame."""
    path = stage.ladder.profiles / stage.name / "counts.csv"
    if not path.exists():
        return pandas.DataFrame(columns=["cell", "kernel", "apart"])
    return pandas.read_csv(path)


def summed(frame, by):
    """What tables show of counts, over what they are grouped by, without copies."""
    frame = frame[frame["bytes"] == 0]
    sums = frame.groupby(by, sort=False).sum(numeric_only=True)
    stored = sums["store_sectors"] + sums["atomic_sectors"]
    mma = {"mma": sums["mma"].astype(int)} if "mma" in sums else {}
    return pandas.DataFrame({
        "launches": sums["launches"] + sums["nodes"],
        "sectors": sums["load_sectors"] + stored,
        "L2 sectors": sums["misses"] + stored,
        "wavefronts": sums.filter(regex="^shared_.*_passes$").sum(axis=1),
        "cycles": sums["busiest"], **mma}).apply(lambda column: column.map("{:,}".format))
