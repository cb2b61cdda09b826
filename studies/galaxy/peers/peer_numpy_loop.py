#!/usr/bin/env python3
"""NumPy as in the program that the paper started from: fmin_cg calls the cost and the gradient one
after the other. The gradient is a loop over the samples. Bias columns are copied in."""

import peer
import numpy as np
from scipy import optimize


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


class NumPyLoop(peer.Peer):
    def __init__(self, x, y, lambda_):
        self.x, self.y, self.lambda_ = x, y, lambda_

    def cost(self, theta):
        """The cost, by matrices."""
        count = len(self.x)
        theta1, theta2 = peer.split(theta)
        a1 = np.hstack([np.ones((count, 1)), self.x])
        a2 = np.hstack([np.ones((count, 1)), sigmoid(a1 @ theta1.T)])
        a3 = sigmoid(a2 @ theta2.T)
        is_label = self.y[:, None] == np.arange(peer.CLASSES)
        cost = -np.log(np.where(is_label, a3, 1 - a3)).sum() / count
        squares = (theta1[:, 1:] ** 2).sum() + (theta2[:, 1:] ** 2).sum()
        return cost + self.lambda_ / (2 * count) * squares

    def gradient(self, theta):
        """The gradient, sample by sample."""
        theta1, theta2 = peer.split(theta)
        d_theta1, d_theta2 = np.zeros_like(theta1), np.zeros_like(theta2)
        for image, label in zip(self.x, self.y):
            a1 = np.concatenate([[1.0], image])
            hidden = sigmoid(theta1 @ a1)
            a2 = np.concatenate([[1.0], hidden])
            delta3 = sigmoid(theta2 @ a2)
            delta3[label] -= 1
            delta2 = (theta2[:, 1:].T @ delta3) * hidden * (1 - hidden)
            d_theta2 += np.outer(delta3, a2)
            d_theta1 += np.outer(delta2, a1)
        d_theta1[:, 1:] += self.lambda_ * theta1[:, 1:]
        d_theta2[:, 1:] += self.lambda_ * theta2[:, 1:]
        return np.concatenate([d_theta1.ravel(), d_theta2.ravel()]) / len(self.x)

    def evaluate(self, theta):
        return self.cost(theta), self.gradient(theta)

    def minimize(self, theta, iterations):
        theta, cost, costs, gradients, _ = optimize.fmin_cg(
            self.cost, theta, fprime=self.gradient, maxiter=iterations, full_output=True,
            disp=False)
        return theta, cost, costs, gradients


if __name__ == "__main__":
    peer.main(NumPyLoop)
