"""What each step gains on each make of core, by each machine's steps.csv. And how long the stages
take with each compiler: a results/MACHINE/compilers.csv of bench/compilers.py."""

import pandas

from bench import compilers, pairs, rows
from report import blocks
from report.table import Cell, Table, link

NUMBERS = "gain", "low", "high"
# "build" is what MARCH was, and "sources" a hash of the step's, as in programs.csv.
COLUMNS = "step", "cell", *NUMBERS, "sources", "machine", "build", "compiler", "revision"


def record(results):
    """What each CPU step gains over the one before, in the cells timed on a quiet machine."""
    group = results.steps
    known = results.sweeps.get(max(group.frame["sweep"]), {})
    sources = {row["program"]: row["sources"] for row in group.programs}
    cpu, _, build = known.get("cpu", "").partition(", built for ")
    how = (", ".join(cpu.split(", ")[:2]),  # without its hardware threads
           build or "native", known.get("compiler", ""), known.get("revision", ""))
    found = []
    for cell in group.cells:
        for stage, (line, above) in group.rungs(cell).items():
            own = (line in group.on_cpu and above and above[0] == stage.before.name
                   and group.ratio(line, above, cell))
            if own and own.pairs > 1 and not group.spoilt & {(*line, *cell), (*above, *cell)}:
                found.append((stage.name, blocks.cell_name(group.ladder, cell), *own[:3],
                              sources.get(stage.name, ""), *how))
    return pandas.DataFrame(found, columns=COLUMNS).round(4)


def read(path):
    frame = rows.read_texts(path, COLUMNS)
    return frame.assign(**{name: rows.numbers(path, frame[name]) for name in NUMBERS})


def gain(stage, lines, cell):
    if cell not in lines.index:
        return ""
    line = lines.loc[cell]
    ratio = pairs.Ratio(*line[[*NUMBERS]], pairs=2)
    is_changed = line["sources"] not in ("", stage.sources)
    return Cell(ratio.short if ratio.is_seen else "≈ 1", "Δ" if is_changed else "")


def block(results, folder):
    """A line for each step, in the cell where it gains most on the reference machine."""
    paths = sorted(results.folder.parents[1].glob(f"*/{results.ladder.name}/steps.csv"))
    others = (read(path) for path in paths if path.parent != results.folder)
    records = [*filter(len, [record(results), *others])]
    table = []
    for stage in results.ladder.stages:
        found = [each[each["step"] == stage.name].set_index("cell") for each in records]
        if any(map(len, found)):
            first, *others = filter(len, found)
            shared = [cell for cell in first.index if all(cell in each.index for each in others)]
            cell = first.loc[shared or [*first.index], "gain"].idxmax()
            table.append([link(stage.name, stage.folder, folder), cell,
                          *(gain(stage, lines, cell) for lines in found)])
    about = pandas.DataFrame([each.iloc[0] for each in records], columns=COLUMNS)
    heads = about["machine"] + (", " + about["build"]).replace(", native", "")
    table = Table(["", "cell", *heads], table)
    how = heads + ": " + about["compiler"] + ", revision " + about["revision"]
    return f"{table}\n\n{'; '.join([*how, *table.legend])}."


def of_compilers(results, folder):
    """A line for each stage and build, of the reference machine's record, or else of the first."""
    paths = sorted(results.folder.parents[1].glob("*/compilers.csv"),
                   key=lambda path: path.parent != results.folder.parent)
    if not paths:
        return "Not measured yet."
    frame = rows.read_texts(paths[0], compilers.COLUMNS)
    names = [name for name in frame if name not in compilers.COLUMNS]
    table = Table(["", *names], [
        [Cell(f"{link(stage.name, stage.folder, folder)}, {line['build']}",
              "" if line["sources"] == stage.sources else "Δ"), *line[names]]
        for stage in results.ladder.stages
        for _, line in frame[frame["program"] == stage.name].iterrows()])
    how = *frame.loc[0, ["cpu", "cell"]], f"revision {frame.loc[0, 'revision']}", *table.legend
    return f"{table}\n\n{'; '.join(how)}."
