"""What `make profile-gpu` counts without a GPU, beside the same by hand from the source, for
hidden 32, batch 32, 784 pixels, 10 classes. A row of W1, a or da is a request of 4 sectors. A row
of W2, z or dz has 40 bytes, which are 2 sectors wherever it begins."""

import functools

import pytest
from programs import ROOT, needs_full, run

from harness import counts, ladders

LADDER = ladders.find_ladder("")
WARPS = 32  # of a block of 32 × 32 threads
# A thread keeps nothing: it reads z twice, dz and its label in each of ten rounds, then the loss.
SOFTMAX = {"load_requests": 10 + 10 + 10 + 10 + 3, "store_requests": 10 + 10 + 1}
PARAMETERS = 784 * 32 + 32 + 32 * 10 + 10
# A warp has a sample, and ten of its lanes an output: b2, then a (one number) and W2 (a row).
OUTPUT_LAYER = {"blocks": 1, "threads": 1024, "threads_at_work": 32 * 10,
                "load_requests": WARPS * (1 + 32 * 2), "load_sectors": WARPS * (2 + 32 * (1 + 2)),
                "store_requests": WARPS, "store_sectors": WARPS * 2}
# A warp has a sample, and a lane a unit: ten numbers of dz, and ten columns of W2, then a.
HIDDEN_GRADIENT = {"load_requests": WARPS * (10 * 2 + 1),
                   "load_sectors": WARPS * (10 * (1 + 32) + 4), "store_sectors": WARPS * 4}
