"""What the study's Python peers share: options, activations, the clock and the result row.

Import it before NumPy. It switches to the environment that `make peers` made, if there is one, and
sets how many threads the libraries start.
"""

import math
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "bench/peers"))
import program
from program import NAME, NOT_HERE, RUN_FAILED, leave, require  # noqa: F401

LADDER = "information"


def draw(options, stream):
    """Draws a set of activations, as run.h says."""
    count = options.samples * options.features
    bits = program.draw_bits(options.seed, stream, count + count % 2)
    radius = np.sqrt(-2 * np.log((bits[::2] + 1.0) * 2**-32))
    angle = bits[1::2] * (2 * np.pi * 2**-32)
    numbers = np.empty(count + count % 2, np.float32)
    numbers[::2] = radius * np.cos(angle)
    numbers[1::2] = radius * np.sin(angle)
    return numbers[:count].reshape(options.samples, options.features)


class Peer:
    """What a peer defines. x and y are samples × features, float32, on the host."""
    device = "cpu"
    is_factored = False  # whether it factors the double sum

    def __init__(self, x, y):
        """Allocates, and puts the data where a pass of the peer begins with them."""

    def run(self):
        """Makes a pass. Returns the entropy and the mutual information, as Python's numbers."""

    def peak_vram_mib(self):
        """The most device memory in use, or None without a device."""


def report(peer, options, values):
    """Prints the result line and appends the row. It has no times of the phases: frameworks compute
    them in one call, or asynchronously."""
    entropy, information, time_s = (values[name] for name in
                                    ("entropy", "mutual_information", "time_s"))
    if not math.isfinite(entropy + information):
        leave(RUN_FAILED, f"{NAME}: the entropy became {entropy} and the mutual information "
              f"{information}")
    # As in the stages. An exponential counts as one operation, and so does a division.
    count = options.features
    operations = options.samples * (10 * count if peer.is_factored else (10 + 3 * count) * count)
    gflops = operations / time_s / 1e9
    if options.csv:
        program.append_row(LADDER, options.csv, peer.device, THREADS, peer.peak_vram_mib(), {
            **vars(options), "dataset": "drawn", **values, "gflops": gflops})
    print(f"{NAME}: samples {options.samples}, features {options.features}: pass {time_s:.6f} s, "
          f"{gflops:.1f} GFLOP/s, entropy {entropy:.7g}, mutual information {information:.7g}")


def main(peer_class):
    """Runs the peer, from the command line to the row."""
    program.check_files(LADDER, OPTIONS)
    x, y = draw(OPTIONS, 1), draw(OPTIONS, 2)

    # The first pass compiles and touches the memory. It is not measured.
    clock = time.perf_counter()
    peer = peer_class(x, y)
    peer.run()
    setup_s = time.perf_counter() - clock

    (entropy, information), time_s = program.measure(peer.run, OPTIONS.seconds)
    report(peer, OPTIONS, {"setup_s": setup_s, "time_s": time_s,
                           "entropy": entropy, "mutual_information": information})


OPTIONS = program.parse_options(samples=4096, features=256, seconds=0.1)
THREADS = program.set_threads(OPTIONS.threads)
np = require("numpy")
