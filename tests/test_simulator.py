"""Tests the simulated device: right programs have the same result in every order, and wrong ones
are found, with a message that says what is wrong and where. sim/README.md lists what it finds."""

import json
import re
import shutil
import struct

import pandas
import pytest
from programs import FULL, TESTS, make, needs_full, run

FOLDER = TESTS / "simulator"
BOTH = "sim", "sanitized.sim"
SANITIZED, COUNTED = ("sanitized.sim",), ("counted.sim",)
KERNEL = r"kernel [a-z_]*, block \([0-9,]*\), thread \([0-9,]*\)"
UNSUPPORTED, INVALIDATED, IMPLICIT = (
    f"cudaErrorStreamCapture{name}" for name in ("Unsupported", "Invalidated", "Implicit"))


def start(program, *words, status=0, **variables):
    """Starts a program and returns what it says, with its first line, which is always the same."""
    path = f"build/{program}"
    make("-C", "tests/simulator", path)
    return run([FOLDER / path, *words], status, cwd=FOLDER, OMP_WAIT_POLICY="passive", **variables)


def result(name, seed=1, program="broken.sim", **variables):
    return start(program, name, SIM_SEED=seed, **variables).stdout.split("\n", 1)[1].rstrip()


def test_right_programs_give_the_same_result_in_every_order_and_on_any_number_of_cores():
    results = [start(program, SIM_SEED=seed, OMP_NUM_THREADS=threads).stdout
               for seed in range(5 if FULL else 2) for threads in (1, 4)
               for program in ("correct.sim", "correct.sanitized.sim")]
    lines = results[0].splitlines()
    assert len({*results}) == 1 and len(lines) == 10
    assert lines[0].startswith("simulated") and lines[1] == "simulated"


def test_an_order_that_is_none_is_said():
    said = start("correct.sim", status=1, SIM_SEED="x").stderr
    assert "SIM_SEED: found 'x', expected a whole number" in said


