"""Runs the stages of a ladder over its grid. run_all.sh starts it by report/run_all.py, which has
the tables.

A program writes its row to a file of its own. This file appends it to runs.csv, with what it knows
of the run (RECORD in rows.py), in one write. Only runs.csv records what has been done, so --resume
leaves out the runs that it holds. A sweep's kind is grid, steps or growth, and it counts only rows
of its kind. If a ladder's epochs have rows too, a stage appends them to epochs.csv in a sweep of
the grid. Those of a run without its own row are removed.
"""

import argparse
import contextlib
import csv
import fcntl
import gzip
import io
import itertools
import math
import os
import re
import shlex
import shutil
import signal
import sys
import time
import zlib
from collections import defaultdict
from pathlib import Path

from harness import ladders, rows, running
from harness.ladders import ROOT, fail

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

# --growth leaves out what comes after a point that takes longer: the textbook at 4,096 hidden units
# takes minutes and shows nothing new.
GROWTH_LIMIT_S = 5.0

# Each library has to choose its kernels itself. A variable left in the environment can halve a
# peer's speed or its precision, and sweeps.csv does not show it.
PEER_VARIABLES = re.compile(
    "(BLIS_|CUBLAS_|DNNL_|JAX_|KMP_|LIBXSMM_|MKL_|NPY_|NUMBA_|ONEDNN_|OPENBLAS_|TORCH).*|"
    "ATEN_CPU_CAPABILITY|CUDA_LAUNCH_BLOCKING|NVIDIA_TF32_OVERRIDE|XLA_FLAGS")

# What keeps each library to AVX2. So MARCH=x86-64-v3 stands for a machine without AVX-512.
AVX2_VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2", "LIBXSMM_TARGET": "hsw", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "NUMBA_CPU_NAME": "haswell", "ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}

# nohup has one of them ignored.
SIGNALS = [number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
           if signal.getsignal(number) != signal.SIG_IGN]
FILES = "runs.csv", "epochs.csv", "sweeps.csv", "programs.csv"


def ask(*command, **options):
    """What a command prints. If it fails, it has said why."""
    status, text, _ = running.run(command, keep="stdout", **options)
    if status:
        sys.exit(max(status, 1))
    return text


