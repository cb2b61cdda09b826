"""Tests the ladder as something to read and to add to. Adjacent stages differ only in what a README
declares, `make step` shows a step, and a copy of a stage works as a stage."""

import itertools
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from conftest import wait_until
from programs import ROOT, drawn_data, needs_full, told

from bench import cells, host, ladders
from report import tables

STAGES = [stage for ladder in ladders.ladders() for stage in ladder.stages]
# Of the main ladder. Numbers from 20 on are readers' copies, which may change anything.
MAIN = [stage for stage in ladders.ladders()[0].stages if stage.name < "20"]
QUICK = "RUNS=8 TRAIN=640"

each_stage = pytest.mark.parametrize("stage", MAIN, ids=lambda stage: stage.name)


# --- sources and READMEs ---

def functions(stage):
    """The functions that a stage defines, in order."""
    text = re.sub(r"//.*|__launch_bounds__\(.*?\)|__attribute__\(\(noinline\)\) ", "",
                  stage.source.read_text())
    return re.findall(r"^\w[^;{}()=#]*?\b(\w+)\([^;{}]*\)\s*\{", text, re.MULTILINE)


@each_stage
def test_functions_keep_their_order(stage):
    after = functions(stage)
    assert after[-1] == "main"
    if stage.before and not stage.declared("ORIGIN"):  # else it begins again
        before = functions(stage.before)
        assert [name for name in after if name in before] == [
            name for name in before if name in after]


def test_no_pointer_is_restrict_where_threads_meet():
    """In a function with a barrier, all threads reach what a pointer of the network points to:
    `restrict` would promise that none writes there."""
    for source in [*ROOT.glob("st[au]*/**/*.c"), *ROOT.glob("st[au]*/**/*.h")]:
        for body in re.findall(r"^\w[^;{}]*\)\s*\{\n(.*?)^\}", source.read_text(), re.M | re.S):
            if "#pragma omp barrier" in body:
                assert not re.search(r"^    \w.*\*restrict \w+ = network->", body, re.M), source


def test_a_chapters_readme_declares_which_functions_are_new_or_gone():
    for _, chapter in itertools.groupby(MAIN[1:], lambda stage: stage.name[:2]):
        steps = list(chapter)
        origin = steps[0].before
        stage = next(each for each in steps if not each.is_step)
        after, before = ({*functions(each)} for each in (stage, origin))
        readme = " ".join((stage.folder / "README.md").read_text().split())
        for words, names in (("New functions", after - before), ("Gone", before - after)):
            declared = re.search(rf".*{words}: ([^.]*)\.", readme)
            assert names == {*re.findall("`([^`]*)`", declared[1] if declared else "")}, stage.name


def test_a_stages_number_is_in_its_title_and_its_first_comment():
    """With its one idea."""
    for stage in STAGES:
        number = re.escape(stage.name.split("_")[0])
        first = stage.source.read_text().split("\n\n")[0].replace("\n// ", " ")
        title = (stage.folder / "README.md").read_text().split("\n")[0]
        assert re.match(rf"// Stage {number}(, from [^:]*)?: \w.*\.", first), stage.name
        # `make report` has what follows the colon in a column of its own.
        assert re.fullmatch(rf"# {re.escape(stage.name)}: .{{3,50}}", title)


def test_adjacent_stages_differ_in_one_idea():
    """In as many lines as the ladder allows. A ladder that has changed_lines in [tests] is made of
    steps. A reader's copy may change more. A port is no step: from C to CUDA, or as declared."""
    lines = {ladder.name: ladder.toml["tests"]["changed_lines"] for ladder in ladders.ladders()
             if "changed_lines" in ladder.toml.get("tests", {})}
    assert "stages" in lines
    for stage in STAGES:
        if (stage.ladder.name in lines and stage.before and stage.name < "20"
                and not stage.declared("PORT")
                and stage.before.source.suffix == stage.source.suffix):
            assert int(tables.changed_lines(stage)) <= lines[stage.ladder.name], stage.name


