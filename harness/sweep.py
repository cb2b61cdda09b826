#!/usr/bin/python3
"""Runs the stages of a ladder over its grid and has the tables written. run_all.sh starts it, with
its own name as the first argument.

A stage appends its own row to runs.csv when a run is finished. Only this file records what has been
done, so --resume leaves out the runs that it holds. If a ladder's epochs have rows too, a stage
appends them to epochs.csv, where those of a run without its own row are removed.
"""

import interrupts

import argparse
import contextlib
import fcntl
import gzip
import itertools
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import defaultdict
from pathlib import Path

import ladders
import rows
import running
from ladders import ROOT

# A cell is run REPEATS times and until ENOUGH_S seconds have been timed in it, but MOST_REPEATS
# times at most. A GPU may take 5 ms for a run and begins with slow clocks, so there the limit is
# higher. A longer run has less noise and costs more: over 20 s, one is enough. A program with an
# option --seconds repeats its work for so long, and its time is that of one repeat.
REPEATS, MOST_REPEATS, MOST_GPU_REPEATS, ENOUGH_S = 3, 12, 250, 1.0
LONG_RUNS = (20.0, 1), (5.0, 2)
LONG_QUICK_RUNS = ((0.5, 1),)
NOISY_REPEATS = 3  # more runs for a noisy cell

# --growth leaves out a point that should take longer, and those beyond it: the textbook at 4,096
# hidden units takes minutes and shows nothing new.
GROWTH_LIMIT_S = 20.0

# Each library has to choose its kernels itself. A variable left in the environment can halve a
# peer's speed or its precision, and machine.txt does not show it.
PEER_VARIABLES = re.compile(
    "(BLIS_|CUBLAS_|DNNL_|JAX_|KMP_|LIBXSMM_|MKL_|NPY_|NUMBA_|ONEDNN_|OPENBLAS_|TORCH).*|"
    "ATEN_CPU_CAPABILITY|CUDA_LAUNCH_BLOCKING|NVIDIA_TF32_OVERRIDE|XLA_FLAGS")

# What keeps each library to AVX2. So MARCH=x86-64-v3 stands for a machine without AVX-512.
AVX2_VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2", "LIBXSMM_TARGET": "hsw", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "NUMBA_CPU_NAME": "haswell", "ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}


# What a sweep writes to the folder of its results.
FILES = "runs.csv", "epochs.csv", "machine.txt", "tables.txt"


class Commands:
    """Runs commands one at a time. A signal ends the one that runs, and then the sweep."""

    def __init__(self):
        self.signal, self.process, self.lock = 0, None, ()
        self.signals = [number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
                        if signal.getsignal(number) != signal.SIG_IGN]  # nohup has one ignored
        self.at_signals(self.stop)

    def at_signals(self, handler):
        for number in self.signals:
            signal.signal(number, handler)

    def stop(self, number, _=None):
        self.signal = number
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGTERM)

    def run(self, command, keep="stdout", environment=None):
        """(exit status, text): runs a command to its end and keeps its "stdout", its "stderr" or
        "both". With "stdout", errors go to the terminal. The command inherits the lock: if the
        sweep is killed, the lock holds until the command ends."""
        with tempfile.TemporaryFile() as kept:
            try:
                # A session of its own: it and what it starts get no signal but that of stop().
                self.process = not self.signal and subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=self.lock,
                    env=environment,
                    stdout=subprocess.DEVNULL if keep == "stderr" else kept,
                    stderr=None if keep == "stdout" else kept)
            except OSError as error:
                return 127, f"cannot start {command[0]}: {error.strerror}"
            if self.signal:  # it came before there was a process to end
                self.stop(self.signal)
            status = self.process and self.process.wait()
            self.process = None
            if self.signal:
                sys.exit(128 + self.signal)
            kept.seek(0)
            return status, os.fsdecode(kept.read()).rstrip("\n")

    def ask(self, *command, environment=None):
        """What a command prints. If it fails, it has said why."""
        status, text = self.run(command, environment=environment)
        if status:
            sys.exit(max(status, 1))
        return text


