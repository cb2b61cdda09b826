"""Reads the rows that the programs append to their --csv, by the names of the columns.

A row begins with stage, device and threads. Then come the ladder's parameters (its axes and its
settings), dataset, times, phases, results and peaks. The C code that writes the values writes the
header. An empty field means that the column does not apply.
"""

import contextlib
import csv
import io
import statistics

from ladders import convert, fail

TEXTS = "stage", "device", "dataset"
EPOCHS = "run", "epoch", "epoch_s", "samples_per_s", "test_accuracy"  # columns of epochs.csv
NOISY = 0.1  # a cell with a run farther than this from its median is marked


def read(path):
    """The text of a file."""
    try:
        return path.read_bytes().decode()
    except OSError as error:
        fail(f"{path}: cannot read: {error.strerror}")
    except UnicodeDecodeError as error:
        data, before = error.object, error.object[:error.start]
        fail(f"{path}: line {before.count(10) + 1}: byte {error.start - before.rfind(10)}: found "
             f"0x{data[error.start]:02x}, expected UTF-8")


def write(path, text):
    """Writes a file, and its folder if that is new. The file is then complete, or as it was."""
    path = path.resolve()  # so that a link stays a link
    new = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(exist_ok=True)
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink()
        fail(f"{path}: cannot write: {error.strerror}", 1)


def parameters(ladder):
    """{column: (text to value, smallest value, words for what is expected)}: the axes and the
    settings of a ladder. The type is that of the values in its ladder.toml."""
    kinds = {str: (str, None, "text"), int: (int, 0, "a whole number from 0"),
             bool: (int, 0, "0 or 1"), float: (float, 0, "a number, not below 0")}
    found = {ladder.column(option): kinds[type(value)]
             for option, value in ladder.settings.items()}
    for axis in ladder.axes:
        kind = type(axis["values"][0])
        found[ladder.column(axis["option"])] = (
            (int, 1, "a whole number from 1") if kind is int else kinds[kind])
    return found


def number(text, kind, smallest, expected):
    """The value of a text. A ValueError says what was expected."""
    try:
        value = convert(kind, text) if text else float("nan")
    except ValueError:
        raise ValueError(expected) from None
    if isinstance(value, str):
        return value
    # A nan is refused, and so is a number whose ratio to another may not be finite.
    if (value != 0 and not 1e-100 < abs(value) < 1e100) or (smallest is not None
                                                            and value < smallest):
        raise ValueError(expected)
    return value


def _value(name, text, known):
    """The value of a field. A ValueError says what was expected."""
    if name in TEXTS:
        return text
    if name in known:
        return number(text, *known[name])
    if not text:
        return None
    if name == "threads":
        return number(text, int, 1, "a whole number from 1")
    if name.endswith(("_s", "_mib", "gflops")):
        return number(text, float, 0, "a number, not below 0")
    return number(text, float, None, "a number")


def read_rows(path, ladder, needed=(), filled=()):
    """[{column: value}]: the rows of a file. A value is a number where the column has numbers, and
    None where the field is empty. An empty file has no rows. A file that does not read ends the
    program with one line, which names the line of the file. A file of another kind says which
    columns it needs. The columns of `filled`, or the ladder's time, have no empty field."""
    known = parameters(ladder)
    needed = needed or ["stage", "device", "threads", *known, "dataset", ladder.time,
                        *(f"{phase}_s" for phase in ladder.phases),
                        *(measure["column"] for measure in ladder.measures), "gflops"]
    reader = csv.reader(io.StringIO(read(path), newline=""), strict=True)
    rows = []
    try:
        header = next(reader, needed)
        for name in needed:
            if name not in header:
                fail(f"{path}: line 1: found no column '{name}', expected the header of --csv")
        for fields in reader:
            where = f"{path}: line {reader.line_num}"
            if len(fields) != len(header):
                fail(f"{where}: found {len(fields)} columns, expected {len(header)}")
            row = dict(zip(header, fields))
            for name, text in row.items():
                try:
                    row[name] = _value(name, text, known)
                except ValueError as expected:
                    fail(f"{where}: {name}: found '{text}', expected {expected}")
            for name in filled or {ladder.time} & {*needed}:
                if row[name] is None:
                    fail(f"{where}: {name}: found '', expected a number")
            rows.append(row)
    except csv.Error as error:
        fail(f"{path}: line {reader.line_num}: found no row of --csv: {error}")
    return rows


def read_epochs(path, ladder):
    """The rows of epochs.csv: one for each epoch of a run. Those of a run have the same number in
    the column "run"."""
    needed = ["stage", "device", "threads", "dataset", *EPOCHS]
    needed += [ladder.column(axis["option"]) for axis in ladder.axes]
    return read_rows(path, ladder, needed, EPOCHS)


def cell_of(row, ladder):
    """A row's place on the axes, in their order."""
    return tuple(row[ladder.column(axis["option"])] for axis in ladder.axes)


def farthest(values):
    """How far the value that is farthest from the median is above it, as a part of it."""
    median = statistics.median(values)
    return max((value / median - 1 for value in values), key=abs) if median else 0.0


def is_noisy(values):
    """Whether a run of a cell is too far from the median."""
    return abs(farthest(values)) > NOISY
