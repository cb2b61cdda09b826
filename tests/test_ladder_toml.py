"""Tests that a mistake in a ladder.toml or in the name of a folder is one line that names it."""

import contextlib
import io
import os
import re
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "harness"))
import ladders  # noqa: E402

RIGHT = """
title = "A wave"
program = "run"
data = "mnist"
time = "time_s"
baseline = "00_plain"
phases = ["load", "turn"]
heading = "{n_seeds} seeds, {rate} Hz"
headline = [[8], [64]]
[paper]
cite = "*Waves*"
settings = { rate = 1 }
[[axes]]
option = "points"
name = "Points"
values = [8, 64]
[settings]
seeds = 1
rate = 0.5
layers = "8,8"
wide = false
[columns]
seeds = "n_seeds"
[quick]
seeds = 2
[compare]
points = 8
runs = 10
[growth.base]
points = 8
[growth.values]
seeds = [1, 2]
[work.load]
operations = ["n_seeds 2", "points /rate"]
[results]
energy = ["0.01 energy", "2 /points"]
[tests]
cases = ["--seeds 2 --points 3 --rate 1"]
steps = ["seeds", "points", "rate"]
[tests.check]
sizes = ["--layers 8"]
[[measures]]
column = "time_s"
title = "Time"
"""

# (what stands there, what is put in its place, the beginning of what is said)
MISTAKES = (
    ('title = "A wave"', "", "title: found nothing"),
    ('program = "run"', "", "program: found nothing"),
    ('time = "time_s"', "", "time: found nothing"),
    ("title", "tilte", "found the key 'tilte', expected 'title'"),
    ("headline", "hedline", "found the key 'hedline', expected 'headline'"),
    ("[quick]", "[qick]", "found the key 'qick', expected 'quick'"),
    ("[[axes]]", "[[axis]]", "found the key 'axis', expected 'axes'"),
    ("[[axes]]", "[axes]", "axes: found a table, expected tables, each"),
    ("[[measures]]", "[measures]", "measures: found a table"),
    ("[settings]", "[[settings]]", "settings: found a list, expected a table"),
    ("[quick]", "[[quick]]", "quick: found a list"),
    ("[columns]", "[[columns]]", "columns: found a list"),
    ("[tests.check]", "[[tests.check]]", "tests.check: found a list"),
    ('"A wave"', "1", "title: found 1, expected text"),
    ('"A wave"', '" "', "title: found ' '"),
    ('"A wave"', r'"A\u0000wave"', r"title: found 'A\x00wave'"),
    ('"A wave"', "1979-05-27", "title: found 1979-05-27"),
    ('"run"', '"../run"', "program: found '../run', expected a name"),
    ('"run"', '["run"]', "program: found a list"),
    ('"mnist"', '"minst"', "data: found 'minst', expected one of: mnist galaxy"),
    ('"time_s"', '"time"', "time: found 'time', expected a column that ends in _s"),
    ('"00_plain"', '"00_serial"', "baseline: found '00_serial', expected a stage: 00_plain"),
    ('"00_plain"', "0", "baseline: found 0"),
    ("[quick]", 'numbers = "float16"\n[quick]', "columns: found the key 'numbers', expected one"),
    ("data =", 'numbers = "float16"\ndata =', "numbers: found 'float16', expected one of: float32"),
    ("data =", 'peers = "a b"\ndata =', "peers: found 'a b', expected a path"),
    ("data =", "save = true\ndata =", "save: found true"),
    ("data =", "epochs = 5\ndata =", "epochs: found 5"),
    ("{rate}", "{typo}", "heading: found '{n_seeds} seeds, {typo} Hz', expected text, and in braces"
     " only: n_seeds rate layers wide dataset"),
    ("{rate}", "{", "heading: found"),
    ("{rate}", "{0}", "heading: found"),
    ("{rate}", "{rate:x}", "heading: found"),
    ('["load", "turn"]', '"load"', "phases: found 'load', expected a list, each a name"),
    ('"turn"', "2", "phases[1]: found 2"),
    ('"turn"', '"load"', "phases: found 'load' twice"),
    ("[[8], [64]]", "[8]", "headline[0]: found 8, expected a list of 1"),
    ("[[8], [64]]", "[[8, 8]]", "headline[0]: found a list, expected a list of 1"),
    ("[[8], [64]]", "[[9]]", "headline[0][0]: found 9, expected one of: 8 64"),
    ("[[8], [64]]", "[]", "headline: found an empty list"),
    ('cite = "*Waves*"', "", "paper.cite: found nothing, expected text"),
    ("{ rate = 1 }", "{ rat = 1 }", "paper.settings: found the key 'rat', expected 'rate'"),
    ("{ rate = 1 }", "{ rate = true }", "paper.settings.rate: found true, expected a number"),
    ("values = [8, 64]", "", "axes[0].values: found nothing, expected a list"),
    ('option = "points"', "", "axes[0].option: found nothing"),
    ('name = "Points"', "", "axes[0].name: found nothing"),
    ("values = [8, 64]", "value = [8, 64]", "axes[0]: found the key 'value', expected 'values'"),
    ("values = [8, 64]", "values = 8", "axes[0].values: found 8, expected a list"),
    ("values = [8, 64]", "values = []", "axes[0].values: found an empty list"),
    ("values = [8, 64]", "values = [[8]]", "axes[0].values[0]: found a list"),
    ("values = [8, 64]", 'values = [8, "64"]', "axes[0].values[1]: found '64', expected a whole"),
    ("values = [8, 64]", "values = [0]", "axes[0].values[0]: found 0"),
    ("values = [8, 64]", "values = [nan]", "axes[0].values[0]: found nan"),
    ("values = [8, 64]", "values = [true]", "axes[0].values[0]: found true"),
    ("values = [8, 64]", "values = [8, 64]\nquick = 8", "axes[0].quick: found 8"),
    ("values = [8, 64]", "values = [8, 64]\nquick = [0.5]", "axes[0].quick[0]: found 0.5"),
    ('"points"', '"threads"', "axes[0].option: found 'threads'"),
    ('"points"', '"Points"', "axes[0].option: found 'Points'"),
    ('"points"', '"rate"', "axes: found 'rate' twice"),
    ("[settings]", '[[axes]]\noption = "x"\nname = "X"\nvalues = [1]\n' * 2 + "[settings]",
     "axes: found 3 tables, expected two at most"),
    ("rate = 0.5", "rate = inf", "settings.rate: found inf, expected a number"),
    ("rate = 0.5", "rate = -1", "settings.rate: found -1"),
    ("rate = 0.5", f"rate = 0x{'f' * 5000}", "settings.rate: found a number of more than 64 bits"),
    ("rate = 0.5", "rate = { a = 1 }", "settings.rate: found a table"),
    ("rate = 0.5", "rate = []", "settings.rate: found an empty list"),
    ("rate = 0.5", "quiet = true", "settings: found the key 'quiet'"),
    ("rate = 0.5", '"" = 1', "settings: found the key ''"),
    ('"n_seeds"', '"stage"', "columns.seeds: found 'stage'"),
    ('"n_seeds"', '"rate"', "columns: found 'rate' twice"),
    ("seeds = \"n_seeds\"", 'seed = "n_seeds"', "columns: found the key 'seed', expected 'seeds'"),
    ("seeds = 2", "seed = 2", "quick: found the key 'seed', expected 'seeds'"),
    ("seeds = 2", 'seeds = "2"', "quick.seeds: found '2', expected a whole number from 0"),
    ("points = 8\nruns", "point = 8\nruns", "compare: found the key 'point', expected 'points'"),
    ("points = 8\nruns", "points = [8]\nruns", "compare.points: found a list"),
    ("runs = 10", "runs = 0", "compare.runs: found 0, expected a whole number from 1"),
    ("[growth.base]", "[growth.bas]", "growth: found the key 'bas', expected 'base'"),
    ("[growth.base]\npoints = 8", "", "growth.base: found nothing, expected a table"),
    ("seeds = [1, 2]", "seeds = 1", "growth.values.seeds: found 1, expected a list"),
    ("seeds = [1, 2]", "seeds = []", "growth.values.seeds: found an empty list"),
    ("seeds = [1, 2]", 'layers = ["8"]', "growth.values: found the key 'layers'"),
    ("[work.load]", "[work.laod]", "work: found the key 'laod', expected 'load'"),
    ("operations =", "operation =", "work.load: found the key 'operation', expected 'operations'"),
    ("points /rate", "point /rate", "work.load.operations[1]: found 'point /rate', expected num"),
    ("points /rate", "points /0", "work.load.operations[1]: found 'points /0'"),
    ("points /rate", "layers", "work.load.operations[1]: found 'layers'"),
    ('["n_seeds 2", "points /rate"]', '"n_seeds"', "work.load.operations: found 'n_seeds'"),
    ("0.01 energy", "0.0 energy", "results.energy[0]: found '0.0 energy'"),
    ("0.01 energy", "0.01 enrgy", "results.energy[0]: found '0.01 enrgy', expected numbers"),
    ('["0.01 energy", "2 /points"]', "0.01", "results.energy: found 0.01"),
    ("[tests]\ncases", "[tests]\ncase", "tests: found the key 'case', expected 'cases'"),
    ('cases = ["--seeds 2 --points 3 --rate 1"]', "", "tests.cases: found nothing"),
    ('["--seeds 2 --points 3 --rate 1"]', "[]", "tests.cases: found an empty list"),
    ("--points 3", "'--points 3", "tests.cases[0]: found"),
    ("--points 3", "", "tests.cases: found '--seeds 2 --rate 1', expected --points N"),
    ('["seeds", "points", "rate"]', '["seeds"]', "tests.steps: found a list, expected a list of 3"),
    ('sizes = ["--layers 8"]', 'sizes = "--layers 8"', "tests.check.sizes: found '--layers 8'"),
    ('sizes = ["--layers 8"]', "threads = 1", "tests.check.threads: found 1, expected true"),
    ("[tests.check]", "[tests.chekc]", "tests: found the key 'chekc', expected 'check'"),
    ('column = "time_s"', "", "measures[0].column: found nothing"),
    ('title = "Time"', "", "measures[0].title: found nothing"),
    ('title = "Time"', 'tilte = "Time"', "measures[0]: found the key 'tilte', expected 'title'"),
    ('title = "Time"', 'title = "Time"\nbetter = "less"', "measures[0].better: found 'less'"),
    ('"time_s"\ntitle', '"dataset"\ntitle', "measures[0].column: found 'dataset'"),
    ('"time_s"\ntitle', '"layers"\ntitle', "measures[0].column: found 'layers'"),
    # No TOML, or more of it than a program wants.
    ("[quick]", "[quick", "Expected ']'"),
    ("seeds = 2", "seeds = 2\nseeds = 3", "Cannot overwrite a value"),
    ("seeds = 2", f"seeds = {'9' * 5000}", "Exceeds the limit"),
    ("seeds = 2", f"seeds = {'[' * 30000}", "maximum recursion depth exceeded"),
    ("[quick]", f"[quick{'.a' * 2000}]", "quick: found the key 'a', expected one of: seeds"),
    ("[quick]", f"[{'a' * 30000}]", "found the key 'aaaaaaa"),
    ("[quick]", "#" * 70000 + "\n[quick]", "expected a regular file, and no more than 64 KiB"),
    ("A wave", b"\xff", "'utf-8' codec can't decode byte 0xff"),
    ("A wave", "A\0wave", "Illegal character"),
)


