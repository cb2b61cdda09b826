"""Compares what stages compute with what their ladder's reference computes.

    python3 -m harness verify [-v] [--thin] [--under COMMAND] SELECTION [STAGE...]

STAGE is a stage's folder, or a program: a build of a stage with other flags, or a peer. Without it,
all stages are tested, or all peers if the selection is `peers`. Each is run from its command line,
and so is harness/build/LADDER/reference, with the same options. They stand in the ladder's
ladder.toml: SELECTION names a table in [tests], whose keys replace those of [tests]. -v prints how
far every result was from the reference's. --thin tests each size and each case, but not each size
in each case. That is enough for a step, because it is like the stages beside it. COMMAND is put
before the command line.

The keys: each of `sizes` is tested with each of `cases`, with `options` before both and `last`
after them, where it wins. All of them are options as on a command line. `twice` are the cases that
must give the same bytes twice (without this key, all are). The cases of `run_only` only have to end
well. `all_threads` are sizes or cases with enough work for five threads. `threads = false` tests
one number of threads, for programs that take seconds to start. `real_data` tests on the real data,
and not on random images. FULL=1 tests more numbers of threads. A stage that its Makefile
starts with RUN is tested with 3 threads only, because mpirun takes a third of a second. FULL=1 adds
one other number to each case, in turn.

The reference prints what is compared: see stages/reference.c. `norm` bounds the norm of what
differs, over the norm of what is expected, and `largest` the largest difference, over the largest
element that is expected. A bound of 0 asks for the same bits.
"""

import argparse
import csv
import dataclasses
import functools
import itertools
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from harness import ladders, running
from harness.running import TOO_SLOW

BUILD = Path(__file__).resolve().parent / "build"
FULL = bool(os.environ.get("FULL"))
LIMIT = 600  # seconds that a run may take
NOT_HERE = 77  # the exit status of a stage without its device
# Selections that a ladder need not have.
EXTRA = "wide", "simulated_wide", "long"
DRAWN = 207  # training images; a stage may take 5 ms a sample, so there are no more
# A cell has ten batches, or fewer if they are large. It is compared with other initial weights if
# the first were unlucky: see check_cell().
CELL_BATCHES, CELL_ITEMS, CELL_SEEDS = 10, 1000, (1, 2, 3)


# What a NaN is there, first of all.
UNSET = ("look first for memory that is read before it is set, because the simulated device fills "
         "it with NaNs")


class Wrong(Exception):
    """What is wrong with a program."""

    def __init__(self, text, status=1):
        super().__init__(text)
        self.status = status  # of the program that could not run here, or not with these options


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
    seconds: float = 0  # by our clock


