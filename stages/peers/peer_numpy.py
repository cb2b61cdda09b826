#!/usr/bin/env python3
"""NumPy, which calls OpenBLAS for the products. Arrays are written in place."""

import peer
import numpy as np


class NumPy(peer.Peer):
    def __init__(self, options, images, labels):
        size = min(options.batch, options.train)
        targets = np.eye(peer.CLASSES, dtype=np.float32)[labels]
        starts = range(0, options.train, size)
        self.batches = [(images[i:i + size], targets[i:i + size]) for i in starts]
        self.rate = options.learning_rate
        self.activations, self.d_activations = np.empty((2, size, options.hidden), np.float32)
        self.outputs = np.empty((size, peer.CLASSES), np.float32)
        self.d_weights1 = np.empty((peer.PIXELS, options.hidden), np.float32)
        self.d_weights2 = np.empty((options.hidden, peer.CLASSES), np.float32)

    def load(self, weights):
        self.parameters = weights

    def epoch(self):
        weights1, bias1, weights2, bias2 = self.parameters
        total = 0.0
        for x, target in self.batches:
            n = len(x)
            a, da, z = self.activations[:n], self.d_activations[:n], self.outputs[:n]
            np.matmul(x, weights1, out=a)
            a += bias1
            np.maximum(a, 0, out=a)
            np.matmul(a, weights2, out=z)
            z += bias2
            z -= z.max(axis=1, keepdims=True)
            total -= np.vdot(z, target)
            np.exp(z, out=z)
            sums = z.sum(axis=1, keepdims=True)
            total += np.log(sums).sum()
            # The learning rate is multiplied in here, where the gradients have the fewest numbers.
            z /= sums
            z -= target
            z *= np.float32(self.rate / n)
            np.matmul(z, weights2.T, out=da)
            da *= a > 0
            weights2 -= np.matmul(a.T, z, out=self.d_weights2)
            bias2 -= z.sum(axis=0)
            weights1 -= np.matmul(x.T, da, out=self.d_weights1)
            bias1 -= da.sum(axis=0)
        return total

    def weights(self):
        return self.parameters


if __name__ == "__main__":
    peer.main(NumPy)
