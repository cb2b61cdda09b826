"""Tests bench/sweep.py in a made-up repository (conftest.py): which runs are made, and what
becomes of their rows."""

import itertools
import os
import re
import shlex
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import LADDER, REPOSITORY, SWEEP, wait_until

from programs import drawn_data, make

from bench import command_line, jobs, ladders, measuring

RUN_ALL = SWEEP.partition(" --")[0]

# --- which runs are made ---

def test_grid(tree):
    """The whole grid three times, into a folder named after the machine: the headline's cells, then
    the others from the largest. The stages of a cell run side by side, its repeats a pass apart."""
    tree.edit("stages/ladder.toml", "[8]", "[8, 16]")
    tree.edit("stages/ladder.toml", "phases", "headline = [[4, 8], [4, 16]]\nphases")
    tree.edit("stages/ladder.toml", "[4]", "[4, 5]")
    tree.data("elsewhere/[other]")
    output = tree.run(f"{RUN_ALL} --epochs=2 --data elsewhere/[other]")
    places = "4,16", "4,8", "5,16", "5,8"
    once = [",".join(row) for row in itertools.product(places, ("00_one", "01_two"))]
    path = "report/results/made-up/stages/runs.csv"
    assert tree.rows("batch hidden stage", path).split() == once * 3
    assert {*tree.rows("epochs", path).split()} == {"2"}
    assert f"Data: {tree.root}/elsewhere/[other] (mnist)" in output
    assert re.search("\n01_two, hidden 16, batch 4, round 2; 15 to go\n", output)
    assert Path(path).with_name("tables.txt").read_text() in output
    # A quick look has a grid and a folder of its own, no program for several machines, and a run of
    # over 0.5 s is not repeated.
    tree.stage("00_one", "time_s=0.6")
    tree.stage("02_many")
    tree.write("stages/02_many/Makefile", "RUN = env\nrun: ;\n")
    tree.edit("stages/ladder.toml", "[8, 16]", "[8, 16]\nquick = [16]\n[quick]\nepochs = 1")
    tree.run(f"{RUN_ALL} --quick --batch 4")
    assert tree.counts("stage hidden epochs", "report/results/made-up-quick/stages/runs.csv") == {
        "00_one,16,1": 1, "01_two,16,1": 3}


def test_run_all_is_called_by_a_link(tree):
    """Paths are relative to where it is called."""
    tree.write("elsewhere/empty/file", "")
    Path("elsewhere/link").symlink_to("../run_all.sh")
    assert f"DIR: found no data in '{tree.root}/elsewhere/empty', expected" in tree.run(
        "env --chdir elsewhere ./link --data empty", 2)


@pytest.mark.parametrize(("kind", "seconds", "is_gpu", "expected"), [
    ("grid", 0.06, False, 12), ("grid", 0.25, False, 4), ("grid", 0.4, False, 3),
    ("grid", 5.5, False, 2), ("grid", 20.5, False, 1), ("grid", 0.0625, True, 16),
    ("grid", 0.004, True, 250), ("grid", 0.3, True, 4), ("quick", 0.4, False, 3),
    ("quick", 0.6, False, 1), ("steps", 0.9, True, 16), ("steps", 1.1, False, 8),
    ("growth", 0.1, False, 3), ("growth", 2, False, 1), ("limited steps", 0.9, False, 8),
    ("limited steps", 6, False, 2), ("limited steps", 21, False, 1)])
def test_rounds(kind, seconds, is_gpu, expected):
    """A cell is run until a second has been timed, and long runs twice or once. On a GPU, whose
    runs are short, the limit is higher."""
    times = []
    while len(times) < jobs.rounds(kind, times, is_gpu=is_gpu):
        times.append(seconds)
    assert len(times) == expected
    assert jobs.rounds("grid", [0.01], least=0.5) == 3  # what a run repeats for half a second
    assert jobs.rounds("limited steps", [0.01], whole=21) == 1


