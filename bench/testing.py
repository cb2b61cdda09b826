"""Runs a stage or a peer beside its ladder's reference, by [tests], and says what differs."""

import contextlib
import csv
import functools
import math
import os
import re
import shlex
import signal
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench import process, reference
from bench.base import ROOT, fail
from bench.items import compare_all, explain_update

LIMIT = 180  # seconds that a run may take, of 2 on a quiet machine
NOT_HERE = 77  # the exit status of a stage without its device
DRAWN = 207  # training images; a stage may take 5 ms a sample, so there are no more
# A cell has ten batches, or fewer if they are large.
CELL_BATCHES = 10
CELL_ITEMS = 1000
CELL_SEEDS = 1, 2, 3
UNSET = ("look first for memory that is read before it is set, or before its stream has been "
         "waited for, because the simulated device fills it with NaNs")


class Wrong(Exception):
    tester = case = None  # who has found it, and with what
    status = 1  # of the program that could not run here, or not with these options


class Differs(Wrong):
    """The program computes something else than the reference. explain() prints a table and why."""
    explain = None


class Skipped(Exception):
    """Why a program is not tested here."""


class Start(NamedTuple):
    threads: int = 0  # 0: not given
    many: bool = False  # it is told that there are 64 processors
    order: int = 0  # in which the simulated device runs threads

    def __str__(self):
        words = f" --threads {self.threads}" if self.threads else ""
        if self.many:
            words += ", as on 64 processors"
        if self.order:
            words += ", in another order of threads"
        return words


AS_IT_IS = Start()
AGAIN = Start(3, True)
STARTS = [AS_IT_IS, Start(1), Start(17, True), AGAIN]
if os.environ.get("FULL"):
    STARTS += [Start(2), Start(3), Start(5), Start(17), Start(2, True), Start(5, True)]


def first_line(errors):
    """What was wrong, of what a program wrote to standard error: its first line, or in which line
    and function of the stage a sanitizer has found it. The simulated device adds more."""
    fault = re.search(r"AddressSanitizer: [\w-]+|runtime error: .*", errors)
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


