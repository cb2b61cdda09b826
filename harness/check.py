"""Checks whether a stage is right, and how fast it is: `make check STAGE=20_mine [STUDY=NAME]`.

    python3 -m harness check STAGE [STUDY] [TARGET] [PHASE]
    python3 -m harness check --selection NAME [--under COMMAND] [-v] [PROGRAM ...]

A program and harness/build/LADDER/reference are run from their command lines with the same options:
those of [tests] in ladder.toml, where stages/ladder.toml explains the keys. The reference prints
what is compared: see stages/reference.c. FULL=1 tests more numbers of threads.

The tests of a stage stop at the first mistake, and say in plain words what is wrong with the first
updates of weights. Then its time is compared with its origin's, in a cell that is tested first.
Without a GPU, a CUDA stage runs on a simulated device, without a time, and a case of its own runs
there under the sanitizers. RUNS=0 only asks whether the stage is right.

TARGET=50% asks for this part of the ceiling: the multiply-adds of as many threads as the stage
uses, measured right after each of its runs. TARGET=1.2x asks for so many times the speed of its
origin. With PHASE=forward, that phase counts instead of the whole run. A target that is missed ends
with 1. KEY=word is for grading: harness/README.md says what it changes.

--selection tests programs to the end, with a table of [tests]: a stage's folder, a build of a stage
with other flags, or a peer. Without any, all stages are tested, or all peers if the selection is
`peers`. COMMAND is put before each command line, and -v prints how far each result is off.
"""

import argparse
import contextlib
import csv
import dataclasses
import functools
import itertools
import json
import math
import os
import random
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from harness import compare, ladders, pairs, running

BUILD = Path(__file__).resolve().parent / "build"
FULL = bool(os.environ.get("FULL"))
LIMIT, LIMIT_OF_SELECTION = 60, 600  # seconds that a run may take
NOT_HERE = 77  # the exit status of a stage without its device
# Selections that a ladder need not have.
EXTRA = "wide", "simulated_wide", "long"
DRAWN = 207  # training images; a stage may take 5 ms a sample, so there are no more
# A cell has ten batches, or fewer if they are large.
CELL_BATCHES, CELL_ITEMS, CELL_SEEDS = 10, 1000, (1, 2, 3)
KEY_SEEDS = 3  # of a drawn case: see Tester.test_seeds()
RERUNS = 3  # of a wrong run, which may show that it is a race
# What a NaN is there, first of all.
UNSET = ("look first for memory that is read before it is set, because the simulated device fills "
         "it with NaNs")


class Wrong(Exception):
    """What is wrong with a program, or "" if it has been printed."""

    def __init__(self, text, status=1):
        super().__init__(text)
        self.status = status  # of the program that could not run here, or not with these options


class Differs(Wrong):
    """The program computes something else than the reference."""


class Skipped(Exception):
    """Why a program is not tested here."""


class Start(NamedTuple):
    """How a program is started."""
    threads: int = 0  # 0: not given
    many: bool = False  # it is told that there are 64 processors
    order: int = 0  # in which the simulated device runs threads

    def __str__(self):
        return (f" --threads {self.threads}" if self.threads else "") + (
            ", as on 64 processors" if self.many else "") + (
            ", in another order of threads" if self.order else "")


AS_IT_IS = Start()
AGAIN = Start(3, True)
THREADS = [Start(threads, many) for many in (False, True) for threads in (1, 2, 3, 5, 17)] if FULL \
    else [Start(1), AGAIN, Start(17, True)]


def first_line(errors):
    """The line of what a program wrote to standard error that says what was wrong. Of a sanitizer's
    report: in which function and line of the stage, and what it was. The simulated device adds
    which kernel and which memory."""
    fault = re.search(r"AddressSanitizer: [\w-]+|runtime error: .*", errors)
    if not fault:
        return errors.partition("\n")[0]
    said = re.search(r"^simulated device: (.*)", errors, re.MULTILINE)
    where = re.search(r"^ +#\d+ .*? in (?:void )?(\w+).*?\b(\w+\.cu?:\d+)", errors, re.MULTILINE)
    return ": ".join([*(where.groups()[::-1] if where else ()), said[1] if said else fault[0]])


class Run(NamedTuple):
    """What a run leaves behind."""
    status: int
    error: str  # the line on standard error that says what was wrong
    values: np.ndarray  # the float32 that it saved, or None
    row: dict


