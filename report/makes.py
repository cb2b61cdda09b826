"""What each step gains on each make of core, in one table, with a column for each record of it:
results/MACHINE/LADDER/steps.csv, which `./run_all.sh --steps` leaves beside its runs."""

import pandas

from bench import pairs, rows
from report import blocks
from report.table import Cell, Table, link

NUMBERS = "gain", "low", "high"
# "build" is what MARCH was, and "sources" a hash of the step's, as in programs.csv.
COLUMNS = "step", "cell", *NUMBERS, "sources", "machine", "build", "compiler", "revision"


def record(results):
    """What each CPU step gains over the one before, in the cells of the steps that were timed on a
    quiet machine."""
    group = results.steps
    sweeps = {*group.frame["sweep"]}
    known = results.sweeps[max(sweeps)]
    sources = {row["program"]: row["sources"] for row in results.programs if row["sweep"] in sweeps}
    cpu, _, build = known["cpu"].partition(", built for ")
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
    """A step's gain in a cell, of its lines of a record."""
    if cell not in lines.index:
        return ""
    line = lines.loc[cell]
    ratio = pairs.Ratio(*line[[*NUMBERS]], pairs=2)
    is_changed = line["sources"] not in ("", stage.sources)
    return Cell(ratio.short if ratio.is_seen else "≈ 1", "Δ" if is_changed else "")


def block(results, folder):
    """A line for each step, in the cell where it gains most on the reference machine, whose column
    is the first."""
    paths = sorted(results.folder.parents[1].glob(f"*/{results.ladder.name}/steps.csv"))
    others = (read(path) for path in paths if path.parent != results.folder)
    records = [*filter(len, [record(results), *others])]
    table = []
    for stage in results.ladder.stages:
        found = [each[each["step"] == stage.name].set_index("cell") for each in records]
        if any(map(len, found)):
            cell = next(filter(len, found))["gain"].idxmax()
            table.append([link(stage.name, stage.folder, folder), cell,
                          *(gain(stage, lines, cell) for lines in found)])
    about = pandas.DataFrame([each.iloc[0] for each in records], columns=COLUMNS)
    heads = about["machine"] + (", " + about["build"]).replace(", native", "")
    table = Table(["", "cell", *heads], table)
    how = heads + ": " + about["compiler"] + ", revision " + about["revision"]
    return f"{table}\n\n{'; '.join([*how, *table.legend])}."