# (program, builds that find its fault, what they say). AT(text) is the place of that line.
FAULTS = [
    # One side touches the memory of the other.
    ("host_reads_device_memory", BOTH, "the host touched device memory at 0x[0-9a-f]*, 12 bytes "
     "into the 1024 bytes of cudaMalloc"),
    ("kernel_reads_heap", BOTH, r"kernel copy, block \(0,0,0\), thread \(0,0,0\) touched host "
     "memory at 0x[0-9a-f]*, 0 bytes into the 1024 bytes of malloc"),
    ("kernel_reads_stack", BOTH, f"{KERNEL} touched host memory at .*, on the host's stack"),
    ("kernel_reads_null", BOTH, f"{KERNEL} touched no memory at "),
    ("host_does_not_wait_for_managed_memory", BOTH, "the host did not wait for kernel fill and "
     "touched managed memory"),
    ("copy_in_the_wrong_direction", BOTH, "cudaMemcpy expects device memory, found 0x[0-9a-f]*, on "
     "the host's stack"),
    ("copy_of_too_much", BOTH, "cudaMemcpy of 1025 bytes: too many at .*, 0 bytes into the 1024 "
     "bytes of cudaMalloc"),
    # Out of bounds.
    ("read_behind_device_memory", SANITIZED, f"{KERNEL} .* 0 bytes behind the 1024 bytes of cudaM"),
    ("write_in_front_of_device_memory", SANITIZED, f"{KERNEL} .* 4 bytes in front of the 1024"),
    ("read_of_freed_device_memory", SANITIZED, f"{KERNEL} .* bytes of cudaMalloc, freed since"),
    ("write_behind_shared_memory", SANITIZED, f"{KERNEL} .* 0 bytes behind the 128 bytes of __sh"),
    ("write_behind_dynamic_shared_memory", SANITIZED, f"{KERNEL} .* 0 bytes behind the 124 bytes"),
    ("read_behind_row_of_shared_memory", SANITIZED, "^programs/AT(tile[1][threadIdx.x + n]):.*index"
     r" 32 out of bounds for type 'float \[32\]'"),
    ("misaligned_vector", SANITIZED, "misaligned address"),
    ("too_much_shared_memory", BOTH, "kernel fill_much needs 65536 bytes of shared memory for a "
     "block, found 49152"),
    # Updates that another thread may lose, and stores that it may not see yet.
    ("blocks_in_need_of_an_order", COUNTED, r"kernel add, block \(1,0,0\), thread \(0,0,0\) loads"
     " 0x[0-9a-f]*, 0 bytes into the 1024 bytes of cudaMalloc at AT(x[0] * 1.5f).*, and thread 0 of"
     " block 0 stored to it at AT(x[0] * 1.5f).*: nothing orders the two"),
    ("missing_second_barrier", COUNTED, "stores to .*, and thread .* loaded it"),
    ("lanes_lose_updates", COUNTED, r"thread \(1,0,0\) loads .*, and thread 0 of block 0 stored"),
    ("blocks_lose_updates", COUNTED, "loads .*, and thread 0 of block 0 stored to it"),
    *((f"hand_over_without_{wrong}", COUNTED, r"kernel hand_over, block \(0,0,0\), thread \(0,0,0\)"
       " loads .* at AT(// handed over), and thread 0 of block 1 stored to it at "
       "AT(// to hand over): nothing orders the two")
      for wrong in ("fence_before", "fence_behind")),
    *((f"volatile_without_{wrong}", COUNTED, r"block \(0,0,0\), thread \(1,0,0\) loads .*of block 1"
       " stored to it.*nothing orders the two")
      for wrong in ("fence_before", "fence_behind")),
    ("uninitialised_shared_memory", COUNTED, r"\(31,0,0\) loads .*, 0 bytes into the 128 bytes of "
     "__shared__ at AT(// one is unset): no thread of the block has stored to it"),
    # Barriers and exchanges that not all reach.
    *((name, COUNTED, f"{KERNEL} .*: nothing orders the two") for name in (
        "missing_barrier", "threads_in_need_of_an_order", "missing_grid_barrier")),
    ("barrier_not_reached_by_all", BOTH, r"kernel return_early, block \([01],[012],0\): of 64 "
     "threads 33 returned, 31 wait at __syncthreads in programs/AT(// not reached by)$"),
    ("lane_missing_in_shuffle", BOTH, r"kernel shuffle_with_all, block \(0,0,0\): of 64 threads 2 "
     "returned, 62 wait at __shfl_down_sync"),
    ("lane_not_in_mask", BOTH, f"{KERNEL} called __syncwarp in .* with the mask 0x0000ffff"),
    ("grid_barrier_not_reached_by_all_blocks", BOTH, "kernel wait_in_some: of 20 blocks 1 returned,"
     " 19 wait at grid.sync in programs/AT(sync(); // not in all)$"),
    ("grid_barrier_not_reached_by_all_threads", BOTH, r"kernel wait_in_some, block \([0-9]+,0,0\): "
     "of 64 threads 33 returned, 31 wait at grid.sync in programs/AT(sync(); // not in all)$"),
    ("grid_barrier_without_cooperative_launch", BOTH, r"kernel add_all, block \([0-9]+,0,0\), "
     r"thread \(0,0,0\) called grid.sync in programs/AT(sync(); // of the sum), and "
     "cudaLaunchCooperativeKernel has not launched it"),
    # Waits that never end.
    ("wait_that_never_ends", BOTH, "kernel wait_for_blocks: of 2 blocks 0 returned, 2 wait at "
     "atomicAdd in programs/AT( // blocks)$"),
    ("wait_in_one_block", BOTH, r"kernel wait_for_blocks, block \(0,0,0\): of 32 threads 0 returned"
     ", 1 wait at atomicAdd in programs/AT( // blocks), 31 wait at __syncthreads in "
     "programs/AT(// behind the loop)$"),
    ("wait_for_blocks_without_room", BOTH, "kernel wait_for_blocks: of 20 blocks 0 returned, 16 "
     "wait at atomicAdd in .*, 4 find no room before others return"),
    ("volatile_that_nobody_sets", ("sim",) * bool(FULL),  # takes five seconds
     "kernel hand_numbers_over: of 2 blocks 1 returned, 1 "
     "wait at a loop in AT(// nobody has set it)$"),
    # Left behind.
    ("graph_of_freed_memory", BOTH, "cudaMemcpyAsync in a graph of 1024 bytes: too many at .* of "
     "cudaMalloc, freed since"),
    ("leaked_device_memory", BOTH, "1024 bytes of cudaMalloc were never freed"),
    ("graph_never_destroyed", BOTH, "1 graphs were never destroyed"),
    ("launch_error_nobody_asked_for", BOTH, "a launch failed and nobody asked: invalid conf"),
]


