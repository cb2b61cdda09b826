"""Counts what a CUDA stage's kernels do with memory, without a GPU: `make profile-gpu`.

The simulated device counts the accesses of all threads (sim/README.md). [[counts]] in ladder.toml
says what is counted: mostly a batch, which is the difference of two runs. If there is nvcc, it says
what it makes of each kernel for ARCHITECTURE. All this is exact, and the same each time with the
same data.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.ladders import ROOT, fail

ARCHITECTURE, MULTIPROCESSORS = "sm_90", 132  # of an H100
# What predicts its time, in µs: from one kernel to the next, from a node of a graph to the next, a
# barrier of the grid (sim/README.md says from where), and cycles.
LAUNCH, NODE, BARRIER, CYCLE = 2.4, 1.2, 1.3, 1 / 1750
NAMES = ["stage", "cell", "kernel"]
COMPILED = ["registers", "spilled", "shared"]
SHARED_LOAD = re.compile(r"\bLDS(?:\.U)?(?:\.(64|128))?\s") # 32 bits, or as many


def toolkit(name):
    """The path of a program of the CUDA toolkit, or None. Its folder is often not in PATH. Triton,
    which the peers need, has a copy of some."""
    triton = (ROOT / "bench/peers/env/lib").glob(
        "python3*/site-packages/triton/backends/nvidia/bin")
    return shutil.which(name, path=":".join(
        [os.environ["PATH"], "/usr/local/cuda/bin", *map(str, triton)]))


def run(*words, text=None, **variables):
    """What a tool says, given a text. If it fails, its errors are shown, and the program ends."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, input=text,
                          env={**os.environ, **variables})
    if done.returncode:
        print(done.stderr or done.stdout, end="", file=sys.stderr)
        fail(f"{Path(words[0]).name} failed", 1)
    return done.stdout


def simulate(stage, options, work, apart=()):
    """{kernel: {column: count}} of a run. In the kernels that are `apart`, no load from shared
    memory is joined with that of the next iteration."""
    path = work / "counts.csv"
    run(stage.folder / f"{stage.program.name}.counted.sim", *stage.ladder.data, *options.split(),
        "--quiet", SIM_COUNTS=str(path), SIM_APART=f",{','.join(apart)},",
        SIM_MULTIPROCESSORS=str(MULTIPROCESSORS))
    with path.open(encoding="utf-8") as file:
        return {row.pop("kernel"): {name: int(count or 0) for name, count in row.items()}
                for row in csv.DictReader(file)}


def compiled(stage, work):
    """{kernel: {registers, spilled, shared, width}}: registers of a thread, bytes of it that go to
    local memory, bytes of a block, words that an instruction loads from shared memory on average.
    Without nvcc, none. Without cuobjdump, no width."""
    nvcc, cuobjdump = toolkit("nvcc"), toolkit("cuobjdump")
    if not nvcc:
        return {}
    # The stage's own Makefile knows the flags. ptxas says it on standard error.
    made = run("sh", "-c", 'exec "$@" 2>&1', "sh", "make", "-s", "-C", stage.folder,
               f"OUTPUT={work}/train", f"NVCC={nvcc}", f"CUDA_ARCH={ARCHITECTURE}",
               "EXTRA=-Xptxas -v")
    found, patterns = {}, ("Used (\\d+) registers", "(\\d+) bytes stack frame", "(\\d+) bytes smem")
    for kernel in run("c++filt", text=made).split("Compiling entry function '")[1:]:
        numbers = [re.search(pattern, kernel) for pattern in patterns]
        found[kernel[:kernel.index("(")]] = dict(zip(COMPILED, (
            int(number[1]) if number else 0 for number in numbers)))
    code = cuobjdump and run("c++filt", text=run(cuobjdump, "-sass", work / "train"))
    for kernel in (code or "").split("Function : ")[1:]:
        words = [int(bits or 32) / 32 for bits in SHARED_LOAD.findall(kernel)]
        found[kernel[:kernel.index("(")]]["width"] = sum(words) / len(words) if words else 1
    return found


