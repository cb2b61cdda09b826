"""Tests what stands around bench/ in a made-up repository (conftest.py): make, Ctrl-C,
bench/machine.sh and setup/deps.sh."""

import os
import platform
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY, wait_until
from programs import run

from bench.process import members


@pytest.fixture(autouse=True)
def real(tree):
    """What the made-up repository has made up."""
    for path in ("Makefile", "bench/machine.sh"):
        shutil.copy(REPOSITORY / path, path)
    tree.environment["PATH"] = f"{tree.root}/bin:{os.environ['PATH']}"


# --- make ---

def test_make(tree):
    """It builds every stage, and compares one with that before it."""
    for name, text in ("00_one", "old"), ("01_two", "new"):
        tree.write(f"stages/{name}/Makefile", "built: ; touch built\n")
        tree.write(f"stages/{name}/run.c", f"int same;\nint {text};\n")
    assert "`make check STAGE=NAME` tests a CUDA stage" in tree.run("make", NVCC="no-such-nvcc")
    assert {path.parent.name for path in Path("stages").glob("*/built")} == {"00_one", "01_two"}
    assert re.findall(r"^([-+ ]int \w+);$", tree.run("make diff STAGE=01"), re.MULTILINE) == [
        " int same", "-int old", "+int new"]
    assert "\n-int new;\n+int old;\n" in tree.run("make diff STAGE=00 FROM=01")
    assert "STAGE: found '00_one', the first stage; expected a later one\n" in tree.run(
        "make diff STAGE=00", 2)


def test_a_script_is_the_same_on_windows_and_in_turkish():
    """There, an i becomes another I: no script changes the case of letters."""
    said = run("git check-attr text eol -- run_all.sh", cwd=REPOSITORY).stdout
    assert said == "run_all.sh: text: auto\nrun_all.sh: eol: lf\n"
    run(["git", "grep", "-E", r"\$\{\w+[\^,]", "--", "*.sh", "*.sbatch"], 1, cwd=REPOSITORY)


# --- Ctrl-C ---

@pytest.mark.parametrize("end, number", [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM)])
def test_a_signal_ends_what_runs(tree, end, number):
    """Ctrl-C, or a SIGTERM to make alone: a program of bench/, and what it has started, however
    deep, also if it comes again while they are ended."""
    tree.script("setup/deps.sh", "")
    tree.write("bench/check.py", """from bench import process
def main():
    process.run(["sh", "-c", "trap 'touch ending; sleep 0.3; exit' TERM; echo $$ >begun; "
                 "for k in $(seq 999); do sleep 0.02; done; touch forgotten"])""")
    process = tree.start("make -s new-stage FROM=00 NAME=20_mine")
    wait_until(lambda: Path("begun").exists() and Path("begun").read_text(), process)
    end(process.pid, number)
    wait_until(Path("ending").exists, process)
    end(process.pid, number)
    assert "Traceback" not in tree.end(process, 128 + number)
    assert not [*members(process.pid)]
    assert not Path("/proc", Path("begun").read_text().strip()).exists()
    assert not Path("forgotten").exists()


# --- the machine ---

def test_a_description_names_neither_host_nor_user(tree):
    output = tree.run("bench/machine.sh")
    assert not [name for name in (platform.node(), os.environ["HOME"], str(tree.root))
                if name in output]
    assert re.search(r"^built for: [a-z0-9.+-]+$", output, re.MULTILINE)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the levels are those of x86-64")
def test_the_name_of_a_machine(tree):
    """A processor that is named for its whole line is told by family and model. What is built for
    another instruction set has results of its own. So has one of the same make as a committed one,
    and any one where git cannot say which are committed."""
    tree.script("bin/git", ":")
    for model, name in (("AMD EPYC", "amd-epyc-family-25-model-17"),
                        ("AMD EPYC 9654", "amd-epyc-9654"), ("-", "x86-64")):
        tree.script("bin/lscpu", '[ "$1" ] || printf "%s\\n" "CPU family: 25" "Model: 17" '
                    f'"Model name: {model}"')
        assert re.fullmatch(rf"{name}-\d+-cores.*-x86-64-v2\n", tree.run(
            "bench/machine.sh --name", MARCH="x86-64-v2"))
    assert tree.run("bench/machine.sh --name", CC="some/cc").endswith("-cc\n")
    name = tree.run("bench/machine.sh --name").strip()
    tree.script("bin/git", f'[ "$*" != "ls-files report/results/{name}" ] || echo a-file')
    assert tree.run("bench/machine.sh --name") == f"{name}-own\n"
    tree.script("bin/git", "exit 127")
    assert tree.run("bench/machine.sh --name") == f"{name}-own\n"
    said = tree.run("bench/machine.sh", MARCH="x86-64-v2", REVISION="abc")
    assert "\nbuilt for: x86-64-v2\n" in said and "\nrevision: abc\n" in said


@pytest.mark.parametrize("host, status, said", [
    ("$k", 0, "-2-nodes/stages\n"), ("a", 1, "mpirun started processes on 1 of 2 nodes, expected")])
