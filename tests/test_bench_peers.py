"""Tests the peers and `run_all.sh --peers`: a peer takes and writes what a stage does, and
nothing depends on a peer. `make check-peers` compares the weights of all that are installed."""

import gzip
import os
import re
import shutil
import time
from pathlib import Path

import pytest
from programs import (
    FULL,
    LABELS,
    ROOT,
    TEST_LABELS,
    TESTS,
    Trainer,
    images,
    make,
    needs_full,
    run,
    script,
)

from harness import ladders

PEERS = ROOT / "stages/peers"
THREADED = "stages" if FULL else "builds"
NVCC = shutil.which("nvcc", path=f"{os.environ['PATH']}:/usr/local/cuda/bin")


@pytest.fixture
def choose(tmp_path):
    """A peer on the tiny data set. Skips the test if it is not installed."""
    def trainer(name):
        make("-C", "stages/peers", name.removesuffix(".py"))
        peer = Trainer(tmp_path, PEERS / name)
        if not peer.program.exists():
            pytest.skip(f"{name} is not built")
        ended = peer.run("--epochs 0")
        if ended.returncode == 77:
            pytest.skip(ended.stderr.rstrip())
        return peer

    return trainer


@pytest.fixture
def numpy(choose):
    return choose("peer_numpy.py")


@pytest.fixture
def stage(tmp_path):
    make("stages/00_serial")
    return Trainer(tmp_path, ROOT / "stages/00_serial/train")


def check_weights(selection, program):
    """Compares the weights after 50 batches with the float64 reference, for a selection of sizes.
    `stages` is what stages are asked for, and `builds` is a part of it."""
    make("-C", "harness", "build/stages/reference", "build/many_processors.so")
    run([ROOT / "harness/start.py", "verify", selection, program])


@pytest.mark.parametrize("name, selection", [
    ("peer_openblas", "peers"), ("peer_openblas_pypi", "peers"),
    pytest.param("peer_numpy.py", "peers", marks=needs_full),  # each run takes a third of a second
    ("peer_libxsmm", THREADED), ("peer_onednn", THREADED)])
def test_the_weights_on_one_thread_and_on_several(choose, name, selection):
    program = choose(name).program
    if name == "peer_openblas_pypi":  # a library of its own
        assert "/scipy_openblas32/lib/libscipy_openblas" in run(["ldd", program]).stdout
    check_weights(selection, program)


def test_the_matmuls_of_onednn_are_compiled_with_what_comes_after_them(choose):
    peer = choose("peer_onednn")
    if "avx512vl" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("oneDNN compiles matmuls for AVX-512 only")
    said = peer.succeeds("--hidden 33 --threads 2", DNNL_VERBOSE=1)
    matmul = "^onednn_verbose,(v1,primitive,)?exec,cpu,matmul,"  # of oneDNN 2, and of 3
    for kind in "eltwise_relu", "sum":
        assert re.search(f"{matmul}brg(_matmul)?:avx512_core,.*{kind}", said, re.M)
    assert not re.search(f"{matmul}(gemm|ref)", said, re.M)


def test_the_threads_of_the_peers_in_c_that_start_their_own_are_bound(monkeypatch):
    for name in "OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY":
        monkeypatch.delenv(name, raising=False)
    assert [peer.name for peer in ladders.find_ladder("").peers if peer.source.suffix == ".c"
            and "OMP_PLACES" in peer.environment] == ["peer_libxsmm", "peer_onednn"]


@pytest.mark.parametrize("name", ["peer_libxsmm", "peer_openblas"])  # one of those with slices.h
def test_a_peer_in_c_keeps_the_weights_it_has_where_the_loss_is_not_a_number(choose, name):
    peer = choose(name)
    weights = peer.folder / "weights"
    weights.write_text("good")
    peer.fails(1, "the loss became", "--learning-rate 1e30 --epochs 5 --save-weights weights")
    assert weights.read_text() == "good"


def test_libxsmm_says_where_it_compiles_no_kernels(choose):
    choose("peer_libxsmm").fails(77, "peer_libxsmm: LIBXSMM has no kernels for this processor",
                                 LIBXSMM_TARGET="generic")


def test_make_leaves_out_a_library_that_is_not_installed_and_names_its_package(tmp_path):
    peers = tmp_path / "stages/peers"
    for folder in "common", "bench/peers":
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("env"))
    shutil.copytree(PEERS, peers, ignore=lambda folder, names: [
        name for name in names if not re.search(r"^Makefile$|\.c$", name)])
    # Without any library's headers.
    ended = run(["make", "-s", "-C", peers, "--no-print-directory", "CC=gcc -nostdinc"])
    assert ended.stdout + ended.stderr == """\
peer_libxsmm: left out, not installed: found no LIBXSMM (libxsmm-dev)
peer_onednn: left out, not installed: found no oneDNN for OpenMP (libdnnl-dev)
peer_openblas: left out, not installed: found no OpenBLAS (libopenblas-dev)
peer_openblas_pypi: left out, not installed: found no scipy-openblas32 in env (make peers)
"""
    assert not any(os.access(path, os.X_OK) for path in peers.glob("peer_*"))


