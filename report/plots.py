"""The plots of a ladder's results. What READMEs show is drawn here, as SVG: the same input gives
the same bytes. For the others, plots.js gets the numbers of their panels.

A stage keeps its colour and marker in all plots, and no other has the same colour. The markers
differ enough to tell stages apart in grey too.
"""

import colorsys
import contextlib
import functools
import io
import itertools
import math
import re
import textwrap
import zlib
from collections import defaultdict

import matplotlib
import pandas

matplotlib.use("svg")
import matplotlib.pyplot as plt

from harness import ladders, rows
from report import view

# Paler than a stage's or a peer's colour. Dark and light ones take turns, for a printer without
# colours.
PHASES = "#c3d5ea", "#90a9c6", "#ecdcb4", "#c0a878", "#e3cfe6", "#b294b8"
# Those of the stages, by number, and the duller ones of the peers. All can be seen on white and on
# black.
STAGES = ("#76808c", "#0b78d1", "#d1620a", "#159a52", "#c3367f", "#8757d6", "#d12c2c", "#0d9aa8",
          "#a2790b", "#5b8a12", "#a3574a", "#4d63c9")
PEERS = ("#6f8fae", "#b08968", "#6e9f86", "#b58ba5", "#978fb8", "#b87f7f", "#6fa0a6", "#a39768",
         "#8a9c6b", "#9a8478", "#7f8cc4", "#84845c")
INK, GROUND, GRID = "#1f2328", "#ffffff", "#dddddd"
# What they are on a dark page: a browser asks the picture, also where it is an image of a page.
DARK = "".join(f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
               for light, dark in ((INK, "#e6edf3"), (GROUND, "#0d1117"), (GRID, "#30363d"))
               for kind in ("fill", "stroke"))
MARKERS = "osD^vPX*<>hp"

plt.rcParams.update({
    "svg.hashsalt": "report",  # ids that do not change from run to run
    "svg.fonttype": "none",  # text that can be searched
    "font.family": "DejaVu Sans",
    "font.size": 9,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color",
                     "ytick.color"), INK),
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.markersize": 5,
    "figure.facecolor": "white",
    "text.parse_math": False,  # a $ in a name stays a $
})


def save(figure, path):
    """Writes a figure, for light and dark pages, if there is one and it can be written. The same
    plot is the same text: without a date and a version."""
    with contextlib.suppress(OSError):
        if not figure or path.is_symlink():  # the results that it showed may be gone
            path.unlink()
    if not figure:
        return
    picture = io.StringIO()
    figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": "Matplotlib"},
                   bbox_inches="tight", facecolor=figure.get_facecolor())
    plt.close(figure)
    if rows.attempt(rows.target, path):
        style = f"<style>@media (prefers-color-scheme: dark){{{DARK}}}</style>"
        text = picture.getvalue().replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
        text = re.sub(r" ?\n(?=[MLCQz][ \n\"])", " ", text)  # a path is a line
        rows.write(path, re.sub("<svg [^>]*>", rf"\g<0>{style}", text, count=1))


@functools.cache
def peers():
    """The names of the peers of all ladders."""
    return sorted({peer.name for ladder in ladders.ladders() for peer in ladder.peers})


@functools.cache
def place(name):
    """(number, colour) of a stage or a peer, in all plots of all ladders. A step has those of the
    stage that it leads to. Beyond the lists, colours are made up."""
    is_peer = name.startswith("peer_")
    known, colours = (peers(), PEERS) if is_peer else ((), STAGES)
    number = (int(name[:2]) if name[:2].isdigit() else
              known.index(name) if name in known else 100 + zlib.crc32(name.encode()) % 10000)
    if number < len(colours):
        return number, colours[number]
    parts = colorsys.hls_to_rgb(number * 0.618034 % 1, 0.45 + number % 7 / 50,
                                0.3 if is_peer else 0.6)
    return number, matplotlib.colors.to_hex(parts)


def log_axis(axes, which):
    """Makes the "x" or "y" axis logarithmic, with numbers such as 0.05 and 2000 on it."""
    getattr(axes, f"set_{which}scale")("log")
    axis, (low, high) = getattr(axes, f"{which}axis"), getattr(axes, f"get_{which}lim")()
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")
    axis.get_major_locator().set_params(subs=(1, 2, 5) if high < 300 * low else (1,))


def whole_ladder(group):
    """(group, cells): what shows the whole ladder. That is what was measured of all stages and
    steps in a few cells. Without such results, it is one cell of the group's own."""
    return (group.steps, group.steps.cells) if group.steps else (group, [view.ladder_cell(group)])


