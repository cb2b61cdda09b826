#!/usr/bin/env python3
"""PyTorch, eager, as matrix products: x transposed by the products y·z of a block of triplets,
which stay in the cache. `einsum` of x, y and z took longer. A GPU takes all triplets at once."""

import peer

torch = peer.require("torch")

TRIPLETS = 256  # of a block: their products are 1 MiB


class PyTorch(peer.Peer):
    where = "cpu"

    def __init__(self, x, y, z):
        if self.where == "cuda":
            if not torch.cuda.is_available():
                peer.leave(peer.NOT_HERE, "PyTorch finds no usable CUDA device")
            self.device = torch.cuda.get_device_name()
        torch.set_num_threads(peer.THREADS)
        torch.backends.cuda.matmul.allow_tf32 = False  # float32, as everywhere
        self.features = [torch.from_numpy(each) for each in (x, y, z)]
        if self.where == "cuda":
            self.features = [each.pin_memory() for each in self.features]

    @torch.inference_mode()
    def run(self):
        count, features = self.features[0].shape
        size = TRIPLETS if self.where == "cpu" else count
        mean = torch.zeros(features, features**2, device=self.where)
        for x, y, z in zip(*(each.to(self.where, non_blocking=True).split(size)
                             for each in self.features)):
            products = (y[:, :, None] * z[:, None, :]).view(len(y), -1)
            mean.addmm_(x.t(), products, alpha=1 / count)
        return mean.view(3 * [features]).cpu().numpy()

    def peak_vram_mib(self):
        return torch.cuda.max_memory_reserved() / 2**20 if self.where == "cuda" else None


if __name__ == "__main__":
    peer.main(PyTorch)
