"""What the harness has to know of the galaxies: see data/mnist.py."""

import numpy as np

from data.mnist import TESTED, draw_images


def kind(files):
    return "synthetic" if "SYNTHETIC" in files else "galaxy"


def write(folder, train):
    """Writes a data set as CSV files: a label and 32 × 32 pixels a row."""
    for seed, (name, count) in enumerate((("train", train), ("test", TESTED)), 1):
        pixels, labels = draw_images(count, seed, 1024, 3)
        np.savetxt(folder / f"{name}.csv", np.column_stack((labels, pixels)), "%d", ",")
