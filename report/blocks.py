"""What stands between the markers of READMEs, in Markdown. The cells are group.py's."""

import re

import pandas

from bench import counts, rows
from bench.base import fail
from report.group import is_peer
from report.table import MOVE, Cell, Table, by_reason, count_of, link, three_digits
from report.view import changes, find_gpu, read

MARKER = "<!-- {}: {} -->"  # a block's name, "begin" or "end"


def cell_name(ladder, cell):
    """A cell in words: hidden 32, batch 64."""
    return ", ".join(f"{axis['option']} {value}" for axis, value in reversed(
        [*zip(ladder.axes, cell)])) or "each run"


def step_cell(group):
    """The cell that `make step` shows, or else the largest."""
    options = group.ladder.toml["step"]
    cell = tuple(options.get(axis["option"]) for axis in group.ladder.axes)
    return cell if cell in group.cells else group.cells[-1]


def picture(path, title, folder):
    return f"!{link(title, path, folder)}" if path.is_file() else ""


def block(results, group, table, what, lines, folder, lacking, more=""):
    """A table, what it shows, and which stages of `lacking` no machine has run."""
    found = {line[0] for each in (group, results.steps) for line in each.lines}
    absent = by_reason((link(stage.name, stage.folder, folder), unmeasured(results, stage))
                       for stage in lacking if stage.name not in found
                       if not stage.is_step or results.is_wrong(stage))
    said = "; ".join([group.caption[:1].upper() + group.caption[1:], *table.legend,
                      f"on {results.machines(folder)} "
                      f"({link('all runs', results.folder / 'runs.csv', folder)})."])
    said = " ".join(filter(None, [said, peaks(group, lines), more]))
    lacking = [reason.format(", ".join(names)) for reason, names in absent.items()]
    return "\n\n".join(filter(None, [what, str(table), said, "\n".join(lacking)]))


def peaks(group, lines):
    """What 100 % of peak is with the threads of some lines."""
    used = {line[1] for line in lines}
    said = [f"{three_digits(rate / 1e9)} GFLOP/s on {count_of(threads, 'thread')}"
            for threads, rate in group.results.ceilings.items() if threads in used]
    gpu = group.results.gpu_ceiling
    if gpu and {line[0] for line in lines} & group.on_gpu:
        said.append(f"{three_digits(gpu / 1e9)} GFLOP/s on the GPU")
    return f"Peak is what multiply-adds alone reach: {', '.join(said)}." if said else ""


def unmeasured(results, stage):
    """Why it has no time, as a sentence with a place for its name."""
    outcome, reason = results.last.get(stage.name, ("ran", ""))
    if outcome in ("ran", "not run"):  # in other cells, if at all
        return "No machine has run {} yet."
    reason = (reason or outcome).rstrip(".").replace("{", "{{").replace("}", "}}")
    if outcome == "wrong":
        return f"{{}}: WRONG, so its times are left out: {reason}."
    return f"No machine has run {{}}: {reason}."


def headline(results, folder):
    """The stages without a dot and the fastest peer. Without axes, all peers and measures."""
    group = results.grid.without_steps().with_most_threads()
    lacking = [stage for stage in results.ladder.stages if not stage.is_step]
    if group.axes:
        lines = group.with_fastest_peer
        heads = [cell_name(group.ladder, cell) for cell in group.headline]
        what = (f"Each cell: {group.time_name.lower()}, speedup over "
                f"{group.ladder.toml['baseline']}, share of peak.")
        values = {line: [group.all_of(line, cell) for cell in group.headline] for line in lines}
    else:
        lines = group.lines
        lacking += results.ladder.peers
        measures = group.ladder.measures
        heads = [group.title(each).lower() for each in measures]
        what = picture(results.plots / "epochs.svg",
                       "Time, throughput and test accuracy of each epoch", folder)
        values = {line: [group.number(each["column"], line, ()) for each in measures]
                  for line in lines}
    table = Table(["stage", MOVE, "threads", *heads], [
        [*head_of(group, line, folder), *values[line]] for line in lines])
    return block(results, group, table, what, lines, folder, lacking, group.against_peers())


