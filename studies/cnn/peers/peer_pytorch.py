#!/usr/bin/env python3
"""PyTorch, eager."""

import peer

torch = peer.require("torch")


class PyTorch(peer.Peer):
    where = "cpu"

    def __init__(self, options, images, labels):
        if self.where == "cuda":
            if not torch.cuda.is_available():
                peer.leave(peer.NOT_HERE, "PyTorch finds no usable CUDA device")
            self.device = torch.cuda.get_device_name()
        torch.set_num_threads(peer.THREADS)
        torch.backends.cuda.matmul.allow_tf32 = False  # float32, as everywhere
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True  # the first epoch finds the fastest kernels
        # On a CPU, the time is shorter with the channels last.
        layout = torch.channels_last if self.where == "cpu" else torch.contiguous_format
        x = torch.from_numpy(images).view(-1, 1, peer.SIDE, peer.SIDE)
        x = x.to(self.where, memory_format=layout)
        y = torch.tensor(labels, dtype=torch.long, device=self.where)
        self.batches = list(zip(x.split(options.batch), y.split(options.batch)))
        # A pool before ReLU leaves it a quarter of the numbers, and gives the same.
        self.model = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3), torch.nn.MaxPool2d(2), torch.nn.ReLU(inplace=True),
            torch.nn.Conv2d(8, 16, 3), torch.nn.MaxPool2d(2), torch.nn.ReLU(inplace=True),
            torch.nn.Flatten(), torch.nn.Linear(400, 128), torch.nn.ReLU(inplace=True),
            torch.nn.Linear(128, peer.CLASSES)).to(self.where, memory_format=layout)
        # Its velocity is −1 / lr of ours, so the weights are the same to rounding.
        self.optimizer = torch.optim.SGD(self.model.parameters(), options.learning_rate,
                                         options.momentum, fused=True)
        self.sums = [torch.zeros((), device=self.where) for _ in range(2)]

    @torch.no_grad()
    def load(self, parameters):
        for mine, values in zip(self.model.parameters(), parameters):
            mine.copy_(torch.from_numpy(values.T if values.ndim == 2 else values))
        for state in self.optimizer.state.values():
            if state.get("momentum_buffer") is not None:
                state["momentum_buffer"].zero_()

    def forward(self, x, y):
        """The mean loss of a batch, and how many of it are right."""
        z = self.model(x)
        return torch.nn.functional.cross_entropy(z, y), (z.detach().argmax(1) == y).sum()

    def epoch(self):
        for part in self.sums:
            part.zero_()
        for x, y in self.batches:
            loss, right = self.forward(x, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.sums[0] += loss.detach() * len(y)
            self.sums[1] += right
        return self.sums

    def wait(self):
        if self.where == "cuda":
            torch.cuda.synchronize()

    def parameters(self):
        arrays = [part.detach().cpu().numpy() for part in self.model.parameters()]
        return [array.T if array.ndim == 2 else array for array in arrays]

    def peak_vram_mib(self):
        return torch.cuda.max_memory_reserved() / 2**20 if self.where == "cuda" else None


if __name__ == "__main__":
    peer.main(PyTorch)
