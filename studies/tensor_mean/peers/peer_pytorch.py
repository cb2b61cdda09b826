#!/usr/bin/env python3
"""PyTorch, eager, as one matrix product: x transposed by the products y·z of all triplets. It is
the faster idiom: `einsum` of x, y and z took longer."""

import peer

torch = peer.require("torch")


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
        x, y, z = (each.to(self.where, non_blocking=True) for each in self.features)
        count, features = x.shape
        products = (y[:, :, None] * z[:, None, :]).view(count, -1)
        mean = torch.mm(x.t(), products).div_(count).view(3 * [features])
        return mean.cpu().numpy()

    def peak_vram_mib(self):
        return torch.cuda.max_memory_reserved() / 2**20 if self.where == "cuda" else None


if __name__ == "__main__":
    peer.main(PyTorch)
