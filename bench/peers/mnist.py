"""MNIST and the initial weights, for the Python peers of the ladders that train on it.

Import it after program.set_threads(): it imports NumPy.
"""

import gzip
from pathlib import Path

import numpy as np
import program

PIXELS, CLASSES = 784, 10


def read_idx(directory, name, size):
    """An IDX file's bytes as an array, raw or gzipped, with a row of this size for each item."""
    path = directory / name
    with (open(path, "rb") if path.exists() else gzip.open(f"{path}.gz")) as file:
        content = np.frombuffer(file.read(), np.uint8)
    header = 8 if size == 1 else 16
    return content[header:].reshape(int.from_bytes(content[4:8].tobytes(), "big"), size)


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
    path = next(directory.glob("train.csv*"), None)
    if path and not list(directory.glob("train-images-idx3-ubyte*")):
        rows = program.read_csv(path, 1)
        split = options.train
        return (take("train", split, rows[:split, 1:], rows[:split, 0]),
                take("test", options.test, rows[split:, 1:], rows[split:, 0]), "csv")
    sets = [take(option, getattr(options, option),
                 read_idx(directory, f"{name}-images-idx3-ubyte", PIXELS),
                 read_idx(directory, f"{name}-labels-idx1-ubyte", 1))
            for option, name in (("train", "train"), ("test", "t10k"))]
    return *sets, "synthetic" if (directory / "SYNTHETIC").exists() else "mnist"


def draw(seed, stream, fan_in, count):
    bits = program.draw_bits(seed, stream, count)
    limit = np.sqrt(np.float32(6) / np.float32(fan_in))
    return ((bits >> np.uint32(8)).astype(np.float32) * np.float32(2**-23) - np.float32(1)) * limit
