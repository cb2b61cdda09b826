"""What a warp asks of memory: its requests as the simulated device traces them (sim/README.md),
each with the expression of the source that makes it."""

import functools
import json
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench import counts
from bench.base import value
from bench.options import given
from bench.process import make, output

WORD, LANES = 4, 32  # the first in bytes
SECTORS_A_CYCLE = 4  # of global memory: a wavefront of shared memory takes a cycle
# A variable with its indices or members, or what a pointer leads to.
ELEMENT = re.compile(r"\*\((?:const )?\w+ \*\)(?:\w+|\((?:[^()]|\([^()]*\))*\))"
                     r"|\(\((?:const )?\w+ \*\)\w+\)\[[^][]*\]"
                     r"|[A-Za-z_]\w*(?:(?:\.|->)\w+)*(?:\[[^][]*(?:\[[^][]*\][^][]*)*\])+"
                     r"|\w+(?:->\w+)+|(?<!\w )\*\w+")


class Place(NamedTuple):
    """Where an access stands: an expression of a line, and the lines that call its function."""
    line: int
    start: int
    end: int
    text: str
    functions: tuple
    calls: tuple


def cell(ladder):
    """The options of the run: those of the first of [[counts]] in ladder.toml that makes least of
    it, with what make's command line changes."""
    first = ladder.toml["counts"][0]
    changed = [f" --{axis['option']} {given(axis['option'])}" for axis in ladder.axes
               if given(axis["option"])]
    return (first.get("less") or first["run"]) + "".join(changed)


def chosen(name):
    """The number of the WARP or BLOCK that is drawn."""
    return value(name, given(name, "0"), int, 0)


@functools.cache
def trace(stage):
    """{kernel: its trace}: of the WARP of the BLOCK, in its first launch. Its cycles
    are those of all warps in all launches."""
    make("-C", stage.folder, "sim", "COUNT=1")
    with tempfile.TemporaryDirectory() as work:
        path = Path(work, "trace.json")
        command = [counts.program(stage), *stage.ladder.data, *cell(stage.ladder).split()]
        counted = counts.simulate(command, work, counts.apart_in(stage), SIM_TRACE=path,
                                  SIM_BLOCK=str(chosen("BLOCK")), SIM_WARP=str(chosen("WARP")))
        traced = json.loads(path.read_text(encoding="utf-8"))
    found = {(each["code"], each["kind"]) for kernel in traced for each in kernel["requests"]}
    place = places(stage, sorted(found))
    cycles = counted.filter(regex="^shared_.*_passes$").sum(axis=1) + counted.filter(
        regex="_sectors$").sum(axis=1) // SECTORS_A_CYCLE
    for kernel in traced:
        kernel["cycles"] = int(cycles[kernel["kernel"]])
        for each in kernel["requests"]:
            each["place"] = place[each["code"], each["kind"]]
    return {kernel["kernel"]: kernel for kernel in traced}


def places(stage, found):
    """{(address of code, kind): its Place}. Of a line of a header, the stage's own line that led to
    it counts."""
    lines = stage.source.read_text(encoding="utf-8").splitlines()
    said = output(["eu-addr2line", "-i", "-f", "-C", "--pretty-print", "-e",
                   counts.program(stage), *(f"{code:#x}" for code, _ in found)])
    frames = re.split(r"\n(?! \(inlined by\))", said) if found else []
    return {key: place_of(key[1], lines, frame, stage.source.name)
            for key, frame in zip(found, frames, strict=True)}


def place_of(kind, lines, frames, source):
    found = re.findall(rf"(\w+)(?:<[^<>\n]*>)?(?:\([^\n]*)? at [^\n]*/{source}:(\d+):(\d+)", frames)
    if not found:
        return Place(0, 0, 0, "?", (), ())
    functions, numbers, columns = zip(*found)
    line, column = int(numbers[0]), int(columns[0])
    if kind != "load" and lines[line - 2].endswith("="):  # what is stored, below where
        line, column = line - 1, len(lines[line - 2])
    start, end = expression(lines[line - 1], column, kind)
    return Place(line, start, end, lines[line - 1][start:end], functions,
                 tuple(map(int, numbers[1:])))


def expression(text, column, kind):
    """Where an access stands in its line. GCC's column is in it, or at the = or ? beside it."""
    at, spans = column - 1, [found.span() for found in ELEMENT.finditer(text)]
    inside = [span for span in spans if span[0] <= at < span[1]]
    after = [span for span in spans if span[0] > at]
    before = [span for span in reversed(spans) if span[1] <= at]
    whole = [(len(text) - len(text.lstrip()), len(text))]
    return (inside + (after if kind == "load" else before) + whole)[0]
