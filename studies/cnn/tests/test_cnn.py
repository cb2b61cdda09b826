"""Tests of this study beside those that every ladder has: images with ties, black images, units
that are off, --pad, --normalize, and the rows of --epochs-csv. FULL=1 asks the steps, too."""

from pathlib import Path

import numpy as np
import pytest
from programs import (
    FULL,
    LABELS,
    ROOT,
    Trainer,
    built,
    images,
    make,
    run,
    script,
    write_data,
    write_images,
)

from bench import ladders

STUDY = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "bench/build/cnn/reference"
STAGES = [stage for stage in ladders.find_ladder("cnn").stages if FULL or not stage.is_step]
PARTS = {"W1": 72, "b1": 8, "W2": 1152, "b2": 16, "W3": 51200, "b3": 128, "W4": 1280, "b4": 10}
# The columns that a row of --epochs-csv has in common with that of its run, and the others.
SETTINGS = ["stage", "device", "threads", "batch", "learning_rate", "momentum", "normalize", "pad",
            "seed", "train_samples", "test_samples", "dataset"]
OF_EPOCH = ["run", "epoch", "epoch_s", "loss", "train_accuracy", "test_accuracy", "samples_per_s",
            "rss_mib", "vram_mib"]


def of_stages(are_cuda=(False, True)):
    found = [stage for stage in STAGES if stage.is_cuda in are_cuda]
    return pytest.mark.parametrize("each", found, ids=lambda stage: stage.name, indirect=True)


@pytest.fixture
def each(request, tmp_path):
    make("-C", "bench", "build/cnn/reference")
    return Trainer(tmp_path, built(getattr(request, "param", STAGES[0])), "--batch 4 --epochs 2")


def drawn(expression):
    """A function that draws so many images, from an expression of s, y and x: numpy arrays."""
    def draw(count):
        axes = dict(zip("syx", np.ogrid[:count, :28, :28]))
        return np.broadcast_to(eval(expression, axes), (count, 28, 28))

    return draw


def distances(found, expected):
    """{part: the distance between two lists of weights over the norm of what is expected}"""
    assert found.size == expected.size == sum(PARTS.values()) and np.isfinite(found).all()
    places = np.cumsum([*PARTS.values()])[:-1]
    return {name: np.linalg.norm(a - b) / (np.linalg.norm(b) or 1)
            for name, a, b in zip(PARTS, np.split(found, places), np.split(expected, places))}


def weights(each, options=""):
    return np.frombuffer(each.weights(options), np.float32)


def checked(each, options):
    """The weights of a stage, which have to be those of the reference, to rounding."""
    run([REFERENCE, *each.options, *options.split(), "--save-weights", "expected"], cwd=each.folder)
    found = weights(each, options)
    far = distances(found, np.fromfile(each.folder / "expected"))
    assert max(far.values()) < 2e-5, far
    return found


def test_the_references_gradients_are_central_differences_of_its_loss(each):
    for options in ("--train 1 --normalize", "--train 3 --seed 5")[:None if FULL else 1]:
        run([REFERENCE, "--data", "data", *options.split(), "--check-gradients"], cwd=each.folder)


# Without texture, all four values are equal. With stripes, they are in pairs.
@of_stages()
@pytest.mark.parametrize("image", ["255 * ((x + y + s) % 2)", "200 * (y % 2) + 9 * s",
                                   "40 * s + 50"][:None if FULL else 2])
def test_of_equal_values_in_a_pool_one_takes_the_gradient(each, image):
    write_data(each.folder / "data", drawn(image))
    checked(each, "--learning-rate 0.05 --epochs 4 --normalize")


@of_stages()
def test_of_black_images_only_the_last_bias_learns(each):
    write_data(each.folder / "data", drawn("0 * s"))
    moved = distances(checked(each, "--learning-rate 0.5"), weights(each, "--epochs 0"))
    # All sums are zero, where the ReLU's gradient is zero: no more than b4 learns.
    assert [name for name in moved if moved[name]] == ["b4"]


@of_stages()
def test_units_that_are_off_for_all_images_learn_nothing(each):
    write_data(each.folder / "data", drawn("(31 * x + 17 * y * (s + 1)) % 256"))
    early, late = (checked(each, f"--learning-rate 5 --momentum 0 --batch 6 --epochs {epochs}")
                   for epochs in (3, 6))
    moved = distances(late, early)
    # The first updates have turned off all units of the convolutions. The others have their biases.
    assert [name for name in moved if not moved[name]] == ["W1", "b1", "W2", "b2", "W3"]


