"""Tests the peers and `run_all.sh --peers`: a peer takes and writes what a stage does, and nothing
depends on a peer. FULL=1 compares all that are installed with the reference."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from conftest import PROGRAM
from programs import ROOT, Trainer, built, drawn_data, make, needs_full, run, script

from bench import ladders, testing

PEERS = ROOT / "stages/peers"
ALL = [peer for ladder in ladders.ladders() for peer in ladder.peers]


@pytest.fixture
def numpy(tmp_path):
    peer = Trainer(tmp_path, PEERS / "peer_numpy.py")
    if peer.run("--epochs 0").returncode == 77:
        pytest.skip("found no NumPy")
    return peer


def compare(peer, selection, path=None):
    """Compares a program's weights with the float64 reference."""
    make("-C", "bench", f"build/{peer.ladder.name}/reference", "build/many_processors.so")
    try:
        program = testing.tester(peer, selection, path)
    except testing.Skipped as why:
        pytest.skip(str(why))
    for pair in program.pairs():
        testing.test(program, *pair)


def test_each_has_a_title():
    """By which tables call it, and no other of its ladder."""
    for ladder in ladders.ladders():
        titles = [peer.title for peer in ladder.peers]
        assert "" not in titles and len({*titles}) == len(titles)


@pytest.mark.parametrize("peer", [
    pytest.param(peer, id=f"{peer.ladder.name}/{peer.name}",
                 marks=[] if peer.source == PEERS / "peer_openblas.c" else [needs_full])
    for peer in ALL])
def test_its_weights_are_the_references(peer):
    run(["make", *peer.build], None, cwd=ROOT)
    compare(peer, "rounded" if peer.digits else "peers")


def test_the_tutorials_loops_compute_the_same(tmp_path):
    ladder = ladders.find_ladder("")
    peer = ladder.find("peer_openblas", among=ladder.peers)
    run(["make", *peer.build], None, cwd=ROOT)
    if not peer.program.exists():
        pytest.skip("found no OpenBLAS")
    make("-C", PEERS / "tutorial", f"OUTPUT={tmp_path / 'tutorial'}")
    compare(peer, "order_3", tmp_path / "tutorial")


@pytest.mark.parametrize("habits", ["", "-DACROSS -DREGISTER -DNO_ATOMICS -DNO_WAITS -DNO_COPIES"],
                         ids=["all", "none"])
def test_the_tutorials_kernels_compute_the_same(tmp_path, habits):
    make("-C", PEERS / "tutorial_cuda", "sim", f"OUTPUT={tmp_path / 'train'}", f"EXTRA={habits}")
    compare(ladders.find_ladder("").find("03.2"), "order_3", tmp_path / "train.sim")


# A peer for a GPU whose factors have 16 bits, on the CPU, not compiled.
ON_CPU = """#!/usr/bin/env python3
import sys
sys.path[:0] = ["{peer.folder}"]
import peer, peer_pytorch, {peer.name} as on_gpu

class OnCpu(on_gpu.{kind}):
    where = "cpu"
    epoch = peer_pytorch.PyTorch.epoch

peer.main(OnCpu)
"""


@needs_full
@pytest.mark.parametrize("peer", [
    pytest.param(peer, id=f"{peer.ladder.name}/{peer.name}")
    for peer in ALL if peer.name.endswith("16")])
def test_factors_of_16_bits_are_off_by_their_rounding(tmp_path, monkeypatch, peer):
    kind = peer.name.rpartition("_")[2].upper()
    on_cpu = script(tmp_path / "peer_on_cpu.py", ON_CPU.format(peer=peer, kind=kind))
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    compare(peer, "rounded", on_cpu)
    exact = peer.ladder.find("peer_pytorch", among=peer.ladder.peers)
    with pytest.raises(testing.Differs):  # so these are rounded
        compare(exact, "rounded", on_cpu)


# It averages each batch over a sample too many.
WRONG = """#!/usr/bin/env python3
import sys
sys.path[:0] = ["{PEERS}"]
import peer, peer_numpy

class Wrong(peer_numpy.NumPy):
    def __init__(self, options, images, labels):
        super().__init__(options, images, labels)
        self.rate *= options.batch / (options.batch + 1)

peer.main(Wrong)
"""


def test_wrong_weights_are_refused(numpy, tmp_path):
    ladder = ladders.find_ladder("")
    peer = ladder.find("peer_numpy", among=ladder.peers)
    few = "order_3"  # a selection of few runs: each takes a third of a second
    compare(peer, few)
    with pytest.raises(testing.Differs):
        compare(peer, few, script(tmp_path / "peer_wrong.py", WRONG.format(PEERS=PEERS)))


