#!/usr/bin/env python3
"""peer_numba with the order of loops of the paper's CUDA kernel: each element sums over the
triplets, which are innermost."""

import peer
import peer_numba
import numpy as np

numba = peer.require("numba")


@numba.njit(parallel=True, fastmath=True, cache=True)
def average(x, y, z, mean):
    count, features = x.shape
    for i in numba.prange(features):
        for j in range(features):
            for k in range(features):
                total = np.float32(0)
                for n in range(count):
                    total += x[n, i] * y[n, j] * z[n, k]
                mean[i, j, k] = total / np.float32(count)


class NumbaTriplets(peer_numba.Numba):
    def run(self):
        average(*self.features, self.mean)
        return self.mean


if __name__ == "__main__":
    peer.main(NumbaTriplets)
