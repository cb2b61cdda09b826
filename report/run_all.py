"""The main job, which run_all.sh starts: a sweep, and its tables, in tables.txt too."""

import contextlib
import sys

from bench import rows, sweep


def main():
    status, swept = sweep.main(sys.argv[1:])
    from report import makes, terminal, view  # takes half a second, and a sweep does not need it

    for folder, ladder in swept:
        results = view.Results(folder, ladder)
        rows.write(folder / "tables.txt", terminal.terminal(results, ("grid", "steps")))
        last = results.sweeps[max(results.sweeps)].get("kind", "grid")
        if last == "steps" and results.groups["steps"]:
            rows.write(folder / "steps.csv", makes.record(results).to_csv(index=False))
        # Not sys.stdout: it has the locale's encoding. It may be closed, and the file is there.
        with contextlib.suppress(OSError), open(1, "w", encoding="utf-8", closefd=False) as file:
            file.write(terminal.terminal(results, [last]))
    return status