def lines_of_front(results):
    """(the group, its cell, its lines) that the first page shows, in its table and its picture."""
    group = results.grid.without_steps().with_most_threads()
    cell = group.headline[-1]
    lines = [line for line in group.with_fastest_peer if group.time(line, cell)]
    libraries = [line for line in group.lines
                 if is_peer(line) and line[0] in group.on_gpu and group.time(line, cell)]
    lines += sorted(libraries, key=lambda line: group.time(line, cell))[:1]
    return group, cell, lines


def front(results, folder):
    """The stages without a dot and the fastest peer in one cell, and predictions for a GPU."""
    if not results.grid.baseline:  # such as those of a GPU alone
        return headline(results, folder)
    group, cell, lines = lines_of_front(results)
    table = []
    for line in lines:
        *program, threads = head_of(group, line, folder)
        table.append([*program, group.number(group.ladder.time, line, cell),
                      group.speedup(line, cell), group.share(line, cell), threads,
                      group.number("setup_s", line, cell)])
    heads = [f"time ({group.unit})", "speedup", "share of peak", "threads",
             f"set-up ({group.unit})"]
    best = group.best(cell)
    shown = picture(results.plots / "stages.svg",
                    "How many times as fast as the serial textbook each stage is", folder)
    what = (f"{shown}\n\nWith {cell_name(group.ladder, cell)}, and set-up not in the time, "
            f"{best[0]} is {group.gain(best, cell)} as {group.baseline[0]}:")
    shown = block(results, group, Table(["stage", MOVE, *heads], table), what, lines, folder, [])
    ran = {line[0] for line in lines}
    absent = [stage for stage in results.ladder.stages
              if stage.is_gpu and not stage.is_step and stage.name not in ran]
    if not absent:
        return shown
    predictions = Table(["stage", MOVE, "a batch, predicted"], [
        [link(stage.name, stage.folder, folder), stage.move, predicted(group, stage, cell)]
        for stage in absent])
    by = link("what the simulated device counts", results.ladder.folder / "PREDICTIONS.md", folder)
    return (f"{shown}\n\nNo GPU has run the others yet. By {by}, an H100 should take this "
            f"or longer for such a batch:\n\n{predictions}")


def head_of(group, line, folder):
    """What a row begins with: the program, its move, and its threads, of which a GPU has none."""
    threads = str(line[1]) if line[1] else ""
    if is_peer(line):
        peers = group.ladder.peers_folder
        return [group.label(line, link(line[0], peers, folder)), "a library or framework", threads]
    stage = next((stage for stage in group.ladder.stages if stage.name == line[0]), None)
    if not stage:  # its folder is gone
        return [group.label(line, line[0]), "", threads]
    return [group.label(line, link(stage.name, stage.folder, folder)), stage.move, threads]


def predicted(group, stage, cell):
    """What is predicted of a batch in a cell, or nothing."""
    frame = counts.read(stage)
    name = cell_name(group.ladder, cell)
    if name not in {*frame["cell"]}:
        return ""
    return f"{counts.summed(frame, 'cell').loc[name, 'µs predicted']} µs"


