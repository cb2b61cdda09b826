"""Tests of this study beside those that every ladder has: images with ties, black images, units
that are off, --pad, --normalize, and the rows of --epochs-csv."""

import os
import re
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

from harness import ladders

STUDY = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "harness/build/cnn/reference"
STAGES = ladders.find_ladder("cnn").stages
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
    make("-C", "harness", "build/cnn/reference")
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


def weights(each, options="", **variables):
    return np.frombuffer(each.weights(options, **variables), np.float32)


def checked(each, options):
    """The weights of a stage, which have to be those of the reference, to rounding."""
    run([REFERENCE, *each.options, *options.split(), "--save-weights", "expected"], cwd=each.folder)
    found = weights(each, options)
    far = distances(found, np.fromfile(each.folder / "expected"))
    assert max(far.values()) < 2e-5, far
    return found


def test_the_references_gradients_are_central_differences_of_its_loss(each):
    for options in "--train 3", "--train 2 --normalize --seed 5":
        run([REFERENCE, "--data", "data", *options.split(), "--check-gradients"], cwd=each.folder)


# Without texture, all four values are equal. With stripes, they are in pairs.
@of_stages()
@pytest.mark.parametrize("image", [
    "255 * ((x + y + s) % 2)", "200 * (y % 2) + 9 * s", "40 * s + 50", "250 * (x % 2) + s",
    "255 * (y > 3 * s + 6)"][:None if FULL else 2])
def test_of_equal_values_in_a_pool_one_takes_the_gradient(each, image):
    write_data(each.folder / "data", drawn(image))
    checked(each, "--learning-rate 0.05 --epochs 4")
    if FULL or each.program.suffix == ".sim":
        checked(each, "--learning-rate 0.05 --normalize")


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
    for options in "--train 5 --batch 13", "--train 6 --batch 3", "--train 5 --batch 1":
        checked(each, f"--pad {options}")


def test_pad_leaves_the_test_set_as_it_is(each):
    # Black images are all taken for the same class, which is the first label. It is that of one
    # test image in four, and of two in six.
    write_data(each.folder / "data", drawn("0 * s"))
    assert each.succeeds("--batch 6 --pad --epochs 1").endswith("accuracy 0.2500\n")


def test_normalize_is_for_both_sets(each):
    write_images(each.folder / "data", "t10k", images(6), LABELS)
    for seed in range(1, 21):  # the accuracies are sixths, and many are zero
        each.succeeds("--test 6 --normalize --epochs 1 --learning-rate 1e-30 --csv rows.csv "
                      f"--seed {seed}")
    assert all(row["train_accuracy"] == row["test_accuracy"] for row in each.rows())
    assert len({row["test_accuracy"] for row in each.rows()}) > 1


def is_near(value, other, tolerance=1e-6):
    return abs(value / other - 1) < tolerance


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
        for name in SETTINGS:
            assert {epoch[name] for epoch in mine} == {row[name]}, name
        seconds = sum(float(epoch["epoch_s"]) for epoch in mine)
        assert abs(seconds - float(row["train_s"])) < 1e-8
        assert abs(seconds / 3 - float(row["epoch_s"])) < 1e-8
        assert is_near(18 / seconds, float(row["samples_per_s"]))
        last = [mine[-1][name] for name in ("loss", "train_accuracy", "test_accuracy")]
        assert last == [row[name] for name in ("final_loss", "train_accuracy", "test_accuracy")]
        assert max(float(epoch["test_accuracy"]) for epoch in mine) == float(
            row["best_test_accuracy"])
        assert [len({epoch[name] for epoch in mine}) for name in ("loss", "run")] == [3, 1]
        for epoch in mine:
            assert is_near(6 / float(epoch["epoch_s"]), float(epoch["samples_per_s"]))
            assert 1 < float(epoch["rss_mib"]) <= float(row["peak_rss_mib"]) + 1
            assert epoch["vram_mib"] == ""


@of_stages([False])
def test_an_epochs_time_is_that_of_its_batches_without_the_test(each):
    each.succeeds("--train 1 --batch 1 --epochs 30 --csv rows.csv --epochs-csv epochs.csv")
    # Four test images take longer than one that is trained on.
    train, forward, backward = (float(each.rows()[0][name])
                                for name in ("train_s", "forward_s", "backward_s"))
    assert forward + backward > 0.75 * train