@pytest.mark.parametrize(("words", "said"), [
    ("--hidden 0", "--hidden: found '0', expected a whole number from 1"),
    ("--epochs 1,2", "--epochs: found '1,2', expected a whole number from 0"),
    ("--stages 00,09", "--stages: found '09', expected one of: 00 01"),
    ("--growth", "--growth: found no [growth] in stages/ladder.toml"),
    ("--output /proc/no", "/proc/no: cannot write there; name another directory with --output"),
    ("--output=", "--output: found '', expected text"),
    ("--hidden '8\n9'", "--hidden: found '8?9', expected a whole number from 1"),
    ("--threads 1,2147483648",
     "--threads: found '2147483648', expected a whole number from 1 to 2147483647"),
    ("--nonsense", "unrecognized arguments: --nonsense")])
def test_wrong_options(tree, words, said):
    assert tree.run(f"{SWEEP} {words}", 2) == f"run_all.sh: {said}\n"
    assert not tree.calls()


def study(tree):
    """The ladder studies/pi, which has a flag and no axes, and needs no data."""
    text = re.sub(r"(?s)\[\[axes\]\].*(\[settings\])", r"\1\nbatch = 4\nterms = 50\nexact = false",
                  LADDER.replace('data = "../data/mnist.py"\n', ""))
    tree.write("studies/pi/ladder.toml", f'{text}[columns]\nterms = "hidden"\n')
    tree.stage("00_sum", "dataset=drawn hidden=$terms", ladder="studies/pi")


def test_a_study(tree):
    """It has its own options and its own results. One that is true or false has no value."""
    study(tree)
    for options in ("", "--exact", "--terms 60"):
        tree.sweep(f"--study pi --resume {options}")
    assert tree.rows("stage hidden exact") == "00_sum,50,0 00_sum,50,1 00_sum,60,0"
    rest = "--epochs 5 --pace 0.1"
    assert [re.sub(".*/run (.*) --quiet.*", r"\1", call) for call in tree.calls()] == [
        f"--batch 4 --terms 50 {rest}", f"--batch 4 --terms 50 --exact {rest}",
        f"--batch 4 --terms 60 {rest}"]
    assert "unrecognized arguments: --hidden" in tree.sweep("--study pi --hidden 8", 2)


def test_kinds(tree):
    """The steps are measured with all stages, in two cells; and one whose Makefile names another
    CELL there, too, beside the one before. Rows of each kind stay where another kind is measured,
    and --resume does not count them."""
    tree.stage("01.1_step")
    tree.sweep("--stages 01 --epochs 3")
    grid = tree.rows("stage batch hidden epochs")
    tree.edit("stages/ladder.toml", "[settings]", "[rungs]\ncells = [[4, 8], [5, 9]]\nepochs = 3\n"
              "[settings]")
    tree.write("stages/01_two/Makefile",
               "PREDICTED = 2 × time\nCELL = hidden 7, batch 4\nrun: ;\n")
    tree.sweep("--steps --repeats 2")
    steps = {f"{stage},{cell},3": 2 for cell in ("4,8", "5,9", "4,7")
             for stage in ("00_one", "01.1_step", "01_two")}
    del steps["00_one,4,7,3"]  # it is neither the one that asks nor the one before
    assert tree.counts("stage batch hidden epochs") == Counter(steps) + Counter(grid.split())
    # A new sweep takes the place of its own kind only. What was there is in a folder.
    text = Path("results/runs.csv").read_text()
    tree.sweep("--stages 00 --hidden 7")
    assert tree.counts("stage batch hidden epochs") == {**steps, "00_one,4,7,5": 1}
    kinds = [line.split(",")[2] for line in Path("results/sweeps.csv").read_text().splitlines()
             if ",kind," in line]
    assert kinds == ["steps", "grid"]
    assert {*tree.rows("sweep", "results/programs.csv").split()} == {"2", "3"}
    aside, = Path("results").glob("20*")
    assert (aside / "runs.csv").read_text() == text
    assert {path.name for path in aside.iterdir()} == {"runs.csv", "sweeps.csv", "programs.csv"}


