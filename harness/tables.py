#!/usr/bin/env python3
"""Turns the rows that the stages of a ladder wrote into tables.

    tables.py runs.csv                      tables for a terminal: for each value of the first axis
                                            and each measure a line per stage, a column per value
                                            of the last axis
    tables.py --markdown runs.csv           the headline: a few cells, in Markdown
    tables.py --update README.md runs.csv   the headline, put between the markers in README.md, and
                                            the ladder and the epochs, if README.md has markers for
                                            them

Only runs with the same settings share a table. A cell is the median of its runs, and a ratio that
of pairs of runs (pairs.py). sweeps.csv beside runs.csv names the machine, and programs.csv says why
a program has no runs. epochs.csv has the epochs of the runs. bench/ceilings.json in the folder
above has the most that the machine can do.
"""

import interrupts

import argparse
import functools
import math
import os
import re
import statistics
import subprocess
import textwrap
from collections import defaultdict
from pathlib import Path
from urllib.parse import quote

import ladders
import pairs
import rows
import running
from ladders import printable
from rows import fail, read, write

DATASETS = {"mnist": "MNIST", "csv": "train.csv", "synthetic": "SYNTHETIC DIGITS, NOT MNIST",
            "drawn": "random numbers"}
SPEEDUP = "speedup"  # the measure that no row has
MARKER = "<!-- {}: {} -->"  # "table", "ladder" or "epochs", "begin" or "end"
HEADLINE_LINES = 8
WIDTH = 80  # of a terminal
SKIPS = "†"
LIMIT = f"more than {100 * rows.NOISY:.0f} % from the median"
# The columns of epochs(), beside the ladder's time. A row has them all, or the table is left out.
EPOCHS = {"epoch_s": "average time of an epoch (s)",
          "samples_per_s": "average throughput (1000 samples/s)",
          "test_accuracy": "final test accuracy (%)",
          "best_test_accuracy": "best test accuracy (%)",
          "peak_rss_mib": "peak memory (MiB)", "peak_vram_mib": "peak device memory (MiB)"}
SIGNS = {r" [+-]\d+%": "+2%: the run farthest from the median is 2 % above it",
         r"~\d| ~": f"~: a run is {LIMIT}",
         r"\d× \(|seen \(": pairs.MEANING,
         "↓": f"↓: disturbed: before a run, multiply-adds were below {rows.RATE} % of their best rate, "
              f"or others used more than {rows.OTHERS} % of the processors meanwhile",
         "≠": "≠ marks results further from the others' than rounding explains",
         r"\d once": "once: one run", r"\w \(\d+\)": "in brackets: threads"}


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


def plural(number, thing):
    return f"{number} {thing}{'' if number == 1 else 's'}"


def mean_over(cells):
    """What a figure is a mean over, in brackets. Empty for the figure of one cell."""
    return f" (geometric mean over {cells} cells)" if cells > 1 else ""


def listing(things):
    """a; a and b; a, b and c."""
    return " and ".join(filter(None, (", ".join(things[:-1]), things[-1])))


