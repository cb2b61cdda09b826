"""Grades what students have handed in: `make grade FROM=folder ASSIGNMENT=name`.

    grade.py FROM [ASSIGNMENT [KEY [OUT]]]

FROM is a submission, a folder of submissions, or a file with a git address in each line, which may
have a name before it. Of a submission only the stage's source and its README are taken. The source
is built with our flags in a copy of common/ and of what the ladder shares, and no other stage is
there. It is built and run in a sandbox (bwrap, prlimit): no network, a limit of time and memory,
and nothing of this machine that it could write.

assignments/ASSIGNMENT.toml says what is asked and how points are given: see README.md there. KEY
has the cases and seeds that decide. Without one, OUT/ASSIGNMENT.key.toml is drawn, and kept.
OUT (grades/) gets a line of grades.csv and a page NAME.md for each submission. Those that have a
line are left out, unless their source has changed since.

Exit status: 0; 1 some could not be timed, because the machine was busy; 2 wrong arguments; 77 this
machine has no sandbox.
"""

import contextlib
import csv
import difflib
import hashlib
import io
import math
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from harness import check, compare, ladders, pairs, rows, running, shape, step, verify
from harness.ladders import ROOT, fail
from harness.verify import Program, Wrong

ASSIGNMENTS = ROOT / "assignments"
NAME = "20_submission"
# A run of less than SHORTEST seconds is made longer. ROUNDS of runs decide, if they are quiet.
SHORTEST, ROUNDS = 0.4, 12
# What comes before and after the training may take as many times as long as in the stage beside it.
# What takes longer counts as training: else a program could wait where it is not timed.
FIXED = 1.25
# A program's own clock may be this much behind ours, as a part and in seconds.
BEHIND, BEHIND_S = 0.1, 0.02
# A timed run's result may be so far from the other stage's, as a part of what training changes.
FAR = 0.1
CASES = 8  # of a key that is drawn
MARGIN = 5  # a case counts if rounding leaves our own stages so many times below the bound
BUILD_S, MOST_BYTES = 120, 1 << 20  # of a source
COLUMNS = ("name", "assignment", "source", "began", "result", "points", "of_ceiling", "times",
           "low", "high", "seconds", "own_seconds", "nearest", "readme", "marks")
SHAPE = {
    "title!": shape.TEXT, "study": shape.TEXT, "start!": shape.TEXT, "against": shape.TEXT,
    "measure": shape.one_of("ceiling", "against"), "threads": shape.whole(1),
    "seconds": shape.whole(1), "memory": shape.whole(64), "right": shape.NUMBER,
    "points": [(shape.NUMBER, shape.NUMBER)], "run": {shape.OPTION: shape.VALUE},
    "lines": {"pattern!": shape.TEXT, "most!": shape.whole(0), "points!": shape.NUMBER},
    "cases": [shape.WORDS], "real_data": shape.FLAG, "environment": {shape.TEXT: shape.TEXT}}
KEY = {"cases!": [shape.WORDS], "seeds!": [shape.whole(0)]}


def read_toml(path, wanted):
    try:
        found = ladders.tomllib.loads(ladders.read_toml(path))
        shape.match(found, wanted)
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")
    return found