def test_growth(tree):
    """A short point three times, a long one once. It is resumed like any other sweep."""
    with open("stages/ladder.toml", "a") as file:
        file.write("[growth.base]\nhidden = 64\nbatch = 64\nepochs = 1\n[growth.values]\n"
                   "hidden = [1, 2, 64, 128]\nepochs = [1, 2, 3]\n"
                   "batch = [1, 4096]\n")
    # An epoch with 64 hidden units takes two seconds. So does its loss depend on the epochs, and
    # nothing is wrong with that.
    tree.stage("00_one", "threads=1; loss=0.$epochs; time_s=$((200 * hidden * epochs / 64))e-2")
    tree.stage("01_two", "exit 77")
    tree.sweep()
    expected = {"1,64,1": 3, "2,64,1": 3, "64,64,1": 1, "128,64,1": 1,
                "64,64,2": 1, "64,64,3": 1, "64,1,1": 1, "64,4096,1": 1}
    for resume in ("", "--resume"):
        tree.run(f"{SWEEP} --growth {resume}")
        assert tree.counts("hidden batch epochs") == {"8,4,5": 1, **expected}
    tree.run(f"{SWEEP} --growth --resume --hidden 1,2")  # from two other sizes on
    small = {f"{hidden},{rest}": 3 for hidden in (1, 2)
             for rest in ("64,1", "64,2", "64,3", "1,1", "4096,1")}
    assert tree.counts("hidden batch epochs") == {"8,4,5": 1, **expected, **small}


def test_a_list_of_threads(tree):
    """Each number for stages that use so many, one run for the others. More threads have more
    multiply-adds, which disturbs nobody."""
    tree.script("bench/machine/build/ceiling", "echo ${1}e11")
    tree.stage("00_one", "threads=1")
    # It can use two threads, or five with more hidden units.
    tree.stage("02_three", "most=$((hidden == 8 ? 2 : 5)); [ $threads -lt $most ] || threads=$most")
    tree.sweep("--hidden 8,16 --threads 1,8,4,2,2 --repeats 2", OMP_NUM_THREADS="3")
    assert '1,threads,"1,2,4,8"' in Path("results/sweeps.csv").read_text().splitlines()
    expected = {"00_one,8": [1], "00_one,16": [1], "01_two,8": [1, 2, 4, 8],
                "01_two,16": [1, 2, 4, 8], "02_three,8": [1, 2], "02_three,16": [1, 2, 4, 5]}
    expected = {f"{cell},{threads}": 2 for cell, used in expected.items() for threads in used}
    assert tree.counts("stage hidden threads") == expected
    # Wherever it stopped, the same runs are made in the end, and no more.
    whole = Path("results/runs.csv").read_text().splitlines(keepends=True)
    Path("results/runs.csv").write_text("".join(whole[:33]))
    tree.sweep("--hidden 8,16 --threads 8,4,2,1 --repeats 2 --resume")
    assert tree.counts("stage hidden threads") == expected
    assert " has runs with threads '1,2,4,8', not '1,8': expected the same --threads" in tree.sweep(
        "--threads 1,8 --resume", 2)
    # A stage that uses another number each time is a mistake, and the sweep ends.
    tree.stage("02_three", "[ $threads = 8 ] || threads=1")
    tree.sweep("--threads 1,2,8 --stages 02", 1)
    assert tree.notes()["02_three"] == (
        "failed: at hidden 8, batch 4, threads 2: its row has other options or threads")


