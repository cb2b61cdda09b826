"""What the Python peers of all ladders share: the environment, the common options, the threads, the
random bits, the saved result and the row.

Import it before NumPy. It switches to the environment that `make peers` made, if there is one.
"""

import argparse
import contextlib
import csv
import functools
import importlib
import math
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


def measure(run, seconds):
    """(what the last pass returned, the time of a pass): makes passes for so many seconds."""
    passes = 0
    start = time.perf_counter()
    while True:
        result = run()
        passes += 1
        timed = time.perf_counter() - start
        if timed >= seconds:
            return result, timed / passes


class Parser(argparse.ArgumentParser):
    """argparse with a stage's errors, which are one line."""

    def error(self, message):
        leave(BAD_INPUT, message.removeprefix("argument "))


def number(kind, least):
    """The type of an option that is a finite number, whole or not, from `least` on."""
    def parse(text):
        with contextlib.suppress(ValueError):
            if least <= kind(text) < math.inf:
                return kind(text)
        what = "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"found '{text}', expected {what} from {least}")
    return parse


def parse_options(**defaults):
    """The options that all ladders have, and these. A default says what an option takes."""
    parser = Parser(allow_abbrev=False)
    for name, default in {"seed": 1, "threads": 0, "csv": "", "quiet": False, **defaults}.items():
        option = f"--{name.rstrip('_').replace('_', '-')}"  # lambda_ is --lambda
        if default is False:
            parser.add_argument(option, dest=name, action="store_true")
        else:
            least = 0 if name in ("seed", "threads", "epochs", "iterations") else 1
            kind = {int: number(int, least), float: number(float, 0)}.get(type(default), str)
            parser.add_argument(option, dest=name, type=kind, default=default)
    return parser.parse_args()


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
    # As in run_all.sh: on a busy machine, PyTorch's threads would spin on the core that a late one
    # needs.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    return threads


# What reading wrong data raises.
BAD_DATA = OSError, EOFError, ValueError, zlib.error


def read_csv(path, skipped=0):
    """The rows of a file of bytes in decimal, gzipped or not, after so many skipped ones."""
    import numpy as np
    return np.loadtxt(path, np.uint8, delimiter=",", skiprows=skipped, ndmin=2)


def draw_bits(seed, stream, count):
    """The first numbers of 32 bits from a stream of PCG32, all at once: i steps after s the state
    is aⁱ·s + c·(1 + … + aⁱ⁻¹), modulo 2⁶⁴."""
    import numpy as np  # not earlier: it reads how many threads it may start
    mask = 2**64 - 1
    multiplier = 6364136223846793005
    increment = stream << 1 | 1
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
def header(ladder, path, option="csv"):
    """The header of a ladder's rows in the file of --csv or --epochs-csv. The first stage prints
    it. Without the repository, which a copy of the peers does not need, the file begins with it."""
    if not (ROOT / "stages/ladder.toml").exists():
        found = re.match("stage,device,.*\n", Path(path).read_text(errors="replace"))
        return found[0] if found else leave(
            BAD_INPUT, f"--{option}: without the repository, {path} has to begin with a header")
    command = ('set -- $("$(setup/python.sh)" -m bench ladders stages --cpu "$0") && '
               'make -s -C "$1" >&2 && source=$(echo "$1"/*.c) && "${source%.c}" --'
               + option.replace("csv", "columns"))
    done = subprocess.run(["sh", "-c", command, ladder], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    if done.returncode:
        leave(RUN_FAILED, f"--{option}: found no header: {done.stderr}")
    return done.stdout


def check_files(ladder, options):
    """Checks before a long run that its files can be written, and take the ladder's rows."""
    for name in {"csv", "epochs_csv", "save_weights", "save"} & vars(options).keys():
        path = getattr(options, name)
        option = name.replace("_", "-")
        if not path:
            continue
        try:
            open(path, "ab").close()
        except OSError as error:
            leave(BAD_INPUT, f"--{option}: cannot write '{path}': {error.strerror}")
        if option.endswith("csv"):
            with open(path, encoding="utf-8", errors="replace") as file:
                if file.readline() not in ("", header(ladder, path, option)):
                    leave(BAD_INPUT,
                          f"--{option}: {path} begins with other columns than a result row's")


def save(path, *arrays):
    try:
        with open(path, "wb") as file:
            for array in arrays:
                array.tofile(file)
    except OSError as error:
        leave(RUN_FAILED, f"cannot write '{path}': {error}")


def warm_up(peer, load):
    """Trains for an epoch, which compiles everything, and on a GPU for WARMUP_S, as in the stages.
    Then `load` sets the weights back. Returns the seconds of the first epoch."""
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
    """Appends a row of these values to the file of --csv or --epochs-csv, after the header if it is
    empty. A column without a value stays empty. vram is in MiB, or None."""
    row = {**values, "stage": NAME, "device": device, "threads": threads if device == "cpu" else "",
           "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    row |= {column: f"{value:.9f}" for column, value in values.items()
            if column.endswith("_s") and value is not None}
    row |= {} if vram is None else {"peak_vram_mib": float(vram)}
    columns = header(ladder, name, option)
    try:
        with open(name, "a", newline="", encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_size == 0:
                file.write(columns)
            csv.DictWriter(file, columns.strip().split(","), extrasaction="ignore",
                           lineterminator="\n").writerow(row)
    except OSError as error:
        leave(RUN_FAILED, f"--{option}: cannot write: {error}; this run's row is not saved")


enter_environment()
