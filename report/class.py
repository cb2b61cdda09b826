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
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median_low

from harness import ladders, rows, running
from report import render, view

NAME = "class.html"
# More than that share of peak cannot be: it is measured as the machine is in that moment.
MOST_PART = 1.05


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
        self.name, self.group, self.notes, self.faults = name, group, [], {}
        self.cell = view.ladder_cell(group)
        # {stage: its line with most threads}
        self.lines = {line[0]: line for line in group.lines
                      if group.time(line, self.cell) and not view.is_peer(line)}

    @property
    def settings(self):
        return tuple(self.group.settings.items())

    def judge(self, expected, usual):
        """Marks what cannot be, and what is not to be compared, and ranks the rest. `expected` has
        what most of the class have computed, by settings and cell."""
        group, at = self.group, self.cell
        self.notes = ["a quick look"] * view.is_quick([group]) + [
            "other settings than most"] * (self.settings != usual)
        ranked = []
        for line in self.lines.values():
            part = group.part_of_ceiling(line, at)
            differs = running.difference(group.runs[line, at][0], expected[self.settings, at],
                                         group.ladder)
            if differs:
                column, found, right = differs
                self.faults[line] = f"its {column} is {found:g}, and {right:g} in most others"
            elif part and part > MOST_PART and not group.mark(line):
                self.faults[line] = f"{view.percent(part)} of peak cannot be"
            elif part and not group.mark(line):
                # One that leaves out operations is no competitor: its rate counts them.
                ranked.append((part, line))
        self.part, self.best = max(ranked, default=(0, None))
        # Numbers from 20 on are stages of one's own.
        self.own = max((each for each in ranked if each[1][0] >= "20"), default=None)


def load(found):
    """{ladder: [Results]}. The nearest to its peak comes first."""
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
    for results in loaded.values():
        judge(results)
    return {ladder: sorted(results, key=lambda each: (-each.part, each.name))
            for ladder, results in loaded.items() if results}


def judge(everyone):
    """Compares the results of a ladder with what most have computed."""
    found = defaultdict(list)
    for each in everyone:
        for line in each.lines.values():
            found[each.settings, each.cell].append(
                running.computed(each.group.runs[line, each.cell][0], each.group.ladder))
    expected = {key: {column: median_low([row[column] for row in computed if column in row])
                      for column in set().union(*computed)} for key, computed in found.items()}
    usual = Counter(each.settings for each in everyone).most_common(1)
    for each in everyone:
        each.judge(expected, usual[0][0])


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
        "class.html.j2", loaded=loaded, left_out=rows.left_out,
        own_of=lambda everyone: sorted((each for each in everyone if each.own),
                                       key=lambda each: -each.own[0]),
        lines_of=lambda everyone: sorted(
            {line for each in everyone for line in each.lines.values()})))
    count = view.plural(len({results.name for each in loaded.values() for results in each}),
                        "folder")
    print(f"Written to {ladders.printable(str(folder / NAME))}: {count}", file=sys.stderr)
