"""From the record to frames: runs, cells and ratios. All tables and plots are made of these.

A frame of runs has a row for each run: what the program wrote, and of its sweep the kind ("grid",
"steps" or "growth"), the revision and the day. A frame of cells has a row for each stage, number of
threads and place on the ladder's axes. No frame has runs of two machines.
"""

import re
from functools import cached_property
from pathlib import Path

import pandas

from bench import faults, pairs, rows
from bench.base import fail
from bench.record import Record

RESULTS = Path(__file__).resolve().parent / "results"
LINE = ["stage", "threads"]  # what a row of a table is of; a GPU has 0 threads
# What people call the processors of which a virtual machine names only family and model.
PROCESSORS = {
    "AMD EPYC family 23 model 49": "AMD Zen 2",
    "AMD EPYC family 25 model 1": "AMD Zen 3",
    "AMD EPYC family 25 model 17": "AMD Zen 4",
    "AMD EPYC family 26 model 2": "AMD Zen 5",
    "Intel Xeon family 6 model 85": "Intel Skylake or Cascade Lake",
    "Intel Xeon family 6 model 106": "Intel Ice Lake",
    "Intel Xeon family 6 model 143": "Intel Sapphire Rapids",
    "Intel Xeon family 6 model 207": "Intel Emerald Rapids",
    "Intel Xeon family 6 model 173": "Intel Granite Rapids",
}


def reference(which):
    """The folder of the machine that pages show: "cpu", or "gpu" for the front page and the GPU's
    chapters."""
    text = rows.read(RESULTS / "reference")
    found = re.search(rf"^{which} (\S+)$", text, re.MULTILINE)
    if not found or not (RESULTS / found[1]).is_dir():
        fail(f"{RESULTS}/reference: found no line '{which} MACHINE' with a folder beside it")
    return RESULTS / found[1]


class Machine:
    """What a machine has measured of a ladder, in home/LADDER or in another folder."""

    def __init__(self, home, ladder, folder=None):
        self.home = home
        self.ladder = ladder
        self.folder = folder or home / ladder.name
        self.axes = [ladder.column(axis["option"]) for axis in ladder.axes]
        self.record = Record(self.folder)

    @cached_property
    def runs(self):
        """All runs, in the order of the record."""
        path = self.folder / "runs.csv"
        if not path.exists():
            return pandas.DataFrame(columns=["stage", "kind"])
        frame = rows.read_rows(path, self.ladder)
        frame = frame[frame["device"] != "simulated"]  # sim/ has no times that mean something
        frame = frame.join(self.sweeps, on="sweep")
        frame["threads"] = frame["threads"].fillna(0).astype(int)
        frame["on_gpu"] = frame["device"] != "cpu"
        best = frame.groupby(["kind", "threads"])["rate"].transform("max")
        frame["disturbed"] = (frame["others"] > faults.OTHERS) | (
            frame["rate"] < faults.RATE / 100 * best)
        return frame.merge(self.programs, how="left", on=["sweep", "stage"])

    @cached_property
    def sweeps(self):
        """What is known of each sweep: its kind, revision and day."""
        found = pandas.DataFrame.from_dict(self.record.sweeps, "index")
        found = found.reindex(columns=["kind", "revision", "began"]).fillna("")
        found["day"] = found.pop("began").str[:10]
        return found.replace({"kind": {"": "grid"}})

    @cached_property
    def programs(self):
        """Whether the sources of a sweep's program are others now."""
        now = {each.name: each.sources for each in [*self.ladder.stages, *self.ladder.peers]}
        return pandas.DataFrame(
            [(line["sweep"], line["program"],
              line["sources"] not in ("", now.get(line["program"])))
             for line in self.record.programs],
            columns=["sweep", "stage", "changed"])

    @property
    def outcomes(self):
        """{program: (what became of it in its last sweep, why)}"""
        return {line["program"]: (line["outcome"], line["reason"])
                for line in self.record.programs}

    @property
    def name(self):
        """The processor and its cores, and the GPU, in words."""
        known = next(iter(self.record.sweeps.values()), {})
        cpu = re.sub(r", \d+ hardware threads", "", known.get("cpu", ""))
        cpu = re.sub("^[^,]+", lambda found: PROCESSORS.get(found[0], found[0]), cpu)
        gpu = known.get("gpu", "none").partition(",")[0]
        return cpu if gpu == "none" else f"{cpu} with {gpu}"

    def settings(self, kind):
        """{column: value} of the ladder's settings in a kind of sweep."""
        base = {"steps": self.ladder.toml["rungs"]}.get(kind, {})
        return {self.ladder.column(option): base.get(option, value)
                for option, value in self.ladder.settings.items()}

    def of(self, kind):
        """The runs of a kind of sweep with the ladder's own settings."""
        return usual(self.runs[self.runs["kind"] == kind], self.settings(kind))

    def has(self, on_gpu):
        """Whether there are runs of the CPU or of the GPU."""
        return not self.runs.empty and (self.runs["on_gpu"] == on_gpu).any()

    @property
    def best_kind(self):
        """The steps, whose rounds are many, or the grid, where only that was measured."""
        return "steps" if (self.runs["kind"] == "steps").any() else "grid"

    @cached_property
    def peaks(self):
        """{threads, or 0 for the GPU: operations a second of the ladder's numbers} that
        multiply-adds alone reach, by `make bench` and by what was measured beside the runs."""
        measured = rows.read_ceilings(self.home / "bench/ceilings.json")
        best = self.runs.groupby("threads")["rate"].max() if "rate" in self.runs else {}
        found = {threads: max(rate, 1e9 * best.get(threads, 0)) / self.ladder.width
                 for level, threads, rate in measured if level == "flops"}
        for level, _, rate in measured:
            if level == "gpu/fma" and self.ladder.width == 1:  # that of float64 is another one
                found[0] = 1e9 * rate
        return found


