"""Runs a program once, and returns its row with the record of how the machine was meanwhile."""

import math
import os
import random
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench import faults, host, process, rows
from bench.options import given

CLOCK_S = 1  # of work, by which a program's clock is held against the clock outside
CLOCK_LIMIT_S = 60  # and so long it may take: a program may say that it takes no time. One that
# says more than that is no lie to win by.
CLOCK_NOISE_S = 0.05  # of what is around the work
CLOCK_PAIRS = 10  # mpirun alone takes half a second or two on a busy machine


class Measured(NamedTuple):
    row: dict = None   # with the columns RECORD of rows.py, and the whole program's seconds
    status: int = 0    # the exit status; there may be no row although it is 0
    errors: str = ""   # what it wrote. Without a row, the last line says why
    texts: dict = None  # {file of the record: the lines that the program wrote for it}


def measure(stage, words, environment=None, with_epochs=False, **options):
    """Runs a stage or a peer once. On a GPU, the record has no rate."""
    noted = {"began": time.strftime("%FT%TZ", time.gmtime()), "load": round(os.getloadavg()[0], 2)}
    others = host.watch_others()
    command = [*stage.command, *words, "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--csv", f"{folder}/runs.csv"]
        if with_epochs:
            command += [f"--{stage.ladder.toml['epochs']}", f"{folder}/epochs.csv"]
        status, _, errors, seconds = process.run(
            command, env=environment or stage.environment, **options)
        noted |= {"others": round(others(), 1), "program_s": seconds}
        if status:
            return Measured(None, status, errors)
        texts = {path.name: rows.read(path) for path in Path(folder).iterdir()}
        found = []
        if "runs.csv" in texts:
            found = rows.records(rows.read_rows(f"{folder}/runs.csv", stage.ladder))
    if not found:
        return Measured(errors="wrote no row to its --csv")
    row = found[-1] | noted | {"rate": None}
    if fault := faults.clock_fault(row, stage.ladder, seconds):
        return Measured(errors=f"its times cannot be right: {fault}")
    if row["device"] == "cpu":  # only now it is known how many threads it has used
        row["rate"] = round(host.rate(row["threads"] or 1), 1)
    return Measured(row, 0, errors, texts)


def draw_seed(ladder):
    """The words for a seed that nobody knows before: so no result can be had from a file."""
    if "seed" not in ladder.settings or given("seed"):
        return []
    return ["--seed", str(random.randrange(1, 2**31))]


def slow_clock(stage, options, row, run):
    """What is wrong if more rounds than a row has take longer outside than by the program's own
    clock, or "". A busy machine disturbs a pair of runs, so one that fits is enough."""
    ladder = stage.ladder
    if not ladder.toml["clock"] or stage.is_peer:
        return ""
    option, column, *words = ladder.toml["clock"]
    if row[column] > CLOCK_LIMIT_S:
        return ""
    count = row[ladder.column(option)]
    more = count + math.ceil(CLOCK_S * count / max(row[column], 1e-4))
    noise = CLOCK_NOISE_S
    if option == column:  # such as --seconds, beyond which the last pass goes
        noise += row[ladder.time]
    for _ in range(CLOCK_PAIRS):
        pair = []
        for each in (count, more):
            found = run(ladder.words({**options, option: each}) + words + draw_seed(ladder),
                        limit=CLOCK_LIMIT_S + 2 * row["program_s"])
            if found.status == process.TOO_SLOW:
                return f"its clock is wrong: what takes {CLOCK_S} s by {column} does not end"
            if not found.row:
                return found.errors or f"exit status {found.status}"
            pair.append(found.row)
        own, outside = (pair[1][name] - pair[0][name] for name in (column, "program_s"))
        if outside <= own + noise:
            return ""
    return f"its clock is wrong: what takes {outside:.2f} s takes {own:.2f} s by {column}"
