"""Tests what is shown of results, on a made-up ladder of two stages and a step, and made-up rows.
The program is tables.py, in this process."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import ladders, rows
from report import tables, view

pytestmark = pytest.mark.usefixtures("default_limits")

LADDER = """\
title = "A ladder"
program = "train"
time = "train_s"
baseline = "00_plain"
heading = "{epochs} epochs of {images} images"
phases = ["forward"]
[[axes]]
option = "batch"
name = "Batch size"
values = [1, 2]
[[axes]]
option = "hidden"
name = "hidden units"
values = [8, 64]
[settings]
epochs = 5
images = 37800
[[measures]]
column = "train_s"
title = "Training time"
unit = "s"
[[measures]]
column = "forward_s"
title = "Forward time"
unit = "s"
[[measures]]
column = "test_accuracy"
title = "Test accuracy"
"""
PLAIN = """\
title = "An example"
program = "run"
time = "time_s"
baseline = "00_plain"
[[measures]]
column = "time_s"
title = "Time of a pass"
unit = "s"
"""
SIMPLE = {"stage": "00_plain", "device": "cpu", "threads": 1, "dataset": "drawn", "gflops": 1}
ROW = {**SIMPLE, "batch": 1, "hidden": 8, "epochs": 5, "images": 37800, "dataset": "mnist",
       "setup_s": 0, "train_s": 1, "forward_s": "", "test_accuracy": 0.9, "sweep": 1, "round": 1,
       "others": 0, "rate": 100}


def runs(stage, *times, **values):
    """A row for each of the times, each in a round of its own."""
    return [{**ROW, "stage": stage, "train_s": time, "round": number, **values}
            for number, time in enumerate(times, 1)]


def write(path, lines):
    """A CSV file of rows that have the same columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = [",".join(lines[0]), *(",".join(f'"{value}"' for value in each.values())
                                  for each in lines)]
    path.write_text("\n".join([*text, ""]), encoding="utf-8")


def make_stage(folder, source="int main(void) { return 0; }\n", program="train"):
    folder.mkdir(parents=True)
    (folder / "Makefile").write_text("MOVE = a move\n")
    (folder / f"{program}.c").write_text(source)
    (folder / "README.md").write_text(f"# {folder.name}: a move\n")


@pytest.fixture
def lab(tmp_path, monkeypatch, capfd):
    """A repository with one ladder and a machine's results. It is the working directory."""
    for stage in ("00_plain", "01.1_loops", "01_fast"):
        make_stage(tmp_path / "stages" / stage)
    (tmp_path / "stages/ladder.toml").write_text(LADDER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ladders, "ROOT", tmp_path)

    class Lab:
        path, results = tmp_path, tmp_path / "machine/stages"

        def write(self, *lines, part="", **sweep):
            """The rows, and what sweeps.csv says of their sweep."""
            write(self.results / part / "runs.csv", [row for each in lines for row in each])
            write(self.results / part / "sweeps.csv", [
                {"sweep": 1, "key": key, "value": value}
                for key, value in {"cpu": "An Example, 2 cores", **sweep}.items()])

        def programs(self, *found, part="", sweep=1):
            """programs.csv, of (program, outcome, reason, sources)."""
            write(self.results / part / "programs.csv", [
                dict(zip(rows.PROGRAMS, (sweep, *each, "-O3"))) for each in found])

        def ceilings(self, **rates):
            """What bench/ceilings writes, of the rates of t1, t2, ... threads."""
            (self.results.parent / "bench").mkdir(exist_ok=True)
            (self.results.parent / "bench/ceilings.json").write_text(json.dumps({"benchmarks": [
                {"name": f"ceilings/multiply_add/real_time/threads:{name[1:]}",
                 "run_type": "iteration", "flops": rate} for name, rate in rates.items()] + [
                {"name": "ceilings/barrier/threads:2/manual_time", "run_type": "iteration",
                 "real_time": 250}]}))

        def forget(self):
            """As in a new process."""
            ladders.ladders.cache_clear()
            rows.or_nothing.cache_clear()
            view.changed_lines.cache_clear()

        def call(self, *words, path=None):
            """(exit status, lines) of tables.py."""
            self.forget()
            monkeypatch.setattr(sys, "argv", ["tables", *map(str, words),
                                              str(path or self.results / "runs.csv")])
            try:
                status = tables.main() or 0
            except SystemExit as error:
                status = error.code
            out, err = capfd.readouterr()
            return status, (out + err).splitlines()

        def show(self, *words, **more):
            status, lines = self.call(*words, **more)
            assert status == 0, lines
            return "\n".join(lines)

        def lines(self, **more):
            """The lines of the tables, without more than one blank between two words."""
            return [" ".join(line.split()) for line in self.show(**more).split("\n")]

        def readme(self, name="table"):
            """What tables.py writes between the markers of this name."""
            markers = [f"<!-- {each}: {which} -->" for each in dict.fromkeys(("table", name))
                       for which in ("begin", "end")]
            (self.path / "README.md").write_text("\n".join(markers))
            self.show("--update", "README.md")
            return (self.path / "README.md").read_text().partition(markers[-2])[2]

        def stage(self, name):
            """What stands in a stage's README."""
            self.forget()
            ladder = ladders.find_ladder("")
            found = view.read_groups(self.results / "runs.csv", ladder)
            return view.stage_block([found] * bool(found), ladder.find(name))

    yield Lab()
    ladders.ladders.cache_clear()