def test_threads_are_bound(tree):
    """Where a program uses OpenMP itself, unless the environment says otherwise. RUN stands for
    mpirun, which places its processes. They are told how many they may start together."""
    spins, bound = "GOMP_SPINCOUNT=20000", "OMP_PLACES=cores OMP_PROC_BIND=true"
    cases = ("00_one", "", spins), ("01_two", "OPENMP = yes", f"{spins} {bound}"), (
        "02_three", "OPENMP = yes\nRUN = env", spins)
    for name, declared, _ in cases:
        tree.stage(name, 'env | grep -E "^(G?OMP|OPENBLAS)_" | sort | paste -sd" " >openmp.$stage')
        tree.write(f"stages/{name}/Makefile", f"{declared}\nrun: ;\n")
    tree.sweep()
    for name, _, expected in cases:
        assert Path(f"openmp.{name}").read_text().strip() == expected
    tree.run(f"{RUN_ALL} --output told --stages 02 --threads 2 --repeats 1")
    assert " --threads 2 " in Path("calls").read_text().splitlines()[-1]
    # Another choice of OpenBLAS's kernels would make a peer slower.
    tree.sweep("--stages 01", GOMP_SPINCOUNT="9", OMP_PLACES="threads", OPENBLAS_CORETYPE="Haswell")
    assert Path("openmp.01_two").read_text().split() == ["GOMP_SPINCOUNT=9", "OMP_PLACES=threads"]


# --- what is known of a run ---

def test_record(tree):
    """When, in which sweep and which round, how the machine was, and what became of each program,
    with a hash of its sources."""
    tree.script("bench/machine/build/ceiling", 'echo "$1" >>threads; echo 1.25e11')
    tree.write("stages/00_one/run.flags", "-O9\n")
    tree.stage("01_two", "threads=1")
    tree.write("others", "4.56")
    tree.sweep("--repeats 2 --threads 3")
    tree.write("stages/00_one/run.c", "int changed; // and a comment")
    tree.write("stages/01_two/run.c", "// a comment")
    tree.sweep("--repeats 3 --threads 3 --resume")
    assert tree.rows("stage sweep round") == (
        "00_one,1,1 01_two,1,1 00_one,1,2 01_two,1,2 00_one,2,3 01_two,2,3")
    assert {*tree.rows("others pace rate").split()} == {"4.6,0.1,125.0"}
    assert re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ,\d+\.\d+ ?){6}", tree.rows("began load"))
    assert Path("threads").read_text().split() == [*"313131"]
    words = "./run_all.sh --output results --repeats"
    assert {"sweep,key,value", f"1,command,{words} 2 --threads 3", "2,kind,grid",
            f"2,command,{words} 3 --threads 3 --resume", "2,threads,3",
            '2,data,"mnist, labels 00000000"'} <= {
                *Path("results/sweeps.csv").read_text().splitlines()}
    (one, _), (two, hash2), (one2, _), (two2, hash4) = (each.rsplit(",", 1) for each in tree.rows(
        "sweep program outcome flags sources", "results/programs.csv").split())
    assert (one, two, one2, two2) == (
        "1,00_one,ran,-O9", "1,01_two,ran,", "2,00_one,ran,-O9", "2,01_two,ran,")
    hash1, hash3 = tree.rows("sources", "results/programs.csv").split()[::2]
    assert hash1 != hash3 and hash2 == hash4


def test_a_disturbed_run_is_made_again(tree):
    """In the same round, by how the machine was and never by its own time. All rows stay."""
    tree.stage("00_one", 'time_s=0.$(wc -l <calls)')
    slow = "echo >>asked; case $(wc -l <asked) in {}) echo 5e10 ;; *) echo 1e11 ;; esac"
    tree.script("bench/machine/build/ceiling", slow.format("3"))
    output = tree.sweep("--threads 1 --repeats 2")
    assert "00_one, hidden 8, batch 4, round 2, disturbed, so again; " in output
    assert tree.rows("stage round rate") == (
        "00_one,1,100.0 01_two,1,100.0 00_one,2,50.0 00_one,2,100.0 01_two,2,100.0")
    # The rounds are complete, though the last run of one is disturbed.
    tree.script("bench/machine/build/ceiling", slow.format("[78]"))
    tree.sweep("--threads 1 --repeats 3 --resume")
    assert tree.counts("stage round") == {
        "00_one,1": 1, "01_two,1": 1, "00_one,2": 2, "01_two,2": 1, "00_one,3": 1, "01_two,3": 2}


