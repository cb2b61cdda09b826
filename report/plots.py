"""The plots of a machine's results, as SVG: the same input gives the same bytes.

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
COLOURS = "#000000", "#E69F00", "#0072B2", "#56B4E9", "#D55E00", "#009E73", "#CC79A7"
MARKERS = "osD^vPX*<>hp"
DASHES = "-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1))
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
    return {line: style(i, is_peer(line)) for i, line in enumerate(lines)}


def is_peer(line):
    return line[0].startswith("peer_")


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


def ladder(group, lines, cell, ceilings, dark=False):
    """The picture of the repository's README: how fast the lines compute in one cell, (hidden,
    batch), beside the most that the machine can do. `dark` is for dark pages."""
    hidden, batch = cell
    rates = {line: group.median("gflops", (batch, line, hidden)) for line in lines}
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
            panel.barh(y, rate, height=0.62, color=peer_bar if is_peer(line) else bar)
            texts = [f"{tables.three_digits(group.median('train_s', (batch, line, hidden)))} s"]
            if line != group.baseline and group.speedup((batch, line, hidden)):
                texts.append(f"{tables.three_digits(group.speedup((batch, line, hidden)))}×")
            ceiling = group.ceiling(line, ceilings)
            if ceiling:
                panel.plot([ceiling / 1e9] * 2, [y - 0.4, y + 0.4], color=ink, linewidth=1.5)
                texts.append(f"{tables.percent(rate * 1e9 / ceiling)} of the ceiling")
            panel.text(max(rate, (ceiling or 0) / 1e9), y, "   " + ", ".join(texts), va="center")
        panel.set_yticks(range(len(rates)), [tables.label(line) for line in rates])
        panel.set_ylim(len(rates) - 0.4, -0.6)
        panel.set_xlim(0, 1.5 * panel.dataLim.xmax)
        panel.tick_params(axis="y", length=0)
        panel.spines["left"].set_visible(False)
        panel.set_xlabel(f"10⁹ operations a second, {hidden} hidden units, batch {batch}\n"
                         "An upright line is the ceiling: the most that as many threads can do.")
    return figure


def training_time(group):
    """The training time against the hidden units, with a panel for each batch size."""
    figure, axes = plt.subplots(1, len(group.batches), figsize=(WIDTH, 3.6), sharey=True,
                                squeeze=False, layout="constrained")
    for panel, batch in zip(axes[0], group.batches):
        for line, look in styles(group.lines).items():
            cells = [(batch, line, hidden) for hidden in group.hiddens]
            points = [(cell[2], group.median("train_s", cell)) for cell in cells]
            points = [(x, y) for x, y in points if y]
            if points:
                panel.plot(*zip(*points), label=tables.label(line), **look)
        log_axis(panel, "y")
        log_ticks(panel, group.hiddens)
        panel.set_title(f"batch {batch}")
        panel.set_xlabel("hidden units")
    axes[0][0].set_ylabel("training time (s)")
    legend_below(figure, axes[0])
    return figure


def speedup(group):
    """The speedup over the baseline: the range of all cells, and their geometric mean."""
    rows = []
    for line in group.lines:
        factors = [group.speedup((batch, line, hidden))
                   for batch in group.batches for hidden in group.hiddens]
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
        panel.annotate(f"{tables.three_digits(mean)}×  ({tables.three_digits(min(factors))} to "
                       f"{tables.three_digits(max(factors))})", (max(factors), y), xytext=(10, 0),
                       textcoords="offset points", va="center")
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
    """Forward and backward stacked, as shares of the training time. The time itself is written
    beside each bar: on one scale with the textbook's, the other bars would be too short to see."""
    corners = sorted({(pick(group.hiddens), pick(group.batches))
                      for pick in (min, tables.middle, max)})
    lines = [line for line in group.lines
             if any(group.median("forward_s", (batch, line, hidden)) for hidden, batch in corners)]
    if not lines:
        return None
    figure, axes = plt.subplots(1, len(corners), figsize=(WIDTH, 1.1 + 0.38 * len(lines)),
                                sharey=True, squeeze=False, layout="constrained")
    for panel, (hidden, batch) in zip(axes[0], corners):
        for y, line in enumerate(lines):
            cell = batch, line, hidden
            total = group.median("train_s", cell)
            left = 0
            for name, colour, hatch in (("forward", "#56B4E9", ""), ("backward", "#D55E00", "///")):
                part = group.median(f"{name}_s", cell)
                if total and part is not None:
                    share = 100 * part / total
                    panel.barh(y, share, left=left, color=colour, hatch=hatch, edgecolor="white",
                               height=0.7, label=name)
                    panel.text(left + share / 2, y, f"{share:.0f}", ha="center", va="center",
                               bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2})
                    left += share
            if total:
                panel.text(103, y, f"{tables.three_digits(total)} s", va="center")
        panel.set_title(f"{hidden} hidden, batch {batch}")
        panel.set_xlim(0, 135)
        panel.set_xticks([0, 50, 100])
        panel.grid(False, axis="y")
        panel.set_xlabel("% of the training time")
    axes[0][0].set_yticks(range(len(lines)), [tables.label(line) for line in lines])
    axes[0][0].set_ylim(len(lines) - 0.5, -0.5)
    legend_below(figure, axes[0])
    return figure


