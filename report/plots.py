"""The plots of a ladder's results, as SVG: the same input gives the same bytes.

Each function draws one plot and returns the figure, or None if it has no data to draw. A stage
keeps its colour, marker and line in all plots. They differ enough to be told apart in grey too.
"""

import io
import math
import statistics
from collections import defaultdict

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, NullFormatter

import tables

# Okabe and Ito's colours without the yellow one, which is pale on white. Dark and light ones take
# turns, for a printer without colours.
PHASES = "#56B4E9", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#0072B2"
HATCHES = "", "///", "...", "\\\\\\", "xxx", "---"
COLOURS = "#000000", "#E69F00", "#0072B2", "#56B4E9", "#D55E00", "#009E73", "#CC79A7"
MARKERS = "osD^vPX*<>hp"
DASHES = "-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1))
RING = {"linestyle": "none", "marker": "o", "markersize": 11, "markerfacecolor": "none",
        "color": "#666666", "label": f"runs that differ by more than {tables.LIMIT}"}
WIDTH = 9  # inches

plt.rcParams.update({
    "svg.hashsalt": "report",  # ids that do not change from run to run
    "font.size": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "lines.markersize": 5,
    "figure.facecolor": "white",
    "text.parse_math": False,  # a $ in a name stays a $
})


def save(figure, path):
    # The file has no date and no version: the same plot is the same file.
    picture = io.StringIO()
    figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": "Matplotlib"},
                   bbox_inches="tight", facecolor=figure.get_facecolor())
    plt.close(figure)
    tables.write(path, picture.getvalue())


def style(index, peer=False):
    """What plot() needs to draw the line number `index`. A peer's line is thin."""
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)],
            "linestyle": DASHES[index % len(DASHES)], "linewidth": 1 if peer else 1.8,
            "markerfacecolor": "white" if peer else COLOURS[index % len(COLOURS)]}


def styles(lines):
    return {line: style(i, tables.is_peer(line)) for i, line in enumerate(lines)}


def point(style_of_line):
    """The style of a line's marker, without the line."""
    return {**style_of_line, "linestyle": "none"}


def plain(value, _=None):
    """A tick's label without powers of ten: 0.05, 3, 2000."""
    return f"{value:g}" if value < 1e6 else f"{value:.0e}"


def log_axis(panel, which):
    """Makes the panel's "x" or "y" axis logarithmic, with plain numbers on it."""
    getattr(panel, f"set_{which}scale")("log")
    axis = getattr(panel, f"{which}axis")
    axis.set_major_formatter(FuncFormatter(plain))
    axis.set_minor_formatter(NullFormatter())


def log_ticks(panel, values):
    """Makes the x axis logarithmic, with a tick at each of these values."""
    log_axis(panel, "x")
    panel.set_xticks(values)
    panel.set_xticks([], minor=True)


def legend_below(figure, axes, columns=4):
    """Puts one legend for all panels below them, so that it hides no data."""
    entries = {}
    for panel in axes:
        for handle, text in zip(*panel.get_legend_handles_labels()):
            entries.setdefault(text, handle)
    figure.legend(entries.values(), entries.keys(), loc="upper center", ncol=columns, frameon=False,
                  bbox_to_anchor=(0.5, 0), handlelength=3.5)


def ladder(group, ceilings, dark=False):
    """The picture of a README: how fast the lines of its table compute in the last of its cells,
    beside the most that the machine can do. `dark` is for dark pages."""
    cell = tables.headline_cells(group)[-1]
    rates = {line: group.median("gflops", line, cell) for line in tables.headline_lines(group)}
    rates = {line: rate for line, rate in rates.items() if rate}
    if not rates or not any(group.ceiling(line, ceilings) for line in rates):
        return None
    ink, bar, peer_bar = ("#e6edf3", "#56B4E9", "#7d8590") if dark else \
        ("#1f2328", "#0072B2", "#8c959f")
    colours = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color",
                             "ytick.color"), ink)
    with plt.rc_context({**colours, "font.size": 10, "axes.grid": False}):
        figure, panel = plt.subplots(figsize=(WIDTH, 0.9 + 0.5 * len(rates)), layout="constrained",
                                     facecolor="none")
        panel.set_facecolor("none")
        for y, (line, rate) in enumerate(rates.items()):
            panel.barh(y, rate, height=0.62, color=peer_bar if tables.is_peer(line) else bar)
            ceiling = group.ceiling(line, ceilings)
            if ceiling:
                panel.plot([ceiling / 1e9] * 2, [y - 0.4, y + 0.4], color=ink, linewidth=1.5)
            time, _, part, factor = tables.summary(group, line, cell, ceilings)
            texts = filter(None, (time, factor, part and f"{part} of the ceiling"))
            panel.text(max(rate, (ceiling or 0) / 1e9), y, "   " + ", ".join(texts), va="center")
        panel.set_yticks(range(len(rates)), [tables.label(line) for line in rates])
        panel.set_ylim(len(rates) - 0.4, -0.6)
        panel.set_xlim(0, 1.5 * panel.dataLim.xmax)
        panel.tick_params(axis="y", length=0)
        panel.spines["left"].set_visible(False)
        panel.set_xlabel(f"10⁹ operations a second, {tables.cell_name(group.ladder, cell)}\n"
                         "An upright line is the ceiling: the most that as many threads can do.")
    return figure


