#!/usr/bin/python3
"""Checks whether a stage is right, and how fast it is: `make check STAGE=06_mine [STUDY=NAME]`.

    check.py STAGE [STUDY]

Runs the tests of stages.py, and stops at the first mistake. If the runs of a ladder take steps
(`steps` in its ladder.toml), it compares after the first ones too, before a mistake has spread, and
says in plain words what is wrong with a step. Then it compares the stage's time with its origin's.
Without a GPU, a CUDA stage runs on a simulated device.
"""

import itertools
import math
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from stages import DIGITS, TOO_SLOW, Program, Start, Tester, Wrong, ladders, write_digits

# Seconds that a run may take, with an origin and without one. It may take TIMES_ORIGIN times as
# long as its origin, if that is more.
LIMIT, LIMIT_ALONE, TIMES_ORIGIN = 5, 60, 20


def fit(found, right, before):
    """(times, again): the step that was found is `times` the right one plus `again` times the step
    before, by least squares. None if what this leaves is more than a hundredth of what it explains.
    Anything fits a few elements, so for them only a step of zero is good."""
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
    """What a fit means for the elements of this name, after a step of `count` of `size` items."""
    if again:
        return (f"The step of {name} is {times:.5g} × the right one + {again:.5g} × that of the one "
                "before: is its gradient set to zero?")
    if abs(times) < 0.01:
        return f"{name} did not move."
    step = f"The step of {name} is {times:.5g} times the right one"
    if count < size and math.isclose(times, count / size, rel_tol=0.01):
        return f"{step}: divided by {size}, not {count}?"
    if count > 1 and math.isclose(times, count, rel_tol=0.01):
        return f"{step}: not divided by {count}?"
    return f"{step}."


def explain_part(item, found, states, count, size):
    """A line, or None. `states` are what is expected: before the steps, and after each."""
    shape = item.wrong.shape
    whole = [each[item.slice].reshape(shape) for each in (found, *states)]
    rows, columns = np.nonzero(item.wrong)
    box = slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1)
    ranges = "".join(f"[{each.start}]" if each.stop - each.start == 1 else
                     f"[{each.start}..{each.stop - 1}]" for each in box[shape[0] == 1:])
    for name, place in ((item.name, ...), (item.name + ranges, box)):
        after, *known = (each[place] for each in whole)
        before = known[-2] - known[-3] if len(known) > 2 else np.zeros_like(after)
        fitted = fit(after - known[-2], known[-1] - known[-2], before)
        if fitted:
            return explain_fit(name, *fitted, count, size)
    return None


class Checker(Tester):
    """Tests one program until the first mistake, and explains it."""

    def __init__(self, ladder, folder, origin):
        super().__init__(ladder, "check", folder)
        self.origin = origin
        self.shown = False  # a table

    def run_in_time(self, program, case, start):
        limit = LIMIT if self.origin else LIMIT_ALONE
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

    def show(self, program, what, case, items):
        """Prints a table under a line that says what it shows."""
        width = max(len(item.name) for item in items)
        wrong = any(not item.right for item in items)
        print(f"{program.name}: {what} ({case})\n\n{'':{width}}    error"
              + ("         first wrong         found     expected" if wrong else ""))
        for item in items:
            print(f"{item.name:{width}}  {item.error:7.1e}  " + (
                "right" if item.right else
                f"WRONG   {item.element:12} {item.found:12.6g} {item.expected:12.6g}"))
        print()
        self.shown = True

    def stop(self, program, case, start, run):
        """Ends the check, with what other runs of the same command say. Without a difference between
        two runs it returns."""
        if start.threads > 1:
            print("With 1 thread it is right.")
        again = self.result(program, case, start)
        if run.values is not None and run.values.tobytes() != again.values.tobytes():
            print("A second run gives another result: a race, or memory that is not set.")
            sys.exit(1)

    def steps(self, case):
        """[(items of each step, words for the last)]. What a step leaves behind shows only in the
        second one. A wrong number of items shows only in a short one."""
        if not self.tests.get("steps"):
            return
        rounds, items, size = (int(re.search(rf"--{name} (\d+)", case)[1])
                               for name in self.tests["steps"])
        first = min(size, items)
        if rounds:
            yield [first], ""
            if first + size <= DIGITS["train"]:
                yield [first, size], "a second"
            if items % first:
                yield [first, items % first], "a second that is short"

    def test_steps(self, program, case, start):
        """Compares early, before everything that follows from a mistake is wrong as well."""
        for counts, last in self.steps(case):
            rounds, items, size = self.tests["steps"]
            def short(times, count):
                text = re.sub(rf"--{rounds} \d+", f"--{rounds} {times}", case)
                return re.sub(rf"--{items} \d+", f"--{items} {count}", text)
            totals = [*itertools.accumulate(counts)]
            now = short(1, totals[-1])
            run, compared = self.compare(program, now, start)
            first = f"after the first {size}"
            if all(item.right for item in compared):
                if not self.shown:
                    self.show(program, f"right {first}", f"{now}{start}", compared)
                continue
            self.show(program, f"right {first}, WRONG after {last}" if last else f"WRONG {first}",
                      f"{now}{start}", compared)
            self.stop(program, now, start, run)
            states = [self.expected(short(0, totals[0])).values,
                      *(self.expected(short(1, total)).values for total in totals)]
            self.explain(compared, run.values, states, counts[-1],
                         int(re.search(rf"--{size} (\d+)", case)[1]))
            sys.exit(1)

    def explain(self, items, found, states, count, size):
        """Prints a line for each wrong part that it can explain, or the ladder's hint."""
        wrong = [item for item in items if not item.right]
        with np.errstate(all="ignore"):
            said = [explain_part(item, found, states, count, size) for item in wrong if item.slice]
        print(*filter(None, said), sep="\n", end="\n" if any(said) else "")
        parts = [item.name for item in wrong if item.slice]
        for names, hint in self.tests.get("hints", {}).items():
            if names in (item.name for item in wrong if not item.slice) or (
                    not any(said) and names.split() == parts):
                print(hint)
                break

    def report(self, program, case, start, run, items):
        self.test_steps(program, case, start)
        self.show(program, "right after the first steps, WRONG at the end" if [*self.steps(case)]
                  else "WRONG", f"{case}{start}", items)
        self.stop(program, case, start, run)
        sys.exit(1)

    def test_first_steps(self, program, case):
        """Compares after the first steps, on one thread and on several."""
        for start in (Start(1), Start(3, True)) if program.threads else (Start(),):
            self.test_steps(program, case, start)

    def plan(self):
        """The first steps are compared first."""
        for case, words, test in super().plan():
            if words and self.tests.get("steps"):
                yield case, "", self.test_first_steps
            yield case, words, test


