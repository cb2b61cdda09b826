"""Shows what the compiler made of a function: `make asm STAGE=01 [FUNCTION=forward]`.

Prints its instructions between the lines of the source that they come from (objdump, cuobjdump).
Without FUNCTION, prints the names of all that can be shown.
"""

import os
import re
import signal

from bench import ladders
from bench.compare import build
from bench.counts import run, toolkit
from bench.base import fail
from bench.options import given


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader may stop early
    stage = ladders.find_ladder(given("STUDY")).find(given("STAGE"))
    function = given("FUNCTION")
    build(stage)
    command = ["objdump", "-dSj.text", "--no-show-raw-insn"]
    heading = r"^[0-9a-f]+ <(\w+).*>:$"
    if stage.is_cuda:
        command = [toolkit("cuobjdump"), "-sass"]
        heading = r"^\s*Function : (\w+).*"
    elif os.uname().machine == "x86_64":
        command += "-M", "intel"
    if not command[0]:
        fail("found no cuobjdump (the CUDA toolkit) in PATH: it shows a kernel's code", 77)
    text = run("c++filt", "-p", text=run(*command, stage.program))
    # What GCC splits off a function, or makes of a parallel region, has its name and a suffix.
    parts = re.split(f"({heading})", text, flags=re.MULTILINE)[1:]
    headings, names, codes = parts[::3], parts[1::3], parts[2::3]
    texts = [f"{heading}{code.rstrip()}" for heading, name, code in zip(headings, names, codes)
             if name == function]
    known = " ".join(dict.fromkeys(name for name in names if name[0] != "_"))
    if function and not texts:
        fail(f"FUNCTION: found '{function}', expected one of: {known}; a function that was inlined "
             "is in those that call it")
    print("\n\n".join(texts) or known)