@dataclasses.dataclass
class Item:
    """A result of a run beside the reference's: a column of the row, or a part of what it saved."""
    name: str
    error: float
    bound: float
    right: bool
    found: float = math.nan  # the column's value, or the first wrong element's
    expected: float = math.nan
    element: str = ""  # the first wrong element: W1[783][32]
    slice: slice = None  # where a part lies in the file
    wrong: np.ndarray = None  # rows × columns: which elements of a part are wrong

    def __str__(self):
        first = f"{self.element or self.name}: found {self.found:.9g}, expected {self.expected:.9g}"
        as_a_whole = (f"{self.name} as a whole is {self.error:.2e} away from the reference, "
                      f"expected at most {self.bound:.0e}")
        return f"the first that differs is {first}; {as_a_whole}" if self.element else (
            as_a_whole if self.name == "total" else first)


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
    bound = float(relative) * abs(value) + float(absolute)
    error = abs(found / value - 1) if value else abs(found)
    return Item(name, error, bound, abs(found - value) <= bound, found, value)


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
    return Item(name, error, bound, right, found[place], expected[place], element, wrong=wrong)


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
                items += [] if error <= bound else [Item(kind, error, bound, False)]
        return items


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
    """Runs programs of one ladder, and compares them with its reference."""

    def __init__(self, ladder, selection, folder, verbose=False, cell=None):
        self.ladder, self.folder, self.verbose = ladder, folder, verbose
        if "tests" not in ladder.toml:
            ladders.fail(f"{ladder.name}/ladder.toml: found no [tests]; see stages/ladder.toml")
        tests = ladder.toml["tests"]
        self.turns = itertools.cycle(start for start in [AS_IT_IS, *THREADS] if start != AGAIN)
        self.tests = {"sizes": [""], "options": "", "last": "", "run_only": [], "all_threads": [],
                      "threads": True, **tests, **tests.get(selection, {})}
        self.left_out = selection in EXTRA and selection not in tests and "nothing to test"
        self.now = ""  # what is run
        self.items = DRAWN
        self.case = cell and self.case_of(cell)
        self.expected = functools.lru_cache(maxsize=8)(self.compute_expected)
        self.data = ["--data", str(folder)] if ladder.toml["data"] else []
        if self.data and self.tests.get("real_data"):
            data = Path(os.environ.get(ladder.data_variable) or ladder.data_set.with_suffix(""))
            self.data = ["--data", str(data)]
            if not [*data.glob("train*")] or (data / "SYNTHETIC").exists():
                self.left_out = f"no {ladder.data_set.stem} in {data}"
        elif self.data:
            ladder.data_module.write(folder, self.items)
        # LD_PRELOAD takes no path with a space or a colon. Threads wait as they do in a sweep. They
        # are not bound: checks run side by side, and all would begin at the same core.
        (folder / "many.so").symlink_to(BUILD / "many_processors.so")
        self.environment = {**ladders.SPINNING, **os.environ}

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
        """The words of a command line."""
        return [*self.data, *shlex.split(f"{self.tests['options']} {case} {self.tests['last']}")]

    def compute_expected(self, case):
        """Runs the reference. expected() keeps what it computes for a while."""
        saved = self.folder / "expected"
        saved.unlink(missing_ok=True)
        command = [str(BUILD / self.ladder.name / "reference"), *self.options(case)]
        if self.ladder.save:
            command += [f"--{self.ladder.save}", str(saved)]
        try:
            text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"{Path(sys.argv[0]).name}: {error}; `make -C tests programs` builds it")
        return Expected([line.split() for line in text.splitlines()],
                        np.fromfile(saved) if saved.exists() else None)

    def start(self, command, limit, environment):
        return running.run(command, limit, env=environment)

    def run(self, program, case, start=AS_IT_IS, limit=LIMIT):
        """Runs a program once."""
        command = [*program.command, *self.options(case)]
        if start.threads and program.threads:
            command += ["--threads", str(start.threads)]
        environment = {**self.environment, "SIM_SEED": str(start.order)} if start.order else {
            **self.environment}
        if start.many:
            environment["LD_PRELOAD"] = str(self.folder / "many.so")
        return self.execute(command, limit, environment)

    def execute(self, command, limit, environment, *threads):
        """Runs a command line, and reads what it leaves behind."""
        saved, rows = self.folder / "saved", self.folder / "rows.csv"
        for file in (saved, rows):
            file.unlink(missing_ok=True)
        save = [f"--{self.ladder.save}", str(saved)] if self.ladder.save else []
        status, errors, seconds = self.start([*command, "--csv", str(rows), *save], limit,
                                             environment, *threads)
        row = {}
        if rows.exists():
            with open(rows, newline="", encoding="utf-8") as file:
                row = next(csv.DictReader(file), row)
        values = np.fromfile(saved, np.float32) if saved.exists() else None
        return Run(status, first_line(errors), values, row, seconds)

    def run_in_time(self, program, case, start):
        """Runs a program for as long as it may take."""
        if program.hangs:
            raise Wrong("not run: it had to be stopped before")
        run = self.run(program, case, start)
        if run.status == TOO_SLOW:
            program.hangs = True
            raise Wrong("hangs: had to be stopped after ten minutes")
        return run

    def result(self, program, case, start=AS_IT_IS):
        """A run that has ended well."""
        self.now = f"{case}{start}"
        run = self.run_in_time(program, case, start)
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
        """A run that has ended well, and its Items."""
        run = self.result(program, case, start)
        with np.errstate(all="ignore"):
            return run, self.expected(case).compare(run)

    def differ(self, case, run, other):
        """Whether two runs of the same command have another result."""
        names = [name for kind, name, *_ in self.expected(case).lines if kind == "result"]
        return any(run.row.get(name) != other.row.get(name) for name in names) or (
            run.values is not None and run.values.tobytes() != other.values.tobytes())

    @staticmethod
    def again(program, start, number=1):
        """How a run is repeated whose result must be the same."""
        return start._replace(order=number) if program.simulated else start

    def check_threads(self, case, start, row):
        """A stage may use fewer threads than it is asked for, but never more. With enough work and
        processors it has to use all. Otherwise 5 threads are not tested on two cores."""
        used = float(row.get("threads") or math.nan)
        if not 1 <= used <= start.threads:
            raise Wrong(f"used {used:g} threads, asked for {start.threads}")
        if start.many and start.threads <= 5 and used != start.threads and any(
                f" {each} " in f" {case} " for each in self.tests["all_threads"]):
            raise Wrong(f"used {used:g} threads of {start.threads}, with 64 processors")

    def report(self, program, case, start, run, items):
        """Ends a test whose result is wrong."""
        wrong = [item for item in items if not item.right]
        raise Wrong(min(wrong, key=lambda item: not item.element))

    def test(self, program, text, case):
        """Compares the program with the reference, however it is started. The order of its sums
        must not depend on the scheduler. `text` is the size and the case."""
        twice = case in self.tests.get("twice", self.tests["cases"])
        starts, again = [AS_IT_IS], AS_IT_IS
        if program.threads and self.tests["threads"]:
            again = AGAIN
            starts = [AS_IT_IS, *THREADS]
            if program.starts_slowly:
                starts = [AGAIN, *([next(self.turns)] if FULL else [])]
        for start in starts:
            run, items = self.compare(program, text, start)
            if self.verbose:
                print(f"{program.name} {text}{start}: "
                      + ", ".join(f"{item.name} {item.error:.1e}" for item in items))
            if not all(item.right for item in items):
                self.report(program, text, start, run, items)
            if start.threads:
                self.check_threads(text, start, run.row)
            if twice and start == again and self.differ(
                    text, run, self.result(program, text, self.again(program, start))):
                raise Wrong("gives another result: a race" if program.simulated else
                            "two runs do not give the same result")

    def check_cell(self, program):
        """Compares a program with the reference in the cell. If rounding decides whether a hidden
        unit is on, a right program is further off than the bound. That is rare, and other initial
        weights show it. A wrong program is wrong with all."""
        seeds = CELL_SEEDS if "seed" in self.ladder.settings else ("",)
        for seed in seeds:
            case = f"{self.case} --seed {seed}" if seed else self.case
            run, items = self.compare(program, case, AS_IT_IS)
            if all(item.right for item in items):
                return
        self.report(program, case, AS_IT_IS, run, items)

    def probe(self, program, limit=LIMIT):
        """Finds out whether a program runs here, and whether it takes --threads."""
        if program.unavailable:
            return
        case = f"{self.tests['sizes'][0]} {self.tests['cases'][0]}".strip()
        run = self.run(program, case, limit=limit)
        if run.status == NOT_HERE:
            program.unavailable = run.error
        elif run.status != TOO_SLOW:
            program.threads = True
            program.threads = self.run(program, case, Start(2), limit).status != 2

    def test_all(self, programs, thin=False):
        """Tests programs. Returns how many tests failed, and how many there were."""
        failed = count = 0
        for program in programs:
            self.probe(program)
            if program.unavailable:
                print(f"skipped {program.name}: {program.unavailable}", flush=True)
        here = [program for program in programs if not program.unavailable]
        thinned = min(3, len(self.tests["sizes"]))
        for row, size in enumerate(self.tests["sizes"]):
            for column, case in enumerate((*self.tests["cases"], *self.tests["run_only"])):
                text = f"{size} {case}".strip()
                for program in here:
                    if (row + column) % (thinned if thin or program.is_step else 1):
                        continue
                    count += 1
                    try:
                        if case in self.tests["run_only"]:
                            self.result(program, text)
                        else:
                            self.test(program, text, case)
                        print(f"ok {program.name} {text}", flush=True)
                    except Wrong as error:
                        failed += 1
                        print(f"WRONG {program.name} {self.now}: {error}", flush=True)
        return failed, count


