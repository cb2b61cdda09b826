"""What the Python peers of all ladders share: the environment, the common options, the threads, the
random bits, the saved result and the row.

Import it before NumPy. It switches to the environment that `make peers` made, if there is one.
"""

import argparse
import contextlib
import csv
import errno
import fcntl
import functools
import gzip
import importlib
import io
import os
import re
import resource
import subprocess
import sys
import time
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NAME = Path(sys.argv[0]).stem
RUN_FAILED, BAD_INPUT, NOT_HERE = 1, 2, 77


def leave(status, message):
    """Ends the program with one line on standard error."""
    print(" ".join(str(message).split()), file=sys.stderr)
    sys.exit(status)


def require(module):
    """Imports a module that may not be installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        leave(NOT_HERE, f"not installed: {error}; `make peers` installs it")


def enter_environment():
    """Replaces this process by the environment's Python."""
    python = HERE / "env" / "bin" / "python"
    if os.access(python, os.X_OK) and Path(sys.prefix).resolve() != python.parents[1].resolve() \
            and "PEER_STARTED" not in os.environ:  # a damaged environment must not loop
        os.execve(python, [str(python), *sys.argv], {**os.environ, "PEER_STARTED": "1"})


def number(kind, is_right, expected):
    """The type of an option that is a number of a kind with a property. Numbers have ASCII digits
    only: Python also takes 4_0, ٤٠ and blanks."""
    def parse(text):
        with contextlib.suppress(ValueError):
            if (kind is str or re.fullmatch("[-+.0-9Ee]+", text)) and is_right(kind(text)):
                return kind(text)
        raise argparse.ArgumentTypeError(f"found '{text}', expected {expected}")
    return parse


def whole(low, high):
    """The type of an option that is a whole number from low to high."""
    return number(int, lambda value: low <= value <= high, f"a whole number from {low} to {high}")


def measure(run, seconds):
    """(what the last pass returned, the time of a pass): makes passes until so many seconds have
    been timed. There is one at least."""
    passes, start = 0, time.perf_counter()
    while True:
        result = run()
        passes += 1
        timed = time.perf_counter() - start
        if timed >= seconds:
            return result, timed / passes


class Parser(argparse.ArgumentParser):
    """argparse with a stage's errors, which are one line, and with the options of all ladders."""

    def __init__(self):
        super().__init__(allow_abbrev=False)
        self.add_argument("--seed", type=whole(0, 2**64 - 1), default=1, metavar="N")
        self.add_argument("--threads", type=whole(1, 2**31 - 1), metavar="N")
        self.add_argument("--csv", metavar="FILE", help="append one row")
        self.add_argument("--quiet", action="store_true", help="print the result line only")

    def error(self, message):
        leave(BAD_INPUT, message.removeprefix("argument "))


def set_threads(wanted):
    """Tells every library before it is loaded. Returns the number: at most one a processor."""
    if not wanted:
        text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
        wanted = int(text) if re.fullmatch("[0-9]{1,9}", text) and int(text) else sys.maxsize
    # A Mac does not say which processors this process may use.
    here = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count()))(0)
    threads = min(wanted, len(here))
    # OpenBLAS, OpenMP (PyTorch), MKL, Numba, JAX.
    for name in ("OPENBLAS", "OMP", "MKL", "NUMBA"):
        os.environ[f"{name}_NUM_THREADS"] = str(threads)
    os.environ["PJRT_NPROC"] = str(threads)
    # As in run_all.sh: on a busy machine, PyTorch's barriers otherwise take twenty times as long.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    return threads


# What reading a damaged or truncated gzip file raises. None of them names the file.
DAMAGED = EOFError, gzip.BadGzipFile, zlib.error


def read_csv(path, skipped=0):
    """The rows of a file of bytes in decimal, gzipped or not, after so many skipped ones."""
    import numpy as np
    try:
        return np.loadtxt(path, np.uint8, delimiter=",", skiprows=skipped, ndmin=2)
    except (ValueError, *DAMAGED) as error:
        raise ValueError(f"{path}: {error}") from None


def draw_bits(seed, stream, count):
    """The first numbers of 32 bits from a stream of PCG32, all at once: i steps after s the state
    is aⁱ·s + c·(1 + … + aⁱ⁻¹), modulo 2⁶⁴."""
    import numpy as np  # not earlier: it reads how many threads it may start
    mask = 2**64 - 1
    multiplier, increment = 6364136223846793005, stream << 1 | 1
    start = ((increment + seed) * multiplier + increment) & mask
    powers = np.full(count, multiplier, np.uint64)
    powers[0] = 1
    np.multiply.accumulate(powers, out=powers)
    state = powers * np.uint64(start)
    state[1:] += np.add.accumulate(powers[:-1]) * np.uint64(increment)
    shifted = ((state >> np.uint64(18) ^ state) >> np.uint64(27)).astype(np.uint32)
    turn = (state >> np.uint64(59)).astype(np.uint32)
    return shifted >> turn | shifted << (-turn & np.uint32(31))