def write_all(lab, **sweep):
    """Two stages, of which the second has three runs at hidden 8, and none at batch 2."""
    lab.write(runs("00_plain", 4, 4.2, 4, forward_s=2.5), runs(
        "01_fast", 0.125, 0.1, 0.105, threads=2, forward_s=0.06),
        runs("00_plain", 50, hidden=64, forward_s=30), runs(
            "01_fast", 0.4, hidden=64, threads=2, forward_s=0.15),
        runs("00_plain", 60, hidden=64, batch=2, forward_s=30), **sweep)
    lab.programs(*((f"0{number}_gpu", "no device", "none found", "") for number in (2, 3)),
                 ("04_old", "does not build", "a | b", ""))


# --- the terminal ---

def test_the_tables_worked_out_by_hand(lab):
    write_all(lab)
    # 01_fast at 8: the median of 0.1, 0.105 and 0.125, and 0.02 / 0.105 is 19 %. The ratios of the
    # rounds are 4 / 0.125, 4.2 / 0.1 and 4 / 0.105.
    assert lab.show() == """\
An Example, 2 cores

MNIST: 5 epochs of 37,800 images
medians of up to 3 runs; +2%: the run farthest from the median is 2 % above it;
~: a run is more than 10 % from the median; a ratio is the median over pairs of
runs of the same round, with its interval of 99 % in brackets, or their range
below 8 pairs; once: one run; in brackets: threads

Batch size 1
hidden units        8           64
Training time (s)
  00_plain       4.00 +5%     50.0 once
  01_fast (2)   0.105 ~19%   0.400 once
Forward time (s)
  00_plain       2.50         30.0
  01_fast (2)  0.0600        0.150
Test accuracy
  00_plain     0.9000       0.9000
  01_fast (2)  0.9000       0.9000

Batch size 1
hidden units                      8                    64
Speedup over 00_plain
  01_fast (2)  38.1× (32.0 to 42.0)             125× once

Batch size 2
hidden units        8           64
Training time (s)
  00_plain          -         60.0 once
  01_fast (2)       -            -
Forward time (s)
  00_plain          -         30.0
  01_fast (2)       -            -
Test accuracy
  00_plain          -       0.9000
  01_fast (2)       -            -

02_gpu, 03_gpu: no device: none found
04_old: does not build: a | b"""


def test_other_data_epochs_and_threads_stay_apart(lab):
    lab.write(runs("00_plain", 4, dataset="synthetic"), runs("00_plain", 4, dataset="csv"),
              runs("00_plain", 1, epochs=1), runs("01_fast", 0.1, epochs=1, threads=16),
              runs("01_fast", 0.2, epochs=1, threads=4), runs("01_fast", 0.5, threads=""))
    lines = lab.lines()
    assert [line.split(" of ")[0] for line in lines if " of 37,800" in line] == [
        "MNIST: 1 epoch", "MNIST: 5 epochs", "train.csv: 5 epochs",
        "SYNTHETIC DIGITS, NOT MNIST: 5 epochs"]
    at = lines.index("Speedup over 00_plain")
    assert lines[at + 1:at + 4] == ["01_fast (4) 5.00× once", "01_fast (16) 10.0× once", ""]
    assert lines.count("Speedup over 00_plain") == 1


def test_a_terminal_has_80_columns(lab):
    lab.write(*(runs(stage, 0.0512, 0.0612, 0.0812, hidden=hidden, threads=16)
                for hidden in (8, 16, 32, 64, 128, 256, 1024)
                for stage in ("00_plain", "peer_pytorch_cuda")))
    text = lab.show()
    assert max(map(len, text.split("\n"))) <= 80
    times, speedups = text.split("Speedup", 1)
    for part, cell in ((times, "0.0612 ~33%"), (speedups, "no difference seen (1.000 to 1.000)")):
        assert part.count(cell) == (14 if part is times else 7)
    # Each column stands once above the times, and once above the speedups, which are wider.
    heads = [line.removeprefix("hidden units") for line in text.split("\n") if "hidden" in line]
    assert " ".join(heads).split() == 2 * ["8", "16", "32", "64", "128", "256", "1024"]
    assert len(heads) == 2 + 7