class Sandbox:
    """Runs programs that nobody has read. `folder` is its own. The root that a program sees is
    empty in each run, and what it leaves there is noted."""

    def __init__(self, folder, memory, is_simulated=False):
        self.folder, self.outside = folder, set()
        # The simulated device reserves far more addresses than it uses memory.
        self.memory = f"--{'data' if is_simulated else 'as'}={memory << 20}"
        self.words = ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev",
                      "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache",
                      "--ro-bind-try", "/etc/alternatives", "/etc/alternatives",
                      "--ro-bind-try", "/sys/devices/system/cpu", "/sys/devices/system/cpu"]
        for name in ("bin", "sbin", "lib", "lib32", "lib64"):
            path = Path("/", name)
            self.words += ["--symlink", os.readlink(path), str(path)] if path.is_symlink() else [
                "--ro-bind-try", str(path), str(path)]

    def run(self, command, limit, writable, readable=(), environment=(), threads=0):
        """As running.run(). `writable` is (what, as which path), and where the command begins."""
        root = self.folder / "root"
        shutil.rmtree(root, ignore_errors=True)
        for name in ("home", "tmp", "root", "var/tmp"):
            (root / name).mkdir(parents=True)
        binds = [word for what, path in readable for word in ("--ro-bind", str(what), str(path))]
        given = [word for name, value in dict(environment).items()
                 for word in ("--setenv", name, value)]
        cores = sorted(os.sched_getaffinity(0))[:threads or None]
        # Not below a process of bwrap's in the sandbox: that one may end later than bwrap, and then
        # the program's processor time would be others'.
        words = ["bwrap", "--unshare-all", "--as-pid-1", "--die-with-parent", "--new-session",
                 "--cap-drop", "ALL", "--bind", str(root), "/", *self.words, *binds,
                 "--bind", *map(str, writable), "--chdir", str(writable[1]),
                 "--clearenv", "--setenv", "PATH", "/usr/bin:/bin", *given,
                 "prlimit", f"--cpu={math.ceil(limit * len(cores))}", f"--fsize={256 << 20}",
                 self.memory, "--nofile=256", "--nproc=1024", "--core=0", "--",
                 "taskset", "-c", ",".join(map(str, cores)), *command]
        status, errors, seconds = running.run(words, limit)
        mounts = {Path(path) for path in (writable[1], *(path for _, path in readable))}
        for path in root.rglob("*"):
            inside = Path("/") / path.relative_to(root)
            if not mounts & {inside, *inside.parents} and not path.is_dir() and str(inside) not in (
                    "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache"):
                self.outside.add(str(inside))
        # A shell's statuses of signals, because bwrap is not the program.
        return (128 - status if status > 128 else status), errors, seconds

    def check(self):
        """Ends the program where no sandbox can be made: nothing is graded without one."""
        home = self.folder / "out"
        home.mkdir(exist_ok=True)
        status, errors, _ = self.run(["true"], 10, (home, "/out"))
        if status:
            fail("this machine lets bwrap make no sandbox, so nothing is graded: "
                 f"{(errors.splitlines() or ['no reason given'])[-1]}", 77)


class Graded(check.Checker):
    """Tests a submission in the sandbox, in the cases of a key. What the reference computes lies
    where the submission cannot see it."""

    def __init__(self, session, folder, sandbox):
        super().__init__(session.ladder, folder, None)
        self.session, self.sandbox, self.out = session, sandbox, sandbox.folder / "out"
        self.alone = session.seconds
        self.folder = folder / "private"
        self.folder.mkdir()
        self.data = session.data
        cases = [*session.key["cases"], *session.toml["cases"]]
        self.tests |= {"sizes": [""], "cases": cases, "twice": [
            case for case in cases if f"--{session.rounds} 0" not in case][:1]}
        self.environment |= session.toml["environment"]

    def start(self, command, limit, environment, threads=0):
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        program, known = Path(command[0]), {"SIM_SEED", "OMP_NUM_THREADS", *ladders.SPINNING,
                                            *ladders.BINDING, *self.session.toml["environment"]}
        given = {name: value for name, value in environment.items() if name in known}
        readable = [(program, "/program"), *((path, path) for path in self.session.data_folders)]
        if "LD_PRELOAD" in environment:
            readable.append((verify.BUILD / "many_processors.so", "/many.so"))
            given["LD_PRELOAD"] = "/many.so"
        ended = self.sandbox.run(["/program", *command[1:]], limit, (self.out, self.folder),
                                 readable, given, threads)
        for path in self.out.iterdir():  # no link, no pipe
            if path.is_file() and not path.is_symlink():
                shutil.move(path, self.folder / path.name)
        return ended

    def timed(self, program, words, threads):
        """(seconds by our clock, its row, what it has saved) of a run."""
        environment = {**ladders.SPINNING, **(ladders.BINDING if threads > 1 else {}),
                       "OMP_NUM_THREADS": str(threads)}
        run = self.execute([str(program), *self.session.timed_data, *words, "--quiet"],
                           10 * self.alone, environment, threads)
        self.now = " ".join(words)
        if run.status == running.TOO_SLOW:
            raise Wrong(f"hangs, or takes over {10 * self.alone} s")
        if run.status:
            raise Wrong(f"exit status {run.status}: {run.error}")
        if not run.row:
            raise Wrong("wrote no row to its --csv")
        return run.seconds, rows.read_rows(self.folder / "rows.csv", self.ladder)[-1], run.values


