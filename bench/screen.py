"""What a reader sees on a terminal: words wrapped to its width, and what he waits for."""

import contextlib
import re
import shutil
import sys
import textwrap
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

EVERY_S = 10  # so often there is a line where no terminal shows a bar


def tell(text, indent=""):
    """Prints a paragraph. A terminal would break lines within words."""
    if sys.stdout.isatty():
        text = textwrap.fill(" ".join(text.split()), shutil.get_terminal_size().columns,
                             subsequent_indent=indent, break_on_hyphens=False)
    print(text)


def markdown(text):
    """Prints a part of a README: its paragraphs and lists, tables, and code as it is."""
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = re.split(r"\n(?=\||    |\s*(?:-|\d+\.) )", block)
        if block.startswith("|") and sys.stdout.isatty():
            table(lines)
            lines = []
        for line in lines:
            if line.startswith(("|", "    ")):
                print(line)
            else:
                tell(line, "  " if re.match(r"- |\d+\.", line) else "")
        print()


def table(lines):
    """Prints a table of a README. Its columns wrap to the terminal's width."""
    first, *rows = ([cell.replace("**", "").strip() for cell in line.split("|")[1:-1]]
                    for line in lines)
    found = Table(*first, box=None, padding=(0, 2, 0, 0))
    for row in rows:
        found.add_row(*row)
    Console(markup=False, highlight=False).print(found)


class Bar(Progress):
    """Says what is under way, how far it is and how long it may take. It is drawn when there is
    news, by no thread of its own, which would disturb what is timed. Without a terminal it is a
    line at times."""

    def __init__(self):
        super().__init__(
            BarColumn(10), TimeRemainingColumn(), TextColumn("{task.description}", markup=False),
            console=Console(stderr=True), auto_refresh=False, transient=True,
            disable=not sys.stderr.isatty(), speed_estimate_period=86400)
        self.bar = self.add_task("", total=None)
        self.said = time.monotonic()

    def say(self, words, done=0, left=0):
        """So much is `done`, and so much is `left`, if that is known."""
        part = {"completed": done / (done + left), "total": 1} if done else {}
        with contextlib.suppress(OSError):  # the terminal is gone, but what runs goes on
            self.update(self.bar, description=words, refresh=True, **part)
            if self.disable and time.monotonic() >= self.said + EVERY_S:
                self.said = time.monotonic()
                print(words, file=sys.stderr, flush=True)

    def stop(self):
        with contextlib.suppress(OSError):
            if not self.disable:  # else it would print an empty line
                super().stop()
