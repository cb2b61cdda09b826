"""What `make profile` counts without a GPU, beside the same by hand from the source, for
hidden 32, batch 32, 784 pixels, 10 classes. A row of W1, a or da is a request of 4 sectors. A row
of W2, z or dz has 40 bytes, which are 2 sectors wherever it begins. L1 is empty at first."""

import pandas
import pytest
from programs import FULL, ROOT, make, needs_full, needs_real_data

from bench import counts, ladders

LADDER = ladders.find_ladder("")
WARPS = 32  # of a block of 32 × 32 threads
# A thread keeps nothing: it reads z twice, dz and its label in each of ten rounds, then the loss.
SOFTMAX = {"load_requests": 10 + 10 + 10 + 10 + 3, "store_requests": 10 + 10 + 1,
           "misses": 40 + 1 + 4}
# Seven blocks of four warps. A request has four numbers of each lane. For four pixels a warp reads
# four rows of W1's tile and two samples. Lanes share in pairs, so each takes 2 passes.
HIDDEN_SUMS = {"blocks": 7, "threads": 7 * 128,
               "load_requests": 2 * 32 * 784 // 128, "load_sectors": 2 * 32 * 784 * 4 // 32,
               "shared_load_requests": 7 * 4 * 112 // 4 * (4 + 2),
               "shared_load_passes": 7 * 4 * 112 // 4 * (4 * 2 + 2 * 2),
               "store_requests": 7 * 32 * 32 // 128, "barriers": 7,
               "misses": 2 * 32 * 784 * 4 // 32}
# 25 tiles of W1, the last of half its pixels, and one of W2, with rows of 12 numbers. A tile of 32
# samples is 8 requests, and so is one of dW. For a sample a lane reads two numbers of x (a pass of
# its warp) and four of dy (2 passes). In the first tile of each matrix, a warp also has db.
WEIGHT_GRADIENT = {"blocks": 26, "threads": 26 * 128,
                   "load_requests": 26 * 2 * 8,
                   "load_sectors": 32 * (784 // 8 + 25 * 4 + 4) + 32 * 12 // 8,
                   "shared_load_requests": 26 * 4 * 32 * 2 + 2 * 32,
                   "shared_load_passes": 26 * 4 * 32 * (1 + 2) + 2 * 32,
                   "store_requests": 24 * 8 + 4 + 8 + 2,
                   "store_sectors": 785 * 4 + 33 * 2, "barriers": 26 * 2}


def update(parameters):
    """Two requests of neighbouring numbers, and one that is stored."""
    return {"threads_at_work": parameters, "load_requests": 2 * -(-parameters // 32),
            "load_sectors": 2 * -(-parameters // 8), "store_sectors": -(-parameters // 8),
            "misses": 2 * -(-parameters // 8)}


BY_HAND = {
    "05": {
        "hidden_sums": HIDDEN_SUMS,
        # A block has a sample, and one of its warps has 32 units: b1 and seven slices.
        "hidden_layer": {"launches": 1, "blocks": 32, "threads": 32 * 128, "threads_at_work": 1024,
                         "load_requests": 32 * (1 + 7), "load_sectors": 32 * (1 + 7) * 4,
                         "store_requests": 32, "store_sectors": 32 * 4},
        # A block has 16 × 16 threads, so a warp has two samples: two numbers of a in each load. Two
        # rows of z are 80 bytes.
        "output_layer": {"blocks": 2, "threads": 512, "threads_at_work": 32 * 10,
                         "load_requests": 16 * (1 + 32 * 2),
                         "load_sectors": 16 * (2 + 32 * (2 + 2)),
                         "store_requests": 16, "store_sectors": 16 * 3},
        "softmax_gradient": SOFTMAX,
        # A warp has two samples and 16 units: three times four numbers of two dz and 16 rows of W2.
        "hidden_gradient": {"blocks": 4, "threads": 1024, "load_requests": WARPS * (3 * 2 + 1),
                            "load_sectors": WARPS * (3 * (2 + 16) + 4),
                            "store_requests": WARPS, "store_sectors": WARPS * 4},
        "weight_gradient": {"launches": 2, **WEIGHT_GRADIENT},
        "update": update(784 * 32 + 32 + 32 * 12 + 12)},
    # 16 blocks read x (784 sectors), and again behind the barriers. Between them 32 have a row of
    # a, W2, b2, a label and a loss. Then 16 have columns of a and da, dz, two rows of W2, and b1,
    # which the next batch finds in L1, and one b2.
    "10": {"run_epoch": {"misses": 2 * 16 * 784 + 32 * (4 + 48 + 2 + 1 + 1)
                                   + 16 * (32 + 32 + 48 + 3 + 1) + 2,
                         "grid_barriers": 2}},
    # All but this is in shared memory: for each sample a label, a loss, and z. A block copies 49
    # pixels of 32 samples, each of which has 40 bytes: 62 sectors.
    "13": {"run_epoch": {"load_requests": 16 + 32 * 2, "load_sectors": 16 * 62 + 32 * 2,
                         "store_sectors": 32 * (1 + 2), "grid_barriers": 0}}}
# What Nsight Compute counts of them on a GPU. nvcc keeps z and dz in registers.
ON_A_GPU = {"load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
            "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
            "shared_load_passes": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
            "shared_store_passes": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"}
OTHERWISE = {("softmax_gradient", "load_sectors"), ("output_layer", "store_sectors"),
             ("output_layer", "shared_load_passes")}


GPU = pandas.read_csv(next(ROOT.glob("report/results/*/counters.csv")))


@needs_full
@pytest.mark.parametrize("program", sorted({*GPU["program"]}))
def test_a_gpu_counts_the_same(program):
    """In the large cell, as Nsight Compute has counted it."""
    stage = LADDER.find(program)
    needs_real_data(LADDER)
    found = counts.count(stage, LADDER.toml["counts"][1:]).set_index("kernel")
    compared = 0
    for row in GPU[GPU["program"] == program].to_dict("records"):
        name = row["Kernel Name"].split("(")[0]
        if name in found.index:
            kernel = found.loc[name]
            launches = kernel["launches"] + kernel["nodes"]
            differ = {(name, column) for column, metric in ON_A_GPU.items()
                      if kernel[column] / launches != row[metric]}
            assert differ <= OTHERWISE
            compared += 1
    assert compared


STAGES = [stage for ladder in ladders.ladders() for stage in ladder.stages
          if (ladder.profiles / stage.name / "counts.csv").exists() and (
              FULL or stage in (LADDER.find("05"), LADDER.find("10")))]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: f"{stage.ladder.name}-{stage.name}")
def test_counts_are_those_of_the_repository_and_those_by_hand(stage):
    """Otherwise count again: make profile STAGE= STUDY= RESULTS=<ladder>/profiles"""
    if stage is not LADDER.find("05"):  # it leaves out nothing that is zero
        needs_real_data(stage.ladder)
    make("-C", str(stage.folder), "sim", "COUNT=1")
    # The small cell, and what does not depend on the data. The large one takes ten seconds.
    rows = counts.count(stage, stage.ladder.toml["counts"][:1])
    written = counts.read(stage)
    written = written[written["cell"] == rows["cell"].iloc[0]]
    kept = [column for column in rows if column != "misses"
            and not column.endswith(("sectors", "packed", "store_passes", "busiest"))]
    assert rows[kept].to_dict("records") == written[kept].to_dict("records")
    for name, by_hand in BY_HAND.items():
        if stage is LADDER.find(name):
            found = {row["kernel"]: row for row in rows.to_dict("records") if not row["bytes"]}
            assert {kernel: {name: found[kernel][name] for name in expected}
                    for kernel, expected in by_hand.items()} == by_hand
            assert found.keys() == by_hand.keys()


def test_a_ladder_that_says_nothing_of_counts_is_one_line(monkeypatch, capsys):
    monkeypatch.setitem(LADDER.toml, "counts", [])
    with pytest.raises(SystemExit) as end:
        counts.count(LADDER.find("05.3"))
    said = capsys.readouterr().err
    assert end.value.code == 77 and said.count("\n") == 1 and "no [[counts]]" in said