class Screen:
    """Says what runs: with a bar on a terminal, if python3-rich is there, or else line by line."""

    def __init__(self):
        self.bar, self.start = None, time.monotonic()
        if sys.stderr.isatty():
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

    def show(self, what, left="", left_s=math.nan):
        """What runs now, what is left, and the seconds that it takes, if they are known."""
        if self.bar:
            done = time.monotonic() - self.start
            self.bar.start()
            self.bar.update(self.task, description=what, left=left, completed=done,
                            total=None if math.isnan(left_s) else done + left_s)
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

    def __init__(self, ladder, options, commands, screen):
        self.ladder, self.options, self.commands, self.screen = ladder, options, commands, screen
        given = {name: value for name, value in vars(options).items() if value is not None}
        quick = ladder.toml["quick"] if options.quick else {}
        chosen = [stage for wanted in options.stages or ()
                  for stage in ladder.select(wanted, "--stages")]
        self.stages = [stage for stage in ladder.stages if stage in chosen or
                       (not options.stages and (options.steps or not stage.is_step))]
        # The stages of a cell run one after another, because they are compared with each other.
        self.cells = [*itertools.product(*(dict.fromkeys(
            given.get(axis["option"]) or axis.get("quick" if options.quick else "values")
            or axis["values"]) for axis in ladder.axes))]
        self.settings = {option: given.get(option, quick.get(option, value))
                         for option, value in ladder.settings.items()}
        # The numbers of threads, the largest first. 0 is as many as OpenMP chooses.
        self.threads = sorted({*(options.threads or [0])}, reverse=True)
        self.dataset, self.data, self.times = "drawn", "", None
        self.said, self.failed = set(), 0  # the exit status
        self.notes = {}  # {stage's name: why it is left out of the sweep, or of its rest}

    # --- the folder of the results ---

    def find_data(self):
        name = self.ladder.toml["data"]
        is_given = self.options.data and not (self.options.all and name != "mnist")
        located = self.commands.ask(*self.ladder.locate(self.options.data if is_given else ""))
        self.ladder.data = ["--data", located]
        files = set(os.listdir(located))
        is_csv = name == "mnist" and not files & {
            "train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"}
        self.dataset = "csv" if is_csv else "synthetic" if "SYNTHETIC" in files else name
        self.data = f"data: {self.dataset}, labels {checksum(Path(located)):08x}"

    def open_folder(self):
        """Finds the folder of the results and locks it: two sweeps at once would measure each
        other."""
        options, self.output = self.options, ROOT / "report/results"
        if options.output:
            self.output = Path(options.output, self.ladder.name if options.all else "")
        else:
            machine = self.commands.ask("report/machine.sh", "--name")
            self.output /= f"{machine}{'-quick' if options.quick else ''}/{self.ladder.name}"
        self.runs, self.epochs = self.output / "runs.csv", self.output / "epochs.csv"
        self.files = [self.runs, *([self.epochs] if self.ladder.epochs else [])]
        try:
            self.output.mkdir(parents=True, exist_ok=True)
            for name in FILES:
                rows.target(self.output / name)
            self.commands.lock = [os.open(self.output, os.O_RDONLY)]
            self.runs.open("a").close()
            fcntl.flock(self.commands.lock[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            rows.fail(f"{self.output}: another run_all.sh is writing there")
        except OSError:
            rows.fail(f"{self.output}: cannot write there; name another directory with --output")

    def open_results(self):
        """Moves earlier results aside, or checks that --resume can go on with them."""
        environment = {name: value for stage in self.ladder.stages
                       for name, value in stage.environment.items()}
        machine = self.commands.ask("report/machine.sh", self.ladder.name, environment=environment)
        if self.options.threads:
            machine = re.sub("^threads: .*", f"threads: {','.join(map(str, self.threads[::-1]))}",
                             machine, flags=re.MULTILINE)
        for folder in {stage.folder for stage in self.stages if stage.is_peer}:
            machine += "\n" + self.commands.ask("make", "--silent", "--no-print-directory", "-C",
                                                str(folder), "versions")
        machine += f"\n{self.data}" if self.data else ""
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
            rows.read_epochs(self.epochs, self.ladder)
        path, text = self.output / "machine.txt", rows.read(self.runs)
        self.count_runs()
        if not text or not path.exists():
            path.write_bytes(os.fsencode(f"{machine}\n"))
            return
        # The rows may not show --threads: a serial stage always has one thread.
        field = dict(line.partition(": ")[::2] for line in machine.splitlines())
        known = rows.read(path).splitlines()
        if f"threads: {field['threads']}" not in known:
            rows.fail(f"--resume: {self.output} was not made with {field['threads']} threads: "
                      "expected the same --threads, or another --output")
        if self.data not in known and any(line.startswith(f"data: {self.dataset},")
                                          for line in known):
            rows.fail(f"--resume: {self.output} has runs on other files of '{self.dataset}': "
                      "expected the same --data, or another --output")
        with path.open("a", encoding="utf-8") as file:
            file.write(f"resumed: {field.pop('date')}, revision {field.pop('revision')}\n")
            for line in (f"{name}: {value}" for name, value in field.items()):
                if line not in known:  # another compiler, or a peer installed since
                    file.write(f"{line}\n")

    def note_gpu(self, when):
        """Adds the GPU's clocks, power limit and temperature to machine.txt: idle, it is not what
        it is after an hour of work. Without a GPU there is no line."""
        state = self.commands.ask("report/machine.sh", "--gpu")
        if state:
            with (self.output / "machine.txt").open("a", encoding="utf-8") as file:
                file.write(f"gpu {when}: {state}\n")

    # --- what the rows so far show ---

    def count_runs(self):
        self.times = defaultdict(list)  # {(stage's name, cell, threads): the ladder's times}
        self.used = {}                  # {stage's name, or (stage's name, cell): most threads}
        self.last = {}                  # {stage's name: (its last cell, time)}
        self.overhead = {}              # {stage's name: what its last run took besides that time}
        self.most = {}                  # {stage's name: the runs of a cell at most}
        self.rows = []
        for row in rows.read_rows(self.runs, self.ladder):
            name, cell = row["stage"], rows.cell_of(row, self.ladder)
            seconds = row[self.ladder.time]
            if row["dataset"] == self.dataset and all(  # a program may have rounded a number
                    math.isclose(row[self.ladder.column(option)], value, rel_tol=1e-6)
                    if isinstance(value, float) else row[self.ladder.column(option)] == value
                    for option, value in self.settings.items()):
                self.rows.append(row)
                threads = self.given(row["threads"])
                self.times[name, cell, threads].append(seconds)
                for place in (name, (name, cell)):
                    self.used[place] = max(self.used.get(place, 0), threads)
                for place in (name, (name, threads), (name, threads, cell[-1:])):
                    self.last[place] = cell, seconds
                self.most[name] = MOST_REPEATS if row["device"] == "cpu" else MOST_GPU_REPEATS
                self.overhead[name] = sum(row.get(part) or 0
                                          for part in ("load_s", "setup_s", "warmup_s"))

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
        """The runs that a cell needs, as its runs so far show."""
        if self.options.repeats:
            return self.options.repeats
        long_runs = LONG_QUICK_RUNS if self.options.quick else LONG_RUNS
        runs = next((runs for limit, runs in long_runs if times[0] > limit), REPEATS)
        if runs == REPEATS and not self.options.quick:
            timed = [max(seconds, self.settings.get("seconds", 0)) for seconds in times]
            more = most * [sum(timed) / len(timed)]
            while runs < most and sum((timed + more)[:runs]) < ENOUGH_S:
                runs += 1
        if 1 < runs <= len(times) and rows.is_noisy(times):
            return min(len(times) + 1, runs + NOISY_REPEATS)
        return runs

    def missing(self, stage, cell, threads):
        """The runs that are still needed."""
        if stage.name in self.notes:
            return 0
        times = self.times[stage.name, cell, threads]
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
        for stage in self.stages:
            self.screen.show(f"Building {stage.name}", stage.is_cuda * "nvcc takes its time")
            status, log = self.commands.run(stage.build, keep="both")
            left_out = re.search(rf"\b{re.escape(stage.name)}: (left out.*)", log)
            if status:
                self.screen.say(log)
                self.failed = max(self.failed, 1)
                self.notes[stage.name] = f"does not build: {build_failure(log)}"
            elif left_out:
                self.notes[stage.name] = f"did not run: {left_out[1]}"

    def start(self, stage, path, options, threads):
        """(exit status, errors, the last of them): runs a stage once. The status is None for a run
        whose row has times that cannot be right. Its row is removed."""
        command = [*stage.command, *self.ladder.words(options), "--csv", str(path), "--quiet"]
        if self.ladder.epochs and path == self.runs:
            command += [f"--{self.ladder.epochs}", str(self.epochs)]
        environment = stage.environment
        if threads:
            environment["OMP_NUM_THREADS"] = str(threads)
        size = path.stat().st_size if path.exists() else 0
        clock = time.monotonic()
        status, errors = self.commands.run(command, "stderr", environment)
        seconds = time.monotonic() - clock
        if status == 0 and path.exists() and path.stat().st_size > size:
            fault = running.clock_fault(rows.read_rows(path, self.ladder)[-1], self.ladder, seconds)
            if fault:
                os.truncate(path, size)
                return None, fault, fault
        return status, errors, errors.rpartition("\n")[2].removeprefix(f"{stage.name}: ")

    @staticmethod
    def why(status, reason):
        """Why a run failed, from its status and its last line."""
        what = ("" if status is None else f"killed by signal {-status}" if status < 0 else
                f"exit status {status}")
        return ": ".join(filter(None, (what, reason)))

    def run_stage(self, stage, cell, threads):
        runs, seconds = self.left()
        done = len(self.times[stage.name, cell, threads])
        axes = [axis["option"] for axis in self.ladder.axes]
        where = [f"{option} {value}" for option, value in reversed([*zip(axes, cell)])]
        if len(self.threads) > 1:
            where.append(f"threads {threads}")
        about = ("time not known yet" if math.isnan(seconds) else f"about {seconds:.0f} s"
                 if seconds < 100 else f"about {seconds / 60:.0f} min")
        self.screen.show(", ".join([stage.name, *where, f"run {done + 1}"]),
                         f"{runs} to go, {about}", seconds)
        sizes = [path.stat().st_size for path in self.files]
        try:
            status, errors, reason = self.start(stage, self.runs,
                                                {**self.settings, **dict(zip(axes, cell))}, threads)
        finally:
            if self.runs.stat().st_size == sizes[0]:  # no row: its epochs are none of a whole run
                for path, size in zip(self.files, sizes):
                    os.truncate(path, size)
        if errors and reason not in self.said:
            self.screen.say(errors)
            self.said.add(reason)
        self.count_runs()
        # The first run of a cell may have used fewer than it was given.
        if status == 0 and (len(self.times[stage.name, cell, threads]) > done
                            or self.used.get((stage.name, cell), threads) < threads):
            return
        if status == 77:
            # What to try instead is for the one who waits, not for the tables.
            self.notes[stage.name] = f"did not run: {reason.partition('; try ')[0]}"
            return
        reason = (self.why(status, reason) if status != 0 else
                  "wrote no row to its --csv" if self.runs.stat().st_size == sizes[0] else
                  "its row has other options or threads")
        self.notes[stage.name] = f"failed{' at ' if where else ''}{', '.join(where)}: {reason}"
        self.failed = max(self.failed, 2 if status == 2 else 1)

    def run_all(self):
        """Runs what is missing. The repeats of a cell are a whole pass apart. So a minute in which
        the machine is busy spoils one run of three, and the median drops it. After one pass, the
        tables are complete."""
        self.screen.start = time.monotonic()
        plan = [*itertools.product(self.cells, self.stages, self.threads)]
        for number in itertools.count(1):
            for cell, stage, threads in plan:
                if (threads in self.numbers(stage, cell) and self.missing(stage, cell, threads)
                        and len(self.times[stage.name, cell, threads]) < number):
                    self.run_stage(stage, cell, threads)
            if not self.left()[0]:
                return

    def earlier_notes(self, tables):
        """{name: reason} of the programs that are not in this sweep, from the tables before it."""
        others = {stage.name for stage in [*self.ladder.stages, *self.ladder.peers]
                  if stage not in self.stages}
        lines = rows.or_nothing(rows.read_lines, tables) if self.options.resume else ()
        found = (line.split(": ", 1) for line in lines or () if ": " in line)
        return {name: reason for names, reason in found for name in names.split(", ")
                if name in others}

    def print_tables(self):
        self.screen.stop()
        axes = [axis["option"] for axis in self.ladder.axes]
        for (name, cell), words in running.strays(self.rows, self.ladder).items():
            where = [f"{option} {value}" for option, value in reversed([*zip(axes, cell)])]
            self.notes.setdefault(name, f"does not compute the same{' at ' if where else ''}"
                                  f"{', '.join(where)}: {words}")
            self.failed = True
        tables = self.output / "tables.txt"
        notes = [f"--note={name}: {reason}" for name, reason in sorted(
            (self.earlier_notes(tables) | self.notes).items())]
        self.commands.ask(sys.executable, "harness/tables.py", "--ladder", self.ladder.name, *notes,
                          "--output", str(tables), str(self.runs))
        subprocess.run(["cat", tables], check=False)
        draws = "" if self.options.output else "; `make report` draws them"
        names = ", ".join([path.name for path in self.files] + ["machine.txt", "tables.txt"])
        self.screen.say(f"Written to {self.output}: {names}{draws}")
        noisy = [rows.is_noisy(times) for times in self.times.values() if times]
        if any(noisy):
            self.screen.say(f"In {sum(noisy)} of {len(noisy)} cells, a run is more than "
                            f"{100 * rows.NOISY:.0f} % from the median. What else was running?")

    def run(self):
        if self.ladder.toml["data"]:
            self.find_data()
        self.open_folder()
        if self.options.growth:
            self.grow()
            return
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
        self.note_gpu("before")
        self.run_all()
        self.note_gpu("after")
        self.print_tables()

    def interrupted(self):
        """Prints the tables so far and says how to go on."""
        self.commands.at_signals(signal.SIG_IGN)
        self.commands.signal = 0
        if not self.options.growth and self.times is not None:
            with contextlib.suppress(SystemExit):
                self.note_gpu("after")
                self.print_tables()
            resume = [] if self.options.resume else ["--resume"]
            self.screen.say(f"Interrupted; to go on: {shlex.join([*sys.argv, *resume])}")

    # --- how the cost grows ---

    def grow(self):
        """Changes one option at a time and writes growth.csv, which is then complete or unchanged.
        The options are those of [growth] in ladder.toml, and --threads."""
        table = self.ladder.toml.get("growth")
        if not table:
            rows.fail(f"--growth: found no [growth] in {self.ladder.name}/ladder.toml")
        threads = ladders.processors()
        counts = self.options.threads if len(self.threads) > 1 else [
            threads, *(1 << bit for bit in range(threads.bit_length()))]
        self.build()
        with tempfile.TemporaryDirectory() as folder:
            new = Path(folder, "growth.csv")
            options = {**self.settings, **table["base"]}
            for stage in self.stages:
                for option, values in {**table["values"], "threads": sorted({*counts})}.items():
                    if stage.name not in self.notes:
                        self.screen.show(f"{stage.name}, {option} {values[0]} to {values[-1]}")
                        self.grow_along(stage, options, option, values, new)
            if not new.exists():
                rows.fail("--growth: no stage ran", 1)
            rows.write(self.output / "growth.csv", rows.read(new))
        self.screen.stop()
        self.screen.say(f"Written to {self.output}: growth.csv; `make report` draws it")

    def grow_along(self, stage, options, option, values, new):
        """Runs a point up to REPEATS times, while a run takes less than ENOUGH_S."""
        points = []  # (value, seconds)
        for value in values:
            expected = points[-1][1] if points else 0
            if len(points) > 1:  # on a straight line through the last two
                (value1, seconds1), (value2, seconds2) = points[-2:]
                expected += (seconds2 - seconds1) / (value2 - value1) * (value - value2)
            if expected > GROWTH_LIMIT_S:
                return
            for _ in range(REPEATS):
                status, _, reason = self.start(stage, new, {**options, option: value},
                                               self.threads[0])
                if status in (2, 77):  # the stage has no threads; there is no GPU
                    return
                if status != 0:
                    rows.fail(f"{stage.name} --{option} {value}: {self.why(status, reason)}", 1)
                seconds = rows.read_rows(new, self.ladder)[-1][self.ladder.time]
                if seconds >= ENOUGH_S:
                    break
            points.append((value, seconds))


class Parser(argparse.ArgumentParser):
    def error(self, message):
        rows.fail(message.removeprefix("argument "))


def value_of(kind, smallest, expected, is_list=False):
    """Returns what turns an option's text into a value, or into a list of values."""
    def convert(text):
        try:
            values = [rows.number(part, kind, smallest, expected)
                      for part in (text.split(",") if is_list else [text])]
        except ValueError:
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
report/results/<machine>/<ladder>/{runs.csv,machine.txt,tables.txt}.""", epilog="""\
Ctrl-C keeps every finished run, and --resume goes on from there.
Exit status: 0; 1 a stage failed; 2 wrong options or data; 130 or 143 interrupted.""")
    whole = value_of(int, 1, "a whole number from 1")
    folder = value_of(os.path.abspath, None, "a directory")

    def add(option, text, **keywords):
        parser.add_argument(f"--{option}", dest=option, help=text,
                            **keywords or {"action": "store_true"})

    add("stages", "names of stages, or how they begin: 00,02 (all but the steps)", metavar="LIST",
        type=value_of(str, None, "names such as 00,02", is_list=True))
    add("steps", "also run the steps, such as 01.1_name")
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
    add("repeats", "exactly N runs of each cell (3 to 12, on a GPU to 250; 2 over 5 s, 1 over "
        "20 s; up to 3 more where they differ by over 10 %%)", metavar="N", type=whole)
    add("threads", "for stages that can use several (all); tables have the most, a plot has each",
        metavar="LIST", type=value_of(int, 1, "a whole number from 1", is_list=True))
    add("quick", "a look in under a minute, at a part of the grid; a run over 0.5 s is not "
        "repeated; results go to report/results/<machine>-quick")
    add("data", "MNIST, or a study's data ($MNIST_DIR, data/mnist, a download, or else a synthetic "
        "set; $GALAXY_DIR, ...)",
        metavar="DIR", type=folder)
    add("output", "where the results go, instead of report/results/<machine>/<ladder>",
        metavar="DIR", type=folder)
    add("resume", "keep earlier runs and do the missing ones; without it, earlier results move to "
        "a folder beside the new ones, named after their date")
    add("growth", "measure instead how the cost grows with each option; writes growth.csv")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        rows.fail(f"unknown option '{unknown[0]}'; see ./run_all.sh --help")
    return options, found


def main():
    del sys.argv[0]
    commands, screen, sweep = Commands(), Screen(), None
    try:
        options, found = parse(sys.argv[1:])
        os.environ["LC_ALL"] = "C"  # a decimal point, not a comma
        if options.threads:
            os.environ.pop("OMP_NUM_THREADS", None)  # each run has its own
        for name in ("MNIST_DIR", "GALAXY_DIR"):
            if os.environ.get(name):
                os.environ[name] = os.path.abspath(os.environ[name])
        os.chdir(ROOT)
        sweeps = [Sweep(ladder, options, commands, screen) for ladder in found]
        for sweep in sweeps:
            sweep.run()
        return max(sweep.failed for sweep in sweeps)
    except SystemExit:
        if commands.signal and sweep:
            sweep.interrupted()
        raise
    except OSError as error:
        # A write that fails, such as on a full disk, does not say which file it is.
        place = error.filename or getattr(sweep, "output", ROOT)
        rows.fail(f"{place}: {error.strerror}", 1)
    finally:
        screen.stop()


if __name__ == "__main__":
    interrupts.start(main)
