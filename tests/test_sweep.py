"""Tests harness/sweep.py in a made-up repository (conftest.py): which runs are made, and what
becomes of their rows."""

import gzip
import importlib.util
import itertools
import os
import re
import shlex
import shutil
import signal
import sys
from pathlib import Path

import pytest
from conftest import LADDER, REPOSITORY, SWEEP, wait_until

from harness import ladders, sweep

# --- which runs are made ---

def test_grid(tree):
    """The whole grid three times, into a folder named after the machine. The stages of a cell run
    side by side, its repeats a pass apart."""
    tree.edit("stages/ladder.toml", "[8]", "[8, 16]")
    tree.edit("stages/ladder.toml", "[4]", "[4, 5]")
    output = tree.run("./run_all.sh")
    once = [",".join(row) for row in itertools.product("45", ("8", "16"), ("00_one", "01_two"))]
    path = "report/results/made-up/stages/runs.csv"
    assert tree.rows("batch hidden stage", path).split() == once * 3
    assert "Batch size 5" in output
    # A quick look has a grid and a folder of its own, and a run of over 0.5 s is not repeated.
    tree.stage("00_one", "time_s=0.6")
    tree.edit("stages/ladder.toml", "[8, 16]", "[8, 16]\nquick = [16]\n[quick]\nepochs = 1")
    tree.run("./run_all.sh --quick --batch 4")
    assert tree.counts("stage hidden epochs", "report/results/made-up-quick/stages/runs.csv") == {
        "00_one,16,1": 1, "01_two,16,1": 3}


def test_repeats(tree):
    """A cell is run until a second has been timed, and long runs twice or once. On a GPU, whose
    runs are short, the limit is higher."""
    tree.edit("harness/sweep.py", " 250, ", " 45, ")  # or it takes long
    expected = {}
    for number, (device, seconds, runs) in enumerate((
            ("cpu", 0.06, 12), ("cpu", 0.25, 4), ("cpu", 0.4, 3), ("cpu", 5.5, 2), ("cpu", 20.5, 1),
            ("GPU", 0.026, 39), ("GPU", 0.004, 45), ("GPU", 0.3, 4))):
        tree.stage(f"1{number}_x", f"device={device} time_s={seconds}")
        expected[f"1{number}_x"] = runs
    tree.run(f"{SWEEP} --stages 1")
    assert tree.counts() == expected
    tree.run(f"{SWEEP} --stages 1 --resume")
    assert tree.counts() == expected


def test_options(tree):
    tree.write("other/train-images-idx3-ubyte", "")
    tree.sweep("--stages=01 --hidden=8,9 --batch 3 --epochs=2 --repeats=2 --threads=3 --data other")
    assert tree.rows("stage threads hidden batch epochs") == (
        "01_two,3,8,3,2 01_two,3,9,3,2 01_two,3,8,3,2 01_two,3,9,3,2")
    assert all(f"--data {tree.root}/other " in call for call in tree.calls())


def test_a_stage_that_a_student_adds(tree):
    tree.stage("07_mine")
    (tree.root / "stages/08_leftover").mkdir()  # without a Makefile
    assert re.search(r"^  07_mine +0\.400$", tree.sweep("--repeats 1"), re.MULTILINE)
    assert tree.rows("stage") == "00_one 01_two 07_mine"


def test_steps(tree):
    """They are measured with all stages, in two cells and in many rounds, into a folder of their
    own. A sweep of the grid has those that are asked for."""
    tree.stage("01.1_step")
    tree.stage("01_two", "time_s=1.5")
    tree.sweep("--stages 01 --epochs 2")
    assert tree.rows("stage epochs") == "01.1_step,2 01_two,2"
    tree.edit("stages/ladder.toml", "[settings]", "[rungs]\ncells = [[4, 8], [5, 9]]\nepochs = 3\n"
              "[settings]")
    tree.run(f"{SWEEP} --steps")
    assert tree.counts("stage batch hidden epochs", "results/steps/runs.csv") == {
        f"{stage},{cell},3": rounds for cell in ("4,8", "5,9")
        for stage, rounds in (("00_one", 16), ("01.1_step", 16), ("01_two", 8))}
    assert tree.rows("stage epochs") == "01.1_step,2 01_two,2"


def test_growth(tree):
    """A short point three times, a long one once, none beyond the limit."""
    assert tree.sweep("--growth", 2) == (
        "run_all.sh: --growth: found no [growth] in stages/ladder.toml\n")
    with open("stages/ladder.toml", "a") as file:
        file.write("[growth.base]\nhidden = 64\nbatch = 64\nepochs = 1\n[growth.values]\n"
                   "hidden = [1, 2, 64, 128, 256, 512, 1024]\nepochs = [1, 2, 3, 4, 5]\n"
                   "batch = [1, 4096]\n")
    # An epoch with 64 hidden units takes five seconds. Of threads it has one.
    # So does its loss depend on the epochs, and nothing is wrong with that.
    tree.stage("00_one", "time_s=$((500 * hidden * epochs / 64))e-2; loss=0.$epochs; "
                         "[ $threads = 1 ] || exit 2")
    tree.stage("01_two", "exit 77")
    tree.sweep("--growth", OMP_NUM_THREADS="1")
    assert tree.counts("hidden batch epochs", "results/growth/runs.csv") == {
        "1,64,1": 3, "2,64,1": 3, "64,64,1": 3, "128,64,1": 1, "256,64,1": 1, "64,64,2": 1,
        "64,64,3": 1, "64,64,4": 1, "64,1,1": 1, "64,4096,1": 1}
    assert not Path("results/runs.csv").exists()
    tree.stage("00_one", "exit 1")
    assert tree.sweep("--growth", 1).endswith("\nrun_all.sh: 00_one --hidden 1: exit status 1\n")


