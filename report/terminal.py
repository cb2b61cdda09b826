"""What a terminal shows of a sweep: the first screen's table, and the paper's layout, which has a
table for each measure and value of the first axis."""

import textwrap

import pandas

from report import frames, tables, words

WIDTH = 80


def paragraph(text):
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def text(machine, kinds):
    parts = [paragraph(machine.name)]
    if (machine.runs["kind"].isin(["grid", "steps"])).any():
        parts.append(tables.front_table(machine).to_string(index=False))
    for kind in kinds:
        runs = machine.runs[machine.runs["kind"] == kind]
        for _, group in runs.groupby([*machine.settings(kind)], sort=False):
            parts += in_layout(machine, group)
    return "\n\n".join([*parts, *closing(machine)]) + "\n"


def in_layout(machine, runs):
    """A caption and the tables of runs that share their settings. The paper's figures stand below
    ours."""
    found = frames.cells(machine, runs)
    counted = frames.counted(runs, machine.axes)
    caption = (f"{words.heading(machine.ladder, runs)}; {words.repeats(found)}"
               f"{words.disturbed(runs, counted)}.")
    yield paragraph(" ".join([caption, words.other_data(machine, runs)]))
    for measure in machine.ladder.measures:
        if measure.column not in found:
            continue
        column = pandas.concat([found[measure.column], of_paper(machine, runs, measure.column)])
        for title, table in pages(machine, column):
            table = table.map(lambda value, name=measure.column:
                              words.known(value, lambda each: tables.number(name, each)))
            head = ": ".join(filter(None, [tables.title_of(measure), title]))
            yield f"{head}\n{table.rename_axis(index=None, columns=None).to_string()}"


def of_paper(machine, runs, column):
    """The paper's figures of a column as a frame of cells has them, where their settings are those
    of the runs."""
    theirs = tables.paper(machine.ladder)
    if column not in theirs:
        return pandas.Series(dtype=float)
    shared = runs[[*machine.settings("grid")]].iloc[0]
    theirs = theirs[(theirs[shared.index] == shared).all(axis=1)]
    theirs = theirs.assign(stage=theirs["stage"] + ", the paper", threads=0)
    return theirs.set_index([*frames.LINE, *machine.axes])[column]


def pages(machine, column):
    """(words, table) for each value of the first axis: a row for each line, and a column for each
    value of the last axis."""
    names = [stage + (f", {threads} threads" if threads > 1 else "")
             for stage, threads, *_ in column.index]
    frame = column.rename("value").reset_index().assign(line=names)
    if not machine.axes:
        yield "", frame.set_index("line")[["value"]].set_axis(["each run"], axis="columns")
        return
    *page, last = machine.axes
    for values, part in frame.groupby(page) if page else [((), frame)]:
        title = ", ".join(f"{axis.name} {value}"
                          for axis, value in zip(machine.ladder.axes, values))
        yield title, part.pivot_table(index="line", columns=last, values="value", sort=False)


def closing(machine):
    """What was left out and why, and what to type next after a quick look."""
    last = machine.outcomes
    reasons = {}
    for name, (outcome, why) in last.items():
        if why or outcome == "cut off":
            reasons.setdefault(f"{outcome}: {why}", []).append(name)
    if reasons:
        yield "\n".join(paragraph(f"{words.listed(names)}: {reason}")
                        for reason, names in reasons.items())
    if machine.home.name.endswith("-quick") and machine.ladder.stages[1:]:
        yield (f"Type next: make step{machine.ladder.chosen_by('STUDY=')} "
               f"STAGE={machine.ladder.stages[1].number}")
