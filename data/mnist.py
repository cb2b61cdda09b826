"""What there is to know of MNIST: where its files are (locate.py), what a row calls it, and how to
draw some for tests. The name of this file is that of the data's folder beside it, and of the
variables MNIST_DIR and MNIST_MIRRORS."""

import numpy as np

NAME, FILES, IMAGES = "MNIST", "MNIST's four files", "digits"
ALONE = ["train.csv"]  # Kaggle's, which is data without the others
SHA256 = {
    "train-images-idx3-ubyte.gz":
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz":
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz":
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz":
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
MIRRORS = ["https://ossci-datasets.s3.amazonaws.com/mnist",
           "https://storage.googleapis.com/cvdf-datasets/mnist"]
TESTED = 200  # images in the test set; a stage may take 5 ms an image, so there are no more


def kind(files):
    """What rows call a data set that has these files."""
    if not files & {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"}:
        return "csv"
    return "synthetic" if "SYNTHETIC" in files else "mnist"


def draw_images(count, seed, size=784, classes=10):
    """Random images with about a fifth of their pixels non-zero, as in MNIST, and their labels. The
    label decides which pixels, so that there is something to learn. Each image has its own stream
    of PCG32."""
    increment = 2 * np.arange(count, dtype=np.uint64) + 1
    state = (increment + seed) * np.uint64(0x5851f42d4c957f2d) + increment

    def draw(where=True):  # the state moves on only where it says so
        nonlocal state
        old = state
        state = np.where(where, old * np.uint64(0x5851f42d4c957f2d) + increment, old)
        bits, turn = (old ^ old >> 18) >> 27 & 0xffffffff, old >> 59
        return (bits >> turn | bits << (32 - turn)) & 0xffffffff

    labels = draw() % classes
    pixels = np.empty((count, size), np.uint8)
    for k in range(size):
        drawn = draw() % 100 < np.where((7 * k + 3 * labels) % 31 < 6, 60, 10)
        pixels[:, k] = np.where(drawn, draw(drawn) % 256, 0)
    return pixels, labels.astype(np.uint8)


def write_set(folder, name, images, labels):
    """Writes a set, which is train or t10k, as MNIST's two files: IDX."""
    folder.mkdir(parents=True, exist_ok=True)
    for which, values in ("images-idx3", images), ("labels-idx1", labels):
        values = np.asarray(values)
        header = np.array([0x800 + values.ndim, *values.shape], ">u4").tobytes()
        (folder / f"{name}-{which}-ubyte").write_bytes(header + values.astype(np.uint8).tobytes())


def write(folder, train):
    """Writes a data set of so many training images."""
    for seed, (name, count) in enumerate((("train", train), ("t10k", TESTED)), 1):
        pixels, labels = draw_images(count, seed)
        write_set(folder, name, pixels.reshape(count, 28, 28), labels)