def test_a_list_of_threads(tree):
    """Each number for stages that use so many, one run for the others. More threads have more
    multiply-adds, which disturbs nobody."""
    tree.script("harness/build/ceiling", "echo ${1}e11")
    tree.stage("00_one", "threads=1")
    # It can use two threads, or five with more hidden units.
    tree.stage("02_three", "most=$((hidden == 8 ? 2 : 5)); [ $threads -lt $most ] || threads=$most")
    output = tree.sweep("--hidden 8,16 --threads 1,8,4,2,2 --repeats 2", OMP_NUM_THREADS="3")
    assert "\n02_three, hidden 16, batch 4, threads 4, round 2; 3 to go, about 2 s\n" in output
    lines = Path("results/sweeps.csv").read_text().splitlines()
    assert {'1,threads,"1,2,4,8"', "1,variables,"} <= {*lines}
    expected = {"00_one,8": [1], "00_one,16": [1], "01_two,8": [1, 2, 4, 8],
                "01_two,16": [1, 2, 4, 8], "02_three,8": [1, 2], "02_three,16": [1, 2, 4, 5]}
    expected = {f"{cell},{threads}": 2 for cell, used in expected.items() for threads in used}
    assert tree.counts("stage hidden threads") == expected
    # Wherever it stopped, the same runs are made in the end, and no more.
    whole = Path("results/runs.csv").read_text().splitlines(keepends=True)
    for lines in (8, 33):
        Path("results/runs.csv").write_text("".join(whole[:lines]))
        tree.sweep("--hidden 8,16 --threads 8,4,2,1 --repeats 2 --resume")
        assert tree.counts("stage hidden threads") == expected
    assert " was not made with 1,8 threads: expected the same --threads" in tree.sweep(
        "--threads 1,8 --resume", 2)
    # A stage that uses another number each time is a mistake, and the sweep ends.
    tree.stage("02_three", "[ $threads = 8 ] || threads=1")
    tree.sweep("--threads 1,2,8 --stages 02", 1)
    assert tree.notes()["02_three"] == (
        "failed: at hidden 8, batch 4, threads 2: its row has other options or threads")


def test_threads_are_bound(tree):
    """Where a program uses OpenMP itself, unless the environment says otherwise."""
    note = 'env | grep "^G\\?OMP_[SP]" | sort | paste -sd" " >"openmp.$stage"'
    peers(tree, peer_one=note, peer_two=note)
    for name in ("00_one", "01_two", "02_three"):
        tree.stage(name, note)
    tree.write("stages/01_two/Makefile", "OPENMP = yes\nrun: ;\n")
    # RUN stands for mpirun, which places its processes.
    tree.write("stages/02_three/Makefile", "OPENMP = yes\nRUN = env\nrun: ;\n")
    tree.edit("stages/peers/Makefile", "peer_%:", "peer_one_OPENMP = yes\npeer_%:")
    tree.sweep("--peers")
    spins = "GOMP_SPINCOUNT=2000"
    bound = f"{spins} OMP_PLACES=cores OMP_PROC_BIND=true"
    assert {path.name: path.read_text().strip() for path in Path().glob("openmp.*")} == {
        "openmp.00_one": spins, "openmp.01_two": bound, "openmp.02_three": spins,
        "openmp.peer_one": bound, "openmp.peer_two": spins}
    for chosen in ("OMP_PLACES=threads", "OMP_PROC_BIND=false", "GOMP_CPU_AFFINITY=0"):
        tree.program("stages/01_two/run", "01_two", note.replace("[SP]", ""))
        name, value = chosen.split("=")
        tree.sweep("--stages 01", GOMP_SPINCOUNT="9", **{name: value})
        assert Path("openmp.01_two").read_text().split() == sorted([chosen, "GOMP_SPINCOUNT=9"])


def test_quota(tree, tmp_path):
    """A quota on processor time, as a container has, limits the threads."""
    # Of control groups of version 2 and 1, with a group above; seen from within a container; none.
    top, groups = tmp_path / "top", [tmp_path / name for name in ("2", "1", "within", "missing")]
    groups[0].write_text("0::/a/b\n")
    groups[1].write_text("12:cpuset:/\n4:cpu,cpuacct:/docker/x\n0::/elsewhere\n")
    groups[2].write_text("0::/../outside\n")
    for texts, expected in (
            ({"a/b/cpu.max": "max 100000"}, [None, None, None, None]),
            ({"a/b/cpu.max": "450000 100000", "cpu/cpu.cfs_quota_us": "-1",
              "cpu/docker/x/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "50000",
              "cpu/docker/x/cpu.cfs_period_us": "50000"}, [4, None, None, None]),
            ({"a/cpu.max": "300000 100000", "cpu/docker/x/cpu.cfs_quota_us": "25000"},
             [3, 1, None, None]),
            ({"cpu.max": "1600000 100000"}, [3, 1, 16, None])):
        for name, text in texts.items():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_text(f"{text}\n")
        assert [ladders.quota.__wrapped__(group, top) for group in groups] == expected
    # The sweep takes it, if nothing else is said.
    tree.edit("harness/ladders.py", "def processors", "quota = lambda: 3\n"
              "os.sched_getaffinity = lambda _: range(8)\n\n\ndef processors")
    for words, variables, threads in (("", {}, 3), ("--threads 5", {}, 5),
                                      ("", {"OMP_NUM_THREADS": "4"}, 4)):
        tree.sweep(f"--stages 01 {words}", **variables)
        assert tree.rows("threads") == str(threads)
    tree.edit("harness/ladders.py", "lambda: 3", "lambda: 99")
    tree.sweep("--stages 01")
    assert tree.rows("threads") == "1"  # what the program says without a number


# --- what is known of a run ---

