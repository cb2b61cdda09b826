"""The runs of a ladder that share their kind and settings, and the cells of their tables."""

import functools
from numbers import Integral
from statistics import geometric_mean

import pandas

from bench import pairs, rows
from report.table import Cell, count_of, percent, three_digits

DATASETS = {"mnist": "MNIST", "csv": "train.csv", "synthetic": "SYNTHETIC DIGITS, NOT MNIST",
            "drawn": "random numbers"}
PAPER = ", the paper"  # ends the name of a line of its figures


def is_peer(line):
    """Whether a line (stage, threads) is a peer's."""
    return line[0].startswith("peer_")


def times_as_fast(ratios):
    """1.65 times (0.94 to 2.54 in 12 cells) as fast as."""
    said = f"{geometric_mean(ratios):.2f} times"
    if len(ratios) > 1:
        said += f" ({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} cells)"
    return f"{said} as fast as"


class Group:
    """The runs of a ladder that share their kind and settings. A cell is its place on the ladder's
    axes. A line of a table is (stage, threads), with 0 threads on a GPU."""

    def __init__(self, results, settings, frame):
        """`frame` has the columns of rows, "disturbed", "kind" and "used": its threads, also where
        its line has another number."""
        self.results = results
        self.ladder = results.ladder
        self.settings = settings
        self.axes = [self.ladder.column(axis["option"]) for axis in self.ladder.axes]
        time = self.ladder.time
        place = ["stage", "threads", *self.axes]
        frame = frame.assign(threads=frame["threads"].fillna(0).astype(int))
        self.frame = frame
        # Disturbed runs count only in cells that have no others.
        spoilt = frame.groupby(place)["disturbed"].transform("all")
        self.counted = frame[~frame["disturbed"] | spoilt]
        self.runs = self.counted.groupby(place)
        far = (self.counted[time] / self.runs[time].transform("median") - 1).abs() > rows.NOISY
        self.noisy = {*self.counted[far][place].itertuples(index=False, name=None)}
        self.spoilt = {*frame[spoilt][place].itertuples(index=False, name=None)}
        self.medians = self.runs.median(numeric_only=True).to_dict("index")
        self.lines = sorted({key[:2] for key in self.medians})
        self.cells = sorted({key[2:] for key in self.medians})
        self.on_gpu = {*frame["stage"][frame["device"] != "cpu"]}
        self.machines = dict(zip(zip(frame["stage"], frame["threads"]), frame["machine"]))
        self.on_cpu = [line for line in self.lines if line[0] not in self.on_gpu]
        self.baseline = next((line for line in self.lines
                              if line[0] == self.ladder.toml["baseline"]), None)
        is_short = any(0 < each[time] < 0.001 for each in self.medians.values())
        self.unit = "ms" if is_short else "s"
        self.scale = 1000 if is_short else 1

    def only(self, chosen):
        """The group of some of its runs. All runs, if there are none of these."""
        return Group(self.results, self.settings, self.frame[chosen]) if any(chosen) else self

    def without_steps(self):
        return self.only([is_peer([name]) or "." not in name for name in self.frame["stage"]])

    def with_most_threads(self):
        """One line for each stage: in each cell the runs with the most threads. A small cell may
        have fewer than the line says."""
        frame = self.frame
        most = frame.groupby(["stage", *self.axes])["threads"].transform("max")
        frame = frame[frame["threads"] == most]
        most = frame.groupby("stage")["threads"].transform("max")
        return Group(self.results, self.settings, frame.assign(threads=most))

    @functools.cached_property
    def paper(self):
        """The lines of the paper's figures, now in the medians, if the settings are its own: those
        of ladder.toml, where a row of paper.csv names none."""
        file = self.ladder.folder / "paper.csv"
        ours = {self.ladder.column(option): value
                for option, value in self.ladder.settings.items()}
        found = {(row["stage"] + PAPER, 0, *(row[axis] for axis in self.axes)): row
                 for row in (pandas.read_csv(file).to_dict("records") if file.exists() else ())
                 if all(self.settings[name] == row.get(name, ours[name]) for name in ours)}
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
        of the nearest before it that has the cell, on the same machine. Each may be None."""
        found = {}
        nearest = {}
        for stage in self.ladder.stages:
            above = nearest.get(stage.before)
            line = max((line for line in self.lines
                        if line[0] == stage.name and self.time(line, cell)), default=None)
            is_apart = line and above and self.machines[line] != self.machines[above]
            found[stage] = line, None if is_apart else above
            nearest[stage] = line or above
        return found

    def part_of_ceiling(self, line, cell):
        """The part that a cell reaches of what multiply-adds alone do on as many threads or on the
        GPU. None where that was not measured, and for one that skips what the rate counts."""
        rate = self.median("gflops", line, cell)
        ceiling = self.results.ceilings.get(self.median("used", line, cell))
        if line[0] in self.on_gpu:
            ceiling = self.results.gpu_ceiling
        if not rate or not ceiling or self.ladder.skips(line[0]):
            return None
        return 1e9 * rate / ceiling

    def fastest_peer(self):
        """The CPU peer with the smallest geometric mean of its times, in the cells of all."""
        peers = [line for line in self.lines if is_peer(line) and line[0] not in self.on_gpu]
        cells = [cell for cell in self.cells if all(self.time(line, cell) for line in peers)]
        return min(peers, key=lambda line: geometric_mean(
            self.time(line, cell) for cell in cells)) if peers and cells else None

    @property
    def with_fastest_peer(self):
        peer = self.fastest_peer()
        return [line for line in self.lines if line == peer or not is_peer(line)]

    @property
    def headline(self):
        """The cells that the ladder names, or all, that the baseline has, too."""
        wanted = self.ladder.toml.get("headline", [])
        return [cell for cell in self.shared if [*cell] in wanted] or self.shared

    @property
    def shared(self):
        """The cells that the baseline has, too. Some steps have one of their own."""
        return [cell for cell in self.cells if self.time(self.baseline, cell)] or self.cells

    def best(self, cell):
        """The fastest CPU stage that leaves nothing out: the first, where 1 % lies between."""
        dense = {line: self.time(line, cell) for line in self.on_cpu if self.time(line, cell)
                 and not is_peer(line) and not self.ladder.skips(line[0])}
        least = min(dense.values())
        return next(line for line in dense if dense[line] <= 1.01 * least)

    def gain(self, line, cell):
        """94 times as fast on 2 cores."""
        gain = self.time(self.baseline, cell) / self.time(line, cell)
        return f"{gain:.0f} times as fast on {count_of(line[1], 'core')}"

    def ratios(self, lines, others):
        """How many times as fast the fastest of some lines is as that of others, in each cell."""
        found = []
        for cell in self.cells:
            sides = [{line: self.time(line, cell) for line in side if self.time(line, cell)}
                     for side in (lines, others)]
            if all(sides):
                ratio = self.ratio(*(min(side, key=side.get) for side in sides), cell)
                found += [ratio.median] if ratio else []
        return found

    def against_peers(self):
        """What the fastest stage gains over the fastest peer, both without those that leave
        operations out, and what these gain over the fastest of the others."""
        on_gpu = [line for line in self.lines if line not in self.on_cpu]
        return " ".join([*self.against_peers_on("CPU", self.on_cpu),
                         *self.against_peers_on("GPU", on_gpu)])

    def against_peers_on(self, where, here):
        """The sentences about these lines."""
        dense = [line for line in here if not self.ladder.skips(line[0])]
        stages = [line for line in dense if not is_peer(line)]
        sparse = [line for line in here if line not in dense and not is_peer(line)]
        kind = " dense" if len(dense) < len(here) else ""
        if ratios := self.ratios(stages, [line for line in dense if is_peer(line)]):
            yield (f"On the {where}, the fastest{kind} stage is {times_as_fast(ratios)} the "
                   f"fastest{kind} peer.")
        if ratios := self.ratios(sparse, stages):
            yield f"Without multiplications by zero, the fastest is {times_as_fast(ratios)} that."

    # --- cells ---

    def label(self, line, name=None):
        """The line's name, which may be a link. Without one, it has its threads, too."""
        text = name or line[0]
        if line[1] > 1 and not name:
            text += f", {line[1]} threads"
        is_changed = line[0] in self.changed and not self.all_changed
        skips = self.ladder.skips(line[0])
        return Cell(text, ("†" if skips else "") + ("Δ" if is_changed else ""))

    def marks(self, line, cell):
        return "".join(mark for mark, cells in (("!", self.spoilt), ("~", self.noisy))
                       if (*line, *cell) in cells)

    def number(self, column, line, cell):
        value = self.median(column, line, cell)
        if value is None:
            return Cell("-")
        marks = self.marks(line, cell)
        if column.endswith("_s"):
            return Cell(three_digits(value * self.scale), marks)
        if column.endswith("_mib"):
            return Cell(three_digits(value), marks)
        is_whole = value >= 1000 or (value >= 10 and value.is_integer())
        return Cell(f"{value:,.0f}" if is_whole else f"{value:.4f}")

    def share(self, line, cell):
        part = self.part_of_ceiling(line, cell)
        return Cell(percent(part) if part else "-")

    def speedup(self, line, cell):
        """The baseline's time by its own, as a reader divides them: the baseline is too slow for
        many rounds. That of the paper's lines is the paper's."""
        first = (self.ladder.toml["baseline"] + PAPER, 0) if line in self.paper else self.baseline
        if not first or line == first or self.machines.get(line) != self.machines.get(first):
            return Cell("-")
        times = [self.time(each, cell) for each in (first, line)]
        if not all(times):
            return Cell("-")
        return Cell(f"{pairs.digits(times[0] / times[1])}×",
                    "".join(self.marks(each, cell) for each in (first, line)))

    def has_speedup(self, line):
        return any(self.speedup(line, cell).text != "-" for cell in self.cells)

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
        listed = ", ".join(f"{option} {{{self.ladder.column(option)}}}"
                           for option in self.ladder.settings)
        text = (self.ladder.toml["heading"] or listed).format(**{
            name: f"{value:,}" if isinstance(value, Integral) else value
            for name, value in self.settings.items()}).replace("1 epochs", "1 epoch")
        name = self.settings["dataset"]
        names = DATASETS | self.ladder.toml.get("datasets", {})
        return ": ".join(filter(None, (names.get(name, name), text)))

    def repeats(self, lines=None):
        """How many runs a number is of: those of these lines, or of all."""
        counts = [count for key, count in self.runs.size().items()
                  if key[:2] in (lines or self.lines)]
        least = min(counts)
        most = max(counts)
        if most == 1:
            return "one run of each"
        return f"medians of {most} runs" if least == most else f"medians of {least} to {most} runs"

    @property
    def programs(self):
        """The rows of programs.csv of what was measured."""
        measured = {*zip(self.counted["sweep"], self.counted["stage"])}
        return [row for row in self.results.programs if (row["sweep"], row["program"]) in measured]

    @functools.cached_property
    def changed(self):
        """The programs whose sources are others now than those that were measured."""
        now = {each.name: each.sources for each in [*self.ladder.stages, *self.ladder.peers]}
        return {row["program"] for row in self.programs
                if row["sources"] and now.get(row["program"], row["sources"]) != row["sources"]}

    @property
    def all_changed(self):
        return self.changed == {*self.frame["stage"]}

    @property
    def caption(self):
        """The heading, how many runs there are, and how many disturbed ones count nowhere."""
        left_out = len(self.frame) - len(self.counted)
        said = f"{self.heading}; {self.repeats()}"
        if self.all_changed:
            said += " of earlier sources"
        if left_out:
            said += f", {left_out} disturbed left out"
        return said

    def title(self, measure):
        return f"{measure['title']} ({self.unit})" if "unit" in measure else measure["title"]

    @property
    def time_name(self):
        return next((self.title(each) for each in self.ladder.measures
                     if each["column"] == self.ladder.time), f"Time ({self.unit})")
