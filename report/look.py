"""How plots look, and how they are written: as SVG, where the same input gives the same bytes.

A stage keeps its colour and marker in all plots. The markers differ enough to tell stages apart in
grey too.
"""

import io
import re

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

from bench import rows

# Those of the stages, by number, and that of all peers.
STAGES = ("#76808c", "#0b78d1", "#d1620a", "#159a52", "#c3367f", "#8757d6", "#d12c2c", "#0d9aa8",
          "#a2790b", "#5b8a12", "#a3574a", "#4d63c9")
PEERS = "#6f7f92"
INK = "#1f2328"
GRID = "#dddddd"
MARKERS = "osD^vPX*<>hp"

plt.rcParams.update({
    "font.family": "DejaVu Sans", "font.size": 9, "lines.markersize": 5,
    "svg.hashsalt": "ladder", "savefig.transparent": True,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color",
                     "ytick.color"), INK),
    "axes.grid": True, "axes.axisbelow": True, "axes.spines.top": False,
    "axes.spines.right": False, "grid.color": GRID, "grid.linewidth": 0.6,
    "text.parse_math": False,  # a $ in a name stays a $
})
# Ink and grid where the reader's system is dark. Colours of stages are seen on both.
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


def place(name):
    """(number, colour) of a stage or a peer. A step has those of the stage that it leads to."""
    number = int(name[:2]) if name[:2].isdigit() else 0
    return number, STAGES[number % len(STAGES)] if name[:2].isdigit() else PEERS


def log_axis(axes, which):
    """Makes the axes "x", "y" or "xy" logarithmic, and says so beside their labels."""
    for each in which:
        getattr(axes, f"set_{each}scale")("log")
        axis = getattr(axes, f"{each}axis")
        low, high = getattr(axes, f"get_{each}lim")()
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
        axis.get_major_locator().set_params(subs=(1, 2, 5) if high < 40 * low else (1,))
        if axis.get_label_text():
            axis.set_label_text(f"{axis.get_label_text()}, log")
