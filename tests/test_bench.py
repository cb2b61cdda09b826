"""Tests bench/ in short runs: its programs measure what they say."""

import json
import re
import sys

import pytest
from programs import ROOT, drawn_data, make, run

from bench import calibrate, ladders, process, rows

pytestmark = pytest.mark.skipif(
    run("g++ -E -include benchmark/benchmark.h -x c++ /dev/null", None).returncode != 0,
    reason="found no g++ or no libbenchmark-dev")


def bench(tmp_path, *options, status=0, **variables):
    make("-C", "bench/machine")  # not side by side with another test's
    return run([sys.executable, ROOT / "bench", "bench.ceilings", f"RESULTS={tmp_path}", *options],
               status, BENCHMARK_MIN_TIME=0.001, BENCHMARK_REPETITIONS=3, **variables)


def test_only_the_medians_are_written_without_host_or_path(tmp_path):
    bench(tmp_path, "FILTER=ceilings/(multiply_add|addition|read/L[12]|barrier|parallel)")
    path, = tmp_path.iterdir()
    assert path.name == "ceilings.json"
    assert not re.search("host_name|executable|/home|/root", path.read_text())
    runs = json.loads(path.read_text())["benchmarks"]
    assert {each["aggregate_name"] for each in runs} == {"median"}
    for each in runs:
        assert each["real_time"] > 0 and each.get("flops", 1) > 0 and each.get("bytes_read", 1) > 0
    found = {level: rate for level, _, rate in rows.read_ceilings(path)}
    assert {"flops", "L1", "L2", "addition"} <= found.keys() and min(found.values()) > 1


def test_a_filter_that_no_benchmark_matches_is_one_line_also_under_make(tmp_path):
    said = bench(tmp_path, "FILTER=nothing_of_this_name", status=2,
                 MAKEFLAGS="s -j2 --jobserver-auth=98,99").stderr
    assert said.count("\n") == 1 and "nothing_of_this_name" in said


def test_the_ceiling_of_more_threads_is_printed():
    make("-C", "bench/machine", "build/ceiling")
    for threads in "1", "3":
        said = run([ROOT / "bench/machine/build/ceiling", threads]).stdout
        assert re.fullmatch(r"[1-9][.0-9]*e\+\d+\n", said)


ROWS = ["launch", "launch_wait", "dependent_node", "grid_barrier", "flag", "load_shared", "read_L2",
        "load_L2", "read_memory", "load_memory", "fma", "clock", "copy_pageable", "copy_pinned",
        "page_fault"]
NEWER = ["mma_f16", "mma_bf16", *(
    f"{name}_{size}" for size in (2, 4, 8, 16)
    for name in ("clusters", "read_remote", "cluster_barrier", "load_remote"))]


@pytest.mark.parametrize("program, wanted", [
    ("calibrate.sim", ROWS), ("calibrate90.sim", ROWS + NEWER)])
def test_a_gpus_ceilings_are_printed(program, wanted):
    make("-C", "bench/machine", f"build/{program}")
    said = run([ROOT / "bench/machine/build" / program]).stdout
    head, *found = [line.split(",") for line in said[said.index("what,"):].splitlines()]
    assert head == ["what", "unit", "value", "least", "most"]
    assert sorted(each[0] for each in found) == sorted(wanted)
    for _, unit, value, least, most in found:
        assert unit and 0 < float(least) <= float(value) <= float(most) < float("inf")


