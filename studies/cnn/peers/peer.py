"""What the study's Python peers share: options, data, initial weights, the clock, the row of a run
and those of its epochs.

Import it before NumPy. It switches to the environment that `make peers` made, if there is one, and
sets how many threads the libraries start.
"""

import math
import os
import resource
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "bench/peers"))
import program
from program import BAD_INPUT, NAME, NOT_HERE, RUN_FAILED, leave, require  # noqa: F401

LADDER = "cnn"
SIDE = 28  # of an image
LAYERS = ((8, 1, 3, 3), 9), ((16, 8, 3, 3), 72), ((400, 128), 400), ((128, 10), 128)  # W, fan-in
OPERATIONS = 2 * 600_384  # a sample's multiply-adds: training.c has the sum


def load_data(options):
    """The training set and the test set, each images and labels, and the name of the data set."""
    train, test, dataset = mnist.load_data(options)
    if options.normalize:
        for images, _ in train, test:
            images -= np.float32(0.1307)
            images /= np.float32(0.3081)
    missing = -options.train % options.batch if options.pad else 0
    if missing:
        order = np.arange(options.train + missing) % options.train
        train = train[0][order], train[1][order]
    return train, test, dataset


def initial_parameters(options):
    """W1, b1, ..., W4, b4: new arrays at each call. Layer l draws from stream l."""
    return [array for layer, (shape, fan_in) in enumerate(LAYERS, 1) for array in (
        mnist.draw(options.seed, layer, fan_in, math.prod(shape)).reshape(shape),
        np.zeros(shape[0] if len(shape) == 4 else shape[1], np.float32))]


def convolve(x, weights, bias):
    """What the pool leaves of a convolution, with max(0, ·): n × filters × side × side."""
    side = (x.shape[2] - 2) // 2
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    a = np.tensordot(windows[:, :, :2 * side, :2 * side], weights, ((1, 4, 5), (1, 2, 3)))
    a = a.reshape(len(x), side, 2, side, 2, len(bias)).max((2, 4)) + bias
    return np.maximum(a, 0).transpose(0, 3, 1, 2)


def accuracy(parameters, images, labels):
    """The fraction of samples whose most probable class is their label."""
    weights1, bias1, weights2, bias2, weights3, bias3, weights4, bias4 = parameters
    right, size = 0, 250  # samples at a time, to need little memory
    for first in range(0, len(images), size):
        a = images[first:first + size].reshape(-1, 1, SIDE, SIDE)
        a = convolve(convolve(a, weights1, bias1), weights2, bias2).reshape(len(a), -1)
        z = np.maximum(a @ weights3 + bias3, 0) @ weights4 + bias4
        right += np.count_nonzero(z.argmax(axis=1) == labels[first:first + size])
    return right / len(images)


class Peer:
    """What a peer defines. `images` is n × 784 float32, `labels` is n uint8, both on the host.
    `options` are those of the command line."""
    device = "cpu"

    def __init__(self, options, images, labels):
        """Allocates, and puts the data where the training reads them."""

    def load(self, parameters):
        """Sets W1, b1, ..., W4, b4, and the velocities to 0. The peer may keep and change the
        arrays."""

    def epoch(self):
        """Trains on all batches. Returns the sum of the samples' losses, and how many samples had
        their label as the most probable class. Both may not be computed yet."""

    def wait(self):
        """Returns when all work that was started is done."""

    def parameters(self):
        """W1, b1, ..., W4, b4 as NumPy arrays."""

    def peak_vram_mib(self):
        """The most device memory in use so far, or None without a device."""


def append_row(peer, option, name, values):
    """Appends a row to the file of --csv or --epochs-csv. It has no times of the phases: frameworks
    compute loss, gradient and update in one call, or asynchronously."""
    program.append_row(LADDER, name, peer.device, THREADS, peer.peak_vram_mib(), {
        **vars(OPTIONS), "normalize": int(OPTIONS.normalize), "pad": int(OPTIONS.pad),
        "train_samples": OPTIONS.train, "test_samples": OPTIONS.test, **values}, option)


