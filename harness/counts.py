"""Counts what a CUDA stage's kernels do with memory, without a GPU: `make profile-gpu`.

The simulated device counts the accesses of all threads (sim/README.md). [[counts]] in ladder.toml
says what is counted: mostly a batch, which is the difference of two runs. If there is nvcc, it says
what it makes of each kernel for ARCHITECTURE. All this is exact, and the same each time with the
same data.
"""

import csv
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import asm
from harness.ladders import ROOT, fail

# An H100: how many multiprocessors, and what each has. A block has RESERVED bytes of shared memory
# for the driver.
ARCHITECTURE, MULTIPROCESSORS = "sm_90", 132
REGISTERS, SHARED, RESERVED, THREADS, BLOCKS = 65536, 228 << 10, 1024, 2048, 32
# What predicts its time, in µs: from one kernel to the next, from a node of a graph to the next, a
# barrier of the grid (sim/README.md says from where), and cycles.
LAUNCH, NODE, BARRIER, CYCLE = 2.4, 1.2, 1.3, 1 / 1750
NAMES = ["stage", "sources", "cell", "kernel"]
LOOP = ["loop_loads", "loop_multiply_adds"]
COMPILED = ["registers", "spilled", "shared", "blocks_at_once", *LOOP]
SHARED_LOAD = re.compile(r"\bLDS(?:\.U)?(?:\.(64|128))?\s") # 32 bits, or as many
LOAD, MULTIPLY_ADD = (re.compile(rf"\s{name}\b") for name in ("LD[GS]?", "FFMA"))


def run(*words, **variables):
    """What a tool has printed, which ends the program if it fails. Its errors are shown then."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT,
                          env={**os.environ, **variables})
    if done.returncode:
        print(done.stderr or done.stdout, end="", file=sys.stderr)
        fail(f"{Path(words[0]).name} failed", 1)
    return done


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


def inner_loop(code):
    """{column of LOOP: instructions} of the loop with the most arithmetic in a kernel's SASS."""
    lines = [(["a kernel"], "", line)
             for line in re.findall(r"^ +/\*[0-9a-f]+\*/.*?;", code, re.MULTILINE)]
    score, loop = asm.hot(lines, "", {})
    return {column: sum(bool(kind.search(line)) for *_, line in loop)
            for column, kind in zip(LOOP, (LOAD, MULTIPLY_ADD))} if score else {}


def compiled(stage, work):
    """{kernel: {registers, spilled, shared, width, loop_loads, loop_multiply_adds}}: registers of a
    thread, bytes of it that go to local memory, bytes of a block, words that an instruction loads
    from shared memory on average, instructions in the loop with the most arithmetic. Without nvcc,
    none. Without cuobjdump, no width and no loop."""
    nvcc, cuobjdump = asm.toolkit("nvcc"), asm.toolkit("cuobjdump")
    if not nvcc:
        return {}
    # The stage's own Makefile knows the flags.
    made = run("make", "-s", "-C", stage.folder, f"OUTPUT={work}/train", f"NVCC={nvcc}",
               f"CUDA_ARCH={ARCHITECTURE}", "EXTRA=-Xptxas -v")
    text = asm.output("c++filt", input=made.stdout + made.stderr)
    found, patterns = {}, ("Used (\\d+) registers", "(\\d+) bytes stack frame", "(\\d+) bytes smem")
    for kernel in text.split("Compiling entry function '")[1:]:
        numbers = [re.search(pattern, kernel) for pattern in patterns]
        found[kernel[:kernel.index("(")]] = dict(zip(COMPILED, (
            int(number[1]) if number else 0 for number in numbers)))
    code = cuobjdump and asm.output("c++filt", input=run(
        cuobjdump, "-sass", work / "train").stdout)
    for kernel in (code or "").split("Function : ")[1:]:
        words = [int(bits or 32) / 32 for bits in SHARED_LOAD.findall(kernel)]
        found[kernel[:kernel.index("(")]] |= {
            "width": sum(words) / len(words) if words else 1, **inner_loop(kernel)}
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


