"""Runs two programs in turn, and says which is faster. bench/README.md explains it."""

import itertools
import sys
from statistics import median

from bench import clocks, faults, host, measuring, pairs, process, screen, testing
from bench.base import Interrupted, fail
from bench.options import given

CLOCK_LIMIT_S = 60  # a program may say that it takes no time
CLOCK_TRIES = 5     # a busy machine disturbs a run
SPOILT = 5          # after so many disturbed rounds a reader is asked whether to go on


def compare_in_cell(stages, options):
    """Builds two programs, tests them in the cell of these options, and compares their times."""
    with screen.Bar() as bar:
        for stage in stages:
            bar.say(f"builds {stage.name}")
            measuring.build(stage)
        for stage in stages:
            bar.say(f"compares {stage.name} with the reference")
            testing.check_cell(stage, options)
    return compare(stages, options)


def compare(stages, options):
    """Compares the times of two programs that are built. Returns the rows of both, and why they say
    nothing, or "". An interrupted comparison shows what it has."""
    ladder = stages[0].ladder
    wanted = int(options["runs"])
    host.ceiling()
    others = host.watch_others()
    rounds = []
    interrupted = None
    with screen.Bar() as bar:
        try:
            run_rounds(stages, ladder.words(options), wanted, rounds, bar)
            kept = undisturbed(rounds)
            why = why_none(rounds, kept, wanted, host.why_busy(others()))
            if not why:
                check_clocks(stages, options, [*zip(*kept)], bar)
        except Interrupted as end:
            if not rounds:
                raise
            interrupted = end
            kept = undisturbed(rounds)
            why = why_none(rounds, kept, 1, host.why_busy(others()))
    sides = [*zip(*(rounds if why else kept))]
    check_results(stages, sides)
    screen.tell(", ".join([
        *(f"{option} {value}" for option, value in options.items() if option != "runs"),
        f"{len(sides[0])} runs of each in turn, dataset {sides[0][0]['dataset']}"]))
    print_verdict(stages, print_times(stages, sides), why, interrupted)
    if interrupted:
        raise interrupted
    return sides, why


def run_rounds(stages, words, count, rounds, bar):
    """Adds the rows of both in each round. The first run of each does not count. At most half as
    many rounds again take the place of disturbed ones."""
    most = count + count // 2
    is_asked = False
    for stage in stages:
        bar.say(f"{stage.name}: a first run, which does not count")
        measuring.run(stage, words)
    while len(kept := undisturbed(rounds)) < count and len(rounds) < most:
        bar.say(progress(rounds, kept, most), len(rounds),
                min(count - len(kept), most - len(rounds)))
        # A B, B A, A B: so neither always runs after the other, with its heat and clock.
        first = len(rounds) % 2
        both = {side: measuring.run(stages[side], words) for side in (first, 1 - first)}
        rounds.append((both[0], both[1]))
        if not is_asked and len(rounds) - len(undisturbed(rounds)) == SPOILT:
            is_asked = True
            if not goes_on(stages, rounds, bar):
                return


def goes_on(stages, rounds, bar):
    """Whether to go on although rounds are disturbed, as who sits at the terminal says."""
    bar.stop()  # else it has taken stdout over
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        bar.start()
        return True
    times = [[row[stages[0].ladder.time] for row in side] for side in zip(*rounds)]
    used = max(row["others"] for row in rounds[-1])
    screen.tell(f"{SPOILT} of {len(rounds)} rounds were disturbed: other programs use {used:.0f} % "
                f"of the processors, or the cores are slow. So far {stages[1].name} is "
                f"{pairs.ratio(times[1], times[0]).text} as fast as {stages[0].name}.")
    print("Go on? (Enter, or n to stop) ", end="", flush=True)
    answer = sys.stdin.readline()
    bar.start()
    return not answer.lower().startswith("n")


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


def why_none(rounds, kept, wanted, busy):
    """Why the rounds that are kept say nothing, or ""."""
    if given("BUSY"):
        return ""
    if not busy and len(kept) < min(wanted, pairs.FEWEST):
        return (f"the machine was disturbed in {len(rounds) - len(kept)} of {len(rounds)} rounds: "
                "multiply-adds alone were slower than it can, or others used it")
    return busy


def check_results(stages, sides):
    """Where the two do not compute the same, no time says anything."""
    for a, b in zip(*sides):
        if differs := faults.difference(a, b, stages[0].ladder):
            column, found, other = differs
            fail("the two do not compute the same, so their times are not compared: "
                 f"{column} is {found:g} in {stages[0].name} and {other:g} in {stages[1].name}. "
                 "See `make check`", 1)


def check_clocks(stages, options, sides, bar):
    """Ends the program if a stage's own clock is not that outside. A peer's is its library's."""
    for stage, rows in zip(stages, sides):
        if stage.ladder.toml["clock"] and not stage.is_peer:
            bar.say(f"{stage.name}: a run with other work, for its clock")
            if fault := wrong_clock(stage, options, rows):
                fail(f"{stage.name}: {fault}", 1)


def wrong_clock(stage, options, rows):
    """What is wrong with a program's clock, as a run with other work shows, or ""."""
    ladder = stage.ladder
    clock = ladder.toml["clock"]
    work = clocks.other_work(rows[0], ladder)
    words = ladder.words({**options, clock: work})
    limit = CLOCK_LIMIT_S + 2 * max(row["program_s"] for row in rows)
    fault = ""
    for _ in range(CLOCK_TRIES):
        found = measuring.measure(stage, words, limit=limit)
        if found.status == process.TOO_SLOW:
            return f"its clock is wrong: --{clock} {work} does not end in {limit:.0f} s"
        if not found.row:
            return process.reason(found.errors, stage.name) or process.ending(found.status)
        fault = clocks.wrong_clock(found.row, rows, ladder, bool(given("BUSY")))
        if not fault:
            break
    return fault


def print_times(stages, sides):
    """Prints the times of both. Returns {column: Ratio}."""
    ladder = stages[0].ladder
    heads = [stage.short for stage in stages]
    width = max(11, *map(len, heads)) + 2
    line = f"{{:10}}{{:>{width}}}{{:>{width}}}   {{}}"
    print(line.format("median", *heads, f"{heads[1]} is ... as fast"))
    ratios = {}
    for column in (ladder.time, *(f"{phase}_s" for phase in ladder.phases), "program_s"):
        times = [[row[column] for row in side] for side in sides]
        if all(map(all, times)):  # a phase may have nothing to do
            ratios[column] = pairs.ratio(times[1], times[0])
            shown = (f"{1000 * median(each):.2f} ms" for each in times)
            print(line.format(column.removesuffix("_s"), *shown, ratios[column].text))
    return ratios


def print_verdict(stages, ratios, why, is_interrupted):
    """Says which is faster. Where the whole program gains another factor, that is said, too: work
    may have moved into the set-up."""
    if why:
        screen.tell(f"No verdict: {why}.")
        return
    ratio = ratios[stages[0].ladder.time]
    whole = ratios["program_s"]
    said = f"{ratio.pairs} pairs of runs"
    if is_interrupted:
        said = f"Interrupted after {said}"
    if ratio.pairs < pairs.FEWEST:
        said += f", so the interval is only their range; {pairs.FEWEST} would give one"
    verdict = ratio.text
    if ratio.is_seen:
        verdict = f"{stages[1].name} is {verdict} as fast as {stages[0].name}"
    if whole.high < ratio.low or ratio.high < whole.low:
        verdict += f"; the whole program, with what it does before and after: {whole.text}"
    screen.tell(f"{said}: {verdict}.")