class Group:
    """The runs of a ladder that share their settings. A cell is its place on the ladder's axes. A
    line of a table is (stage, threads), with 0 threads for one or none."""

    def __init__(self, ladder, settings, runs, folder=None):
        self.ladder, self.settings = ladder, settings  # {column: value}
        self.folder = folder  # of these and other results of the machine
        self.runs = defaultdict(list)  # {(line, cell): runs}
        for run in runs:
            self.runs[line_of(run), rows.cell_of(run, ladder)].append(run)
        self.lines = sorted({line for line, _ in self.runs})
        self.cells = sorted({cell for _, cell in self.runs})
        self.pages = sorted({cell[:-1] for cell in self.cells})
        self.columns = sorted({cell[-1:] for cell in self.cells})
        self.baseline = next((line for line in self.lines
                              if line[0] == ladder.toml["baseline"]), None)
        self.all_once = all(len(runs) == 1 for runs in self.runs.values())
        times = [time for time in (self.time(*place) for place in self.runs) if time]
        self.scale, self.unit = (1000, "ms") if times and min(times) < 0.001 else (1, "s")
        # {column: (title, unit, factor)}
        self.measures = {ladder.time: ("Time", self.unit, self.scale)} | {
            words["column"]: (words["title"], *((self.unit, self.scale) if words.get("unit") == "s"
                                                else (words.get("unit", ""), 1)))
            for words in ladder.measures}
        if self.baseline:
            self.measures[SPEEDUP] = f"Speedup over {label(self.baseline)}", "", 1

    def counted(self, line, cell):
        """The runs of a cell that count: those that were not disturbed, or else all."""
        runs = self.runs.get((line, cell), ())
        return [run for run in runs if not run.get("disturbed")] or runs

    def is_disturbed(self, line, cell):
        """Whether all runs of a cell were disturbed."""
        runs = self.runs.get((line, cell), ())
        return bool(runs) and all(run.get("disturbed") for run in runs)

    def values(self, measure, line, cell):
        """The measure of each run of a cell. Empty for a cell without runs or without this measure:
        a peer may not tell the phases apart."""
        values = [run.get(measure) for run in self.counted(line, cell)]
        return [] if None in values else values

    def median(self, measure, line, cell):
        """The median over the runs of a cell, or None."""
        if measure == SPEEDUP:
            return self.speedup(line, cell)
        values = self.values(measure, line, cell)
        return statistics.median(values) if values else None

    def time(self, line, cell):
        return self.median(self.ladder.time, line, cell)

    def speedup(self, line, cell):
        """How many times as fast as the baseline's cell. None where there is no such cell."""
        ratio = self.ratio(line, self.baseline, cell)
        return ratio and ratio.median

    def by_round(self, line, cell, measures):
        """{(sweep, round): the sum of these measures}. The last run of a round counts."""
        return {(run.get("sweep"), run["round"]): sum(run.get(name) or 0 for name in measures)
                for run in self.counted(line, cell) if run.get("round")}

    def ratio(self, line, other, cell, measures=()):
        """How many times as fast as another line's cell, a pairs.Ratio, in the ladder's time or in
        the sum of these measures. None where no round has both."""
        times, others = (self.by_round(each, cell, measures or [self.ladder.time])
                         for each in (line, other))
        shared = [each for each in times if times[each] and others.get(each)]
        return pairs.ratio([times[each] for each in shared], [others[each] for each in shared])

    def ratio_text(self, line, other, cell):
        ratio = self.ratio(line, other, cell)
        return ratio.text if ratio else "-"

    def without_steps(self):
        """The runs of the stages and peers only. All runs, if there are no others."""
        runs = [run for (line, _), runs in self.runs.items() if not is_step(line) for run in runs]
        return Group(self.ladder, self.settings, runs, self.folder) if runs else self

    def with_most_threads(self):
        """One line for each stage, with the most threads that it has run with. A cell has its runs
        with the most threads. They may be fewer, because a stage cannot always use all."""
        most = defaultdict(int)  # {(stage, device), or (stage, device, cell): threads}
        runs = [(run, line_of(run)[1], (run["stage"], run["device"]), cell)
                for (_, cell), found in self.runs.items() for run in found]
        for _, threads, stage, cell in runs:
            for place in (stage, (*stage, cell)):
                most[place] = max(most[place], threads)
        return Group(self.ladder, self.settings, [
            {**run, "threads": most[stage], "used": threads}
            for run, threads, stage, cell in runs if threads == most[(*stage, cell)]], self.folder)

    def used(self, line, cell):
        """The threads of a cell's runs: those of its line, or fewer."""
        return next((run.get("used", line[1]) for run in self.runs.get((line, cell), ())), line[1])

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
        if measure == SPEEDUP:
            return any(self.is_noisy(self.ladder.time, each, cell)
                       for each in (line, self.baseline))
        values = self.values(measure, line, cell)
        return bool(values) and rows.is_noisy(values)

    def lines_of(self, measure):
        """The lines of the measure's table: those that have it in any cell. For the speedup, all
        except the baseline."""
        if measure == SPEEDUP:
            return [line for line in self.lines if line != self.baseline]
        return [line for line in self.lines
                if any(self.values(measure, line, cell) for cell in self.cells)]

    def is_on_cpu(self, line):
        return all(run["device"] == "cpu" for (other, _), runs in self.runs.items()
                   if other == line for run in runs)

    @functools.cached_property
    def strays(self):
        """The (stage, cell) that do not compute the same as the others."""
        # These are no results: they were added here.
        found = [{**run, "used": None, "disturbed": None}
                 for runs in self.runs.values() for run in runs]
        return running.strays(found, self.ladder)

    @functools.cached_property
    def ceilings(self):
        """{"flops", "L1", ..., "memory": {threads: rate}} from what `make bench` has written to the
        folder of results or to the machine's folder above it. A quick look's are those of the
        machine. The operations are the ladder's."""
        found = defaultdict(lambda: defaultdict(list))
        above = self.folder.parent
        above = above if above.name else self.folder.absolute().parent
        places = {self.folder, above, above.parent / above.name.removesuffix("-quick")}
        for path in sorted(path for place in places for path in place.glob("bench/*.json")):
            for level, threads, rate in rows.or_nothing(rows.read_ceilings, path) or ():
                found[level][threads].append(
                    rate / self.ladder.width if level == "flops" else rate)
        return {level: {threads: statistics.median(rates) for threads, rates in by_threads.items()}
                for level, by_threads in found.items()}

    @functools.cached_property
    def growth(self):
        """The runs of growth.csv that have the same data. A GPU has one thread."""
        path = self.folder / "growth/runs.csv"
        return [{**run, "threads": run["threads"] or 1}
                for run in rows.or_nothing(rows.read_rows, path, self.ladder) or ()
                if run["dataset"] == self.settings["dataset"] and run[self.ladder.time]
                and run["device"] != "simulated"]

    @functools.cached_property
    def epochs(self):
        """{(line, cell): [the rows of a run, in the order of its epochs]} from epochs.csv, for the
        runs with these settings. A run that was interrupted has too few rows, and is left out."""
        path, runs, found = self.folder / "epochs.csv", defaultdict(list), defaultdict(list)
        for row in rows.or_nothing(rows.read_epochs, path, self.ladder) or ():
            if row["device"] != "simulated" and all(row.get(name, value) == value
                                                    for name, value in self.settings.items()):
                runs[line_of(row), rows.cell_of(row, self.ladder), row["run"]].append(row)
        for (line, cell, _), run in runs.items():
            if (line, cell) in self.runs and len(run) == self.settings.get("epochs", len(run)):
                found[line, cell].append(sorted(run, key=lambda row: row["epoch"]))
        return found

    def ceiling(self, line):
        """The operations a second that multiply-adds alone reach with as many threads as the line
        has. None where that was not measured, for a GPU, because the ceilings are the CPU's, and
        without a line."""
        return (self.ceilings.get("flops", {}).get(line[1] or 1)
                if line and self.is_on_cpu(line) else None)

    def part_of_ceiling(self, line, cell):
        """The part of its line's ceiling that a cell reaches. None where there is no ceiling, or
        where the cell has fewer threads."""
        rate, ceiling = self.median("gflops", line, cell), self.ceiling(line)
        return (1e9 * rate / ceiling if rate and ceiling and self.used(line, cell) == line[1]
                else None)

    def summary(self, line, others, cell):
        """A cell in words: its time, how many times as fast it is as each of the other lines, and
        its part of the ceiling."""
        part = line and self.part_of_ceiling(line, cell)
        return ["".join(self.texts(self.ladder.time, line, cell)),
                *(self.ratio_text(line, other, cell) for other in others),
                percent(part) + self.mark(line) if part else "-"]

    def mark(self, line):
        """The sign of a line that leaves out operations which its rates count, or ""."""
        return SKIPS if self.ladder.skips(line[0]) else ""

    def fastest_peer(self):
        """(line, cells): the CPU peer with the smallest geometric mean of its times, and the number
        of cells in that mean. These are the cells that all CPU peers have. (None, 0) if there are
        none."""
        peers = [line for line in self.lines if is_peer(line) and self.is_on_cpu(line)]
        cells = [cell for cell in self.cells if all(self.time(line, cell) for line in peers)]
        if not peers or not cells:
            return None, 0
        return min(peers, key=lambda line: statistics.geometric_mean(
            self.time(line, cell) for cell in cells)), len(cells)

    def against_peers(self, on_cpu=True):
        """The headline, in one sentence: how many times as fast as the fastest peer the fastest
        stage is, over the cells that have both. Empty where there are none. What a run does before
        the clock counts, but not on a GPU, where setup_s has the context, and not where the time is
        that of one pass of many."""
        with_setup = on_cpu and "seconds" not in self.settings
        ratios, measures = [], [self.ladder.time, *["setup_s"] * with_setup]
        for cell in self.cells:
            seconds = {line: sum(self.median(name, line, cell) or 0 for name in measures)
                       for line in self.lines
                       if self.time(line, cell) and self.is_on_cpu(line) == on_cpu}
            sides = [[line for line in seconds if is_peer(line) == kind] for kind in (True, False)]
            if all(sides):
                peer, stage = (min(side, key=seconds.get) for side in sides)
                ratio = self.ratio(stage, peer, cell, measures)
                ratios += [ratio.median] if ratio else []
        if not ratios:
            return ""
        over = (f"geometric mean over {len(ratios)} cells: {min(ratios):.2f} to {max(ratios):.2f}"
                if len(ratios) > 1 else "one cell")
        return (f"On the {'CPU' if on_cpu else 'GPU'}, the fastest stage is "
                f"{statistics.geometric_mean(ratios):.2f} times as fast as the fastest peer, setup "
                f"{'' if with_setup else 'not '}counted ({over}).")

    def heading(self):
        """The data and the settings, in words."""
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
        """Says in words what the number in a cell is."""
        if self.all_once:
            return "one run of each"
        counts = {len(runs) for runs in self.runs.values()}
        once = [label(line) for line in self.lines
                if {len(runs) for (each, _), runs in self.runs.items() if each == line} == {1}]
        return (f"medians of {'' if len(counts) == 1 else 'up to '}{max(counts)} runs"
                + (f" (one run of {listing(once)})" if once else ""))

    def conditions(self, table):
        """What the numbers in a table are: the data, the runs of a cell, and the signs."""
        return "; ".join([self.heading(), self.repeats(), *signs(table)])

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
        if measure == SPEEDUP:
            return f"{pairs.digits(value)}×"
        _, unit, factor = self.measures[measure]
        if unit:
            return three_digits(factor * value)
        if value >= 10 and (2 * value).is_integer():  # a count, or the middle of two
            return f"{value:g}"
        return f"{value:.4f}" if abs(value) >= 0.1 or not value else f"{value:.4g}"

    def texts(self, measure, line, cell, spreads=False):
        """A cell of a table: its number, and what stands after it. It is ~ for a noisy cell. After
        the time stands how far off the farthest run is, such as +2% or ~12%. With `spreads` it is
        the same for all measured numbers."""
        number = self.number(measure, self.median(measure, line, cell))
        sign = " ~" if self.is_noisy(measure, line, cell) else ""
        values = self.values(measure, line, cell)  # none of a speedup
        if values and (measure == self.ladder.time or (spreads and self.measures[measure][1])):
            if len(values) > 1:
                off = 100 * rows.farthest(values)
                sign = f" ~{abs(off):.0f}%" if sign else f" {off:+.0f}%"
            elif not self.all_once:
                sign = " once"
        marks = "≠" * ((line[0], cell) in self.strays) + "↓" * self.is_disturbed(line, cell)
        return number, marks + sign if number != "-" else ""

    def signed(self, measure, line, cell):
        """A number with its unit, and with a sign before it for a noisy cell."""
        number, sign = self.texts(measure, line, cell)
        unit = self.measures[measure][1]
        before = "".join(each for each in "≠↓~" if each in sign)
        return f"{before}{number}{unit and ' '}{unit}"


