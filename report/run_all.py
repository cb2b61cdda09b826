"""The main job, which run_all.sh starts: a sweep of the harness, and then its tables."""

import sys

from harness import rows, sweep


def main():
    status, swept = sweep.main(sys.argv[1:])
    for folder, ladder in swept:
        from report import tables  # takes half a second, and a sweep does not need it

        rows.write(folder / "tables.txt", tables.show(folder, ladder, last=True))
    return status