def test_what_makefiles_predict_can_be_measured():
    """A number, and a ratio or a time of a phase, of the whole or of set-up, in options of the
    ladder."""
    asked = [stage for stage in STAGES if stage.declared("PREDICTED")]
    # These two ask about a cluster.
    assert {each.name for each in MAIN if each not in asked} == {"07_mpi", "11_mpi_lookahead"}
    for stage in asked:
        ladder = stage.ladder
        columns = "|".join([*ladder.phases, ladder.time.removesuffix("_s"), "setup"])
        assert re.fullmatch(rf"[\d.]+ (×|s|ms|µs) ({columns})(, .*)?", stage.declared("PREDICTED"))
        known = {*ladder.settings, *(axis["option"] for axis in ladder.axes)}
        cell = stage.question.options
        assert cell.keys() <= known and bool(cell) == bool(stage.question.cell), stage.name


def test_a_library_for_a_gpu_runs_where_a_gpus_step_asks():
    main = ladders.find_ladder("")
    asked = [names for cell, names in cells.asked(main, main.stages + main.peers, {"batch": 32})
             if cell == {"batch": 1024, "hidden": 2048}]
    assert len(asked) == 6 and all("peer_cublas" in names for names in asked)
    assert not any("peer_libxsmm" in names for names in asked)


@each_stage
def test_a_stage_includes_little(stage):
    """The C library of C11, OpenMP, sched.h, what an instruction set or a system call needs,
    common/, the ladder's headers. CUDA and MPI come with them."""
    allowed = ("<(assert|ctype|errno|float|inttypes|limits|math|stdbool|stddef|stdint|stdio|stdlib|"
               "string|time|omp|sched|immintrin|arm_neon|cpuid|unistd|sys/syscall|"
               r'cooperative_groups)\.h>|"(common|stages)/[a-z_]+\.h"')
    for included in re.findall("^#include (.*)", stage.source.read_text(), re.MULTILINE):
        assert re.fullmatch(allowed, included)


@pytest.mark.parametrize("stage", [each for each in STAGES if each.name < "20"],
                         ids=lambda stage: f"{stage.ladder.name}-{stage.name}")
def test_every_readme_has_the_same_sections(stage):
    sections = ["The idea", "Predict", "What the diff shows", "The arithmetic", "Measured, and why",
                "Exercises", "Pitfalls"]
    optional = {"Exercises", "Pitfalls"} if stage.is_step else set()
    if not stage.before:
        sections.remove("What the diff shows")
    readme = (stage.folder / "README.md").read_text()
    found = re.findall("^## (.*)", readme, re.MULTILINE)
    assert found == [each for each in sections if each in found or each not in optional]


def test_the_intensities_counted_by_hand_are_those_of_the_formulas():
    """Which `make bench` and the roofline use."""
    first = MAIN[0]
    row = {"epochs": 1, "train_samples": 1280}
    for phase in first.ladder.phases:
        counted = re.search(rf"^\| {phase} \| ([\d.]+) \| ([\d.]+) \|$",
                            (first.folder / "README.md").read_text(), re.MULTILINE)
        for found, (batch, hidden) in zip(counted.groups(), ((32, 32), (128, 256))):
            operations, moved = (first.ladder.work(row | {"batch": batch, "hidden": hidden}, phase,
                                                   what) for what in ("operations", "bytes"))
            assert found == f"{operations / moved:.1f}"


# --- step, asm and new-stage ---

@pytest.fixture
def repository(checkout):
    """A copy of the checkout, with drawn data."""
    checkout.environment["MNIST_DIR"] = str(drawn_data())
    checkout.environment |= told(TEST=200)
    return checkout


def test_step(repository):
    """It prints the README and the diff, and measures."""
    readme = Path("stages/00_serial/README.md").read_text()
    output = repository.run(f"make -s step STAGE=00 {QUICK}")
    parts = ("# 00_serial", "## The idea", "## Predict\n", "## The arithmetic",
             "## On this machine", "## Measured, and why")
    places = [output.index(f"\n{text}" if text[1] == "#" else text) for text in parts]
    assert places == sorted(places) and "Pitfalls" in readme and "Pitfalls" not in output
    assert not re.search(r"]\(|<!--|A cell has", output)  # nor the record's table
    predicted = MAIN[0].question.predicted
    assert re.search(rf"\nMs a batch\npredicted +{predicted}\nmeasured +\d.* ms a batch\n", output)
    output = repository.run(f"make -s step STAGE=02.3 {QUICK}")
    assert "\n--- a/02_openmp/02.2_owned_slices/train.c\n" in output
    assert "\n+// Stage 02.3: " in output
    assert re.search(r"\nPicture: .*\w\n +stages/02_openmp/02.3_own_samples/picture.svg\n", output)
    assert re.search(r"^median +02\.2 +02\.3 ", output, re.MULTILINE)


