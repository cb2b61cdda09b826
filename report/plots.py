"""The plots of a ladder's results, as SVG: the same input gives the same bytes.

Each function draws one plot and returns the figure, or None if it has no data to draw. A stage
keeps its colour, marker and line in all plots, and no other has the same colour. The markers differ
enough to tell stages apart in grey too.
"""

import colorsys
import contextlib
import functools
import io
import math
import re
import statistics
import textwrap
import zlib
from collections import defaultdict

import matplotlib

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
DASHES = "-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1))
RING = {"linestyle": "none", "marker": "o", "markersize": 11, "markerfacecolor": "none",
        "color": "#666666", "label": f"a run is {view.LIMIT}"}
WIDTH = 9  # inches

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
    "hatch.linewidth": 0.6,
    "lines.markersize": 5,
    "figure.facecolor": "white",
    "text.parse_math": False,  # a $ in a name stays a $
})


def svg(figure):
    """A figure as text, without a date and a version: the same plot is the same text."""
    picture = io.StringIO()
    figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": "Matplotlib"},
                   bbox_inches="tight", facecolor=figure.get_facecolor())
    plt.close(figure)
    return slim(picture.getvalue())


def save(figure, path):
    """Writes a figure, for light and dark pages, if there is one and it can be written."""
    with contextlib.suppress(OSError):
        if not figure or path.is_symlink():  # the results that it showed may be gone
            path.unlink()
    if figure and rows.attempt(rows.target, path):
        style = f"><style>@media (prefers-color-scheme: dark){{{DARK}}}</style>"
        rows.write(path, svg(figure).replace(">", style, 1))


def slim(text):
    """An SVG of matplotlib's in two thirds of its bytes: with tenths of a point, without names
    that nothing refers to, and with the font once."""

    def shorten(attribute):
        return " " + re.sub(r"-?\d+\.\d+", lambda number: f"{round(float(number[0]), 1) + 0:g}",
                            " ".join(attribute[0].split()))

    text = re.sub(r"^.*?(?=<svg)| *<metadata>.*?</metadata>\n", "", text, flags=re.DOTALL)
    text = re.sub(r' transform="rotate\(-0 [^"]*"|(?<=<g) id="[^"]*"', "", text)
    text = re.sub(r'\s(d|x|y|width|height|transform|viewBox)="[^"]*"', shorten, text)
    text = re.sub(r"font: ([\d.]+px) 'DejaVu Sans'", r"font-size: \1", text)
    font = "'DejaVu Sans', Verdana, sans-serif"
    text = text.replace("'DejaVu Sans'", font).replace("<svg ", f'<svg font-family="{font}" ', 1)
    return re.sub(r"\n\s+", "\n", text)


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


def styles(lines):
    """{line: what plot() needs to draw it}. A peer's line is thin."""
    looks = {}
    for line in lines:
        number, colour = place(line[0])
        looks[line] = {"color": colour, "marker": MARKERS[number % len(MARKERS)],
                       "linestyle": DASHES[number % len(DASHES)],
                       "linewidth": 1 if view.is_peer(line) else 1.8,
                       "markerfacecolor": "white" if view.is_peer(line) else colour}
    return looks


def log_axis(panel, which, base=10):
    """Makes the panel's "x" or "y" axis logarithmic, with numbers such as 0.05 and 2000 on it."""
    getattr(panel, f"set_{which}scale")("log", base=base)
    axis = getattr(panel, f"{which}axis")
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def line_panels(lines, count=1):
    """A figure, and panels that have a place on the y axis for each line."""
    figure, panels = plt.subplots(1, count, figsize=(WIDTH, 1.1 + 0.38 * len(lines)), sharey=True,
                                  squeeze=False, layout="constrained")
    panels[0][0].set_yticks(range(len(lines)), [view.label(line) for line in lines])
    panels[0][0].set_ylim(len(lines) - 0.5, -0.5)
    for panel in panels[0]:
        panel.grid(False, axis="y")
    return figure, panels[0]


