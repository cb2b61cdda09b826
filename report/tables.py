#!/usr/bin/env python3
"""Turns the rows that the stages wrote into tables.

    tables.py runs.csv                      tables for a terminal: for each batch size and measure
                                            a line per stage, a column per hidden size
    tables.py --markdown runs.csv           the headline: a few cells, in Markdown
    tables.py --update README.md runs.csv   the headline, put between the markers in README.md

Only runs with the same settings share a table. A cell is the median of its runs. machine.txt beside
runs.csv names the machine. bench/ceilings.json beside it has the most that the machine can do.
"""

import argparse
import contextlib
import csv
import io
import json
import math
import os
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from urllib.parse import quote

# The columns of whole numbers, and the smallest of each.
WHOLE = {"threads": 0, "hidden": 1, "batch": 1, "epochs": 0, "seed": 0, "train_samples": 1,
         "test_samples": 1}
NUMBERS = ("learning_rate", "train_s", "forward_s", "backward_s", "final_loss", "test_accuracy",
           "gflops")
MAY_BE_EMPTY = "threads", "forward_s", "backward_s", "final_loss"
TEXTS = "stage", "device", "dataset"
SETTINGS = "dataset", "epochs", "learning_rate", "seed", "train_samples", "test_samples"
DATASETS = {"mnist": "MNIST", "csv": "train.csv", "synthetic": "SYNTHETIC DIGITS, NOT MNIST"}
MEASURES = {
    "train_s": "Training time (s)",
    "forward_s": "Forward propagation time (s)",
    "backward_s": "Backpropagation time (s)",
    "test_accuracy": "Test accuracy",
    "speedup": "Speedup over {baseline}",
}
MARKERS = "<!-- table: begin -->", "<!-- table: end -->"
HEADLINE_LINES = 8


