"""What there is to show of results. It is computed here, and templates/ has the words: those of the
page, the READMEs, the terminal and the page of a class are the same.

results/MACHINE/LADDER has runs.csv, sweeps.csv and programs.csv (harness/rows.py), and steps/ with
the same files: all stages and steps in two cells. Only runs with the same settings share a table.
"""

import functools
import itertools
import math
import os
import re
import subprocess
import sys
import textwrap
from collections import defaultdict
from pathlib import Path
from statistics import fmean, geometric_mean, median
from types import SimpleNamespace
from urllib.parse import quote

from harness import pairs, rows, running
from harness.ladders import fail, printable
from harness.rows import write

try:
    import jinja2
    import pandas
    from markupsafe import Markup
except ImportError as missing:
    fail(f"{missing}, for {sys.executable} (Debian's python3-pandas and python3-jinja2)", 1)

HERE = Path(__file__).resolve().parent
DATASETS = {"mnist": "MNIST", "csv": "train.csv", "synthetic": "SYNTHETIC DIGITS, NOT MNIST",
            "drawn": "random numbers"}
SPEEDUP = "speedup"  # the measure that no row has
WITH_SETUP = "with_setup_s"  # the column that no row has
MARKER = "<!-- {}: {} -->"  # a name of BLOCKS, "begin" or "end"
HEADLINE_LINES = 8
WIDTH = 80  # of a terminal
SKIPS, CHANGED = "†", "Δ"
LIMIT = f"more than {100 * rows.NOISY:.0f} % from the median"
# The columns of epochs(), beside the ladder's time. A row has them all, or the table is left out.
EPOCHS = {
    "epoch_s": "average time of an epoch (s)",
    "samples_per_s": "average throughput (1000 samples/s)",
    "test_accuracy": "final test accuracy (%)", "best_test_accuracy": "best test accuracy (%)",
    "peak_rss_mib": "peak memory (MiB)", "peak_vram_mib": "peak device memory (MiB)"}
EPOCHS_MEMORY = "rss_mib"  # the column of epochs.csv, whose mean epochs() has too


# --- text, Markdown and templates ---

def url(path):
    """A path in the form that a link needs."""
    return quote(os.fsencode(path))


def markdown(text):
    """Escapes any text, in one line, so that Markdown shows it as it is: `|` ends no cell, an
    address is no link, and a line begins no list. An underscore within a word stays, and so does
    an ampersand that begins no entity. `<` becomes an entity, so that no text has a MARKER."""
    text = re.sub(r"[\\`*|\[\]~$@]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])|^[-+>#=]|"
                  r":(?=//|[\w+-]+:)|\.(?<=www.)", r"\\\g<0>", printable(text))
    return re.sub(r"^(\d+)([.)])(?!\S)", r"\1\\\2", text).replace("<", "&lt;")


def grid(heads, lines, last="---:"):
    """A table in Markdown, of texts and of Markup. An empty cell stays, and so does a dash."""
    def line(cells):
        return " | ".join(str(cell if isinstance(cell, Markup) or cell in ("", "-") else
                              markdown(cell)) for cell in cells)
    rules = ["---", *["---:"] * (len(heads) - 2), last]
    return Markup("\n".join(["| " + line(heads).lstrip() + " |", f"| {' | '.join(rules)} |",
                             *(f"| {line(each)} |" for each in lines), ""]))


def link(text, path, folder):
    """A link in Markdown, on a page in `folder`."""
    return Markup(f"[{markdown(text)}]({url(os.path.relpath(path, folder))})")


def environment(**options):
    """Templates in which `view` is this module."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"), undefined=jinja2.StrictUndefined,
        auto_reload=False, trim_blocks=True, lstrip_blocks=True, **options)
    made.globals |= {"view": sys.modules[__name__], "pairs": pairs, "rows": rows}
    made.tests["matching"] = lambda text, pattern: re.search(pattern, text)
    made.filters |= {
        "wrap": textwrap.fill, "columns": columns,
        "link": lambda path, folder: Markup(url(os.path.relpath(path, folder)))}
    return made


def render(made, template, **values):
    """A template's text, without blanks at the ends of lines and of the text."""
    text = made.get_template(template).render(**values)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)).strip("\n")


def plural(number, thing):
    return f"{number} {thing}{'' if number == 1 else 's'}"


def listing(things):
    """a; a and b; a, b and c."""
    return " and ".join(filter(None, (", ".join(things[:-1]), things[-1])))


