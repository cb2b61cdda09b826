"""The main job, which run_all.sh starts: a sweep of the harness, whose tables are the report's."""

import contextlib
import sys

from harness import rows, sweep


def main():
    status, swept = sweep.main(sys.argv[1:])
    from report import view  # takes half a second, and needs what a sweep does not
    for folder, ladder in swept:
        runs = folder / "runs.csv"
        text = view.table_text(runs, view.read_groups(runs, ladder))
        rows.write(folder / "tables.txt", text)
        with contextlib.suppress(OSError):  # it may be closed, and the file is there
            print(text, end="", flush=True)
    return status
