"""Tests bad data, bad arguments and files that cannot be written: the exit status, and one line
with the file or option, what was found and what was expected."""

import gzip
import os
import shlex

import pytest
from programs import FULL, Trainer, built, csv_lines, run, script

from bench import ladders

SERIAL = ladders.find_ladder("").stages[0]
IMAGES, LABELS, TEST_IMAGES, TEST_LABELS = FILES = [
    f"{name}-ubyte" for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3",
                                 "t10k-labels-idx1")]


@pytest.fixture
def serial(tmp_path):
    return Trainer(tmp_path, built(SERIAL))


def damage(data, name, new):
    """Changes a file's bytes, or if the name ends in .gz those of the gzipped file."""
    raw = data / name.removesuffix(".gz")
    old = raw.read_bytes()
    raw.unlink()
    if new is os.mkfifo:
        os.mkfifo(raw)
    elif (changed := new(old if raw.name == name else gzip.compress(old))) is not None:
        (data / name).write_bytes(changed)


def labels(*values):
    return bytes([0, 0, 8, 1, 0, 0, 0, len(values), *values])


WHOLE = "; expected a whole file, raw or gzipped"
DAMAGES = [
    *[(f"{name}.gz", lambda _: None, "No such file or directory; expected MNIST, raw or .gz: see")
      for name in FILES],
    *[(name, lambda _: b"", "truncated: found 0 bytes, expected at least") for name in FILES],
    (IMAGES, os.mkfifo, "truncated: found 0 bytes, expected at least"),  # nobody writes to it
    *[(name, lambda old: old + b"x", "found more than the [0-9]+ bytes its header announces")
      for name in FILES],
    (f"{IMAGES}.gz", lambda old: old[:300], f"unexpected end of file{WHOLE}"),
    (f"{IMAGES}.gz", lambda old: old[:-1], f"unexpected end of file{WHOLE}"),
    (f"{TEST_IMAGES}.gz", lambda old: old[:5], f"unexpected end of file{WHOLE}"),
    (f"{TEST_LABELS}.gz", lambda old: old[:-8] + b"checksum", f"incorrect data check{WHOLE}"),
    *[(f"{IMAGES}.gz", lambda old, more=more: old + more, "found more than a gzip member; expected")
      for more in (b"garbage", b"\0", gzip.compress(b""))],
    (IMAGES, lambda old: old[:15], "truncated: found 15 bytes, expected at least 16$"),
    (LABELS, lambda old: old[:7], "truncated: found 7 bytes, expected at least 8$"),
    (TEST_IMAGES, lambda old: old[:-1], "truncated: found 3151 bytes, expected at least 3152$"),
    (IMAGES, lambda _: labels(*range(99)), r"wrong .*: found 0x0+801, expected 0x0+803 \(images\)"),
    (LABELS, lambda _: b"\0\0\x08\x03    ", r"wrong .*: found 0x0+803, expected 0x0+801 \(label"),
    (IMAGES, lambda old: old[:11] + b"\x20" + old[12:], "found images of 32 x 28, expected 28"),
    (LABELS, lambda _: labels(3, 1, 4, 1, 5, 9, 2), "found 7 labels, expected 6, one for each im"),
    (LABELS, lambda _: labels(3, 1, 4, 1, 5), "found 5 labels, expected 6, one for each image of"),
    (LABELS, lambda _: labels(3, 1, 10, 1, 5, 9), "label 3 is 10, expected 0 to 9$"),
]


@pytest.mark.parametrize(("name", "new", "said"), DAMAGES)
def test_damaged_idx(serial, name, new, said):
    damage(serial.folder / "data", name, new)
    serial.fails(2, f"^data/{name}: {said}")


def test_too_few_images(serial):
    serial.fails(2, f"{IMAGES}: found 6 images, --train expects at least 7$", "--train 7")
    serial.fails(2, f"{TEST_IMAGES}: found 4 images, --test expects at least 5$", "--test 5")
    damage(serial.folder / "data", IMAGES, lambda old: old[:-1])
    serial.fails(2, f"{IMAGES}: truncated", "--train 2")


def cell(line, column, text):
    """Puts a text in a line and a column, counted from 1."""
    def change(lines):
        cells = lines[line - 1].split(",")
        lines[line - 1] = ",".join([*cells[:column - 1], text, *cells[column:]])
    return change


def found(line, column, text):
    return f"^data/train.csv: line {line}, column {column}: found '{text}', expected 0 to "


