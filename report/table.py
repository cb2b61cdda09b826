"""Tables for READMEs and terminals, the marks in them, and how numbers and links are written."""

import math
import os
import textwrap
from collections import defaultdict
from typing import NamedTuple

from bench import rows

WIDTH = 80  # of a terminal
MOVE = "the move"  # the head of a column of words
# What may stand with a cell, and what it means. The first two stand before the number.
MARKS = {
    "~": f"~: a run is {100 * rows.NOISY:.0f} % off the median",
    "!": "!: all its runs were on a busy machine",
    "Δ": "Δ: its sources have changed since",
    "†": "†: it leaves out operations, so it has no share of peak"}


def three_digits(value):
    """0.0971, 3.96, 71.8, 641, 1,203."""
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"


def percent(part):
    """0.9 %, 12 %."""
    return f"{100 * part:.{1 if part < 0.1 else 0}f} %"


def count_of(number, thing):
    """1 thread, 2 threads."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def link(text, path, folder):
    return f"[{text}]({os.path.relpath(path, folder)})"


def by_reason(found):
    """{reason: [things]} of (thing, reason)."""
    things = defaultdict(list)
    for thing, reason in found:
        things[reason].append(thing)
    return things


class Cell(NamedTuple):
    """What a table has in one place, and which of MARKS."""
    text: str = ""
    marks: str = ""

    def __str__(self):
        before = [mark for mark in "!~" if mark in self.marks]
        after = [mark for mark in ("†", " Δ") if mark.strip() in self.marks]
        return "".join([*before, self.text, *after])


class Table:
    """Cells under heads. A line of one cell is a title of those that follow."""

    def __init__(self, heads, lines):
        self.heads = [*heads]
        self.lines = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in line]
                      for line in lines]

    @property
    def legend(self):
        found = {mark for line in self.lines for cell in line for mark in cell.marks}
        return [meaning for mark, meaning in MARKS.items() if mark in found]

    def __str__(self):
        """In Markdown."""
        rules = ["---", *("---" if head == MOVE else "---:" for head in self.heads[1:])]
        head, *lines = (
            f"|{'|'.join(f' {cell} ' if str(cell) else ' ' for cell in line)}|"
            for line in (self.heads, *self.lines))
        # Between two ~, GitHub strikes out.
        return "\n".join([head, f"|{'|'.join(rules)}|", *lines]).replace("~", "\\~")

    def text(self):
        """In lines of a terminal."""
        lines = [[str(cell) for cell in line] for line in (self.heads, *self.lines)]
        first = max(len(line[0]) for line in lines)
        room = 2 + max(len(cell) for line in lines for cell in line[1:])
        return "\n".join(f"{line[0]:<{first}}" + "".join(f"{cell:>{room}}" for cell in line[1:])
                         if line[1:] else line[0] for line in lines)


def wrapped(text):
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)