def test_the_first_epochs_loss_is_that_of_the_initial_weights_batch_by_batch(each):
    for rate in 1e-9, 0.1:
        each.succeeds(f"--train 4 --epochs 1 --epochs-csv epochs.csv --learning-rate {rate}")
    one, other = each.rows("epochs.csv")
    assert all(one[name] == other[name] for name in ("loss", "train_accuracy"))


def test_what_cannot_be_the_file_of_the_epochs_is_one_line_before_the_run(each):
    each.succeeds("--csv rows.csv")
    for status, said, options in (
            (2, "found same, the same file as --csv; expected another",
             "--csv same --epochs-csv same"),
            (2, "found weights, the same file as --save-weights; expected another",
             "--save-weights weights --epochs-csv weights"),
            (2, "cannot write none/epochs.csv: No such file", "--epochs-csv none/epochs.csv"),
            (2, "rows.csv begins with other columns", "--epochs-csv rows.csv"),
            (1, "cannot write /dev/full: No space left", "--epochs-csv /dev/full")):
        each.fails(status, f"^00_serial: --epochs-csv: {said}", options)
    for options in "--epochs 0", "--epochs-columns":
        columns = each.succeeds(f"{options} --epochs-csv epochs.csv")
        assert not (each.folder / "epochs.csv").exists()
    each.succeeds("--epochs 1 --epochs-csv epochs.csv")
    assert (each.folder / "epochs.csv").read_text().startswith(columns)


def test_momentum_takes_a_number_from_0_to_below_1(each):
    for momentum in "0", "0.5", "0.999":
        each.succeeds(f"--momentum {momentum}")
    for momentum in "1", "1.5", "99", "", "-0.1", "x", "nan", "inf":
        each.fails(2, f"^00_serial: --momentum: found '{momentum}', expected a number from 0 to "
                      "below 1", f"--momentum '{momentum}'")


def test_a_loss_that_is_not_finite_ends_the_run_in_its_epoch_and_saves_nothing(each):
    each.fails(1, r"^00_serial: the loss became -?(nan|inf) in epoch \d+: "
                  r"try a --learning-rate below 3e\+38",
               "--learning-rate 3e38 --epochs 9 --csv rows.csv --save-weights weights "
               "--epochs-csv epochs.csv")
    assert not {"rows.csv", "weights"} & {path.name for path in each.folder.iterdir()}


# The six images are two batches, so two epochs are four.
@of_stages([True])
def test_no_order_of_threads_and_no_epoch_before_the_clock_changes_a_byte(each):
    first, *others = (each.weights(SIM_SEED=seed) for seed in range(4))
    assert others == [first] * 3
    assert not re.search("^forward|, forward ", each.succeeds("--csv rows.csv"), re.M)
    said = each.succeeds("--csv rows.csv --save-weights gpu", SIM_NAME="GPU")
    assert re.search(r"^forward +[0-9.]+ s in 4 batches", said, re.M)
    assert (each.folder / "gpu").read_bytes() == first
    simulated, gpu = each.rows()
    for name in "warmup_s", "forward_s", "backward_s":
        assert simulated[name] == "" and float(gpu[name]) > 0
    for name in "final_loss", "train_accuracy", "test_accuracy", "peak_vram_mib":
        assert simulated[name] == gpu[name], name
    # A device with so much memory is enough, and one with a byte less is not.
    size = round(float(gpu["peak_vram_mib"]) * 2**20)
    each.succeeds(SIM_MEMORY=size)
    each.fails(1, f"^{each.program.stem}: out of device memory: ", SIM_MEMORY=size - 1)


# --- peers ---

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


@pytest.fixture
def peer(tmp_path):
    """A peer of this study."""
    peer = Trainer(tmp_path, script(tmp_path / "peer_fake.py", FAKE_PEER),
                   "--batch 4 --epochs 2 --quiet")
    peer.variables["PYTHONPATH"] = STUDY / "peers"
    ended = peer.run("--epochs 0")
    if ended.returncode == 77:
        pytest.skip(ended.stderr.rstrip())
    return peer


