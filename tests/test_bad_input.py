"""Tests bad data, bad arguments and files that cannot be written: the exit status, and one line that
names the file or the option, what was found and what was expected."""

import gzip
import shlex
import shutil

import pytest
from programs import FULL, Trainer, built, csv_lines, run, script

from harness import ladders

SERIAL = ladders.find_ladder("").stages[0]
IMAGES, LABEL_FILE, TEST_IMAGES, TEST_LABEL_FILE = FILES = [
    f"{name}-ubyte" for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3",
                                 "t10k-labels-idx1")]


@pytest.fixture
def serial(tmp_path):
    return Trainer(tmp_path, built(SERIAL))


def change(name, new):
    """A damage: new(bytes) in the place of a file's bytes."""
    return lambda data: (data / name).write_bytes(new((data / name).read_bytes()))


def zip_and(name, new):
    """The same of a file that is gzipped first."""
    def damage(data):
        (data / f"{name}.gz").write_bytes(new(gzip.compress((data / name).read_bytes())))
        (data / name).unlink()
    return damage


def labels(*values):
    return change(LABEL_FILE, lambda _: bytes([0, 0, 8, 1, 0, 0, 0, len(values), *values]))


NO_FILE = r"No such file or directory; expected MNIST, raw or \.gz: see data/README"
WHOLE = "; expected a whole file, raw or gzipped"
DAMAGES = [
    (shutil.rmtree, f"^data/{IMAGES}.gz: {NO_FILE}", ""),
    *[(lambda data, name=name: (data / name).unlink(), f"^data/{name}.gz: {NO_FILE}", "")
      for name in FILES],
    *[(change(name, lambda _: b""), f"{name}: truncated: found 0 bytes, expected at least", "")
      for name in FILES],
    *[(change(name, lambda old: old + b"x"), f"{name}: found more than the [0-9]+ bytes its", "")
      for name in FILES],
    (lambda data: (data / IMAGES).rename(data / "x") and (data / IMAGES).mkdir(),
     f"{IMAGES}: Is a directory{WHOLE}", ""),
    (zip_and(IMAGES, lambda old: old[:300]), f"{IMAGES}.gz: unexpected end of file{WHOLE}", ""),
    (zip_and(IMAGES, lambda old: old[:-1]), f"{IMAGES}.gz: unexpected end of file{WHOLE}", ""),
    (zip_and(TEST_IMAGES, lambda old: old[:5]), f"{TEST_IMAGES}.gz: unexpected end of file", ""),
    (zip_and(TEST_LABEL_FILE, lambda old: old[:-8] + b"checksum"), "gz: incorrect data check", ""),
    (change(IMAGES, lambda old: old[:15]), "truncated: found 15 bytes, expected at least 16", ""),
    (change(LABEL_FILE, lambda old: old[:7]), "truncated: found 7 bytes, expected at least 8", ""),
    (change(TEST_IMAGES, lambda old: old[:-1]), "found 3151 bytes, expected at least 3152", ""),
    (change(IMAGES, lambda old: old[:-1]), f"{IMAGES}: truncated", "--train 2"),
    (change(IMAGES, lambda _: bytes([0, 0, 8, 1]) + bytes(99)),
     r"wrong magic number: found 0x00000801, expected 0x00000803 \(images\)", ""),
    (change(LABEL_FILE, lambda _: bytes([0, 0, 8, 3]) + bytes(99)),
     r"wrong magic number: found 0x00000803, expected 0x00000801 \(labels\)", ""),
    (change(IMAGES, lambda old: old[:11] + b"\x20" + old[12:]),
     f"{IMAGES}: found images of 32 x 28, expected 28 x 28", ""),
    (labels(3, 1, 4, 1, 5, 9, 2), "found 7 labels, expected 6, one for each image of .*images", ""),
    (labels(3, 1, 4, 1, 5), "found 5 labels, expected 6, one for each image of .*images", ""),
    (labels(3, 1, 10, 1, 5, 9), f"{LABEL_FILE}: label 3 is 10, expected 0 to 9", ""),
    (lambda _: None, f"{IMAGES}: found 6 images, --train expects at least 7", "--train 7"),
    (lambda _: None, f"{TEST_IMAGES}: found 4 images, --test expects at least 5", "--test 5"),
]


