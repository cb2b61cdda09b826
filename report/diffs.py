"""What a stage changed, side by side as HTML: with line numbers, the colours of the language, marks
on what differs within a line, and a profile's samples."""

import functools
import re
import subprocess
from difflib import SequenceMatcher
from html import escape
from itertools import groupby

from pygments.lexers import CLexer
from pygments.lexers.c_like import CudaLexer
from pygments.token import Token

from report.samples import text_of

COLOURS = {Token.Comment.Preproc: "p", Token.Comment: "c", Token.Literal.String: "s",
           Token.Literal.Number: "m", Token.Keyword: "k", Token.Name.Function: "f"}
ALIKE = 0.6  # how alike two lines are, if they stand side by side


@functools.cache
def coloured(path):
    """The lines of a source, each as ((class or "", text), ...)."""
    lexer = (CudaLexer if path.suffix == ".cu" else CLexer)(stripnl=False)
    lines = [[]]
    for kind, text in lexer.get_tokens(text_of(path)):
        colour = next((css for parent, css in COLOURS.items() if kind in parent), "")
        first, *others = text.split("\n")
        lines[-1].append((colour, first))
        lines += [[(colour, other)] for other in others]
    return [tuple(line) for line in lines]


def html(line, other=None):
    """A coloured line. What the other one lacks is marked."""
    matcher, found = SequenceMatcher(None, other or line, line, autojunk=False), []
    for kind, _, _, start, end in matcher.get_opcodes():
        text = "".join(f"<i class={colour}>{escape(text, False)}</i>" if colour
                       else escape(text, False) for colour, text in line[start:end])
        found.append(text if kind == "equal" or not text else f"<mark>{text}</mark>")
    return "".join(found)


@functools.cache
def likeness(line, other):
    words, others = ([text for _, text in each if text.strip()] for each in (line, other))
    return SequenceMatcher(None, words, others, autojunk=False).quick_ratio()


def beside(removed, added):
    """Pairs of lines: those that are alike stand side by side, the others opposite None."""
    start = 0
    for line in removed:
        best = max(range(start, len(added)), key=lambda i: likeness(line[1], added[i][1]),
                   default=None)
        if best is not None and likeness(line[1], added[best][1]) >= ALIKE:
            yield from ((None, other) for other in added[start:best])
            yield line, added[best]
            start = best + 1
        else:
            yield line, None
    yield from ((None, other) for other in added[start:])


def hunks(before, after):
    """(heading, [(whether it is the same, old, new)]) of two sources. A line is (number, what
    coloured() has), or None where the other side has a line alone."""
    answer = subprocess.run(["git", "diff", "--no-index", "--no-color", "--histogram", before,
                             after], stdout=subprocess.PIPE, encoding="utf-8", errors="replace",
                            check=False).stdout
    for text in re.split(r"^(?=@@ -)", answer, flags=re.MULTILINE)[1:]:
        head, *lines = text.split("\n")
        old, new, heading = re.match(r"@@ -(\d+).*? \+(\d+).*? @@ ?(.*)", head).groups()
        at, rows = {"-": int(old), "+": int(new)}, []
        for is_same, part in groupby((line[0] for line in lines if line[:1] in (" ", "-", "+")),
                                     lambda sign: sign == " "):
            sides = {"-": [], "+": []}
            for signs in part:
                for sign in "-+" if is_same else signs:
                    path = before if sign == "-" else after
                    sides[sign].append((at[sign], coloured(path)[at[sign] - 1]))
                    at[sign] += 1
            pairs = zip(*sides.values()) if is_same else beside(*sides.values())
            rows += [(is_same, *pair) for pair in pairs]
        yield heading, rows


def is_blank(*pair):
    """Whether the lines of a row differ in white space alone: one side's may be empty."""
    old, new = ("".join(text for _, text in line[1]).split() if line else [] for line in pair)
    return "".join(old) == "".join(new)


def heat(samples, number):
    """The attributes of a line's number: its part of a profile's samples, if it has any."""
    if not samples or number not in samples:
        return ""
    part, words = samples[number]
    return f' style="--heat:{part:.3f}" data-heat="{100 * part:.1f} %" data-tip="{escape(words)}"'


def table(before, after, samples=(None, None)):
    """The diff of two sources as a table. The samples of a source are {number of a line: (part of
    all, words)}, or None."""
    found = ["<table class=diff>" if samples == (None, None) else '<table class="diff heated">']
    found += ["<col><col>" if each is None else "<col class=heat><col>" for each in samples]
    for heading, rows in hunks(before, after):
        found.append(f"<tr class=at><th colspan=4 scope=colgroup>{escape(heading)}&nbsp;")
        for is_same, *pair in rows:
            cells = []
            for line, other, kind, part in zip(pair, pair[::-1], ("old", "new"), samples):
                cells.append(f"<td{heat(part, line[0])}>{line[0]}"
                             f"<td{'' if is_same else f' class={kind}'}>"
                             f"{html(line[1], other and other[1])}" if line
                             else "<td><td class=no>")
            look = " class=same" if is_same else " class=blank" if is_blank(*pair) else ""
            found.append(f"<tr{look}>{''.join(cells)}")
    return "\n".join([*found, "</table>"])
