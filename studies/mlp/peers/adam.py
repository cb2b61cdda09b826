#!/usr/bin/env python3
"""Adam in the place of plain gradient descent, for "Which setting is the paper's?" in the study's
README. It takes a peer's options, but computes something else, so no table has it."""

import peer
import peer_numpy
import numpy as np

DECAY, SQUARES_DECAY, SMALL = 0.9, 0.999, 1e-8  # as Kingma and Ba (2015) propose


class Adam(peer_numpy.NumPy):
    def __init__(self, options, images, labels):
        super().__init__(options, images, labels)
        self.rate, self.step = 1, options.learning_rate  # dz has no rate in it

    def load(self, weights, biases):
        super().load(weights, biases)
        self.steps = 0
        self.moments = [[(np.zeros_like(part), np.zeros_like(part)) for part in parts]
                        for parts in self.parameters]

    def update(self, parameter, moments, gradient):
        mean, square = moments
        mean += (1 - DECAY) * (gradient - mean)
        square += (1 - SQUARES_DECAY) * (gradient**2 - square)
        length = np.sqrt(square / (1 - SQUARES_DECAY**self.steps)) + SMALL
        parameter -= self.step / (1 - DECAY**self.steps) * mean / length

    def backward(self, x, values, dz):
        """Updates all layers."""
        self.steps += 1
        layers = zip(*self.parameters, *self.moments, [x, *values])
        for weights, bias, *moments, before in reversed([*layers]):
            dx = (dz @ weights.T) * (before > 0)
            self.update(weights, moments[0], before.T @ dz)
            self.update(bias, moments[1], dz.sum(axis=0))
            dz = dx


if __name__ == "__main__":
    peer.main(Adam)
