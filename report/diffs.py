"""What a stage changed, side by side as HTML: with line numbers, the colours of the language, marks
on what differs within a line, a profile's samples, and what the stage's README says of a place."""

import difflib
import functools
import re
import subprocess
from collections import Counter
from html import escape, unescape
from itertools import count, groupby

from pygments.lexers import CLexer
from pygments.lexers.c_like import CudaLexer
from pygments.token import Token

from report.samples import text_of

COLOURS = {Token.Comment.Preproc: "p", Token.Comment: "c", Token.Literal.String: "s",
           Token.Literal.Number: "m", Token.Keyword: "k", Token.Name.Function: "f"}
ALIKE = 0.5  # the part of its words that two lines share, if they stand side by side
# How many words that no other place has must speak for a place, if a point names no function and no
# variable, and how many times as many as for any other place.
ENOUGH, CLEAR = 2, 1.5
# An item of a list, or what begins a list. An item with a list of its own is left alone.
POINT = re.compile(r"<([uo])l\b[^>]*>|<li>((?:(?!</?(?:li|[uo]l)\b).)*)</li>", re.DOTALL)
# The comment that begins a source.
HEAD = re.compile(r"(//[^\n]*\n)*")
# A function, a struct or an enum, with the comment above it. Its last line begins with "}".
DEFINITION = re.compile(r"(?:^//[^\n]*\n)*^([A-Za-z_][^;{}#]*\{$).*?^\}", re.DOTALL | re.MULTILINE)


@functools.cache
def coloured(path):
    """The lines of a source, each as [(class or "", text)]."""
    lexer = (CudaLexer if path.suffix == ".cu" else CLexer)(stripnl=False)
    lines = [[("", "")]]
    for kind, text in lexer.get_tokens(text_of(path)):
        colour = next((css for parent, css in COLOURS.items() if kind in parent), "")
        first, *others = text.split("\n")
        before, so_far = lines[-1][-1]
        # What has no colour of its own, or the same, belongs to what is before it.
        if colour == before or not first.strip():
            lines[-1][-1] = before, so_far + first
        else:
            lines[-1].append((colour, first))
        lines.extend([(colour, other)] for other in others)
    return lines


def html(line, changed=()):
    """A coloured line. What stands at the changed places is marked."""
    found, start = [], 0
    for colour, text in line:
        for marked, places in groupby(range(start, start + len(text)), lambda at: at in changed):
            part = "".join(text[at - start] for at in places)
            part = part.replace("&", "&amp;").replace("<", "&lt;")
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
    all_lines = text_of(before).split("\n")
    for text in re.split(r"^(?=@@ -)", answer, flags=re.MULTILINE)[1:]:
        head, *lines = text.split("\n")
        old, new, heading = re.match(r"@@ -(\d+).*? \+(\d+).*? @@ ?(.*)", head).groups()
        # git cuts it off after 80 bytes.
        heading = next((line for line in all_lines if line.startswith(heading or "\n")), heading)
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


@functools.cache
def owners(path):
    """{number of a line: the function or the struct that it belongs to}."""
    text, found = text_of(path), {}
    for match in DEFINITION.finditer(text):
        name = match[1].rstrip("{ ").split()[-1]
        if name.endswith(")"):
            name = next((each for each in re.findall(r"(\w+)\(", match[1])
                         if not each.startswith("__")), name)
        first = text.count("\n", 0, match.start()) + 1
        found |= dict.fromkeys(range(first, first + match[0].count("\n") + 1), name)
    return found


def pieces(sections, before, after):
    """The runs of changed lines that belong to one function: [(place, owner, names, stems)]. A
    place is a hunk and the run's first row."""
    # The comment that begins a source says all in short, so a point would often be there.
    first = max(HEAD.match(text_of(path))[0].count("\n")
                for path in (before, after))
    for hunk, (_, rows) in enumerate(sections):
        def about(row, rows=rows):
            is_same, old, new = rows[row]
            return is_same, owners(after if new else before).get((new or old)[0])

        for (is_same, owner), run in groupby(range(len(rows)), about):
            run = list(run)
            lines = [line for row in run for line in rows[row][1:] if line]
            if not is_same and min(lines)[0] > first:
                text = " ".join(text for _, text in lines)
                yield (hunk, run[0]), owner, set(re.findall(r"[A-Za-z_]\w+", text)), stems(text)


