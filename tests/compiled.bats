#!/usr/bin/env bats
# Tests what nvcc makes of 05's kernels: whether they are compiled as the README says. It checks the
# speed as far as that can be done without a GPU.

# The toolkit has cuobjdump, and so has Triton, which the peers need.
setup() {
    repository=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
    stage=$repository/stages/05_cuda_shared_tiling
    local triton=("$repository"/bench/peers/env/lib/python3*/site-packages/triton)
    PATH=$PATH:/usr/local/cuda/bin:${triton[0]}/backends/nvidia/bin
    unset MAKEFLAGS
    for tool in nvcc cuobjdump; do
        command -v "$tool" >/dev/null || skip "found no $tool (the CUDA toolkit)"
    done
}

# A thread that loads together waits for memory once. One that stores in between waits before each
# store. The registers are those of one compiler.
@test "05's kernels load together, keep all in registers, and need what the README's table says" {
    make -s -C "$stage"
    python3 - "$stage" "$(nvcc --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')" <<'END'
import re
import subprocess
import sys
from pathlib import Path

stage, version = Path(sys.argv[1]), sys.argv[2]
readme = (stage / "README.md").read_text()
same_compiler = f"nvcc {version} " in readme
titles = re.search(r"^\| \| registers \((sm_.*?)\) \| shared memory \| loads in a row \|", readme, re.M)
architectures = [f"sm_{each.removeprefix('sm_')}" for each in titles[1].split(", ")]
rows = dict(re.findall(r"^\| `(\w+)` \|(.*)", readme[titles.start():].split("\n\n")[0], re.M))


def kernels(option):
    """(architecture, kernel, text) for each kernel in the program."""
    text = subprocess.run(["cuobjdump", option, stage / "train"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    for part in re.split(r"^Fatbin .*code:", text, flags=re.M)[1:]:
        architecture = re.search(r"^arch = (\w+)", part, re.M)[1]
        names = re.split(r"Function *:? _Z(\d+)", part)[1:]
        for length, code in zip(names[::2], names[1::2]):
            yield architecture, code[:int(length)], code


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
    expect(kernel, architecture, "bytes of shared memory", use["SHARED"], own, own and own + 1024)
    if same_compiler and architecture in architectures:
        own = int(registers.split(",")[architectures.index(architecture)])
        expect(kernel, architecture, "registers", use["REG"], own)
    checked.add(kernel)
assert checked == set(rows), (checked, rows)

for architecture, kernel, text in kernels("-sass"):
    instructions = re.findall(r"/\*[0-9a-f]{4,}\*/ +(?:@!?\w+ +)?([A-Z][\w.]*)", text)
    stores = [i for i, each in enumerate(instructions) if each.startswith("STS")]
    before = instructions[:stores[0]] if stores else instructions
    if in_a_row := rows[kernel].split("|")[2].strip():
        expect(kernel, architecture, "loads before the first store to shared memory",
               sum(each.startswith("LDG") for each in before), int(in_a_row))
if not same_compiler:
    print(f"The README's registers are not those of nvcc {version}: not compared")
assert not wrong, "\n" + "\n".join(wrong)
END
}