def test_record(tree):
    """When, in which sweep and which round, and how the machine was."""
    tree.script("harness/build/ceiling", 'echo "$1" >>threads; echo 1.25e11')
    tree.stage("01_two", "threads=1")
    tree.write("others", "4.56")
    tree.sweep("--repeats 2 --threads 3")
    tree.sweep("--repeats 3 --threads 3 --resume")
    assert tree.rows("stage sweep round") == (
        "00_one,1,1 01_two,1,1 00_one,1,2 01_two,1,2 00_one,2,3 01_two,2,3")
    assert {*tree.rows("others pace rate").split()} == {"4.6,0.1,125.0"}
    assert re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ,\d+\.\d+ ?){6}", tree.rows("began load"))
    assert Path("threads").read_text().split() == [*"3313131"]  # one call after a row that shows it
    words = "run_all.sh --output results --repeats"
    lines = Path("results/sweeps.csv").read_text().splitlines()
    assert lines[:2] == ["sweep,key,value", f"1,command,{words} 2 --threads 3"]
    assert {f"2,command,{words} 3 --threads 3 --resume", "2,threads,3",
            "2,others,4.6", '2,data,"mnist, labels 00000000"'} <= {*lines}


def test_what_became_of_a_program(tree):
    """programs.csv has a line for each in each sweep, with a hash of its sources."""
    def programs(words):
        tree.sweep(words)
        lines = tree.rows("sweep program outcome sources flags", "results/programs.csv").split()
        return [line.rsplit(",", 2) for line in lines]

    tree.edit("harness/machine.sh", "'cpu: Made up'", "'flags of 00_one: -O9'")
    (one, sources, flags), (two, *_) = programs("")
    assert (one, flags, two) == ("1,00_one,ran", "-O9", "1,01_two,ran")
    tree.write("stages/00_one/run.c", "// a comment")
    assert programs("--resume --repeats 2")[2] == ["2,00_one,ran", sources, "-O9"]
    tree.write("stages/00_one/run.c", "int changed;")
    last = programs("--resume --repeats 3 --stages 00")[4:]
    assert [name for name, *_ in last] == ["3,00_one,ran"] and last[0][1] != sources
    assert not programs("--resume --repeats 3 --stages 00")[5][0].endswith("ran")


# Multiply-adds at half the best rate, before the calls with these numbers.
SLOW = "echo >>asked; case $(wc -l <asked) in {}) echo 5e10 ;; *) echo 1e11 ;; esac"


def test_a_disturbed_run_is_made_again(tree):
    """In the same round, by how the machine was and never by its own time. All rows stay."""
    tree.stage("00_one", 'time_s=0.$(wc -l <calls)')
    tree.script("harness/build/ceiling", SLOW.format("3|4"))
    output = tree.sweep("--threads 1 --repeats 2")
    assert "00_one, hidden 8, batch 4, round 2, disturbed, so again; " in output
    assert tree.rows("stage round rate") == (
        "00_one,1,100.0 01_two,1,100.0 00_one,2,50.0 00_one,2,50.0 00_one,2,100.0 01_two,2,100.0")
    # The rounds are complete, though the last run of one is disturbed.
    tree.script("harness/build/ceiling", SLOW.format("[89]|10"))
    tree.sweep("--threads 1 --repeats 3 --resume")
    assert tree.counts("stage round") == {
        "00_one,1": 1, "01_two,1": 1, "00_one,2": 3, "01_two,2": 1, "00_one,3": 1, "01_two,3": 3}
    # A quick look does not last.
    tree.script("harness/build/ceiling", SLOW.format("1[2-9]"))
    tree.sweep("--threads 1 --repeats 2 --quick")
    assert len(tree.rows("stage").split()) == 4


def test_a_machine_that_is_disturbed_all_the_time(tree):
    """It is said at the beginning, and no more than a part of the runs is made again."""
    tree.write("others", "11")
    output = tree.sweep("--repeats 8")
    first, *_ = output.split("Building")
    assert "Busy, so times will say little: other programs used 11 % " in first
    runs = len(tree.rows("stage").split())
    assert 16 + 4 <= runs <= 16 + 8
    assert max(tree.counts("stage round").values()) == 3
    # A limit of the environment.
    assert "Busy" not in tree.sweep("--repeats 8", OTHERS="11")
    assert len(tree.rows("stage").split()) == 16


# --- ladders ---

def make_study(tree):
    """The ladder studies/pi, which has an axis and a flag and needs no data."""
    axis = '[[axes]]\noption = "batch"\nname = "Batch size"\nvalues = [4]\n'
    tree.write("studies/pi/ladder.toml", LADDER)
    for old, new in (('data = "../data/mnist.set"\n', ""), (axis, ""), ('"hidden"', '"terms"'),
                     ("pace = 0.1", "pace = 0.1\nexact = false"),
                     ("[[measures]]", '[columns]\nterms = "hidden"\n[[measures]]')):
        tree.edit("studies/pi/ladder.toml", old, new)
    tree.stage("00_sum", "dataset=drawn hidden=$terms", ladder="studies/pi")


def test_a_study(tree):
    """It has its own options, its own results and no data."""
    make_study(tree)
    tree.script("data/locate.sh", "exit 1")
    folder = "report/results/made-up/pi"
    output = tree.run("./run_all.sh --study pi --terms 7,8 --epochs 9 --repeats 2")
    assert tree.rows("stage hidden epochs", f"{folder}/runs.csv") == " ".join(
        ["00_sum,7,9 00_sum,8,9"] * 2)
    assert "00_sum, terms 8, round 2; 1 to go, about 1 s" in output
    assert f"Written to {tree.root}/{folder}: runs.csv, " in output
    assert "; `make report` draws them" in output
    assert "unknown option '--hidden'" in tree.sweep("--study pi --hidden 8", 2)
    assert tree.sweep("--study nonsense", 2) == (
        "run_all.sh: --study: found 'nonsense', expected one of: stages pi\n")


