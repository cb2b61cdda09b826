"""Tests the statistics of harness/compare.py on published numbers and on made-up runs."""

import math
import os
import random
import sys
import time
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "harness"))
import compare  # noqa: E402
import running  # noqa: E402


def made_up_times(generator, pairs, ratio):
    """Times of A and B, disturbed as a machine disturbs them: noise that both runs of a pair share,
    noise of each run, and now and then a run that takes much longer."""
    times = ([], [])
    for _ in range(pairs):
        common = generator.lognormvariate(0, 0.1)
        for side, factor in zip(times, (ratio, 1)):
            time = factor * common * generator.lognormvariate(0, 0.01)
            if generator.random() < 0.05:
                time *= 1 + generator.expovariate(2)
            side.append(time)
    return times


class Statistics(unittest.TestCase):
    def test_published_critical_values(self):
        # The table of the sign test has the largest number of signs that is significant at 0.01,
        # two-sided. So many values are left out at each end of the interval.
        for n, critical in ((8, 0), (10, 0), (12, 1), (15, 2), (20, 3), (25, 5), (30, 7)):
            values = list(range(n))
            random.Random(n).shuffle(values)
            _, low, high = compare.median_with_interval(values)
            self.assertEqual((low, high), (critical, n - 1 - critical))

    def test_too_few_pairs_say_nothing(self):
        _, low, high = compare.median_with_interval([1.0] * (compare.FEWEST_PAIRS - 1))
        self.assertEqual((low, high), (-math.inf, math.inf))
        _, low, high = compare.median_with_interval([1.0] * compare.FEWEST_PAIRS)
        self.assertEqual((low, high), (1, 1))

    def test_a_stage_against_itself(self):
        generator = random.Random(1)
        wrong = 0
        for _ in range(1000):
            _, low, high = compare.ratio_with_interval(*made_up_times(generator, 30, 1))
            wrong += not low <= 1 <= high
        self.assertLessEqual(wrong, 20)  # 10 are expected

    def test_a_difference_is_found_and_lies_in_its_interval(self):
        generator = random.Random(2)
        found = inside = 0
        for _ in range(1000):
            _, low, high = compare.ratio_with_interval(*made_up_times(generator, 30, 1.05))
            found += low > 1
            inside += low <= 1.05 <= high
        self.assertGreaterEqual(found, 990)
        self.assertGreaterEqual(inside, 980)

    def test_exchanging_the_stages_inverts_the_ratio(self):
        a, b = made_up_times(random.Random(3), 30, 2)
        ratio, low, high = compare.ratio_with_interval(a, b)
        inverse, inverse_low, inverse_high = compare.ratio_with_interval(b, a)
        self.assertAlmostEqual(ratio * inverse, 1)
        self.assertAlmostEqual(low * inverse_high, 1)
        self.assertAlmostEqual(high * inverse_low, 1)

    def test_verdicts(self):
        self.assertIn("No difference", compare.verdict("a", "b", 1.01, 0.99, 1.03, 30))
        self.assertIn("Undecided", compare.verdict("a", "b", 1.2, 0.9, 1.3, 30))
        faster = "b is 2.000 times as fast as a (1.900 to 2.100)"
        self.assertIn(faster, compare.verdict("a", "b", 2, 1.9, 2.1, 30))
        faster = "a is 2.000 times as fast as b (1.818 to 2.500)"
        self.assertIn(faster, compare.verdict("a", "b", 0.5, 0.4, 0.55, 30))

    def test_others_are_those_that_are_not_ours(self):
        with mock.patch.dict(os.environ, {"OTHERS": "30"}):
            disturbed = running.watch_others()
            busy, own = running.processor_seconds()
            later, processors = time.monotonic() + 1000, len(os.sched_getaffinity(0))
            for others, says in ((0.2, ""), (0.4, "other programs used 40 % of the processors")):
                now = busy + 1000 * processors * others + 500, own + 500
                with mock.patch("time.monotonic", return_value=later), mock.patch(
                        "running.processor_seconds", return_value=now):
                    self.assertEqual(disturbed().partition(" meanwhile")[0], says)


if __name__ == "__main__":
    unittest.main()
