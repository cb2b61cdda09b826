#!/usr/bin/env python3
"""PyTorch, eager."""

import peer

torch = peer.require("torch")


def step(x, target, weights, biases, rate, products=torch):
    """One batch, with the gradients written out. nn.Sequential with cross_entropy and SGD computes
    the same. For a small batch, autograd and the optimizer take about as long as the arithmetic."""
    inputs = [x]
    for weight, bias in zip(weights[:-1], biases):
        inputs.append(products.addmm(bias, inputs[-1], weight).relu_())
    z = torch.log_softmax(products.addmm(biases[-1], inputs[-1], weights[-1]), 1)
    loss = -(z * target).sum()
    dz = z.exp() - target
    rate = -rate / len(x)
    for layer in reversed(range(len(weights))):
        dx = products.mm(dz, weights[layer].t()) * (inputs[layer] > 0) if layer else None
        # The update is folded into the product: θ ← θ − lr/n·aᵀ·dz.
        products.addmm(weights[layer], inputs[layer].t(), dz, alpha=rate, out=weights[layer])
        biases[layer].add_(dz.sum(0), alpha=rate)
        dz = dx
    return loss


class PyTorch(peer.Peer):
    where = "cpu"
    kind = torch.float32  # of the factors of products
    tf32 = False
    step = staticmethod(step)

    def __init__(self, options, images, labels):
        if self.where == "cuda":
            if not torch.cuda.is_available():
                peer.leave(peer.NOT_HERE, "PyTorch finds no usable CUDA device")
            self.device = torch.cuda.get_device_name()
        torch.set_num_threads(peer.THREADS)
        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        labels = torch.tensor(labels, dtype=torch.long)
        targets = torch.nn.functional.one_hot(labels, peer.CLASSES).float()
        x, target = torch.from_numpy(images).to(self.where, self.kind), targets.to(self.where)
        self.batches = list(zip(x.split(options.batch), target.split(options.batch)))
        self.rate = options.learning_rate
        shapes = peer.shapes(options)
        self.parameters = [[torch.empty(size, device=self.where) for size in sizes]
                           for sizes in (shapes, [outputs for _, outputs in shapes])]
        self.total = torch.zeros((), device=self.where)

    def load(self, weights, biases):
        for parameters, values in zip(self.parameters, (weights, biases)):
            for parameter, value in zip(parameters, values):
                parameter.copy_(torch.from_numpy(value))

    @torch.inference_mode()
    def epoch(self):
        self.total.zero_()
        for x, target in self.batches:
            self.total += self.step(x, target, *self.parameters, self.rate)
        return self.total

    def wait(self):
        if self.where == "cuda":
            torch.cuda.synchronize()

    def weights(self):
        return [[part.cpu().numpy() for part in parts] for parts in self.parameters]

    def peak_vram_mib(self):
        return torch.cuda.max_memory_reserved() / 2**20 if self.where == "cuda" else None


if __name__ == "__main__":
    peer.main(PyTorch)