def test_no_axes_and_a_flag(tree):
    """A ladder without axes has one cell. A setting that is true or false is an option without a
    value."""
    make_study(tree)
    text = Path("studies/pi/ladder.toml").read_text()
    tree.write("studies/pi/ladder.toml",
               re.sub(r"(?s)\[\[axes\]\].*(\[settings\])", r"\1\nterms = 50", text))
    for options in ("", "--exact", "--terms 60"):
        output = tree.sweep(f"--study pi --resume {options}")
    assert tree.rows("stage hidden exact") == "00_sum,50,0 00_sum,50,1 00_sum,60,0"
    # One program's words are the other's, but for the flag.
    assert [re.sub(".*/run (.*) --quiet.*", r"\1", call) for call in tree.calls()] == [
        "--terms 50 --epochs 5 --pace 0.1", "--terms 50 --epochs 5 --pace 0.1 --exact",
        "--terms 60 --epochs 5 --pace 0.1"]
    assert "\n00_sum, round 1; " in output
    # Settings that differ share no table.
    assert Path("results/tables.txt").read_text().count("  00_sum ") == 3
    assert re.search(r"--exact +\(off\)", tree.sweep("--study pi --help"))


def test_all_ladders(tree):
    """One after the other, and one that fails does not stop the next."""
    make_study(tree)
    tree.stage("00_one", "exit 3")
    tree.sweep("--all", 1)
    assert tree.rows("stage", "results/stages/runs.csv") == "01_two"
    assert tree.rows("stage", "results/pi/runs.csv") == "00_sum"


# --- what is said ---

def test_progress(tree):
    output = tree.sweep("--hidden 1000 --repeats 2")
    assert "00_one, hidden 1000, batch 4, round 1; 4 to go, time not known yet\n" in output
    assert "00_one, hidden 1000, batch 4, round 2; 2 to go, about 1 s\n" in output
    # Hidden 2000 and 4000 at 10 s for each 1000, and 5 s for each to load.
    tree.stage("00_one", "time_s=10 load_s=5")
    output = tree.sweep("--stages 00 --hidden 1000,2000,4000")
    assert "00_one, hidden 2000, batch 4, round 1; 2 to go, about 70 s\n" in output


def test_bar(tree):
    """On a terminal there is a bar. Without python3-rich there are lines."""
    tree.write("broken/rich.py", "raise ImportError\n")
    command = f"script -qec '{SWEEP} --repeats 2' /dev/null"
    lines = tree.run(command, PYTHONPATH="broken").split("\n")
    for shown in (lines, tree.run(command, TERM="dumb").split("\n")):
        assert {"Building 00_one; 2 to go\r", "Building 01_two; 1 to go\r",
                "00_one, hidden 8, batch 4, round 1; 4 to go, time not known yet\r"} <= {*shown}
    if not importlib.util.find_spec("rich"):
        pytest.skip("found no python3-rich")
    screen = tree.run(command)
    # The bar is one line, rewritten, and it is gone when the tables come.
    assert re.search("\x1b\\[2KBuilding 01_two .* 1 to go", screen)
    assert re.search("\x1b\\[2K00_one, hidden 8, batch 4, round 1 .*4 to go, time not known yet\r"
                     "\x1b\\[2K01_two", screen)
    assert re.search("01_two, hidden 8, batch 4, round 2 .* 1 to go, about 1 s", screen)
    assert sum("to go" in line for line in screen.split("\n")) == 1


def test_wrong_options(tree, capsys, monkeypatch):
    """Each is one line and exit status 2."""
    monkeypatch.setattr(sys, "argv", ["run_all.sh"])
    found = {"--hidden": ["0", "32,", "32;64", "3_2", "٣٢"], "--batch": ["-1", ""],
             "--learning-rate": ["0_1"], "--epochs": ["abc", "1,2"], "--repeats": ["1.5"],
             "--threads": ["0", "1,1_0", "1,,2", "1,2,", "2-4", "1,0", ""],
             "--stages": [",", ""], "--output": [""], "--data": [""]}
    cases = [(f"{option}={text}", f"{option}: found '{text}', expected ")
             for option, texts in found.items() for text in texts]
    for word, message in (*cases, ("--nonsense", "unknown option '--nonsense'"),
                          ("--quick=1", "--quick: ignored explicit argument '1'"),
                          ("results", "unknown option 'results'"),
                          ("--hidden", "--hidden: expected one argument")):
        with pytest.raises(SystemExit) as ended:
            sweep.parse([word])
        said = capsys.readouterr().err
        assert (ended.value.code, said.count("\n")) == (2, 1)
        assert said.startswith(f"run_all.sh: {message}")
    assert tree.sweep("--stages 00,09", 2) == (
        "run_all.sh: --stages: found '09', expected one of: 00_one 01_two\n")


def test_help(tree):
    assert {*re.findall(r"^  --(\w+) ", tree.sweep("--help"), re.MULTILINE)} == {
        "study", "all", "stages", "steps", "peers", "gpu", "hidden", "batch", "epochs", "pace",
        "repeats", "threads", "quick", "data", "output", "resume", "growth"}


# --- interruption ---

@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_is_interrupted_and_resumed(tree, number):
    """Its rows are those of one that was not. A stage ends with the sweep, though it takes its
    time."""
    options = "--hidden=8,16 --batch=4,8 --repeats=2"
    tree.sweep(options)
    whole = tree.rows("stage hidden batch")
    Path("calls").unlink()
    tree.stage("01_two", """[ -e go ] || [ "$(grep -c two calls)" -lt 3 ] || {
        trap "sleep 0.2; exit 1" TERM; echo $$ >pid; while :; do sleep 0.02; done; }""")
    process = tree.start(f"{SWEEP} {options}")
    wait_until(lambda: Path("pid").exists() and Path("pid").read_text())
    process.send_signal(number)
    output = tree.end(process, 128 + number)
    assert not Path(f"/proc/{Path('pid').read_text().strip()}").exists()
    assert "\nTraining time (s)\n" in output
    assert output.endswith(f"Interrupted; to go on: {SWEEP.split(' ', 2)[2]} {options} --resume\n")
    first = Path("results/runs.csv").read_text()
    assert first.count("\n") == 6
    Path("go").touch()
    tree.sweep(f"{options} --resume")
    assert Path("results/runs.csv").read_text().startswith(first)
    assert tree.rows("stage hidden batch") == whole


