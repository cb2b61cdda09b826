"""Which of two stages or peers is faster, and by how much?

    make compare A=01_vectorized B=02_openmp [STUDY=name] [RUNS=30] [HIDDEN=128] ...

First compares both with the reference, in the cell in which they are timed. Then runs the two in
turn, in rounds of one run each: see pairs.py. A round in which the machine was disturbed is made
again, as in a sweep. README.md explains the statistics. Where RUNS or an option of
the ladder is not given, its ladder.toml has one. BUSY=1 judges although the machine was busy.
"""

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
        hint = "; try `make sim` or `make check`, which simulate a GPU"
        fail(f"{stage.name} cannot run here: see above"
             + hint * (stage.is_cuda and not stage.is_peer), 77)


def run(stage, words):
    """Runs once and returns the row, with the record of how the machine was."""
    row, status, errors, _ = measuring.measure(stage, words)
    if not row:
        reason = running.reason(errors, stage.name) or "no reason given"
        fail(f"{stage.name}: " + (f"exit status {status}: " if status else "") + reason,
             max(1, status or 1))
    return row


def run_pairs(stages, words, count):
    """(rows of both stages, why they say nothing). The first run of each does not count. At most
    half as many rounds again take the place of disturbed ones."""
    rounds, kept = [], []
    for stage in stages:
        run(stage, words)
    others = host.watch_others()
    while len(kept) < count and len(rounds) < count + count // 2:
        if sys.stderr.isatty():
            print(f"pair {len(kept) + 1} of {count}", end="\r", file=sys.stderr, flush=True)
        # A B, B A, A B: so neither always runs after the other, with its heat and clock rate.
        both = {side: run(stages[side], words) for side in ((0, 1), (1, 0))[len(rounds) % 2]}
        rounds.append((both[0], both[1]))
        kept = undisturbed(rounds)
    why = "" if given("BUSY") else host.why_busy(others())
    if not why and len(kept) < min(count, pairs.FEWEST):
        why = (f"the machine was disturbed in {len(rounds) - len(kept)} of {len(rounds)} rounds: "
               "multiply-adds alone were slower than it can, or others used it")
    return [*zip(*(rounds if why else kept))], why


def undisturbed(rounds):
    """The rounds in which neither run was disturbed. With BUSY=1, all."""
    if given("BUSY"):
        return rounds
    best = results.best_rates([row for each in rounds for row in each])
    return [each for each in rounds if not any(results.is_disturbed(row, best) for row in each)]


def print_comparison(ladder, names, rows, why):
    """A line for the ladder's time, each phase that both have and the whole program, and the
    verdict, or why there is none."""
    ratios, width = [], max(13, *map(len, names)) + 2
    print(f"{'median':12}" + "".join(f"{name:>{width}}" for name in names)
          + f"   {names[1]} is ... as fast")
    for column in (ladder.time, *(f"{phase}_s" for phase in ladder.phases), "program_s"):
        times = [[row[column] for row in side] for side in rows]
        if all(map(all, times)):  # a phase may have nothing to do
            ratios.append(pairs.ratio(times[1], times[0]))
            print(f"{column.removesuffix('_s'):12}" + "".join(
                f"{f'{1e3 * median(side):.2f} ms':>{width}}" for side in times)
                + f"   {ratios[-1].text}")
        elif column == ladder.time:
            fail(f"{column}: found 0, expected runs that take longer")
    print(f"No verdict: {why}." if why else
          f"{ratios[0].pairs} pairs of runs: " + (
              f"{names[1]} is {ratios[0].text} as fast as {names[0]}."
              if ratios[0].is_seen else f"{ratios[0].text}."))


def read_options(ladder, table):
    """The options of a table in ladder.toml, which make's command line may have changed. Only
    `make check` may make no runs."""
    options, known = {"runs": "30", **ladder.options(table)}, results.parameters(ladder)
    for option, value in options.items():
        base.value(option.upper(), str(value), *known.get(ladder.column(option), (
            int, 0 if table == "check" else 2)))
    return options


def compare(stages, options):
    """Runs two stages that are built, with these options, and prints what the runs say. Returns the
    rows of both, and why they say nothing."""
    ladder, names = stages[0].ladder, [stage.name for stage in stages]
    host.ceiling()
    rows, why = run_pairs(stages, ladder.words(options), int(options["runs"]))
    print(", ".join([
        *(f"{option} {value}" for option, value in options.items() if option != "runs"),
        f"{len(rows[0])} runs of each in turn, dataset {rows[0][0]['dataset']}"]))
    # Where the two do not compute the same, no time says anything.
    for a, b in zip(*rows):
        column, found, other = faults.difference(a, b, ladder) or ("", 0, 0)
        if column:
            fail(f"the two do not compute the same, so their times are not compared: {column} is "
                 f"{found:g} in {names[0]} and {other:g} in {names[1]}. See `make check`", 1)
    print_comparison(ladder, names, rows, why)
    return rows, why


def compare_in_cell(stages, options):
    """Builds two stages, tests them where they will be timed, and compares them: see compare()."""
    for stage in dict.fromkeys(stages):
        build(stage)
    check_cell(dict.fromkeys(stages), options)
    return compare(stages, options)


def main():
    ladder = ladders.find_ladder(given("STUDY"))
    compare_in_cell([ladder.find(given(option), option, ladder.stages + ladder.peers)
                     for option in "AB"],
                    read_options(ladder, "compare"))
