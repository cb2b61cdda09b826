"""What the Python peers share: options, data, initial weights, the clock and the result row.

Import it before NumPy. It switches to the environment that `make peers` made, if there is one, and
sets how many threads the libraries start.
"""

import argparse
import fcntl
import functools
import gzip
import importlib
import math
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAME = Path(sys.argv[0]).stem
PIXELS, CLASSES = 784, 10
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


def whole(low, high):
    """The type of an option that is a whole number from low to high."""
    def parse(text):
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"found '{text}', expected a whole number from {low} "
                                             f"to {high}")
        return int(text)
    return parse


def rate(text):
    """The type of --learning-rate."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"found '{text}', expected a number above 0")
    return value


class Parser(argparse.ArgumentParser):
    """argparse with a stage's errors: one line."""

    def error(self, message):
        leave(BAD_INPUT, message.removeprefix("argument "))


def parse_options():
    """The command line of a stage."""
    parser = Parser(allow_abbrev=False)
    count = whole(1, 2**31 - 1)
    parser.add_argument("--data", metavar="DIR", help="directory with MNIST",
                        default=os.environ.get("MNIST_DIR") or str(HERE.parents[1] / "data/mnist"))
    for name, default in (("hidden", 128), ("batch", 64), ("train", 37800), ("test", 4200)):
        parser.add_argument(f"--{name}", type=count, default=default, metavar="N")
    parser.add_argument("--epochs", type=whole(0, 2**31 - 1), default=5, metavar="N")
    parser.add_argument("--learning-rate", type=rate, default=0.1, metavar="X")
    parser.add_argument("--seed", type=whole(0, 2**64 - 1), default=1, metavar="N")
    parser.add_argument("--threads", type=count, metavar="N")
    parser.add_argument("--csv", metavar="FILE", help="append one row")
    parser.add_argument("--save-weights", metavar="FILE")
    parser.add_argument("--quiet", action="store_true", help="print the result line only")
    return parser.parse_args()


def set_threads(wanted):
    """Tells every library before it is loaded. Returns the number: at most one a processor."""
    if not wanted:
        text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
        wanted = int(text) if text.isdecimal() and int(text) else sys.maxsize
    threads = min(wanted, len(os.sched_getaffinity(0)))
    # OpenBLAS, OpenMP (PyTorch), MKL, Numba, JAX.
    for name in ("OPENBLAS", "OMP", "MKL", "NUMBA"):
        os.environ[f"{name}_NUM_THREADS"] = str(threads)
    os.environ["PJRT_NPROC"] = str(threads)
    # As in run_all.sh: on a busy machine, PyTorch's barriers otherwise take twenty times as long.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    return threads


def open_idx(directory, name, images):
    """An IDX file's bytes as an array with a row for each item."""
    path = directory / name
    if not path.exists() and path.with_name(name + ".gz").exists():
        path = path.with_name(name + ".gz")
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        content = file.read()
    header = (0x803, 28, 28) if images else (0x801,)
    size = 4 * len(header) + 4
    found = np.frombuffer(content[:size].ljust(size, b"\0"), ">u4")
    if (found[0], *found[2:]) != header:
        raise ValueError(f"{path}: expected the header of an IDX file of "
                         f"{'28 x 28 images' if images else 'labels'}")
    return np.frombuffer(content, np.uint8, offset=found.nbytes).reshape(found[1], -1)


def take(option, count, images, labels):
    """The first samples as the network sees them: float32 images, labels."""
    if len(images) != len(labels) or len(images) < count or labels.max() >= CLASSES:
        raise ValueError(f"found {len(images)} images and {len(labels)} labels, --{option} expects "
                         f"at least {count} and labels from 0 to 9")
    return images[:count].astype(np.float32) / np.float32(255), labels[:count].reshape(-1)


