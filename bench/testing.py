"""Runs a stage or a peer beside its ladder's reference, by [tests], and says what differs."""

import contextlib
import csv
import dataclasses
import math
import os
import random
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench import process, reference
from bench.base import ROOT, fail
from bench.items import UNSET, compare_all

LIMIT_S = 180  # that a run may take, of 2 on a quiet machine
NOT_HERE = 77  # the exit status of a stage without its device
DRAWN = 207  # training images; a stage may take 5 ms a sample, so there are no more
# A cell has ten batches, or fewer if they are large.
CELL_BATCHES = 10
CELL_ITEMS = 1000
CELL_SEEDS = 1, 2, 3


class Wrong(Exception):
    """What is wrong with a program in a case that was started in some way."""
    status = 1  # of the program that could not run here, or not with these options

    def __init__(self, case, start, said, *found):
        super().__init__(f"with {case}{start}: {said}")
        self.case, self.start, self.found = case, start, found


class Differs(Wrong):
    """The program computes something else than the reference. `found` is (the Run, its Items), for
    diagnosis.py."""


class Skipped(Exception):
    """Why a program is not tested here."""


class Start(NamedTuple):
    threads: int = 0  # 0: not given
    many: bool = False  # it is told that there are 64 processors
    order: int = 0  # in which the simulated device runs threads
    multiprocessors: int = 0  # of the simulated device, if not 16

    def __str__(self):
        words = f" --threads {self.threads}" if self.threads else ""
        if self.many:
            words += ", as on 64 processors"
        if self.order:
            words += ", in another order of threads"
        if self.multiprocessors:
            words += f", on {self.multiprocessors} multiprocessors"
        return words


AS_IT_IS = Start()
AGAIN = Start(3, True)
SEVERAL = [Start(threads, True) for threads in (2, 3, 4, 5, 7, 16, 17)]
WIDE = Start(multiprocessors=132)  # an H100's


def first_line(errors):
    """What was wrong, of what a program wrote to standard error: its first line, or in which line
    and function of the stage a sanitizer has found it. The simulated device adds more."""
    fault = re.search(r"AddressSanitizer: [a-z-]+|runtime error: .*|leak of \d+ byte", errors)
    if not fault:
        return errors.partition("\n")[0]
    said = re.search(r"^simulated device: (.*)", errors, re.MULTILINE)
    where = re.search(r"^ +#\d+ .*? in (?:void )?(\w+).*?\b(\w+\.cu?:\d+)", errors, re.MULTILINE)
    return ": ".join([*(where.groups()[::-1] if where else ()), said[1] if said else fault[0]])


class Run(NamedTuple):
    status: int
    error: str  # the line on standard error that says what was wrong
    values: np.ndarray  # the float32 that it saved, or None
    row: dict


