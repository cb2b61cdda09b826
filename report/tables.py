#!/usr/bin/env python3
"""Turns the rows that the stages wrote into tables.

    tables.py runs.csv                      tables for a terminal: for each batch size and measure
                                            a line per stage, a column per hidden size
    tables.py --markdown runs.csv           the headline: a few cells, in Markdown
    tables.py --update README.md runs.csv   the headline, put between the markers in README.md

Only runs with the same settings share a table. A cell is the median of its runs. machine.txt beside
runs.csv names the machine.
"""

import argparse
import csv
import math
import statistics
import sys
from collections import defaultdict
from pathlib import Path

INTEGERS = "threads", "hidden", "batch", "epochs", "seed", "train_samples", "test_samples"
NUMBERS = "learning_rate", "train_s", "forward_s", "backward_s", "test_accuracy"
MAY_BE_EMPTY = "forward_s", "backward_s"
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


def fail(message):
    print(f"tables.py: {message}", file=sys.stderr)
    sys.exit(2)


class Group:
    """The runs that share their settings. A cell is (batch, line, hidden), a line of a table is
    (stage, threads), where no threads or one are 0."""

    def __init__(self, settings, runs):
        self.settings = dict(zip(SETTINGS, settings))
        self.cells = defaultdict(list)
        for run in runs:
            line = run["stage"], run["threads"] if run["threads"] > 1 else 0
            self.cells[run["batch"], line, run["hidden"]].append(run)
        self.batches, self.lines, self.hiddens = (sorted(set(keys)) for keys in zip(*self.cells))
        self.baseline = next((line for line in self.lines if line[0].startswith("00_")), None)

    def median(self, measure, cell):
        """The median over the runs of a cell, None for a cell without, or one that has no such
        measure: a peer may not tell forward from backward."""
        values = [run[measure] for run in self.cells.get(cell, ())]
        return statistics.median(values) if values and None not in values else None

    def lines_of(self, measure):
        """The lines of the measure's table: those that have it in any cell, and for the speedup all
        but the baseline."""
        if measure == "speedup":
            return [line for line in self.lines if line != self.baseline]
        having = {line for (_, line, _), runs in self.cells.items()
                  for run in runs if run[measure] is not None}
        return [line for line in self.lines if line in having]

    def spread(self, cell):
        """Half of what lies between the fastest and the slowest run, over the median."""
        times = [run["train_s"] for run in self.cells[cell]]
        return (max(times) - min(times)) / 2 / statistics.median(times)

    def speedup(self, cell):
        """How many times faster than the baseline's cell; None where there is no such cell."""
        batch, _, hidden = cell
        time = self.median("train_s", cell)
        baseline = self.median("train_s", (batch, self.baseline, hidden))
        return baseline / time if baseline and time else None

    def heading(self):
        value = self.settings
        return (f"{DATASETS.get(value['dataset'], value['dataset'])}: {value['epochs']} "
                f"epoch{'' if value['epochs'] == 1 else 's'} of {value['train_samples']:,} images, "
                f"accuracy on {value['test_samples']:,} others")

    def repeats(self):
        """What the number in a cell is, in words."""
        counts = {len(runs) for runs in self.cells.values()}
        if counts == {1}:
            return "one run of each"
        return f"medians of {'' if len(counts) == 1 else 'up to '}{max(counts)} runs"


def read_groups(path):
    """The groups in a file of rows, MNIST first. An empty file has none."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            header, *rows = list(csv.reader(file)) or [[*INTEGERS, *NUMBERS, *TEXTS]]
    except OSError as error:
        fail(f"{path}: cannot read: {error.strerror}")
    for name in INTEGERS + NUMBERS + TEXTS:
        if name not in header:
            fail(f"{path}: line 1: found no column '{name}', expected the header of --csv")
    groups = defaultdict(list)
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            fail(f"{path}: line {number}: found {len(row)} columns, expected {len(header)}")
        run = dict(zip(header, row))
        if run["device"] == "simulated":  # by tests/cuda_on_cpu: its times mean nothing
            continue
        run["threads"] = run["threads"] or "0"
        for name in INTEGERS + NUMBERS:
            try:
                if name in MAY_BE_EMPTY and not run[name]:
                    run[name] = None
                else:
                    run[name] = int(run[name]) if name in INTEGERS else float(run[name])
            except ValueError:
                fail(f"{path}: line {number}: {name}: found '{run[name]}', expected a number")
        groups[tuple(run[name] for name in SETTINGS)].append(run)
    return [Group(settings, runs)
            for settings, runs in sorted(groups.items(), key=lambda item: (item[0][0] != "mnist",
                                                                           item[0]))]


def machine(path):
    """What machine.txt beside the runs says of the machine."""
    try:
        text = path.with_name("machine.txt").read_text(encoding="utf-8")
    except OSError:
        return "unknown machine"
    field = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return "; ".join(name for name in (field.get("cpu"), field.get("gpu")) if name not in
                     (None, "none"))


def label(line):
    stage, threads = line
    return f"{stage}, {threads} threads" if threads else stage


def three_digits(value):
    """0.0971, 3.96, 71.8, 641, 1203."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value else "0"