class Tester:
    """Tests a stage or a peer, or another build of it, with the options of a selection."""

    def __init__(self, stage, selection, path=None, cell=None, under=()):
        self.stage = stage
        self.ladder = stage.ladder
        self.path = Path(path or stage.program)
        self.command = [*under, *stage.command[:-1], str(self.path)]
        self.simulated = self.path.suffix == ".sim"
        self.starts_slowly = bool(stage.command[1:])  # mpirun takes a third of a second
        self.tests = reference.selected(self.ladder, selection, not cell)
        self.now = ""  # what is run
        self.items = self.tests["items"] or DRAWN
        self.case = cell and self.case_of(cell)
        self.data = []
        if self.tests["real_data"]:
            self.data = self.ladder.data
        elif self.ladder.toml["data"]:
            self.data = ["--data", str(reference.drawn_data(self.ladder, self.items))]
        # Checks run side by side, so waiting threads soon sleep, and none is bound. Tests preload
        # before a sanitizer's library, and the host's leaks are no kernel's mistake.
        leaks = int(selection == "sanitized")
        self.environment = {"ASAN_OPTIONS": f"detect_leaks={leaks}:verify_asan_link_order=0",
                            "UBSAN_OPTIONS": "print_stacktrace=1", "GOMP_SPINCOUNT": "2000",
                            **os.environ}
        self.takes_threads = False
        if not cell:
            self.probe()

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
        return " ".join(self.ladder.words_of(cell))

    def options(self, case):
        return [*self.data, *shlex.split(f"{self.tests['options']} {case} {self.tests['last']}")]

    def expected(self, case):
        return reference.expect(self.ladder, *self.options(case))

    def run(self, case, start):
        """Runs a program once, and reads what it leaves behind."""
        saved = Path(reference.scratch().name, "saved")
        rows = saved.with_name("rows.csv")
        for file in (saved, rows):
            file.unlink(missing_ok=True)
        command = [*self.command, *self.options(case), "--csv", str(rows)]
        if self.ladder.save:
            command += [f"--{self.ladder.save}", str(saved)]
        if start.threads and self.takes_threads:
            command += ["--threads", str(start.threads)]
        environment = dict(self.environment)
        if start.order:
            environment["SIM_SEED"] = str(start.order)
        if start.many:  # by a relative path: LD_PRELOAD takes none with a space or a colon
            environment["LD_PRELOAD"] = "bench/build/many_processors.so"
        status, _, errors, _ = process.run(command, LIMIT, env=environment, cwd=ROOT)
        lines = rows.read_text(encoding="utf-8").splitlines() if rows.exists() else []
        values = np.fromfile(saved, np.float32) if saved.exists() else None
        return Run(status, first_line(errors), values, next(csv.DictReader(lines), {}))

    def result(self, case, start=AS_IT_IS):
        """A run that has ended well, and saved as many numbers as the reference."""
        self.now = f"with {case}{start}"
        run = self.run(case, start)
        if run.status == process.TOO_SLOW:
            raise Wrong(f"{self.now}: hangs, or takes over {LIMIT} s")
        if run.status < 0:
            said = filter(None, [signal.strsignal(-run.status), run.error])
            raise Wrong(f"{self.now}: ended by a signal: {': '.join(said)}")
        if run.status or run.error:
            hint = f"; {UNSET}" if self.simulated and " became " in run.error else ""
            wrong = Wrong(f"{self.now}: exit status {run.status}: {run.error}{hint}")
            if run.status in (2, NOT_HERE):
                wrong.status = run.status
            raise wrong
        _, expected = self.expected(case)
        found = 0 if run.values is None else run.values.size
        if expected is not None and found != expected.size:
            raise Wrong(f"{self.now}: --{self.ladder.save}: found {found} numbers, "
                        f"expected {expected.size}")
        return run

    def compare(self, case, start):
        """(a run that has ended well, its Items, whether they are right)"""
        run = self.result(case, start)
        with np.errstate(all="ignore"):
            items = compare_all(run, *self.expected(case))
        return run, items, all(item.right for item in items)

    def starts(self):
        if not self.takes_threads or not self.tests["threads"]:
            return [AS_IT_IS]
        return [AGAIN] if self.starts_slowly else STARTS

    def test(self, case, twice=False):
        """Compares the program with the reference, however it is started, and if asked a last run
        with another: the order of its sums must not depend on the scheduler."""
        if twice is None:
            self.result(case)
            return
        for start in self.starts():
            run, items, right = self.compare(case, start)
            if not right:
                first = next(item for item in items if not item.right)
                wrong = Differs(f"{self.now}: the first that differs is "
                                f"{first.element or first.name}: found {first.found:.9g}, "
                                f"expected {first.expected:.9g}")
                wrong.explain = functools.partial(self.explain, case, start, run, items)
                raise wrong
            if start.threads:
                self.check_threads(case, start, run.row)
        if twice and self.differs_again(case, start, run):
            raise Wrong(f"{self.now}: another run gives another result: a race, or memory that "
                        "is not set")

    def check_threads(self, case, start, row):
        """A stage may use fewer threads than it is asked for, but never more. With enough work and
        processors it has to use all. Otherwise 5 threads are not tested on two cores."""
        used = float(row.get("threads") or math.nan)
        has_work = any(f" {each} " in f" {case} " for each in self.tests["all_threads"])
        is_enough = start.many and start.threads <= 5 and has_work
        if not (start.threads if is_enough else 1) <= used <= start.threads:
            raise Wrong(f"{self.now}: used {used:g} threads, asked for {start.threads}")

    def differs_again(self, case, start, run, order=1):
        """Whether another run, on the simulated device in another order, gives another result."""
        if self.simulated:
            start = start._replace(order=order)
        other = self.result(case, start)
        names = [name for kind, name, *_ in self.expected(case)[0] if kind == "result"]
        return any(run.row.get(name) != other.row.get(name) for name in names) or (
            run.values is not None and run.values.tobytes() != other.values.tobytes())

    def test_seeds(self, case, seeds):
        """Tests a case with new seeds. If rounding decides whether a hidden unit is on, a right
        program is further off than the bound. A wrong one is, with all seeds."""
        if "seed" in self.ladder.settings:
            for seed in seeds[:-1]:
                with contextlib.suppress(Differs):
                    return self.test(f"{case} --seed {seed}")
            case = f"{case} --seed {seeds[-1]}"
        return self.test(case)

    def probe(self):
        """Finds out whether the program runs here, and whether it takes --threads."""
        if not os.access(self.path, os.X_OK):
            raise Skipped("not built on this machine")
        case = self.pairs()[0][0]
        for self.takes_threads in (True, False):
            run = self.run(case, Start(2))
            if run.status == NOT_HERE:
                raise Skipped(run.error)
            if run.status != 2:
                break

    def pairs(self, part=1):
        return reference.pairs(self.tests, part)

    def explain(self, case, start, run, items):
        """Prints what is wrong. First after the first updates, before everything that follows from
        a mistake is wrong as well. What one leaves behind shows only in the second one. A wrong
        number of items shows only in a short one."""
        names = rounds, samples, size = self.tests.get("updates", ["", "", ""])
        times, count, most = (int((re.search(rf"--{name} (\d+)", case) or [0, 0])[1])
                              for name in names)
        first = min(most, count)
        for second in dict.fromkeys((0, most, max(count - most, 0) % most)) if times else ():
            if first + second > self.items:
                continue
            # Before the first update, after it, and after the second.
            totals = (0, first), (1, first), *([(1, first + second)] if second else [])
            cases = [re.sub(rf"--{samples} \d+", f"--{samples} {total}",
                            re.sub(rf"--{rounds} \d+", f"--{rounds} {number}", case))
                     for number, total in totals]
            early, compared, right = self.compare(cases[-1], start)
            if not right:
                states = [self.expected(each)[1] for each in cases]
                return self.show(
                    cases[-1], start, early, compared, f"WRONG after the first {size}"
                    + (f" and a second one of {second}, and right before" if second else ""),
                    [explain_update(item, early.values, states, second or first, most)
                     for item in compared if item.slice and not item.right])
        return self.show(case, start, run, items, "WRONG")

    def show(self, case, start, run, items, what, words=()):
        """Prints a table, and what may be the cause: memory that is not set, a race, or `words`."""
        width = max(len(item.name) for item in items)
        print(f"{self.stage.name}: {what} ({case}{start})")
        print(f"\n{'':{width}}    error         first wrong         found     expected")
        for item in items:
            verdict = "right"
            if not item.right:
                verdict = f"WRONG   {item.element:12} {item.found:12.6g} {item.expected:12.6g}"
            print(f"{item.name:{width}}  {item.error:7.1e}  {verdict}")
        print()
        if self.simulated and run.values is not None and np.isnan(run.values).any():
            words = [f"There are NaNs: {UNSET}."]
        elif any(self.differs_again(case, start, run, order) for order in (1, 2, 3)):
            words = ["Another run gives another result: a race, or memory that is not set."]
        if start.threads > 1:
            words = ["With 1 thread it is right: look at what the threads share.", *words]
        for line in filter(None, words):
            print(line)


def check_cell(stages, cell):
    """Ends the program if a stage or peer is wrong in the cell in which it is to be timed."""
    for stage in stages:
        process.make("-C", "bench", f"build/{stage.ladder.name}/reference")
        tester = Tester(stage, "cell", cell=cell)
        try:
            tester.test_seeds(tester.case, CELL_SEEDS)
        except Wrong as wrong:
            fail(f"{stage.name}: not timed: {wrong}; see `make check`", wrong.status)