# The same of hopper.cu.
OVERLAP = f"{KERNEL} {{}} .*, and thread [0-9]+ of block 0 of a launch in front {{}} it at "
NEWER_FAULTS = [
    ("early_load", COUNTED, OVERLAP.format("loads", "stored to")),
    ("early_store", COUNTED, OVERLAP.format("stores to", "loaded")),
    ("early_without_barrier", COUNTED, r"thread \(1,0,0\) loads .* at AT(// only the first).*, and "
     "thread 254 of block 0 of a launch in front stored to it at AT(// only the first)"),
    ("early_without_wait", COUNTED, r"thread \(0,0,0\) loads .* at AT(// only the first)"),
    ("early_without_need_to_wait", COUNTED, "kernel add_table may begin before the launch in front "
     "of it has ended, and no thread calls cudaGridDependencySynchronize"),
    ("early_trigger", COUNTED, OVERLAP.format("loads", "stored to")),
    # Clusters.
    ("cluster_may_not_have_begun", COUNTED, r"kernel pass_on, block \(0,0,0\), thread \(0,0,0\) "
     r"touches shared memory of block 1, which may not have begun, at AT(// to the next)"),
    ("cluster_barrier_missing", COUNTED, r"block \(1,0,0\), thread \(0,0,0\) loads .* of "
     "__shared__ at AT(// from the one), and thread 0 of block 0 stored to it at "
     "AT(// to the next)"),
    ("cluster_second_barrier_missing", COUNTED, r"block \(1,0,0\), thread \(0,0,0\) loads .*, and "
     "thread 0 of block 0 stored to it"),
    ("cluster_has_returned", COUNTED, r"block \(3,0,0\), thread \(0,0,0\) touches shared memory of "
     "block 0, which has returned, at AT(// it may have)"),
    ("cluster_returns", COUNTED, "kernel add_up, block 1 returns, and thread 31 of block 0 touches "
     "its shared memory at AT(// of all blocks): nothing orders the two"),
    ("address_of_other_cluster", COUNTED, r"block \(2,0,0\), thread \(0,0,0\) touches shared "
     "memory of block 0, which is not of its cluster, at AT(// of the first)"),
    ("cluster_barrier_not_reached_by_all", BOTH, "kernel wait_in_some_blocks: of 4 blocks 1 "
     "returned, 3 wait at cluster.sync in programs/AT(// of some)"),
    ("rank_beyond_cluster", BOTH, f"{KERNEL} called map_shared_rank for block 4 of a cluster of 4"),
    ("address_mapped_twice", BOTH, f"{KERNEL} called map_shared_rank for .*, 0 bytes into the 4 "
     "bytes of __shared__: not in shared memory of its block"),
]


