#!/usr/bin/env python3
"""PyTorch on a GPU, the epoch recorded as one CUDA graph and replayed."""

import peer
import peer_pytorch
import torch


class Graphs(peer_pytorch.PyTorch):
    where = "cuda"
    graph = None

    def epoch(self):
        if self.graph is None:
            super().epoch()  # libraries allocate workspaces, which a recording must not do
            self.wait()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                super().epoch()
        self.graph.replay()
        return self.total


if __name__ == "__main__":
    peer.main(Graphs)