@of_stages([False])
def test_pad_continues_the_training_set_with_its_first_images(each):
    padded = each.weights("--train 5 --batch 8 --pad --epochs 3 --csv rows.csv")
    row, = each.rows()
    assert [row[name] for name in ("pad", "train_samples", "test_samples")] == ["1", "5", "4"]
    order = [0, 1, 2, 3, 4, 0, 1, 2]
    write_data(each.folder / "written")
    write_images(each.folder / "written", "train", images(6)[order], np.array(LABELS)[order])
    assert each.weights("--data written --train 8 --batch 8 --epochs 3") == padded
    # 13 samples out of 5, and a batch that is full already
    for options in "--train 5 --batch 13", "--train 6 --batch 3":
        checked(each, f"--pad {options}")


def test_pad_leaves_the_test_set_as_it_is_and_normalize_does_not(each):
    # Black images are all taken for the same class, which is the first label. It is that of one
    # test image in four, and of two in six.
    write_data(each.folder / "data", drawn("0 * s"))
    assert each.succeeds("--batch 6 --pad --epochs 1").endswith("accuracy 0.2500\n")
    write_data(each.folder / "data")
    write_images(each.folder / "data", "t10k", images(6), LABELS)
    for seed in range(1, 11):  # the accuracies are sixths, and many are zero
        each.succeeds("--test 6 --normalize --epochs 1 --learning-rate 1e-30 --csv rows.csv "
                      f"--seed {seed}")
    assert all(row["train_accuracy"] == row["test_accuracy"] for row in each.rows())
    assert len({row["test_accuracy"] for row in each.rows()}) > 1


def is_near(value, other, tolerance=1e-6):
    return abs(float(value) / float(other) - 1) < tolerance


@of_stages([False])
def test_epochs_csv_has_a_row_for_each_epoch_which_fits_that_of_the_run(each):
    for seed in 1, 3:  # with seed 3, the first epoch is the best in the test
        each.succeeds(f"--epochs 3 --seed {seed} --csv rows.csv --epochs-csv epochs.csv --batch 2 "
                      "--learning-rate 0.2 --momentum 0")
    runs, epochs = each.rows(), each.rows("epochs.csv")
    assert list(epochs[0]) == SETTINGS + OF_EPOCH and len(runs) == 2
    assert float(runs[1]["best_test_accuracy"]) > float(runs[1]["test_accuracy"])
    assert [row["epoch"] for row in epochs] == ["1", "2", "3"] * 2
    assert [row["run"] == epochs[0]["run"] for row in epochs] == [True] * 3 + [False] * 3
    for row, mine in zip(runs, (epochs[:3], epochs[3:])):
        assert all({epoch[name] for epoch in mine} == {row[name]} for name in SETTINGS)
        seconds = sum(float(epoch["epoch_s"]) for epoch in mine)
        assert abs(seconds - float(row["train_s"])) < 1e-8
        assert abs(seconds / 3 - float(row["epoch_s"])) < 1e-8
        assert is_near(18 / seconds, row["samples_per_s"])
        last = [mine[-1][name] for name in ("loss", "train_accuracy", "test_accuracy")]
        assert last == [row[name] for name in ("final_loss", "train_accuracy", "test_accuracy")]
        assert max((epoch["test_accuracy"] for epoch in mine), key=float) == (
            row["best_test_accuracy"])
        assert len({epoch["loss"] for epoch in mine}) == 3
        for epoch in mine:
            assert is_near(6 / float(epoch["epoch_s"]), epoch["samples_per_s"])
            assert 1 < float(epoch["rss_mib"]) <= float(row["peak_rss_mib"]) + 1
            assert epoch["vram_mib"] == ""


def test_the_first_epochs_loss_is_that_of_the_initial_weights_batch_by_batch(each):
    for rate in 1e-9, 0.1:
        each.succeeds(f"--train 4 --epochs 1 --epochs-csv epochs.csv --learning-rate {rate}")
    one, other = each.rows("epochs.csv")
    assert all(one[name] == other[name] for name in ("loss", "train_accuracy"))


