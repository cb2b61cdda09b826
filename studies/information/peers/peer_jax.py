#!/usr/bin/env python3
"""JAX, with the double sum factored, as one compiled function."""

import os

import peer

os.environ["JAX_PLATFORMS"] = "cpu"
jax = peer.require("jax")


@jax.jit
def estimate(x, y):
    """The entropy and the mutual information."""
    p_squares, q_squares = ((jax.nn.softmax(each) ** 2).sum(axis=1) for each in (x, y))
    return p_squares.mean(), (p_squares * q_squares).mean()


class Jax(peer.Peer):
    is_factored = True

    def __init__(self, x, y):
        self.data = jax.device_put((x, y))

    def run(self):
        return map(float, jax.device_get(estimate(*self.data)))


if __name__ == "__main__":
    peer.main(Jax)
