#!/usr/bin/env python3
"""CuPy, as in the paper: peer_numpy's steps on a GPU. The steps between the products are fused into
kernels. Unlike the paper's clock, ours waits until the GPU is done."""

import peer

cupy = peer.require("cupy")


@cupy.fuse
def relu(a, bias):
    return cupy.maximum(a + bias, 0)


@cupy.fuse
def mask(da, a):
    return cupy.where(a > 0, da, cupy.float32(0))


class CuPy(peer.Peer):
    def __init__(self, options, images, labels):
        try:
            self.device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            peer.leave(peer.NOT_HERE, f"CuPy finds no usable CUDA device: {error}")
        x, targets = cupy.asarray(images), cupy.eye(peer.CLASSES, dtype=cupy.float32)[labels]
        starts = range(0, options.train, options.batch)
        self.batches = [(x[i:i + options.batch], targets[i:i + options.batch]) for i in starts]
        self.rate = options.learning_rate

    def load(self, weights, biases):
        self.parameters = [[cupy.asarray(part) for part in parts] for parts in (weights, biases)]

    def epoch(self):
        weights, biases = self.parameters
        total = cupy.zeros((), cupy.float32)
        for x, target in self.batches:
            inputs = [x]
            for weight, bias in zip(weights[:-1], biases):
                inputs.append(relu(inputs[-1] @ weight, bias))
            z = inputs[-1] @ weights[-1] + biases[-1]
            z -= z.max(axis=1, keepdims=True)
            p = cupy.exp(z)
            sums = p.sum(axis=1, keepdims=True)
            total += cupy.log(sums).sum() - (z * target).sum()
            # The learning rate is multiplied in here, where the gradients have the fewest numbers.
            dz = (p / sums - target) * cupy.float32(self.rate / len(x))
            for layer in reversed(range(len(weights))):
                dx = mask(dz @ weights[layer].T, inputs[layer]) if layer else None
                weights[layer] -= inputs[layer].T @ dz
                biases[layer] -= dz.sum(axis=0)
                dz = dx
        return total

    def wait(self):
        cupy.cuda.runtime.deviceSynchronize()

    def weights(self):
        return [[cupy.asnumpy(part) for part in parts] for parts in self.parameters]

    def peak_vram_mib(self):
        return cupy.get_default_memory_pool().total_bytes() / 2**20


if __name__ == "__main__":
    peer.main(CuPy)
