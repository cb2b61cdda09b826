"""Builds a program, and runs it: its row, with the record of how the machine was meanwhile."""

import os
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench import base, clocks, host, process, rows
from bench.base import fail


# A process of several runs starts once: later rows say nothing of its start, nor of its memory.
ONCE = "load_s", "setup_s", "warmup_s", "peak_rss_mib", "peak_vram_mib"
AGAIN_S = 5  # after so long it begins no other: a long run is made less often (ROUNDS in jobs.py)


class Measured(NamedTuple):
    row: dict = None   # with the columns RECORD of rows.py, and the whole program's seconds
    status: int = 0    # the exit status; there may be no row although it is 0
    errors: str = ""   # what it wrote. Without a row, the last line says why
    texts: dict = None  # {file of the record: the lines that the program wrote for it}
    rows: list = ()    # one for each run of the process


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


def runs_in_a_process(environment, count):
    """An environment in which a program runs so many times before it ends, or fewer if that takes
    long (bench/again.c)."""
    if count == 1:
        return environment
    process.make("-C", "bench", "build/again.so")
    preloaded = " ".join(filter(None, [environment.get("LD_PRELOAD"), "bench/build/again.so"]))
    return environment | {"LD_PRELOAD": preloaded, "AGAIN": str(count), "AGAIN_S": str(AGAIN_S)}


def read_rows(path, ladder):
    """The rows of a process. In the file, too, the later ones say nothing of its start."""
    if not path.exists():
        return []
    frame = rows.read_texts(path, ())
    if frame[1:].size:
        frame.loc[1:, frame.columns.intersection(ONCE)] = ""
        rows.write(path, frame.to_csv(index=False))
    return rows.records(rows.read_rows(path, ladder))


def measure(stage, words, environment=None, with_epochs=False, again=1, **options):
    """Runs a stage or a peer, in one process `again` times at most. The record has no rate on a
    GPU."""
    noted = {"began": time.strftime("%FT%TZ", time.gmtime()), "load": round(os.getloadavg()[0], 2)}
    others = host.watch_others()
    command = [*stage.command, *words, "--quiet"]
    environment = runs_in_a_process(environment or stage.environment, again)
    with tempfile.TemporaryDirectory() as folder:
        command += ["--csv", f"{folder}/runs.csv"]
        if with_epochs:
            command += [f"--{stage.ladder.toml['epochs']}", f"{folder}/epochs.csv"]
        ended = process.run(command, env=environment, cwd=base.ROOT, **options)
        noted["others"] = round(others(), 1)
        if ended.status:
            return Measured(None, ended.status, ended.err)
        found = read_rows(Path(folder, "runs.csv"), stage.ladder)
        texts = {path.name: rows.read(path) for path in Path(folder).iterdir()}
    if not found:
        return Measured(errors="wrote no row to its --csv")
    noted |= {"rate": None, "program_s": ended.seconds / len(found)}
    found = [row | noted for row in found]
    fault = clocks.first_fault(found, stage, ended.seconds)
    if fault:
        return Measured(errors=f"its times cannot be right: {fault}")
    row = found[-1]
    if row["device"] == "cpu":  # only now it is known how many threads it has used
        row["rate"] = round(host.rate(row["threads"] or 1), 1)
    return Measured(row, 0, ended.err, texts, found)


def run(stage, words):
    """The row of a run. Without one, the program ends, and says why."""
    found = measure(stage, words)
    if not found.row:
        reason = process.reason(found.errors, stage.name) or "no reason given"
        if found.status:
            reason = f"{process.ending(found.status)}: {reason}"
        fail(f"{stage.name}: {reason}", max(1, found.status or 1))
    return found.row
