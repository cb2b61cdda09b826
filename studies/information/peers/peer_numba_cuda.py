#!/usr/bin/env python3
"""Numba on a GPU, as in the paper: a block for each row, the softmax on one core of the host."""

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


@numba.njit(fastmath=True, cache=True)
def softmax(x, p):
    for b in range(x.shape[0]):
        largest = x[b].max()
        total = np.float32(0)
        for i in range(x.shape[1]):
            p[b, i] = np.exp(x[b, i] - largest)
            total += p[b, i]
        for i in range(x.shape[1]):
            p[b, i] /= total


@cuda.jit(device=True)
def add_up(value, sums):
    """Adds up the values of the block's threads. The first one stores the sum."""
    parts = cuda.shared.array(THREADS, numba.float32)
    thread = cuda.threadIdx.x
    parts[thread] = value
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if thread < half:
            parts[thread] += parts[thread + half]
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        sums[cuda.blockIdx.x] = parts[0]


@cuda.jit(fastmath=True)
def entropy_kernel(p, sums):
    b = cuda.blockIdx.x
    total = numba.float32(0)
    for i in range(cuda.threadIdx.x, p.shape[1], THREADS):
        total += p[b, i] * p[b, i]
    add_up(total, sums)


@cuda.jit(fastmath=True)
def mi_kernel(p, q, sums):
    b = cuda.blockIdx.x
    total = numba.float32(0)
    for i in range(cuda.threadIdx.x, p.shape[1], THREADS):
        for j in range(q.shape[1]):
            product = p[b, i] * q[b, j]
            total += product * product
    add_up(total, sums)


class NumbaCuda(peer.Peer):
    def __init__(self, x, y):
        name = getattr(cuda.current_context().device, "name", "simulated")
        self.device = name.decode() if isinstance(name, bytes) else name
        self.x, self.y = x, y
        self.p, self.q = np.empty_like(x), np.empty_like(y)
        self.device_p, self.device_q = cuda.to_device(self.p), cuda.to_device(self.q)
        self.sums = cuda.to_device(np.empty(len(x), np.float32))

    def run(self):
        softmax(self.x, self.p)
        softmax(self.y, self.q)
        self.device_p.copy_to_device(self.p)
        self.device_q.copy_to_device(self.q)
        entropy_kernel[len(self.x), THREADS](self.device_p, self.sums)
        entropy = self.sums.copy_to_host().mean(dtype=np.float64)
        mi_kernel[len(self.x), THREADS](self.device_p, self.device_q, self.sums)
        return float(entropy), float(self.sums.copy_to_host().mean(dtype=np.float64))


if __name__ == "__main__":
    peer.main(NumbaCuda)
