"""The tables, as frames of texts: the front page's, a ladder's steps, a stage's grid, a paper's."""

import functools
import itertools
import math
import subprocess
from statistics import median

import pandas

from bench.stage import git_diff
from report import frames
from report.words import cell_name, known, link, listed, percent, three_digits, times

MOVE = "the move"


@functools.cache
def changed_lines(stage):
    """How many lines a stage added and removed, against the one before."""
    if not stage.before:
        return ""
    sources = [stage.before.source, stage.source]
    counts = git_diff(sources, "--numstat", stdout=subprocess.PIPE).stdout or "0\t0\t"
    return str(sum(map(int, counts.split("\t")[:2])))


def move_of(program):
    """What a program does, in a column: its move, and whether it leaves operations out."""
    move = "a library or framework" if program.is_peer else program.move
    return f"{move}, skips zeros" if program.declared("SKIPS") else move


def name_of(program, folder):
    """A program's name, which is a link in a README."""
    place = program.ladder.peers_folder if program.is_peer else program.folder
    return link(program.title, place, folder) if folder else program.title


def unit_of(found, column):
    """("ms", 1000), or ("s", 1) where most times are long."""
    return ("ms", 1000) if median(row[column] for row in found.values()) < 0.1 else ("s", 1)


# --- the front page ---


def epochs(machine):
    """All runs with the ladder's settings, with the time of one epoch in `epoch_s`: a grid has
    several, the steps one."""
    runs = machine.runs[machine.runs["kind"].isin(["grid", "steps"])]
    others = {column: value for column, value in machine.settings("grid").items()
              if column != "epochs"}
    runs = frames.usual(runs, others)
    return runs.assign(epoch_s=runs[machine.ladder.time] / runs.get("epochs", 1))


def front_cells(machine, runs):
    """Those of the ladder's headline that were measured, or else the first and the last."""
    measured = sorted({*runs[machine.axes].itertuples(index=False, name=None)}) or [()]
    asked = [tuple(cell) for cell in machine.ladder.toml["headline"]]
    return [cell for cell in asked if cell in measured] or [*dict.fromkeys(
        [measured[0], measured[-1]])]


def front_programs(machine, found, cells):
    """The stages without steps that run on one machine, and of the peers the fastest in each cell
    on a CPU, on a GPU, and with so few digits. Without axes there is room for all."""
    stages = [stage for stage in machine.ladder.stages
              if not stage.is_step and not stage.declared("RUN")]
    peers = machine.ladder.peers
    if machine.axes:
        kinds = {(peer.is_gpu, peer.digits) for peer in peers}
        chosen = {fastest(found, cell, peers, kind)
                  for cell, kind in itertools.product(cells, kinds)}
        peers = [peer for peer in peers if peer in chosen]
    return stages + peers


def fastest(found, cell, peers, kind):
    """The peer of a kind that takes least time in a cell, or None."""
    times_of = {peer: found[peer.name, cell]["epoch_s"] for peer in peers
                if (peer.is_gpu, peer.digits) == kind and (peer.name, cell) in found}
    return min(times_of, key=times_of.get, default=None)


def front(machine):
    """(a row a program: (column, cell) with its medians, `epoch_s` and `speedup`; the cells, in
    words; the runs)"""
    runs = epochs(machine)
    found = frames.best(machine, frames.cells(machine, runs, "epoch_s"), "epoch_s")
    cells = front_cells(machine, runs)
    lines = {}
    for program, cell in itertools.product(front_programs(machine, found, cells), cells):
        here = found.get((program.name, cell))
        base = found.get((machine.ladder.toml["baseline"], cell))
        if here:
            gain_of = {"speedup": base["epoch_s"] / here["epoch_s"] if base else math.nan}
            where = cell_name(machine.ladder, cell)
            lines.setdefault(program, {}).update(
                {(name, where): value for name, value in (here | gain_of).items()})
    frame = pandas.DataFrame(lines.values(), index=[*lines])
    if lines:
        frame.columns = pandas.MultiIndex.from_tuples(frame.columns)
    names = [cell_name(machine.ladder, cell) for cell in cells]
    return frame, names, runs_of(machine, runs, found, lines, cells)


def runs_of(machine, runs, found, programs, cells):
    """The runs that are shown of some programs in some cells: those with the best threads."""
    shown = {(program.name, found[program.name, cell]["threads"], *cell)
             for program, cell in itertools.product(programs, cells)
             if (program.name, cell) in found}
    places = runs[[*frames.LINE, *machine.axes]].itertuples(index=False, name=None)
    return runs[[place in shown for place in places]]


def speedup(value):
    """The baseline has 1."""
    return "1" if value == 1 else times(value)


