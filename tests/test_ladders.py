"""Tests that a ladder is a folder: what harness/ladders.py finds, that a mistake in a ladder.toml
or in the name of a folder is one line that names it, and that everything works on a ladder of which
no line stands elsewhere."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY

from harness import asm, ladders, step


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The root of a repository without ladders. Each test calls ladders.ladders.cache_clear() by
    says()."""
    monkeypatch.setattr(ladders, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["ladders.py"])
    ladders.ladders.cache_clear()
    yield tmp_path
    ladders.ladders.cache_clear()


def make_stages(ladder, *sources):
    """Makes stages of such names as 00_serial.c, or without a suffix only their folders."""
    for name in sources:
        stage, dot, suffix = name.rpartition(".c")
        (ladder / (stage if dot else name)).mkdir(parents=True)
        if dot:
            (ladder / stage / f"run.c{suffix}").touch()
            (ladder / stage / "Makefile").touch()
    return ladder


@pytest.fixture
def two(root):
    """Two ladders, of which the second has steps. Returns that one's folder."""
    make_stages(root / "stages", "00_serial.c", "02_gpu.cu", "04_no_makefile")
    (root / "stages/04_no_makefile/run.c").touch()
    other = make_stages(root / "studies/other", "00_serial.c", "01_vectorized.c", "01.2_wide.c",
                        "01.1_order.c", "02_gpu.cu", "02_gpu_too.cu", "03_no_source", "peers")
    (other / "03_no_source/Makefile").touch()
    make_stages(root / "studies/no_ladder", "00_serial")
    for folder in (root / "stages", other):
        shutil.copy(REPOSITORY / "tests/pi/ladder.toml", folder)
    return other


# Of the second ladder.
ALL = "00_serial 01.1_order 01.2_wide 01_vectorized 02_gpu 02_gpu_too"


@pytest.mark.parametrize(("words", "found"), [
    (["ladders"], "stages other"),
    (["stages", "stages"], "stages/00_serial stages/02_gpu"),
    (["stages", "other"], " ".join(f"studies/other/{name}" for name in ALL.split())),
    (["stages", "--cpu"], "stages/00_serial studies/other/00_serial studies/other/01.1_order "
     "studies/other/01.2_wide studies/other/01_vectorized"),
    (["stages", "--cuda", "other"], "studies/other/02_gpu studies/other/02_gpu_too"),
    # By its name, its number, or a beginning that is its own.
    (["stages", "", "00"], "stages/00_serial"),
    (["stages", "stages", "02_gpu"], "stages/02_gpu"),
    (["stages", "other", "01"], "studies/other/01_vectorized"),
    (["stages", "other", "01_v"], "studies/other/01_vectorized"),
    (["stages", "other", "01_vectorized"], "studies/other/01_vectorized"),
    (["stages", "other", "01.2", "02_gpu"], "studies/other/01.2_wide studies/other/02_gpu")])
def test_what_is_found(two, monkeypatch, capsys, words, found):
    monkeypatch.setattr(sys, "argv", ["ladders.py", *words])
    ladders.main()
    assert capsys.readouterr().out.split() == found.split()


def test_what_a_stage_is_compared_with(two):
    """The one before it, or its origin."""
    ladder = ladders.find_ladder("other")
    assert [ladder.find(stage).before.name for stage in ("01", "01.2", "02_gpu")] == [
        "01.2_wide", "01.1_order", "01_vectorized"]
    (two / "02_gpu/Makefile").write_text("ORIGIN = 00_serial\n")
    ladders.declared.cache_clear()
    assert ladder.find("02_gpu").before.name == "00_serial"


def test_a_makefile_that_make_cannot_read_is_one_line(two, capsys):
    """It names the file. A variable of the environment declares nothing, and neither does a stage
    for the next one."""
    (two / "00_serial/Makefile").write_text("RUN = env\nSKIPS = half\n")
    assert [ladders.find_ladder("other").find(stage).declared(name) for stage, name in (
        ("00", "RUN"), ("00", "SKIPS"), ("01.1", "RUN"), ("01.1", "HOME"))] == [
        "env", "half", "", ""]
    (two / "01.1_order/Makefile").write_text("MOVE = one\nnonsense\n")
    ladders.declared.cache_clear()
    assert said(capsys, lambda: ladders.find_ladder("other").find("00").before).startswith(
        "studies/other/01.1_order/Makefile:2: *** missing separator")


