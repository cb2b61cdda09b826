"""The plots of a ladder's results."""

import matplotlib.pyplot as plt
import pandas

from bench import ladders, rows
from report import frames, roofline, tables, words
from report.look import INK, colour, key, log_axis, save

DASHED = "the paper: "  # begins the name of a line of its figures


# --- the front page, and a ladder's ---


def answer(frame, cell, machine):
    """The fastest program of the front page's frame over the baseline, in words."""
    gains = frame[("speedup", cell)].dropna()
    if gains.empty:
        return "no speedup is known"
    best = gains.idxmax()
    return f"{best.title} is {words.three_digits(gains[best])} times as fast as " \
           f"{machine.ladder.toml['baseline']}"


def front(machine):
    """The picture of the front page's table: each program's speedup in the larger cell. None where
    no speedup is known."""
    frame, cells, _ = tables.front(machine)
    cell = cells[-1]
    gains = frame[("speedup", cell)].dropna()
    if gains.empty:
        return None
    colours = [colour(machine.ladder, program.name) for program in gains.index]
    figure, panel = plt.subplots(figsize=(6, 0.7 + 0.3 * len(gains)), layout="constrained")
    panel.barh(range(len(gains)), gains - 1, left=1, height=0.6, color=colours)
    for y, (program, gain) in enumerate(gains.items()):
        time = 1e3 * frame["epoch_s", cell][program]
        panel.text(1.05 * gain, y, f"{words.times(gain)}, {words.three_digits(time)} ms",
                   va="center")
    panel.set_yticks(range(len(gains)), [program.title for program in gains.index])
    panel.set_ylim(len(gains) - 0.5, -0.5)
    panel.set_xlim(1, 12 * panel.get_xlim()[1])
    baseline = machine.ladder.toml["baseline"]
    best = gains.idxmax()
    panel.set(title=f"{best.title}: {gains[best]:,.0f} times {baseline}",
              xlabel=f"times as fast as {baseline}, {cell}")
    panel.legend(handles=key(colours), loc="upper right")
    log_axis(panel, "x")
    panel.grid(visible=False, axis="y")
    return figure


def rungs(machine, on_gpu):
    """(the runs, the best of each cell, the cell that is drawn, {stage: (its line, that of the one
    before)} on the CPU or the GPU)"""
    runs = machine.of(machine.best_kind)
    found = frames.best(machine, frames.cells(machine, runs))
    cell = tables.shared_cells(machine, found)[-1]
    lines = {stage: pair for stage, pair in tables.rungs(machine, found, cell).items()
             if pair[0] and stage.is_gpu == on_gpu}
    return runs, found, cell, lines


def of_ladder(machine, on_gpu):
    """What its picture shows, in words."""
    _, found, cell, lines = rungs(machine, on_gpu)
    unit, scale = tables.unit_of(found, machine.ladder.time)
    time = {stage: scale * found[stage.name, cell][machine.ladder.time] for stage in lines}
    first, fastest = next(iter(time)), min(time, key=time.get)
    return (f"From {first.name}, {words.three_digits(time[first])} {unit}, to {fastest.name}, "
            f"{words.three_digits(time[fastest])} {unit}: {words.cell_name(machine.ladder, cell)}")


def ladder(machine, on_gpu):
    """The time of each step of the CPU or the GPU in a cell, beside the one before and the peak."""
    runs, found, cell, lines = rungs(machine, on_gpu)
    figure, panel = plt.subplots(figsize=(6.4, 1.4 + 0.25 * len(lines)), layout="constrained")
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
    its = colour(stage.ladder, stage.name)
    panel.barh(y, start - time, left=time, height=0.6, color=its, alpha=0.5,
               hatch="///" if time > start else "")
    if share == share:
        panel.plot([time * share] * 2, [y - 0.5, y + 0.5], color=INK, linewidth=1.3)
    panel.plot(time, y, "o", color=its, markersize=3.5 if stage.is_step else 6)


# --- lines over an option ---


def lines(ladder, axis, table, x, y, log):
    """Draws a line of {(stage, x): y} for each stage. `log` names the logarithmic axes."""
    for name, points in table.groupby(level=0):
        is_other = name.startswith(("peer_", DASHED))
        axis.plot(points.index.droplevel(0), points, marker="o", markersize=2.5,
                  color=colour(ladder, name.removeprefix(DASHED)),
                  linewidth=0.8 if is_other else 1.5, linestyle="--" if is_other else "-")
    axis.set(xlabel=x, ylabel=y)
    log_axis(axis, log)


