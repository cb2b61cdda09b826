"""The main job, which run_all.sh starts: a sweep of the harness, whose tables are the report's."""

from pathlib import Path

from harness import sweep


def tables(runs, ladder, *width):
    """The tables of a file of rows, as text."""
    from report import view  # takes half a second, and needs what a sweep does not
    return view.table_text(Path(runs), view.read_groups(Path(runs), ladder), *width)


def main():
    return sweep.main(tables)
