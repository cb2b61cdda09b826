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
from collections import defaultdict
from pathlib import Path

from harness import ladders, rows
from report import render, view

NAME = "class.html"


def find():
    """The folders of all students that have a runs.csv. Hidden ones, such as .git, do not count."""
    found = []
    for student in sorted(path for path in Path().iterdir() if path.name != NAME):
        here = sorted(path.parent for path in student.rglob("runs.csv")
                      if not any(part.startswith(".") for part in path.parts[1:]))
        if not here:
            rows.leave_out(f"{student}: found no runs.csv in it")
        found += here
    return found


class Results:
    """The runs of a ladder on the machine of a student, in the cell that shows the ladder."""

    def __init__(self, name, group):
        self.name, self.group = name, group
        self.cell = view.ladder_cell(group)
        # {stage: its line with most threads}
        self.lines = {line[0]: line for line in group.lines
                      if group.time(line, self.cell) and not view.is_peer(line)}
        # The best stage is the nearest to its ceiling. One that leaves out operations is no
        # competitor: its rate counts them.
        self.part, self.best = max(((part, line) for line in self.lines.values()
                                    if not group.mark(line)
                                    and (part := group.part_of_ceiling(line, self.cell))),
                                   default=(0, None))


def load(found):
    """{ladder: [Results]}. The nearest to its ceiling comes first."""
    known = {ladder.name: ladder for ladder in ladders.ladders()}
    loaded = {ladder: [] for ladder in known.values()}
    machines, seen = defaultdict(set), {}  # {student: folders}, {rows: name}
    # Results that were moved aside, those of the steps and those of the growth lie in the folder of
    # a ladder. They are not missed.
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
    return {ladder: sorted(results, key=lambda each: (-each.part, each.name))
            for ladder, results in loaded.items() if results}


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
    rows.write(Path.cwd() / NAME, render.page(
        "class.html.j2", loaded=loaded, left_out=rows.left_out, lines_of=lambda everyone: sorted(
            {line for each in everyone for line in each.lines.values()})))
    count = view.plural(len({results.name for each in loaded.values() for results in each}),
                        "folder")
    print(f"Written to {ladders.printable(str(folder / NAME))}: {count}", file=sys.stderr)
