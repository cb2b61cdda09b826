"""The runs of a sweep: which programs, in which cells, with how many threads, in which order, and
which of them are still to be made."""

import itertools
import math
import time
from collections import defaultdict
from typing import NamedTuple

from bench import cells
from bench.stage import Stage, processors

# {kind of the sweep: [(seconds that a run takes at least, rounds)]}. A longer run has less noise
# and costs more: from 20 s on, one is enough. --steps has more, so that small differences show.
ROUNDS = {
    "grid": ((20, 1), (5, 2), (0, 3)),
    "quick": ((0.5, 1), (0, 3)),
    "steps": ((1, 8), (0, 16)),
    "limited steps": ((20, 1), (5, 2), (0, 8)),
    "growth": ((1, 1), (0, 3)),
}
# A cell of the grid has more until so many seconds have been timed in it, but not without a limit.
# A GPU may take 5 ms for a run and begins with slow clocks, so there the limit is higher.
ENOUGH_S = 1.0
MOST_ROUNDS = 12
MOST_GPU_ROUNDS = 250
IN_A_PROCESS = 4   # runs of a GPU's program, within a limit: its start takes longer than they do
EACH_PART = 1 / 8  # of --limit is what a run may take: no program has the time of all


class Job(NamedTuple):
    """A run."""
    round: int
    cell: tuple   # what tells it from others
    stage: Stage  # or a peer
    threads: int  # 0 is as many as OpenMP chooses


def rounds(kind, times, least=0, is_gpu=False, whole=0):
    """How many runs a cell needs, as the times of those so far show. A program with an option
    --seconds repeats its work for so long, `least`. `whole` is what a run takes with the start of
    its program, where that counts."""
    first = max(times[0], whole) if times else 0
    found = next(count for limit, count in ROUNDS[kind] if first >= limit)
    if kind == "grid" and any(times):
        timed = sum(max(seconds, least) for seconds in times)
        enough = math.ceil(ENOUGH_S * len(times) / timed)  # if others take as long
        found = max(found, min(enough, MOST_GPU_ROUNDS if is_gpu else MOST_ROUNDS))
    return found


def is_usual(stage, options):
    """Whether a sweep without --stages has it: a step with --steps only, a program for several
    machines not with --quick."""
    if stage.is_step and options.kind != "steps":
        return False
    return not (options.quick and stage.declared("RUN"))


def chosen_stages(ladder, options):
    """Those of --stages, or all usual ones. Then the peers."""
    found = [stage for stage in ladder.stages if is_usual(stage, options)]
    if options.stages:
        chosen = [stage for wanted in options.stages for stage in ladder.select(wanted, "--stages")]
        found = [stage for stage in ladder.stages if stage in chosen]
    return found + ladder.peers if options.peers else found


def chosen_threads(options):
    """The numbers of threads, the largest first."""
    numbers = options.threads or [0]
    if options.kind == "growth" and not options.threads:
        count = processors()
        numbers = [count, *(2**n for n in range(count.bit_length()))]
    return sorted({*numbers}, reverse=True)