@pytest.mark.parametrize(("change", "said"), [
    (cell(3, 784, "1,2"), "line 3: found 786 numbers, expected a label and 784 pixels"),
    (lambda lines: lines.__setitem__(2, lines[2].rpartition(",")[0]), "line 3: found 784 numbers"),
    (lambda lines: lines.append("end of file"), "line 12: found 1 numbers"),
    *[(cell(4, 3, text), found(4, 3, text) + "255$")
      for text in ("x", "12x", "", " 1", "-1", "256", "18446744073709551617")],
    (cell(2, 1, "10"), found(2, 1, "10") + "9$"),
    (cell(3, 785, "7\r and more"), found(3, 785, "7\r and more")),
    (lambda lines: lines.pop(0), "line 1: found '3,49,.*', expected the header label,pixel0"),
    (lambda lines: lines.clear(), r"found 0 rows, --train and --test expect at least 6 \+ 4"),
    (lambda lines: lines.pop(), r"found 9 rows, --train and --test expect at least 6 \+ 4"),
    (lambda lines: lines.append("7" * 100000), "line 12: not text, or over 16382 characters"),
    (lambda lines: lines.append("1,\0,2"), "line 12: not text, or over 16382 characters"),
    (lambda lines: gzip.compress("\n".join(lines).encode())[:-1], f"unexpected end of file{WHOLE}"),
    (lambda lines: gzip.compress("\n".join(lines).encode()) + b"7", "found more than a gzip m"),
])
def test_damaged_csv(serial, change, said):
    lines, data = csv_lines(), serial.folder / "data"
    cut = change(lines)
    (data / IMAGES).unlink()
    text = "".join(f"{line}\n" for line in lines).encode()
    (data / "train.csv").write_bytes(cut if isinstance(cut, bytes) else text)
    serial.fails(2, said)


WHOLE_NUMBER = "expected a whole number from"
LONG = "x" * 256
OPTIONS = [
    *[(f"--{name}='{text}'", f"--{name}: found '{text}', {WHOLE_NUMBER} {least} to [0-9]*$")
      for name, least, texts in (("hidden", 1, ("0", "8x", " 8", "", "9" * 20, "2147483648")),
                                 ("batch", 1, ("-1",)), ("epochs", 0, ("abc", "-1")),
                                 ("train", 1, ("0",)), ("test", 1, ("0",)),
                                 ("threads", 1, ("0", "2")),
                                 ("seed", 0, ("-1", "18446744073709551616")))
      for text in texts],
    *[(f"--learning-rate='{text}'", f"--learning-rate: found '{text}', expected a number above 0$")
      for text in ("nan", "inf", "-0.1", "0", "1e99", "0.1x", "\t1", "")],
    *[(f"--{name} {path}", f"--{name}: cannot write {said}; expected a file in a writable dir")
      for name in ("csv", "save-weights")
      for path, said in (("data", "data: Is a directory"), ("no/file", "no/file: No such file.*"),
                         ("gone", "gone: its link leads nowhere"),
                         ("''", "'': No such file.*"), ("new/", "new/: Is a directory"),
                         (LONG, f"{LONG}: File name too long"))],
    ("--csv people", "--csv: people begins with other columns than a result row; exp"),
    ("--save-weights device", "--save-weights: found device, expected a regular file or a new one"),
    *[(f"--save-weights {name}", f"--save-weights: found {name}, a file of --data; expected")
      for name in (f"data/{IMAGES}", "link")],
    ("stray", "found 'stray', expected options only: see --help"),
    *[(f"--csv {name} --save-weights {other}",
       f"--save-weights: found {other}, the same file as --csv; expected")
      for name, other in (("new", "new"), ("new", "./new"), ("rows", "data/../rows"))],
    ("--hidden '4\n'", r"--hidden: found '4\?', expected a whole number from"),
]


@pytest.mark.parametrize(("options", "said"), OPTIONS)
def test_bad_option(serial, options, said):
    """Nothing is left behind, and what was there stays."""
    (serial.folder / "people").write_text("name,age\n")
    (serial.folder / "device").symlink_to("/dev/null")
    (serial.folder / "gone").symlink_to("no/file")
    (serial.folder / "link").symlink_to(f"data/{IMAGES}")
    before = sorted(serial.folder.iterdir())
    serial.fails(2, f"^{SERIAL.name}: {said}", options)
    assert sorted(serial.folder.iterdir()) == before
    assert (serial.folder / "people").read_text() == "name,age\n"


