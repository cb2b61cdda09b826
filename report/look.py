"""How plots look, and how they are written: as SVG, where the same input gives the same bytes."""

import io
import re

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Patch

from bench import rows

# What a program is: of the ladder on a CPU or a GPU, or a library's. Seen on light and dark.
CPU, GPU, LIBRARY = "#2f81d8", "#d9700e", "#7d8793"
KINDS = {CPU: "CPU", GPU: "GPU", LIBRARY: "library"}
INK = "#1f2328"
GRID = "#dddddd"

plt.rcParams.update({
    "font.family": "DejaVu Sans", "font.size": 9, "lines.markersize": 5,
    "svg.hashsalt": "ladder", "savefig.transparent": True,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color",
                     "ytick.color"), INK),
    "axes.grid": True, "axes.axisbelow": True, "axes.spines.top": False,
    "axes.spines.right": False, "grid.color": GRID, "grid.linewidth": 0.6,
    "legend.frameon": False, "text.parse_math": False,  # a $ in a name stays a $
})
# Ink and grid where the reader's system is dark.
DARK = "@media (prefers-color-scheme: dark) {" + "".join(
    f'[style*="{what}: {light}"] {{ {what}: {dark} !important }} '
    for what in ("fill", "stroke") for light, dark in ((INK, "#e6edf3"), (GRID, "#3d444d"))) + "}"


def save(figure, path):
    """Writes a figure. Places have two digits: others are rounded differently elsewhere."""
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    picture = re.sub(r'\b[dxy]="[^"]*"', lambda place: re.sub(r"(\.\d\d)\d+", r"\1", place[0]),
                     text.getvalue())
    picture = picture.replace("<defs>", f"<style>{DARK}</style>\n <defs>", 1)
    if not path.exists() or rows.read(path) != picture:
        rows.write(path, picture)


def colour(ladder, name):
    """That of a stage or a peer of this name."""
    if name.startswith("peer_"):
        return LIBRARY
    return GPU if any(each.name == name and each.is_gpu for each in ladder.stages) else CPU


def key(colours):
    """What these colours mean, as the handles of a legend."""
    return [Patch(color=each, label=name) for each, name in KINDS.items() if each in colours]


def log_axis(axes, which):
    """Makes the axes "x", "y" or "xy" logarithmic, and says so beside their labels."""
    for each in which:
        getattr(axes, f"set_{each}scale")("log")
        axis = getattr(axes, f"{each}axis")
        low, high = getattr(axes, f"get_{each}lim")()
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
        axis.get_major_locator().set_params(
            subs=(1, 2, 5) if high < 40 * low else (1, 3) if high < 400 * low else (1,))
        if axis.get_label_text():
            axis.set_label_text(f"{axis.get_label_text()}, log")
