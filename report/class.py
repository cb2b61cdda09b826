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

import contextlib
import io
from collections import defaultdict
from html import escape
from pathlib import Path
from string import Template

import cards
import ladders
import rows
import tables

HERE = Path(__file__).resolve().parent
NAME = "class.html"
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


def quietly(function, *arguments):
    """(what a function returns, ""), or (None, the line with which it ends the program)."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return function(*arguments), ""
    except SystemExit:
        return None, said.getvalue().strip().removeprefix(f"{Path(sys.argv[0]).name}: ")
    except OSError as error:
        return None, f"{error.filename}: cannot read: {error.strerror}"


def in_class(path, folder):
    """A path, or a line that begins with one, from the folder of the class on."""
    return tables.readable(str(path).removeprefix(f"{folder}/"))


def find(folder):
    """([folders with a runs.csv], [why others are left out])."""
    found, left_out = [], []
    for student in sorted(folder.iterdir()):
        if student.name == NAME:
            continue
        if not student.is_dir():
            left_out.append(f"{in_class(student, folder)}: expected a folder")
            continue
        errors, here = [], []
        for path, below, files in os.walk(student, onerror=errors.append):
            below[:] = sorted(name for name in below if name[0] != ".")  # such as .git
            here += [Path(path)] if "runs.csv" in files + below else []
        left_out += [f"{in_class(error.filename, folder)}: cannot read: {error.strerror}"
                     for error in errors]
        if not here and not errors:
            left_out.append(f"{in_class(student, folder)}: found no runs.csv in it")
        found += here
    return found, left_out


class Results:
    """The runs of a ladder on the machine of a student."""

    def __init__(self, name, group):
        self.name, self.group = name, group
        self.cell = tables.ladder_cell(group)

    def parts(self):
        """[(the part of its ceiling that a stage reaches, its line)], the best first. A stage that
        leaves out operations is no competitor: its rate counts them."""
        return sorted(((part, line) for line in cards.lines(self.group).values()
                       if not tables.is_peer(line) and not self.group.mark(line)
                       and (part := self.group.part_of_ceiling(line, self.cell))), reverse=True)


def read(path, ladder, name, seen):
    """The Results in a folder. What is wrong with them ends the program."""
    text = rows.read(path / "runs.csv")
    if text in seen:
        ladders.fail(f"{path}: has the same rows as {seen[text]}")
    groups = tables.read_groups(path / "runs.csv", ladder)
    if not groups:
        ladders.fail(f"{path}: found no finished runs")
    seen[text] = name
    return Results(name, groups[0])


def load(found, folder):
    """({ladder: [Results]}, [why others are left out])."""
    known = {ladder.name: ladder for ladder in ladders.ladders()}
    loaded, left_out = {ladder: [] for ladder in known.values()}, []
    machines, seen = defaultdict(set), {}  # {student: folders}, {rows: name}
    # Results that were moved aside lie in the folder of a ladder. They are not missed.
    found = [path for path in found if path.parent.name not in known]
    for path in found:
        machines[path.relative_to(folder).parts[0]].add(path.parent)
    for path in found:
        student = path.relative_to(folder).parts[0]
        if path.name not in known:
            left_out.append(f"{in_class(path, folder)}: found no ladder of this name; expected one "
                            f"of: {' '.join(known)}")
            continue
        name = in_class(student if len(machines[student]) == 1 else path.parent, folder)
        name = name.replace("/report/results/", "/")
        results, why = quietly(read, path, known[path.name], name, seen)
        if results:
            loaded[known[path.name]].append(results)
            _, why = quietly(getattr, results.group, "ceilings")
            if why:
                results.group.ceilings = {}
        left_out += [in_class(why, folder)] if why else []
    return {ladder: results for ladder, results in loaded.items() if results}, left_out


def rank(everyone):
    """Who is nearest to the ceiling: a sentence, and a line for each folder."""
    with_part = sorted(((results.parts()[0], results) for results in everyone if results.parts()),
                       key=lambda item: (-item[0][0], item[1].name))
    without = [results for results in everyone if not results.parts()]
    found = []
    if with_part and len(everyone) > 1:
        (part, line), best = with_part[0]
        stage = escape(tables.short_label(line))
        found.append(f"<p class=lead><b>{escape(best.name)}</b> is nearest to the ceiling: {stage} "
                     f"reaches {tables.percent(part)} of it.</p>")
    found.append("<ol class=rank>")
    for (part, line), results in with_part:
        group = results.group
        time, base = group.signed(group.ladder.time, line, results.cell), group.baseline
        texts = [tables.percent(part), f"{tables.short_label(line)} in {time}",
                 *([f"{group.ratio_text(line, base, results.cell)} over {base[0]}"]
                   if base and line != base else [])]
        found.append(f'<li style="--part:{min(part, 1):.3f}"><b>{escape(results.name)}</b>: '
                     f"{escape(', '.join(texts))}</li>")
    found.append("</ol>")
    if without:
        names = tables.listing([escape(results.name) for results in without])
        found.append(f"<p>{names}: no ceiling, which <code>make bench</code> measures.</p>")
    return found


def section(ladder, everyone):
    """A ladder's part of the page."""
    everyone.sort(key=lambda results: results.name)
    found = [(escape(results.name), f"{tables.machine(results.group.folder)}; "
              f"{cards.conditions(results.group)}", results.group) for results in everyone]
    return [f"<section>\n<h2>{escape(ladder.title)}</h2>", *rank(everyone),
            f"<h3>The machines</h3>\n{cards.beside(found)}</section>"]


def main():
    given = " ".join(sys.argv[1:])
    folder = Path(given)
    if not given or not folder.is_dir():
        ladders.fail(f"DIR: found '{tables.readable(given)}', expected a folder that has one for "
                     "each student, with a copy of report/results")
    found, left_out = find(folder)
    loaded, more = load(found, folder)
    left_out += more
    for line in left_out:
        print(f"{Path(sys.argv[0]).name}: {line}", file=sys.stderr)
    if not loaded:
        ladders.fail(f"{folder}: found no results; expected copies of report/results in it")
    body = [line for ladder, everyone in loaded.items() for line in section(ladder, everyone)]
    if left_out:
        body += ["<section>\n<h2>Left out</h2>\n<ul>",
                 *(f"<li>{escape(line)}" for line in left_out), "</ul>\n</section>"]
    rows.write(folder / NAME, PAGE.substitute(style=rows.read(HERE / "page.css"),
                                              body="\n".join([*body, ""])))
    count = tables.plural(len({results.name for each in loaded.values() for results in each}),
                          "folder")
    print(f"Written to {tables.readable(str(folder / NAME))}: {count}", file=sys.stderr)


if __name__ == "__main__":
    try:
        interrupts.start(main)
    except OSError as error:
        sys.exit(f"class.py: {error}")
