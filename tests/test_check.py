"""Tests `make check`: it finds mistakes that are made in a copy of a stage, and says what they are.
Also tests what decides over a stage: how it is run, and which of its rows count."""

import dataclasses
import os
import re
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from programs import built, copy, drawn_data, make, needs_full, run, script

from bench import check, clocks, faults, host, items, ladders, options, reference, testing

LADDER = ladders.find_ladder("")
needs_no_gpu = pytest.mark.skipif(host.has_gpu(), reason="found a GPU")


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    return copy(tmp_path_factory.mktemp("check") / "a bé")


class Checkout:
    """A copy of the repository. What a test adds or changes is taken back after it."""

    def __init__(self, root):
        self.root, self.mine = root, root / "stages/20_mine"
        self.toml = root / "stages/ladder.toml"
        self.data = drawn_data()

    def test_only(self, size, case):
        text = re.sub("^twice = .*", "", self.toml.read_text(), flags=re.M)
        self.toml.write_text(re.sub(
            r"(?<=\[tests.check\]\n).*", f"sizes = {[size]}\ncases = {[case]}", text))

    def plant(self, number, pattern, new):
        """Makes 20_mine from a stage, with a mistake."""
        origin = LADDER.find(number)
        shutil.copytree(self.root / "stages" / origin.name, self.mine,
                        ignore=shutil.ignore_patterns("train", "*.sim", "*.sanitized"))
        with (self.mine / "Makefile").open("a") as file:
            file.write(f"ORIGIN = {origin.name}\n")
        source = self.mine / origin.source.name
        text, count = re.subn(pattern, new, source.read_text(), flags=re.M)
        assert count
        source.write_text(text)

    def make(self, words, status=2, **options):
        words += "".join(f" {name}={value}" for name, value in options.items())
        ended = run(f"make -s {words} TEST=200", status, cwd=self.root, MNIST_DIR=self.data)
        return ended.stdout + ended.stderr

    def check(self, words="STAGE=20_mine", status=2, **options):
        return self.make(f"check {words}", status, **options)

    def finds(self, number, pattern, new, wrong, text, **options):
        """`make check` has to find exactly these rows of its table wrong, and to say the text,
        where {code} is the number of the line that has it. The accuracy may follow."""
        self.plant(number, pattern, new)
        lines = next(self.mine.glob("train.c*")).read_text().splitlines()
        text = re.sub("{(.*?)}", lambda code: str(1 + next(
            place for place, line in enumerate(lines) if code[1] in line)), text)
        said = self.check(**options)
        rows = [line.split() for line in said.splitlines()]
        assert [row[0] for row in rows
                if row[2:3] == ["WRONG"] and row[0] != "test_accuracy"] == wrong.split(), said
        assert text in said, said


@pytest.fixture
def checkout(copied):
    checkout = Checkout(copied)
    text = checkout.toml.read_text()
    yield checkout
    checkout.toml.write_text(text)
    shutil.rmtree(checkout.mine, ignore_errors=True)


def gradient_of_130(found):
    return found[0].replace("s < n", "s < n && s < 130")


