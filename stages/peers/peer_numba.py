#!/usr/bin/env python3
"""Numba: the epoch as one compiled function. The products call SciPy's OpenBLAS. Everything
between them is loops."""

import peer
import numpy as np

numba = peer.require("numba")
peer.require("scipy")  # np.dot compiles to calls of its BLAS


@numba.njit(fastmath=True, cache=True)
def epoch(images, labels, weights1, bias1, weights2, bias2, size, rate):
    samples, hidden, classes = len(images), len(bias1), len(bias2)
    activations = np.empty((size, hidden), np.float32)
    d_activations = np.empty((size, hidden), np.float32)
    outputs = np.empty((size, classes), np.float32)
    d_weights1 = np.empty_like(weights1)
    d_weights2 = np.empty_like(weights2)
    total = 0.0
    for first in range(0, samples, size):
        x, y = images[first:first + size], labels[first:first + size]
        n = len(x)
        a, da, z = activations[:n], d_activations[:n], outputs[:n]
        np.dot(x, weights1, a)
        for s in range(n):
            for h in range(hidden):
                a[s, h] = max(a[s, h] + bias1[h], np.float32(0))
        np.dot(a, weights2, z)
        scale = np.float32(rate / n)
        for s in range(n):
            for o in range(classes):
                z[s, o] += bias2[o]
            largest = z[s].max()
            label = z[s, y[s]] - largest
            sums = np.float32(0)
            for o in range(classes):
                z[s, o] = np.exp(z[s, o] - largest)
                sums += z[s, o]
            total += np.log(sums) - label
            for o in range(classes):
                z[s, o] = (z[s, o] / sums - np.float32(o == y[s])) * scale
        np.dot(z, weights2.T, da)
        np.dot(a.T, z, d_weights2)
        for s in range(n):
            for o in range(classes):
                bias2[o] -= z[s, o]
            for h in range(hidden):
                if a[s, h] <= 0:
                    da[s, h] = 0
                bias1[h] -= da[s, h]
        np.dot(x.T, da, d_weights1)
        for i in range(weights1.shape[0]):
            for h in range(hidden):
                weights1[i, h] -= d_weights1[i, h]
        for h in range(hidden):
            for o in range(classes):
                weights2[h, o] -= d_weights2[h, o]
    return total


class Numba(peer.Peer):
    def __init__(self, options, images, labels):
        self.images, self.labels = images, labels.astype(np.int64)
        self.size, self.rate = min(options.batch, options.train), options.learning_rate

    def load(self, weights):
        self.parameters = weights

    def epoch(self):
        return epoch(self.images, self.labels, *self.parameters, self.size, self.rate)

    def weights(self):
        return self.parameters


if __name__ == "__main__":
    peer.main(Numba)