def test_the_first_lines_say_what_is_wrong_with_a_sweep(lab):
    write_all(lab, revision="abc1234, changed", others=43.2)
    said = ("An Example, 2 cores; revision abc1234, changed; other programs used 43 % of the "
            "processors just before")
    assert lab.show().replace("\n", " ").startswith(said)
    assert f"on {said}." in lab.show("--markdown")
    write_all(lab, revision="abc1234", others=rows.OTHERS)
    assert lab.show().startswith("An Example, 2 cores\n")
    write_all(lab, others="many")
    assert "sweeps.csv: others: found 'many', expected a number" in lab.show()


# --- which runs count ---

def test_a_ratio_is_never_from_other_rounds_or_sweeps(lab):
    lab.write(runs("00_plain", 4, 8), runs("01_fast", 1, 1, sweep=2))
    assert "×" not in lab.show()
    # Round 2 of sweep 1 is the only one that has both. The medians' ratio would be 6.
    lab.write(runs("00_plain", 4, 8), runs("01_fast", 1, sweep=2), runs("01_fast", 1, round=2))
    assert "01_fast 8.00× once" in lab.lines()
    # What no row says is no round.
    lab.write(runs("00_plain", 4, round=""), runs("01_fast", 1, round=""))
    assert "×" not in lab.show()


def test_disturbed_runs_count_only_where_a_cell_has_no_others(lab):
    lab.write(runs("00_plain", 4, 4), runs("01_fast", 1), runs("01_fast", 9, round=2, rate=80),
              runs("peer_one", 2, 3, others=50), runs("01_fast", 5, hidden=64, others=9.9))
    text = lab.lines()
    assert {"01_fast 1.00 once 5.00 once", "01_fast 4.00× once -",
            "peer_one 2.50↓ ~20% -"} <= {*text}
    text = " ".join(text)
    assert "3 of 7 runs were disturbed, and count only in cells without others" in text
    assert "↓: in all runs, multiply-adds were below 90 % of their best rate before" in text
    assert "| peer_one | ↓\\~2.50 s (2.00 to 3.00), " in lab.show("--markdown")


def test_a_measure_counts_where_each_run_has_it(lab):
    lab.write(runs("00_plain", 4, forward_s=2.5), runs("01_fast", 1, forward_s=0.5),
              runs("01_fast", 1, round=2))
    lines = lab.lines()
    assert lines[lines.index("Forward time (s)") + 1:][:2] == ["00_plain 2.50", "Test accuracy"]


def test_a_program_that_was_edited_since_is_marked(lab):
    write_all(lab)
    stages = {stage.name: stage.sources for stage in ladders.Ladder(lab.path / "stages").stages}
    lab.programs(("00_plain", "ran", "", stages["00_plain"]), ("01_fast", "ran", "",
                                                               stages["01_fast"]))
    assert "Δ" not in lab.show() + lab.readme("ladder")
    with (lab.path / "stages/01_fast/train.c").open("a") as file:
        file.write("// A comment changes nothing that is measured.\n")
    assert "Δ" not in lab.show()
    with (lab.path / "stages/01_fast/train.c").open("a") as file:
        file.write("int edited;\n")
    assert "01_fast (2) Δ 0.105 ~19% 0.400 once" in lab.lines() and "00_plain Δ" not in lab.show()
    assert "| 01_fast, 2 threads Δ |" in lab.show("--markdown")
    for text in (lab.show(), lab.show("--markdown"), lab.stage("01_fast")):
        assert "Δ: its sources have changed since" in text
    lab.write(runs("00_plain", 4), runs("01_fast", 1))
    assert "| [01_fast Δ](stages/01_fast) | 1.00 |" in lab.readme("ladder")
    # Another sweep's sources, or none, mark nothing.
    lab.programs(("01_fast", "ran", "", ""))
    assert "Δ" not in lab.show()
    lab.programs(("01_fast", "ran", "", "0"), sweep=2)
    assert "Δ" not in lab.show()


# --- the headline ---

