"""Tests what nvcc makes of 05's kernels. It checks the speed as far as that can be done without a
GPU."""

import re

import pytest
from programs import ROOT, make, run

from bench import asm

STAGE = ROOT / "stages/05_cuda_shared_tiling"
NVCC, CUOBJDUMP = map(asm.toolkit, ("nvcc", "cuobjdump"))
if not NVCC or not CUOBJDUMP:
    pytest.skip("found no nvcc or no cuobjdump (the CUDA toolkit)", allow_module_level=True)


def kernels(option):
    """(kernel, text) for each kernel and architecture in the program."""
    text = run([CUOBJDUMP, option, STAGE / "train"]).stdout
    names = re.split(r"Function *:? _Z(\d+)", text)[1:]
    return [(code[:int(length)], code) for length, code in zip(names[::2], names[1::2])]


def test_no_kernel_needs_local_memory():
    make("stages/05_cuda_shared_tiling")
    for kernel, text in kernels("-res-usage"):
        assert re.search(r"STACK:0\b.*LOCAL:0\b", text), kernel


def test_a_thread_waits_once_for_all_loads_of_its_tiles():
    """One that stores in between waits before each store."""
    make("stages/05_cuda_shared_tiling")
    first = {}
    for kernel, text in kernels("-sass"):
        instructions = re.findall(r"/\*[0-9a-f]{4,}\*/ +(?:@!?\w+ +)?([A-Z][\w.]*)", text)
        stores = [i for i, each in enumerate(instructions) if each.startswith("STS")]
        if stores:
            loads = sum(each.startswith("LDG") for each in instructions[:stores[0]])
            first.setdefault(kernel, set()).add(loads)
    assert first == {"hidden_sums": {14}, "weight_gradient": {8}}
