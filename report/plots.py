"""The plots of a ladder's results."""

import matplotlib.pyplot as plt
import pandas

from bench import rows
from report import blocks, roofline
from report.group import PAPER, is_peer
from report.look import INK, MARKERS, log_axis, place, save

def stages(results):
    """The picture of the first page's table: how many times as fast each stage is, in one cell."""
    group, cell, lines = blocks.lines_of_front(results)
    figure, panel = plt.subplots(figsize=(7.2, 0.7 + 0.3 * len(lines)), layout="constrained")
    for y, line in enumerate(lines):
        gain = group.time(group.baseline, cell) / group.time(line, cell)
        panel.barh(y, gain - 1, left=1, height=0.6, color=place(line[0])[1])
        said = f"{group.number(group.ladder.time, line, cell).text} {group.unit}"
        if group.machines[line] != group.machines[group.baseline]:
            said += " on the GPU"
        elif line != group.baseline:
            said += f", {group.speedup(line, cell).text}"
        panel.text(1.05 * gain, y, said, va="center")
    panel.set_yticks(range(len(lines)), [str(group.label(line)) for line in lines])
    panel.set_ylim(len(lines) - 0.5, -0.5)
    panel.set_xlim(1, 6 * panel.get_xlim()[1])
    best = group.best(cell)
    panel.set(title=f"{best[0]}: {group.gain(best, cell)}", xlabel="times as fast as "
              f"{group.baseline[0]}, {blocks.cell_name(group.ladder, cell)}")
    log_axis(panel, "x")
    panel.grid(visible=False, axis="y")
    return figure


def ladder(results):
    """The time of each stage and step in a cell, beside the one before and the ceiling."""
    group = results.steps.with_most_threads()
    cell = group.cells[-1] if results.groups["steps"] else blocks.step_cell(group)
    before = {line: above or line for line, above in group.rungs(cell).values() if line}
    peer = group.fastest_peer()
    if peer and group.time(peer, cell):
        before[peer] = peer
    figure, panel = plt.subplots(figsize=(7.2, 1.4 + 0.25 * len(before)), layout="constrained")
    panel.set_ylim(len(before) - 0.5, -0.5)
    panel.set_yticks(range(len(before)), [str(group.label(line)) for line in before])
    for y, (line, other) in enumerate(before.items()):
        draw_rung(panel, y, group, cell, line, other)
    panel.tick_params(axis="y", length=0)
    panel.grid(False)
    panel.spines["left"].set_visible(False)
    panel.use_sticky_edges = False  # the bars would leave no margin
    panel.margins(x=0.06)
    panel.set_xlabel(f"{group.time_name}, {blocks.cell_name(group.ladder, cell)}")
    log_axis(panel, "x")
    figure.supxlabel("A bar begins at the time of the line above, or of its origin. Where it is\n"
                     "hatched, the line is slower. An upright line is the time at peak.",
                     fontsize="medium")
    return figure


def draw_rung(panel, y, group, cell, line, other):
    """A line of the picture: a bar from the other's time to its own, its time at peak, and both in
    numbers. The first of a ladder, and a peer, are compared with themselves."""
    time = group.scale * group.time(line, cell)
    number, colour = place(line[0])
    start = group.scale * group.time(other, cell)
    panel.barh(y, start - time, left=time, height=0.6, color=colour, alpha=0.5,
               hatch="///" if time > start else "")
    part = group.part_of_ceiling(line, cell)
    if part:
        panel.plot([time * part] * 2, [y - 0.5, y + 0.5], color=INK, linewidth=1.3)
    panel.plot(time, y, marker=MARKERS[number % len(MARKERS)], color=colour, markersize=6,
               markerfacecolor="white" if is_peer(line) else colour)
    said = f"{group.number(group.ladder.time, line, cell)} {group.unit}"
    gain = blocks.gain(group, line, other, cell).text if other != line else ""
    panel.text(1.02, y, f"{said}, {gain}" if gain else said, va="center",
               transform=panel.get_yaxis_transform())


def lines(axis, table, x, y, log):
    """Draws a line of {(stage, x): y} for each stage. `log` names the logarithmic axes."""
    for name, points in table.groupby(level=0):
        axis.plot(points.index.droplevel(0), points, color=place(name)[1], marker="o",
                  markersize=2.5, linestyle="--" if is_peer([name]) or PAPER in name else "-")
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
        text = name.removeprefix("peer_") if is_peer([name]) else name.split("_")[0]
        axis.text(1.02, free, text, transform=axis.transAxes, color=place(name)[1], fontsize=7,
                  va="center")
        free += 0.06


