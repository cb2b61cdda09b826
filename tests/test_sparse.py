"""Tests what only 06 and its steps have: data with no zeros or nothing else, and short places."""

import numpy as np
import pytest
from programs import FULL, LABELS, ROOT, Trainer, images, make, write_images

from bench import ladders

LADDER = ladders.find_ladder("")
SERIAL = LADDER.find("00")
STAGES = [stage for stage in LADDER.select("06") if FULL or not stage.is_step]


@pytest.fixture
def trainer(tmp_path):
    def of(stage):
        make(str(stage.folder.relative_to(ROOT)))
        return Trainer(tmp_path, stage.program, "--hidden 33 --batch 4 --epochs 25")

    return of


# The bound is that of the reference. Without zeros, and with zeros but for one image and a half.
@pytest.mark.parametrize("kept", [6 * 784, 1184])
def test_the_weights_of_00_serial_from_images_without_zeros_and_of_zeros(trainer, tmp_path, kept):
    drawn = images(6)
    assert drawn.all()
    drawn = np.where(np.arange(drawn.size) < kept, drawn.ravel(), 0).reshape(drawn.shape)
    for batch in 1, 4, 6:
        expected = None
        for stage in SERIAL, *STAGES:
            one = trainer(stage)
            write_images(tmp_path / "data", "train", drawn, LABELS)
            found = np.frombuffer(one.weights(f"--batch {batch}"), np.float32)
            expected = found if expected is None else expected
            assert found.size == expected.size and np.linalg.norm(
                found - expected) <= 5e-5 * np.linalg.norm(expected), stage.name


def test_a_batch_has_as_many_samples_as_16_bits_can_name(trainer):
    trainer(LADDER.find("06_sparse")).fails(
        2, "^06_sparse: --batch: found 65537, expected at most 65536$",
        "--train 65537 --batch 65537")
