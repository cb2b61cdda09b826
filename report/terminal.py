"""What a terminal shows of a sweep: the first screen's table, and the paper's layout, which has a
table for each measure and value of the first axis."""

import functools
import textwrap

import pandas

from report import frames, tables, words

WIDTH = 80


def paragraph(text):
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def text(machine, kinds):
    parts = [paragraph(f"{machine.name}{busy(machine, kinds)}")]
    if (machine.runs["kind"].isin(["grid", "steps"])).any() and len(tables.front(machine)[0]):
        parts.append(first_screen(machine))
    for kind in kinds:
        runs = machine.runs[machine.runs["kind"] == kind]
        for _, group in runs.groupby(["kind", *machine.settings(kind)], sort=False):
            parts += in_layout(machine, group)
    return "\n\n".join([*parts, *closing(machine)]) + "\n"


def busy(machine, kinds):
    """Says first how many of the runs that count were disturbed, as their times are too long."""
    runs = machine.runs[machine.runs["kind"].isin(kinds)]
    shown = frames.counted(runs, ["kind", *machine.axes])
    kept = int(shown["disturbed"].sum())
    return f"; busy during {kept} of {len(shown)} runs, so times are too long" if kept else ""


def first_screen(machine):
    """The front page's table, without the moves, which a terminal has no room for."""
    table = tables.front_table(machine).drop(columns=tables.MOVE, errors="ignore")
    table.columns = [head.replace("share of peak", "of peak").replace("speedup at", "at")
                     for head in table.columns]
    return table.to_string(index=False)


def is_quick(machine):
    return machine.home.name.endswith("-quick")


def in_layout(machine, runs):
    """A caption, and the tables of runs that share their settings: the speedups first, and after a
    quick look only the time. The paper's figures stand below ours."""
    found = frames.cells(machine, runs)
    caption = f"{words.heading(machine.ladder, runs)}; {words.repeats(found)}."
    yield paragraph(" ".join([caption, words.other_data(machine, runs)]))
    ours, theirs = (with_speedup(machine, each) for each in (found, of_paper(machine, runs)))
    both = pandas.concat([ours, theirs]) if len(theirs) else ours
    title = f"Speedup over {machine.ladder.toml['baseline']}"
    yield from texts(machine, title, both["speedup"], words.times)
    for measure in machine.ladder.measures:
        column = measure["column"]
        if column == machine.ladder.time or not is_quick(machine):
            number = functools.partial(tables.number, column)
            yield from texts(machine, tables.title_of(measure), both.get(column), number)


def with_speedup(machine, found):
    """A frame of cells with how many times as fast as the baseline, or as the paper's, each is."""
    time = found[machine.ladder.time]
    names = found.index.get_level_values("stage").astype(str)
    base = time[names.str.startswith(machine.ladder.toml["baseline"] or "-")]
    if not machine.axes:
        return found.assign(speedup=(base.iloc[0] if len(base) else float("nan")) / time)
    cells = found.index.droplevel(frames.LINE)
    return found.assign(speedup=base.droplevel(frames.LINE).reindex(cells).to_numpy() / time)


def of_paper(machine, runs):
    """The paper's figures as a frame of cells, where their settings are those of the runs."""
    theirs = tables.paper(machine.ladder)
    if theirs.empty:
        theirs = runs[:0]
    shared = runs[[*machine.settings("grid")]].iloc[0]
    theirs = frames.at(theirs, shared.to_dict())
    theirs = theirs.assign(stage=theirs["stage"] + ", the paper", threads=0)
    return theirs.set_index([*frames.LINE, *machine.axes])


def texts(machine, title, column, number):
    """The tables of a column, each a text under its title. None of one that is not there."""
    column = None if column is None else column.dropna()
    for page, table in pages(machine, column) if column is not None and len(column) else ():
        table = table.apply(lambda one: one.map(lambda value: words.known(value, number)))
        head = ": ".join(filter(None, [title, page]))
        yield f"{head}\n{table.rename_axis(index=None, columns=None).to_string()}"


def pages(machine, column):
    """(words, table) for each value of the first axis: a row for each line, and a column for each
    value of the last axis."""
    frame = column.rename("value").reset_index()
    titles = {peer.name: peer.title for peer in machine.ladder.peers}
    frame["line"] = [titles.get(name, name) + (f", {threads} threads" if threads > 1 else "")
                     for name, threads in zip(frame["stage"], frame["threads"])]
    if not machine.axes:
        yield "", frame.set_index("line")[["value"]].set_axis(["each run"], axis="columns")
        return
    *first, last = machine.axes
    frame["page"] = ""
    for axis, name in zip(machine.ladder.axes, first):
        frame["page"] = f"{axis['name']} " + frame[name].astype(str)
    for page, part in frame.groupby("page", sort=False):
        table = part.pivot_table(index="line", columns=last, values="value", sort=False)
        yield page, table.sort_index(axis="columns")


def closing(machine):
    """What was left out and why, and what to type next after a quick look."""
    yield from map(paragraph, words.absent(machine, lambda each: each.name in machine.outcomes))
    if is_quick(machine) and machine.ladder.stages[1:]:
        yield (f"Type next: make step{machine.ladder.chosen_by('STUDY=')} "
               f"STAGE={machine.ladder.stages[1].number}")
