#!/usr/bin/env python3
"""PyTorch, eager, with the double sum factored. A block of rows stays in the cache between the
softmax and the sum of its squares."""

import peer

torch = peer.require("torch")

ROWS = 512


class Factored(peer.Peer):
    is_factored = True

    def __init__(self, x, y):
        torch.set_num_threads(peer.THREADS)
        self.blocks = [torch.from_numpy(each).split(ROWS) for each in (x, y)]

    @torch.inference_mode()
    def run(self):
        p_squares, q_squares = (torch.cat([
            torch.linalg.vector_norm(torch.softmax(rows, 1), dim=1) for rows in blocks]).square_()
            for blocks in self.blocks)
        return p_squares.mean().item(), (p_squares * q_squares).mean().item()


if __name__ == "__main__":
    peer.main(Factored)