def middle(values):
    return values[len(values) // 2]


def format_cell(group, measure, cell):
    """16 characters: a number and the room for its spread."""
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


def print_tables(path, groups):
    """The tables in the layout of the papers, with a line for each stage under each measure."""
    print(machine(path))
    for group in groups:
        print(f"\n{group.heading()}\n{group.repeats()}; ± is half the range of a cell's runs, where "
              "there are several")
        width = max(24, *(len(label(line)) + 4 for line in group.lines))
        for batch in group.batches:
            heads = (f"{f'{hidden} nodes':>10}      " for hidden in group.hiddens)
            print(f"\n{f'Batch size {batch}':<{width}}{''.join(heads)}".rstrip())
            for measure, title in MEASURES.items():
                lines = group.lines_of(measure)
                if measure == "speedup":
                    if not group.baseline or not lines:
                        continue
                    title = title.format(baseline=label(group.baseline))
                print(title)
                for line in lines:
                    cells = (format_cell(group, measure, (batch, line, hidden))
                             for hidden in group.hiddens)
                    print(f"  {label(line):<{width - 2}}{''.join(cells)}".rstrip())
    if not groups:
        print("no finished runs")


def headline(path, groups):
    """Markdown: time and speedup in the smallest cell, one in the middle and the largest."""
    if not groups:
        fail(f"{path}: found no runs")
    group = groups[0]
    corners = sorted({(pick(group.hiddens), pick(group.batches)) for pick in (min, middle, max)})
    heads = (f"{hidden} hidden, batch {batch}" for hidden, batch in corners)
    table = [f"| stage | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(corners)}"]
    for line in group.lines:
        texts = []
        for hidden, batch in corners:
            cell = batch, line, hidden
            time = group.median("train_s", cell)
            factor = group.speedup(cell) if line != group.baseline else None
            texts.append("-" if time is None else f"{three_digits(time)} s")
            texts[-1] += f", {three_digits(factor)}×" if factor else ""
        table.append(f"| {label(line)} | {' | '.join(texts)} |")
    peers = any(stage.startswith("peer_") for stage, _ in group.lines)
    over = f" and speedup over {label(group.baseline)}" if group.baseline else ""
    return "\n".join([f"Training time{over}; {group.heading()}; {group.repeats()}; on "
                      f"{machine(path)}. All cells are in [{path.parent}]({path.parent})."
                      + (" The [peers](bench/peers) are what one would use instead." if peers else ""),
                      "", *table])


def update(target, text):
    """Puts the text between the markers of a file."""
    try:
        old = target.read_text(encoding="utf-8")
    except OSError as error:
        fail(f"{target}: cannot read: {error.strerror}")
    begin, end = (old.find(marker) for marker in MARKERS)
    if any(old.count(marker) != 1 for marker in MARKERS) or begin > end:
        fail(f"{target}: expected '{MARKERS[0]}' and, below it, '{MARKERS[1]}', each once")
    new = f"{old[:begin]}{MARKERS[0]}\n{text}\n{old[end:]}"
    if new != old:
        target.write_text(new, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, metavar="runs.csv")
    parser.add_argument("--markdown", action="store_true", help="print the headline")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the headline into FILE")
    parser.add_argument("--note", action="append", default=[], metavar="TEXT",
                        help="a line below the tables, such as why a stage is not in them")
    arguments = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")  # for ± and ×, whatever the locale

    groups = read_groups(arguments.runs)
    if arguments.update:
        update(arguments.update, headline(arguments.runs, groups))
    elif arguments.markdown:
        print(headline(arguments.runs, groups))
    else:
        print_tables(arguments.runs, groups)
        for number, note in enumerate(arguments.note):
            print("" if number else "\n", note, sep="")


if __name__ == "__main__":
    main()