def read_groups(path, ladder):
    """The groups in a file of rows. MNIST comes first. An empty file has none."""
    names = ["dataset", *(ladder.column(option) for option in ladder.settings)]
    groups, runs = defaultdict(list), rows.read_rows(path, ladder)
    best = rows.best_rates(runs)
    for run in runs:
        if run["device"] != "simulated":  # by sim/, whose times mean nothing
            run["disturbed"] = rows.is_disturbed(run, best)
            groups[tuple(run[name] for name in names)].append(run)
    return [Group(ladder, dict(zip(names, settings)), runs, path.parent)
            for settings, runs in sorted(groups.items(), key=lambda item: (item[0][0] != "mnist",
                                                                           item[0]))]


def machine(folder):
    """The machine's name."""
    fields = next(iter(rows.read_sweeps(folder).values()), {})
    return "; ".join(fields[key] for key in ("cpu", "gpu") if fields.get(key, "none") != "none"
                     ) or "unknown machine"


def facts(folder):
    """What the results in a folder were made with, and when, in words. Empty if nobody knows."""
    found = []
    for fields in rows.read_sweeps(folder).values():
        words = [fields[key] for key in ("compiler", "revision", "began") if key in fields]
        found += ["; ".join(words)] if words else []
    return ". ".join(found)


