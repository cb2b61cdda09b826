"""Draws what `make cluster OUTPUT=FILE.csv` wrote, and puts it into CLUSTER.md:

    python3 -m bench stages.07_mpi.cluster FILE.csv

With a stage, first appends its runs of two and three processes, beside mpirun's:

    python3 -m bench stages.07_mpi.cluster STAGE=11_mpi HIDDEN=256 BATCH=32 FILE.csv
"""

import importlib
import itertools
import math
import sys
from functools import partial
from pathlib import Path
from statistics import median

import pandas

from bench import cluster, ladders, process
from bench.options import given
from bench.stage import processors
from report import look, pages

CELL = ["hidden", "batch"]


def beside_real(stage, cell, rate):
    """Yields lines of two and three processes beside mpirun's, on no more threads than cores."""
    sweep = importlib.import_module("stages.11_mpi_lookahead.network.sweep")
    process.make("-C", stage.folder)
    process.make("-C", sweep.FOLDER)
    calls = ""
    for nodes, delay in itertools.product((2, 3), sweep.DELAYS):
        rounds = 3 if nodes == 3 and " allreduce" in calls else 1
        threads = min(nodes, processors())
        line = cluster.Cluster(nodes, delay / rounds, 1000, rate).line(stage, cell, threads)
        calls = line["calls"]
        times = [sweep.measure(stage, [sweep.MPIRUN, "-n", str(nodes)], {}, delay,
                               [*line["options"], "--threads", str(threads)]) for _ in range(9)]
        yield line | {"latency_us": delay, "real": round(median(times), 1)}


def draw(table, path):
    """µs a batch over the nodes. A panel is of a cell and a stage, with a line for each latency, or
    of a cell with a line for each stage. Dotted: what is predicted."""
    panel, line, unit = [*CELL, "stage"], "latency_us", " µs"
    if table[line].nunique() == 1:
        panel, line, unit = CELL, "stage", ""
    groups = [*table.groupby(panel)]
    figure, panels = look.plt.subplots(math.ceil(len(groups) / 3), 3, figsize=(8, 7), sharex=True,
                                       sharey="row", layout="constrained")
    for axes, (names, runs) in zip(panels.flat, groups):
        axes.set_title(" ".join(["hidden {}, batch {}".format(*names), *names[2:]]), fontsize=8)
        for marker, shade, (key, each) in zip("osD", (1, 0.65, 0.4), runs.groupby(line)):
            each = each.sort_values("nodes")
            look_of = {"color": look.CPU, "alpha": shade}
            axes.plot(each["nodes"], each["us_a_batch"], marker, ls="-", label=f"{key}{unit}",
                      **look_of)
            axes.plot(each["nodes"], each["predicted"], marker + ":", mfc="none", **look_of)
            if not unit:  # what crosses where both send as much
                several = each[each["nodes"] > 1]
                axes.plot(several["nodes"], several["waits"], "--", **look_of)
        look.log_axis(axes, "xy")
    for axes in panels.flat[len(groups):]:
        axes.remove()
    panels.flat[0].legend(frameon=False)
    figure.supxlabel("nodes, simulated", fontsize=9)
    dashed = "" if unit else "; dashed: waiting"
    figure.supylabel(f"µs a batch; dotted: predicted{dashed}", fontsize=9)
    look.save(figure, path)


def pictured(runs):
    """The runs of stages and of the first step, 07.0, and not those of the other steps."""
    return runs[runs["stage"].str.contains(r"^\d\d(?:\.0)?_")]


def number(value):
    return f"{value or 0:.4g}" if pandas.notna(value) else ""


def show(table, heads):
    """These columns of a table, of which the stage's is words, in Markdown."""
    shown = table[[*heads]].rename(columns=heads)
    for name in shown.columns.drop("stage"):
        shown[name] = shown[name].map(number)
    return pages.markdown(shown)


def summary(ladder, table):
    """What the pictures show, on 16 nodes; and all stages beside real processes."""
    table = table.drop_duplicates([*CELL, "gb_s", "nodes", "latency_us", "stage", "real"],
                                  keep="last")
    simulated = pictured(table[(table["nodes"] == 16) & table["real"].isna()])
    heads = {"stage": "stage", "hidden": "hidden", "batch": "batch", "gb_s": "GB/s",
             "latency_us": "latency, µs", "us_a_batch": "µs a batch", "predicted": "predicted",
             "waits": "waits", "of_one_node": "over one node"}
    real = table[table["real"].notna()]
    real = real.assign(part=(real["real"] / real["us_a_batch"]).round(2))
    heads_of_real = {"stage": "stage", "hidden": "hidden", "batch": "batch", "nodes": "nodes",
                     "latency_us": "delay, µs", "us_a_batch": "µs a batch",
                     "predicted": "predicted", "waits": "waits", "real": "not simulated",
                     "part": "part"}
    order = [*CELL, "gb_s", "latency_us", "nodes"]
    parts = ["On 16 simulated nodes:", show(simulated.sort_values(order, kind="stable"), heads),
             "On two and three, beside real processes with the same delay of each sum:",
             show(real.sort_values(order, kind="stable"), heads_of_real)]
    now = {stage.name: stage.sources for stage in ladder.stages}
    changed = {row.stage for row in pandas.concat([simulated, real]).itertuples()
               if row.sources != now[row.stage]}
    if changed:
        parts.append(f"The sources of {', '.join(sorted(changed))} have changed since.")
    return "\n\n".join(parts)


def main():
    path = Path(sys.argv[1])
    ladder = ladders.find_ladder("")
    if given("STAGE"):
        rate = cluster.start(ladder)
        for stage in ladder.select(given("STAGE")):
            cluster.build(stage)
            cluster.save(beside_real(stage, ladder.options("step"), rate), path)
    table = pandas.read_csv(path)
    table = table[table["network"] == "simulated"]
    simulated = table[table["real"].isna()]
    for width, runs in simulated.groupby("gb_s"):
        draw(pictured(runs), path.with_name(f"{width:g}_gb_s.svg"))
    pages.update(Path(__file__).with_name("CLUSTER.md"), "cluster", partial(summary, ladder, table))
