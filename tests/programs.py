"""What the tests share that run programs: a tiny data set, and how a program has to end. As a
plugin of pytest it orders the tests."""

import csv
import fcntl
import functools
import os
import re
import shlex
import signal
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from bench import ladders, reference
from data.mnist import write_set as write_images

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
FULL = os.environ.get("FULL")
needs_full = pytest.mark.skipif(not FULL, reason="FULL=1 runs it")

LIMIT_S = 600  # against a hang: no verdict depends on how long something takes
LABELS, TEST_LABELS = (3, 1, 4, 1, 5, 9), (2, 7, 1, 8)


def told(**options):
    """The variables that tell make or bench/ these options, as make's command line does. The
    machine is busy while the tests run: BUSY=1 judges all the same."""
    options = {name: str(value) for name, value in {"BUSY": 1, **options}.items()}
    words = (f"{name}={value}".replace(" ", "\\ ") for name, value in options.items())
    return {"MAKEFLAGS": f"-- {' '.join(words)}", **options}


def run(command, status=0, limit=LIMIT_S, cwd=None, **variables):
    """Runs a command, in words or as one line, which has to end with this status (None: any). The
    result has what it printed. A variable that is None is not set."""
    variables = {**os.environ, **told(), "MNIST_DIR": None, **variables}
    # Not pipes: what a program wrongly leaves behind would hold them open.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        ended = subprocess.run(
            shlex.split(command) if isinstance(command, str) else command, cwd=cwd, timeout=limit,
            env={name: str(value) for name, value in variables.items() if value is not None},
            stdin=subprocess.DEVNULL, stdout=output, stderr=errors, check=False)
        for file in (output, errors):
            file.seek(0)
        ended.stdout, ended.stderr = (file.read().decode(errors="replace")
                                      for file in (output, errors))
    assert status in (None, ended.returncode), (ended.returncode, ended.stdout + ended.stderr)
    return ended


def hear_interrupts():
    """A shell's job in the background ignores Ctrl-C, and so does what it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def pytest_collection_modifyitems(items):
    """What takes longest comes first: the READMEs, which are for one worker, and the stages."""
    places = {"test_readmes.py": 0, "test_stages.py": 1}
    items.sort(key=lambda item: places.get(item.path.name, 2))


@functools.cache
def make(*words):
    """Makes something in the repository, once. Two tests that run side by side never do it at the
    same time. `make test` has made what is in BUILT."""
    if words[-1] in os.environ.get("BUILT", "").split():
        return ""
    with open(Path(tempfile.gettempdir(), f"make-{os.getuid()}-{ROOT.name}"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return run(["make", "--no-print-directory", "-s", *words], cwd=ROOT).stdout


def simulated(stage):
    """A CUDA stage's program for the simulated device."""
    path = f"build/{stage.folder.relative_to(ROOT)}.sim"
    make("-C", "tests", path)
    return TESTS / path


def built(stage):
    """A stage's program. A CUDA stage's is that for the simulated device."""
    if stage.is_cuda:
        return simulated(stage)
    make(str(stage.folder.relative_to(ROOT)))
    return stage.program


def needs_real_data(ladder):
    """Skips a test where the ladder's data are drawn."""
    if Path(ladder.data[1], "SYNTHETIC").exists():
        pytest.skip("found no real data")


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def copy(folder):
    """Copies the checkout with its uncommitted changes, so that a test can change it."""
    run([TESTS / "clean_copy.sh", folder])
    return folder


def commit(folder):
    """Makes such a copy a repository. Returns its commit."""
    for words in "init", "add .", "-c user.name=a -c user.email=a@b commit --quiet -m all":
        run(f"git {words}", cwd=folder)
    return run("git log -1 --format=%h", cwd=folder).stdout.strip()


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def images(count):
    """Some images: the bytes of the numbers from 100000."""
    text = "".join(f"{number}\n" for number in range(100000, 100000 + 112 * count))
    return np.frombuffer(text.encode(), np.uint8).reshape(count, 28, 28)


def write_data(folder, draw=images):
    for name, labels in ("train", LABELS), ("t10k", TEST_LABELS):
        write_images(folder, name, draw(len(labels)), labels)


def csv_lines():
    """The same images as Kaggle writes them, the training images first."""
    rows = [(label, *image.ravel()) for labels in (LABELS, TEST_LABELS)
            for label, image in zip(labels, images(len(labels)))]
    return [",".join(map(str, row))
            for row in [("label", *(f"pixel{k}" for k in range(784))), *rows]]


def drawn_data():
    """A data set of as many images as `make check` trains at most. The 60,000 of MNIST take a
    program 0.2 s to load."""
    return reference.drawn_data(ladders.find_ladder(""), 6400)


class Trainer:
    """A program that trains on a tiny data set, in a folder of its own. Options that come later
    win."""

    def __init__(self, folder, program, options="--hidden 3 --batch 4 --epochs 2"):
        self.folder, self.program, self.variables = folder, program, {}
        self.options = ["--data", "data", *shlex.split(f"--train 6 --test 4 {options}")]
        if not (folder / "data").exists():
            write_data(folder / "data")

    def run(self, options="", status=None, **variables):
        return run([self.program, *self.options, *shlex.split(options)], status, 600, self.folder,
                   **self.variables | variables)

    def succeeds(self, options="", **variables):
        """The run has to say nothing on standard error. Returns what it prints."""
        ended = self.run(options, 0, **variables)
        assert ended.stderr == ""
        return ended.stdout

    def fails(self, status, pattern, options="", **variables):
        """The run has to say why in one line on standard error, which matches the pattern."""
        said = self.run(options, status, **variables).stderr
        assert said.count("\n") == 1 and re.search(pattern, said), said

    def weights(self, options="", **variables):
        """The bytes of the weights that a run saves."""
        self.succeeds(f"{options} --save-weights weights", **variables)
        return (self.folder / "weights").read_bytes()

    def rows(self, name="rows.csv"):
        return rows(self.folder / name)
