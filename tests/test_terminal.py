"""Tests what the programs draw on a terminal while an epoch runs."""

import contextlib
import fcntl
import itertools
import os
import pty
import re
import struct
import subprocess
import termios

import pytest
from programs import ROOT, TESTS, Trainer, built, run

from harness import ladders


@pytest.fixture
def start(tmp_path):
    """start(FOLDER, OPTIONS, COLUMNS) runs a stage on a terminal, where a batch takes half a
    second. It returns the lines that stand there in the end, and those that stood there once."""
    clock = tmp_path / "clock.so"
    run(["gcc", "-shared", "-fPIC", "-o", clock, TESTS / "fake_clock.c"])

    def on_terminal(folder, options="", columns=0, **variables):
        stage, = (stage for ladder in ladders.ladders() for stage in ladder.stages
                  if stage.folder == ROOT / folder)
        on_terminal.stage = stage = Trainer(tmp_path, built(stage),
                                            f"--batch 1 --epochs 3 {options}")
        stage.variables = {"LD_PRELOAD": str(clock), "TERM": "xterm"} | variables
        terminal, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", 0, columns, 0, 0))
        program = subprocess.Popen([stage.program, *stage.options], cwd=tmp_path, stdout=end,
                                   stderr=end, env=os.environ | stage.variables)
        os.close(end)
        output = b""
        with contextlib.suppress(OSError):  # the program has ended
            while part := os.read(terminal, 4096):
                output += part
        os.close(terminal)
        program.wait()
        lines, screen = output.decode().splitlines(), []
        for line in output.decode().removesuffix("\n").split("\n"):
            shown = ""
            for part in line.split("\r"):  # each is written over the one before
                shown = part + shown[len(part):]
            screen.append(shown.rstrip())
        return screen, lines

    return on_terminal


# The first stage of each ladder that trains by epochs, and one with threads. Some ladders have a row
# for each epoch, with more in its line.
TRAINING = [ladder for ladder in ladders.ladders() if "learning-rate" in ladder.settings]
FOLDERS, SHORT = (["stages/02_openmp", *(
    str(ladder.stages[0].folder.relative_to(ROOT)) for ladder in TRAINING
    if not (is_short and ladder.epochs))] for is_short in (False, True))


def count(pattern, lines):
    return sum(bool(re.search(pattern, line)) for line in lines)


@pytest.mark.parametrize("folder", SHORT)
def test_an_epoch_of_more_than_two_seconds_says_how_far_it_is(start, folder):
    screen, drawn = start(folder, "--threads 1")
    # Six batches take three seconds. The first line comes after two, the next a second later.
    # From the second epoch on, the first line comes at once.
    assert {"epoch 1 of 3: 67 %, 1 s left, 7 s left in all",
            "epoch 1 of 3: 100 %, 0 s left, 6 s left in all",
            "epoch 2 of 3: about 3 s left, 6 s left in all",
            "epoch 3 of 3: about 3 s left"} <= {*drawn}
    assert count(" left", drawn) < 15
    # Nothing of it stays.
    assert count(r"^epoch . of 3: loss [0-9.]*$", screen) == 3 and not count(" left", screen)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_progress_goes_before_a_message_that_ends_the_run(start, folder):
    screen, drawn = start(folder, "--learning-rate 3e38")
    assert count("^epoch 1 of 3: 67 %, 1 s left, .* left in all$", drawn)
    assert count("^0[02]_[a-z]*: the loss became", screen)


def test_no_progress_in_a_fast_epoch_with_quiet_or_in_a_file(start):
    assert not count(" left", start("stages/00_serial", "--hidden 3 --train 3")[1])
    assert count("^(?!    )", start("stages/00_serial", "--hidden 3 --quiet")[0]) == 1
    start("stages/00_serial", "--hidden 3")
    assert not re.search(" left|\r", start.stage.succeeds())


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("columns", [0, 50])  # one that does not know its width counts as one of 80
def test_a_line_that_is_too_long_goes_on_in_the_next(start, folder, columns):
    def shape(text):
        return re.sub("  +", " ", re.sub("[0-9.]+", "N", text.strip().replace("\n    ", " ")))

    screen, _ = start(folder, "--threads 1", columns)
    assert max(map(len, screen)) <= (columns or 80) and count("^    [^ ]", screen) >= 3
    # Together, the parts are the lines that a file gets.
    assert shape("\n".join(screen)) == shape(start.stage.succeeds(LD_PRELOAD=None))
    for line, after in itertools.pairwise(screen):
        assert not (after.startswith("    ") and re.match("[^ -].*[^,:]$", line)), line


def test_a_dumb_terminal_gets_the_lines_that_a_file_gets(start):
    assert not count(" left|^    ", start("stages/00_serial", "--hidden 3", TERM="dumb")[1])


# Each look at the clock is three seconds after the one before. The host looks once an epoch, so it
# does not know how long the first one took.
def test_after_a_slow_epoch_of_a_cuda_stage_it_says_how_long_the_next_should_take(start):
    _, drawn = start("stages/04_cuda_device_mem", "--hidden 3 --batch 4 --epochs 4", LOOK="12")
    assert [re.sub("loss .*", "loss", line) for line in drawn if line.startswith("epoch")] == [
        "epoch 1 of 4: loss", "epoch 2 of 4: loss",
        "epoch 3 of 4: about 3 s left, 6 s left in all", "epoch 3 of 4: loss",
        "epoch 4 of 4: about 3 s left", "epoch 4 of 4: loss"]
