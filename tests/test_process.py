"""Tests bench/process.py: what a program says is kept, and what it has started ends with it."""

import subprocess
import time
from pathlib import Path

import pytest
from programs import script

from bench import base, process


@pytest.mark.parametrize("text, status", [
    ("trap '' TERM; sleep 1000 & echo $! >child; wait", process.TOO_SLOW),
    # A child with a group of its own, as mpirun's, and one that outlives its program.
    ("set -m; trap '' TERM; sleep 1000 & echo $! >child; wait", process.TOO_SLOW),
    ("sleep 1000 & echo $! >child", 0)])
def test_no_process_outlives_a_run(monkeypatch, tmp_path, text, status):
    monkeypatch.chdir(tmp_path)
    program = script(tmp_path / "script", f"#!/bin/bash\n{text}\n")
    limit = 1
    while True:  # until the program has come so far
        assert process.run([program], limit if status else None).status == status
        if (tmp_path / "child").exists():
            break
        limit *= 2
    is_gone(int((tmp_path / "child").read_text()))


def is_gone(number):
    """Fails if a process goes on. A busy machine takes its time, and then an entry may be left."""
    child = Path("/proc", str(number), "stat")
    for _ in range(600):
        try:
            if child.read_text().split()[2] in "XZ":
                return
        except OSError:
            return
        time.sleep(0.1)
    pytest.fail("it still runs")


def test_an_interrupt_ends_what_runs(monkeypatch):
    """Wherever it comes while the program runs, and also while it is being ended."""
    def interrupt(*_):
        raise base.Interrupted(130)

    for name in "ends_within", "members":
        with (monkeypatch.context() as patch, pytest.raises(base.Interrupted),
              process.started(["sleep", "1000"]) as program):
            patch.setattr(process, name, interrupt)
            process.ends_within(program, 0)
            interrupt()
        assert program.returncode in (-15, -9)


def test_an_interrupt_ends_what_starts(monkeypatch):
    begun = []

    def start(*words, popen=subprocess.Popen, **options):
        begun.append(popen(*words, **options))
        raise base.Interrupted(130)

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(base.Interrupted):
        process.run(["sleep", "1000"])
    assert not Path("/proc", str(begun[0].pid)).exists()


def test_what_a_program_says_is_kept(monkeypatch):
    """It needs no disk, and nobody waits for what it leaves behind with its outputs open."""
    monkeypatch.setattr("tempfile.tempdir", "/no/such")
    command = ["sh", "-c", "cat; echo no >&2; sleep 1000 & exit 3"]
    assert process.run(command, text="yes")[:3] == (3, "yes", "no")
    assert process.run(["no/such/program"])[:3] == (
        127, "", "cannot start no/such/program: No such file or directory")


def test_a_program_cannot_hide_a_line():
    """By going back over it, or up a line and deleting that."""
    ended = process.run(["printf", r"é\ta\nright\r\033[1A\033[2Kb\302\233"])
    assert ended.out == "é\ta\nright\\r\\x1b[1A\\x1b[2Kb\\x9b"


@pytest.mark.parametrize("command, status, said", [
    ("echo no >&2; exit 2", 2, "no\n"), ("echo no; exit 3", 1, "no\n"),
    ("exit 3", 1, "sh: exit status 3\n")])
def test_a_tool_that_fails_ends_the_program(capsys, command, status, said):
    with pytest.raises(SystemExit) as ended:
        process.output(["sh", "-c", command])
    assert ended.value.code == status and capsys.readouterr().err == said


def test_what_open_mpi_5_adds_is_left_out():
    line, bar = "07_mpi: no\n", "-" * 74
    added = f"[warn] Epoll MOD(4) on fd 20 failed.\n{bar}\nfailed\n{bar}\n[vm:7] PMIX ERROR: no\n"
    assert process.own_words(added + line) == line
    assert process.own_words(f"{bar}\n") == f"{bar}\n"  # one bar is no block
    for status, said in (0, ""), (1, added.rstrip()):
        ended = process.run(["sh", "-c", 'printf "$0" >&2; exit $1', added, str(status)])
        assert (ended.status, ended.err) == (status, said)
