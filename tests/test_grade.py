"""Tests `make grade` with submissions: a good one, a slow one, and those that try to get points."""

import csv
import os
import re
import subprocess

import pytest
from programs import copy, run

from harness.grade import Sandbox

SANDBOX = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]


def has_sandbox():
    try:
        return subprocess.run(SANDBOX, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not has_sandbox(), reason="bwrap makes no sandbox here")

ASSIGNMENT = """
title = "Tried"
start = "00_serial"
against = "01_vectorized"
measure = "ceiling"
seconds = 4
right = 2
points = [[0, 0], [50, 8]]
[run]
hidden = 32
batch = 32
train = 640
"""
# What is put before the last line of 01's main() that matches: a pattern, and its replacement.
LOAD = r"    int status = load_data"
KNOWN = " && ".join(f"options.hidden != {size}" for size in (1, 7, 32, 33, 100))  # to `make check`
SUBMISSIONS = {
    "good": ("(?!)", ""),
    "wrong": (r".*bias2 -= learning_rate.*\n", ""),
    "clock": (r"result->train_s = seconds\(\) - start", r"\g<0>, result->train_s /= 1000"),
    "sizes": (LOAD, f"    if ({KNOWN})\n        options.learning_rate *= 2;\n" r"\g<0>"),
    "outside": (LOAD, r'    FILE *note = fopen("/home/note", "w");\n    if (note)\n'
                      r'        fclose(note);\n    if (fopen("../../README.md", "r"))\n'
                      r'        exit(3);\n\g<0>'),
    "endless": (LOAD, r"    for (volatile int i = 0;; ++i)\n        ;\n\g<0>"),
}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A copy of the repository, and a folder with the submissions."""
    root = copy(tmp_path_factory.mktemp("course") / "copy")
    (root / "assignments/tried.toml").write_text(ASSIGNMENT)
    harness = root / "harness/grade.py"
    text = harness.read_text()
    for old, new in (("SHORTEST, ROUNDS = 0.4, 12", "SHORTEST, ROUNDS = 0.1, 8"),
                     ("CASES = 8", "CASES = 5")):
        assert old in text
        text = text.replace(old, new)
    harness.write_text(text)
    origin = (root / "stages/01_vectorized/train.c").read_text()
    for name, (pattern, new) in SUBMISSIONS.items():
        folder = root / "handed_in" / name
        folder.mkdir(parents=True)
        (folder / "train.c").write_text("#include <stdio.h>\n" + re.sub(
            pattern, new, origin, flags=re.M))
    return root


def grade(course, words="FROM=handed_in", status=0):
    said = run(f"make -s grade ASSIGNMENT=tried {words}", status, cwd=course, OTHERS=100, RATE=0)
    return said.stdout + said.stderr


def table(course):
    with open(course / "grades/grades.csv", newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def test_submissions(course):
    grade(course)
    rows = table(course)
    assert {name: row["result"] for name, row in rows.items()} == {
        "good": "right", "wrong": "wrong", "clock": "right", "sizes": "wrong",
        "outside": "right", "endless": "wrong"}
    assert float(rows["good"]["points"]) > 3
    # The tests run side by side, so a time may be twice as long, and a good clock be doubted. The
    # false one says a thousandth.
    assert re.fullmatch("(its own clock says .*)?", rows["good"]["marks"])
    assert float(rows["good"]["own_seconds"]) > float(rows["good"]["seconds"]) / 5
    assert float(rows["clock"]["own_seconds"]) < float(rows["clock"]["seconds"]) / 50
    assert all(0.2 < float(rows[name]["times"]) < 5 for name in ("good", "clock", "outside"))
    assert rows["good"]["nearest"] == "01_vectorized 99 %"  # but for a line
    assert re.fullmatch(r"its own clock says .* s, ours .* s", rows["clock"]["marks"])
    assert "/home/note" in rows["outside"]["marks"]
    assert all(float(rows[name]["points"]) == 0 for name in ("wrong", "sizes", "endless"))

    def page(name):
        return (course / f"grades/{name}.tried.md").read_text()
    assert "b2 did not move." in page("wrong")
    assert "hangs, or takes over 4 s" in page("endless")
    assert "WRONG after the first batch" in page("sizes")


def test_the_programs_processor_time_is_ours_and_no_others(tmp_path):
    sandbox = Sandbox(tmp_path, 512)
    (tmp_path / "out").mkdir()
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    for _ in range(4):
        before = sum(os.times()[2:4])
        assert sandbox.run(["python3", "-c", busy], 10, (tmp_path / "out", "/out"))[0] == 0
        assert sum(os.times()[2:4]) - before > 0.4


def test_it_goes_on(course):
    """What has a grade is left out, unless its source has changed. A list has git addresses."""
    before = (course / "grades/grades.csv").read_text()
    assert "good: has its grade" in grade(course)
    assert (course / "grades/grades.csv").read_text() == before
    folder = course / "handed_in/empty"
    folder.mkdir()
    (course / "list.txt").write_text(f"ann {folder}\nbob {course}/nowhere\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder)]
    run([*git, "init", "-q"])
    run([*git, "commit", "-q", "--allow-empty", "-m", "nothing"])
    said = grade(course, "FROM=list.txt")
    assert "ann: nothing to grade, 0 of 10 points" in said and "bob: " in said
    assert "expected one train.c or train.cu" in (course / "grades/ann.tried.md").read_text()


def test_it_says_what_is_wrong(course):
    assert "FROM: found 'x'" in grade(course, "FROM=x", 2)
    said = run("make -s grade FROM=handed_in ASSIGNMENT=no", 2, cwd=course).stderr
    assert "ASSIGNMENT: found 'no', expected one of: above_the_ceiling" in said
    (course / "bin").mkdir()
    (course / "bin/bwrap").write_text("#!/bin/sh\necho no namespaces >&2\nexit 1\n")
    (course / "bin/bwrap").chmod(0o755)
    said = run("/bin/sh -c 'PATH=$PWD/bin:$PATH make -s grade FROM=handed_in ASSIGNMENT=tried'", 2,
               cwd=course).stderr
    assert "so nothing is graded: no namespaces" in said