def test_a_machine_that_is_disturbed_all_the_time(tree):
    """No more than a part of the runs is made again."""
    tree.write("others", "11")
    tree.sweep("--repeats 8")
    assert 16 + 4 <= len(tree.rows("stage").split()) <= 16 + 7


# --- interruption ---

def test_a_sweep_that_is_interrupted_and_resumed(tree):
    """Its rows are those of one that was not. A stage ends with the sweep, though it takes its
    time."""
    options = "--hidden=8,16 --batch=4,8 --repeats=2"
    tree.sweep(options)
    whole = tree.rows("stage hidden batch")
    Path("calls").unlink()
    tree.stage("01_two", """[ -e go ] || [ "$(grep -c two calls)" -lt 3 ] || {
        trap "sleep 0.2; exit 1" TERM; echo $$ >pid; for k in $(seq 999); do sleep 0.02; done; }""")
    process = tree.start(f"{SWEEP} {options}")
    wait_until(lambda: Path("pid").exists() and Path("pid").read_text(), process)
    os.killpg(process.pid, signal.SIGINT)
    output = tree.end(process, 130)
    assert not Path(f"/proc/{Path('pid').read_text().strip()}").exists()
    assert f"\nInterrupted; to go on: ./run_all.sh --output results {options} --resume\n" in output
    assert output.endswith(Path("results/tables.txt").read_text())
    first = Path("results/runs.csv").read_text()
    assert first.count("\n") == 6
    Path("go").touch()
    tree.sweep(f"{options} --resume")
    assert Path("results/runs.csv").read_text().startswith(first)
    assert tree.rows("stage hidden batch") == whole


def test_interrupted_while_it_builds(tree):
    tree.sweep()
    tree.write("stages/01_two/Makefile", "run: FORCE\n\ttouch building; sleep 600\nFORCE:\n")
    process = tree.start(f"{SWEEP} --hidden 8,9 --resume")
    wait_until(Path("stages/01_two/building").exists, process)
    process.terminate()
    assert "to go on: ./run_all.sh --output results --hidden 8,9 --resume\n" in tree.end(
        process, 143)
    assert tree.rows("stage") == "00_one 01_two"


def test_two_sweeps_do_not_write_to_one_folder(tree):
    """Nor does a second wait for ever."""
    tree.stage("00_one", "touch started; while [ ! -e go ]; do sleep 0.02; done")
    process = tree.start(f"{SWEEP} --repeats 1")
    wait_until(Path("started").exists, process)
    # The first one is killed, but the stage that it was running goes on.
    process.kill()
    process.wait()
    assert "another run_all.sh is writing there" in tree.sweep("--resume --stages 01", 2)
    Path("go").touch()
    tree.run("flock results true")
    tree.sweep("--resume")
    assert tree.rows("stage") == "00_one 01_two"


def test_a_limit(tree):
    """What had no time is cut off, and --resume makes its runs."""
    output = tree.sweep("--hidden 8,16 --limit 0")
    assert not tree.calls() and tree.notes() == dict.fromkeys(
        ("00_one", "01_two"), "cut off: no run at hidden 16, batch 4, and 1 more")
    assert "\nCut off; to go on: ./run_all.sh --output results --repeats 1 " in output
    tree.sweep("--hidden 8,16 --resume --limit 900")
    assert tree.notes() == {}
    assert tree.rows("stage hidden") == "00_one,16 01_two,16 00_one,8 01_two,8"


def test_a_run_that_does_not_end_in_time(tree):
    """It is ended."""
    tree.stage("00_one", "[ -e go ] || sleep 600")
    tree.sweep("--stages 00 --limit 4")
    assert tree.notes() == {"00_one": "cut off: no run at hidden 8, batch 4"}
    Path("go").touch()
    tree.sweep("--stages 00 --resume")
    assert tree.rows("stage") == "00_one" and tree.notes() == {}