MISTAKES = {
    "no b2": ("01", ".*bias2 -= learning_rate.*\n", "", "b2", "b2 did not move."),
    # The initial weights have to be equal to the bit: -0 is not 0.
    "minus zero": ("00", r" = draw_weight\(&generator, PIXELS\)",
                   r"\g<0>, network.bias1[0] = -0.0f", "b1",
                   "WRONG with --hidden 33 --batch 8 --train 8 --epochs 0"),
    # [tests.check] has 100 units at most, [tests.large] 2049.
    "wide": ("01", r"(static void backward\(.*\n.* vectors = )network->vectors",
             r"\1network->units > 100 ? 1 : network->vectors", "W1 b1 W2", "..2047] did not move."),
    # The 33rd unit is alone in its vector on every machine.
    "no last vector": ("01", r"(backward_columns\(network, .* 0, vectors)\)",
                       r"\1 - (network->units == 33))", "W1", "][32..32] did not move."),
    "130 images": ("00", r"static void backward\((.*\n)*?}$", gradient_of_130, "W1 b1 W2 b2",
                   "--batch 202 --train 202"),
    "late": ("01", r"static void backward\(.* \{", r"\g<0> static int k; if (++k > 50) "
             "learning_rate *= 1.01f;", "final_loss W1 b1 W2 b2", "--train 6400 --epochs 1"),
    "overflow": ("00", r"max = z\[(0\]|o\] > max \? z\[o\] : max)", "max = 0", "",
                 "--learning-rate 25: exit status 1: 20_mine: the loss became"),
    "abort": ("01", ".* = batch->samples, vectors = .*", r"\g<0>if (n == 128) abort();", "",
              "--batch 128 --train 165 --epochs 10 --seed 19: ended by a signal: Aborted"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_mistake_is_named(checkout, name):
    checkout.finds(*MISTAKES[name], RUNS=0)


EDGES = {
    "a last batch of one": (
        "01", r"(batch = batch_at\(dataset, first, options->batch\);)(?=\n *loss)",
        r"\1 if (batch.samples == 1) continue;", "after the first batch and a second one of 1"),
    "2048 units": ("00", r"    // da = ", r"    float row[2048]; for (size_t h = 0; h < hidden; "
                   r"++h) row[h] = a[h]; da[0] = row[hidden / 2];\n\g<0>",
                   "backward: runtime error: index 2048 out of bounds"),
    "1024 images": ("00", r"^    update\(network->weights1", r"if (n > 1024) return;\n\g<0>",
                    "--batch 1025 --train 1025"),
    "16 threads": ("02", r"(OUTLINED void backward_columns\([^{]*\{)",
                   r"\1 if (omp_get_num_threads() == 16) return;",
                   "With 1 thread it is right: look at what the threads share."),
    # The sanitized build says where, if it is started as the one that was wrong.
    "a read on 16 threads": (
        "02", r"(OUTLINED void backward_columns\([^{]*\{)",
        r"\1 if (omp_get_num_threads() == 16 && "
        r"*(volatile signed char *)(network->weights1 - 1) >= -128) return;",
        "backward_columns: AddressSanitizer: heap-buffer-overflow"),
    "a leak": ("01", r"outputs \*z = network->logits;\n$",
               r"\g<0> *(volatile char *)malloc(100000) = 1;\n", "forward: leak of "),
    "a read": ("00", r"return loss /", r"loss += x[n * PIXELS] > 1e9f; \g<0>",
               "forward: AddressSanitizer: heap-buffer-overflow"),
    "a rate of three digits": ("01", r"&batch, options->learning_rate", r"&batch, (float)(int)("
                               r"1000 * options->learning_rate + 0.5f) / 1000",
                               "--learning-rate 0.0373"),
    "memory that is not set": (
        "01", r"return loss / \(double\)n;", r"float *fresh = malloc(4000000); loss += "
        r"fresh[500000]; free(fresh); \g<0>", "final_loss "),
    "a wide grid": ("10", r"h < hidden; h \+= THREADS", r"gridDim.x < 17 && \g<0>",
                    "On 16 multiprocessors it is right"),
}


@pytest.mark.parametrize("name", [pytest.param(
    name, marks=[needs_full] if name == "a wide grid" else []) for name in EDGES])
def test_a_mistake_in_what_only_one_run_has(checkout, name):
    *mistake, text = EDGES[name]
    checkout.test_only("--hidden 1", "--batch 4 --train 8 --epochs 1")
    checkout.plant(*mistake)
    assert text in checkout.check(RUNS=0, NVCC="no-nvcc")


def test_a_mistake_within_the_bounds_shows_in_the_loss(checkout):
    checkout.test_only(
        "--hidden 33", "--batch 50 --train 50 --epochs 2 --seed 8 --learning-rate 25")
    checkout.finds(
        "00", r"network->d_bias1, hidden, learning_rate", r"\g<0> * 1.0001f", "final_loss",
        "but not final_loss. So that is computed wrong, or an update is wrong by so little that "
        "only this shows it: look at that of b1,")


def test_each_number_of_threads_has_a_case(monkeypatch):
    monkeypatch.delenv("FULL", raising=False)
    program = testing.Tester(LADDER.find("02"), ("train",), reference.selected(LADDER, "check"),
                             [], 0, {}, takes_threads=True)
    starts = [{start.threads for start in program.starts(case)} for case, _ in program.pairs()]
    assert set.union(*starts) == {0, 1, 2, 3, 4, 5, 7, 16, 17}
    assert {len(each) for each in starts} == {4}
    program = dataclasses.replace(program, command=("train.sim",))
    assert program.starts("--hidden 2049 --batch 3") == [testing.AS_IT_IS, testing.WIDE]


def test_a_race_is_found(checkout):  # other weights are wrong in every run
    checkout.plant("02", ".*pragma omp barrier\n", "")
    assert re.search("20_mine: .*WRONG", checkout.check(), re.S)


# Without an epoch, only the accuracy is wrong.
@needs_no_gpu
@pytest.mark.parametrize("number, epochs, pattern, new, text", [
    ("03", 1, r"if \(i < count\)", "(void)count;",
     "train.cu:{parameters[i] -= }: update: kernel update, block ("),
    ("03", 1, r"^        d_bias\[o\] = bias_sum;", "",
     "look first for memory that is read before it is set"),
    ("08", 0, r"cudaStreamCreate\((.*)\)\)", r"cudaStreamCreateWithFlags(\1, 1))",
     "of cudaMalloc: nothing has stored to it, so has its stream been waited for?"),
    ("10", 0, r"^    __syncthreads\(\); // not of the grid.*", "",
     "train.cu:{(network, h)[i] = network.weights1}, and thread 0 of block 0 loaded it at "
     "train.cu:{return *(const float4 *)from}: nothing orders the two"),
    ("10", 0, r"^    CHECK\(cudaFuncSetAttribute.*\n.*", "", "network->stream): invalid argument"),
    ("05", 0, r"x_tile\[0\], SLICE \+ 4", "x_tile[0], SLICE - 4",
     "of block 0 stored to it at train.cu:{*(float4 *)(tile + r}: nothing orders the two")])
def test_a_mistake_of_a_cuda_stage(checkout, number, epochs, pattern, new, text):
    checkout.test_only("--hidden 33", f"--batch 3 --train 7 --epochs {epochs} --seed 5")
    checkout.finds(number, pattern, new, "", text, NVCC="no-nvcc")


def test_a_missing_barrier_that_a_gpu_hides(checkout, tmp_path):
    """The fake GPU runs the right stage. The simulated device runs the wrong one."""
    right = LADDER.find("10")
    script(tmp_path / "nvidia-smi", "echo GPU 0")
    script(tmp_path / "nvcc", f'while [ "$1" != -o ]; do shift; done; cp {built(right)} "$2"')
    checkout.test_only("--hidden 33", "--batch 3 --train 7 --epochs 1 --seed 5")
    checkout.finds("10", r"__syncthreads\(\);(\n    if \(threadIdx.x < WARP)", r"\1", "",
                   "block 0 stored to it at train.cu:{warps[threadIdx.x / WARP]}: nothing orders",
                   RUNS=0, NVCC=tmp_path / "nvcc", PATH=f"{tmp_path}:{os.environ['PATH']}")


def test_a_program_that_hangs_is_stopped(tmp_path):
    program = testing.tester(LADDER.find("00"), "builds", script(tmp_path / "hangs", "sleep 1000"),
                             limit=0.2)
    case, _ = program.pairs()[0]
    with pytest.raises(testing.Wrong, match=f"{case}: hangs, or takes over 0.2 s"):
        testing.test(program, case)


@pytest.mark.parametrize("words, status, said", [
    ("99x PHASE=backward", 2, r"MISSED: backward is .* \(.* to .*\), of which all has to reach 99"),
    ("900%", 2, "MISSED: train reaches [0-9].* % of the ceiling"),
    ("0.0001x", 0, r"reached: train is .* times as fast as 00_serial \(.* to .*\)$"),
    (".0001% PHASE=forward", 0, "reached: forward reaches")])
def test_a_target_is_reached_or_missed_in_one_line(checkout, words, status, said):
    checkout.plant("00", r"\Z", "\n")
    checkout.test_only("--hidden 1", "--batch 3 --train 74 --epochs 2 --seed 5")
    found = checkout.check(f"STAGE=20 TARGET={words}", status, RUNS=8, HIDDEN=1, TRAIN=640)
    assert re.search(f"^20_mine: TARGET={words.split()[0]} {said}", found, re.M), found


@pytest.mark.parametrize("command", [
    "check STAGE=20_mine RUNS=2", "compare A=01 B=20_mine RUNS=2"])
@pytest.mark.parametrize("counts", [
    "train_s /= 2, result->forward.total /= 2, result->backward.total /= 2",
    "train_s *= 8, usleep(900000)"])  # the sleep makes room for it, or the parts are too long
def test_a_wrong_clock_is_refused(checkout, command, counts):
    checkout.test_only("--hidden 5", "--batch 4 --train 8 --epochs 1")
    checkout.plant("01", "(result->train_s = .*;)", rf"\1\n    result->{counts};")
    source = checkout.mine / "train.c"
    source.write_text(f"#include <unistd.h>\n{source.read_text()}")
    said = checkout.make(command, HIDDEN=32, TRAIN=640)
    # On a busy machine the parts may be too long all the same.
    assert re.search("20_mine: its (clock is wrong: what takes .* s takes .* s by train_s\n|"
                     "times cannot be right: .*train_s is)", said), said


@needs_full
@needs_no_gpu
def test_a_cuda_stage_has_no_speed_without_a_gpu(checkout):
    checkout.test_only("--hidden 1", "--batch 3 --train 74 --epochs 2 --seed 5")
    said = checkout.check("STAGE=04 TARGET=1.2x", 2, NVCC="no-nvcc")
    assert "Its speed is not known" in said and "Error 77" in said


@pytest.mark.parametrize("stage, target, phase, said", [
    ("01", "50", "", "TARGET: found '50', expected for 01_vectorized a number and x or %\n"),
    ("01", "0%", "forward", " x or %\n"), ("01", "٥٠%", "forward", " x or %\n"),
    ("01", "50%", "fwd", "PHASE: found 'fwd', expected one of: forward backward"),
    ("00", "1.2x", "forward", "for 00_serial a number and %\n"),
    ("04", "50%", "forward", "a number and x\n"), ("01", "50%", "backward", "a number and x\n")])
def test_a_target_that_cannot_be_asked_for_is_one_line(
        monkeypatch, capsys, stage, target, phase, said):
    monkeypatch.delitem(ladders.find_ladder("").toml["work"], "backward")
    for name, value in (("STAGE", stage), ("TARGET", target), ("PHASE", phase)):
        monkeypatch.setitem(options.GIVEN, name, value)
    with pytest.raises(SystemExit) as end:
        check.main()
    found = capsys.readouterr().err
    assert end.value.code == 2 and found.count("\n") == 1 and said in found


def test_the_part_of_the_ceiling_is_that_of_the_rate_just_then():
    row = {"rate": 2e-9, "epochs": 2, "train_samples": 10, "hidden": 5, "batch": 4}
    for phase, operations in ("", 319.6e3), ("forward", 158.8e3):
        assert check.seconds_of_work(LADDER.find("00"), phase, row) == pytest.approx(
            operations / 2, 1e-9), phase


def test_a_tmpdir_with_one_page_is_one_line(tmp_path):
    built(LADDER.find("00"))
    make("-C", "bench", "build/stages/reference", "build/many_processors.so")
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c",
               'mount -t tmpfs -o size=4k tmpfs "$TMPDIR" && exec "$@"', "sh"]
    if run([*command, "true"], None, TMPDIR=tmp_path).returncode:
        pytest.skip("may not mount (unshare)")
    command += [sys.executable, "-m", "bench", "check", "STAGE=00", "RUNS=0"]
    assert run(command, 1, cwd=testing.ROOT, TMPDIR=tmp_path).stderr == (
        f"check: [Errno 28] No space left on device (TMPDIR is {tmp_path})\n")


@pytest.mark.parametrize("status, words", [(0, "nothing to compare with"), (2, "no such")])
def test_a_reference_that_fails_agrees_with_nothing(monkeypatch, capsys, tmp_path, status, words):
    """Nor does one that says nothing: all of nothing would be right."""
    script(tmp_path / "bench/build/stages/reference",
           f"[ {status} = 0 ] || echo no such option >&2; exit {status}")
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    reference.expect.cache_clear()
    with pytest.raises(SystemExit) as ended:
        reference.expect(LADDER, "--hidden", "1")
    assert ended.value.code == (status or 1) and words in capsys.readouterr().err


def row(stage="01_mine", **values):
    return {"stage": stage, "device": "cpu", "threads": 1, "hidden": 32, "batch": 64,
            "test_samples": 4200, "load_s": 0.2, "setup_s": 0.1, "train_s": 1.0, "forward_s": 0.4,
            "backward_s": 0.6, "final_loss": 0.3, "test_accuracy": 0.9, "gflops": 1.0,
            "disturbed": False, **values}


TOO_LONG = "load_s + setup_s + train_s is 1.3 s, more than the whole run by the clock outside, "


@pytest.mark.parametrize("said, seconds, values", [
    ("", 1.5, {}), ("", 1.5, {"load_s": None, "forward_s": None, "backward_s": None}),
    ("", 1.300000001, {}), ("", 1.5, {"device": "GPU", "forward_s": 0.9}),  # of another epoch
    ("forward_s + backward_s is 1 s, more than train_s, 0.3333 s", 1.5, {"train_s": 1 / 3}),
    ("warmup_s is 0.1 s, and a stage for the CPU does not warm up", 1.5, {"warmup_s": 0.1}),
    (TOO_LONG + "1.25 s", 1.25, {}), (TOO_LONG + "0.5 s", 0.5, {"device": "GPU"})])
def test_a_clock_that_cannot_be_right(said, seconds, values):
    assert clocks.clock_fault(row(**values), LADDER.find("01"), seconds) == said


def seconds(*times):
    """Rows of runs, of which each has taken so long: (by its own clock, by that outside)."""
    return [row(train_s=train, program_s=program) for train, program in times]


@pytest.mark.parametrize("said, other, timed", [
    ("", (2, 2.54), [(1, 1.5)]),
    ("", (0, 0.5), [(1, 1.54)]),  # without work
    ("", (2, 2.5), [(1, 2.9), (1, 1.5), (1, 1.1)]),  # a busy machine disturbs some
    ("", (101, 104), [(1, 1.5)]),  # 5 %
    ("what takes 1.11 s takes 1.00 s by train_s", (2, 2.61), [(1, 1.5), (1, 1.4)]),
    ("what takes 2.00 s takes 1.00 s by train_s", (2, 4.5), [(1, 2.5)]),  # counts half
    ("what takes 0.50 s takes 1.00 s by train_s", (2, 1.5), [(1, 1.0)]),  # twice
    ("what takes 1.00 s takes 0.00 s by train_s", (0.01, 1.5), [(0.01, 0.5)])])  # nothing
def test_a_clock_is_held_against_that_outside(said, other, timed):
    other, *timed = seconds(other, *timed)
    assert clocks.wrong_clock(other, timed, LADDER, False) == (
        said and f"its clock is wrong: {said}")


def test_on_a_busy_machine_what_is_beside_the_work_varies():
    other, half, *timed = seconds((2, 2.7), (2, 4.9), (1, 1.5))
    assert clocks.wrong_clock(other, timed, LADDER, True) == ""
    assert "its clock is wrong" in clocks.wrong_clock(other, timed, LADDER, False)
    assert "its clock is wrong" in clocks.wrong_clock(half, timed, LADDER, True)


def test_a_clock_of_one_pass():
    """With --seconds, passes are repeated for so long, and the last one goes beyond it."""
    one = {"time_s": 0.3, "seconds": 1.0, "program_s": 1.5}
    ladder = SimpleNamespace(time="time_s")
    for program, said in (2.75, ""), (3.9, "what takes 2.40 s takes 1.00 s by time_s"):
        other = {**one, "seconds": 2.0, "program_s": program}
        assert clocks.wrong_clock(other, [one], ladder, False) == (
            said and f"its clock is wrong: {said}")


@pytest.mark.parametrize("values, epochs", [
    ({"train_s": 0.25}, 15), ({"train_s": 0.002}, 1503), ({"train_s": 1.5}, 0),
    ({"train_s": 1.5, "device": "GPU"}, 5), ({"train_s": 0}, 30003)])
def test_the_other_work_that_shows_whether_a_clock_is_right(values, epochs):
    """None where it is long, or a second more. A GPU would not warm up without work."""
    assert clocks.other_work(row(epochs=3, **values), LADDER) == epochs


def strays(*others, baseline="00_serial"):
    return faults.strays([row(baseline), *others], LADDER)


def test_results_that_are_the_same_up_to_rounding():
    assert strays(row(final_loss=0.3025, test_accuracy=0.896)) == {}
    # In ten images, one is more than half a point.
    assert strays(row(test_accuracy=0.8, test_samples=10)) == {}
    # Another cell has other results.
    assert strays(row(hidden=64, final_loss=0.2)) == {}


def test_results_that_are_not():
    assert strays(row(), row("02_mine", final_loss=0.304), row(test_accuracy=0.89)) == {
        ("02_mine", (64, 32)): "final_loss is 0.304, and 0.3 in 00_serial",
        ("01_mine", (64, 32)): "test_accuracy is 0.89, and 0.9 in 00_serial"}
    assert strays(row("02_mine"), row("03_mine", final_loss=0.4), baseline="01_mine") == {
        ("03_mine", (64, 32)): "final_loss is 0.4, and 0.3 in most others"}


BEFORE, AFTER = np.zeros(60), np.arange(1.0, 61) / 100  # the first step
LATER = AFTER + np.cos(np.arange(60))
W1 = np.arange(60) < 50


@pytest.mark.parametrize("said, found, options", [
    ("The update of W1 is 2 times the right one.", np.where(W1, 2, 1) * AFTER, {}),
    ("The update of b1 is 1 times the right one + 1 times the one before: is its gradient set "
     "to zero?", LATER + np.where(W1, 0, AFTER), {"states": [BEFORE, AFTER, LATER]}),
    ("The update of W1 is 0.53125 times the right one: is it divided by 17?",
     17 / 32 * AFTER, {"count": 17}),
    ("The update of W1 is 1.01 times the right one.", 1.01 * AFTER, {}),
    ("The update of b1 is 17 times the right one: is it divided by 17?", 17 * AFTER,
     {"count": 17}),
    ("b1 did not move.", W1 * AFTER, {})])
def test_the_words_for_an_update(said, found, options):
    """Of W1 (5 × 10) and b1 (10), after an update by so many images of 32."""
    states, words = options.get("states", [BEFORE, AFTER]), []
    for name, place, shape in ("W1", slice(0, 50), (5, 10)), ("b1", slice(50, 60), (1, 10)):
        item = items.compare_part(name, found[place].reshape(shape).astype(np.float32),
                                  states[-1][place].reshape(shape), "norm", 5e-5)
        item.slice = place
        if not item.right:
            words.append(items.explain_update(item, found, states, options.get("count", 32), 32))
    assert said in words


ASAN = """\
simulated: CUDA on the CPU, to find errors; no time below means anything
=================================================================
simulated device: kernel update, block (54,0,0), thread (711,0,0) touched 8 bytes behind the 64
==14111==ERROR: AddressSanitizer: use-after-poison on address 0x7ee83f17371c at pc 0x557db991b7ae
READ of size 4 at 0x7ee83f17371c thread T0
    #0 0x5 in update(float*, float const*, unsigned long, float) /a folder/20_mine/train.cu:173
    #1 0x5 in _ZZZN9simulator15with_parametersIJPfPKfmfEE ../../sim/cuda_runtime.h:442
"""
LEAK = """\

=================================================================
==9==ERROR: LeakSanitizer: detected memory leaks

Direct leak of 100000 byte(s) in 1 object(s) allocated from:
    #0 0x7f in __interceptor_malloc ../../src/libsanitizer/asan/asan_malloc_linux.cpp:69
    #1 0x55 in forward /a folder/20_mine/train.c:237

SUMMARY: AddressSanitizer: 100000 byte(s) leaked in 1 allocation(s).
"""


@pytest.mark.parametrize("report, line", [
    (LEAK, "train.c:237: forward: leak of 100000 byte"),
    (ASAN, "train.cu:173: update: kernel update, block (54,0,0), thread (711,0,0) touched 8 bytes "
           "behind the 64"),
    ("20_mine: no\nmore\n", "20_mine: no")])
def test_a_sanitizers_report_names_the_kernel_and_the_line(report, line):
    assert testing.first_line(report) == line
