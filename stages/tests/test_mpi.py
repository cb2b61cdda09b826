"""Tests what only 07_mpi, 11_mpi_lookahead and their steps have: processes. All run on this
machine. What differs between machines is given to each as its working directory. slurm.bats has
run_all.sbatch."""

import contextlib
import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from programs import (
    LABELS,
    ROOT,
    Trainer,
    copy,
    images,
    make,
    needs_full,
    run,
    script,
    write_data,
    write_images,
)

from harness import ladders

if not shutil.which("mpicc"):
    pytest.skip("found no mpicc (libopenmpi-dev)", allow_module_level=True)

MPIRUN = ROOT / "harness/mpirun.sh"
STEP, PROGRAM = (ROOT / f"stages/{name}/train" for name in ("07.1_processes", "07_mpi"))
LOOKAHEAD = [ROOT / f"stages/{name}/train" for name in (
    "11.1_next_product", "11.2_corrected_sums", "11.3_small_tiles", "11_mpi_lookahead")]
DELAY = ROOT / "stages/build/delay.so"
MANY = ROOT / "harness/build/many_processors.so"


@pytest.fixture(autouse=True, scope="module")
def build():
    make("stages/00_serial", *(f"stages/{program.parent.name}"
                               for program in (STEP, PROGRAM, *LOOKAHEAD)))
    make("-C", "stages/network")
    make("-C", "harness", "build/many_processors.so")


@pytest.fixture
def processes(tmp_path):
    """Starts 07_mpi, or a program, as so many processes."""
    def trainer(count, program=PROGRAM):
        trainer = Trainer(tmp_path, MPIRUN)
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
each_program = programs(STEP, PROGRAM, LOOKAHEAD[-1])


# 25 epochs of two batches. With one hidden unit there is one slice, and all processes but one have
# none.
@each_program
@pytest.mark.parametrize("hidden", [1, 100])
def test_the_weights_are_those_of_00_serial_also_where_there_are_fewer_slices(
        processes, serial, hidden, program):
    options = f"--epochs 25 --hidden {hidden}"
    right = serial.weights(options)
    for count in 1, 2, 3, 5:
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
@programs(*LOOKAHEAD)
@pytest.mark.parametrize("options", [
    "--hidden 17 --batch 1 --epochs 8", "--hidden 1 --batch 5 --epochs 20",
    "--hidden 40 --batch 6 --epochs 20", "--hidden 33 --batch 1000 --epochs 20",
    "--hidden 17 --batch 4 --epochs 1", "--hidden 17 --epochs 0"])
def test_look_ahead_at_the_ends_of_epochs(processes, serial, program, options):
    right = serial.weights(options)
    for count in (1, 2, 3, 5) if program == LOOKAHEAD[-1] else (2,):
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


@needs_full
@preloaded
@pytest.mark.parametrize("is_without_ip", [False, True])
def test_the_sweep_over_ways_says_what_it_leaves_out_and_leaves_nothing_behind(
        tmp_path, is_without_ip):
    write_data(tmp_path / "data")
    script(tmp_path / "bin/ip", "#!/bin/sh\necho none of this >&2\nexit 1\n")
    path = f"{tmp_path / 'bin'}:" * is_without_ip + os.environ["PATH"]
    said = run([ROOT / "harness/start.py", "stages.network.sweep", *shlex.split(
        "--runs 1 --output rows --data data --hidden 3 --batch 4 --train 6 --test 4 --epochs 2")],
        cwd=tmp_path, PATH=path).stdout
    left_out = len(re.findall("^veth: left out: .*", said, re.MULTILINE))
    assert left_out == is_without_ip or os.geteuid()
    assert not is_without_ip or "veth: left out: none of this\n" in said
    assert (tmp_path / "rows").read_text().count("\n") == 1 + 8 * (3 - left_out)
    assert not shutil.which("ip") or not re.search(r"^(one|two)\d", run("ip netns list").stdout,
                                                   re.MULTILINE)
    pytest.importorskip("matplotlib")
    run([ROOT / "harness/start.py", "stages.network.sweep", "--draw", "rows"], cwd=tmp_path)
    picture = (tmp_path / "rows.svg").read_text()
    assert [picture.count(f">{way}<") for way in ("shared", "tcp", "veth")] == [
        1, 1, not left_out]


# The phases and the memory of a row are those of process 0. These weights have 60 MiB.
def test_where_there_are_fewer_threads_than_processes_process_0_has_work(processes):
    for count in 2, 3:
        processes(count).succeeds("--hidden 20000 --threads 1 --epochs 1 --csv rows.csv")
    assert all(float(row["peak_rss_mib"]) >= 60 for row in processes(2).rows())


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


def test_a_run_that_fails_says_so_in_one_line(processes):
    two = processes(2)
    two.fails(1, "^07_mpi: the loss became -?(nan|inf): try a --learning-rate below",
              "--learning-rate 1e30 --epochs 5 --save-weights weights")
    assert not (two.folder / "weights").exists()
    (two.folder / "full.csv").symlink_to("/dev/full")
    two.fails(1, "^07_mpi: --csv: cannot write full.csv", "--csv full.csv")


