"""make cluster [STAGE=11 NODES=64 LATENCY=10us BANDWIDTH=12.5GBps HIDDEN= BATCH=] [OUTPUT=FILE.csv]

Runs stages of several processes on a simulated cluster, a core a node, for two epochs of at most
four batches. Measured: what a process computes, one after the other on this machine. Simulated, by
SimGrid: the network and the stage's clock. MPI_Allreduce sends what Open MPI 4 does, MPI_Iallreduce
all numbers to all. Of process 0 between its two barriers: `waits` in MPI, `predicted` by FMAs and
messages.
"""

import math
import os
import re
import shlex
import tempfile
from collections import namedtuple
from pathlib import Path

import pandas
import psutil

from bench import host, ladders, measuring, process, screen, testing
from bench.base import ROOT, fail, value
from bench.options import given

PLATFORM = """<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd"><platform version="4.1">
<cluster id="c" prefix="n" suffix="" radical="0-{}" lat="{}us" bw="{}GBps" speed="{}Gf"/></platform>
"""
BATCHES = 4  # of an epoch at most: many nodes take seconds for each
SETTINGS = [f"--cfg={each}" for each in (
    "network/model:CM02", "smpi/coll-selector:ompi", "smpi/reduce:mpich", "smpi/test:1e-7",
    "smpi/cpu-threshold:1e-8")]
# Of a record. `network` is "simulated", or how processes were connected whose sums were delayed.
COLUMNS = ["network", "stage", "hidden", "batch", "nodes", "latency_us", "gb_s", "round",
           "us_a_batch", "predicted", "forward", "backward", "waits", "of_one_node", "mib", "real",
           "sources"]


def build(stage):
    """Builds a stage with smpicc and its own flags."""
    process.make("-C", stage.folder, f"{stage.source.stem}.flags")
    flags = re.split(r" mpicc | \(", stage.read(f"{stage.source.stem}.flags"))[1]
    sources = [stage.source, *(ROOT / "common").glob("*.c"), *stage.ladder.folder.glob("*.c")]
    process.output(["smpicc", *shlex.split(flags),
                    *(str(path) for path in sources if path.stem != "reference"), "-lz", "-lm",
                    "-o", str(ROOT / f"bench/build/{stage.name}.cluster")], cwd=stage.folder)


class Cluster(namedtuple("Cluster", "nodes latency bandwidth rate")):  # µs, GB/s, GFLOP/s
    def run(self, stage, cell, threads):
        """(the row of a run that is right, its options, what process 0 did between its barriers)"""
        with tempfile.TemporaryDirectory() as folder:
            platform, hosts, calls = (Path(folder, name) for name in ("net.xml", "hosts", "calls"))
            hosts.write_text("\n".join(map("n{}".format, range(self.nodes))), "ascii")
            platform.write_text(PLATFORM.format(self.nodes - 1, self.latency / 2, *self[2:]))
            program, case = testing.cell_tester(stage, cell, batches=BATCHES, command=[
                "smpirun", "-platform", platform, "-hostfile", hosts, "-trace-ti", "-trace-file",
                calls, "--log=root.thres:error", *SETTINGS,
                f"--cfg=smpi/host-speed:{self.rate}Gf", f"bench/build/{stage.name}.cluster",
                "--quiet", "--threads", threads], limit=3600)
            for case in (f"{case} --seed {seed}" for seed in testing.CELL_SEEDS):
                try:
                    run, _, is_right = program.compare(case)
                except testing.Wrong as wrong:
                    fail(f"{stage.name}: {wrong}", 1)
                if is_right:
                    said = max(Path(folder).glob("calls_files/*rank-1.txt")).read_text("ascii")
                    return run.row, program.options(case), said.split("barrier", 2)[1]
        fail(f"{stage.name}: with {case}: found other weights than the reference's", 1)

    def sum_seconds(self, kind, size):
        """How long the messages of a sum of so many bytes take."""
        rounds = int(math.log2(self.nodes))
        if self.nodes > 2**rounds:  # the other nodes first send theirs, and get the sum last
            rounds += 2
        travels = rounds * size
        if kind == "iallreduce":
            rounds = min(rounds, 1)
            travels = (self.nodes - 1) * size
        elif size > 10000:  # each node adds up its part of the numbers, and sends it to all
            rounds *= 2
            travels = 2 * size * (1 - 1 / self.nodes)
        return rounds * self.latency / 1e6 + travels / self.bandwidth / 1e9

    def line(self, stage, cell, threads=0):
        """A run as {column: value}, in µs a batch, with its memory, its options and its calls."""
        ladder = stage.ladder
        row, options, calls = self.run(stage, cell, threads or self.nodes)
        work = ladder.operations(row)
        computed = sum(map(float, re.findall(r"compute (\S+)", calls))) / self.rate / 1e9
        waited, hidden = (sum(self.sum_seconds(kind, 4 * int(count)) for count in re.findall(
            rf" {kind} (\d+)", calls)) for kind in ("allreduce", "iallreduce"))
        times = {"us_a_batch": float(row[ladder.time]), "waits": float(row[ladder.time]) - computed,
                 "predicted": max(work / self.rate / 1e9 / self.nodes, hidden) + waited,
                 **{phase: float(row[f"{phase}_s"]) for phase in ladder.phases}}
        each = 1e6 / ladder.units(row)
        return row | {key: round(each * time, 1) for key, time in times.items()} | {
            "network": "simulated", "nodes": self.nodes, "latency_us": self.latency,
            "gb_s": self.bandwidth, "mib": round(float(row["peak_rss_mib"])),
            "sources": stage.sources, "options": options, "calls": calls}