def csv_lines(*lines):
    """Lines of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def say(text, is_progress=False):
    """Says something in a line. On a terminal, progress is a line that the next one replaces."""
    is_terminal = sys.stderr.isatty()
    if is_progress and is_terminal:
        text = text[:shutil.get_terminal_size().columns - 1]
    with contextlib.suppress(OSError):  # the terminal is gone, but the sweep goes on
        print(("\r\033[K" if is_terminal else "") + text, file=sys.stderr, flush=True,
              end="" if is_progress and is_terminal else "\n")


def build_failure(log):
    """The line of make's output that says why it failed: the compiler's first error, or what the
    linker missed. What make and the compiler say last only follows from it."""
    why = re.compile(r"\b(error|fatal) *: (?!ld returned|linker)|undefined reference|find -l")
    lines = [line for line in log.splitlines() if not re.match(r"make.*\] Error", line)] or [""]
    return next(filter(why.search, lines), lines[-1]).replace(f"{ROOT}/", "")


def checksum(folder):
    """The CRC-32 of the labels in a folder of data. Two sets of the same name, such as MNIST and
    Fashion-MNIST, differ in it."""
    found = 0
    for path in sorted(folder.iterdir()):
        if re.search(r"labels|\.csv", path.name) and path.is_file():
            with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
                found = zlib.crc32(file.read(), found)
    return found


class Sweep:
    """The sweep of one ladder. A cell is {option: value}, and its key is what tells it from others:
    see key_of()."""

    def __init__(self, ladder, options):
        self.ladder, self.options, toml = ladder, options, ladder.toml
        given = {name: value for name, value in vars(options).items() if value is not None}
        self.kind = "growth" if options.growth else "steps" if options.steps else "grid"
        chosen = [stage for wanted in options.stages or ()
                  for stage in ladder.select(wanted, "--stages")]
        self.stages = [stage for stage in ladder.stages if stage in chosen or
                       (not options.stages and (options.steps or not stage.is_step))]
        quick = toml["quick"] if options.quick else {}
        rungs = toml["rungs"] if options.steps else {}
        settings = {option: given.get(option, quick.get(option, rungs.get(option, value)))
                    for option, value in ladder.settings.items()}
        axes, self.threads = [axis["option"] for axis in ladder.axes], options.threads or [0]
        self.shown = axes[::-1]  # the options that tell people which cell it is
        # The stages of a cell run one after another, because they are compared with each other.
        grid = [*itertools.product(*(
            given.get(axis["option"]) or axis.get("quick" if options.quick else "values")
            or axis["values"] for axis in ladder.axes))]
        if options.steps and not given.keys() & axes:
            grid = rungs.get("cells") or [grid[0], grid[-1]]
        cells = [{**settings, **dict(zip(axes, values))} for values in grid]
        self.before = {}       # {a cell of --growth: the one with the next smaller value}
        if options.growth:
            base, count = settings | toml["growth"]["base"], ladders.processors()
            self.shown, cells = [*toml["growth"]["values"]], [base]
            for option, values in toml["growth"]["values"].items():
                line = [{**base, option: value} for value in values]
                self.before |= zip(map(self.key_of, line[1:]), map(self.key_of, line))
                cells += line
            self.threads = options.threads or [count, *(2**n for n in range(count.bit_length()))]
        self.cells = {self.key_of(cell): cell for cell in cells}
        # The numbers of threads, the largest first. 0 is as many as OpenMP chooses.
        self.threads = sorted({*self.threads}, reverse=True)
        self.dataset, self.data, self.lock, self.sweep = "drawn", "", None, 0
        self.times = defaultdict(dict)  # {(stage's name, cell, threads): {(sweep, round): seconds}}
        self.rows = []         # those that count
        self.used = {}         # {(stage's name, cell): most threads}
        self.most = {}         # {stage's name: the rounds of a cell at most}
        self.last = {}         # {stage's name: the seconds of its last run}
        self.took = {}         # {(stage's name, threads): the threads that it used then}
        self.said, self.failed = set(), 0  # the exit status
        self.notes = {}        # {stage's name: (outcome, reason) why it is left out, or its rest}
        self.best = {}         # {threads: the best rate of multiply-adds so far}
        self.made = self.again = 0  # runs of this sweep, and those that were made again

    def key_of(self, row, name_of=str):
        """What tells the cell of a row, or a cell, from others. A program may have rounded it."""
        values = [row[name_of(option)] for option in (
            *(axis["option"] for axis in self.ladder.axes), *self.ladder.settings)]
        return tuple(float(f"{value:.6g}") if isinstance(value, float) else value
                     for value in values)

    # --- the folder of the results ---

    def find_data(self):
        is_given = self.options.data and (
            not self.options.all or self.ladder.data_set == ladders.ladders()[0].data_set)
        located = ask(*self.ladder.locate(self.options.data if is_given else ""))
        self.ladder.data = ["--data", located]
        self.dataset = self.ladder.data_module.kind({*os.listdir(located)})
        self.data = f"{self.dataset}, labels {checksum(Path(located)):08x}"

    def open_folder(self):
        """Finds the folder of the results and locks it: two sweeps at once would measure each
        other."""
        machine = ask(f"{ROOT}/harness/machine.sh", "--name") + "-quick" * self.options.quick
        self.output = Path(self.options.output or ROOT / "report/results" / machine,
                           self.ladder.name * (self.options.all or not self.options.output))
        self.runs, self.epochs = self.output / "runs.csv", self.output / "epochs.csv"
        self.has_epochs = bool(self.ladder.epochs) and self.kind == "grid"
        try:
            self.output.mkdir(parents=True, exist_ok=True)
            self.lock = os.open(self.output, os.O_RDONLY)
            for path in (self.runs, self.epochs)[:1 + self.has_epochs]:
                path.open("a").close()
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fail(f"{self.output}: another run_all.sh is writing there")
        except OSError:
            fail(f"{self.output}: cannot write there; name another directory with --output")

    def describe(self):
        """{key: value} of this sweep. Notes {program: the flags of its compiler}."""
        environment = {name: value for stage in self.ladder.stages
                       for name, value in stage.environment.items()}
        lines = ask(f"{ROOT}/harness/machine.sh", self.ladder.name, env=environment).splitlines()
        for folder in {stage.folder for stage in self.stages if stage.is_peer}:
            lines += ask("make", "--silent", "--no-print-directory", "-C", str(folder),
                         "versions").splitlines()
        found = dict(line.split(": ", 1) for line in lines)
        self.flags = {key.removeprefix("flags of "): found.pop(key)
                      for key in [*found] if key.startswith("flags of ")}
        if self.options.threads:
            found["threads"] = ",".join(map(str, self.threads[::-1]))
        others = running.watch_others()
        time.sleep(1)
        return {"kind": self.kind, "command": shlex.join(sys.argv), **found, "data": self.data,
                "others": f"{others():.1f}"}

    def move_aside(self, mine):
        """Copies earlier results to a folder, and takes the rows of these sweeps out."""
        date = time.strftime("%F_%H%M%S", time.localtime(self.runs.stat().st_mtime))
        names = (f"{date}-{number}" if number > 1 else date for number in itertools.count(1))
        aside = next(self.output / name for name in names if not (self.output / name).exists())
        aside.mkdir()
        for path in filter(Path.exists, (self.output / name for name in FILES)):
            shutil.copy2(path, aside)
            frame = rows.read_texts(path, [])
            if "sweep" in frame:
                frame = frame[~frame["sweep"].isin({*map(str, mine)})]
            elif self.has_epochs:  # they are of the grid
                frame = frame[:0]
            rows.write(path, frame.to_csv(index=False) if len(frame) else "")
        say(f"Earlier results moved to {aside}")

    def open_results(self):
        """Moves earlier results aside, or checks that --resume can go on with them."""
        sweep, sweeps = self.describe(), rows.read_sweeps(self.output)
        mine = {number: known for number, known in sweeps.items()
                if known.get("kind", "grid") == self.kind}
        for file in (self.runs, self.epochs)[:1 + self.has_epochs]:
            if not rows.read(file).endswith("\n") and file.stat().st_size:
                fail(f"{file}: line {len(rows.read(file).splitlines())}: ends within a row; delete "
                     "that row to resume")
        if mine and not self.options.resume:
            self.move_aside(mine)
            mine = {}
        found = [row for row in rows.records(rows.read_rows(self.runs, self.ladder))
                 if row["sweep"] in mine]
        for row in found:
            self.count(row)
        for known in mine.values() if found else ():
            # The rows may not show --threads: a serial stage always has one thread.
            if known.get("threads", sweep["threads"]) != sweep["threads"]:
                fail(f"--resume: {self.output} was not made with {sweep['threads']} threads: "
                     "expected the same --threads, or another --output")
            if (known.get("data", "").startswith(f"{self.dataset},")
                    and known["data"] != self.data):
                fail(f"--resume: {self.output} has runs on other files of '{self.dataset}': "
                     "expected the same --data, or another --output")
        self.sweep, self.programs = max(sweeps, default=0) + 1, rows.read_programs(self.output)
        self.note_sweep(sweep)
        why = running.why_no_verdict(float(sweep["others"]))
        if why:
            say(f"Busy, so times will say little: {why}")

    def note_sweep(self, found):
        """Adds lines to sweeps.csv."""
        path = self.output / "sweeps.csv"
        old = path.exists() and rows.read(path) or csv_lines(rows.SWEEPS)
        rows.write(path, old + csv_lines(*((self.sweep, *item) for item in found.items())))

    def note_programs(self):
        """Writes what became of each program to programs.csv, below what it was before."""
        run = {row["stage"] for row in self.rows if row["sweep"] == self.sweep}
        own = [(self.sweep, stage.name, *self.notes.get(
                    stage.name, ("ran" if stage.name in run else "not run", "")),
                stage.sources, self.flags.get(stage.name, "")) for stage in self.stages]
        rows.write(self.output / "programs.csv", csv_lines(
            rows.PROGRAMS, *(row.values() for row in self.programs), *own))

    def note_gpu(self, when):
        """Adds the GPU's clocks, power limit and temperature to sweeps.csv: idle, it is not what it
        is after an hour of work. Without a GPU there is no line."""
        state = ask(f"{ROOT}/harness/machine.sh", "--gpu")
        if state:
            self.note_sweep({f"gpu {when}": state})

    # --- what the rows so far show ---

    def count(self, row):
        """Counts a run, if it has the sweep's data and one of its cells."""
        name, cell = row["stage"], self.key_of(row, self.ladder.column)
        if row["dataset"] != self.dataset or cell not in self.cells:
            return
        # A run may use fewer threads than --threads gives, and a GPU none.
        threads = min((number for number in self.threads if number >= (row["threads"] or 1)),
                      default=self.threads[0])
        self.rows.append(row)
        self.took[name, threads] = row["threads"]
        self.times[name, cell, threads][row["sweep"], row["round"]] = row[self.ladder.time]
        self.used[name, cell] = max(self.used.get((name, cell), 0), threads)
        self.last[name] = row.get("program_s") or row[self.ladder.time]
        self.most[name] = MOST_ROUNDS if row["device"] == "cpu" else MOST_GPU_ROUNDS
        self.best = rows.best_rates([row, *(
            {"threads": count, "rate": rate} for count, rate in self.best.items())])

    def numbers(self, stage, cell):
        """The numbers of threads that a cell is run with. The largest is the first, and its run
        shows how many the stage can use there. So a stage of one thread is run once. --growth
        changes one option at a time: only its base has several."""
        used = self.used.get((stage.name, cell), self.threads[0])
        threads = [number for number in self.threads if number <= used]
        return threads if self.kind != "growth" or cell == next(iter(self.cells)) else threads[:1]

    def is_beyond(self, stage, cell):
        """Whether --growth leaves out a cell."""
        before = self.before.get(cell)
        times = [seconds for threads in self.threads
                 for seconds in self.times[stage.name, before, threads].values()]
        return before is not None and (
            min(times, default=0) > GROWTH_LIMIT_S or self.is_beyond(stage, before))

    def planned(self, name, times):
        """The rounds that a cell needs, as the times so far show."""
        kind = "quick" if self.options.quick else self.kind
        if self.options.repeats or not times:
            return self.options.repeats or ROUNDS[kind][-1][1]
        rounds = next((rounds for limit, rounds in ROUNDS[kind] if times[0] > limit))
        if kind == "grid" and rounds == ROUNDS[kind][-1][1]:
            timed = [max(seconds, self.ladder.settings.get("seconds", 0)) for seconds in times]
            enough = math.ceil(ENOUGH_S * len(timed) / sum(timed))  # if others take as long
            rounds = max(rounds, min(enough, self.most[name]))
        return rounds

    def missing(self, stage, cell, threads):
        """The rounds that are still needed."""
        if stage.name in self.notes or self.is_beyond(stage, cell):
            return 0
        times = [*self.times[stage.name, cell, threads].values()]
        return max(0, self.planned(stage.name, times) - len(times))

    def left(self):
        """What is still needed, in words. Until all stages have run, the time is not known."""
        runs, seconds = 0, 0.0
        for stage, cell in itertools.product(self.stages, self.cells):
            missing = sum(self.missing(stage, cell, threads)
                          for threads in self.numbers(stage, cell))
            runs += missing
            seconds += missing and missing * self.last.get(stage.name, math.nan)
        return f"{runs} to go" + ("" if math.isnan(seconds) else f", about {seconds:.0f} s"
                                  if seconds < 100 else f", about {seconds / 60:.0f} min")

    # --- the runs ---

    def build(self):
        running.ceiling()
        has_gpu = ladders.has_gpu()
        for number, stage in enumerate(self.stages):
            if stage.is_cuda and not has_gpu:  # nvcc takes ten seconds for each of its stages
                self.notes[stage.name] = "no device", "found no GPU (nvidia-smi lists none)"
                continue
            say(f"Building {stage.name}; {len(self.stages) - number} to go", is_progress=True)
            status, log, _ = running.run(stage.build, keep="both", cwd=ROOT)
            left_out = re.search(rf"\b{re.escape(stage.name)}: left out, (.*)", log)
            if status:
                say(log)
                self.failed = max(self.failed, 1)
                self.notes[stage.name] = "not built", build_failure(log)
            elif left_out:
                self.notes[stage.name] = "left out", left_out[1]

    def start(self, stage, options, threads, number):
        """(row, status, errors): runs a stage once, and appends its row to runs.csv. `number` is
        the round. Without a row, the last line of the errors says why."""
        words = self.ladder.words(options)
        environment = stage.environment | ({"OMP_NUM_THREADS": str(threads)} if threads else {})
        size, row = self.epochs.stat().st_size if self.has_epochs else 0, None
        used = 0 if stage.is_gpu else self.took.get(
            (stage.name, threads), threads or ladders.processors())
        if self.has_epochs:
            words += [f"--{self.ladder.epochs}", str(self.epochs)]
        try:
            # The program inherits the lock: if the sweep is killed, it holds until that ends.
            row, status, errors, text = running.measure(stage, words, used, environment,
                                                        pass_fds=[self.lock])
            if row:
                row |= {"sweep": self.sweep, "round": number}
                if used and row["threads"] and row["threads"] != used:  # only now it is known
                    row["rate"] = round(running.rate(row["threads"]), 1)
                self.append(text, row)
            return row, status, errors
        finally:
            if self.has_epochs and not row:  # its epochs are none of a whole run
                os.truncate(self.epochs, size)

    def append(self, text, row):
        """Appends a program's row, as it wrote it, and the record to runs.csv, in one write."""
        head, *_, fields = csv.reader(io.StringIO(text, newline=""))
        lines = [[*head, *rows.RECORD], [*fields, *(row[name] for name in rows.RECORD)]]
        known = rows.read(self.runs).partition("\n")[0]
        if known and known != csv_lines(lines[0]).rstrip("\n"):
            fail(f"{self.runs}: line 1: found other columns than {row['stage']} has; name another "
                 "directory with --output")
        size = self.runs.stat().st_size
        try:
            with self.runs.open("a", encoding="utf-8") as file:
                file.write(csv_lines(*lines[bool(known):]))
        except OSError:  # a full disk: no part of a row stays
            os.truncate(self.runs, size)
            raise

    def run_stage(self, stage, cell, threads, number):
        """A run of a round. It is made again if it was disturbed, and never for its own time."""
        where = self.where(cell) + [f"threads {threads}"] * (len(self.threads) > 1)
        for again in range(1 + AGAIN):
            words = [stage.name, *where, f"round {number}", *["disturbed, so again"] * bool(again)]
            say(f"{', '.join(words)}; {self.left()}", is_progress=True)
            row, status, errors = self.start(stage, self.cells[cell], threads, number)
            reason = errors.rpartition("\n")[2].removeprefix(f"{stage.name}: ")
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
            if (self.options.quick or not rows.is_disturbed(row, self.best)
                    or self.again >= AGAIN + AGAIN_PART * self.made):
                return
            time.sleep(PAUSE_S)

    def note_failure(self, stage, where, status, reason):
        """Notes why a run has no row (status 0: has another one than it should)."""
        if status == 77:
            # What to try instead is for the one who waits, not for the tables.
            self.notes[stage.name] = ("no device" if stage.is_gpu or not stage.is_peer
                                      else "left out", reason.partition("; try ")[0])
            return
        words = [f"at {where}"] * bool(where)
        if status is not None:
            words.append("its row has other options or threads" if status == 0 else
                         f"killed by signal {-status}" if status < 0 else f"exit status {status}")
        self.notes[stage.name] = "failed", ": ".join([*words, *[reason] * bool(reason)])
        self.failed = max(self.failed, 2 if status == 2 else 1)

    def where(self, cell):
        """A cell in words: ["hidden 32", "batch 64"]."""
        return [f"{option} {self.cells[cell][option]}" for option in self.shown]

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
        strays = {} if self.options.growth else running.strays(self.rows, self.ladder)
        for (name, place), words in strays.items():
            where = [f"{option} {value}" for option, value in zip(self.shown, reversed(place))]
            self.notes.setdefault(name, ("differs", ": ".join([", ".join(where)] * bool(where)
                                                              + [words])))
            self.failed = max(self.failed, 1)
        self.note_gpu("after")
        self.note_programs()
        names = ", ".join(name for name in FILES if (self.output / name).exists())
        say(f"Written to {self.output}: {names}")

    def run(self):
        if self.ladder.toml["data"]:
            self.find_data()
        self.open_folder()
        if self.options.peers:
            for name in filter(PEER_VARIABLES.fullmatch, [*os.environ]):
                del os.environ[name]
            if os.environ.get("MARCH") == "x86-64-v3":
                os.environ.update(AVX2_VARIABLES)
            self.stages += self.ladder.peers  # from here on they are stages
        if self.options.gpu:
            self.stages = [stage for stage in self.stages if stage.is_gpu]
        self.open_results()
        if self.ladder.data:
            say(f"Data: {self.ladder.data[1]} ({self.dataset})")
        self.build()
        self.note_programs()
        self.note_gpu("before")
        self.run_all()
        self.finish()


