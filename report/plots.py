"""The plots of a ladder's results."""

import matplotlib.pyplot as plt
import pandas

from bench import rows
from report import frames, roofline, tables, words
from report.look import INK, MARKERS, log_axis, place, save

DASHED = "the paper: "  # begins the name of a line of its figures


def answer(frame, cell, machine):
    """The fastest program of the front page's frame over the baseline, in words."""
    gains = frame[("speedup", cell)].dropna()
    if gains.empty:
        return "no speedup is known"
    best = gains.idxmax()
    return f"{best.title} is {words.three_digits(gains[best])} times as fast as " \
           f"{machine.ladder.toml['baseline']}"


def front(machine):
    """The picture of the front page's table: each program's speedup in the larger cell."""
    frame, cells, _ = tables.front(machine)
    cell = cells[-1]
    gains = frame[("speedup", cell)].dropna()
    figure, panel = plt.subplots(figsize=(7.2, 0.7 + 0.3 * len(gains)), layout="constrained")
    for y, (program, gain) in enumerate(gains.items()):
        panel.barh(y, gain - 1, left=1, height=0.6, color=place(program.name)[1])
        time = 1e3 * frame["epoch_s", cell][program]
        panel.text(1.05 * gain, y, f"{words.times(gain)}, {words.three_digits(time)} ms",
                   va="center")
    panel.set_yticks(range(len(gains)), [program.title for program in gains.index])
    panel.set_ylim(len(gains) - 0.5, -0.5)
    panel.set_xlim(1, 8 * panel.get_xlim()[1])
    baseline = machine.ladder.toml["baseline"]
    best = gains.idxmax()
    panel.set(title=f"{best.title}: {gains[best]:,.0f} times {baseline}",
              xlabel=f"times as fast as {baseline}, {cell}")
    log_axis(panel, "x")
    panel.grid(visible=False, axis="y")
    return figure


def ladder(machine, on_gpu):
    """The time of each step of the CPU or the GPU in a cell, beside the one before and the peak."""
    runs = machine.of(machine.best_kind)
    found = frames.best(machine, frames.cells(machine, runs))
    cell = tables.shared_cells(machine, found)[-1]
    lines = {stage: pair for stage, pair in tables.rungs(machine, found, cell).items()
             if pair[0] and stage.is_gpu == on_gpu}
    figure, panel = plt.subplots(figsize=(7.2, 1.4 + 0.25 * len(lines)), layout="constrained")
    panel.set_ylim(len(lines) - 0.5, -0.5)
    panel.set_yticks(range(len(lines)), [stage.name for stage in lines])
    unit, scale = tables.unit_of(found, machine.ladder.time)
    row_above = None
    for y, (stage, (line, above)) in enumerate(lines.items()):
        here = found[stage.name, cell]
        time = scale * here[machine.ladder.time]
        start = time
        if above:
            start = scale * found[above[0], cell][machine.ladder.time]
        draw_rung(panel, y, stage, time, start, here["share"])
        gain = tables.gain(machine, runs, line, above, cell, row_above)
        row_above = stage.name
        said = f"{words.three_digits(time)} {unit}" + (f", {gain}" if gain else "")
        panel.text(1.02, y, said, va="center", transform=panel.get_yaxis_transform())
    panel.tick_params(axis="y", length=0)
    panel.grid(False)
    panel.spines["left"].set_visible(False)
    panel.use_sticky_edges = False  # the bars would leave no margin
    panel.margins(x=0.06)
    panel.set_xlabel(f"time ({unit}), {words.cell_name(machine.ladder, cell)}")
    log_axis(panel, "x")
    figure.supxlabel("A bar begins at the time of the row above, or of the program that it is\n"
                     "compared with. Hatched: slower. An upright line: the time at peak.",
                     fontsize="medium")
    return figure