def ladder(group):
    """The picture of a ladder: the time of each stage and step in one cell, the largest, and how
    far that is from the one before and from the ceiling."""
    group, (*_, cell) = whole_ladder(group)
    before = {line: above or line for line, above in group.rungs(cell).values() if line}
    if len(before) < 2:
        return None
    peer, _ = group.fastest_peer()
    if group.time(peer, cell):
        before[peer] = peer
    with plt.rc_context({"font.size": 11, "axes.grid": False}):
        figure, panel = plt.subplots(figsize=(7.2, 1.2 + 0.36 * len(before)), facecolor="none",
                                     layout="constrained")
        panel.set_facecolor("none")
        panel.set_ylim(len(before) - 0.5, -0.5)
        panel.set_yticks(range(len(before)),
                         [group.short_label(line) + group.mark(line) for line in before])
        for y, (line, other) in enumerate(before.items()):
            time, (number, colour) = group.scale * group.time(line, cell), place(line[0])
            start = group.scale * group.time(other, cell)
            panel.barh(y, start - time, left=time, height=0.6, color=colour, alpha=0.6)
            part = group.part_of_ceiling(line, cell)
            if part:
                panel.plot([time * part] * 2, [y - 0.5, y + 0.5], color=INK, linewidth=1.5)
            panel.plot(time, y, marker=MARKERS[number % len(MARKERS)], color=colour, markersize=7,
                       markerfacecolor=GROUND if view.is_peer(line) else colour)
            ratio = other != line and group.ratio(line, other, cell)
            gain, _, interval = f", {ratio.text}".partition(" (") if ratio else ("", "", "")
            panel.text(1.03, y - 0.15 * bool(interval), transform=panel.get_yaxis_transform(),
                       s=group.signed(group.ladder.time, line, cell) + gain, va="center")
            if interval:
                panel.text(1.03, y + 0.28, f"({interval}", va="center", fontsize=8.5,
                           transform=panel.get_yaxis_transform())
        panel.tick_params(axis="y", length=0)
        panel.spines["left"].set_visible(False)
        panel.use_sticky_edges = False  # the bars would leave no margin
        panel.margins(x=0.06)
        log_axis(panel, "x")
        skips = textwrap.wrap(view.skips_in_words(group, before), 60)
        panel.set_xlabel(f"{group.time_name()} ({group.unit}), "
                         f"{view.cell_name(group.ladder, cell)}\n"
                         "A bar begins at the time of the line above, or of the origin.\n"
                         "The ratio compares the two. Its interval stands below it.\n"
                         + "\n".join(["An upright line is the time at peak. (2): threads.",
                                      *skips]))
    return figure


def panel(title, x, y, series):
    """What plots.js draws: {"title", "x", "y", "series"}. An axis is given as (its label, whether
    it is logarithmic). `series` are {name: points}, of which those that cannot be drawn are left
    out. A title without lines is no panel: []."""
    found, limits = [], []
    for name, points in series.items():
        points = [point for point in points if all(math.isfinite(value) and (value > 0 or not log)
                                                   for value, (_, log) in zip(point, (x, y)))]
        if points:
            kind = "peer" if view.is_peer((name, 0)) else "stage"
            found.append({"name": name, "kind": kind, "points": points})
    for at, (label, log) in enumerate((x, y)):
        values = [point[at] for line in found for point in line["points"]] or [1]
        low, high = min(values), max(values)
        room = (high - low) / 20 or high / 20 or 1
        limits.append({"label": label, "log": log, "limits": [
            low / 1.1 if log else low - room, high * 1.1 if log else high + room]})
    return [{"title": title, "x": limits[0], "y": limits[1], "series": found}] * bool(found)


def threads(group):
    """How many times as fast as one thread each stage is with more, in the headline's cells."""
    found = []
    for cell in view.headline_cells(group):
        points = defaultdict(list)
        for line in group.lines:
            ratio = (group.is_on_cpu(line) and group.time(line, cell)
                     and group.ratio(line, (line[0], 0), cell))
            points[line[0]] += [(line[1] or 1, ratio.median)] if ratio else []
        found += panel(view.cell_name(group.ladder, cell), ("threads", True),
                       ("times as fast as one thread", True),
                       {name: each for name, each in points.items() if each[1:]})
    return found


def roofs(group):
    """[(label, [(operations a byte, operations a second)])]: the lines that no run can lie above,
    if its data come from there. Empty if there are no results of `make bench`."""
    ceilings, intensities = group.ceilings, intensities_of(group)
    if not intensities or "flops" not in ceilings:
        return []
    threads, top = max(ceilings["flops"].items())
    ends = {level: top / bandwidth[threads] for level, bandwidth in ceilings.items()
            if level != "flops" and bandwidth.get(threads)}  # where the multiply-adds take longer
    low = min([*intensities.values(), *ends.values()]) / 2
    high = max([*intensities.values(), *ends.values()]) * 4
    return [(f"{level}, {view.plural(threads, 'thread')}",
             [(low, low * top / end), (end, top)]) for level, end in ends.items()] + [
            (f"multiply-adds, {view.plural(count, 'thread')}",
             [(min(end * flops / top for end in [high, *ends.values()]), flops), (high, flops)])
            for count, flops in ceilings["flops"].items()]


def base_of(frame, ladder):
    """{column: value}: the point where the sweeps of growth/ meet. Most runs differ from it in one
    thing."""
    return {name: frame[name].mode()[0] for name in (*rows.parameters(ladder), "threads")
            if name in frame and frame[name].nunique() > 1}