class Mistakes(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        patched = mock.patch.object(ladders, "ROOT", Path(temporary.name))
        self.addCleanup(patched.stop)
        patched.start()
        self.folder = ladders.ROOT / "studies/waves"
        for stage in ("00_plain", "01_fast"):
            self.make_stage(stage)
        self.file = self.folder / "ladder.toml"
        self.file.write_text(RIGHT)

    def make_stage(self, name):
        (self.folder / name).mkdir(parents=True)
        for file in ("Makefile", "run.c"):
            (self.folder / name / file).touch()

    def said(self):
        """What a program says of the ladders before it ends with 2, or "" if all is right."""
        errors = io.StringIO()
        ladders.ladders.cache_clear()
        try:
            with contextlib.redirect_stderr(errors):
                [ladder.stages for ladder in ladders.ladders()]
            return ""
        except SystemExit as ended:
            self.assertEqual(ended.code, 2)
        program, line = errors.getvalue().split(": ", 1)
        self.assertEqual((program, line.count("\n"), line[-1]), (Path(sys.argv[0]).name, 1, "\n"))
        self.assertLess(len(line), 1200)
        return line

    def test_a_ladder_without_mistakes(self):
        self.assertEqual(self.said(), "")

    def test_the_ladders_of_the_repository(self):
        root = HERE.parent
        files = [root / "stages/ladder.toml", *root.glob("studies/*/ladder.toml"),
                 HERE / "pi/ladder.toml"]
        with mock.patch.object(ladders, "ROOT", root):
            self.assertEqual([ladders.Ladder(file.parent).file for file in files], files)

    def test_mistakes(self):
        for old, new, says in MISTAKES:
            with self.subTest(new=new[:60], says=says):
                self.assertEqual(RIGHT.encode().count(old.encode()) > 0, True)
                new = new if isinstance(new, bytes) else new.encode()
                self.file.write_bytes(RIGHT.encode().replace(old.encode(), new, 1))
                self.assertIn(f"studies/waves/ladder.toml: {says}", self.said())

    def test_any_type_at_any_key(self):
        # Each line of RIGHT in turn has a value of another type. Some of them are right.
        lines = RIGHT.splitlines()
        values = ("-1", "0.5", '"a"', '""', "true", "nan", "[]", "[[]]", "{}", "[{}]", "[1, 'a']",
                  "1979-05-27T07:32:00Z", "{ a = { a = 1 } }")
        wrong = 0
        for number, line in enumerate(lines):
            for value in values if " = " in line else ():
                self.file.write_text("\n".join([
                    *lines[:number], re.sub("= .*", f"= {value}", line), *lines[number + 1:]]))
                with self.subTest(line=line, value=value):
                    wrong += self.said() != ""
        self.assertGreater(wrong, 300)

    def test_what_is_no_file(self):
        for make in (self.file.mkdir, lambda: os.mkfifo(self.file),
                     lambda: self.file.symlink_to(self.file), lambda: self.file.symlink_to("gone"),
                     lambda: self.file.symlink_to("/dev/zero")):
            self.file.rmdir() if self.file.is_dir() else self.file.unlink()
            make()
            self.assertIn("studies/waves/ladder.toml: expected a regular file", self.said())

    def test_signs_that_make_cannot_take(self):
        for sign in (*" $#:;%'\"\\&|()*?[]<>`~=,\n", "\udcff"):
            with self.subTest(sign=sign):
                self.make_stage(f"02_a{sign}b")
                name = repr(f"studies/waves/02_a{sign}b")
                self.assertIn(f"found the folder {name}, expected", self.said())
                other = self.folder.rename(self.folder.with_name(f"a{sign}b"))
                self.assertIn(f"found the folder {f'studies/a{sign}b'!r}, expected", self.said())
                (other / f"02_a{sign}b/Makefile").unlink()
                other.rename(self.folder)


if __name__ == "__main__":
    unittest.main()