def front_table(machine, folder=None):
    """The first screen's table, as texts: the last cell whole, of the others the speedup, and
    the threads where they are others. Without axes, all measures."""
    frame, cells, runs = front(machine)
    *others, main = cells
    what = "ms an epoch" if "epochs" in runs else "ms a run"
    lines = []
    for program, row in frame.iterrows():
        here = row.xs(main, level=1)
        threads = here["threads"]
        line = {"": name_of(program, folder),
                "speedup": known(here.get("speedup"), speedup),
                what: known(here["epoch_s"], lambda time: three_digits(1e3 * time)),
                MOVE: move_of(program),
                "threads": f"{threads:.0f}" if threads and threads == threads else "",
                "share of peak": known(here["share"], percent)}
        for cell in others:
            line[f"speedup at {cell}"] = known(row.get(("speedup", cell)), speedup)
            there = row.get(("threads", cell), 0)
            if line["threads"] and there > 0 and there != threads:
                line[f"speedup at {cell}"] += f", {there:.0f} threads"
        if not machine.axes:
            line |= measures(machine, here)
        lines.append(line)
    return without_empty(pandas.DataFrame(lines))


def without_empty(frame):
    """A table without the columns that say nothing."""
    frame = frame.fillna("")
    return frame.loc[:, (frame != "").any()]


# --- a ladder's steps ---


def rungs(machine, found, cell):
    """{stage: (line, above)}: a stage's line (name, threads) among the best of a cell, and that of
    the nearest stage before it that was measured there. Each may be None."""
    lines = {}
    nearest = {}
    for stage in machine.ladder.stages:
        here = found.get((stage.name, cell))
        line = (stage.name, here["threads"]) if here else None
        lines[stage] = line, nearest.get(stage.before)
        nearest[stage] = line or nearest.get(stage.before)
    return lines


def gain(machine, runs, line, above, cell, row_above=None):
    """How many times as fast a line is as the stage before it, which is named where it is not that
    of the row above."""
    found = line and above and frames.ratio(machine, runs, line, above, cell)
    if not found:
        return ""
    over = f" over {above[0].split('_')[0]}" if above[0] != row_above else ""
    return f"{found.cell}{over}"


def steps(machine, on_gpu, folder):
    """{a cell of the steps, in words: a row for each stage and step of the CPU or of the GPU: its
    time, what it gains over the one before, and its share of peak}. The last cell is the first, and
    says what the moves are: a table of all cells would be too wide to read. Where the stage before
    was not measured, a gain is of several moves, so no changed lines stand beside it."""
    runs = machine.of(machine.best_kind)
    found = frames.best(machine, frames.cells(machine, runs))
    unit, scale = unit_of(found, machine.ladder.time)
    tables = {}
    for cell in reversed(shared_cells(machine, found)):
        lines = []
        row_above = None
        for stage, (own, above) in rungs(machine, found, cell).items():
            if stage.is_gpu != on_gpu or not own:
                continue
            here = found[stage.name, cell]
            is_one_move = not above or above[0] == stage.before.name
            move = {} if tables else {MOVE: move_of(stage)}
            lines.append({"": link(stage.number, stage.folder, folder)} | move | {
                f"time ({unit})": three_digits(scale * here[machine.ladder.time]),
                "gain": gain(machine, runs, own, above, cell, row_above),
                "peak": known(here["share"], percent)} | (
                move and {"changed lines": changed_lines(stage) if is_one_move else ""}))
            row_above = stage.name
        if lines:
            tables[cell_name(machine.ladder, cell)] = without_empty(pandas.DataFrame(lines))
    return tables


def cells_of(found, stage):
    """The cells that a stage was measured in: none of no stage."""
    return sorted(cell for name, cell in found if stage and name == stage.name)


def shared_cells(machine, found):
    """The cells of the steps that all are measured in: of a step alone is what its page asks."""
    asked = [tuple(cell) for cell in machine.ladder.toml["rungs"].get("cells", [])]
    measured = {cell for _, cell in found}
    if asked and measured >= {*asked}:
        return asked
    base = machine.ladder.toml["baseline"]
    return sorted(cell for name, cell in found if name == base) or sorted(measured)


# --- a stage's page ---


def step_table(machine, stage):
    """(a row for each cell of a step: its time, its gain with the interval, its share; its runs)"""
    runs = machine.of(machine.best_kind)
    found = frames.best(machine, frames.cells(machine, runs))
    unit, scale = unit_of(found, machine.ladder.time)
    lines = []
    for cell in cells_of(found, stage):
        line, above = rungs(machine, found, cell)[stage]
        if not above and cells_of(found, stage.before):
            continue  # another step's page asks about this cell
        here = found[stage.name, cell]
        ratio = above and frames.ratio(machine, runs, line, above, cell)
        lines.append({"": cell_name(machine.ladder, cell),
                      f"time ({unit})": three_digits(scale * here[machine.ladder.time]),
                      f"over {above[0].split('_')[0]}" if above else "gain":
                          ratio.text if ratio else "",
                      "peak": known(here["share"], percent)})
    return without_empty(pandas.DataFrame(lines)), runs[runs["stage"] == stage.name]


def grid_table(machine, stage):
    """(a row for each value of the last axis, a column for each of the first; its runs)"""
    runs = machine.of("grid")
    found = frames.best(machine, frames.cells(machine, runs))
    names = [axis["option"] for axis in machine.ladder.axes]
    lines = {}
    for cell in cells_of(found, stage):
        *page, last = cell or ("each run",)
        line = lines.setdefault(last, {names[-1] if names else "": str(last)})
        head = f"{names[0]} {page[0]}" if page else stage.name
        line[head] = in_one(machine, found, stage, cell)
    return pandas.DataFrame(lines.values()).fillna(""), runs[runs["stage"] == stage.name]


