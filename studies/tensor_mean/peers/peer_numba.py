#!/usr/bin/env python3
"""Numba on the CPU: loops, compiled with `parallel` and `fastmath`, in the faster of two orders."""

import peer
import numpy as np

numba = peer.require("numba")


@numba.njit(parallel=True, fastmath=True, cache=True)
def average(x, y, z, mean):
    count, features = x.shape
    for i in numba.prange(features):
        mean[i] = 0
        for n in range(count):
            for j in range(features):
                product = x[n, i] * y[n, j]
                for k in range(features):
                    mean[i, j, k] += product * z[n, k]
        mean[i] /= np.float32(count)


class Numba(peer.Peer):
    def __init__(self, x, y, z):
        self.features = x, y, z
        self.mean = np.empty(3 * [x.shape[1]], np.float32)

    def run(self):
        average(*self.features, self.mean)
        return self.mean


if __name__ == "__main__":
    peer.main(Numba)