@pytest.mark.skipif(not shutil.which("script"), reason="found no script (bsdutils)")
def test_step_on_a_terminal(repository):
    """It asks for an answer there. Your own stage need not have a README."""
    os.mkfifo("keys")
    Path("output").touch()
    process = repository.start(f"""bash -c 'script -qec \
        "{sys.executable} -m bench step STAGE=00 TRAIN=64 step" /dev/null <keys >output'""")
    with open("keys", "w") as keys:
        wait_until(lambda: "skip) " in Path("output").read_text(), process)
        assert "The arithmetic" not in Path("output").read_text()
        print("much\n24,500", file=keys, flush=True)
        repository.end(process)
    output, readme = Path("output").read_text(), Path("stages/00_serial/README.md")
    predicted = MAIN[0].question.predicted
    assert output.count("How many ms a batch? (a number, or Enter to skip) ") == 2
    assert re.search(rf"\nyou +24,500\s+predicted +{predicted}\s+measured +\d", output)
    assert re.search(r"\n\W*multiply-adds forward +26\.02 +million", output)  # a table's columns
    readme.unlink()
    assert re.search(r"\nmeasured +\d", repository.run("make -s step STAGE=00 TRAIN=640"))


@pytest.mark.skipif(host.has_gpu(), reason="found a GPU")
def test_step_of_a_stage_that_cannot_run_here(repository):
    """It says why, shows what the record has, and goes on. With jobs, a make within would have jobs
    to warn of."""
    output = repository.run("make -j2 step STAGE=04 NVCC=no-such-nvcc")
    assert re.search(r"step: found no GPU(.|\n)*\n`make check STAGE=04_cuda_device_mem` tests "
                     r"04_cuda_device_mem on a simulated device\.\n\nRecorded, .*:\n.* over 03 "
                     r"(.|\n)*\nTimes as fast, at hidden 256, batch 128\npredicted +1\n"
                     r"recorded +\w.* \([\d.]+ to [\d.]+\)\n\n(.|\n)*Measured, and why", output)
    assert re.search(r"\nrecorded +no runs yet\n", repository.run("make -s step STAGE=05.1"))
    assert not re.search("^(make|gcc)|jobserver", output, re.MULTILINE)
    output = repository.run("make -s all STAGES=stages/03_cuda_unified NVCC=no-such-nvcc")
    assert "\nWithout nvcc: `make check STAGE=NAME` tests a CUDA stage on a simulated " in output


@needs_full
def test_a_copy_of_a_step(repository):
    """Every command works on it, and make check finds a mistake in it. A step lies in its stage's
    folder."""
    run = repository.run
    assert "\n01.0_first: right, " in run("make -s new-stage FROM=01 NAME=01.0_first TRAIN=640")
    assert Path("stages/01_vectorized/01.0_first/train").exists()
    made = run("make -s new-stage FROM=01.0 NAME=20_mine TRAIN=640")
    assert "\n20_mine: right, " in made and "median" not in made
    assert "To throw it away: rm -r stages/20_mine\n" in made
    assert re.search("NAME: found '20_x', expected .* that no stage has", run(
        "make -s new-stage FROM=01.0 NAME=20_x", 2))
    for name in "01_vectorized/01.0_first", "20_mine":
        source = Path("stages", name, "train.c").read_text()
        number = name.rpartition("/")[2].partition("_")[0]
        assert source.startswith(f"// Stage {number}: ")
        assert Path("stages", name, "Makefile").read_text().count("ORIGIN") == 1
    assert "\n-// Stage 01.0" in run("make -s diff STAGE=20")
    assert "\n20_mine " in run("./run_all.sh --stages 01.0,20 --quick --hidden 32 --batch 32 "
                                 "--train 640 --test 200 --repeats 1 --output results")
    # Now a batch's gradient is a hundredth too large.
    repository.edit("stages/20_mine/train.c", "dz[s] /= (float)n;", "dz[s] /= 0.99f * (float)n;")
    assert "20_mine: WRONG" in run("make -s check STAGE=20_mine", 2)