def said(capsys, function, *words):
    """The one line that a function says before it ends with 2."""
    with pytest.raises(SystemExit) as ended:
        function(*words)
    output, line = capsys.readouterr()
    assert (ended.value.code, output, line.count("\n"), line[-1]) == (2, "", 1, "\n")
    assert len(line) < 1200
    program, line = line.split(": ", 1)
    assert program == Path(sys.argv[0]).name
    return line.rstrip("\n")


def test_what_is_not_found(two, monkeypatch, capsys):
    """It is named in one line, with what there is."""
    def says(program, *words):
        monkeypatch.setattr(sys, "argv", [f"{program.__name__}.py", *words])
        return said(capsys, program.main)

    stages = "one of: 00_serial 01_vectorized 02_gpu 02_gpu_too, or a step such as 01.1_order"
    for wanted, expected in (("03", stages), ("", stages), ("wide", "'01.2_wide'"),
                             ("2_gpu", "'02_gpu' or '02_gpu_too'"),
                             ("02", "more of a name of: 02_gpu 02_gpu_too")):
        assert says(ladders, "stages", "other", wanted) == (
            f"STAGE: found '{wanted}', expected {expected}")
    for words in ("", "step", "diff other", "new other 00", "setp other 00"):
        line = says(step, *words.split())
        assert line.startswith(f"found '{words}', expected: step STUDY STAGE, ")
    assert says(asm, "other", "00", "forward", "more") == (
        "found 'other 00 forward more', expected: asm STUDY STAGE [FUNCTION]")
    assert says(step, "new", "", "x", "20_mine") == (
        "FROM: found 'x', expected one of: 00_serial 02_gpu")
    assert says(ladders, "stages", "third") == "STUDY: found 'third', expected one of: stages other"
    (two / "02_gpu/Makefile").write_text("ORIGIN = 77_gone\n")
    assert says(step, "diff", "other", "02_gpu") == (
        f"ORIGIN in studies/other/02_gpu/Makefile: found '77_gone', expected {stages}")
    shutil.rmtree(two)
    ladders.ladders.cache_clear()
    for stage in ("00_serial", "02_gpu"):
        shutil.rmtree(two.parent.parent / "stages" / stage)
    assert says(ladders, "stages") == "found no stages in stages"


# --- mistakes ---

RIGHT = """
title = "A wave"
program = "run"
data = "../data/mnist.set"
time = "time_s"
baseline = "00_plain"
phases = ["load", "turn"]
heading = "{n_seeds} seeds, {pace} Hz"
headline = [[8], [64]]
[paper]
cite = "*Waves*"
settings = { pace = 1 }
[[axes]]
option = "points"
name = "Points"
values = [8, 64]
[settings]
seeds = 1
pace = 0.5
layers = "8,8"
wide = false
[columns]
seeds = "n_seeds"
[quick]
seeds = 2
[compare]
points = 8
runs = 10
[growth.base]
points = 8
[growth.values]
seeds = [1, 2]
[work.load]
operations = ["n_seeds 2", "points /pace"]
[results]
energy = ["0.01 energy", "2 /points"]
[tests]
cases = ["--seeds 2 --points 3 --pace 1"]
updates = ["seeds", "points", "pace"]
[tests.check]
sizes = ["--layers 8"]
[[measures]]
column = "time_s"
title = "Time"
"""

