"""What is right: what a ladder's reference computes, and what [tests] of ladder.toml compares."""

import functools
import tempfile
import threading
from pathlib import Path

import numpy as np

from bench import process, shape
from bench.base import ROOT, fail


@functools.cache
def folder_of(_thread):
    return tempfile.TemporaryDirectory(prefix="check-")


def scratch():
    """A folder for what the calling thread compares. It is removed when Python ends."""
    return folder_of(threading.get_ident())


@functools.cache
def drawn_data(ladder, items):
    folder = Path(scratch().name, f"{ladder.name}-{items}")
    folder.mkdir(exist_ok=True)
    ladder.data_module.write(folder, items)
    return folder


@functools.lru_cache(maxsize=200)  # a few hundred MiB at most
def expect(ladder, *options):
    """(words of each line that it prints with these options, the float64 that it saves, or None)"""
    saved = Path(scratch().name, "expected")
    saved.unlink(missing_ok=True)
    command = [f"{ROOT}/bench/build/{ladder.name}/reference", *options]
    if ladder.save:
        command += [f"--{ladder.save}", str(saved)]
    lines = [line.split() for line in process.output(command).splitlines()]
    if not lines:  # else all of nothing would be right
        fail(f"{ladder.name}/reference: with {' '.join(options)}: says nothing to compare with", 1)
    return lines, np.fromfile(saved) if saved.exists() else None


def widened(lines, digits):
    """The lines for a program whose products have so few digits of a factor: where weights are
    compared, it may be as far off as after 16 roundings in a row, or 8 that cut off. The bounds of
    parts keep their proportions: a unit that is on or off shows in some more than in others."""
    total = [float(words[-1]) for words in lines if words[0] == "total"]
    if not digits or not total:
        return lines
    off = 16 * 2.0**-digits
    return [[*words[:3], max(float(words[3]), off), words[4]] if words[0] == "result"
            else [*words[:-1], float(words[-1]) * off / total[0]] for words in lines]


def selected(ladder, selection):
    if not ladder.toml["tests"]:
        fail(f"{ladder.name}/ladder.toml: found no [tests]; see stages/ladder.toml")
    tests = ladder.toml["tests"]
    return shape.CASES | {"twice": tests["cases"]} | tests | tests.get(selection, {})


def pairs(tests, part=1):
    """(size and case as one, whether to run it twice, or None to do no more than run it): of a part
    of all pairs, such as a third, in which each size and each case still is."""
    twice = {case: case in tests["twice"] for case in tests["cases"]}
    twice |= dict.fromkeys(tests["run_only"])
    part = min(part, len(tests["sizes"]), len(twice))
    return [(f"{size} {case}".strip(), twice[case]) for row, size in enumerate(tests["sizes"])
            for column, case in enumerate(twice) if (row + column) % part == 0]
