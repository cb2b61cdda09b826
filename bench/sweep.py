"""Runs the stages of a ladder over its grid. run_all.sh starts it by report/run_all.py, which has
the tables.

Only runs.csv records what has been done (record.py), so --resume leaves out the runs that it holds.
A sweep's kind is grid, steps or growth, and it counts only rows of its kind. In one of the grid, a
ladder's epochs may have rows, too.
"""

import contextlib
import itertools
import math
import os
import re
import shlex
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path

from bench import cells, command_line, faults, host, measuring, rows, running
from bench.base import ROOT, fail
from bench.record import Record
from data.locate import locate

# {kind of the sweep: [(seconds that a run takes more than, rounds)]}. A longer run has less noise
# and costs more: over 20 s, one is enough. --steps has more, so that small differences show.
ROUNDS = {"grid": ((20, 1), (5, 2), (0, 3)), "quick": ((0.5, 1), (0, 3)),
          "steps": ((1, 8), (0, 16)), "growth": ((1, 1), (0, 3))}
# A cell of the grid has more until ENOUGH_S seconds have been timed in it, but MOST_ROUNDS at most.
# A GPU may take 5 ms for a run and begins with slow clocks, so there the limit is higher. A program
# with an option --seconds repeats its work for so long, and its time is that of one repeat.
ENOUGH_S, MOST_ROUNDS, MOST_GPU_ROUNDS = 1.0, 12, 250
# A disturbed run (rows.is_disturbed) is made again AGAIN times at most, and so is a quarter of a
# sweep's runs. A burst of another machine's load lasts for several runs, so PAUSE_S lies between.
AGAIN, AGAIN_PART, PAUSE_S = 2, 0.25, 1.0


def ask(*command, **options):
    """What a command prints. If it fails, it has said why."""
    status, text, _ = running.run(command, keep="stdout", **options)
    if status:
        sys.exit(max(status, 1))
    return text


def say(text, is_progress=False):
    """Says something in a line. On a terminal, progress is a line that the next one replaces."""
    begin = "\r\033[K" * sys.stderr.isatty()
    with contextlib.suppress(OSError):  # the terminal is gone, but the sweep goes on
        print(begin + text, end="" if begin and is_progress else "\n", file=sys.stderr, flush=True)