def test_the_headline_is_written_between_the_markers_and_only_there(lab):
    write_all(lab)
    readme = lab.path / "README.md"
    readme.write_text("above\n<!-- table: begin -->\nold\n<!-- table: end -->\nbelow\n")
    for _ in range(2):
        lab.show("--update", readme)
        assert readme.read_text() == """\
above
<!-- table: begin -->
Each cell: training time, speedup over 00_plain.

MNIST: 5 epochs of 37,800 images; medians of up to 3 runs; \\~: a run is more than 10 % from the \
median; in brackets: the range of the runs; a ratio is the median over pairs of runs of the same \
round, with its interval of 99 % in brackets, or their range below 8 pairs; once: one run; on An \
Example, 2 cores.

| stage | 8 hidden, batch 1 | 64 hidden, batch 1 | 64 hidden, batch 2 |
| --- | ---: | ---: | ---: |
| 00_plain | 4.00 s (4.00 to 4.20) | 50.0 s once | 60.0 s once |
| 01_fast, 2 threads | \\~0.105 s (0.100 to 0.125), 38.1× (32.0 to 42.0) | 0.400 s once, \
125× once | - |

All stages, peers and cells are in [the runs](machine/stages/runs.csv).
<!-- table: end -->
below
"""
    for text in ("", "<!-- table: begin -->", "<!-- table: end --> <!-- table: begin -->"):
        readme.write_text(text)
        status, lines = lab.call("--update", "README.md")
        assert status == 2 and len(lines) == 1 and readme.read_text() == text
        assert lines[0].startswith("tables: README.md: expected '<!-- table: begin -->' and")


def test_a_quick_look_ends_with_what_was_gained(lab):
    lab.results = lab.path / "machine-quick/stages"
    lab.write(runs("00_plain", 50, hidden=64), runs("01_fast", 0.4, hidden=64, threads=2),
              runs("peer_a", 0.1, hidden=64))
    said = " ".join(lab.lines())
    assert said.endswith("Gained on this machine at 64 hidden, batch 1: 01_fast on 2 threads is "
                         "125 times as fast as 00_plain. Type next: make step STAGE=01.1")
    lab.write(runs("00_plain", 50, 50, hidden=64), runs("01_fast", 40, 55, hidden=64))
    assert "01_fast is 1.080 times as fast as 00_plain, which so few runs do not show." in " ".join(
        lab.lines())
    lab.write(runs("00_plain", 50, hidden=64))
    assert "Gained" not in " ".join(lab.lines())


def test_the_headline_has_the_part_of_the_ceiling_and_the_fastest_peer(lab):
    cells = (8, 16, 64)
    lab.write(*(runs(stage, *[times] * 2, hidden=hidden, **more) for hidden in cells
                for stage, times, more in (
                    ("00_plain", hidden / 2, {"gflops": 1 if hidden == 64 else 2}),
                    ("01_fast", 0.5, {"threads": 2, "gflops": 120}),
                    ("02_gpu", 0.25, {"threads": "", "device": "cuda", "gflops": 999}),
                    # Each of the two is the fastest in some cell. In the mean, the second one is.
                    ("peer_a", 1 if hidden == 8 else 4, {"threads": 2, "gflops": 15}),
                    ("peer_b", 2 if hidden == 8 else 1, {"threads": 2, "gflops": 30}),
                    ("peer_c", 0.1, {"threads": "", "device": "cuda", "gflops": 999}))))
    lab.ceilings(t1=100e9, t2=200e9)  # and a barrier, which no run can be drawn under
    assert rows.read_ceilings(lab.results.parent / "bench/ceilings.json") == [
        ("flops", 1, 100e9), ("flops", 2, 200e9), ("barrier", 2, 4e6)]
    text = lab.show("--markdown")
    assert text.startswith(
        "Each cell: training time, speedup over 00_plain, share of peak. Peak is what multiply-"
        "adds alone reach on as many threads: 100 GFLOP/s with 1 thread, 200 GFLOP/s with 2 "
        "threads. A GPU's line has no peak here. 00_plain reaches 1.0 % to 2.0 % of peak.\n")
    assert "| 00_plain | 4.00 s (4.00 to 4.00), 2.0 % | 8.00 s " in text
    assert "| 01_fast, 2 threads | 0.500 s (0.500 to 0.500), 8.00× (8.00 to 8.00), 60 % |" in text
    assert "| 02_gpu | 0.250 s (0.250 to 0.250), 16.0× (16.0 to 16.0) |" in text
    assert "| peer_b, 2 threads | 2.00 s " in text and "| peer_a" not in text
    assert "peer_b is the fastest CPU [peer](stages/peers) (geometric mean over 3 cells)." in text
    for each in (text, lab.show()):
        assert (
            "On the CPU, the fastest stage is 2.00 times as fast as the fastest peer, setup "
            "counted (geometric mean over 3 cells: 2.00 to 2.00). On the GPU, the fastest stage is "
            "0.40 times as fast as the fastest peer, setup not counted (geometric mean over 3 "
            "cells: 0.40 to 0.40).") in " ".join(each.split())
    # A ladder that is bound by memory has another: 8 bytes for each of the 37800 images.
    toml = lab.path / "stages/ladder.toml"
    plain = toml.read_text()
    toml.write_text(plain.replace('baseline', 'bound = "memory"\nbaseline', 1)
                    + '[work.forward]\nbytes = ["images 8"]\n')
    (lab.results.parent / "bench/ceilings.json").write_text(json.dumps({"benchmarks": [
        {"name": "ceilings/read/memory/real_time/threads:1", "run_type": "iteration",
         "bytes_read": 151200}]}))
    text = lab.show("--markdown")
    assert "Peak is what reading memory alone reaches on as many threads" in text
    assert "| 00_plain | 4.00 s (4.00 to 4.00), 50 % | 8.00 s " in text
    toml.write_text(plain)
    # The ceiling for so many threads was not measured, or its file is damaged.
    lab.ceilings(t1=100e9)
    assert "8.00× (8.00 to 8.00) |" in lab.show("--markdown")
    (lab.results.parent / "bench/ceilings.json").write_text("{}")
    assert "expected the JSON of Google Benchmark" in lab.show("--markdown")