@dataclasses.dataclass(frozen=True)
class Tester:
    """A program beside its ladder's reference. tester() and cell_tester() make one."""
    stage: object
    command: tuple  # the words that start it
    tests: dict  # a selection of [tests]
    data: list  # the words for its data, of which
    items: int  # there are so many
    environment: dict
    takes_threads: bool = False
    limit: float = LIMIT_S

    @property
    def ladder(self):
        return self.stage.ladder

    @property
    def path(self):
        return Path(self.command[-1])

    @property
    def is_simulated(self):
        return self.path.suffix == ".sim"

    @property
    def starts_slowly(self):
        """Whether mpirun starts it, which takes a third of a second."""
        return len(self.stage.command) > 1

    def has_work(self, case):
        """Whether there is enough for five threads, or for many multiprocessors."""
        return any(f" {each} " in f" {case} " for each in self.tests["all_threads"])

    def starts(self, case):
        """Where a case has enough work, it is started in all ways. Any other has two of SEVERAL."""
        is_full = self.has_work(case) or os.environ.get("FULL")
        if self.is_simulated:
            return [AS_IT_IS, WIDE] if is_full else [AS_IT_IS]
        if not self.takes_threads or not self.tests["threads"]:
            return [AS_IT_IS]
        if self.starts_slowly:
            return [AGAIN]
        return [AS_IT_IS, Start(1),
                *(SEVERAL if is_full else random.Random(case).sample(SEVERAL, 2))]

    def pairs(self, part=1):
        return reference.pairs(self.tests, part)

    def options(self, case):
        return [*self.data, *shlex.split(f"{self.tests['options']} {case} {self.tests['last']}")]

    def expected(self, case):
        lines, values = reference.expect(self.ladder, *self.options(case))
        return reference.widened(lines, self.stage.digits), values

    def run(self, case, start=AS_IT_IS):
        """Runs a program once, and reads what it leaves behind."""
        saved = Path(reference.scratch().name, "saved")
        rows = saved.with_name("rows.csv")
        for file in (saved, rows):
            file.unlink(missing_ok=True)
        command = [*self.command, *self.options(case), "--csv", rows]
        if self.ladder.save:
            command += [f"--{self.ladder.save}", saved]
        if start.threads and self.takes_threads:
            command += ["--threads", start.threads]
        environment = self.environment
        if start.order:
            environment = environment | {"SIM_SEED": str(start.order)}
        if start.multiprocessors:
            environment = environment | {"SIM_MULTIPROCESSORS": str(start.multiprocessors)}
        if start.many:  # by a relative path: LD_PRELOAD takes none with a space or a colon
            environment = environment | {"LD_PRELOAD": "bench/build/many_processors.so"}
        ended = process.run(command, self.limit, env=environment, cwd=ROOT)
        lines = rows.read_text(encoding="utf-8").splitlines() if rows.exists() else []
        values = np.fromfile(saved, np.float32) if saved.exists() else None
        return Run(ended.status, first_line(ended.err), values, next(csv.DictReader(lines), {}))

    def result(self, case, start=AS_IT_IS):
        """A run that has ended well, and saved as many numbers as the reference."""
        run = self.run(case, start)
        if run.status == process.TOO_SLOW:
            raise Wrong(case, start, f"hangs, or takes over {self.limit} s")
        if run.status or run.error:
            hint = f"; {UNSET}" if self.is_simulated and " became " in run.error else ""
            said = filter(None, [process.ending(run.status), run.error + hint])
            wrong = Wrong(case, start, ": ".join(said))
            if run.status in (2, NOT_HERE):
                wrong.status = run.status
            raise wrong
        _, expected = self.expected(case)
        found = 0 if run.values is None else run.values.size
        if expected is not None and found != expected.size:
            raise Wrong(case, start, f"--{self.ladder.save}: found {found} numbers, "
                                     f"expected {expected.size}")
        return run

    def compare(self, case, start=AS_IT_IS):
        """(a run that has ended well, its Items, whether they are right)"""
        run = self.result(case, start)
        with np.errstate(all="ignore"):
            items = compare_all(run, *self.expected(case))
        return run, items, all(item.right for item in items)

    def differs_again(self, case, start, run, order=1):
        """Whether another run, on the simulated device in another order, gives another result."""
        if self.is_simulated:
            start = start._replace(order=order)
        other = self.result(case, start)
        names = [name for kind, name, *_ in self.expected(case)[0] if kind == "result"]
        return any(run.row.get(name) != other.row.get(name) for name in names) or (
            run.values is not None and run.values.tobytes() != other.values.tobytes())


def make_tester(stage, tests, items, command, leaks=False, **options):
    """A Tester, whose data are drawn where the ladder has some."""
    ladder = stage.ladder
    data = []
    if tests["real_data"]:
        data = ladder.data
    elif ladder.toml["data"]:
        data = ["--data", str(reference.drawn_data(ladder, items))]
    # Checks run side by side, so waiting threads soon sleep, and none is bound. Tests preload
    # before a sanitizer's library, and the host's leaks are no kernel's mistake.
    environment = {"ASAN_OPTIONS": f"detect_leaks={int(leaks)}:verify_asan_link_order=0",
                   "UBSAN_OPTIONS": "print_stacktrace=1", "GOMP_SPINCOUNT": "2000",
                   "MALLOC_PERTURB_": "165",  # so that fresh memory is not 0
                   **os.environ}
    return Tester(stage, (*map(str, command),), tests, data, items, environment, **options)