def check_cell(stages, cell):
    """Ends the program if one of these stages or peers does not compute what the reference does
    where it is to be timed: with the options of this cell."""
    ladder = next(iter(stages)).ladder
    if subprocess.run(["make", "-s", "--no-print-directory", "-C", BUILD.parent,
                       f"build/{ladder.name}/reference"], stdout=2, check=False).returncode:
        sys.exit(1)  # it has said why
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(ladder, "cell", Path(folder), cell=cell)
        for stage in stages:
            try:
                tester.check_cell(Program(stage.program))
            except Wrong as wrong:
                if wrong.status in (2, NOT_HERE):  # nothing is wrong with what it computes
                    words = str(wrong).replace(f"{stage.name}: ", "", 1)
                    ladders.fail(f"{stage.name}: {words}", wrong.status)
                ladders.fail(f"{stage.name}: WRONG with {tester.now}: {wrong}. So it is not timed; "
                             "see `make check`", 1)


def all_stages(selection):
    """The stages of all ladders, or their peers. Peers are built first."""
    if selection != "peers":
        return [stage.folder for ladder in ladders.ladders() for stage in ladder.stages]
    peers = [peer for ladder in ladders.ladders() for peer in ladder.peers]
    for peer in peers:
        subprocess.run(peer.build, cwd=ladders.ROOT, check=False)
    return [peer.program for peer in peers]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-v", action="store_true", dest="verbose")
    parser.add_argument("--thin", action="store_true")
    parser.add_argument("--under", metavar="COMMAND", default="")
    parser.add_argument("selection", metavar="SELECTION")
    parser.add_argument("stages", metavar="STAGE", nargs="*")
    arguments = parser.parse_args()
    programs = [Program(path, shlex.split(arguments.under))
                for path in arguments.stages or all_stages(arguments.selection)]
    failed = count = 0
    for ladder in dict.fromkeys(program.ladder for program in programs):
        with tempfile.TemporaryDirectory() as folder:
            tester = Tester(ladder, arguments.selection, Path(folder), arguments.verbose)
            if tester.left_out:
                print(f"skipped {ladder.name}: {tester.left_out}")
                continue
            found = tester.test_all([each for each in programs if each.ladder is ladder],
                                    arguments.thin)
            failed, count = failed + found[0], count + found[1]
    print(f"{count} tests, {f'{failed} WRONG' if failed else 'all right'}")
    sys.exit(failed != 0)
