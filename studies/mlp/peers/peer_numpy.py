#!/usr/bin/env python3
"""NumPy, the paper's baseline. It calls OpenBLAS for the products. Arrays are written in place."""

import peer
import numpy as np


class NumPy(peer.Peer):
    def __init__(self, options, images, labels):
        size = min(options.batch, options.train)
        targets = np.eye(peer.CLASSES, dtype=np.float32)[labels]
        starts = range(0, options.train, size)
        self.batches = [(images[i:i + size], targets[i:i + size]) for i in starts]
        self.rate = options.learning_rate
        shapes = peer.shapes(options)
        self.values = [np.empty((size, outputs), np.float32) for _, outputs in shapes]
        self.d_values = [np.empty((size, outputs), np.float32) for _, outputs in shapes[:-1]]
        self.d_weights = [np.empty(shape, np.float32) for shape in shapes]

    def load(self, weights, biases):
        self.parameters = weights, biases

    def forward(self, x, values):
        """Sets the values of all layers."""
        for layer, (weight, bias, a) in enumerate(zip(*self.parameters, values)):
            np.matmul(x, weight, out=a)
            a += bias
            if layer + 1 < len(values):
                np.maximum(a, 0, out=a)
            x = a

    def backward(self, x, values, dz):
        """Updates all layers."""
        weights, biases = self.parameters
        for layer in reversed(range(len(weights))):
            before = values[layer - 1] if layer else x
            if layer:
                dx = np.matmul(dz, weights[layer].T, out=self.d_values[layer - 1][:len(x)])
                dx *= before > 0
            weights[layer] -= np.matmul(before.T, dz, out=self.d_weights[layer])
            biases[layer] -= dz.sum(axis=0)
            dz = layer and dx

    def epoch(self):
        total = 0.0
        for x, target in self.batches:
            values = [array[:len(x)] for array in self.values]
            self.forward(x, values)
            z = values[-1]
            z -= z.max(axis=1, keepdims=True)
            total -= np.vdot(z, target)
            np.exp(z, out=z)
            sums = z.sum(axis=1, keepdims=True)
            total += np.log(sums).sum()
            # The learning rate is multiplied in here, where the gradients have the fewest numbers.
            z /= sums
            z -= target
            z *= np.float32(self.rate / len(x))
            self.backward(x, values, z)
        return total

    def weights(self):
        return self.parameters


if __name__ == "__main__":
    peer.main(NumPy)
