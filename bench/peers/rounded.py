"""PyTorch's products with factors of 16 bits, in place of torch.mm and torch.addmm, and a peer's
step, autotuned."""

import functools
import logging
import os

import torch

# Else it writes to standard error which kernels it has tried.
os.environ["TORCHINDUCTOR_AUTOTUNE_NUM_CHOICES_DISPLAYED"] = "0"
os.environ["TORCHINDUCTOR_MAX_AUTOTUNE_REPORT_CHOICES_STATS"] = "0"
logging.disable(logging.ERROR)


class Products:
    """Both factors are rounded to a type, and so is what a product gives. It is added up, and added
    to what stays float32, in float32."""

    def __init__(self, kind):
        self.kind = kind

    def mm(self, a, b):
        return torch.mm(a.to(self.kind), b.to(self.kind)).float()

    def addmm(self, c, a, b, alpha=1, out=None):
        return torch.add(c, self.mm(a, b), alpha=alpha, out=out)


def autotuned(step, products=torch):
    """The step with such products. "max-autotune" would record a CUDA graph of each batch, too. The
    peer records one of the epoch."""
    return torch.compile(functools.partial(step, products=products), dynamic=False,
                         mode="max-autotune-no-cudagraphs")
