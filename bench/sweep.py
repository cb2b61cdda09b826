"""Runs the stages of a ladder over its grid. --resume leaves out what runs.csv holds."""

import contextlib
import itertools
import math
import os
import re
import shlex
import sys
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

from bench import cells, command_line, faults, host, measuring, process, rows, screen
from bench.base import ROOT, Interrupted, fail
from bench.record import Record
from data.locate import locate

# {kind of the sweep: [(seconds that a run takes at least, rounds)]}. A longer run has less noise
# and costs more: from 20 s on, one is enough. --steps has more, so that small differences show.
ROUNDS = {"grid": ((20, 1), (5, 2), (0, 3)), "quick": ((0.5, 1), (0, 3)),
          "steps": ((1, 8), (0, 16)), "growth": ((1, 1), (0, 3))}
# A cell of the grid has more until so many seconds have been timed in it, but not without a limit.
# A GPU may take 5 ms for a run and begins with slow clocks, so there the limit is higher.
ENOUGH_S = 1.0
MOST_ROUNDS = 12
MOST_GPU_ROUNDS = 250
AGAIN_PART = 0.25  # of a sweep's runs may be made again: a machine may be disturbed all the time
PAUSE_S = 1.0  # before a disturbed run is made again: another machine's bursts last that long


def say(text):
    with contextlib.suppress(OSError):  # the terminal is gone, but the sweep goes on
        print(text, file=sys.stderr, flush=True)


