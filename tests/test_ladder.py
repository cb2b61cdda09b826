"""Tests the ladder as something to read and to add to. Adjacent stages differ only in what a README
declares, `make step` shows a step, and a copy of a stage works as a stage."""

import itertools
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from conftest import REPOSITORY, wait_until
from programs import draw_data

from harness import asm, ladders, rows, step

STAGES = [stage for ladder in ladders.ladders() for stage in ladder.stages]
# Of the main ladder. Numbers from 20 on are readers' copies, which may change anything.
MAIN = [stage for stage in ladders.ladders()[0].stages if stage.name < "20"]
QUICK = "RUNS=8 TRAIN=640"

each_stage = pytest.mark.parametrize("stage", MAIN, ids=lambda stage: stage.name)


def is_copy(stage):
    """Whether it begins again from an earlier one."""
    return bool(stage.declared("ORIGIN"))


# --- sources and READMEs ---

def functions(stage):
    """The functions that a stage defines, in order."""
    command = ["ctags", "-x", "--sort=no", "--language-force=C++", "--kinds-C++=f", "-D",
               "__launch_bounds__(x)=", stage.source]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    names = [line.split()[0] for line in lines.splitlines()]
    return [name for name in names if not name.startswith("__anon")]  # a lambda has no name


needs_ctags = pytest.mark.skipif(not shutil.which("ctags"),
                                 reason="found no ctags (universal-ctags)")


@needs_ctags
@each_stage
def test_functions_keep_their_order(stage):
    after = functions(stage)
    assert after[-1] == "main"
    if stage.before and not is_copy(stage):
        before = functions(stage.before)
        assert [name for name in after if name in before] == [
            name for name in before if name in after]


@needs_ctags
def test_a_chapters_readme_declares_which_functions_are_new_or_gone():
    for _, chapter in itertools.groupby(MAIN[1:], lambda stage: stage.name[:2]):
        steps = list(chapter)
        stage, origin = steps[-1], steps[0].before
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
    steps. A reader's copy may change more."""
    lines = {ladder.name: ladder.toml["tests"]["changed_lines"] for ladder in ladders.ladders()
             if "changed_lines" in ladder.toml.get("tests", {})}
    assert "stages" in lines
    for stage in STAGES:
        if stage.ladder.name in lines and stage.before and stage.name < "20":
            counts = subprocess.run(
                ["git", "diff", "--no-index", "--histogram", "--numstat", stage.before.source,
                 stage.source], stdout=subprocess.PIPE, text=True, check=False).stdout.split()
            assert sum(map(int, counts[:2])) <= lines[stage.ladder.name], stage.name


@each_stage
def test_a_stage_includes_little(stage):
    """The C library of C11, OpenMP, common/ and the ladder's headers. CUDA comes with them."""
    allowed = ("<(assert|ctype|errno|float|inttypes|limits|math|stdbool|stddef|stdint|stdio|stdlib|"
               r'string|time|omp|cooperative_groups)\.h>|"(common|stages)/[a-z_]+\.h"')
    for included in re.findall("^#include (.*)", stage.source.read_text(), re.MULTILINE):
        assert re.fullmatch(allowed, included)


@each_stage
def test_every_readme_has_the_same_sections(stage):
    sections = ["The idea", "Predict before you measure", "What the diff shows"]
    sections += (["The prediction", "Measured", "Exercise"] if stage.is_step else
                 ["The arithmetic", "The prediction", "What the profile shows", "Measured",
                  "What limits it", "Exercises", "Pitfalls"])
    if not stage.before:
        sections.remove("What the diff shows")
    if (stage.ladder.profiles / stage.name / "counts.csv").exists():
        sections.insert(sections.index("Measured"), "Counted")
    readme = (stage.folder / "README.md").read_text()
    assert re.findall("^## (.*)", readme, re.MULTILINE) == sections


def test_terms():
    """Each word of TERMS.md, and of a ladder's own table of words, is in the file that it names."""
    count, head = 0, "| word | meaning | where |"
    for page in (REPOSITORY / "TERMS.md", *REPOSITORY.glob("studies/*/README.md")):
        tables = [part for part in page.read_text().split("\n\n") if part.startswith(head)]
        for words, path in re.findall(r"((?:`[^`]+`[^`|[]*)+)\[[^]]+\]\(([^)#]+\.\w+)\)",
                                      "\n".join(tables)):
            for word in re.findall("`([^`]+)`", words):
                count += 1
                assert word.split("...")[0] in (page.parent / path).read_text(), (word, path)
    assert count > 30


# --- step, asm and new-stage ---

