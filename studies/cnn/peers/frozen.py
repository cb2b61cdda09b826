#!/usr/bin/env python3
"""peer_pytorch with the convolutions' weights as they were drawn, as in the paper's Numba backends.
It takes a peer's options, but computes something else, so no table has it."""

import peer
import peer_pytorch


class Frozen(peer_pytorch.PyTorch):
    def __init__(self, options, images, labels):
        super().__init__(options, images, labels)
        for layer in self.model[0], self.model[3]:
            layer.requires_grad_(False)


if __name__ == "__main__":
    peer.main(Frozen)
