#!/usr/bin/env python3
"""Numba on a GPU: the paper's kernels, a thread for each result. But the backward pass is on the
GPU, too, and all weights are trained."""

import math

import peer
import numpy as np

numba = peer.require("numba")
try:
    from numba import cuda
    available = cuda.is_available()
except (ImportError, RuntimeError) as error:
    peer.leave(peer.NOT_HERE, f"Numba finds no usable CUDA device. {error}")
if not available:
    peer.leave(peer.NOT_HERE, "Numba finds no usable CUDA device")

THREADS = 128
NONE = 4  # of the four values, a pool took none: all were below 0
ZERO = numba.float32(0)


@cuda.jit(fastmath=True)
def convolve(x, weights, bias, a, taken):
    """A thread computes the four values of a pool, and takes the largest, or 0."""
    e, side = cuda.grid(1), a.shape[2]
    if e < a.size:
        s, f = e // (side * side) // a.shape[1], e // (side * side) % a.shape[1]
        row, column = e // side % side, e % side
        largest, which = ZERO, NONE
        for t in range(4):
            y, k = 2 * row + t // 2, 2 * column + t % 2
            z = bias[f]
            for c in range(x.shape[1]):
                for i in range(3):
                    for j in range(3):
                        z += weights[f, c, i, j] * x[s, c, y + i, k + j]
            if z > largest:
                largest, which = z, t
        a[s, f, row, column], taken[s, f, row, column] = largest, which


@cuda.jit(fastmath=True)
def multiply(x, weights, bias, z, relu):
    """A dense layer."""
    e = cuda.grid(1)
    if e < z.size:
        s, o = e // z.shape[1], e % z.shape[1]
        total = bias[o]
        for i in range(x.shape[1]):
            total += x[s, i] * weights[i, o]
        z[s, o] = max(total, ZERO) if relu else total


@cuda.jit(fastmath=True)
def softmax(z, labels, scale, losses, hits):
    """Turns z into its gradient. Each place in the batch has its own sums."""
    s = cuda.grid(1)
    if s < z.shape[0]:
        best = 0
        for o in range(1, z.shape[1]):
            if z[s, o] > z[s, best]:
                best = o
        largest = z[s, best]
        label = z[s, labels[s]] - largest
        total = ZERO
        for o in range(z.shape[1]):
            z[s, o] = math.exp(z[s, o] - largest)
            total += z[s, o]
        for o in range(z.shape[1]):
            z[s, o] = (z[s, o] / total - numba.float32(o == labels[s])) * scale
        losses[s] += math.log(total) - label
        if best == labels[s]:
            hits[s] += 1


@cuda.jit(fastmath=True)
def multiply_backward(d_z, weights, x, d_x):
    """The gradient of a dense layer's inputs, which have passed ReLU."""
    e = cuda.grid(1)
    if e < x.size:
        s, i = e // x.shape[1], e % x.shape[1]
        total = ZERO
        for o in range(d_z.shape[1]):
            total += d_z[s, o] * weights[i, o]
        d_x[s, i] = total if x[s, i] > ZERO else ZERO


