#!/usr/bin/env python3
"""peer_numpy_loop with its loop divided among processes (`multiprocessing`), which the paper tried
and found no faster. A process keeps its part of the samples. It gets θ and returns a gradient. Its
OpenBLAS has one thread, and the parent's, too: a second would spin after each cost, on a core that
a process needs."""

import multiprocessing

import peer
import peer_numpy_loop
import numpy as np

threadpoolctl = peer.require("threadpoolctl")

parts = []  # one for each process, which inherits them all


def part_gradient(number, theta):
    return parts[number].gradient(theta) * len(parts[number].x)


class Processes(peer_numpy_loop.NumPyLoop):
    def __init__(self, x, y, lambda_):
        super().__init__(x, y, lambda_)
        parts[:] = [peer_numpy_loop.NumPyLoop(*part, 0) for part in zip(
            np.array_split(x, peer.THREADS), np.array_split(y, peer.THREADS)) if len(part[0])]
        threadpoolctl.threadpool_limits(1)
        self.pool = multiprocessing.get_context("fork").Pool(len(parts))

    def gradient(self, theta):
        gradient = sum(self.pool.starmap(
            part_gradient, [(number, theta) for number in range(len(parts))], chunksize=1))
        for slope, weights in zip(peer.split(gradient), peer.split(theta)):
            slope[:, 1:] += self.lambda_ * weights[:, 1:]
        return gradient / len(self.x)


if __name__ == "__main__":
    peer.main(Processes)
