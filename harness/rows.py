"""Reads the rows that the programs append to their --csv, by the names of the columns.

A row begins with stage, device and threads. Then come the ladder's parameters (its axes and its
settings), dataset, times, phases, results and peaks. The C code that writes the values writes the
header. An empty field means that the column does not apply. A sweep adds the columns of RECORD:

    sweep    its number in sweeps.csv, which says how this sweep was made
    round    in which round of the sweep: runs of a round were made right after one another
    began    when the run began
    load     the machine's load average over the minute before
    others   percent of the processors that other programs used meanwhile
    rate     GFLOP/s of multiply-adds alone, on as many threads as the run uses, just before it

Beside the rows lie sweeps.csv, with lines "sweep,key,value", and programs.csv: what became of each
program in each sweep, and a hash of the sources that it was measured on.

All files of a folder of results are read here, because others may have sent them. What is not what
it should be ends the program with one line, or is left out: or_nothing().
"""

import contextlib
import csv
import functools
import io
import json
import os
import re
import stat
import statistics
from pathlib import Path

from harness.ladders import Failure, convert, fail, printable, say

TEXTS = "stage", "device", "dataset", "began"
RECORD = "sweep", "round", "began", "load", "others", "rate"
SWEEPS = "sweep", "key", "value"  # the columns of sweeps.csv
PROGRAMS = "sweep", "program", "outcome", "reason", "sources", "flags"  # those of programs.csv
EPOCHS = "run", "epoch", "epoch_s", "samples_per_s", "test_accuracy"  # columns of epochs.csv
NOISY = 0.1  # a cell with a run farther than this from its median is marked
# A run is disturbed if multiply-adds ran at less than RATE percent of the machine's best before it,
# or if other programs used more than OTHERS percent of the processors meanwhile.
RATE, OTHERS = 90, 10

# What a file of results may have at most: far more than any has, and less than takes long.
MOST_BYTES, MOST_ROWS, MOST_SIGNS, LONGEST_NAME = 32 << 20, 100_000, 4000, 100
MOST_LINES, MOST_CELLS, MOST_SETTINGS = 100, 200, 50  # of tables
# Numbers whose ratios and products are finite, and all that a program's whole numbers can be.
SMALLEST, LARGEST, LARGEST_INT = 1e-30, 1e30, 1 << 64
KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
         stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}

left_out = []  # why a file is not shown, each in a line


def leave_out(why):
    """Goes on without a file, and says why."""
    left_out.append(say(why))


def attempt(function, *arguments):
    """What a function returns. None where it ends the program for what it has found in a folder of
    results: it has said why."""
    try:
        return function(*arguments)
    except Failure as error:
        if error.code != 2:
            raise
        left_out.append(error.line)
        return None


@functools.cache
def or_nothing(reader, path, *arguments):
    """What a function reads from a file. None where there is no such file, and where the file is
    not what it should be."""
    return attempt(reader, path, *arguments) if os.path.lexists(path) else None


def check_is_file(path, mode):
    if not stat.S_ISREG(mode):
        fail(f"{path}: found {KINDS.get(stat.S_IFMT(mode), 'no file')}, expected a file")


def read(path):
    """The text of a file."""
    try:
        # A pipe is opened without waiting for its writer.
        with open(path, "rb", opener=lambda name, flags: os.open(
                name, flags | os.O_NONBLOCK | os.O_NOCTTY)) as file:
            check_is_file(path, os.fstat(file.fileno()).st_mode)
            data = file.read(MOST_BYTES + 1) or b""
        if len(data) > MOST_BYTES:
            fail(f"{path}: found more than {MOST_BYTES >> 20} MiB")
        return data.decode()
    except OSError as error:
        fail(f"{path}: cannot read: {error.strerror}")
    except UnicodeDecodeError as error:
        data, before = error.object, error.object[:error.start]
        fail(f"{path}: line {before.count(10) + 1}: byte {error.start - before.rfind(10)}: found "
             f"0x{data[error.start]:02x}, expected UTF-8")


