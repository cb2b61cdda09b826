#!/usr/bin/env python3
"""Numba, as in the paper: compiled loops for convolution, pooling and the dense layers, parallel
over the samples. But all weights are trained."""

import peer
import numpy as np

numba = peer.require("numba")
prange = numba.prange
compiled = numba.njit(parallel=True, fastmath=True, cache=True)


@compiled
def convolve(x, weights, bias, z):
    """x is n × c × h × w, z is n × filters × (h − 2) × (w − 2)."""
    for s in prange(z.shape[0]):
        for f in range(z.shape[1]):
            for y in range(z.shape[2]):
                for k in range(z.shape[3]):
                    z[s, f, y, k] = bias[f]
                for c in range(x.shape[1]):
                    for i in range(3):
                        w0, w1, w2 = weights[f, c, i, 0], weights[f, c, i, 1], weights[f, c, i, 2]
                        for k in range(z.shape[3]):
                            z[s, f, y, k] += (w0 * x[s, c, y + i, k] + w1 * x[s, c, y + i, k + 1]
                                              + w2 * x[s, c, y + i, k + 2])


@compiled
def pool(z, a):
    """The largest of each 2 × 2, or 0 if that is larger."""
    for s in prange(a.shape[0]):
        for f in range(a.shape[1]):
            for y in range(a.shape[2]):
                for k in range(a.shape[3]):
                    a[s, f, y, k] = max(max(z[s, f, 2 * y, 2 * k], z[s, f, 2 * y, 2 * k + 1]),
                                        max(z[s, f, 2 * y + 1, 2 * k],
                                            z[s, f, 2 * y + 1, 2 * k + 1]), np.float32(0))


@compiled
def multiply(x, weights, bias, z, relu):
    """A dense layer."""
    for s in prange(z.shape[0]):
        for o in range(z.shape[1]):
            z[s, o] = bias[o]
        for i in range(x.shape[1]):
            for o in range(z.shape[1]):
                z[s, o] += x[s, i] * weights[i, o]
        if relu:
            for o in range(z.shape[1]):
                z[s, o] = max(z[s, o], np.float32(0))


@compiled
def softmax(z, labels, parts):
    """Turns z into its gradient. A sample's loss is the logarithm of its first part, less the
    second. The third says whether it is right. NumPy takes the logarithm: Numba's differs in the
    last digit between a function just compiled and one from its cache."""
    scale = np.float32(1 / z.shape[0])
    for s in prange(z.shape[0]):
        best = 0
        for o in range(z.shape[1]):
            if z[s, o] > z[s, best]:
                best = o
        largest, label = z[s, best], z[s, labels[s]]
        total = np.float32(0)
        for o in range(z.shape[1]):
            z[s, o] = np.exp(z[s, o] - largest)
            total += z[s, o]
        for o in range(z.shape[1]):
            z[s, o] = (z[s, o] / total - np.float32(o == labels[s])) * scale
        parts[s, 0], parts[s, 1], parts[s, 2] = total, label - largest, best == labels[s]


@compiled
def multiply_backward(x, weights, d_z, d_x, d_weights, d_bias):
    """The gradients of a dense layer whose inputs have passed ReLU."""
    for s in prange(x.shape[0]):
        for i in range(x.shape[1]):
            total = np.float32(0)
            for o in range(d_z.shape[1]):
                total += d_z[s, o] * weights[i, o]
            d_x[s, i] = total if x[s, i] > 0 else np.float32(0)
    for i in prange(x.shape[1]):
        for o in range(d_z.shape[1]):
            d_weights[i, o] = 0
        for s in range(x.shape[0]):
            for o in range(d_z.shape[1]):
                d_weights[i, o] += x[s, i] * d_z[s, o]
    for o in range(d_z.shape[1]):
        d_bias[o] = 0
    for s in range(x.shape[0]):
        for o in range(d_z.shape[1]):
            d_bias[o] += d_z[s, o]


@compiled
def pool_backward(z, a, d_a, d_z):
    """The first of the largest values takes the gradient."""
    for s in prange(a.shape[0]):
        for f in range(a.shape[1]):
            for y in range(z.shape[2]):
                for k in range(z.shape[3]):
                    d_z[s, f, y, k] = 0
            for y in range(a.shape[2]):
                for k in range(a.shape[3]):
                    for t in range(4 if a[s, f, y, k] > 0 else 0):
                        row, column = 2 * y + t // 2, 2 * k + t % 2
                        if z[s, f, row, column] == a[s, f, y, k]:
                            d_z[s, f, row, column] = d_a[s, f, y, k]
                            break


