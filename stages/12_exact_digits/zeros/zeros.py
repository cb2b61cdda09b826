"""Measures 02, 06 and 12.4 on one thread, on images with more or fewer pixels that are zero, and
draws how many times as fast as 02 they are. 06 leaves zeros out, 12.4 does not.

    python3 stages/12_exact_digits/zeros/zeros.py

Needs NumPy, pandas and MNIST. Writes zeros.csv and zeros.svg. Takes two minutes."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = str(ROOT), str(ROOT / "bench/peers")

from data.locate import locate  # noqa: E402
from data.mnist import write_set  # noqa: E402
from mnist import read_idx  # noqa: E402
from report import look  # noqa: E402

PROGRAMS = {"02": "02_openmp", "06": "06_sparse", "12.4": "12_exact_digits/12.4_vnni"}
CELLS = {"hidden 32, batch 32": (32, 32), "hidden 256, batch 128": (256, 128)}
SHARES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
IMAGES, ROUNDS = 6400, 15


def write(folder, data, share):
    """Writes images that have this share of zeros, at pixels drawn by chance: some of MNIST's
    become 1 of 255, or other pixels 0."""
    generator = np.random.default_rng(1)
    for part in ("train", "t10k"):
        pixels = read_idx(data, f"{part}-images-idx3-ubyte", 784)[:IMAGES].copy()
        labels = read_idx(data, f"{part}-labels-idx1-ubyte", 1)[:IMAGES, 0]
        zeros = (pixels == 0).mean()
        drawn = generator.random(pixels.shape)
        pixels[(pixels == 0) & (drawn < 1 - share / zeros)] = 1
        pixels[(pixels > 0) & (drawn < (share - zeros) / (1 - zeros))] = 0
        write_set(folder, part, pixels.reshape(-1, 28, 28), labels)


def measure(data):
    """The rows of all runs: each round runs the programs in turn."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for share in SHARES:
            write(folder, data, share)
            for cell, (hidden, batch) in CELLS.items():
                for _ in range(ROUNDS):
                    for program, path in PROGRAMS.items():
                        subprocess.run(
                            [ROOT / "stages" / path / "train", "--data", folder, "--csv",
                             folder / "row.csv", "--train", str(IMAGES), "--test", "10",
                             "--epochs", "3", "--hidden", str(hidden), "--batch", str(batch),
                             "--threads", "1", "--quiet"], check=True, stdout=subprocess.DEVNULL)
                        row = pd.read_csv(folder / "row.csv").iloc[0]
                        (folder / "row.csv").unlink()
                        found.append((cell, share, program, row.train_s / 3 * 1e3))
    return pd.DataFrame(found, columns=["cell", "share", "program", "epoch_ms"])


def draw(times):
    figure, panels = look.plt.subplots(1, 2, figsize=(8, 3.2), sharey=True)
    for axes, cell in zip(panels, CELLS, strict=True):
        table = times[times.cell == cell].pivot(index="share", columns="program", values="epoch_ms")
        for program, marker in zip(PROGRAMS, "os^", strict=True):
            axes.plot(100 * table.index, table["02"] / table[program], color=look.CPU,
                      marker=marker, label=program)
        axes.set(title=cell, xlabel="pixels that are zero (%)")
        axes.axvline(81, color=look.GRID)
    panels[0].set(ylabel="times as fast as 02", ylim=(0, None))
    panels[0].legend()
    look.save(figure, HERE / "zeros.svg")


if __name__ == "__main__":
    for path in PROGRAMS.values():
        subprocess.run(["make", "-s", "-C", ROOT / "stages" / path], check=True)
    runs = measure(locate(ROOT / "data/mnist.py"))
    shortest = runs.groupby(["cell", "share", "program"]).epoch_ms.min().round(2).reset_index()
    shortest.to_csv(HERE / "zeros.csv", index=False)
    draw(shortest)
