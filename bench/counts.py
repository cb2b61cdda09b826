"""Counts what a CUDA stage's kernels do with memory: `make profile`.

On a GPU, Nsight Compute does. Without one, the simulated device counts the accesses of all threads
(sim/README.md). [[counts]] in ladder.toml says what is counted: mostly a batch, which is the
difference of two runs.
"""

import csv
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pandas

from bench.base import ROOT, fail
from bench.process import make, output, run

MULTIPROCESSORS = 132  # of an H100 or an H200
METRICS = (  # of Nsight Compute
    "gpu__time_duration.sum", "launch__registers_per_thread",
    "sm__warps_active.avg.pct_of_peak_sustained_active", "smsp__inst_executed.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "lts__t_bytes.sum", "dram__bytes.sum")
COUNTERS = "program", "cell", "launch", "kernel", "grid", "block", *METRICS


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


def runs(stage):
    """(cell, options) of the runs whose launches Nsight Compute counts."""
    found = [(each["cell"], each["run"]) for each in stage.ladder.toml["counts"]]
    words = stage.ladder.words_of(stage.ladder.options("profile"))
    return found or [("as profiled", " ".join(words))]


def counters(stage, cell, options):
    """[values of COUNTERS] of each launch of a run, by Nsight Compute: an epoch that warms up, one
    with events, and one that is timed. By default ncu flushes the caches before each run
    of a kernel and holds the clock at its base rate. In a run of the stage, a kernel finds in the
    cache what the one before it has left, and the clock is higher."""
    ended = run([toolkit("ncu"), "--csv", "--page=raw", "--print-units=base",
                 "--cache-control=none", "--clock-control=none", f"--metrics={','.join(METRICS)}",
                 *stage.command, *stage.ladder.data, *options.split(), "--quiet"],
                env={**os.environ, "WARMUP_S": "0", "LC_ALL": "C"})
    head, found, table = ended.out.partition('"ID",')
    if ended.status or not found:
        print(f"{stage.name}: ncu: {ended.err or head}", file=sys.stderr)
        return []
    _units, *lines = csv.DictReader((found + table).splitlines())
    return [(stage.name, cell, number, line["Kernel Name"], line["Grid Size"], line["Block Size"],
             *(line[name].replace(",", "") for name in METRICS))
            for number, line in enumerate(lines, 1)]


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