@needs_full
@pytest.mark.skipif(not NVCC, reason="found no nvcc")
@pytest.mark.parametrize("source", PEERS.glob("*.cu"), ids=lambda path: path.name)
def test_nvcc_compiles_the_peers_with_cublas_without_a_warning(tmp_path, source):
    run([NVCC, f"-I{ROOT}", '-DSTAGE="peer"', "-std=c++17", "-arch=sm_75", "-Xcompiler",
         "-Wall,-Wextra", "-Werror", "all-warnings", "-c", "-o", tmp_path / "peer.o", source])


@pytest.mark.parametrize("peer", ["peer_cublas"] + ["peer_cublaslt"] * bool(FULL))
def test_the_weights_of_the_peers_with_cublas_on_the_simulated_device(tmp_path, peer):
    if "cudaGraphLaunch" not in (ROOT / "sim/cuda_runtime.h").read_text():
        pytest.skip("it has no graphs")
    # One file, with plain products in the place of cuBLAS's.
    text = (PEERS / f"{peer}.cu").read_text()
    for include, path in ((r"<cublas.*\.h>", TESTS / "fake_cublas.cuh"),
                          ('"cublas.cuh"', PEERS / "cublas.cuh")):
        text = re.sub(f"^#include {include}$", lambda _, path=path: path.read_text(), text,
                      flags=re.M)
    source = tmp_path / f"{peer}.cu"
    source.write_text(text)
    run(["make", "-s", "-C", ROOT / "stages/03_cuda_unified", "sim", f"SOURCE={source}",
         f"OUTPUT={tmp_path / peer}"])
    check_weights("builds", tmp_path / f"{peer}.sim")


def test_make_versions_names_those_of_the_libraries_for_c():
    versions = run(["make", "-s", "-C", PEERS, "versions"]).stdout
    for peer, pattern in (
            ("libxsmm", r"[ ,]LIBXSMM [0-9]+(\.[0-9]+)+(,|$)"),
            ("onednn", r"[ ,]oneDNN [0-9]+(\.[0-9]+){2}(,|$)"),
            ("openblas", r"[ ,]OpenBLAS [0-9.]+ \([A-Za-z0-9]+\)"),
            ("openblas_pypi", r"[ ,]OpenBLAS [0-9.]+ from PyPI \([A-Za-z0-9]+\)")):
        make("-C", "stages/peers", f"peer_{peer}")
        if (PEERS / f"peer_{peer}").exists():
            assert re.search(pattern, versions, re.M), versions


def damage(path, place):
    data = path.read_bytes()
    path.write_bytes(data[:place] + b"\xff" * 4 + data[place + 4:])


def compress(folder):
    for path in folder.iterdir():
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


def test_the_same_weights_from_raw_and_gzipped_files_and_from_a_csv(numpy):
    raw, table = numpy.weights(), numpy.folder / "csv/train.csv"
    table.parent.mkdir()
    # As Kaggle writes them: label, then 784 pixels.
    lines = [["label", *(f"pixel{number}" for number in range(784))]]
    for labels in LABELS, TEST_LABELS:
        lines += [[label, *image.ravel()] for label, image in zip(labels, images(len(labels)))]
    table.write_text("".join(f"{','.join(map(str, line))}\n" for line in lines))
    compress(numpy.folder / "data")
    assert numpy.weights() == raw == numpy.weights("--data csv --csv rows.csv")
    assert numpy.rows()[0]["dataset"] == "csv"
    compress(table.parent)
    damage(Path(f"{table}.gz"), 400)
    numpy.fails(2, "^csv/train.csv.gz: ", "--data csv")


def test_a_peers_rows_go_into_a_stages_file_and_have_no_times_of_the_phases(numpy, stage):
    for program in stage, numpy, stage:
        program.succeeds("--csv rows.csv --threads 1")
    row = numpy.rows()[1]
    values = dict(stage="peer_numpy", device="cpu", threads="1", hidden="3", batch="4", epochs="2",
                  learning_rate="0.1", seed="1", train_samples="6", test_samples="4",
                  dataset="mnist", forward_s="", backward_s="", peak_vram_mib="")
    assert len(numpy.rows()) == 3 and row | values == row
    for name, value in row.items():
        assert name in values or re.fullmatch(r"[0-9]+\.[0-9]{9}" if name.endswith("_s")
                                              else "[0-9.]+", value), name
    numpy.succeeds("--csv new.csv")
    assert list(numpy.rows("new.csv")[0]) == list(row)


FAKE = """#!/usr/bin/env python3
import sys
sys.path[:0] = ["{PEERS}"]
import peer, peer_numpy

class Fake(peer_numpy.NumPy):
    device, count = "{device}", 0

    def epoch(self):
        Fake.count += 1
        return super().epoch()

peer.main(Fake)
print(Fake.count, "epochs")
"""


