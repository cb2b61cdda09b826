#!/usr/bin/env python3
"""NumPy, with the double sum factored. A block of rows stays in the cache, and is written in place.
Two threads that share the blocks took twice as long for 256 rows, and less only from 4,096 on."""

import peer
import numpy as np

ROWS = 512


class NumPy(peer.Peer):
    is_factored = True

    def __init__(self, x, y):
        self.blocks = [np.split(each, range(ROWS, len(each), ROWS)) for each in (x, y)]
        self.e = np.empty_like(x[:ROWS])

    def squares(self, x):
        """Σ p² of each row of a block, p = softmax(x)."""
        e = self.e[:len(x)]
        np.subtract(x, x.max(axis=1, keepdims=True), out=e)
        np.exp(e, out=e)
        sums = e.sum(axis=1)
        return np.einsum("bi,bi->b", e, e) / (sums * sums)

    def run(self):
        p_squares, q_squares = (np.concatenate([*map(self.squares, blocks)])
                                for blocks in self.blocks)
        return float(p_squares.mean()), float(np.vdot(p_squares, q_squares)) / len(p_squares)


if __name__ == "__main__":
    peer.main(NumPy)
