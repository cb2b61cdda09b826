"""What the Python peers share: options, data, initial weights, the clock and the result row.

Import it before NumPy. It switches to the environment that `make peers` made, if there is one, and
sets how many threads the libraries start.
"""

import math
import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench/peers"))
import program
from program import BAD_INPUT, NAME, NOT_HERE, RUN_FAILED, leave, require  # noqa: F401

LADDER = "stages"


def initial_weights(options):
    """W1, b1, W2, b2: new arrays at each call."""
    hidden = options.hidden
    return (mnist.draw(options.seed, 1, PIXELS, PIXELS * hidden).reshape(PIXELS, hidden),
            np.zeros(hidden, np.float32),
            mnist.draw(options.seed, 2, hidden, hidden * CLASSES).reshape(hidden, CLASSES),
            np.zeros(CLASSES, np.float32))


def accuracy(weights, images, labels):
    """The fraction of samples whose most probable class is their label."""
    weights1, bias1, weights2, bias2 = weights
    outputs = np.maximum(images @ weights1 + bias1, 0) @ weights2 + bias2
    return float((outputs.argmax(axis=1) == labels).mean())


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


def report(peer, options, values):
    """Prints the result line and appends the row. It has no times of the phases: frameworks compute
    loss, gradient and update in one call, or asynchronously."""
    loss, train_s = values["final_loss"], values["train_s"]
    if not math.isfinite(loss):
        leave(RUN_FAILED, f"{NAME}: the loss became {loss}: try a --learning-rate below "
              f"{options.learning_rate:g}")
    flops = (4 * PIXELS + 6 * CLASSES) * options.hidden * options.epochs * options.train
    gflops = flops / train_s / 1e9
    if options.csv:
        program.append_row(LADDER, options.csv, peer.device, THREADS, peer.peak_vram_mib(), {
            **vars(options), "train_samples": options.train, "test_samples": options.test, **values,
            "gflops": gflops, "final_loss": loss if options.epochs else ""})
    print(f"{NAME}: hidden {options.hidden}, batch {options.batch}, epochs {options.epochs}, "
          f"{values['dataset']}: train {train_s:.3f} s, {gflops:.1f} GFLOP/s, "
          f"loss {f'{loss:#.5g}' if options.epochs else 'untrained'}, "
          f"accuracy {values['test_accuracy']:.4f}")


def main(peer_class):
    """Runs the peer, from the command line to the row."""
    program.check_files(LADDER, OPTIONS)
    clock = time.perf_counter()
    try:
        (images, labels), (test_images, test_labels), dataset = mnist.load_data(OPTIONS)
    except program.BAD_DATA as error:
        leave(BAD_INPUT, f"{OPTIONS.data}: {error}")
    load_s = time.perf_counter() - clock

    clock = time.perf_counter()
    peer = peer_class(OPTIONS, images, labels)

    def load():
        peer.load(initial_weights(OPTIONS))

    load()
    peer.wait()
    setup_s = time.perf_counter() - clock

    warmup_s = program.warm_up(peer, load) if OPTIONS.epochs else None
    train_s, loss = train(peer, OPTIONS)
    weights = [np.ascontiguousarray(part, "<f4") for part in peer.weights()]
    if OPTIONS.save_weights and math.isfinite(loss):
        program.save(OPTIONS.save_weights, *weights)
    report(peer, OPTIONS, {
        "dataset": dataset, "load_s": load_s, "setup_s": setup_s, "warmup_s": warmup_s,
        "train_s": train_s, "final_loss": loss,
        "test_accuracy": accuracy(weights, test_images, test_labels)})


OPTIONS = program.parse_options(
    data=os.environ.get("MNIST_DIR") or str(program.ROOT / "data/mnist"),
    hidden=128, batch=64, train=37800, test=4200, epochs=5, learning_rate=0.1, save_weights="")
THREADS = program.set_threads(OPTIONS.threads)
np = require("numpy")
import mnist  # noqa: E402
from mnist import CLASSES, PIXELS  # noqa: E402
np.seterr(all="ignore")  # report() says in one line if the loss is not finite
