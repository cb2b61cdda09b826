"""Which of two stages or peers is faster, and by how much?

    make compare A=01_vectorized B=02_openmp [STUDY=name] [RUNS=30] [HIDDEN=128] ...

First compares both with the reference, in the cell in which they are timed. Then runs the two in
turn, in rounds of one run each: README.md explains the statistics, and BUSY=1.
"""

import itertools
import random
import subprocess
import sys
from statistics import median

from bench import base, faults, host, ladders, measuring, pairs, running
from bench import rows as results
from bench.base import ROOT, fail
from bench.options import given
from bench.testing import check_cell


def build(stage):
    # Make's output is for people. 2 is standard error, also where Python's goes elsewhere.
    if subprocess.run([*stage.build, "-s"], cwd=ROOT, stdout=2, check=False).returncode:
        fail(f"{stage.name} does not build: see above", 1)
    if not stage.program.exists():
        fail(f"{stage.name} cannot run here: see above (`make check` simulates a GPU)", 77)


def run(stage, words):
    """Runs once and returns the row, with the record of how the machine was."""
    row, status, errors, _ = measuring.measure(stage, words)
    if not row:
        reason = running.reason(errors, stage.name) or "no reason given"
        if status:
            reason = f"exit status {status}: {reason}"
        fail(f"{stage.name}: {reason}", max(1, status or 1))
    return row


def run_pairs(stages, words, count):
    """(rows of both stages, why they say nothing). The first run of each does not count. At most
    half as many rounds again take the place of disturbed ones."""
    for stage in stages:
        run(stage, words)
    rounds = []
    kept = []
    most = count + count // 2
    others = host.watch_others()
    while len(kept) < count and len(rounds) < most:
        show_progress(rounds, kept, most)
        # A B, B A, A B: so neither always runs after the other, with its heat and clock rate.
        order = (0, 1) if len(rounds) % 2 == 0 else (1, 0)
        drawn = draw_seed(stages[0].ladder)
        both = {side: run(stages[side], words + drawn) for side in order}
        rounds.append((both[0], both[1]))
        kept = undisturbed(rounds)
    why = host.why_busy(others())
    if not why and len(kept) < min(count, pairs.FEWEST):
        why = (f"the machine was disturbed in {len(rounds) - len(kept)} of {len(rounds)} rounds: "
               "multiply-adds alone were slower than it can, or others used it")
    if why and not given("BUSY"):
        return [*zip(*rounds)], why
    return [*zip(*kept)], ""


def draw_seed(ladder):
    """The words for a seed that nobody knows before: so no result can be had from a file."""
    if "seed" not in ladder.settings or ladder.given("seed"):
        return []
    return ["--seed", str(random.randrange(1, 2**31))]


def show_progress(rounds, kept, most):
    """On a terminal, says which round runs, and what keeps rounds from counting."""
    said = f"round {len(rounds) + 1} of at most {most}, {len(kept)} kept"
    if len(kept) < len(rounds):
        used = max(row["others"] for row in rounds[-1])
        said += f"; other programs use {used:.0f} % of the processors"
    if sys.stderr.isatty():
        print(f"\r\033[K{said}", end="\r", file=sys.stderr, flush=True)


def undisturbed(rounds):
    """The rounds in which neither run was disturbed. With BUSY=1, all."""
    best = faults.best_rates(itertools.chain(*rounds))
    return [each for each in rounds if given("BUSY") or not any(
        faults.is_disturbed(row, best) for row in each)]


def print_comparison(ladder, names, rows, why):
    width = max(13, *map(len, names)) + 2
    line = f"{{:12}}{{:>{width}}}{{:>{width}}}   {{}}"
    print(line.format("median", *names, f"{names[1]} is ... as fast"))
    ratios = []
    for column in (ladder.time, *(f"{phase}_s" for phase in ladder.phases), "program_s"):
        times = [[row[column] for row in side] for side in rows]
        if all(map(all, times)):  # a phase may have nothing to do
            ratios.append(pairs.ratio(times[1], times[0]))
            medians = (f"{1e3 * median(side):.2f} ms" for side in times)
            print(line.format(column.removesuffix("_s"), *medians, ratios[-1].text))
        elif column == ladder.time:
            fail(f"{column}: found 0, expected runs that take longer")
    verdict = ratios[0].text
    if ratios[0].is_seen:
        verdict = f"{names[1]} is {verdict} as fast as {names[0]}"
    print(f"No verdict: {why}." if why else f"{ratios[0].pairs} pairs of runs: {verdict}.")


def read_options(ladder, table):
    """The options of a table in ladder.toml, which make's command line may have changed."""
    options = {"runs": "30", **ladder.options(table)}
    known = results.parameters(ladder)
    least = 0 if table == "check" else 2  # runs
    for option, text in options.items():
        kind = known.get(ladder.column(option), (int, least))
        base.value(option.upper(), str(text), *kind)
    return options


def compare(stages, options, shows=True):
    """Runs two stages that are built, with these options, and prints what the runs say, if it
    shows them. Returns the rows of both, and why they say nothing."""
    ladder = stages[0].ladder
    names = [stage.name for stage in stages]
    host.ceiling()
    rows, why = run_pairs(stages, ladder.words(options), int(options["runs"]))
    # Where the two do not compute the same, no time says anything.
    for a, b in zip(*rows):
        if differs := faults.difference(a, b, ladder):
            column, found, other = differs
            fail(f"the two do not compute the same, so their times are not compared: {column} is "
                 f"{found:g} in {names[0]} and {other:g} in {names[1]}. See `make check`", 1)
    if shows:
        print(", ".join([
            *(f"{option} {value}" for option, value in options.items() if option != "runs"),
            f"{len(rows[0])} runs of each in turn, dataset {rows[0][0]['dataset']}"]))
        print_comparison(ladder, names, rows, why)
    return rows, why


def compare_in_cell(stages, options):
    """Builds two stages, tests them where they will be timed, and compares them."""
    for stage in stages:
        build(stage)
    check_cell(stages, options)
    return compare(stages, options)


def main():
    ladder = ladders.find_ladder(given("STUDY"))
    if given("STAGE"):
        fail("STAGE: compare takes two programs, as in A=01 B=02; `make step` takes one")
    among = ladder.stages + ladder.peers
    stages = [ladder.find(given(option), option, among) for option in "AB"]
    compare_in_cell(stages, read_options(ladder, "compare"))
