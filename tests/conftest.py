"""A made-up repository for the tests of bench/: a ladder of one cell, whose programs only
pretend. Each is a shell script that ends with a row, and a test says what it does before."""

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import pytest
from programs import LIMIT_S, copy, hear_interrupts, rows, script, told

import report.terminal  # noqa: F401 - what it imports stays imported in run_here()
from data import mnist

SWEEP = "python3 -m bench report.run_all --output results"
REPOSITORY = Path(__file__).resolve().parent.parent

LADDER = """
title = "Made up"
program = "run"
time = "time_s"
data = "../data/mnist.py"
phases = ["forward", "backward"]
[[axes]]
option = "batch"
name = "Batch size"
values = [4]
[[axes]]
option = "hidden"
name = "hidden units"
values = [8]
[settings]
epochs = 5
pace = 0.1
[[measures]]
column = "time_s"
title = "Training time"
unit = "s"
"""

# It notes its call. Its options are variables, which its commands may use and set.
PROGRAM = """#!/bin/sh
stage={name} device=cpu dataset=mnist batch=4 hidden=8 epochs=5 pace=0.1 exact=0
load_s=0.1 setup_s=0.01 time_s=0.4 phase_s=0.1 loss=0.3 threads=${{OMP_NUM_THREADS:-1}}
echo "$0 $*" >>calls
while [ $# -gt 0 ]; do
    case $1 in
    --quiet) ;;
    --exact) exact=1 ;;
    *) eval "${{1#--}}=\\$2"; shift ;;
    esac
    shift
done
add_row() {{ # FILE HEADER ROW
    [ -s "$1" ] || echo "stage,device,threads,batch,hidden,epochs,pace,exact,dataset,$2" >>"$1"
    echo "$stage,$device,$threads,$batch,$hidden,$epochs,$pace,$exact,$dataset,$3" >>"$1"
}}
{commands}
add_row "$csv" load_s,setup_s,time_s,forward_s,backward_s,loss,gflops,peak_rss_mib,peak_vram_mib \\
    "$load_s,$setup_s,$time_s,$phase_s,$phase_s,$loss,1.5,100.0,"
"""

MACHINE = """#!/bin/sh
case $1 in
--name) echo made-up ;;
*) printf '%s\\n' 'cpu: Made up' caches: "threads: $(nproc)" "variables: $OMP_NUM_THREADS" ;;
esac
"""


def wait_until(is_so, process):
    """Waits for an event that a process brings about."""
    begin = time.monotonic()
    while not is_so():
        assert process.poll() is None and time.monotonic() < begin + LIMIT_S, said(process)
        time.sleep(0.01)


def said(process):
    """What a process has said so far, on both of its outputs."""
    process.output.seek(0)
    return process.output.read().decode()


def pretend(rounding_s):
    """What programs of bench/ measure, in this process: a run is disturbed as the file `others`
    says, and the programs, which take no time, may say so much more than they take."""
    from bench import clocks, host, sweep

    clocks.ROUNDING_S = rounding_s
    host.watch_others = lambda: lambda: float(Path("others").read_text())
    sweep.PAUSE_S = 0


def run_here(words, environment, rounding_s):
    """Runs a program of bench/ in this process, which is a fork of pytest's, and ends it: to
    import pandas would take longer than a sweep. Modules of the repository are those of the
    working directory."""
    os.closerange(3, 256)  # so that subprocess knows that the program has begun
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    for name in [*sys.modules]:
        if name.split(".")[0] in ("bench", "report", "data"):
            del sys.modules[name]
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    sys.path.insert(0, os.getcwd())
    status = 1
    try:
        pretend(rounding_s)
        runpy.run_path("bench/__main__.py", run_name="__main__")
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
    if isinstance(status, str):
        print(status, file=sys.stderr)
    sys.stdout.flush()
    os._exit(status if isinstance(status, int) else 1)


