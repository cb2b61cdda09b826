#!/usr/bin/env python3
"""PyTorch, eager, with sparse matrices (CSR) for the products with x. They are made once, x for the
forward product and its transpose for the gradient."""

import warnings

import peer
import peer_pytorch
import torch

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")


def step(x, target, weights1, bias1, weights2, bias2, rate):
    """As in peer_pytorch."""
    x, x_transposed = x
    a = torch.mm(x, weights1).add_(bias1).relu_()
    z = torch.log_softmax(torch.addmm(bias2, a, weights2), 1)
    loss = -(z * target).sum()
    dz = z.exp() - target
    da = torch.mm(dz, weights2.t()) * (a > 0)
    rate = -rate / len(target)
    weights2.addmm_(a.t(), dz, alpha=rate)
    bias2.add_(dz.sum(0), alpha=rate)
    torch.addmm(weights1, x_transposed, da, alpha=rate, out=weights1)
    bias1.add_(da.sum(0), alpha=rate)
    return loss


class Sparse(peer_pytorch.PyTorch):
    step = staticmethod(step)

    def __init__(self, options, images, labels):
        super().__init__(options, images, labels)
        self.batches = [((x.to_sparse_csr(), x.t().to_sparse_csr()), target)
                        for x, target in self.batches]


if __name__ == "__main__":
    peer.main(Sparse)
