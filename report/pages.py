"""Writes the tables and plots of the READMEs: `make report`. On a machine that has results of its
own, writes a page of those instead.

A README gets what was measured between `<!-- NAME: begin -->` and `<!-- NAME: end -->`. The pages
of the CPU's programs show one machine and those of the GPU's another, as results/reference says.
"""

import runpy
from functools import partial

import pandas

from bench import counts, ladders, process, rows
from bench.base import ROOT, fail
from bench.stage import OWN
from report import frames, plots, tables, words

MARKER = "<!-- {}: {} -->"  # a block's name, "begin" or "end"


def markdown(frame):
    """A table in Markdown. Columns of numbers stand to the right."""
    words_of = {"", "stage", tables.MOVE, "cell", "its work", "the paper"}
    align = ["left" if head in words_of else "right" for head in frame.columns]
    return frame.to_markdown(index=False, disable_numparse=True, colalign=align)


def picture(path, finding, folder, *of):
    """A picture, if it is there. For those who do not see it, what it shows is said in words."""
    return f"!{words.link(finding(*of), path, folder)}" if path.is_file() else ""


def block(*parts):
    return "\n\n".join(filter(None, parts))


def caption(machine, runs, folder):
    """What a table is of: data, settings, number of runs, machine, revision and day; then its peak,
    and which programs have changed since."""
    counted = frames.counted(runs, machine.axes)
    found = frames.cells(machine, runs)
    first = "; ".join([words.heading(machine.ladder, runs),
                       words.repeats(found) + words.disturbed(runs, counted),
                       words.origin(machine, runs)])
    record = words.link("all runs", machine.folder / "runs.csv", folder)
    return " ".join(filter(None, [
        f"{first} ({record}).", words.peaks(machine, found),
        words.other_data(machine, runs), words.changed(machine, runs)]))


# --- the front page, and a ladder's ---


def front(machine, folder):
    """The first screen: the picture, the answer in a sentence, the table."""
    frame, cells, runs = tables.front(machine)
    shown = picture(machine.folder / "plots/front.svg", plots.answer, folder, frame, cells[-1],
                    machine)
    said = (f"With {cells[-1]}, and set-up not in the time: "
            f"{plots.answer(frame, cells[-1], machine)}.")
    return block(shown, said, markdown(tables.front_table(machine, folder)),
                 caption(machine, runs.assign(epochs=1), folder), on_a_cluster(machine, folder))


def on_a_cluster(machine, folder):
    """What a batch of stages of several processes takes on 16 simulated nodes, or ""."""
    path = frames.reference("cpu") / "cluster/runs.csv"
    stages = [stage for stage in machine.ladder.stages
              if stage.declared("RUN") and not stage.is_step]
    if not stages or not path.exists():
        return ""
    cell = dict(zip(machine.axes, machine.ladder.toml["headline"][-1]))
    times = tables.on_nodes(path, cell)["us_a_batch"]
    said = [f"{words.three_digits(times[stage.name])} µs in "
            f"{words.link(stage.number, stage.folder, folder)}"
            for stage in stages if stage.name in times]
    return (f"On 16 simulated nodes, with 10 µs a message and 12.5 GB/s, a batch takes "
            f"{words.listed(said)}, at {words.cell_name(machine.ladder, [*cell.values()])}.")


def ladder(machines, folder):
    """The steps of the CPU on one machine, those of the GPU on the other, and the CPU's growth."""
    cpu = machines[0][0]
    return block(*(steps(machine, on_gpu, folder) for machine, on_gpu in machines),
                 picture(cpu.folder / "plots/growth.svg", plots.of_growth, folder, cpu))


def steps(machine, on_gpu, folder):
    absent = words.absent(
        machine, lambda each: each.is_gpu == on_gpu and not each.is_peer)
    if not machine.has(on_gpu):
        return block(*absent)
    runs = machine.of(machine.best_kind)
    runs = runs[runs["on_gpu"] == on_gpu]
    plot = machine.folder / "plots" / f"{'gpu' if on_gpu else 'cpu'}.svg"
    found = tables.steps(machine, on_gpu, folder)
    parts = [(f"With {cell}:" if machine.axes else "", markdown(frame))
             for cell, frame in found.items()]
    return block(picture(plot, plots.of_ladder, folder, machine, on_gpu), *sum(parts, ()),
                 caption(machine, runs, folder), *absent)


def cores(each, folder):
    """What each step gains on all machines that have run the steps."""
    frame = tables.cores(folder, each)
    if frame.empty:
        return ""
    return block("On other cores, what a step gains in one cell:", markdown(frame))


def study(machines, folder):
    """The cells of the headline on each machine, the steps, and the plots that it has."""
    parts = []
    for machine in dict.fromkeys(machine for machine, on_gpu in machines if machine.has(on_gpu)):
        _, cells, runs = tables.front(machine)
        said = f"With {cells[-1]}:" if machine.axes else ""
        parts += [said, markdown(tables.front_table(machine, folder)),
                  caption(machine, runs, folder)]
    cpu = machines[0][0]
    return block(picture(cpu.folder / "plots/epochs.svg", plots.of_epochs, folder, cpu),
                 *parts, ladder(machines, folder))


# --- a stage's page ---


