#!/usr/bin/env python3
"""peer_numpy_layout that computes after each iteration what the paper's program prints: cost and
accuracy on both sets. The paper counts 2 + 2 · 300 such costs."""

import peer
import peer_numpy_layout
from scipy import optimize


class NumPyPrinting(peer_numpy_layout.NumPyLayout):
    def __init__(self, x, y, lambda_):
        super().__init__(x, y, lambda_)
        self.test = peer_numpy_layout.NumPyLayout(*peer.load("test", peer.OPTIONS.test), lambda_)

    def describe(self, theta):
        for data in self, self.test:
            data.cost(theta), peer.accuracy(theta, data.x, data.y)

    def minimize(self, theta, iterations):
        self.describe(theta)
        theta, cost, costs, gradients, _ = optimize.fmin_cg(
            self.cost, theta, fprime=self.gradient, maxiter=iterations, full_output=True,
            disp=False, callback=self.describe)
        return theta, cost, costs, gradients


if __name__ == "__main__":
    peer.main(NumPyPrinting)
