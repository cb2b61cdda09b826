"""Tests bench/ in short runs: its programs measure what they say."""

import json
import re

import pytest
from programs import ROOT, run

from harness import rows


def test_only_the_ceilings_are_written_without_host_or_path(tmp_path):
    if run("g++ -E -include benchmark/benchmark.h -x c++ /dev/null", None).returncode:
        pytest.skip("found no g++ or no libbenchmark-dev")
    run([ROOT / "bench/run.sh"], RESULTS=tmp_path, OFFLINE=1, MIN_TIME=0.001, REPETITIONS=2,
        FILTER="ceilings/(multiply_add|addition|read/L[12]|barrier|parallel)")
    path, = tmp_path.iterdir()
    assert path.name == "ceilings.json"
    assert not re.search("host_name|executable|/home|/root", path.read_text())
    runs = json.loads(path.read_text())["benchmarks"]
    assert {each["run_type"] for each in runs} == {"aggregate"}  # no single runs
    medians = [each for each in runs if each["aggregate_name"] == "median"]
    assert medians
    for each in medians:
        assert each["real_time"] > 0 and each.get("flops", 1) > 0 and each.get("bytes_read", 1) > 0
    found = {level: rate for level, _, rate in rows.read_ceilings(path)}
    assert {"flops", "L1", "addition"} <= found.keys()
    # An addition takes a cycle at least, and some nanoseconds at most.
    assert 1e8 < found["addition"] < 1e10