def after(serial, command):
    """The program, which a shell starts after this command."""
    return script(serial.folder / "after", f"#!/bin/bash\n{command}\n"
                  f'exec {shlex.quote(str(serial.program))} "$@"\n')


@pytest.mark.parametrize(("command", "options", "said"), [
    ("ulimit -v 1000000", "--hidden 1000000", "out of memory: asked for 2990.7 MiB; try a smaller"),
    ("true", "--csv /dev/full", "--csv: cannot write /dev/full: No space left .*; this run's row"),
    *[("exec >/dev/full", options, "^standard output: cannot write: No space left on device$")
      for options in ("", "--quiet", "--help")],
])
def test_failed_run(serial, command, options, said):
    serial.program = after(serial, command)
    serial.fails(1, said, options)


def test_failed_runs_leave_earlier_weights(serial):
    before = serial.weights()
    serial.fails(1, "the loss became -?(nan|inf): try a --learning-rate below",
                 "--learning-rate 1e30 --epochs 5 --save-weights weights --csv rows.csv")
    assert (serial.folder / "weights").read_bytes() == before
    (serial.folder / "killed.c").write_text("int rename(void) { __builtin_trap(); }")
    run("gcc -w -shared -fPIC -o killed.so killed.c", cwd=serial.folder)
    assert serial.run("--seed 2 --save-weights weights", LD_PRELOAD="./killed.so").returncode < 0
    assert (serial.folder / "weights").read_bytes() == before
    serial.program = after(serial, "ulimit -f 1")  # KiB: as if the disk were full
    serial.fails(1, "--save-weights: cannot write weights: File too large",
                 "--seed 2 --save-weights weights")
    assert (serial.folder / "weights").read_bytes() == before
    assert not (serial.folder / "rows.csv").exists()


def test_a_row_that_does_not_fit(serial):
    """A file that was there keeps its rows, and the next run asks for the rest of the last one."""
    serial.succeeds("--csv rows.csv")
    rows = serial.folder / "rows.csv"
    rows.write_text(rows.read_text().ljust(2 * 1024 - 101) + "\n")  # 100 bytes below the limit
    before = rows.read_text()
    serial.program, program = after(serial, "ulimit -f 2"), serial.program
    said = "--csv: cannot write .*: File too large; this run's row is not saved"
    serial.fails(1, said, "--csv rows.csv")
    cut = rows.read_text()
    assert cut.startswith(before)
    serial.program = program
    serial.program = after(serial, "prlimit --pid $$ --fsize=300")  # a header has more
    serial.fails(1, said, "--quiet --csv new.csv")
    assert not (serial.folder / "new.csv").exists()
    serial.program = program
    serial.fails(2, "--csv: rows.csv ends within a row: complete or delete", "--csv rows.csv")
    assert rows.read_text() == cut


# The first stage of each ladder for each device that is no step, or with FULL=1 all of them.
STAGES = [stage for ladder in ladders.ladders() for stage in ladder.stages
          if FULL or stage == next(each for each in ladder.stages if "." not in each.name
                                   and each.is_cuda == stage.is_cuda)]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: f"{stage.ladder.name}/{stage.name}")
def test_every_stage_refuses_bad_input(tmp_path, stage):
    """It must call the checks in common/ and return their answer."""
    trainer = Trainer(tmp_path, built(stage), "--batch 4")
    trains = "learning-rate" in stage.ladder.settings
    if not trains:
        trainer.options = []
    trainer.fails(2, f"^{stage.name}: --threads: found '0'", "--threads 0")
    trainer.fails(2, f"^{stage.name}: --csv: cannot write", "--csv no/rows.csv")
    assert "--csv=FILE" in trainer.succeeds("--help")
    if not trains:
        return
    trainer.options += ["--save-weights", "weights"]
    (tmp_path / "weights").write_text("good")
    trainer.fails(2, "^nowhere/.*: No such file", "--data nowhere --epochs 0")
    trainer.fails(2, "found 6 images, --train expects at least 7", "--train 7")
    trainer.fails(1, "the loss became", "--learning-rate 3e38 --epochs 9")
    damage(tmp_path / "data", LABELS, lambda _: labels(3, 1, 10, 1, 5, 9))
    trainer.fails(2, "label 3 is 10, expected 0 to 9")
    assert (tmp_path / "weights").read_text() == "good"