def test_ctrl_c_ends_every_program_without_a_word(tree):
    """However early it comes: at the start of Python, which only run_all.sh can know of; in the
    imports; in main()."""
    interrupt = "import os, signal; os.kill(os.getpid(), signal.SIGINT)\n"
    tree.write("start/sitecustomize.py", interrupt)
    tree.write("imports/argparse.py", interrupt)
    tree.write("harness/mine.py", f"""import tempfile
def main():
    with tempfile.TemporaryDirectory(dir="left"):
        {interrupt}""")
    Path("left").mkdir()
    programs = [f"{REPOSITORY}/harness/start.py {name}" for name in (
        "compare", "ladders", "report.tables", "check", "verify", "report.class", "profile")]
    for where, commands in (("start", ["./run_all.sh"]), ("imports", ["./run_all.sh", *programs]),
                            ("left", ["harness/start.py mine"])):
        for command in commands:
            assert tree.run(str(command), 130, PYTHONPATH=where) == "", (where, command)
    assert not os.listdir("left")
    tree.run("env --ignore-signal=INT harness/start.py mine")  # as nohup does
    # deps.sh has ended well although it was interrupted, too.
    tree.script("deps.sh", "kill -INT $PPID")
    tree.run("./run_all.sh --output results", 130)
    assert not Path("results").exists()


def test_interrupted_while_it_builds(tree):
    """It keeps its rows and says how to go on."""
    tree.sweep()
    tree.write("stages/01_two/Makefile", "run: FORCE\n\ttouch building; sleep 60\nFORCE:\n")
    process = tree.start(f"{SWEEP} --hidden 8,9 --resume")
    wait_until(Path("stages/01_two/building").exists)
    process.terminate()
    output = tree.end(process, 143)
    assert re.search(r"^  01_two Δ +0\.400$", output, re.MULTILINE)  # its Makefile has changed
    assert output.endswith("to go on: run_all.sh --output results --hidden 8,9 --resume\n")


def test_interrupted_while_a_program_starts(tree):
    """It ends with the sweep all the same, and does not hold the lock."""
    tree.write("interrupt/sitecustomize.py", """import os, signal, subprocess
start = subprocess.Popen._execute_child
def interrupted(self, args, *rest):
    start(self, args, *rest)
    if "01_two/run" in str(args):
        os.kill(os.getpid(), signal.SIGTERM)
subprocess.Popen._execute_child = interrupted
""")
    tree.stage("01_two", "exec sleep 60")
    tree.sweep("", 143, PYTHONPATH="interrupt")
    tree.sweep("--resume --stages 00")


def test_two_sweeps_do_not_write_to_one_folder(tree):
    """Nor does a second wait for ever."""
    tree.stage("00_one", "touch started; while [ ! -e go ]; do sleep 0.02; done")
    process = tree.start(f"{SWEEP} --repeats 1")
    wait_until(Path("started").exists)
    # The first one is killed, but the stage that it was running goes on.
    process.kill()
    process.wait()
    assert "another run_all.sh is writing there" in tree.sweep("--resume", 2)
    Path("go").touch()
    tree.run("flock results true")
    tree.sweep("--resume")
    assert tree.rows("stage") == "00_one 01_two"


# --- results ---

def test_earlier_results_are_moved_aside(tree):
    """Never overwritten, and those of the same second to a folder each."""
    for hidden in (8, 9, 10):
        tree.sweep(f"--hidden {hidden} --stages 00")
        os.utime("results/runs.csv", (1707000000, 1707000000))
    assert tree.rows("hidden") == "10"
    first, second = sorted(Path("results").glob("2024-02-0*"))
    assert second.name == f"{first.name}-2"
    assert [tree.rows("hidden", folder / "runs.csv") for folder in (first, second)] == ["8", "9"]
    for folder in (first, second):
        assert {path.name for path in folder.iterdir()} == {
            path.name for path in Path("results").iterdir() if path.is_file()}


def test_resume_counts_only_rows_of_the_same_sweep(tree):
    tree.sweep()
    tree.sweep("--resume")
    for number, setting in enumerate(("", "--epochs 7", "--pace 0.2", ""), 1):
        tree.sweep(f"--stages 00 --resume {setting}")
        assert len(tree.rows("stage").split()) == min(number, 3) + 1
    tree.write("digits/SYNTHETIC", "")
    tree.stage("00_one", "dataset=synthetic")
    tree.sweep("--stages 00 --resume")
    assert len(tree.rows("stage").split()) == 5


def test_kaggles_csv(tree):
    """It is a data set of its own, also beside a file SYNTHETIC."""
    Path("digits/train-images-idx3-ubyte").rename("digits/train.csv")
    tree.write("digits/SYNTHETIC", "")
    tree.stage("00_one", "dataset=csv")  # as common/data.c has it
    tree.run(f"{SWEEP} --stages 00 --repeats 2")
    assert tree.rows("stage") == "00_one 00_one"


def test_resume_on_other_data(tree):
    """Other files of the same name are refused, whether gzipped or not."""
    labels = tree.write("digits/train-labels-idx1-ubyte", "one\n")
    tree.sweep()
    labels.with_suffix(".gz").write_bytes(gzip.compress(labels.read_bytes()))
    labels.unlink()
    tree.sweep("--repeats 2 --resume")
    labels.with_suffix(".gz").write_bytes(gzip.compress(b"other"))
    assert "has runs on other files of 'mnist': expected the same --data" in tree.sweep(
        "--repeats 3 --resume", 2)
    assert len(tree.calls()) == 4
    tree.write("digits/SYNTHETIC", "")
    tree.stage("00_one", "dataset=synthetic")
    tree.sweep("--stages 00 --resume")


def test_paths(tree):
    """They are relative to where it is called, and may be patterns."""
    Path("digits").rename("[digits]")
    Path("elsewhere").mkdir()
    output = tree.run("env --chdir elsewhere ../run_all.sh --output here --data ../[digits]")
    assert f"Data: {tree.root}/[digits] (mnist)" in output
    assert Path("elsewhere/here/runs.csv").stat().st_size