@compiled
def weight_gradient(x, d_z, d_weights, d_bias):
    """Those of a convolution."""
    for f in prange(d_z.shape[1]):
        total = np.float32(0)
        for s in range(d_z.shape[0]):
            for y in range(d_z.shape[2]):
                for k in range(d_z.shape[3]):
                    total += d_z[s, f, y, k]
        d_bias[f] = total
        for c in range(x.shape[1]):
            for i in range(3):
                d0, d1, d2 = np.float32(0), np.float32(0), np.float32(0)
                for s in range(d_z.shape[0]):
                    for y in range(d_z.shape[2]):
                        for k in range(d_z.shape[3]):
                            d = d_z[s, f, y, k]
                            d0 += d * x[s, c, y + i, k]
                            d1 += d * x[s, c, y + i, k + 1]
                            d2 += d * x[s, c, y + i, k + 2]
                d_weights[f, c, i, 0], d_weights[f, c, i, 1], d_weights[f, c, i, 2] = d0, d1, d2


@compiled
def input_gradient(weights, d_z, d_x):
    """Those of a convolution."""
    for s in prange(d_x.shape[0]):
        for c in range(d_x.shape[1]):
            for y in range(d_x.shape[2]):
                for k in range(d_x.shape[3]):
                    d_x[s, c, y, k] = 0
            for f in range(d_z.shape[1]):
                for y in range(d_z.shape[2]):
                    for i in range(3):
                        for j in range(3):
                            w = weights[f, c, i, j]
                            for k in range(d_z.shape[3]):
                                d_x[s, c, y + i, k + j] += w * d_z[s, f, y, k]


@compiled
def update(parameters, velocity, gradient, rate, momentum):
    for i in prange(parameters.size):
        velocity[i] = momentum * velocity[i] - rate * gradient[i]
        parameters[i] += velocity[i]


class Numba(peer.Peer):
    def __init__(self, options, images, labels):
        numba.set_num_threads(peer.THREADS)
        images = images.reshape(-1, 1, peer.SIDE, peer.SIDE)
        labels = labels.astype(np.int64)
        size = min(options.batch, len(images))
        starts = range(0, len(images), size)
        self.batches = [(images[i:i + size], labels[i:i + size]) for i in starts]
        self.rate, self.momentum = np.float32(options.learning_rate), np.float32(options.momentum)
        shapes = (8, 26, 26), (8, 13, 13), (16, 11, 11), (16, 5, 5), (128,), (peer.CLASSES,)
        self.values = [np.empty((size, *shape), np.float32) for shape in shapes]
        self.parts = np.empty((size, 3), np.float32)
        self.gradients = [np.empty((size, *shape), np.float32) for shape in shapes[:-1]]

    def load(self, parameters):
        self.weights = parameters
        self.velocities, self.slopes = ([np.zeros_like(part) for part in parameters]
                                        for _ in range(2))

    def step(self, x, labels):
        """One batch. Returns the sum of the samples' losses, and how many are right."""
        n = len(x)
        weights1, bias1, weights2, bias2, weights3, bias3, weights4, bias4 = self.weights
        z1, a1, z2, a2, a3, z = (values[:n] for values in self.values)
        dz1, da1, dz2, da2, da3 = (values[:n] for values in self.gradients)
        flat, d_flat = a2.reshape(n, -1), da2.reshape(n, -1)
        convolve(x, weights1, bias1, z1)
        pool(z1, a1)
        convolve(a1, weights2, bias2, z2)
        pool(z2, a2)
        multiply(flat, weights3, bias3, a3, True)
        multiply(a3, weights4, bias4, z, False)
        parts = self.parts[:n]
        softmax(z, labels, parts)
        multiply_backward(a3, weights4, z, da3, *self.slopes[6:])
        multiply_backward(flat, weights3, da3, d_flat, *self.slopes[4:6])
        pool_backward(z2, a2, da2, dz2)
        weight_gradient(a1, dz2, *self.slopes[2:4])
        input_gradient(weights2, dz2, da1)
        pool_backward(z1, a1, da1, dz1)
        weight_gradient(x, dz1, *self.slopes[:2])
        for arrays in zip(self.weights, self.velocities, self.slopes):
            update(*(array.reshape(-1) for array in arrays), self.rate, self.momentum)
        loss = np.log(parts[:, 0]).sum(dtype=np.float64) - parts[:, 1].sum(dtype=np.float64)
        return loss, parts[:, 2].sum()

    def epoch(self):
        total, right = 0.0, 0
        for x, labels in self.batches:
            loss, hits = self.step(x, labels)
            total += loss
            right += hits
        return total, right

    def parameters(self):
        return self.weights


if __name__ == "__main__":
    peer.main(Numba)