def fail(message, status=2):
    """Ends the program with one line."""
    print(f"{Path(sys.argv[0]).name}: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)


def read(path):
    """The text of a file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        fail(f"{path}: cannot read: {error.strerror}")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[:error.start]
        fail(f"{path}: line {before.count(10) + 1}: byte {error.start - before.rfind(10)}: found "
             f"0x{data[error.start]:02x}, expected UTF-8")


def write(path, text):
    """Writes a file, and its folder if that is new. The file is then complete, or as it was."""
    path = path.resolve()  # so that a link stays a link
    new = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(exist_ok=True)
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink()
        fail(f"{path}: cannot write: {error.strerror}", 1)


def readable(text):
    """An argument or a file's name as text. Bytes that are not UTF-8 are replaced."""
    return os.fsencode(text).decode(errors="replace")


def url(path):
    """A path in the form that a link needs."""
    return quote(os.fsencode(path))


def markdown(text):
    """Escapes any text, in one line, so that Markdown shows it as it is: `<int>` is no tag, `|`
    ends no cell. An underscore within a word stays, and so does an ampersand that begins no
    entity."""
    return re.sub(r"[\\`*<|\[~$]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>",
                  " ".join(text.split()))


def plural(number, thing):
    return f"{number} {thing}{'' if number == 1 else 's'}"


def listing(things):
    """a; a and b; a, b and c."""
    return " and ".join(filter(None, (", ".join(things[:-1]), things[-1])))


class Group:
    """The runs that share their settings. A cell is (batch, line, hidden). A line of a table is
    (stage, threads), with 0 threads for one or none."""

    def __init__(self, settings, runs):
        self.settings = dict(zip(SETTINGS, settings))
        self.cells = defaultdict(list)
        for run in runs:
            line = run["stage"], run["threads"] if run["threads"] > 1 else 0
            self.cells[run["batch"], line, run["hidden"]].append(run)
        self.batches, self.lines, self.hiddens = (sorted(set(keys)) for keys in zip(*self.cells))
        self.baseline = next((line for line in self.lines if line[0].startswith("00_")), None)

    def median(self, measure, cell):
        """The median over the runs of a cell. None for a cell without runs or without this measure:
        a peer may not tell forward from backward."""
        values = [run[measure] for run in self.cells.get(cell, ())]
        return statistics.median(values) if values and None not in values else None

    def lines_of(self, measure):
        """The lines of the measure's table: those that have it in any cell. For the speedup, all
        except the baseline."""
        if measure == "speedup":
            return [line for line in self.lines if line != self.baseline]
        having = {line for (_, line, _), runs in self.cells.items()
                  for run in runs if run[measure] is not None}
        return [line for line in self.lines if line in having]

    def spread(self, cell):
        """Half the difference between the fastest and the slowest run, over the median."""
        times = [run["train_s"] for run in self.cells[cell]]
        median = statistics.median(times)
        return (max(times) - min(times)) / 2 / median if median else 0

    def speedup(self, cell):
        """How many times as fast as the baseline's cell. None where there is no such cell."""
        batch, _, hidden = cell
        time = self.median("train_s", cell)
        baseline = self.median("train_s", (batch, self.baseline, hidden))
        return baseline / time if baseline and time else None

    def is_on_cpu(self, line):
        return all(run["device"] == "cpu" for (_, other, _), runs in self.cells.items()
                   if other == line for run in runs)

    def ceiling(self, line, ceilings):
        """The operations a second that multiply-adds alone reach with as many threads as the line
        has. None where that was not measured, and for a GPU: the ceilings are the CPU's."""
        on_cpu = self.is_on_cpu(line)
        return ceilings.get("flops", {}).get(line[1] or 1) if on_cpu else None

    def part_of_ceiling(self, cell, ceilings):
        """The part of its ceiling that a cell reaches. None where there is no ceiling."""
        rate, ceiling = self.median("gflops", cell), self.ceiling(cell[1], ceilings)
        return 1e9 * rate / ceiling if rate and ceiling else None

    def fastest_peer(self):
        """(line, cells): the CPU peer with the smallest geometric mean of its times, and the number
        of cells in that mean. These are the cells that all CPU peers have. (None, 0) if there are
        none."""
        peers = [line for line in self.lines
                 if line[0].startswith("peer_") and self.is_on_cpu(line)]
        times = {line: [] for line in peers}
        for batch in self.batches:
            for hidden in self.hiddens:
                medians = [self.median("train_s", (batch, line, hidden)) for line in peers]
                if all(medians):
                    for line, median in zip(peers, medians):
                        times[line].append(median)
        cells = len(times[peers[0]]) if peers else 0
        if not cells:
            return None, 0
        return min(peers, key=lambda line: statistics.geometric_mean(times[line])), cells

    def against_peers(self, on_cpu=True):
        """A clause on how many times as fast as the fastest peer the fastest stage is, over the
        cells that have both. Empty where there are none."""
        fastest = {True: {}, False: {}}  # of peers, of stages: {(batch, hidden): seconds}
        for cell, runs in self.cells.items():
            if (runs[0]["device"] == "cpu") == on_cpu:
                times = fastest[cell[1][0].startswith("peer_")]
                place = cell[0], cell[2]
                times[place] = min(self.median("train_s", cell), times.get(place, math.inf))
        ratios = [time / fastest[False][place] for place, time in fastest[True].items()
                  if time and fastest[False].get(place)]
        if not ratios:
            return ""
        return (f"the fastest stage is {statistics.geometric_mean(ratios):.2f} times as fast as "
                f"the fastest peer (geometric mean over {plural(len(ratios), 'cell')}; "
                f"{min(ratios):.2f} to {max(ratios):.2f}).")

    def heading(self):
        value = self.settings
        return (f"{DATASETS.get(value['dataset'], value['dataset'])}: "
                f"{plural(value['epochs'], 'epoch')} of {value['train_samples']:,} images, "
                f"accuracy on {value['test_samples']:,} others")

    def repeats(self):
        """Says in words what the number in a cell is."""
        counts = {len(runs) for runs in self.cells.values()}
        if counts == {1}:
            return "one run of each"
        once = [label(line) for line in self.lines
                if {len(runs) for cell, runs in self.cells.items() if cell[1] == line} == {1}]
        return (f"medians of {'' if len(counts) == 1 else 'up to '}{max(counts)} runs"
                + (f" (one run of {listing(once)})" if once else ""))


def parse(name, text):
    """The value of a column's text. None for an empty text. A ValueError says what was expected."""
    if not text and name in MAY_BE_EMPTY:
        return None
    smallest = WHOLE.get(name)
    expected = "a number, not below 0" if smallest is None else f"a whole number from {smallest}"
    try:
        value = float(text) if smallest is None else int(text)
    except ValueError:
        raise ValueError(expected) from None
    # A nan is refused, and so is a number whose ratio to another may not be finite.
    if (value != 0 and not 1e-100 < value < 1e100) or value < (smallest or 0):
        raise ValueError(expected)
    return value


def read_groups(path):
    """The groups in a file of rows. MNIST comes first. An empty file has none."""
    reader = csv.reader(io.StringIO(read(path), newline=""), strict=True)
    groups = defaultdict(list)
    try:
        header = next(reader, [*WHOLE, *NUMBERS, *TEXTS])
        for name in (*WHOLE, *NUMBERS, *TEXTS):
            if name not in header:
                fail(f"{path}: line 1: found no column '{name}', expected the header of --csv")
        for row in reader:
            where = f"{path}: line {reader.line_num}"
            if len(row) != len(header):
                fail(f"{where}: found {len(row)} columns, expected {len(header)}")
            run = dict(zip(header, row))
            if run["device"] == "simulated":  # by sim/, whose times mean nothing
                continue
            for name in (*WHOLE, *NUMBERS):
                try:
                    run[name] = parse(name, run[name])
                except ValueError as expected:
                    fail(f"{where}: {name}: found '{run[name]}', expected {expected}")
            run["threads"] = run["threads"] or 0
            groups[tuple(run[name] for name in SETTINGS)].append(run)
    except csv.Error as error:
        fail(f"{path}: line {reader.line_num}: found no row of --csv: {error}")
    return [Group(settings, runs)
            for settings, runs in sorted(groups.items(), key=lambda item: (item[0][0] != "mnist",
                                                                           item[0]))]


def read_benchmarks(folder):
    """[(name, run)]: every single run in the files of `make bench`. Empty if there are none."""
    found = []
    for path in sorted(folder.glob("bench/*.json")):
        try:
            for run in json.loads(read(path))["benchmarks"]:
                if run.get("run_type") == "iteration":
                    for name in {"flops", "bytes_read", "bytes", "flops_per_byte"} & run.keys():
                        run[name] = parse(name, run[name])
                    found.append((run["name"], run))
        except (ValueError, KeyError, TypeError, AttributeError):
            fail(f"{path}: expected the JSON of Google Benchmark; run `make bench` again")
    return found


def read_ceilings(benchmarks):
    """{"flops", "L1", ..., "memory": {threads: rate}} from the results of bench/ceilings. The rates
    are operations or bytes a second."""
    found = defaultdict(lambda: defaultdict(list))
    for name, run in benchmarks:
        parts = name.split("/")
        threads = int(next((part[8:] for part in parts if part.startswith("threads:")), "1"))
        if parts[:2] == ["ceilings", "multiply_add"] and run.get("flops"):
            found["flops"][threads].append(run["flops"])
        elif parts[:2] == ["ceilings", "read"] and run.get("bytes_read"):
            found[parts[2]][threads].append(run["bytes_read"])
    return {level: {threads: statistics.median(values) for threads, values in by_threads.items()}
            for level, by_threads in found.items()}


def machine(path):
    """The machine's name, from machine.txt beside the runs."""
    path = path.with_name("machine.txt")
    if not path.exists():
        return "unknown machine"
    field = dict(line.split(": ", 1) for line in read(path).splitlines() if ": " in line)
    return "; ".join(name for name in (field.get("cpu"), field.get("gpu")) if name not in
                     (None, "none"))


def label(line):
    stage, threads = line
    return f"{stage}, {threads} threads" if threads else stage


def three_digits(value):
    """0.0971, 3.96, 71.8, 641, 1203."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value else "0"


def percent(part):
    """0.9 %, 12 %."""
    return f"{100 * part:.{1 if part < 0.1 else 0}f} %"


def middle(values):
    return values[len(values) // 2]


def format_cell(group, measure, cell):
    """A number, with room for its spread: 16 characters."""
    spread = ""
    if measure == "speedup":
        factor = group.speedup(cell)
        number = f"{three_digits(factor)}×" if factor else "-"
    else:
        median = group.median(measure, cell)
        number = "-" if median is None else f"{median:.4f}"
    if measure == "train_s" and len(group.cells.get(cell, ())) > 1:
        spread = f" ±{100 * group.spread(cell):.0f}%"
    return f"{number:>10}{spread:<6}"


def table_lines(path, groups):
    """The tables, in the layout of the papers: each measure has a line for each stage."""
    yield machine(path)
    for group in groups:
        yield ""
        yield group.heading()
        yield f"{group.repeats()}; ± is half the range of a cell's runs, where there are several"
        width = max(24, *(len(label(line)) + 4 for line in group.lines))
        for batch in group.batches:
            heads = (f"{f'{hidden} nodes':>10}      " for hidden in group.hiddens)
            yield ""
            yield f"{f'Batch size {batch}':<{width}}{''.join(heads)}".rstrip()
            for measure, title in MEASURES.items():
                lines = group.lines_of(measure)
                if measure == "speedup":
                    if not group.baseline or not lines:
                        continue
                    title = title.format(baseline=label(group.baseline))
                yield title
                for line in lines:
                    cells = (format_cell(group, measure, (batch, line, hidden))
                             for hidden in group.hiddens)
                    yield f"  {label(line):<{width - 2}}{''.join(cells)}".rstrip()
    if not groups:
        yield "no finished runs"


def ceiling_in_words(group, lines, corners, ceilings):
    """Says what the ceiling is, and how much of it the baseline reaches."""
    by_threads = {line[1] or 1: group.ceiling(line, ceilings)
                  for line in lines if group.ceiling(line, ceilings)}
    each = ", ".join(f"{three_digits(flops / 1e9)} GFLOP/s with {plural(threads, 'thread')}"
                     for threads, flops in sorted(by_threads.items()))
    text = ("The ceiling is the rate of multiply-adds alone on as many threads as the line has: "
            f"{each}.")
    if not all(group.is_on_cpu(line) for line in lines):
        text += " A GPU's line has no ceiling here."
    parts = sorted(filter(None, (group.part_of_ceiling((batch, group.baseline, hidden), ceilings)
                                 for hidden, batch in corners)))
    if parts:
        reached = dict.fromkeys((percent(parts[0]), percent(parts[-1])))
        text += (f" The textbook's loops of {label(group.baseline)} reach {' to '.join(reached)} "
                 "of the ceiling.")
    return text


def corners_of(group):
    """[(hidden, batch)] of the smallest cell, one in the middle and the largest."""
    return sorted({(pick(group.hiddens), pick(group.batches)) for pick in (min, middle, max)})


def headline_lines(group):
    """The first stage, the last ones and the fastest CPU peer: eight lines at most."""
    peer, _ = group.fastest_peer()
    lines = [line for line in group.lines if not line[0].startswith("peer_")]
    most = HEADLINE_LINES - (peer is not None)
    if len(lines) > most:
        lines = lines[:1] + lines[1 - most:]
    return lines + ([peer] if peer else [])


def picture(plots):
    """HTML for the plot of the ladder, if `make report` has drawn it. GitHub shows one file on
    light pages and the other on dark ones."""
    light, dark = plots / "ladder.svg", plots / "ladder-dark.svg"
    if not light.exists() or not dark.exists():
        return []
    return ["<picture>",
            f'<source media="(prefers-color-scheme: dark)" srcset="{url(dark)}">',
            f'<img alt="How fast each stage computes, beside the ceiling" src="{url(light)}">',
            "</picture>", ""]


def headline(path, groups):
    """The table of README.md, in Markdown: the time, the speedup and the part of the ceiling of the
    stages and of the fastest peer. Its cells are those of corners_of()."""
    if not groups:
        fail(f"{path}: found no runs")
    group = groups[0]
    ceilings = read_ceilings(read_benchmarks(path.parent))
    corners = corners_of(group)
    lines = headline_lines(group)
    peer, cells = group.fastest_peer()
    measured = any(group.ceiling(line, ceilings) for line in lines)

    heads = (f"{hidden} hidden, batch {batch}" for hidden, batch in corners)
    table = [f"| stage | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(corners)}"]
    for line in lines:
        texts = []
        for hidden, batch in corners:
            cell = batch, line, hidden
            time = group.median("train_s", cell)
            factor = group.speedup(cell) if line != group.baseline else None
            part = group.part_of_ceiling(cell, ceilings)
            texts.append("-" if time is None else f"{three_digits(time)} s")
            texts[-1] += f", {three_digits(factor)}×" if factor else ""
            texts[-1] += f", {percent(part)}" if part else ""
        table.append(f"| {markdown(label(line))} | {' | '.join(texts)} |")

    what = ["the training time"]
    if group.baseline:
        what.append(f"the speedup over {label(group.baseline)}")
    if measured:
        what.append("the part of the ceiling that the run reaches")
    above = f"A cell has {listing(what)}."
    if measured:
        above += " " + ceiling_in_words(group, lines, corners, ceilings)
    conditions = f"{group.heading()}; {group.repeats()}; on {machine(path)}."
    below = ""
    if peer:
        below = (f"{markdown(peer[0])} is the fastest CPU [peer](bench/peers) (geometric mean over "
                 f"{plural(cells, 'cell')}). A peer is a library or framework that you might use "
                 "instead. ")
        below += f"On the CPU, {group.against_peers()} "
    full = Path(os.path.relpath(path)).with_name("tables.txt")
    below += f"All stages, peers and cells are in [{markdown(readable(str(full)))}]({url(full)})."
    return "\n".join([*picture(full.parent / "plots"), markdown(above), "", markdown(conditions),
                      "", *table, "", below])


def update(target, text):
    """Puts the text between the markers of a file."""
    old = read(target)
    begin, end = (old.find(marker) for marker in MARKERS)
    if any(old.count(marker) != 1 for marker in MARKERS) or begin > end:
        fail(f"{target}: expected '{MARKERS[0]}' and, below it, '{MARKERS[1]}', each once")
    new = f"{old[:begin]}{MARKERS[0]}\n{text}\n{old[end:]}"
    if new != old:
        write(target, new)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, metavar="runs.csv")
    parser.add_argument("--markdown", action="store_true", help="print the headline")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the headline into FILE")
    parser.add_argument("--output", type=Path, metavar="FILE",
                        help="write the tables there instead of printing them")
    parser.add_argument("--note", action="append", default=[], metavar="TEXT",
                        help="a line below the tables, such as why a stage is not in them")
    arguments = parser.parse_args()

    groups = read_groups(arguments.runs)
    if arguments.update:
        update(arguments.update, headline(arguments.runs, groups))
        return
    if arguments.markdown:
        lines = [headline(arguments.runs, groups)]
    else:
        notes = [readable(note) for note in arguments.note]
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
    main()