def has_gpu():
    """Whether the machine has a GPU."""
    try:
        return subprocess.check_output(["nvidia-smi", "-L"],
                                       stderr=subprocess.DEVNULL).startswith(b"GPU")
    except (OSError, subprocess.CalledProcessError):
        return False


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
    if not stage.is_cuda or has_gpu():
        make(folder)
    # Without nvcc there is no program for the GPU, even if there is a GPU.
    if stage.is_cuda and not (path.exists() and has_gpu()):
        make("-C", folder, "sim")
        path = path.with_name(f"{path.name}.sim")
    program = Program(path)
    program.name = stage.name
    return program


def check(program, origin):
    """Runs the tests."""
    with tempfile.TemporaryDirectory() as folder:
        write_digits(Path(folder))
        checker = Checker(program.ladder, Path(folder), origin)
        checker.probe(program, LIMIT)
        if origin:
            checker.probe(origin, LIMIT_ALONE)
        if program.unavailable:
            print(f"{program.name}: not checked: {program.unavailable}")
            sys.exit(1)
        tests = [*checker.plan()]
        try:
            for case, _, test in tests:
                test(program, case)
        except Wrong as wrong:
            print(f"{program.name}: WRONG with {checker.now}: {wrong}")
            sys.exit(1)
    print(f"{program.name}: right, {len(tests)} tests")


def compare_times(stage, before):
    """Compares the stage's time with its origin's."""
    done = subprocess.run([ladders.ROOT / "bench/compare.py", "--train", "6400", "--runs", "20", "--",
                           before.name, stage.name], stderr=subprocess.PIPE, text=True, check=False)
    # The origin ran first, with the same options.
    print(re.sub(f"({stage.name}: the loss became [^:]*): try .*", rf"\1, but not in {before.name}: "
                 "the arithmetic is wrong, not the learning rate", done.stderr), end="",
          file=sys.stderr)
    sys.exit(done.returncode)


def main(wanted="", study=""):
    stage = ladders.find_ladder(study).find(wanted)
    before = stage.before
    # The origin limits how long a run may take, but only if both run on the same kind of device.
    origin = build(before) if before and before.is_cuda == stage.is_cuda else None
    program = build(stage)
    make("-C", "tests", f"build/{stage.ladder.name}/reference", "build/many_processors.so")
    check(program, None if origin and origin.unavailable else origin)
    if program.path.suffix == ".sim":
        print("Its speed is not known: a simulated device's times mean nothing.")
    elif before:
        sys.stdout.flush()
        compare_times(stage, before)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except ladders.NotFound as message:
        print(message, file=sys.stderr)
        sys.exit(2)