def series(stage, cell, network, latencies, counts):
    """Yields the lines of a cell. The first two say what memory each node more takes."""
    first, second = (Cluster(nodes, latencies[0], *network).line(stage, cell) for nodes in (1, 2))
    need = first["mib"] + (max(counts) - 1) * (second["mib"] - first["mib"])
    free = psutil.virtual_memory().available / 2**20
    if need > free:
        fail(f"NODES: found {max(counts)}, which take {need:.0f} MiB; {free:.0f} are free")
    for line in (first, second, *(Cluster(nodes, latency, *network).line(stage, cell)
                                  for nodes in counts for latency in latencies)):
        yield line | {"of_one_node": round(first["us_a_batch"] / line["us_a_batch"], 2)}


def cells_of(ladder):
    """The cells to run: that of `make step` as it is told, or with no option the ladder's."""
    usual = measuring.read_options(ladder, "step")
    axes = [axis["option"] for axis in ladder.axes]
    if any(map(given, ("STAGE", *axes))):
        return [usual]
    cells = ladder.toml["rungs"].get("cells", []) + ladder.toml["cluster"]
    return [usual | dict(zip(axes, cell)) for cell in cells]


def start(ladder):
    """Prepares what all runs need. Returns the GFLOP/s of FMAs on a core."""
    os.environ["OMP_NUM_THREADS"] = "1"
    process.make("-C", "bench", f"build/{ladder.name}/reference")
    return max(host.rate(1) for _ in range(5))


def save(lines, output):
    """Prints lines of runs, and appends them to a file."""
    table = pandas.DataFrame(lines).reindex(columns=COLUMNS)
    shown = table.drop(columns=["network", "sources"]).dropna(axis="columns", how="all")
    print(f"\n{shown.to_string(index=False)}")
    append(table, output)


def append(table, output):
    table.to_csv(output, mode="a", index=False, header=not output.exists())


def main():
    ladder = ladders.find_ladder(given("STUDY"))
    stages = [stage for stage in ladder.stages if stage.declared("RUN")]
    if not stages:
        fail(f"STUDY: found '{ladder.name}', expected a ladder with a stage of several processes")
    if given("STAGE"):
        stages = [ladder.find(given("STAGE"), among=stages)]
    counts = value("NODES", given("NODES", "4,16,64"), [int], 1)
    latencies = value("LATENCY", given("LATENCY", "1us,10us,100us").replace("us", ""), [float], 0)
    bandwidth = value("BANDWIDTH", given("BANDWIDTH", "12.5").removesuffix("GBps"), float, 0.001)
    rate = start(ladder)
    print(f"Simulated: the network. Measured: what is computed; FMAs at {rate:.0f} GFLOP/s.")
    for stage in stages:
        build(stage)
        for cell in cells_of(ladder):
            lines = []
            with screen.Bar() as bar:
                for line in series(stage, cell, (bandwidth, rate), latencies, counts):
                    lines.append(line)
                    bar.say(f"{stage.name}: {len(lines)} runs", len(lines),
                            2 + len(counts) * len(latencies) - len(lines))
            save(lines, Path(given("OUTPUT", "/dev/null")))