def test_the_order_within_a_limit():
    """A program that is cut off comes after all others. What surely does not end in time does not
    begin: here a second run that has an eighth of 800 s, of which the first took 101."""
    options, ladder = command_line.parse(shlex.split(
        "--stages 00,01_v,02_o --limit 800 --repeats 2 --hidden 32,64,128 --batch 64"))
    plan = jobs.Plan(ladder, options)
    made = []
    for job in plan.jobs():
        option = plan.cells[job.cell]
        if not plan.fits(job):
            continue
        made.append((job.stage.number, option["hidden"], job.round))
        if made[-1][:2] == ("01", 128):
            plan.close(job, is_slow=True)
            continue
        seconds = 101 if made[-1][:2] == ("00", 128) else 1
        plan.count({plan.ladder.column(name): value for name, value in option.items()} | {
            "stage": job.stage.name, "threads": 1, "sweep": 1, "round": job.round,
            "train_s": seconds})
    assert made == [
        ("00", 128, 1), ("01", 128, 1), ("02", 128, 1), ("00", 64, 1), ("02", 64, 1),
        ("00", 32, 1), ("02", 32, 1), ("02", 128, 2), ("00", 64, 2), ("02", 64, 2),
        ("00", 32, 2), ("02", 32, 2), ("01", 32, 1), ("01", 64, 1), ("01", 32, 2), ("01", 64, 2)]
    assert plan.outcome(plan.stages[1], 1) == ("cut off", "no run at hidden 128, batch 64")
    assert plan.outcome(plan.stages[0], 1) == ("ran", "")


def test_a_gpus_programs_come_first_within_a_limit():
    """Four of their runs have one process, which starts once."""
    options, ladder = command_line.parse(shlex.split(
        "--stages 00,04_,05_c --limit 800 --repeats 6 --hidden 32 --batch 32"))
    plan = jobs.Plan(ladder, options)
    made = []
    for job in plan.jobs():
        made.append((job.stage.number, job.round, plan.in_a_process(job)))
        for number in range(made[-1][2]):
            plan.count({plan.ladder.column(name): value
                        for name, value in plan.cells[job.cell].items()} | {
                "stage": job.stage.name, "threads": 1, "sweep": 1, "round": job.round + number,
                "train_s": 1})
    assert made == [("04", 1, 4), ("05", 1, 4), ("04", 5, 2), ("05", 5, 2),
                    *(("00", number, 1) for number in range(1, 7))]


def test_several_runs_of_one_process(monkeypatch):
    """Only the first says what the start took. None follows a long one."""
    make("stages/00_serial")
    stage = ladders.find_ladder("").stages[0]
    words = ["--data", drawn_data(), "--train", "64", "--test", "16", "--epochs", "1"]
    once, found = (measuring.measure(stage, words, again=again) for again in (1, 3))
    assert [row["load_s"] is None for row in found.rows] == [False, True, True]
    assert {row["final_loss"] for row in found.rows} == {once.row["final_loss"]}
    assert found.texts["runs.csv"].count("\n") == 4
    monkeypatch.setattr(measuring, "AGAIN_S", 0)
    assert len(measuring.measure(stage, words, again=3).rows) == 1


# --- results ---

def test_resume_counts_only_rows_of_the_same_sweep(tree):
    """With the same settings and data. Other files of the same name are refused."""
    labels = tree.write("digits/train-labels-idx1-ubyte", "one\n")
    for words, count in (("", 1), ("--epochs 7", 2), ("", 2)):
        tree.sweep(f"--stages 00 --resume {words}")
        assert len(tree.rows("stage").split()) == count
    labels.write_text("other\n")
    assert "expected the same --data" in tree.sweep("--repeats 3 --resume", 2)