def three_digits(value):
    """0.0971, 3.96, 71.8, 641, 1203."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"


def percent(part):
    """0.9 %, 12 %."""
    return f"{100 * part:.{1 if part < 0.1 else 0}f} %"


def columns(sheet, across):
    """A sheet of a group's as lines of a terminal. Columns that do not fit beside the others stand
    below."""
    lines = [(name, cells) for name, cells in sheet if cells]
    margin = max(len(name) for name, _ in lines)
    width, room = (max(len(cell[part]) for _, cells in lines for cell in cells) for part in (0, 1))
    fitting = max(1, (across - margin) // (2 + width + room))
    return "\n\n".join(
        "\n".join(f"{name:<{margin}}" + "".join(f"  {number:>{width}}{sign:<{room}}"
                                                for number, sign in cells[start:start + fitting])
                  for name, cells in sheet)
        for start in range(0, len(lines[0][1]), fitting))


# Nothing reaches Markdown unescaped but what a template itself says.
TEXT = environment()
MARKDOWN = environment(autoescape=True, finalize=lambda value: (
    value if isinstance(value, Markup) else Markup(markdown(str(value)))))


def words(macro, *arguments):
    """What a macro of words.j2 says, in one line."""
    text = getattr(TEXT.get_template("words.j2").module, macro)(*arguments)
    return " ".join(text.split())


def signs(text):
    """What the signs in a text mean: a list of clauses."""
    return [*filter(None, re.split(r" ?\| ?", words("signs", text)))]


def label(line):
    stage, threads = line
    return f"{stage}, {threads} threads" if threads else stage


def short_label(line):
    stage, threads = line
    return f"{stage} ({threads})" if threads else stage


def is_peer(line):
    return line[0].startswith("peer_")


def is_step(line):
    return not is_peer(line) and "." in line[0]


def line_of(stage, threads):
    """The line of a table that a row belongs to. An empty number of threads is None or NaN."""
    return stage, int(threads) if threads and threads > 1 else 0


# --- the runs ---

def or_nothing(reader, path, *arguments):
    return reader(path, *arguments) if path.exists() else None


def read_runs(path, ladder):
    return rows.records(rows.read_rows(path, ladder))


def read_epochs(path, ladder):
    axes = [ladder.column(axis["option"]) for axis in ladder.axes]
    return rows.records(rows.read_rows(path, ladder, [
        "stage", "device", "threads", "dataset", *rows.EPOCHS, *axes]))


def farthest(values):
    """How far the value that is farthest from the median is above it, as a part of it."""
    middle = median(values)
    return max((value / middle - 1 for value in values), key=abs) if middle else 0.0


class Group:
    """The runs of a ladder that share their settings. A cell is its place on the ladder's axes. A
    line of a table is (stage, threads), with 0 threads for one or none."""

    def __init__(self, ladder, settings, runs, folder=None):
        """`runs` are rows, each {column: value}, or a frame of them. Its column "used" has the
        threads of runs that may have fewer than their line."""
        self.ladder, self.settings, self.folder = ladder, settings, folder
        axes = [ladder.column(axis["option"]) for axis in ladder.axes]
        known = {*rows.TEXTS, *rows.parameters(ladder), "disturbed", "place", WITH_SETUP}
        frame = pandas.DataFrame(runs)
        frame = frame.reindex(columns=[*dict.fromkeys((
            *frame.columns, *axes, "stage", "device", "threads", "disturbed", "sweep", "round",
            ladder.time, "setup_s"))])
        frame["used"] = frame["used" if "used" in frame else "threads"]
        numbers = [name for name in frame if name not in known]
        frame[numbers] = frame[numbers].astype(float)  # an empty field is NaN
        frame["disturbed"] = frame["disturbed"].eq(True)
        frame[WITH_SETUP] = frame[ladder.time] + frame["setup_s"].fillna(0)
        places = [*zip(map(line_of, frame["stage"], frame["threads"]),
                       zip(*(frame[axis] for axis in axes)) if axes else [()] * len(frame))]
        self.places = {place: number for number, place in enumerate(dict.fromkeys(places))}
        frame["place"] = [self.places[place] for place in places]
        self.lines = sorted({line for line, _ in places})
        self.cells = sorted({cell for _, cell in places})
        self.pages = sorted({cell[:-1] for cell in self.cells})
        self.columns = sorted({cell[-1:] for cell in self.cells})
        self.gpu_lines = {line for (line, _), device in zip(places, frame["device"])
                          if device != "cpu"}
        by_place = frame.groupby("place")
        self.counts = by_place.size().to_dict()
        self.all_once = all(count == 1 for count in self.counts.values())
        # The runs of a place that count: those that were not disturbed, or else all.
        whole = by_place["disturbed"].transform("all")
        self.all_disturbed = {*frame["place"][whole]}
        self.counted = frame[~frame["disturbed"] | whole]
        self.frame, by_place = frame, self.counted.groupby("place")
        self.indices, numbers = by_place.indices, by_place[[*numbers, WITH_SETUP]]
        # A peer may not tell the phases apart. So a measure needs a value in each run of a place.
        is_whole = numbers.count().eq(by_place.size(), axis=0)
        self.medians = numbers.median().where(is_whole).to_dict()  # {column: {place: median}}
        self.rounds_of = {}
        self.baseline = next((line for line in self.lines
                              if line[0] == ladder.toml["baseline"]), None)
        times = [time for time in self.medians[ladder.time].values() if time > 0]
        self.scale, self.unit = (1000, "ms") if times and min(times) < 0.001 else (1, "s")
        # {column: (title, unit, factor)}
        self.measures = {ladder.time: ("Time", self.unit, self.scale)} | {
            each["column"]: (each["title"], *((self.unit, self.scale) if each.get("unit") == "s"
                                              else (each.get("unit", ""), 1)))
            for each in ladder.measures}
        if self.baseline:
            self.measures[SPEEDUP] = f"Speedup over {label(self.baseline)}", "", 1

    def of(self, frame):
        """A group of other runs of the same settings."""
        return Group(self.ladder, self.settings, frame, self.folder)

    def without_steps(self):
        """The runs of the stages and peers only. All runs, if there are no others."""
        stages = self.frame[[not is_step((stage,)) for stage in self.frame["stage"]]]
        return self.of(stages) if len(stages) else self

    def with_most_threads(self):
        """One line for each stage, with the most threads that it has run with. A cell has its runs
        with the most threads. They may be fewer, because a stage cannot always use all."""
        threads = self.frame["threads"].fillna(0)
        kind = [self.frame["stage"], self.frame["device"] != "cpu"]
        cell = self.frame["place"].map({place: str(cell)
                                        for (_, cell), place in self.places.items()})
        chosen = threads == threads.groupby([*kind, cell]).transform("max")
        return self.of(self.frame.assign(
            threads=threads.groupby(kind).transform("max"))[chosen])

    @property
    def home(self):
        """The machine's folder."""
        own = self.folder if self.folder.parent.name else self.folder.absolute()
        return own.parents[own.name == "steps"]

    @functools.cached_property
    def steps(self):
        """The runs of all stages and steps in two cells, which have a folder of their own, or
        None."""
        return self if self.folder.name == "steps" else next(iter(or_nothing(
            read_groups, self.folder / "steps/runs.csv", self.ladder) or ()), None)

    @functools.cached_property
    def runs(self):
        """{(line, cell): its runs}, each {column: value}, with None for an empty field."""
        plain = self.frame.drop(columns=["place", "disturbed", "used", WITH_SETUP]).astype(object)
        found = defaultdict(list)
        places, known = [*self.places], plain.where(plain.notna(), None).to_dict("records")
        for number, run in zip(self.frame["place"], known):
            found[places[number]].append(run)
        return found

    # --- numbers ---

    def values(self, measure, line, cell):
        """The measure of each run of a cell that counts. Empty for a cell without it."""
        if self.median(measure, line, cell) is None:
            return []
        return self.counted[measure].to_numpy()[
            self.indices[self.places[line, cell]]].tolist()

    def median(self, measure, line, cell):
        """The median over the runs of a cell that count, or None."""
        found = self.medians.get(measure, {}).get(self.places.get((line, cell)), math.nan)
        return None if math.isnan(found) else found

    def time(self, line, cell):
        return self.median(self.ladder.time, line, cell)

    def rounds(self, column):
        """{place: its seconds in each round of each sweep}. NaN where it has none."""
        if column not in self.rounds_of:
            table = self.counted.pivot_table(index=["sweep", "round"], columns="place",
                                             values=column, aggfunc="last")
            self.rounds_of[column] = dict(zip(table.columns, table.to_numpy().T))
        return self.rounds_of[column]

    def ratio(self, line, other, cell, column=None):
        """How many times as fast as another line's cell, a pairs.Ratio, in the ladder's time or in
        this column. None where no round has both."""
        rounds = self.rounds(column or self.ladder.time)
        times, others = (rounds.get(self.places.get((each, cell))) for each in (line, other))
        if times is None or others is None:
            return None
        both = (times > 0) & (others > 0)
        return pairs.ratio(times[both].tolist(), others[both].tolist())

    def ratio_text(self, line, other, cell):
        ratio = self.ratio(line, other, cell)
        return ratio.text if ratio else "-"

    def used(self, line, cell):
        """The threads of a cell's runs: those of its line, or fewer."""
        return line_of(line[0], self.median("used", line, cell) or 0)[1]

    def rungs(self, cell):
        """{stage: (line, above)} of the whole ladder: the stage's line with most threads, and that
        of the stage before it, or of the nearest before that, which has the cell. Each may be
        None."""
        found, nearest = {}, {}
        for stage in self.ladder.stages:
            above = nearest.get(stage.before)
            line = max((line for line in self.lines
                        if line[0] == stage.name and self.time(line, cell)), default=None)
            found[stage], nearest[stage] = (line, above), line or above
        return found

    def is_noisy(self, measure, line, cell):
        """Whether one of the runs behind a number is too far from their median."""
        values = self.values(measure, line, cell)
        return bool(values) and abs(farthest(values)) > rows.NOISY

    @property
    def disturbed(self):
        """How many runs were disturbed."""
        return int(self.frame["disturbed"].sum())

    def lines_of(self, measure, page=()):
        """The lines of the measure's table: those that have it in any cell of this page, or in any
        at all."""
        def has(line, cell):
            return (line != self.baseline and self.ratio(line, self.baseline, cell) is not None
                    if measure == SPEEDUP else self.median(measure, line, cell) is not None)
        return [line for line in self.lines
                if any(has(line, cell) for cell in self.cells if cell[:len(page)] == page)]

    def is_on_cpu(self, line):
        return line not in self.gpu_lines

    @functools.cached_property
    def strays(self):
        """The (stage, cell) that do not compute the same as the others."""
        return running.strays([run for runs in self.runs.values() for run in runs], self.ladder)

    @functools.cached_property
    def changed(self):
        """The names of the programs whose sources are others now than those that were measured."""
        sources = {(row["sweep"], row["program"]): row["sources"]
                   for row in rows.read_programs(self.folder) if row["sources"]}
        measured = {(sweep, name) for sweep, name in zip(self.counted["sweep"],
                                                         self.counted["stage"])} & sources.keys()
        now = {each.name: each.sources for each in [*self.ladder.stages, *self.ladder.peers]
               if any(each.name == name for _, name in measured)}
        return {name for sweep, name in measured
                if now.get(name, sources[sweep, name]) != sources[sweep, name]}

    @functools.cached_property
    def ceilings(self):
        """{"flops", "L1", ..., "memory": {threads: rate}} from what `make bench` has written to the
        folder of results or to the machine's folder above it. A quick look's are those of the
        machine. The operations are the ladder's."""
        found = defaultdict(lambda: defaultdict(list))
        places = {self.folder, self.home,
                  self.home.parent / self.home.name.removesuffix("-quick")}
        for path in sorted(path for place in places for path in place.glob("bench/*.json")):
            for level, threads, rate in or_nothing(rows.read_ceilings, path) or ():
                found[level][threads].append(
                    rate / self.ladder.width if level == "flops" else rate)
        return {level: {threads: median(rates) for threads, rates in by_threads.items()}
                for level, by_threads in found.items()}

    @functools.cached_property
    def growth(self):
        """The runs of growth/ that have the same data. A GPU has one thread."""
        path = self.folder / "growth/runs.csv"
        return [{**run, "threads": run["threads"] or 1}
                for run in or_nothing(read_runs, path, self.ladder) or ()
                if run["dataset"] == self.settings["dataset"] and run[self.ladder.time]
                and run["device"] != "simulated"]

    @functools.cached_property
    def epochs(self):
        """{(line, cell): [the rows of a run, in the order of its epochs]} from epochs.csv, for the
        runs with these settings. A run that was interrupted has too few rows, and is left out."""
        path, runs, found = self.folder / "epochs.csv", defaultdict(list), defaultdict(list)
        for row in or_nothing(read_epochs, path, self.ladder) or ():
            if row["device"] != "simulated" and all(row.get(name, value) == value
                                                    for name, value in self.settings.items()):
                runs[line_of(row["stage"], row["threads"]), rows.cell_of(row, self.ladder),
                     row["run"]].append(row)
        for (line, cell, _), run in runs.items():
            if (line, cell) in self.places and len(run) == self.settings.get("epochs", len(run)):
                found[line, cell].append(sorted(run, key=lambda row: row["epoch"]))
        return found

    def ceiling(self, line):
        """The operations a second that multiply-adds alone reach with as many threads as the line
        has, or the bytes that reads alone do in a ladder that is bound by memory. None where that
        was not measured, for a GPU, because the ceilings are the CPU's, and without a line."""
        level = "memory" if self.is_bound_by_memory else "flops"
        return (self.ceilings.get(level, {}).get(line[1] or 1)
                if line and self.is_on_cpu(line) else None)

    @property
    def is_bound_by_memory(self):
        return self.ladder.toml["bound"] == "memory"

    def part_of_ceiling(self, line, cell):
        """The part of its line's ceiling that a cell reaches. None where there is no ceiling, or
        where the cell has fewer threads."""
        rate, ceiling = self.median("gflops", line, cell), self.ceiling(line)
        if not rate or not ceiling or self.used(line, cell) != line[1]:
            return None
        if self.is_bound_by_memory:
            row = self.runs[line, cell][0]
            moved = sum(self.ladder.work(row, phase, "bytes") or 0 for phase in self.ladder.phases)
            return moved / self.time(line, cell) / ceiling or None
        return 1e9 * rate / ceiling

    def fastest_peer(self):
        """(line, cells): the CPU peer with the smallest geometric mean of its times, and the number
        of cells in that mean. These are the cells that all CPU peers have. (None, 0) if there are
        none."""
        peers = [line for line in self.lines if is_peer(line) and self.is_on_cpu(line)]
        cells = [cell for cell in self.cells if all(self.time(line, cell) for line in peers)]
        if not peers or not cells:
            return None, 0
        return min(peers, key=lambda line: geometric_mean(
            self.time(line, cell) for cell in cells)), len(cells)

    def against_peers(self, on_cpu=True):
        """The headline: how many times as fast as the fastest peer the fastest stage is, over the
        cells that have both, or None. What a run does before the clock counts, but not on a GPU,
        where setup_s has the context, and not where the time is that of one pass of many. A cell
        whose fastest two share no round is left out."""
        with_setup = on_cpu and "seconds" not in self.settings
        column, found = WITH_SETUP if with_setup else self.ladder.time, []
        for cell in self.cells:
            seconds = {line: self.median(column, line, cell) for line in self.lines
                       if self.time(line, cell) and self.is_on_cpu(line) == on_cpu}
            sides = [[line for line in seconds if is_peer(line) == kind] for kind in (True, False)]
            if all(sides):
                peer, stage = (min(side, key=seconds.get) for side in sides)
                found.append(self.ratio(stage, peer, cell, column))
        ratios = [ratio.median for ratio in found if ratio]
        return SimpleNamespace(
            on_cpu=on_cpu, with_setup=with_setup, mean=geometric_mean(ratios), low=min(ratios),
            high=max(ratios), cells=len(ratios), of=len(found)) if ratios else None

    # --- in words ---

    def heading(self):
        """The data and the settings."""
        listed = ", ".join(f"{option} {{{self.ladder.column(option)}}}"
                           for option in self.ladder.settings)
        text = self.ladder.toml.get("heading", listed).format(
            **{name: f"{value:,}" if type(value) is int else value
               for name, value in self.settings.items()})
        name = self.settings["dataset"]
        names = DATASETS | self.ladder.toml.get("datasets", {})
        return ": ".join(filter(None, (names.get(name, name),
                                       re.sub(r"\b1 (\w+)s\b", r"1 \1", text))))

    def repeats(self):
        """What the number in a cell is, and how many runs were disturbed."""
        of_line = defaultdict(set)
        for (line, _), number in self.places.items():
            of_line[line].add(self.counts[number])
        return words("repeats", self, {*self.counts.values()},
                     [label(line) for line in self.lines if of_line[line] == {1}])

    def conditions(self, table):
        """What the numbers in a table are: the data, the runs of a cell, and the signs."""
        return "; ".join([self.heading(), self.repeats(), *signs(table)])

    def label(self, line):
        """The line's label, with a sign if the program's sources have changed."""
        return f"{label(line)}{f' {CHANGED}' * (line[0] in self.changed)}"

    def short_label(self, line):
        return f"{short_label(line)}{f' {CHANGED}' * (line[0] in self.changed)}"

    def mark(self, line):
        """The sign of a line that leaves out operations which its rates count, or ""."""
        return SKIPS if self.ladder.skips(line[0]) else ""

    def title(self, measure):
        title, unit, _ = self.measures[measure]
        return f"{title} ({unit})" if unit else title

    def time_name(self):
        title = self.measures[self.ladder.time][0]
        return title[:1].lower() + title[1:]

    def number(self, measure, value):
        """A value in the unit that title() names: three digits of a measured one, four or more of
        one that is computed."""
        if value is None:
            return "-"
        _, unit, factor = self.measures[measure]
        if unit:
            return three_digits(factor * value)
        if value >= 10 and (2 * value).is_integer():  # a count, or the middle of two
            return f"{value:g}"
        return f"{value:.4f}" if abs(value) >= 0.1 or not value else f"{value:.4g}"

    def marks(self, measure, line, cell):
        """The signs of a cell: another result, all runs disturbed, a run far from the median."""
        if (line, cell) not in self.places:
            return ""
        return ("≠" * ((line[0], cell) in self.strays)
                + "↓" * (self.places[line, cell] in self.all_disturbed)
                + "~" * self.is_noisy(measure, line, cell))

    def texts(self, measure, line, cell):
        """A cell of a table for a terminal: its number, and what stands after it. It is ~ for a
        noisy cell. After the time stands how far off the farthest run is, such as +2% or ~12%."""
        if measure == SPEEDUP:
            return self.ratio_text(line, self.baseline, cell), ""
        values = self.values(measure, line, cell)
        if not values:
            return "-", ""
        marks, off = self.marks(measure, line, cell), 100 * farthest(values)
        sign = " ~" if "~" in marks else ""
        if measure == self.ladder.time and len(values) > 1:
            sign = f" ~{abs(off):.0f}%" if sign else f" {off:+.0f}%"
        elif measure == self.ladder.time and not self.all_once:
            sign = " once"
        return self.number(measure, self.median(measure, line, cell)), marks.strip("~") + sign

    def signed(self, measure, line, cell):
        """A number with its unit, and with its signs before it."""
        number = self.number(measure, self.median(measure, line, cell))
        unit = self.measures[measure][1]
        return f"{self.marks(measure, line, cell)}{number}{unit and ' '}{unit}"

    def ranged(self, measure, line, cell, with_unit=True):
        """A number with the range of its runs: 0.373 s (0.366 to 0.412), or 64.4 s once. Without
        one, if it is no measured time."""
        values, (_, unit, _) = self.values(measure, line, cell), self.measures[measure]
        if not values:
            return "-"
        text = self.signed(measure, line, cell)
        text = text if with_unit else text.removesuffix(f" {unit}")
        if not unit or (len(values) == 1 and self.all_once):
            return text
        low, high = (self.number(measure, value) for value in (min(values), max(values)))
        return f"{text} ({low} to {high})" if len(values) > 1 else f"{text} once"

    def summary(self, line, others, cell):
        """A cell in words: its time, how many times as fast it is as each of the other lines, and
        its part of the ceiling."""
        part = self.part_of_ceiling(line, cell)
        return [self.ranged(self.ladder.time, line, cell, with_unit=False),
                *(self.ratio_text(line, other, cell) for other in others),
                percent(part) + self.mark(line) if part else "-"]

    def sheets(self, page):
        """The tables of a page for a terminal, each [(label, [(number, sign)] by column)]: the
        measures, and the speedups, whose columns are wider. A title has no cells."""
        axes = self.ladder.axes
        heads = [(f"{axis['name']} {value}", []) for axis, value in zip(axes, page)]
        heads += [(axis["name"], [(str(value), "") for value, in self.columns])
                  for axis in axes[-1:]]
        for is_speedup in (False, True):
            sheet = []
            for measure in (name for name in self.measures if (name == SPEEDUP) == is_speedup):
                lines = self.lines_of(measure, page if is_speedup else ())
                sheet += [(self.title(measure), []), *(
                    (f"  {self.short_label(line)}",
                     [self.texts(measure, line, page + column) for column in self.columns])
                    for line in lines)] if lines else []
            if sheet:
                yield heads + sheet


