"""The main job, which run_all.sh starts: a sweep, and its tables, in tables.txt too."""

import contextlib
import sys

from bench import rows, sweep


def main():
    status, swept = sweep.main(sys.argv[1:])
    from report import frames, terminal  # takes half a second, and a sweep does not need it

    for folder, ladder in swept:
        machine = frames.Machine(folder.parent, ladder, folder)
        rows.write(folder / "tables.txt", terminal.text(machine, ["grid", "steps"]))
        last = machine.record.sweeps[max(machine.record.sweeps)].get("kind", "grid")
        # Not sys.stdout: it has the locale's encoding. It may be closed, and the file is there.
        with contextlib.suppress(OSError), open(1, "w", encoding="utf-8", closefd=False) as file:
            file.write(terminal.text(machine, [last]))
    return status
