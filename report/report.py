#!/usr/bin/env python3
"""Turns what was measured into pages: `make report`.

Reads results/MACHINE/LADDER/runs.csv and the files beside it: machine.txt, epochs.csv, growth.csv,
and tables.txt, which says why a stage did not run. Reads also results/MACHINE/bench/*.json, the
papers' figures, the stages' READMEs and profiles. Writes index.html, which git ignores (page.py),
and the tables and plots of measurements in the READMEs. Runs each ladder's pictures.py. A second
run changes nothing.
"""

import os
import sys

sys.path.insert(0, f"{os.path.dirname(os.path.abspath(__file__))}/../harness")
import interrupts

import subprocess
from pathlib import Path

import ladders
import tables
from tables import markdown as md

try:
    import page
    import plots
except ImportError as error:
    sys.exit(f"report.py: {error}, for {sys.executable} (Debian's packages python3-matplotlib and "
             "python3-pygments)")
import figures
import results

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def draw(group, is_shown):
    """Draws what READMEs show of results: the whole ladder, for light pages and for dark ones, and
    the epochs. If they show other results, there are no such files."""
    figures = {"ladder": plots.ladder(group), "ladder-dark": plots.ladder(group, True),
               "epochs": plots.epochs(group.without_steps())} if is_shown else {}
    for name in ("ladder", "ladder-dark", "epochs"):
        plots.save(figures.get(name), group.folder / "plots" / f"{name}.svg")


def numbers_markdown(found, stage):
    """The stage's times, rates and speedups, by machine: the part of its README that is written
    here. Of a step, it is the cells of the headline, below those of the stage before. Where no
    machine has run the stage, it is the reasons."""
    parts, reasons = [], []
    for group, *_ in found:
        group = group.with_most_threads()
        lines = [line for line in group.lines if line[0] == stage.name]
        if not lines:
            reasons.append(tables.why_not(group, stage).removeprefix("did not run: "))
        for line in lines:
            if stage.is_step:
                cells, heads = tables.headline_cells(group), [""]
                heads += [md(tables.cell_name(group.ladder, cell)) for cell in cells]
                above = group.rungs(cells[-1])[stage][1]
                shown = [each for each in (above, line) if each]
                table = [[md(tables.label(each)),
                          *(tables.cell_text(group, each, cell) for cell in cells)]
                         for each in shown]
                table += [["times as fast", *(group.ratio_text(line, above, cell)
                                              for cell in cells)]] if above else []
            else:
                options = [axis["option"] for axis in group.ladder.axes]
                shown, cells, heads = [line], group.cells, [md(tables.label(line))]
                heads += [md(f"{options[0]} {page[0]}") if page else "each run"
                          for page in group.pages]
                table = [[md(f"{options[-1]} {column[0]}") if column else "",
                          *(tables.cell_text(group, line, page + column, rate=True)
                            for page in group.pages)] for column in group.columns]
            text = (f"{tables.machine(group.folder)}; {group.conditions(str(table))}. "
                    + tables.cell_in_words(group, shown, cells, rate=not stage.is_step))
            parts += [md(text) + "\n", tables.markdown_table(heads, table)]
    if reasons and not parts:
        named = "; ".join(reason for reason in dict.fromkeys(reasons) if reason != "not run")
        parts = [md("No machine has run it" + (f": {named}" if named else "")) + ".\n"]
    return "\n".join(parts)


def readmes(ladder):
    """The READMEs with a ladder's headline. The first of the main ladder is the repository's."""
    return [ROOT / "README.md"] * (ladder.name == ladders.MAIN) + [ladder.folder / "README.md"]


def update_readmes(ladder, found, shown):
    """Writes the headline and the ladder into the ladder's READMEs, and its numbers into each
    stage's README."""
    for path in readmes(ladder) if shown else []:
        for name, text in tables.BLOCKS.items():
            if tables.has_markers(path, name):
                tables.update(path, text(shown, path.parent), name)
    for stage in ladder.stages:
        text = stage.folder / "README.md"
        if tables.has_markers(text):
            tables.update(text, numbers_markdown(found, stage) or "No results yet.\n")


def draw_moves(ladder):
    """Runs the ladder's pictures.py, which draws picture.svg for stages that have a picture."""
    script = ladder.folder / "pictures.py"
    if script.exists() and subprocess.run([sys.executable, script], check=False).returncode:
        sys.exit(f"report.py: {script.relative_to(ROOT)} failed")


def main():
    os.chdir(ROOT)
    everything = {ladder: results.find(ladder) for ladder in ladders.ladders()}
    shown = {}
    for ladder, found in everything.items():
        found = [groups for groups in found if not results.is_quick(groups)]
        shown[ladder] = results.named(readmes(ladder)[0], found)
        for groups in found:
            draw(groups[0], groups is shown[ladder])
        draw_moves(ladder)
        update_readmes(ladder, found, shown[ladder])
    for path, ladder in figures.pages().items():
        figures.update(path, ladder, everything, shown)
    note = page.write(everything, shown[next(iter(shown))])
    print(f"Written: report/index.html{note}, and what the READMEs show", file=sys.stderr)


if __name__ == "__main__":
    try:
        interrupts.start(main)
    except OSError as error:
        sys.exit(f"report.py: {error}")
