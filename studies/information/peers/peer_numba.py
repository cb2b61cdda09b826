#!/usr/bin/env python3
"""Numba on the CPU, as in the paper: loops, compiled with `parallel` and `fastmath`."""

import peer
import numpy as np

numba = peer.require("numba")


@numba.njit(parallel=True, fastmath=True, cache=True)
def softmax(x, p):
    for b in numba.prange(x.shape[0]):
        largest = x[b].max()
        total = np.float32(0)
        for i in range(x.shape[1]):
            p[b, i] = np.exp(x[b, i] - largest)
            total += p[b, i]
        for i in range(x.shape[1]):
            p[b, i] /= total


@numba.njit(parallel=True, fastmath=True, cache=True)
def entropy(p):
    total = 0.0
    for b in numba.prange(p.shape[0]):
        row = np.float32(0)
        for i in range(p.shape[1]):
            row += p[b, i] * p[b, i]
        total += row
    return total / p.shape[0]


@numba.njit(parallel=True, fastmath=True, cache=True)
def information(p, q):
    total = 0.0
    for b in numba.prange(p.shape[0]):
        row = np.float32(0)
        for i in range(p.shape[1]):
            for j in range(q.shape[1]):
                product = p[b, i] * q[b, j]
                row += product * product
        total += row
    return total / p.shape[0]


class Numba(peer.Peer):
    def __init__(self, x, y):
        self.x, self.y = x, y
        self.p, self.q = np.empty_like(x), np.empty_like(y)

    def run(self):
        softmax(self.x, self.p)
        softmax(self.y, self.q)
        return entropy(self.p), information(self.p, self.q)


if __name__ == "__main__":
    peer.main(Numba)