# --- the files ---

def read(path):
    return rows.read(path) if path.exists() else ""


def read_groups(path, ladder):
    """The groups in a file of rows. MNIST comes first. An empty file has none."""
    names = ["dataset", *(ladder.column(option) for option in ladder.settings)]
    groups, runs = defaultdict(list), rows.records(rows.read_rows(path, ladder))
    best = rows.best_rates(runs)
    for run in runs:
        if run["device"] != "simulated":  # by sim/, whose times mean nothing
            run["disturbed"] = rows.is_disturbed(run, best)
            groups[tuple(run[name] for name in names)].append(run)
    return [Group(ladder, dict(zip(names, settings)), runs, path.parent)
            for settings, runs in sorted(groups.items(), key=lambda item: (item[0][0] != "mnist",
                                                                           item[0]))]


def is_quick(groups):
    """Whether the runs are a quick look, which is no result."""
    return groups[0].home.name.endswith("-quick")


def find(ladder):
    """A ladder's results, machine by machine: the groups of its runs, or of its steps' where there
    are no others. Those that were moved aside lie deeper."""
    found = (or_nothing(read_groups, folder / ladder.name / "runs.csv", ladder)
             or or_nothing(read_groups, folder / ladder.name / "steps/runs.csv", ladder)
             for folder in sorted((HERE / "results").glob("*/")))
    return [*filter(None, found)]