@functools.cache
def header(ladder, option="csv"):
    """The header of a ladder's rows in the file of --csv or --epochs-csv. The first stage prints
    it."""
    command = ('set -- $(/usr/bin/python3 -m harness ladders stages --cpu "$0") && make -s -C "$1" >&2 && '
               'source=$(echo "$1"/*.c) && "${source%.c}" --' + option.replace("csv", "columns"))
    done = subprocess.run(["sh", "-c", command, ladder], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    if done.returncode:
        leave(RUN_FAILED, f"--{option}: found no header: {done.stderr}")
    return done.stdout


def replace(path, data, keep=True):
    """Writes a new file and renames it, so that an earlier regular file stays whole until then.
    Without `keep`, only tries to write it. Raises an OSError, and then leaves nothing."""
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_file() and os.access(target, os.W_OK)):
        raise PermissionError(errno.EACCES, "no regular file that can be written", path)
    beginning = os.fsdecode(os.fsencode(target.name)[:100])  # so that the name is not too long
    partial = target.with_name(f"{beginning}.{os.getpid()}.partial")
    try:
        partial.write_bytes(data)
        if keep:
            partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def try_file(name, replaced):
    """Raises an OSError if a file cannot be replaced, or rows cannot be appended to it."""
    path = Path(name)
    if name and (replaced or not path.exists()):
        replace(name, b"\n", keep=False)
    elif path.is_dir() or not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "no file that can be written", name)


def check_files(ladder, csv, option=None, saved=None, epochs=None):
    """Checks before a long run that rows of a ladder can be appended to the files of --csv and
    --epochs-csv, and that another option's file can be replaced. Creates none."""
    files = [(wanted, name, Path(name)) for wanted, name in
             (("csv", csv), ("epochs-csv", epochs), (option, saved)) if name is not None]
    for i, (wanted, name, path) in enumerate(files):
        try:
            try_file(name, wanted == option)
        except OSError as error:
            leave(BAD_INPUT, f"--{wanted}: cannot write '{name}': {error.strerror}; expected a "
                  "file in a writable directory")
        for other, _, earlier in files[:i]:
            if earlier.resolve() == path.resolve():
                leave(BAD_INPUT, f"--{wanted}: found {path}, which is the file of --{other}: "
                      "expected another")
        if wanted != option:
            columns = header(ladder, wanted).encode()  # this may fail
            content = path.read_bytes() if path.is_file() else b""
            if content and not content.startswith(columns):
                leave(BAD_INPUT, f"--{wanted}: {path} begins with other columns than a result "
                      "row's")
            if content and not content.endswith(b"\n"):
                leave(BAD_INPUT, f"--{wanted}: {path} ends within a row: complete or delete that "
                      "row")


def save(option, path, *arrays):
    """Writes arrays one after another."""
    try:
        replace(path, b"".join(array.tobytes() for array in arrays))
    except OSError as error:
        leave(RUN_FAILED, f"--{option}: cannot write: {error}")


def warm_up(peer, load):
    """Trains for an epoch, which compiles everything, also for the short last batch. A GPU trains
    for half a second, or WARMUP_S, as in the stages: its clocks have to rise. Then `load` sets the
    weights back. Returns the seconds of the first epoch."""
    start = time.perf_counter()
    peer.epoch()
    peer.wait()
    seconds = time.perf_counter() - start
    while peer.device != "cpu" and time.perf_counter() - start < float(
            os.environ.get("WARMUP_S", "0.5")):
        peer.epoch()
        peer.wait()
    load()
    peer.wait()
    return seconds


def append_row(ladder, name, device, threads, vram, values, option="csv"):
    """Appends a row of these values to the file of --csv or --epochs-csv, after the header if the
    file is empty, in one write. A column without a value stays empty. Threads are those of a CPU.
    vram is in MiB, or None."""
    row = {**values, "stage": NAME, "device": device, "threads": threads if device == "cpu" else "",
           "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    row |= {column: f"{value:.9f}" for column, value in values.items()
            if column.endswith("_s") and value is not None}
    row |= {} if vram is None else {"peak_vram_mib": float(vram)}
    columns = header(ladder, option)
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(
        row.get(column, "") for column in columns.strip().split(","))
    try:
        with open(name, "ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            first = columns if os.fstat(file.fileno()).st_size == 0 else ""
            file.write((first + line.getvalue()).encode())
    except OSError as error:
        leave(RUN_FAILED, f"--{option}: cannot write: {error}; this run's row is not saved")


enter_environment()
