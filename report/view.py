"""What there is to show of results: groups of runs, and the cells of their tables.

results/MACHINE/LADDER has runs.csv, sweeps.csv and programs.csv (bench/rows.py). A group has the
runs of the same settings from sweeps of the same kind: the "grid", or "steps", which has all stages
and steps in a few cells. A README shows a machine that results/reference or $REFERENCE names.
"""

import functools
import subprocess
from collections import defaultdict
from numbers import Integral
from pathlib import Path
from statistics import geometric_mean

import pandas

from bench import pairs, rows
from bench.base import fail
from bench.options import given
from report.table import Cell, by_reason, percent, three_digits

HERE = Path(__file__).resolve().parent
DATASETS = {"mnist": "MNIST", "csv": "train.csv", "synthetic": "SYNTHETIC DIGITS, NOT MNIST",
            "drawn": "random numbers"}
WITH_SETUP = "with_setup_s"  # the column that no row has
PAPER = ", the paper"  # ends the name of a line of its figures
# --- the runs ---

def is_peer(line):
    return line[0].startswith("peer_")


class Group:
    """The runs of a ladder that share their kind and settings. A cell is its place on the ladder's
    axes. A line of a table is (stage, threads), with 0 threads on a GPU."""

    def __init__(self, results, settings, frame):
        """`frame` has the columns of rows, "disturbed" and "kind"."""
        self.results, self.ladder, self.settings = results, results.ladder, settings
        self.axes = [self.ladder.column(axis["option"]) for axis in self.ladder.axes]
        time, place = self.ladder.time, ["stage", "threads", *self.axes]
        frame = frame.assign(threads=frame["threads"].fillna(0).astype(int))
        frame[WITH_SETUP] = frame[time] + frame["setup_s"].fillna(0)
        self.frame = frame
        # Disturbed runs count only in cells that have no others.
        spoilt = frame.groupby(place)["disturbed"].transform("all")
        self.counted = frame[~frame["disturbed"] | spoilt]
        self.runs = self.counted.groupby(place)
        far = (self.counted[time] / self.runs[time].transform("median") - 1).abs() > rows.NOISY
        self.noisy, self.spoilt = ({*found[place].itertuples(index=False, name=None)} for found in (
            self.counted[far], frame[spoilt]))
        self.medians = self.runs.median(numeric_only=True).to_dict("index")
        self.lines = sorted({key[:2] for key in self.medians})
        self.cells = sorted({key[2:] for key in self.medians})
        self.on_gpu = {*frame["stage"][frame["device"] != "cpu"]}
        self.machines = dict(zip(zip(frame["stage"], frame["threads"]), frame["machine"]))
        self.on_cpu = [line for line in self.lines if line[0] not in self.on_gpu]
        self.baseline = next((line for line in self.lines
                              if line[0] == self.ladder.toml["baseline"]), None)
        is_short = any(0 < each[time] < 0.001 for each in self.medians.values())
        self.scale, self.unit = (1000, "ms") if is_short else (1, "s")

    def only(self, chosen):
        """The group of some of its runs. All runs, if there are none of these."""
        return Group(self.results, self.settings, self.frame[chosen]) if any(chosen) else self

    def without_steps(self):
        return self.only([is_peer([name]) or "." not in name for name in self.frame["stage"]])

    def without_peers(self):
        return self.only([not is_peer([name]) for name in self.frame["stage"]])

    def with_most_threads(self):
        """One line for each stage: that with the most threads."""
        threads = self.frame["threads"]
        return self.only(threads == threads.groupby(self.frame["stage"]).transform("max"))

    @functools.cached_property
    def paper(self):
        """The lines of the paper's figures, now in the medians, if the settings are its own."""
        file, ladder = self.ladder.folder / "paper.csv", self.ladder
        if not file.exists() or any(self.settings[ladder.column(option)] != value
                                    for option, value in ladder.settings.items()):
            return []
        found = {(row["stage"] + PAPER, 0, *(row[axis] for axis in self.axes)): row
                 for row in pandas.read_csv(file).to_dict("records")}
        self.medians.update(found)
        return [*dict.fromkeys(key[:2] for key in found)]

    # --- numbers ---

    def median(self, column, line, cell):
        """The median over the runs of a cell that count, or None."""
        value = line and self.medians.get((*line, *cell), {}).get(column)
        return None if value is None or value != value else value

    def time(self, line, cell):
        return self.median(self.ladder.time, line, cell)

    @functools.cache  # noqa: B019 - a group lives as long as the program
    def rounds(self, line, cell, column):
        """A column of a cell's runs, by sweep and round."""
        found = self.runs.get_group((*line, *cell))
        return found.groupby(["sweep", "round"])[column].last()

    def ratio(self, line, other, cell, column=None):
        """How many times as fast as another line's cell, a pairs.Ratio, in the ladder's time or in
        this column. None where no round has both: other machines have other rounds."""
        if self.time(line, cell) is None or self.time(other, cell) is None:
            return None
        both = pandas.concat([self.rounds(each, cell, column or self.ladder.time)
                              for each in (line, other)], axis=1, join="inner")
        both = both[(both > 0).all(axis=1)]
        return pairs.ratio(*both.to_numpy().T.tolist()) if len(both) else None

    def rungs(self, cell):
        """{stage: (line, above)} of the whole ladder: the stage's line with most threads, and that
        of the stage before it, or of the nearest before that, which has the cell, on the same
        machine. Each may be None."""
        found, nearest = {}, {}
        for stage in self.ladder.stages:
            above = nearest.get(stage.before)
            line = max((line for line in self.lines
                        if line[0] == stage.name and self.time(line, cell)), default=None)
            is_apart = line and above and self.machines[line] != self.machines[above]
            found[stage], nearest[stage] = (line, None if is_apart else above), line or above
        return found

    def part_of_ceiling(self, line, cell):
        """The part that a cell reaches of what multiply-adds alone do on as many threads. None
        where that was not measured, or for a GPU: the ceilings are the CPU's."""
        rate, ceiling = self.median("gflops", line, cell), self.results.ceilings.get(line[1])
        return 1e9 * rate / ceiling if rate and ceiling and line[0] not in self.on_gpu else None

    def fastest_peer(self):
        """The CPU peer with the smallest geometric mean of its times, over the cells that all
        have."""
        peers = [line for line in self.lines if is_peer(line) and line[0] not in self.on_gpu]
        cells = [cell for cell in self.cells if all(self.time(line, cell) for line in peers)]
        return min(peers, key=lambda line: geometric_mean(
            self.time(line, cell) for cell in cells)) if peers and cells else None

    def against(self, lines, others, column):
        """(how many times as fast the fastest of some lines is as the fastest of others, over which
        cells), in words. Cells count in which the two share a round. None without one."""
        ratios = []
        for cell in self.cells:
            sides = [{line: self.median(column, line, cell) for line in side
                      if self.time(line, cell)} for side in (lines, others)]
            ratio = all(sides) and self.ratio(*(min(side, key=side.get) for side in sides), cell,
                                              column)
            ratios += [ratio.median] if ratio else []
        return ratios and (f"{geometric_mean(ratios):.2f} times as fast as", (
            f"geometric mean over {len(ratios)} cells: {min(ratios):.2f} to {max(ratios):.2f}"
            if len(ratios) > 1 else "one cell"))

    def dense(self, lines):
        """Those that leave no operation out."""
        return [line for line in lines if not self.ladder.skips(line[0])]

    def against_peers(self):
        """What the fastest stage gains over the fastest peer, both without those that leave
        operations out, and what leaving out adds."""
        return " ".join([*self.against_peers_on("CPU"), *self.against_peers_on("GPU")])

    def against_peers_on(self, where):
        """The sentences. What a run does before the clock counts, but not on a GPU, where it is the
        context, and not where the time is of one pass of many."""
        column, setup = self.ladder.time, "not counted"
        if where == "CPU" and "seconds" not in self.ladder.settings:
            column, setup = WITH_SETUP, "counted"
        here = self.on_cpu
        if where == "GPU":
            here = [line for line in self.lines if line not in self.on_cpu]
        stages = [line for line in here if not is_peer(line)]
        whole, peers = self.dense(stages), self.dense(filter(is_peer, here))
        first = self.against(whole, peers, column)
        if first:
            kind = "" if len(whole + peers) == len(here) else " dense"
            yield (f"On the {where}, the fastest{kind} stage is {first[0]} the fastest{kind} peer, "
                   f"setup {setup} ({first[1]}).")
        more = first and whole != stages and self.against(stages, whole, column)
        if more:
            yield f"Without multiplications by zero, it is {more[0]} that ({more[1]})."

    # --- cells ---

    def label(self, line, name=None):
        """The line's name, which may be a link, and its threads."""
        text = (name or line[0]) + f", {line[1]} threads" * (line[1] > 1)
        return Cell(text, "Δ" * (line[0] in self.changed and not self.all_changed))

    def number(self, column, line, cell):
        """The median of a measure."""
        value, key = self.median(column, line, cell), (*line, *cell)
        if value is None:
            return Cell("-")
        marks = "↓" * (key in self.spoilt) + "~" * (key in self.noisy)
        if column.endswith(("_s", "_mib")):
            return Cell(three_digits(value * (self.scale if column.endswith("_s") else 1)), marks)
        is_whole = value >= 1000 or (value >= 10 and value.is_integer())
        return Cell(f"{value:,.0f}" if is_whole else f"{value:.4f}")

    def share(self, line, cell):
        """Its part of the ceiling."""
        part = self.part_of_ceiling(line, cell)
        return Cell(percent(part), "†" * bool(self.ladder.skips(line[0]))) if part else Cell("-")

    def speedup(self, line, cell):
        """The baseline's time by its own, as a reader divides them: the baseline is too slow for
        many rounds. That of the paper's lines is the paper's."""
        first = (self.ladder.toml["baseline"] + PAPER, 0) if line in self.paper else self.baseline
        if not first or line == first or self.machines.get(line) != self.machines.get(first):
            return Cell("-")
        times = [self.time(each, cell) for each in (first, line)]
        return Cell(f"{pairs.digits(times[0] / times[1])}×" if all(times) else "-")

    def all_of(self, line, cell):
        """Its time, its speedup and its share of peak, in one cell."""
        parts = [part for part in (self.number(self.ladder.time, line, cell),
                                   self.speedup(line, cell), self.share(line, cell))
                 if part.text != "-"]
        return Cell(", ".join(part.text for part in parts) or "-",
                    "".join(part.marks for part in parts))

    # --- words ---

    @property
    def heading(self):
        """The data and the settings."""
        listed = ", ".join(f"{option} {{{self.ladder.column(option)}}}"
                           for option in self.ladder.settings)
        text = self.ladder.toml.get("heading", listed).format(**{
            name: f"{value:,}" if isinstance(value, Integral) else value
            for name, value in self.settings.items()}).replace("1 epochs", "1 epoch")
        name = self.settings["dataset"]
        names = DATASETS | self.ladder.toml.get("datasets", {})
        return ": ".join(filter(None, (names.get(name, name), text)))

    def repeats(self, lines=None):
        """How many runs a number is of: those of these lines, or of all."""
        counts = [count for key, count in self.runs.size().items()
                  if key[:2] in (lines or self.lines)]
        least, most = min(counts), max(counts)
        return ("one run of each" if most == 1 else
                f"medians of {f'{least} to ' if least < most else ''}{most} runs")

    @functools.cached_property
    def changed(self):
        """The programs whose sources are others now than those that were measured."""
        measured = {*zip(self.counted["sweep"], self.counted["stage"])}
        now = {each.name: each.sources for each in [*self.ladder.stages, *self.ladder.peers]}
        return {row["program"] for row in self.results.programs
                if (row["sweep"], row["program"]) in measured and row["sources"]
                and now.get(row["program"], row["sources"]) != row["sources"]}

    @property
    def all_changed(self):
        return self.changed == {*self.frame["stage"]}

    @property
    def caption(self):
        """The heading, how many runs there are, and how many disturbed ones count nowhere."""
        left_out = len(self.frame) - len(self.counted)
        return (f"{self.heading}; {self.repeats()}" + " of earlier sources" * self.all_changed
                + f", {left_out} disturbed left out" * bool(left_out))

    def title(self, measure):
        return measure["title"] + f" ({self.unit})" * ("unit" in measure)

    @property
    def time_name(self):
        return next((self.title(each) for each in self.ladder.measures
                     if each["column"] == self.ladder.time), f"Time ({self.unit})")


