"""What each of five habits of a public program costs (PAPER.md):

    python3 -m bench stages.peers.tutorial_cuda.habits counts    # cycles, on the simulated device
    python3 -m bench stages.peers.tutorial_cuda.habits times     # µs, on a GPU

Builds train.cu with all habits, without each of them and without any. Counted are the cycles in
which the busiest of 132 multiprocessors loads and stores in a batch, not the host's time."""

import sys
import tempfile
from pathlib import Path

import pandas

from bench import counts
from bench.process import make, output

FOLDER = Path(__file__).resolve().parent
HABITS = "ACROSS", "REGISTER", "NO_ATOMICS", "NO_WAITS", "NO_COPIES"
CELLS = (32, 32), (256, 128)
EPOCHS = 5


def cycles(command, batch, work):
    """A batch's, forward and backward."""
    run, less = (f"--train {count} --test 1 --epochs 1" for count in (2 * batch, batch))
    found = counts.difference(command, run, less, work)["busiest"]
    is_forward = found.index.str.contains("forward|softmax")
    return [found[is_forward].sum(), found[~is_forward].sum()]


def times(command, batch, work):
    """A batch's, forward and backward, in µs."""
    path = Path(work, "row.csv")
    path.unlink(missing_ok=True)
    output([*command, "--quiet", "--epochs", EPOCHS, "--csv", path])
    row = pandas.read_csv(path).iloc[0]
    batches = EPOCHS * -(-row["train_samples"] // batch)
    return [round(row[f"{phase}_s"] / batches * 1e6, 1) for phase in ("forward", "backward")]


def main():
    if sys.argv[1:] not in (["counts"], ["times"]):
        sys.exit(__doc__)
    data = output(["data/locate.sh"]).strip()
    rows = []
    with tempfile.TemporaryDirectory() as work:
        for without in (), *((habit,) for habit in HABITS), HABITS:
            build = ["sim", "COUNT=1"] if sys.argv[1] == "counts" else []
            make("-C", FOLDER, *build, f"OUTPUT={work}/train",
                 f"EXTRA={' '.join(f'-D{habit}' for habit in without)}")
            program = f"{work}/train{'.counted.sim' if build else ''}"
            row = {"without": "any" if without == HABITS else "".join(without) or "none"}
            for hidden, batch in CELLS:
                command = [program, "--data", data, "--hidden", hidden, "--batch", batch]
                measure = cycles if build else times
                row |= zip((f"forward {hidden}, {batch}", f"backward {hidden}, {batch}"),
                           measure(command, batch, work))
            rows.append(row)
    print(pandas.DataFrame(rows).to_string(index=False))
