"""Tests what this study has of its own: its data, how they are drawn, fetched and read, and the
gradient of its reference."""

import gzip
import hashlib
import os
import re
from pathlib import Path

import pytest
from programs import ROOT, Trainer, built, make, run

from bench import ladders

LADDER = ladders.find_ladder("galaxy")
DATA = LADDER.folder / "data"
DRAWN = "634c8e8d74fa53627b98a223a9ba3f9d0601494dda420106e4a358231f01560c"  # train.csv and test.csv


@pytest.fixture
def serial(tmp_path):
    return trainer(tmp_path, LADDER.stages[0])


def trainer(folder, stage):
    """A stage on six galaxies to train on and three to test, without noise: label, 1024 pixels."""
    rows = [f"{label},{','.join(str(i * (label + 3) % 256) for i in range(1, 1025))}\n"
            for label in (0, 1, 2, 2, 1, 0)]
    trained = Trainer(folder, built(stage))
    trained.options = ["--data", "galaxies", "--train", "6", "--test", "3", "--hidden", "2",
                       "--iterations", "2"]
    trained.data = folder / "galaxies"
    trained.data.mkdir()
    (trained.data / "train.csv").write_text("".join(rows))
    (trained.data / "test.csv").write_text("".join(rows[:3]))
    return trained


def test_the_same_galaxies_are_drawn_everywhere_and_called_synthetic(serial, tmp_path):
    make("-C", str(DATA))
    run([DATA / "synthesize", tmp_path / "drawn"])
    text = b"".join((tmp_path / "drawn" / name).read_bytes() for name in ("train.csv", "test.csv"))
    assert hashlib.sha256(text).hexdigest() == DRAWN
    serial.succeeds("--data drawn --train 2700 --test 675 --hidden 1 --iterations 0 --csv rows.csv")
    assert serial.rows()[0]["dataset"] == "synthetic"
    assert "nowhere/at/all: No such" in run([DATA / "synthesize", "nowhere/at/all"], 1).stderr


def test_the_galaxies_are_those_that_a_download_verifies():
    given = Path(os.environ.get("GALAXY_DIR") or DATA / "galaxy")
    if not [*given.glob("train.csv*")] or (given / "SYNTHETIC").exists():
        pytest.skip("no galaxies in $GALAXY_DIR")
    for name, sha256 in ladders.find_ladder("galaxy").data_module.SHA256.items():
        path = given / name
        with (open(path, "rb") if path.exists() else gzip.open(f"{path}.gz")) as file:
            assert hashlib.sha256(file.read()).hexdigest() == sha256


def test_raw_and_gzipped_files_and_those_of_windows_give_the_same_result(serial):
    raw = serial.weights()
    text = (serial.data / "train.csv").read_text()
    for path in serial.data.iterdir():
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert serial.weights() == raw
    (serial.data / "train.csv").write_text(text.replace("\n", "\r\n"))  # goes before the other
    assert serial.weights() == raw


PIXELS = "expected 1024 pixels, each a whole number from 0 to 255"


@pytest.mark.parametrize("row, pattern, change, said", [
    (4, "^.", "3", "row 4: found '3', expected a label: 0, 1 or 2"),
    (4, "^.", "", "row 4: found '', expected a label: 0, 1 or 2"),
    (2, ",8,", ",256,", f"row 2: found '256', {PIXELS}"),
    (2, ",8,", ",-8,", f"row 2: found '-8', {PIXELS}"),
    (2, ",8,", ",,", f"row 2: found '', {PIXELS}"),
    (3, ",[^,]*$", "", "row 3: found 1023 pixels, expected 1024"),
    (3, "$", ",7", "row 3: found more than 1024 pixels, expected 1024"),
    (3, ".*", "", "row 3: found '', expected a label: 0, 1 or 2"),
    (6, "(?s).*", "", "found 5 rows, expected the 6 of --train")])
def test_a_wrong_file_is_one_line_with_what_was_found_where(serial, row, pattern, change, said):
    path = serial.data / "train.csv"
    lines = path.read_text().splitlines()
    lines[row - 1] = re.sub(pattern, change, lines[row - 1], count=1)
    path.write_text("".join(f"{line}\n" for line in lines if line or row < 6))
    serial.fails(2, f"galaxies/train.csv: {re.escape(said)}", "--csv rows.csv")
    assert not (serial.folder / "rows.csv").exists()
    if row > 3 and "label" in said:  # a file is checked to its end, behind the rows that are used
        serial.fails(2, f"galaxies/train.csv: {re.escape(said)}", "--train 2")


def test_a_file_that_is_no_file_or_damaged_is_one_line(serial):
    path = serial.data / "train.csv"
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    serial.fails(2, "train.csv: No such file or directory; expected the galaxies")
    Path(f"{path}.gz").write_bytes(packed[:200])
    serial.fails(2, "train.csv.gz: row 1: damaged or truncated gzip file")
    Path(f"{path}.gz").write_bytes(packed + b"garbage")
    serial.fails(2, "train.csv.gz: found more than a gzip member; expected nothing behind it")


def test_the_references_gradient_is_that_of_central_differences(serial, tmp_path):
    make("-C", "bench", "build/galaxy/reference")
    options = [*serial.options[:-2], "--lambda", "2.5", "--differences"]
    reference = [ROOT / "bench/build/galaxy/reference", *options]
    assert float(run(reference, cwd=tmp_path).stdout) < 1e-8


@pytest.mark.parametrize("stage", [stage for stage in LADDER.stages if stage.is_cuda],
                         ids=lambda stage: stage.name)
def test_peak_vram_mib_is_what_a_run_needs_the_minimizer_included(tmp_path, stage):
    trained = trainer(tmp_path, stage)
    trained.succeeds("--csv rows.csv --quiet")
    size = round(float(trained.rows()[0]["peak_vram_mib"]) * 2**20)
    trained.succeeds("--quiet", SIM_MEMORY=size)
    trained.fails(1, f"^{stage.name}: out of device memory: ", SIM_MEMORY=size - 1)