@pytest.fixture
def repository(checkout, tmp_path):
    """A copy of the checkout, with drawn data."""
    checkout.environment |= {"MNIST_DIR": str(draw_data(tmp_path / "digits")), "TEST": "200"}
    return checkout


def test_step(repository):
    """It prints the README and the diff, and measures."""
    output = repository.run(f"make -s step STAGE=02 {QUICK}")
    parts = ("02_openmp: all cores", "The idea", "picture: stages/02_openmp/picture.svg",
             "Predict before you measure", "+// Stage 02: ", "What the diff shows",
             "The arithmetic", "The prediction", "What the profile shows")
    places = [output.index(text) for text in parts]
    assert places == sorted(places)
    # The README speaks of all of 02's steps, so the time before them is shown, too.
    for before in (r"02\.\d_[a-z_]*", "01_vectorized"):
        assert re.search(rf"^median +{before} +02_openmp", output, re.MULTILINE)
    # It prints the prediction beside the measured time, but not the whole README.
    assert re.search(r"\ntrain, µs a batch +predicted +your answer +measured\n"
                     r"02_openmp +\S+ +- +\d[\d,.]*\n", output)
    assert "Pitfalls" not in output
    assert "STAGE: found '77', expected one of: 00_serial " in repository.run(
        "make -s step STAGE=77", 2)


def test_step_predicts_for_this_machine(repository):
    """From what `make bench` has measured on it. Else it says for which machine the prediction
    is."""
    def table(stage):
        output = repository.run(f"make -s step STAGE={stage} {QUICK}")
        return output[output.index("train, µs a batch"):].split("\n\nWhat the profile")[0]

    folder = Path("report/results", subprocess.run(
        ["harness/machine.sh", "--name"], stdout=subprocess.PIPE, text=True,
        check=True).stdout.strip(), "bench")
    shutil.rmtree(folder, ignore_errors=True)
    assert re.search(r"\n00_serial +- +- +\d.*\n\nThe prediction above is for the reference machine"
                     r"\. For this one, it needs addition of `make bench`\.", table("00"))
    repository.write(folder / "ceilings.json", json.dumps({"benchmarks": [
        {"name": "ceilings/addition", "run_type": "iteration", "real_time": 2}]}))
    assert re.search(r"\n00_serial +105,000 +- +\d.*\n\nPredicted for this machine: .* /addition; "
                     "addition: 0.5 billion a second", table("00"))  # 256 · 128 · 1598 · 2 ns
    readme = Path("stages/00_serial/README.md")
    readme.write_text(re.sub("<!-- predicted.*\n", "", readme.read_text()))
    assert "\n\nThe prediction above is for the reference machine." in table("00")


def test_answers_have_one_unit(monkeypatch, capsys):
    """That of the ladder, whether they are times or factors. A formula may begin with what the
    stage before takes."""
    monkeypatch.setattr(step, "ceilings", lambda ladder, threads: {"barrier": 1e6 * threads})
    row = {"epochs": 1, "train_samples": 1000, "batch": 100, "threads": 2}
    sides = [[row | {"train_s": seconds} for seconds in times]
             for times in ((0.004,), (1, 0.001, 0))]
    for terms, answer, expected in (
            ([], (2.0, True), "- 200 100"), ([], (150.0, False), "- 150 100"),
            (["before", "-4 /barrier"], None, "398 - 100"), (["batch /L9"], None, "- - 100")):
        step.show_answers(MAIN[1], "train_s", terms, answer, sides, "is for the moon")
        line, _, words = capsys.readouterr().out.splitlines()[2:]
        assert line.split() == [MAIN[1].name, *expected.split()]
        assert ("moon" in words) == (not terms or "L9" in terms[0]) and ("L9" in words) == (
            terms == ["batch /L9"])


def test_declared_predictions():
    """They are of a time, and made of numbers, columns and ceilings."""
    known, count = {"flops", "L1", "L2", "L3", "memory", "before", *rows.WAITS}, 0
    for stage in STAGES:
        *_, section = ("\n## The prediction" + (stage.folder / "README.md").read_text()).split(
            "\n## The prediction")
        for column, formula in re.findall("<!-- predicted: (.*?) = (.*?) -->", section):
            count += 1
            ladder = stage.ladder
            assert column in (ladder.time, *(f"{phase}_s" for phase in ladder.phases)), stage.name
            columns = {*rows.parameters(ladder), "threads"}
            values = dict.fromkeys({*known, *columns}, 1.0) | {"before": 1e6}
            assert ladder.sum_of(formula.split(" + "), values) > 0, stage.name
        readme = (stage.folder / "README.md").read_text()
        assert readme.count("<!-- predicted:") == section.count("<!-- predicted:") <= 1, stage.name
    assert count > 1


