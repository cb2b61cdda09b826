"""Writes the measured figures of the READMEs, which stand between marks:

    The training takes <!-- measured: 01, hidden 32, batch 32 -->0.192 s<!-- end -->.
    Against 01.1, `forward`: <!-- measured: forward_s of 01.2 over 01.1 -->2.25×<!-- end -->.

A mark says `measured: [COLUMN of] STAGE [over STAGE] [, OPTION VALUE]...`. STAGE is a stage or a
peer of the page's ladder. COLUMN is one of the rows; without it, it is the ladder's time. `over`
says how many times as fast STAGE is. Options left out are those of `make step`.
"""

import re

from bench import base, ladders, rows
from bench.base import ROOT, fail
from report import blocks, table

BEGIN, END, NOTHING = "<!-- measured:", "<!-- end -->", "(not measured)"
MARK = re.compile(rf"{BEGIN}((?:(?!-->).)*)-->((?:(?!<!--).)*){END}", re.DOTALL)
SHAPE = re.compile(r"(?:(\w+) of )?(\S+)(?: over (\S+))?")


def pages():
    """{path: ladder}: the Markdown that may have marks. Pages in no study are the main ladder's."""
    first, *others = ladders.ladders()
    folders = {ROOT: first, first.folder: first, **{ladder.folder: ladder for ladder in others}}
    return {path: ladder for folder, ladder in folders.items()
            for place in ("*.md", "*/*.md", "*/*/*.md") for path in sorted(folder.glob(place))}


def quantity(group, column, cell, line, above=None):
    """A value of a column with its unit, or a line's ratio to another. None if there is none."""
    if above:
        ratio = group.ratio(line, above, cell, column)
        return ratio and ratio.text
    value = group.median(column, line, cell)
    if value is None:
        return None
    if column.endswith("accuracy"):
        return f"{100 * value:.2f} %"
    for end, scale, unit in (("_s", group.scale, group.unit), ("_mib", 1, "MiB")):
        if column.endswith(end):
            return f"{table.three_digits(scale * value)} {unit}"
    return f"{value:.4g}"


def figure(group, column, names, options):
    """What the runs of a group say of one stage, or of one over another, or None."""
    if any(group.settings.get(name, value) != value for name, value in options.items()):
        return None
    cell = tuple(map(options.get, group.axes, blocks.step_cell(group)))
    lines = [max((line for line in group.lines if line[0] == name and group.time(line, cell)),
                 default=None) for name in names]
    if None in lines:
        return None
    text = quantity(group, column, cell, *lines)
    if text and group.changed & {line[0] for line in lines}:
        text += " Δ"
    return text


def read_mark(text, where, ladder):
    """(column or None, the programs' names, {column: value}) of a mark's text."""
    first, *words = " ".join(text.split()).split(", ")
    asked = SHAPE.fullmatch(first)
    if not asked:
        fail(f"{where}: found '{first}', expected [COLUMN of] STAGE [over STAGE]")
    column, *stages = asked.groups()
    names = [ladder.find(wanted, where, [*ladder.stages, *ladder.peers]).name
             for wanted in stages if wanted]
    known = rows.parameters(ladder)
    options = {}
    for option, _, value in (word.partition(" ") for word in words):
        name = ladder.column(option)
        if name not in known:
            fail(f"{where}: found '{option}', expected an option of {ladder.name}")
        options[name] = base.value(f"{where}: {option}", value, *known[name])
    return column, names, options


def written(text, where, ladder, everything):
    """What stands in a mark of this text. `everything` is {ladder: its results, or None}."""
    column, names, options = read_mark(text, where, ladder)
    results = everything[ladder]
    if not results:
        return NOTHING
    # A ratio is best known from the many rounds of the steps.
    kinds = ("steps", "grid") if names[1:] else ("grid", "steps")
    groups = [group for kind in kinds for group in results.groups[kind]]
    if column and groups and all(column not in group.frame for group in groups):
        fail(f"{where}: found '{column}', expected a column of the rows")
    found = (figure(group, column or ladder.time, names, options) for group in groups)
    return next(filter(None, found), NOTHING)


def update(path, ladder, everything):
    old = rows.read(path)

    def replace(mark):
        where = f"{path.relative_to(ROOT)}: line {1 + old.count(chr(10), 0, mark.start())}"
        text = written(mark[1], where, ladder, everything)
        return f"{BEGIN}{mark[1]}-->{text}{END}"

    new = MARK.sub(replace, old)
    if new != old:
        rows.write(path, new)
