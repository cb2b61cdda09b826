"""Prints the tables of a folder of results, for a terminal.

    python3 -m harness report.tables FOLDER [LADDER]

FOLDER has runs.csv and the files beside it. LADDER is whose they are: the folder's name, or else
the main one.
"""

import argparse
import contextlib
import sys
from pathlib import Path

from harness import ladders, rows
from report import blocks, view


def show(folder, ladder, last=False):
    """Prints the tables of a folder of results, or those of its last sweep's kind. Returns all."""
    results = view.Results(folder, ladder)
    kinds = ("grid", "steps")
    shown = [results.sweeps[max(results.sweeps)].get("kind", "grid")] if last else kinds
    # Not sys.stdout: it has the locale's encoding. It may be closed, and the files are there.
    with contextlib.suppress(OSError), open(1, "w", encoding="utf-8", closefd=False) as file:
        file.write(blocks.terminal(results, shown))
    return blocks.terminal(results, kinds)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("ladder", nargs="?")
    arguments = parser.parse_args()
    name = arguments.folder.absolute().name
    known = [ladder.name for ladder in ladders.ladders()]
    show(arguments.folder, ladders.find_ladder(
        arguments.ladder or (name if name in known else ""), "LADDER"))