def test_folders_that_cannot_be_written_to(tree):
    tree.write("file", "")
    for folder in ("/proc", "file/results", "file"):
        said = tree.run(f"harness/start.py report.run_all run_all.sh --output {folder}", 2)
        assert re.fullmatch(r"run_all.sh: .*: cannot write there; name another directory with "
                            r"--output\n", said)
    assert not tree.calls()


def test_what_is_no_file(tree):
    """It is refused before the sweep where a sweep writes a file."""
    tree.results.mkdir()
    for name in ("runs.csv", "sweeps.csv", "programs.csv", "tables.txt"):
        for make, message in ((lambda file: file.symlink_to(file.name),
                               "cannot write: Too many levels of symbolic links"),
                              (os.mkfifo, "found a pipe, expected a file")):
            make(tree.results / name)
            assert tree.sweep("--resume", 2) == f"run_all.sh: {tree.results}/{name}: {message}\n"
            (tree.results / name).unlink()


def test_a_full_disk(tree):
    """One line that names the file, which is then as it was: rows are whole."""
    limited = f"bash -c 'ulimit -f 2; exec {SWEEP} --resume --repeats 9 --stages 00'"
    tree.stage("00_one", "loss=0.3$(printf %0600d 0)")
    assert tree.run(limited, 1).endswith(f"\nrun_all.sh: {tree.results}: File too large\n")
    assert 1 <= len(tree.rows("stage").split()) <= 3
    tree.stage("00_one", "printf %03000d 0 >&2; exit 1")
    before = Path("results/programs.csv").read_text()
    assert tree.run(limited, 1).endswith(
        f"\nrun_all.sh: {tree.results}/programs.csv: cannot write: File too large\n")
    assert Path("results/programs.csv").read_text().startswith(before)
    assert {path.name for path in tree.results.iterdir()} <= {
        "runs.csv", "sweeps.csv", "programs.csv", "tables.txt"}  # no part of a file


# --- epochs ---

EPOCHS = """for epoch in 1 2; do
    [ -z "$log" ] || add_row "$log" run,epoch,epoch_s,samples_per_s,test_accuracy \\
        "$$,$epoch,0.2,1000,0.9"
    {after}
done"""


@pytest.fixture
def epochs(tree):
    """The repository, whose ladder has a file of epochs. A function that gives those of a file."""
    tree.edit("stages/ladder.toml", "[[axes]]\noption = \"batch\"",
              "epochs = \"log\"\n[[axes]]\noption = \"batch\"")
    for name in ("00_one", "01_two"):
        tree.stage(name, EPOCHS.format(after=""))
    return lambda folder="results": tree.rows("stage hidden epoch", f"{folder}/epochs.csv")


def test_epochs(tree, epochs):
    """They have a file beside the rows, which goes with them."""
    assert f"Written to {tree.results}: runs.csv, epochs.csv, " in tree.sweep()
    one, two = "00_one,8,1 00_one,8,2", "01_two,8,1 01_two,8,2"
    assert epochs() == f"{one} {two}"
    # Resuming makes the missing runs only.
    tree.sweep("--hidden 8,9 --resume")
    assert epochs() == f"{one} {two} " + f"{one} {two}".replace("8", "9")
    # A new sweep moves both files aside, even if no run has ended.
    Path("results/runs.csv").write_text("")
    tree.sweep("--hidden 7 --stages 00")
    assert epochs() == "00_one,7,1 00_one,7,2"
    aside, = Path("results").glob("2*")
    assert len(epochs(aside).split()) == 8


def test_epochs_of_a_run_without_a_row_are_taken_back(tree, epochs):
    """Whether it was stopped or failed."""
    tree.stage("01_two", EPOCHS.format(after="[ -e go ] || { touch held; exec sleep 60; }"))
    process = tree.start(f"{SWEEP} --repeats 1")
    wait_until(Path("held").exists)
    process.terminate()
    tree.end(process, 143)
    assert epochs() == "00_one,8,1 00_one,8,2"
    Path("go").touch()
    tree.sweep("--resume")
    assert epochs() == "00_one,8,1 00_one,8,2 01_two,8,1 01_two,8,2"
    # The first run of all fails after an epoch. The next one writes the header.
    tree.stage("00_one", EPOCHS.format(after="echo 'the loss became nan' >&2; exit 1"))
    tree.sweep("", 1)
    assert tree.notes()["00_one"].endswith("exit status 1: the loss became nan")
    assert epochs() == "01_two,8,1 01_two,8,2"


@pytest.mark.parametrize(("name", "line", "old", "new", "message"), [
    ("runs", 3, ",0.4,", ",nan,", "time_s: found 'nan', expected a number, not below 0"),
    ("runs", 3, ",8,", ",0,", "hidden: found '0', expected a whole number from 1"),
    ("runs", 3, ",8,", ",a[$(touch evaluated)],",
     "hidden: found 'a[$(touch evaluated)]', expected a whole number from 1"),
    ("runs", 3, ",8,", ",", "found 23 columns, expected 24"),
    ("runs", 3, "100.0\n", "", "ends within a row; delete that row to resume"),
    ("epochs", 3, ",0.2,", ",nan,", "epoch_s: found 'nan', expected a number, not below 0"),
    ("epochs", 2, ",0.9\n", ",\n", "test_accuracy: found '', expected a number"),
    ("epochs", 1, ",run,", ",name,", "found no column 'run', expected the header of --csv"),
    ("epochs", 5, ",0.9\n", "", "ends within a row; delete that row to resume")])
def test_rows_that_cannot_be_read(tree, epochs, name, line, old, new, message):
    """They are refused before the sweep, and the tables stay. Without --resume they are moved aside
    as they are."""
    tree.sweep()
    file, before = tree.results / f"{name}.csv", (tree.calls(), epochs())
    tables = Path("results/tables.txt").read_text()
    lines = file.read_text().splitlines(keepends=True)
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    file.write_text("".join(lines))
    assert tree.sweep("--repeats 2 --resume", 2) == f"run_all.sh: {file}: line {line}: {message}\n"
    assert tree.calls() == before[0] and Path("results/tables.txt").read_text() == tables
    assert not Path("evaluated").exists()
    if name == "epochs":
        tree.sweep()
        aside, = Path("results").glob("2*/epochs.csv")
        assert aside.read_text() == "".join(lines)
        assert epochs() == before[1]