def is_peer(line):
    return line[0].startswith("peer_")


def is_step(line):
    return not is_peer(line) and "." in line[0]


def line_of(row):
    """The line of a table that a row belongs to."""
    threads = row.get("threads") or 0
    return row["stage"], threads if threads > 1 else 0


def label(line):
    stage, threads = line
    return f"{stage}, {threads} threads" if threads else stage


def short_label(line):
    stage, threads = line
    return f"{stage} ({threads})" if threads else stage


def move(stage):
    """What follows the colon in the title of a stage's README."""
    path = stage.folder / "README.md"
    return read(path).partition("\n")[0].partition(": ")[2] if path.exists() else ""


@functools.cache
def changed_lines(stage):
    """(added, removed): what a stage changed against the one before."""
    counts = subprocess.run(["git", "diff", "--no-index", "--histogram", "--numstat",
                             stage.before.source, stage.source],
                            stdout=subprocess.PIPE, encoding="utf-8", errors="replace", check=False)
    return tuple(map(int, (counts.stdout or "0\t0\t").split("\t")[:2]))


def why_not(group, stage):
    """Why a stage has no rows, as far as the record says."""
    found = [row for row in rows.read_programs(group.folder) if row["program"] == stage.name]
    return found[-1]["reason"] or found[-1]["outcome"] if found else "not run"