def draw_rung(panel, y, stage, time, start, share):
    """A row of the picture: a bar from the other's time to its own, and its time at peak."""
    number, colour = place(stage.name)
    panel.barh(y, start - time, left=time, height=0.6, color=colour, alpha=0.5,
               hatch="///" if time > start else "")
    if share == share:
        panel.plot([time * share] * 2, [y - 0.5, y + 0.5], color=INK, linewidth=1.3)
    panel.plot(time, y, marker=MARKERS[number % len(MARKERS)], color=colour, markersize=6)


# --- lines over an option ---


def lines(axis, table, x, y, log):
    """Draws a line of {(stage, x): y} for each stage. `log` names the logarithmic axes."""
    for name, points in table.groupby(level=0):
        is_other = name.startswith(("peer_", DASHED))
        axis.plot(points.index.droplevel(0), points, color=place(name.removeprefix(DASHED))[1],
                  marker="o", markersize=2.5, linestyle="--" if is_other else "-")
    axis.set(xlabel=x, ylabel=y)
    log_axis(axis, log)


def label_ends(axis, table):
    """Names the lines of a finished panel at their ends, one above another where they meet."""
    axis.get_ylim()  # from here on the scale of transData is right
    to_panel = axis.transData + axis.transAxes.inverted()
    ends = sorted((to_panel.transform((points.index[-1][1], points.iloc[-1]))[1], name)
                  for name, points in table.groupby(level=0))
    free = 0
    for end, name in ends:
        free = max(end, free)
        text = name.removeprefix(DASHED)
        text = text.removeprefix("peer_") if text.startswith("peer_") else text.split("_")[0]
        axis.text(1.02, free, text, transform=axis.transAxes, fontsize=7, va="center",
                  color=place(name.removeprefix(DASHED))[1])
        free += 0.06