class Tree:
    """The repository. A test's working directory is its root."""

    def __init__(self, root):
        self.root = root
        self.results = root / "results"
        self.rounding_s = 1e9
        self.environment = {name: value for name, value in os.environ.items() if not re.match(
            "G?OMP_|MNIST_DIR|MAKE(FLAGS|LEVEL)|NVCC|MARCH|CC$|DEBIAN_FRONTEND|PYTHON",
            name)}
        self.environment |= {"TMPDIR": str(root / "tmp"), "MNIST_DIR": str(root / "digits")}

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def script(self, path, commands):
        return script(self.root / path, commands)

    def data(self, folder):
        """Files that are called as those of the data."""
        for name in mnist.SHA256:
            self.write(f"{folder}/{name.removesuffix('.gz')}", "")

    def edit(self, path, old, new):
        text = (self.root / path).read_text()
        assert old in text
        self.write(path, text.replace(old, new))

    def stage(self, name, commands="", source="run.c", ladder="stages"):
        """Makes a stage, or changes what its program does."""
        folder = f"{ladder}/{name}"
        self.write(f"{folder}/{source}", "")
        self.write(f"{folder}/Makefile", "run: ;\n")
        self.script(f"{folder}/run", PROGRAM.format(name=name, commands=commands))

    def start(self, words, **variables):
        """Starts a command in a session of its own, as from a terminal: Ctrl-C ends it."""
        words, environment = shlex.split(words), self.environment | variables
        is_bench = words[:3] == ["python3", "-m", "bench"]
        words[0] = sys.executable if is_bench else words[0]

        def prepare():
            hear_interrupts()
            if is_bench:
                run_here(words[2:], environment, self.rounding_s)
        # Not a pipe: what a program wrongly leaves behind would hold it open.
        output = tempfile.TemporaryFile()  # noqa: SIM115 - end() reads it
        process = subprocess.Popen(
            words, cwd=self.root, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=environment, preexec_fn=prepare, start_new_session=True)
        process.output = output
        return process

    @staticmethod
    def end(process, status=0):
        """What a command prints, if it ends with this status."""
        code = process.wait(LIMIT_S)
        assert (128 - code if code < 0 else code) == status, said(process)
        return said(process)

    def run(self, words, status=0, **variables):
        return self.end(self.start(words, **variables), status)

    def sweep(self, words="", status=0, **variables):
        """Sweeps into results/, and once where nothing else is said."""
        repeats = "" if "--repeats" in words else "--repeats 1 "
        return self.run(f"{SWEEP} {repeats}{words}", status, **variables)

    def rows(self, columns, path="results/runs.csv"):
        """These columns of all rows, such as "00_one,8 01_two,8"."""
        found = rows(path) if Path(path).exists() else []
        return " ".join(",".join(row[column] for column in columns.split()) for row in found)

    def counts(self, columns="stage", path="results/runs.csv"):
        """{columns: how many rows have them}"""
        return dict(Counter(self.rows(columns, path).split()))

    def notes(self):
        """{program: what became of it in its last sweep}, of those that did not just run."""
        last = {row["program"]: row for row in rows("results/programs.csv")}
        return {name: f"{row['outcome']}: {row['reason']}" for name, row in last.items()
                if row["outcome"] != "ran"}

    def calls(self):
        """The command lines of all programs so far."""
        return Path("calls").read_text().splitlines() if Path("calls").exists() else []


@pytest.fixture(scope="session")
def made_up(tmp_path_factory):
    """The repository that each test has a copy of."""
    tree = Tree(tmp_path_factory.mktemp("repository"))
    shutil.copytree(REPOSITORY / "bench", tree.root / "bench",
                    ignore=shutil.ignore_patterns("__pycache__", "build", "env"))
    shutil.copytree(REPOSITORY / "report", tree.root / "report",
                    ignore=shutil.ignore_patterns("__pycache__", "results", "site", "*.svg"))
    tree.write("others", "0")
    tree.write("bench/machine/Makefile", "build/ceiling: ;\n")
    tree.script("bench/machine/build/ceiling", "echo 1e11")
    shutil.copytree(REPOSITORY / "setup", tree.root / "setup",
                    ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(REPOSITORY / "run_all.sh", tree.root)
    tree.write("Makefile", "stages/%: FORCE\n\t@$(MAKE) -C $@\nstudies/%: FORCE\n\t@$(MAKE) -C $@\n"
               "FORCE:\n")
    tree.write("stages/ladder.toml", LADDER)
    for path in ("data/mnist.py", "data/locate.py", "common/flags.mk"):
        tree.write(path, (REPOSITORY / path).read_text())
    tree.data("digits")
    tree.script("bench/machine.sh", MACHINE)
    tree.write("tmp/empty", "")
    tree.run(f"{sys.executable} -m compileall -q bench report data")
    return tree


@pytest.fixture
def tree(made_up, tmp_path, monkeypatch):
    root = tmp_path / "repository"
    shutil.copytree(made_up.root, root)
    monkeypatch.chdir(root)
    tree = Tree(root)
    tree.stage("00_one")
    tree.stage("01_two")
    return tree


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A copy of the checkout, with its uncommitted changes, in a path with a space and a letter
    that is not English."""
    root = tmp_path / "a bé"
    copy(root)
    monkeypatch.chdir(root)
    tree = Tree(root)
    tree.environment |= {"NVCC": "no-nvcc", "TMPDIR": str(tmp_path), **told()}
    return tree
