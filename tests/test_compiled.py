"""Tests what nvcc makes of the kernels of 05 and 13 to 15. It checks the speed as far as
that can be done without a GPU."""

import re

import pytest
from programs import ROOT, make, run

from bench import asm, ladders

LARGE = {"hidden_layer", "hidden_sums", "weight_gradient", "weight1_gradient"}
NVCC, CUOBJDUMP = map(asm.toolkit, ("nvcc", "cuobjdump"))
if not NVCC or not CUOBJDUMP:
    pytest.skip("found no nvcc or no cuobjdump (the CUDA toolkit)", allow_module_level=True)


def kernels(number, option):
    """(kernel, text) for each kernel and architecture in a stage's program."""
    stage = ladders.find_ladder("").find(number)
    make(str(stage.folder.relative_to(ROOT)))
    text = run([CUOBJDUMP, option, stage.program]).stdout
    names = re.split(r"Function *:? _Z(\d+)", text)[1:]
    return [(code[:int(length)], code) for length, code in zip(names[::2], names[1::2])]


def loads_before(number, instruction):
    """{kernel: how many loads from memory come before the first such instruction}"""
    found = {}
    for kernel, text in kernels(number, "-sass"):
        names = re.findall(r"/\*[0-9a-f]{4,}\*/ +(?:@!?\w+ +)?([A-Z][\w.]*)", text)
        places = [i for i, each in enumerate(names) if each.startswith(instruction)]
        if places and kernel in LARGE:
            loads = sum(each.startswith("LDG") for each in names[:places[0]])
            found.setdefault(kernel, set()).add(loads)
    return found


@pytest.mark.parametrize(
    "number", ["05.1", "05.2", "05.3", "05.4", "05", "05.5", "13.4", "14.1", "14", "14.2", "14.3",
               "15"])
def test_no_kernel_needs_local_memory(number):
    for kernel, text in kernels(number, "-res-usage"):
        assert re.search(r"STACK:0\b.*LOCAL:0\b", text), kernel


def test_a_thread_has_32_loads_under_way_before_it_multiplies():
    """And the bias, in 05.1's hidden_layer."""
    assert loads_before("05.1", "FFMA") == {"hidden_layer": {33}, "weight_gradient": {32}}
    assert loads_before("05.2", "FFMA") == {"hidden_sums": {32}, "weight_gradient": {32}}


def test_a_thread_waits_once_for_all_loads_of_its_tiles():
    """One that stores in between waits before each store."""
    assert loads_before("05.3", "STS") == {"weight_gradient": {16}}
    assert loads_before("05.4", "STS") == {"hidden_sums": {16}, "weight_gradient": {16}}
    assert loads_before("05", "STS") == {"hidden_sums": {14}, "weight_gradient": {8}}
    assert loads_before("05.5", "STS") == {"hidden_sums": {8}, "weight_gradient": {8}}
    assert loads_before("14.3", "STS") == {
        "hidden_sums": {6}, "weight_gradient": {8}, "weight1_gradient": {6}}


@pytest.mark.parametrize("number, steps", [("14.1", 3), ("14", 3 + 2)])
def test_products_are_on_tensor_cores(number, steps):
    """A step has two for each half. Of three steps forward none is left in a loop, of the others
    two are together."""
    found = [text.count("HMMA.16816.F32") for kernel, text in kernels(number, "-sass")
             if kernel == "run_epoch"]
    assert found == [4 * steps] * 2


@pytest.mark.parametrize("number", ["13.4", "15"])
def test_a_batchs_pixels_come_by_one_instruction(number):
    """At two places, in the kernel that keeps its arrays in shared memory."""
    found = [text.count("UBLKCP") for kernel, text in kernels(number, "-sass")
             if kernel == "run_epoch"]
    assert sorted(found) == [0, 2]


def test_a_large_networks_products_are_on_tensor_cores():
    """Two for each of a warp's 16 tiles."""
    found = {kernel: text.count("HMMA.16816.F32") for kernel, text in kernels("14.3", "-sass")}
    assert {kernel: count for kernel, count in found.items() if count} == {
        "hidden_sums": 32, "weight1_gradient": 32}
