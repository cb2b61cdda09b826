#!/usr/bin/env python3
"""PyTorch on a GPU with TF32: tensor cores take 11 binary digits of a factor. The step is compiled
with max-autotune, and the epoch recorded as one CUDA graph."""

import peer
import peer_pytorch
import peer_pytorch_compiled
import peer_pytorch_graphs
import rounded


class TF32(peer_pytorch_graphs.Graphs, peer_pytorch_compiled.Compiled):
    tf32 = True
    step = staticmethod(rounded.autotuned(peer_pytorch.step))


if __name__ == "__main__":
    peer.main(TF32)
