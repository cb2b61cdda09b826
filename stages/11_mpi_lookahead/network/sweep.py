"""Measures 07 and 11 in turn over ways of different length from process to process.

    python3 -m bench stages.11_mpi_lookahead.network.sweep [--runs N]
        [--output FILE] [--hidden N] [--batch N]
    python3 -m bench stages.11_mpi_lookahead.network.sweep --draw FILE

shared: shared memory. tcp: TCP through the loopback device. veth: TCP between two network
namespaces, each with a process, as between two hosts. It needs root, and leaves nothing behind. On
each way, delay.c also lets no sum arrive before so many microseconds. That is a simulated delay.
Prints µs a batch, the medians, and appends a row for each run to FILE, in the columns of `make
cluster`. --draw puts network.svg beside it.
"""

import argparse
import csv
import os
import shutil
import tempfile
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median

import pandas

from bench import cluster, ladders, pairs, process

FOLDER = Path(__file__).resolve().parent
DELAYS = 0, 50, 100, 200
NAMES = "07_mpi", "11_mpi_lookahead"
MPIRUN = str(ladders.ROOT / "stages/07_mpi/mpirun.sh")
SPACES = f"one{os.getpid()}", f"two{os.getpid()}"
HOSTS = "10.77.0.1", "10.77.0.2"  # each in its own namespace, so nobody else's are meant


def call(words, **options):
    """Runs a command. If it fails, the error is the last line of what it says."""
    ended = process.run(words, limit=600, **options)
    if ended.status:
        raise OSError((ended.err.splitlines() or [f"{words[0]}: exit status {ended.status}"])[-1])


@contextmanager
def veth():
    """mpirun starts the second process with what it takes for ssh: here, a script that enters the
    other namespace."""
    with tempfile.TemporaryDirectory() as folder:
        agent = Path(folder, "agent")
        agent.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {SPACES[1]} '
                         'unshare --uts sh -c "hostname two; $*"\n')
        agent.chmod(0o755)
        try:
            for space in SPACES:
                call(["ip", "netns", "add", space])
            call(["ip", "link", "add", "veth0", "netns", SPACES[0], "type", "veth", "peer", "name",
                  "veth0", "netns", SPACES[1]])
            for space, host in zip(SPACES, HOSTS, strict=True):
                inside = ["ip", "-n", space]
                call([*inside, "address", "add", f"{host}/24", "dev", "veth0"])
                for device in "lo", "veth0":
                    call([*inside, "link", "set", device, "up"])
            yield (["ip", "netns", "exec", SPACES[0], MPIRUN, "-n", "2", "--host", ",".join(HOSTS)],
                   {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_plm_rsh_agent": str(agent)})
        finally:
            for space in SPACES:
                process.run(["ip", "netns", "delete", space])


TWO = [MPIRUN, "-n", "2"]
WAYS = {"shared": nullcontext((TWO, {})), "tcp": nullcontext((TWO, {"OMPI_MCA_btl": "tcp,self"})),
        "veth": veth()}


def measure(stage, command, environment, delay, words):
    """µs a batch of one run. Two hosts seem to have twice the cores, so the threads are given. The
    repository's path may have a sign that LD_PRELOAD reads."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "row.csv")
        preloaded = shutil.copy(FOLDER / "build/delay.so", folder)
        call([*command, "env", f"LD_PRELOAD={preloaded}", f"DELAY_US={delay}",
              str(stage.program), "--threads", "2", *words, "--quiet", "--csv", str(path)],
             env=stage.environment | environment)
        with path.open(encoding="ascii") as file:
            row = next(csv.DictReader(file))
    return 1e6 * float(row["train_s"]) / stage.ladder.units(row)


def sweep(name, stages, count, options, output):
    """Prints a line for each delay, and appends so many runs of each stage to a file."""
    words = stages[0].ladder.words(options)
    with WAYS[name] as (command, environment):
        for delay in DELAYS:
            times = [], []
            for run in range(count):
                for side in ((0, 1), (1, 0))[run % 2]:
                    spent = measure(stages[side], command, environment, delay, words)
                    times[side].append(spent)
                    row = {"network": name, "stage": stages[side].name, **options, "nodes": 2,
                           "latency_us": delay, "round": run, "us_a_batch": round(spent, 3)}
                    cluster.append(pandas.DataFrame([row], columns=cluster.COLUMNS), output)
            print(f"{name:8}{delay:10}{median(times[0]):10.1f}{median(times[1]):20.1f}   "
                  f"{pairs.ratio(times[1], times[0]).text}", flush=True)


def draw(path):
    """Draws the time of both stages over the delay: the median, and the range of the runs."""
    from report import look  # to measure, nobody needs it

    table = pandas.read_csv(path)
    table = table[table["network"] != "simulated"]
    ways = list(dict.fromkeys(table["network"]))
    figure, panels = look.plt.subplots(1, len(ways), sharey=True, squeeze=False,
                                       figsize=(2.4 * len(ways), 2.8), layout="constrained")
    for way, axes in zip(ways, panels[0], strict=True):
        for name, style in zip(NAMES, ("o--", "s-"), strict=True):
            runs = table[(table["network"] == way) & (table["stage"] == name)]
            times = runs.groupby("latency_us")["us_a_batch"].agg(["median", "min", "max"])
            axes.errorbar(times.index, times["median"], fmt=style, color=look.CPU,
                          yerr=[times["median"] - times["min"], times["max"] - times["median"]],
                          label=name)
        axes.set_title(way)
    axes.set_ylim(bottom=0)
    figure.supxlabel("simulated delay of each sum (µs)", fontsize=9)
    panels[0, 0].set_ylabel("µs a batch")
    panels[0, 0].legend(frameon=False)
    look.save(figure, path.with_name("network.svg"))


def main():
    parser = argparse.ArgumentParser(usage="\n".join(__doc__.split("\n")[2:5]).strip(),
                                     allow_abbrev=False)
    parser.add_argument("--draw", type=Path)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--output", type=Path, default=Path(os.devnull))
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    if options.draw:
        draw(options.draw)
        return
    if not (shutil.which("mpirun") and shutil.which("mpicc")):
        ladders.fail("found no mpirun and mpicc (openmpi-bin, libopenmpi-dev) in PATH", 77)
    ladder = ladders.find_ladder("")
    stages = [ladder.find(name) for name in NAMES]
    for folder in FOLDER, *(stage.folder for stage in stages):
        call(["make", "-s", "-C", str(folder)])
    print(f"{'network':8}{'delay, µs':>10}{NAMES[0]:>10}{NAMES[1]:>20}   times as fast")
    for name in WAYS:
        try:
            sweep(name, stages, options.runs, {"hidden": options.hidden, "batch": options.batch},
                  options.output)
        except OSError as error:
            print(f"{name}: left out: {error}")
