"""Tests what decides over a stage: how it is run, which of its rows count, and the words of `make
check` for what is wrong with it."""

import contextlib
import io
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE.parent / "harness")]
import check  # noqa: E402
import numpy as np  # noqa: E402
import running  # noqa: E402
import stages  # noqa: E402
import tables  # noqa: E402

LADDER = stages.ladders.find_ladder("")


def is_alive(process):
    """Whether a process runs. One that has ended may still have an entry."""
    path = Path(f"/proc/{process}/stat")
    return path.exists() and path.read_text(encoding="ascii").split()[2] != "Z"


class Ends(unittest.TestCase):
    def setUp(self):
        signal.alarm(60)  # ends a test that hangs
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(signal.alarm, 0)
        self.folder = Path(folder.name)

    def run_script(self, text, limit):
        """(status, seconds, whether the script's child still runs)."""
        script = self.folder / "script"
        script.write_text(f"#!/bin/bash\n{text}\n", encoding="ascii")
        script.chmod(0o755)
        (self.folder / "data").mkdir()
        tester = stages.Tester(LADDER, "check", self.folder / "data")
        tester.expected = lambda case: stages.Expected([], None)
        clock = time.monotonic()
        run = tester.run(stages.Program(script), "", limit=limit)
        child = (self.folder / "child").read_text(encoding="ascii").strip()
        time.sleep(0.1)
        return run.status, time.monotonic() - clock, is_alive(child)

    def test_a_program_that_ignores_sigterm(self):
        status, seconds, alive = self.run_script(
            "trap '' TERM; sleep 100 & echo $! >${0%/*}/child; wait", 0.5)
        self.assertEqual((status, alive), (stages.TOO_SLOW, False))
        self.assertLess(seconds, 10)

    def test_a_child_with_a_group_of_its_own(self):  # as mpirun's
        status, _, alive = self.run_script(
            "set -m; trap '' TERM; sleep 100 & echo $! >${0%/*}/child; wait", 0.5)
        self.assertEqual((status, alive), (stages.TOO_SLOW, False))

    def test_a_child_that_outlives_its_program(self):
        status, seconds, alive = self.run_script("sleep 100 & echo $! >${0%/*}/child", 50)
        self.assertEqual((status, alive), (0, False))
        self.assertLess(seconds, 10)


def row(stage="01_mine", **values):
    return {"stage": stage, "device": "cpu", "threads": 1, "hidden": 32, "batch": 64,
            "test_samples": 4200, "load_s": 0.2, "setup_s": 0.1, "train_s": 1.0, "forward_s": 0.4,
            "backward_s": 0.6, "final_loss": 0.3, "test_accuracy": 0.9, "gflops": 1.0, **values}


class Rows(unittest.TestCase):
    def fault(self, seconds=1.5, **values):
        return running.clock_fault(row(**values), LADDER, seconds)

    def test_a_clock_that_is_right(self):
        self.assertEqual(self.fault(), "")
        self.assertEqual(self.fault(load_s=None, forward_s=None, backward_s=None), "")
        self.assertEqual(self.fault(1.300000001), "")
        # The phases of a GPU are those of another epoch.
        self.assertEqual(self.fault(device="GPU", forward_s=0.9), "")

    def test_phases_that_take_longer_than_the_whole(self):
        self.assertEqual(self.fault(train_s=1 / 3),
                         "forward_s + backward_s is 1 s, more than train_s, 0.3333 s")

    def test_a_time_that_is_longer_than_the_run(self):
        self.assertEqual(self.fault(1.25), "load_s + setup_s + train_s is 1.3 s, more than the "
                         "whole run by the harness's clock, 1.25 s")
        self.assertIn("0.5 s", self.fault(0.5, device="GPU"))

    def strays(self, *others):
        return running.strays([row("00_serial"), *others], LADDER)

    def test_results_that_are_the_same_up_to_rounding(self):
        self.assertEqual(self.strays(row(final_loss=0.3025, test_accuracy=0.896)), {})
        # In ten images, one is more than half a point.
        self.assertEqual(self.strays(row(test_accuracy=0.8, test_samples=10)), {})

    def test_results_that_are_not(self):
        found = self.strays(row(), row("02_mine", final_loss=0.304), row(test_accuracy=0.89))
        self.assertEqual(found, {
            ("02_mine", (64, 32)): "final_loss is 0.304, and 0.3 in 00_serial",
            ("01_mine", (64, 32)): "test_accuracy is 0.89, and 0.9 in 00_serial"})
        # Another cell has other results.
        self.assertEqual(self.strays(row(hidden=64, final_loss=0.2)), {})

    def test_a_table_with_the_most_threads_marks_nothing_else(self):
        rows = [{**row("00_serial"), "dataset": "mnist"}, row(threads=2)]
        group = tables.Group(LADDER, {}, rows).with_most_threads()
        self.assertEqual(group.strays, {})

    def test_rows_of_strangers(self):
        column = {"0.5 > x": 2.0}
        rows = [{**row(name, test_samples=0), **column} for name in ("00_serial", "02_mine")]
        self.assertEqual(running.strays(rows, LADDER), {})
        self.assertIn("0.5 > x is 3", str(running.strays([rows[0], {**rows[1], "0.5 > x": 3.0}],
                                                         LADDER)))

    def test_results_without_the_baseline(self):
        rows = [row(), row("02_mine"), row("03_mine", final_loss=0.4)]
        self.assertEqual(running.strays(rows, LADDER), {
            ("03_mine", (64, 32)): "final_loss is 0.4, and 0.3 in most others"})


