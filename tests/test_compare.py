"""Tests harness/pairs.py on published numbers and on made-up runs, and what compare says."""

import math
import os
import random
import re
import time
import unittest
from unittest import mock

from harness import compare, ladders, pairs, rows, running


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


def test_a_table_has_the_width_of_its_terminal(monkeypatch, capsys):
    """Words go on below themselves. Where there is no room for the names, they stand above."""
    ladder, names = ladders.find_ladder(""), ("01.2_whole_vectors", "01.3_register_tile")
    rows = [[{"train_s": seconds, "forward_s": seconds, "backward_s": None, "program_s": 12.345,
              "processor_s": 1}] * 9 for seconds in (1.0, 0.5)]
    texts = {}
    for width in (math.inf, 80, 60):
        monkeypatch.setattr(ladders, "width", lambda file, width=width: width)
        compare.print_comparison(ladder, names, rows, "x " * 50)
        text = texts[width] = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= width
        assert "\nforward     " in text and "backward" not in text
        assert re.search(r"1000.00 ms +500.00 ms   2.00× \(2.00 to\s+2.00\)", text)
    assert texts[math.inf].startswith(f"median      {names[0]}  {names[1]}   {names[1]} is ... as")
    assert "\n" + " " * 53 + "as fast\n" in texts[80]
    assert texts[60].startswith(f"A is {names[0]}, B is {names[1]}\nmedian                A  ")
    assert "B is ... as fast\n" in texts[60]


class Statistics(unittest.TestCase):
    def test_published_critical_values(self):
        # The table of the sign test has the largest number of signs that is significant at 0.01,
        # two-sided. So many values are left out at each end of the interval.
        for n, critical in ((8, 0), (10, 0), (12, 1), (15, 2), (20, 3), (25, 5), (30, 7)):
            values = list(range(n))
            random.Random(n).shuffle(values)
            self.assertEqual(pairs.interval(values), (critical, n - 1 - critical))

    def test_too_few_pairs_have_their_range(self):
        self.assertEqual(pairs.interval([3, 1, 2]), (1, 3))
        self.assertEqual(pairs.ratio([2.0], [5.0]).text, "2.50× once")
        self.assertIsNone(pairs.ratio([], []))

    def test_a_stage_against_itself(self):
        generator = random.Random(1)
        wrong = sum(pairs.ratio(*made_up_times(generator, 30, 1)).is_seen for _ in range(1000))
        self.assertLessEqual(wrong, 20)  # 10 are expected

    def test_a_difference_is_found_and_lies_in_its_interval(self):
        generator = random.Random(2)
        found = inside = 0
        for _ in range(1000):
            a, b = made_up_times(generator, 30, 1.05)
            ratio = pairs.ratio(b, a)
            found += ratio.low > 1
            inside += ratio.low <= 1.05 <= ratio.high
        self.assertGreaterEqual(found, 990)
        self.assertGreaterEqual(inside, 980)

    def test_only_runs_of_a_round_are_compared(self):
        # Each round is twice as slow as the one before. The medians' ratio would be 2.
        self.assertEqual(pairs.ratio([1.0, 2.0, 4.0], [4.0, 4.0, 4.0]).median, 2)
        self.assertEqual(pairs.ratio([1.0, 2.0, 4.0], [1.5, 3.0, 6.0]).low, 1.5)

    def test_words(self):
        for median, low, high, words in (
                (1.01, 0.99, 1.03, "no difference seen (0.990 to 1.030)"),
                (1.008, 1.002, 1.022, "1.008× (1.002 to 1.022)"),
                (2, 1.9, 2.1, "2.00× (1.90 to 2.10)"), (254.4, 250, 260, "254× (250 to 260)"),
                (0.0123, 0.012, 0.0125, "0.0123× (0.0120 to 0.0125)")):
            self.assertEqual(pairs.Ratio(median, low, high, 9).text, words)

    def test_verdicts(self):
        def verdict(*numbers):
            return compare.verdict("a", "b", pairs.Ratio(*numbers, 30))

        self.assertEqual(verdict(1.01, 0.99, 1.03),
                         "30 pairs of runs: no difference seen (0.990 to 1.030).")
        self.assertIn("b is 2.00× (1.90 to 2.10) as fast as a", verdict(2, 1.9, 2.1))
        self.assertIn("a is 2.00× (1.82 to 2.50) as fast as b", verdict(0.5, 0.4, 0.55))

    def test_disturbed_runs(self):
        runs = [{"threads": 2, "rate": rate, "others": others}
                for rate, others in ((100, 0), (91, 9), (89, 0), (100, 11), (None, None))]
        runs.append({"threads": 1, "rate": 50, "others": 0})  # one thread has its own best
        with mock.patch.dict(os.environ, {"OTHERS": "", "RATE": ""}):
            best = rows.best_rates(runs)
            self.assertEqual([rows.is_disturbed(row, best) for row in runs],
                             [False, False, True, True, False, False])

    def test_others_are_those_that_are_not_ours(self):
        with mock.patch.dict(os.environ, {"OTHERS": "30"}):
            used = running.watch_others()
            busy, own = running.processor_seconds()
            later, processors = time.monotonic() + 1000, len(os.sched_getaffinity(0))
            for others, says in ((0.2, ""), (0.4, "other programs used 40 % of the processors")):
                now = busy + 1000 * processors * others + 500, own + 500
                with mock.patch("time.monotonic", return_value=later), mock.patch(
                        "harness.running.processor_seconds", return_value=now):
                    self.assertEqual(running.why_no_verdict(used()).partition(" meanwhile")[0],
                                     says)
