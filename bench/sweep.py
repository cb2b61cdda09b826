"""Runs the programs of a ladder in its cells: ./run_all.sh. It builds them, goes through the list
of jobs, and records each run when it has ended."""

import contextlib
import os
import re
import shlex
import sys
import time
from pathlib import Path

from bench import command_line, faults, host, measuring, process, rows, screen
from bench.base import ROOT, Interrupted, fail
from bench.jobs import Plan
from bench.record import Record
from bench.stage import processors
from data.locate import locate

AGAIN_PART = 0.25  # of a sweep's runs may be made again: a machine may be disturbed all the time
PAUSE_S = 1.0  # before a disturbed run is made again: another machine's bursts last that long


def say(text):
    with contextlib.suppress(OSError):  # the terminal is gone, but the sweep goes on
        print(text, file=sys.stderr, flush=True)


def build(stage):
    """Builds a program. Returns (outcome, reason) if there is none, or None."""
    ended = process.run(["make", "--no-print-directory", *stage.build], cwd=ROOT)
    log = f"{ended.out}\n{ended.err}".strip("\n")
    if ended.status:
        say(log)
        # The first line that says what is wrong: the others follow from it.
        why = re.search(r".*(error:|undefined reference|cannot |No such file).*|.*$", log)
        return "not built", why[0].replace(f"{ROOT}/", "")
    if not stage.program.exists():
        return "left out", log.rpartition("left out, ")[2]
    return None


def build_all(stages, show):
    """Builds what can be built: side by side first, and then each to see what became of it. Returns
    {name of a stage that cannot run: (outcome, reason)}."""
    found = {}
    if not host.has_gpu():  # nvcc takes ten seconds for each of its stages
        found = {stage.name: ("left out", "found no GPU (nvidia-smi lists none)")
                 for stage in stages if stage.is_cuda}
    stages = [stage for stage in stages if stage.name not in found]
    show("Building")
    folders = [stage.build[0] for stage in stages if not stage.is_peer]
    process.run(["make", "-s", "--keep-going", f"-j{processors()}", "all",
                 f"STAGES={' '.join(folders)}"], cwd=ROOT)
    for stage in stages:
        show(f"Building {stage.name}")
        if verdict := build(stage):
            found[stage.name] = verdict
    return found


