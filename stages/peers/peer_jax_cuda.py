#!/usr/bin/env python3
"""JAX on a GPU: the program of peer_jax."""

import peer
import peer_jax

try:
    device = peer_jax.jax.devices("cuda")[0]
except (RuntimeError, AssertionError) as error:  # AssertionError: JAX came without CUDA
    peer.leave(peer.NOT_HERE, f"JAX finds no usable CUDA device. {error}")


class Cuda(peer_jax.Jax):
    device = device.device_kind

    def peak_vram_mib(self):
        return device.memory_stats()["peak_bytes_in_use"] / 2**20


if __name__ == "__main__":
    peer.main(Cuda)
