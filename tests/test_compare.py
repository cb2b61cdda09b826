"""Tests bench/pairs.py on published numbers and on made-up runs, and what compare says."""

import os
import random
import re
import sys
import time
from types import SimpleNamespace

import pytest

from bench import base, faults, host, ladders, measuring, options, pairs, rounds, screen


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


@pytest.mark.parametrize(("n", "critical"), [
    (8, 0), (10, 0), (12, 1), (15, 2), (20, 3), (25, 5), (30, 7)])
def test_published_critical_values(n, critical):
    """The table of the sign test has the largest number of signs that is significant at 0.01,
    two-sided. So many values are left out at each end of the interval."""
    values = list(range(n))
    random.Random(n).shuffle(values)
    assert pairs.interval(values) == (critical, n - 1 - critical)


def test_a_stage_against_itself():
    generator = random.Random(1)
    wrong = sum(pairs.ratio(*made_up_times(generator, 30, 1)).is_seen for _ in range(1000))
    assert wrong <= 20  # 10 are expected


def test_a_difference_is_found_and_lies_in_its_interval():
    generator = random.Random(2)
    ratios = [pairs.ratio(*made_up_times(generator, 30, 1.05)[::-1]) for _ in range(1000)]
    assert sum(ratio.low > 1 for ratio in ratios) >= 990
    assert sum(ratio.low <= 1.05 <= ratio.high for ratio in ratios) >= 980


def test_only_runs_of_a_round_are_compared():
    # Each round is twice as slow as the one before. The medians' ratio would be 2.
    assert pairs.ratio([1.0, 2.0, 4.0], [4.0, 4.0, 4.0]).median == 2
    assert pairs.ratio([1.0, 2.0, 4.0], [1.5, 3.0, 6.0]).low == 1.5
    assert pairs.ratio([2.0], [5.0]).text == "2.50× in one round" and pairs.ratio([], []) is None


@pytest.mark.parametrize(("ratio", "words"), [
    ((1.01, 0.99, 1.03), "no difference seen (0.990 to 1.030)"),
    ((1.008, 1.002, 1.022), "1.008× (1.002 to 1.022)"),
    ((254.4, 250, 260), "254× (250 to 260)"),
    ((0.0123, 0.012, 0.0125), "0.0123× (0.0120 to 0.0125)")])
def test_words(ratio, words):
    assert pairs.Ratio(*ratio, 30).text == words


@pytest.fixture
def run(monkeypatch):
    """run(RATES, LOSSES, BUSY, CLOCK, SETUP) compares two stages that are made up: the rates of
    multiply-adds after their runs, the losses of both, how much others use, what the clock of b
    counts for a second, and what b does beside its work. It notes the order in which they run."""
    monkeypatch.setattr(host, "ceiling", lambda: None)
    monkeypatch.setattr(ladders.Ladder, "data", [])

    def run(rates=(), losses=(0.3, 0.3), busy=0, clock=1.0, setup=0.2):
        ladder = ladders.find_ladder("")
        left = iter([None, None, *rates])
        stages = [SimpleNamespace(name=name, short=name, is_peer=False, ladder=ladder)
                  for name in "ab"]
        run.order = ""

        def measure(stage, words, limit=None):
            is_b = stage.name == "b"
            run.order += stage.name
            epochs = int(words[words.index("--epochs") + 1])
            seconds = (2.0 if is_b else 1.0) * epochs
            counted = seconds * clock if is_b else seconds
            return measuring.Measured({
                "device": "cpu", "threads": 1, "rate": next(left, 100), "others": 0,
                "epochs": epochs, "train_s": counted, "forward_s": 0, "backward_s": 0.5 * counted,
                "program_s": seconds + (setup if is_b else 0.1), "dataset": "mnist",
                "final_loss": losses[is_b]})

        monkeypatch.setattr(measuring, "measure", measure)
        monkeypatch.setattr(host, "watch_others", lambda: lambda: busy)
        return rounds.compare(stages, {"runs": "8", "epochs": "1"})
    return run


def test_a_comparison(run, capsys):
    """After a run of each, they take turns. Last, each has a run with other work. A phase in which
    there is nothing to do has no line."""
    run()
    text = capsys.readouterr().out
    assert "8 runs of each in turn" in text and "forward" not in text
    assert "8 pairs of runs: b is 0.500× (0.500 to 0.500) as fast as a.\n" in text
    assert run.order == "ab" + 4 * "abba" + "ab"


