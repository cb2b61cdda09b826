"""Tests what the report shows of studies/mlp: the paper's figures."""

import csv
from pathlib import Path

import pytest

pytest.importorskip("pandas")
from harness import ladders
from report import view


@pytest.mark.parametrize(("epochs", "pace", "has_paper"), [(2, 0.1, False), (40, 0.001, True)])
def test_the_papers_figures(tmp_path, epochs, pace, has_paper):
    """They stand beside runs of 40 epochs at its learning rate, and beside no others."""
    ladder = ladders.find_ladder("mlp")
    options = ladder.settings | {"hidden": "128,128", "batch": 128, "epochs": epochs,
                                 "learning-rate": pace, "train": 60000, "test": 10000}
    row = dict.fromkeys([*(measure["column"] for measure in ladder.measures),
                         *(f"{phase}_s" for phase in ladder.phases)], 1)
    row |= {"stage": "00_serial", "device": "cpu", "threads": 1, "dataset": "mnist", "gflops": 1}
    row |= {ladder.column(option): value for option, value in options.items()}
    with Path(tmp_path, "runs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([row.keys(), row.values()])
    group, = view.read_groups(tmp_path / "runs.csv", ladder)
    assert group.settings["epochs"] == epochs
    found = view.table(group, view.paper_for(group, view.read_paper(ladder)), ladder.time)
    figures = {name: cells[0] for kind, name, cells in found if kind == "paper"}
    assert bool(figures) == has_paper and figures.get("peer_cupy", "0.35")[:4] == "0.35"