def along(frame, base, axis, columns):
    """{stage: [(value of the axis, medians of the columns)]} of the runs that differ from the base
    only in the axis. Along the other axes, a stage has its largest number of threads."""
    most = frame.groupby("stage")["threads"].transform("max")
    for name in {*base, "threads"} - {axis}:
        frame = frame[frame[name] == (most[frame.index] if name == "threads" else base[name])]
    medians = frame.set_index(["stage", axis])[columns].astype(float).groupby(level=[0, 1]).median()
    return {stage: [(value, *row) for (_, value), row in part.iterrows()]
            for stage, part in medians.groupby(level=0) if len(part) > 1}


def growth(group):
    """The time against each thing that it depends on. It is that of one epoch, where there are
    epochs."""
    frame, ladder, found = pandas.DataFrame(group.growth), group.ladder, []
    if frame.empty:
        return found
    frame["time"] = frame[ladder.time] / (frame["epochs"].clip(lower=1) if "epochs" in frame else 1)
    base = base_of(frame, ladder)
    words = {name: name.replace("_", " ") for name in base} | {
        ladder.column(axis["option"]): axis["name"].lower() for axis in ladder.axes}
    names = [name for name in base if name != "epochs"]
    for axis in names:
        if pandas.api.types.is_numeric_dtype(frame[axis]):
            title = ", ".join(f"{words[name]} {base[name]}" for name in names
                              if name not in (axis, "threads"))
            found += panel(title, (words[axis], True), (
                "time per epoch (s)" if "epochs" in frame else "time (s)", True),
                along(frame, base, axis, ["time"]))
    return found


def learning(group):
    """The loss after each epoch, and the accuracy against the time that it took."""
    columns = ["final_loss", "test_accuracy", group.ladder.time]
    frame = pandas.DataFrame(run for run in group.growth if run.get("epochs")
                             and None not in map(run.get, columns))
    base = {} if frame.empty else base_of(frame, group.ladder)
    curves = along(frame, base, "epochs", columns) if "epochs" in base else {}
    return panel("", ("epoch", False), ("training loss", False), {
        stage: [(epoch, loss) for epoch, loss, _, _ in points]
        for stage, points in curves.items()}) + panel(
        "", ("training time (s)", True), ("test accuracy (%)", False), {
            stage: [(time, 100 * accuracy) for _, _, accuracy, time in points]
            for stage, points in curves.items()})


def epochs(group):
    """The time, the rate and the test accuracy of each epoch."""
    cell = view.ladder_cell(group)
    tables = {view.label(line): pandas.DataFrame(itertools.chain(*runs)).groupby("epoch")
              for (line, each), runs in sorted(group.epochs.items()) if each == cell}
    return [found for column, factor, title in (
        ("epoch_s", 1, "time of an epoch (s)"),
        ("samples_per_s", 1 / 1000, "throughput (1000 samples/s)"),
        ("test_accuracy", 100, "test accuracy (%)")) for found in panel(
            "", ("epoch", False), (title, column != "test_accuracy"), {
                name: [*(factor * table[column].median()).items()]
                for name, table in tables.items()})]


def epochs_figure(group):
    """What epochs() has, and the average rate of a run, for a README."""
    found, cell = epochs(group), view.ladder_cell(group)
    if not found:
        return None
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.6), layout="constrained")
    for axis, each in zip(axes.flat, found):
        for i, line in enumerate(each["series"]):
            # Curves may lie on top of each other: the markers of later ones are smaller.
            number, colour = place(line["name"].partition(",")[0])
            axis.plot(*zip(*line["points"]), label=line["name"], color=colour,
                      marker=MARKERS[number % len(MARKERS)], markersize=max(3, 8 - i))
        axis.set(xlabel=each["x"]["label"], ylabel=each["y"]["label"])
        if each["y"]["log"]:
            log_axis(axis, "y")
        axis.xaxis.get_major_locator().set_params(integer=True)
    bars = axes.flat[-1]
    lines = [line for line in group.lines if group.median("samples_per_s", line, cell)]
    rates = [group.median("samples_per_s", line, cell) / 1000 for line in lines]
    drawn = bars.barh(list(map(view.short_label, lines)), rates,
                      color=[place(name)[1] for name, _ in lines])
    bars.bar_label(drawn, map(view.three_digits, rates), padding=3)
    bars.invert_yaxis()
    bars.grid(False, axis="y")
    bars.margins(x=0.15)  # room for the numbers
    bars.set_xlabel("average throughput (1000 samples/s)")
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="upper center", ncol=4,
                  frameon=False, bbox_to_anchor=(0.5, 0))
    return figure


def intensities_of(group):
    """{cell: operations a byte}, of all phases together. Empty if the ladder has no formulas."""
    found = {}
    for (_, cell), (run, *_) in group.runs.items():
        operations, moved = ([group.ladder.work(run, phase, what) for phase in group.ladder.phases]
                             for what in ("operations", "bytes"))
        if operations and all((*operations, *moved)):
            found[cell] = sum(operations) / sum(moved)
    return found
