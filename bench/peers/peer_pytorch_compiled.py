#!/usr/bin/env python3
"""PyTorch, the step compiled by torch.compile."""

import logging

import peer
import peer_pytorch
import torch

# Where there is a CUDA toolkit and no GPU it says so, though nobody asked.
logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)


class Compiled(peer_pytorch.PyTorch):
    # Once for whole batches and once for the short last one.
    step = staticmethod(torch.compile(peer_pytorch.step, dynamic=False))

    def epoch(self):
        try:
            return super().epoch()
        except RuntimeError as error:  # mostly a compiler or Python.h that is missing
            peer.leave(peer.NOT_HERE, f"torch.compile does not work here: {str(error)[:200]}")


if __name__ == "__main__":
    peer.main(Compiled)
