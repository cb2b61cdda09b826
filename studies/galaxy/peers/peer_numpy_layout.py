#!/usr/bin/env python3
"""NumPy by matrices, as the paper's data layout: peer_numpy_loop with the gradient of formulas 2.1
to 2.12. Cost and gradient make a forward pass each, and copy the column of ones in."""

import peer
import peer_numpy_loop
import numpy as np
from peer_numpy_loop import sigmoid


class NumPyLayout(peer_numpy_loop.NumPyLoop):
    def gradient(self, theta):
        count = len(self.x)
        theta1, theta2 = peer.split(theta)
        ones = np.ones((count, 1))
        a1 = np.hstack([ones, self.x])
        hidden = sigmoid(a1 @ theta1.T)
        a2 = np.hstack([ones, hidden])
        delta3 = sigmoid(a2 @ theta2.T)
        delta3[np.arange(count), self.y] -= 1
        delta2 = (delta3 @ theta2[:, 1:]) * hidden * (1 - hidden)
        d_theta1, d_theta2 = delta2.T @ a1 / count, delta3.T @ a2 / count
        d_theta1[:, 1:] += self.lambda_ / count * theta1[:, 1:]
        d_theta2[:, 1:] += self.lambda_ / count * theta2[:, 1:]
        return np.concatenate([np.ravel(d_theta1), np.ravel(d_theta2)])


if __name__ == "__main__":
    peer.main(NumPyLayout)