def draw(panel, group, line, cells, **look):
    """Draws the times of a line's cells against the last axis."""
    panel.plot([cell[-1] for cell in cells],
               [group.time(line, cell) * group.scale for cell in cells], **look)


def times(group):
    """The time against the last axis, with a panel for each value of the first."""
    axes = group.ladder.axes
    if not axes or not all(isinstance(value, (int, float)) for value, in group.columns):
        return None
    figure, panels = plt.subplots(1, len(group.pages), figsize=(WIDTH, 3.6), sharey=True,
                                  squeeze=False, layout="constrained")
    for panel, page in zip(panels[0], group.pages):
        for line, look in styles(group.lines).items():
            cells = [page + column for column in group.columns if group.time(line, page + column)]
            noisy = [cell for cell in cells if group.is_noisy(group.ladder.time, line, cell)]
            if cells:
                draw(panel, group, line, cells, label=tables.label(line), **look)
            if noisy:
                draw(panel, group, line, noisy, **RING)
        log_axis(panel, "y")
        log_ticks(panel, apart([value for value, in group.columns]))
        if page:
            panel.set_title(f"{axes[0]['option']} {page[0]}")
        panel.set_xlabel(axes[-1]["name"])
    panels[0][0].set_ylabel(f"{group.time_name()} ({group.unit})")
    legend_below(figure, panels[0])
    return figure


def speedup(group):
    """The speedup over the baseline: the range of all cells, and their geometric mean."""
    rows = []
    for line in group.lines:
        factors = [group.speedup(line, cell) for cell in group.cells]
        factors = [factor for factor in factors if factor]
        if factors and line != group.baseline:
            rows.append((line, factors))
    if not rows:
        return None
    figure, panel = plt.subplots(figsize=(WIDTH, 0.9 + 0.38 * len(rows)), layout="constrained")
    looks = styles(group.lines)
    for y, (line, factors) in enumerate(rows):
        look = looks[line]
        mean = statistics.geometric_mean(factors)
        panel.plot([min(factors), max(factors)], [y, y], color=look["color"], linewidth=5,
                   alpha=0.35, solid_capstyle="round")
        panel.plot(mean, y, **{**point(look), "markersize": 8})
        sign = "~" * any(group.is_noisy(tables.SPEEDUP, line, cell) for cell in group.cells)
        numbers = [tables.three_digits(factor) for factor in (mean, min(factors), max(factors))]
        panel.annotate(f"{sign}{numbers[0]}×  ({numbers[1]} to {numbers[2]})", (max(factors), y),
                       xytext=(10, 0), textcoords="offset points", va="center")
    panel.set_yticks(range(len(rows)), [tables.label(line) for line, _ in rows])
    panel.set_ylim(len(rows) - 0.5, -0.5)
    log_axis(panel, "x")
    least = min(min(factors) for _, factors in rows)
    most = max(max(factors) for _, factors in rows)
    panel.set_xlim(min(0.8, least * 0.8), most * max(2, (most / min(1, least)) ** 0.3))
    panel.axvline(1, color="black", linewidth=0.8)
    panel.set_xlabel(f"speedup over {tables.label(group.baseline)}: geometric mean of all cells, "
                     "and their range")
    return figure