def blocks_at_once(threads, registers, shared):
    """How many blocks of so many threads a multiprocessor has room for. Registers come in
    pieces of 256 for a warp."""
    warps = math.ceil(threads / 32)
    return min(BLOCKS, THREADS // threads, SHARED // (shared + RESERVED),
               REGISTERS // (warps * math.ceil(registers * 32 / 256) * 256))


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
                if not any(row.values()):
                    continue
                fact = dict(facts.get(kernel, {}))
                if fact and row["blocks"] > 0:
                    fact["blocks_at_once"] = blocks_at_once(
                        row["threads"] // row["blocks"], fact["registers"], fact["shared"])
                names = stage.name, stage.sources, each["cell"], kernel
                rows.append({**dict(zip(NAMES, names)), **row, "apart": int(kernel in apart),
                             **{name: fact.get(name, "") for name in COMPILED}})
    return rows


def write(rows, path):
    with path.open("w", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read(path):
    """The rows that a file has, with numbers as numbers. None if it is not there."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return [{name: value if name in NAMES or not value else int(value)
                 for name, value in row.items()} for row in csv.DictReader(file)]


def times(number, ideal):
    """A count, and how many times the least it is."""
    return f"{number:,}" + (f" ({number / ideal:.1f})" if ideal and number > 1.05 * ideal else "")


def memory(row, kind):
    """Requests and sectors of a kind of access to memory; loads say what the least would be."""
    requests, sectors, packed = (row[f"{kind}_{what}"]
                                 for what in ("requests", "sectors", "packed"))
    return [f"{requests:,}", times(sectors, packed)] if requests else ["", ""]


def predicted(row):
    """The time on an H100 in µs, if nothing but these take any."""
    return (LAUNCH * row["launches"] + NODE * row["nodes"] + BARRIER * row["grid_barriers"]
            + CYCLE * row["busiest"])


HEADS = ["kernel", "launches", "blocks", "threads", "loads", "sectors", "stores", "sectors",
         "shared accesses", "passes", "barriers", "cycles", "µs"]


def line(row):
    shared = [sum(row[f"shared_{kind}_{what}"] for kind in ("load", "store", "atomic"))
              for what in ("requests", "passes")]
    barriers = row["barriers"] + row["grid_barriers"]
    threads = f"{row['threads']:,}"
    if row["threads_at_work"] < row["threads"]:
        threads += f", {row['threads_at_work']:,} at work"
    return [row["kernel"], f"{row['launches'] + row['nodes']:,}", f"{row['blocks']:,}", threads,
            *memory(row, "load"), *memory(row, "store"),
            *(f"{each:,}" if each else "" for each in shared),
            f"{barriers:,}" if barriers else "", f"{row['busiest']:,}", f"{predicted(row):.1f}"]


def kernels(rows):
    """{cell: its kernels' rows}"""
    return {cell: [row for row in rows if row["cell"] == cell and row["bytes"] == 0]
            for cell in dict.fromkeys(row["cell"] for row in rows)}


def sums(rows):
    """{cell: the sum of its kernels}"""
    return {cell: {name: sum(row[name] for row in found) for name in found[0]
                   if name not in (*NAMES, *COMPILED)} | {"kernel": "together"}
            for cell, found in kernels(rows).items()}


def copied(rows, cell):
    """The copies of a cell: "401,536 bytes to the device"."""
    return " and ".join(f"{row['bytes']:,} bytes {row['kernel']}" for row in rows
                        if row["cell"] == cell and row["bytes"])


def tables(rows):
    """[(cell, what is copied in it, lines of texts under HEADS)]: a line for each kernel, and their
    sum."""
    totals = sums(rows)
    for cell, found in kernels(rows).items():
        yield cell, copied(rows, cell), [
            line(row) for row in (*found, *([totals[cell]] if len(found) > 1 else []))]


def text(rows):
    """The tables for a terminal."""
    for cell, copies, lines in tables(rows):
        widths = [max(len(each[place]) for each in [HEADS, *lines]) for place in range(len(HEADS))]
        yield from ("", f"{cell}{copies and f'; copied: {copies}'}:", "", *(
            "  ".join(f"{text:{'<' if place == 0 else '>'}{width}}"
                      for place, (text, width) in enumerate(zip(each, widths))).rstrip()
            for each in [HEADS, *lines]))