@pytest.mark.parametrize(("damage", "said", "options"), DAMAGES)
def test_damaged_idx(serial, damage, said, options):
    damage(serial.folder / "data")
    serial.fails(2, said, options)


def cell(line, column, text):
    """A damage: this text in a line and a column, counted from 1."""
    def damage(lines):
        cells = lines[line - 1].split(",")
        lines[line - 1] = ",".join([*cells[:column - 1], text, *cells[column:]])
    return damage


def found(line, column, text):
    return f"^data/train.csv: line {line}, column {column}: found '{text}', expected 0 to "


@pytest.mark.parametrize(("damage", "said"), [
    (cell(3, 784, "1,2"), "line 3: found 786 numbers, expected a label and 784 pixels"),
    (lambda lines: lines.__setitem__(2, lines[2].rpartition(",")[0]), "line 3: found 784 numbers"),
    (lambda lines: lines.append("end of file"), "line 12: found 1 numbers"),
    (cell(4, 3, "x"), found(4, 3, "x") + "255"),
    (cell(4, 3, "12x"), found(4, 3, "12x")),
    (cell(4, 3, ""), found(4, 3, "")),
    (cell(4, 3, " 1"), found(4, 3, " 1")),
    (cell(4, 3, "-1"), found(4, 3, "-1")),
    (cell(2, 785, "256"), found(2, 785, "256")),
    (cell(2, 2, "18446744073709551617"), found(2, 2, "18446744073709551617")),
    (cell(2, 1, "10"), found(2, 1, "10") + "9$"),
    (cell(3, 785, "7\r and more"), found(3, 785, "7\r and more")),
    (lambda lines: lines.pop(0), "line 1: found '3,49,.*', expected the header label,pixel0"),
    (lambda lines: lines.clear(), r"found 0 rows, --train and --test expect at least 6 \+ 4"),
    (lambda lines: lines.pop(), r"found 9 rows, --train and --test expect at least 6 \+ 4"),
    (lambda lines: lines.append("7" * 100000), "line 12: not text, or over 16382 characters"),
    (lambda lines: lines.append("1,\0,2"), "line 12: not text, or over 16382 characters"),
])
def test_damaged_csv(serial, damage, said):
    lines, data = csv_lines(), serial.folder / "data"
    damage(lines)
    (data / IMAGES).unlink()
    (data / "train.csv").write_text("".join(f"{line}\n" for line in lines), newline="")
    serial.fails(2, said)


WHOLE_NUMBER = "expected a whole number from"
LONG = "x" * 256
OPTIONS = [
    *[(f"--{name}={text}", f"--{name}: found '{text}', {WHOLE_NUMBER} {least} to [0-9]*$")
      for name, least, texts in (("hidden", 1, ("0", "8x", "", "9" * 20, "2147483648")),
                                 ("batch", 1, ("-1",)), ("epochs", 0, ("abc", "-1")),
                                 ("train", 1, ("0",)), ("test", 1, ("0",)),
                                 ("threads", 1, ("0", "2")),
                                 ("seed", 0, ("-1", "18446744073709551616")))
      for text in texts],
    *[(f"--learning-rate={text}", f"--learning-rate: found '{text}', expected a number above 0$")
      for text in ("nan", "inf", "-0.1", "0", "1e99", "0.1x", "")],
    *[(f"--{name} {path}", f"--{name}: cannot write {said}; expected a file in a writable directory")
      for name in ("csv", "save-weights")
      for path, said in (("data", "data: Is a directory"), ("no/file", "no/file: No such file.*"),
                         ("''", "'': No such file.*"), ("new/", "new/: Is a directory"),
                         (LONG, f"{LONG}: File name too long"))],
    ("--csv astray", "--csv: cannot write astray: File exists"),
    ("--csv people", "--csv: people begins with other columns than a result row has"),
    ("--save-weights device", "--save-weights: found device, expected a regular file or a new one"),
    ("--csv new --save-weights new", "--save-weights: found new, the same file as --csv; expected"),
]


