"""Checks whether a stage is right, and how fast it is: `make check STAGE=20_mine [STUDY=NAME]`.

    python3 -m harness check STAGE [STUDY] [TARGET] [PHASE]

Runs the tests of verify.py, and stops at the first mistake. Where a ladder's runs make updates of
weights (`updates` in [tests] of its ladder.toml), it compares after the first ones too, before a
mistake has spread, and says in plain words what is wrong with one. Where it finds no words, it
prints those that `hints` has for the wrong parts. Then it compares the stage's time with that of
its origin, in a cell that is tested first. Without a GPU, a CUDA stage runs on a simulated device,
without a time. There, the case of [tests.gpu] also runs under AddressSanitizer and
UndefinedBehaviorSanitizer.

TARGET=50% asks for this part of the ceiling: the multiply-adds of as many threads as the stage
uses, measured right after each of its runs. TARGET=1.2x asks for so many times the speed of its
origin. With PHASE=forward, that phase counts instead of the whole run. A target that is missed ends
with 1. RUNS=0 only asks whether the stage is right.
"""

import contextlib
import io
import itertools
import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from harness import compare, ladders, pairs, running
from harness.running import TOO_SLOW
from harness.verify import UNSET, Program, Start, Tester, Wrong

# Seconds that a run may take, with an origin and without one. It may take TIMES_ORIGIN times as
# long as its origin, if that is more.
LIMIT, LIMIT_ALONE, TIMES_ORIGIN = 5, 60, 20
RERUNS = 3  # of a wrong run, which may show that it is a race


def fit(found, right, before):
    """(times, again): the update found is `times` the right one plus `again` times the one
    before, by least squares. None if what this leaves is more than a hundredth of what it explains.
    Anything fits a few elements, so for them only an update of zero is good."""
    ff, fr, rr = (found * found).sum(), (found * right).sum(), (right * right).sum()
    fb, rb, bb = (found * before).sum(), (right * before).sum(), (before * before).sum()
    many = found.size >= 5
    times = fr / rr
    # These are squares, so 1e-4 stands for a hundredth.
    if ff - times * fr <= 1e-4 * (times - 1)**2 * rr and (many or abs(times) < 1e-3):
        return times, 0
    determinant = rr * bb - rb * rb
    if many and determinant > 1e-6 * rr * bb:
        times, again = (fr * bb - fb * rb) / determinant, (fb * rr - fr * rb) / determinant
        if ff - times * fr - again * fb <= 1e-4 * again**2 * bb:
            return times, again
    return None


def explain_fit(name, times, again, count, size):
    """What a fit means for the elements of this name, after an update by `count` of `size`."""
    update = f"The update of {name} is {times:.5g} times the right one"
    if again:
        return (f"The update of {name} is {times:.5g} × the right one + {again:.5g} × that of the "
                "one before: is its gradient set to zero?")
    if abs(times) < 0.01:
        return f"{name} did not move."
    if count < size and math.isclose(times, count / size, rel_tol=0.01):
        return f"{update}: divided by {size}, not {count}?"
    if count > 1 and math.isclose(times, count, rel_tol=0.01):
        return f"{update}: not divided by {count}?"
    return f"{update}."


def fit_part(item, found, states):
    """(name, times, again) of what explain_fit() explains, or None. `states` are what is expected:
    before the first update, and after each."""
    rows, columns = np.nonzero(item.wrong)
    box = slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1)
    ranges = "".join(f"[{each.start}]" if each.stop - each.start == 1 else
                     f"[{each.start}..{each.stop - 1}]" for each in box[len(item.wrong) == 1:])
    found, *states = (each[item.slice].reshape(item.wrong.shape) for each in (found, *states))
    earlier, before, after = [states[0], *states][-3:]
    for name, place in ((item.name, ...), (item.name + ranges, box)):
        fitted = fit(*(each[place] for each in (found - before, after - before, before - earlier)))
        if fitted:
            return name, *fitted
    return None


