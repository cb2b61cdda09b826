"""What there is to know of the galaxies: see data/mnist.py."""

import numpy as np

from data.mnist import TESTED, draw_images

NAME, FILES, IMAGES = "galaxies", "the galaxies' train.csv and test.csv", "galaxies"
ALONE = []
SHA256 = {"train.csv": "c014d3e4ad0ec15edb33dbcb742a7f0da1d95d2af1deca975442fdca73373d0a",
          "test.csv": "233610481a8a9f33a6f4a317e361eebed55a6312a4c8d7c863e6d16252c5da25"}
RAW = "https://raw.githubusercontent.com/pmocz/artificialneuralnetwork-python"
MIRRORS = [f"{RAW}/b9eb016f8724c7a9bb4958c701d7d4b7c266a73a", f"{RAW}/main"]


def kind(files):
    return "synthetic" if "SYNTHETIC" in files else "galaxy"


def write(folder, train):
    """Writes a data set as CSV files: a label and 32 × 32 pixels a row."""
    for seed, (name, count) in enumerate((("train", train), ("test", TESTED)), 1):
        pixels, labels = draw_images(count, seed, 1024, 3)
        np.savetxt(folder / f"{name}.csv", np.column_stack((labels, pixels)), "%d", ",")
