#!/usr/bin/env python3
"""PyTorch, the step compiled by torch.compile."""

import logging

import peer
import peer_pytorch
import torch

# Without this, it prints a warning where there is a CUDA toolkit but no GPU.
logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)


class Compiled(peer_pytorch.PyTorch):
    # Compiled once for whole batches and once for the short last one.
    step = staticmethod(torch.compile(peer_pytorch.step, dynamic=False))

    def epoch(self):
        try:
            return super().epoch()
        except RuntimeError as error:  # mostly a missing compiler or Python.h
            peer.leave(peer.NOT_HERE, f"torch.compile does not work here: {str(error)[:200]}")


if __name__ == "__main__":
    peer.main(Compiled)
