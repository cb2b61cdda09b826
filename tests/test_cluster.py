"""Tests `make cluster`: stages of several processes on a simulated network."""

import shutil
import sys

import pandas
import pytest
from programs import ROOT, run

from bench import cluster

SMALL = "HIDDEN=40 BATCH=8 TRAIN=16"
needs_simgrid = pytest.mark.skipif(not shutil.which("smpirun"), reason="found no smpirun (SimGrid)")


def test_what_a_sum_takes():
    network = cluster.Cluster(16, 100, 12.5, 1)
    assert network.sum_seconds("allreduce", 1250) == pytest.approx(4 * 100.1e-6)
    three = network._replace(nodes=3)  # the third sends its part first, and gets the sum last
    assert three.sum_seconds("allreduce", 1250) == pytest.approx(3 * 100.1e-6)
    assert network.sum_seconds("allreduce", 200000) == pytest.approx(8 * 100e-6 + 30e-6)
    assert network.sum_seconds("iallreduce", 1250) == pytest.approx(100e-6 + 1.5e-6)


@needs_simgrid
@pytest.mark.parametrize("stage", ["07.0", "11"])
def test_a_right_stage_waits_as_long_as_its_messages_travel(tmp_path, stage):
    run(f"{sys.executable} -m bench cluster STAGE={stage} NODES=5 LATENCY=3000us {SMALL} "
        f"OUTPUT={tmp_path}/rows.csv", cwd=ROOT)
    rows = pandas.read_csv(tmp_path / "rows.csv").set_index("nodes")
    assert rows["waits"][1] < 100 < 2500 < rows["waits"][2] < 9500
    assert rows["waits"][5] <= rows["us_a_batch"][5]
    assert 2900 < rows["predicted"][2] < 9500


@needs_simgrid
def test_what_cannot_be():
    for words, said in (("STAGE=02", "STAGE: found '02'"), ("NODES=0", "NODES: found '0'"),
                        ("LATENCY=fast", "LATENCY: found 'fast'"),
                        (f"STAGE=07.1 NODES=99999999 {SMALL}", "NODES: found 99999999")):
        error = run(f"{sys.executable} -m bench cluster {words}", None, cwd=ROOT).stderr
        assert error.startswith(f"cluster: {said}") and error.count("\n") == 1
