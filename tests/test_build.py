"""Tests that what is built is what was asked for. test_readmes.py builds in a path with a space."""

import functools
import os
import platform
import re
import shlex
import shutil
from pathlib import Path

import pytest
from programs import ROOT, Trainer, make, needs_full, run, script

from bench import asm, ladders, testing

STAGES = [stage for ladder in ladders.ladders() for stage in ladder.stages]


def test_a_variables_value_is_a_word_that_no_shell_reads(tmp_path):
    value = f"x'; touch {tmp_path}/run; '`touch {tmp_path}/run`"
    assert "found 'x';" in run(["make", "-C", ROOT, "diff", f"STAGE={value}"], 2).stderr
    assert not (tmp_path / "run").exists()


FAKE_COMPILER = """case $* in *-dM*) echo "$MEANS"; exit ;; esac
while [ "$1" != -o ]; do shift; done; : >"$2\""""


@pytest.mark.parametrize("built, variable, words", [
    ("stages/00_serial/train", "CC=../../compiler", "-C stages/00_serial"),
    ("stages/03_cuda_unified/train", "NVCCFLAGS=",
     "-C stages/03_cuda_unified CC=../../compiler NVCC=../../compiler"),
    ("stages/03_cuda_unified/train.sim", "EXTRA=",
     "-C stages/03_cuda_unified sim CC=../../compiler CXX=../../compiler"),
    ("bench/machine/build/common.o", "CFLAGS=",
     "-C bench/machine build/common.o CC=../../compiler"),
    ("stages/peers/peer_openblas", "CFLAGS=", "-C stages/peers peer_openblas CC=../../compiler")])
def test_other_flags_or_another_compiler_build_again_and_the_same_do_not(
        checkout, built, variable, words):
    script(checkout.root / "compiler", FAKE_COMPILER)
    flags = f"""{variable} -O0 -DQUOTED='"a b"'"""
    make = ["make", "--no-print-directory", *shlex.split(words)]
    run([*make, flags])
    first = os.stat(built).st_mtime_ns
    assert run([*make, flags]).stdout == "" and os.stat(built).st_mtime_ns == first
    run([*make, f"{variable} -O0"])
    assert os.stat(built).st_mtime_ns != first


def test_a_processor_for_which_native_means_something_else_builds_again(checkout):
    script(checkout.root / "compiler", FAKE_COMPILER)
    assert [run("make -C stages/00_serial CC=../../compiler", MEANS=each).stdout.count("\n../..")
            for each in "aab"] == [2, 0, 2]


@pytest.mark.parametrize("folder", ["stages/00_serial", "bench/machine", "stages/peers"])
@pytest.mark.parametrize("name, value, found, otherwise", [
    ("MARCH", "some-level", "-march=some-level", "-march=native"), ("CC", "cc", "cc ", "gcc ")])
def test_a_variable_of_the_environment_or_the_command_line_is_for_every_cpu_program(
        checkout, folder, name, value, found, otherwise):
    for variables, words in ({name: value}, []), ({}, [f"{name}={value}"]):
        said = run(["make", "-n", "-C", folder, *words], **variables).stdout
        assert found in said and otherwise not in said


def test_a_stage_has_one_source_file(checkout):
    for folder, source in ("00_serial", "train.c"), ("03_cuda_unified", "train.cu"):
        (checkout.root / "stages" / folder / "mine.c").touch()
        assert "expected one source file" in run(f"make -C stages/{folder}", 2).stderr
        for name in "mine.c", source:
            os.remove(f"stages/{folder}/{name}")
        assert "found '', expected one source file" in run(f"make -C stages/{folder}", 2).stderr


@functools.cache
def compilers():
    """gcc, and each gcc-* and clang-* in PATH that has OpenMP. A link is no other one."""
    found = [shutil.which("gcc")]
    for folder in os.get_exec_path():
        for path in sorted(Path(folder).glob("*")):
            if re.fullmatch(r"(gcc|clang)(-\d+)?", path.name) and not run(
                    [path, "-fopenmp", "-include", "omp.h", "-xc", "-E", "/dev/null"],
                    None).returncode:
                found.append(str(path))
    return [*{os.path.realpath(path): path for path in found}.values()]


def test_what_cannot_be_built_leaves_no_program(checkout):
    """An old one would be run, and taken for this source's."""
    for folder, words in (("stages/07_mpi", "NEEDS=no-such"), ("stages/03_cuda_unified", ""),
                          ("stages/peers", "peer_openblas CC='gcc -nostdinc'"),
                          ("stages/peers", "peer_cublas")):
        name = words.split()[0] if "peers" in folder else "train"
        program = checkout.write(f"{folder}/{name}", "")
        os.utime(program, (0, 0))
        assert ": left out, " in checkout.run(f"make -s -C {folder} {words}")
        assert not program.exists()


def named(compiler):
    """Its name and its major version, such as clang 14."""
    name = "clang" if "clang" in compiler else "gcc"
    return f"{name} {run([compiler, '-dumpversion']).stdout.split('.')[0]}"


