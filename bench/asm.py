"""Shows what the compiler made of a stage: `make asm STAGE=01 [FUNCTION=forward]`.

First the loop that takes most of the time, of the function or of all. Below it, the function's
instructions stand between the lines of the source that they come from.
"""

import os
import re
import shutil
import signal
import tempfile
from pathlib import Path

from bench import ladders, sampling, screen
from bench.base import fail
from bench.counts import toolkit
from bench.measuring import build
from bench.options import given
from bench.process import output

INSTRUCTION = re.compile(r" *([0-9a-f]+):\t")
JUMP = re.compile(r"\t(?:j|b\.|cb|tb).* ([0-9a-f]+) <")


def samples(stage, names):
    """{address: how often a profile of about a second has found it there} of these functions."""
    with tempfile.TemporaryDirectory() as folder, screen.Bar() as bar:
        bar.say(f"profiles {stage.name}: a second or two")
        work = Path(folder)
        program = shutil.copy(stage.program, work / "program")
        found, _ = sampling.sample_cpu(stage, stage.ladder.options("step"), work, 1)
        text = output(["google-pprof", rf"--disasm=^({'|'.join(names)})\b", program, found])
    # Lines of the source between the instructions begin with fewer blanks.
    found = re.findall(r"^ +(\d+) +\d+ {8}([0-9a-f]+): ", text, re.MULTILINE)
    return {int(place, 16): int(count) for count, place in found}


def innermost_loops(code):
    """Those of a function, as {address: instruction}: from where a jump back leads to the jump."""
    lines = {int(found[1], 16): line for line in code.splitlines()
             if (found := INSTRUCTION.match(line))}
    jumps = [(int(found[1], 16), place) for place, line in lines.items()
             if (found := JUMP.search(line))]
    last = 0  # jump back: where another's begins behind it, that lies in no smaller loop
    for first, place in jumps:
        if first in lines and last < first <= place:
            last = place
            yield {each: line for each, line in lines.items() if first <= each <= place}


def show_loop(shown, counts):
    """Prints the loop that takes most time of these (heading, function, code)."""
    found = [(sum(counts.get(place, 0) for place in loop), name, loop)
             for _, name, code in shown for loop in innermost_loops(code)]
    most, name, loop = max(found, key=lambda each: each[0], default=(0, "", {}))
    if most:
        part = 100 * most / sum(counts.values())
        print(f"The loop with {part:.0f} % of the program's own time, in {name}:\n",
              *loop.values(), "", sep="\n")


def functions(stage):
    """[(heading, name, code)] of all that its program has."""
    command = ["objdump", "-dSj.text", "--no-show-raw-insn"]
    heading = r"^[0-9a-f]+ <(\w+).*>:$"
    if stage.is_cuda:
        command = [toolkit("cuobjdump"), "-sass"]
        heading = r"^\s*Function : (\w+).*"
    elif os.uname().machine == "x86_64":
        command += "-M", "intel"
    if not command[0]:
        fail("found no cuobjdump (the CUDA toolkit) in PATH: it shows a kernel's code", 77)
    text = output(["c++filt", "-p"], output([*command, stage.program]))
    # What GCC splits off a function, or makes of a parallel region, has its name and a suffix.
    parts = re.split(f"({heading})", text, flags=re.MULTILINE)[1:]
    return [*zip(parts[::3], parts[1::3], parts[2::3])]


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader may stop early
    stage = ladders.find_ladder(given("STUDY")).find(given("STAGE"))
    wanted = given("FUNCTION")
    build(stage)
    found = functions(stage)
    names = [name for _, name, _ in found]
    known = " ".join(dict.fromkeys(name for name in names if name[0] != "_"))
    shown = [each for each in found if wanted in ("", each[1])]
    if not shown:
        fail(f"FUNCTION: found '{wanted}', expected one of: {known}; a function that was inlined "
             "is in those that call it")
    if not stage.is_cuda:
        show_loop(shown, samples(stage, {*names}))
    if wanted:
        print("\n\n".join(heading + code.rstrip() for heading, _, code in shown))
    else:
        screen.tell(f"Functions, for FUNCTION=: {known}")
