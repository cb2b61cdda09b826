"""Tests the CUDA stages on the simulated device, beyond what bench/testing.py asks of all
programs."""

import re

import pytest
from programs import FULL, ROOT, Trainer, drawn_data, make, run, simulated

from bench import ladders

# Steps are for FULL=1 only.
CUDA = [stage for ladder in ladders.ladders() for stage in ladder.stages
        if stage.is_cuda and (FULL or not stage.is_step)]
STAGES = [stage for stage in CUDA if stage.ladder is ladders.ladders()[0]]
# With those of other ladders that take the same options.
ALIKE = [stage for stage in CUDA if {"hidden", "batch", "epochs"} <= {
    *stage.ladder.settings, *(axis["option"] for axis in stage.ladder.axes)}]


def of_stages(stages):
    return pytest.mark.parametrize("each", stages, indirect=True, ids=lambda stage: str(
        stage.folder.relative_to(ROOT)))


@pytest.fixture
def each(request, tmp_path):
    trainer = Trainer(tmp_path, simulated(request.param))
    trainer.name = request.param.name
    return trainer


# hidden 70 is more than one or three multiprocessors of the device can keep in shared memory.
@of_stages(STAGES)
def test_every_order_and_every_number_of_multiprocessors_gives_the_same_bytes(each):
    devices = [*({"SIM_SEED": seed} for seed in range(4)),
               *({"SIM_MULTIPROCESSORS": count} for count in (1, 3, 16))]
    assert len({each.weights("--hidden 70", **device) for device in devices}) == 1


@pytest.mark.parametrize("suffix", ["cu", "cuh"])
def test_events_are_in_the_stream_of_the_work(suffix):
    """An event in the default stream waits for the others that block, and they wait for it. That
    changes no result, only the times."""
    sources = {file: file.read_text(encoding="utf-8") for ladder in ladders.ladders()
               for file in ladder.folder.rglob(f"*.{suffix}")}
    own = [file for file, text in sources.items() if "cudaStreamCreate" in text]
    assert own and not [file for file in own if re.search(r"mark_phase\(\w+\)", sources[file])]


# The six images are two batches, so three epochs are six.
@of_stages(ALIKE)
def test_epochs_before_the_timed_ones_give_times_and_change_no_weight(each):
    options = "--epochs 3 --csv rows.csv --save-weights"
    assert not re.search("^forward|, forward ", each.succeeds(f"{options} simulated"), re.M)
    said = each.succeeds(f"{options} gpu", SIM_NAME="GPU")
    assert len(re.findall(r"^(?:for|back)ward +[0-9.]+ s in 6 batches", said, re.M)) == 2
    assert (each.folder / "simulated").read_bytes() == (each.folder / "gpu").read_bytes()
    each.succeeds("--epochs 0 --csv rows.csv", SIM_NAME="GPU")
    simulated, gpu, none = each.rows()
    assert (simulated["stage"], simulated["device"]) == (each.name, "simulated")
    assert [none[name] for name in ("warmup_s", "forward_s", "final_loss")] == [""] * 3
    for name in "warmup_s", "forward_s", "backward_s":
        assert simulated[name] == "" and float(gpu[name]) > 0
    for name in "final_loss", "test_accuracy":
        assert simulated[name] == gpu[name]


# The device has the memory that the row names, and then a little less, and then there is none.
@of_stages(ALIKE)
def test_a_run_needs_a_device_and_peak_vram_mib_and_no_byte_more(each):
    each.succeeds("--hidden 70 --csv rows.csv")
    size = round(float(each.rows()[0]["peak_vram_mib"]) * 2**20)
    each.succeeds("--hidden 70", SIM_MEMORY=size)
    each.fails(1, f"^{each.name}: out of device memory: asked for [0-9.]+ MiB, [0-9.]+ MiB of "
               "[0-9.]+ MiB are free", "--hidden 70", SIM_MEMORY=size - 1)
    each.fails(77, f"^{each.name}: no usable CUDA device: .*; try `make check`",
               SIM_DEVICES=0)


def test_a_stage_for_newer_devices_says_what_an_older_one_runs(tmp_path):
    for stage in CUDA:
        if stage.declared("CAPABILITY"):
            trainer = Trainer(tmp_path, simulated(stage))
            trainer.fails(77, f"^{stage.name}: needs a device of compute capability 9.0, found "
                          "7.5; try [0-9.]+_", SIM_CAPABILITY=75)


def test_the_stage_that_an_error_names_instead_runs_on_every_device():
    ladder = ladders.find_ladder("")
    names = re.findall(r"try ([0-9.]+)\"", (ROOT / "stages/training_cuda.h").read_text())
    assert names and not [name for name in names if ladder.find(name).declared("CAPABILITY")]


def test_two_halves_round_no_more_than_floats():
    folder = ROOT / "stages/14_cuda_tensor_cores/errors"
    make("-C", folder, "build/errors")
    said = run(f"{folder}/build/errors --hidden 33 --batch 60 --train 640 --test 64"
               f" --data {drawn_data()}").stdout
    forward, backward = ({name.strip(): float(error) for name, error in re.findall(
        r"^(.{10}) .* ([0-9].*)$", table, re.M)} for table in said.split("xᵀ"))
    for rms in forward, backward:
        assert rms["two fp16"] < 1.1 * rms["FFMA"] and rms["three bf16"] < 1.1 * rms["FFMA"]
        assert 10 * rms["FFMA"] < rms["two bf16"] < rms["fp16"] / 10 < rms["TF32"] / 8