@pytest.mark.skipif(not shutil.which("script"), reason="found no script (bsdutils)")
def test_step_on_a_terminal(repository):
    """It asks for an answer there, and shows no links."""
    readme = Path("stages/00_serial/README.md")
    links = f"![a](b.svg)\n[`c` d](e.md) <!-- f -->\n{'word ' * 30}\n- {'item ' * 20}\n"
    repository.edit(readme, "## The idea\n", f"## The idea\n\n{links}")
    os.mkfifo("keys")
    Path("output").touch()
    process = repository.start("""bash -c 'script -qec "harness/start.py step step stages 00" \
        /dev/null <keys >output'""", TRAIN="64")
    with open("keys", "w") as keys:
        wait_until(lambda: Path("output").read_text().endswith("Press Enter to go on: "))
        time.sleep(0.5)
        assert "The prediction" not in Path("output").read_text()
        keys.write("2x\n")  # times as fast as nothing
        keys.flush()
        wait_until(lambda: Path("output").read_text().count("Press Enter to go on: ") == 2)
        keys.write("24,500\n")
        keys.flush()
        repository.end(process)
    output = Path("output").read_text()
    assert "Found '2x', expected a number such as 350." in output
    assert "The prediction" in output
    assert re.search(r"\n00_serial +\S+ +24,500 +\d", output)
    assert "\n`c` d " in output and not re.search(r"]\(|<!--", output)
    # Lines of 80, broken between words.
    assert re.search("^`c` d( word){15}\n(word ?){15}\n- (item ?){15}\n  (item ?){5}\n", output,
                     re.MULTILINE)
    # Without a terminal, it does not ask. Your own stage need not have a README.
    assert "Press Enter" not in repository.run("make -s step STAGE=00 TRAIN=640")
    readme.unlink()
    assert re.search(r"\n00_serial +- +- +\d", repository.run("make -s step STAGE=00 TRAIN=640"))


def loop_of(output):
    """[instruction] of a loop, which is far shorter than the function."""
    count, whole, text = re.match(
        r"The loop with the most arithmetic: (\d+) of (\d+) instructions\. ALL=1 prints all of them"
        r"\.\n\n((?s:.*))", output).groups()
    found = re.findall(r"^ +([0-9a-f]+):\t(.*)", text, re.MULTILINE)
    assert len(found) == int(count) < 70 < int(whole)
    assert f" {found[0][0]} <" in re.sub(r"\s", " ", found[-1][1])  # it jumps to its begin
    return found


def test_asm(repository):
    """It shows the hot loop of a function under its lines, also where it is inlined."""
    source = Path("stages/01_vectorized/train.c").read_text()
    line = source[:source.index("sum[r][c] += x[r")].count("\n") + 1
    output = repository.run("make -s asm STAGE=01 FUNCTION=forward")
    # The tile is inlined into what forward() calls. It has no store.
    assert re.search(rf"\nforward_tile, {line}: sum.*\n(.*\n){{0,8}}.*(fma|fmla|mul)", output)
    assert sum("fm" in text for _, text in loop_of(output)) > 7
    # Not the update, which is inlined too, and has vectors.
    output = repository.run("make -s asm STAGE=00 FUNCTION=backward")
    assert loop_of(output) and "\nbackward, " in output and "sum += x[s" in output
    everything = repository.run("make -s asm STAGE=01 FUNCTION=forward ALL=1")
    assert everything.startswith("forward, ") and "\nevaluate, " not in everything
    assert everything.count("\n") > 400
    output = repository.run("make -s asm STAGE=00")
    assert re.match(r"Instructions of each function, with what was inlined into it:\n\n"
                    r"( +\d+ \w+\n)+\nThe loop", output)
    assert loop_of(output[output.index("The loop"):])
    assert repository.run("make -s asm STAGE=00 FUNCTION=destroy").startswith("No loop with arith")
    assert re.fullmatch("asm: FUNCTION: found 'nothing', expected one of: .*forward.*\n",
                        repository.run("harness/start.py asm '' 00 nothing", 2))


def fake_cuda_stage(tree, name, commands=":"):
    tree.script(f"stages/{name}/train", commands)
    tree.write(f"stages/{name}/Makefile", "train: ;\n")


