"""make cluster [STAGE=11 NODES=64 LATENCY=10us BANDWIDTH=12.5GBps HIDDEN= ...] [OUTPUT=FILE.csv]

Runs stages of several processes on a simulated cluster, a core a node. Measured: what a process
computes, one after the other on this machine. Simulated, by SimGrid: the network and the stage's
clock. MPI_Allreduce sends what Open MPI 4 does, MPI_Iallreduce all numbers to all. Of process 0
between its two barriers: `waits` in MPI, `predicted` by FMAs and messages. REAL=1: beside mpirun's.
"""

import importlib
import itertools
import math
import re
import shlex
import tempfile
from collections import namedtuple
from pathlib import Path
from statistics import median

import pandas
import psutil

from bench import compare, host, ladders, running, testing
from bench.base import ROOT, fail, value
from bench.options import given

PLATFORM = """<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd"><platform version="4.1">
<cluster id="c" prefix="n" suffix="" radical="0-{}" lat="{}us" bw="{}GBps" speed="{}Gf"/></platform>
"""
SETTINGS = [f"--cfg={each}" for each in (
    "network/model:CM02", "smpi/coll-selector:ompi", "smpi/reduce:mpich", "smpi/test:1e-7",
    "smpi/cpu-threshold:1e-8")]
COLUMNS = ["stage", "hidden", "batch", "nodes", "latency_us", "gb_s", "us_a_batch", "predicted",
           "forward", "backward", "waits", "of_one_node", "real"]


def build(stage):
    """Builds a stage with smpicc and its own flags."""
    testing.make("-C", stage.folder, f"{stage.source.stem}.flags")
    flags = re.split(r" mpicc | \(", stage.read(f"{stage.source.stem}.flags"))[1]
    sources = [stage.source, *(ROOT / "common").glob("*.c"), *stage.ladder.folder.glob("*.c")]
    running.output(["smpicc", *shlex.split(flags),
                    *(str(path) for path in sources if path.stem != "reference"), "-lz", "-lm",
                    "-o", str(ROOT / f"bench/build/{stage.name}.cluster")], cwd=stage.folder)


class Cluster(namedtuple("Cluster", "nodes latency bandwidth rate")):  # µs, GB/s, GFLOP/s
    def run(self, stage, cell, threads):
        """(the row of a run that is right, its options, what process 0 did between its barriers)"""
        tester = testing.Tester(stage, "cell", f"bench/build/{stage.name}.cluster", cell)
        tester.takes_threads = True
        tester.environment["OMP_NUM_THREADS"] = "1"
        with tempfile.TemporaryDirectory() as folder:
            platform, hosts, calls = (Path(folder, name) for name in ("net.xml", "hosts", "calls"))
            hosts.write_text("\n".join(map("n{}".format, range(self.nodes))), "ascii")
            platform.write_text(PLATFORM.format(self.nodes - 1, self.latency / 2, *self[2:]))
            tester.command = ["smpirun", "-platform", platform, "-hostfile", hosts, "-trace-ti",
                              "-trace-file", calls, "--log=root.thres:error", *SETTINGS,
                              f"--cfg=smpi/host-speed:{self.rate}Gf", str(tester.path), "--quiet"]
            for case in (f"{tester.case} --seed {seed}" for seed in testing.CELL_SEEDS):
                try:
                    run, _, is_right = tester.compare(case, testing.Start(threads))
                except testing.Wrong as wrong:
                    fail(f"{stage.name}: {wrong}", 1)
                if is_right:
                    said = max(Path(folder).glob("calls_files/*rank-1.txt")).read_text("ascii")
                    return run.row, tester.options(case), said.split("barrier", 2)[1]
        fail(f"{stage.name}: {tester.now}: found other weights than the reference's", 1)

    def sum_seconds(self, kind, size):
        """How long the messages of a sum of so many bytes take."""
        rounds = math.ceil(math.log2(self.nodes))
        travels = rounds * size
        if kind == "iallreduce":
            rounds, travels = min(rounds, 1), (self.nodes - 1) * size
        elif size > 10000:  # each node adds up its part of the numbers, and sends it to all
            rounds, travels = 2 * rounds, 2 * size * (1 - 1 / self.nodes)
        return rounds * self.latency / 1e6 + travels / self.bandwidth / 1e9

    def line(self, stage, cell, threads=0):
        """A run as {column: value}, in µs a batch, with its memory, its options and its calls."""
        ladder = stage.ladder
        row, options, calls = self.run(stage, cell, threads or self.nodes)
        computed = sum(map(float, re.findall(r"compute (\S+)", calls))) / self.rate / 1e9
        work = sum(ladder.work(row, phase, "operations") for phase in ladder.phases)
        waited, hidden = (sum(self.sum_seconds(kind, 4 * int(count)) for count in re.findall(
            rf" {kind} (\d+)", calls)) for kind in ("allreduce", "iallreduce"))
        times = {"us_a_batch": float(row[ladder.time]), "waits": float(row[ladder.time]) - computed,
                 "predicted": max(work / self.rate / 1e9 / self.nodes, hidden) + waited,
                 **{phase: float(row[f"{phase}_s"]) for phase in ladder.phases}}
        each = 1e6 / ladder.sum_of(ladder.toml["units"], row)
        return row | {key: round(each * time, 1) for key, time in times.items()} | {
            "nodes": self.nodes, "latency_us": self.latency, "gb_s": self.bandwidth,
            "mib": float(row["peak_rss_mib"]), "options": options, "calls": calls}


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


