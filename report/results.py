"""What was measured, and what the papers say: the results that the report's pages are made of."""

import re
from pathlib import Path

import rows
import tables

HERE = Path(__file__).resolve().parent


def read(path):
    return rows.read(path) if path.exists() else ""


def is_quick(groups):
    """Whether the runs are a quick look, which is no result."""
    return groups[0].folder.parent.name.endswith("-quick")


def find(ladder):
    """A ladder's results, machine by machine: the groups of its runs. Those that were moved aside
    lie deeper."""
    return list(filter(None, (
        rows.or_nothing(tables.read_groups, folder / ladder.name / "runs.csv", ladder)
        for folder in sorted((HERE / "results").glob("*/")))))


def named(page, found):
    """Those of the results that a README's headline is about. If it has none yet, the first."""
    name = re.search(r"\([^()]*\breport/results/([^/)]+)", read(page))
    return next((groups for groups in found
                 if name and tables.url(groups[0].folder.parent.name) == name[1]),
                (found or [None])[0])


def read_paper(ladder):
    """The figures of the ladder's paper. Their speedup is over the paper's own baseline."""
    file = ladder.toml.get("paper", {}).get("file")
    needed = ["stage", *(ladder.column(axis["option"]) for axis in ladder.axes)]
    return tables.Group(ladder, {}, rows.read_rows(ladder.folder / file, ladder, needed)
                        if file else [])


def paper_for(group, paper):
    """The paper's figures, if they may stand beside the group's: for runs with the ladder's own
    settings, or with those that the paper's replace. Otherwise, none."""
    ladder = group.ladder
    theirs = ladder.settings | ladder.toml.get("paper", {}).get("settings", {})
    usual = all(group.settings[ladder.column(option)] == value for option, value in theirs.items())
    return paper if usual else tables.Group(ladder, {}, [])


def absent(group):
    """The stages that have no runs in the group. Steps are not missed."""
    return [stage for stage in group.ladder.stages
            if not stage.is_step and stage.name not in {name for name, _ in group.lines}]


def reasons(group):
    """Why stages are absent, a line for each reason."""
    return tables.share_reasons(f"{stage.name}: {tables.why_not(group, stage)}"
                                for stage in absent(group))


def heads(group):
    """The first line of a table of measurements."""
    axes = group.ladder.axes
    return [axes[-1]["name"] if axes else "",
            *(str(column[0]) if column else "each run" for column in group.columns)]


def table(group, paper, measure):
    """The table of one measure, as (kind, name, cells): a "page" for each value of the first axis,
    which has no cells; a "line" for each line that has any; below it, the "paper" with its figures
    for the same stage."""
    lines = group.lines_of(measure)
    lines += [line for line in paper.lines if line[0] not in dict(lines) and line != group.baseline
              and any(paper.median(measure, line, cell) for cell in group.cells)]
    for page in group.pages:
        if page:
            yield "page", f"{group.ladder.axes[0]['option']} {page[0]}", []
        for line in sorted(lines):
            ours = ["".join(group.texts(measure, line, page + column, spreads=True))
                    for column in group.columns]
            if line in group.lines:
                yield "line", tables.label(line), ours
            theirs = [paper.median(measure, (line[0], 0), page + column)
                      for column in group.columns]
            if any(theirs):
                yield "paper", line[0], [group.number(measure, number) for number in theirs]
