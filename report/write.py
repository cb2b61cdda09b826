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


def draw(group, has_ladder, has_epochs, is_first):
    """Draws what READMEs show of results: the whole ladder, the epochs, and for the first page the
    stages alone. If they show other results, there are no such files."""
    for name, figure in (
            ("ladder", plots.ladder(group) if has_ladder else None),
            ("stages", plots.ladder((group.steps or group).without_steps()) if is_first else None),
            ("epochs", plots.epochs_figure(group.without_steps()) if has_epochs else None)):
        plots.save(figure, group.folder / "plots" / f"{name}.svg")


def update_readmes(ladder, found, shown, stepped):
    """Writes the headline and the ladder into the ladder's README, and its numbers into each
    stage's README."""
    readme = ladder.folder / "README.md"
    for name, text in view.BLOCKS.items() if shown else ():
        if view.has_markers(readme, name):
            view.update(readme, text(stepped if name == "ladder" else shown, readme.parent), name)
    for stage in ladder.stages:
        path = stage.folder / "README.md"
        if view.has_markers(path):
            view.update(path, view.stage_block(found, stage))
        for name, text in (("counts", counted.of_stage), ("chapter", counted.of_chapter)):
            if view.has_markers(path, name):
                view.update(path, text(stage), name)
    if view.has_markers(readme, "counts"):
        view.update(readme, counted.of_stages(ladder.stages, ladder.folder), "counts")


def update_front(groups):
    """Writes the stages into the first page, and the table of all ladders into the studies'."""
    if groups and view.has_markers(ROOT / "README.md", "front"):
        view.update(ROOT / "README.md", view.front(groups, ROOT), "front")
    path = ROOT / "studies/README.md"
    if view.has_markers(path, "ladders"):
        view.update(path, view.render(view.MARKDOWN, "ladders.md.j2", folder=path.parent,
                                      ladders=ladders.ladders()), "ladders")


def draw_moves(ladder):
    """Runs the ladder's pictures.py, which draws picture.svg for stages that have a picture."""
    script = ladder.folder / "pictures.py"
    if script.exists() and subprocess.run(
            [sys.executable, "-m", "harness", f"{ladder.folder.relative_to(ROOT)}/pictures".replace("/", ".")],
            check=False).returncode:
        sys.exit(f"write: {script.relative_to(ROOT)} failed")


def lasting(found):
    """Those of the results that are no quick look."""
    return [groups for groups in found if not view.is_quick(groups)]


def results():
    """({ladder: the groups of each machine}, {ladder: those that its README is about}). Quick looks
    are in the first only."""
    everything = {ladder: view.find(ladder) for ladder in ladders.ladders()}
    return everything, {ladder: view.named(ladder.folder / "README.md", lasting(found))
                        for ladder, found in everything.items()}


def main():
    os.chdir(ROOT)
    everything, shown = results()
    first, stepped = ladders.ladders()[0], {}
    for ladder, found in everything.items():
        found = lasting(found)
        stepped[ladder] = view.stepped(shown[ladder], found)
        for groups in found:
            draw(groups[0], groups is stepped[ladder], groups is shown[ladder],
                 groups is stepped[ladder] and ladder is first)
        draw_moves(ladder)
        update_readmes(ladder, found, shown[ladder], stepped[ladder])
    update_front(stepped[first])
    for path, ladder in figures.pages().items():
        figures.update(path, ladder, everything, shown)
    note = page.write(everything, shown[first])
    print(f"Written: report/index.html{note}, and what the READMEs show", file=sys.stderr)