def three_digits(value):
    """0.0971, 3.96, 71.8, 641, 1203."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"


def percent(part):
    """0.9 %, 12 %."""
    return f"{100 * part:.{1 if part < 0.1 else 0}f} %"


def cell_name(ladder, cell):
    """A cell in words: 32 hidden, batch 64."""
    options = [axis["option"] for axis in ladder.axes]
    pages = [f"{option} {value}" for option, value in zip(options[:-1], cell)]
    return ", ".join([f"{value} {option}" for option, value in zip(options[-1:], cell[-1:])]
                     + pages) or "each run"


def signs(text):
    """What the signs in a text mean: a list of clauses."""
    return [meaning for sign, meaning in SIGNS.items() if re.search(sign, text)]


def markdown_table(heads, lines, last="---:"):
    """The cells are Markdown."""
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 2) + [last], *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def share_reasons(notes):
    """A line for each reason, with all the stages that have it. A note is "stage: reason"."""
    stages = defaultdict(list)
    for note in notes:
        stage, colon, reason = note.partition(": ")
        stages[colon + reason].append(stage)
    return [", ".join(names) + reason for reason, names in stages.items()]


def reasons(folder):
    """Lines "program: reason" of the programs that the last sweep with them did not run."""
    last = {row["program"]: row for row in rows.read_programs(folder)}
    return [f"{name}: {row['outcome']}: {row['reason']}" for name, row in sorted(last.items())
            if row["reason"]]


def result(groups):
    """The headline of these results: the same on a page, in a README and on a terminal."""
    group = groups[0].without_steps().with_most_threads()
    return " ".join(filter(None, (group.against_peers(), group.against_peers(on_cpu=False))))


def page_rows(group, page):
    """The rows of a page of tables: (label, [(number, spread)] by column). A title has no cells."""
    axes = group.ladder.axes
    yield from ((f"{axis['name']} {value}", []) for axis, value in zip(axes, page))
    yield from ((axis["name"], [(str(value), "") for value, in group.columns])
                for axis in axes[-1:])
    for measure in group.measures:
        lines = group.lines_of(measure)
        if lines:
            yield group.title(measure), []
        for line in lines:
            yield (f"  {short_label(line)}",
                   [group.texts(measure, line, page + column) for column in group.columns])


def page_lines(pages):
    """The pages as lines of a terminal. Columns that do not fit beside the others stand below."""
    lines = [(name, cells) for page in pages for name, cells in page if cells]
    margin = max(len(name) for name, _ in lines)
    width, room = (max(len(cell[part]) for _, cells in lines for cell in cells) for part in (0, 1))
    fitting = max(1, (WIDTH - margin) // (2 + width + room))
    for page in pages:
        for start in range(0, len(lines[0][1]), fitting):
            yield ""
            for name, cells in page:
                texts = (f"  {number:>{width}}{sign:<{room}}"
                         for number, sign in cells[start:start + fitting])
                yield f"{name:<{margin}}{''.join(texts)}".rstrip()


def table_lines(path, groups):
    """The tables, in the layout of the papers: each measure has a line for each stage."""
    yield from textwrap.wrap(machine(path.parent), WIDTH)
    for group in groups:
        lines = list(page_lines([list(page_rows(group, page)) for page in group.pages]))
        yield ""
        yield from textwrap.wrap(group.heading(), WIDTH)
        yield from textwrap.wrap("; ".join([group.repeats(), *signs("\n".join(lines))]), WIDTH)
        yield from lines
    sentence = result(groups) if groups else "no finished runs"
    yield from ["", *textwrap.wrap(sentence, WIDTH)] if sentence else []


def cell_text(group, line, cell, rate=False):
    """What there is to say of a cell: its time, the rate if wanted, its speedup and its part of the
    ceiling."""
    if not group.values(group.ladder.time, line, cell):
        return "-"
    texts = [group.signed(group.ladder.time, line, cell)]
    gflops, part = group.median("gflops", line, cell), group.part_of_ceiling(line, cell)
    if rate and gflops is not None:
        texts.append(f"{three_digits(gflops)} GFLOP/s{group.mark(line)}")
    if line != group.baseline and group.speedup(line, cell):
        texts.append(group.signed(SPEEDUP, line, cell))
    if part:
        texts.append(percent(part) + group.mark(line))
    used = group.used(line, cell)
    return ", ".join(texts + [plural(used or 1, "thread")] * (used != line[1]))


def ceiling_in_words(group, lines):
    """Says what the ceiling of these lines is. Empty where it was not measured."""
    ceilings = {line[1] or 1: group.ceiling(line) for line in lines if group.ceiling(line)}
    if not ceilings:
        return ""
    each = ", ".join(f"{three_digits(flops / 1e9)} GFLOP/s with {plural(threads, 'thread')}"
                     for threads, flops in sorted(ceilings.items()))
    kind = " of float64" if group.ladder.width == 2 else ""
    return (f"The ceiling is the rate of multiply-adds{kind} alone on as many threads as the line "
            f"has: {each}.") + (
        "" if all(group.is_on_cpu(line) for line in lines) else
        " A GPU's line has no ceiling here.")


def skips_in_words(group, lines):
    """Says which of these lines leave out operations that their rates count. Empty if none does."""
    names = defaultdict(list)
    for stage in dict.fromkeys(line[0] for line in lines if group.mark(line)):
        names[group.ladder.skips(stage)].append(stage)
    return " ".join(f"{SKIPS} {listing(stages)} {'leave' if stages[1:] else 'leaves'} out {what}. "
                    "A rate counts them, so it may pass the ceiling."
                    for what, stages in names.items())


def cell_in_words(group, lines, cells, rate=False):
    """Says what cell_text() has of these lines and cells, and what the ceiling is."""
    what = [f"the {group.time_name()}"]
    if rate:
        what.append("the operations a second")
    if group.baseline and lines != [group.baseline]:
        what.append(f"the speedup over {label(group.baseline)}")
    ceiling, skips = ceiling_in_words(group, lines), skips_in_words(group, lines)
    if not ceiling:
        return " ".join(filter(None, (f"A cell has {listing(what)}.", skips if rate else "")))
    text = f"A cell has {listing([*what, 'the part of the ceiling'])}. {ceiling}"
    parts = sorted(filter(None, (group.part_of_ceiling(group.baseline, cell) for cell in cells)))
    if parts and group.baseline in lines:
        reached = dict.fromkeys((percent(parts[0]), percent(parts[-1])))
        text += f" {label(group.baseline)} reaches {' to '.join(reached)} of the ceiling."
    return " ".join(filter(None, (text, skips)))


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


def picture(plots, folder):
    """HTML for the plot of the ladder, if `make report` has drawn it. GitHub shows one file on
    light pages and the other on dark ones."""
    if not (plots / "ladder.svg").exists():
        return []
    light, dark = (url(os.path.relpath(plots / name, folder))
                   for name in ("ladder.svg", "ladder-dark.svg"))
    return ["<picture>",
            f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">',
            f'<img alt="The time of each stage and step, beside the ceiling" src="{light}">',
            "</picture>", ""]


def headline(groups, folder):
    """The table of a README in `folder`, in Markdown: the time, the speedup and the part of the
    ceiling of the stages and of the fastest peer, in headline_cells()."""
    group = groups[0].without_steps().with_most_threads()
    cells, lines = headline_cells(group), headline_lines(group)
    heads = ["stage", *(markdown(cell_name(group.ladder, cell)) for cell in cells)]
    table = markdown_table(heads, [
        [markdown(label(line)), *(cell_text(group, line, cell) for cell in cells)]
        for line in lines])
    below = ""
    peer, count = group.fastest_peer()
    if peer:
        peers = group.ladder.folder / group.ladder.toml["peers"]
        below = (f"{markdown(peer[0])} is the fastest CPU [peer]"
                 f"({url(os.path.relpath(peers, folder))}){mean_over(count)}. A peer is a library "
                 f"or framework that you might use instead. {markdown(result(groups))} ")
    full = os.path.relpath(group.folder / "tables.txt", folder)
    below += f"All stages, peers and cells are in [{markdown(full)}]({url(full)})."
    conditions = f"{group.conditions(table)}; on {machine(group.folder)}."
    return "\n".join([markdown(cell_in_words(group, lines, cells)), "", markdown(conditions), "",
                      table, below])


def ladder_cell(group):
    """The cell that the whole ladder is shown for: that of `make step`, if there are runs of it."""
    options = group.ladder.toml["step"]
    cell = tuple(options.get(axis["option"]) for axis in group.ladder.axes)
    return cell if cell in group.cells else headline_cells(group)[-1]


def ladder(groups, folder):
    """The whole ladder in one cell, for a page in `folder`, in Markdown: the plot, and a line for
    each stage and step with its time, what it gains, and what it changes."""
    group = groups[0]
    cell = ladder_cell(group)
    rungs = group.rungs(cell)
    lines = []
    for stage, (line, above) in rungs.items():
        time, *compared, part = group.summary(line, (above, group.baseline), cell)
        lines.append([
            f"[{stage.name}]({url(os.path.relpath(stage.folder, folder))})"
            + (label(line)[len(stage.name):] if line else ""),
            time, *(compared if stage.before else ["", ""]), part,
            str(sum(changed_lines(stage))) if stage.before else "", markdown(move(stage))])
    over = f"over {label(group.baseline)}" if group.baseline else "speedup"
    table = markdown_table([
        "", group.title(group.ladder.time), "over the line above", over, "part of the ceiling",
        "changed lines", "the move"], lines, "---")
    others = [f"{stage.name} is compared with {stage.before.name} instead."
              for above, stage in zip(group.ladder.stages, group.ladder.stages[1:])
              if stage.before != above]
    conditions = (f"{cell_name(group.ladder, cell)}; {group.conditions(table)}; "
                  f"on {machine(group.folder)}.")
    shown = [line for line, _ in rungs.values() if line]
    text = " ".join([
        f"A line has the {group.time_name()}. The first ratio says how many times as fast it is as",
        "the nearest line above that has a time. Changed lines are those added and those removed.",
        *others, ceiling_in_words(group, shown), skips_in_words(group, shown)])
    notes = share_reasons(f"{stage.name}: {why_not(group, stage)}"
                          for stage, (line, _) in rungs.items() if not line)
    return "\n".join([*picture(group.folder / "plots", folder), markdown(text.rstrip()), "",
                      markdown(conditions), "", table, *(f"- {markdown(note)}" for note in notes)])


def epoch_text(group, column, line, cell):
    """A cell of the table of epochs. Empty where there is no such run, or no such number."""
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
    if any(column not in run for runs in group.runs.values() for run in runs for column in EPOCHS):
        return ""
    cell = ladder_cell(group)
    lines = [line for line in group.lines if group.time(line, cell) is not None]
    titles = {"epoch_s": "", group.ladder.time: "total training time (s)"} | EPOCHS
    titles = {column: title for column, title in titles.items()  # no GPU, no memory of it
              if any(epoch_text(group, column, line, cell) for line in lines)}
    absent = [stage for stage in [*group.ladder.stages, *group.ladder.peers]
              if not stage.is_step and stage.name not in dict(lines)]
    table = markdown_table(["platform", *titles.values()], [
        [markdown(label(line)), *(epoch_text(group, column, line, cell) for column in titles)]
        for line in sorted(lines + [(stage.name, 0) for stage in absent])])
    text = ("A line has the averages over the epochs of a run. The test comes after each epoch, "
            "and is not in the time. The line of a program that did not run is empty, and the "
            "reason stands below the table.")
    conditions = f"{group.conditions(table)}; on {machine(group.folder)}."
    notes = share_reasons(f"{stage.name}: {why_not(group, stage)}" for stage in absent)
    plot = group.folder / "plots" / "epochs.svg"
    picture = [f"![Time, throughput and test accuracy of each epoch, and the average throughput]"
               f"({url(os.path.relpath(plot, folder))})", ""] if plot.exists() else []
    return "\n".join([*picture, text, "", markdown(conditions), "", table,
                      *(f"- {markdown(note)}" for note in notes)])


# What stands between the markers of these names in a ladder's README.
BLOCKS = {"table": headline, "ladder": ladder, "epochs": epochs}


def has_markers(target, name="table"):
    return target.exists() and MARKER.format(name, "begin") in read(target)


def update(target, text, name="table"):
    """Puts the text between the markers of a file."""
    old, markers = read(target), [MARKER.format(name, which) for which in ("begin", "end")]
    begin, end = map(old.find, markers)
    if any(old.count(marker) != 1 for marker in markers) or begin > end:
        fail(f"{target}: expected '{markers[0]}' and, below it, '{markers[1]}', each once")
    new = f"{old[:begin]}{markers[0]}\n{text}\n{old[end:]}"
    if new != old:
        write(target, new)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, metavar="runs.csv")
    parser.add_argument("--ladder", metavar="NAME",
                        help="whose rows these are (the name of the folder, or the main one)")
    parser.add_argument("--markdown", action="store_true", help="print the headline")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the headline into FILE")
    parser.add_argument("--output", type=Path, metavar="FILE",
                        help="write the tables there instead of printing them")
    arguments = parser.parse_args()

    folder = Path(os.path.abspath(arguments.runs)).parent.name
    known = [ladder.name for ladder in ladders.ladders()]
    name = arguments.ladder or (folder if folder in known else ladders.MAIN)
    groups = read_groups(arguments.runs, ladders.find_ladder(name, "--ladder"))
    if (arguments.update or arguments.markdown) and not groups:
        fail(f"{arguments.runs}: found no runs")
    if arguments.update:
        for name, block in BLOCKS.items():
            if name == "table" or has_markers(arguments.update, name):
                update(arguments.update, block(groups, arguments.update.parent), name)
        return
    if arguments.markdown:
        lines = [headline(groups, Path())]
    else:
        notes = share_reasons(reasons(arguments.runs.parent))
        lines = [*table_lines(arguments.runs, groups), *([""] if notes else []), *notes]
    text = "\n".join([*lines, ""])
    if arguments.output:
        write(arguments.output, text)
        return
    try:
        # Not sys.stdout: it has the locale's encoding, and complains a second time at the end.
        with open(1, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
    except OSError as error:
        fail(f"cannot write: {error.strerror}", 1)


if __name__ == "__main__":
    interrupts.start(main)