def stems(text):
    """The words of a text and of the names in it, without their endings."""
    return {re.sub("(e?s|e|y|ies|ed|ing)$", "", word.lower())
            for word in re.findall("[A-Za-z]{4,}", text)}


def points(text):
    """The items of the lists in a text, which is HTML. Those of a numbered list have numbers."""
    found, number = [], None
    for kind, point in POINT.findall(text):
        if kind:
            number = 0 if kind == "o" else None
        elif number is None:
            found.append(point)
        else:
            number += 1
            found.append(re.sub("^(<p>)?", rf"\g<0>{number}. ", point))
    return found


def marked(text, places):
    """The text, with a mark on the points of these places."""
    number = count()
    return POINT.sub(lambda match: match[0].replace("<li>", "<li class=noted>", 1)
                     if match[2] is not None and next(number) in places else match[0], text)


def speaks_of(point, found):
    """The piece that a point speaks of, or None. A point names functions and variables in its
    `code`: functions decide first, then the rarest name. The others choose among the pieces that
    have it. The words that the point shares with the code and its comments choose among those that
    are left. They choose among all pieces if the point names nothing."""
    places = []
    for code in map(unescape, re.findall("<code>(.*?)</code>", point, re.DOTALL)):
        for name in re.findall(r"[A-Za-z_]\w+", code) if code.isascii() else []:
            own = {place for place, (_, owner, *_) in enumerate(found) if owner == name}
            all_ = own or {place for place, (_, _, names, _) in enumerate(found) if name in names}
            places.append((not own, len(all_), all_))
    chosen = set()
    for *_, each in sorted(places, key=lambda place: place[:2]):
        chosen = chosen & each or chosen or each
    words_ = stems(unescape(re.sub("<[^>]*>", " ", point)))
    rarity = Counter(word for *_, own in found for word in own)
    shared = [sum(1 / rarity[word] for word in words_ & own) for *_, own in found]
    best = sorted(chosen or range(len(found)), key=lambda place: (-shared[place], place))
    first, second = [*(shared[place] for place in best), 0, 0][:2]
    is_clear = not places and first > max(CLEAR * second, ENOUGH)
    return best[0] if chosen or is_clear else None


def heat(samples, number):
    """The attributes of a line's number: its part of a profile's samples, if it has any."""
    if not samples or number not in samples:
        return ""
    part, words_ = samples[number]
    return f' style="--heat:{part:.3f}" data-heat="{100 * part:.1f} %" data-tip="{escape(words_)}"'


def table(before, after, notes=(), samples=(None, None)):
    """The diff of two sources as a table, and the places of those notes that stand in it. A note is
    HTML. The samples of a source are {number of a line: (part of all, words)}, or None."""
    lines, sections, at = (coloured(before), coloured(after)), list(hunks(before, after)), {}
    parts = list(pieces(sections, before, after))
    for place, note in enumerate(notes):
        part = speaks_of(note, parts)
        if part is not None:
            at.setdefault(parts[part][0], []).append(place)
    found = ["<table class=diff>" if samples == (None, None) else '<table class="diff heated">']
    found += ["<col><col>" if each is None else "<col class=heat><col>" for each in samples]
    for hunk, (heading, rows) in enumerate(sections):
        found.append(f"<tr class=at><th colspan=4 scope=colgroup>{escape(heading)}&nbsp;")
        for row, (is_same, *pair) in enumerate(rows):
            found += [f"<tr class=note><td colspan=4>{notes[place]}"
                      for place in at.get((hunk, row), ())]
            both = all(pair)
            marks = changes(pair[0][1], pair[1][1]) if both and not is_same else ((), ())
            cells = []
            for side, line in enumerate(pair):
                kind = "" if is_same or not line else " class=new" if side else " class=old"
                cells.append(f"<td{heat(samples[side], line[0])}>{line[0]}<td{kind}>"
                             + html(lines[side][line[0] - 1], marks[side])
                             if line else "<td><td class=no>")
            found.append(f"<tr{' class=same' if is_same else ''}>{''.join(cells)}")
    return "\n".join([*found, "</table>"]), {place for each in at.values() for place in each}