def test_work_that_moved_into_the_setup_is_said(run, capsys):
    """Then the whole program's ratio is another than that of its time."""
    run(setup=2.3)
    assert capsys.readouterr().out.endswith(
        "b is 0.500× (0.500 to 0.500) as fast as a; the whole program, with what it does before "
        "and after: 0.256× (0.256 to 0.256).\n")


@pytest.mark.parametrize("clock", [0, 0.5, 2])
def test_a_clock_that_is_wrong(run, capsys, clock):
    """It counts nothing, half or twice of what it takes outside."""
    with pytest.raises(SystemExit) as ended:
        run(clock=clock)
    assert ended.value.code == 1
    assert ": b: its clock is wrong: what takes " in capsys.readouterr().err


def test_disturbed_rounds_are_made_again(run, capsys, monkeypatch):
    (a, _), why = run([100, 100, 89, 100])
    assert not why and [row["rate"] for row in a] == [100] * 8
    # At most half as many: then there is no verdict. Nor is there on a busy machine.
    for words in ({"rates": [100, 100, *[50] * 40]}, {"busy": 11}):
        (a, _), why = run(**words)
        assert why and f"\nNo verdict: {why}" in capsys.readouterr().out
        with monkeypatch.context() as patch:
            patch.setitem(options.GIVEN, "BUSY", "1")
            (a, _), why = run(**words)
        assert not why and len(a) == 8
    # What the environment has under an option's name says nothing.
    monkeypatch.setenv("HIDDEN", "7")
    assert measuring.read_options(ladders.find_ladder(""), "compare")["hidden"] != "7"


def test_a_busy_machine_is_asked_about_once(run, capsys, monkeypatch):
    """At a terminal, after five disturbed rounds."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):  # with a bar, which takes stdout over
        monkeypatch.setattr(stream, "isatty", lambda: True)
    for key, made in (("n", 5), ("\n", 12)):
        monkeypatch.setattr(sys.stdin, "readline", lambda key=key: key)
        (a, _), why = run([100, 100, *[50] * 40])
        said = " ".join(capsys.readouterr().out.split())
        assert len(a) == made + (made == 5) and why and "No verdict" in said
        assert said.count("Go on? (Enter, or n to stop)") == 1
        assert "5 of 6 rounds were disturbed" in said and "So far b is 0.500×" in said


def test_progress_without_a_terminal_is_a_line_at_times(capsys, monkeypatch):
    now = 0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with screen.Bar() as bar:
        for now in (1, 9, 11, 12, 20, 22):
            bar.say(f"round {now}")
    assert capsys.readouterr().err == "round 11\nround 22\n"


def test_ctrl_c_shows_the_pairs_so_far(run, capsys, monkeypatch):
    def end(made, kept, most):
        if len(made) == 3:
            raise base.Interrupted(130)
    monkeypatch.setattr(rounds, "progress", end)
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 130
    assert re.search("Interrupted after 3 pairs.* only their range.* b is 0.500×",
                     capsys.readouterr().out)


def test_stages_that_do_not_compute_the_same(run, capsys):
    with pytest.raises(SystemExit) as ended:
        run(losses=(0.3, 0.4))
    assert ended.value.code == 1
    assert "final_loss is 0.3 in a and 0.4 in b" in capsys.readouterr().err


def test_others_are_those_that_are_not_ours(monkeypatch):
    used = host.watch_others()
    busy, own = host.processor_seconds()
    later = time.monotonic() + 1000
    monkeypatch.setattr(time, "monotonic", lambda: later)
    processors = len(os.sched_getaffinity(0))
    for others, says in ((0.09, ""), (0.4, "other programs used 40 % of the processors")):
        now = busy + 1000 * processors * others + 500, own + 500
        monkeypatch.setattr(host, "processor_seconds", lambda now=now: now)
        assert host.why_busy(used()).partition(" meanwhile")[0] == says


def test_disturbed_runs():
    runs = [{"threads": 2, "rate": rate, "others": others}
            for rate, others in ((100, 0), (91, 9), (89, 0), (100, 11), (None, None))]
    runs.append({"threads": 1, "rate": 50, "others": 0})  # one thread has its own best
    best = faults.best_rates(runs)
    assert [faults.is_disturbed(row, best) for row in runs] == [
        False, False, True, True, False, False]