def panels(count, **options):
    """A figure of panels side by side, three in a row, and those that are needed."""
    height = -(-count // 3)
    figure, axes = plt.subplots(height, 3, squeeze=False, layout="constrained",
                                figsize=(8, 2.7 * height), **options)
    for axis in axes.flat[count:]:
        axis.set_axis_off()
    return figure, axes.flat[:count]


def growth_base(ladder):
    """{column: value} of what stays as it is while one option grows."""
    growth = ladder.toml["growth"]
    return {ladder.column(option): growth["base"].get(option, ladder.settings.get(option))
            for option in {**growth["values"], **growth["base"]}}


def growth_curve(machine, column, value):
    """The median of a value by stage and `column`, while the others are the base's. But over the
    threads themselves, the runs with most threads count."""
    base = growth_base(machine.ladder)
    runs = machine.runs[machine.runs["kind"] == "growth"]
    if column == "threads":
        runs = runs[runs["threads"] > 0]
    else:
        most = runs.groupby(["stage", *base])["threads"].transform("max")
        runs = runs[runs["threads"] == most]
    runs = frames.at(runs, {name: kept for name, kept in base.items() if name != column})
    return runs.groupby(["stage", column])[value].median()


def growth(machine):
    """The time against each option of [growth], and the threads, while the others are the base's;
    with more epochs the loss, and the accuracy over the time of the fastest for each size."""
    ladder = machine.ladder
    values = ladder.toml["growth"]["values"]
    curves = [(column, ladder.time) for column in (*map(ladder.column, values), "threads")]
    if "epochs" in values:
        curves.append(("epochs", "final_loss"))
    figure, axes = panels(len(curves) + ("epochs" in values))
    shown = []
    for axis, (column, value) in zip(axes, curves):
        is_time = value == ladder.time
        if is_time and axis is not axes[0]:
            axis.sharey(axes[0])
        shown.append(growth_curve(machine, column, value))
        lines(axis, shown[-1], column.replace("_", " "),
              "time (s)" if is_time else "final loss", "xy" if is_time else "")
    for axis, table in zip(axes, shown):
        label_ends(axis, table)
    if "epochs" in values:
        accuracy(machine, axes[-1])
    figure.suptitle("The others are " + ", ".join(
        f"{name} {value}" for name, value in growth_base(ladder).items()))
    return figure


def accuracy(machine, axis):
    """What more epochs gain: accuracy over the time of the fastest, a line for each size."""
    size = machine.axes[-1]
    base = {name: value for name, value in growth_base(machine.ladder).items()
            if name not in ("epochs", size)}
    runs = frames.at(machine.runs, base | {"kind": "growth"})
    runs = runs[runs["epochs"] > 1]
    sizes = runs[size].nunique()
    runs = runs.groupby("stage").filter(lambda one: one[size].nunique() == sizes)
    best = runs.groupby([size, "epochs"])[[machine.ladder.time, "test_accuracy"]].min()
    for each, curve in best.groupby(level=0):
        axis.plot(*curve.T.to_numpy(), "o-", color=INK, markersize=3, linewidth=1)
        axis.annotate(f"{each}", curve.iloc[-1], xytext=(0, 4), fontsize=7, ha="center",
                      textcoords="offset points")
    axis.set(xlabel="time of the fastest (s)", ylabel=f"test accuracy with {size} units")
    log_axis(axis, "x")


def paper(machine):
    """The paper's times beside this machine's: a panel for each value of the first axis."""
    ladder = machine.ladder
    theirs = tables.paper(ladder)
    runs = machine.of("grid")
    runs = runs[runs["stage"] <= theirs["stage"].max()]
    ours = pandas.DataFrame(frames.best(machine, frames.cells(machine, runs)).values())
    theirs["stage"] = DASHED + theirs["stage"]
    both = pandas.concat([ours, theirs])
    page, column = machine.axes
    first, last = ladder.axes
    figure, axes = panels(len(first["values"]), sharey=True)
    shown = []
    for axis, value in zip(axes, first["values"]):
        here = both[both[page] == value].set_index(["stage", column])[ladder.time].dropna()
        here = here.sort_index()
        lines(axis, here, f"{last['name']}, {first['option']} {value}", "time (s)", "xy")
        shown.append(here)
    for axis, here in zip(axes, shown):
        label_ends(axis, here)
    return figure


def epochs(machine):
    """Time, throughput and accuracy of each epoch, by program."""
    frame = rows.read_rows(machine.folder / "epochs.csv", machine.ladder,
                           ["stage", "device", "threads", "dataset", *rows.EPOCHS])
    settings = machine.settings("grid")
    count = frame.groupby("run")["epoch"].transform("size")
    frame = frame[count == settings.get("epochs", count)]  # none that was interrupted
    shared = {name: value for name, value in settings.items() if name in frame}
    frame = frames.usual(frame, shared)
    figure, axes = panels(3)
    for axis, (column, factor, title, log) in zip(axes, (
            ("epoch_s", 1, "time of an epoch (s)", "y"),
            ("samples_per_s", 1 / 1000, "thousand images a second", "y"),
            ("test_accuracy", 100, "test accuracy (%)", ""))):
        points = frame.groupby(["stage", "epoch"])[column].median() * factor
        lines(axis, points, "epoch", title, log)
        axis.xaxis.get_major_locator().set_params(integer=True)
        label_ends(axis, points)
    return figure


# --- which plots a machine has ---


def write(cpu, gpu):
    """Writes the plots of the CPU's machine and of the GPU's, each into its own folder."""
    for machine, on_gpu in ((cpu, False), (gpu, True)):
        if machine.has(on_gpu):
            save(ladder(machine, on_gpu),
                 machine.folder / "plots" / f"{'gpu' if on_gpu else 'cpu'}.svg")
    found = {}
    if (cpu.folder / "epochs.csv").exists():
        found["epochs"] = epochs(cpu)
    if (cpu.runs["kind"] == "growth").any():
        found["growth"] = growth(cpu)
    if roofline.is_known(cpu):
        found["roofline"] = roofline.roofline(cpu)
    for name, figure in found.items():
        save(figure, cpu.folder / f"plots/{name}.svg")
    if (gpu.ladder.folder / "PAPER.md").exists() and len(tables.paper(gpu.ladder)):
        save(paper(gpu), gpu.folder / "plots/paper.svg")