class Sweep:
    """The sweep of one ladder. A cell is {option: value}, and its key is what tells it from others:
    see key_of()."""

    def __init__(self, ladder, options):
        self.ladder, self.options = ladder, options
        self.kind = next((kind for kind in ("growth", "steps") if getattr(options, kind)), "grid")
        self.stages = self.chosen_stages()
        given = {name: value for name, value in vars(options).items() if value is not None}
        found = cells.cells(ladder, self.kind, given, bool(options.quick))
        self.cells = {self.key_of(cell): cell for cell in found}
        # The options that tell people which cell it is.
        self.shown = [axis["option"] for axis in reversed(ladder.axes)]
        if self.kind == "growth":
            self.shown = [*ladder.toml["growth"]["values"]]
        self.threads = self.chosen_threads()
        self.has_epochs = bool(ladder.epochs) and self.kind == "grid"
        self.dataset, self.data = "drawn", ""
        self.record, self.sweep = None, 0  # its number
        self.times = defaultdict(dict)  # {(stage's name, cell, threads): {(sweep, round): seconds}}
        self.rows = []         # those that count
        self.used = {}         # {(stage's name, cell): most threads}
        self.said, self.failed = set(), 0  # the exit status
        self.notes = {}        # {stage's name: (outcome, reason) why it is left out, or its rest}
        self.made = self.again = 0  # runs of this sweep, and those that were made again

    def chosen_stages(self):
        """Those of --stages, or all; without --steps all that are none."""
        if not self.options.stages:
            return [stage for stage in self.ladder.stages
                    if self.kind == "steps" or not stage.is_step]
        chosen = [stage for wanted in self.options.stages
                  for stage in self.ladder.select(wanted, "--stages")]
        return [stage for stage in self.ladder.stages if stage in chosen]

    def chosen_threads(self):
        """The numbers of threads, the largest first. 0 is as many as OpenMP chooses."""
        numbers = self.options.threads or [0]
        if self.kind == "growth" and not self.options.threads:
            count = host.processors()
            numbers = [count, *(2**n for n in range(count.bit_length()))]
        return sorted({*numbers}, reverse=True)

    def key_of(self, row, name_of=str):
        """What tells the cell of a row, or a cell, from others. A program may have rounded it."""
        values = [row[name_of(option)] for option in (
            *(axis["option"] for axis in self.ladder.axes), *self.ladder.settings)]
        return tuple(float(f"{value:.6g}") if isinstance(value, float) else value
                     for value in values)

    # --- the folder of the results ---

    def find_data(self):
        folder = locate(self.ladder.data_file, self.options.data)
        self.ladder.data = ["--data", str(folder)]
        self.data = self.ladder.describe_data(folder)
        self.dataset = self.data.partition(",")[0]

    def describe(self):
        """{key: value} of this sweep."""
        environment = {name: value for stage in self.ladder.stages
                       for name, value in stage.environment.items()}
        text = ask(f"{ROOT}/bench/machine.sh", env=environment)
        if any(stage.is_peer for stage in self.stages):
            text += "\n" + ask("make", "-s", "-C", str(self.ladder.peers_folder), "versions")
        found = dict(line.split(": ", 1) for line in text.splitlines())
        if self.options.threads:
            found["threads"] = ",".join(map(str, self.threads[::-1]))
        others = host.watch_others()
        time.sleep(1)
        return {"kind": self.kind, "command": shlex.join(sys.argv), **found, "data": self.data,
                "others": f"{others():.1f}"}

    def open_record(self):
        """Locks the folder, and moves earlier results aside or checks that --resume can go on with
        them."""
        machine = ask(f"{ROOT}/bench/machine.sh", "--name")
        if self.options.quick:
            machine += "-quick"
        self.output = Path(self.options.output
                           or ROOT / "report/results" / machine / self.ladder.name)
        self.record = Record(self.output)
        # Two sweeps at once would measure each other.
        self.lock = self.record.lock()
        now = self.describe()
        mine = {sweep: known for sweep, known in self.record.sweeps.items()
                if known.get("kind", "grid") == self.kind}
        if mine and not self.options.resume:
            say(f"Earlier results moved to {self.record.move_aside(mine)}")
            mine = {}
        self.count_earlier(mine, now)
        self.sweep = self.record.begin(now)
        if why := host.why_busy(float(now["others"])):
            say(f"Busy, so times will say little: {why}")

    def count_earlier(self, sweeps, now):
        """Counts the runs of these sweeps."""
        path = self.output / "runs.csv"
        found = rows.records(rows.read_rows(path, self.ladder)) if path.exists() else []
        found = [row for row in found if row["sweep"] in sweeps]
        for row in found:
            self.count(row)
        if found:
            self.check_resume(now, sweeps)

    def check_resume(self, sweep, earlier):
        """Ends the program if earlier sweeps had other threads or data. The rows may not show it: a
        serial stage always has one thread."""
        for known, key in itertools.product(earlier.values(), ("threads", "data")):
            if known.get(key, sweep[key]) != sweep[key]:
                fail(f"--resume: {self.output} has runs with {key} '{known[key]}', not "
                     f"'{sweep[key]}': expected the same --{key}, or another --output")

    def note_programs(self):
        """Writes what became of each program to programs.csv, below what it was before."""
        run = {row["stage"] for row in self.rows if row["sweep"] == self.sweep}
        own = []
        for stage in self.stages:
            flags = Path(f"{stage.program}.flags")  # make has written what it compiled with
            own.append((stage.name, *self.notes.get(
                stage.name, ("ran" if stage.name in run else "not run", "")), stage.sources,
                flags.read_text(encoding="utf-8").strip() if flags.exists() else ""))
        self.record.note_programs(self.sweep, own)

    # --- what the rows so far show ---

    def count(self, row):
        """Counts a run, if it has one of the sweep's cells."""
        name, cell = row["stage"], self.key_of(row, self.ladder.column)
        if cell not in self.cells:
            return
        # A run may use fewer threads than --threads gives, and a GPU none.
        threads = min((number for number in self.threads if number >= (row["threads"] or 1)),
                      default=self.threads[0])
        self.rows.append(row)
        self.times[name, cell, threads][row["sweep"], row["round"]] = row[self.ladder.time]
        self.used[name, cell] = max(self.used.get((name, cell), 0), threads)

    def numbers(self, stage, cell):
        """The numbers of threads that a cell is run with. The largest is the first, and its run
        shows how many the stage can use there. So a stage of one thread is run once. --growth
        changes one option at a time: only its base has several."""
        used = self.used.get((stage.name, cell), self.threads[0])
        threads = [number for number in self.threads if number <= used]
        return threads if self.kind != "growth" or cell == next(iter(self.cells)) else threads[:1]

    def missing(self, stage, cell, threads):
        """The rounds that are still needed, as the times so far show."""
        if stage.name in self.notes:
            return 0
        times = [*self.times[stage.name, cell, threads].values()]
        kinds = ROUNDS["quick" if self.options.quick else self.kind]
        rounds = next(rounds for limit, rounds in kinds if (times or [0.001])[0] > limit)
        if kinds is ROUNDS["grid"] and times and rounds == kinds[-1][1]:
            timed = [max(seconds, self.ladder.settings.get("seconds", 0)) for seconds in times]
            enough = math.ceil(ENOUGH_S * len(timed) / sum(timed))  # if others take as long
            most = MOST_GPU_ROUNDS if stage.is_gpu else MOST_ROUNDS
            rounds = max(rounds, min(enough, most))
        return max(0, (self.options.repeats or rounds) - len(times))

    def left(self):
        """How many runs are still needed, as far as it is known."""
        return sum(self.missing(stage, cell, threads) for stage in self.stages
                   for cell in self.cells for threads in self.numbers(stage, cell))

    # --- the runs ---

    def build(self):
        host.ceiling()
        has_gpu = host.has_gpu()
        for stage in self.stages:
            if stage.is_cuda and not has_gpu:  # nvcc takes ten seconds for each of its stages
                self.notes[stage.name] = "no device", "found no GPU (nvidia-smi lists none)"
                continue
            say(f"Building {stage.name}", is_progress=True)
            status, log, _ = running.run(stage.build, keep="both", cwd=ROOT)
            left_out = re.search(rf"\b{re.escape(stage.name)}: left out, (.*)", log)
            if status:
                say(log)
                self.failed = max(self.failed, 1)
                # The first line that says what is wrong: the others follow from it.
                why = re.search(r".*(error:|undefined reference|cannot find|No such file).*|.*$",
                                log)
                self.notes[stage.name] = "not built", why[0].replace(f"{ROOT}/", "")
            elif left_out:
                self.notes[stage.name] = "left out", left_out[1]

    def start(self, stage, options, threads, number):
        """Runs a stage once, and adds its row to the record. `number` is the round."""
        # Of several processes, each would have as many as the variable says.
        is_told = threads and stage.declared("RUN")
        words = self.ladder.words(options | {"threads": threads} if is_told else options)
        environment = stage.environment | ({"OMP_NUM_THREADS": str(threads)} if threads else {})
        # The program inherits the lock: if the sweep is killed, it holds until that ends.
        found = measuring.measure(stage, words, environment, self.has_epochs, pass_fds=[self.lock])
        if found.row:
            found.row.update({"sweep": self.sweep, "round": number})
            self.record.add_run(found.texts, found.row)
        return found

    def run_stage(self, stage, cell, threads, number):
        """A run of a round. It is made again if it was disturbed, and never for its own time."""
        where = [f"{option} {self.cells[cell][option]}" for option in self.shown]
        if len(self.threads) > 1:
            where.append(f"threads {threads}")
        words = ", ".join([stage.name, *where, f"round {number}"])
        for again in range(1 + AGAIN):
            say(f"{words}; {self.left()} to go", is_progress=True)
            row, status, errors, _ = self.start(stage, self.cells[cell], threads, number)
            reason = running.reason(errors, stage.name)
            if errors and reason not in self.said:
                say(errors)
                self.said.add(reason)
            if row:
                self.count(row)
            if not row or (threads in self.numbers(stage, cell) and (self.sweep, number)
                           not in self.times[stage.name, cell, threads]):
                self.note_failure(stage, ", ".join(where), status, reason)
                return
            self.made, self.again = self.made + 1, self.again + bool(again)
            if (self.options.quick or not rows.is_disturbed(row, rows.best_rates(self.rows))
                    or self.again >= AGAIN + AGAIN_PART * self.made):
                return
            words = ", ".join([stage.name, *where, f"round {number}", "disturbed, so again"])
            time.sleep(PAUSE_S)

    def note_failure(self, stage, where, status, reason):
        """Notes why a run has no row (status 0: has another one than it should)."""
        if status == 77:
            # What to try instead is for the one who waits, not for the tables.
            self.notes[stage.name] = ("no device" if stage.is_gpu or not stage.is_peer
                                      else "left out", reason.partition("; try ")[0])
            return
        how = {0: "its row has other options or threads", None: ""}.get(
            status, f"exit status {status}")
        self.notes[stage.name] = "failed", ": ".join(
            filter(None, [where and f"at {where}", how, reason]))
        self.failed = max(self.failed, 2 if status == 2 else 1)

    def run_all(self):
        """Runs what is missing, in rounds: each runs all cells, and all programs of a cell one
        after another. So a minute in which the machine is busy spoils one run of three, and the
        median drops it. After one round, the tables are complete."""
        for number in itertools.count(1):
            is_done = True
            for cell, stage, threads in itertools.product(self.cells, self.stages, self.threads):
                if threads in self.numbers(stage, cell) and self.missing(stage, cell, threads):
                    is_done = False
                    if len(self.times[stage.name, cell, threads]) < number:
                        self.run_stage(stage, cell, threads, number)
            if is_done:
                return

    def finish(self):
        """Writes what became of the programs."""
        # The runs of --growth have settings of their own, so they compute different things.
        strays = {} if self.options.growth else faults.strays(self.rows, self.ladder)
        for (name, place), words in strays.items():
            where = ", ".join(f"{option} {value}" for option, value in zip(self.shown, place[::-1]))
            self.notes.setdefault(name, ("differs", ": ".join(filter(None, [where, words]))))
            self.failed = max(self.failed, 1)
        self.note_programs()
        say(f"Written to {self.output}")

    def run(self):
        if self.ladder.toml["data"]:
            self.find_data()
        if self.options.peers:
            self.stages += self.ladder.peers  # from here on they are stages
        if self.options.gpu:
            self.stages = [stage for stage in self.stages if stage.is_gpu]
        self.open_record()
        if self.ladder.data:
            say(f"Data: {self.ladder.data[1]} ({self.dataset})")
        self.build()
        self.note_programs()
        self.run_all()
        self.finish()


def main(arguments):
    """Makes a sweep. Returns (exit status, [(folder of results, ladder)]), also after an
    interrupt, or [] if there are no results."""
    sys.argv = ["./run_all.sh", *arguments]
    options, ladder = command_line.parse(arguments)
    os.environ["LC_ALL"] = "C"  # a decimal point, not a comma
    sweep = Sweep(ladder, options)
    try:
        sweep.run()
        status = sweep.failed
    except (SystemExit, KeyboardInterrupt) as error:
        ends = signal.SIGHUP, signal.SIGINT, signal.SIGTERM
        status = getattr(error, "code", 130)
        if status not in [128 + number for number in ends]:
            raise
        for number in ends:
            signal.signal(number, signal.SIG_IGN)
        if sweep.sweep:
            with contextlib.suppress(SystemExit):
                sweep.finish()
            resume = [] if options.resume else ["--resume"]
            say(f"Interrupted; to go on: {shlex.join([*sys.argv, *resume])}")
    return status, [(sweep.output, ladder)] if sweep.sweep else []