class Checker(Tester):
    """Tests one program until the first mistake, and explains it."""
    alone = LIMIT_ALONE  # seconds that a run may take if there is no origin

    def __init__(self, ladder, folder, origin, selection="check", cell=None):
        super().__init__(ladder, selection, folder, cell=cell)
        self.origin = origin
        self.shown = False  # a table

    def run_in_time(self, program, case, start):
        limit = LIMIT if self.origin else self.alone
        run = self.run(program, case, start, limit)
        if run.status != TOO_SLOW:
            return run
        if not self.origin:
            raise Wrong(f"hangs, or takes over {limit} s")
        clock = time.monotonic()
        if self.run(self.origin, case, start, LIMIT_ALONE).status:
            raise Wrong(f"hangs, or takes over {limit} s; {self.origin.name} fails, too")
        seconds = time.monotonic() - clock
        if TIMES_ORIGIN * seconds > limit:
            limit = math.ceil(TIMES_ORIGIN * seconds)
            run = self.run(program, case, start, limit)
        if run.status == TOO_SLOW:
            raise Wrong(f"hangs, or takes over {limit} s where {self.origin.name} takes "
                        f"{seconds:.2g} s")
        return run

    def show(self, program, what, command, items):
        """Prints a table under a line that says what it shows."""
        width = max(len(item.name) for item in items)
        wrong = "         first wrong         found     expected"
        ladders.show(f"{program.name}: {what} ({command})")
        print(f"\n{'':{width}}    error" + ("" if all(item.right for item in items) else wrong))
        for item in items:
            print(f"{item.name:{width}}  {item.error:7.1e}  " + (
                "right" if item.right else
                f"WRONG   {item.element:12} {item.found:12.6g} {item.expected:12.6g}"))
        print()
        self.shown = True

    def stop_at_cause(self, program, case, start, run):
        """Ends the check if there is one thing to look for: memory that is not set, or a race."""
        if program.simulated and run.values is not None and np.isnan(run.values).any():
            print(f"There are NaNs: {UNSET}.")
            sys.exit(1)
        if start.threads > 1:
            print("With 1 thread it is right: look at what the threads share.")
        for number in range(1, 1 + RERUNS):
            again = self.again(program, start, number)
            if self.differ(case, run, self.result(program, case, again)):
                print("In another order of threads it gives another result: a race."
                      if program.simulated else
                      "A second run gives another result: a race, or memory that is not set.")
                sys.exit(1)

    def report(self, program, case, start, run, items):
        self.test_updates(program, case, start)
        self.show(program, "right after the first updates, WRONG at the end" if self.updates(case)
                  else "WRONG", self.now, items)
        self.stop_at_cause(program, case, start, run)
        sys.exit(1)

    def updates(self, case):
        """[(items of each update, words for the last)]. What one leaves behind shows only in the
        second one. A wrong number of items shows only in a short one."""
        names = self.tests.get("updates", [])
        rounds, items, size = [int(re.search(rf"--{name} (\d+)", case)[1])
                               for name in names] or [0] * 3
        first = min(size, items)
        return [] if not rounds else [
            ([first], ""),
            *([([first, size], "a second")] if first + size <= self.items else []),
            *([([first, items % first], "a second that is short")] if items % first else [])]

    def test_updates(self, program, case, start):
        """Compares early, before everything that follows from a mistake is wrong as well."""
        for counts, last in self.updates(case):
            rounds, items, size = self.tests["updates"]
            totals = [*itertools.accumulate(counts)]
            cases = [re.sub(rf"--{items} \d+", f"--{items} {total}",
                            re.sub(rf"--{rounds} \d+", f"--{rounds} {times}", case))
                     for times, total in ((0, totals[0]), *((1, total) for total in totals))]
            run, compared = self.compare(program, cases[-1], start)
            if not all(item.right for item in compared):
                self.show(program, f"right after the first {size}, WRONG after {last}" if last else
                          f"WRONG after the first {size}", self.now, compared)
                self.stop_at_cause(program, cases[-1], start, run)
                self.explain(compared, run.values, [self.expected(each).values for each in cases],
                             counts[-1], int(re.search(rf"--{size} (\d+)", case)[1]))
                sys.exit(1)
            if not self.shown:
                self.show(program, f"right after the first {size}", self.now, compared)

    def explain(self, items, found, states, count, size):
        """Prints a line for each wrong part that it can explain, or the ladder's hint."""
        parts = [item for item in items if not item.right and item.slice]
        with np.errstate(all="ignore"):
            fits = [*filter(None, (fit_part(part, found, states) for part in parts))]
        said = [explain_fit(*each, count, size) for each in fits]
        if (len(fits) == sum(bool(item.slice) for item in items) > 1
                and said[0].endswith("right one.") and all(
                    math.isclose(times, fits[0][1], rel_tol=1e-3) and not again
                    for _, times, again in fits)):
            said = [f"All updates are {fits[0][1]:.5g} times the right ones: is it the learning "
                    "rate, or the gradient of the outputs?"]
        columns = [item.name for item in items if not item.right and not item.slice]
        names = [part.name for part in parts]
        alone = f"only {' '.join(columns)}"
        said += [hint for what, hint in self.tests.get("hints", {}).items()
                 if (what in columns or (not said and what.split() == names) if parts
                     else what == alone)][:1]
        for line in said:
            ladders.show(line)

    def test_until_wrong(self, program):
        """Returns how many tests there were. The first mistake ends them."""
        if self.case is not None:
            self.check_cell(program)
            return 1
        tests = [(f"{size} {case}".strip(), case)
                 for size in self.tests["sizes"] for case in self.tests["cases"]]
        for text, case in tests:
            self.test(program, text, case)
        return len(tests)

    def test(self, program, text, case):
        """The first updates are compared first, on one thread and on several."""
        for start in (Start(1), Start(3, True)) if program.threads else (Start(),):
            if case in self.tests.get("twice", []):
                self.test_updates(program, text, start)
        super().test(program, text, case)


