#!/usr/bin/env python3
"""Numba, as in the paper: the functions of peer_numpy, compiled. The products call SciPy's
OpenBLAS. Everything between them is loops."""

import peer
import peer_numpy
import numpy as np

numba = peer.require("numba")
peer.require("scipy")  # np.dot compiles to calls of its BLAS


@numba.njit(fastmath=True, cache=True)
def forward_layer(x, weights, bias, values, relu):
    np.dot(x, weights, values)
    for s in range(len(values)):
        for o in range(len(bias)):
            value = values[s, o] + bias[o]
            values[s, o] = max(value, np.float32(0)) if relu else value


@numba.njit(fastmath=True, cache=True)
def softmax(z, labels, rate):
    """Turns z into the rate times its gradient. Returns the sum of the losses."""
    total = 0.0
    scale = np.float32(rate / len(z))
    for s in range(len(z)):
        largest = z[s].max()
        label = z[s, labels[s]] - largest
        sums = np.float32(0)
        for o in range(z.shape[1]):
            z[s, o] = np.exp(z[s, o] - largest)
            sums += z[s, o]
        total += np.log(sums) - label
        for o in range(z.shape[1]):
            z[s, o] = (z[s, o] / sums - np.float32(o == labels[s])) * scale
    return total


@numba.njit(fastmath=True, cache=True)
def input_gradient(dz, weights, values, d_values):
    np.dot(dz, weights.T, d_values)
    for s in range(len(values)):
        for k in range(values.shape[1]):
            if values[s, k] <= 0:
                d_values[s, k] = 0


@numba.njit(fastmath=True, cache=True)
def update(x, dz, weights, bias, d_weights):
    np.dot(x.T, dz, d_weights)
    for k in range(weights.shape[0]):
        for o in range(weights.shape[1]):
            weights[k, o] -= d_weights[k, o]
    for s in range(len(dz)):
        for o in range(len(bias)):
            bias[o] -= dz[s, o]


class Numba(peer_numpy.NumPy):
    def __init__(self, options, images, labels):
        super().__init__(options, images, labels)
        labels = labels.astype(np.int64)
        size = min(options.batch, options.train)
        starts = range(0, options.train, size)
        self.batches = [(images[i:i + size], labels[i:i + size]) for i in starts]

    def epoch(self):
        weights, biases = self.parameters
        total = 0.0
        last = len(weights) - 1
        for x, labels in self.batches:
            inputs = [x, *(values[:len(x)] for values in self.values)]
            for layer in range(last + 1):
                forward_layer(inputs[layer], weights[layer], biases[layer], inputs[layer + 1],
                              layer < last)
            dz = inputs[-1]
            total += softmax(dz, labels, self.rate)
            for layer in range(last, -1, -1):
                if layer:
                    d_values = self.d_values[layer - 1][:len(x)]
                    input_gradient(dz, weights[layer], inputs[layer], d_values)
                update(inputs[layer], dz, weights[layer], biases[layer], self.d_weights[layer])
                dz = d_values if layer else dz
        return total


if __name__ == "__main__":
    peer.main(Numba)