def test_an_option_that_is_wrong_is_one_line_before_the_run(each):
    each.succeeds("--csv rows.csv --momentum 0.999")
    for status, said, options in (
            (2, "--epochs-csv: found same, the same file", "--csv same --epochs-csv same"),
            (2, "--epochs-csv: cannot write none/epochs.csv: No such",
             "--epochs-csv none/epochs.csv"),
            (2, "--epochs-csv: rows.csv begins with other columns", "--epochs-csv rows.csv"),
            (2, "--momentum: found '1', expected", "--momentum 1"),
            (2, "--momentum: found '-0.1', expected", "--momentum -0.1")):
        each.fails(status, f"^00_serial: {said}", options)
    columns = each.succeeds("--epochs-columns --epochs-csv epochs.csv")
    assert not (each.folder / "epochs.csv").exists()
    each.succeeds("--epochs 1 --epochs-csv epochs.csv")
    assert (each.folder / "epochs.csv").read_text().startswith(columns)


def test_a_loss_that_is_not_finite_ends_the_run_in_its_epoch_and_saves_nothing(each):
    each.fails(1, r"^00_serial: the loss became -?(nan|inf) in epoch \d+: "
                  r"try a --learning-rate below 3e\+38",
               "--learning-rate 3e38 --epochs 9 --csv rows.csv --save-weights weights "
               "--epochs-csv epochs.csv")
    assert not {"rows.csv", "weights"} & {path.name for path in each.folder.iterdir()}


# The six images are two batches, so two epochs are four.
@of_stages([True])
def test_no_epoch_before_the_clock_changes_a_byte_and_the_memory_is_what_the_row_says(each):
    simulated = each.weights("--csv rows.csv")
    assert "\nforward " in each.succeeds("--csv rows.csv --save-weights gpu", SIM_NAME="GPU")
    assert (each.folder / "gpu").read_bytes() == simulated
    simulated, gpu = each.rows()
    for name in "warmup_s", "forward_s", "backward_s":
        assert simulated[name] == "" and float(gpu[name]) > 0
    # A device with so much memory is enough, and one with a byte less is not.
    size = round(float(gpu["peak_vram_mib"]) * 2**20)
    each.succeeds(SIM_MEMORY=size)
    each.fails(1, f"^{each.program.stem}: out of device memory: ", SIM_MEMORY=size - 1)


# It learns nothing.
FAKE_PEER = """#!/usr/bin/env python3
import peer

class Fake(peer.Peer):
    def __init__(self, options, images, labels):
        self.samples, self.rate = len(images), options.learning_rate

    def load(self, parameters):
        self.weights = parameters

    def epoch(self):
        return self.samples * (2.5 if self.rate < 1 else float("nan")), self.samples / 2

    def parameters(self):
        return self.weights

peer.main(Fake)
"""


def test_a_peers_epochs_go_into_a_stages_file(each, tmp_path):
    peer = Trainer(tmp_path, script(tmp_path / "peer_fake.py", FAKE_PEER), "--batch 4 --epochs 2")
    peer.variables["PYTHONPATH"] = STUDY / "peers"
    if peer.run("--epochs 0").returncode == 77:
        pytest.skip("found no NumPy")
    for program in peer, each:
        program.succeeds("--csv rows.csv --epochs-csv epochs.csv --pad --normalize")
    runs, epochs = each.rows(), each.rows("epochs.csv")
    assert [row["stage"] for row in epochs] == ["peer_fake"] * 2 + ["00_serial"] * 2
    for mine, of_stage in zip([runs[0], *epochs[:2]], [runs[1], *epochs[2:]]):
        assert [mine[name] for name in SETTINGS[4:]] == [of_stage[name] for name in SETTINGS[4:]]
    seconds = sum(float(epoch["epoch_s"]) for epoch in epochs[:2])
    assert abs(seconds - float(runs[0]["train_s"])) < 1e-8
    # Padded to 16. A time is written to the nanosecond, and these are some microseconds.
    assert abs(16 / float(runs[0]["samples_per_s"]) - seconds) < 1e-8
    assert runs[0]["final_loss"] == "2.5" and runs[0]["train_accuracy"] == "0.5"
    peer.fails(1, "^peer_fake: the loss became nan in epoch 1", "--learning-rate 2")