def named(page, found):
    """Those of the results that a README's headline is about. If it has none yet, the first."""
    name = re.search(r"(?<!!)\[[^]]*\]\([^()]*\breport/results/([^/)]+)", read(page))
    return next((groups for groups in found
                 if name and url(groups[0].home.name) == name[1]), (found or [None])[0])


def stepped(shown, found):
    """Those of the results that a README's whole ladder is about: of the headline's machine, or of
    another one where only that has the many rounds of steps/."""
    return shown if not shown or shown[0].steps else next(
        (groups for groups in found if groups[0].steps and not is_quick(groups)), shown)


def read_paper(ladder):
    """The figures of the ladder's paper."""
    file = ladder.toml.get("paper", {}).get("file")
    needed = ["stage", *(ladder.column(axis["option"]) for axis in ladder.axes)]
    return Group(ladder, {}, rows.records(rows.read_rows(ladder.folder / file, ladder, needed)) if file else [])


def paper_for(group, paper):
    """The paper's figures, if they may stand beside the group's: for runs with the ladder's own
    settings, or with those that the paper's replace. Otherwise, none."""
    ladder = group.ladder
    theirs = ladder.settings | ladder.toml.get("paper", {}).get("settings", {})
    usual = all(group.settings[ladder.column(option)] == value for option, value in theirs.items())
    return paper if usual else Group(ladder, {}, [])


