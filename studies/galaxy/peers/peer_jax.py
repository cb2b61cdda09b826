#!/usr/bin/env python3
"""JAX: the cost, and its gradient by automatic differentiation, as one compiled function."""

import os

import peer
import numpy as np

os.environ["JAX_PLATFORMS"] = "cpu"
jax = peer.require("jax")
jax.config.update("jax_enable_x64", True)


def cost(theta, x, is_label, lambda_):
    """The cost, written for numbers that may be large."""
    theta1, theta2 = peer.split(theta)
    hidden = jax.nn.sigmoid(x @ theta1[:, 1:].T + theta1[:, 0])
    z = hidden @ theta2[:, 1:].T + theta2[:, 0]
    squares = (theta1[:, 1:] ** 2).sum() + (theta2[:, 1:] ** 2).sum()
    return ((jax.nn.softplus(z) - is_label * z).sum() + lambda_ / 2 * squares) / len(x)


class Jax(peer.Peer):
    def __init__(self, x, y, lambda_):
        is_label = (y[:, None] == np.arange(peer.CLASSES)).astype(np.float64)
        self.data = jax.device_put((x, is_label, lambda_))
        self.compiled = jax.jit(jax.value_and_grad(cost))

    def evaluate(self, theta):
        value, gradient = jax.device_get(self.compiled(theta, *self.data))
        return float(value), gradient


if __name__ == "__main__":
    peer.main(Jax)
