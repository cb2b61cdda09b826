#!/usr/bin/env python3
"""PyTorch on a GPU with factors rounded to float16, of 11 binary digits. The step is compiled with
max-autotune, and the epoch recorded as one CUDA graph. dz is not divided by the number of samples
yet, so it needs no scale against underflow."""

import peer
import peer_pytorch
import peer_pytorch_compiled
import peer_pytorch_graphs
import rounded
import torch


class FP16(peer_pytorch_graphs.Graphs, peer_pytorch_compiled.Compiled):
    kind = torch.float16
    step = staticmethod(rounded.autotuned(peer_pytorch.step, rounded.Products(kind)))


if __name__ == "__main__":
    peer.main(FP16)