def append_epoch(peer, values):
    """Appends an epoch's row, with the memory that the process has now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    append_row(peer, "epochs-csv", OPTIONS.epochs_csv, {
        **values, "rss_mib": pages * resource.getpagesize() / 2**20,
        "vram_mib": peer.peak_vram_mib()})


def train(peer, samples, test, dataset):
    """Runs all epochs, of so many samples each. Returns the values of the row that they decide. An
    epoch's time is that from the first batch until the last weight is final."""
    run, train_s, accuracies = int(1e6 * time.time()), 0.0, []
    for number in range(1, OPTIONS.epochs + 1):
        start = time.perf_counter()
        sums = peer.epoch()
        peer.wait()
        epoch_s = time.perf_counter() - start
        train_s += epoch_s
        loss, train_accuracy = (float(part) / samples for part in sums)
        if not math.isfinite(loss):
            leave(RUN_FAILED, f"{NAME}: the loss became {loss} in epoch {number}: try a "
                  f"--learning-rate below {OPTIONS.learning_rate:g}")
        accuracies.append(accuracy(peer.parameters(), *test))
        if not OPTIONS.quiet:
            print(f"epoch {number} of {OPTIONS.epochs}: {epoch_s:.3f} s, loss {loss:#.5g}, "
                  f"accuracy {train_accuracy:.4f} in training, {accuracies[-1]:.4f} in the test",
                  flush=True)
        if OPTIONS.epochs_csv:
            append_epoch(peer, {
                "dataset": dataset, "run": run, "epoch": number, "epoch_s": epoch_s, "loss": loss,
                "train_accuracy": train_accuracy, "test_accuracy": accuracies[-1],
                "samples_per_s": samples / epoch_s})
    if not OPTIONS.epochs:
        return {"train_s": 0.0, "gflops": 0, "test_accuracy": accuracy(peer.parameters(), *test)}
    rate = OPTIONS.epochs * samples / train_s
    return {"train_s": train_s, "epoch_s": train_s / OPTIONS.epochs, "samples_per_s": rate,
            "final_loss": loss, "train_accuracy": train_accuracy, "test_accuracy": accuracies[-1],
            "best_test_accuracy": max(accuracies), "gflops": OPERATIONS * rate / 1e9}


def main(peer_class):
    """Runs the peer, from the command line to the row."""
    program.check_files(LADDER, OPTIONS)
    clock = time.perf_counter()
    try:
        (images, labels), test, dataset = load_data(OPTIONS)
    except program.BAD_DATA as error:
        leave(BAD_INPUT, f"{OPTIONS.data}: {error}")
    load_s = time.perf_counter() - clock

    clock = time.perf_counter()
    samples = len(labels)
    peer = peer_class(OPTIONS, images, labels)
    del images, labels  # a peer that has copied them no longer needs their memory

    def load():
        peer.load(initial_parameters(OPTIONS))

    load()
    peer.wait()
    setup_s = time.perf_counter() - clock

    warmup_s = program.warm_up(peer, load) if OPTIONS.epochs else None
    values = train(peer, samples, test, dataset)
    if OPTIONS.save_weights:
        program.save(OPTIONS.save_weights,
                     *(np.ascontiguousarray(part, "<f4") for part in peer.parameters()))
    if OPTIONS.csv:
        append_row(peer, "csv", OPTIONS.csv,
                   {"dataset": dataset, "load_s": load_s, "setup_s": setup_s,
                    "warmup_s": warmup_s, **values})
    loss = f"{values['final_loss']:#.5g}" if OPTIONS.epochs else "untrained"
    print(f"{NAME}: batch {OPTIONS.batch}, epochs {OPTIONS.epochs}, {dataset}: train "
          f"{values['train_s']:.3f} s, {values['gflops']:.1f} GFLOP/s, loss {loss}, accuracy "
          f"{values['test_accuracy']:.4f}")


OPTIONS = program.parse_options(
    data=os.environ.get("MNIST_DIR") or str(program.ROOT / "data/mnist"),
    batch=512, train=60000, test=10000, epochs=10, learning_rate=0.01, momentum=0.9,
    normalize=False, pad=False, epochs_csv="", save_weights="")
THREADS = program.set_threads(OPTIONS.threads)
np = require("numpy")
import mnist  # noqa: E402
from mnist import CLASSES, PIXELS  # noqa: E402, F401
np.seterr(all="ignore")  # train() says in one line if the loss is not finite
