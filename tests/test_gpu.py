"""Rehearses `make gpu` on the simulated device, as on a bare machine: without git, a network or the
system's PATH. What only a GPU can show is not seen here: times, clocks, the driver."""

import shutil
import sys
from pathlib import Path

import pytest
from programs import ROOT, Trainer, drawn_data, make, rows, run, script

from bench import counts, ladders
from bench import rows as records

NVIDIA_SMI = """case "$*" in
-L) echo 'GPU 0: Simulated' ;;
*=name,*) echo 'Simulated, 1 MiB, 0.0' ;;
*=name*) echo Simulated ;;
esac"""
# Of the stages, these are enough: one for the processor, two for a GPU.
KEPT = "00_serial", "02_openmp", "03_cuda_unified", "04_cuda_device_mem"
# It counts nothing: two launches of a kernel.
NCU = f"""cat <<END
==PROF== Connected
"ID","Kernel Name","Block Size","Grid Size",{",".join(f'"{name}"' for name in counts.METRICS)}
"","","","",{",".join('"unit"' for _ in counts.METRICS)}
"0","sums(float *, int)","(32, 1, 1)","(7, 1, 1)",{",".join('"1,234"' for _ in counts.METRICS)}
"1","sums(float *, int)","(32, 1, 1)","(2, 1, 1)",{",".join('"56"' for _ in counts.METRICS)}
END"""
# It finds something in one program.
SANITIZER = """tool=$2
shift 4
case "$tool $1" in
memcheck*03*) echo 'Invalid read' >&2; exit 1 ;;
esac
exec "$@"
"""
TOOLS = (
    "as", "awk", "bash", "cat", "cksum", "date", "dirname", "env", "g++", "gcc", "grep", "id", "ld",
    "lscpu", "make", "mkdir", "mv", "nproc", "paste", "printf", "realpath", "rm", "sed", "sh",
    "sort", "tr", "uname", "wc")


@pytest.fixture
def bare(checkout):
    """A copy of the repository with a few stages, of which one is wrong, and what PATH has."""
    for path in checkout.root.glob("stages/[0-9]*"):
        if path.name not in KEPT:
            shutil.rmtree(path)
    for path in (*checkout.root.glob("stages/*/0*"), *checkout.root.glob("stages/peers"),
                 checkout.root / "studies"):
        shutil.rmtree(path)
    checkout.edit("stages/04_cuda_device_mem/train.cu", "-= learning_rate", "-= 2 * learning_rate")
    for tool in TOOLS:
        script(checkout.root / "bin" / tool, f'exec {shutil.which(tool)} "$@"')
    for tool, text in (("nvidia-smi", NVIDIA_SMI), ("ncu", NCU), ("compute-sanitizer", SANITIZER)):
        script(checkout.root / "bin" / tool, text)
    return checkout


def test_a_bare_machine(bare):
    """A program that is wrong has no time. All others have, and the GPU's ceilings are there, what
    Nsight Compute has counted of each launch, and what compute-sanitizer has found."""
    alone = [shutil.which("unshare") or "unshare", "--map-root-user", "--net"]
    if run([*alone, "true"], None).returncode:
        alone = []
    said = run([*alone, "make", "gpu", "LIMIT=3000", "RUNS=1", "HIDDEN=32", "BATCH=32",
                "EPOCHS=1", "TRAIN=64", "TEST=16"], 2, cwd=".", limit=3600,
               PATH=bare.root / "bin", PYTHON=sys.executable, NVCC=ROOT / "tests/nvcc.sh",
               MNIST_DIR=drawn_data(), OFFLINE="1", REVISION="abc", MAKEFLAGS="")
    home, = Path("report/results").glob("*-simulated-own")
    assert {level for level, _, _ in records.read_ceilings(home / "bench/ceilings.json")} >= {
        "gpu/fma", "gpu/launch"}
    outcomes = {(row["sweep"], row["program"]): row["outcome"]
                for row in rows(home / "stages/programs.csv")}
    for sweep in "12":  # the steps, and the grid
        assert outcomes[sweep, "03_cuda_unified"] == "ran"
        assert (sweep, "04_cuda_device_mem") not in outcomes
    verdicts = {(row["program"], row["against"]): row["verdict"]
                for row in rows(home / "checks.csv")}
    assert verdicts == {
        ("04_cuda_device_mem", "reference"): "wrong", ("03_cuda_unified", "reference"): "right",
        ("03_cuda_unified", "memcheck"): "wrong", ("03_cuda_unified", "racecheck"): "right",
        ("03_cuda_unified", "initcheck"): "right", ("03_cuda_unified", "synccheck"): "right"}
    assert [(row["program"], row["cell"], row["launch"], row["grid"], row["dram__bytes.sum"])
            for row in rows(home / "counters.csv")] == [
        ("03_cuda_unified", cell, *launch) for cell in ("hidden 32, batch 32",
                                                        "hidden 256, batch 128")
        for launch in (("1", "(7, 1, 1)", "1234"), ("2", "(2, 1, 1)", "56"))]
    assert outcomes["1", "00_serial"] == "ran" and ("2", "00_serial") not in outcomes
    # The drawn digits are too few for it.
    assert outcomes["3", "02_openmp"] == "failed" and ("3", "00_serial") not in outcomes
    assert "04_cuda_device_mem" not in {row["stage"] for row in rows(home / "stages/runs.csv")}
    sweeps = (home / "stages/sweeps.csv").read_text()
    assert all(f"{number},kind,{kind}\n" in sweeps for number, kind in
               enumerate(("steps", "grid", "growth"), 1)) and "1,revision,abc" in sweeps
    assert "Simulated" in said.stdout


def test_the_stand_in_for_nvcc_builds_for_the_capability_that_a_stage_needs(tmp_path):
    stage = next(stage for stage in ladders.find_ladder("").stages if stage.declared("CAPABILITY"))
    make("-C", stage.folder, f"NVCC={ROOT}/tests/nvcc.sh", f"OUTPUT={tmp_path}/train")
    Trainer(tmp_path, tmp_path / "train").succeeds()