def test_what_a_stage_does_before_the_clock_counts(lab):
    # Before the clock, 01_early works 0.3 s at hidden 8, and all others 0.01 s.
    lab.write(*(runs(stage, time, time, hidden=hidden,
                     setup_s=0.3 if (stage, hidden) == ("01_early", 8) else 0.01)
                for hidden in (8, 64) for stage, time in (("01_early", 0.2), ("02_two", 0.39),
                                                          ("peer_a", 0.59))))
    # 0.6 / 0.4 at hidden 8, where 02_two is the fastest then, and 0.6 / 0.21 at hidden 64
    said = "is 2.07 times as fast as the fastest peer, setup counted (geometric mean over "
    assert f"{said}2 cells: 1.50 to 2.86)." in lab.show("--markdown")
    # Where the two share no round, there is no ratio. The sentence says of how many cells it is.
    lab.write(runs("01_fast", 1), runs("peer_a", 2), runs("01_fast", 1, hidden=64),
              runs("peer_a", 3, hidden=64, sweep=2))
    assert "is 2.00 times as fast as the fastest peer, setup counted (geometric mean over 1 of 2 " \
           "cells: 2.00 to 2.00)." in lab.show("--markdown")
    lab.write(runs("01_fast", 1), runs("peer_a", 2, sweep=2))
    assert "times as fast as" not in lab.show("--markdown")


def test_the_headline_has_eight_lines_at_most(lab):
    names = [*(f"{number:02}_stage" for number in range(10)), "peer_one"]
    lab.write(*(runs(name, 1) for name in names))
    shown = [line.split()[1] for line in lab.show("--markdown").split("\n") if "_" in line[:9]]
    assert [name for name in shown if name in names] == [names[0], *names[4:]]


def test_a_list_of_threads(lab):
    """All are in the tables, and in the headline the most that a cell has."""
    lab.write(*(runs(stage, time, hidden=hidden, threads=threads) for hidden in (8, 64)
                for stage, time, threads in (("00_plain", 8, 1), ("01_fast", 4, 1),
                                             ("01_fast", 1, 2), ("peer_one", 2, 2))),
              runs("01_fast", 2, hidden=64, threads=4))
    assert {"01_fast 2.00× once 2.00× once", "01_fast (2) 8.00× once 8.00× once",
            "01_fast (4) - 4.00× once", "peer_one (2) 4.00× once 4.00× once"} <= {*lab.lines()}
    text = lab.show("--markdown")
    assert "| 01_fast, 4 threads | 1.00 s, 8.00× once, 2 threads | 2.00 s, 4.00× once |" in text
    # As if no other number had been run: four threads, although two are faster.
    assert "geometric mean over 2 cells: 1.00 to 2.00" in text


