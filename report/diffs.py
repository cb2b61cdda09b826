"""What a stage changed, side by side as HTML: with line numbers, the colours of the language, and
marks on what differs within a line."""

import difflib
import functools
import re
import subprocess
from html import escape
from itertools import groupby

from pygments.lexers import CLexer
from pygments.lexers.c_like import CudaLexer
from pygments.token import Token

COLOURS = {Token.Comment.Preproc: "p", Token.Comment: "c", Token.Literal.String: "s",
           Token.Literal.Number: "m", Token.Keyword: "k", Token.Name.Function: "f"}
ALIKE = 0.5  # the part of its words that two lines share, if they stand side by side


@functools.cache
def coloured(path):
    """The lines of a source, each as [(class or "", text)]."""
    lexer = (CudaLexer if path.suffix == ".cu" else CLexer)(stripnl=False)
    lines = [[]]
    for kind, text in lexer.get_tokens(path.read_text(encoding="utf-8", errors="replace")):
        colour = next((css for parent, css in COLOURS.items() if kind in parent), "")
        first, *others = text.split("\n")
        lines[-1].append((colour, first))
        lines.extend([(colour, other)] for other in others)
    return lines


def html(line, changed=()):
    """A coloured line. What stands at the changed places is marked."""
    found, start = [], 0
    for colour, text in line:
        for marked, places in groupby(range(start, start + len(text)), lambda at: at in changed):
            part = escape("".join(text[at - start] for at in places), quote=False)
            part = f"<mark>{part}</mark>" if marked else part
            found.append(f"<i class={colour}>{part}</i>" if colour and part.strip() else part)
        start += len(text)
    return "".join(found)


def words(line):
    return re.findall(r"\w+|\s+|.", line)


def changes(old, new):
    """The places in two lines that only one of them has."""
    found, at = (set(), set()), [0, 0]
    olds, news = words(old), words(new)
    for kind, i, k, j, n in difflib.SequenceMatcher(None, olds, news, False).get_opcodes():
        for side, part in enumerate((olds[i:k], news[j:n])):
            end = at[side] + len("".join(part))
            if kind != "equal":
                found[side].update(range(at[side], end))
            at[side] = end
    return found


@functools.cache
def bag(line):
    return {word for word in words(line) if not word.isspace()}


def likeness(old, new):
    return len(bag(old) & bag(new)) / (len(bag(old) | bag(new)) or 1)


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
    """[(heading, [(old, new)])] of two sources. A line is (number, text), or None where the other
    side has a line alone."""
    answer = subprocess.run(["git", "diff", "--no-index", "--no-color", "--histogram", before,
                             after], stdout=subprocess.PIPE, encoding="utf-8", errors="replace",
                            check=False).stdout
    for text in re.split(r"^(?=@@ -)", answer, flags=re.MULTILINE)[1:]:
        head, *lines = text.split("\n")
        old, new, heading = re.match(r"@@ -(\d+).*? \+(\d+).*? @@ ?(.*)", head).groups()
        at, rows = {"-": int(old), "+": int(new)}, []
        for is_same, part in groupby((line for line in lines if line and line[0] in " -+"),
                                     lambda line: line[0] == " "):
            sides = {"-": [], "+": []}
            for line in part:
                for sign in ("-+" if is_same else line[0]):
                    sides[sign].append((at[sign], line[1:]))
                    at[sign] += 1
            pairs = zip(*sides.values()) if is_same else beside(*sides.values())
            rows += [(is_same, *pair) for pair in pairs]
        yield heading, rows


def table(before, after):
    """The diff of two sources as a table."""
    lines = coloured(before), coloured(after)
    found = ["<table class=diff><col><col><col><col>"]
    for heading, rows in hunks(before, after):
        found.append(f"<tr class=at><th colspan=4 scope=colgroup>{escape(heading)}&nbsp;")
        for is_same, *pair in rows:
            both = all(pair)
            marks = changes(pair[0][1], pair[1][1]) if both and not is_same else ((), ())
            cells = []
            for side, line in enumerate(pair):
                kind = "" if is_same or not line else " class=new" if side else " class=old"
                cells.append(f"<td>{line[0]}<td{kind}>" + html(lines[side][line[0] - 1],
                                                               marks[side])
                             if line else "<td><td class=no>")
            found.append(f"<tr{' class=same' if is_same else ''}>{''.join(cells)}")
    return "\n".join([*found, "</table>"])