class Session:
    """What all submissions of a call have in common."""

    def __init__(self, assignment, key, out, folder):
        self.name, self.out, self.folder = assignment.stem, out, folder
        self.toml = {"study": "", "measure": "against", "threads": 1, "seconds": 20,
                     "memory": 4096, "right": 0, "points": [], "run": {}, "cases": [],
                     "environment": {}, "against": "", **read_toml(assignment, SHAPE)}
        self.seconds = self.toml["seconds"]
        self.ladder = ladders.find_ladder(self.toml["study"], "study")
        self.begin = self.ladder.find(self.toml["start"], "start")
        self.against = self.ladder.find(self.toml["against"] or self.begin.name, "against")
        tests = self.ladder.toml["tests"]
        self.rounds, self.items, _ = tests.get("updates", ("", "", ""))
        self.options = {**self.ladder.options("compare"), **self.toml["run"]}
        self.last = shlex.split(tests.get("cell", {}).get("last", ""))
        self.data, self.data_folders = [], []
        self.timed_data = []
        if self.ladder.toml["data"]:
            data = folder / "data"
            data.mkdir()
            self.ladder.data_module.write(data, max(
                verify.DRAWN, int(self.options.get(self.items, 0)),
                *map(int, re.findall(rf"--{self.items} (\d+)", " ".join(self.toml["cases"])))))
            self.data, self.data_folders = ["--data", str(data)], [data]
            self.timed_data = self.ladder.data if self.toml.get("real_data") else self.data
            self.data_folders += [Path(self.timed_data[1]).resolve()] * (
                self.timed_data != self.data)
            self.timed_data = ["--data", str(self.data_folders[-1])]
        check.make("-C", "harness", f"build/{self.ladder.name}/reference",
                   "build/many_processors.so")
        self.ours = [stage for stage in dict.fromkeys((self.against, self.begin))
                     if not stage.is_cuda] or self.ladder.stages[:1]
        for stage in self.ours:
            compare.build(stage)
        self.key = read_toml(key, KEY) if key.exists() else self.draw_key(key)
        if len(self.key["seeds"]) < ROUNDS:
            fail(f"{key}: seeds: found {len(self.key['seeds'])}, expected at least {ROUNDS}")

    def draw_key(self, path):
        """Draws cases like those of `make check`, with other numbers, and writes them to `path`.
        Our own stages are far below the bound in them: no rounding decides there."""
        draw, tests = random.SystemRandom(), self.ladder.toml["tests"]
        tests = {**tests, **tests.get("check", {})}

        known = {axis["option"] for axis in self.ladder.axes} | {*tests.get("updates", ())}

        def other(match):
            option, value = match[1], int(match[2])
            if option == "seed":
                return f"--seed {draw.randrange(1, 2**31)}"
            if option not in known or not value:
                return match[0]
            most = value if option == self.items else value + value // 2 + 2
            return f"--{option} {draw.randint(max(1, value // 2), most)}"

        def is_clear(case):
            with contextlib.suppress(Wrong):
                return all(item.bound == 0 or MARGIN * item.error <= item.bound
                           for stage in self.ours for item in tester.compare(
                               Program(stage.program), case, verify.AS_IT_IS)[1])
            return False

        cases = []
        with tempfile.TemporaryDirectory() as folder:
            tester = verify.Tester(self.ladder, "check", Path(folder))
            while len(cases) < CASES:
                size = draw.choice(tests.get("sizes", [""]))
                case = tests["cases"][len(cases) % len(tests["cases"])]
                case = re.sub(r"--([a-z-]+) (\d+)(?![\d.])", other, f"{size} {case}".strip())
                cases += [case] * is_clear(case)
        seeds = [draw.randrange(1, 2**31) for _ in range(2 * ROUNDS)]
        quoted = "".join(f'    "{case}",\n' for case in cases)
        rows.write(path, "# What submissions are checked with, and the seeds of the timed runs. "
                   f"Keep it to yourself.\ncases = [\n{quoted}]\nseeds = {seeds}\n")
        return {"cases": cases, "seeds": seeds}

    def words(self, count, seed):
        """The command line of a timed run."""
        options = {**self.options, **({self.rounds: count} if self.rounds else {}),
                   **({"seed": seed} if "seed" in self.ladder.settings else {})}
        return [*(word for option, value in options.items() if option != "runs"
                  for word in self.ladder.words_of(option, value)), *self.last]

    def build(self, source, sandbox):
        """Builds a submission in a copy of what the ladder's stages share. Returns the program."""
        tree, ladder = sandbox.folder / "tree", self.ladder
        inside = ladder.folder.relative_to(ROOT)
        for name in ("common", "sim"):
            shutil.copytree(ROOT / name, tree / name,
                            ignore=shutil.ignore_patterns("*.o", "*.flags", "build"))
        stage = tree / inside / NAME
        stage.mkdir(parents=True)
        for path in (*ladder.folder.glob("*.[ch]"), ladder.file):
            if path.name != "reference.c":
                shutil.copy(path, tree / inside)
        makefile = (self.begin.folder / "Makefile").read_text(encoding="utf-8")
        (stage / "Makefile").write_text(makefile, encoding="utf-8")
        shutil.copy(source, stage / source.name)
        goal = ["sim"] if source.suffix == ".cu" else []
        status, errors, _ = sandbox.run(
            ["make", "--no-print-directory", "-s", "-C", f"/tree/{inside}/{NAME}", *goal], BUILD_S,
            (tree, "/tree"), environment={name: os.environ[name] for name in ("MARCH",)
                                          if name in os.environ})
        program = stage / (ladder.program + ".sim" * bool(goal))
        if status or not program.is_file() or program.is_symlink():
            raise Wrong("does not build:\n" + "\n".join(errors.splitlines()[:20]).replace(
                f"/tree/{inside}/{NAME}/", ""))
        return program

    def time(self, grader, program):
        """{column: value} of what a submission takes by our clock, and its marks. Each round has a
        run of no epoch and one of many, of both programs. What the many take more is the training,
        whatever the programs say of it."""
        threads, sides = self.toml["threads"], (program, self.against.program)
        running.ceiling()
        count = self.lengthen(grader, program, threads)
        found, others = [], running.watch_others()
        for number, seed in enumerate(self.key["seeds"]):
            used, rate = running.watch_others(), running.rate(threads)
            both = {}
            for side in ((0, 1), (1, 0))[number % 2]:
                none = grader.timed(sides[side], self.words(0, seed), threads) if self.rounds else (
                    0, {}, None)
                both[side] = none, grader.timed(sides[side], self.words(count, seed), threads)
            record = {"threads": threads, "rate": rate, "others": round(used(), 1)}
            self.compare_results(*both[0][1][1:], *both[1][1][1:], both[1][0][2])
            fixed = min(both[0][0][0], FIXED * both[1][0][0])
            found.append((record, both[0][1][0] - fixed, both[1][1][0] - both[1][0][0],
                          both[0][1][1][self.ladder.time], both[1][1][1]))
            best = rows.best_rates([each[0] for each in found])
            kept = [each for each in found if not rows.is_disturbed(each[0], best)
                    and min(each[1:3]) > 0]
            if len(kept) == ROUNDS:
                break
        why = running.why_no_verdict(others())
        if why or len(kept) < pairs.FEWEST:
            raise Busy(why or f"the machine was disturbed in {len(found) - len(kept)} of "
                       f"{len(found)} rounds")
        _, ours, theirs, own, trusted = zip(*kept)
        ratio = pairs.ratio(ours, theirs)
        work = sum(self.ladder.work(trusted[0], phase, "operations") or 0
                   for phase in self.ladder.phases)
        parts = [work / seconds / (each["rate"] * 1e9 / self.ladder.width)
                 for (each, seconds, *_) in kept]
        marks = []
        allowed = median(row[self.ladder.time] / seconds for row, seconds in zip(trusted, theirs))
        if median(own) < (1 - BEHIND) * allowed * median(ours) - BEHIND_S:
            marks.append(f"its own clock says {median(own):.3g} s, ours {median(ours):.3g} s")
        if median(parts) > 1:
            marks.append("above the ceiling: it does not do all the work that is counted")
        return {"of_ceiling": round(100 * median(parts), 1) if work else "",
                "times": round(ratio.median, 3), "low": round(ratio.low, 3),
                "high": round(ratio.high, 3), "seconds": round(median(ours), 4),
                "own_seconds": round(median(own), 4)}, marks

    def lengthen(self, grader, program, threads):
        """How many epochs take SHORTEST seconds, and some more, so that nobody knows how many."""
        if not self.rounds:
            return 1
        def shortest(count):  # of two: what disturbs one run makes it longer
            return min(grader.timed(program, self.words(count, self.key["seeds"][0]), threads)[0]
                       for _ in range(2))
        count, none = 1, shortest(0)
        while (took := shortest(count) - none) < SHORTEST:
            count = math.ceil(count * min(10, 1.5 * SHORTEST / max(took, 0.01)))
        return count + random.SystemRandom().randint(0, 1 + count // 8)

    def compare_results(self, row, saved, trusted, right, before):
        """Ends the test of a submission that does not compute in a timed run what the other stage
        does. Some rounding has spread by then, so this is not exact."""
        differs = running.difference(row, trusted, self.ladder)
        if differs:
            column, value, other = differs
            raise Wrong(f"in a timed run, {column} is {value:g}, and {other:g} in "
                        f"{self.against.name}")
        if right is None:
            return
        if saved is None or saved.size != right.size:
            raise Wrong("in a timed run, it did not save its result")
        moved = np.linalg.norm(right.astype(float) - (0 if before is None else before))
        if not np.linalg.norm(saved.astype(float) - right) <= FAR * moved:
            raise Wrong(f"in a timed run, its result is not that of {self.against.name}")

    def points(self, row, source):
        """Points of a right submission: linear between those of the assignment."""
        lines = self.toml.get("lines")
        if lines:
            text = re.sub("//.*", "", source.read_text(encoding="utf-8", errors="replace"))
            found = sum(bool(re.search(lines["pattern"], line)) for line in text.splitlines())
            return self.toml["right"] + lines["points"] * (found <= lines["most"])
        curve = self.toml["points"]
        value = row.get("of_ceiling" if self.toml["measure"] == "ceiling" else "times", "")
        gained = float(np.interp(value, *zip(*curve), left=0)) if curve and value != "" else 0
        return round(self.toml["right"] + gained, 1)

    @property
    def most(self):
        return self.toml["right"] + max([
            self.toml.get("lines", {}).get("points", 0),
            *(points for _, points in self.toml["points"])])


class Busy(Exception):
    """Why times say nothing."""


def find_source(folder, ladder):
    """The source of the submission in a folder: there, or in the only stage of its own."""
    names = [f"{ladder.program}.c", f"{ladder.program}.cu"]
    inside = ladder.folder.relative_to(ROOT)
    found = [folder / name for name in names if (folder / name).exists()] or [
        path for pattern in (f"{inside}/[2-9][0-9]*_*", "[2-9][0-9]*_*") for name in names
        for path in sorted(folder.glob(f"{pattern}/{name}"))]
    if len(found) != 1:
        names_found = " ".join(str(path.relative_to(folder)) for path in found)
        raise Wrong(f"found {names_found or 'nothing'}, expected one {' or '.join(names)}, there "
                    f"or in {inside}/20_NAME")
    path = found[0].resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file() or \
            path.stat().st_size > MOST_BYTES:
        raise Wrong(f"{found[0].relative_to(folder)}: expected a file of at most "
                    f"{MOST_BYTES >> 20} MiB")
    return path


def nearest(source, ladder):
    """(stage, percent): which stage has the most of its lines."""
    def lines(path):
        text = re.sub(r"//.*", "", path.read_text(encoding="utf-8", errors="replace"))
        return [line.strip() for line in text.splitlines() if len(line.strip()) > 1]
    mine = lines(source)
    return max(((sum(block.size for block in difflib.SequenceMatcher(
        None, mine, lines(stage.source), autojunk=False).get_matching_blocks()), stage.name)
        for stage in ladder.stages), key=lambda each: each[0])[::-1], len(mine)


def written(source):
    """How many sections of its README are written."""
    readme = source.with_name("README.md")
    if not readme.is_file() or readme.is_symlink() or readme.stat().st_size > MOST_BYTES:
        return f"0/{len(step.SECTIONS)}"
    _, *parts = re.split(r"^## (.*)\n", readme.read_text(encoding="utf-8", errors="replace"),
                         flags=re.MULTILINE)
    have = {name.strip() for name, text in zip(parts[::2], parts[1::2])
            if text.strip() not in ("", "(Not written yet.)")}
    return f"{sum(name in have for name in step.SECTIONS)}/{len(step.SECTIONS)}"


def grade(session, name, folder, source):
    """(the row of a submission, what is said of it)."""
    row = {"name": name, "assignment": session.name, "source": digest(source), "points": 0,
           "began": time.strftime("%FT%TZ", time.gmtime()), "readme": written(source)}
    (stage, lines), count = nearest(source, session.ladder)
    row["nearest"] = f"{stage} {100 * lines // max(1, count)} %"
    with tempfile.TemporaryDirectory(dir=folder) as own, tempfile.TemporaryDirectory(
            dir=folder) as private, contextlib.redirect_stdout(io.StringIO()) as said:
        sandbox = Sandbox(Path(own), session.toml["memory"], source.suffix == ".cu")
        marks, grader = [], None
        try:
            program = Program(session.build(source, sandbox))
            program.ladder, program.name = session.ladder, NAME
            grader = Graded(session, Path(private), sandbox)
            grader.probe(program, session.seconds)
            tests = grader.test_until_wrong(program)
            row["result"] = "right"
            said.write(f"It is right in {tests} tests.\n")
            if source.suffix != ".cu":
                timed, marks = session.time(grader, program.path)
                row |= timed
            row["points"] = session.points(row, source)
        except Wrong as wrong:
            row["result"] = "wrong"
            said.write(f"WRONG{f' with {grader.now}' if grader and grader.now else ''}: {wrong}\n")
        except SystemExit as end:  # a Checker has found a mistake, and has said which
            row["result"] = "wrong"
            said.write(getattr(end, "line", ""))
        except (ValueError, csv.Error) as error:
            row["result"] = "wrong"
            said.write(f"WRONG: its row or its result cannot be read: {error}\n")
        if sandbox.outside:
            marks.append("it wrote outside of its folder: "
                         + " ".join(sorted(sandbox.outside)[:5]))
    row["marks"] = ladders.printable("; ".join(marks))
    return row, said.getvalue()


def page(session, row, said):
    """What a student gets: Markdown."""
    toml = session.toml
    lines = [f"# {row['name']}: {toml['title']}", "",
             f"**{row['result']}, {row['points']:g} of {session.most:g} points**", "",
             "```", *said.strip().splitlines(), "```", ""]
    if "times" in row:
        lines += [
            f"- {row['times']} times as fast as {session.against.name} "
            f"({row['low']} to {row['high']})",
            f"- {row['seconds']} s by our clock, {row['own_seconds']} s by its own",
            *([f"- {row['of_ceiling']} % of the ceiling of {toml['threads']} "
               f"thread{'s' * (toml['threads'] > 1)}"] if row["of_ceiling"] != "" else [])]
    lines += [f"- marked: {mark}" for mark in row["marks"].split("; ") if mark]
    curve = ", ".join(f"{points:g} for {value:g}" for value, points in toml["points"])
    if "lines" in toml:
        curve = "{points:g} if at most {most} lines have {pattern}".format(**toml["lines"])
    unit = "percent of the ceiling" if toml["measure"] == "ceiling" else \
        f"times the speed of {session.against.name}"
    lines += [f"- nearest stage by its lines: {row['nearest']}",
              f"- sections of its README: {row['readme']}",
              f"- points: {toml['right']:g} for a right program"
              + f"; then {curve}" * bool(curve)
              + f" {unit}, and in proportion between" * bool(toml["points"]), ""]
    return "\n".join(lines)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def submissions(given, folder, ladder):
    """(name, folder) of each, in turn. An address of a list is cloned when it is its turn."""
    if given.is_dir():
        try:
            find_source(given, ladder)
            alone = True
        except Wrong:
            alone = not any(path.is_dir() for path in given.iterdir()) or (
                given / ladder.folder.relative_to(ROOT)).is_dir()
        for path in [given.resolve()] if alone else sorted(given.iterdir()):
            if path.is_dir() and not path.name.startswith("."):
                yield path.name, path
        return
    for number, line in enumerate(rows.read_lines(given)):
        *name, address = line.split() or [""]
        if not address or line.startswith("#"):
            continue
        name = "-".join(name) or "-".join(address.removesuffix(".git").rstrip("/").split("/")[-2:])
        target = folder / f"clone-{number}"
        cloned = subprocess.run(
            ["git", "-c", "core.symlinks=false", "-c", "protocol.ext.allow=never", "clone", "-q",
             "--depth=1", "--", address, target], check=False, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
        if cloned.returncode:
            ladders.say(f"{name}: {(cloned.stderr.splitlines() or ['git failed'])[-1]}; it has no "
                        "grade yet")
            continue
        yield name, target
        shutil.rmtree(target)


def read_done(path):
    if not path.exists():
        return []
    found = list(csv.DictReader(io.StringIO(rows.read(path))))
    if found and [*found[0]] != [*COLUMNS]:
        fail(f"{path}: line 1: found other columns than {','.join(COLUMNS)}; take another OUT")
    return found


def main():
    given, wanted, key, out, *_ = [*sys.argv[1:], "", "", "", ""]
    known = sorted(path.stem for path in ASSIGNMENTS.glob("*.toml"))
    if wanted not in known:
        fail(f"ASSIGNMENT: found '{wanted}', expected {shape.nearest(wanted, known)}")
    given, out = Path(given), Path(out or "grades")
    if not given.name or not given.exists():
        fail(f"FROM: found '{given}', expected a submission, a folder of them, or a file of git "
             "addresses")
    out.mkdir(parents=True, exist_ok=True)
    key, table = Path(key) if key else out / f"{wanted}.key.toml", out / "grades.csv"
    done = {(row["name"], row["assignment"], row["source"]) for row in read_done(table)}
    waiting = 0
    with tempfile.TemporaryDirectory(prefix="grade-") as folder:
        folder = Path(folder)
        Sandbox(folder, 4096).check()
        session = Session(ASSIGNMENTS / f"{wanted}.toml", key, out, folder)
        for name, place in submissions(given, folder, session.ladder):
            name = re.sub(r"[^\w.-]", "_", name)
            try:
                source = find_source(place, session.ladder)
                if (name, wanted, digest(source)) in done:
                    print(f"{name}: has its grade")
                    continue
                row, said = grade(session, name, folder, source)
            except Busy as why:
                ladders.say(f"{name}: not graded: {why}")
                waiting += 1
                continue
            except Wrong as wrong:
                row = {"name": name, "assignment": wanted, "result": "nothing to grade",
                       "source": "", "points": 0, "marks": "", "nearest": "-", "readme": "-"}
                if (name, wanted, "") in done:
                    continue
                said = str(wrong)
            new = not table.exists()
            with table.open("a", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, COLUMNS)
                if new:
                    writer.writeheader()
                writer.writerow(row)
            rows.write(out / f"{name}.{wanted}.md", page(session, row, said))
            print(f"{name}: {row['result']}, {row['points']:g} of {session.most:g} points"
                  + f" (marked: {row['marks']})" * bool(row["marks"]), flush=True)
    sys.exit(waiting > 0)