def panels(count, **words):
    """A figure of panels side by side, three in a row, and those that are needed."""
    height = -(-count // 3)
    figure, axes = plt.subplots(height, 3, squeeze=False, layout="constrained",
                                figsize=(8, 2.7 * height), **words)
    for axis in axes.flat[count:]:
        axis.set_axis_off()
    return figure, axes.flat[:count]


def growth(results):
    """The time against each option of [growth], and the threads, while the others are the base's;
    and what more epochs gain: the loss, and the accuracy over time of the fastest for each size."""
    ladder = results.ladder
    frame = results.growth.fillna({"threads": 0})  # 0 on a GPU
    base = ladder.toml["growth"]["base"]
    values = ladder.toml["growth"]["values"]
    others = {ladder.column(option): base.get(option, ladder.settings.get(option))
              for option in {*values, *base}}
    most = frame["threads"] == frame.groupby(["stage", *others])["threads"].transform("max")

    def along(*columns):
        kept = frame[most if columns != ("threads",) else frame["threads"] > 0]
        for name in others.keys() - {*columns}:
            kept = kept[kept[name] == others[name]]
        return kept

    curves = [(column, ladder.time) for column in (*map(ladder.column, values), "threads")]
    if "epochs" in values:
        curves.append(("epochs", "final_loss"))
    figure, axes = panels(len(curves) + ("epochs" in values))
    shown = []
    for axis, (column, value) in zip(axes, curves):
        is_time = value == ladder.time
        if is_time and axis is not axes[0]:
            axis.sharey(axes[0])
        shown.append(along(column).groupby(["stage", column])[value].median())
        lines(axis, shown[-1], column.replace("_", " "),
              results.grid.time_name if is_time else "final loss", "xy" if is_time else "")
    for axis, table in zip(axes, shown):
        label_ends(axis, table)
    if "epochs" in values:
        size = ladder.column(ladder.axes[-1]["option"])
        runs = along("epochs", size).query("epochs > 1")
        best = runs.groupby("stage").filter(lambda one: {*one[size]} == {*runs[size]})
        best = best.groupby([size, "epochs"])[[ladder.time, "test_accuracy"]].min()
        for each, curve in best.groupby(level=0):
            axes[-1].plot(*curve.T.to_numpy(), "o-", color=INK, markersize=3, linewidth=1)
            axes[-1].annotate(f"{each}", curve.iloc[-1], xytext=(0, 4), fontsize=7, ha="center",
                              textcoords="offset points")
        axes[-1].set(xlabel="time of the fastest (s)", ylabel=f"test accuracy with {size} units")
        log_axis(axes[-1], "x")
    figure.suptitle("The others are " + ", ".join(
        f"{option} {base.get(option, ladder.settings.get(option))}" for option in values))
    return figure


def paper(results):
    """The times of the paper beside ours: a panel for each value of the first axis."""
    group = results.grid.without_steps().with_most_threads()
    last = max(name for name, _ in group.paper)
    ours = [line for line in group.lines if line[0] < last]
    axes = group.ladder.axes
    figure, found = panels(len(axes[0]["values"]))
    for axis, page in zip(found, axes[0]["values"]):
        table = pandas.Series({(line[0], cell[-1]): group.time(line, cell)
                               for line in (*group.paper, *ours) for cell in group.cells
                               if cell[0] == page and group.time(line, cell)})
        lines(axis, table, f"{axes[-1]['name']}, {axes[0]['option']} {page}", group.time_name, "xy")
        if axis is not found[0]:
            axis.sharey(found[0])
        label_ends(axis, table)
    return figure


def epochs(results):
    group = results.grid.without_steps().with_most_threads()
    frame = rows.read_rows(results.folder / "epochs.csv", results.ladder,
                           ["stage", "device", "threads", "dataset", *rows.EPOCHS])
    runs = frame.groupby(["run"])["epoch"].transform("size")
    frame = frame[runs == group.settings.get("epochs", runs)]  # none that was interrupted
    for name, value in group.settings.items():
        frame = frame[frame[name] == value] if name in frame else frame
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


def write(results):
    found = {"ladder": ladder(results)}
    if (results.folder / "epochs.csv").exists():
        found["epochs"] = epochs(results)
    if results.grid.paper and (results.ladder.folder / "PAPER.md").exists():
        found["paper"] = paper(results)
    moved = [work.get("bytes") for work in results.ladder.toml["work"].values()]
    if results.roofs and moved and all(moved):
        found["roofline"] = roofline.roofline(results)
    if len(results.growth):
        found["growth"] = growth(results)
    for name, figure in found.items():
        save(figure, results.plots / f"{name}.svg")