def load_data(options):
    """The training set, the test set, and the name of the data set."""
    directory = Path(options.data)
    if not list(directory.glob("train-images-idx3-ubyte*")):
        path = next(iter(directory.glob("train.csv*")), None)
        if path is None:
            raise ValueError(f"{directory}: found no MNIST; see data/README.md")
        rows = np.loadtxt(path, np.uint8, delimiter=",", skiprows=1, ndmin=2)
        split = options.train
        return (take("train", split, rows[:split, 1:], rows[:split, 0]),
                take("test", options.test, rows[split:, 1:], rows[split:, 0]), "csv")
    sets = [take(option, getattr(options, option),
                 open_idx(directory, f"{name}-images-idx3-ubyte", True),
                 open_idx(directory, f"{name}-labels-idx1-ubyte", False))
            for option, name in (("train", "train"), ("test", "t10k"))]
    return *sets, "synthetic" if (directory / "SYNTHETIC").exists() else "mnist"


def draw(seed, stream, fan_in, count):
    """Draws all weights from PCG32 at once: i steps after s the state is aⁱ·s + c·(1 + … + aⁱ⁻¹),
    modulo 2⁶⁴."""
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
    bits = shifted >> turn | shifted << (-turn & np.uint32(31))
    limit = np.sqrt(np.float32(6) / np.float32(fan_in))
    return ((bits >> np.uint32(8)).astype(np.float32) * np.float32(2**-23) - np.float32(1)) * limit


def initial_weights(options):
    """W1, b1, W2, b2: new arrays at each call."""
    hidden = options.hidden
    return (draw(options.seed, 1, PIXELS, PIXELS * hidden).reshape(PIXELS, hidden),
            np.zeros(hidden, np.float32),
            draw(options.seed, 2, hidden, hidden * CLASSES).reshape(hidden, CLASSES),
            np.zeros(CLASSES, np.float32))


def accuracy(weights, images, labels):
    """The fraction of samples whose most probable class is their label."""
    weights1, bias1, weights2, bias2 = weights
    outputs = np.maximum(images @ weights1 + bias1, 0) @ weights2 + bias2
    return float((outputs.argmax(axis=1) == labels).mean())


