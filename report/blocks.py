"""What stands between the markers of READMEs, in Markdown, and the tables of a terminal. The cells
are view.py's, and templates/ has the words."""

import pandas

from harness import counts, rows
from harness.ladders import fail
from report.view import (MOVE, Cell, Table, by_reason, changes, is_peer, link, move, read_paper,
                         render)

MARKER = "<!-- {}: {} -->"  # a block's name, "begin" or "end"
HEADLINE_LINES = 8


def cell_name(ladder, cell):
    """A cell in words: hidden 32, batch 64."""
    return ", ".join(f"{axis['option']} {value}" for axis, value in reversed(
        [*zip(ladder.axes, cell)])) or "each run"


def step_cell(group):
    """The cell that `make step` shows, or else the largest."""
    options = group.ladder.toml["step"]
    cell = tuple(options.get(axis["option"]) for axis in group.ladder.axes)
    return cell if cell in group.cells else group.cells[-1]


def headline_cells(group):
    """The cells that stand for all of them: those of ladder.toml, or else the first, one in the
    middle and the last."""
    cells = [*map(tuple, group.ladder.toml.get("headline", []))]
    if not cells or not {*cells} <= {*group.cells}:
        cells = [group.cells[i] for i in (0, len(group.cells) // 2, -1)]
    return [*dict.fromkeys(cells)]


def block(results, group, table, what, lines=(), picture="", title="", main=None, growth=False,
          folder=None, lacking=()):
    """A table under what it shows and before what is missing in it. `main` is the group whose
    stages are set against the peers, and `lacking` are stages that may have no runs."""
    found = {line[0] for line in group.lines}
    names = [stage.name for stage in lacking if stage.name not in found]
    # A step is not named where its stage is.
    absent = by_reason((stage, results.why_not(stage)) for stage in lacking if stage.name in names
                       and (not stage.is_step or not any(
                           "." not in name and name[:2] == stage.name[:2] for name in names)))
    return render("block.md.j2", results=results, group=group, table=table, what=what, lines=lines,
                  picture=picture, title=title, main=main, growth=growth, folder=folder,
                  absent=absent)


def each_cell(group):
    return (f"Each cell: {group.time_name.lower()}, speedup over {group.ladder.toml['baseline']}, "
            "share of peak.")


def front(results, folder):
    """The first page's picture and table: the stages in a small cell and in a large one."""
    group = results.steps.without_steps().with_most_threads()
    cells = [*dict.fromkeys(headline_cells(group)[i] for i in (0, -1))]
    lines = {line[0]: line for line in group.lines if not is_peer(line)}
    stages = [stage for stage in results.ladder.stages if not stage.is_step]
    table = Table(["stage", *(cell_name(group.ladder, cell) for cell in cells), MOVE], [
        [group.label(lines[stage.name], link(stage.name, stage.folder, folder)),
         *(group.all_of(lines[stage.name], cell) for cell in cells), move(stage)]
        for stage in stages if stage.name in lines])
    return block(results, group, table, each_cell(group), lines.values(), "stages.png",
                 "Training time of each stage, and what it would be at peak", folder=folder,
                 main=results.grid.without_steps().with_most_threads(), lacking=stages)


def headline(results, folder):
    """A ladder's stages without a dot in some cells: the first, the last and the fastest peer."""
    group = results.grid.without_steps().with_most_threads()
    cells, peer = headline_cells(group), group.fastest_peer()
    lines = [line for line in group.lines if not is_peer(line)]
    if len(lines) > HEADLINE_LINES - 1:
        lines = lines[:1] + lines[2 - HEADLINE_LINES:]
    lines += [peer] if peer else []
    table = Table(["stage", *(cell_name(group.ladder, cell) for cell in cells)], [
        [group.label(line), *(group.all_of(line, cell) for cell in cells)] for line in lines])
    return block(results, group, table, each_cell(group), lines, main=group, folder=folder)


def ladder(results, folder):
    """The whole ladder: a line for each stage and step, with its time and what it gains in the
    cells of the steps, and what it changes."""
    group, stages = results.steps, results.ladder.stages
    cells = group.cells if results.groups["steps"] else [step_cell(group)]
    rungs = [group.rungs(cell) for cell in cells]
    heads = [head for cell in cells for head in (
        f"{cell_name(group.ladder, cell)} ({group.unit})", "gain", "peak")]
    lines, table, others = [], [], []
    for stage, above in zip(stages, [None, *stages]):
        own = next((each[stage][0] for each in rungs if each[stage][0]), None)
        if own:
            lines.append(own)
            table.append([group.label(own, link(stage.name, stage.folder, folder)), *(
                cell for each, place in zip(rungs, cells) for cell in (
                    group.number(group.ladder.time, own, place),
                    gain(group, *each[stage], place), group.share(own, place))),
                str(changes(stage)) if stage.before else "", move(stage)])
            if stage.before != above:
                others.append(" with ".join(each.name.split("_")[0]
                                            for each in (stage, stage.before)))
    what = (f"A line has the {group.time_name.lower()}, how many times as fast it is as the line "
            "above, and its share of peak.")
    return block(results, group, Table(["", *heads, "changed lines", MOVE], table),
                 what + f" Compared are {', '.join(others)}." * bool(others), lines, "ladder.png",
                 "Time of each stage and step, and what it would be at peak", folder=folder,
                 growth=True, lacking=stages)


def gain(group, line, above, cell, with_interval=False):
    """How many times as fast as the line above. Where no difference is seen, it has its interval."""
    ratio = above and line and group.ratio(line, above, cell)
    return Cell(ratio.text if with_interval or not ratio.is_seen else ratio.short) if ratio else (
        Cell())


def epochs(results, folder):
    """A line for each stage and peer that ran in a ladder with epochs, and who did not."""
    group = results.grid.without_steps()
    cell = step_cell(group)
    columns = {"epoch_s": "time of an epoch (s)", group.ladder.time: "training time (s)",
               "samples_per_s": "images a second", "test_accuracy": "test accuracy (%)",
               "best_test_accuracy": "its best (%)", "peak_rss_mib": "peak memory (MiB)"}
    if not {*columns} <= {*group.frame}:
        return ""

    def number(column, line):
        value = group.median(column, line, cell)
        return (Cell(f"{100 * value:.2f}") if column.endswith("accuracy") else
                Cell(f"{value:,.0f}") if value >= 1000 else group.number(column, line, cell))

    table = Table(["", *columns.values()], [
        [group.label(line), *(number(column, line) for column in columns)]
        for line in group.lines])
    what = "Medians over a run's epochs. The test after each epoch is not in the time."
    stages = [stage for stage in results.ladder.stages if not stage.is_step]
    return block(results, group, table, what, (), "epochs.png",
                 "Time, throughput and test accuracy of each epoch", folder=folder,
                 lacking=[*stages, *results.ladder.peers])


def measured(results, stage):
    """What is measured of a stage: of a step, the time and the gain in the cells of the steps; of
    another stage, all cells of the grid."""
    if not results:
        return "Not measured yet."
    group = (results.steps if stage.is_step else results.grid).with_most_threads()
    line = next((line for line in group.lines if line[0] == stage.name), None)
    if not line:
        return render("stage.md.j2", reason=results.why_not(stage))
    names = [axis["option"] for axis in group.ladder.axes]
    if stage.is_step:
        above = group.rungs(group.cells[-1])[stage][1]
        over = f"over {above[0].split('_')[0]}" if above else "gain"
        table = Table(["", f"time ({group.unit})", over, "peak"], [
            [cell_name(group.ladder, cell), group.number(group.ladder.time, line, cell),
             gain(group, line, above, cell, with_interval=True), group.share(line, cell)]
            for cell in group.cells])
    else:
        pages = sorted({cell[:-1] for cell in group.cells})
        table = Table([names[-1] if names else "", *(
            f"{names[0]} {page[0]}" if page else group.label(line).text for page in pages)], [
            [str(column[0]) if column else "each run", *(
                group.all_of(line, page + column) for page in pages)]
            for column in sorted({cell[-1:] for cell in group.cells})])
    return render("stage.md.j2", group=group, line=line, table=table, stage=stage)


def count(stage):
    """What was counted of a CUDA stage (harness/counts.py), in sum: a line for each cell, by the
    heads of its table. None without counts."""
    path = stage.ladder.profiles / stage.name / "counts.csv"
    if not path.exists():
        return None
    frame = pandas.read_csv(path)
    sums = frame[frame["bytes"] == 0].groupby("cell", sort=False).sum(numeric_only=True)
    kinds = "load", "store", "atomic"
    return pandas.DataFrame({
        "µs predicted": counts.predicted(sums).map("{:.1f}".format),
        **{head: sums[[*columns]].sum(axis=1).map("{:,}".format) for head, columns in {
            "launches": ("launches", "nodes"),
            "sectors": (f"{kind}_sectors" for kind in kinds),
            "passes": (f"shared_{kind}_passes" for kind in kinds),
            "barriers": ("barriers", "grid_barriers"), "cycles": ("busiest",)}.items()}})


def counted(stage):
    """What was counted of a CUDA stage, for its README."""
    found = count(stage)
    return "Not counted yet." if found is None else str(Table(
        ["a batch at", *found], found.itertuples(name=None)))


def chapter(stage):
    """The predictions of a stage and its steps, beside the stage before them."""
    stages = [each for each in stage.ladder.stages if each.name[:2] == stage.name[:2]]
    found = {each: count(each) for each in (stages[0].before, *stages)}
    found = {each: table for each, table in found.items() if table is not None}
    cells = next(iter(found.values())).index
    return str(Table(["", MOVE, *(f"µs at {cell}" for cell in cells), "launches"], [
        [link(each.name, each.folder, stage.folder), move(each), *table["µs predicted"],
         table["launches"][-1]] for each, table in found.items()]))


def terminal(results, kinds):
    """The tables for a terminal, in the layout of the papers: for each value of the first axis and
    each measure a line per stage. A quick look ends with what the fastest stage gained."""
    groups = [group for kind in kinds for group in results.groups[kind]]
    main = results.grid.without_steps().with_most_threads() if groups else None
    first = next((each.name for each in results.ladder.stages if each.before), "").split("_")[0]
    cell = step_cell(main) if groups else ()
    gained = [(main.time(line, cell), line, main.ratio(line, main.baseline, cell))
              for line in main.lines if not is_peer(line) and line != main.baseline
              and main.ratio(line, main.baseline, cell)] if groups and results.is_quick else []
    return render("tables.txt.j2", results=results, main=main, first=first,
                  cell=groups and cell_name(results.ladder, cell), gained=min(gained, default=None),
                  tables={group: [*pages(group)] for group in groups}) + "\n"


def pages(group):
    """A table for each value of the first axis, with a column for each value of the last. Below a
    line stand the figures of the paper for it."""
    ladder, paper = group.ladder, read_paper(group)
    names = [axis["name"] for axis in ladder.axes]
    measures = [(each["column"], each["title"], each.get("unit")) for each in ladder.measures]
    for page in sorted({cell[:-1] for cell in group.cells}):
        columns, lines = [cell for cell in group.cells if cell[:-1] == page], []
        for column, title, unit in [*measures, ("", f"Speedup over {group.ladder.toml['baseline']}",
                                                "")]:
            found = []
            for each in (group, paper) if paper else (group,):
                for line in each.lines:
                    cells = [each.number(column, line, cell) if column else
                             each.speedup(line, cell) for cell in columns]
                    name = each.label(line, line[0] if each is paper else None)
                    found.append((line[0], each is paper, [
                        Cell("  " + "paper: " * (each is paper) + name.text, name.marks), *cells]))
            shown = [line for *_, line in sorted(found, key=lambda each: each[:2])
                     if any(cell.text != "-" for cell in line[1:])]
            lines += [[f"{title} ({group.unit})" if unit else title], *shown] if shown else []
        heads = [*(f"{name} {value}" for name, value in zip(names, page)), *names[-1:]]
        yield Table([", ".join(heads), *(str(*cell[-1:]) or "each run" for cell in columns)],
                    lines)


def has_markers(path, name="table"):
    return path.exists() and MARKER.format(name, "begin") in rows.read(path)


def update(path, text, name="table"):
    """Puts the text between the markers of a file."""
    old, markers = rows.read(path), [MARKER.format(name, which) for which in ("begin", "end")]
    begin, end = map(old.find, markers)
    if any(old.count(marker) != 1 for marker in markers) or begin > end:
        fail(f"{path}: expected '{markers[0]}' and, below it, '{markers[1]}', each once")
    new = f"{old[:begin]}{markers[0]}\n{text}\n{old[end:]}"
    if new != old:
        rows.write(path, new)
