"""Tests what only 07_mpi, 11_mpi_lookahead and their steps have: processes. All run on this
machine. What differs between machines is given to each as its working directory."""

import os
import re
import shlex
import shutil
import sys

import numpy as np
import pytest
from programs import (FULL, LABELS, ROOT, Trainer, images, make, needs_full, run, script,
                      write_data, write_images)

from bench import ladders, process

if not shutil.which("mpicc"):
    pytest.skip("found no mpicc (libopenmpi-dev)", allow_module_level=True)

MPIRUN = ROOT / "stages/07_mpi/mpirun.sh"
DATA, STEP, PROGRAM, *LOOKAHEAD = (ladders.find_ladder("").find(name).program for name in (
    "07.0", "07.1", "07", "11.1", "11.2", "11"))
NETWORK = ROOT / "stages/11_mpi_lookahead/network"
DELAY = NETWORK / "build/delay.so"
MANY = ROOT / "bench/build/many_processors.so"


@pytest.fixture(autouse=True, scope="module")
def build():
    make("stages/00_serial", *(str(program.parent.relative_to(ROOT))
                               for program in (DATA, STEP, PROGRAM, *LOOKAHEAD)))
    make("-C", str(NETWORK))
    make("-C", "bench", "build/many_processors.so")


class Processes(Trainer):
    def run(self, *words, **variables):
        ended = super().run(*words, **variables)
        ended.stderr = process.own_words(ended.stderr)
        return ended


@pytest.fixture
def processes(tmp_path):
    """Starts 07_mpi, or a program, as so many processes."""
    def trainer(count, program=PROGRAM):
        trainer = Processes(tmp_path, MPIRUN)
        trainer.options.insert(0, program)
        trainer.variables["PROCESSES"] = count
        return trainer

    return trainer


@pytest.fixture
def serial(tmp_path):
    return Trainer(tmp_path, ROOT / "stages/00_serial/train")


def are_close(one, other):
    """The bound is that of the reference."""
    one, other = (np.frombuffer(each, np.float32) for each in (one, other))
    return one.size == other.size and np.linalg.norm(one - other) <= 5e-5 * np.linalg.norm(other)


def programs(*each):
    return pytest.mark.parametrize("program", each, ids=lambda one: one.parent.name)


preloaded = pytest.mark.skipif(bool(re.search("[ :]", str(ROOT))),
                               reason="LD_PRELOAD reads signs of the path")
each_program = programs(DATA, STEP, PROGRAM, LOOKAHEAD[-1])


# 25 epochs of two batches. With one hidden unit there is one slice, and all processes but one have
# none.
@each_program
@pytest.mark.parametrize("hidden", [1, 100])
def test_the_weights_are_those_of_00_serial_also_where_there_are_fewer_slices(
        processes, serial, hidden, program):
    options = f"--epochs 25 --hidden {hidden}"
    right = serial.weights(options)
    for count in (1, 2, 3, 5) if FULL else (3,):
        assert are_close(processes(count, program).weights(options), right), count


@each_program
@preloaded
def test_threads_counts_those_of_all_processes_and_the_row_says_how_many_there_were(
        processes, serial, program):
    options = "--epochs 25 --hidden 100"
    right, three = serial.weights(options), processes(3, program)
    for threads in "125":
        assert are_close(three.weights(f"{options} --threads {threads} --csv rows.csv",
                                       LD_PRELOAD=MANY), right)
    assert [(row["stage"], row["device"], row["threads"]) for row in three.rows()] == [
        (program.parent.name, "cpu", threads) for threads in "125"]


# Batches of one image, a last one that is short, one batch an epoch, and fewer images than a batch:
# the next batch has as many images, fewer, more, or is the same.
@programs(*(LOOKAHEAD if FULL else LOOKAHEAD[-1:]))
@pytest.mark.parametrize("options", [
    "--hidden 17 --batch 1 --epochs 8", "--hidden 1 --batch 5 --epochs 20",
    "--hidden 40 --batch 6 --epochs 20", "--hidden 33 --batch 1000 --epochs 20",
    "--hidden 17 --batch 4 --epochs 1", "--hidden 17 --epochs 0"])
def test_look_ahead_at_the_ends_of_epochs(processes, serial, program, options):
    right = serial.weights(options)
    for count in (1, 2, 3, 5) if FULL and program == LOOKAHEAD[-1] else (2,):
        assert are_close(processes(count, program).weights(options), right), count


# 40 sums of 5 ms.
@programs(PROGRAM, LOOKAHEAD[-1])
@preloaded
def test_the_simulated_delay_keeps_every_sum_and_changes_no_weight(processes, program):
    two, options = processes(2, program), "--epochs 20 --hidden 40"
    right = two.weights(options)
    delayed = {"LD_PRELOAD": DELAY, "DELAY_US": 5000}
    assert two.weights(f"{options} --csv rows.csv", **delayed) == right
    assert float(two.rows()[-1]["train_s"]) >= 0.2


def test_one_process_writes_whole_lines_once_though_mpirun_gives_each_a_terminal(processes):
    said = processes(3).succeeds("--csv rows.csv").splitlines()
    assert len(processes(3).rows()) == 1 and sum(line.startswith("epoch") for line in said) == 2
    assert sum(line.startswith("07_mpi: hidden 3") for line in said) == 1
    assert re.search("^07_mpi: hidden 3.* accuracy [0-9.]*$", said[-1])
    assert not any(line.startswith("    ") for line in said)


