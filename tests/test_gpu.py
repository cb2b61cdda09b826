"""Tests `make gpu` with fakes: what it runs, in which order, and what becomes of a part that fails
or runs out of time. test_stages.py runs CUDA stages on the simulated device."""

import os
import re
import signal
from pathlib import Path

import pytest
from conftest import REPOSITORY, wait_until

PARTS = "build test once steps grid profile report"


@pytest.fixture(autouse=True)
def parts(tree):
    """What the parts call notes its call, and a part of run_all.sh runs the commands of `part`."""
    for name in ("03_a", "03.1_step"):
        tree.stage(name, source="run.cu")
    for path in ("harness/gpu.sh", "harness/machine.sh"):
        tree.script(path, (REPOSITORY / path).read_text())
    tree.write("stages/peers/peer", "")
    tree.script("bin/nvidia-smi", "echo GPU 0")
    tree.script("bin/make", 'echo "make $*" >>calls; [ "$*" != "$FAILING" ]')
    tree.script("run_all.sh", 'echo "run_all.sh $*" >>calls; . ./part')
    tree.write("part", "")
    tree.environment["PATH"] = f"{tree.root}/bin:{os.environ['PATH']}"


def test_all_parts(tree):
    """In the order of their worth, the steps without a profile. One that fails does not stop the
    next."""
    output = tree.run("harness/gpu.sh", 1, SWEEP="--hidden 32", FAILING="test-gpu")
    assert tree.calls() == [
        f"make --jobs={len(os.sched_getaffinity(0))} --keep-going all",
        "make --keep-going -C stages/peers", "make test-gpu",
        "run_all.sh --gpu --repeats 1 --hidden 32", "run_all.sh --gpu --steps --resume --hidden 32",
        "run_all.sh --gpu --peers --resume --hidden 32",
        "make profile-gpu RESULTS=profiles STAGE=03_a", "make report"]
    said = re.findall(r"^(\w+): \d+ s, (\w+)", output, re.MULTILINE)
    assert said == [(name, "failed" if name == "test" else "done") for name in PARTS.split()]
    limits = [*map(int, re.findall(r": at most (\d+) s", output))]
    assert max(limits) < 540 and sum(limits) < 25 * 60


def test_chosen_parts(tree):
    tree.run("harness/gpu.sh test report")
    assert tree.calls() == ["make test-gpu", "make report"]
    assert tree.run("harness/gpu.sh 9", 2) == (
        f"gpu.sh: PART: found '9', expected one of: {PARTS}\n")
    tree.script("bin/nvidia-smi", "exit 9")
    assert tree.run("harness/gpu.sh", 77) == "gpu.sh: found no GPU (nvidia-smi lists none)\n"


def test_an_end(tree):
    """A part whose time runs out may end what it does, and the next begins. A signal ends all."""
    tree.write("part", 'trap "echo kept >>calls; exit 143" TERM; touch begun\n'
               "while :; do sleep 0.1; done")
    tree.edit("harness/gpu.sh", "120 ./run", "1 ./run")
    assert "once: 1 s, time ran out, what it has done is kept" in re.sub(
        r"\d+ s,", "1 s,", tree.run("harness/gpu.sh once report"))
    assert tree.calls() == ["run_all.sh --gpu --repeats 1", "kept", "make report"]
    Path("begun").unlink()
    process = tree.start("harness/gpu.sh steps report")
    wait_until(Path("begun").exists, process)
    process.send_signal(signal.SIGTERM)
    tree.end(process, 130)
    assert tree.calls()[3:] == ["run_all.sh --gpu --steps --resume", "kept"]