def ladder(results, folder):
    """A line for each stage and step: what it changes, and what it gains in the steps' cells."""
    group = results.steps
    stages = results.ladder.stages
    cells = group.shared if results.groups["steps"] else [step_cell(group)]
    rungs = [group.rungs(cell) for cell in cells]
    heads = [head for cell in cells for head in (
        f"{cell_name(group.ladder, cell)} ({group.unit})", "gain", "peak")]
    lines = []
    table = []
    others = []
    for stage, above in zip(stages, [None, *stages]):
        own = next((each[stage][0] for each in rungs if each[stage][0]), None)
        if not own:
            continue
        lines.append(own)
        changed = str(changes(stage)) if stage.before else ""
        number = group.label(own, link(stage.number, stage.folder, folder))
        table.append([number, *head_of(group, own, folder)[1:],
                      *cells_of_rung(group, stage, own, zip(rungs, cells)), changed])
        if stage.before != above:
            others.append(f"{stage.number} with {stage.before.number}")
    what = (f"A line has the {group.time_name.lower()}, how many times as fast it is as the line "
            "above, and its share of peak. Where no difference is seen, ≈ 1 stands.")
    if others:
        what += f" Compared are {', '.join(others)}."
    growth = picture(results.plots / "growth.svg", "Time over each option, for each stage", folder)
    return "\n\n".join(filter(None, [
        picture(results.plots / "ladder.svg",
                "Time of each stage and step, and what it would be at peak", folder),
        block(results, group, Table(["", MOVE, "threads", *heads, "changed lines"], table),
              what, lines, folder, stages),
        growth and "How the time grows with each option, while the others stay:", growth]))


def cells_of_rung(group, stage, own, places):
    """A program's time, gain and share of peak in each of (rungs, cell), with its threads there."""
    for rungs, cell in places:
        line, above = rungs[stage]
        yield from (group.number(group.ladder.time, line or own, cell),
                    gain(group, line, above, cell), group.share(line or own, cell))


def roofline(results, folder):
    return picture(results.plots / "roofline.svg",
                   "The phases of each program under the machine's roofs", folder)


def gain(group, line, above, cell, with_interval=False):
    """How many times as fast as the line above."""
    ratio = above and line and group.ratio(line, above, cell)
    if not ratio:
        return Cell()
    if with_interval or ratio.pairs == 1:
        return Cell(ratio.text)
    if not ratio.is_seen:
        return Cell("≈ 1")
    return Cell(ratio.short, "".join(group.marks(each, cell) for each in (line, above)))


def measured(results, stage):
    """All cells of the grid. Of a step, and of what has run only with them, time and gain there."""
    if not results:
        return "Not measured yet."
    in_steps = stage.is_step or stage.name not in {name for name, _ in results.grid.lines}
    group = (results.steps if in_steps else results.grid).with_most_threads()
    line = next((line for line in group.lines if line[0] == stage.name), None)
    if not line:
        return unmeasured(results, stage).format("it").removeprefix("it: ")
    said = f"{group.heading}; {group.repeats([line])}"
    if in_steps:
        table = table_of_step(group, stage, line)
    else:
        table = table_of_grid(group, line)
        shown = [group.time_name]
        if line[1] > 1:
            shown[0] += f" with {line[1]} threads"
        if group.has_speedup(line):
            shown.append(f"speedup over {group.baseline[0]}")
        if not stage.ladder.skips(stage.name):
            shown.append("share of peak")
        said = f"{', '.join(shown)}; {said}"
    if line[0] in group.changed:
        said += " of earlier sources"
    said = "; ".join([said[:1].upper() + said[1:], *table.legend])
    return f"{said}.\n\n{table}"


def table_of_step(group, stage, line):
    above = group.rungs(group.cells[-1])[stage][1]
    over = f"over {above[0].split('_')[0]}" if above else "gain"
    return Table(["", f"time ({group.unit})", over, "peak"], [
        [cell_name(group.ladder, cell), group.number(group.ladder.time, line, cell),
         gain(group, line, above, cell, with_interval=True), group.share(line, cell)]
        for cell in group.cells if group.time(line, cell) and group.time(above or line, cell)])


def table_of_grid(group, line):
    """A column for each value of the first axis, a line for each of the last."""
    names = [axis["option"] for axis in group.ladder.axes]
    pages = sorted({cell[:-1] for cell in group.cells})
    heads = [f"{names[0]} {page[0]}" if page else group.label(line).text for page in pages]
    lines = []
    for last in sorted({cell[-1:] for cell in group.cells}):
        found = (group.all_of(line, page + last) for page in pages)
        lines.append([str(*last) or "each run", *found])
    return Table([names[-1] if names else "", *heads], lines)