def test_before_the_clock_a_peer_trains_an_epoch_a_gpus_for_long_and_then_goes_back(numpy):
    weights = numpy.weights()
    for device, epochs, count in ("cpu", 2, 3), ("cpu", 0, 0), ("GPU", 2, 3):
        numpy.program = script(numpy.folder / "peer_numpy_fake.py",
                               FAKE.format(PEERS=PEERS, device=device))
        said = numpy.succeeds(f"--epochs {epochs} --csv rows.csv --save-weights {device}{epochs}",
                              WARMUP_S=0)
        assert said.endswith(f"\n{count} epochs\n")
    start = time.monotonic()
    assert int(numpy.succeeds("--epochs 2").split()[-2]) > 3 and time.monotonic() - start > 0.5
    assert (numpy.folder / "GPU2").read_bytes() == weights
    assert float(numpy.rows()[-1]["warmup_s"]) > 0


def test_each_decision_of_the_paper_changes_the_weights(numpy):
    weights, numpy.program = [numpy.weights("--seed 2")], PEERS / "decisions.py"
    found, _, names = numpy.run("", 2).stderr.strip().partition(", expected one of ")
    assert found == "DECISION: found ''"
    weights += [numpy.weights("--seed 2", DECISION=name) for name in names.split(", ")]
    assert len(weights) == 9 and len({*weights}) == 9


def test_an_error_is_one_line(numpy):
    train, data = "data/train-images-idx3-ubyte", numpy.folder / "data"
    for status, said, options in (
            (2, "--hidden: found '0', expected a whole number", "--hidden 0"),
            (2, "--hidden: found '4_0', expected a whole number", "--hidden 4_0"),
            (2, "--learning-rate: found 'x', expected a number above 0", "--learning-rate x"),
            (2, "--learning-rate: found ' 1', expected a number above 0", "--learning-rate ' 1'"),
            (2, "unrecognized arguments: --hiden", "--hiden 3"),
            (2, "found 6 images and 6 labels, --train expects at least 7", "--train 7"),
            (2, "found no MNIST", "--data ."),
            (1, "the loss became (nan|inf)", "--learning-rate 1e30 --epochs 9"),
            (2, "begins with other columns", f"--csv {ROOT}/README.md")):
        numpy.fails(status, said, options)
    (data / "t10k-labels-idx1-ubyte").write_bytes(b"")
    numpy.fails(2, "expected the header of an IDX file of labels")
    os.truncate(numpy.folder / train, 4719)
    numpy.fails(2, f"^{train}: found 4719 bytes, expected 4720")
    compress(data)
    damage(numpy.folder / f"{train}.gz", 40)
    numpy.fails(2, f"^{train}.gz: damaged or truncated gzip file: ")
    os.truncate(numpy.folder / f"{train}.gz", 100)
    numpy.fails(2, f"^{train}.gz: damaged or truncated gzip file: ")
    shutil.copy(data / "t10k-images-idx3-ubyte.gz", numpy.folder / f"{train}.gz")
    numpy.fails(2, "found 4 images and 6 labels, --train expects at least 6")
    (data / "train-labels-idx1-ubyte.gz").unlink()
    numpy.fails(2, "No such file or directory: .data/train-labels-idx1-ubyte")


def test_a_peer_that_is_not_installed_says_so_with_status_77(numpy):
    (numpy.folder / "jax.py").write_text('raise ImportError("none here")\n')
    numpy.program = PEERS / "peer_jax.py"
    numpy.fails(77, "^not installed: none here;", PYTHONPATH=numpy.folder)


def test_run_all_has_the_installed_ones_in_the_tables_and_a_line_for_each_other(tree):
    (tree.root / "stages/peers").mkdir()
    tree.program("stages/peers/peer_here.py", "peer_here", "phase_s=")  # it has no phases
    tree.script("stages/peers/peer_gone.py", "echo not installed: nothing >&2; exit 77")
    for name in "library.c", "data.txt":
        tree.write(f"stages/peers/peer_{name}", "")
    tree.write("stages/peers/Makefile", "peer_here peer_gone: ;\npeer_library:\n"
               "\t@echo '$@: left out, not installed: no library'\n"
               "versions:\n\t@echo peers: here 1.0\n")
    tree.sweep("--peers --stages 00 --hidden 3,4 --repeats 2")
    # They run in turn, in each cell.
    assert tree.rows("stage hidden").split() == [
        "00_one,3", "peer_here,3", "00_one,4", "peer_here,4"] * 2
    lines = Path("results/tables.txt").read_text().splitlines()
    # It does not tell the phases apart, so it is not in their tables.
    assert sum(line.startswith("  peer_here ") for line in lines) == 1
    for name, why in ("gone", "nothing"), ("library", "no library"):
        assert any(re.fullmatch(f"peer_{name}: .*: not installed: {why}", line) for line in lines)
    assert ",peers,here 1.0\n" in Path("results/sweeps.csv").read_text()
    # Without the option, no peer runs.
    tree.sweep("--stages 00 --output without")
    assert not any("peer" in path.read_text() for path in Path("without").iterdir())