def legend_below(figure, axes, columns=4):
    """Puts one legend for all panels below them, so that it hides no data."""
    entries = {}
    for panel in axes:
        for handle, text in zip(*panel.get_legend_handles_labels()):
            entries.setdefault(text, handle)
    figure.legend(entries.values(), entries.keys(), loc="upper center", ncol=columns, frameon=False,
                  bbox_to_anchor=(0.5, 0), handlelength=3.5)


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
    looks = styles(before)
    with plt.rc_context({"font.size": 11, "axes.grid": False}):
        figure, (panel,) = line_panels(before)
        figure.set_size_inches(7.2, 1.2 + 0.36 * len(before))
        figure.set_facecolor("none")
        panel.set_facecolor("none")
        panel.set_yticks(range(len(before)),
                         [group.short_label(line) + group.mark(line) for line in before])
        for y, (line, other) in enumerate(before.items()):
            time, colour = group.scale * group.time(line, cell), looks[line]["color"]
            start = group.scale * group.time(other, cell)
            panel.barh(y, start - time, left=time, height=0.6, color=colour, alpha=0.6)
            part = group.part_of_ceiling(line, cell)
            if part:
                panel.plot([time * part] * 2, [y - 0.5, y + 0.5], color=INK, linewidth=1.5)
            panel.plot(time, y, marker=looks[line]["marker"], color=colour, markersize=7,
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
        log_axis(panel, "x")
        panel.use_sticky_edges = False  # the bars would leave no margin
        panel.margins(x=0.06)
        low, high = panel.get_xlim()
        panel.xaxis.get_major_locator().set_params(subs=(1, 2, 5) if high < 300 * low else (1,))
        skips = textwrap.wrap(view.skips_in_words(group, before), 60)
        panel.set_xlabel(f"{group.time_name()} ({group.unit}), "
                         f"{view.cell_name(group.ladder, cell)}\n"
                         "A bar begins at the time of the line above, or of the origin.\n"
                         "The ratio compares the two. Its interval stands below it.\n"
                         + "\n".join(["An upright line is the time at the ceiling. (2): threads.",
                                      *skips]))
    return figure


def threads(group):
    """How many times as fast as one thread each stage is with more, in the headline's cells."""
    looks = styles(list(dict.fromkeys((line[0], 0) for line in group.lines)))
    found = {}  # {cell: {(stage, 0): {threads: line}}}
    for cell in view.headline_cells(group):
        by_stage = defaultdict(dict)
        for line in group.lines:
            if group.is_on_cpu(line) and group.time(line, cell):
                by_stage[line[0], 0][line[1] or 1] = line
        stages = {stage: lines for stage, lines in by_stage.items() if {1} < {*lines}}
        if stages:
            found[cell] = stages
    if not found:
        return None
    figure, axes = plt.subplots(1, len(found), figsize=(WIDTH, 3.6), sharey=True, squeeze=False,
                                layout="constrained")
    most = max(max(lines) for stages in found.values() for lines in stages.values())
    for panel, (cell, stages) in zip(axes[0], found.items()):
        panel.plot([1, most], [1, most], color="#777777", linewidth=1, linestyle=":",
                   label="as many times as there are threads")
        for stage, lines in stages.items():
            numbers = sorted(lines)
            ratios = [ratio.median if ratio else math.nan for ratio in (
                group.ratio(lines[number], lines[1], cell) for number in numbers)]
            noisy = [i for i, number in enumerate(numbers)
                     if group.is_noisy(group.ladder.time, lines[number], cell)]
            panel.plot(numbers, ratios, label=stage[0], **looks[stage])
            if noisy:
                panel.plot(numbers, ratios, markevery=noisy, **RING)
        for which in "xy":
            log_axis(panel, which, base=2)
        panel.set_title(view.cell_name(group.ladder, cell))
        panel.set_xlabel("threads")
    axes[0][0].set_ylabel("times as fast as one thread")
    legend_below(figure, axes[0])
    return figure


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


def above_memory(group):
    """Says which runs lie above the roof of the memory, and why. Empty if none does."""
    memory = next((points for label, points in roofs(group) if label.startswith("memory,")), None)
    rates = [(group.median("gflops", line, cell), intensity) for line in group.lines
             for cell, intensity in intensities_of(group).items() if group.is_on_cpu(line)]
    rates = [(1e9 * rate, intensity) for rate, intensity in rates if rate]
    above = sum(rate > intensity * memory[0][1] / memory[0][0] for rate, intensity in rates
                ) if memory else 0
    return (f"{above} of the {len(rates)} marks lie above the roof of the memory. What they read "
            "again and again stays in the caches. So memory sends fewer bytes than the axis counts."
            if above else "")


def base_of(runs, ladder):
    """{column: value}: the point where the sweeps of growth.csv meet. Most runs differ from it in
    one thing."""
    values = {name: [run[name] for run in runs]
              for name in (*rows.parameters(ladder), "threads")}
    return {name: statistics.mode(found) for name, found in values.items() if len(set(found)) > 1}


def along(runs, base, axis):
    """{line: {value: runs}} of the runs that differ from the base only in `axis`. Along the other
    axes, the runs of a stage are those with its largest number of threads."""
    chosen = defaultdict(lambda: defaultdict(list))
    for run in runs:
        most = max(other["threads"] for other in runs if other["stage"] == run["stage"])
        if all(run[name] == value for name, value in {**base, "threads": most}.items()
               if name != axis):
            chosen[run["stage"], 0][run[axis]].append(run)
    return dict(sorted(chosen.items()))


def growth(group):
    """The time against each thing that it depends on. It is that of one epoch, where there are
    epochs."""
    runs, ladder = group.growth, group.ladder
    base = base_of(runs, ladder)
    names = [name for name in base if name != "epochs"]
    if not names:
        return None
    words = {name: name.replace("_", " ") for name in names} | {
        ladder.column(axis["option"]): axis["name"].lower() for axis in ladder.axes}
    looks = styles(sorted({(run["stage"], 0) for run in runs}))
    figure, axes = plt.subplots(-(-len(names) // 2), 2, squeeze=False, layout="constrained",
                                figsize=(WIDTH, 3.2 * -(-len(names) // 2)))
    for panel in axes.flat[len(names):]:
        panel.set_visible(False)
    for panel, axis in zip(axes.flat, names):
        for line, points in along(runs, base, axis).items():
            if len(points) > 1:  # a stage of one thread has no line where they vary
                values = sorted(points)
                panel.plot(values, [statistics.median(run[ladder.time] / (run.get("epochs") or 1)
                                                      for run in points[value])
                                    for value in values], label=line[0], **looks[line])
        log_axis(panel, "y")
        log_axis(panel, "x", base=2)
        panel.set_title(", ".join(f"{words[name]} {base[name]}" for name in names
                                  if name not in (axis, "threads")), fontsize=9)
        panel.set_xlabel(words[axis])
        panel.set_ylabel("time per epoch (s)" if "epochs" in runs[0] else "time (s)")
    legend_below(figure, axes.flat)
    return figure


def learning(group):
    """The loss after each epoch, and the accuracy against the time that it took."""
    ladder = group.ladder
    runs = [run for run in group.growth if run.get("final_loss") is not None
            and run.get("test_accuracy") is not None and run.get("epochs")]
    curves = along(runs, base_of(runs, ladder), "epochs")
    if not any(len(points) > 1 for points in curves.values()):
        return None
    figure, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 3.6), layout="constrained")
    for i, (line, look) in enumerate(styles(curves).items()):
        epochs = sorted(curves[line])
        loss, accuracy, seconds = ([statistics.median(run[name] for run in curves[line][epoch])
                                 for epoch in epochs]
                                for name in ("final_loss", "test_accuracy", ladder.time))
        # The curves lie on top of each other: the markers of later ones are smaller.
        left.plot(epochs, loss, label=line[0], markersize=max(3, 10 - 3 * i), **look)
        right.plot(seconds, [100 * value for value in accuracy], label=line[0], **look)
    left.set(xlabel="epoch", ylabel="training loss", ylim=(0, None))
    left.xaxis.get_major_locator().set_params(integer=True)
    log_axis(right, "x")
    right.set(xlabel="training time (s)", ylabel="test accuracy (%)")
    legend_below(figure, (left, right))
    return figure


def epochs(group):
    """The time, the rate and the test accuracy of each epoch, and the average rate of a run."""
    cell = view.ladder_cell(group)
    found = {line: runs for (line, each), runs in sorted(group.epochs.items()) if each == cell}
    if not found:
        return None
    looks = styles(group.lines)
    figure, axes = plt.subplots(2, 2, figsize=(WIDTH, 6.6), layout="constrained")
    *panels, bars = axes.flat
    wanted = [("epoch_s", 1, "time of an epoch (s)"),
              ("samples_per_s", 1 / 1000, "throughput (1000 samples/s)"),
              ("test_accuracy", 100, "test accuracy (%)")]
    for panel, (column, factor, title) in zip(panels, wanted):
        for i, (line, runs) in enumerate(found.items()):
            values = [factor * statistics.median(row[column] for row in epoch)
                      for epoch in zip(*runs)]
            # Curves may lie on top of each other: the markers of later ones are smaller.
            panel.plot(range(1, len(values) + 1), values, label=view.label(line),
                       **looks[line], markersize=max(3, 8 - i))
        if column != "test_accuracy":
            log_axis(panel, "y")
            low, high = panel.get_ylim()
            panel.yaxis.get_major_locator().set_params(subs=(1, 2, 5) if high < 300 * low else (1,))
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.set(xlabel="epoch", ylabel=title)
    lines = [line for line in group.lines if group.median("samples_per_s", line, cell)]
    rates = [group.median("samples_per_s", line, cell) / 1000 for line in lines]
    drawn = bars.barh(range(len(lines)), rates, height=0.7, edgecolor="white",
                      color=[looks[line]["color"] for line in lines],
                      hatch=["///" if view.is_peer(line) else "" for line in lines])
    bars.bar_label(drawn, map(view.three_digits, rates), padding=3)
    bars.set_yticks(range(len(lines)), map(view.short_label, lines))
    bars.set_ylim(len(lines) - 0.5, -0.5)
    bars.grid(False, axis="y")
    bars.margins(x=0.15)  # room for the numbers
    bars.set_xlabel("average throughput (1000 samples/s)")
    legend_below(figure, panels)
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


def panels(figure):
    """The lines of a figure's panels as numbers, for a page that draws them itself."""
    found = []
    if not figure:
        return found
    for axes in figure.axes:
        series = []
        for line in axes.get_lines():
            points = [list(map(float, point)) for point in zip(*line.get_data())]
            if not line.get_label().startswith("_") and line.get_marker() in tuple(MARKERS):
                series.append({"name": line.get_label(), "colour": line.get_color(),
                               "shape": MARKERS.index(line.get_marker()), "points":
                               [point for point in points if all(map(math.isfinite, point))]})
        scales = {which: {"label": getattr(axes, f"get_{which}label")(),
                          "log": getattr(axes, f"get_{which}scale")() == "log",
                          "limits": list(map(float, getattr(axes, f"get_{which}lim")()))}
                  for which in "xy"}
        if series and axes.get_visible():
            found.append({"title": axes.get_title(), "series": series, **scales})
    plt.close(figure)
    return found