# --- programs that do not work ---

def test_what_becomes_of_programs(tree):
    """One that does not work is left out of the rest of the sweep, with the reason, and fails it.
    The others run."""
    shutil.copy(REPOSITORY / "Makefile", ".")
    # Of the times of those that are right.
    tree.edit("harness/running.py", "ROUNDING_S = 1e9", "ROUNDING_S = 0.55")
    why = "no CUDA device; try another"
    cases = {  # outcome, reason, commands
        "01_two": ("no device", "no CUDA device", f"echo '01_two: {why}' >&2; exit 77"),
        "02_same": ("no device", "no CUDA device", f"echo '02_same: {why}' >&2; exit 77"),
        "03_memory": ("failed", "at hidden 16, batch 4: exit status 1: out of memory",
                      "[ $hidden = 8 ] || { echo 'out of memory' >&2; exit 1; }"),
        "04_crash": ("failed", "at hidden 8, batch 4: killed by signal 11", "kill -SEGV $$"),
        "05_no_row": ("failed", "at hidden 8, batch 4: wrote no row to its --csv", "exit 0"),
        "06_phases": ("failed", "at hidden 8, batch 4: its times cannot be right: "
                   "forward_s + backward_s is 1 s, more than "
                      "time_s, 0.4 s", "phase_s=0.5"),
        "07_clock": ("failed", "at hidden 8, batch 4: its times cannot be right: "
                   "load_s + setup_s + time_s is 40.11 s, more "
                     "than the whole run by the harness's clock, 0.N s", "time_s=40"),
        "08_loss": ("differs", "hidden 16, batch 4: loss is 0.32, and 0.3 in most others",
                    "[ $hidden = 8 ] || loss=0.32")}
    for name, (*_, commands) in cases.items():
        tree.stage(name, commands)
    tree.stage("10_cuda", source="run.cu")
    tree.script("bin/nvidia-smi", "echo GPU 0")
    tree.environment["PATH"] = f"{tree.root}/bin:{os.environ['PATH']}"
    cases["10_cuda"] = "left out", "found no no-such-nvcc (the CUDA toolkit) in PATH", ""
    output = tree.sweep("--hidden 8,16", 1, NVCC="no-such-nvcc")
    assert {name: re.sub(r"0\.\d+ s$", "0.N s", note) if "clock" in note else note
            for name, note in tree.notes().items()} == {
        name: f"{outcome}: {reason}" for name, (outcome, reason, _) in cases.items()}
    assert tree.counts() == {"00_one": 2, "03_memory": 1, "08_loss": 2}
    assert sum("01_two/run" in call for call in tree.calls()) == 1
    # Below the tables and while it runs, a reason that several share is said once.
    assert output.count("no CUDA device") == 2
    assert "\n01_two, 02_same: no device: no CUDA device\n" in output
    assert re.search(r"^  08_loss +0\.400 +0\.400≠$", output, re.MULTILINE)
    # When one is mended, its runs are made.
    tree.stage("03_memory")
    tree.sweep("--hidden 8,16 --stages 03 --resume", 1)  # for 08_loss, which still differs
    assert tree.counts()["03_memory"] == 2 and "03_memory" not in tree.notes()
    # Damaged data are no failed run.
    tree.stage("00_one", "exit 2")
    assert "\nno finished runs\n" in tree.sweep("--stages 00", 2)


def test_a_stage_that_does_not_build(tree):
    """The note has the reason, not what follows from it."""
    cases = {
        "02_undeclared": ("int main(void) { return x; }", "gcc", "run.c:1:25: error: .x. undecl"),
        "03_undefined": ("int f(void); int main() { return f(); }", "gcc", "undefined reference"),
        "04_library": ("int main(void) { return 0; }", "gcc -lno_such", "cannot find -lno_such"),
        "05_compiler": ("", "no-such-compiler", "no-such-compiler: No such file")}
    for name, (source, compiler, _) in cases.items():
        tree.write(f"stages/{name}/run.c", source)
        tree.write(f"stages/{name}/Makefile", f"run: run.c\n\t{compiler} $< -o $@\n")
    tree.sweep("", 1)
    for name, (_, _, reason) in cases.items():
        assert re.match(f"not built: .*{reason}", tree.notes()[name])
    assert str(tree.root) not in Path("results/programs.csv").read_text()


# --- peers ---

def peers(tree, **programs):
    """Gives the ladder peers in C: {name: commands}."""
    tree.write("stages/peers/Makefile", "peer_%: ;\nversions:\n\t@echo peers: none\n")
    for name, commands in programs.items():
        tree.write(f"stages/peers/{name}.c", "")
        tree.program(f"stages/peers/{name}", name, commands)


def test_no_variable_of_the_environment_changes_a_peer(tree):
    peers(tree, peer_one="env >seen; exit 77")
    cleared = re.findall(r"\w+", """ATEN_CPU_CAPABILITY BLIS_ARCH_TYPE CUBLAS_WORKSPACE_CONFIG
        CUDA_LAUNCH_BLOCKING DNNL_MAX_CPU_ISA JAX_ENABLE_X64 KMP_BLOCKTIME LIBXSMM_TARGET
        MKL_NUM_THREADS NPY_DISABLE_CPU_FEATURES NUMBA_DISABLE_JIT NVIDIA_TF32_OVERRIDE
        ONEDNN_MAX_CPU_ISA ONEDNN_DEFAULT_FPMATH_MODE OPENBLAS_CORETYPE XLA_FLAGS
        TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCHINDUCTOR_MAX_AUTOTUNE""")
    tree.sweep("--peers --stages 00", **dict.fromkeys(cleared, "1"), OMP_PLACES="cores", KEPT="1")
    seen = dict(line.split("=", 1) for line in Path("seen").read_text().splitlines())
    assert seen["KEPT"] == "1" and seen["OMP_PLACES"] == "cores"  # the sweep notes OpenMP's
    assert not seen.keys() & {*cleared}
    # Without AVX-512 for the stages, the libraries do without it, too.
    tree.sweep("--peers --stages 00", MARCH="x86-64-v3")
    assert {"OPENBLAS_CORETYPE=Haswell", "LIBXSMM_TARGET=hsw"} <= {
        *Path("seen").read_text().splitlines()}


