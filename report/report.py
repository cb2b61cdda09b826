#!/usr/bin/env python3
"""Turns what was measured into pages: `make report`.

Reads results/MACHINE/LADDER/runs.csv and the files beside it: machine.txt, epochs.csv, growth.csv,
and tables.txt, which says why a stage did not run. Reads also results/MACHINE/bench/*.json, the
papers' figures, the stages' READMEs and profiles. Writes README.md, the tables of measurements in
the other READMEs, one plot of each kind, and index.html, which git ignores (page.py). Runs each
ladder's pictures.py. A second run changes nothing.
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
import results

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def measure_table(group, paper, measure):
    """The table of one measure. Figures of a paper are in italics."""
    found = []
    for kind, name, cells in results.table(group, paper, measure):
        if kind == "page":
            found.append([f"**{md(name)}**"] + [""] * len(group.columns))
        elif kind == "line":
            found.append([md(name), *cells])
        else:
            found.append([f"*paper:* {md(name)}", *(f"*{cell}*" for cell in cells)])
    return tables.markdown_table([md(head) for head in results.heads(group)], found)


# Each with its title, what it shows, and what it needs.
PLOTS = [
    (plots.time, "",
     "Both axes are logarithmic. A stage has fewer threads where it cannot use all.",
     "no axis of numbers"),
    (plots.threads, "Threads", "A line ends at the most threads that the stage can use.",
     "no stage with one thread and with more"),
    (plots.phases, "Phases", "A bar is the time, with the part of each phase.",
     "no times of the phases"),
    (plots.roofline, "Roofline",
     "Each mark is a whole run. The lines are the most that the machine can do: multiply-adds in "
     "registers, and reading from each level of memory with all threads. Arrows lead from stage to "
     "stage.", "no work known, or no results of `make bench`"),
    (plots.growth, "How the cost grows",
     "In each panel one thing varies. The panel's title has the values of the others. A point that "
     "would take too long is left out.", "no growth.csv"),
    (plots.learning, "How it learns",
     "All stages compute the same function, so their losses lie on top of each other. They differ "
     "in the time that they take.", "no losses in growth.csv"),
]


def draw(found):
    """Writes one plot of each kind: of the first results that have what it needs. Returns {folder:
    [(plot, title, text)]} and what was not drawn. The other plots are in index.html only."""
    drawn, missing = {}, []
    for plot, title, text, reason in PLOTS:
        owner = None
        for group in (groups[0].without_steps() for groups in found):
            path = group.folder / "plots" / f"{plot.__name__}.svg"
            figure = None if owner else plot(group)
            title = title or group.time_name().capitalize()
            if plots.save(figure, path):
                owner = group
        if owner:
            above = plots.above_memory(owner) if plot == plots.roofline else ""
            drawn.setdefault(owner.folder, []).append((plot, title, f"{text} {above}".strip()))
        else:
            missing.append(f"{title or 'Time'} ({reason})")
    for groups in found:
        # What READMEs show: the whole ladder, for light pages and for dark ones, and the epochs.
        figures = {"ladder": plots.ladder(groups[0]), "ladder-dark": plots.ladder(groups[0], True),
                   "epochs": plots.epochs(groups[0].without_steps())} if groups is found[0] else {}
        for name in ("ladder", "ladder-dark", "epochs"):
            plots.save(figures.get(name), groups[0].folder / "plots" / f"{name}.svg")
    return drawn, missing


def results_section(groups, paper, drawn):
    """A machine's part of a ladder's section in README.md."""
    first = groups[0].without_steps()
    folder = tables.url(first.folder.relative_to(HERE))
    facts = tables.facts(first.folder)
    parts = [f"### {md(tables.machine(first.folder))}\n",
             f"[{md(first.folder.parent.name)}]({folder}): [every run]({folder}/runs.csv), "
             f"[the machine]({folder}/machine.txt){f' ({md(facts)})' if facts else ''}.\n",
             "#### The ladder\n", tables.ladder(groups, HERE) + "\n"]
    for plot, title, text in drawn:
        path = tables.url(first.folder.relative_to(HERE) / "plots" / f"{plot.__name__}.svg")
        parts.append(f"#### {title}\n\n{text}\n\n"
                     f"![{title}: {md(tables.machine(first.folder))}]({path})\n")
    epochs = tables.epochs(groups, HERE)
    parts += [f"#### Epoch by epoch\n\n{epochs}\n"] if epochs else []
    for group in (group.without_steps() for group in groups):
        measured = [f"##### {group.title(measure)}\n\n"
                    + measure_table(group, results.paper_for(group, paper), measure)
                    for measure in group.measures if group.lines_of(measure)]
        parts.append(f"#### Tables\n\n{md(group.conditions(''.join(measured)))}.\n")
        parts += [f"- {md(reason)}" for reason in results.reasons(group)] + [""]
        parts += [f"{md(sentence)}\n" for sentence in [tables.result([group])] if sentence]
        parts += measured
    return "\n".join(parts)


INTRODUCTION = """\
<!-- Written by `make report`, which overwrites any change made here. -->
# Report

This page has what [`run_all.sh`](../run_all.sh) and `make bench` have measured, machine by machine.
`make report` writes it. It also writes `index.html` to this folder, which has more: plots that
answer to the mouse, the stages with their diffs and profiles, and your own quick looks. Open that
in a browser. It needs no network and no other file. Every number comes from a file in
[results](results), and every ratio is between numbers of one machine.

Rows in italics are figures of a paper, each for the paper's version of the same step. They were
measured on other machines with other code. Their speedups are over the paper's own baseline.
"""


def ladder_section(ladder, found):
    """A ladder's part of README.md, with all machines. Draws its plots."""
    parts = [f"## {md(ladder.title)}\n"]
    paper = ladder.toml.get("paper", {})
    folder = tables.url(os.path.relpath(ladder.folder, HERE))
    if paper:
        parts.append(f"The paper is {paper['cite']}" + (
            f". It has [these figures]({folder}/{tables.url(paper['file'])})" if "file" in paper
            else "") + ".\n")
    if not found:
        study = ladder.chosen_by("--study ")
        parts.append(f"No results yet: `./run_all.sh{study}` writes some.\n")
    figures = results.read_paper(ladder)
    drawn, missing = draw(found)
    parts += [results_section(groups, figures, drawn.get(groups[0].folder, ()))
              for groups in found]
    if found and missing:
        parts += ["### Not drawn\n", *(f"- {reason}" for reason in missing), ""]
    return "\n".join(parts)


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
    sections, shown = [INTRODUCTION], {}
    for ladder, found in everything.items():
        found = [groups for groups in found if not results.is_quick(groups)]
        shown[ladder] = results.named(readmes(ladder)[0], found)
        # The machine that the READMEs are about comes first.
        sections.append(ladder_section(
            ladder, sorted(found, key=lambda groups: groups is not shown[ladder])))
    tables.write(HERE / "README.md", "\n".join(sections))
    for ladder, found in everything.items():
        draw_moves(ladder)
        update_readmes(ladder, [groups for groups in found if not results.is_quick(groups)],
                       shown[ladder])
    note = page.write(everything, shown[next(iter(shown))])
    print(f"Written to report: README.md, index.html{note}, and plots in results",
          file=sys.stderr)


if __name__ == "__main__":
    try:
        interrupts.start(main)
    except OSError as error:
        sys.exit(f"report.py: {error}")