def test_asm_of_a_cuda_stage(repository):
    """It shows the kernels' hot loop, or says what is missing."""
    fake_cuda_stage(repository, "04_cuda_device_mem")
    if not asm.toolkit("cuobjdump"):
        said = repository.run("harness/start.py asm '' 04", 77, NVCC="true")
        assert "found no cuobjdump" in said and said.count("\n") == 1
    loop = ["  FFMA R1, R2, R3, R1", "@P0 BRA 0x10", "  BRA 0x30"]
    sass = "".join(f"        /*{16 * number:04x}*/  {text} ; /* 0x00 */\\n"
                   for number, text in enumerate(["  MOV R1, RZ", *loop]))
    repository.script("bin/cuobjdump", rf"""echo '	code for sm_75'
        printf '\t\tFunction : _Z%s\n        /*0000*/  %s ; /* 0x00 */\n' 4sumsPKf ADD
        printf '\t\tFunction : _Z3oneILi4EEvPf\n{sass}'""")
    shown = [f"        /*{16 * number:04x}*/  {text} ;" for number, text in enumerate(loop, 1)]
    for words, expected in (("one", shown[:2]), ("sums", ["        /*0000*/  ADD ;"]),
                            ("", shown[:2])):
        output = repository.run(f"harness/start.py asm '' 04 {words}", NVCC="true",
                                PATH="bin:/usr/bin:/bin")
        assert output.splitlines()[-len(expected):] == expected
        assert ("\n\none<4>\n" in output) == (words != "sums")
    assert "      4 one\n" in output


@pytest.mark.skipif(ladders.has_gpu(), reason="found a GPU")
@pytest.mark.parametrize("nvcc", ["true", "no-such-nvcc"])
def test_step_of_a_stage_that_cannot_run_here(repository, nvcc):
    """It says why and goes on."""
    if nvcc == "true":
        for name in ("03_cuda_unified", "04_cuda_device_mem"):
            fake_cuda_stage(repository, name,
                            f"echo '{name}: no usable CUDA device: none' >&2; exit 77")
    # Two jobs, so that a make within would have jobs to warn of.
    output = repository.run(f"make -j2 step STAGE=04 NVCC={nvcc}")
    assert re.search(f"found no {nvcc}|step: 03_cuda_unified: exit status 77: no usable CUDA "
                     "device: none", output)
    assert "\nWhat the profile shows\n" in output
    assert output.splitlines()[-1] == (
        "04_cuda_device_mem cannot run here. `make check STAGE=04_cuda_device_mem` tests it on a "
        "simulated device, and `make sim` builds it for one.")
    assert not re.search("^(make|gcc)|jobserver", output, re.MULTILINE)
    if nvcc != "true":
        output = repository.run(f"make -s all STAGES=stages/03_cuda_unified NVCC={nvcc}")
        assert " ".join(output.splitlines()[-2:]) == (
            "Without nvcc: `make sim` builds the CUDA stages for a simulated device, and `make "
            "check STAGE=NAME` tests one of them on it.")


def test_a_copy_of_a_step(repository):
    """Every command works on it, and make check finds a mistake in it."""
    run = repository.run
    shutil.copytree("stages/01_vectorized", "stages/01.0_first")
    repository.edit("stages/01.0_first/train.c", "// Stage 01:", "// Stage 01.0:")
    made = run("make -s new-stage FROM=01.0 NAME=20_mine TRAIN=640")
    assert "\n20_mine: right, " in made and "median" not in made
    assert "// Stage 20, from 01.0_first:" in Path("stages/20_mine/train.c").read_text()
    assert "\n-// Stage 01.0" in run("make -s diff STAGE=20")
    assert "\n+// Stage 01.0" in run("make -s diff STAGE=01.0")
    assert "\n  20_mine " in run("./run_all.sh --stages 01.0,20 --quick --hidden 32 --batch 32 "
                                 "--train 640 --test 200 --repeats 1 --output results")
    assert re.search("^median +20_mine +01_vectorized", run(
        "harness/start.py compare 20_mine 01", RUNS="8", HIDDEN="32", TRAIN="640"), re.MULTILINE)
    assert "20_mine: mine" in run(f"make -s step STAGE=20 {QUICK}")
    if os.environ.get("FULL") and shutil.which("pandoc"):
        run("make -s report")
        assert ' id="stages-20_mine">' in Path("report/index.html").read_text()
    # Now a batch's gradient is a hundredth too large.
    repository.edit("stages/20_mine/train.c", "dz[s] /= (float)n;", "dz[s] /= 0.99f * (float)n;")
    output = run("make -s check STAGE=20_mine", 2)
    assert "20_mine: WRONG" in output
    assert "All updates are 1.0101 times the right ones" in output