def read_lines(path):
    """The lines of a text, such as lines.txt."""
    found = read(path).splitlines()
    for number, line in enumerate(found, 1):
        if len(line) > MOST_SIGNS:
            fail(f"{path}: line {number}: found {len(line)} characters, expected {MOST_SIGNS} at "
                 "most")
    return [printable(line) for line in found]


def target(path):
    """Where a file is to be written: what a link leads to, so that a link stays a link. What takes
    its place there is a file, so nothing but a file or a new name may be there."""
    try:
        check_is_file(path, os.stat(path).st_mode)
    except FileNotFoundError:
        pass
    except OSError as error:
        fail(f"{path}: cannot write: {error.strerror}")
    return Path(os.path.realpath(path))


def write(path, text):
    """Writes a file, and its folder if that is new. The file is then complete, or as it was."""
    path = target(path)
    new = path.with_name(f".{os.getpid()}.new")
    try:
        path.parent.mkdir(exist_ok=True)
        new.unlink(missing_ok=True)  # of a process of this number that was killed
        with new.open("x", encoding="utf-8") as file:
            file.write(text)
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
        if not text:
            raise ValueError
        value = convert(kind, text)
    except ValueError:
        raise ValueError(expected) from None
    if isinstance(value, str):
        return value
    if smallest is not None and value < smallest:
        raise ValueError(expected)
    if kind is int and value >= LARGEST_INT:
        raise ValueError(f"{expected}, below 2^64")
    if value and not SMALLEST <= abs(value) <= LARGEST:
        raise ValueError(f"{expected}, of a size from {SMALLEST:g} to {LARGEST:g}")
    return value


def brief(text):
    """As much of a text as a line has room for."""
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}..."


def _value(name, text, known):
    """The value of a field. A ValueError says what was expected."""
    is_name = name in TEXTS or (name in known and known[name][0] is str)
    if is_name and (len(text) > LONGEST_NAME or not text.isprintable()):
        raise ValueError(f"a name of at most {LONGEST_NAME} printable characters")
    if name in TEXTS:
        return text
    if name in known:
        return number(text, *known[name])
    if not text:
        return None
    if name in ("threads", "sweep", "round"):
        return number(text, int, 1, "a whole number from 1")
    if name in RECORD or name.endswith(("_s", "_mib", "gflops")):
        return number(text, float, 0, "a number, not below 0")
    return number(text, float, None, "a number")