def phases(group):
    """The phases stacked, as shares of the time. The time itself is written beside each bar: on one
    scale with the textbook's, the other bars would be too short to see."""
    names = group.ladder.phases
    cells = tables.headline_cells(group)
    lines = [line for line in group.lines
             if any(group.median(f"{name}_s", line, cell) for name in names for cell in cells)]
    if not lines:
        return None
    figure, axes = plt.subplots(1, len(cells), figsize=(WIDTH, 1.1 + 0.38 * len(lines)),
                                sharey=True, squeeze=False, layout="constrained")
    for panel, cell in zip(axes[0], cells):
        for y, line in enumerate(lines):
            total = group.time(line, cell)
            left = 0
            for i, name in enumerate(names):
                part = group.median(f"{name}_s", line, cell)
                if total and part is not None:
                    share = 100 * part / total
                    panel.barh(y, share, left=left, color=PHASES[i % len(PHASES)], label=name,
                               hatch=HATCHES[i % len(HATCHES)], edgecolor="white", height=0.7)
                    if share > 8:  # room for a number
                        panel.text(left + share / 2, y, f"{share:.0f}", ha="center", va="center",
                                   bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2})
                    left += share
            if total:
                panel.text(max(left, 100) + 3, y, group.signed(group.ladder.time, line, cell),
                           va="center")
        panel.set_title(tables.cell_name(group.ladder, cell))
        panel.set_xlim(0, 150)
        panel.set_xticks([0, 50, 100])
        panel.grid(False, axis="y")
        panel.set_xlabel(f"% of the {group.time_name()}")
    axes[0][0].set_yticks(range(len(lines)), [tables.label(line) for line in lines])
    axes[0][0].set_ylim(len(lines) - 0.5, -0.5)
    legend_below(figure, axes[0])
    return figure


def roofline(group, ceilings, benchmarks):
    """Where whole runs lie under the machine's ceilings. `ceilings` is
    {"flops" or a level of memory: {threads: operations or bytes a second}}."""
    intensities = read_intensities(benchmarks, group.ladder)
    corners = tables.headline_cells(group)
    corners = [cell for cell in dict.fromkeys((corners[0], corners[-1])) if cell in intensities]
    if not corners or "flops" not in ceilings:
        return None
    figure, panel = plt.subplots(figsize=(WIDTH, 5), layout="constrained")
    low = min(intensities[corner] for corner in corners) / 30
    high = max(intensities[corner] for corner in corners) * 8
    for threads, flops in ceilings["flops"].items():
        many = threads > 1
        who = f"{threads} threads" if many else "one thread"
        ends = [flops / bandwidth[threads] for level, bandwidth in ceilings.items()
                if level != "flops" and threads in bandwidth]
        panel.plot([min([high, *ends]), high], [flops / 1e9] * 2,
                   color="black" if many else "#777777", linewidth=1.5 if many else 1)
        panel.annotate(f"multiply-adds, {who}", (high, flops / 1e9), xytext=(0, 3), ha="right",
                       textcoords="offset points", fontsize=8)
    threads = max(ceilings["flops"])
    top = ceilings["flops"][threads]
    for level, bandwidth in ceilings.items():
        if level == "flops" or threads not in bandwidth:
            continue
        start = max(low, top / bandwidth[threads] / 300)
        end = top / bandwidth[threads]
        panel.plot([start, end], [start * bandwidth[threads] / 1e9, top / 1e9], color="black",
                   linewidth=1, linestyle="-" if level == "memory" else ":")
        panel.annotate(level, (start, start * bandwidth[threads] / 1e9), xytext=(-4, 0), ha="right",
                       va="center", textcoords="offset points", fontsize=8)
    lowest = math.inf
    for corner in corners:
        for line, look in styles(group.lines).items():
            rate = group.median("gflops", line, corner)
            if rate and group.is_on_cpu(line):  # the ceilings are the processor's
                lowest = min(lowest, rate)
                panel.plot(intensities[corner], rate, label=tables.label(line),
                           **{**point(look), "markersize": 7})
        name = tables.cell_name(group.ladder, corner).replace(", ", ",\n")
        panel.annotate(name, (intensities[corner], 0), xytext=(0, 6),
                       xycoords=("data", "axes fraction"), textcoords="offset points", ha="center",
                       fontsize=8, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})
    log_axis(panel, "x")
    log_axis(panel, "y")
    panel.set_xlim(low / 2, high * 1.3)
    if lowest < math.inf:
        panel.set_ylim(bottom=lowest / 5)  # room for the names of the cells
    panel.set_xlabel("operations for each byte that must be read or written once")
    panel.set_ylabel("10⁹ operations a second")
    legend_below(figure, [panel])
    return figure


def parameters(runs, ladder):
    """{column: words} of what may vary in growth.csv."""
    columns = [ladder.column(option) for option in ladder.settings] + ["threads"]
    found = {ladder.column(axis["option"]): axis["name"].lower() for axis in ladder.axes} | {
        column: column.replace("_", " ") for column in columns}
    return {column: words for column, words in found.items()
            if len({run[column] for run in runs}) > 1}


def base_of(runs, names):
    """The point where the sweeps of growth.csv meet. Most runs differ from it in one thing."""
    return {name: statistics.mode(run[name] for run in runs) for name in names if name != "threads"}


