#!/usr/bin/python3
"""Puts the results of a class on one page: `make class DIR=folder`.

    class.py FOLDER

FOLDER has a folder for each student. Somewhere in it lies a copy of report/results, which has
MACHINE/LADDER/runs.csv and the files beside it. Writes FOLDER/class.html, which needs no other
file. It names the folders and nobody else. What cannot be read is left out, with a line that says
why.

Exit status: 0; 1 cannot write the page; 2 found no results.
"""

import os
import sys

sys.path.insert(0, f"{os.path.dirname(os.path.abspath(__file__))}/../harness")
import interrupts

from collections import defaultdict
from html import escape
from pathlib import Path
from string import Template

import cards
import ladders
import rows
import view

HERE = Path(__file__).resolve().parent
NAME = "class.html"
DEEPEST = 20  # of the folders in that of a student
PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Results of a class</title>
<link rel="icon" href="data:,">
<style>
$style</style>
</head>
<body class=class>
<main>
<h1>Results of a class</h1>
$body</main>
</body>
</html>
""")


def find():
    """The folders of all students that have a runs.csv."""
    found = []
    for student in sorted(Path().iterdir()):
        if student.name == NAME:
            continue
        if not student.is_dir():
            rows.leave_out(f"{student}: expected a folder")
            continue
        errors, here = [], []
        for path, below, files in os.walk(student, onerror=errors.append):
            here += [Path(path)] if "runs.csv" in files + below else []
            below[:] = sorted(name for name in below if name[0] != "."  # such as .git
                              ) if path.count("/") < DEEPEST else []
        for error in errors:
            rows.leave_out(f"{error.filename}: cannot read: {error.strerror}")
        if not here and not errors:
            rows.leave_out(f"{student}: found no runs.csv in it")
        found += here
    return found


class Results:
    """The runs of a ladder on the machine of a student."""

    def __init__(self, name, group):
        self.name, self.group = name, group
        self.cell = view.ladder_cell(group)

    def parts(self):
        """[(the part of its ceiling that a stage reaches, its line)], the best first. A stage that
        leaves out operations is no competitor: its rate counts them."""
        return sorted(((part, line) for line in cards.lines(self.group).values()
                       if not view.is_peer(line) and not self.group.mark(line)
                       and (part := self.group.part_of_ceiling(line, self.cell))), reverse=True)


def load(found):
    """{ladder: [Results]}."""
    known = {ladder.name: ladder for ladder in ladders.ladders()}
    loaded = {ladder: [] for ladder in known.values()}
    machines, seen = defaultdict(set), {}  # {student: folders}, {rows: name}
    # Results that were moved aside lie in the folder of a ladder. They are not missed.
    found = [path for path in found if path.parent.name not in known]
    for path in found:
        machines[path.parts[0]].add(path.parent)
    for path in found:
        student, ladder = path.parts[0], known.get(path.name)
        if not ladder:
            rows.leave_out(f"{path}: found no ladder of this name; expected one of: "
                           f"{' '.join(known)}")
            continue
        name = ladders.printable(str(student if len(machines[student]) == 1 else path.parent))
        name = name.replace("/report/results/", "/")
        text = rows.or_nothing(rows.read, path / "runs.csv")
        groups = text is not None and rows.or_nothing(view.read_groups, path / "runs.csv", ladder)
        if text in seen:
            rows.leave_out(f"{path}: has the same rows as {seen[text]}")
        elif groups:
            seen[text] = name
            loaded[ladder].append(Results(name, groups[0]))
        elif groups == []:
            rows.leave_out(f"{path}: found no finished runs")
    return {ladder: results for ladder, results in loaded.items() if results}


def rank(everyone):
    """Who is nearest to the ceiling: a sentence, and a line for each folder."""
    with_part = sorted(((results.parts()[0], results) for results in everyone if results.parts()),
                       key=lambda item: (-item[0][0], item[1].name))
    without = [results for results in everyone if not results.parts()]
    found = []
    if with_part and len(everyone) > 1:
        (part, line), best = with_part[0]
        stage = escape(view.short_label(line))
        found.append(f"<p class=lead><b>{escape(best.name)}</b> is nearest to the ceiling: {stage} "
                     f"reaches {view.percent(part)} of it.</p>")
    found.append("<ol class=rank>")
    for (part, line), results in with_part:
        group = results.group
        time, base = group.signed(group.ladder.time, line, results.cell), group.baseline
        texts = [view.percent(part), f"{view.short_label(line)} in {time}",
                 *([f"{group.ratio_text(line, base, results.cell)} over {base[0]}"]
                   if base and line != base else [])]
        found.append(f'<li style="--part:{min(part, 1):.3f}"><b>{escape(results.name)}</b>: '
                     f"{escape(', '.join(texts))}</li>")
    found.append("</ol>")
    if without:
        names = view.listing([escape(results.name) for results in without])
        found.append(f"<p>{names}: no ceiling, which <code>make bench</code> measures.</p>")
    return found


def section(ladder, everyone):
    """A ladder's part of the page."""
    everyone.sort(key=lambda results: results.name)
    found = [(escape(results.name), f"{view.machine(results.group.folder)}; "
              f"{cards.conditions(results.group)}", results.group) for results in everyone]
    return [f"<section>\n<h2>{escape(ladder.title)}</h2>", *rank(everyone),
            f"<h3>The machines</h3>\n{cards.beside(found)}</section>"]


def main():
    given = " ".join(sys.argv[1:])
    folder = Path(given)
    if not given or not folder.is_dir():
        ladders.fail(f"DIR: found '{given}', expected a folder that has one for each student, with "
                     "a copy of report/results")
    os.chdir(folder)
    loaded = load(find())
    if not loaded:
        ladders.fail(f"{folder}: found no results; expected copies of report/results in it")
    body = [line for ladder, everyone in loaded.items() for line in section(ladder, everyone)]
    if rows.left_out:
        body += ["<section>\n<h2>Left out</h2>\n<ul>",
                 *(f"<li>{escape(line)}" for line in rows.left_out), "</ul>\n</section>"]
    rows.write(Path.cwd() / NAME, PAGE.substitute(style=rows.read(HERE / "page.css"),
                                                 body="\n".join([*body, ""])))
    count = view.plural(len({results.name for each in loaded.values() for results in each}),
                          "folder")
    print(f"Written to {ladders.printable(str(folder / NAME))}: {count}", file=sys.stderr)


if __name__ == "__main__":
    try:
        interrupts.start(main)
    except OSError as error:
        sys.exit(f"class.py: {error}")