def roofline(group, ceilings, intensities):
    """Where whole trainings lie under the machine's ceilings. `ceilings` is
    {"flops" or a level of memory: {threads: operations or bytes a second}}. `intensities` is
    {(hidden, batch): operations a byte of memory}."""
    corners = [(pick(group.hiddens), pick(group.batches)) for pick in (min, max)]
    corners = [corner for corner in dict.fromkeys(corners) if corner in intensities]
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
        hidden, batch = corner
        for line, look in styles(group.lines).items():
            rate = group.median("gflops", (batch, line, hidden))
            if rate and group.is_on_cpu(line):  # the ceilings are the processor's
                lowest = min(lowest, rate)
                panel.plot(intensities[corner], rate, label=tables.label(line),
                           **{**point(look), "markersize": 7})
        panel.annotate(f"{hidden} hidden,\nbatch {batch}", (intensities[corner], 0), xytext=(0, 6),
                       xycoords=("data", "axes fraction"), textcoords="offset points", ha="center",
                       fontsize=8, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})
    log_axis(panel, "x")
    log_axis(panel, "y")
    panel.set_xlim(low / 2, high * 1.3)
    if lowest < math.inf:
        panel.set_ylim(bottom=lowest / 5)  # room for the names of the cells
    panel.set_xlabel("operations for each byte that a batch must read or write once")
    panel.set_ylabel("10⁹ operations a second")
    legend_below(figure, [panel])
    return figure


AXES = (("train_samples", "training images"), ("hidden", "hidden units"), ("batch", "batch size"),
        ("threads", "threads"))
PARAMETERS = "train_samples", "hidden", "batch", "epochs"


def base_of(runs):
    """The point where the sweeps of growth.csv meet. Most runs differ from it in one thing."""
    return {name: statistics.mode(run[name] for run in runs) for name in PARAMETERS}


def along(runs, base, axis):
    """{stage: {value: runs}} of the runs that differ from the base only in `axis`. Along the other
    axes, the runs of a stage are those with its largest number of threads."""
    chosen = defaultdict(lambda: defaultdict(list))
    most = {}
    for run in runs:
        most[run["stage"]] = max(run["threads"], most.get(run["stage"], 0))
    for run in runs:
        if all(run[name] == base[name] for name in PARAMETERS if name != axis) and (
                axis == "threads" or run["threads"] == most[run["stage"]]):
            chosen[run["stage"]][run[axis]].append(run)
    return chosen


def median_of(runs, value):
    return statistics.median(value(run) for run in runs)


def apart(values):
    """The values that are far enough apart to have a label each, on a logarithmic axis."""
    chosen = []
    for value in sorted(values):
        if not chosen or value >= 1.5 * chosen[-1]:
            chosen.append(value)
    return chosen


def epoch_time(run):
    return run["train_s"] / run["epochs"]


def growth(runs):
    """The time of an epoch against each of the four settings that it depends on."""
    if not runs:
        return None
    base = base_of(runs)
    stages = sorted({run["stage"] for run in runs})
    figure, axes = plt.subplots(2, 2, figsize=(WIDTH, 6.4), layout="constrained")
    for panel, (axis, title) in zip(axes.flat, AXES):
        ticks = set()
        for stage, points in along(runs, base, axis).items():
            # A stage without threads has no line in that panel.
            if axis != "threads" or len(points) > 1:
                values = sorted(points)
                ticks.update(values)
                panel.plot(values, [median_of(points[value], epoch_time) for value in values],
                           label=stage, **style(stages.index(stage)))
        if axis == "threads":
            panel.set_xticks(sorted(ticks))
            panel.set_ylim(bottom=0)
        else:
            log_axis(panel, "y")
            log_ticks(panel, apart(ticks))
        if not ticks:
            panel.text(0.5, 0.5, "not measured", transform=panel.transAxes, ha="center")
        panel.tick_params(axis="x", labelsize=8, rotation=30)
        panel.set_title(", ".join(f"{title} {base[name]:,}" for name, title in AXES[:3]
                                  if name != axis), fontsize=9)
        panel.set_xlabel(title)
        panel.set_ylabel("time per epoch (s)")
    legend_below(figure, axes.flat)
    return figure


def learning(runs):
    """The loss after each epoch, and the accuracy against the time that it took."""
    if not runs:
        return None
    base = base_of(runs)
    stages = sorted({run["stage"] for run in runs})
    curves = along(runs, base, "epochs")
    if not any(len(points) > 1 for points in curves.values()):
        return None
    figure, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 3.6), layout="constrained")
    for stage, points in curves.items():
        index = stages.index(stage)
        # The curves lie on top of each other: the markers of later ones are smaller.
        look = {**style(index), "markersize": max(3, 10 - 3 * index)}
        epochs = sorted(points)
        accuracies = [100 * median_of(points[epoch], lambda run: run["test_accuracy"])
                      for epoch in epochs]
        left.plot(epochs, [median_of(points[epoch], lambda run: run["final_loss"])
                           for epoch in epochs], label=stage, **look)
        right.plot([median_of(points[epoch], lambda run: run["train_s"]) for epoch in epochs],
                   accuracies, label=stage, **style(index))
    left.set_xlabel("epoch")
    left.set_ylabel("training loss")
    left.set_xticks(sorted({epoch for points in curves.values() for epoch in points}))
    left.set_ylim(bottom=0)
    log_axis(right, "x")
    right.set_xlabel("training time (s)")
    right.set_ylabel("test accuracy (%)")
    legend_below(figure, (left, right))
    return figure


def read_intensities(benchmarks):
    """{(hidden, batch): operations a byte}, of both phases together, from the results of bench/."""
    cells = defaultdict(dict)
    for name, run in benchmarks:
        parts = name.split("/")
        numbers = dict(part.split(":", 1) for part in parts if ":" in part)
        if {"hidden", "batch"} <= numbers.keys() and run.get("bytes") and run.get("flops_per_byte"):
            cells[int(numbers["hidden"]), int(numbers["batch"])][parts[1]] = run
    return {cell: sum(run["bytes"] * run["flops_per_byte"] for run in both.values()) /
            sum(run["bytes"] for run in both.values())
            for cell, both in cells.items() if len(both) == 2}
