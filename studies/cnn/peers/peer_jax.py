#!/usr/bin/env python3
"""JAX: the epoch as one compiled function, a lax.scan over the batches."""

import functools
import os

import peer
import numpy as np

os.environ["JAX_PLATFORMS"] = "cuda" if peer.NAME == "peer_jax_cuda" else "cpu"
jax = peer.require("jax")


def convolve(x, weights, bias):
    """What a pool reads of a convolution of c × side × side × n: filters × side' × side' × n."""
    side = (x.shape[1] - 2) // 2 * 2  # of 11 rows and columns, the last reach no pool
    if jax.default_backend() == "cpu":
        # XLA takes longer for its own convolution and its gradient.
        taps = jax.numpy.stack([x[:, i:i + side, j:j + side] for i in range(3) for j in range(3)],
                               axis=1)
        z = jax.numpy.tensordot(weights.reshape(len(weights), -1),
                                taps.reshape(-1, *taps.shape[2:]), 1)
    else:
        z = jax.lax.conv_general_dilated(x[:, :side + 2, :side + 2], weights, (1, 1), "VALID",
                                         dimension_numbers=("CHWN", "OIHW", "CHWN"))
    return z + bias[:, None, None, None]


def larger(a, b):
    """The larger one, for the gradient too. If they are equal, it is the first."""
    return jax.numpy.where(b > a, b, a)


def pool(a):
    """The largest of each 2 × 2."""
    rows = a[:, 0::2], a[:, 1::2]
    return larger(*(larger(row[:, :, 0::2], row[:, :, 1::2]) for row in rows))


def loss(parameters, x, labels):
    """The mean loss of a batch, and how many of it are right."""
    weights1, bias1, weights2, bias2, weights3, bias3, weights4, bias4 = parameters
    a = x.transpose(1, 2, 0)[None]  # the samples come last, where vectors hold them
    a = jax.nn.relu(pool(convolve(a, weights1, bias1)))
    a = jax.nn.relu(pool(convolve(a, weights2, bias2)))
    a = jax.nn.relu(a.reshape(-1, len(x)).T @ weights3 + bias3)
    z = jax.nn.log_softmax(a @ weights4 + bias4)
    mean = -jax.numpy.take_along_axis(z, labels[:, None], axis=1).mean()
    return mean, (z.argmax(axis=1) == labels).sum()


def step(rate, momentum, state, batch):
    """One batch. Returns the new parameters and velocities, and the sum of the samples' losses and
    how many are right."""
    parameters, velocities = state
    (mean, right), gradient = jax.value_and_grad(loss, has_aux=True)(parameters, *batch)
    velocities = jax.tree.map(lambda v, g: momentum * v - rate * g, velocities, gradient)
    parameters = jax.tree.map(jax.numpy.add, parameters, velocities)
    return (parameters, velocities), (mean * len(batch[0]), right)


@functools.partial(jax.jit, static_argnames=("rate", "momentum"), donate_argnums=0)
def epoch(state, batches, rest, rate, momentum):
    """All whole batches, then what is left over."""
    state, sums = jax.lax.scan(functools.partial(step, rate, momentum), state, batches)
    sums = [part.sum() for part in sums]
    if len(rest[0]):
        state, last = step(rate, momentum, state, rest)
        sums = [a + b for a, b in zip(sums, last)]
    return state, sums


class Jax(peer.Peer):
    def __init__(self, options, images, labels):
        jax.config.update("jax_default_matmul_precision", "highest")  # float32, not TF32
        whole = len(images) // options.batch
        split = whole * options.batch
        images = images.reshape(-1, peer.SIDE, peer.SIDE)
        labels = labels.astype(np.int32)
        batches = (images[:split].reshape(whole, options.batch, *images.shape[1:]),
                   labels[:split].reshape(whole, options.batch))
        self.batches, self.rest = jax.device_put((batches, (images[split:], labels[split:])))
        self.rate, self.momentum = options.learning_rate, options.momentum

    def load(self, parameters):
        self.state = jax.device_put((parameters, [np.zeros_like(part) for part in parameters]))

    def epoch(self):
        self.state, sums = epoch(self.state, self.batches, self.rest, self.rate, self.momentum)
        return sums

    def wait(self):
        jax.block_until_ready(self.state)

    def parameters(self):
        return jax.device_get(self.state[0])


if __name__ == "__main__":
    peer.main(Jax)