def machine(folder):
    """The machine's name."""
    fields = next(iter(rows.read_sweeps(folder).values()), {})
    return words("machine", [fields[key] for key in ("cpu", "gpu")
                             if fields.get(key, "none") != "none"])


def origin(folder):
    """The machine, and what in its sweeps the reader should know of."""
    changed, busy = [], []
    for fields in rows.read_sweeps(folder).values():
        revision, comma, _ = fields.get("revision", "").partition(",")
        changed += [revision] * bool(comma)
        others = or_nothing(percentage, folder / "sweeps.csv", fields.get("others"))
        busy += [others] * bool(others and others > rows.limit("OTHERS", rows.OTHERS))
    return words("origin", machine(folder), dict.fromkeys(changed), busy)


def percentage(path, text):
    """What others used of the processors before a sweep, or None. The path is for the message."""
    try:
        return float(text) if text else None
    except ValueError:
        fail(f"{path}: others: found '{text}', expected a number")


def facts(folder):
    """What the results in a folder were made with, and when. Empty if nobody knows."""
    found = ("; ".join(fields[key] for key in ("compiler", "revision", "began") if key in fields)
             for fields in rows.read_sweeps(folder).values())
    return ". ".join(filter(None, found))


def why_not(group, stage):
    """Why a stage has no rows, as far as the record says."""
    found = [row["reason"] or row["outcome"] for row in rows.read_programs(group.folder)
             if row["program"] == stage.name]
    return found[-1] if found and found[-1] != "ran" else "not run"  # or ran in other cells