def by_rank(folder, first, second):
    """A program that runs the first command in process 0, and the second in the next one. (Open MPI
    5.0.7 crashes where mpirun gets two programs.)"""
    return script(folder / "by_rank", "#!/bin/bash\n"
                  f"if ((${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-}}}} == 0)); then {first}\n"
                  f"else {second}\nfi\n")


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
    two.fails(2, "^process 1 on [^:]+: digits/train-labels-idx1-ubyte.gz: No such",
              "--data digits")
    (one / "train-labels-idx1-ubyte").unlink()  # both fail: one line
    two.fails(2, "^digits/train-labels-idx1-ubyte.gz: No such file", "--data digits")


def test_a_process_that_dies_ends_the_others_with_one_line(tmp_path):
    write_data(tmp_path / "data")
    train = f"exec {shlex.quote(str(PROGRAM))} --data data --train 6 --test 4"
    ended = run([MPIRUN, by_rank(tmp_path, train, "kill -9 $$")], None, 60, tmp_path)
    assert ended.returncode
    assert ended.stderr.startswith(f"mpirun.sh: mpirun ended with status {ended.returncode}")
    large = f"{train} --hidden 300000"
    said = run([MPIRUN, by_rank(tmp_path, large, f"ulimit -v 600000; {large}")], 1, 60, tmp_path)
    assert re.fullmatch("07_mpi: out of memory: asked for .*\n", said.stderr)


def test_an_mpi_that_does_not_start_is_one_line_with_its_reason(processes):
    if "Open MPI" not in run("mpirun --version").stdout:
        pytest.skip("found another MPI than Open MPI")
    for _ in range(10):
        ended = processes(2).run(OMPI_MCA_btl="self")
        said = re.fullmatch(r"mpirun.sh: mpirun ended with status [0-9]+: (.*)\n", ended.stderr)
        assert ended.returncode and said, ended.stderr
        if said[1] != LOST:  # beside other load, one run of sixty
            break
    assert re.search("unable to reach|unreachable|MPI_Init", said[1])


@pytest.fixture
def fake(tmp_path):
    """fake(COMMAND) puts an mpirun of one command first in PATH. fake.run starts it."""
    def make_fake(command):
        script(tmp_path / "bin/mpirun", f"#!/bin/bash\n{command}\n")

    def start(*words, status=0, **variables):
        ended = run([MPIRUN, *words], status, PATH=f"{tmp_path}/bin:{os.environ['PATH']}",
                    **variables)
        return (ended.stdout + ended.stderr).rstrip("\n")

    make_fake.run = start
    return make_fake


RULE, OURS = "-" * 74, "07_mpi: --hidden: found 0"
BANNER = [RULE, "prterun detected that one or more processes", "failed.  Stop.", RULE, " "]
ENDED = "mpirun.sh: mpirun ended with status"
LOST = "MPI lost its own message, which another run may show"


@pytest.mark.parametrize("status, expected, lines", [
    (2, OURS, [OURS, "[warn] Epoll MOD(4) on fd 22 failed.", *BANNER]),
    (2, OURS, ["[vm][[36,1],0][btl_tcp.c:266:f] unreachable", OURS, "[vm:07] *** reported",
               *BANNER]),
    (1, f"{ENDED} 1: [vm:07] *** An error occurred in MPI_Init",
     ["[vm:07] [[1,0],0] ORTE_ERROR_LOG", "[vm:07] *** An error occurred in MPI_Init",
      "[vm:07] *** reported"]),
    (1, f"{ENDED} 1: prterun detected that one or more processes failed",
     ["[vm:07] [[1,0],0] ORTE_ERROR_LOG", RULE, "Primary job  terminated normally", RULE, *BANNER]),
    (1, f"{ENDED} 1: {LOST}",
     ["[vm:07] [[1,0],0] ORTE_ERROR_LOG: Out of resource in file ../orte/util/show_help.c"]),
    (255, f"{ENDED} 255: [proxy:0@vm] launch.c: no such file",
     ["[proxy:0@vm] launch.c: no such file"]),
    (139, f"{ENDED} 139: a process ended with SIGSEGV", []),
    (3, f"{ENDED} 3", []),
    (0, f"{RULE}\nA warning.\n{RULE}", [RULE, "A warning.", RULE])])  # a run that succeeds
def test_what_mpi_says_is_kept_apart_from_what_a_program_says(fake, status, expected, lines):
    fake(f"printf '%s\\n' \"${{@:4}}\" >&2; exit {status}")
    assert fake.run("-n", "2", "true", *lines, status=status) == expected


def test_an_mpirun_that_crashes(fake):
    fake("kill -SEGV $$")
    assert fake.run("true", status=139) == f"{ENDED} 139: a process ended with SIGSEGV"