class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(message.removeprefix("argument "))


def value_of(kind, least=None, is_list=False):
    """Returns what turns an option's text into a value, or into a list of values."""
    def convert(text):
        try:
            values = [ladders.number(part, kind, least)
                      for part in (text.split(",") if is_list else [text])]
        except ValueError as expected:
            more = ", or several, such as 8,16" if is_list and kind is not str else ""
            raise argparse.ArgumentTypeError(f"found '{text}', expected {expected}{more}") from None
        return values if is_list else values[0]
    return convert


def parse(arguments):
    """(options, ladders). A ladder's axes and settings are options too."""
    parser = Parser(prog="run_all.sh", allow_abbrev=False, add_help=False)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--study", metavar="NAME", help="a ladder in studies/ (the one in stages/)")
    which.add_argument("--all", action="store_true", help="all ladders, one after another")
    chosen, _ = parser.parse_known_args(arguments)
    found = ladders.ladders() if chosen.all else [ladders.find_ladder(chosen.study, "--study")]

    parser = Parser(
        prog="run_all.sh", usage="./run_all.sh [option ...]", allow_abbrev=False, parents=[parser],
        formatter_class=argparse.RawDescriptionHelpFormatter, description="""\
Builds the stages of a ladder, runs them over its grid and prints the tables. Writes
report/results/<machine>/<ladder>/{runs,sweeps,programs}.csv and tables.txt.""", epilog="""\
Ctrl-C keeps every finished run, and --resume goes on from there.
Exit status: 0; 1 a stage failed; 2 wrong options or data; 130 or 143 interrupted.""")

    def add(option, text, **keywords):
        parser.add_argument(f"--{option}", dest=option, help=text,
                            **keywords or {"action": "store_true"})

    add("stages", "names of stages, or how they begin: 00,02 (all but the steps)", metavar="LIST",
        type=value_of(str, is_list=True))
    measured = parser.add_mutually_exclusive_group()
    measured.add_argument("--steps", action="store_true", help="measure instead all stages and "
                          "steps, such as 01.1_name, in two cells and 16 rounds")
    measured.add_argument("--growth", action="store_true",
                          help="measure instead how the cost grows with each option")
    add("peers", "also run what you might use instead of the stages")
    add("gpu", "only what needs a GPU")
    ladder, kinds = found[0], rows.parameters(found[0])
    for axis in [] if chosen.all else ladder.axes:
        kind = kinds[ladder.column(axis["option"])]
        add(axis["option"], f"{axis['name']} ({','.join(map(str, axis['values']))})",
            metavar="LIST", type=value_of(*kind, is_list=True))
    for option, value in {} if chosen.all else ladder.settings.items():
        if isinstance(value, bool):
            add(option, f"({'on' if value else 'off'})", action="store_true", default=None)
        else:
            add(option, f"({value})", metavar="N", type=value_of(*kinds[ladder.column(option)]))
    add("repeats", "exactly N rounds in each cell (3 to 12, on a GPU to 250; 2 over 5 s, 1 over "
        "20 s; with --steps 16, or 8 over 1 s)", metavar="N", type=value_of(int, 1))
    add("threads", "for stages that can use several (all); tables have the most, a plot has each",
        metavar="LIST", type=value_of(int, 1, is_list=True))
    add("quick", "a look in under a minute, at a part of the grid; a run over 0.5 s is not "
        "repeated; results go to report/results/<machine>-quick")
    add("data", "MNIST, or a study's own data ($MNIST_DIR, data/mnist, a download, or else a "
        "synthetic set)", metavar="DIR", type=os.path.abspath)
    add("output", "where the results go, instead of report/results/<machine>/<ladder>",
        metavar="DIR", type=os.path.abspath)
    add("resume", "keep earlier runs and do the missing ones; without it, earlier results of the "
        "same kind move to a folder beside the new ones, named after their date")
    options, unknown = parser.parse_known_args(arguments)
    if options.growth and not all(ladder.toml["growth"] for ladder in found):
        fail(f"--growth: found no [growth] in {found[0].name}/ladder.toml")
    if unknown:
        fail(f"unknown option '{unknown[0]}'; see ./run_all.sh --help")
    return options, found