# The same of tensor_cores.cu.
MMA_FAULTS = [
    ("lane_missing", BOTH, r"kernel go_wrong, block \(0,0,0\): of 32 threads 1 returned, 31 wait "
     "at mma_f16 in programs/AT(// of the others)"),
    ("lanes_at_two_places", BOTH, "0 returned, 16 wait at mma_f16 in programs/AT(// of some), 16 "
     "wait at mma_f16 in programs/AT(// of the others)"),
    ("warp_too_small", BOTH, r"thread \(3[2-9],0,0\) called mma_f16 in programs/AT(// of the "
     "others), and its warp has 8 of 32 threads"),
    ("order_expected", COUNTED, r"thread \(0,0,0\) loads .* at AT(// another lane's).*, and thread "
     "1 of block 0 stored to it"),
]


# The same of asynchronous.cu.
CALL = KERNEL + r" called {} at AT({}): "
COMES = "what comes to block [01] {} it at AT({}): nothing orders the two"
LEFT = "kernel {}, block [0-9] returns, and no thread has waited for what AT({}) sends it"
ASYNCHRONOUS_FAULTS = [
    ("copies_without_barrier", BOTH, CALL.format("mbarrier_wait", "// for the round's")
     + "nobody has initialised a barrier at .*, 0 bytes into the 16 bytes of __shared__"),
    ("copies_without_barrier", COUNTED, r"thread \(1,0,0\) stores to .* at AT(// for the round's), "
     "and thread 0 of block 0 stored to it at AT(// with one arrival): nothing orders the two"),
    ("copies_without_publication", BOTH, CALL.format("copy_async", "// ahead")
     + "who has initialised the barrier has not called mbarrier_publish"),
    ("copies_without_arrivals", BOTH, CALL.format("mbarrier_init", "// with one arrival")
     + "found 0 arrivals at .*, expected 1 to 1024 in shared memory of its block"),
    ("copies_without_wait", BOTH, LEFT.format("sum_up", "// ahead")),
    ("copies_without_wait", COUNTED, "loads .* at AT(// of the round), and "
     + COMES.format("stored to", "// ahead")),
    ("copies_that_never_start", BOTH, r"kernel sum_up, block \(0,0,0\): of 32 threads 0 returned, "
     "32 wait at mbarrier_wait in AT(// for the round's)$"),
    ("copies_without_parity", BOTH, CALL.format("mbarrier_wait", "// for the round's")
     + "found parity 2, expected 0 or 1"),
    ("copies_of_more_bytes", BOTH, CALL.format("mbarrier_wait", "// for the round's")
     + "16 bytes more than expected have come to the barrier"),
    ("copies_with_more_arrivals", BOTH, CALL.format("mbarrier_arrive", "// one more")
     + "all have arrived at the barrier, and bytes are missing"),
    ("copies_of_more_rounds", BOTH, LEFT.format("sum_up", "// ahead")),
    ("copies_misaligned", BOTH, CALL.format("copy_async", "// ahead")
     + "found 128 bytes to 0x[0-9a-f]*0 from 0x[0-9a-f]*4, expected multiples of 16"),
    ("copies_of_wrong_size", BOTH, CALL.format("copy_async", "// ahead")
     + "found 120 bytes to .*, expected multiples of 16"),
    ("copies_past_the_end", SANITIZED, f"{KERNEL} .* 0 bytes behind the 256 bytes of __shared__"),
    ("copies_from_host", BOTH, CALL.format("copy_async", "// ahead")
     + "found .* on the host's stack, expected device memory"),
    ("copies_of_what_changes", COUNTED, r"thread \(0,0,0\) stores to .* at "
     "AT(// while it is copied), and " + COMES.format("loaded", "// ahead")),
    ("copies_to_what_is_read", COUNTED, "loads .* at AT(// of the round), and "
     + COMES.format("stored to", "// ahead")),
    ("copies_without_fence", COUNTED, r"thread \(0,0,0\) stores to .* at AT(// ahead), and thread "
     r"[0-9]+ of block 0 loaded it at AT(// of the round): no fence_async\(\) is between the two"),
    ("copies_of_what_was_stored", COUNTED, r"thread \(0,0,0\) loads .* at AT(// what is there), "
     r"and thread 0 of block 0 stored to it at AT(// to copy): no fence_async\(\) is between the "
     "two"),
    ("messages_without_barrier", BOTH + COUNTED, CALL.format("store_async", "// a message's")
     + "nobody has initialised a barrier"),
    ("messages_that_never_come", BOTH, "kernel exchange: of 4 blocks 0 returned, 4 wait at "
     "mbarrier_wait in AT(// for a message)$"),
    ("messages_too_early", COUNTED, "stores to .* at AT(// a message's), and "
     + COMES.format("stored to", "// a message's")),
    ("messages_in_two_inboxes", COUNTED, "what AT(// a message's) sends may count in phase 0 or 1 "
     "of its barrier: nothing orders it and the end of phase 0"),
    ("messages_without_fence", COUNTED, "loads .* at AT(// handed over), and thread 0 of block 0 "
     "stored to it at AT(// to hand over): nothing orders the two"),
    ("messages_of_one_warp", COUNTED, "stores to .* at AT(// behind the loads), and thread 31 of "
     "block 1 loaded it at AT(// by each of two warps): nothing orders the two"),
    ("messages_to_who_returned", BOTH, LEFT.format("exchange", "// that nobody expects")),
    ("messages_to_who_returned", COUNTED, CALL.format("store_async", "// that nobody expects")
     + "block 0 has returned"),
    ("messages_misaligned", BOTH, CALL.format("store_async", "// at 4")
     + "found .*, 4 bytes into the 1024 bytes of __shared__, expected a multiple of 8"),
    ("messages_of_own_barrier", BOTH, CALL.format("store_async", "// a message's")
     + "found .*, expected shared memory of the barrier's block"),
    ("barrier_without_wait", COUNTED, "what AT(// once) sends may count in phase 0 or 1 of its"),
    ("barrier_of_other_block", BOTH, CALL.format("mbarrier_expect", "// all")
     + "found a barrier at .*, expected one in shared memory of its block"),
]