def tester(stage, selection, path=None, under=(), **options):
    """Tests a stage or a peer, or another build of it, with the options of a selection. Finds out
    whether it runs here, and whether it takes --threads."""
    path = path or stage.program
    if not os.access(path, os.X_OK):
        raise Skipped("not built on this machine")
    tests = reference.selected(stage.ladder, selection)
    found = make_tester(stage, tests, tests["items"] or DRAWN,
                        [*under, *stage.command[:-1], path], selection == "sanitized", **options)
    for takes_threads in (True, False):
        found = dataclasses.replace(found, takes_threads=takes_threads)
        run = found.run(found.pairs()[0][0], Start(2))
        if run.status == NOT_HERE:
            raise Skipped(run.error)
        if run.status != 2:
            break
    return found


def cell_tester(stage, cell, command=None, batches=CELL_BATCHES, **options):
    """(a Tester, its case) of a cell: {option: value}. An epoch is cut down to its first batches
    and its last one, which may be short. There are two, so that something comes after that."""
    ladder = stage.ladder
    tests = reference.selected(ladder, "cell")
    items = tests["items"] or DRAWN
    known = {**ladder.settings, **cell}
    if "updates" in tests:
        rounds, samples, size = tests["updates"]
        each = int(known[size])
        first = max(1, min(batches, CELL_ITEMS // each)) * each
        cell = {**cell, rounds: 2,
                samples: min(int(known[samples]), first + int(known[samples]) % each)}
        items = max(items, cell[samples])
    return (make_tester(stage, tests, items, command or stage.command, **options),
            " ".join(ladder.words_of(cell)))


def test(program, case, twice=False):
    """Compares a program with the reference, however it is started, and if asked a last run with
    another: the order of its sums must not depend on the scheduler. If `twice` is None, it only has
    to end well."""
    if twice is None:
        program.result(case)
        return
    for start in program.starts(case):
        run, items, right = program.compare(case, start)
        if not right:
            first = next(item for item in items if not item.right)
            raise Differs(case, start, "the first that differs is "
                          f"{first.element or first.name}: found {first.found:.9g}, "
                          f"expected {first.expected:.9g}", run, items)
        if start.threads:
            check_threads(program, case, start, run.row)
    if twice and program.differs_again(case, start, run):
        raise Wrong(case, start, "another run gives another result: a race, or memory that is not "
                                 "set")


def check_threads(program, case, start, row):
    """A stage may use fewer threads than it is asked for, but never more. With enough work and
    processors it has to use all. Otherwise 5 threads are not tested on two cores."""
    used = float(row.get("threads") or math.nan)
    is_enough = start.many and start.threads <= 5 and program.has_work(case)
    if not (start.threads if is_enough else 1) <= used <= start.threads:
        raise Wrong(case, start, f"used {used:g} threads, asked for {start.threads}")


def test_seeds(program, case):
    """Tests a case with new seeds. If rounding decides whether a hidden unit is on, a right program
    is further off than the bound. A wrong one is, with all seeds."""
    if "seed" in program.ladder.settings:
        for seed in CELL_SEEDS[:-1]:
            with contextlib.suppress(Differs):
                return test(program, f"{case} --seed {seed}")
        case = f"{case} --seed {CELL_SEEDS[-1]}"
    return test(program, case)


def check_cell(stage, cell):
    """Ends the program if a stage or peer is wrong in the cell in which it is to be timed."""
    process.make("-C", "bench", f"build/{stage.ladder.name}/reference")
    try:
        test_seeds(*cell_tester(stage, cell))
    except Wrong as wrong:
        fail(f"{stage.name}: not timed: {wrong}; see `make check`", wrong.status)