class Sweep:
    """The sweep of one ladder. A cell is {option: value}, and key_of() tells it from others."""

    def __init__(self, ladder, options):
        self.ladder = ladder
        self.options = options
        self.kind = options.kind
        self.stages = self.chosen_stages()
        numbers = options.threads or [0]  # of threads; 0 is as many as OpenMP chooses
        if self.kind == "growth" and not options.threads:
            count = host.processors()
            numbers = [count, *(2**n for n in range(count.bit_length()))]
        self.threads = sorted({*numbers}, reverse=True)
        self.axes = [axis["option"] for axis in ladder.axes]
        given = {name: value for name, value in vars(options).items() if value is not None}
        self.cells = {self.key_of(cell): cell for cell in cells.cells(
            ladder, self.kind, given, bool(options.quick))}
        self.users = defaultdict(set)  # {cell that not all have: names of the stages that do}
        if self.kind == "steps" and not given.keys() & {*self.axes}:
            common = dict(self.cells)
            for cell, names in cells.asked(ladder, self.stages, next(iter(common.values()))):
                key = self.key_of(cell)
                if key not in common:
                    self.cells[key] = cell
                    self.users[key] |= names
        self.data = ""   # what the data are
        self.sweep = 0   # its number in the record, once a program has run
        # {(stage's name, cell): {threads: {(sweep, round): seconds}}}
        self.times = defaultdict(lambda: defaultdict(dict))
        self.rows = []   # those that count
        self.failed = 0  # the exit status
        self.made = 0    # runs of this sweep
        self.again = 0   # those that were made once more
        self.clocks = set()  # the names of stages whose clock was held against that outside
        self.notes = {}  # {stage's name: (outcome, reason)}, and then it is run no more
        self.bar = screen.Bar()

    def show(self, words, left=0):
        """Shows what is under way: in the bar on a terminal, else in a line."""
        if self.bar.disable:
            say(f"{words}; {left} to go" if left else words)
        else:
            self.bar.say(words, self.made, left)

    def chosen_stages(self):
        """Those of --stages, or all; without --steps all that are none. Then the peers."""
        found = [stage for stage in self.ladder.stages
                 if self.kind == "steps" or not stage.is_step]
        if self.options.stages:
            chosen = [stage for wanted in self.options.stages
                      for stage in self.ladder.select(wanted, "--stages")]
            found = [stage for stage in self.ladder.stages if stage in chosen]
        return found + self.ladder.peers if self.options.peers else found

    def key_of(self, row, name_of=str):
        """What tells the cell of a row, or a cell, from others. A program may have rounded it."""
        values = [row[name_of(option)] for option in (*self.axes, *self.ladder.settings)]
        return tuple(float(f"{value:.6g}") if isinstance(value, float) else value
                     for value in values)

    def where(self, cell):
        """Which cell it is, in words: ["hidden 8", "batch 4"]."""
        is_growth = self.kind == "growth"
        shown = self.ladder.toml["growth"]["values"] if is_growth else self.axes[::-1]
        return [f"{option} {cell[option]}" for option in shown]

    def describe(self):
        environment = {name: value for stage in self.ladder.stages
                       for name, value in stage.environment.items()}
        text = process.output([f"{ROOT}/bench/machine.sh"], env=environment)
        if any(stage.is_peer for stage in self.stages):
            text += "\n" + process.output(
                ["make", "-s", "-C", str(self.ladder.peers_folder), "versions"], env=environment)
        found = dict(re.findall("^(.+?): *(.*)", text, re.MULTILINE))
        if self.options.threads:
            found["threads"] = ",".join(map(str, self.threads[::-1]))
        return {"kind": self.kind, "command": shlex.join(sys.argv), **found, "data": self.data}

    def lock_record(self):
        """Two sweeps at once would measure each other."""
        machine = process.output([f"{ROOT}/bench/machine.sh", "--name"])
        if self.options.quick:
            machine += "-quick"
        self.output = Path(self.options.output
                           or ROOT / "report/results" / machine / self.ladder.name)
        self.record = Record(self.output)
        self.lock = self.record.lock()

    def check_options(self):
        """Ends the program if options are wrong that only a program can judge."""
        built = [stage for stage in self.stages
                 if not stage.is_peer and stage.name not in self.notes]
        for cell in self.cells.values() if built else ():
            ended = process.run([built[0].program, *self.ladder.words(cell), "--columns"])
            if ended.status == 2:
                fail(process.reason(ended.err, built[0].name))

    def read_record(self):
        """Reads what there is. With --resume, counts its runs, unless they had other threads or
        data. The rows may not show that: a serial stage always has one thread."""
        self.known = self.describe()
        self.earlier = {sweep: known for sweep, known in self.record.sweeps.items()
                        if known.get("kind", "grid") == self.kind}
        path = self.output / "runs.csv"
        if not self.options.resume or not path.exists():
            return
        for row in rows.records(rows.read_rows(path, self.ladder)):
            if row["sweep"] not in self.earlier:
                continue
            known = self.earlier[row["sweep"]]
            for key in ("threads", "data"):
                if known.get(key, self.known[key]) != self.known[key]:
                    fail(f"--resume: {self.output} has runs with {key} '{known[key]}', not "
                         f"'{self.known[key]}': expected the same --{key}, or another --output")
            self.count(row)

    def begin(self):
        """Begins in the record, from which earlier results move aside."""
        if self.earlier and not self.options.resume:
            say(f"Earlier results moved to {self.record.move_aside(self.earlier)}")
        self.sweep = self.record.begin(self.known)

    def count(self, row):
        """Counts a run, if it has one of the sweep's cells."""
        cell = self.key_of(row, self.ladder.column)
        if cell in self.cells:
            # A run may use fewer threads than --threads gives, and a GPU none.
            threads = min((number for number in self.threads if number >= (row["threads"] or 1)),
                          default=self.threads[0])
            times = self.times[row["stage"], cell][threads]
            times[row["sweep"], row["round"]] = row[self.ladder.time]
            self.rows.append(row)

    def numbers(self, stage, cell):
        """The numbers of threads that a cell is run with. The largest comes first, and shows how
        many the stage can use. --growth changes one option at a time: its base has several."""
        used = max(self.times[stage.name, cell], default=self.threads[0])
        threads = [number for number in self.threads if number <= used]
        is_alone = self.kind == "growth" and cell != next(iter(self.cells))
        return threads[:1] if is_alone else threads

    def missing(self, stage, cell, threads):
        """How many rounds are still needed, as the times so far show."""
        if stage.name in self.notes or stage.name not in self.users.get(cell, {stage.name}):
            return 0
        times = [*self.times[stage.name, cell].get(threads, {}).values()]
        kind = "quick" if self.options.quick else self.kind
        first = times[0] if times else 0
        rounds = next(rounds for limit, rounds in ROUNDS[kind] if first >= limit)
        if kind == "grid" and any(times):
            # A program with an option --seconds repeats its work for so long.
            least = self.cells[cell].get("seconds", 0)
            timed = [max(seconds, least) for seconds in times]
            enough = math.ceil(ENOUGH_S * len(timed) / sum(timed))  # if others take as long
            rounds = max(rounds, min(enough, MOST_GPU_ROUNDS if stage.is_gpu else MOST_ROUNDS))
        return max(0, (self.options.repeats or rounds) - len(times))

    def left(self):
        """How many runs are still needed, as far as it is known."""
        return sum(self.missing(stage, cell, threads) for stage in self.stages
                   for cell in self.cells for threads in self.numbers(stage, cell))

    def build(self):
        host.ceiling()
        has_gpu = host.has_gpu()
        for stage in self.stages:
            if stage.is_cuda and not has_gpu:  # nvcc takes ten seconds for each of its stages
                self.notes[stage.name] = "left out", "found no GPU (nvidia-smi lists none)"
                continue
            self.show(f"Building {stage.name}")
            status, out, err, _ = process.run(
                ["make", "--no-print-directory", *stage.build], cwd=ROOT)
            log = f"{out}\n{err}".strip("\n")
            left_out = re.search(rf"\b{re.escape(stage.name)}: left out, (.*)", log)
            if status:
                say(log)
                self.failed = 1
                # The first line that says what is wrong: the others follow from it.
                why = re.search(r".*(error:|undefined reference|cannot |No such file).*|.*$", log)
                self.notes[stage.name] = "not built", why[0].replace(f"{ROOT}/", "")
            elif left_out:
                self.notes[stage.name] = "left out", left_out[1]

    def start(self, stage, cell, threads, number):
        """Runs a stage once, and adds its row to the record. `number` is the round."""
        options = self.cells[cell]
        environment = stage.environment
        if threads:
            environment |= {"OMP_NUM_THREADS": str(threads)}
            if stage.declared("RUN"):  # each of its processes would have as many
                options = options | {"threads": threads}
        # The program inherits the lock: if the sweep is killed, it holds until that ends.
        run = partial(measuring.measure, stage, environment=environment, pass_fds=[self.lock])
        found = run(self.ladder.words(options),
                    with_epochs=self.ladder.toml["epochs"] and self.kind == "grid")
        if not self.sweep:
            if found.status == 2:  # the data may not have so many samples: nothing moves
                fail(process.reason(found.errors, stage.name))
            self.begin()
        if found.row and stage.name not in self.clocks:
            self.clocks.add(stage.name)
            if fault := measuring.slow_clock(stage, options, found.row, run):
                found = measuring.Measured(errors=fault)
        if found.row:
            found.row.update({"sweep": self.sweep, "round": number})
            self.record.add_run(found.texts, found.row)
            self.count(found.row)
        return found

    def run_stage(self, stage, cell, threads, number):
        """A run of a round. It is made once more if it was disturbed, never for its own time."""
        where = self.where(self.cells[cell])
        if len(self.threads) > 1:
            where.append(f"threads {threads}")
        words = [stage.name, *where, f"round {number}"]
        for more in ([], ["disturbed, so again"]):
            self.show(", ".join(words + more), self.left())
            found = self.start(stage, cell, threads, number)
            # With a row, it may have shown that the stage cannot use as many threads.
            times = self.times[stage.name, cell].get(threads, {})
            if not found.row or (threads in self.numbers(stage, cell)
                                 and (self.sweep, number) not in times):
                self.note_failure(stage, where, found)
                return
            is_disturbed = faults.is_disturbed(found.row, faults.best_rates(self.rows))
            self.made += 1
            if (more or self.options.quick or not is_disturbed
                    or self.again > AGAIN_PART * self.made):
                return
            self.again += 1
            time.sleep(PAUSE_S)

    def note_failure(self, stage, where, found):
        """Notes why a run has no row, or another one than it should."""
        reason = process.reason(found.errors, stage.name)
        if found.errors:
            say(found.errors)
        if found.status == 77:
            # What to try instead is for the one who waits, not for the tables.
            self.notes[stage.name] = "left out", reason.partition("; try ")[0]
            return
        how = f"exit status {found.status}" if found.status else ""
        if found.row:
            how = "its row has other options or threads"
        place = f"at {', '.join(where)}" if where else ""
        self.notes[stage.name] = "failed", ": ".join(filter(None, [place, how, reason]))
        self.failed = max(self.failed, 2 if found.status == 2 else 1)

    def run_all(self):
        """Runs what is missing, in rounds: each runs all cells, and all programs of a cell one
        after another. So a busy minute spoils one run of three, and the median drops it."""
        number = 0
        while self.left():
            number += 1
            for cell, stage, threads in itertools.product(self.cells, self.stages, self.threads):
                if (threads in self.numbers(stage, cell) and self.missing(stage, cell, threads)
                        and len(self.times[stage.name, cell].get(threads, {})) < number):
                    self.run_stage(stage, cell, threads, number)

    def finish(self):
        if not self.sweep:
            self.begin()
        # The runs of --growth have settings of their own, so they compute different things.
        strays = {} if self.kind == "growth" else faults.strays(self.rows, self.ladder)
        for (name, place), words in strays.items():
            where = ", ".join(self.where(dict(zip(self.axes, place))))
            self.notes.setdefault(name, ("differs", ": ".join(filter(None, [where, words]))))
            self.failed = max(self.failed, 1)
        run = {row["stage"] for row in self.rows if row["sweep"] == self.sweep}
        self.record.note_programs(self.sweep, [
            (stage.name,
             *self.notes.get(stage.name, ("ran" if stage.name in run else "not run", "")),
             stage.sources, stage.read(f"{stage.program.name}.flags").strip())
            for stage in self.stages])
        say(f"Written to {self.output}")

    def run(self):
        if self.ladder.toml["data"]:
            folder = locate(self.ladder.data_file, self.options.data)
            self.ladder.data = ["--data", str(folder)]
            self.data = self.ladder.describe_data(folder)
        self.lock_record()
        if self.data and not self.data.startswith("synthetic"):  # else locate() has said so
            say(f"Data: {folder} ({self.data.partition(',')[0]})")
        with self.bar:
            self.build()
            self.check_options()
            self.read_record()
            self.run_all()
        self.finish()


def main(arguments):
    """Makes a sweep. Returns (exit status, [(folder of results, ladder)] if there are some)."""
    sys.argv = ["./run_all.sh", *arguments]
    options, ladder = command_line.parse(arguments)
    os.environ["LC_ALL"] = "C"  # a decimal point, not a comma
    sweep = Sweep(ladder, options)
    try:
        sweep.run()
        status = sweep.failed
    except Interrupted as ended:
        status = ended.code
        if sweep.sweep:
            with contextlib.suppress(SystemExit):
                sweep.finish()
        resume = ["--resume"] if sweep.sweep and not options.resume else []
        say(f"Interrupted; to go on: {shlex.join([*sys.argv, *resume])}")
    has_rows = sweep.sweep and (sweep.output / "runs.csv").exists()
    return status, [(sweep.output, ladder)] if has_rows else []