def test_a_job_on_several_nodes_uses_all(tree, host, status, said):
    shutil.copytree(REPOSITORY / "stages/07_mpi", "stages/07_mpi")
    tree.script("bin/mpirun", '[ "$PRTE_MCA_rmaps_default_mapping_policy $ASAN_OPTIONS" = '
                f'"slot:oversubscribe detect_leaks=0" ] && for k in 1 2; do echo {host}; done')
    tree.script("run_all.sh", 'echo "$@"')
    assert said in tree.run("bash setup/run_all.sbatch", status, SLURM_SUBMIT_DIR=".",
                            SLURM_JOB_NUM_NODES="2")


# --- deps.sh ---

@pytest.fixture
def system(tree):
    """Only fakes and what deps.sh itself needs are in PATH, so that nothing can be installed
    here. apt-get knows packages after `update`, and installs the command of the wanted package."""
    Path("bin").mkdir()
    for tool in ("bash", "env", "grep", "gcc", "dirname", "cat", "touch", "chmod"):
        Path("bin", tool).symlink_to(shutil.which(tool))
    tree.script("bin/apt-cache", '[ ! -e ../lists ] || [ "$2" = lacking ] || echo "$2 | 1.0"')
    tree.script("bin/apt-get", """cd ..; echo "apt-get $* ($DEBIAN_FRONTEND)" >>apt.log
        case $1 in
        update) touch lists ;;
        install) [ -e lists ] && touch bin/wanted-command && chmod +x bin/wanted-command ;;
        esac""")
    tree.script("bin/sudo", "exit 1")
    tree.write("setup/packages.txt", "# a comment\n\nrun   there   bash\n"
               "run   wanted  wanted-command\ntest  tested  no_such_header.h\n")
    tree.environment["PATH"] = f"{tree.root}/bin"
    del tree.environment["MNIST_DIR"]
    return tree


def test_packages(system):
    """Root gets what is missing, after an update of the lists where that is needed. Others are told
    the one command. What the release does not have is left out, with a line, if it is optional."""
    system.script("bin/id", "echo 1000")
    assert system.run("setup/deps.sh", 1) == (
        "Needed, and not installed: wanted tested. Type: sudo sh -c 'apt-get update && apt-get "
        "install -y wanted tested'\n")
    assert "expected a group of packages.txt" in system.run("setup/deps.sh nonsense", 2)
    system.edit("setup/packages.txt", "wanted ", "python3-w ")
    assert "\nWithout root, for what is Python: pip install -r" in system.run("setup/deps.sh", 1)
    system.edit("setup/packages.txt", "python3-w ", "wanted?  ")
    assert system.run("setup/deps.sh run").startswith("Left out, not installed: wanted. Type: ")
    system.edit("setup/packages.txt", "wanted?", "wanted")
    assert not Path("apt.log").exists()
    with open("setup/packages.txt", "a") as file:
        file.write("run lacking? no-such-command\n")
    system.script("bin/id", "echo 0")
    assert system.run("setup/deps.sh run", OFFLINE="1") == "Not found: wanted lacking\n"
    assert not Path("apt.log").exists()
    left_out = "Left out, not in this release: lacking\n"
    assert system.run("setup/deps.sh run").endswith(left_out)
    assert Path("apt.log").read_text() == (
        "apt-get update -qq ()\n"
        "apt-get install -y -qq --no-install-recommends wanted (noninteractive)\n")
    assert system.run("setup/deps.sh run") == left_out  # nothing else is missing


def test_both_containers_are_the_same():
    found = [re.findall(r"setup/(\w+\.\w+)|(debian:.*)", (REPOSITORY / "setup" / name).read_text())
             for name in ("Containerfile", "ladder.def")]
    assert {*found[0]} == {*found[1]} and found[0][-1] == found[1][-1] == ("image.sh", "")


def test_another_python(system):
    """PYTHON is used if it is given, or else the one in PATH where Debian's has no pandas. What it
    lacks, it gets with pip. Nothing needs curl where MNIST_DIR says where the data are."""
    names = re.findall(r"(?:python3-)?(\S+) +import:(?!json)",
                       (REPOSITORY / "setup/packages.txt").read_text())
    assert {*names} == {*Path("setup/requirements.txt").read_text().split("\n", 1)[1].split()}
    system.script("bare", f'exec {sys.executable} -S "$@"')
    assert " has no psutil; expected Python 3.11 with what setup/requirements.txt names" in (
        system.run("./bare bench step diff", 2))
    system.write("setup/packages.txt", "run python3-there import:json\nfetch curl no-curl\n"
                 "report python3-xyz import:xyz\n")
    assert system.run("setup/deps.sh run", MNIST_DIR="/") == ""  # no python3 is in PATH
    python = system.script("bin/python3", f'exec {sys.executable} "$@"')
    assert system.run("setup/python.sh", PYTHON="python3") == f"{python}\n"
    assert system.run("setup/python.sh") == f"{sys.executable}\n"
    system.edit("setup/python.sh", "/usr/bin/python3", "/no/python3")
    assert system.run("setup/python.sh") == f"{python}\n"
    assert system.run("setup/deps.sh run", MNIST_DIR="/") == ""
    assert "installed: curl. Type" in system.run("setup/deps.sh run", 1)
    assert system.run("setup/deps.sh report", 1, MNIST_DIR="/") == (
        f"Needed, and not installed. Type: {python} -m pip install xyz\n")
