#!/usr/bin/env python3
"""PyTorch on the GPU of an Apple processor, eager: the program of peer_pytorch. It has not run: no
such machine was at hand."""

import peer
import peer_pytorch
import torch


class Mps(peer_pytorch.PyTorch):
    where = device = "mps"

    def __init__(self, *arguments):
        if not torch.backends.mps.is_available():
            peer.leave(peer.NOT_HERE, "PyTorch finds no MPS, the GPU of an Apple processor")
        super().__init__(*arguments)

    def wait(self):
        torch.mps.synchronize()


if __name__ == "__main__":
    peer.main(Mps)