@dataclasses.dataclass
class Item:
    """A result of a run beside the reference's: a column of the row, or a part of what it saved."""
    name: str
    error: float
    right: bool
    found: float  # the column's value, or the first wrong element's
    expected: float
    element: str = ""  # the first wrong element: W1[783][32]
    slice: slice = None  # where a part lies in the file
    wrong: np.ndarray = None  # rows × columns: which elements of a part are wrong

    def __str__(self):
        first = f"{self.element or self.name}: found {self.found:.9g}, expected {self.expected:.9g}"
        return f"the first that differs is {first}; {self.name} as a whole is {self.error:.2e} " \
            "away from the reference" if self.element else first


def distance(kind, found, expected):
    """The error of `norm` or `largest`. Where only zeros are expected, only zeros may be found."""
    def size(values):
        return np.sqrt(np.square(values).sum()) if kind == "norm" else np.abs(values).max()
    absolute = size(found - expected)
    return absolute and absolute / size(expected)


# All comparisons are such that a NaN is wrong.
def compare_column(name, row, value, relative, absolute):
    """The Item of a column."""
    found, value = float(row.get(name) or math.nan), float(value)
    error = abs(found / value - 1) if value else abs(found)
    right = abs(found - value) <= float(relative) * abs(value) + float(absolute)
    return Item(name, error, right, found, value)


def compare_part(name, found, expected, kind, bound):
    """The Item of a part, from its elements as a matrix."""
    error = distance(kind, found, expected)
    typical = np.sqrt(np.square(expected).mean()) if kind == "norm" else np.abs(expected).max()
    wrong = ~(np.abs(found - expected) <= bound * typical)
    right = error <= bound
    if bound == 0:
        wrong = found.view(np.uint32) != expected.astype(np.float32).view(np.uint32)
        right = not wrong.any()
    place = np.unravel_index(np.argmax(wrong) if wrong.any() else wrong.size - 1, wrong.shape)
    element = name + "".join(f"[{i}]" for i in place[len(found) == 1:])
    return Item(name, error, right, found[place], expected[place], element, wrong=wrong)


class Expected(NamedTuple):
    """What the reference computes, and how far from it a program may be."""
    lines: list  # words of what it prints
    values: np.ndarray  # float64, or None

    def compare(self, run):
        """The Items, in the order of the reference's lines."""
        items, first = [], 0
        for kind, name, *words in self.lines:
            if kind == "result":
                items.append(compare_column(name, run.row, *words))
            elif kind == "part":
                shape = rows, columns = int(words[0]), int(words[1])
                place = slice(first, first := first + rows * columns)
                items.append(compare_part(name, run.values[place].reshape(shape),
                                          self.values[place].reshape(shape), words[2],
                                          float(words[3])))
                items[-1].slice = place
            elif all(item.right for item in items):
                error, bound = distance(name, run.values, self.values), float(words[0])
                items += [] if error <= bound else [Item(kind, error, False, error, bound)]
        return items


@functools.cache
def scratch():
    """A folder that is removed when Python ends."""
    return tempfile.TemporaryDirectory(prefix="check-")


@functools.cache
def drawn_data(ladder, items):
    folder = Path(scratch().name, f"{ladder.name}-{items}")
    folder.mkdir()
    ladder.data_module.write(folder, items)
    return folder


@functools.lru_cache(maxsize=200)  # a few hundred MiB at most
def expect(ladder, *options):
    """What the reference computes with these options. Many programs are compared with it."""
    saved = Path(scratch().name, "expected")
    saved.unlink(missing_ok=True)
    command = [str(BUILD / ladder.name / "reference"), *options]
    if ladder.save:
        command += [f"--{ladder.save}", str(saved)]
    try:
        text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        ladders.fail(f"{error}; `make -C tests programs` builds it", 1)
    return Expected([line.split() for line in text.splitlines()],
                    np.fromfile(saved) if saved.exists() else None)


class Program:
    """A stage, a build of it with other flags, or a peer."""

    def __init__(self, path, under=()):
        path = Path(path).absolute()
        self.ladder, stage = self._find(path)
        self.path = stage.program if stage and path == stage.folder else path
        self.command = [*under, *(stage.command[:-1] if stage else ()), str(self.path)]
        name = path.parent if path.name == self.ladder.program else path
        self.name = re.sub("^(.*/)?build/", "", str(name).removeprefix(f"{ladders.ROOT}/"))
        self.unavailable = "" if os.access(self.path, os.X_OK) else "not built on this machine"
        self.is_step = bool(stage and stage.is_step)
        self.starts_slowly = bool(stage and stage.command[1:])  # RUN takes longer than most runs
        self.threads = False  # accepts --threads 2
        self.simulated = self.path.suffix == ".sim"
        self.hangs = False  # had to be stopped once, and is not run again

    @staticmethod
    def _find(path):
        """The ladder and the stage of a path. build/LADDER/STAGE.FLAGS is a build of a stage."""
        for ladder in ladders.ladders():
            for stage in (*ladder.stages, *ladder.peers):
                if path in (stage.folder, stage.program) or (
                        path.parent == stage.folder and not stage.is_peer) or (
                        path.parent.name == ladder.name and path.name.startswith(f"{stage.name}.")):
                    return ladder, stage
        return ladders.find_ladder(""), None


