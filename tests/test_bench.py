"""Tests bench/ in short runs: its programs measure what they say."""

import json
import re
import shutil

import pytest
from programs import ROOT, make, needs_full, run

from harness import rows

BENCH = ROOT / "bench"
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


@pytest.fixture(scope="module")
def built():
    if run("g++ -E -include benchmark/benchmark.h -x c++ /dev/null", None).returncode:
        pytest.skip("found no g++ or no libbenchmark-dev")
    make("-C", "bench")


def test_only_the_medians_are_written_without_host_or_path(built, tmp_path):
    run([BENCH / "run.sh"], RESULTS=tmp_path, MIN_TIME=0.001, REPETITIONS=2,
        FILTER="ceilings/(multiply_add|addition|read/L[12]|barrier|parallel)")
    path, = tmp_path.iterdir()
    assert path.name == "ceilings.json"
    assert not re.search("host_name|executable|/home|/root", path.read_text())
    runs = json.loads(path.read_text())["benchmarks"]
    assert {each["aggregate_name"] for each in runs} == {"median"}
    for each in runs:
        assert each["real_time"] > 0 and each.get("flops", 1) > 0 and each.get("bytes_read", 1) > 0
    found = {level: rate for level, _, rate in rows.read_ceilings(path)}
    assert {"flops", "L1", "L2", "addition"} <= found.keys() and min(found.values()) > 1


def test_a_filter_that_no_benchmark_matches_is_one_line_also_under_make(built):
    said = run([BENCH / "run.sh"], 2, FILTER="nothing_of_this_name",
               MAKEFLAGS="s -j2 --jobserver-auth=98,99").stderr
    assert said.count("\n") == 1 and "nothing_of_this_name" in said


def test_the_ceiling_of_more_threads_is_printed():
    make("-C", "harness", "build/ceiling")
    for threads in "1", "3":
        said = run([ROOT / "harness/build/ceiling", threads]).stdout
        assert re.fullmatch(r"[1-9][.0-9]*e\+\d+\n", said)


@needs_full
@pytest.mark.skipif(not NVCC, reason="found no nvcc")
def test_the_gpus_ceilings_compile_without_a_warning(built, tmp_path):
    make("-C", "bench", "build/gpu_ceilings", f"NVCC={NVCC}", "CUDA_ARCH=sm_75",
         "NVCCFLAGS=-std=c++17 -arch=sm_75 -Xcompiler -Wall,-Wextra -Werror all-warnings")