# (what stands there, what is put in its place, the beginning of what is said)
MISTAKES = (
    ('title = "A wave"', "", "title: found nothing"),
    ('program = "run"', "", "program: found nothing"),
    ('time = "time_s"', "", "time: found nothing"),
    ("title", "tilte", "found the key 'tilte', expected 'title'"),
    ("headline", "hedline", "found the key 'hedline', expected 'headline'"),
    ("[quick]", "[qick]", "found the key 'qick', expected 'quick'"),
    ("[[axes]]", "[[axis]]", "found the key 'axis', expected 'axes'"),
    ("[[axes]]", "[axes]", "axes: found a table, expected tables, each"),
    ("[[measures]]", "[measures]", "measures: found a table"),
    ("[settings]", "[[settings]]", "settings: found a list, expected a table"),
    ("[quick]", "[[quick]]", "quick: found a list"),
    ("[columns]", "[[columns]]", "columns: found a list"),
    ("[tests.check]", "[[tests.check]]", "tests.check: found a list"),
    ('"A wave"', "1", "title: found 1, expected text"),
    ('"A wave"', '" "', "title: found ' '"),
    ('"A wave"', r'"A\u0000wave"', r"title: found 'A\x00wave'"),
    ('"A wave"', "1979-05-27", "title: found 1979-05-27"),
    ('"run"', '"../run"', "program: found '../run', expected a name"),
    ('"run"', '["run"]', "program: found a list"),
    ('"../data/mnist.set"', '"a b"', "data: found 'a b', expected a path"),
    ('"time_s"', '"time"', "time: found 'time', expected a column that ends in _s"),
    ('"00_plain"', '"00_serial"', "baseline: found '00_serial', expected a stage: 00_plain"),
    ('"00_plain"', "0", "baseline: found 0"),
    ("[quick]", 'numbers = "float16"\n[quick]', "columns: found the key 'numbers', expected one"),
    ("data =", 'numbers = "float16"\ndata =', "numbers: found 'float16', expected one of: float32"),
    ("data =", "save = true\ndata =", "save: found true"),
    ("data =", 'unit = "h a run"\ndata =', "unit: found 'h a run', expected s, ms or µs of what"),
    ("data =", 'units = ["epochs"]\ndata =', "units[0]: found 'epochs', expected numbers and"),
    ("data =", "epochs = 5\ndata =", "epochs: found 5"),
    ("{pace}", "{typo}", "heading: found '{n_seeds} seeds, {typo} Hz', expected text, and in braces"
     " only: n_seeds pace layers wide dataset"),
    ("{pace}", "{", "heading: found"),
    ("{pace}", "{0}", "heading: found"),
    ("{pace}", "{pace:x}", "heading: found"),
    ('["load", "turn"]', '"load"', "phases: found 'load', expected a list, each a name"),
    ('"turn"', "2", "phases[1]: found 2"),
    ('"turn"', '"load"', "phases: found 'load' twice"),
    ("[[8], [64]]", "[8]", "headline[0]: found 8, expected a list of 1"),
    ("[[8], [64]]", "[[8, 8]]", "headline[0]: found a list, expected a list of 1"),
    ("[[8], [64]]", "[[9]]", "headline[0][0]: found 9, expected one of: 8 64"),
    ("[[8], [64]]", "[]", "headline: found an empty list"),
    ('cite = "*Waves*"', "", "paper.cite: found nothing, expected text"),
    ("{ pace = 1 }", "{ pac = 1 }", "paper.settings: found the key 'pac', expected 'pace'"),
    ("{ pace = 1 }", "{ pace = true }", "paper.settings.pace: found true, expected a number"),
    ("values = [8, 64]", "", "axes[0].values: found nothing, expected a list"),
    ('option = "points"', "", "axes[0].option: found nothing"),
    ('name = "Points"', "", "axes[0].name: found nothing"),
    ("values = [8, 64]", "value = [8, 64]", "axes[0]: found the key 'value', expected 'values'"),
    ("values = [8, 64]", "values = 8", "axes[0].values: found 8, expected a list"),
    ("values = [8, 64]", "values = []", "axes[0].values: found an empty list"),
    ("values = [8, 64]", "values = [[8]]", "axes[0].values[0]: found a list"),
    ("values = [8, 64]", 'values = [8, "64"]', "axes[0].values[1]: found '64', expected a whole"),
    ("values = [8, 64]", "values = [0]", "axes[0].values[0]: found 0"),
    ("values = [8, 64]", "values = [nan]", "axes[0].values[0]: found nan"),
    ("values = [8, 64]", "values = [true]", "axes[0].values[0]: found true"),
    ("values = [8, 64]", "values = [8, 64]\nquick = 8", "axes[0].quick: found 8"),
    ("values = [8, 64]", "values = [8, 64]\nquick = [0.5]", "axes[0].quick[0]: found 0.5"),
    ('"points"', '"threads"', "axes[0].option: found 'threads'"),
    ('"points"', '"Points"', "axes[0].option: found 'Points'"),
    ('"points"', '"pace"', "axes: found 'pace' twice"),
    ("[settings]", '[[axes]]\noption = "x"\nname = "X"\nvalues = [1]\n' * 2 + "[settings]",
     "axes: found 3 tables, expected two at most"),
    ("pace = 0.5", "pace = inf", "settings.pace: found inf, expected a number"),
    ("pace = 0.5", "pace = -1", "settings.pace: found -1"),
    ("pace = 0.5", f"pace = 0x{'f' * 5000}", "settings.pace: found a number of more than 64 bits"),
    ("pace = 0.5", "pace = { a = 1 }", "settings.pace: found a table"),
    ("pace = 0.5", "pace = []", "settings.pace: found an empty list"),
    ("pace = 0.5", "quiet = true", "settings: found the key 'quiet'"),
    ("pace = 0.5", '"" = 1', "settings: found the key ''"),
    ('"n_seeds"', '"stage"', "columns.seeds: found 'stage'"),
    ('"n_seeds"', '"pace"', "columns: found 'pace' twice"),
    ("seeds = \"n_seeds\"", 'seed = "n_seeds"', "columns: found the key 'seed', expected 'seeds'"),
    ("seeds = 2", "seed = 2", "quick: found the key 'seed', expected 'seeds'"),
    ("seeds = 2", 'seeds = "2"', "quick.seeds: found '2', expected a whole number from 0"),
    ("points = 8\nruns", "point = 8\nruns", "compare: found the key 'point', expected 'points'"),
    ("points = 8\nruns", "points = [8]\nruns", "compare.points: found a list"),
    ("runs = 10", "runs = 0", "compare.runs: found 0, expected a whole number from 1"),
    ("[growth.base]", "[growth.bas]", "growth: found the key 'bas', expected 'base'"),
    ("[growth.base]\npoints = 8", "", "growth.base: found nothing, expected a table"),
    ("seeds = [1, 2]", "seeds = 1", "growth.values.seeds: found 1, expected a list"),
    ("seeds = [1, 2]", "seeds = []", "growth.values.seeds: found an empty list"),
    ("seeds = [1, 2]", 'layers = ["8"]', "growth.values: found the key 'layers'"),
    ("[work.load]", "[work.laod]", "work: found the key 'laod', expected 'load'"),
    ("operations =", "operation =", "work.load: found the key 'operation', expected 'operations'"),
    ("points /pace", "point /pace", "work.load.operations[1]: found 'point /pace', expected num"),
    ("points /pace", "points /0", "work.load.operations[1]: found 'points /0'"),
    ("points /pace", "layers", "work.load.operations[1]: found 'layers'"),
    ('["n_seeds 2", "points /pace"]', '"n_seeds"', "work.load.operations: found 'n_seeds'"),
    ("0.01 energy", "0.0 energy", "results.energy[0]: found '0.0 energy'"),
    ("0.01 energy", "0.01 enrgy", "results.energy[0]: found '0.01 enrgy', expected numbers"),
    ('["0.01 energy", "2 /points"]', "0.01", "results.energy: found 0.01"),
    ("[tests]\ncases", "[tests]\ncase", "tests: found the key 'case', expected 'cases'"),
    ('cases = ["--seeds 2 --points 3 --pace 1"]', "", "tests.cases: found nothing"),
    ('["--seeds 2 --points 3 --pace 1"]', "[]", "tests.cases: found an empty list"),
    ("--points 3", "'--points 3", "tests.cases[0]: found"),
    ("--points 3", "", "tests.cases: found '--seeds 2 --pace 1', expected --points N"),
    ('["seeds", "points", "pace"]', '["seeds"]',
     "tests.updates: found a list, expected a list of 3"),
    ('sizes = ["--layers 8"]', 'sizes = "--layers 8"', "tests.check.sizes: found '--layers 8'"),
    ('sizes = ["--layers 8"]', "threads = 1", "tests.check.threads: found 1, expected true"),
    ("[tests.check]", "[tests.chekc]", "tests: found the key 'chekc', expected 'check'"),
    ('column = "time_s"', "", "measures[0].column: found nothing"),
    ('title = "Time"', "", "measures[0].title: found nothing"),
    ('title = "Time"', 'tilte = "Time"', "measures[0]: found the key 'tilte', expected 'title'"),
    ('title = "Time"', 'title = "Time"\nbetter = "less"', "measures[0].better: found 'less'"),
    ('"time_s"\ntitle', '"dataset"\ntitle', "measures[0].column: found 'dataset'"),
    ('"time_s"\ntitle', '"layers"\ntitle', "measures[0].column: found 'layers'"),
    # No TOML, or more of it than a program wants.
    ("[quick]", "[quick", "Expected ']'"),
    ("seeds = 2", "seeds = 2\nseeds = 3", "Cannot overwrite a value"),
    ("seeds = 2", f"seeds = {'9' * 5000}", "Exceeds the limit"),
    ("seeds = 2", f"seeds = {'[' * 30000}", "maximum recursion depth exceeded"),
    ("[quick]", f"[quick{'.a' * 2000}]", "quick: found the key 'a', expected one of: seeds"),
    ("[quick]", f"[{'a' * 30000}]", "found the key 'aaaaaaa"),
    ("[quick]", "#" * 70000 + "\n[quick]", "expected a regular file, and no more than 64 KiB"),
    ("A wave", b"\xff", "'utf-8' codec can't decode byte 0xff"),
    ("A wave", "A\0wave", "Illegal character"),
)


