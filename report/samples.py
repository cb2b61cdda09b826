"""What the profiles of the CPU stages say of each line (profiles/README.md)."""

import functools
import re
from collections import defaultdict

from markupsafe import Markup

from harness import flamegraph, rows

# A line of lines.txt that has samples: how many, their part of all, the line's number and text.
LINE = re.compile(r"^ *(\d{1,12}) +(\d{1,3}\.\d)% +(\d{1,9})  (.*)$", re.MULTILINE)
STACK = re.compile(r"^(.+) (\d{1,12})$", re.MULTILINE)  # main;train;forward 700


@functools.cache
def text_of(path):
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def folder(stage):
    """Where a stage's profile is, or None. The reader's own goes before the repository's."""
    home = stage.ladder.profiles
    return next((each for each in (home / "mine" / stage.name, home / stage.name)
                 if any(each.glob("*.txt"))), None)


def of_lines(stage):
    """{number of a line: (part of the samples, words)}. A line that has moved since the profile was
    taken is the nearest one of the same text. None without a profile, or with one of other code."""
    found, source = {}, defaultdict(list)
    for place, line in enumerate(text_of(stage.source).split("\n"), 1):
        source[line.rstrip()].append(place)
    where = folder(stage)
    text = where and rows.or_nothing(rows.read, where / "lines.txt")
    for count, part, number, line in LINE.findall(text or ""):
        if line not in source:
            return None
        found[min(source[line], key=lambda place: abs(place - int(number)))] = (
            float(part) / 100, f"{count} samples")
    return found or None


def flames(where):
    """A profile's flame graph. Empty without stacks."""
    found = STACK.findall(rows.or_nothing(rows.read, where / "stacks.txt") or "")
    return found and Markup(flamegraph.draw(
        "A box is a function, as wide as its part of the samples",
        [(names.split(";"), int(count)) for names, count in found]).replace(
            "<svg ", '<svg role="group" aria-label="Flame graph" ', 1))