def test_a_program_that_leaves_out_operations_is_marked_where_its_rate_is_shown(lab):
    (lab.path / "stages/01_fast/Makefile").write_text("SKIPS = products with 0\n")
    (lab.path / "stages/peers").mkdir()
    (lab.path / "stages/peers/peer_b.py").touch()
    (lab.path / "stages/peers/Makefile").write_text("peer_b_SKIPS := all that it can\n")
    lab.write(runs("00_plain", 4, gflops=10), runs("01_fast", 0.25, gflops=160),
              runs("peer_b", 0.2, gflops=200))
    assert "†" not in lab.show("--markdown")  # no rate is shown
    lab.ceilings(t1=100e9)
    text = lab.show("--markdown")
    assert "| 01_fast | 0.250 s, 16.0× once, 160 %† |" in text and "10 % |" in text
    assert ("† 01_fast leaves out products with 0. A rate counts them, so it may pass peak. † "
            "peer_b leaves out all that it can.") in text
    assert "| 160 %† |" in lab.readme("ladder")


# --- the ladder and the READMEs of its stages ---

def with_steps(lab):
    """steps/ has two cells of all three, and the grid one cell of the stages."""
    lab.write(runs("00_plain", 8), runs("01_fast", 1))
    lab.write(*(runs(stage, *[time] * 2, hidden=hidden, epochs=1) for hidden in (8, 64)
                for stage, time in (("00_plain", 4), ("01.1_loops", 2), ("01_fast", 0.5))),
              part="steps", cpu="An Example, 2 cores")
    make_stage(lab.path / "stages/02_gpu")
    make_stage(lab.path / "stages/03_gpu")
    for part in ("", "steps"):
        lab.programs(("02_gpu", "no device", "none | found", ""),
                     ("03_gpu", "no device", "none | found", ""), part=part)


def test_the_ladder_has_the_two_cells_of_steps(lab):
    (lab.path / "stages/01.1_loops/train.c").write_text("int main(void)\n{\n    return 0;\n}\n")
    (lab.path / "stages/01_fast/train.c").write_text("int main(void)\n{\n  return 0;\n  // x\n}\n")
    with_steps(lab)
    text = lab.readme("ladder")
    once = "4.00 (4.00 to 4.00)", "2.00 (2.00 to 2.00)", "0.500 (0.500 to 0.500)"
    assert "MNIST: 1 epoch of" in text
    assert [line for line in text.split("\n") if line.startswith("|")] == [
        "| | 8 hidden, batch 1 (s) | over the line above | share of peak | 64 hidden, batch 1 (s) "
        "| over the line above | share of peak | changed lines | the move |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
        f"| [00_plain](stages/00_plain) | {once[0]} |  | - | {once[0]} |  | - |  | a move |",
        f"| [01.1_loops](stages/01.1_loops) | {once[1]} | 2.00× (2.00 to 2.00) | - | {once[1]} | "
        "2.00× (2.00 to 2.00) | - | 5 | a move |",
        f"| [01_fast](stages/01_fast) | {once[2]} | 4.00× (4.00 to 4.00) | - | {once[2]} | "
        "4.00× (4.00 to 4.00) | - | 3 (1) | a move |"]
    assert "in brackets, without those that differ in white space only" in text
    # Those without a time share a line, with their reason.
    assert "- [02_gpu](stages/02_gpu), [03_gpu](stages/03_gpu): none \\| found\n" in text


def test_the_first_page_has_the_stages_alone(lab):
    """Without ranges. The others are named with what they need."""
    with_steps(lab)
    (lab.path / "stages/02_gpu/train.c").rename(lab.path / "stages/02_gpu/train.cu")
    lab.forget()
    text = view.front(view.read_groups(lab.results / "runs.csv", ladders.find_ladder("")), lab.path)
    assert [line for line in text.split("\n") if line.startswith("|")] == [
        "| stage | 8 hidden, batch 1 | 64 hidden, batch 1 | its move |",
        "| --- | ---: | ---: | --- |",
        "| [00_plain](stages/00_plain) | 4.00 s | 4.00 s | a move |",
        "| [01_fast](stages/01_fast) | 0.500 s, 8.00× | 0.500 s, 8.00× | a move |"]
    assert "No machine has run [02_gpu](stages/02_gpu): an NVIDIA GPU is needed.\n" in text
    assert "No machine has run [03_gpu](stages/03_gpu): none \\| found.\n" in text


def test_without_steps_the_ladder_has_one_cell_of_the_grid(lab):
    lab.write(runs("00_plain", 4), runs("01.1_loops", 1), runs("01_fast", 0.5, hidden=64),
              runs("00_plain", 8, hidden=64))
    text = lab.readme("ladder")
    assert "64 hidden, batch 1 (s) | over" in text and "8 hidden" not in text
    assert "| [01_fast](stages/01_fast) | 0.500 | 16.0× once | - | 0 | a move |" in text
    assert "- [01.1_loops](stages/01.1_loops): not run" in text
    # The tables have steps, and the headline has none but where there is nothing else.
    assert "01.1_loops 1.00 -" in lab.lines() and "01.1" not in lab.show("--markdown")
    lab.write(runs("01.1_loops", 1))
    assert "| 01.1_loops | 1.00 s |" in lab.show("--markdown")