@pytest.fixture
def waves(root):
    """The folder of a ladder without mistakes."""
    folder = make_stages(root / "studies/waves", "00_plain.c", "01_fast.c")
    (folder / "ladder.toml").write_text(RIGHT)
    return folder


def read_all():
    ladders.ladders.cache_clear()
    return [(ladder.name, len(ladder.stages)) for ladder in ladders.ladders()]


def test_a_ladder_without_mistakes(waves):
    assert read_all() == [("waves", 2)]


def test_the_ladders_of_the_repository(monkeypatch):
    monkeypatch.setattr(ladders, "ROOT", REPOSITORY)
    for file in (REPOSITORY / "stages/ladder.toml", *REPOSITORY.glob("studies/*/ladder.toml"),
                 REPOSITORY / "tests/pi/ladder.toml"):
        assert ladders.Ladder(file.parent).file == file


@pytest.mark.parametrize(("old", "new", "says"), MISTAKES)
def test_a_mistake(waves, capsys, old, new, says):
    assert old in RIGHT
    new = new if isinstance(new, bytes) else new.encode()
    (waves / "ladder.toml").write_bytes(RIGHT.encode().replace(old.encode(), new, 1))
    line = said(capsys, read_all)
    assert line.startswith(f"studies/waves/ladder.toml: {says}")
    assert re.search("; see stages/ladder.toml$|expected a stage: ", line)


