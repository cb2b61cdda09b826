"""MNIST and the initial weights, for the Python peers of the ladders that train on it.

Import it after program.set_threads(): it imports NumPy.
"""

import gzip
from pathlib import Path

import numpy as np
import program

PIXELS, CLASSES = 784, 10


def open_idx(directory, name, *sizes):
    """An IDX file's bytes as an array with a row for each item, which has these sizes."""
    path = directory / name
    if not path.exists() and path.with_name(name + ".gz").exists():
        path = path.with_name(name + ".gz")
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            content = file.read()
    except program.DAMAGED as error:
        raise ValueError(f"{path}: damaged or truncated gzip file: {error}") from None
    found = np.frombuffer(content[:8 + 4 * len(sizes)].ljust(8 + 4 * len(sizes), b"\0"), ">u4")
    if (found[0], *found[2:]) != (0x801 + len(sizes), *sizes):
        raise ValueError(f"{path}: expected the header of an IDX file of "
                         f"{'28 x 28 images' if sizes else 'labels'}")
    expected = found.nbytes + int(np.prod(found[1:], dtype=np.int64))
    if len(content) != expected:
        raise ValueError(f"{path}: found {len(content)} bytes, expected {expected} ({found[1]} "
                         "items); fetch it again")
    return np.frombuffer(content, np.uint8, offset=found.nbytes).reshape(found[1], -1)


def take(option, count, images, labels):
    """The first samples as the network sees them: float32 images, labels."""
    if len(images) != len(labels) or len(images) < count or labels.max() >= CLASSES:
        raise ValueError(f"found {len(images)} images and {len(labels)} labels, --{option} expects "
                         f"at least {count} and labels from 0 to 9")
    found = images[:count].astype(np.float32)
    found /= np.float32(255)  # in place: a copy would be in the peak of the memory
    return found, labels[:count].reshape(-1)


def load_data(options):
    """The training set, the test set, and the name of the data set."""
    directory = Path(options.data)
    if not list(directory.glob("train-images-idx3-ubyte*")):
        path = next(iter(directory.glob("train.csv*")), None)
        if path is None:
            raise ValueError(f"{directory}: found no MNIST; see data/README.md")
        rows = program.read_csv(path, 1)
        split = options.train
        return (take("train", split, rows[:split, 1:], rows[:split, 0]),
                take("test", options.test, rows[split:, 1:], rows[split:, 0]), "csv")
    sets = [take(option, getattr(options, option),
                 open_idx(directory, f"{name}-images-idx3-ubyte", 28, 28),
                 open_idx(directory, f"{name}-labels-idx1-ubyte"))
            for option, name in (("train", "train"), ("test", "t10k"))]
    return *sets, "synthetic" if (directory / "SYNTHETIC").exists() else "mnist"


def draw(seed, stream, fan_in, count):
    """Draws weights."""
    bits = program.draw_bits(seed, stream, count)
    limit = np.sqrt(np.float32(6) / np.float32(fan_in))
    return ((bits >> np.uint32(8)).astype(np.float32) * np.float32(2**-23) - np.float32(1)) * limit