@pytest.mark.parametrize(("options", "said"), OPTIONS)
def test_bad_option(serial, options, said):
    """Nothing is left behind, and what was there stays."""
    (serial.folder / "people").write_text("name,age\n")
    (serial.folder / "astray").symlink_to("no/file")
    (serial.folder / "device").symlink_to("/dev/null")
    before = sorted(serial.folder.iterdir())
    serial.fails(2, f"^{SERIAL.name}: {said}", options)
    assert sorted(serial.folder.iterdir()) == before
    assert (serial.folder / "people").read_text() == "name,age\n"


def test_unknown_option(serial):
    lines = serial.run("--nonsense", 2).stderr.splitlines()
    assert "unrecognized option '--nonsense'" in lines[0] and "--help" in lines[1]


def after(serial, command):
    """The program, which a shell starts after this command."""
    return script(serial.folder / "after", f"#!/bin/bash\n{command}\n"
                  f'exec {shlex.quote(str(serial.program))} "$@"\n')


def test_failed_runs_leave_earlier_weights(serial):
    before = serial.weights()
    serial.fails(1, "the loss became -?(nan|inf): try a --learning-rate below",
                 "--learning-rate 1e30 --epochs 5 --save-weights weights --csv rows.csv")
    assert (serial.folder / "weights").read_bytes() == before
    library = serial.folder / "killed.so"
    (serial.folder / "killed.c").write_text("int rename(void) { __builtin_trap(); }")
    run("gcc -w -shared -fPIC -o killed.so killed.c", cwd=serial.folder)
    assert serial.run("--seed 2 --save-weights weights", LD_PRELOAD=library).returncode < 0
    assert (serial.folder / "weights").read_bytes() == before
    serial.program = after(serial, "ulimit -f 1")  # KiB: as if the disk were full
    serial.fails(1, "--save-weights: cannot write weights: File too large",
                 "--seed 2 --save-weights weights")
    assert (serial.folder / "weights").read_bytes() == before
    assert not (serial.folder / "rows.csv").exists()


def test_a_row_is_written_whole_or_not_at_all(serial):
    serial.fails(1, "--csv: cannot write /dev/full: No space left", "--csv /dev/full")
    serial.succeeds("--csv rows.csv")
    rows = serial.folder / "rows.csv"
    rows.write_text(rows.read_text().ljust(2 * 1024 - 101) + "\n")  # 100 bytes below the limit
    before = rows.read_text()
    serial.program, program = after(serial, "ulimit -f 2"), serial.program
    serial.fails(1, "--csv: cannot write rows.csv: the disk is full; this run's row is not saved",
                 "--csv rows.csv")
    assert rows.read_text() == before
    rows.write_text(before[:-1])
    serial.program = program
    serial.fails(2, "--csv: rows.csv ends within a row: complete or delete", "--csv rows.csv")
    assert rows.read_text() == before[:-1]


@pytest.mark.parametrize("options", ["", "--quiet", "--help"])
def test_output_that_cannot_be_written(serial, options):
    serial.program = after(serial, "exec >/dev/full")
    serial.fails(1, "^standard output: cannot write: No space left on device$", options)


def test_more_hidden_units_than_memory(serial):
    serial.program = after(serial, "ulimit -v 1000000")
    serial.fails(1, "^00_serial: out of memory: asked for 2990.7 MiB; try a smaller run$",
                 "--hidden 1000000")


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
    trainer.fails(2, "^nowhere/.*: No such file", "--data nowhere")
    trainer.fails(2, "found 6 images, --train expects at least 7", "--train 7")
    (tmp_path / "weights").write_text("good")
    trainer.fails(1, "the loss became", "--learning-rate 3e38 --epochs 9 --save-weights weights")
    assert (tmp_path / "weights").read_text() == "good"
    labels(3, 1, 10, 1, 5, 9)(tmp_path / "data")
    trainer.fails(2, "label 3 is 10, expected 0 to 9")