@pytest.mark.parametrize("source, name, build, said", [
    pytest.param(source, name, build, said, id=f"{name}-{build}")
    for source, faults in (("broken", FAULTS), ("hopper", NEWER_FAULTS),
                           ("tensor_cores", MMA_FAULTS),
                           ("asynchronous", ASYNCHRONOUS_FAULTS))
    for name, builds, said in faults for build in builds])
def test_a_fault_is_found(source, name, build, said):
    def place(found):
        lines = (FOLDER / f"programs/{source}.cu").read_text().splitlines()
        line, = (number for number, text in enumerate(lines, 1) if found[1] in text)
        return f"{source}.cu:{line}"

    pattern = re.sub(r"AT\((.*?)\)(?=[:,.$ ]|$)", place, said)
    line = start(f"{source}.{build}", name, status=1, OMP_NUM_THREADS=1, SIM_UNSET=1).stderr
    assert re.search(pattern, line, re.MULTILINE), (pattern, line)
    if build != "sanitized.sim":  # AddressSanitizer has more to say
        assert line.startswith("simulated device: ") and line.count("\n") == 1


@pytest.mark.parametrize("name, expected", [
    ("host_does_not_wait_for_pinned_memory", "not arrived, arrived"),
    ("host_does_not_wait_for_stream", "not arrived, arrived"),
    ("host_does_not_wait_for_event", "cudaErrorNotReady"),
    *((name, "0") for name in (  # 32896 if the first stream were done
        "does_not_wait_for_default", "default_does_not_wait", "blocking_does_not_wait")),
    ("uninitialised_device_memory", "nan"), ("uninitialised_shared_memory", "nan"),
    ("allocation_in_capture", f"{UNSUPPORTED}, {INVALIDATED}"),
    ("launch_into_default_stream_in_capture", f"{IMPLICIT}, {INVALIDATED}"),
    ("capture_of_default_stream", UNSUPPORTED),
    ("capture_that_has_not_begun", "cudaSuccess, cudaErrorIllegalState"),
    ("more_blocks_than_fit", "cudaErrorCooperativeLaunchTooLarge"),
    ("volatile_with_fences", "599")])
