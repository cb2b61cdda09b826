"""The tables of a terminal, in the layout of the papers. The cells are group.py's."""

import functools

from report.table import Cell, Table, wrapped


def terminal(results, kinds):
    """The tables for a terminal, in the layout of the papers: for each value of the first axis and
    each measure a line per stage, and below those the paper's own figures."""
    parts = [wrapped(results.machines())]
    groups = [group for kind in kinds for group in results.groups[kind]]
    for group in groups:
        tables = [*pages(group)]
        legend = dict.fromkeys(meaning for table in tables for meaning in table.legend)
        parts += ["\n".join(map(wrapped, [group.caption, *legend])),
                  *(table.text() for table in tables)]
        its = results.ladder.toml.get("paper", {})
        parts += [wrapped(f"The paper is {its['cite']}; {its['machine']}.".replace("*", ""))
                  ] if group.paper else []
    if groups:
        main = results.grid.without_steps().with_most_threads()
        parts += [wrapped(main.against_peers()), "\n".join(map(wrapped, results.left_out))]
        if results.is_quick:
            for stage in results.ladder.stages[1:2]:
                parts.append(f"Type next: make step{results.ladder.chosen_by('STUDY=')} "
                             f"STAGE={stage.number}")
    else:
        parts += ["`make report` draws how the time grows" if len(results.growth) else
                  "no finished runs"]
    return "\n\n".join(filter(None, parts)) + "\n"


def pages(group):
    """A table for each value of the first axis, with a column for each value of the last."""
    names = [axis["name"] for axis in group.ladder.axes]
    for page in sorted({cell[:-1] for cell in group.cells}):
        columns = [cell for cell in group.cells if cell[:-1] == page]
        heads = [*(f"{name} {value}" for name, value in zip(names, page)), *names[-1:]]
        lines = [line for part in parts_of_page(group, columns) for line in part]
        yield Table([", ".join(heads), *(str(*cell[-1:]) or "each run" for cell in columns)], lines)


def parts_of_page(group, cells):
    """The lines of each measure and of the speedup, below a line with its title."""
    shown = [(group.title(each), functools.partial(group.number, each["column"]))
             for each in group.ladder.measures]
    shown.append((f"Speedup over {group.ladder.toml['baseline']}", group.speedup))
    for title, number in shown:
        part = []
        for line in (*group.lines, *group.paper):
            numbers = [number(line, cell) for cell in cells]
            name = group.label(line)
            if any(each.text != "-" for each in numbers):
                part.append([Cell(f"  {name.text}", name.marks), *numbers])
        if part:
            yield [[title], *part]
