#!/usr/bin/env python3
"""Which of two stages trains faster, by how much, and is the difference real?

    make compare A=01_vectorized B=02_openmp [HIDDEN=128] [BATCH=64] [EPOCHS=1]
                 [TRAIN=37800] [RUNS=30]

Runs the two in turn. What disturbs the machine for longer than a run then disturbs both runs of a
pair. So the ratio is taken within each pair. README.md explains the statistics.
"""

import argparse
import csv
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
CONFIDENCE = 0.99
FEWEST_PAIRS = 8  # fewer pairs give no interval of that confidence
UNEVEN = 1.1  # an interval whose ends have a larger ratio says nothing
PHASES = {"training": "train_s", "forward": "forward_s", "backward": "backward_s"}


def median_with_interval(values, confidence=CONFIDENCE):
    """(median, low, high): the median of the values and an interval. With at least that confidence,
    the interval holds the median of the distribution that the values come from.

    Whatever the distribution, a value is as likely to lie below that median as above it. So the
    number of values below it is binomial. At each end of the sorted list, values are left out as
    long as it is improbable that the median lies among them: the interval of the sign test. No
    noise makes it wrong. A few runs that took much too long do not widen it.
    """
    n = len(values)
    left_out, improbable = 0, 1 / 2**n
    while improbable <= (1 - confidence) / 2:
        left_out += 1
        improbable += math.comb(n, left_out) / 2**n
    if left_out == 0:
        return median(values), -math.inf, math.inf
    values = sorted(values)
    return median(values), values[left_out - 1], values[-left_out]


def ratio_with_interval(a, b):
    """(ratio, low, high): how many times as long A takes as B, from the times of pairs of runs."""
    logarithms = [math.log(x / y) for x, y in zip(a, b)]
    return tuple(math.exp(x) for x in median_with_interval(logarithms))


def digits(ratio):
    """Four digits, whatever the size."""
    return f"{ratio:#.4g}"


def verdict(name_a, name_b, ratio, low, high, pairs):
    """One sentence. `ratio` is A's time over B's."""
    if low <= 1 <= high:
        interval = f"{name_a} takes {digits(low)} to {digits(high)} times as long as {name_b}."
        if high / low > UNEVEN:
            return (
                f"Undecided: {interval} {pairs} pairs are too few for runs that differ so much."
                " Is something else running on this machine?"
            )
        return f"No difference that {pairs} pairs of runs show: {interval}"
    if ratio < 1:
        name_a, name_b, ratio, low, high = name_b, name_a, 1 / ratio, 1 / high, 1 / low
    return (
        f"The difference is real: {name_b} is {digits(ratio)} times as fast as"
        f" {name_a} ({digits(low)} to {digits(high)})."
    )


def fail(message, status=2):
    print(f"compare: {message}", file=sys.stderr)
    sys.exit(status)


def find_stage(option, name):
    """The stage that has this name, or the only one whose name begins with it."""
    stages = sorted(path.parent.name for path in ROOT.glob("stages/[0-9][0-9]_*/Makefile"))
    found = [stage for stage in stages if stage == name] or [
        stage for stage in stages if name and stage.startswith(name)
    ]
    if len(found) != 1:
        fail(f"{option}: found '{name}', expected one of: {' '.join(stages)}")
    return found[0]


def build(stage):
    command = ["make", "-s", "-C", str(ROOT / "stages" / stage)]
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        fail(f"{stage} does not build: see above", 1)


def run(stage, options):
    """Trains once and returns the result row."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.csv"
        command = [ROOT / "stages" / stage / "train", "--quiet", "--csv", rows, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            fail(f"{stage}: exit status {done.returncode}: {reason}", max(1, done.returncode))
        with open(rows, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))[-1]


def run_pairs(stages, options, pairs):
    """Rows of both stages. The first run of each does not count. An interrupt ends the runs."""
    rows = ([], [])
    try:
        for stage in stages:
            run(stage, options)
        for pair in range(pairs):
            if sys.stderr.isatty():
                print(f"\rpair {pair + 1} of {pairs} ", end="", file=sys.stderr, flush=True)
            # A B, B A, A B: so neither always runs after the other, with its heat and clock rate.
            both = {side: run(stages[side], options) for side in ((0, 1), (1, 0))[pair % 2]}
            for side, row in both.items():
                rows[side].append(row)
    except KeyboardInterrupt:
        if len(rows[0]) < FEWEST_PAIRS:
            sys.exit(130)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return rows


def print_comparison(stages, rows):
    pairs = len(rows[0])
    width = max(len(stage) for stage in stages) + 2
    print(f"{'median':10}{stages[0]:>{width}}{stages[1]:>{width}}   ratio   99 % interval")
    ratios = {}
    for phase, column in PHASES.items():
        times = [[float(row[column]) for row in side] for side in rows]
        ratios[phase] = ratio_with_interval(*times)
        cells = "".join(f"{1e3 * median(side):>{width - 3}.2f} ms" for side in times)
        ratio, low, high = ratios[phase]
        print(f"{phase:10}{cells} {digits(ratio):>7}   {digits(low)} to {digits(high)}")
    print(verdict(*stages, *ratios["training"], pairs))
    losses = [float(side[-1]["final_loss"]) for side in rows]
    if abs(losses[0] - losses[1]) > 0.01 * max(losses):
        print(
            f"But the two do not compute the same: after the last epoch the loss is {losses[0]} in"
            f" {stages[0]} and {losses[1]} in {stages[1]}. See `make test`."
        )


def whole_number(option, smallest):
    """A type for argparse whose error is one line: argparse itself would print more."""

    def parse(text):
        if not text.isdecimal() or int(text) < smallest:
            fail(f"{option}: found '{text}', expected a whole number from {smallest}")
        return int(text)

    return parse


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("a", metavar="A", help="a stage, by name or the beginning of it")
    parser.add_argument("b", metavar="B")
    for option, smallest, default in (
        ("hidden", 1, 128),
        ("batch", 1, 64),
        ("epochs", 1, 1),
        ("train", 1, 37800),
        ("runs", FEWEST_PAIRS, 30),
    ):
        parser.add_argument(
            f"--{option}", type=whole_number(option.upper(), smallest), default=default
        )
    arguments = parser.parse_args()
    stages = (find_stage("A", arguments.a), find_stage("B", arguments.b))
    for stage in dict.fromkeys(stages):
        build(stage)
    # As in run_all.sh, so that the threads behave as they do in the tables.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    located = subprocess.run([ROOT / "data" / "locate.sh"], stdout=subprocess.PIPE, check=False)
    if located.returncode:
        sys.exit(located.returncode)
    options = ["--data", os.fsdecode(located.stdout).rstrip("\n")]
    for name in ("hidden", "batch", "epochs", "train"):
        options += [f"--{name}", str(getattr(arguments, name))]
    rows = run_pairs(stages, options, arguments.runs)
    print(
        f"hidden {arguments.hidden}, batch {arguments.batch}, epochs {arguments.epochs} of"
        f" {arguments.train} images, {len(rows[0])} runs of each in turn,"
        f" dataset {rows[0][0]['dataset']}"
    )
    print_comparison(stages, rows)


if __name__ == "__main__":
    main()
