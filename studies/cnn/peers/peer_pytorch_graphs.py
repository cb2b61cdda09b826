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
            # Libraries allocate workspaces and choose kernels, which a recording must not do. As
            # PyTorch's manual says, that happens on another stream than the default one.
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                super().epoch()
            self.wait()
            self.optimizer.zero_grad()  # gradients have to lie in the graph's memory
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                super().epoch()
        self.graph.replay()
        return self.sums


if __name__ == "__main__":
    peer.main(Graphs)