def counted(stage):
    """What was counted of a CUDA stage, for its README: a line for each cell."""
    frame = counts.read(stage)
    if frame.empty:
        return "Not counted yet."
    found = counts.summed(frame, "cell").drop(columns="launches")
    options = re.findall(r"(\w+) \d+", found.index[0])
    found.index = found.index.str.replace(r"\w+ (\d+)", r"\1", regex=True)
    return str(Table([", ".join(options), *found], found.itertuples(name=None)))


def batch_time(group, stage, name):
    """The µs that a batch of a stage takes in a cell of this name, or None."""
    cells = {cell_name(group.ladder, cell): cell for cell in group.cells} if group else {}
    time = name in cells and group.time((stage.name, 0), cells[name])
    if not time:
        return None
    run = dict(zip(group.axes, cells[name])) | group.settings
    return time * 1e6 / group.ladder.units(run)


def predictions(results, folder):
    """A batch of each CUDA program by what is counted, as measured, and how many times as long."""
    ladder = results.ladder
    gpu = find_gpu(ladder, results.folder)
    its = read(gpu, ladder) if gpu else None
    group = its.steps if its else None
    heads = []
    lines = []
    frames = {stage: frame for stage in ladder.stages if len(frame := counts.read(stage))}
    for stage, frame in frames.items():
        heads = []
        is_changed = group and stage.name in group.changed
        line = [Cell(link(stage.name, stage.folder, folder), "Δ" if is_changed else "")]
        for name, row in counts.summed(frame, "cell").iterrows():
            predicted = row["µs predicted"]
            time = batch_time(group, stage, name)
            heads += [f"{name}: predicted (µs)", "measured (µs)", "error"]
            line += [predicted, "", ""]
            if time:
                line[-2:] = three_digits(time), f"{time / float(predicted.replace(',', '')):.2f}×"
        lines.append(line)
    said = f"Measured on {group.results.machine}." if group else "No GPU has run them yet."
    return f"{said}\n\n{Table(['', *heads], lines)}"


def paper(results, folder):
    return "\n\n".join([
        picture(results.plots / "paper.svg", "The paper's times, and ours", folder),
        f"Dashed: the paper's. {results.grid.heading}; on {results.machines(folder)}."])


def tutorial(results, folder):
    """ns a multiply-add, by the paper's serial times and by the loops that it may have had."""
    path = results.folder / "tutorial.csv"
    if not path.exists():
        return "Not measured yet."
    ladder = results.ladder
    settings = {ladder.column(option): value for option, value in ladder.settings.items()}
    paper = pandas.read_csv(ladder.folder / "paper.csv").assign(**settings)
    paper = paper[paper["stage"] == ladder.toml["baseline"]]
    times = 2e9 * paper[ladder.time] / paper.apply(ladder.operations, axis="columns")
    times = times.groupby(paper["hidden"]).mean()
    frame = rows.read_rows(path, ladder)
    lines = []
    for hidden, runs in frame.groupby("hidden"):
        ours = 2 / runs.groupby("stage")["gflops"].mean()
        lines.append([str(hidden), *map(three_digits, (times[hidden], *ours))])
    heads = ["hidden", "the paper", *(f"`-{name[-2:]}`" for name in sorted({*frame["stage"]}))]
    said = f"ns a multiply-add, the mean over the batches; ours on {results.machine}."
    return f"{Table(heads, lines)}\n\n{said}"


def update(path, name, make):
    """Puts what `make()` says between the markers of this name of a file, if it has them."""
    old = rows.read(path) if path.exists() else ""
    markers = [MARKER.format(name, which) for which in ("begin", "end")]
    begin, end = map(old.find, markers)
    if begin == end == -1:
        return
    if any(old.count(marker) != 1 for marker in markers) or begin > end:
        fail(f"{path}: expected '{markers[0]}' and, below it, '{markers[1]}', each once")
    new = f"{old[:begin]}{markers[0]}\n{make()}\n{old[end:]}"
    if new != old:
        rows.write(path, new)
