#!/usr/bin/env python3
"""What each of five habits of a public program costs (PAPER.md):

    stages/peers/tutorial_cuda/habits.py counts    # cycles, on the simulated device
    stages/peers/tutorial_cuda/habits.py times     # µs, on a GPU

Builds train.cu with all habits, without each of them and without any. Counted are the cycles in
which the busiest of 132 multiprocessors loads and stores in a batch, not the host's time."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[2]
HABITS = "ACROSS", "REGISTER", "NO_ATOMICS", "NO_WAITS", "NO_COPIES"
CELLS = (32, 32), (256, 128)
EPOCHS = 5


def output(*command, **variables):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                          env=os.environ | variables).stdout


def cycles(program, options, batch, work):
    """A batch's, forward and backward: what two batches take, less what one does."""
    found = []
    for batches in 1, 2:
        output(program, *options, "--train", str(batches * batch), "--test", "1", "--epochs", "1",
               SIM_MULTIPROCESSORS="132", SIM_COUNTS=f"{work}/counts.csv")
        frame = pandas.read_csv(f"{work}/counts.csv", index_col="kernel")["busiest"].dropna()
        is_forward = frame.index.str.contains("forward|softmax")
        found.append((frame[is_forward].sum(), frame[~is_forward].sum()))
    return [int(two - one) for one, two in zip(*found)]


def times(program, options, batch, work):
    """A batch's, forward and backward, in µs."""
    path = Path(work, "row.csv")
    path.unlink(missing_ok=True)
    output(program, *options, "--epochs", str(EPOCHS), "--csv", str(path))
    row = pandas.read_csv(path).iloc[0]
    batches = EPOCHS * -(-row["train_samples"] // batch)
    return [round(row[f"{phase}_s"] / batches * 1e6, 1) for phase in ("forward", "backward")]


def main(what):
    data = output(ROOT / "data/locate.sh").strip()
    rows = []
    with tempfile.TemporaryDirectory() as work:
        for without in (), *((habit,) for habit in HABITS), HABITS:
            build = ["sim", "COUNT=1"] if what == "counts" else []
            output("make", "-s", "-C", FOLDER, *build, f"OUTPUT={work}/train",
                   f"EXTRA={' '.join(f'-D{habit}' for habit in without)}")
            program = f"{work}/train{'.counted.sim' if build else ''}"
            row = {"without": "any" if without == HABITS else "".join(without) or "none"}
            for hidden, batch in CELLS:
                options = f"--quiet --hidden {hidden} --batch {batch}".split()
                measure = cycles if build else times
                row |= zip((f"forward {hidden}, {batch}", f"backward {hidden}, {batch}"),
                           measure(program, [*options, "--data", data], batch, work))
            rows.append(row)
    print(pandas.DataFrame(rows).to_string(index=False))


if __name__ == "__main__":
    if sys.argv[1:] not in (["counts"], ["times"]):
        sys.exit(__doc__)
    main(sys.argv[1])
