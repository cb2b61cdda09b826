#!/usr/bin/env python3
"""JAX: one `einsum` of x, y and z, compiled."""

import os

import peer
import numpy as np

os.environ["JAX_PLATFORMS"] = "cuda" if peer.NAME == "peer_jax_cuda" else "cpu"
jax = peer.require("jax")


@jax.jit
def average(x, y, z):
    # In float32, not TF32.
    return jax.numpy.einsum("ni,nj,nk->ijk", x, y, z, precision="highest") / len(x)


class Jax(peer.Peer):
    def __init__(self, x, y, z):
        self.features = jax.device_put((x, y, z))

    def run(self):
        return np.asarray(average(*self.features))


if __name__ == "__main__":
    peer.main(Jax)