def test_any_type_at_any_key(waves, capsys):
    """Each line of RIGHT in turn has a value of another type. Some of them are right."""
    lines = RIGHT.splitlines()
    values = ("-1", "0.5", '"a"', '""', "true", "nan", "[]", "[[]]", "{}", "[{}]", "[1, 'a']",
              "1979-05-27T07:32:00Z", "{ a = { a = 1 } }")
    wrong = 0
    for number, line in enumerate(lines):
        for value in values if " = " in line else ():
            (waves / "ladder.toml").write_text("\n".join([
                *lines[:number], re.sub("= .*", f"= {value}", line), *lines[number + 1:]]))
            try:
                read_all()
            except SystemExit as ended:
                assert (ended.code, capsys.readouterr().err.count("\n")) == (2, 1), (line, value)
                wrong += 1
    assert wrong > 300


def test_what_is_no_file(waves, capsys):
    file = waves / "ladder.toml"
    for make in (file.mkdir, lambda: os.mkfifo(file), lambda: file.symlink_to(file),
                 lambda: file.symlink_to("gone"), lambda: file.symlink_to("/dev/zero")):
        file.rmdir() if file.is_dir() else file.unlink()
        make()
        assert "studies/waves/ladder.toml: expected a regular file" in said(capsys, read_all)


