"""Shows what the compiler made of a function: `make asm STAGE=01 [FUNCTION=forward]`.

Prints what objdump prints of it, instructions between the lines of the source that they come from,
and of a CUDA kernel what cuobjdump prints. A function that was inlined is in those that call it.
Without FUNCTION, prints the names of all that can be shown. Nothing runs.
"""

import os
import re
import signal

from bench import ladders
from bench.compare import build
from bench.counts import run, toolkit
from bench.base import fail
from bench.options import given


def functions(stage):
    """[(name, heading and instructions)] of what the program has."""
    command, heading = ["objdump", "-dSj.text", "--no-show-raw-insn"], r"^[0-9a-f]+ <(\w+).*>:$"
    if stage.is_cuda:
        command, heading = [toolkit("cuobjdump"), "-sass"], r"^\s*Function : (\w+).*"
        if not command[0]:
            fail("found no cuobjdump (the CUDA toolkit) in PATH: it shows a kernel's code", 77)
    elif os.uname().machine == "x86_64":
        command += "-M", "intel"
    text = run("c++filt", "-p", text=run(*command, stage.program))
    # What GCC splits off a function, or makes of a parallel region, has its name and a suffix.
    parts = re.split(f"({heading})", text, flags=re.MULTILINE)[1:]
    return [(name, f"{title}{code.rstrip()}")
            for title, name, code in zip(parts[::3], parts[1::3], parts[2::3])]


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader may stop early
    stage, function = ladders.find_ladder(given("STUDY")).find(given("STAGE")), given("FUNCTION")
    build(stage)
    found = functions(stage)
    names = " ".join(dict.fromkeys(name for name, _ in found if name[0] != "_"))
    texts = [text for name, text in found if name == function]
    if function and not texts:
        fail(f"FUNCTION: found '{function}', expected one of: {names}; a function that was inlined "
             "is in those that call it")
    print("\n\n".join(texts) or names)