UPDATE = {"threads_at_work": PARAMETERS, "load_requests": 2 * -(-PARAMETERS // 32),
          "load_sectors": 2 * -(-PARAMETERS // 8), "store_sectors": -(-PARAMETERS // 8)}
BY_HAND = {
    "03": {
        # A warp has a sample, and a lane a unit: b1, then x (one number) and W1 (a row).
        "hidden_layer": {"launches": 1, "blocks": 1, "threads_at_work": 1024,
                         "load_requests": WARPS * (1 + 784 * 2),
                         "load_sectors": WARPS * (4 + 784 * (1 + 4)),
                         "store_requests": WARPS, "store_sectors": WARPS * 4, "barriers": 0},
        "output_layer": OUTPUT_LAYER, "softmax_gradient": SOFTMAX,
        # A warp has a pixel, or a hidden unit: x (one number) and da (a row), or a and dz. The
        # first also sums da, or dz.
        "weight_gradient": {"launches": 2, "blocks": 25 + 1,
                            "load_requests": (784 + 32) * 32 * 2 + 2 * 32,
                            "load_sectors": 784 * 32 * (1 + 4) + 32 * 4
                                            + 32 * 32 * (1 + 2) + 32 * 2,
                            "store_requests": 785 + 33, "store_sectors": 785 * 4 + 33 * 2},
        "hidden_gradient": HIDDEN_GRADIENT, "update": UPDATE},
    "05.1": {
        # Twelve tiles of 64 pixels are 64 requests each of x and W1. The last has 16 pixels, for
        # half of the requests of x, and for 16 of W1. A warp reads W1's tile by rows. It reads
        # x's by four pixels, which all lanes share: 2 passes instead of 4.
        "hidden_layer": {"blocks": 1, "load_requests": 12 * 2 * 64 + 32 + 16 + WARPS,
                         "load_sectors": 2 * 32 * 784 * 4 // 32 + WARPS * 4,
                         "shared_load_requests": 13 * WARPS * (64 + 16),
                         "shared_load_passes": 13 * WARPS * (64 + 16 * 2),
                         "shared_store_passes": 13 * 2 * 64, "barriers": 13 * 2},
        "output_layer": OUTPUT_LAYER, "softmax_gradient": SOFTMAX,
        # 25 tiles of W1 and one of W2. A tile of a product is 32 requests of each factor.
        "weight_gradient": {"launches": 2, "blocks": 25 + 1, "load_requests": 26 * 2 * 32,
                            "load_sectors": 32 * 784 * 4 // 32 + 25 * 32 * 4 + 32 * 4 + 32 * 2,
                            "shared_load_requests": 26 * WARPS * 32 * 2 + 2 * 32,
                            "shared_load_passes": 26 * WARPS * 32 * 2 + 2 * 32,
                            "store_requests": 785 + 33, "barriers": 26 * 2},
        "hidden_gradient": HIDDEN_GRADIENT, "update": UPDATE},
    "05": {
        # Seven blocks of four warps. A request has four numbers of each lane. For four pixels a
        # warp reads four rows of W1's tile (4 passes each) and two samples (2 each, as above).
        "hidden_sums": {"blocks": 7, "threads": 7 * 128,
                        "load_requests": 2 * 32 * 784 // 128,
                        "load_sectors": 2 * 32 * 784 * 4 // 32,
                        "shared_load_requests": 7 * 4 * 112 // 4 * (4 + 2),
                        "shared_load_passes": 7 * 4 * 112 // 4 * (4 * 4 + 2 * 2),
                        "store_requests": 7 * 32 * 32 // 128, "barriers": 7},
        # A block has a sample. One of its warps has b1, seven slices, and ten columns of W2, which
        # are 32 sectors each. Then ten lanes have b2, all lanes the label, and one lane the loss.
        "output_layer": {"blocks": 32, "threads": 32 * 128,
                         "load_requests": 32 * (1 + 7 + 10 + 1 + 1 + 1 + 1),
                         "load_sectors": 32 * (4 + 7 * 4 + 10 * 32 + 2 + 1 + 1 + 1),
                         "barriers": 32},
        # 25 tiles of W1, the last of half its pixels, and one of W2. A tile of 32 samples is 8
        # requests, and so is the old one that is updated.
        "weight_gradient": {"launches": 1, "blocks": 26, "threads": 26 * 128,
                            "store_requests": 24 * 8 + 4 + 8 + 2, "barriers": 25 * 3 + 2}}}


@functools.cache
def counted(name):
    """The rows of the small cell. The large one takes ten seconds."""
    stage = LADDER.find(name)
    return counts.count(stage, stage.ladder.toml["counts"][:1])


@pytest.mark.parametrize("stage, kernel", [
    (stage, kernel) for stage, kernels in BY_HAND.items() for kernel in kernels])
def test_counts_are_those_by_hand(stage, kernel):
    row = next(row for row in counted(stage) if row["kernel"] == kernel)
    expected = BY_HAND[stage][kernel]
    assert {name: row[name] for name in expected} == expected


def test_all_kernels_are_compared():
    for stage, kernels in BY_HAND.items():
        assert {row["kernel"] for row in counted(stage) if not row["bytes"]} == {*kernels}


COMMITTED = [stage for ladder in ladders.ladders() for stage in ladder.stages
             if (ladder.profiles / stage.name / "counts.csv").exists()]


@pytest.mark.parametrize("stage", COMMITTED, ids=lambda stage: f"{stage.ladder.name}-{stage.name}")
def test_counts_are_of_the_present_sources(stage):
    """Otherwise count again: RESULTS=<ladder>/profiles make profile-gpu STAGE= STUDY="""
    rows = counts.read(stage.ladder.profiles / stage.name / "counts.csv")
    assert {row["sources"] for row in rows} == {stage.sources}


@pytest.mark.parametrize("name", BY_HAND)
def test_the_repository_has_what_is_counted(name):
    """As far as it depends neither on nvcc nor on the data."""
    stage, found = LADDER.find(name), counted(name)
    kept = [column for column in found[0] if column not in counts.COMPILED
            and not column.endswith(("sectors", "packed", "store_passes", "busiest"))]
    rows = [[row[column] for column in kept] for row in
            counts.read(stage.ladder.profiles / stage.name / "counts.csv")]
    for row in found:
        assert [row[column] for column in kept] in rows


def test_the_inner_loop_is_that_with_the_most_arithmetic():
    """And only its instructions count. LDC reads a parameter of the kernel."""
    texts = ["LDG.E R1, desc[UR4][R2.64]", "FADD R1, R1, R2", "@P1 BRA 0x0", "LDS.128 R4, [R3]",
             "LDG.E.CONSTANT R5, desc[UR4][R2.64+0x10]", "LDC R6, c[0x0][0x218]",
             "FFMA R7, R4, R5, R7", "FFMA R8, R4, R6, R8", "@P0 BRA 0x30", "STG.E [R2], R7", "EXIT"]
    code = "".join(f"        /*{16 * number:04x}*/                   {text} ;   /* 0x0{number} */\n"
                   for number, text in enumerate(texts))
    assert counts.inner_loop(code) == {"loop_loads": 2, "loop_multiply_adds": 2}
    assert counts.inner_loop(code.replace("FFMA", "IMAD").replace("FADD", "IADD3")) == {}


def test_a_ladder_that_says_nothing_of_counts_is_one_line(monkeypatch, capsys):
    monkeypatch.setitem(LADDER.toml, "counts", [])
    with pytest.raises(SystemExit) as end:
        counts.count(LADDER.find("05.3"))
    said = capsys.readouterr().err
    assert end.value.code == 77 and said.count("\n") == 1 and "no [[counts]]" in said


@needs_full
@pytest.mark.skipif(ladders.has_gpu(), reason="found a GPU")
def test_make_profile_gpu_without_a_gpu(tmp_path):
    said = run("make -s profile-gpu STAGE=04", cwd=ROOT, RESULTS=tmp_path).stdout
    assert "04_cuda_device_mem: counted" in said and "401,536 bytes to the device" in said
    assert len(counts.read(tmp_path / "04_cuda_device_mem/counts.csv")) > 10