def main(arguments):
    """Makes sweeps. Returns (exit status, [(folder of results, ladder)]), also after an
    interrupt."""
    sys.argv = ["./run_all.sh", *arguments]
    for number in SIGNALS:
        signal.signal(number, running.leave)
    sweeps = []
    try:
        options, found = parse(arguments)
        os.environ["LC_ALL"] = "C"  # a decimal point, not a comma
        if options.threads:
            os.environ.pop("OMP_NUM_THREADS", None)  # each run has its own
        for sweep in [Sweep(ladder, options) for ladder in found]:
            sweeps.append(sweep)
            sweep.run()
        status = max(sweep.failed for sweep in sweeps)
    except SystemExit as error:
        status = error.code
        if status not in [128 + number for number in SIGNALS]:
            raise
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        if sweeps and sweeps[-1].sweep:
            with contextlib.suppress(SystemExit):
                sweeps[-1].finish()
            resume = [] if options.resume else ["--resume"]
            say(f"Interrupted; to go on: {shlex.join([*sys.argv, *resume])}")
    except OSError as error:
        # A write that fails, such as on a full disk, does not say which file it is.
        place = error.filename or getattr(sweeps[-1] if sweeps else None, "output", ROOT)
        fail(f"{place}: {error.strerror}", 1)
    return status, [(sweep.output, sweep.ladder) for sweep in sweeps if sweep.sweep]