def make(*words):
    """Builds something, or ends the check."""
    status = subprocess.run(["make", "--no-print-directory", "-s", *words], cwd=ladders.ROOT,
                            check=False).returncode
    if status:
        sys.exit(status)


def build(stage):
    """Builds a stage for this machine or for the simulated device. Returns its Program."""
    folder = str(stage.folder.relative_to(ladders.ROOT))
    path = stage.program
    if not stage.is_cuda or ladders.has_gpu():
        make(folder)
    # Without nvcc there is no program for the GPU, even if there is a GPU.
    if stage.is_cuda and not (path.exists() and ladders.has_gpu()):
        make("-C", folder, "sim")
        path = path.with_name(f"{path.name}.sim")
    program = Program(path)
    program.name = stage.name
    return program


def sanitized(program):
    """Builds a simulated program with the sanitizers. Returns that Program."""
    make("-C", str(program.path.parent.relative_to(ladders.ROOT)), "sim", "SANITIZE=1")
    other = Program(program.path.with_suffix(".sanitized.sim"))
    other.name = f"{program.name}, under the sanitizers"
    return other


def check(program, origin, cell):
    """Runs the tests: those of the ladder, then those of the simulated device, or of the cell in
    which the program will be timed."""
    count = 0
    for selection in "check", "gpu" if program.simulated else "cell":
        tested = sanitized(program) if selection == "gpu" else program
        with tempfile.TemporaryDirectory() as folder:
            checker = Checker(program.ladder, Path(folder), origin, selection,
                              cell if selection == "cell" else None)
            # Without leaks of the host's, which are no mistake of a kernel.
            checker.environment |= {"ASAN_OPTIONS": "detect_leaks=0",
                                    "UBSAN_OPTIONS": "print_stacktrace=1"}
            if selection == "check":
                checker.probe(program, LIMIT)
                if origin:
                    checker.probe(origin, LIMIT_ALONE)
            try:
                if tested.unavailable:
                    raise Wrong(f"not checked: {tested.unavailable}")
                count += checker.test_until_wrong(tested)
            except Wrong as wrong:
                ladders.show(f"{tested.name}: " + f"WRONG with {checker.now}: " * bool(checker.now)
                             + str(wrong))
                sys.exit(1)
    print(f"{program.name}: right, {count} tests", flush=True)