@cuda.jit(fastmath=True)
def input_gradient(d_a, taken, weights, d_x):
    """That of a convolution. A pool's gradient goes to the value that it took."""
    e, side = cuda.grid(1), d_x.shape[2]
    if e < d_x.size:
        s, c = e // (side * side) // d_x.shape[1], e // (side * side) % d_x.shape[1]
        total = ZERO
        for i in range(3):
            for j in range(3):
                y, k = e // side % side - i, e % side - j
                if 0 <= y < 2 * d_a.shape[2] and 0 <= k < 2 * d_a.shape[3]:
                    for f in range(d_a.shape[1]):
                        if taken[s, f, y // 2, k // 2] == y % 2 * 2 + k % 2:
                            total += d_a[s, f, y // 2, k // 2] * weights[f, c, i, j]
        d_x[s, c, e // side % side, e % side] = total


@cuda.jit(device=True)
def step(weights, velocities, place, slope, rate, momentum):
    velocities[place] = momentum * velocities[place] - rate * slope
    weights[place] += velocities[place]


@cuda.jit(fastmath=True)
def update(x, d_z, weights, bias, velocities, bias_velocities, rate, momentum):
    """A dense layer. The threads after those of the weights have the biases."""
    e = cuda.grid(1)
    i, o = e // d_z.shape[1], e % d_z.shape[1]
    if i <= x.shape[1]:
        total = ZERO
        for s in range(d_z.shape[0]):
            total += d_z[s, o] * x[s, i] if i < x.shape[1] else d_z[s, o]
        if i < x.shape[1]:
            step(weights, velocities, (i, o), total, rate, momentum)
        else:
            step(bias, bias_velocities, o, total, rate, momentum)


@cuda.jit(fastmath=True)
def update_filters(x, d_a, taken, weights, bias, velocities, bias_velocities, rate, momentum):
    """A convolution. There are few weights, and long sums: a block has one weight, or a bias."""
    parts, side = 9 * x.shape[1] + 1, d_a.shape[2]
    f, part, thread = cuda.blockIdx.x // parts, cuda.blockIdx.x % parts, cuda.threadIdx.x
    c, i, j = part // 9, part // 3 % 3, part % 3
    total = ZERO
    for e in range(thread, d_a.shape[0] * side * side, THREADS):
        s, row, column = e // (side * side), e // side % side, e % side
        which = taken[s, f, row, column]
        if which != NONE:
            value = numba.float32(1)
            if part < parts - 1:
                value = x[s, c, 2 * row + which // 2 + i, 2 * column + which % 2 + j]
            total += d_a[s, f, row, column] * value
    sums = cuda.shared.array(THREADS, numba.float32)
    sums[thread] = total
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if thread < half:
            sums[thread] += sums[thread + half]
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        if part < parts - 1:
            step(weights, velocities, (f, c, i, j), sums[0], rate, momentum)
        else:
            step(bias, bias_velocities, f, sums[0], rate, momentum)


def start(kernel, threads, *arguments):
    kernel[-(-threads // THREADS), THREADS](*arguments)


class NumbaCuda(peer.Peer):
    def __init__(self, options, images, labels):
        name = getattr(cuda.current_context().device, "name", "simulated")
        self.device = name.decode() if isinstance(name, bytes) else name
        self.size = min(options.batch, len(images))
        x = cuda.to_device(images.reshape(-1, 1, peer.SIDE, peer.SIDE))
        y = cuda.to_device(labels)
        self.batches = [(x[i:i + self.size], y[i:i + self.size])
                        for i in range(0, len(images), self.size)]
        self.rates = np.float32(options.learning_rate), np.float32(options.momentum)
        shapes = (8, 13, 13), (16, 5, 5), (128,), (peer.CLASSES,)
        self.values, self.gradients = ([cuda.device_array((self.size, *shape), np.float32)
                                        for shape in shapes] for _ in range(2))
        self.taken = [cuda.device_array((self.size, *shape), np.uint8) for shape in shapes[:2]]

    def load(self, parameters):
        self.weights = [cuda.to_device(part) for part in parameters]
        self.velocities = [cuda.to_device(np.zeros_like(part)) for part in parameters]

    def layer(self, number):
        """Weights and biases, and their velocities."""
        return [part[2 * number + i] for part in (self.weights, self.velocities) for i in (0, 1)]

    def batch(self, x, labels, losses, hits):
        n = len(labels)
        a1, a2, a3, z = (values[:n] for values in self.values)
        da1, da2, da3, _ = (values[:n] for values in self.gradients)
        taken1, taken2 = (values[:n] for values in self.taken)
        flat, d_flat = a2.reshape(n, 400), da2.reshape(n, 400)
        _, _, weights2, _, weights3, _, weights4, _ = self.weights
        start(convolve, a1.size, x, *self.weights[:2], a1, taken1)
        start(convolve, a2.size, a1, *self.weights[2:4], a2, taken2)
        start(multiply, a3.size, flat, *self.weights[4:6], a3, True)
        start(multiply, z.size, a3, *self.weights[6:], z, False)
        start(softmax, n, z, labels, np.float32(1 / n), losses, hits)
        start(multiply_backward, a3.size, z, weights4, a3, da3)
        start(multiply_backward, flat.size, da3, weights3, flat, d_flat)
        start(input_gradient, a1.size, da2, taken2, weights2, da1)
        for layer, inputs, slopes in (3, a3, z), (2, flat, da3):
            arrays = self.layer(layer)
            start(update, arrays[0].size + arrays[1].size, inputs, slopes, *arrays, *self.rates)
        for layer, inputs, slopes, taken in (1, a1, da2, taken2), (0, x, da1, taken1):
            arrays = self.layer(layer)
            start(update_filters, THREADS * (arrays[0].size + arrays[1].size), inputs, slopes,
                  taken, *arrays, *self.rates)

    def epoch(self):
        losses = cuda.to_device(np.zeros(self.size, np.float32))
        hits = cuda.to_device(np.zeros(self.size, np.int32))
        for x, labels in self.batches:
            self.batch(x, labels, losses, hits)
        return losses.copy_to_host().sum(dtype=np.float64), hits.copy_to_host().sum()

    def wait(self):
        cuda.synchronize()

    def parameters(self):
        return [part.copy_to_host() for part in self.weights]


if __name__ == "__main__":
    peer.main(NumbaCuda)
