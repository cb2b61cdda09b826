#!/usr/bin/env python3
"""PyTorch on a GPU, eager: peer_pytorch with the data and the weights in device memory."""

import peer
import peer_pytorch


class Cuda(peer_pytorch.PyTorch):
    where = "cuda"


if __name__ == "__main__":
    peer.main(Cuda)
