#!/usr/bin/env python3
"""SciPy's sparse matrices for the products with x, NumPy for everything else. They are made once,
x for the forward product and its transpose for the gradient. SciPy's product uses one core."""

import peer
import numpy as np

sparse = peer.require("scipy.sparse")


class SciPySparse(peer.Peer):
    def __init__(self, options, images, labels):
        size = min(options.batch, options.train)
        targets = np.eye(peer.CLASSES, dtype=np.float32)[labels]
        self.batches = []
        for i in range(0, options.train, size):
            x = sparse.csr_array(images[i:i + size])
            self.batches.append((x, x.T.tocsr(), targets[i:i + size]))
        self.rate = options.learning_rate

    def load(self, weights):
        self.parameters = weights

    def epoch(self):
        weights1, bias1, weights2, bias2 = self.parameters
        total = 0.0
        for x, x_transposed, target in self.batches:
            a = x @ weights1
            a += bias1
            np.maximum(a, 0, out=a)
            z = a @ weights2
            z += bias2
            z -= z.max(axis=1, keepdims=True)
            total -= np.vdot(z, target)
            np.exp(z, out=z)
            sums = z.sum(axis=1, keepdims=True)
            total += np.log(sums).sum()
            # The learning rate is multiplied in here, where the gradients have the fewest numbers.
            z /= sums
            z -= target
            z *= np.float32(self.rate / len(target))
            da = z @ weights2.T
            da *= a > 0
            weights2 -= a.T @ z
            bias2 -= z.sum(axis=0)
            weights1 -= x_transposed @ da
            bias1 -= da.sum(axis=0)
        return total

    def weights(self):
        return self.parameters


if __name__ == "__main__":
    peer.main(SciPySparse)