@pytest.mark.parametrize("sign", [*" $#:;%'\"\\&|()*?[]<>`~=,\n", "\udcff"])
def test_signs_that_make_cannot_take(waves, capsys, sign):
    make_stages(waves, f"02_a{sign}b.c")
    name = repr(f"studies/waves/02_a{sign}b")
    assert said(capsys, read_all).startswith(f"found the folder {name}, expected")
    waves.rename(waves.with_name(f"a{sign}b"))
    assert said(capsys, read_all).startswith(f"found the folder {f'studies/a{sign}b'!r}, expected")


# --- everything ---

def test_a_third_ladder_is_a_folder(checkout):
    """It is built, tested, swept, tabled, compared and drawn."""
    run = checkout.run
    assert "\n01_unrolled: right, 5 tests\n" in run("make -s new-study NAME=pi")
    assert "NAME: found 'pi', expected another name" in run("make -s new-study NAME=pi", 2)
    assert "NAME: found 'Pi', expected small letters" in run("make -s new-study NAME=Pi", 2)
    assert " studies/pi/01_unrolled" in run("make -n")
    run("make studies/pi/00_serial studies/pi/01_unrolled")
    run("make -s -C harness build/pi/reference build/many_processors.so")
    run("make -s -C tests "
        "build/pi/01_unrolled.sanitized")
    assert "\n8 tests, all right\n" in run("harness/start.py verify stages studies/pi/00_serial "
                                           "studies/pi/01_unrolled")
    run("harness/start.py verify sanitized tests/build/pi/01_unrolled.sanitized")
    assert "build/pi/00_serial.sanitized" in run("make -C tests -n check-sanitized", FULL="1")

    assert "\n  01_unrolled " in run("./run_all.sh --study pi --quick")
    results, = Path("report/results").glob("*-quick")
    header = (results / "pi/runs.csv").read_text().split("\n")[0]
    assert header.startswith("stage,device,threads,terms,dataset,")

    quick = "RUNS=8 TERMS=100000"
    assert "01_unrolled" in run(f"make -s compare STUDY=pi A=00 B=01 {quick}")
    for target in ("step", "diff"):
        output = run(f"make -s {target} STUDY=pi STAGE=01 {quick}")
        assert "\n+    double sums[4] = {0};\n" in output
    output = run(f"make -s new-stage STUDY=pi FROM=01 NAME=02_mine {quick}")
    assert "\n02_mine: right, 5 tests\n" in output
    checkout.edit("studies/pi/02_mine/run.c", "2.0 * k + 1", "2.0 * k + 3")
    output = run(f"make -s check STUDY=pi STAGE=02_mine {quick}", 2)
    assert re.search(r"02_mine: WRONG \(--terms 1\)(.|\n)*WRONG .* 1\.33333 .* 4", output)
    shutil.rmtree("studies/pi/02_mine")

    pytest.importorskip("matplotlib")
    pytest.importorskip("pygments")
    if not shutil.which("pandoc"):
        pytest.skip("found no pandoc")
    for folder in (*Path("studies").glob("[!pR]*"), *Path("report/results").glob("*[!k]")):
        shutil.rmtree(folder)  # they take their time
    assert "this machine's quick look" in run("make -s report")
    page = Path("report/index.html").read_text()
    assert "Pi, by Leibniz" in page and "This is a quick look" in page
    if os.environ.get("FULL"):
        results.rename(results.with_name("some-test"))
        run("make -s report")
        assert [*Path("report/results/some-test/pi/plots").glob("*.svg")]
