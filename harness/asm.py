"""Shows what the compiler made of a stage: `make asm STAGE=01 [FUNCTION=forward_tile ALL=1]`.

    asm.py STUDY STAGE [FUNCTION]

Prints the hot loop of the stage, or of a function in it: each instruction under the line of the
source that it comes from. With ALL=1 in the environment, it prints all instructions. Without
FUNCTION, it says how many each function has.

Nothing runs. The hot loop is the one with the most arithmetic, if a loop has as many rounds as the
constant in its `for`, or ROUNDS.
"""

import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter

from harness import ladders, shape
from harness.ladders import fail

# An instruction's address, as objdump and cuobjdump print it, and the address that it jumps to.
ADDRESS = re.compile(r" *(?:/\*)?([0-9a-f]+)")
JUMP = re.compile(r"\s(?:j\w+|b(?:\.\w+)?|[ct]bn?z|BRA\S*)\s+(?:.*, )?(?:0x)?([0-9a-f]+)(?: <| *;)")
LEAVES = re.compile(r"^[^@]*\s(?:jmp|ret|b(?=\t)|br(?=\t)|BRA|EXIT)\b")  # not to the next one
# A multiply-add, a multiplication or an addition of floats, of x86, Arm or a GPU. A group has the
# first letter of a vector register, and LANES how many numbers that holds.
ARITHMETIC = re.compile(
    r"\s(?:v?(?:fn?m(?:add|sub)\d+|mul|add|sub)(?:s[sd]|p[sd] +(\w))"
    r"|f(?:n?m(?:add|sub|ul|la|ls)|add|sub)\t(\w)|[DFH](?:FMA|MUL|ADD|MMA))")
ROUNDS = 100  # of a loop whose number of rounds is no constant
LANES = {"z": 16, "y": 8, "x": 4, "v": 4}


def toolkit(name):
    """The path of a program of the CUDA toolkit, or None. Its folder is often not in PATH. Triton,
    which the peers need, has a copy of some."""
    triton = (ladders.ROOT / "bench/peers/env/lib").glob(
        "python3*/site-packages/triton/backends/nvidia/bin")
    return shutil.which(name, path=":".join(
        [os.environ["PATH"], "/usr/local/cuda/bin", *map(str, triton)]))


def output(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, **options)
    if done.returncode:
        sys.exit(1)  # it has said why
    return done.stdout


def kernels(stage):
    """[(functions, heading, instruction)] for each kernel."""
    cuobjdump = toolkit("cuobjdump")
    if not cuobjdump:
        fail("found no cuobjdump (the CUDA toolkit) in PATH: it shows a kernel's instructions", 77)
    text = output("c++filt", "-p", input=output(cuobjdump, "-sass", stage.program))
    text = re.sub(r"\s*/\* 0x[0-9a-f]+ \*/", "", text)  # the instructions as numbers
    parts = re.split(r"^\s*Function : (.*)\n", text, flags=re.MULTILINE)
    for name, text in zip(parts[1::2], parts[2::2]):
        yield [([name.split("<")[0]], name, line)
               for line in re.findall(r"^ +/\*[0-9a-f]+\*/.*", text, re.MULTILINE)]


def instructions(stage):
    """(functions, heading, instruction) for each instruction that comes from the stage's source.
    It is in the first of the functions, which was inlined into the others."""
    source = stage.source.read_text(encoding="utf-8").split("\n")
    here = re.compile(rf".*/{stage.name}/{stage.source.name}:(\d+)")
    intel = ("-M", "intel") if os.uname().machine == "x86_64" else ()
    listing = output("objdump", "-dl", "--inlines", "--no-show-raw-insn", *intel, stage.program)
    name = place = ""
    # Above an instruction, objdump prints its function and line if they are others than before. It
    # always prints which functions that one was inlined into.
    for head, text in re.findall(r"((?:.*\n)*?)( +[0-9a-f]+:\t.*)\n", listing):
        if found := re.search(r"^([\w.]+)\(\):\n(/.*:\d+)?", head, re.MULTILINE):
            name, place = found[1], found[2] or ""
        elif found := re.search(r"^/.*:\d+", head, re.MULTILINE):
            place = found[0]
        callers = re.findall(r"^inlined by (.*) \((.*)\)$", head, re.MULTILINE)
        own = {function.split(".")[0]: int(found[1])
               for where, function in ((place, name), *callers) if (found := here.match(where))}
        if own:
            function, line = next(iter(own.items()))
            yield own, f"{function}, {line}: {source[line - 1].strip()}", text