class Plan:
    """What a sweep has to run, and what it has run. A cell is {option: value}, and key_of() tells
    it from others."""

    def __init__(self, ladder, options):
        self.ladder = ladder
        self.options = options
        self.kind = options.kind
        self.ends = math.inf if options.limit is None else time.monotonic() + options.limit
        self.stages = chosen_stages(ladder, options)
        self.threads = chosen_threads(options)
        self.axes = [axis["option"] for axis in ladder.axes]
        self.cells = {}
        self.users = defaultdict(set)  # {cell that not all have: names of the stages that do}
        self.choose_cells({name: value for name, value in vars(options).items()
                           if value is not None})
        self.rows = []   # the runs that count
        # {(stage's name, cell): {threads: {(sweep, round): seconds}}}
        self.times = defaultdict(lambda: defaultdict(dict))
        self.whole = {}  # {(stage's name, cell): seconds that its last run took in all}
        self.out = {}    # {name of a stage that is run no more: (outcome, reason)}
        # {(stage's name, cell): threads}: for so many, or fewer, --limit leaves no time
        self.closed = {}
        self.slow = set()  # the names of stages of which --limit has ended a run

    def choose_cells(self, given):
        for cell in cells.cells(self.ladder, self.kind, given, bool(self.options.quick)):
            self.cells[self.key_of(cell)] = cell
        if self.kind != "steps" or given.keys() & {*self.axes}:
            return
        common = dict(self.cells)
        for cell, names in cells.asked(self.ladder, self.stages, next(iter(common.values()))):
            key = self.key_of(cell)
            if key not in common:
                self.cells[key] = cell
                self.users[key] |= names

    def key_of(self, row, name_of=str):
        """What tells the cell of a row, or a cell, from others. A program may have rounded it."""
        values = [row[name_of(option)] for option in (*self.axes, *self.ladder.settings)]
        return tuple(float(f"{value:.6g}") if isinstance(value, float) else value
                     for value in values)

    def where(self, cell, threads=0):
        """Which cell it is, in words: "hidden 8, batch 4"."""
        is_growth = self.kind == "growth"
        shown = self.ladder.toml["growth"]["values"] if is_growth else self.axes[::-1]
        found = [f"{option} {self.cells[cell][option]}" for option in shown]
        if len(self.threads) > 1 and threads:
            found.append(f"threads {threads}")
        return ", ".join(found)

    # --- what is left ---

    def count(self, row):
        """Counts a run, if it has one of the sweep's cells."""
        cell = self.key_of(row, self.ladder.column)
        if cell in self.cells:
            # A run may use fewer threads than --threads gives, and a GPU none.
            threads = min((number for number in self.threads if number >= (row["threads"] or 1)),
                          default=self.threads[0])
            times = self.times[row["stage"], cell][threads]
            times[row["sweep"], row["round"]] = row[self.ladder.time]
            self.whole[row["stage"], cell] = row.get("program_s", 0)
            self.rows.append(row)

    def times_of(self, stage, cell, threads):
        return [*self.times[stage.name, cell].get(threads, {}).values()]

    def numbers(self, stage, cell):
        """The numbers of threads that a program runs with in a cell. The largest comes first, and
        shows how many it can use. --growth changes one option at a time: its base has several."""
        if stage.name not in self.users.get(cell, {stage.name}):
            return []
        used = max(self.times[stage.name, cell], default=self.threads[0])
        found = [number for number in self.threads if number <= used]
        is_alone = self.kind == "growth" and cell != next(iter(self.cells))
        return found[:1] if is_alone or self.starts_slowly(stage) else found

    def starts_slowly(self, stage):
        """Whether a program takes seconds to start, of which --limit has few."""
        return self.options.limit is not None and stage.source.suffix == ".py"

    def missing(self, stage, cell, threads):
        """How many rounds are still needed, as the times so far show."""
        if (stage.name in self.out or threads not in self.numbers(stage, cell)
                or threads <= self.closed.get((stage.name, cell), -1)):
            return 0
        times = self.times_of(stage, cell, threads)
        return max(0, (self.options.repeats or self.rounds(stage, cell, times)) - len(times))

    def in_a_process(self, job):
        """How many of a job's rounds one process runs."""
        if (self.options.limit is None or not job.stage.is_gpu or self.starts_slowly(job.stage)
                or self.ladder.toml["epochs"]):
            return 1
        return max(1, min(IN_A_PROCESS, self.missing(job.stage, job.cell, job.threads)))

    def rounds(self, stage, cell, times):
        kind = "quick" if self.options.quick else self.kind
        whole = 0
        if kind == "steps" and self.options.limit is not None:
            kind = "limited steps"
            whole = self.whole.get((stage.name, cell), 0)
        return rounds(kind, times, self.cells[cell].get("seconds", 0), stage.is_gpu, whole)

    def left(self, stages=None):
        """How many runs are still needed, as far as it is known."""
        stages = self.stages if stages is None else stages
        return sum(self.missing(stage, cell, threads) for stage in stages
                   for cell in self.cells for threads in self.threads)

    def is_next(self, job):
        """Whether a run is needed, and its round is the next one there."""
        place = job.stage, job.cell, job.threads
        return self.missing(*place) > 0 and len(self.times_of(*place)) < job.round

    def is_late(self, stage):
        """Whether a program waits for all others: --limit has cut it off, or time is short on a
        machine with a GPU, whose programs come before the processor's."""
        is_beside = (self.options.limit is not None and not stage.is_gpu
                     and any(each.is_gpu for each in self.stages))
        return is_beside or stage.name in self.slow

    def jobs(self):
        """The runs, in their order. What those before have shown decides whether one is needed. A
        round has all cells, and all programs of a cell one after another: so a busy minute spoils
        one process of three, and the median drops its runs. A late program tries its small cells
        first. One that starts slowly waits for the others of a round."""
        for is_late in (False, True):
            places = [*self.cells][::-1] if is_late else [*self.cells]
            number = 0
            while self.left([stage for stage in self.stages if self.is_late(stage) == is_late]):
                number += 1
                found = [Job(number, *each)
                         for each in itertools.product(places, self.stages, self.threads)]
                found.sort(key=lambda job: self.starts_slowly(job.stage))
                for job in found:
                    if self.is_late(job.stage) == is_late and self.is_next(job):
                        yield job

    # --- the limit ---

    def may_take(self):
        """The seconds that a run may take, or None."""
        if self.options.limit is None:
            return None
        return max(0, min(self.ends - time.monotonic(), EACH_PART * self.options.limit))

    def fits(self, job):
        """Whether a run may end in time. If it surely does not, there will be no other one."""
        fits = self.options.limit is None or self.takes(job) < self.may_take()
        if not fits:
            self.close(job)
        return fits

    def takes(self, job):
        """The seconds that a run takes at least, as far as they are known: as its program on as
        many threads or more, or as the stage before it."""
        known = [seconds for threads, times in self.times[job.stage.name, job.cell].items()
                 if threads >= job.threads for seconds in times.values()]
        before = job.stage.before
        if not known and before:
            known = [seconds for times in self.times[before.name, job.cell].values()
                     for seconds in times.values()]
        return min(known, default=0)

    def close(self, job, is_slow=False):
        """Makes no more such runs. Fewer threads would take longer."""
        self.closed[job.stage.name, job.cell] = job.threads
        if is_slow:
            self.slow.add(job.stage.name)

    # --- what became of it ---

    def outcome(self, stage, sweep):
        """(what became of a program in a sweep, why), or None if nothing of it was left to run."""
        if stage.name in self.out:
            return self.out[stage.name]
        places = [(cell, threads) for cell in self.cells for threads in self.numbers(stage, cell)]
        never = [place for place in places if not self.times_of(stage, *place)]
        if never:
            others = f", and {len(never) - 1} more" if never[1:] else ""
            return "cut off", f"no run at {self.where(*never[0])}{others}"
        if any(row["stage"] == stage.name and row["sweep"] == sweep for row in self.rows):
            return "ran", ""
        return None
