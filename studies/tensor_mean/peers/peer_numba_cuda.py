#!/usr/bin/env python3
"""Numba on a GPU, as in the paper: a thread for each element, and copies in every pass."""

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

THREADS = 256


@cuda.jit(fastmath=True)
def average(x, y, z, mean):
    count, features = x.shape
    e = cuda.grid(1)
    i, j, k = e // (features * features), e // features % features, e % features
    if i < features:
        total = numba.float32(0)
        for n in range(count):
            total += x[n, i] * y[n, j] * z[n, k]
        mean[i, j, k] = total / numba.float32(count)


class NumbaCuda(peer.Peer):
    def __init__(self, x, y, z):
        name = getattr(cuda.current_context().device, "name", "simulated")
        self.device = name.decode() if isinstance(name, bytes) else name
        self.features = x, y, z
        self.on_device = [cuda.to_device(each) for each in self.features]
        self.mean = cuda.to_device(np.empty(3 * [x.shape[1]], np.float32))

    def run(self):
        for to, each in zip(self.on_device, self.features):
            to.copy_to_device(each)
        average[-(-self.mean.size // THREADS), THREADS](*self.on_device, self.mean)
        return self.mean.copy_to_host()


if __name__ == "__main__":
    peer.main(NumbaCuda)