@functools.cache
def header():
    """The header of a stage's rows. The first stage prints it."""
    command = ('set -- $(python3 harness/ladders.py stages --cpu stages) && '
               'make -s -C "$1" >&2 && "$1/train" --columns')
    done = subprocess.run(command, shell=True, cwd=HERE.parents[1], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        leave(RUN_FAILED, f"--csv: found no header: {done.stderr}")
    return done.stdout


def check_files(options):
    """Checks before a long run that its files can be written. Creates none."""
    for option, name in (("csv", options.csv), ("save-weights", options.save_weights)):
        if name is None:
            continue
        path = Path(name)
        if not name or not os.access(path if path.exists() else path.parent, os.W_OK) \
                or path.is_dir():
            leave(BAD_INPUT, f"--{option}: cannot write '{name}'; expected a file in a writable "
                  "directory")
        if option == "save-weights" and path.exists() and not path.is_file():
            leave(BAD_INPUT, f"--save-weights: {name} is no regular file: expected a new one, or "
                  "one to replace")
        if option == "csv" and path.is_file() and path.stat().st_size:
            content = path.read_bytes()
            if not content.startswith(header().encode()):
                leave(BAD_INPUT, f"--csv: {name} begins with other columns than a result row's")
            if not content.endswith(b"\n"):
                leave(BAD_INPUT, f"--csv: {name} ends within a row: complete or delete that row")
    if options.csv:
        header()  # it may fail
    if options.csv and options.save_weights \
            and Path(options.csv).resolve() == Path(options.save_weights).resolve():
        leave(BAD_INPUT, f"--save-weights: found {options.save_weights}, which is the file of "
              "--csv: expected another")


def save(path, weights):
    """Writes a new file and renames it, so that an earlier file stays whole until then."""
    target = Path(path).resolve()
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(b"".join(part.tobytes() for part in weights))
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        leave(RUN_FAILED, f"--save-weights: cannot write: {error}")


def append_row(path, row):
    """Appends the row, after the header if the file is empty, in one write."""
    with open(path, "ab", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        first = header() if os.fstat(file.fileno()).st_size == 0 else ""
        line = ",".join(row[name] for name in header().strip().split(",")) + "\n"
        file.write((first + line).encode())


def train(peer, options):
    """Runs all epochs. Returns the seconds from the first batch until the last weight is final, and
    the mean loss of the last epoch."""
    loss = 0.0
    start = time.perf_counter()
    for epoch in range(options.epochs):
        loss = peer.epoch()
        if not options.quiet:
            print(f"epoch {epoch + 1} of {options.epochs}: loss {float(loss) / options.train:.5f}",
                  flush=True)
    peer.wait()
    return time.perf_counter() - start, float(loss) / options.train


class Peer:
    """What a peer defines. `images` is train × 784 float32, `labels` is train uint8, both on the
    host. `options` are those of the command line."""
    device = "cpu"

    def __init__(self, options, images, labels):
        """Allocates, and puts the data where the training reads them."""

    def load(self, weights):
        """Sets the weights. The peer may keep and change the arrays."""

    def epoch(self):
        """Trains on all batches. Returns the sum of the samples' losses, maybe not computed yet."""

    def wait(self):
        """Returns when all work that was started is done."""

    def weights(self):
        """W1, b1, W2, b2 as NumPy arrays."""

    def peak_vram_mib(self):
        """The most device memory in use, or None without a device."""


def report(options, row, loss, train_s):
    """Prints the result line and appends the row. It has no times of the phases: frameworks compute
    loss, gradient and update in one call, or asynchronously."""
    if not math.isfinite(loss):
        leave(RUN_FAILED, f"{NAME}: the loss became {loss}: try a --learning-rate below "
              f"{options.learning_rate:g}")
    flops = (4 * PIXELS + 6 * CLASSES) * options.hidden * options.epochs * options.train
    row.update(
        stage=NAME, hidden=str(options.hidden), batch=str(options.batch),
        epochs=str(options.epochs), learning_rate=repr(options.learning_rate),
        seed=str(options.seed), train_samples=str(options.train),
        test_samples=str(options.test), train_s=f"{train_s:.9f}", forward_s="", backward_s="",
        final_loss=repr(loss) if options.epochs else "", gflops=repr(flops / train_s / 1e9),
        peak_rss_mib=repr(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
    if options.csv:
        try:
            append_row(options.csv, row)
        except OSError as error:
            leave(RUN_FAILED, f"--csv: cannot write: {error}; this run's row is not saved")
    print(f"{NAME}: hidden {options.hidden}, batch {options.batch}, epochs {options.epochs}, "
          f"{row['dataset']}: train {train_s:.3f} s, {float(row['gflops']):.1f} GFLOP/s, "
          f"loss {f'{loss:#.5g}' if options.epochs else 'untrained'}, "
          f"accuracy {float(row['test_accuracy']):.4f}")


def main(peer_class):
    """Runs the peer, from the command line to the row."""
    check_files(OPTIONS)
    clock = time.perf_counter()
    try:
        (images, labels), (test_images, test_labels), dataset = load_data(OPTIONS)
    except (OSError, EOFError, ValueError) as error:
        leave(BAD_INPUT, error)
    load_s = time.perf_counter() - clock

    # The first epoch warms up, and compiles for the short last batch too. Then the weights are set
    # back.
    clock = time.perf_counter()
    peer = peer_class(OPTIONS, images, labels)
    peer.load(initial_weights(OPTIONS))
    if OPTIONS.epochs:
        peer.epoch()
        peer.wait()
        peer.load(initial_weights(OPTIONS))
    peer.wait()
    setup_s = time.perf_counter() - clock

    train_s, loss = train(peer, OPTIONS)
    weights = [np.ascontiguousarray(part, "<f4") for part in peer.weights()]
    if OPTIONS.save_weights and math.isfinite(loss):
        save(OPTIONS.save_weights, weights)
    vram = peer.peak_vram_mib()
    row = {"device": peer.device, "threads": str(THREADS) if peer.device == "cpu" else "",
           "dataset": dataset, "load_s": f"{load_s:.9f}", "setup_s": f"{setup_s:.9f}",
           "test_accuracy": repr(accuracy(weights, test_images, test_labels)),
           "peak_vram_mib": "" if vram is None else repr(float(vram))}
    report(OPTIONS, row, loss, train_s)


enter_environment()
OPTIONS = parse_options()
THREADS = set_threads(OPTIONS.threads)
np = require("numpy")
np.seterr(all="ignore")  # report() says in one line if the loss is not finite