def at(frame, place):
    """The rows of a frame that have all these values, {column: value}."""
    for column, value in place.items():
        frame = frame[frame[column] == value]
    return frame


def usual(runs, settings):
    """The runs with these settings, {column: value}, or else with those that most of them have:
    another learning rate is another table's."""
    if runs.empty or not settings:
        return runs
    asked = at(runs, settings)
    if len(asked):
        return asked
    count = runs.groupby([*settings])["stage"].transform("size")
    return runs[count == count.max()]


def counted(runs, axes):
    """The runs that count: disturbed ones only in cells that have no others."""
    spoilt = runs.groupby([*LINE, *axes])["disturbed"].transform("all")
    return runs[~runs["disturbed"].astype(bool) | spoilt]


def cells(machine, runs, column=None):
    """A row for each cell: the medians of its columns, `runs`, `low` and `high` of the time, and
    `share`, the part of what multiply-adds alone reach. Of a program that skips operations the
    share is unknown."""
    key = [*LINE, *machine.axes]
    grouped = counted(runs, machine.axes).groupby(key)
    found = grouped.median(numeric_only=True)
    time = grouped[column or machine.ladder.time]
    found["runs"] = time.size()
    found["low"] = time.min()
    found["high"] = time.max()
    peaks = found.index.get_level_values("threads").map(machine.peaks)
    found["share"] = 1e9 * found["gflops"] / peaks.to_numpy(float, na_value=float("nan"))
    skips = [machine.ladder.skips(name) for name in found.index.get_level_values("stage")]
    found.loc[list(map(bool, skips)), "share"] = float("nan")
    return found


def best(machine, found, column=None):
    """{(stage, cell): its row, with `threads`} of a frame of cells, with the number of threads that
    is the fastest there. A cell is a tuple of the axes' values."""
    place = ["stage", *machine.axes]
    fastest = found.groupby(place)[column or machine.ladder.time].idxmin()
    rows_of = found.loc[fastest].reset_index().to_dict("records")
    return {(row["stage"], tuple(row[axis] for axis in machine.axes)): row for row in rows_of}


def ratio(machine, runs, one, other, cell, column=None):
    """How many times as fast `one` is as `other`, both (stage, threads), in a cell: the median of
    the ratios of runs of the same round, a pairs.Ratio. None where no round has both."""
    column = column or machine.ladder.time
    here = counted(at(runs, dict(zip(machine.axes, cell))), machine.axes)
    sides = []
    for stage, threads in (one, other):
        side = at(here, {"stage": stage, "threads": threads})
        sides.append(side.groupby(["sweep", "round"])[column].last())
    both = pandas.concat(sides, axis=1, join="inner").dropna()
    both = both[(both > 0).all(axis=1)]
    return pairs.ratio(*both.to_numpy().T.tolist()) if len(both) else None
