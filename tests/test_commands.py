"""Tests what stands around the harness in a made-up repository (conftest.py): make, deps.sh and
harness/machine.sh."""

import os
import platform
import re
import shutil
from pathlib import Path

import pytest
from conftest import REPOSITORY

INSTALL = "apt-get install -y -qq --no-install-recommends"


@pytest.fixture(autouse=True)
def real(tree):
    """What the made-up repository has made up."""
    for path in ("Makefile", "harness/machine.sh"):
        shutil.copy(REPOSITORY / path, path)


# --- make ---

def test_make(tree):
    """It builds every stage that this machine can build, and lists its targets."""
    tree.stage("03_cuda", source="run.cu")
    for name in ("00_one", "01_two", "03_cuda"):
        tree.write(f"stages/{name}/Makefile", "built: ; touch built\n")
    tree.run("make", NVCC="no-such-nvcc")
    assert {path.parent.name for path in Path("stages").glob("*/built")} == {"00_one", "01_two"}
    targets = re.findall(r"^(\w+) +[a-z]", tree.run("make help"), re.MULTILINE)
    assert {*["all", "test", "deps", "diff", "headline", "clean", "help"]} <= {*targets}


def test_make_diff(tree):
    """It compares a stage with the one before it, or with what its Makefile names."""
    tree.stage("05_gpu", source="run.cu")
    for path, text in (("00_one/run.c", "old"), ("01_two/run.c", "new"), ("05_gpu/run.cu", "gpu")):
        tree.write(f"stages/{path}", f"int same;\nint {text};\n")

    def changes(stage):
        return re.findall(r"^([-+ ]int \w+);$", tree.run(f"make diff STAGE={stage}"), re.MULTILINE)

    assert changes("01") == changes("01_two") == [" int same", "-int old", "+int new"]
    assert changes("05") == [" int same", "-int new", "+int gpu"]
    for stage, expected in (("", "one of: 00_one 01_two 05_gpu"), ("1", "'01_two'"),
                            ("02", "one of: 00_one 01_two 05_gpu"), ("one", "'00_one'")):
        assert f"STAGE: found '{stage}', expected {expected}\n" in tree.run(
            f"make diff STAGE={stage}", 2)
    assert "STAGE: found '00_one', the first stage; expected a later one\n" in tree.run(
        "make diff STAGE=00", 2)
    tree.write("stages/05_gpu/Makefile", "ORIGIN = 00_one\nrun: ;\n")
    assert changes("05") == [" int same", "-int old", "+int gpu"]
    # A terminal gets colours, a pipe gets none.
    assert "\x1b[" in tree.run("script -qec 'make diff STAGE=01' /dev/null", TERM="xterm",
                               PAGER="cat")
    assert "\x1b" not in tree.run("make diff STAGE=01")


def test_another_system_than_linux(tree):
    tree.script("bin/uname", "echo Darwin")
    path = f"{tree.root}/bin:{os.environ['PATH']}"
    for command in ("make --no-print-directory", "./run_all.sh"):
        output = tree.run(command, 2, PATH=path)
        assert "needs Linux, found Darwin" in output and output.count("\n") == 1


# --- the machine ---

def test_a_description_names_neither_host_nor_user(tree):
    output = tree.run("harness/machine.sh")
    for name in (platform.node(), os.environ["HOME"], str(tree.root)):
        assert name not in output
    assert re.search(r"^built for: [a-z0-9.+-]*, [A-Z0-9-]*$", output, re.MULTILINE)
    assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*\n", tree.run("harness/machine.sh --name"))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the levels are those of x86-64")
def test_what_is_built_for_another_instruction_set(tree):
    """It has results of its own, which name it."""
    name = tree.run("harness/machine.sh --name").strip()
    assert tree.run("harness/machine.sh --name", MARCH="x86-64-v2") == f"{name}-x86-64-v2\n"
    output = tree.run("harness/machine.sh", MARCH="x86-64-v2")
    assert "\nbuilt for: x86-64-v2, SSE2\n" in output
    assert re.match("cpu: .*, built for x86-64-v2\n", output)
    assert tree.run("./run_all.sh", 2, MARCH="x86-64-v9") == (
        "MARCH: found 'x86-64-v9', which gcc does not take; expected such as x86-64-v3\n")


@pytest.mark.parametrize(("model", "name"), [
    ("AMD EPYC", r"amd-epyc-family-25-model-17-\d+-cores.*"),
    ("AMD EPYC 9654", r"amd-epyc-9654-\d+-cores.*")])
