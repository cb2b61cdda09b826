"""Runs a program once, and returns its row with the record of how the machine was meanwhile."""

import os
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench import faults, host, rows, running


class Measured(NamedTuple):
    """What a run leaves behind."""
    row: dict = None   # with the record, see RECORD in rows.py, and the whole program's seconds
    status: int = None  # without a row: the exit status, or None where the row cannot be right
    errors: str = ""   # what it wrote. Without a row, the last line says why
    texts: dict = None  # {file of the record: the lines that the program wrote for it}


def measure(stage, words, environment=None, with_epochs=False, **options):
    """Runs a stage or a peer once. On a GPU, the record has no rate."""
    began, load = time.strftime("%FT%TZ", time.gmtime()), round(os.getloadavg()[0], 2)
    others = host.watch_others()
    files = {"runs.csv": "csv"} | ({"epochs.csv": stage.ladder.epochs} if with_epochs else {})
    with tempfile.TemporaryDirectory() as folder:
        command = [*stage.command, *words, "--quiet"]
        for name, option in files.items():
            command += [f"--{option}", f"{folder}/{name}"]
        status, errors, seconds = running.run(
            command, env=environment or stage.environment, **options)
        noted = {"began": began, "load": load, "others": round(others(), 1), "program_s": seconds}
        if status:
            return Measured(None, status, errors)
        paths = {name: Path(folder, name) for name in files if Path(folder, name).exists()}
        found = rows.records(rows.read_rows(paths["runs.csv"], stage.ladder)) if paths else ()
        if not found:
            return Measured(errors="wrote no row to its --csv")
        row = found[-1]
        if fault := faults.clock_fault(row, stage.ladder, seconds):
            return Measured(errors=f"its times cannot be right: {fault}")
        # Only now it is known how many threads it has used.
        row["rate"] = round(host.rate(row["threads"] or 1), 1) if row["device"] == "cpu" else None
        return Measured(row | noted, 0, errors, {name: rows.read(paths[name]) for name in paths})