def read_rows(path, ladder, needed=(), filled=()):
    """[{column: value}]: the rows of a file. A value is a number where the column has numbers, and
    None where the field is empty. An empty file has no rows. A file of another kind says which
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
                    fail(f"{where}: {brief(name)}: found '{brief(text)}', expected {expected}")
            for name in filled or {ladder.time} & {*needed}:
                if row[name] is None:
                    fail(f"{where}: {name}: found '', expected a number")
            rows.append(row)
            if len(rows) > MOST_ROWS:
                fail(f"{path}: found more than {MOST_ROWS} rows")
    except csv.Error as error:
        fail(f"{path}: line {reader.line_num}: found no row of --csv: {error}")
    axes = [ladder.column(axis["option"]) for axis in ladder.axes]
    settings = [name for name in known if name not in axes]
    for what, columns, most in (("stages", ("stage", "threads"), MOST_LINES),
                                ("cells", axes, MOST_CELLS), ("settings", settings, MOST_SETTINGS)):
        count = len({tuple(row.get(name) for name in columns) for row in rows})
        if count > most:
            fail(f"{path}: found {count} {what}, expected {most} at most")
    return rows


def read_table(path, columns):
    """The rows of a CSV file that has exactly these columns, the first of which is a whole number:
    [{column: text}]."""
    found = []
    try:
        for fields in csv.reader(io.StringIO("\n".join(read_lines(path))), strict=True):
            if not found and fields != [*columns]:
                fail(f"{path}: line 1: found '{brief(','.join(fields))}', expected "
                     f"'{','.join(columns)}'")
            if len(fields) != len(columns):
                fail(f"{path}: line {len(found) + 1}: found {len(fields)} columns, expected "
                     f"{len(columns)}")
            row = dict(zip(columns, fields))
            if found:
                row["sweep"] = number(row["sweep"], int, 1, "a whole number from 1")
            found.append(row)
            if len(found) > MOST_ROWS:
                fail(f"{path}: found more than {MOST_ROWS} rows")
    except (csv.Error, ValueError) as error:
        fail(f"{path}: line {len(found) + 1}: expected {error}")
    return found[1:]


def read_record(path, columns, is_needed=False):
    """The rows of a file of the record. A damaged file is left out, or ends the program where it is
    needed."""
    if is_needed:
        return read_table(path, columns) if os.path.lexists(path) else []
    return or_nothing(read_table, path, columns) or []


def read_sweeps(folder, is_needed=False):
    """{sweep: {key: value}}: how the sweeps of a folder of results were made, in order."""
    found = {}
    for row in read_record(folder / "sweeps.csv", SWEEPS, is_needed):
        found.setdefault(row["sweep"], {})[row["key"]] = row["value"]
    return dict(sorted(found.items()))


def read_programs(folder, is_needed=False):
    """The rows of programs.csv in a folder of results."""
    return read_record(folder / "programs.csv", PROGRAMS, is_needed)


def limit(name, default):
    """RATE or OTHERS: the percentage that the environment sets, or the default."""
    text = os.environ.get(name)
    if not text:
        return default
    with contextlib.suppress(ValueError):
        return number(text, int, 0, "")
    fail(f"{name}: found '{text}', expected a whole number from 0")


def best_rates(runs):
    """{threads: the best rate of multiply-adds that these runs know}."""
    best = {}
    for row in runs:
        if row.get("rate"):
            best[row["threads"]] = max(row["rate"], best.get(row["threads"], 0))
    return best


def is_disturbed(row, best):
    """Whether a run was disturbed, by how the machine was: never by the run's own time. What a row
    does not know disturbs nobody."""
    rate, others = row.get("rate"), row.get("others")
    return bool((rate and rate < limit("RATE", RATE) / 100 * best.get(row["threads"], 0))
                or (others and others > limit("OTHERS", OTHERS)))


def read_epochs(path, ladder):
    """The rows of epochs.csv: one for each epoch of a run. Those of a run have the same number in
    the column "run"."""
    needed = ["stage", "device", "threads", "dataset", *EPOCHS]
    needed += [ladder.column(axis["option"]) for axis in ladder.axes]
    return read_rows(path, ladder, needed, EPOCHS)


# Of `make bench`: an addition that needs the one before, a barrier, the start and end of a region.
WAITS = "addition", "barrier", "parallel_region"


def read_ceilings(path):
    """[(level, threads, rate)] of the JSON that Google Benchmark writes for bench/ceilings: single
    runs and medians. The levels are "flops", "L1", ..., "memory" and those of WAITS. The rates are
    operations of float32, bytes or waits a second."""
    found = []
    try:
        for run in json.loads(read(path))["benchmarks"]:
            is_one = run.get("run_type") == "iteration" or run.get("aggregate_name") == "median"
            name = re.fullmatch(rf"ceilings/(multiply_add|read/(\w{{1,20}})|{'|'.join(WAITS)})"
                                r"(?:/[a-z_]+)*(?:/threads:(\d{1,9}))?(?:/[a-z_]+)*",
                                run.get("run_name", run["name"]))
            if is_one and name and name[1] in WAITS:
                found.append((name[1], int(name[3] or 1), 1e9 / run["real_time"]))  # of ns
            elif is_one and name:
                level = name[2] or "flops"
                rate = run["bytes_read" if name[2] else "flops"]
                if type(rate) not in (int, float) or not 1 < rate < LARGEST:
                    raise ValueError
                found.append((level, int(name[3] or 1), float(rate)))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        fail(f"{path}: expected the JSON of Google Benchmark; run `make bench` again")
    return found


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
