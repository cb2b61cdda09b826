#!/usr/bin/env python3
"""NumPy, with the double sum factored. Arrays are written in place."""

import peer
import numpy as np


class NumPy(peer.Peer):
    is_factored = True

    def __init__(self, x, y):
        self.data = x, y
        self.e = np.empty_like(x)

    def squares(self, x):
        """Σ p² of each row, p = softmax(x)."""
        np.subtract(x, x.max(axis=1, keepdims=True), out=self.e)
        np.exp(self.e, out=self.e)
        sums = self.e.sum(axis=1)
        return np.einsum("bi,bi->b", self.e, self.e) / (sums * sums)

    def run(self):
        p_squares, q_squares = map(self.squares, self.data)
        return float(p_squares.mean()), float(np.vdot(p_squares, q_squares)) / len(p_squares)


if __name__ == "__main__":
    peer.main(NumPy)