def stage(machine, each):
    """What was measured of a stage: its grid, or the cells of a step; the times that its Makefile
    names; and of the GPU's what was counted."""
    own = machine.runs[machine.runs["stage"] == each.name]
    if own.empty:
        return block(*words.absent(machine, lambda other: other is each), counted(each))
    is_grid = (own["kind"] == "grid").any() and not each.is_step
    frame, runs = (tables.grid_table if is_grid else tables.step_table)(machine, each)
    said = caption(machine, runs, each.folder)
    if is_grid:
        said = f"A cell has {tables.parts_of_cell(machine, each)}. {said}"
    return block(markdown(frame), said, times(machine, each), counted(each))


def times(machine, each):
    """The times that a stage's Makefile names, beside those of the stage before, or ""."""
    frame, runs = tables.times_table(machine, each)
    return "" if frame.empty else block(markdown(frame), caption(machine, runs, each.folder))


def counted(each):
    """What was counted of a CUDA stage on the simulated device, or ""."""
    frame = counts.read(each)
    if frame.empty:
        return ""
    found = counts.summed(frame, "cell").drop(columns="launches").reset_index(names="cell")
    simulated = words.link("simulated device", ROOT / "sim", each.folder)
    return block(f"Counted on the {simulated}, a batch, in cycles without waits:", markdown(found))


# --- the paper's page ---


def paper(machine, folder):
    runs = machine.of("grid")
    return block(picture(machine.folder / "plots/paper.svg", plots.against_paper, folder, machine),
                 f"Dashed: the paper's. {words.heading(machine.ladder, runs)}; "
                 f"{words.origin(machine, runs)}.")


def accuracy(machine, folder):
    runs, found = plots.over_epochs(machine)
    path = machine.folder / "plots/accuracy.svg"
    plots.save(plots.accuracy_over_time(found), path)
    return block(
        picture(path, plots.of_accuracy, folder, found),
        f"{runs['stage'].iloc[0]}, batch {runs['batch'].iloc[0]}; {words.origin(machine, runs)}.")


# --- what goes where ---


def update(path, name, text):
    """Puts a text between the markers of this name of a file. `text` is called if it has them."""
    old = rows.read(path) if path.exists() else ""
    markers = [MARKER.format(name, which) for which in ("begin", "end")]
    begin, end = map(old.find, markers)
    if begin == end == -1:
        return
    if any(old.count(marker) != 1 for marker in markers) or begin > end:
        fail(f"{path}: expected '{markers[0]}' and, below it, '{markers[1]}', each once")
    new = f"{old[:begin]}{markers[0]}\n{text()}\n{old[end:]}"
    if new != old:
        rows.write(path, new)


def update_ladder(each, cpu, gpu):
    """Writes the blocks of a ladder's READMEs, and the pictures of its moves."""
    both = [(cpu, False), (gpu, True)]
    folder = each.folder
    update(folder / "README.md", "ladder", lambda: block(ladder(both, folder), cores(each, folder)))
    update(folder / "README.md", "table", lambda: study(both, folder))
    update(folder / "PAPER.md", "table", lambda: paper(gpu, folder))
    update(folder / "PAPER.md", "accuracy", lambda: accuracy(cpu, folder))
    for step in each.stages:
        drawing = step.folder / "picture.py"  # a stage's name is no module's
        if drawing.exists():
            runpy.run_path(str(drawing))["draw"](step).save(drawing.with_suffix(".svg"))
        machine = gpu if step.is_gpu else cpu
        update(step.folder / "README.md", "table", partial(stage, machine, step))


def page_of_machine(home):
    """The page of a machine's results: as the READMEs, of this machine alone."""
    parts = []
    for each in ladders.ladders():
        machine = frames.Machine(home, each)
        if machine.runs.empty:
            continue
        plots.write(machine, machine)
        both = [(machine, False), (machine, True)]
        parts.append(f"# {each.title}")
        if each is ladders.ladders()[0]:
            parts += [front(machine, home), ladder(both, home), cores(each, home)]
        else:
            parts.append(study(both, home))
    return block(*parts, "")


def list_ladders(folder):
    """The studies' page has a row for each ladder: no page names one."""
    return markdown(pandas.DataFrame([{
        "": words.link(each.name, each.folder, folder), "its work": each.title,
        "the paper": each.toml["paper"].get("cite", "")} for each in ladders.ladders()]))


def own_machine():
    """The folder of this machine's results, or of a look, if READMEs show others."""
    name = process.output(["bench/machine.sh", "--name"], cwd=ROOT).strip()
    if name in (frames.reference("cpu").name, frames.reference("gpu").name):
        return None
    found = (frames.RESULTS / each for each in (name, f"{name}-quick"))
    return next((home for home in found if [*home.glob("*/runs.csv")]), None)


def main():
    if own := own_machine():
        rows.write(own / "README.md", page_of_machine(own))
        print(f"Written to {own.relative_to(ROOT)}/README.md; the READMEs stay as they are")
        return
    first = ladders.ladders()[0]
    for each in ladders.ladders():
        print(f"{each.folder.relative_to(ROOT)}: tables and plots")
        # A reader's own stages are in no committed page.
        each.stages = [stage for stage in each.stages if stage.number < OWN]
        cpu, gpu = (frames.Machine(frames.reference(which), each) for which in ("cpu", "gpu"))
        plots.write(cpu, gpu)
        update_ladder(each, cpu, gpu)
        if each is first:
            update(ROOT / "README.md", "front", partial(front, gpu, ROOT))
    update(ROOT / "studies/README.md", "table", lambda: list_ladders(ROOT / "studies"))