def test_what_a_gpu_may_do_or_an_error_says(name, expected):
    for count in (1, 16):
        assert result(name, SIM_MULTIPROCESSORS=count).lstrip("-") == expected


# The programs would print these numbers if they had their barriers.
@pytest.mark.parametrize("name, right", [
    ("missing_barrier", "2796160"), ("missing_second_barrier", "10885248"),
    ("missing_grid_barrier", "130970")])
def test_a_missing_barrier_changes_the_result_in_every_order(name, right):
    assert right not in {result(name, seed) for seed in range(4)}


@pytest.mark.parametrize("name", ["blocks_in_need_of_an_order", "threads_in_need_of_an_order"])
def test_what_needs_an_order_gives_another_result_in_another_order_and_the_same_in_the_same(name):
    one, again = ([result(name, seed, OMP_NUM_THREADS=1) for seed in range(4)] for _ in range(2))
    assert len({*one}) >= 3 and one == again


def test_right_programs_are_let_through():
    """Those that look like wrong ones. A missing fence shows in no result here."""
    start("correct.counted.sim")
    for name in "bytes", "hand_over_with_fences", "volatile_with_fences":
        start("broken.counted.sim", name)
    assert len({result(f"hand_over_{fences}") for fences in (
        "with_fences", "without_fence_before", "without_fence_behind")}) == 1
    start("broken.sim", "wait_for_blocks_without_room", SIM_MULTIPROCESSORS=20)
    start("broken.sanitized.sim", "volatile_with_fences")


BAD_SIZE = "cudaErrorInvalidClusterSize"


@pytest.mark.parametrize("name, expected, source", [
    *((*program, "hopper") for program in (
        ("early", "131584"), ("early_in_graph", "197376"), ("cluster", "9863616"),
        ("cluster_waits_to_return", "3168"), ("address_in_cluster", "10"),
        ("declared_cluster", "144"),
        ("sizes_of_clusters", f"4 4 {BAD_SIZE}\n1 cudaSuccess {BAD_SIZE} {BAD_SIZE}"))),
    *((*program, "asynchronous") for program in (
        ("copies", "95170"), ("messages", "1103840"), ("messages_hand_over", "1056"),
        ("copies_of_what_is_fenced", "37200"), ("messages_acknowledge", "2080"),
        ("waits_for_others", "6240")))])
def test_right_programs_of_compute_capability_9_0(name, expected, source):
    results = [result(name, seed, program=f"{source}.{build}", OMP_NUM_THREADS=threads)
               for seed, build, threads in ((0, "sim", 1), (1, "sim", 2), (2, "sanitized.sim", 2),
                                            (3, "sanitized.sim", 1), (1, "counted.sim", 1))]
    assert results == [expected] * 5


def weighted(values):
    """What print() of programs.h prints."""
    return f"{sum(value * i for i, value in enumerate(values, 1)):.10g}"


def halves():
    """What `convert` stores."""
    for i in range(256):
        scale = 2.0 ** (i % 33 - 29)
        number = (i * 7919 % 4099 - 2048) * scale
        first, second = struct.unpack("<2e", struct.pack("<2e", number, -2 * number))
        yield (first + 4 * second) / scale


PRODUCT = [
    row - column + sum(((row * 5 + k * 3) % 17 - 8) * ((k * 7 + column * 11) % 13 - 6)
                       for k in range(16)) for row in range(16) for column in range(8)]


