"""Tests that a ladder is a folder: what bench/ladders.py finds, that a mistake in a ladder.toml
is one line that names it, and that everything works on a ladder of which no line stands
elsewhere."""

import re
import shutil
import sys
from pathlib import Path

import pandas
import pytest
from programs import needs_full
from conftest import REPOSITORY

from bench import ladders, stage


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The root of a repository with two ladders, of which the second, other, has steps."""
    for module in (ladders, stage):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    for path in ("stages/00_serial/run.c", "stages/02_gpu/run.cu", "stages/04_no_makefile/run.c",
                 *(f"studies/other/{name}" for name in (
                     "00_serial/run.c", "01_vectorized/run.c", "01_vectorized/01.2_wide/run.c",
                     "01_vectorized/01.1_order/run.c", "02_gpu/run.cu", "02_gpu_too/run.cu",
                     "03_no_source/x")),
                 "studies/no_ladder/00_serial/run.c"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
        if "makefile" not in path:
            (tmp_path / path).with_name("Makefile").touch()
    for folder in ("stages", "studies/other"):
        shutil.copy(REPOSITORY / "tests/pi/ladder.toml", tmp_path / folder)
    ladders.ladders.cache_clear()
    yield tmp_path
    ladders.ladders.cache_clear()


@pytest.fixture
def call(monkeypatch, capsys):
    """Calls `ladders WORDS`. A function that returns what it prints, or says before it fails."""
    def call(words, status=None):
        monkeypatch.setattr(sys, "argv", ["ladders", *words.split(" ")])
        ladders.ladders.cache_clear()
        try:
            ladders.main()
        except SystemExit as ended:
            assert ended.code == status == 2
            output, line = capsys.readouterr()
            assert output == "" and line.startswith("ladders: ") and line.count("\n") == 1
            return line.removeprefix("ladders: ").rstrip("\n")
        return capsys.readouterr().out.replace("\n", " ").strip()
    return call


@pytest.mark.parametrize(("words", "found"), [
    ("ladders", "stages studies/other"),
    ("stages stages", "stages/00_serial stages/02_gpu"),
    ("stages other", "00_serial 01.1_order 01.2_wide 01_vectorized 02_gpu 02_gpu_too"),
    ("stages --cpu other", "00_serial 01.1_order 01.2_wide 01_vectorized")])
def test_what_is_found(root, call, words, found):
    paths = re.sub(r"(^| )", r"\1studies/other/", found).replace("/01.", "/01_vectorized/01.")
    assert call(words) in (found, paths)


@pytest.mark.parametrize(("wanted", "found"), [
    ("01", "01_vectorized"), ("01_v", "01_vectorized"), ("01.2", "01.2_wide"),
    ("02_gpu", "02_gpu")])
def test_a_stage_is_found(root, wanted, found):
    """By its name, its number, or a beginning that is its own."""
    assert ladders.find_ladder("other").find(wanted).name == found


@pytest.mark.parametrize(("study", "wanted", "said"), [
    ("third", "", "STUDY: found 'third', expected one of: stages other"),
    ("other", "03", "STAGE: found '03', expected one of: 00 01.1 01.2 01 02 02"),
    ("other", "02", "STAGE: found '02', expected more of a name of: 02_gpu 02_gpu_too")])
def test_what_is_not_found(root, capsys, study, wanted, said):
    """It is named in one line, with what there is."""
    with pytest.raises(SystemExit):
        ladders.find_ladder(study).find(wanted)
    assert capsys.readouterr().err.partition(": ")[2] == f"{said}\n"


def test_what_a_makefile_declares(root):
    """A variable of the environment declares nothing, and neither does a stage for the next one. A
    stage is compared with the one before it, or its origin."""
    ladder = ladders.find_ladder("other")
    (root / "studies/other/00_serial/Makefile").write_text("RUN = env\n")
    (root / "studies/other/02_gpu/Makefile").write_text("ORIGIN = 00_serial\n")
    assert [ladder.find(stage).declared(name) for stage, name in (
        ("00", "RUN"), ("01.1", "RUN"), ("01.1", "HOME"))] == ["env", "", ""]
    assert [ladder.find(stage).before.name for stage in ("01", "01.2", "02_gpu")] == [
        "01.2_wide", "01.1_order", "00_serial"]


def test_a_step_that_begins_at_its_own_folders_stage_comes_after_it(root):
    """So it is no neighbour of the steps that lead to that stage."""
    folder = root / "studies/other/01_vectorized"
    (folder / "01.2_wide/Makefile").write_text("ORIGIN = 01_vectorized\n")
    stages = ladders.find_ladder("other").stages
    assert [stage.number for stage in stages] == ["00", "01.1", "01", "01.2", "02", "02"]
    assert [stage.before.number for stage in stages[1:4]] == ["00", "01.1", "01"]


def test_a_step_that_begins_anew_comes_after_its_folders_stage_if_it_is_not_the_first(root):
    for step in "01.1_order", "01.2_wide":
        makefile = root / "studies/other/01_vectorized" / step / "Makefile"
        makefile.write_text("ORIGIN = 00_serial\n")
    stages = ladders.find_ladder("other").stages
    assert [stage.number for stage in stages] == ["00", "01.1", "01", "01.2", "02", "02"]
    assert [stage.before.number for stage in stages[1:4]] == ["00", "01.1", "00"]


def test_what_changes_the_hash_of_sources(root):
    """The program's own file, what it includes, and what a ladder's stages share. Not what is said
    of an error, and not what all ladders share to read and write."""
    source = root / "stages/00_serial/run.c"
    (root / "common").mkdir()

    def changed(path, text):
        before = ladders.ladders()[0].stages[0].sources
        (root / path).write_text(text)
        ladders.ladders.cache_clear()
        return ladders.ladders()[0].stages[0].sources != before

    assert changed(source, '#include "common/data.h"\n#include "stages/run.h"\n')
    assert changed("common/data.h", "enum { PIXELS };")
    assert not changed("common/data.c", "int load;")
    assert changed("stages/run.h", 'void fail() { return report_error(NAME, "%d; try 09", 1); }')
    assert not changed("stages/run.h", 'void fail() { return report_error(NAME, ""); } // try 08')
    assert changed("stages/run.c", "int shared;")
    assert changed("stages/00_serial/Makefile", "OPENMP = yes")


@pytest.mark.parametrize(("old", "new", "says"), [
    ('title = "Pi', 'tilte = "Pi', "Toml.__init__() got an unexpected keyword argument 'tilte'"),
    ('program = "run"', "", "Toml.__init__() missing 1 required positional argument: 'program'"),
    ('"Pi, by', '1 # "', "title: found 1, expected str"),
    ('[[3000000]]', '1', "headline: found 1, expected list"),
    ("values = [1000000", 'value = [1000000', "Axis.__init__() got an unexpected keyword"),
    ('"00_serial"', '"00_plain"', "baseline: found '00_plain', expected a stage: 00_serial"),
    ("[tests]", '[compare]\nterm = 1', "compare: found 'term', expected an option of the ladder"),
    ("[tests]", "[tests.gpu]\nsize = []\n[tests]", "Cases.__init__() got an unexpected keyword"),
    ("[tests]", "[tests", "Expected ']'")])
def test_a_mistake(root, call, old, new, says):
    file = root / "studies/other/ladder.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    assert call("stages other", 2).startswith(f"studies/other/ladder.toml: {says}")


def test_the_work_of_a_run(root):
    """By expressions over the columns of a row, or of a frame, which may be texts of a file."""
    ladder = ladders.find_ladder("other")
    ladder.phases = ["sum", "rest"]
    ladder.toml |= {"work": {"sum": {"operations": "2 * terms + 1 / terms", "bytes": ""}},
                    "units": "terms / batch"}
    row = {"terms": "4", "batch": 2, "stage": "00_serial"}
    assert ladder.operations(row) == ladder.work(row, "sum", "operations") == 8.25
    assert ladder.units(row) == 2
    assert ladder.work(row, "sum", "bytes") is None and ladder.operations(row, ["rest"]) == 0
    frame = pandas.DataFrame({"terms": [4, 8], "batch": [2, 2]})
    assert [*ladder.operations(frame)] == [8.25, 16.125]
    assert [*ladder.units(frame)] == [2, 4]


def test_a_mistake_in_an_expression(root, capsys):
    ladder = ladders.find_ladder("other")
    ladder.toml["units"] = "terms / bach"
    with pytest.raises(SystemExit):
        ladder.units({"terms": 4, "batch": 2})
    assert "studies/other/ladder.toml: found 'terms / bach', expected" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["02_a b", "02_A"])
def test_a_folder_that_make_cannot_take(root, call, name):
    (root / "studies/other/02_gpu").rename(root / "studies/other" / name)
    assert call("stages other", 2).startswith(f"found the folder 'studies/other/{name}', expected")


@needs_full
def test_a_third_ladder_is_a_folder(checkout):
    """It is built, tested, swept, tabled and compared."""
    run, quick = checkout.run, "RUNS=8 TERMS=100000"
    assert "\n01_unrolled: right, " in run("make -s new-study NAME=pi")
    assert "NAME: found 'pi', expected small letters" in run("make -s new-study NAME=pi", 2)
    assert " studies/pi/01_unrolled" in run("make -n")
    assert "\n01_unrolled " in run("./run_all.sh --study pi --quick")
    assert "01 is ... as fast" in run(f"make -s compare STUDY=pi A=00 B=01 {quick}")
    for target in ("step", "diff"):
        output = run(f"make -s {target} STUDY=pi STAGE=01 {quick}")
        assert "\n+    double sums[4] = {0};\n" in output
    assert "\n02_mine: right, " in run(f"make -s new-stage STUDY=pi FROM=01 NAME=02_mine {quick}")
    checkout.edit("studies/pi/02_mine/run.c", "2.0 * k + 1", "2.0 * k + 3")
    assert "02_mine: WRONG" in run(f"make -s check STUDY=pi STAGE=02_mine {quick}", 2)
    assert [*Path("report/results").glob("*-quick/pi/tables.txt")]
