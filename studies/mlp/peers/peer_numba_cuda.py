#!/usr/bin/env python3
"""Numba on a GPU: peer_numba's steps, with a thread for each number. No library makes the
products."""

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
ZERO = numba.float32(0)


@cuda.jit(fastmath=True)
def forward_layer(x, weights, bias, values, relu):
    e = cuda.grid(1)
    if e < values.size:
        s, o = e // values.shape[1], e % values.shape[1]
        total = bias[o]
        for k in range(x.shape[1]):
            total += x[s, k] * weights[k, o]
        values[s, o] = max(total, ZERO) if relu else total


@cuda.jit(fastmath=True)
def softmax(z, labels, scale, losses):
    """Turns z into the rate times its gradient. Each place in the batch has a sum of losses."""
    s = cuda.grid(1)
    if s < z.shape[0]:
        largest = z[s, 0]
        for o in range(1, z.shape[1]):
            largest = max(largest, z[s, o])
        label = z[s, labels[s]] - largest
        total = ZERO
        for o in range(z.shape[1]):
            z[s, o] = math.exp(z[s, o] - largest)
            total += z[s, o]
        losses[s] += math.log(total) - label
        for o in range(z.shape[1]):
            z[s, o] = (z[s, o] / total - numba.float32(o == labels[s])) * scale


@cuda.jit(fastmath=True)
def input_gradient(dz, weights, values, d_values):
    e = cuda.grid(1)
    if e < values.size:
        s, k = e // values.shape[1], e % values.shape[1]
        total = ZERO
        for o in range(dz.shape[1]):
            total += dz[s, o] * weights[k, o]
        d_values[s, k] = total if values[s, k] > ZERO else ZERO


@cuda.jit(fastmath=True)
def update(x, dz, weights, bias):
    """The threads after those of the weights have the biases."""
    e = cuda.grid(1)
    k, o = e // dz.shape[1], e % dz.shape[1]
    if k <= x.shape[1]:
        total = ZERO
        for s in range(dz.shape[0]):
            total += x[s, k] * dz[s, o] if k < x.shape[1] else dz[s, o]
        if k < x.shape[1]:
            weights[k, o] -= total
        else:
            bias[o] -= total


def start(kernel, threads, *arguments):
    kernel[-(-threads // THREADS), THREADS](*arguments)


class NumbaCuda(peer.Peer):
    def __init__(self, options, images, labels):
        name = getattr(cuda.current_context().device, "name", "simulated")
        self.device = name.decode() if isinstance(name, bytes) else name
        self.size = min(options.batch, options.train)
        x, y = cuda.to_device(images), cuda.to_device(labels)
        self.batches = [(x[i:i + self.size], y[i:i + self.size])
                        for i in range(0, options.train, self.size)]
        self.rate = options.learning_rate
        self.values, self.d_values = ([cuda.device_array((self.size, outputs), np.float32)
                                       for _, outputs in peer.shapes(options)] for _ in range(2))

    def load(self, weights, biases):
        self.parameters = [[cuda.to_device(part) for part in parts] for parts in (weights, biases)]

    def batch(self, x, labels, losses):
        n, last = len(labels), len(self.values) - 1
        layers = list(zip(*self.parameters))
        inputs = [x, *(values[:n] for values in self.values)]
        slopes = [None, *(values[:n] for values in self.d_values[:-1]), inputs[-1]]
        for layer, (weight, bias) in enumerate(layers):
            values = inputs[layer + 1]
            start(forward_layer, values.size, inputs[layer], weight, bias, values, layer < last)
        start(softmax, n, inputs[-1], labels, np.float32(self.rate / n), losses)
        for layer, (weight, bias) in reversed(list(enumerate(layers))):
            dz = slopes[layer + 1]
            if layer:
                values = inputs[layer]
                start(input_gradient, values.size, dz, weight, values, slopes[layer])
            start(update, weight.size + bias.size, inputs[layer], dz, weight, bias)

    def epoch(self):
        losses = cuda.to_device(np.zeros(self.size, np.float32))
        for x, labels in self.batches:
            self.batch(x, labels, losses)
        return losses.copy_to_host().sum(dtype=np.float64)

    def wait(self):
        cuda.synchronize()

    def weights(self):
        return [[part.copy_to_host() for part in parts] for parts in self.parameters]


if __name__ == "__main__":
    peer.main(NumbaCuda)
