#!/usr/bin/env python3
"""Cython: NumPy's products, and typed loops between them. The paper's has typed arrays only."""

import peer
import numpy as np

peer.require("cython_steps")  # which `make peer_cython` builds
from cython_steps import middle  # noqa: E402


class Cython(peer.Peer):
    def __init__(self, x, y, lambda_):
        self.x, self.y, self.lambda_ = x, y, lambda_
        self.hidden = np.empty((len(x), peer.OPTIONS.hidden))

    def evaluate(self, theta):
        gradient = np.zeros_like(theta)
        theta1, theta2 = peer.split(theta)
        d_theta1, d_theta2 = peer.split(gradient)
        weights1, weights2 = theta1[:, 1:], theta2[:, 1:]
        np.matmul(self.x, weights1.T, out=self.hidden)
        cost = middle(self.hidden, self.y, theta1, theta2, d_theta1, d_theta2)
        d_theta1[:, 1:] = self.hidden.T @ self.x
        d_theta1[:, 1:] += self.lambda_ * weights1
        d_theta2[:, 1:] += self.lambda_ * weights2
        cost += self.lambda_ / 2 * (np.square(weights1).sum() + np.square(weights2).sum())
        gradient /= len(self.x)
        return cost / len(self.x), gradient


if __name__ == "__main__":
    peer.main(Cython)
