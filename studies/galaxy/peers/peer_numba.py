#!/usr/bin/env python3
"""Numba, as loops, compiled with `parallel` and `fastmath`. A thread takes a part of the samples,
and has a gradient of its own."""

import peer
import numpy as np

numba = peer.require("numba")


@numba.njit(parallel=True, fastmath=True, cache=True)
def add_gradients(x, y, theta1, theta2, costs, d_theta1, d_theta2):
    """Sets each part's cost and gradient, without λ."""
    parts, count, pixels = len(costs), x.shape[0], x.shape[1]
    hidden, classes = theta1.shape[0], theta2.shape[0]
    for part in numba.prange(parts):
        d_theta1[part] = 0
        d_theta2[part] = 0
        cost = 0.0
        a = np.empty(hidden)
        delta3 = np.empty(classes)
        for s in range(count * part // parts, count * (part + 1) // parts):
            for h in range(hidden):
                z = theta1[h, 0]
                for k in range(pixels):
                    z += theta1[h, 1 + k] * x[s, k]
                a[h] = 1 / (1 + np.exp(-z))
            for o in range(classes):
                z = theta2[o, 0]
                for h in range(hidden):
                    z += theta2[o, 1 + h] * a[h]
                is_label = 1.0 if y[s] == o else 0.0
                cost += max(z, 0.0) + np.log1p(np.exp(-abs(z))) - is_label * z
                delta3[o] = 1 / (1 + np.exp(-z)) - is_label
                d_theta2[part, o, 0] += delta3[o]
                for h in range(hidden):
                    d_theta2[part, o, 1 + h] += delta3[o] * a[h]
            for h in range(hidden):
                delta2 = 0.0
                for o in range(classes):
                    delta2 += delta3[o] * theta2[o, 1 + h]
                delta2 *= a[h] * (1 - a[h])
                d_theta1[part, h, 0] += delta2
                for k in range(pixels):
                    d_theta1[part, h, 1 + k] += delta2 * x[s, k]
        costs[part] = cost


class Numba(peer.Peer):
    def __init__(self, x, y, lambda_):
        self.x, self.y, self.lambda_ = x, y, lambda_
        hidden = peer.OPTIONS.hidden
        self.costs = np.empty(peer.THREADS)
        self.d_theta1 = np.empty((peer.THREADS, hidden, peer.PIXELS + 1))
        self.d_theta2 = np.empty((peer.THREADS, peer.CLASSES, hidden + 1))

    def evaluate(self, theta):
        theta1, theta2 = peer.split(theta)
        add_gradients(self.x, self.y, theta1, theta2, self.costs, self.d_theta1, self.d_theta2)
        d_theta1, d_theta2 = self.d_theta1.sum(axis=0), self.d_theta2.sum(axis=0)
        d_theta1[:, 1:] += self.lambda_ * theta1[:, 1:]
        d_theta2[:, 1:] += self.lambda_ * theta2[:, 1:]
        squares = np.square(theta1[:, 1:]).sum() + np.square(theta2[:, 1:]).sum()
        cost = self.costs.sum() + self.lambda_ / 2 * squares
        return (cost / len(self.x),
                np.concatenate([d_theta1.ravel(), d_theta2.ravel()]) / len(self.x))


if __name__ == "__main__":
    peer.main(Numba)