def test_gpu(tree):
    """Only stages and peers for a GPU."""
    tree.stage("03_cuda", source="run.cu")
    tree.write("stages/03_cuda/Makefile", "DEVICE = gpu\nrun: ;\n")
    peers(tree)
    tree.edit("stages/peers/Makefile", "peer_%:", "peer_two_DEVICE = gpu\npeer_%:")
    for name, about in (("one", "Peer one, eager. No GPU."), ("two", "Peer two on a GPU, eager.")):
        tree.write(f"stages/peers/peer_{name}.py",
                   f'#!/usr/bin/python3\n"""{about}"""\nimport sys\nsys.exit(77)\n', 0o755)
    tree.script("bin/nvidia-smi", "exit 9")
    path = f"{tree.root}/bin:{os.environ['PATH']}"
    tree.sweep("--gpu --peers", PATH=path, NVCC="true")
    assert tree.rows("stage") == ""
    assert tree.notes()["03_cuda"] == "no device: found no GPU (nvidia-smi lists none)"
    tree.script("bin/nvidia-smi", "echo GPU 0")
    tree.sweep("--gpu --peers", PATH=path, NVCC="true")
    assert tree.rows("stage") == "03_cuda"
    assert tree.notes().keys() == {"peer_two"}


def test_the_state_of_the_gpu(tree):
    """Its clocks, power and temperature before and after the sweep, also one that is
    interrupted."""
    def states():
        lines = Path("results/sweeps.csv").read_text().splitlines()
        return [line for line in lines if line.split(",")[1].startswith("gpu")]

    tree.sweep()
    assert not states()
    shutil.copy(REPOSITORY / "harness/machine.sh", "harness")
    tree.script("bin/nvidia-smi", """case $* in
        -L) echo 'GPU 0: Fake GPU' ;;
        *=name*) echo 'Fake GPU, 80 GiB, 570.1' ;;
        *=clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,temperature.gpu*)
            echo >>degrees
            echo "345 MHz, 1980 MHz, 2619 MHz, 71.20 W, 700.00 W, $(wc -l <degrees)"
            echo '1 MHz, 1 MHz, 1 MHz, 1 W, 1 W, 99' ;;
        *) exit 2 ;;
        esac""")
    tree.stage("01_two", "touch held; exec sleep 60")
    process = tree.start(f"{SWEEP} --repeats 1", PATH=f"{tree.root}/bin:{os.environ['PATH']}")
    wait_until(Path("held").exists)
    process.terminate()
    tree.end(process, 143)
    state = '"345 MHz of 1980 MHz, memory 2619 MHz, power 71.20 W of 700.00 W, temperature'
    assert states() == ['1,gpu,"Fake GPU, 80 GiB, 570.1"', f'1,gpu before,{state} 1 C"',
                        f'1,gpu after,{state} 2 C"']


# --- real stages ---

def digits():
    """A folder with MNIST or what stands for it."""
    for folder in (os.environ.get("MNIST_DIR") or "none", REPOSITORY / "data/mnist",
                   REPOSITORY / "data/synthetic"):
        if [*Path(folder).glob("t10k-labels-idx1-ubyte*")]:
            return Path(folder).absolute()
    return pytest.skip("found no digits in $MNIST_DIR or data/")


def real_stage(tree, name):
    """A stage of the repository, which replaces those that pretend."""
    shutil.rmtree("stages")
    shutil.copytree(REPOSITORY / "common", "common")
    for path in (f"stages/{name}/Makefile", f"stages/{name}/train.c", "stages/ladder.toml",
                 *(f"stages/{path.name}" for path in (REPOSITORY / "stages").glob("*.[ch]"))):
        tree.write(path, (REPOSITORY / path).read_text())
    tree.edit("stages/ladder.toml", "baseline =", "#")
    tree.edit("harness/running.py", "ROUNDING_S = 1e9", "ROUNDING_S = 1e-5")


def test_a_real_stage(tree):
    """00_serial on the digits there are, by run_all.sh."""
    real_stage(tree, "00_serial")
    output = tree.run(f"./run_all.sh --data {shlex.quote(str(digits()))} --output results "
                      "--hidden 2 --batch 128 --epochs 1 --repeats 2")
    assert tree.rows("stage hidden batch") == "00_serial,2,128 00_serial,2,128"
    assert re.search(r"^  00_serial +0\.\d+ [-+~]", output, re.MULTILINE)


def test_each_thread_has_a_core_of_its_own(tree):
    """Among those that the sweep may use."""
    real_stage(tree, "02_openmp")
    data, cpus = digits(), sorted(os.sched_getaffinity(0))

    def used(mask):
        output = tree.run(
            f"taskset {mask} {SWEEP} --data {shlex.quote(str(data))} --threads 1,2,4 --hidden 256 "
            "--batch 32 --epochs 1 --train 64 --test 8 --repeats 1",
            OMP_DISPLAY_AFFINITY="true", OMP_AFFINITY_FORMAT="thread %n of %N on %A")
        return tree.rows("threads").split(), output

    # A mask of one core has one thread there, whatever --threads says.
    for cpu in {cpus[0], cpus[-1]}:
        assert used(f"-c {cpu}")[0] == ["1"]
    if len({Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
            for cpu in cpus}) < 2:
        pytest.skip("one core")
    # A mask of 32 bits may have more than there are cores.
    threads, output = used("ffffffff")
    assert {"1", "2"} <= {*threads}
    assert len({*re.findall(r"^thread [01] of 2 on (\S+)", output, re.MULTILINE)}) == 2