def test_options_are_judged_before_anything_moves(tree):
    """By the program, where only it knows the range, or how many samples the data have."""
    tree.sweep()
    before = {path: path.read_text() for path in tree.results.rglob("*.csv")}
    tree.stage("00_one", "echo '00_one: --hidden: found 8, expected more' >&2; exit 2")
    assert "\nrun_all.sh: --hidden: found 8, expected more\n" in tree.sweep("", 2)
    assert {path: path.read_text() for path in tree.results.rglob("*.csv")} == before


def test_rows_that_cannot_be_read(tree):
    """They are refused before the sweep."""
    tree.sweep()
    file, calls = tree.results / "runs.csv", tree.calls()
    *begin, last = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*begin, last.replace(",0.4,", ",nan,", 1)]))  # not a load of 0.4
    assert (f"\nrun_all.sh: {file}: line 3: time_s: found 'nan', expected a number"
            ) in tree.sweep("--repeats 2 --resume", 2)
    assert tree.calls() == calls


def test_a_full_disk(tree):
    """One line that names the file, and rows are whole."""
    tree.stage("00_one", "load_s=0 setup_s=0 time_s=0 phase_s=0 loss=0.3$(printf %0600d 0)")
    assert f"\nrun_all.sh: {tree.results}/runs.csv: cannot write: File too large\n" in tree.run(
        f"bash -c 'ulimit -f 2; exec /usr/bin/{SWEEP} --repeats 9 --stages 00'", 1)
    assert 1 <= len(tree.rows("stage").split()) <= 3


def test_a_full_disk_leaves_no_empty_file(tree):
    added = ("from pathlib import Path; from bench.record import Record; "
             "Record(Path('results')).add('programs.csv', ['a'], ['x' * 9999])")
    said = tree.run(f'bash -c "ulimit -f 1; exec {sys.executable} -c \\"{added}\\""', 1)
    assert "programs.csv: cannot write: File too large" in said
    assert not (tree.results / "programs.csv").exists()


def test_epochs(tree):
    """They have a file beside the rows. Those of a run without a row are taken back."""
    tree.edit("stages/ladder.toml", "[[axes]]\noption = \"batch\"",
              "epochs = \"log\"\n[[axes]]\noption = \"batch\"")
    for name, fails in (("00_one", ":"), ("01_two", "[ -e go ] || exit 1")):
        tree.stage(name, """for epoch in 1 2; do
            [ -z "$log" ] || add_row "$log" run,epoch,epoch_s "$$,$epoch,0.2"; done; """ + fails)
    tree.sweep("", 1)
    one, two, path = "00_one,1 00_one,2", "01_two,1 01_two,2", "results/epochs.csv"
    assert tree.rows("stage epoch", path) == one
    Path("go").touch()
    tree.sweep("--resume")
    assert tree.rows("stage epoch", path) == f"{one} {two}"
    tree.sweep("--stages 00")
    assert tree.rows("stage epoch", path) == one


# --- programs that do not work ---