def by_reason(found):
    """{reason: [things]} of (thing, reason)."""
    things = defaultdict(list)
    for thing, reason in found:
        things[reason].append(thing)
    return things


def share_reasons(notes):
    """A line for each reason, with all the stages that have it. A note is "stage: reason"."""
    shared = by_reason((note.partition(": ")[0], note.partition(": ")[2]) for note in notes)
    return [f"{', '.join(names)}: {reason}" for reason, names in shared.items()]


def left_out(folder):
    """Why the last sweep with some programs did not run them, a line for each reason."""
    last = {row["program"]: row for row in rows.read_programs(folder)}
    return share_reasons(f"{name}: {row['outcome']}: {row['reason']}"
                         for name, row in sorted(last.items()) if row["reason"])


def reasons(group):
    """Why stages have no runs in the group, a line for each reason. Steps are not missed."""
    names = {name for name, _ in group.lines}
    return share_reasons(f"{stage.name}: {why_not(group, stage)}" for stage in group.ladder.stages
                         if not stage.is_step and stage.name not in names)


def move(stage):
    """A stage's idea in some words."""
    return stage.declared("MOVE")


@functools.cache
def changed_lines(stage, *options):
    """(added, removed): what a stage changed against the one before."""
    try:
        counts = subprocess.run(
            ["git", "diff", "--no-index", "--histogram", "--numstat", *options,
             stage.before.source, stage.source],
            stdout=subprocess.PIPE, encoding="utf-8", errors="replace", check=False).stdout
    except OSError as error:
        fail(f"git: {error.strerror}", 1)
    return tuple(map(int, (counts or "0\t0\t").split("\t")[:2]))


def changes(stage):
    """69, or 69 (33) if only 33 of the changed lines differ in more than white space."""
    changed, without = (sum(changed_lines(stage, *options)) for options in ((), ("-w",)))
    return f"{changed} ({without})" if without != changed else str(changed)


# --- what is shown of them ---

def cell_name(ladder, cell):
    """A cell in words: 32 hidden, batch 64."""
    options = [axis["option"] for axis in ladder.axes]
    pages = [f"{option} {value}" for option, value in zip(options[:-1], cell)]
    return ", ".join([f"{value} {option}" for option, value in zip(options[-1:], cell[-1:])]
                     + pages) or "each run"


def ladder_cell(group):
    """The cell that the whole ladder is shown for: that of `make step`, if there are runs of it."""
    options = group.ladder.toml["step"]
    cell = tuple(options.get(axis["option"]) for axis in group.ladder.axes)
    return cell if cell in group.cells else headline_cells(group)[-1]