def test_wrong_options_are_one_line_from_all_processes_together(processes, serial):
    three = processes(3)
    for said, options in (
            ("07_mpi: --hidden: found '0', expected a whole number from 1 to", "--hidden 0"),
            ("07_mpi: found 'stray', expected options only: see --help", "stray"),
            ("07_mpi: --csv: cannot write no/rows.csv: No such file", "--csv no/rows.csv"),
            ("nowhere/.*: No such file or directory", "--data nowhere")):
        three.fails(2, f"^(07_mpi: )?{said}", options)
    for option in "--help", "--columns":
        assert three.succeeds(option).count("\n") == serial.succeeds(option).count("\n")


def test_more_weights_than_mpi_can_count(processes):
    processes(2, DATA).fails(2, "^07.0_data_parallel: --hidden: found 2701233, expected at most 27",
                             "--hidden 2701233")


def test_a_run_that_fails_says_so_in_one_line(processes):
    two = processes(2)
    two.fails(1, "^07_mpi: the loss became -?(nan|inf): try a --learning-rate below",
              "--learning-rate 1e30 --epochs 5 --save-weights weights")
    assert not (two.folder / "weights").exists()
    (two.folder / "full.csv").symlink_to("/dev/full")
    two.fails(1, "^07_mpi: --csv: cannot write full.csv", "--csv full.csv")


@pytest.mark.parametrize("count", ["0", "two", ""])
def test_a_wrong_number_of_processes_is_one_line(count):
    said = run([MPIRUN, PROGRAM], 2, PROCESSES=count).stderr
    assert said == f"mpirun.sh: PROCESSES: found '{count}', expected a whole number from 1\n"


def by_rank(folder, first, second):
    """A program that runs the first command in process 0, and the second in the next one. (Open MPI
    5.0.7 crashes where mpirun gets two programs.)"""
    return script(folder / "by_rank", "#!/bin/bash\n"
                  f"if ((${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-}}}} == 0)); then {first}\n"
                  f"else {second}\nfi\n")


@needs_full
def test_other_files_on_another_machine_are_noticed_and_the_line_says_where(processes, tmp_path):
    train = f'exec {shlex.quote(str(PROGRAM))} "$@"'
    two = processes(2, by_rank(tmp_path, f"cd a; {train}", f"cd b; {train}"))
    one, other = tmp_path / "a/digits", tmp_path / "b/digits"
    write_data(one)
    write_data(other)
    two.succeeds("--data digits")
    changed = images(6).copy()
    changed[1, 3, 16] = 1
    for name, values, labels in ("t10k", images(4), (2, 7, 1, 9)), ("train", changed, LABELS):
        write_images(other, name, values, labels)
        two.fails(2, "^process 1 on [^:]+: --data: found other images or labels in digits "
                  "than process 0 has; expected", "--data digits")
        write_data(other)
    (other / "train-labels-idx1-ubyte").unlink()
    two.fails(2, "^process 1 on [^:]+: digits/train-labels-.*: No such file", "--data digits")
    (one / "train-labels-idx1-ubyte").unlink()  # both fail: one line
    two.fails(2, "^digits/train-labels-.*: No such file", "--data digits")


def test_a_process_that_dies_ends_the_others(tmp_path):
    write_data(tmp_path / "data")
    train = f"exec {shlex.quote(str(PROGRAM))} --data data --train 6 --test 4"
    assert run([MPIRUN, by_rank(tmp_path, train, "kill -9 $$")], None, cwd=tmp_path).returncode
    large = f"{train} --hidden 300000"
    said = run([MPIRUN, by_rank(tmp_path, large, f"ulimit -v 600000; {large}")], 1, cwd=tmp_path)
    assert re.fullmatch("07_mpi: out of memory: asked for .*\n", process.own_words(said.stderr))


def test_mpirun_sh_names_a_program_that_is_not_there():
    said = run([MPIRUN, "no/train"], 2).stderr
    assert said == "mpirun.sh: found no program 'no/train'\n"


@needs_full
@preloaded
def test_the_sweep_over_ways_says_what_it_leaves_out_and_leaves_nothing_behind(tmp_path):
    for name, count in ("train", 37800), ("t10k", 4200):
        blank = np.zeros((count, 28, 28), np.uint8)
        write_images(tmp_path / "data", name, blank, np.zeros(count, np.uint8))
    said = run([sys.executable, ROOT / "bench", "stages.11_mpi_lookahead.network.sweep",
                *shlex.split("--runs 1 --output rows --hidden 3 --batch 1024")], cwd=tmp_path,
               MNIST_DIR=tmp_path / "data").stdout
    left_out = len(re.findall("^veth: left out: .*", said, re.MULTILINE))
    assert left_out == 0 or os.geteuid() or not shutil.which("ip"), said
    assert (tmp_path / "rows").read_text().count("\n") == 1 + 8 * (3 - left_out)
    assert not shutil.which("ip") or not re.search(r"^(one|two)\d", run("ip netns list").stdout,
                                                   re.MULTILINE)