def test_the_name_of_a_processor(tree, model, name):
    """One that is named for its whole line is told by family and model."""
    tree.script("bin/lscpu", '[ "$1" ] || printf "%s\\n" "CPU family: 25" "Model: 17" '
                f'"Model name: {model}"')
    assert re.fullmatch(name, tree.run("harness/machine.sh --name",
                                       PATH=f"{tree.root}/bin:{os.environ['PATH']}").strip())


# --- deps.sh ---

@pytest.fixture
def system(tree):
    """Only fakes and what deps.sh itself needs are in PATH, so that nothing can be installed
    here."""
    Path("bin").mkdir()
    for tool in ("bash", "env", "grep", "gcc", "dirname", "cat", "touch", "chmod"):
        Path("bin", tool).symlink_to(shutil.which(tool))
    tree.script("bin/id", "echo 1000")
    tree.write("packages.txt", "# a comment\n\nrun   there   bash\nrun   wanted  wanted-command\n"
               "test  tested  no_such_header.h\n")
    tree.environment["PATH"] = f"{tree.root}/bin"
    return tree


@pytest.fixture
def apt(system):
    """It knows packages after `update`, and installs the command of the wanted package."""
    system.script("bin/apt-cache", '[ ! -e lists ] || [ "$2" = lacking ] || echo "$2 | 1.0"')
    system.script("bin/apt-get", """echo "apt-get $* ($DEBIAN_FRONTEND)" >>apt.log
        case $1 in
        update) touch lists ;;
        install) [ -e lists ] && touch bin/wanted-command && chmod +x bin/wanted-command ;;
        esac""")
    return system


def missing(packages, before="sudo sh -c"):
    """What deps.sh tells those who have to install packages themselves."""
    return (f"Needed, and not installed: {packages}. Type: {before} 'apt-get update && "
            f"apt-get install -y {packages}'\n")


def test_everything_is_there(system):
    system.write("packages.txt", "run there bash\n")
    assert system.run("./deps.sh") == ""


def test_root_gets_what_is_missing(apt):
    """After an update of the lists where that is needed."""
    apt.script("bin/id", "echo 0")
    apt.run("./deps.sh run")
    assert Path("apt.log").read_text() == (
        f"apt-get update -qq ()\n{INSTALL} wanted (noninteractive)\n")


def test_sudo_that_needs_no_password(apt):
    apt.write("lists", "")
    apt.script("bin/sudo", 'echo "sudo $*" >>sudo.log; [ $1 != -n ] || shift; '
               '[ $1 = true ] || exec "$@"')
    apt.run("./deps.sh run")
    log = Path("sudo.log").read_text()
    assert f"sudo env DEBIAN_FRONTEND=noninteractive {INSTALL} wanted\n" in log
    assert Path("apt.log").read_text().count("\n") == 1


def test_others_are_told_the_one_command(apt):
    apt.script("bin/sudo", "exit 1")
    assert apt.run("./deps.sh", 1) == missing("wanted tested")
    assert not Path("apt.log").exists()
    Path("bin/sudo").unlink()
    assert apt.run("./deps.sh run", 1) == missing("wanted", "su -c")


def test_an_installation_that_fails(apt):
    apt.script("bin/id", "echo 0")
    apt.script("bin/apt-get", 'echo "E: no network" >&2; exit 100')
    assert apt.run("./deps.sh run", 1).endswith("\n" + missing("wanted", "sh -c"))


def test_an_optional_package_that_the_release_does_not_have(apt):
    """It is left out with a line."""
    left_out = "Left out, not in this release: lacking\n"
    apt.script("bin/sudo", "exit 1")
    packages = Path("packages.txt").read_text()
    apt.write("packages.txt", f"{packages}run lacking? no-such-command\n")
    apt.write("lists", "")  # nobody here may update them
    assert apt.run("./deps.sh run", 1) == missing("wanted") + left_out
    Path("lists").unlink()
    apt.script("bin/id", "echo 0")
    assert apt.run("./deps.sh run").endswith(left_out)
    assert Path("apt.log").read_text().endswith(f"{INSTALL} wanted (noninteractive)\n")
    # If nothing else is missing, nothing is installed.
    Path("apt.log").unlink()
    assert apt.run("./deps.sh run") == left_out
    assert not Path("apt.log").exists()
    # A release that has it gets it.
    apt.script("bin/id", "echo 1000")
    apt.write("packages.txt", f"{packages}run other? no-such-command\n")
    assert apt.run("./deps.sh run", 1) == missing("other")


def test_without_apt_get(system):
    """It names what is missing and goes on."""
    assert system.run("./deps.sh run") == (
        "Needed, and not found: wanted (Debian's names; there is no apt-get here)\n")