def headline_cells(group):
    """The cells that stand for all of them: those of ladder.toml, if there are runs of each. Or
    else the first, one in the middle and the last."""
    cells = [tuple(cell) for cell in group.ladder.toml.get("headline", [])]
    if not cells or not set(cells) <= set(group.cells):
        cells = [group.cells[i] for i in (0, len(group.cells) // 2, -1)]
    return list(dict.fromkeys(cells))


def headline_lines(group):
    """The first stage, the last ones and the fastest CPU peer: eight lines at most."""
    peer, _ = group.fastest_peer()
    lines = [line for line in group.lines if not is_peer(line)]
    most = HEADLINE_LINES - (peer is not None)
    if len(lines) > most:
        lines = lines[:1] + lines[1 - most:]
    return lines + ([peer] if peer else [])


def heads(group):
    """The first line of a table of measurements."""
    axes = group.ladder.axes
    return [axes[-1]["name"] if axes else "",
            *(str(column[0]) if column else "each run" for column in group.columns)]


def table(group, paper, measure):
    """The table of one measure, as (kind, name, cells): a "page" for each value of the first axis,
    which has no cells; a "line" for each line that has any; below it, the "paper" with its figures
    for the same stage."""
    lines = group.lines_of(measure)
    lines += [line for line in paper.lines if line[0] not in dict(lines) and line != group.baseline
              and any(paper.median(measure, line, cell) for cell in group.cells)]
    for page in group.pages:
        if page:
            yield "page", f"{group.ladder.axes[0]['option']} {page[0]}", []
        for line in sorted(lines):
            ours = [group.ratio_text(line, group.baseline, page + column) if measure == SPEEDUP else
                    group.ranged(measure, line, page + column, with_unit=False)
                    for column in group.columns]
            if line in group.lines:
                yield "line", group.label(line), ours
            theirs = [paper.median(measure, (line[0], 0), page + column)
                      for column in group.columns]
            if any(theirs):
                yield "paper", line[0], [group.number(measure, number) for number in theirs]


def cell_text(group, line, cell, rate=False, speedup=True):
    """What there is to say of a cell: its time, the rate and the speedup if wanted, and its part of
    the ceiling."""
    if group.time(line, cell) is None:
        return "-"
    texts = [group.ranged(group.ladder.time, line, cell)]
    gflops, part = group.median("gflops", line, cell), group.part_of_ceiling(line, cell)
    if rate and gflops is not None:
        texts.append(f"{three_digits(gflops)} GFLOP/s{group.mark(line)}")
    if speedup and line != group.baseline and group.ratio(line, group.baseline, cell):
        texts.append(group.ratio_text(line, group.baseline, cell))
    if part:
        texts.append(percent(part) + group.mark(line))
    used = group.used(line, cell)
    return ", ".join(texts + [plural(used or 1, "thread")] * (used != line[1]))


def ceiling_in_words(group, lines):
    """Says what the ceiling of these lines is. Empty where it was not measured."""
    ceilings = {line[1] or 1: group.ceiling(line) for line in lines if group.ceiling(line)}
    return words("ceiling", group, lines, sorted(ceilings.items()))


def skips_in_words(group, lines):
    """Says which of these lines leave out operations that their rates count. Empty if none does."""
    names = dict.fromkeys(line[0] for line in lines if group.mark(line))
    return words("skips", by_reason((name, group.ladder.skips(name)) for name in names))


def cell_in_words(group, lines, cells, rate=False, speedup=True):
    """Says what cell_text() has of these lines and cells, and what the ceiling is."""
    parts = sorted(filter(None, (group.part_of_ceiling(group.baseline, cell) for cell in cells)))
    return words("cell", group, lines, rate, speedup,
                 dict.fromkeys(map(percent, (parts[0], parts[-1])) if parts else ()))


def result(groups):
    """The headline of these results: the same on a page, in a README and on a terminal."""
    group = groups[0].without_steps().with_most_threads()
    return " ".join(words("against_peers", mean) for mean in (
        group.against_peers(), group.against_peers(on_cpu=False)) if mean)


def table_text(path, groups, width=WIDTH):
    """The tables for a terminal, in the layout of the papers: each measure has a line for each
    stage."""
    return render(TEXT, "tables.txt.j2", folder=path.parent, groups=groups, width=min(width, WIDTH),
                  notes=left_out(path.parent), gained=gained(groups)) + "\n"


def gained(groups):
    """What the fastest stage of a quick look gained, and what to look at next. Empty without it."""
    if not groups or not is_quick(groups):
        return ""
    group = groups[0].without_steps().with_most_threads()
    at = ladder_cell(group)
    found = [(group.time(line, at), line) for line in group.lines
             if group.baseline and group.ratio(line, group.baseline, at) and not is_peer(line)]
    best = min(found, default=(0, group.baseline))[1]
    if best == group.baseline:
        return ""
    first = next(each.name for each in group.ladder.stages if each.before)
    return words("gained", group, at, best, group.ratio(best, group.baseline, at),
                 first.split("_")[0])


def headline(groups, folder):
    """The table of a README in `folder`, in Markdown: the stages and the fastest peer, in
    headline_cells()."""
    group = groups[0].without_steps().with_most_threads()
    cells, lines = headline_cells(group), headline_lines(group)
    return render(MARKDOWN, "headline.md.j2", group=group, folder=folder, result=result(groups),
                  cells=cells, lines=lines, table=grid(
                      ["stage", *(cell_name(group.ladder, cell) for cell in cells)],
                      [[group.label(line), *(cell_text(group, line, cell) for cell in cells)]
                       for line in lines]))


def front(groups, folder):
    """The first page's picture and table: the stages in a small cell and in a large one, without
    ranges, and what those need that no machine has run."""
    group = (groups[0].steps or groups[0]).without_steps().with_most_threads()
    cells = dict.fromkeys(headline_cells(group)[i] for i in (0, -1))
    found = {line[0]: line for line in group.lines if not is_peer(line)}
    stages = [stage for stage in group.ladder.stages if not stage.is_step]
    return render(MARKDOWN, "front.md.j2", group=group, folder=folder,
        lines=[*found.values()], plot=groups[0].folder / "plots/stages.svg", result=result(groups),
        absent=by_reason((stage, "an NVIDIA GPU is needed" if stage.is_cuda else
                          why_not(group, stage)) for stage in stages if stage.name not in found),
        table=grid(["stage", *(cell_name(group.ladder, cell) for cell in cells), "its move"], [
            [link(group.label(found[stage.name]), stage.folder, folder),
             *(re.sub(r" \([^)]*\)", "", cell_text(group, found[stage.name], cell))
               for cell in cells), move(stage)] for stage in stages if stage.name in found], "---"))


def ladder(groups, folder):
    """The whole ladder for a page in `folder`, in Markdown: the plot, and a line for each stage and
    step with its time, what it gains, and what it changes. In two cells, if they were measured, or
    else in one."""
    group = groups[0].steps or groups[0]
    cells = group.cells if groups[0].steps else [ladder_cell(group)]
    rungs = [group.rungs(cell) for cell in cells]  # of each cell
    stages = group.ladder.stages
    lines = {stage: [each[stage] for each in rungs] for stage in stages
             if any(each[stage][0] for each in rungs)}
    heads = [head for cell in cells for head in (
        f"{cell_name(group.ladder, cell)} ({group.unit})", "over the line above",
        "share of peak")]
    table = []
    for stage, found in lines.items():
        line = [link(group.label(next(line for line, _ in found if line)), stage.folder, folder)]
        for (own, above), cell in zip(found, cells):
            time, ratio, part = group.summary(own, [above], cell)
            line += [time, ratio if stage.before else "", part]
        table.append([*line, changes(stage) if stage.before else "", move(stage)])
    return render(MARKDOWN, "ladder.md.j2", group=group, folder=folder,
        table=grid(["", *heads, "changed lines", "the move"], table, "---"),
        plots=groups[0].folder / "plots", shown=[line for found in lines.values()
                                                 for line, _ in found if line],
        elsewhere=[stage for above, stage in itertools.pairwise(stages) if stage.before != above],
        absent=by_reason((stage, why_not(group, stage)) for stage in stages if stage not in lines))


def epoch_text(group, column, line, cell):
    """A cell of the table of epochs. Empty where there is no such run, or no such number."""
    if column == EPOCHS_MEMORY:
        numbers = [row[column] for run in group.epochs.get((line, cell), ()) for row in run
                   if row.get(column)]
        return three_digits(fmean(numbers)) if numbers else ""
    value = group.median(column, line, cell)
    if value is None:
        return ""
    text = (f"{100 * value:.2f}" if column.endswith("accuracy") else
            three_digits(value / 1000 if column == "samples_per_s" else value))
    return f"{'~' * group.is_noisy(column, line, cell)}{text}"


def epochs(groups, folder):
    """The runs of one cell, for a page in `folder`, in Markdown: the plot of their epochs, and a
    line for each stage and peer, also for those that did not run. Empty if the rows lack a
    column."""
    group = groups[0].without_steps()
    if any(column not in group.frame for column in EPOCHS):
        return ""
    cell = ladder_cell(group)
    lines = [line for line in group.lines if group.time(line, cell) is not None]
    first, *others = EPOCHS
    heads = EPOCHS | {group.ladder.time: "total training time (s)",
                      EPOCHS_MEMORY: "average memory (MiB)"}
    columns = [column for column in (first, group.ladder.time, *others, EPOCHS_MEMORY)
               if any(epoch_text(group, column, line, cell) for line in lines)]
    absent = [stage for stage in [*group.ladder.stages, *group.ladder.peers]
              if not stage.is_step and stage.name not in dict(lines)]
    table = grid(["platform", *map(heads.get, columns)], [
        [group.label(line), *(epoch_text(group, column, line, cell) for column in columns)]
        for line in sorted(lines + [(stage.name, 0) for stage in absent])])
    return render(MARKDOWN, "epochs.md.j2", group=group, folder=folder, table=table,
                 plot=group.folder / "plots" / "epochs.svg",
                 notes=share_reasons(f"{stage.name}: {why_not(group, stage)}" for stage in absent))


def of_stage(groups, stage):
    """(group, line, above, cells, table) for each table of a stage's README: beside the stage
    before it, in the cells of steps/, or of the headline where a step has no others; and of a stage
    alone, in all cells."""
    own, steps = groups[0].with_most_threads(), groups[0].steps
    if steps or stage.is_step:
        group = steps.with_most_threads() if steps else own
        cells = group.cells if steps else headline_cells(group)
        for line in (line for line in group.lines if line[0] == stage.name):
            above = group.rungs(cells[-1])[stage][1]
            table = [[group.label(each), *(cell_text(group, each, cell, speedup=False)
                                           for cell in cells)] for each in (above, line) if each]
            if above:
                table.append(["times as fast", *(group.ratio_text(line, above, cell)
                                                 for cell in cells)])
            yield group, line, above, cells, grid(
                ["", *(cell_name(group.ladder, cell) for cell in cells)], table)
    names = [axis["option"] for axis in own.ladder.axes]
    for line in (line for line in own.lines if line[0] == stage.name and not stage.is_step
                 and steps is not groups[0]):
        yield own, line, None, [], grid(
            [own.label(line), *(f"{names[0]} {page[0]}" if page else "each run"
                                for page in own.pages)],
            [[f"{names[-1]} {column[0]}" if column else "",
              *(cell_text(own, line, page + column, rate=True) for page in own.pages)]
             for column in own.columns
             if any(own.time(line, page + column) is not None for page in own.pages)])


def stage_block(found, stage):
    """The measured part of a stage's README, by machine. Where no machine has run the stage, it is
    the reasons."""
    return render(MARKDOWN, "stage.md.j2", stage=stage, has_results=bool(found),
                 tables=[each for groups in found for each in of_stage(groups, stage)],
                 reasons=[reason for reason in dict.fromkeys(
                     why_not(groups[0], stage) for groups in found) if reason != "not run"])


# What stands between the markers of these names in a ladder's README.
BLOCKS = {"table": headline, "ladder": ladder, "epochs": epochs}


def has_markers(target, name="table"):
    return MARKER.format(name, "begin") in read(target)


def update(target, text, name="table"):
    """Puts the text between the markers of a file."""
    old, markers = rows.read(target), [MARKER.format(name, which) for which in ("begin", "end")]
    begin, end = map(old.find, markers)
    if any(old.count(marker) != 1 for marker in markers) or begin > end:
        fail(f"{target}: expected '{markers[0]}' and, below it, '{markers[1]}', each once")
    new = f"{old[:begin]}{markers[0]}\n{text}\n{old[end:]}"
    if new != old:
        write(target, new)
