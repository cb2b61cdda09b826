"""Builds a program, and runs it: its row, with the record of how the machine was meanwhile."""

import os
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench import base, clocks, host, process, rows
from bench.base import fail


class Measured(NamedTuple):
    row: dict = None   # with the columns RECORD of rows.py, and the whole program's seconds
    status: int = 0    # the exit status; there may be no row although it is 0
    errors: str = ""   # what it wrote. Without a row, the last line says why
    texts: dict = None  # {file of the record: the lines that the program wrote for it}


def build(stage):
    process.make(*stage.build)
    if not stage.program.exists():
        fail(f"{stage.name} cannot run here: see above (`make check` simulates a GPU)", 77)


def read_options(ladder, table):
    """The options of a table in ladder.toml, which make's command line may have changed."""
    options = {"runs": "30", **ladder.options(table)}
    known = rows.parameters(ladder)
    least = 0 if table == "check" else 2  # runs
    for option, text in options.items():
        kind = known.get(ladder.column(option), (int, least))
        if isinstance(text, bool):  # in ladder.toml
            text = int(text)
        base.value(option.upper().replace("-", "_"), str(text), *kind)
    return options


def measure(stage, words, environment=None, with_epochs=False, **options):
    """Runs a stage or a peer once. On a GPU, the record has no rate."""
    noted = {"began": time.strftime("%FT%TZ", time.gmtime()), "load": round(os.getloadavg()[0], 2)}
    others = host.watch_others()
    command = [*stage.command, *words, "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--csv", f"{folder}/runs.csv"]
        if with_epochs:
            command += [f"--{stage.ladder.toml['epochs']}", f"{folder}/epochs.csv"]
        ended = process.run(command, env=environment or stage.environment, **options)
        noted |= {"others": round(others(), 1), "program_s": ended.seconds}
        if ended.status:
            return Measured(None, ended.status, ended.err)
        texts = {path.name: rows.read(path) for path in Path(folder).iterdir()}
        found = []
        if "runs.csv" in texts:
            found = rows.records(rows.read_rows(f"{folder}/runs.csv", stage.ladder))
    if not found:
        return Measured(errors="wrote no row to its --csv")
    row = found[-1] | noted | {"rate": None}
    if fault := clocks.clock_fault(row, stage, ended.seconds):
        return Measured(errors=f"its times cannot be right: {fault}")
    if row["device"] == "cpu":  # only now it is known how many threads it has used
        row["rate"] = round(host.rate(row["threads"] or 1), 1)
    return Measured(row, 0, ended.err, texts)


def run(stage, words):
    """The row of a run. Without one, the program ends, and says why."""
    row, status, errors, _ = measure(stage, words)
    if not row:
        reason = process.reason(errors, stage.name) or "no reason given"
        if status:
            reason = f"exit status {status}: {reason}"
        fail(f"{stage.name}: {reason}", max(1, status or 1))
    return row
