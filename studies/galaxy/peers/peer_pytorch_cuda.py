#!/usr/bin/env python3
"""PyTorch on a GPU, as in the paper. SciPy's minimizer stays on the host."""

import peer
import peer_pytorch

torch = peer_pytorch.torch


class Cuda(peer_pytorch.PyTorch):
    where = "cuda"

    def __init__(self, x, y, lambda_):
        if not torch.cuda.is_available():
            peer.leave(peer.NOT_HERE, f"{peer.NAME}: found no GPU that PyTorch can use")
        super().__init__(x, y, lambda_)
        self.device = torch.cuda.get_device_name()

    def peak_vram_mib(self):
        return torch.cuda.max_memory_reserved() / 2**20


if __name__ == "__main__":
    peer.main(Cuda)
