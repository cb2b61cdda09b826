"""Runs the stages of a ladder over its grid. run_all.sh starts it by report/run_all.py, which has
the tables, and gives its own name as the first argument.

A program writes its row to a file of its own. This file appends it to runs.csv, with what it knows
of the run (RECORD in rows.py), in one write. Only runs.csv records what has been done, so --resume
leaves out the runs that it holds. If a ladder's epochs have rows too, a stage appends them to
epochs.csv, where those of a run without its own row are removed.
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
import signal
import sys
import time
import zlib
from collections import defaultdict
from pathlib import Path

from harness import ladders, rows, running
from harness.ladders import ROOT

# A cell has REPEATS rounds, and more until ENOUGH_S seconds have been timed in it, but MOST_REPEATS
# at most. A GPU may take 5 ms for a run and begins with slow clocks, so there the limit is higher.
# A longer run has less noise and costs more: over 20 s, one is enough. A program with an option
# --seconds repeats its work for so long, and its time is that of one repeat.
REPEATS, MOST_REPEATS, MOST_GPU_REPEATS, ENOUGH_S = 3, 12, 250, 1.0
LONG_RUNS = (20.0, 1), (5.0, 2)
LONG_QUICK_RUNS = ((0.5, 1),)
# --steps has more rounds, so that small differences show: STEP_ROUNDS, or LONG_STEP_ROUNDS where a
# run takes more than STEP_LONG_S.
STEP_ROUNDS, LONG_STEP_ROUNDS, STEP_LONG_S = 16, 8, 1.0
# A disturbed run (rows.is_disturbed) is made again AGAIN times at most, and so is a quarter of a
# sweep's runs. A burst of another machine's load lasts for several runs, so PAUSE_S lies between.
AGAIN, AGAIN_PART, PAUSE_S = 2, 0.25, 1.0

# --growth leaves out a point that should take longer, and those beyond it: the textbook at 4,096
# hidden units takes minutes and shows nothing new.
GROWTH_LIMIT_S = 20.0

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

# What a sweep writes to the folder of its results.
FILES = "runs.csv", "epochs.csv", "sweeps.csv", "programs.csv", "tables.txt"


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


class Screen:
    """Says what runs: with a bar on a terminal, if python3-rich is there, or line by line."""

    def __init__(self):
        self.bar = None
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            with contextlib.suppress(ImportError):
                from rich import console, progress
                # auto_refresh would draw in another thread while a stage is timed.
                self.bar = progress.Progress(
                    progress.TextColumn("{task.description}", markup=False),
                    progress.BarColumn(None),
                    progress.TextColumn("{task.fields[left]}", markup=False), expand=True,
                    console=console.Console(stderr=True), auto_refresh=False, transient=True)
                self.task = self.bar.add_task("", left="")

    def say(self, text):
        with contextlib.suppress(OSError):  # the terminal is gone, but the sweep goes on
            if self.bar:
                self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
            else:
                print(text, file=sys.stderr, flush=True)

    def show(self, what, left="", part=math.nan):
        """What runs now, what is left, and which part is done, if it is known."""
        if self.bar:
            self.bar.start()
            self.bar.update(self.task, description=what, left=left, completed=part,
                            total=None if math.isnan(part) else 1)
            self.bar.refresh()
        else:
            self.say("; ".join(filter(None, (what, left))))

    def stop(self):
        if self.bar:
            with contextlib.suppress(OSError):
                self.bar.stop()


def build_failure(log):
    """The line of make's output that says why it failed: the compiler's first error, or what the
    linker missed. "ld returned 1 exit status" and "Error 1" only follow from it."""
    follows = re.compile(r"collect2: error|.*error: linker command|make.*\] Error [0-9]+$")
    why = re.compile(r"\b(error|fatal) *:|undefined reference|cannot find -l")
    lines = [line for line in log.splitlines() if not follows.match(line)] or log.splitlines()
    return next(filter(why.search, lines), lines[-1] if lines else "").replace(f"{ROOT}/", "")


def checksum(folder):
    """The CRC-32 of the labels in a folder of data, gzipped or not. Two sets of the same name, such
    as MNIST and Fashion-MNIST, differ in it."""
    found = 0
    for path in sorted(folder.iterdir()):
        if re.search(r"labels|\.csv", path.name) and path.is_file():
            opened = gzip.open if path.suffix == ".gz" else open
            # A damaged file is for the stages to complain about.
            with contextlib.suppress(OSError, EOFError, zlib.error), opened(path, "rb") as file:
                found = zlib.crc32(file.read(), found)
    return found


class Sweep:
    """The sweep of one ladder."""

    def __init__(self, ladder, options, screen, tables):
        self.ladder, self.options, self.screen, self.tables = ladder, options, screen, tables
        given = {name: value for name, value in vars(options).items() if value is not None}
        quick = ladder.toml["quick"] if options.quick else {}
        rungs = dict(ladder.toml["rungs"]) if options.steps else {}
        chosen = [stage for wanted in options.stages or ()
                  for stage in ladder.select(wanted, "--stages")]
        self.stages = [stage for stage in ladder.stages if stage in chosen or
                       (not options.stages and (options.steps or not stage.is_step))]
        # The stages of a cell run one after another, because they are compared with each other.
        grid = [given.get(axis["option"]) or axis.get("quick" if options.quick else "values")
                or axis["values"] for axis in ladder.axes]
        cells = [*itertools.product(*map(dict.fromkeys, grid))]
        if options.steps:
            chosen_cells = [*map(tuple, rungs.pop("cells", ()))] or [cells[0], cells[-1]]
            is_given = any(axis["option"] in given for axis in ladder.axes)
            cells = cells if is_given else [*dict.fromkeys(chosen_cells)]
        self.cells = cells
        self.settings = {option: given.get(option, quick.get(option, rungs.get(option, value)))
                         for option, value in ladder.settings.items()}
        # The numbers of threads, the largest first. 0 is as many as OpenMP chooses.
        self.threads = sorted({*(options.threads or [0])}, reverse=True)
        self.dataset, self.data, self.lock, self.sweep = "drawn", "", None, 0
        self.times = defaultdict(dict)  # {(stage's name, cell, threads): {(sweep, round): seconds}}
        self.rows = []         # those that count
        self.used = {}         # {stage's name, or (stage's name, cell): most threads}
        self.last = {}         # {stage's name: (its last cell, time)}
        self.overhead = {}     # {stage's name: what its last run took besides that time}
        self.most = {}         # {stage's name: the rounds of a cell at most}
        self.took = {}         # {(stage's name, cell, threads): the threads that it used then}
        self.said, self.failed = set(), 0  # the exit status
        self.notes = {}        # {stage's name: (outcome, reason) why it is left out, or its rest}
        self.best = {}         # {threads: the best rate of multiply-adds so far}
        self.made = self.again = 0  # runs of this sweep, and those that were made again

    # --- the folder of the results ---

    def find_data(self):
        is_given = self.options.data and (
            not self.options.all or self.ladder.data_set == ladders.ladders()[0].data_set)
        located = ask(*self.ladder.locate(self.options.data if is_given else ""))
        self.ladder.data = ["--data", located]
        files = set(os.listdir(located))
        self.dataset = self.ladder.data_module.kind(files)
        self.data = f"{self.dataset}, labels {checksum(Path(located)):08x}"

    def open_folder(self):
        """Finds the folder of the results and locks it: two sweeps at once would measure each
        other."""
        options, self.output = self.options, ROOT / "report/results"
        if options.output:
            self.output = Path(options.output, self.ladder.name if options.all else "")
        else:
            machine = ask("harness/machine.sh", "--name")
            self.output /= f"{machine}{'-quick' if options.quick else ''}/{self.ladder.name}"
        self.output /= "steps" if options.steps else "growth" if options.growth else ""
        self.runs, self.epochs = self.output / "runs.csv", self.output / "epochs.csv"
        self.files = [self.runs, *([self.epochs] if self.ladder.epochs else [])]
        try:
            self.output.mkdir(parents=True, exist_ok=True)
            self.lock = os.open(self.output, os.O_RDONLY)
            self.runs.open("a").close()
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            rows.fail(f"{self.output}: another run_all.sh is writing there")
        except OSError:
            rows.fail(f"{self.output}: cannot write there; name another directory with --output")

    def describe(self):
        """{key: value} of this sweep, and {program: the flags of its compiler}."""
        environment = {name: value for stage in self.ladder.stages
                       for name, value in stage.environment.items()}
        lines = ask("harness/machine.sh", self.ladder.name, env=environment).splitlines()
        for folder in {stage.folder for stage in self.stages if stage.is_peer}:
            lines += ask("make", "--silent", "--no-print-directory", "-C", str(folder),
                         "versions").splitlines()
        found = dict(line.split(": ", 1) for line in lines)
        flags = {key.removeprefix("flags of "): found.pop(key)
                 for key in [*found] if key.startswith("flags of ")}
        if self.options.threads:
            found["threads"] = ",".join(map(str, self.threads[::-1]))
        others = running.watch_others()
        time.sleep(1)
        return {"command": shlex.join(sys.argv), **found, "data": self.data,
                "others": f"{others():.1f}"}, flags

    def open_results(self):
        """Moves earlier results aside, or checks that --resume can go on with them."""
        sweep, self.flags = self.describe()
        written = [path for path in self.files if path.exists() and path.stat().st_size]
        if written and not self.options.resume:
            date = time.strftime("%F_%H%M%S", time.localtime(written[0].stat().st_mtime))
            names = (f"{date}-{number}" if number > 1 else date for number in itertools.count(1))
            aside = next(self.output / name for name in names if not (self.output / name).exists())
            aside.mkdir()
            for name in FILES:
                if (self.output / name).exists():
                    (self.output / name).rename(aside / name)
            self.screen.say(f"Earlier results moved to {aside}")
        for file in self.files:
            file.touch()
            text = rows.read(file)
            if text and not text.endswith("\n"):
                rows.fail(f"{file}: line {len(text.splitlines())}: ends within a row; delete that "
                          "row to resume")
        if self.ladder.epochs:
            axes = [self.ladder.column(axis["option"]) for axis in self.ladder.axes]
            rows.read_rows(self.epochs, self.ladder, [
                "stage", "device", "threads", "dataset", *rows.EPOCHS, *axes])
        found = rows.records(rows.read_rows(self.runs, self.ladder))
        earlier = rows.read_sweeps(self.output)
        for row in found:
            self.count(row)
        for known in earlier.values() if found else ():
            # The rows may not show --threads: a serial stage always has one thread.
            if known.get("threads", sweep["threads"]) != sweep["threads"]:
                rows.fail(f"--resume: {self.output} was not made with {sweep['threads']} threads: "
                          "expected the same --threads, or another --output")
            if (known.get("data", "").startswith(f"{self.dataset},")
                    and known["data"] != self.data):
                rows.fail(f"--resume: {self.output} has runs on other files of '{self.dataset}': "
                          "expected the same --data, or another --output")
        self.sweep = max(earlier, default=0) + 1
        self.programs = rows.read_programs(self.output)
        self.note_sweep(sweep)
        why = running.why_no_verdict(float(sweep["others"]))
        if why:
            self.screen.say(f"Busy, so times will say little: {why}")

    def note_sweep(self, found):
        """Adds lines to sweeps.csv."""
        path = self.output / "sweeps.csv"
        old = rows.read(path) if path.exists() else csv_lines(rows.SWEEPS)
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
        state = ask("harness/machine.sh", "--gpu")
        if state:
            self.note_sweep({f"gpu {when}": state})

    # --- what the rows so far show ---

    def count(self, row, wanted=0):
        """Counts a run, if it has the sweep's data and settings. Returns whether it has, and as
        many threads as wanted, or all that the stage has used in the cell so far."""
        if row["dataset"] != self.dataset or not all(  # a program may have rounded a number
                math.isclose(row[self.ladder.column(option)], value, rel_tol=1e-6)
                if isinstance(value, float) else row[self.ladder.column(option)] == value
                for option, value in self.settings.items()):
            return False
        name, cell, threads = row["stage"], rows.cell_of(row, self.ladder), self.given(
            row["threads"])
        seconds = row[self.ladder.time]
        self.rows.append(row)
        self.took[name, cell, threads] = row["threads"]
        self.times[name, cell, threads][row.get("sweep"), row.get("round") or len(self.rows)] = (
            seconds)
        for place in (name, (name, cell)):
            self.used[place] = max(self.used.get(place, 0), threads)
        for place in (name, (name, threads), (name, threads, cell[-1:])):
            self.last[place] = cell, seconds
        self.most[name] = MOST_REPEATS if row["device"] == "cpu" else MOST_GPU_REPEATS
        self.overhead[name] = sum(row.get(part) or 0
                                  for part in ("load_s", "setup_s", "warmup_s"))
        for count, rate in rows.best_rates([row]).items():
            self.best[count] = max(rate, self.best.get(count, 0))
        return threads == wanted or not wanted or self.used[name, cell] < wanted

    def given(self, used):
        """Which of --threads a run belongs to that has used so many. It may use fewer than given,
        and a stage of one thread or a GPU uses one or none."""
        return min((number for number in self.threads if number >= (used or 1)),
                   default=self.threads[0])

    def numbers(self, stage, cell):
        """The numbers of threads that a cell is run with. The largest is the first, and its run
        shows how many the stage can use there. So a stage of one thread is run once."""
        used = self.used.get((stage.name, cell), self.threads[0])
        return [number for number in self.threads if number <= used]

    def expected(self, stage, cell, threads):
        """The seconds that a run should take: what the stage's last run with so many threads and
        this value of the last axis took. If there was none, the last is scaled in proportion. NaN
        if no run was made."""
        last, seconds = next(filter(None, map(self.last.get, (
            (stage.name, threads, cell[-1:]), (stage.name, threads), stage.name))),
                             (cell, math.nan))
        if last[-1:] == cell[-1:] or isinstance(cell[-1], str):
            return seconds
        return seconds * cell[-1] / last[-1]

    def planned(self, times, most):
        """The rounds that a cell needs, as the times so far show."""
        if self.options.repeats:
            return self.options.repeats
        if self.options.steps and not self.options.quick:
            return LONG_STEP_ROUNDS if times[0] > STEP_LONG_S else STEP_ROUNDS
        long_runs = LONG_QUICK_RUNS if self.options.quick else LONG_RUNS
        runs = next((runs for limit, runs in long_runs if times[0] > limit), REPEATS)
        if runs == REPEATS and not self.options.quick:
            timed = [max(seconds, self.settings.get("seconds", 0)) for seconds in times]
            more = most * [sum(timed) / len(timed)]
            while runs < most and sum((timed + more)[:runs]) < ENOUGH_S:
                runs += 1
        return runs

    def missing(self, stage, cell, threads):
        """The rounds that are still needed."""
        if stage.name in self.notes:
            return 0
        times = [*self.times[stage.name, cell, threads].values()]
        most = self.most.get(stage.name, MOST_REPEATS)
        expected = self.expected(stage, cell, threads)
        return max(0, self.planned(times or [expected], most) - len(times))

    def left(self):
        """(runs, seconds) that are still needed. The seconds are NaN as long as a stage has not
        run. So they do not jump when one drops out."""
        runs, seconds = 0, 0.0
        for stage, cell in itertools.product(self.stages, self.cells):
            numbers = self.numbers(stage, cell)
            if self.used.get(stage.name) == self.threads[-1]:  # it seems to have one thread
                numbers = numbers[-1:]
            for threads in numbers:
                missing = self.missing(stage, cell, threads)
                if missing:
                    runs += missing
                    seconds += missing * (self.expected(stage, cell, threads)
                                          + self.overhead.get(stage.name, 0))
        return runs, seconds

    # --- the runs ---

    def build(self):
        self.screen.show("Building harness/ceiling")
        running.ceiling()
        has_gpu = ladders.has_gpu()
        # nvcc takes ten seconds for each of its stages.
        here = [stage for stage in self.stages if has_gpu or not stage.is_cuda]
        self.notes |= {stage.name: ("no device", "found no GPU (nvidia-smi lists none)")
                       for stage in self.stages if stage not in here}
        for number, stage in enumerate(here):
            self.screen.show(f"Building {stage.name}", f"{len(here) - number} to go",
                             number / len(here))
            status, log, _ = running.run(stage.build, keep="both")
            left_out = re.search(rf"\b{re.escape(stage.name)}: left out, (.*)", log)
            if status:
                self.screen.say(log)
                self.failed = max(self.failed, 1)
                self.notes[stage.name] = "not built", build_failure(log)
            elif left_out:
                self.notes[stage.name] = "left out", left_out[1]

    def start(self, stage, options, threads, number, used=0):
        """(row, status, errors): runs a stage once, and appends its row to runs.csv. `number` is
        the round, and `used` the threads that the stage is known to use. Without a row, the last
        line of the errors says why."""
        words = self.ladder.words(options)
        environment = stage.environment | ({"OMP_NUM_THREADS": str(threads)} if threads else {})
        size, row = self.epochs.stat().st_size if self.ladder.epochs else 0, None
        used = 0 if stage.is_gpu else used or threads or ladders.processors()
        if self.ladder.epochs:
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
            if self.ladder.epochs and not row:  # its epochs are none of a whole run
                os.truncate(self.epochs, size)

    def append(self, text, row):
        """Appends a program's row, as it wrote it, and the record to runs.csv, in one write."""
        head, *_, fields = csv.reader(io.StringIO(text, newline=""))
        lines = [[*head, *rows.RECORD], [*fields, *(row[name] for name in rows.RECORD)]]
        known = rows.read(self.runs).partition("\n")[0]
        if known and known != csv_lines(lines[0]).rstrip("\n"):
            rows.fail(f"{self.runs}: line 1: found other columns than {row['stage']} has; leave "
                      "out --resume, or name another directory with --output")
        size = self.runs.stat().st_size
        try:
            with self.runs.open("a", encoding="utf-8") as file:
                file.write(csv_lines(*lines[bool(known):]))
        except OSError:  # a full disk: no part of a row stays
            os.truncate(self.runs, size)
            raise

    def run_stage(self, stage, cell, threads, number):
        """A run of a round. It is made again if it was disturbed, and never for its own time."""
        (runs, seconds), done = self.left(), time.monotonic() - self.start_s
        axes = [axis["option"] for axis in self.ladder.axes]
        where = self.where(cell) + [f"threads {threads}"] * (len(self.threads) > 1)
        about = ("time not known yet" if math.isnan(seconds) else f"about {seconds:.0f} s"
                 if seconds < 100 else f"about {seconds / 60:.0f} min")
        for again in range(1 + AGAIN):
            self.screen.show(", ".join([stage.name, *where, f"round {number}",
                                        *["disturbed, so again"] * bool(again)]),
                             f"{runs} to go, {about}", done / (done + seconds))
            row, status, errors = self.start(
                stage, {**self.settings, **dict(zip(axes, cell))}, threads, number,
                self.took.get((stage.name, cell, threads)))
            reason = self.reason(stage, errors)
            if errors and reason not in self.said:
                self.screen.say(errors)
                self.said.add(reason)
            if not row or not self.count(row, threads):
                break
            self.made, self.again = self.made + 1, self.again + bool(again)
            if (self.options.quick or not rows.is_disturbed(row, self.best)
                    or self.again >= AGAIN + AGAIN_PART * self.made):
                return
            time.sleep(PAUSE_S)
        else:
            return
        if status == 77:
            # What to try instead is for the one who waits, not for the tables.
            self.notes[stage.name] = ("no device" if stage.is_gpu or not stage.is_peer
                                      else "left out", reason.partition("; try ")[0])
            return
        reason = "its row has other options or threads" if row else self.why(status, reason)
        self.notes[stage.name] = "failed", ": ".join([f"at {', '.join(where)}"] * bool(where)
                                                     + [reason])
        self.failed = max(self.failed, 2 if status == 2 else 1)

    @staticmethod
    def reason(stage, errors):
        """The last line of a run's errors, without the program's name."""
        return errors.rpartition("\n")[2].removeprefix(f"{stage.name}: ")

    @staticmethod
    def why(status, reason):
        """Why a run failed, from its status and its last line."""
        what = ("" if status is None else f"killed by signal {-status}" if status < 0 else
                f"exit status {status}")
        return ": ".join(filter(None, (what, reason)))

    def where(self, cell):
        """A cell in words: ["hidden 32", "batch 64"]."""
        axes = [axis["option"] for axis in self.ladder.axes]
        return [f"{option} {value}" for option, value in reversed([*zip(axes, cell)])]

    def run_all(self):
        """Runs what is missing, in rounds: each runs all cells, and all programs of a cell one
        after another. So a minute in which the machine is busy spoils one run of three, and the
        median drops it. After one round, the tables are complete."""
        self.start_s = time.monotonic()
        plan = [*itertools.product(self.cells, self.stages, self.threads)]
        for number in itertools.count(1):
            for cell, stage, threads in plan:
                if (threads in self.numbers(stage, cell) and self.missing(stage, cell, threads)
                        and len(self.times[stage.name, cell, threads]) < number):
                    self.run_stage(stage, cell, threads, number)
            if not self.left()[0]:
                return

    def finish(self):
        """Writes what became of the programs, and the tables, and prints these."""
        self.screen.stop()
        # The runs of --growth have settings of their own, so they compute different things.
        strays = {} if self.options.growth else running.strays(self.rows, self.ladder)
        for (name, cell), words in strays.items():
            where = ", ".join(self.where(cell))
            self.notes.setdefault(name, ("differs", f"{where}: {words}" if where else words))
            self.failed = max(self.failed, 1)
        self.note_gpu("after")
        self.note_programs()
        rows.write(self.output / "tables.txt", self.tables(self.runs, self.ladder))
        # Not sys.stdout: it has the locale's encoding. It may be closed, and the files are there.
        with contextlib.suppress(OSError), open(1, "w", encoding="utf-8", closefd=False) as file:
            file.write(self.tables(self.runs, self.ladder, ladders.width(file)))
        draws = "" if self.options.output else "; `make report` draws them"
        names = ", ".join(name for name in FILES if (self.output / name).exists())
        self.screen.say(ladders.fill(f"Written to {self.output}: {names}{draws}", sys.stderr))

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
            self.screen.say(f"Data: {self.ladder.data[1]} ({self.dataset})")
        self.build()
        self.note_programs()
        self.note_gpu("before")
        if self.options.growth:
            self.grow()
        else:
            self.run_all()
        self.finish()

    def interrupted(self):
        """Prints the tables so far and says how to go on."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        if self.sweep:
            with contextlib.suppress(SystemExit):
                self.finish()
            resume = [] if self.options.resume else ["--resume"]
            self.screen.say(f"Interrupted; to go on: {shlex.join([*sys.argv, *resume])}")

    # --- how the cost grows ---

    def grow(self):
        """Changes one option at a time: those of [growth] in ladder.toml, and --threads."""
        table = self.ladder.toml["growth"]
        threads = ladders.processors()
        counts = self.options.threads if len(self.threads) > 1 else [
            threads, *(1 << bit for bit in range(threads.bit_length()))]
        options = {**self.settings, **table["base"]}
        for stage in self.stages:
            for option, values in {**table["values"], "threads": sorted({*counts})}.items():
                if stage.name not in self.notes:
                    self.screen.show(f"{stage.name}, {option} {values[0]} to {values[-1]}")
                    self.grow_along(stage, options, option, values)

    def grow_along(self, stage, options, option, values):
        """Runs a point up to REPEATS times, while a run takes less than ENOUGH_S."""
        points = []  # (value, seconds)
        for value in values:
            expected = points[-1][1] if points else 0
            if len(points) > 1:  # on a straight line through the last two
                (value1, seconds1), (value2, seconds2) = points[-2:]
                expected += (seconds2 - seconds1) / (value2 - value1) * (value - value2)
            if expected > GROWTH_LIMIT_S:
                return
            for number in range(1, 1 + REPEATS):
                row, status, errors = self.start(stage, {**options, option: value},
                                                 self.threads[0], number)
                if status in (2, 77):  # the stage has no threads; there is no GPU
                    return
                if not row:
                    why = self.why(status, self.reason(stage, errors))
                    rows.fail(f"{stage.name} --{option} {value}: {why}", 1)
                self.rows.append(row)
                seconds = row[self.ladder.time]
                if seconds >= ENOUGH_S:
                    break
            points.append((value, seconds))


class Parser(argparse.ArgumentParser):
    def error(self, message):
        rows.fail(message.removeprefix("argument "))


def value_of(kind, least, is_list=False):
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
    whole = value_of(int, 1)
    folder = os.path.abspath

    def add(option, text, **keywords):
        parser.add_argument(f"--{option}", dest=option, help=text,
                            **keywords or {"action": "store_true"})

    add("stages", "names of stages, or how they begin: 00,02 (all but the steps)", metavar="LIST",
        type=value_of(str, None, is_list=True))
    add("steps", "measure instead all stages and steps, such as 01.1_name, in two cells and 16 "
        "rounds; writes to a folder steps in that of the results")
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
        "20 s; with --steps 16, or 8 over 1 s)", metavar="N", type=whole)
    add("threads", "for stages that can use several (all); tables have the most, a plot has each",
        metavar="LIST", type=value_of(int, 1, is_list=True))
    add("quick", "a look in under a minute, at a part of the grid; a run over 0.5 s is not "
        "repeated; results go to report/results/<machine>-quick")
    add("data", "MNIST, or a study's own data ($MNIST_DIR, data/mnist, a download, or else a "
        "synthetic set)", metavar="DIR", type=folder)
    add("output", "where the results go, instead of report/results/<machine>/<ladder>",
        metavar="DIR", type=folder)
    add("resume", "keep earlier runs and do the missing ones; without it, earlier results move to "
        "a folder beside the new ones, named after their date")
    add("growth", "measure instead how the cost grows with each option; writes to a folder growth")
    options, unknown = parser.parse_known_args(arguments)
    if options.growth and not all(ladder.toml["growth"] for ladder in found):
        rows.fail(f"--growth: found no [growth] in {found[0].name}/ladder.toml")
    if options.growth and options.steps:
        rows.fail("--growth: found --steps too, expected one of them")
    if unknown:
        rows.fail(f"unknown option '{unknown[0]}'; see ./run_all.sh --help")
    return options, found


def main(tables):
    """Makes sweeps. tables(runs.csv, ladder) returns the text that ends one."""
    del sys.argv[0]
    screen, sweep = Screen(), None
    for number in SIGNALS:
        signal.signal(number, running.leave)
    try:
        options, found = parse(sys.argv[1:])
        os.environ["LC_ALL"] = "C"  # a decimal point, not a comma
        if options.threads:
            os.environ.pop("OMP_NUM_THREADS", None)  # each run has its own
        for name in {ladder.data_variable for ladder in found if ladder.toml["data"]}:
            if os.environ.get(name):
                os.environ[name] = os.path.abspath(os.environ[name])
        os.chdir(ROOT)
        sweeps = [Sweep(ladder, options, screen, tables) for ladder in found]
        for sweep in sweeps:
            sweep.run()
        return max(sweep.failed for sweep in sweeps)
    except SystemExit as error:
        if sweep and error.code in [128 + number for number in SIGNALS]:
            sweep.interrupted()
        raise
    except OSError as error:
        # A write that fails, such as on a full disk, does not say which file it is.
        place = error.filename or getattr(sweep, "output", ROOT)
        rows.fail(f"{place}: {error.strerror}", 1)
    finally:
        screen.stop()
