#!/usr/bin/env python3
"""PyTorch, eager, as in the paper: `softmax`, and `bmm` for the products of each p with each q."""

import peer

torch = peer.require("torch")

# The products of a row are D × D numbers. Those of all rows would be 17 GB at 65,536 samples.
ROWS = 1024


class PyTorch(peer.Peer):
    def __init__(self, x, y):
        torch.set_num_threads(peer.THREADS)
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y)

    @torch.inference_mode()
    def run(self):
        p, q = torch.softmax(self.x, 1), torch.softmax(self.y, 1)
        entropy = (p ** 2).sum(1).mean()
        information = 0.0
        for p_rows, q_rows in zip(p.split(ROWS), q.split(ROWS)):
            products = torch.bmm(p_rows.unsqueeze(2), q_rows.unsqueeze(1))
            information += float((products ** 2).sum())
        return float(entropy), information / len(p)


if __name__ == "__main__":
    peer.main(PyTorch)
