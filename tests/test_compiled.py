"""Tests what nvcc makes of 05's kernels: whether they are compiled as the README says. It checks
the speed as far as that can be done without a GPU."""

import re

import pytest
from programs import ROOT, make, run

from harness import asm

STAGE = ROOT / "stages/05_cuda_shared_tiling"
NVCC, CUOBJDUMP = map(asm.toolkit, ("nvcc", "cuobjdump"))
if not NVCC or not CUOBJDUMP:
    pytest.skip("found no nvcc or no cuobjdump (the CUDA toolkit)", allow_module_level=True)


def kernels(option):
    """(architecture, kernel, text) for each kernel in the program."""
    text = run([CUOBJDUMP, option, STAGE / "train"]).stdout
    for part in re.split(r"^Fatbin .*code:", text, flags=re.M)[1:]:
        architecture = re.search(r"^arch = (\w+)", part, re.M)[1]
        names = re.split(r"Function *:? _Z(\d+)", part)[1:]
        for length, code in zip(names[::2], names[1::2]):
            yield architecture, code[:int(length)], code


# A thread that loads together waits for memory once. One that stores in between waits before each
# store. The registers are those of one compiler.
def test_kernels_load_together_and_need_what_the_readme_says():
    make("stages/05_cuda_shared_tiling")
    version = re.search(r"release ([0-9.]*),", run([NVCC, "--version"]).stdout)[1]
    readme = (STAGE / "README.md").read_text()
    same_compiler = f"nvcc {version} " in readme
    titles = re.search(r"^\| \| registers \((sm_.*?)\) \| shared memory \| loads in a row \|",
                       readme, re.M)
    architectures = [f"sm_{each.removeprefix('sm_')}" for each in titles[1].split(", ")]
    rows = dict(re.findall(r"^\| `(\w+)` \|(.*)", readme[titles.start():].split("\n\n")[0], re.M))
    checked, wrong = set(), []

    def expect(kernel, architecture, what, found, *expected):
        if found not in expected:
            wrong.append(f"{kernel}, {architecture}: {what}: found {found}, expected {expected[0]}")

    for architecture, kernel, text in kernels("-res-usage"):
        use = {name: int(count) for name, count in re.findall(r"(\w+):(\d+)", text)}
        registers, shared, *_ = rows[kernel].split("|")
        expect(kernel, architecture, "bytes of local memory", use["LOCAL"] + use["STACK"], 0)
        own = int(re.sub(r"\D", "", shared))
        # From sm_90 on, the driver has 1024 bytes of a block's shared memory.
        expect(kernel, architecture, "bytes of shared memory", use["SHARED"], own,
               own and own + 1024)
        if same_compiler and architecture in architectures:
            own = int(registers.split(",")[architectures.index(architecture)])
            expect(kernel, architecture, "registers", use["REG"], own)
        checked.add(kernel)
    assert checked == set(rows)

    for architecture, kernel, text in kernels("-sass"):
        instructions = re.findall(r"/\*[0-9a-f]{4,}\*/ +(?:@!?\w+ +)?([A-Z][\w.]*)", text)
        stores = [i for i, each in enumerate(instructions) if each.startswith("STS")]
        before = instructions[:stores[0]] if stores else instructions
        if in_a_row := rows[kernel].split("|")[2].strip():
            expect(kernel, architecture, "loads before the first store to shared memory",
                   sum(each.startswith("LDG") for each in before), int(in_a_row))
    assert not wrong, "\n".join(wrong)
    if not same_compiler:
        pytest.skip(f"compared all but the registers: the README's are not those of nvcc {version}")
