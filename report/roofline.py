"""The picture of a machine's roofs, and of what the stages reach below them."""

import math
from collections import defaultdict

import matplotlib.pyplot as plt

from report import blocks
from report.look import INK, MARKERS, PEERS, log_axis, place

LEVEL_ROOFS = {"flops": "multiply-adds, cores: {}", "addition": "one sum that waits for itself"}


def roofline(results):
    """What each CPU program reaches in each phase, under the machine's roofs: a panel a cell."""
    group = results.steps.with_most_threads()
    figure, axes = plt.subplots(1, len(group.shared), squeeze=False, sharex=True, sharey=True,
                                figsize=(8, 5.6), layout="constrained")
    low = 0.2
    top = max(results.ceilings.values()) / 1e9
    for axis, cell in zip(axes.flat, group.shared):
        draw_roofs(axis, results.roofs, low, top)
        for (x, phase), points in columns_of(group, cell, top).items():
            draw_column(axis, x, points, is_left=phase != results.ladder.phases[0])
            axis.text(x, 0.5, phase, fontsize=7, rotation=90, ha="center", va="bottom")
        axis.set(title=blocks.cell_name(results.ladder, cell), xlabel="operations for each byte",
                 ylabel="GFLOP/s" if axis is axes[0, 0] else "", ylim=(0.45, 2 * top))
        log_axis(axis, "xy")
    return figure


def columns_of(group, cell, top):
    """{(operations for each byte, phase): [(GFLOP/s, program)]}. All programs of a cell do the same
    work, so a phase is a column. Those that do not do what the rate counts are not there."""
    columns = defaultdict(list)
    row = dict(zip(group.axes, cell)) | group.settings
    ladder = group.ladder
    work = {phase: ladder.work(row, phase, "operations") for phase in ladder.phases}
    for line in group.on_cpu:
        rates = {phase: work[phase] / seconds / 1e9 for phase in ladder.phases
                 if (seconds := group.median(f"{phase}_s", line, cell))}
        if not ladder.skips(line[0]) and max(rates.values(), default=math.inf) < top:
            for phase, rate in rates.items():
                intensity = work[phase] / ladder.work(row, phase, "bytes")
                columns[intensity, phase].append((rate, line[0]))
    return columns


def draw_roofs(axis, roofs, low, top):
    """What the machine can do: operations from registers, and bytes from each level for a core."""
    for level, threads, rate in roofs:
        rate /= 1e9
        if level in LEVEL_ROOFS:
            if level == "addition":  # with the multiplication before each
                rate *= 2
            axis.plot((low, 2000), (rate, rate), color=INK, linewidth=1.2)
            axis.text(2000, rate, LEVEL_ROOFS[level].format(threads), va="bottom", ha="right",
                      fontsize=7)
        elif threads == 1 and level in ("L1", "L2", "L3", "memory"):
            axis.plot((low, top / rate), (low * rate, top), color=PEERS, linewidth=0.8)
            axis.text(1.2 * low, low * rate, level, color=PEERS, va="center", fontsize=7)


def draw_column(axis, x, points, is_left):
    """The programs in a phase, with the chapters' numbers to one side. None covers another."""
    free = math.inf
    for y, name in sorted(points, reverse=True):
        number, colour = place(name)
        if "." not in name:
            free = min(y, free / 1.2)
        axis.plot(x, y, MARKERS[number % len(MARKERS)], color=colour,
                  markersize=3 if "." in name else 6)
        if "." not in name:
            axis.text(x * (0.85 if is_left else 1.17), free, name.split("_")[0], fontsize=7,
                      color=colour, va="top", ha="right" if is_left else "left")