def test_what_becomes_of_programs(tree):
    """One that does not work is left out of the rest of the sweep, with the reason, and fails it.
    The others run."""
    # Of the times of those that are right.
    tree.rounding_s = 0.55
    where, clock = "at hidden 16, batch 4", "its times cannot be right: "
    cases = {  # outcome and reason, commands
        "01_two": ("left out: no CUDA device",
                   "echo '01_two: no CUDA device; try this' >&2; exit 77"),
        "03_memory": ("failed: at hidden 8, batch 4: exit status 1: out of memory",
                      "[ $hidden = 16 ] || { echo 'out of memory' >&2; exit 1; }"),
        "04_crash": (f"failed: {where}: ended by a signal: Segmentation fault", "kill -SEGV $$"),
        "05_no_row": (f"failed: {where}: wrote no row to its --csv", "exit 0"),
        "06_phases": (f"failed: {where}: {clock}forward_s + backward_s is 1 s, more than time_s, "
                      "0.4 s", "phase_s=0.5"),
        "07_clock": (f"failed: {where}: {clock}load_s + setup_s + time_s is 40.11 s, more than the "
                     "whole run by the clock outside, N s", "time_s=40"),
        "08_loss": ("differs: hidden 16, batch 4: loss is 0.32, and 0.3 in most others",
                    "[ $hidden = 8 ] || loss=0.32")}
    for name, (_, commands) in cases.items():
        tree.stage(name, commands)
    tree.stage("10_needs")
    tree.write("stages/10_needs/Makefile",
               "run: FORCE\n\t@rm -f run; echo 10_needs: left out, found no x\nFORCE:\n")
    cases["10_needs"] = "left out: found no x", ""
    tree.sweep("--hidden 8,16", 1)
    assert {name: re.sub(r"outside, [\d.e-]+ s", "outside, N s", note)
            for name, note in tree.notes().items()} == {
                name: reason for name, (reason, _) in cases.items()}
    assert tree.counts() == {"00_one": 2, "03_memory": 1, "08_loss": 2}
    assert sum("01_two/run" in call for call in tree.calls()) == 1
    # When one is mended, its runs are made.
    tree.stage("03_memory")
    tree.sweep("--hidden 8,16 --stages 03 --resume", 1)  # for 08_loss, which still differs
    assert tree.counts()["03_memory"] == 2 and "03_memory" not in tree.notes()
    # Damaged data are no failed run.
    tree.stage("00_one", "exit 2")
    tree.sweep("--stages 00", 2)


def test_a_stage_that_does_not_build(tree):
    """The note has the reason, not what follows from it, and no path of this machine."""
    cases = (("int main(void) { return x; }", "gcc", "run.c:1:25: error: .x. undecl"),
             ("int f(void); int main() { return f(); }", "gcc", "undefined reference"),
             ("int main(void) { return 0; }", "gcc -lno_such", "cannot find -lno_such"),
             ("", "echo ld: cannot open output file: Read-only >&2; echo ld error: >&2; false",
              "cannot open output file: Read-only"),
             ("", "no-such-compiler", "no-such-compiler: No such file"))
    for number, (source, compiler, _) in enumerate(cases):
        tree.write(f"stages/1{number}_x/run.c", source)
        tree.write(f"stages/1{number}_x/Makefile", f"run: run.c\n\t{compiler} $< -o $@\n")
    tree.sweep("", 1)
    for (_, _, reason), note in zip(cases, tree.notes().values()):
        assert re.match(f"not built: .*{reason}", note) and str(tree.root) not in note
    assert tree.rows("stage") == "00_one 01_two"


# --- GPUs ---

def test_gpu(tree):
    """A stage for one runs if there is one. Its clocks, power and temperature are noted."""
    tree.stage("03_cuda", source="run.cu")
    tree.write("stages/03_cuda/Makefile", "DEVICE = gpu\nrun: ;\n")
    shutil.copy(REPOSITORY / "bench/machine.sh", "bench")
    path = f"{tree.root}/bin:{os.environ['PATH']}"
    tree.script("bin/nvidia-smi", "exit 9")
    tree.sweep("--stages 03", PATH=path, NVCC="true")
    assert tree.notes()["03_cuda"] == "left out: found no GPU (nvidia-smi lists none)"
    tree.script("bin/nvidia-smi", """case $* in
        -L) echo 'GPU 0: Fake GPU' ;;
        *=name*) echo 'Fake GPU, 80 GiB, 570.1' ;;
        *) echo '345 MHz, 71.20 W, 41' ;;
        esac""")
    tree.sweep("--stages 03", PATH=path, NVCC="true")
    assert tree.rows("stage") == "03_cuda"
    assert [line.split(",", 1)[1] for line in Path("results/sweeps.csv").read_text().splitlines()
            if ",gpu" in line] == ['gpu,"Fake GPU, 80 GiB, 570.1"',
                                   'gpu now,"345 MHz, 71.20 W, 41"']
