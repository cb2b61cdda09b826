"""The picture of a machine's roofs, and of what the stages reach below them."""

import itertools
import math
from collections import defaultdict

import matplotlib.pyplot as plt

from bench import rows
from report import frames, tables
from report.look import CPU, INK, LIBRARY, log_axis
from report.words import cell_name

LEVEL_ROOFS = {"flops": "multiply-adds, cores: {}", "addition": "one sum that waits for itself"}
LOWEST, HIGHEST = 0.3, 3000  # operations for each byte, at the left and at the right


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
    figure, axes = plt.subplots(len(cells), 1, squeeze=False, sharex=True,
                                figsize=(6.4, 4.6 * len(cells)), layout="constrained")
    top = max(machine.peaks.values()) / 1e9
    for axis, cell in zip(axes.flat, cells):
        shown = columns(machine, found, cell, top)
        axis.set(title=cell_name(machine.ladder, cell), xlim=(LOWEST, HIGHEST),
                 ylim=(0.9, 1.6 * top), ylabel="GFLOP/s",
                 xlabel="operations for each byte" if axis is axes[-1, 0] else "")
        log_axis(axis, "xy")
        draw_roofs(axis, roofs_of(machine), top)
        for (x, phase), points in shown.items():
            is_left = x == min(shown)[0]
            axis.text(x * (0.93 if is_left else 1.07), 1, phase, fontsize=8,
                      ha="right" if is_left else "left", va="bottom")
            draw_column(axis, x, points, is_left)
    return figure


def columns(machine, found, cell, top):
    """{(operations for each byte, phase): [(GFLOP/s, program)]}. All programs of a cell do the same
    work, so a phase is a column. From the first on that begins at another than the one before, they
    may do other work: lists, whole numbers, messages."""
    ladder = machine.ladder
    shown = defaultdict(list)
    known = [stage.name for stage in itertools.takewhile(
        lambda stage: not stage.declared("ORIGIN"), ladder.stages)]
    here = {name: found[name, cell] for name in known if (name, cell) in found}
    for name, row in here.items():
        work = {phase: ladder.work(row, phase, "operations") for phase in ladder.phases}
        rates = {phase: work[phase] / row[f"{phase}_s"] / 1e9 for phase in ladder.phases
                 if row[f"{phase}_s"] > 0}
        # Where phases overlap, a phase seems to be faster than the machine.
        if max(rates.values(), default=math.inf) >= top:
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
            axis.plot((LOWEST, HIGHEST), (rate, rate), color=INK, linewidth=1.2)
            axis.text(HIGHEST, rate, LEVEL_ROOFS[level].format(threads), va="bottom", ha="right",
                      fontsize=8)
        elif threads == 1 and level in ("L1", "L2", "L3", "memory"):
            axis.plot((LOWEST, top / rate), (LOWEST * rate, top), color=LIBRARY, linewidth=0.6)
            axis.text(1.15 * LOWEST, LOWEST * rate, level, color=LIBRARY, va="center", fontsize=8)


def draw_column(axis, x, points, is_left):
    """The programs in a phase, with their names to one side, one below another, none on a roof."""
    to_panel = axis.transData + axis.transAxes.inverted()
    roofs = [to_panel.transform((x, line.get_ydata()[0]))[1] for line in axis.lines
             if len({*line.get_ydata()}) == 1 and len(line.get_ydata()) > 1]
    free = 0.98
    for y, name in sorted(points, reverse=True):
        at, own = to_panel.transform((x, y))
        free = min(own, free)
        while any(abs(free - roof) < 0.014 for roof in roofs):
            free -= 0.001
        axis.plot(x, y, "o", color=CPU, markersize=3.5 if "." in name else 6)
        axis.annotate(name, (x, y), (at - 0.07 if is_left else at + 0.07, free),
                      textcoords="axes fraction", fontsize=7, va="center",
                      ha="right" if is_left else "left",
                      arrowprops={"arrowstyle": "-", "color": LIBRARY, "linewidth": 0.5,
                                  "shrinkB": 3, "relpos": (1 if is_left else 0, 0.5)})
        free -= 0.027
