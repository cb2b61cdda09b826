"""The picture of a machine's roofs, and of what the stages reach below them."""

import math
from collections import defaultdict

import matplotlib.pyplot as plt

from bench import rows
from report import frames, tables
from report.look import INK, MARKERS, PEERS, log_axis, place
from report.words import cell_name

LEVEL_ROOFS = {"flops": "multiply-adds, cores: {}", "addition": "one sum that waits for itself"}
LOWEST = 0.2  # operations for each byte, at the left


def roofs_of(machine):
    """[(level, threads, rate)] that `make bench` has measured on the machine."""
    return rows.read_ceilings(machine.home / "bench/ceilings.json")


def is_known(machine):
    """Whether there are roofs, and the ladder says how many bytes each phase moves."""
    work = machine.ladder.toml["work"].values()
    has_bytes = [each.get("bytes") for each in work]
    return bool(roofs_of(machine) and has_bytes and all(has_bytes))


def roofline(machine):
    """What each CPU program reaches in each phase, under the machine's roofs: a panel a cell."""
    runs = machine.of(machine.best_kind)
    found = frames.best(machine, frames.cells(machine, runs[~runs["on_gpu"]]))
    cells = tables.shared_cells(machine, found)
    figure, axes = plt.subplots(1, len(cells), squeeze=False, sharex=True, sharey=True,
                                figsize=(8, 5.6), layout="constrained")
    top = max(machine.peaks.values()) / 1e9
    for axis, cell in zip(axes.flat, cells):
        draw_roofs(axis, roofs_of(machine), top)
        for (x, phase), points in columns(machine, found, cell, top).items():
            draw_column(axis, x, points, is_left=phase != machine.ladder.phases[0])
            axis.text(x, 0.5, phase, fontsize=7, rotation=90, ha="center", va="bottom")
        axis.set(title=cell_name(machine.ladder, cell), xlabel="operations for each byte",
                 ylabel="GFLOP/s" if axis is axes[0, 0] else "", ylim=(0.45, 2 * top))
        log_axis(axis, "xy")
    return figure


def columns(machine, found, cell, top):
    """{(operations for each byte, phase): [(GFLOP/s, program)]}. All programs of a cell do the same
    work, so a phase is a column. Those that do not do what the rate counts are not there."""
    ladder = machine.ladder
    shown = defaultdict(list)
    here = {name: row for (name, place_of), row in found.items() if place_of == cell}
    for name, row in here.items():
        work = {phase: ladder.work(row, phase, "operations") for phase in ladder.phases}
        rates = {phase: work[phase] / row[f"{phase}_s"] / 1e9 for phase in ladder.phases
                 if row[f"{phase}_s"] > 0}
        # Where phases overlap, a phase seems to be faster than the machine.
        if ladder.skips(name) or max(rates.values(), default=math.inf) >= top:
            continue
        for phase, rate in rates.items():
            intensity = work[phase] / ladder.work(row, phase, "bytes")
            shown[intensity, phase].append((rate, name))
    return shown


def draw_roofs(axis, roofs, top):
    """What the machine can do: operations from registers, and bytes from each level for a core."""
    for level, threads, rate in roofs:
        rate /= 1e9
        if level in LEVEL_ROOFS:
            if level == "addition":  # with the multiplication before each
                rate *= 2
            axis.plot((LOWEST, 2000), (rate, rate), color=INK, linewidth=1.2)
            axis.text(2000, rate, LEVEL_ROOFS[level].format(threads), va="bottom", ha="right",
                      fontsize=7)
        elif threads == 1 and level in ("L1", "L2", "L3", "memory"):
            axis.plot((LOWEST, top / rate), (LOWEST * rate, top), color=PEERS, linewidth=0.8)
            axis.text(1.2 * LOWEST, LOWEST * rate, level, color=PEERS, va="center", fontsize=7)


def draw_column(axis, x, points, is_left):
    """The programs in a phase, with the chapters' numbers to one side. None covers another."""
    free = math.inf
    for y, name in sorted(points, reverse=True):
        number, colour = place(name)
        is_step = "." in name
        axis.plot(x, y, MARKERS[number % len(MARKERS)], color=colour,
                  markersize=3 if is_step else 6)
        if not is_step:
            free = min(y, free / 1.2)
            axis.text(x * (0.85 if is_left else 1.17), free, name.split("_")[0], fontsize=7,
                      color=colour, va="top", ha="right" if is_left else "left")