def test_a_stages_readme_has_the_stage_before_it_and_its_grid(lab):
    with_steps(lab)
    text = lab.stage("01.1")
    assert [line for line in text.split("\n") if line.startswith("|")] == [
        "| | 8 hidden, batch 1 | 64 hidden, batch 1 |", "| --- | ---: | ---: |",
        "| 00_plain | 4.00 s (4.00 to 4.00) | 4.00 s (4.00 to 4.00) |",
        "| 01.1_loops | 2.00 s (2.00 to 2.00) | 2.00 s (2.00 to 2.00) |",
        "| times as fast | 2.00× (2.00 to 2.00) | 2.00× (2.00 to 2.00) |"]
    text = lab.stage("01_fast")
    assert "| times as fast | 4.00× (4.00 to 4.00) | 4.00× (4.00 to 4.00) |" in text
    assert text.endswith("| 01_fast | batch 1 |\n| --- | ---: |\n"
                         "| hidden 8 | 1.00 s, 1.00 GFLOP/s, 8.00× once |")
    assert lab.stage("02") == "No machine has run it: none \\| found."
    (lab.results / "runs.csv").write_text("")
    assert lab.stage("02") == "No results yet."
    # A step without steps/ has the cells of the headline.
    (lab.results / "steps/runs.csv").unlink()
    lab.write(runs("00_plain", 4), runs("01.1_loops", 1))
    assert "| times as fast | 4.00× once |" in lab.stage("01.1")


def test_the_block_of_epochs_has_a_line_for_each_program(lab):
    columns = dict.fromkeys(view.EPOCHS, "") | {"epoch_s": 0.5, "samples_per_s": 4321,
                                                "test_accuracy": 0.98765, "peak_rss_mib": 128}
    lab.write(runs("00_plain", 4, **columns), runs("01_fast", 0.5, 1, threads=2, **columns))
    lab.programs(("02_gpu", "no device", "none found", ""))
    make_stage(lab.path / "stages/02_gpu")
    write(lab.results / "epochs.csv", [
        {**SIMPLE, "batch": 1, "hidden": 8, "dataset": "mnist", "run": run, "epoch": epoch,
         "epoch_s": 1, "samples_per_s": 1, "test_accuracy": 1, "rss_mib": 100 * run + epoch}
        for run, epochs in ((1, 5), (3, 5), (9, 4)) for epoch in range(1, 1 + epochs)])
    text = lab.readme("epochs")
    assert [line for line in text.split("\n") if line[:1] in ("|", "-")] == [
        "| platform | average time of an epoch (s) | total training time (s) | average throughput "
        "(1000 samples/s) | final test accuracy (%) | peak memory (MiB) | average memory (MiB) |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| 00_plain | 0.500 | 4.00 | 4.32 | 98.77 | 128 | 203 |",  # (101 + ... + 305) / 10
        "| 01_fast, 2 threads | 0.500 | \\~0.750 | 4.32 | 98.77 | 128 |  |",
        "| 02_gpu |  |  |  |  |  |  |", "- 02_gpu: none found"]
    lab.write(runs("00_plain", 4))
    assert "platform" not in lab.readme("epochs")


# --- other ladders ---

def make_ladder(lab, name, text):
    make_stage(lab.path / "studies" / name / "00_plain", program="run")
    (lab.path / "studies" / name / "ladder.toml").write_text(text)
    return lab.path / "machine" / name / "runs.csv"