class Sweep:
    """A sweep of a ladder."""

    def __init__(self, ladder, options):
        self.ladder = ladder
        self.options = options
        self.plan = Plan(ladder, options)
        self.data = ""   # what the data are
        self.sweep = 0   # its number in the record, once a program has run
        self.failed = 0  # the exit status
        self.made = 0    # runs of this sweep
        self.again = 0   # those that were made once more
        self.bar = screen.Bar()

    def show(self, words, left=0):
        """Shows what is under way: in the bar on a terminal, else in a line."""
        if self.bar.disable:
            say(f"{words}; {left} to go" if left else words)
        else:
            self.bar.say(words, self.made, left)

    # --- before the first run ---

    def find_data(self):
        folder = locate(self.ladder.data_file, self.options.data)
        self.ladder.data = ["--data", str(folder)]
        self.data = self.ladder.describe_data(folder)

    def lock_record(self):
        """Two sweeps at once would measure each other."""
        machine = process.output([f"{ROOT}/bench/machine.sh", "--name"])
        if self.options.quick:
            machine += "-quick"
        self.output = Path(self.options.output
                           or ROOT / "report/results" / machine / self.ladder.name)
        self.record = Record(self.output)
        self.lock = self.record.lock()

    def describe(self):
        environment = {name: value for stage in self.ladder.stages
                       for name, value in stage.environment.items()}
        text = process.output([f"{ROOT}/bench/machine.sh"], env=environment)
        if any(stage.is_peer for stage in self.plan.stages):
            text += "\n" + process.output(
                ["make", "-s", "-C", str(self.ladder.peers_folder), "versions"], env=environment)
        found = dict(re.findall("^(.+?): *(.*)", text, re.MULTILINE))
        if self.options.threads:
            found["threads"] = ",".join(map(str, self.plan.threads[::-1]))
        return {"kind": self.options.kind, "command": shlex.join(sys.argv), **found,
                "data": self.data}

    def read_record(self):
        """Reads what there is. With --resume, counts its runs, unless they had other threads or
        data. The rows may not show that: a serial stage always has one thread."""
        self.known = self.describe()
        self.earlier = {sweep: known for sweep, known in self.record.sweeps.items()
                        if known.get("kind", "grid") == self.options.kind}
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
            self.plan.count(row)

    def prepare(self):
        if self.ladder.toml["data"]:
            self.find_data()
        self.lock_record()
        if self.data and not self.data.startswith("synthetic"):  # else locate() has said so
            say(f"Data: {self.ladder.data[1]} ({self.data.partition(',')[0]})")
        host.ceiling()
        self.plan.out = build_all(self.plan.stages, self.show)
        self.failed = int("not built" in [outcome for outcome, _ in self.plan.out.values()])
        self.read_record()

    def begin(self):
        """Begins in the record, from which earlier results move aside."""
        if self.earlier and not self.options.resume:
            say(f"Earlier results moved to {self.record.move_aside(self.earlier)}")
        self.sweep = self.record.begin(self.known)

    # --- a run ---

    def measure(self, job, again):
        """Runs a program, in one process so many times, and adds its rows to the record."""
        stage = job.stage
        options = self.plan.cells[job.cell]
        environment = stage.environment
        if job.threads:
            environment |= {"OMP_NUM_THREADS": str(job.threads)}
            if stage.declared("RUN"):  # each of its processes would have as many
                options = options | {"threads": job.threads}
        # The program inherits the lock: if the sweep is killed, it holds until that ends.
        found = measuring.measure(
            stage, self.ladder.words(options), environment, limit=self.plan.may_take(),
            with_epochs=self.ladder.toml["epochs"] and self.options.kind == "grid",
            again=again, pass_fds=[self.lock])
        if not self.sweep:
            if found.status == 2:  # the data may not have so many samples: nothing moves
                fail(process.reason(found.errors, stage.name))
            self.begin()
        for number, row in enumerate(found.rows, job.round):
            row.update({"sweep": self.sweep, "round": number})
            self.plan.count(row)
        if found.row:
            self.record.add_runs(found.texts, found.rows)
        return found

    def has_failed(self, job, found):
        """Whether a run has no row, or another than it should. A first row may show that the stage
        cannot use as many threads."""
        if not found.row:
            return True
        times = self.plan.times[job.stage.name, job.cell].get(job.threads, {})
        return (job.threads in self.plan.numbers(job.stage, job.cell)
                and (self.sweep, job.round) not in times)

    def run(self, job):
        """Makes a run. It is made once more if it was disturbed, never for its own time."""
        where = self.plan.where(job.cell, job.threads)
        words = [job.stage.name, *filter(None, [where]), f"round {job.round}"]
        again = self.plan.in_a_process(job)
        for more in ([], ["disturbed, so again"]):
            self.show(", ".join(words + more), self.plan.left())
            found = self.measure(job, again)
            if self.has_failed(job, found):
                self.note_failure(job, found)
                return
            is_disturbed = faults.is_disturbed(found.row, faults.best_rates(self.plan.rows))
            self.made += 1
            if (more or self.options.quick or not is_disturbed
                    or self.again > AGAIN_PART * self.made):
                return
            self.again += 1
            time.sleep(PAUSE_S)

    def note_failure(self, job, found):
        """Notes what has become of a program whose run has failed."""
        stage = job.stage
        if found.status == process.TOO_SLOW and self.options.limit is not None:
            say(f"{stage.name}: cut off")
            self.plan.close(job, is_slow=True)
            return
        reason = process.reason(found.errors, stage.name)
        if found.errors:
            say(found.errors)
        if found.status == 77:
            # What to try instead is for the one who waits, not for the tables.
            self.plan.out[stage.name] = "left out", reason.partition("; try ")[0]
            return
        how = process.ending(found.status) if found.status else ""
        if found.row:
            how = "its row has other options or threads"
        where = self.plan.where(job.cell, job.threads)
        place = f"at {where}" if where else ""
        self.plan.out[stage.name] = "failed", ": ".join(filter(None, [place, how, reason]))
        self.failed = max(self.failed, 2 if found.status == 2 else 1)

    # --- after the last one ---

    def note_strays(self):
        """Notes the programs that do not compute what the others do. The runs of --growth have
        settings of their own, so they compute different things."""
        if self.options.kind == "growth":
            return
        axes = self.plan.axes
        for (name, place), words in faults.strays(self.plan.rows, self.ladder).items():
            where = ", ".join(f"{axis} {value}" for axis, value in zip(axes[::-1], place[::-1]))
            said = ": ".join(filter(None, [where, words]))
            self.plan.out.setdefault(name, ("differs", said))
            self.failed = max(self.failed, 1)

    def finish(self):
        """Notes what became of each program. Returns whether there was time for all."""
        if not self.sweep:
            self.begin()
        self.note_strays()
        outcomes = {stage: self.plan.outcome(stage, self.sweep) for stage in self.plan.stages}
        self.record.note_programs(self.sweep, [
            (stage.name, *found, stage.sources, stage.read(f"{stage.program.name}.flags").strip())
            for stage, found in outcomes.items() if found])
        say(f"Written to {self.output}")
        return "cut off" not in [found[0] for found in outcomes.values() if found]

    def run_all(self):
        with self.bar:
            self.prepare()
            for job in self.plan.jobs():
                if self.plan.fits(job):
                    self.run(job)

    def say_how_to_go_on(self, what):
        resume = ["--resume"] if self.sweep and not self.options.resume else []
        say(f"{what}; to go on: {shlex.join([*sys.argv, *resume])}")


def main(arguments):
    """Makes a sweep. Returns (exit status, [(folder of results, ladder)] if there are some)."""
    sys.argv = ["./run_all.sh", *arguments]
    options, ladder = command_line.parse(arguments)
    os.environ["LC_ALL"] = "C"  # a decimal point, not a comma
    sweep = Sweep(ladder, options)
    try:
        sweep.run_all()
        if not sweep.finish():
            sweep.say_how_to_go_on("Cut off")
        status = sweep.failed
    except Interrupted as ended:
        status = ended.code
        if sweep.sweep:
            with contextlib.suppress(SystemExit):
                sweep.finish()
        sweep.say_how_to_go_on("Interrupted")
    has_rows = sweep.sweep and (sweep.output / "runs.csv").exists()
    return status, [(sweep.output, ladder)] if has_rows else []