def along(runs, base, axis):
    """{stage: {value: runs}} of the runs that differ from the base only in `axis`. Along the other
    axes, the runs of a stage are those with its largest number of threads."""
    chosen = defaultdict(lambda: defaultdict(list))
    most = {}
    for run in runs:
        most[run["stage"]] = max(run["threads"] or 1, most.get(run["stage"], 1))
    for run in runs:
        if all(run[name] == base[name] for name in base if name != axis) and (
                axis == "threads" or (run["threads"] or 1) == most[run["stage"]]):
            chosen[run["stage"]][run[axis]].append(run)
    return chosen


def apart(values):
    """The values that are far enough apart to have a label each, on a logarithmic axis."""
    chosen = []
    for value in sorted(values):
        if not chosen or value >= 1.5 * chosen[-1]:
            chosen.append(value)
    return chosen


def growth(runs, ladder):
    """The time against each thing that it depends on. It is that of one epoch, where there are
    epochs."""
    names = parameters(runs, ladder)
    base = base_of(runs, names)
    names.pop("epochs", None)
    if not names:
        return None
    stages = sorted({run["stage"] for run in runs})
    rows = -(-len(names) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(WIDTH, 3.2 * rows), layout="constrained",
                                squeeze=False)
    for panel in axes.flat[len(names):]:
        panel.set_visible(False)
    for panel, (axis, title) in zip(axes.flat, names.items()):
        ticks = set()
        for stage, points in along(runs, base, axis).items():
            # A stage without threads has no line in that panel.
            if axis != "threads" or len(points) > 1:
                values = sorted(points)
                ticks.update(values)
                times = [statistics.median(run[ladder.time] / (run.get("epochs") or 1)
                                           for run in points[value]) for value in values]
                panel.plot(values, times, label=stage, **style(stages.index(stage)))
        if axis == "threads":
            panel.set_xticks(sorted(ticks))
            panel.set_ylim(bottom=0)
        else:
            log_axis(panel, "y")
            log_ticks(panel, apart(ticks))
        panel.tick_params(axis="x", labelsize=8, rotation=30)
        panel.set_title(", ".join(f"{words} {base[name]}" for name, words in names.items()
                                  if name not in (axis, "threads")), fontsize=9)
        panel.set_xlabel(title)
        panel.set_ylabel("time per epoch (s)" if "epochs" in runs[0] else "time (s)")
    legend_below(figure, axes.flat)
    return figure


def learning(runs, ladder):
    """The loss after each epoch, and the accuracy against the time that it took."""
    runs = [run for run in runs if run.get("final_loss") is not None
            and run.get("test_accuracy") is not None and run.get("epochs")]
    curves = along(runs, base_of(runs, parameters(runs, ladder)), "epochs")
    if not any(len(points) > 1 for points in curves.values()):
        return None
    stages = sorted(curves)
    figure, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 3.6), layout="constrained")
    for stage, points in curves.items():
        index = stages.index(stage)
        # The curves lie on top of each other: the markers of later ones are smaller.
        look = {**style(index), "markersize": max(3, 10 - 3 * index)}
        epochs = sorted(points)
        loss, accuracy, time = ([statistics.median(run[name] for run in points[epoch])
                                 for epoch in epochs]
                                for name in ("final_loss", "test_accuracy", ladder.time))
        left.plot(epochs, loss, label=stage, **look)
        right.plot(time, [100 * value for value in accuracy], label=stage, **style(index))
    left.set_xlabel("epoch")
    left.set_ylabel("training loss")
    left.set_xticks(sorted({epoch for points in curves.values() for epoch in points}))
    left.set_ylim(bottom=0)
    log_axis(right, "x")
    right.set_xlabel("training time (s)")
    right.set_ylabel("test accuracy (%)")
    legend_below(figure, (left, right))
    return figure


def read_intensities(benchmarks, ladder):
    """{cell: operations a byte}, of all phases together, from the results of bench/."""
    options = [axis["option"] for axis in ladder.axes]
    cells = defaultdict(dict)
    for name, run in benchmarks:
        parts = name.split("/")
        numbers = dict(part.split(":", 1) for part in parts if ":" in part)
        if set(options) <= numbers.keys() and run.get("bytes") and run.get("flops_per_byte"):
            cells[tuple(int(numbers[option]) for option in options)][parts[1]] = run
    return {cell: sum(run["bytes"] * run["flops_per_byte"] for run in runs.values()) /
            sum(run["bytes"] for run in runs.values())
            for cell, runs in cells.items() if runs.keys() == set(ladder.phases)}
