"""Shows the rows that the stages of a ladder wrote, and the record beside them.

    tables.py runs.csv                      tables for a terminal: for each value of the first axis
                                            and each measure a line per stage, a column per value
                                            of the last axis
    tables.py --markdown runs.csv           the headline: a few cells, in Markdown
    tables.py --update README.md runs.csv   the headline, put between the markers in README.md, and
                                            the ladder and the epochs, if README.md has markers for
                                            them
"""

import argparse
import os
import sys
from pathlib import Path

from harness import ladders, rows
from harness.rows import fail
from report import view


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, metavar="runs.csv")
    parser.add_argument("--ladder", metavar="NAME",
                        help="whose rows these are (the name of the folder, or the main one)")
    parser.add_argument("--markdown", action="store_true", help="print the headline")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the headline into FILE")
    parser.add_argument("--output", type=Path, metavar="FILE",
                        help="write the tables there instead of printing them")
    arguments = parser.parse_args()

    known = [ladder.name for ladder in ladders.ladders()]
    above = Path(os.path.abspath(arguments.runs)).parents[:2]  # LADDER/steps is LADDER's
    ladder = ladders.find_ladder(arguments.ladder or next(
        (folder.name for folder in above if folder.name in known), ""), "--ladder")
    groups = view.read_groups(arguments.runs, ladder)
    if (arguments.update or arguments.markdown) and not groups:
        fail(f"{arguments.runs}: found no runs")
    if arguments.update:
        for name, block in view.BLOCKS.items():
            if name == "table" or view.has_markers(arguments.update, name):
                view.update(arguments.update, block(groups, arguments.update.parent), name)
        return
    text = (view.headline(groups, Path()) + "\n" if arguments.markdown else
            view.table_text(arguments.runs, groups, ladders.width(sys.stdout)))
    if arguments.output:
        rows.write(arguments.output, text)
        return
    try:
        # Not sys.stdout: it has the locale's encoding, and complains a second time at the end.
        with open(1, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
    except OSError as error:
        fail(f"cannot write: {error.strerror}", 1)
