"""What the pictures of the moves are drawn with.

The picture.py of a stage has a draw(stage) that returns a Picture, with sizes from the sources.
`make report` writes it to picture.svg, as wide as a telephone: 360 pixels. What is read has
stripes, what is summed is blue, and a thick line goes around what belongs together.
"""

import re
from html import escape
from itertools import groupby
from pathlib import Path
from string import Template

from bench.base import ROOT, fail

LOOKS = {False: "rest", True: "read"}


def constant(stage, name):
    """The value of a constant in a stage's source: the first is that of the widest vectors."""
    files = [stage.source, *(ROOT / path for path in ("common/data.h", "common/program.c"))]
    for file in files:
        if found := re.search(rf"\b{name} = (\d+)\b", file.read_text(encoding="utf-8")):
            return int(found[1])
    return fail(f"{stage.source.relative_to(ROOT)}: found no number for {name}, "
                        f"expected '{name} = ...'")


class Picture:
    """The parts of a drawing. x and y are the left upper corner, in pixels."""

    def __init__(self, title):
        self.title = title
        self.parts = []
        self.height = 0
        self.head(title)

    def head(self, text):
        """A bold line below all else. Returns where the next part may begin."""
        self.text(10, self.height + 18, text, "title")
        return self.height

    def notes(self, *lines):
        for line in lines:
            self.text(10, self.height + 14, line)
            self.height -= 8
        self.height += 12

    def text(self, x, y, text, style="", anchor="start"):
        self.parts.append(f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">'
                          f'{escape(text)}</text>')
        self.height = max(self.height, y + 10)

    def rect(self, x, y, width, height, style="rest", text=""):
        self.parts.append(f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" '
                          f'height="{height:g}"/>')
        if text:
            self.text(x + width / 2, y + height / 2 + 4, text, f"small in_{style}", "middle")
        self.height = max(self.height, y + height + 4)

    def grid(self, x, y, rows, columns, width, height, style):
        """Cells. A function of row and column gives a cell's style."""
        for row in range(rows):
            for look, cells in groupby(range(columns), lambda column, row=row: style(row, column)):
                first, *others = cells
                self.rect(x + first * width, y + row * height, (1 + len(others)) * width, height,
                          look)
        lines = "".join(f"M{x + column * width:g} {y:g}v{rows * height:g}"
                        for column in range(1, columns))
        self.parts.append(f'<path class="cells" d="{lines}"/>')

    def arrow(self, x, y, to_x, to_y, style=""):
        self.parts.append(f'<path class="{style}" d="M{x:g} {y:g}L{to_x:g} {to_y:g}"/>')

    def save(self, path):
        frame = Template((Path(__file__).parent / "picture.svg").read_text(encoding="utf-8"))
        path.write_text(frame.substitute(title=escape(self.title), height=f"{self.height:g}",
                                         parts="\n".join(self.parts)), encoding="utf-8")