# --- the files ---

class Results:
    """A folder of results of a ladder: {kind: groups, MNIST first}, and the frame of growth. `gpu`
    is that of another machine, of which a GPU's rows are shown as well, under other numbers."""

    def __init__(self, folder, ladder, gpu=None):
        self.folder, self.ladder, self.sweeps = folder, ladder, rows.read_sweeps(folder)
        self.programs = rows.read_record(folder / "programs.csv", rows.PROGRAMS)
        self.plots = folder / "plots"
        self.is_quick = folder.parent.name.endswith("-quick")  # a look, which is no result
        frame = rows.read_rows(folder / "runs.csv", ladder)
        frame = frame.reindex(columns=[*dict.fromkeys((*frame, "setup_s", "sweep", "round"))])
        if gpu:
            its = rows.read_rows(gpu / "runs.csv", ladder)
            frame = pandas.concat([frame, its[its["device"] != "cpu"].assign(sweep=-its["sweep"])],
                                  ignore_index=True)
            self.sweeps |= {-number: known for number, known in rows.read_sweeps(gpu).items()}
            self.programs += [line | {"sweep": -line["sweep"]} for line in rows.read_record(
                gpu / "programs.csv", rows.PROGRAMS)]
        frame["machine"] = [machine_of(self.sweeps.get(sweep, {})) for sweep in frame["sweep"]]
        frame["kind"] = [self.sweeps.get(sweep, {}).get("kind", "grid") for sweep in frame["sweep"]]
        found = rows.records(frame)
        best = {kind: rows.best_rates(row for row in found if row["kind"] == kind)
                for kind in {*frame["kind"]}}
        frame["disturbed"] = [rows.is_disturbed(row, best[row["kind"]]) for row in found]
        frame = frame[frame["device"] != "simulated"]  # by sim/, whose times mean nothing
        self.growth, self.groups = frame[frame["kind"] == "growth"], defaultdict(list)
        names = ["kind", "dataset", *map(ladder.column, ladder.settings)]
        found = frame[frame["kind"] != "growth"].groupby(names)
        for (kind, *settings), part in sorted(found, key=lambda item: item[0][1] != "mnist"):
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
        """{threads: operations a second} of the ladder's numbers."""
        return {threads: rate / self.ladder.width for level, threads, rate in self.roofs
                if level == "flops"}

    @property
    def machine(self):
        """The processor and the GPU, of each machine."""
        found = dict.fromkeys(map(machine_of, self.sweeps.values()))
        return ", and the GPU's rows on ".join(found)

    def why_not(self, stage):
        """Why a stage has no rows, as far as the record says."""
        found = [row["reason"] or row["outcome"] for row in self.programs
                 if row["program"] == stage.name]
        # One that ran did so in other cells.
        return found[-1].rstrip(".") if found and found[-1] != "ran" else "not run"

    def is_wrong(self, stage):
        """Whether what it computed last was wrong. Then it has no rows."""
        found = [row["outcome"] for row in self.programs if row["program"] == stage.name]
        return found[-1:] == ["wrong"]

    @property
    def left_out(self):
        """A line for each reason why the last sweep with a program did not run it."""
        last = {row["program"]: row for row in self.programs}
        return [f"{', '.join(names)}: {reason}" for reason, names in by_reason(
            (name, f"{row['outcome']}: {row['reason']}") for name, row in sorted(last.items())
            if row["reason"]).items()]


