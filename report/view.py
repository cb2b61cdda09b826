"""Which results are shown: those of the machine that READMEs name, and of the first GPU.

results/MACHINE/LADDER has the files of bench/record.py. A group has the runs of the same settings
from sweeps of the same kind: the "grid", or "steps", which has all stages and steps in a few cells.
"""

import functools
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pandas

from bench import faults, rows
from bench.base import fail
from bench.options import given
from bench.record import Record
from bench.stage import git_diff
from report.group import Group
from report.table import by_reason, link

HERE = Path(__file__).resolve().parent

class Results:
    """A folder of results of a ladder: {kind: groups, MNIST first}, and the frame of growth. `gpu`
    is that of another machine, of which a GPU's rows are shown as well, with negative sweeps."""

    def __init__(self, folder, ladder, gpu=None):
        self.folder = folder
        self.gpu = gpu or folder
        self.ladder = ladder
        self.sweeps = Record(folder).sweeps
        self.programs = Record(folder).programs
        self.plots = folder / "plots"
        self.is_quick = folder.parent.name.endswith("-quick")  # a look, which is no result
        frame = rows.read_rows(folder / "runs.csv", ladder)
        frame = frame.reindex(columns=[*dict.fromkeys((*frame, "setup_s", "sweep", "round"))])
        if gpu:
            its = rows.read_rows(gpu / "runs.csv", ladder)
            frame = pandas.concat([frame, its[its["device"] != "cpu"].assign(sweep=-its["sweep"])],
                                  ignore_index=True)
            self.sweeps |= {-number: known for number, known in Record(gpu).sweeps.items()}
            self.programs += [line | {"sweep": -line["sweep"]} for line in Record(gpu).programs]
        frame["machine"] = [machine_of(self.sweeps.get(sweep, {})) for sweep in frame["sweep"]]
        frame["kind"] = [self.sweeps.get(sweep, {}).get("kind", "grid") for sweep in frame["sweep"]]
        found = rows.records(frame)
        best = {kind: faults.best_rates(row for row in found if row["kind"] == kind)
                for kind in {*frame["kind"]}}
        self.best = faults.best_rates(found)
        frame["used"] = frame["threads"]
        frame["disturbed"] = [faults.is_disturbed(row, best[row["kind"]]) for row in found]
        frame = frame[frame["device"] != "simulated"]  # by sim/, whose times mean nothing
        self.growth = frame[frame["kind"] == "growth"]
        self.groups = defaultdict(list)
        names = ["kind", "dataset", *map(ladder.column, ladder.settings)]
        usual = [*ladder.settings.values()]
        found = frame[frame["kind"] != "growth"].groupby(names)
        for (kind, *settings), part in sorted(found, key=lambda item: (
                all(item[1]["sweep"] < 0), item[0][1] != "mnist", [*item[0][2:]] != usual)):
            self.groups[kind].append(Group(self, dict(zip(names[1:], settings)), part))

    @property
    def grid(self):
        return (self.groups["grid"] or self.groups["steps"])[0]

    @property
    def steps(self):
        return (self.groups["steps"] or self.groups["grid"])[0]

    @functools.cached_property
    def roofs(self):
        """[(level, threads, rate)] that `make bench` has measured on the machine."""
        home = self.folder.absolute().parent
        path = home.with_name(home.name.removesuffix("-quick")) / "bench/ceilings.json"
        return rows.read_ceilings(path) if path.exists() else []

    @property
    def ceilings(self):
        """{threads: operations a second} of the ladder's numbers: the highest rate measured."""
        rates = {threads: rate for level, threads, rate in self.roofs if level == "flops"}
        return {threads: max(rate, 1e9 * self.best.get(threads, 0)) / self.ladder.width
                for threads, rate in rates.items()}

    @functools.cached_property
    def gpu_ceiling(self):
        """What multiply-adds of float32 alone reach on the GPU, or None: double differs by GPU."""
        path = self.gpu.parent / "bench/ceilings.json"
        if self.ladder.width != 1 or not path.exists():
            return None
        rates = {level: rate for level, _, rate in rows.read_ceilings(path)}
        rate = rates.get("gpu/fma")
        return rate and 1e9 * rate

    @property
    def machine(self):
        """The processor and the GPU."""
        return next(map(machine_of, self.sweeps.values()), "")

    def machines(self, folder=None):
        """The machine, and the GPU of another one whose rows are shown as well. Seen from a folder,
        with a link to them."""
        rows_of = "GPU's rows"
        if folder:
            rows_of = link(rows_of, self.gpu / "runs.csv", folder)
        others = {known.get("gpu", "").partition(",")[0] for number, known in self.sweeps.items()
                  if number < 0}
        return f", and the {rows_of} on ".join([self.machine, *others])

    @property
    def last(self):
        """{program: (what became of it in its last sweep, why)}"""
        return {row["program"]: (row["outcome"], row["reason"]) for row in self.programs}

    def is_wrong(self, stage):
        """Whether what it computed last was wrong. Then it has no rows."""
        return self.last.get(stage.name, ("", ""))[0] == "wrong"

    @property
    def left_out(self):
        """A line for each reason why the last sweep with a program did not run it."""
        return [f"{', '.join(names)}: {reason}" for reason, names in by_reason(
            (name, ": ".join(why)) for name, why in sorted(self.last.items()) if why[1]).items()]


def read(folder, ladder, gpu=None):
    """The results in a folder, or None if there are no runs."""
    results = Results(folder, ladder, gpu) if (folder / "runs.csv").exists() else None
    return results if results and results.groups else None


def machine_of(sweep):
    """The processor and its cores, and the GPU, of what is known of a sweep."""
    return re.sub(r", \d+ hardware threads", "", "; ".join(
        sweep[key] for key in ("cpu", "gpu") if sweep.get(key, "none") != "none"))


def find_gpu(ladder, own):
    """The folder of the first machine whose GPU has run a ladder, or None. `own` comes first."""
    for path in sorted(HERE.glob(f"results/*/{ladder.name}/runs.csv"),
                       key=lambda path: (path.parent != own, path)):
        devices = {*rows.read_texts(path, ["device"])["device"]}
        if devices - {"cpu", "simulated"}:
            return path.parent
    return None


def reference_name():
    return given("REFERENCE") or rows.read(HERE / "results/reference").strip()


def reference(ladder):
    """A ladder's results that READMEs show, or None."""
    name = reference_name()
    folder = HERE / "results" / name
    if not folder.is_dir():
        fail(f"REFERENCE: found '{name}', expected a folder of report/results")
    gpu = find_gpu(ladder, folder / ladder.name)
    return read(folder / ladder.name, ladder, gpu if gpu != folder / ladder.name else None)


@functools.cache
def changes(stage):
    """How many lines a stage added and removed, against the one before."""
    sources = [stage.before.source, stage.source]
    counts = git_diff(sources, "--numstat", stdout=subprocess.PIPE).stdout or "0\t0\t"
    return sum(map(int, counts.split("\t")[:2]))