class Tester:
    """Runs programs of one ladder with the options of a selection, and compares them with its
    reference. With `explains`, it prints what is wrong, and what may be the cause."""

    def __init__(self, ladder, selection, cell=None, explains=False, verbose=False):
        self.ladder, self.explains, self.verbose = ladder, explains, verbose
        self.limit = LIMIT if explains else LIMIT_OF_SELECTION
        if "tests" not in ladder.toml:
            ladders.fail(f"{ladder.name}/ladder.toml: found no [tests]; see stages/ladder.toml")
        tests = ladder.toml["tests"]
        self.turns = itertools.cycle(start for start in [AS_IT_IS, *THREADS] if start != AGAIN)
        self.tests = {"sizes": [""], "options": "", "last": "", "run_only": [], "all_threads": [],
                      "threads": not cell, "twice": tests["cases"], **tests,
                      **tests.get(selection, {})}
        self.left_out = selection in EXTRA and selection not in tests and (
            f"{ladder.name} has nothing to test")
        self.now = ""  # what is run
        self.items = DRAWN
        self.case = cell and self.case_of(cell)
        self.data = []
        if ladder.toml["data"] and self.tests.get("real_data"):
            data = Path(os.environ.get(ladder.data_variable) or ladder.data_set.with_suffix(""))
            self.data = ["--data", str(data)]
            if not [*data.glob("train*")] or (data / "SYNTHETIC").exists():
                self.left_out = f"no {ladder.data_set.stem} in {data}"
        elif ladder.toml["data"]:
            self.data = ["--data", str(drawn_data(ladder, self.items))]
        # LD_PRELOAD takes no path with a space or a colon. Threads wait as they do in a sweep. They
        # are not bound: checks run side by side, and all would begin at the same core.
        self.many = Path(scratch().name, "many.so")
        if not self.many.is_symlink():
            self.many.symlink_to(BUILD / "many_processors.so")
        # Tests preload before a sanitizer's library, and the host's leaks are no kernel's mistake.
        leaks = int(selection == "sanitized")
        self.environment = {"ASAN_OPTIONS": f"detect_leaks={leaks}:verify_asan_link_order=0",
                            "UBSAN_OPTIONS": "print_stacktrace=1", **ladders.SPINNING, **os.environ}

    def case_of(self, cell):
        """The case of a cell, from its options. An epoch is cut down to its first batches and its
        last one, which may be short. There are two, so that something comes after that."""
        options = {**self.ladder.settings, **cell}
        if "updates" in self.tests:
            rounds, items, size = self.tests["updates"]
            each = int(options[size])
            first = max(1, min(CELL_BATCHES, CELL_ITEMS // each)) * each
            cell = {**cell, rounds: 2,
                    items: min(int(options[items]), first + int(options[items]) % each)}
            self.items = max(self.items, cell[items])
        return " ".join(word for option, value in cell.items() if option != "runs"
                        for word in self.ladder.words_of(option, value))

    def options(self, case):
        return [*self.data, *shlex.split(f"{self.tests['options']} {case} {self.tests['last']}")]

    def expected(self, case):
        return expect(self.ladder, *self.options(case))

    def run(self, program, case, start=AS_IT_IS, **variables):
        """Runs a program once, and reads what it leaves behind."""
        saved, rows = (Path(scratch().name, name) for name in ("saved", "rows.csv"))
        for file in (saved, rows):
            file.unlink(missing_ok=True)
        command = [*program.command, *self.options(case), "--csv", str(rows)]
        if self.ladder.save:
            command += [f"--{self.ladder.save}", str(saved)]
        if start.threads and program.threads:
            command += ["--threads", str(start.threads)]
        environment = {**self.environment, **variables}
        if start.order:
            environment["SIM_SEED"] = str(start.order)
        if start.many:
            environment["LD_PRELOAD"] = str(self.many)
        status, errors, _ = running.run(command, self.limit, env=environment)
        program.hangs |= status == running.TOO_SLOW
        row = {}
        if rows.exists():
            with open(rows, newline="", encoding="utf-8") as file:
                row = next(csv.DictReader(file), row)
        values = np.fromfile(saved, np.float32) if saved.exists() else None
        return Run(status, first_line(errors), values, row)

    def result(self, program, case, start=AS_IT_IS, **variables):
        """A run that has ended well."""
        self.now = f"{case}{start}"
        run = None if program.hangs else self.run(program, case, start, **variables)
        if program.hangs:
            raise Wrong(f"hangs, or takes over {self.limit} s")
        if run.status < 0:
            raise Wrong(f"ended by a signal: {signal.strsignal(-run.status)}"
                        + (f": {run.error}" if run.error else ""))
        not_finite = run.status == 1 and re.search(r"the (\w+) became", run.error)
        if not_finite:
            raise Wrong(f"its {not_finite[1]} is not a number, and the reference's is: " + (
                UNSET if program.simulated else "the arithmetic is wrong, not an option"))
        if run.status or run.error:
            raise Wrong(f"exit status {run.status}: {run.error}", run.status)
        found, expected = run.values, self.expected(case).values
        if expected is not None and (found is None or found.size != expected.size):
            raise Wrong(f"--{self.ladder.save}: found {0 if found is None else found.size} "
                        f"numbers, expected {expected.size}")
        return run

    def compare(self, program, case, start):
        """(a run that has ended well, its Items, whether they are right)"""
        run = self.result(program, case, start)
        with np.errstate(all="ignore"):
            items = self.expected(case).compare(run)
        if self.verbose:
            print(f"{program.name} {self.now}: "
                  + ", ".join(f"{item.name} {item.error:.1e}" for item in items))
        return run, items, all(item.right for item in items)

    def test(self, program, case, twice=False):
        """Compares the program with the reference, however it is started. The order of its sums
        must not depend on the scheduler. mpirun takes a third of a second, so what it starts runs
        with 3 threads only, and with FULL=1 with one other number, in turn."""
        starts, again = [AS_IT_IS], AS_IT_IS
        if program.threads and self.tests["threads"]:
            again, starts = AGAIN, [AS_IT_IS, *THREADS]
            if program.starts_slowly:
                starts = [AGAIN, *([next(self.turns)] if FULL else [])]
        for start in starts:
            run, items, right = self.compare(program, case, start)
            if not right and self.explains:
                self.test_updates(program, case, start)
                self.explain(program, case, start, run, items, "WRONG")
            if not right:
                raise Differs(str(min((item for item in items if not item.right),
                                      key=lambda item: not item.element)))
            if start.threads:
                self.check_threads(case, start, run.row)
            if twice and start == again and self.differs_again(program, case, start, run):
                raise Wrong("gives another result: a race" if program.simulated else
                            "two runs do not give the same result")

    def check_threads(self, case, start, row):
        """A stage may use fewer threads than it is asked for, but never more. With enough work and
        processors it has to use all. Otherwise 5 threads are not tested on two cores."""
        used = float(row.get("threads") or math.nan)
        if not 1 <= used <= start.threads:
            raise Wrong(f"used {used:g} threads, asked for {start.threads}")
        if start.many and start.threads <= 5 and used != start.threads and any(
                f" {each} " in f" {case} " for each in self.tests["all_threads"]):
            raise Wrong(f"used {used:g} threads of {start.threads}, with 64 processors")

    def differs_again(self, program, case, start, run, order=1):
        """Whether the same command, or another order of threads, gives another result."""
        other = self.result(program, case, start._replace(order=order * program.simulated))
        names = [name for kind, name, *_ in self.expected(case).lines if kind == "result"]
        return any(run.row.get(name) != other.row.get(name) for name in names) or (
            run.values is not None and run.values.tobytes() != other.values.tobytes())

    def test_seeds(self, program, case, seeds):
        """Tests a case whose seeds nobody has tried. If rounding decides whether a hidden unit is
        on, a right program is further off than the bound. That is rare, and other initial weights
        show it. A wrong program is wrong with all."""
        *others, last = seeds if "seed" in self.ladder.settings else ("",)
        explains, self.explains = self.explains, False
        try:
            for seed in others:
                with contextlib.suppress(Differs):
                    return self.test(program, f"{case} --seed {seed}")
        finally:
            self.explains = explains
        return self.test(program, f"{case} --seed {last}" if last else case)

    def probe(self, program):
        """Finds out whether a program runs here, and whether it takes --threads."""
        case = f"{self.tests['sizes'][0]} {self.tests['cases'][0]}".strip()
        if not program.unavailable:
            program.threads = True
            run = self.run(program, case, Start(2))
            if run.status == 2:
                program.threads = False
                run = self.run(program, case)
            if run.status == NOT_HERE:
                program.unavailable = run.error
        if program.unavailable:
            raise Skipped(program.unavailable)

    def pairs(self, part=1):
        """(size and case as one, the case): of a part of all pairs, such as a third, in which each
        size and each case still is."""
        sizes, cases = self.tests["sizes"], (*self.tests["cases"], *self.tests["run_only"])
        part = min(part, len(sizes), len(cases))
        for row, size in enumerate(sizes):
            for column, case in enumerate(cases):
                if (row + column) % part == 0:
                    yield f"{size} {case}".strip(), case

    def test_updates(self, program, case, start):
        """Compares after the first updates, before everything that follows from a mistake is wrong
        as well. What one leaves behind shows only in the second one. A wrong number of items shows
        only in a short one."""
        if "updates" not in self.tests:
            return
        names = rounds, items, size = self.tests["updates"]
        times, count, most = (int(re.search(rf"--{name} (\d+)", case)[1]) for name in names)
        first = min(most, count)
        short = count % most if count > most else 0
        for second, words in (0, ""), (most, "a second"), (short, "a second that is short"):
            if not times or (words and not second) or first + second > self.items:
                continue
            # Before the first update, after it, and after the second.
            totals = (0, first), (1, first), *([(1, first + second)] if second else [])
            cases = [re.sub(rf"--{items} \d+", f"--{items} {total}",
                            re.sub(rf"--{rounds} \d+", f"--{rounds} {number}", case))
                     for number, total in totals]
            run, compared, right = self.compare(program, cases[-1], start)
            if not right:
                self.explain(program, cases[-1], start, run, compared,
                             f"right after the first {size}, WRONG after {words}" if words else
                             f"WRONG after the first {size}", explain_updates(
                    compared, run.values, [self.expected(each).values for each in cases],
                    second or first, most, self.tests.get("hints", {})))

    def explain(self, program, case, start, run, items, what, words=()):
        """Prints a table, and what may be the cause: memory that is not set, a race, or `words`."""
        width = max(len(item.name) for item in items)
        ladders.show(f"{program.name}: {what} ({self.now})")
        print(f"\n{'':{width}}    error         first wrong         found     expected")
        for item in items:
            print(f"{item.name:{width}}  {item.error:7.1e}  " + (
                "right" if item.right else
                f"WRONG   {item.element:12} {item.found:12.6g} {item.expected:12.6g}"))
        print()
        if program.simulated and run.values is not None and np.isnan(run.values).any():
            words = [f"There are NaNs: {UNSET}."]
        elif any(self.differs_again(program, case, start, run, order)
                 for order in range(1, 1 + RERUNS)):
            words = ["In another order of threads it gives another result: a race."
                     if program.simulated else
                     "A second run gives another result: a race, or memory that is not set."]
        if start.threads > 1:
            words = ["With 1 thread it is right: look at what the threads share.", *words]
        for line in words:
            ladders.show(line)
        raise Differs("")


def fit(found, right, before):
    """(times, again): the update found is `times` the right one plus `again` times the one
    before, by least squares. None if what this leaves is more than a hundredth of what it explains.
    Anything fits a few elements, so for them only an update of zero is good."""
    for bases in [[right], [right, before]][:1 + bool(found.size >= 5 and before.any())]:
        times, again = [*np.linalg.lstsq(np.stack(bases, axis=1), found, rcond=None)[0], 0][:2]
        left = found - times * right - again * before
        explained = again * before if again else (times - 1) * right
        if np.linalg.norm(left) <= 0.01 * np.linalg.norm(explained) and (
                found.size >= 5 or abs(times) < 1e-3):
            return times, again
    return None


def explain_update(item, found, states, count, size):
    """What a wrong part's last update, by `count` of `size` items, is in words, or "". `states` are
    what is expected: before the first update, and after each."""
    rows, columns = np.nonzero(item.wrong)
    box = slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1)
    ranges = "".join(f"[{each.start}..{each.stop - 1}]" for each in box[len(item.wrong) == 1:])
    found, *states = (each[item.slice].reshape(item.wrong.shape) for each in (found, *states))
    earlier, before, after = [states[0], *states][-3:]
    for name, place in ((item.name, ...), (item.name + ranges, box)):
        fitted = fit(*(each[place].ravel() for each in (
            found - before, after - before, before - earlier)))
        if fitted:
            times, again = fitted
            near = functools.partial(math.isclose, times, rel_tol=0.01)
            return f"{name} did not move." if abs(times) < 0.01 and not again else (
                f"The update of {name} is {times:.5g} times the right one") + (
                f" + {again:.5g} times the one before: is its gradient set to zero?" if again else
                f": divided by {size}, not {count}?" if count < size and near(count / size) else
                f": not divided by {count}?" if count > 1 and near(count) else ".")
    return ""


def explain_updates(items, found, states, count, size, hints):
    """A line for each wrong part of which there is something to say, or the ladder's hint."""
    wrong = [item for item in items if not item.right]
    parts = " ".join(item.name for item in wrong if item.slice)
    columns = " ".join(item.name for item in wrong if not item.slice)
    with np.errstate(all="ignore"):
        said = [*filter(None, (explain_update(item, found, states, count, size)
                               for item in wrong if item.slice))]
    return said + [hint for what, hint in hints.items() if (
        what in columns.split() or (not said and what == parts) if parts
        else what == f"only {columns}")][:1]


def make(*words):
    """Builds something, or ends the check."""
    status = subprocess.run(["make", "--no-print-directory", "-s", *words], cwd=ladders.ROOT,
                            stdout=2, check=False).returncode
    if status:
        sys.exit(status)


def build(stage, flags="", suffix=".sim"):
    """Builds a stage for this machine, or with flags for the simulated device. Returns its
    Program. Without nvcc there is none for the GPU, even if there is a GPU."""
    folder, path = str(stage.folder.relative_to(ladders.ROOT)), stage.program
    if not flags and (not stage.is_cuda or ladders.has_gpu()):
        make(folder)
    if flags or (stage.is_cuda and not (path.exists() and ladders.has_gpu())):
        make("-C", folder, "sim", *flags.split())
        path = path.with_suffix(suffix)
    program = Program(path)
    program.name = stage.name
    return program


def check_cell(stages, cell):
    """Ends the program if one of these stages or peers does not compute what the reference does
    where it is to be timed: with the options of this cell."""
    ladder = next(iter(stages)).ladder
    make("-C", "harness", f"build/{ladder.name}/reference")
    tester = Tester(ladder, "cell", cell)
    for stage in stages:
        try:
            tester.test_seeds(Program(stage.program), tester.case, CELL_SEEDS)
        except Wrong as wrong:
            if wrong.status in (2, NOT_HERE):  # nothing is wrong with what it computes
                words = str(wrong).replace(f"{stage.name}: ", "", 1)
                ladders.fail(f"{stage.name}: {words}", wrong.status)
            ladders.fail(f"{stage.name}: WRONG with {tester.now}: {wrong}. So it is not timed; "
                         "see `make check`", 1)


tester_of = functools.cache(Tester)


def test_program(path, selection, part=1, under=(), verbose=False):
    """Tests a program in a part of a selection, to the end. Returns (what is wrong, how many tests
    there were), or raises Skipped. Prints a line for each test. A step is like the stages beside
    it, so it is tested with each size and each case, but with few pairs of them. Without FULL=1 so
    is what mpirun starts, which takes a second: a third of that for steps and under sanitizers."""
    program = Program(path, under)
    tester, wrongs = tester_of(program.ladder, selection, verbose=verbose), []
    if tester.left_out:
        raise Skipped(tester.left_out)
    tester.probe(program)
    is_short = program.starts_slowly and not FULL
    few = is_short and (program.is_step or selection == "sanitized")
    tests = [*tester.pairs(99 if program.is_step or is_short else part)][::3 if few else 1]
    for text, case in tests:
        try:
            if case in tester.tests["run_only"]:
                tester.result(program, text)
            else:
                tester.test(program, text, case in tester.tests["twice"])
            print(f"ok {program.name} {text}", flush=True)
        except Wrong as wrong:
            wrongs.append(f"WRONG {program.name} {tester.now}: {wrong}")
            print(wrongs[-1], flush=True)
    return wrongs, len(tests)


def test_programs(paths, selection, under, verbose):
    """Tests programs, or all stages or peers. Returns the exit status."""
    failed = count = 0
    if not paths and selection != "peers":
        paths = [stage.folder for ladder in ladders.ladders() for stage in ladder.stages]
    if not paths:
        peers = [peer for ladder in ladders.ladders() for peer in ladder.peers]
        for peer in peers:
            subprocess.run(peer.build, cwd=ladders.ROOT, check=False)
        paths = [peer.program for peer in peers]
    for path in paths:
        try:
            wrongs, tests = test_program(path, selection, 1, under, verbose)
            failed, count = failed + len(wrongs), count + tests
        except Skipped as why:
            print(f"skipped {Program(path).name}: {why}", flush=True)
    print(f"{count} tests, {f'{failed} WRONG' if failed else 'all right'}")
    return int(failed > 0)


def draw(ladder, key, options):
    """(cases, their seeds, options of the timed cell) that a key draws. A number of an option in
    `drawn` becomes one between itself and so many times itself."""
    tests, source = ladder.toml["tests"], random.Random(key)
    tests = {"sizes": [""], "drawn": {}, **tests, **tests.get("check", {})}

    def other(option, value):
        def number(found):
            ends = int(found[0]), max(1, round(int(found[0]) * tests["drawn"][option]))
            return str(source.randint(*sorted(ends)))
        return re.sub(r"\d+", number, value) if option in tests["drawn"] else value

    cases = [re.sub(r"--([a-z-]+) (\S+)", lambda each: f"--{each[1]} {other(each[1], each[2])}",
                    f"{source.choice(tests['sizes'])} {case}".strip()) for case in tests["cases"]]
    seeds = [source.randrange(1, 2**31) for _ in range(KEY_SEEDS)]
    for option in [*tests["drawn"]][:1]:  # the number of samples
        options = {**options, option: other(option, str({**ladder.settings, **options}[option]))}
    return cases, seeds, options | {"seed": seeds[0]} if "seed" in ladder.settings else options


def count_launches(stage):
    """How many kernels a CUDA stage launches, on a simulated device that counts, in a short run."""
    program = build(stage, "COUNT=1", ".counted.sim")
    with tempfile.TemporaryDirectory() as folder:
        tester, path = Tester(stage.ladder, "gpu"), Path(folder, "counts.csv")
        ((text, _), *_) = tester.pairs()
        tester.result(program, text, SIM_COUNTS=str(path))
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return sum(int(row["launches"]) for row in csv.DictReader(lines) if row["blocks"])


def tests_of(stage, program, options, cases, seeds):
    """The tests of a stage: (the Tester, a function that makes the test)."""
    tester = Tester(stage.ladder, "check", explains=True)
    tester.probe(program)
    for text, case in tester.pairs():
        yield tester, lambda: tester.test(program, text, case in tester.tests["twice"])
    for case in cases:
        yield tester, lambda: tester.test_seeds(program, case, seeds)
    if cases or not program.simulated:
        cell = Tester(stage.ladder, "cell", options, explains=True)
        yield cell, lambda: cell.test_seeds(program, cell.case, CELL_SEEDS)
    if program.simulated:
        tester = Tester(stage.ladder, "gpu", explains=True)
        program = build(stage, "SANITIZE=1", ".sanitized.sim")
        program.name = f"{stage.name}, under the sanitizers"
        for text, _ in tester.pairs():
            yield tester, lambda: tester.test(program, text)


def read_target(stage, target, phase):
    """The number of a target. What is wrong with one ends the check before it has begun."""
    found, hint = re.fullmatch(r"([0-9]*\.?[0-9]+)([%x])", target), ""
    if phase not in ("", *stage.ladder.phases):
        ladders.fail(f"PHASE: found '{phase}', expected one of: {' '.join(stage.ladder.phases)}")
    if not found or float(found[1]) == 0:
        hint = "50% (of the ceiling) or 1.2x (as fast as its origin)"
    elif found[2] == "x" and not stage.before:
        hint = f"50%: {stage.name} is the first stage, so it has no origin"
    elif found[2] == "%" and (stage.is_cuda or stage.ladder.toml["bound"] == "memory" or (
            phase and phase not in stage.ladder.toml["work"])):
        hint = f"1.2x: nobody knows how many multiply-adds bound {stage.name}"
    if hint:
        ladders.fail(f"TARGET: found '{target}', expected such as {hint}")
    return float(found[1])


def outside(stage, options, rows):
    """The seconds of the epochs in these rows' runs by the clock outside: those of the program
    without what its origin takes for a run that has none, whatever the program says."""
    rounds, *_ = stage.ladder.toml["tests"]["updates"]
    words = stage.ladder.words({**options, rounds: 0})
    around = min(compare.run(stage.before or stage, words)["program_s"]
                 for _ in range(pairs.FEWEST))
    found = [row["program_s"] - around for row in rows]
    if min(found) <= 0:
        ladders.fail("EPOCHS: found runs that are too short for the clock outside", 1)
    return found


def part_of_ceiling(stage, phase, options, seconds_of):
    """(the percentage of its ceiling that a stage reaches: median and interval over its runs, why
    it says nothing)."""
    rows, ceilings, others = [], [], running.watch_others()
    for _ in range(int(options["runs"])):
        rows.append(compare.run(stage, stage.ladder.words(options)))
        # Right after the run, the ceiling has the clock rate that the run has left.
        ceilings.append(running.rate(rows[-1]["threads"]) * 1e9 / stage.ladder.width)
    parts = [100 * sum(stage.ladder.work(row, each, "operations") or 0
                       for each in ([phase] if phase else stage.ladder.phases))
             / seconds / ceiling
             for row, seconds, ceiling in zip(rows, seconds_of(rows), ceilings)]
    return (pairs.Ratio(statistics.median(parts), *pairs.interval(parts), len(parts)),
            running.why_no_verdict(others()))


def judge(stage, target, phase, options, key):
    """Compares the stage's time with its origin's, and with a target. Returns the "verdict" and,
    with a target, what is "reached", from "low" to "high"."""
    before, ladder = stage.before, stage.ladder
    column = f"{phase}_s" if phase else ladder.time
    is_outside = key and not phase and "updates" in ladder.toml["tests"]

    def seconds_of(rows):
        return outside(stage, options, rows) if is_outside else [row[column] for row in rows]

    for each in filter(None, (before, stage)):
        compare.build(each)
    found, name = None, column.removesuffix("_s")
    if target.endswith("%"):
        says = "reaches {} % of the ceiling"
        found, why = part_of_ceiling(stage, phase, options, seconds_of)
    elif before:
        says = f"is {{}} times as fast as {before.name}"
        rows, ratios, why = compare.compare((before, stage), options)
        if name in ratios and not why:
            found = pairs.ratio(*map(seconds_of, rows[::-1]))
    if not target:
        return {"verdict": "right"}
    if why:
        ladders.show(f"{stage.name}: TARGET={target} not judged: {why}")
        return {"verdict": "not judged"}
    if not found:
        ladders.fail(f"PHASE: found '{phase}', which {before.name} does not have")
    # What is shown counts.
    low, high = (float(pairs.digits(each)) for each in (found.low, found.high))
    wanted = read_target(stage, target, phase)
    verdict = "reached" if low >= wanted else "MISSED" if high < wanted else "undecided"
    ladders.show(f"{stage.name}: TARGET={target} {verdict}: {name} "
                 f"{says.format(pairs.digits(found.median))} {found.interval}"
                 + "; more RUNS narrow it" * (verdict == "undecided"))
    return {"verdict": verdict, "reached": found.median, "low": low, "high": high}


def check_stage(stage, target, phase, key, result):
    """Tests a stage, and times it. Returns the exit status. `result` gets what is found."""
    if target or phase:
        read_target(stage, target, phase)
    options, cases, seeds = compare.read_options(stage.ladder, "check"), [], []
    is_timed = options["runs"] != "0"
    if target and not is_timed:
        ladders.fail("RUNS: found '0' and TARGET, expected only one of them")
    if key:
        cases, seeds, options = draw(stage.ladder, key, options)
    program, tester = build(stage), None
    make("-C", "harness", f"build/{stage.ladder.name}/reference", "build/many_processors.so")
    try:
        for tester, test in tests_of(stage, program, options, cases, seeds):
            test()
            result["tests"] += 1
        if key and stage.is_cuda:
            result["launches"] = count_launches(stage)
            if not result["launches"]:
                raise Wrong("launches no kernel")
    except (Wrong, Skipped) as wrong:
        result["verdict"] = "not checked" if isinstance(wrong, Skipped) else "wrong"
        now = f" with {tester.now}" if tester else ""
        if str(wrong):
            ladders.show(f"{program.name}: {result['verdict'].upper()}{now}: {wrong}")
        return 1
    print(f"{program.name}: right, {result['tests']} tests", flush=True)
    result["verdict"] = "right"
    if program.simulated:
        ladders.show("Its speed is not known: a simulated device's times mean nothing.")
        return 77 if target else 0
    if is_timed:
        if target:
            result["verdict"] = "not judged"  # until judge() returns
        result |= judge(stage, target, phase, options, key)
    return int(result["verdict"] not in ("right", "reached"))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--selection", metavar="NAME")
    parser.add_argument("--under", metavar="COMMAND", default="")
    parser.add_argument("-v", action="store_true", dest="verbose")
    parser.add_argument("words", nargs="*")
    arguments = parser.parse_args()
    if arguments.selection:
        return test_programs(arguments.words, arguments.selection, shlex.split(arguments.under),
                             arguments.verbose)
    # A program that is checked sees no key.
    key = os.environ.pop("KEY", "")
    os.environ["MAKEFLAGS"] = re.sub(r"(^|\s)KEY=(\\.|\S)*", "", os.environ["MAKEFLAGS"])
    wanted, study, target, phase, *_ = [*arguments.words, "", "", "", ""]
    stage = ladders.find_ladder(study).find(wanted)
    result = {"stage": stage.name, "verdict": "not checked", "tests": 0, "target": target}
    try:
        return check_stage(stage, target, phase, key, result)
    finally:
        if key:
            print(json.dumps(result), flush=True)
