"""Which of two stages or peers is faster, and by how much?

    make compare A=01_vectorized B=02_openmp [STUDY=name] [RUNS=30] [HIDDEN=128] ...
"""

import itertools
import sys
import tempfile
from statistics import median

import numpy as np

from bench import base, faults, host, ladders, measuring, pairs, process, screen
from bench import rows as results
from bench.base import Interrupted, fail
from bench.options import given
from bench.process import make
from bench.testing import check_cell


def build(stage):
    make(*stage.build)
    if not stage.program.exists():
        fail(f"{stage.name} cannot run here: see above (`make check` simulates a GPU)", 77)


def run(stage, words):
    """Runs once and returns the row, with the record of how the machine was."""
    row, status, errors, _ = measuring.measure(stage, words)
    if not row:
        reason = process.reason(errors, stage.name) or "no reason given"
        if status:
            reason = f"exit status {status}: {reason}"
        fail(f"{stage.name}: {reason}", max(1, status or 1))
    return row


def run_and_save(stage, words):
    """(the row of a run, the numbers that it saved)"""
    with tempfile.NamedTemporaryFile() as file:
        if stage.ladder.save:
            words = [*words, f"--{stage.ladder.save}", file.name]
        return run(stage, words), np.fromfile(file.name, np.float32)


def run_pairs(stages, words, count):
    """(rows of both stages, why they say nothing, the exit status of a Ctrl-C or 0). The first run
    of each does not count. At most half as many rounds again take the place of disturbed ones."""
    rounds = []
    kept = []
    ended = 0
    most = count + count // 2
    others = host.watch_others()
    with screen.Bar() as bar:
        try:
            for stage in stages:
                bar.say(f"{stage.name}: a first run, which does not count")
                run(stage, words)
            while len(kept) < count and len(rounds) < most:
                bar.say(progress(rounds, kept, most), len(rounds),
                        min(count - len(kept), most - len(rounds)))
                # A B, B A, A B: so neither always runs after the other, with its heat and clock.
                rounds.append(run_round(stages, words, len(rounds) % 2))
                kept = undisturbed(rounds)
        except Interrupted as end:
            ended = end.code
            if not rounds:
                raise
    why = host.why_busy(others())
    if not why and len(kept) < (1 if ended else min(count, pairs.FEWEST)):
        why = (f"the machine was disturbed in {len(rounds) - len(kept)} of {len(rounds)} rounds: "
               "multiply-adds alone were slower than it can, or others used it")
    if why and not given("BUSY"):
        return [*zip(*rounds)], why, ended
    return [*zip(*kept)], "", ended


def run_round(stages, words, first):
    drawn = measuring.draw_seed(stages[0].ladder)
    both = {side: run_and_save(stages[side], words + drawn) for side in (first, 1 - first)}
    (row, saved), (other_row, other) = both[0], both[1]
    # Rounding over many epochs moves them less than that, and other seeds by √2.
    if saved.size != other.size or np.linalg.norm(saved - other) > np.linalg.norm(other):
        fail(f"what {stages[0].name} and {stages[1].name} save is not the same, so their times are "
             "not compared. See `make check`", 1)
    return row, other_row


def progress(rounds, kept, most):
    """Which round runs, and what may keep rounds from counting."""
    said = f"round {len(rounds) + 1} of at most {most}"
    if len(kept) == len(rounds):
        return said
    used = max(row["others"] for row in rounds[-1])
    return f"{said}, {len(kept) or 'none'} kept: other programs use {used:.0f} %"


def undisturbed(rounds):
    best = faults.best_rates(itertools.chain(*rounds))
    return [each for each in rounds if given("BUSY") or not any(
        faults.is_disturbed(row, best) for row in each)]


def print_comparison(stages, rows):
    """Prints the times of both stages. Returns the Ratio of the ladder's."""
    ladder = stages[0].ladder
    heads = [stage.short for stage in stages]
    width = max(11, *map(len, heads)) + 2
    line = f"{{:10}}{{:>{width}}}{{:>{width}}}   {{}}"
    print(line.format("median", *heads, f"{heads[1]} is ... as fast"))
    ratios = []
    for column in (ladder.time, *(f"{phase}_s" for phase in ladder.phases), "program_s"):
        times = [[row[column] for row in side] for side in rows]
        if all(map(all, times)):  # a phase may have nothing to do
            ratios.append(pairs.ratio(times[1], times[0]))
            medians = (f"{1e3 * median(side):.2f} ms" for side in times)
            print(line.format(column.removesuffix("_s"), *medians, ratios[-1].text))
        elif column == ladder.time:
            fail(f"{column}: found 0, expected runs that take longer")
    return ratios[0]


def print_verdict(names, ratio, why, is_interrupted):
    said = f"{ratio.pairs} pairs of runs"
    if is_interrupted:
        said = f"Interrupted after {said}"
    if ratio.pairs < pairs.FEWEST:
        said += f", so the interval is only their range; {pairs.FEWEST} would give one"
    verdict = ratio.text
    if ratio.is_seen:
        verdict = f"{names[1]} is {verdict} as fast as {names[0]}"
    screen.tell(f"No verdict: {why}." if why else f"{said}: {verdict}.")


def read_options(ladder, table):
    """The options of a table in ladder.toml, which make's command line may have changed."""
    options = {"runs": "30", **ladder.options(table)}
    known = results.parameters(ladder)
    least = 0 if table == "check" else 2  # runs
    for option, text in options.items():
        kind = known.get(ladder.column(option), (int, least))
        if isinstance(text, bool):  # in ladder.toml
            text = int(text)
        base.value(option.upper().replace("-", "_"), str(text), *kind)
    return options


def compare(stages, options, shows=True):
    """Runs two stages that are built. Returns the rows of both, and why they say nothing."""
    ladder = stages[0].ladder
    names = [stage.name for stage in stages]
    host.ceiling()
    rows, why, ended = run_pairs(stages, ladder.words(options), int(options["runs"]))
    # Where the two do not compute the same, no time says anything.
    for a, b in zip(*rows):
        if differs := faults.difference(a, b, ladder):
            column, found, other = differs
            fail(f"the two do not compute the same, so their times are not compared: {column} is "
                 f"{found:g} in {names[0]} and {other:g} in {names[1]}. See `make check`", 1)
    if shows:
        screen.tell(", ".join([
            *(f"{option} {value}" for option, value in options.items() if option != "runs"),
            f"{len(rows[0])} runs of each in turn, dataset {rows[0][0]['dataset']}"]))
        print_verdict(names, print_comparison(stages, rows), why, ended)
    if ended:
        sys.exit(ended)
    return rows, why


def compare_in_cell(stages, options):
    with screen.Bar() as bar:
        for stage in stages:
            bar.say(f"builds {stage.name}")
            build(stage)
        for stage in stages:
            bar.say(f"compares {stage.name} with the reference")
            check_cell([stage], options)
    return compare(stages, options)


def main():
    ladder = ladders.find_ladder(given("STUDY"))
    among = ladder.stages + ladder.peers
    if given("STAGE"):
        stage = ladder.find(given("STAGE"))
        fail("STAGE: compare takes two programs; did you mean "
             f"A={(stage.before or stage).number} B={stage.number}?")
    stages = [ladder.find(given(option), option, among) for option in "AB"]
    compare_in_cell(stages, read_options(ladder, "compare"))