def test_a_peers_rows_go_into_a_stages_file_and_have_no_times_of_the_phases(numpy, tmp_path):
    stage = Trainer(tmp_path, built(ladders.find_ladder("").stages[0]))
    for program in stage, numpy, stage:
        program.succeeds("--csv rows.csv --threads 1")
    row = numpy.rows()[1]
    values = {"stage": "peer_numpy", "device": "cpu", "threads": "1", "hidden": "3", "batch": "4",
              "train_samples": "6", "dataset": "mnist", "forward_s": "", "peak_vram_mib": ""}
    assert len(numpy.rows()) == 3 and row | values == row
    for name in "load_s", "setup_s", "warmup_s", "train_s", "gflops", "peak_rss_mib":
        assert float(row[name]) > 0
    numpy.succeeds("--csv new.csv")
    assert list(numpy.rows("new.csv")[0]) == list(row)


def test_a_copy_without_the_repository_takes_the_header_from_the_file(numpy, tmp_path):
    numpy.succeeds("--csv here.csv")
    for folder in "bench/peers", "stages/peers":
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("env"))
    (tmp_path / "python3").symlink_to(sys.executable)
    numpy.program = tmp_path / "stages/peers/peer_numpy.py"
    header = (tmp_path / "here.csv").read_text().partition("\n")[0]
    (tmp_path / "rows.csv").write_text(f"{header}\n")
    numpy.succeeds("--csv rows.csv", PATH=tmp_path)  # no make
    here, copy = numpy.rows("here.csv")[0], numpy.rows()[0]
    assert copy.keys() == here.keys() and float(copy["train_s"]) > 0
    numpy.fails(2, "--csv: without the repository, new.csv", "--csv new.csv --data none")  # early


def test_an_error_is_one_line(numpy):
    for status, said, options in (
            (2, "--hidden: found '0', expected a whole number from 1", "--hidden 0"),
            (2, "--learning-rate: found 'nan', expected a number from 0", "--learning-rate nan"),
            (2, "unrecognized arguments: --hiden", "--hiden 3"),
            (2, "found 6 images and 6 labels, --train expects at least 7", "--train 7"),
            (2, "^none: .*No such file", "--data none"),
            (2, "begins with other columns", f"--csv {ROOT}/README.md"),
            (2, "--save-weights: cannot write 'none/w'", "--save-weights none/w"),
            (1, "the loss became (nan|inf)", "--learning-rate 1e30 --epochs 9")):
        numpy.fails(status, said, options)
    os.truncate(numpy.folder / "data/train-images-idx3-ubyte", 4719)
    numpy.fails(2, "^data: ")


def test_a_library_that_is_not_installed_is_named(numpy, tmp_path):
    (tmp_path / "jax.py").write_text('raise ImportError("none here")\n')
    numpy.program = PEERS / "peer_jax.py"
    numpy.fails(77, "^not installed: none here;", PYTHONPATH=tmp_path)
    for folder in "common", "bench/peers":
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("env"))
    peers = tmp_path / "stages/peers"
    peers.mkdir(parents=True)
    for path in PEERS / "Makefile", *PEERS.glob("*.c"):
        shutil.copy(path, peers)
    # Without any library's headers.
    ended = run(["make", "-s", "-C", peers, "--no-print-directory", "CC=gcc -nostdinc"])
    assert (ended.stdout + ended.stderr).count(": left out, not installed: found no ") == 4
    assert not any(os.access(path, os.X_OK) for path in peers.glob("peer_*"))


def test_run_all_has_the_installed_ones_and_a_line_for_each_other(tree):
    (tree.root / "stages/peers").mkdir()
    tree.script("stages/peers/peer_here.py",  # it has no phases
                PROGRAM.format(name="peer_here", commands="phase_s="))
    tree.script("stages/peers/peer_gone.py", "echo not installed: nothing >&2; exit 77")
    tree.write("stages/peers/Makefile", "%: ;\nversions:\n\t@echo peers: here 1.0\n")
    tree.sweep("--peers --stages 00 --hidden 3,4 --repeats 2")
    # They run in turn, in each cell.
    assert tree.rows("stage hidden").split() == [
        "00_one,4", "peer_here,4", "00_one,3", "peer_here,3"] * 2
    assert tree.notes()["peer_gone"] == "left out: not installed: nothing"
    assert ",peers,here 1.0\n" in Path("results/sweeps.csv").read_text()


def test_digits_round_less_than_floats_and_a_librarys_bytes_more():
    folder = ROOT / "stages/12_exact_digits/errors"

    def errors(program):
        make("-C", folder, f"build/{program}")
        ended = run(f"{folder}/build/{program} --hidden 33 --batch 17 --train 640 --test 64"
                    f" --data {drawn_data()}", None)
        if ended.returncode == 77:
            pytest.skip(ended.stderr)
        return [float(line.split()[-1]) for line in ended.stdout.splitlines()[1:]]

    floats, two, three = errors("errors")
    assert three < floats < two
    if not Path("/usr/include/libxsmm.h").exists():
        pytest.skip("found no LIBXSMM")
    floats, bf16, in_bytes = errors("library")
    assert 100 * floats < bf16 < in_bytes