def stay_apart(stage, facts, options, work):
    """The kernels in which nvcc does not join loads of successive iterations: without that, the
    average width is closer to that of the compiled code. Where nobody can read that, they are those
    of the profile in the repository."""
    if not all("width" in fact for fact in facts.values()) or not facts:
        return {row["kernel"] for row in read(stage.ladder.profiles / stage.name / "counts.csv")
                if row["apart"]}
    joined, apart = (simulate(stage, options, work, kernels) for kernels in ((), facts))

    def distance(columns, kernel):
        requests = columns["shared_load_requests"]
        return requests and abs(columns["shared_words"] / requests - facts[kernel]["width"])

    return {kernel for kernel in facts if kernel in joined
            and distance(apart[kernel], kernel) < distance(joined[kernel], kernel)}


def count(stage, counts=None):
    """[{column: value}]: a row for each kernel of each of [[counts]], and for copies."""
    counts = counts or stage.ladder.toml["counts"]
    if not counts:
        fail(f"{stage.name}: found no GPU (nvidia-smi lists none), and no [[counts]] in "
             f"{stage.ladder.file.relative_to(ROOT)}, which say what to count", 77)
    run("make", "-s", "-C", stage.folder, "sim", "COUNT=1")
    rows = []
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        facts = compiled(stage, work)
        apart = stay_apart(stage, facts, counts[0]["run"], work)
        for each in counts:
            less, more = (simulate(stage, options, work, apart) if options else {}
                          for options in (each.get("less"), each["run"]))
            for kernel, columns in more.items():
                row = {name: value - less.get(kernel, {}).get(name, 0)
                       for name, value in columns.items()}
                if any(row.values()):
                    fact = facts.get(kernel, {})
                    names = dict(zip(NAMES, (stage.name, each["cell"], kernel)))
                    rows.append({**names, **row, "apart": int(kernel in apart),
                                 **{name: fact.get(name, "") for name in COMPILED}})
    return rows


def write(rows, path):
    with path.open("w", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0] if rows else NAMES, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read(path):
    """The rows of a file, with numbers as numbers. None if there is no file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return [{name: value if name in NAMES or not value else int(value)
                 for name, value in row.items()} for row in csv.DictReader(file)]


def predicted(row):
    """The time on an H100 in µs, if nothing but these take any."""
    return (LAUNCH * row["launches"] + NODE * row["nodes"] + BARRIER * row["grid_barriers"]
            + CYCLE * row["busiest"])


def sums(rows):
    """{cell: the sum of its kernels}, without what is copied between host and device."""
    found = {}
    for row in rows:
        if not row["bytes"]:
            total = found.setdefault(row["cell"], {"kernel": "together"})
            for name in row.keys() - {*NAMES, *COMPILED}:
                total[name] = total.get(name, 0) + row[name]
    return found


def text(rows):
    """A table for each cell, for a terminal: a line for each kernel, and their sum."""
    for cell, total in sums(rows).items():
        yield f"\n{cell}\n{'':24} launches  blocks    sectors     passes barriers   cycles     µs"
        for row in (*(each for each in rows if each["cell"] == cell), total):
            if row["bytes"]:
                yield f"{row['kernel']}: {row['bytes']:,} bytes"
                continue
            sectors, passes = (sum(value for name, value in row.items() if re.fullmatch(kind, name))
                               for kind in ("[a-z]+_sectors", "shared_.*_passes"))
            yield (f"{row['kernel']:24}{row['launches'] + row['nodes']:9,}{row['blocks']:8,}"
                   f"{sectors:11,}{passes:11,}{row['barriers'] + row['grid_barriers']:9,}"
                   f"{row['busiest']:9,}{predicted(row):7.1f}")
