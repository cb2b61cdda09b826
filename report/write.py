"""Turns what was measured into pages: `make report`.

Reads results/MACHINE/LADDER/runs.csv and the files beside it: sweeps.csv, programs.csv, epochs.csv,
steps/ and growth/. Reads also results/MACHINE/bench/*.json, the papers' figures, the stages'
READMEs and profiles. Writes index.html, which git ignores (page.py), and the tables and plots of
measurements in the READMEs (view.py). Runs each ladder's pictures.py. A second run changes nothing.
"""

import os
import subprocess
import sys
from pathlib import Path

from harness import ladders
from report import view

try:
    from report import page, plots
except ImportError as error:
    sys.exit(f"write: {error}, for {sys.executable} (Debian's packages python3-matplotlib and "
             "python3-pygments)")
from report import counted, figures

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def draw(group, has_ladder, has_epochs):
    """Draws what READMEs show of results: the whole ladder and the epochs. If they show other
    results, there are no such files."""
    for name, figure in (
            ("ladder", plots.ladder(group) if has_ladder else None),
            ("epochs", plots.epochs_figure(group.without_steps()) if has_epochs else None)):
        plots.save(figure, group.folder / "plots" / f"{name}.svg")


def readmes(ladder):
    """The READMEs with a ladder's headline. The first of the main ladder is the repository's."""
    return [ROOT / "README.md"] * (ladder is ladders.ladders()[0]) + [ladder.folder / "README.md"]


def update_readmes(ladder, found, shown):
    """Writes the headline and the ladder into the ladder's READMEs, and its numbers into each
    stage's README."""
    for path in readmes(ladder) if shown else []:
        for name, text in view.BLOCKS.items():
            if view.has_markers(path, name):
                groups = view.stepped(shown, found) if name == "ladder" else shown
                view.update(path, text(groups, path.parent), name)
    for stage in ladder.stages:
        path = stage.folder / "README.md"
        if view.has_markers(path):
            view.update(path, view.stage_block(found, stage))
        for name, text in (("counts", counted.of_stage), ("chapter", counted.of_chapter)):
            if view.has_markers(path, name):
                view.update(path, text(stage), name)
    path = ladder.folder / "README.md"
    if view.has_markers(path, "counts"):
        view.update(path, counted.of_stages(ladder.stages, ladder.folder), "counts")


def list_ladders():
    """Writes the table of all ladders into the pages that have a place for it."""
    for path in ROOT / "README.md", ROOT / "studies/README.md":
        if view.has_markers(path, "ladders"):
            view.update(path, view.render(view.MARKDOWN, "ladders.md.j2", folder=path.parent,
                                          ladders=ladders.ladders()), "ladders")


def draw_moves(ladder):
    """Runs the ladder's pictures.py, which draws picture.svg for stages that have a picture."""
    script = ladder.folder / "pictures.py"
    if script.exists() and subprocess.run(
            ["harness/start.py", f"{ladder.folder.relative_to(ROOT)}/pictures".replace("/", ".")],
            check=False).returncode:
        sys.exit(f"write: {script.relative_to(ROOT)} failed")


def results():
    """({ladder: the groups of each machine}, {ladder: those that its README is about}). Quick looks
    are in the first only."""
    everything = {ladder: view.find(ladder) for ladder in ladders.ladders()}
    return everything, {ladder: view.named(readmes(ladder)[0], [
        groups for groups in found if not view.is_quick(groups)])
        for ladder, found in everything.items()}


def main():
    os.chdir(ROOT)
    everything, shown = results()
    for ladder, found in everything.items():
        found = [groups for groups in found if not view.is_quick(groups)]
        for groups in found:
            draw(groups[0], groups is view.stepped(shown[ladder], found), groups is shown[ladder])
        draw_moves(ladder)
        update_readmes(ladder, found, shown[ladder])
    list_ladders()
    for path, ladder in figures.pages().items():
        figures.update(path, ladder, everything, shown)
    note = page.write(everything, shown[next(iter(shown))])
    print(f"Written: report/index.html{note}, and what the READMEs show", file=sys.stderr)