def same(one, other, names):
    return all(one[name] == other[name] or float(one[name]) == float(other[name])
               for name in names.split())


def test_a_peers_epochs_go_into_a_stages_file_one_row_for_each(peer, tmp_path):
    stage = Trainer(tmp_path, built(STAGES[0]), "--batch 4 --epochs 2")
    files = "--csv rows.csv --epochs-csv epochs.csv"
    for program, options in (
            (peer, files), (stage, "--csv rows.csv --epochs 0"), (stage, files),
            (peer, f"{files} --normalize"), (stage, "--csv rows.csv --epochs 0 --normalize"),
            (peer, f"{files} --pad --epochs 3")):
        program.succeeds(options)
    runs, epochs = peer.rows(), peer.rows("epochs.csv")
    first, untrained, trained, normal, untrained_normal, padded = runs
    assert [(row["stage"], row["epoch"]) for row in epochs] == [
        (row["stage"], str(epoch)) for row in runs for epoch in range(1, int(row["epochs"]) + 1)]
    assert len({row["run"] for row in epochs}) == 4
    settings = ("device batch learning_rate momentum normalize pad seed train_samples test_samples "
                "dataset")
    assert same(first, trained, f"{settings} epochs") and same(first, untrained, "test_accuracy")
    assert same(normal, untrained_normal, "test_accuracy normalize pad")
    settings = settings.replace("device ", "")
    assert same(epochs[0], epochs[2], f"{settings} epoch")
    for row, samples, start in (first, 6, 0), (normal, 6, 4), (padded, 8, 6):
        times = [float(epoch["epoch_s"]) for epoch in epochs[start:start + int(row["epochs"])]]
        mean, rate = float(row["epoch_s"]), float(row["samples_per_s"])
        assert abs(sum(times) - float(row["train_s"])) < 1e-8 > abs(mean - sum(times) / len(times))
        assert rate * mean == pytest.approx(samples, 0.01)
        assert float(row["gflops"]) * 1e9 == pytest.approx(1200768 * rate, 0.01)
        assert row["final_loss"] == "2.5" and row["train_accuracy"] == "0.5"
        assert row["best_test_accuracy"] == row["test_accuracy"] and row["forward_s"] == ""
    for row in epochs:
        assert 1 < float(row["rss_mib"]) < 1000 and row["vram_mib"] == "" != row["threads"], row


# Each of these errors ends the peer before it trains.
def test_an_error_of_a_peer_with_epochs_is_one_line(peer):
    peer.succeeds("--csv rows.csv --epochs-csv epochs.csv")
    cut = peer.folder / "epochs.csv"
    cut.write_bytes(cut.read_bytes()[:-1])
    os.mkfifo(peer.folder / "pipe")
    (peer.folder / "astray").symlink_to("no/file")
    for said, options in (
            ("--epochs-csv: found same, which is the file of --csv: expected another$",
             "--csv same --epochs-csv ./same"),
            ("--save-weights: found same, which is the file of --epochs-csv: expected another$",
             "--epochs-csv same --save-weights same"),
            ("--epochs-csv: rows.csv begins with other columns than a result row's$",
             "--epochs-csv rows.csv"),
            ("--epochs-csv: epochs.csv ends within a row: complete or delete that row$",
             "--epochs-csv epochs.csv"),
            ("--save-weights: cannot write 'pipe': no regular file", "--save-weights pipe"),
            ("--momentum: found '1', expected a number from 0 to below 1$", "--momentum 1"),
            *((f"--{option}: cannot write '{name}': {why}", f"--{option} {name}")
              for option in ("csv", "save-weights")
              for name, why in (("x" * 256, "File name too long; expected"),
                                ("astray", "No such file")))):
        peer.fails(2, f"^{said}", options)
    peer.succeeds(f"--save-weights {'x' * 245}")
    assert (peer.folder / ("x" * 245)).stat().st_size and not [*peer.folder.glob("*.partial")]
    # The epoch in which the loss is no number has no row.
    peer.fails(1, "^peer_fake: the loss became nan in epoch 1: try a --learning-rate below 2$",
              "--learning-rate 2 --epochs-csv new.csv --csv new.rows")
    assert not [*peer.folder.glob("new.*")]