def beside_real(stage, cell, rate):
    """Yields lines of two and three processes beside mpirun's, on no more threads than cores."""
    sweep = importlib.import_module("stages.11_mpi_lookahead.network.sweep")
    testing.make("-C", stage.folder)
    testing.make("-C", sweep.FOLDER)
    calls = ""
    for nodes, delay in itertools.product((2, 3), sweep.DELAYS):
        rounds = 3 if nodes == 3 and " allreduce" in calls else 1
        threads = min(nodes, host.processors())
        line = Cluster(nodes, delay / rounds, 1000, rate).line(stage, cell, threads)
        calls = line["calls"]
        times = [sweep.measure(stage, [sweep.MPIRUN, "-n", str(nodes)], {}, delay,
                               [*line["options"], "--threads", str(threads)]) for _ in range(9)]
        yield line | {"latency_us": delay, "real": round(median(times), 1)}


def main():
    ladder = ladders.find_ladder(given("STUDY"))
    testing.make("-C", "bench", f"build/{ladder.name}/reference")
    stages = [stage for stage in ladder.stages if stage.declared("RUN")]
    cells = [{axis["option"]: number for axis, number in zip(ladder.axes, cell, strict=True)}
             for cell in (*ladder.toml["rungs"]["cells"], (128, 4096))]
    if given("STAGE"):
        stages = [ladder.find(given("STAGE"), among=stages)]
        cells = [{}]
    counts = value("NODES", given("NODES", "4,16,64"), [int], 1)
    latencies = value("LATENCY", given("LATENCY", "1us,10us,100us").replace("us", ""), [float], 0)
    bandwidth = value("BANDWIDTH", given("BANDWIDTH", "12.5").removesuffix("GBps"), float, 0)
    output = Path(given("OUTPUT", "/dev/null"))
    testing.LIMIT = 3600
    testing.CELL_BATCHES = 4  # many nodes take seconds for each
    rate = max(host.rate(1) for _ in range(5))
    print(f"Simulated: the network. Measured: what is computed; FMAs at {rate:.0f} GFLOP/s.")
    for stage in stages:
        build(stage)
        for cell in cells:
            cell = compare.read_options(ladder, "step") | cell
            lines = series(stage, cell, (bandwidth, rate), latencies, counts)
            if given("REAL"):
                lines = beside_real(stage, cell, rate)
            table = pandas.DataFrame(lines).reindex(columns=COLUMNS)
            print(f"\n{table.to_string(index=False, na_rep='')}")
            table.to_csv(output, mode="a", index=False, header=not output.exists())