def read(folder, ladder, gpu=None):
    """The results in a folder, or None if there are no runs."""
    results = Results(folder, ladder, gpu) if (folder / "runs.csv").exists() else None
    return results if results and results.groups else None


def machine_of(sweep):
    """The processor and the GPU."""
    return "; ".join(sweep[key] for key in ("cpu", "gpu") if sweep.get(key, "none") != "none")


def find_gpu(ladder, folder):
    """The results of the first machine whose GPU has run a ladder, or None if it is `folder`."""
    for path in sorted(HERE.glob(f"results/*/{ladder.name}/runs.csv")):
        devices = {*rows.read_texts(path, ["device"])["device"]}
        if devices - {"cpu", "simulated"}:
            return path.parent if path.parent != folder else None
    return None


def reference(ladder):
    """A ladder's results that READMEs show, or None."""
    name = given("REFERENCE") or rows.read(HERE / "results/reference").strip()
    folder = HERE / "results" / name
    if not folder.is_dir():
        fail(f"REFERENCE: found '{name}', expected a folder of report/results")
    return read(folder / ladder.name, ladder, find_gpu(ladder, folder / ladder.name))


@functools.cache
def changes(stage):
    """How many lines a stage added and removed, against the one before."""
    counts = subprocess.run(
        ["git", "diff", "--no-index", "--histogram", "--numstat", stage.before.source,
         stage.source], stdout=subprocess.PIPE, text=True, check=False).stdout
    return sum(map(int, (counts or "0\t0\t").split("\t")[:2]))
