"""Tests what the programs draw on a terminal."""

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
        lines, screen = output.decode().replace("\x1b[K", "").splitlines(), []
        for line in output.decode().removesuffix("\n").split("\n"):
            shown = ""
            for part in line.split("\r"):  # each is written over the one before, or erases it
                erases = part.startswith("\x1b[K")
                shown = part[3:] if erases else part + shown[len(part):]
            screen.append(shown.rstrip())
        return screen, lines

    return on_terminal


# The first stage of each ladder that trains by epochs, and one with threads. Some ladders have a
# row for each epoch, with more in its line.
TRAINING = [ladder for ladder in ladders.ladders() if "learning-rate" in ladder.settings]
FOLDERS, SHORT = (["stages/02_openmp", *(
    str(ladder.stages[0].folder.relative_to(ROOT)) for ladder in TRAINING
    if not (is_short and ladder.epochs))] for is_short in (False, True))


def count(pattern, lines):
    return sum(bool(re.search(pattern, line)) for line in lines)


@pytest.mark.parametrize("folder", SHORT)
def test_after_an_epoch_of_more_than_two_seconds_it_says_how_long_the_next_takes(start, folder):
    screen, drawn = start(folder, "--hidden 3 --threads 1")
    # Each epoch looks at the clock 13 times, and its report twice.
    assert [re.sub("loss .*", "loss", line) for line in drawn if line.startswith("epoch")] == [
        "epoch 1 of 3: loss", "epoch 2 of 3 takes about 4 s, the rest 4 s",
        "epoch 2 of 3: loss", "epoch 3 of 3 takes about 4 s",
        "epoch 3 of 3: loss"]
    # What passes between the two looks of a report, a quarter of a second, is in no time.
    assert count("train 10.750 s, forward 4.500 s,$", screen)
    # Nothing of it stays.
    assert count(r"^epoch . of 3: loss [0-9.]*$", screen) == 3 and not count("takes", screen)


@pytest.mark.parametrize("folder", {*FOLDERS} - {*SHORT})
def test_a_message_that_ends_the_run_takes_the_place_of_that_line(start, folder):
    screen, drawn = start(folder, "--epochs-csv /dev/full")
    assert count("^epoch 2 of 3 takes about 3 s, the rest 3 s$", drawn)
    assert re.fullmatch("[0-9a-z_]*: --epochs-csv: cannot write /dev/full: .*saved", screen[-1])


def test_no_progress_in_a_fast_epoch_with_quiet_or_in_a_file(start):
    assert not count("takes", start("stages/00_serial", "--hidden 3 --train 3")[1])
    assert count("^(?!    )", start("stages/00_serial", "--hidden 3 --quiet")[0]) == 1
    start("stages/00_serial", "--hidden 3")
    assert not re.search("takes|[\r\x1b]", start.stage.succeeds())


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
    assert not count("takes|^    |\x1b", start("stages/00_serial", "--hidden 3", TERM="dumb")[1])


# Each look at the clock is three seconds after the one before. The host looks once an epoch.
def test_after_an_epoch_of_a_cuda_stage_it_says_how_long_the_next_takes(start):
    _, drawn = start("stages/04_cuda_device_mem", "--hidden 3 --batch 4 --epochs 4", LOOK="12")
    assert [re.sub("loss .*", "loss", line) for line in drawn if line.startswith("epoch")] == [
        "epoch 1 of 4: loss", "epoch 2 of 4 takes about 3 s, the rest 6 s",
        "epoch 2 of 4: loss", "epoch 3 of 4 takes about 3 s, the rest 3 s",
        "epoch 3 of 4: loss", "epoch 4 of 4 takes about 3 s",
        "epoch 4 of 4: loss"]