def compare_times(stage, before, options):
    """Compares the stage's time with its origin's: see compare.compare()."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            compare.build(before)
            compare.build(stage)
            return compare.compare((before, stage), options)
    finally:
        # The origin ran first, with the same options.
        blame = rf"\1, but not in {before.name}: the arithmetic is wrong, not an option"
        print(re.sub(rf"({stage.name}: exit status 1: the \w+ became [^:]*): try .*", blame,
                     errors.getvalue()), end="", file=sys.stderr)


def read_target(stage, target, phase):
    """The number of a target. What is wrong with one ends the check before it has begun."""
    found, hint = re.fullmatch(r"([0-9]*\.?[0-9]+)([%x])", target), ""
    if phase not in ("", *stage.ladder.phases):
        ladders.fail(f"PHASE: found '{phase}', expected one of: {' '.join(stage.ladder.phases)}")
    if not found or float(found[1]) == 0:
        hint = "50% (of the ceiling) or 1.2x (as fast as its origin)"
    elif found[2] == "x" and not stage.before:
        hint = f"50%: {stage.name} is the first stage, so it has no origin"
    elif found[2] == "%" and stage.is_cuda:
        hint = f"1.2x: {stage.name} is a CUDA stage, and the ceiling is the processor's"
    elif found[2] == "%" and stage.ladder.toml["bound"] == "memory":
        hint = ("1.2x: only `make bench` knows the ceiling of memory, which bounds "
                f"{stage.ladder.name}")
    elif found[2] == "%" and phase and phase not in stage.ladder.toml["work"]:
        hint = f"1.2x: {stage.ladder.name}/ladder.toml has no [work.{phase}]"
    if hint:
        ladders.fail(f"TARGET: found '{target}', expected such as {hint}")
    return float(found[1])


def part_of_ceiling(stage, phase, options):
    """(the percentage of its ceiling that a stage reaches: median and interval over its runs, why
    it says nothing)."""
    parts, others = [], running.watch_others()
    for _ in range(int(options["runs"])):
        row = compare.run(stage, stage.ladder.words(options))
        # Right after the run, the ceiling has the clock rate that the run has left.
        ceiling = running.rate(row["threads"]) * 1e9 / stage.ladder.width
        rate = 1e9 * row["gflops"] if not phase else stage.ladder.work(
            row, phase, "operations") / row[f"{phase}_s"]
        parts.append(100 * rate / ceiling)
    return (pairs.Ratio(statistics.median(parts), *pairs.interval(parts), len(parts)),
            running.why_no_verdict(others()))


def test_target(stage, target, phase, ratios, why, options):
    """Says whether the stage has reached its target, and ends with 1 if not, or if the interval
    holds it."""
    name = phase or stage.ladder.time.removesuffix("_s")
    if target.endswith("%"):
        (found, why), says = part_of_ceiling(stage, phase, options), "reaches {} % of the ceiling"
    elif name not in ratios:
        ladders.fail(f"PHASE: found '{phase}', which {stage.before.name} does not have")
    else:
        found, says = ratios[name], f"is {{}} times as fast as {stage.before.name}"
    if why:
        ladders.show(f"{stage.name}: TARGET={target} not judged: {why}")
        sys.exit(1)
    shown = pairs.digits
    # What is shown counts.
    low, high = (float(shown(each)) for each in (found.low, found.high))
    wanted = read_target(stage, target, phase)
    verdict = "reached" if low >= wanted else "MISSED" if high < wanted else "undecided"
    ladders.show(
        f"{stage.name}: TARGET={target} {verdict}: {name} {says.format(shown(found.median))} "
        f"{found.interval}" + "; more RUNS narrow it" * (verdict == "undecided"))
    sys.exit(verdict != "reached")


def main():
    wanted, study, target, phase, *_ = [*sys.argv[1:], "", "", "", ""]
    stage = ladders.find_ladder(study).find(wanted)
    before = stage.before
    if target or phase:
        read_target(stage, target, phase)
    options = compare.read_options(stage.ladder, "check")
    is_timed = options["runs"] != "0"
    if target and not is_timed:
        ladders.fail("RUNS: found '0' and TARGET, expected only one of them")
    # The origin limits how long a run may take, but only if both run on the same kind of device.
    origin = build(before) if before and before.is_cuda == stage.is_cuda else None
    program = build(stage)
    make("-C", "harness", f"build/{stage.ladder.name}/reference", "build/many_processors.so")
    check(program, None if origin and origin.unavailable else origin, options)
    if program.path.suffix == ".sim":
        ladders.show("Its speed is not known: a simulated device's times mean nothing.")
        sys.exit(77 if target else 0)
    is_compared = before and is_timed and not target.endswith("%")
    _, ratios, why = compare_times(stage, before, options) if is_compared else ([], {}, "")
    if target:
        test_target(stage, target, phase, ratios, why, options)