@pytest.mark.parametrize("network, words, variables", [
    ("^tcp", "true", {}), ("^tcp", "-n 2 true --hidden 3", {}),
    ("^tcp", "true", {"SLURM_JOB_NUM_NODES": 1}), ("ofi", "true", {"OMPI_MCA_btl": "ofi"}),
    ("all", "true", {"SLURM_JOB_NUM_NODES": 2}), ("all", "--host a,b true", {}),
    ("all", "-H a,b true", {}), ("all", "true", {"OMPI_MCA_orte_default_hostfile": "f"})])
def test_processes_on_one_machine_use_no_network_those_on_several_do(
        fake, network, words, variables):
    fake('btl=${OMPI_MCA_btl-all}; echo "${btl%%,*}"')
    assert fake.run(*words.split(), **variables) == network


def test_sigterm_ends_all_also_an_mpirun_that_does_not_listen(fake, tmp_path):
    fake(f"trap '' TERM; sleep 100 & echo $$ $! >'{tmp_path}/pids'; wait")
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    run(["timeout", "--kill-after=5", "1", MPIRUN, "true"], 124, PATH=path)
    for process in (tmp_path / "pids").read_text().split():
        with contextlib.suppress(FileNotFoundError):
            assert re.search("^State:.*zombie", Path(f"/proc/{process}/status").read_text(), re.M)


def test_without_mpicc_the_stage_is_left_out_with_the_reason(tmp_path):
    root = copy(tmp_path / "copy")
    write_data(tmp_path / "data")
    left_out = "left out, found no no-such-mpicc in PATH"
    assert run("make stages/07_mpi NEEDS=no-such-mpicc --no-print-directory",
               cwd=root).stdout == f"07_mpi: {left_out}\n"
    makefile = root / "common/mpi.mk"
    makefile.write_text(re.sub("(?m)^NEEDS.*", "NEEDS = no-such-mpicc", makefile.read_text()))
    assert "skipped stages/07_mpi: not built on this machine\n" in run(
        "harness/start.py verify sanitized stages/07_mpi", cwd=root).stdout
    run("./run_all.sh --stages 07 --quick --hidden 32 --batch 32 --repeats 1 --train 64 "
        "--test 10 --output results --data ../data", None, cwd=root)
    assert f",07_mpi,{left_out.replace(', ', ',')}," in (root / "results/programs.csv").read_text()


def test_mpirun_sh_without_a_program_or_a_number_of_processes():
    for program in "no/train", "":
        said = run([MPIRUN, *[program] * bool(program)], 2).stderr
        assert f"mpirun.sh: found no program '{program}', expected one that is built" in said
        assert said.count("\n") == 1
    for count in "0", "-1", "x", "1.5", "99999", "9" * 20:
        said = run([MPIRUN, "true"], 2, PROCESSES=count).stderr
        assert re.fullmatch(f"mpirun.sh: PROCESSES: found '{count}', expected a whole number from "
                            "1 to .*\n", said)


@pytest.mark.skipif(not shutil.which("clang"), reason="found no clang")
def test_mpicc_calls_clang_where_cc_says_so(tmp_path):
    program = tmp_path / "train"
    run(["make", "-s", "-C", ROOT / "stages/07_mpi", "CC=clang", f"OUTPUT={program}"])
    assert b"clang version" in program.read_bytes()
    Trainer(tmp_path, program).succeeds()


def test_run_has_the_words_before_the_program_with_a_script_from_the_stages_folder():
    stage = ladders.find_ladder("").find("07_mpi")
    assert stage.command == [str(MPIRUN), str(stage.program)]


@needs_full
@pytest.mark.skipif(not shutil.which("google-pprof"), reason="found no google-pprof (packages.txt)")
def test_make_compare_and_make_profile_start_it_as_processes(tmp_path):
    root = copy(tmp_path / "a b'c$d(e#f:g=h[i]")  # in any path
    located = run([ROOT / "data/locate.sh"], OFFLINE=1, MNIST_DIR=os.environ.get("MNIST_DIR"))
    data = {"MNIST_DIR": located.stdout.rstrip()}
    said = run("make -s compare A=02 B=07 RUNS=8 HIDDEN=32 TRAIN=640", cwd=root, **data).stdout
    assert re.search("^median  *02_openmp  *07_mpi", said, re.M)
    run("make -s profile STAGE=07 RESULTS=results CPU_SECONDS=1 HIDDEN=256", cwd=root, **data)
    # The functions of both processes have names: nearly all samples are from main().
    profile = (root / "results/07_mpi/cpu.txt").read_text()
    main, others = map(int, re.search(
        r"^samples: .* main thread (\d+), other threads (\d+)$", profile, re.M).groups())
    assert main > 100 and others < main / 5
    assert re.search(r"^peak: \d+\.\d MiB", (root / "results/07_mpi/heap.txt").read_text(), re.M)
