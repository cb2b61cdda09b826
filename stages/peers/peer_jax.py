#!/usr/bin/env python3
"""JAX: the epoch as one compiled function, a lax.scan over the batches."""

import functools
import os

import peer
import numpy as np

os.environ["JAX_PLATFORMS"] = "cuda" if peer.NAME == "peer_jax_cuda" else "cpu"
jax = peer.require("jax")


def loss(parameters, x, labels):
    """Mean loss of a batch."""
    weights1, bias1, weights2, bias2 = parameters
    a = jax.nn.relu(x @ weights1 + bias1)
    z = jax.nn.log_softmax(a @ weights2 + bias2)
    return -jax.numpy.take_along_axis(z, labels[:, None], axis=1).mean()


def step(rate, parameters, batch):
    """One batch. Returns the new parameters and the sum of the samples' losses."""
    value, gradient = jax.value_and_grad(loss)(parameters, *batch)
    parameters = jax.tree.map(lambda p, g: p - rate * g, parameters, gradient)
    return parameters, value * len(batch[0])


@functools.partial(jax.jit, static_argnames="rate", donate_argnums=0)
def epoch(parameters, batches, rest, rate):
    """All whole batches, then what is left over."""
    parameters, losses = jax.lax.scan(functools.partial(step, rate), parameters, batches)
    total = losses.sum()
    if len(rest[0]):
        parameters, last = step(rate, parameters, rest)
        total += last
    return parameters, total


class Jax(peer.Peer):
    def __init__(self, options, images, labels):
        jax.config.update("jax_default_matmul_precision", "highest")  # float32, not TF32
        whole = options.train // options.batch
        split = whole * options.batch
        labels = labels.astype(np.int32)
        self.batches = (images[:split].reshape(whole, options.batch, peer.PIXELS),
                        labels[:split].reshape(whole, options.batch))
        self.rest = (images[split:], labels[split:])
        self.batches, self.rest = jax.device_put((self.batches, self.rest))
        self.rate = options.learning_rate

    def load(self, weights):
        self.parameters = jax.device_put(weights)

    def epoch(self):
        self.parameters, total = epoch(self.parameters, self.batches, self.rest, self.rate)
        return total

    def wait(self):
        jax.block_until_ready(self.parameters)

    def weights(self):
        return jax.device_get(self.parameters)


if __name__ == "__main__":
    peer.main(Jax)
