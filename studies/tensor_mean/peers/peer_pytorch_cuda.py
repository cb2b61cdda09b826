#!/usr/bin/env python3
"""PyTorch on a GPU: peer_pytorch, with copies in every pass."""

import peer
import peer_pytorch


class Cuda(peer_pytorch.PyTorch):
    where = "cuda"


if __name__ == "__main__":
    peer.main(Cuda)