@pytest.mark.parametrize("name, expected", [
    ("multiply_f16", weighted(PRODUCT)), ("multiply_bf16", weighted(PRODUCT)),
    ("truncation", "0 0 4 0 4.76837e-07"), ("convert", weighted(halves())),
    ("convert_bytes", weighted(i + 1000 * (255 - i) + 2 * (i // 2) + 21 for i in range(256)))])
def test_tensor_cores(name, expected):
    results = [result(name, seed, program=f"tensor_cores.{build}")
               for seed, build in ((0, "sim"), (1, "sanitized.sim"), (2, "counted.sim"))]
    assert results == [expected] * 3


def test_multiplications_are_counted(tmp_path):
    path = tmp_path / "counts.csv"
    result("multiply_f16", program="tensor_cores.counted.sim", SIM_COUNTS=path)
    assert pandas.read_csv(path, index_col="kernel")["mma"]["multiply"] == 1


# What comes has NaNs until a thread waits for it, and is loaded no sooner.
@pytest.mark.parametrize("name, expected", [
    ("copies_of_what_changes", "49474"), ("copies_to_what_is_read", "nan"),
    ("messages_too_early", "nan"), ("messages_in_two_inboxes", "nan")])
def test_what_comes_comes_late(name, expected):
    assert result(name, program="asynchronous.sim", OMP_NUM_THREADS=1).lstrip("-") == expected


# They have ended before the others touch their memory, which then holds NaNs.
def test_what_a_returned_block_of_a_cluster_had_is_gone():
    assert "nan" in result("cluster_returns", program="hopper.sim").replace("-", "")


def test_the_device_has_the_compute_capability_of_the_program_or_that_of_a_variable():
    said = [result("early_on_this_device", program="hopper.sim", SIM_CAPABILITY=capability)
            for capability in (None, 75)]
    assert said == ["9.0, 227 KiB, same, cudaSuccess",
                    "7.5, 64 KiB, same, cudaErrorNoKernelImageForDevice"]
    said = start("correct.sim", status=1, SIM_CAPABILITY=80).stderr
    assert "SIM_CAPABILITY: found 80, expected 75 or 90" in said
    start("correct.sim", SIM_CAPABILITY=90)


@pytest.mark.parametrize("block, warp", [(0, 0), (1, 1)])
def test_a_trace_has_a_warps_requests_and_what_each_takes(tmp_path, block, warp):
    source = (FOLDER / "programs/traced.cu").read_text()
    expected = re.findall(r"// (global|shared) (load|store) (\d+)", source)
    start("traced.counted.sim", SIM_TRACE=tmp_path / "trace.json", SIM_BLOCK=block, SIM_WARP=warp)
    kernel, = json.loads((tmp_path / "trace.json").read_text())
    requests = kernel.pop("requests")
    assert kernel == {"kernel": "patterns", "grid": [2, 1, 1], "block": [64, 1, 1]}
    assert [(each["space"], each["kind"], str(each["sectors"] + each["wavefronts"]))
            for each in requests] == expected
    assert [each["interval"] for each in requests] == [0] * 10 + [1] * 7
    first, *_, eight = requests[:7]
    assert first["lanes"] == [4 * lane for lane in range(32)] and first["bytes"] == 4
    assert eight["lanes"] == [None] * 24 + [256 + at for at in first["lanes"][24:]]
    assert requests[-1]["lanes"] == [256 * block + 128 * warp + at for at in first["lanes"]]
    for each in requests[7:-1]:
        words = {(wave, (each["start"] + at) // 4 + i)
                 for at, waves in zip(each["lanes"], each["by"]) for i, wave in enumerate(waves)}
        assert {wave for wave, _ in words} == {*range(each["wavefronts"])}
        # In a wavefront, a bank serves one word.
        assert len({(wave, word % 32) for wave, word in words}) == len(words)
    # The block's first warp has loaded all that its second one wants.
    assert [each["misses"] for each in requests[:7]] == (
        [0] * 7 if warp else [4, 31, 0, 0, 0, 9, 0])


@needs_full
@pytest.mark.skipif(not shutil.which("nvcc"), reason="found no nvcc")
@pytest.mark.parametrize("name", [
    "broken", "correct", "hopper", "tensor_cores", "asynchronous", "traced"])
def test_nvcc_accepts_what_the_simulation_accepts(name):
    make("-C", "tests/simulator", f"build/{name}.o")