STATES = [np.zeros(60), np.arange(1.0, 61) / 100]  # before the first step, and after it
ASAN = """\
simulated: CUDA on the CPU, to find errors; no time below means anything
=================================================================
simulated device: kernel update, block (54,0,0), thread (711,0,0) touched 8 bytes behind the 64
==14111==ERROR: AddressSanitizer: use-after-poison on address 0x7ee83f17371c at pc 0x557db991b7ae
READ of size 4 at 0x7ee83f17371c thread T0
    #0 0x5 in update(float*, float const*, unsigned long, float) /a folder/20_mine/train.cu:173
    #1 0x5 in _ZZZN9simulator15with_parametersIJPfPKfmfEE ../../sim/cuda_runtime.h:442
"""
UBSAN = """\
train.cu:61:20: runtime error: index 5 out of bounds for type 'float [5]'
    #0 0x5 in void tile<4>(float*) /a folder/20_mine/train.cu:61
"""


class Words(unittest.TestCase):
    def explain(self, found, loss=1.0, states=STATES, count=32):
        """What `make check` says of a step of W1 (5 × 10) and b1 (10) that leads here, of so many
        images of 32."""
        shapes = {"W1": (slice(0, 50), (5, 10)), "b1": (slice(50, 60), (1, 10))}
        items = [stages.compare_column("final_loss", {"final_loss": loss}, 1, 0.01, 0)]
        for name, (place, shape) in shapes.items():
            items.append(stages.compare_part(name, found[place].reshape(shape).astype(np.float32),
                                             states[-1][place].reshape(shape), "norm", 5e-5))
            items[-1].slice = place
        checker = check.Checker.__new__(check.Checker)
        checker.tests = LADDER.toml["tests"]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            checker.explain(items, found, states, count, 32)
        return said.getvalue()

    def test_a_doubled_learning_rate_has_a_name(self):
        self.assertEqual(self.explain(2 * STATES[1]),
                         "All steps are 2 times the right ones: is it the learning rate, or the "
                         "gradient of the outputs?\n")
        half = STATES[1].copy()
        half[:50] *= 2
        self.assertEqual(self.explain(half), "The step of W1 is 2 times the right one.\n")

    def test_a_gradient_that_is_not_set_to_zero(self):
        before, after = STATES[1], STATES[1] + np.cos(np.arange(60))
        found = after.copy()
        found[50:] += before[50:]
        self.assertEqual(self.explain(found, states=[STATES[0], before, after]),
                         "The step of b1 is 1 × the right one + 1 × that of the one before: is its "
                         "gradient set to zero?\n")

    def test_a_short_batch_that_is_divided_by_the_size_of_a_full_one(self):
        self.assertIn("The step of W1 is 0.53125 times the right one: divided by 32, not 17?",
                      self.explain(17 / 32 * STATES[1], count=17))

    def test_a_wrong_loss_of_right_weights_does_not_blame_forward_alone(self):
        self.assertIn("how train takes the epoch's mean", self.explain(STATES[1], 1.5))
        self.assertIn("look at forward first", self.explain(2 * STATES[1], 1.5))

    def test_a_sanitizers_report_names_the_kernel_and_the_line(self):
        self.assertEqual(stages.first_line(ASAN), "train.cu:173: update: kernel update, block "
                         "(54,0,0), thread (711,0,0) touched 8 bytes behind the 64")
        self.assertEqual(stages.first_line(UBSAN), "train.cu:61: tile: runtime error: index 5 out "
                         "of bounds for type 'float [5]'")
        self.assertEqual(stages.first_line("20_mine: no\nmore\n"), "20_mine: no")


if __name__ == "__main__":
    unittest.main()
