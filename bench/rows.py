"""Reads the rows that the programs append to their --csv, and what a sweep writes beside them. A
file that is not what it should be ends the program with one line.

A row begins with stage, device and threads. Then come the ladder's parameters (its axes and its
settings), dataset, times, phases, results and peaks. A sweep adds the columns of RECORD. An empty
field means that the column does not apply.
"""

import json
import os
from pathlib import Path

import pandas

from bench.base import fail

TEXTS = "stage", "device", "dataset", "began"
COUNTS = "threads", "sweep", "round", "run", "epoch"
SIZES = "_s", "_mib", "gflops"  # how the columns' names end that say how long or large a run was
# Runs of a round of a sweep were made right after one another. The load is the machine's average
# over the minute before a run, others the percent of the processors that other programs used
# meanwhile, and rate the GFLOP/s of multiply-adds alone just after it, on as many threads.
RECORD = "sweep", "round", "began", "load", "others", "rate"
SWEEPS = "sweep", "key", "value"  # the columns of sweeps.csv
PROGRAMS = "sweep", "program", "outcome", "reason", "sources", "flags"  # those of programs.csv
# Those of epochs.csv, where the epochs of a run have the same number.
EPOCHS = "run", "epoch", "epoch_s", "samples_per_s", "test_accuracy"


def read(path):
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path}: cannot read: {getattr(error, 'strerror', error)}")


def write(path, text):
    """Writes a file, and its folder if that is new. The file is then complete, or as it was."""
    path = Path(os.path.realpath(path))  # a link stays a link
    new = path.with_name(f".{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        fail(f"{path}: cannot write: {error.strerror}", 1)


def parameters(ladder):
    """{column: (kind of its values, the least)} of a ladder's axes and settings."""
    found = {}
    for option, default in ladder.settings.items():
        found[ladder.column(option)] = type(default), {int: 0, float: 0}.get(type(default))
    for axis in ladder.axes:
        kind = type(axis["values"][0])
        found[ladder.column(axis["option"])] = kind, {int: 1, float: 0}.get(kind)
    return found


def read_texts(path, needed):
    """A CSV file as a frame of texts. An empty one has the needed columns."""
    try:
        frame = pandas.read_csv(path, dtype=str, keep_default_na=False, engine="python").fillna("")
    except pandas.errors.EmptyDataError:
        frame = pandas.DataFrame(columns=[*dict.fromkeys(needed)], dtype=str)
    except (OSError, ValueError) as error:  # such as "Expected 28 fields in line 3, saw 29"
        fail(f"{path}: cannot read: {getattr(error, 'strerror', error)}")
    for name in needed:
        if name not in frame:
            fail(f"{path}: line 1: found no column '{name}', expected the header of --csv")
    return frame


def numbers(path, texts, is_full=True):
    """The numbers of a column of texts. Those of empty fields are NaN, if there may be any."""
    found = pandas.to_numeric(texts, errors="coerce")
    wrong = found.isna() & (is_full | (texts != ""))
    if wrong.any():
        line = wrong.argmax()
        fail(f"{path}: line {2 + line}: {texts.name}: found '{texts[line]}', expected a number")
    return found


def read_rows(path, ladder, needed=()):
    """The rows of a file, with NaN for an empty number. Another than --csv names what it needs."""
    known = parameters(ladder)
    full = {*known, ladder.time}  # columns without an empty field
    frame = read_texts(path, needed or [
        "stage", "device", "threads", *known, "dataset", ladder.time,
        *(f"{phase}_s" for phase in ladder.phases),
        *(measure["column"] for measure in ladder.measures), "gflops"])
    for name in frame.columns.difference(TEXTS):
        if known.get(name, [float])[0] is not str:
            frame[name] = numbers(path, frame[name], name in full)
    return frame


def records(frame):
    """[{column: value}] of a frame, with None for an empty field."""
    found = frame.astype(object).where(frame.notna(), None).to_dict("records")
    for row in found:
        row |= {name: int(row[name]) for name in COUNTS if row.get(name)}
    return found


def read_record(path, columns):
    """The rows of a file of the record, [{column: text}], with the sweep as a number."""
    frame = read_texts(path, columns) if path.exists() else pandas.DataFrame(columns=columns)
    return frame.assign(sweep=numbers(path, frame["sweep"])).to_dict("records")


def read_ceilings(path):
    """[(level, threads, rate)]: the medians of Google Benchmark, if there are any. A level is
    "flops" (of float32), "L1", ..., "memory" (bytes), or a wait such as "barrier", and the rate is
    that of a second. A GPU's is such as "gpu/fma", and its rate has a unit of its own
    (bench/calibrate.py)."""
    if not Path(path).exists():
        return []
    runs = json.loads(read(path))["benchmarks"]
    return [level_of(run) for run in runs if run.get("aggregate_name") == "median"]


def level_of(run):
    """(level, threads, rate) of a median."""
    if "unit" in run:
        return run["run_name"], 1, run["value"]
    _, what, *words = run["run_name"].split("/")
    level = words[0] if what == "read" else {"multiply_add": "flops"}.get(what, what)
    threads = [int(word[8:]) for word in words if word.startswith("threads:")]
    rate = run.get("bytes_read") or run.get("flops") or 1e9 / run["real_time"]  # of ns
    return level, *(threads or [1]), rate