def label_ends(ladder, axis, table):
    """Names the lines of a finished panel at their ends, one above another where they meet. Of the
    libraries, the fastest and the slowest have room."""
    axis.get_ylim()  # from here on the scale of transData is right
    to_panel = axis.transData + axis.transAxes.inverted()
    ends = sorted((to_panel.transform((points.index[-1][1], points.iloc[-1]))[1], name)
                  for name, points in table.groupby(level=0))
    peers = [each for each in ends if each[1].startswith("peer_")]
    named = [each for each in ends if each not in peers[1:-1]]
    free = 0
    for above, (end, name) in zip(reversed(range(len(named))), named):
        free = max(min(end, 1 - 0.07 * above), free)
        text = name.removeprefix(DASHED)
        text = text.removeprefix("peer_") if text.startswith("peer_") else text.split("_")[0]
        axis.text(1.02, free, text, transform=axis.transAxes, fontsize=8, va="center",
                  color=colour(ladder, name.removeprefix(DASHED)))
        free += 0.07


def panels(count, **options):
    """A figure of panels side by side, two in a row, and those that are needed."""
    height = -(-count // 2)
    figure, axes = plt.subplots(height, 2, squeeze=False, layout="constrained",
                                figsize=(6.4, 0.3 + 2.8 * height), **options)
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


def growth_curves(machine):
    """{column: growth_curve() of the time} over each option of [growth] and the threads, where it
    has more than two points."""
    columns = *map(machine.ladder.column, machine.ladder.toml["growth"]["values"]), "threads"
    found = {column: growth_curve(machine, column, machine.ladder.time) for column in columns}
    return {column: without_middle(curve) for column, curve in found.items()
            if curve.groupby(level=0).size().max() > 2}


def without_middle(curve):
    """A curve by stage without the libraries between the one that ends fastest and the slowest."""
    last = curve.groupby(level=0).last().sort_values()
    peers = [name for name in last.index if name.startswith("peer_")]
    return curve.drop(peers[1:-1], level=0)


def of_growth(machine):
    """What its picture shows, in words: how the time of the fastest program grows."""
    curves = growth_curves(machine)
    stages = next(iter(curves.values()))
    stages = stages[~stages.index.get_level_values(0).str.startswith("peer_")]
    fastest = stages.groupby(level=0).last().idxmin()
    said = []
    for column, curve in curves.items():
        if fastest in curve.index:
            own = curve[fastest]
            longer = own.iloc[-1] / own.iloc[0]
            said.append(f"{words.three_digits(max(longer, 1 / longer))} times as "
                        f"{'slow' if longer > 1 else 'fast'} with "
                        f"{own.index[-1] / own.index[0]:,.0f} times the {words.name_of(column)}")
    return f"{fastest} is {words.listed(said)}"


def growth(machine):
    """The time against each option of [growth], and the threads. The others are the base's."""
    ladder = machine.ladder
    curves = growth_curves(machine)
    figure, axes = panels(len(curves))
    for axis, (column, curve) in zip(axes, curves.items()):
        if axis is not axes[0]:
            axis.sharey(axes[0])
        lines(ladder, axis, curve, words.name_of(column), "time (s)", "xy")
    for axis, curve in zip(axes, curves.values()):
        label_ends(ladder, axis, curve)
    figure.suptitle("How the time grows with the work")
    base = ", ".join(f"{words.name_of(name)} {value}"
                     for name, value in growth_base(ladder).items())
    said = f"In each panel one thing grows. The others stay at\n{base}."
    if any(name.startswith("peer_") for name, _ in next(iter(curves.values())).index):
        said += "\nDashed: the slowest and the fastest library."
    figure.supxlabel(said, fontsize="medium")
    return figure


def over_epochs(machine):
    """(the runs, the medians of their time and accuracy by size and epochs) of the program and the
    value of the first axis that were measured with the most numbers of epochs."""
    settings = machine.settings("grid")
    del settings["epochs"]
    runs = frames.usual(machine.runs[machine.runs["kind"] == "grid"], settings)
    axis, size = machine.axes
    place = ["stage", axis]
    most = runs.groupby(place)["epochs"].nunique().idxmax()
    runs = frames.counted(frames.at(runs, dict(zip(place, most))), [*machine.axes, "epochs"])
    return runs, runs.groupby([size, "epochs"])[[machine.ladder.time, "test_accuracy"]].median()


def of_accuracy(found):
    """What its picture shows, in words."""
    name = words.name_of(found.index.names[0])
    return words.listed([
        f"{size} {name} reach {100 * right:.1f} % in {words.three_digits(time)} s"
        for (size, _), (time, right) in found.groupby(level=0).tail(1).iterrows()])


def accuracy_over_time(found):
    """The accuracy of more and more epochs over their time. A line for each size has its name where
    it begins: lines are close to each other where they end."""
    figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
    for size, curve in found.groupby(level=0):
        axis.plot(*curve.T.to_numpy(), "o-", color=INK, markersize=3, linewidth=1)
        axis.annotate(size, curve.iloc[0], xytext=(6, -4), fontsize=8, textcoords="offset points")
    epochs = words.listed(map(str, found.index.unique("epochs").sort_values()))
    axis.set(xlabel=f"time of {epochs} epochs (s)", ylabel="test accuracy",
             title=f"Accuracy of more epochs, by {words.name_of(found.index.names[0])}")
    log_axis(axis, "x")
    return figure


def of_paper(machine):
    """The paper's times and this machine's as a frame, {(stage, axes): time}."""
    theirs = tables.paper(machine.ladder)
    runs = machine.of("grid")
    runs = runs[runs["stage"] <= theirs["stage"].max()]
    ours = pandas.DataFrame(frames.best(machine, frames.cells(machine, runs)).values())
    place = ["stage", *machine.axes]
    return tuple(each.set_index(place)[machine.ladder.time].dropna() for each in (theirs, ours))


def against_paper(machine):
    """What its picture shows, in words."""
    theirs, ours = of_paper(machine)
    gains = (theirs / ours).dropna().groupby(level=0).median()
    return ("In the median of all cells, " + words.listed([
        f"our {name.split('_')[0]} is {words.times(gain)}" for name, gain in gains.items()])
        + " as fast as the paper's")


def paper(machine):
    """The paper's times beside this machine's: a panel for each value of the first axis."""
    theirs, ours = of_paper(machine)
    both = pandas.concat([ours, theirs.rename(lambda name: DASHED + name, level=0)])
    page, _ = machine.axes
    first, last = machine.ladder.axes
    figure, axes = panels(len(first["values"]), sharey=True)
    shown = {value: both.xs(value, level=page).sort_index() for value in first["values"]}
    for axis, (value, here) in zip(axes, shown.items()):
        lines(machine.ladder, axis, here, f"{last['name']}, {first['option']} {value}", "time (s)",
              "xy")
    for axis, here in zip(axes, shown.values()):
        label_ends(machine.ladder, axis, here)
    names = {name.removeprefix(DASHED) for name in both.index.get_level_values(0)}
    figure.legend(handles=key({colour(machine.ladder, name) for name in names}),
                  loc="lower right")
    return figure


def read_epochs(machine):
    """The rows of epochs.csv of whole runs with the ladder's settings."""
    frame = rows.read_rows(machine.folder / "epochs.csv", machine.ladder,
                           ["stage", "device", "threads", "dataset", *rows.EPOCHS])
    settings = machine.settings("grid")
    count = frame.groupby("run")["epoch"].transform("size")
    frame = frame[count == settings.get("epochs", count)]  # none that was interrupted
    shared = {name: value for name, value in settings.items() if name in frame}
    return frames.usual(frame, shared)


def of_epochs(machine):
    """What its picture shows, in words."""
    frame = read_epochs(machine)
    time = frame.groupby("stage")["epoch_s"].median()
    last = frame[frame["epoch"] == frame["epoch"].max()].groupby("stage")["test_accuracy"].median()
    return (f"{time.idxmin().removeprefix('peer_')} takes {words.three_digits(time.min())} s an "
            f"epoch, {time.idxmax().removeprefix('peer_')} {words.three_digits(time.max())}; the "
            f"last accuracy is {100 * last.min():.2f} to {100 * last.max():.2f} %")


def epochs(machine):
    """Time, throughput and accuracy of each epoch, by program."""
    frame = read_epochs(machine)
    figure, axes = panels(3)
    for axis, (column, factor, title, log) in zip(axes, (
            ("epoch_s", 1, "time of an epoch (s)", "y"),
            ("samples_per_s", 1 / 1000, "thousand images a second", "y"),
            ("test_accuracy", 100, "test accuracy (%)", ""))):
        points = frame.groupby(["stage", "epoch"])[column].median() * factor
        lines(machine.ladder, axis, points, "epoch", title, log)
        axis.xaxis.get_major_locator().set_params(integer=True)
        label_ends(machine.ladder, axis, points)
    return figure


# --- which plots a machine has ---


def curves(machine):
    """{name: the figure} of what was measured beside the steps and the grid."""
    found = {}
    if (machine.folder / "epochs.csv").exists():
        found["epochs"] = epochs(machine)
    if (machine.runs["kind"] == "growth").any() and growth_curves(machine):
        found["growth"] = growth(machine)
    if roofline.is_known(machine):
        found["roofline"] = roofline.roofline(machine)
    return found


def write(cpu, gpu):
    """Writes the plots of the CPU's machine and of the GPU's, each into its own folder."""
    for machine, on_gpu in ((cpu, False), (gpu, True)):
        if machine.has(on_gpu):
            save(ladder(machine, on_gpu),
                 machine.folder / "plots" / f"{'gpu' if on_gpu else 'cpu'}.svg")
    if gpu.ladder is ladders.ladders()[0] and (figure := front(gpu)):
        save(figure, gpu.folder / "plots/front.svg")
    for name, figure in curves(cpu).items():
        save(figure, cpu.folder / f"plots/{name}.svg")
    if (gpu.ladder.folder / "PAPER.md").exists() and len(tables.paper(gpu.ladder)):
        save(paper(gpu), gpu.folder / "plots/paper.svg")