def loops_of(lines):
    """[(numbers of its lines, its last line)] for each loop: all that leads to a jump back without
    passing the jump's target. An inner loop comes before the loops around it."""
    numbers = {int(ADDRESS.match(text)[1], 16): number for number, (*_, text) in enumerate(lines)}
    before, back = [[] for _ in lines], []
    for number, (*_, text) in enumerate(lines):
        jump = JUMP.search(text)
        if jump and (target := numbers.get(int(jump[1], 16))) is not None:
            before[target].append(number)
            back += [(target, number)] if target <= number else []
    for number, (*_, text) in enumerate(lines[:-1]):
        # Nothing comes to the padding that follows a jump.
        is_padding = re.search(r"\bnop|xchg +ax,ax", text)
        if not LEAVES.search(text) and (before[number] or not is_padding):
            before[number + 1].append(number)
    bodies, lasts = {}, {}
    for first, last in back:
        body, left = {first}, [last]
        while left:
            if (number := left.pop()) not in body:
                body.add(number)
                left += before[number]
        # There is no other way in. Some functions are inlined into the loops of training, not all.
        if all(before[number] for number in body - {first}) and (
                next(iter(lines[last][0])) not in ("train", "main")):
            bodies[first], lasts[first] = bodies.get(first, set()) | body, last
    return sorted(((bodies[first], lasts[first]) for first in bodies),
                  key=lambda loop: len(loop[0]))


def hot(lines, function, constants):
    """(score, lines) of the loop that does most of a function's arithmetic, as far as the text of
    it and of two loops around it says. Without such a loop, all lines of the function."""
    loops, scores = loops_of(lines), Counter()
    for number, (within, _, text) in enumerate(lines):
        around = [index for index, (body, _) in enumerate(loops) if number in body][:3]
        found = function in ("", *within) and ARITHMETIC.search(text)
        if around and found:
            limits = (re.search(r"\bfor \(.*<=? (\w+);", lines[loops[index][1]][1])
                      for index in around)
            operations = 2 if "MA" in found[0].upper() else 1
            scores[around[0]] += operations * LANES.get(found[found.lastindex or 0], 1) * math.prod(
                int(constants.get(limit and limit[1], ROUNDS)) for limit in limits)
    if not scores:
        return 0, [line for line in lines if function in ("", *line[0])]
    (index, score), = scores.most_common(1)
    return score, [lines[number] for number in sorted(loops[index][0])]


def hot_loop(ladder, parts, function):
    """(what it is in words, its lines)"""
    headers = [path for folder in (ladders.ROOT / "common", ladder.folder)
               for path in folder.glob("*.h")]
    constants = dict(re.findall(r"(\w+) = (\d+)[ ,}]", "".join(
        path.read_text(encoding="utf-8") for path in headers)))
    score, lines = max((hot(part, function, constants) for part in parts),
                       key=lambda found: (found[0], len(found[1])))
    return "The loop with the most arithmetic" if score else "No loop with arithmetic", lines


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader may stop early
    if len(sys.argv) not in (3, 4):
        fail(f"found '{' '.join(sys.argv[1:])}', expected: asm STUDY STAGE [FUNCTION]")
    study, stage, function = [*sys.argv[1:], ""][:3]
    ladder = ladders.find_ladder(study)
    stage = ladder.find(stage)
    if status := subprocess.run([*stage.build, "-s"], cwd=ladders.ROOT, check=False).returncode:
        sys.exit(status)
    if not stage.program.exists():
        sys.exit(77)  # make has said why
    parts = [*kernels(stage)] if stage.is_cuda else [[*instructions(stage)]]
    functions = Counter(name for part in parts for within, *_ in part for name in within)
    if function not in ("", *functions):
        fail(f"FUNCTION: found '{function}', expected {shape.nearest(function, functions)}")
    lines = [line for part in parts for line in part if function in ("", *line[0])]
    if not os.environ.get("ALL"):
        if not function:
            print("Instructions of each function, with what was inlined into it:\n")
            print(*(f"{count:7} {name}" for name, count in functions.items()), "", sep="\n")
        count, (words, lines) = len(lines), hot_loop(ladder, parts, function)
        print(f"{words}: {len(lines)} of {count} instructions. ALL=1 prints all of them.\n")
    shown = None
    for _, place, text in lines:
        print(*([] if place == shown else [place]), text, sep="\n")
        shown = place