# Which registers a compiler keeps is no property of a program. So only the code of two is tested,
# of which stages/01_vectorized says something: clang 14 stores two sums of a tile of one column.
@pytest.mark.skipif(platform.machine() != "x86_64", reason="not on x86-64")
@pytest.mark.parametrize("stage", [each for each in STAGES if not each.is_cuda],
                         ids=lambda stage: f"{stage.ladder.name}-{stage.name}")
def test_no_compiler_warns_and_two_store_no_sum_in_the_loop_of_a_tile(tmp_path, stage):
    tile = re.search(r" = 32, TILE_ROWS = (\d), TILE_COLUMNS = (\d)", stage.source.read_text())
    for compiler in compilers():
        said = run(["make", "-s", "-C", stage.folder, f"CC={compiler}", "MARCH=x86-64-v3",
                    f"OUTPUT={tmp_path}/train"])
        assert said.stderr == "", compiler
        name = named(compiler)
        if tile and "left out" not in said.stdout and name in ("gcc 12", "clang 14"):
            code = run(["objdump", "-d", "--no-show-raw-insn", tmp_path / "train"]).stdout
            loops = ("\n".join(loop.values()) for loop in asm.innermost_loops(code))
            tiles = [loop for loop in loops if "vfmadd" in loop
                     and loop.count("vfmadd") % (int(tile[1]) * int(tile[2])) == 0
                     and not (name == "clang 14"
                              and loop.count("vbroadcast") == loop.count("vfmadd"))]
            stack = "rsp" if name == "clang 14" else "r[sb]p"  # it may use rbp for an array
            stores = re.findall(rf"vmov\w+ +%ymm\d+,-?\w*\(%{stack}\)", "".join(tiles))
            assert tiles and not stores, compiler


# Each of the two stages waits for the other. `test` waits for nothing, and needs both.
def test_stages_are_built_side_by_side_and_several_goals_one_after_the_other(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in "bench", "common", "setup", "data":
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("build", "env"))
    toml = (ROOT / "stages/ladder.toml").read_text()
    for stage, meeting in ("00_one", "read x <../pipe"), ("01_two", "echo x >../pipe"):
        folder = tmp_path / "stages" / stage
        folder.mkdir(parents=True)
        (folder / "train.c").touch()
        (folder / "Makefile").write_text(f"train:\n\t{meeting} && touch train\n")
    os.mkfifo(tmp_path / "stages/pipe")
    (tmp_path / "stages/ladder.toml").write_text(toml.replace("\nbaseline", "\n#"))
    script(tmp_path / "tests/Makefile", "#!\ntest:\n\tls ../stages/*/train\n")
    script(tmp_path / "setup/deps.sh", "")
    assert run("make -s -j8 all test", cwd=tmp_path).stdout.count("/train\n") == 2


@needs_full
def test_make_clean_removes_what_was_built_and_nothing_else(checkout):
    def files():
        return {path for path in checkout.root.rglob("*")
                if path.is_file() and path.suffix != ".pyc"}

    before = files()
    run("make -s stages/00_serial")
    run("make -s -C stages/04_cuda_device_mem sim")
    assert before < files()
    run("make -s clean")
    assert files() == before


def is_exported_always(stage):
    """One for threads and one for processes; FULL=1 exports the others, too, but no CUDA steps,
    which nvcc takes long for, and which need what their stage needs."""
    return (stage.ladder.name, stage.name[:3]) in (("stages", "02_"), ("stages", "07_"))


@pytest.mark.parametrize("stage", [pytest.param(
    stage, id=f"{stage.ladder.name}/{stage.name}",
    marks=[] if is_exported_always(stage) else [needs_full])
    for stage in STAGES if not stage.is_cuda or not stage.is_step])
def test_an_exported_stage_needs_no_other_file(tmp_path, stage):
    alone = tmp_path / "a folder"
    command = ["make", "-s", "export", f"STUDY={stage.ladder.name}", f"STAGE={stage.name}",
               f"DIR={alone}"]
    run(command, cwd=ROOT)
    assert "File exists" in run(command, 2, cwd=ROOT).stderr
    files = [path for path in alone.rglob("*") if path.is_file()]
    assert files and not [path for path in files if path.suffix not in (".md", ".sh")
                          and ("../" in path.read_text() or str(ROOT) in path.read_text())]
    needed = "nvcc" if stage.is_cuda else stage.declared("NEEDS") or "gcc"
    if not asm.toolkit(needed):
        pytest.skip(f"found no {needed}")
    built = run(["make", "-s"], cwd=alone, PATH=f"{os.environ['PATH']}:/usr/local/cuda/bin")
    assert "warning" not in built.stdout + built.stderr
    if stage.is_cuda:
        if stage.ladder is STAGES[0].ladder:
            Trainer(tmp_path, alone / "train").fails(77, f"^{stage.name}: no usable CUDA device: ",
                                                     CUDA_VISIBLE_DEVICES="")
        return
    make("-C", "bench", f"build/{stage.ladder.name}/reference", "build/many_processors.so")
    program = testing.tester(stage, "stages", alone / stage.program.name)
    assert program.compare(program.pairs()[1][0], testing.AGAIN)[2]
