"""Tests what only this study has: --hidden takes a list, and one hidden layer is the main ladder's
network."""

import numpy as np
import pytest
from programs import Trainer, built

from bench import ladders

LADDER = ladders.find_ladder("mlp")
SERIAL = LADDER.stages[0]


@pytest.fixture
def serial(tmp_path):
    return Trainer(tmp_path, built(SERIAL))


@pytest.mark.parametrize("hidden", [256, 33])
@pytest.mark.parametrize("name", ["00_serial", "01_vectorized", "02_openmp"])
def test_with_one_hidden_layer_the_weights_are_the_main_ladders_to_rounding(tmp_path, name, hidden):
    one, other = (np.frombuffer(Trainer(tmp_path, built(ladder.find(name))).weights(
        f"--epochs 3 --hidden {hidden} --learning-rate 0.1 --seed 7"), np.float32)
        for ladder in (LADDER, ladders.find_ladder("")))
    assert one.size == other.size and abs(one - other).max() < 1e-5


@pytest.mark.parametrize("widths", ["1", "3,2", "8,7,6,5,4,3,2,1"])
def test_hidden_takes_one_to_eight_widths(serial, widths):
    assert f"hidden {widths}, batch" in serial.succeeds(f"--hidden {widths}")


@pytest.mark.parametrize("widths", [
    "", "0", "3,", "3,,3", "3,-3", "3,x", "3.5", "3, 3", "100000001", "1,1,1,1,1,1,1,1,1"])
def test_anything_else_is_one_line(serial, widths):
    serial.fails(2, f"^00_serial: --hidden: found '{widths}', expected the units of one to 8 lay",
                 f"--hidden '{widths}'")


def test_the_row_has_the_list_as_one_field_in_quotes(serial):
    for widths in "5,4", "5":
        serial.succeeds(f"--hidden {widths} --csv rows.csv")
    header, *lines = (serial.folder / "rows.csv").read_text().splitlines()
    assert header.startswith("stage,device,threads,hidden,batch,epochs,learning_rate,")
    assert [line.split(",", 3)[3][:11] for line in lines] == ['"5,4",4,2,0', "5,4,2,0.1,1"]
