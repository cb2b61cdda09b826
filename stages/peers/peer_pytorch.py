#!/usr/bin/env python3
"""PyTorch, eager."""

import peer

torch = peer.require("torch")


def step(x, target, weights1, bias1, weights2, bias2, rate, products=torch):
    """One batch, with the gradients written out. nn.Sequential with cross_entropy and SGD computes
    the same. For a small batch, autograd and the optimizer take about as long as the arithmetic."""
    a = products.addmm(bias1, x, weights1).relu_()
    z = torch.log_softmax(products.addmm(bias2, a, weights2), 1)
    loss = -(z * target).sum()
    dz = z.exp() - target
    da = products.mm(dz, weights2.t()) * (a > 0)
    # The update is folded into the product: θ ← θ − lr/n·aᵀ·dz.
    rate = -rate / len(x)
    products.addmm(weights2, a.t(), dz, alpha=rate, out=weights2)
    bias2.add_(dz.sum(0), alpha=rate)
    products.addmm(weights1, x.t(), da, alpha=rate, out=weights1)
    bias1.add_(da.sum(0), alpha=rate)
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
        self.parameters = [torch.empty(shape, device=self.where) for shape in (
            (peer.PIXELS, options.hidden), options.hidden,
            (options.hidden, peer.CLASSES), peer.CLASSES)]
        self.total = torch.zeros((), device=self.where)

    def load(self, weights):
        for parameter, values in zip(self.parameters, weights):
            parameter.copy_(torch.from_numpy(values))

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
        return [parameter.cpu().numpy() for parameter in self.parameters]

    def peak_vram_mib(self):
        return torch.cuda.max_memory_reserved() / 2**20 if self.where == "cuda" else None


if __name__ == "__main__":
    peer.main(PyTorch)