def test_a_ladder_of_one_axis_in_milliseconds(lab, monkeypatch):
    path = make_ladder(lab, "waves", PLAIN.replace("[[measures]]", """\
[[axes]]
option = "points"
name = "Points"
values = [8, 64]
[columns]
points = "n_points"
[[measures]]""", 1) + '[[measures]]\ncolumn = "energy"\ntitle = "Energy"\n')
    write(path, [{**SIMPLE, "stage": stage, "threads": threads, "device": device,
                  "n_points": points, "time_s": time, "energy": energy, "sweep": 1, "round": number}
                 for stage, device, threads, points, time, energy, number in (
                     ("00_plain", "cpu", 1, 8, 0.0008, -0.012345678, 1),
                     ("00_plain", "cpu", 1, 64, 0.064, 1.5, 1),
                     ("01_fast", "cpu", 4, 8, 0.00005, -0.012345678, 1),
                     ("01_fast", "cpu", 4, 8, 0.00005, -0.012345678, 2),
                     ("01_fast", "cuda", "", 64, 0.004, 519.5, 1),
                     ("02_simulated", "simulated", "", 64, 0.004, 1.5, 1))])
    text = lab.show(path=path)
    assert text.endswith("""
Points                8              64
Time of a pass (ms)
  00_plain        0.800 once       64.0 once
  01_fast             -            4.00≠ once
  01_fast (4)    0.0500 +0%           -
Energy
  00_plain     -0.01235          1.5000
  01_fast             -           519.5≠
  01_fast (4)  -0.01235               -

Points                  8          64
Speedup over 00_plain
  01_fast               -  16.0× once
  01_fast (4)  16.0× once           -""")
    assert text.startswith("unknown machine\n") and "≠ marks results" in text
    assert lab.call("--ladder", "stages", path=path) == (2, [
        f"tables: {path}: line 1: found no column 'epochs', expected the header of --csv"])
    assert lab.call("--ladder", "wave", path=path) == (2, [
        "tables: --ladder: found 'wave', expected 'waves'"])
    # Columns and words that a terminal has no room for stand below.
    monkeypatch.setattr(ladders, "width", lambda file: 30)
    assert max(map(len, lab.show(path=path).split("\n"))) <= 30
    assert "| 01_fast, 4 threads | 0.0500 ms (0.0500 to 0.0500), 16.0× once | - |" in lab.show(
        "--markdown", path=path)


def test_a_ladder_of_no_axes_and_of_float64(lab):
    path = make_ladder(lab, "still", PLAIN.replace("[[", 'numbers = "float64"\n[[', 1))
    write(path, [{**SIMPLE, "stage": stage, "time_s": time, "gflops": rate, "sweep": 1, "round": 1}
                 for stage, time, rate in (("00_plain", 2, 1), ("01_fast", 0.25, 40))])
    lab.ceilings(t1=100e9)  # half of it for float64
    assert lab.show(path=path).endswith(
        "each; once: one run\n\nTime of a pass (s)\n  00_plain   2.00\n  01_fast   0.250\n\n"
        "Speedup over 00_plain\n  01_fast  8.00× once")
    text = lab.show("--markdown", path=path)
    assert "multiply-adds of float64 alone reach on as many threads: 50.0 GFLOP/s" in text
    assert "| stage | each run |" in text and "| 01_fast | 0.250 s, 8.00× once, 80 % |" in text


# --- what is wrong ---

@pytest.mark.parametrize(("change", "message"), [
    ({"hidden": "x"}, "line 2: hidden: found 'x', expected a whole number from 1"),
    ({"train_s": "nan"}, "line 2: train_s: found 'nan', expected a number, not below 0"),
    ({"stage": "a\tb"}, "line 2: stage: found 'a b', expected a name of at most 100 printable"),
])
def test_damaged_rows_are_refused_in_one_line(lab, change, message):
    lab.write([{**ROW, **change}])
    status, lines = lab.call(path="machine/stages/runs.csv")
    assert (status, len(lines)) == (2, 1)
    assert lines[0].startswith(f"tables: machine/stages/runs.csv: {message}")


def test_what_is_no_file_of_rows_is_refused_in_one_line(lab):
    path = lab.path / "runs.csv"
    path.write_bytes(b"stage\xff\n")
    assert lab.call(path="runs.csv") == (
        2, ["tables: runs.csv: line 1: byte 6: found 0xff, expected UTF-8"])
    path.write_text("")
    assert lab.show(path="runs.csv") == "unknown machine\n\nno finished runs"
    for words in (["--markdown"], ["--update", "README.md"]):
        assert lab.call(*words, path="runs.csv") == (2, ["tables: runs.csv: found no runs"])
    assert lab.call(path="missing.csv")[0] == 2


def test_a_disk_that_is_full_is_one_line(lab):
    write_all(lab)
    out = os.dup(1)
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), 1)
    try:
        status, lines = lab.call()
    finally:
        os.dup2(out, 1)
        os.close(out)
    assert (status, lines) == (1, ["tables: cannot write: No space left on device"])


def test_the_ladder_is_about_the_machine_that_measured_its_steps():
    def groups(steps, name="lab"):
        return [SimpleNamespace(steps=steps, home=Path(name))]
    shown, quick, other = groups(None), groups("steps", "lab-quick"), groups("steps")
    assert view.stepped(shown, [shown, quick, other]) is other
    assert view.stepped(other, [shown, other]) is other
    assert view.stepped(shown, [shown, quick]) is shown and view.stepped(None, []) is None
