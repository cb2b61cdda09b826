"""Every stage against its ladder's reference, in each selection of [tests] in ladder.toml: see
bench/testing.py. Without FULL=1, a step (01.1_...) only runs as it is, a stage runs in a third of
the pairs of a size and a case, and what takes long and rarely finds more is left out.

The Makefile runs this file to ask which builds it needs.
"""

import platform
import re
import subprocess

import pytest
from programs import FULL, built, make, needs_full, needs_real_data, run
from programs import TESTS as FOLDER

from bench import host, ladders, measuring, testing

ALWAYS = "stages", "large", "epoch", "sanitized", "simulated", "cell"
EXTRA = "large", "wide", "simulated_wide", "epoch", "long"  # that a ladder need not have
OF_STAGES = *EXTRA, "builds", "order_2", "order_3"  # a step is like the stages beside it


def levels():
    """Instruction sets besides -march=native that this machine can run. The highest (the first that
    ld-linux prints) is left out: its vectors are as wide as those of -march=native."""
    if platform.machine() != "x86_64":
        return []
    said = subprocess.run(["/lib64/ld-linux-x86-64.so.2", "--help"], stdout=subprocess.PIPE,
                          check=False, text=True).stdout
    return ["x86-64", *re.findall(r"(x86-64-v[34]) .supported", said)[1:]]


def all_tests():
    """(stage, selection, the build that is tested, or "" for the stage as it is)"""
    levels_here, has_gpu = levels(), host.has_gpu()
    for ladder in ladders.ladders():
        for stage in ladder.stages:
            build = f"build/{stage.folder.relative_to(ladders.ROOT)}"
            if not stage.is_cuda or has_gpu:
                yield from ((stage, each, "") for each in (
                    "stages", "large", "wide", "epoch", "long"))
            if stage.is_cuda:
                yield stage, "simulated", f"{build}.sim"
                yield stage, "simulated_wide", f"{build}.sim"
                yield from ((stage, f"order_{number}", f"{build}.sanitized.sim")
                            for number in (1, 2, 3))
            else:
                yield stage, "cell", ""
                yield stage, "sanitized", f"{build}.sanitized"
                yield from ((stage, "builds", f"{build}.{level}") for level in levels_here)


def is_left_out(stage, selection):
    """Whether only FULL=1 runs this."""
    is_main = stage.ladder is ladders.ladders()[0]
    is_long = stage.is_step and (selection != "stages" or stage.declared("RUN"))
    return not FULL and (selection not in ALWAYS or is_long
                         or (selection == "sanitized" and not is_main))


# What takes longest comes first, so that the short ones fill the gaps: mpirun, then 00.
TESTS = sorted((each for each in all_tests()
                if (each[1] not in EXTRA or each[1] in each[0].ladder.toml["tests"])
                and not (each[0].is_step and each[1] in OF_STAGES)),
               key=lambda each: (not each[0].declared("RUN"), each[0].name))


@pytest.mark.parametrize("stage, selection, build", [
    pytest.param(*each, marks=[needs_full] if is_left_out(*each[:2]) else [], id="-".join(filter(
        None, (f"{each[0].ladder.name}/{each[0].name}", each[1],
               "on_gpu" if each[0].is_cuda and not each[2] else "",
               each[2].rpartition(".")[2] if each[1] == "builds" else ""))))
    for each in TESTS])
def test_it_computes_what_the_reference_does(stage, selection, build, monkeypatch):
    make("-C", "bench", f"build/{stage.ladder.name}/reference", "build/many_processors.so")
    if selection.startswith("order_"):
        monkeypatch.setenv("SIM_SEED", selection.removeprefix("order_"))
    if build:
        make("-C", "tests", build)
    else:
        built(stage)
    if selection == "cell":
        testing.check_cell(stage, measuring.read_options(stage.ladder, "check"))
        return
    if selection == "long":
        needs_real_data(stage.ladder)
    try:
        program = testing.tester(stage, selection, build and FOLDER / build,
                                 limit=3600)  # against a hang: a machine may be slow
    except testing.Skipped as why:
        pytest.skip(str(why))
    # A step is like the stages beside it, so it is tested with each size and each case, but with
    # few pairs of them. So is what mpirun starts, which takes a second: a third of that for steps
    # and other builds.
    few = program.starts_slowly and (stage.is_step or selection != "stages")
    part = 99 if stage.is_step or program.starts_slowly else 1 if FULL else 3
    for pair in program.pairs(part)[::3 if few else 1]:
        testing.test(program, *pair)


@needs_full
def test_amx_computes_what_the_reference_does(tmp_path):
    """Its instructions are in amx.h, in C."""
    stage = next(each for each in ladders.ladders()[0].stages if each.name == "12_exact_digits")
    make("-C", "bench", f"build/{stage.ladder.name}/reference")
    make("-C", stage.folder, "SANITIZE=1", f"EXTRA=-include {FOLDER}/amx.h",
         f"OUTPUT={tmp_path}/train")
    program = testing.tester(stage, "sanitized", tmp_path / "train.sanitized")
    pairs = program.pairs(99)
    if "products by AMX\n" not in run([program.path, *program.options(pairs[0][0])]).stdout:
        pytest.skip("not compiled for AVX-512")
    for pair in pairs:
        testing.test(program, *pair)


if __name__ == "__main__":
    print(*dict.fromkeys(build for stage, selection, build in TESTS
                         if build and not is_left_out(stage, selection)))
