#!/usr/bin/env python3
"""peer_numpy with one decision made as the paper may have made it: "Its accuracies" in PAPER.md.

    DECISION=sorted stages/peers/decisions.py [a peer's options]

It computes something else than the peers, so no table has it."""

import os

import peer
import peer_numpy
import numpy as np

DECISION = os.environ.get("DECISION", "")
WEIGHTS = {
    "small-weights": lambda weights, _: weights / 10,
    "normal": lambda weights, random: random.standard_normal(weights.shape, np.float32),
    "small-normal": lambda weights, random: random.standard_normal(weights.shape, np.float32) / 100,
    "positive": lambda weights, random: random.random(weights.shape, np.float32),
}
SAMPLES = {  # of images and labels
    "bytes": lambda images, labels, _: (images * 255, labels),
    "sorted": lambda images, labels, _: (images[order := np.argsort(labels, kind="stable")],
                                         labels[order]),
    "shuffled": lambda images, labels, random: (images[order := random.permutation(len(labels))],
                                                labels[order]),
    "wrong-labels": lambda images, labels, random: (images, np.where(
        random.random(len(labels)) < 0.1, random.integers(0, 10, len(labels)), labels)),
}


class Decided(peer_numpy.NumPy):
    def __init__(self, options, images, labels):
        self.seed = options.seed
        if DECISION in SAMPLES:
            images, labels = SAMPLES[DECISION](images, labels, np.random.default_rng(self.seed))
        super().__init__(options, images, labels)

    def load(self, weights):
        random = np.random.default_rng(self.seed)
        if DECISION in WEIGHTS:
            for matrix in weights[0], weights[2]:
                matrix[:] = WEIGHTS[DECISION](matrix, random)
        super().load(weights)

    def weights(self):
        first, *others = super().weights()
        return first * (255 if DECISION == "bytes" else 1), *others  # for pixels from 0 to 1


if __name__ == "__main__":
    if DECISION not in WEIGHTS | SAMPLES:
        peer.leave(peer.BAD_INPUT, f"DECISION: found '{DECISION}', expected one of "
                   f"{', '.join(WEIGHTS | SAMPLES)}")
    peer.main(Decided)