def test_a_gpus_ceilings_stay_beside_the_processors(tmp_path, monkeypatch):
    """Each takes the place of its own. What a GPU said before it failed counts."""
    path = tmp_path / "ceilings.json"
    said = ["what,unit,value,least,most\nnode,µs,0.5,0.4,0.6\nfma,GFLOP/s,65000,64000,66000\n",
            "what,unit,value,least,most\nnode,µs,0.7,0.7,0.7\n"]
    monkeypatch.setattr(calibrate, "results", lambda: path)
    monkeypatch.setattr(process, "make", lambda *_: None)
    monkeypatch.setattr(process, "run", lambda *_: process.Ended(2 - len(said), said.pop(0), "", 1))
    of_processor = {"run_name": "ceilings/multiply_add/threads:1", "aggregate_name": "median",
                    "flops": 1e11}
    assert calibrate.measure_gpu() == 0
    assert rows.read_ceilings(path) == [("gpu/node", 1, 0.5), ("gpu/fma", 1, 65000)]
    calibrate.save({"context": {"caches": [1]}, "benchmarks": [of_processor]})
    assert calibrate.measure_gpu() == 1
    assert rows.read_ceilings(path) == [("flops", 1, 1e11), ("gpu/node", 1, 0.7)]
    found = json.loads(path.read_text())
    assert found["context"] == {"caches": [1]}
    assert {"unit": "µs", "least": 0.7, "most": 0.7}.items() <= found["benchmarks"][1].items()


@pytest.mark.parametrize("words, status, why", [
    ("--hold 0.01", 0, ""), ("--hold", 2, "--hold"), ("--hold 1s", 2, "1s"), ("--hold -1", 2, "-1"),
    ("3", 2, "3"), ("", 77, "no CUDA-capable device"), ("--hold 1", 77, "no CUDA-capable device")])
def test_the_calibrator_holds_a_context_or_says_why_not(words, status, why):
    make("-C", "bench/machine", "build/calibrate.sim")
    program = ROOT / "bench/machine/build/calibrate.sim"
    said = run([program, *words.split()], status, SIM_DEVICES=int(status == 0)).stderr
    assert said.count("\n") == (status > 0) and why in said
    run(["timeout", "--preserve-status", "0.1", program, "--hold", "600"], 128 + 15)  # SIGTERM


@pytest.mark.parametrize("wanted, threads", [("00", 1), ("02", 2)])
def test_a_stages_phases_are_timed_under_the_ceilings(tmp_path, wanted, threads):
    """Nine of ten batches count."""
    stage, samples, hidden = ladders.find_ladder("").find(wanted), 32, 8
    make(str(stage.folder.relative_to(ROOT)))
    rate = {"aggregate_name": "median", "real_time": 1}
    (tmp_path / "ceilings.json").write_text(json.dumps({
        "context": {"caches": [{"level": 1, "type": "Data", "size": 1e9, "num_sharing": 1}]},
        "benchmarks": [rate | {"run_name": f"x/{name}/threads:{count}", key: 1e12 * count}
                       for count in (1, 2) for name, key in (("multiply_add", "flops"),
                                                             ("read/L1", "bytes_read"),
                                                             ("read/memory", "bytes_read"))]}))
    said = bench(tmp_path, f"STAGE={wanted}", f"HIDDEN={hidden}", f"BATCH={samples}",
                 f"TRAIN={10 * samples}", "TEST=1",
                 f"OPTIONS=--benchmark_out_format=json --benchmark_out={tmp_path}/json",
                 OMP_NUM_THREADS=2, MNIST_DIR=drawn_data()).stdout
    found = {each["run_name"].split("/", 3)[3].split("/iterations")[0]: each
             for each in json.loads((tmp_path / "json").read_text())["benchmarks"]
             if each["aggregate_name"] == "median"}
    assert {*found} == {"forward", "backward"} and said.count(f"{stage.name}/hidden:8/") == 2
    for name, each in found.items():
        # By hand: a multiply-add for each pixel or unit, and a gradient of each weight, or two.
        layers = (784, 10) if name.startswith("forward") else (784, 2 * 10)
        operations = 2 * samples * hidden * sum(layers)
        assert each["flops"] * each["real_time"] == pytest.approx(1e6 * operations, rel=1e-6)
        assert each["of_peak"] == pytest.approx(each["flops"] / threads / 1e12)
        assert each["of_L1"] == pytest.approx(each["bytes"] / threads / 1e12)


def test_a_stage_of_a_gpu_is_one_line(tmp_path):
    said = bench(tmp_path, "STAGE=05_cuda", status=2).stderr
    assert said.count("\n") == 1 and "05_cuda_shared_tiling" in said