def times_table(machine, stage):
    """(a row for each cell of the steps, for the stage before and for this one: the columns that
    its Makefile names in TIMES; their runs)"""
    columns = [f"{name}_s" for name in stage.declared("TIMES").split()]
    shown = [stage.before, stage] if columns else []
    runs = machine.of("steps")
    runs = runs[runs["stage"].isin([each.name for each in shown])]
    found = frames.best(machine, frames.cells(machine, runs))
    lines = [{"cell": cell_name(machine.ladder, cell), "stage": each.number} |
             {f"`{column}` (ms)": three_digits(1e3 * found[each.name, cell][column])
              for column in columns}
             for cell in cells_of(found, stage) for each in shown if (each.name, cell) in found]
    return pandas.DataFrame(lines), runs


def in_one(machine, found, program, cell):
    """A cell's time, its speedup over the baseline, and its share of peak, in one text."""
    here = found[program.name, cell]
    unit, scale = unit_of(found, machine.ladder.time)
    said = [f"{three_digits(scale * here[machine.ladder.time])} {unit}"]
    base = found.get((machine.ladder.toml["baseline"], cell))
    if base and base is not here:
        said.append(times(base[machine.ladder.time] / here[machine.ladder.time]))
    return ", ".join(filter(None, [*said, known(here["share"], percent)]))


def parts_of_cell(machine, stage):
    """What a cell of a grid has, in words."""
    parts = ["the time"]
    if stage.before and machine.ladder.toml["baseline"] in {*machine.of("grid")["stage"]}:
        parts.append(f"the speedup over {machine.ladder.toml['baseline']}")
    if not stage.declared("SKIPS"):
        parts.append("the share of peak")
    return listed(parts)


# --- measures ---


def measures(machine, row):
    """{title: text} of the ladder's measures."""
    return {title_of(each): known(row.get(each["column"]),
                                  functools.partial(number, each["column"]))
            for each in machine.ladder.measures if each["column"] != "epoch_s"}


def title_of(measure):
    unit = measure["unit"]
    return f"{measure['title']} ({unit})" if unit else measure["title"]


def number(column, value):
    """A measure as a text: three digits of a time or a size, four decimals of an accuracy."""
    if column.endswith(("_s", "_mib")):
        return three_digits(value)
    is_whole = value >= 1000 or (value >= 10 and float(value).is_integer())
    return f"{value:,.0f}" if is_whole else f"{value:.4f}"


# --- other cores, and the paper ---


def cores(folder, ladder):
    """What each step of the CPU gains on each machine that has run the steps, in the cell where it
    gains most on the first machine that has it, that of the CPU's pages before others."""
    first = frames.reference("cpu")
    homes = sorted({path.parents[1] for path in frames.RESULTS.glob(f"*/{ladder.name}/runs.csv")},
                   key=lambda home: (home != first, home.name))
    gains = {}
    for home in homes:
        machine = frames.Machine(home, ladder)
        if (machine.runs["kind"] == "steps").any():
            gains[machine.name] = gains_of(machine)
    lines = []
    for stage in ladder.stages:
        own = next((its[stage] for its in gains.values() if stage in its), {})
        if own:
            cell = max(own, key=lambda cell: own[cell].median)
            lines.append({"": link(stage.number, stage.folder, folder),
                          "cell": cell_name(ladder, cell)} | {
                name: its[stage][cell].cell if cell in its.get(stage, {}) else ""
                for name, its in gains.items()})
    return pandas.DataFrame(lines)


def gains_of(machine):
    """{stage: {cell: its Ratio over the one before}} of the steps that run on a CPU."""
    runs = machine.of("steps")
    found = frames.best(machine, frames.cells(machine, runs))
    gains = {}
    for cell in sorted({cell for _, cell in found}):
        for stage, (line, above) in rungs(machine, found, cell).items():
            is_own = line and above and above[0] == stage.before.name and not stage.is_gpu
            ratio = is_own and frames.ratio(machine, runs, line, above, cell)
            if ratio and ratio.pairs > 1:
                gains.setdefault(stage, {})[cell] = ratio
    return gains


def paper(ladder):
    """The figures of the paper, a row a cell, with the ladder's settings where it names none."""
    path = ladder.folder / "paper.csv"
    if not path.exists():
        return pandas.DataFrame()
    frame = pandas.read_csv(path)
    for option, value in ladder.settings.items():
        frame[ladder.column(option)] = frame.get(ladder.column(option), value)
    return frame


def on_nodes(path, cell):
    """A row for each stage of several processes on 16 simulated nodes, 10 µs apart, in a cell,
    {column: value}."""
    table = pandas.read_csv(path)
    here = frames.at(table, {"nodes": 16, "latency_us": 10, "gb_s": 12.5} | cell)
    return here.drop_duplicates("stage", keep="last").set_index("stage")
