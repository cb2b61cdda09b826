"""What the study's Python peers share: options, features, the clock, the mean's file and the result
row.

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

LADDER = "tensor_mean"


def draw(options, stream):
    """Draws the features of x, y or z."""
    bits = program.draw_bits(options.seed, stream, options.triplets * options.features)
    features = (bits >> np.uint32(8)).astype(np.float32) * np.float32(2**-23) - np.float32(1)
    return features.reshape(options.triplets, options.features)


class Peer:
    """What a peer defines. x, y and z are triplets × features, float32, on the host."""
    device = "cpu"

    def __init__(self, x, y, z):
        """Allocates, and keeps the features in the form in which a pass of the peer begins with
        them. Features for a GPU stay on the host."""

    def run(self):
        """Makes a pass. Returns the mean on the host: features × features × features."""

    def peak_vram_mib(self):
        """The most device memory in use, or None without a device."""


def report(peer, options, mean, setup_s, time_s):
    """Writes the mean, appends the row and prints the result line. The row has no times of the
    phases: frameworks compute them in one call, or asynchronously."""
    largest = float(np.abs(mean).max())
    if not math.isfinite(largest):
        leave(RUN_FAILED, f"{NAME}: an element of the mean became {largest}")
    pairs = options.features**2
    gflops = options.triplets * (pairs + 2 * pairs * options.features) / time_s / 1e9
    if options.save:
        program.save(options.save, mean)
    if options.csv:
        program.append_row(LADDER, options.csv, peer.device, THREADS, peer.peak_vram_mib(), {
            **vars(options), "dataset": "drawn", "setup_s": setup_s, "time_s": time_s,
            "largest": largest, "gflops": gflops})
    print(f"{NAME}: triplets {options.triplets}, features {options.features}: pass {time_s:.6f} s, "
          f"{gflops:.1f} GFLOP/s, largest element {largest:.7g}")


def main(peer_class):
    """Runs the peer, from the command line to the row."""
    program.check_files(LADDER, OPTIONS)
    features = [draw(OPTIONS, stream) for stream in (1, 2, 3)]

    # The first pass compiles and touches the memory. It is not measured.
    clock = time.perf_counter()
    peer = peer_class(*features)
    peer.run()
    setup_s = time.perf_counter() - clock

    mean, time_s = program.measure(peer.run, OPTIONS.seconds)
    report(peer, OPTIONS, np.ascontiguousarray(mean, "<f4"), setup_s, time_s)


OPTIONS = program.parse_options(triplets=8192, features=32, seconds=0.1, save="")
THREADS = program.set_threads(OPTIONS.threads)
np = require("numpy")
