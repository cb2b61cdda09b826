"""Finds ladders and stages, and prints their folders in the repository: `ladders ladders`, or
`ladders stages [--cpu] [LADDER]`. stages/README.md says what a stage is.
"""

import functools
import os
import re
import sys
import tomllib
import zlib
from pathlib import Path

from bench import shape
from bench.base import ROOT, fail
from bench.options import given
from bench.stage import STAGE_NAME, Stage
from data.locate import about, locate


class Ladder:
    """A folder of stages that do the same work, and what its ladder.toml says of it."""

    def __init__(self, folder):
        self.folder = folder
        self.name = folder.name
        self.file = folder / "ladder.toml"
        try:
            self.toml = toml = shape.check(tomllib.loads(self.file.read_text(encoding="utf-8")))
        except (OSError, TypeError, ValueError) as error:
            fail(f"{self.file.relative_to(ROOT)}: {error}; see stages/ladder.toml")
        self.title = toml["title"]
        self.time = toml["time"]
        self.axes = toml["axes"]  # the first is a table's pages, the last its columns
        self.settings = toml["settings"]  # {option: value}
        self.phases = toml["phases"]
        self.measures = toml["measures"]
        self.save = toml["save"]
        # How many float32 numbers have the place of one of the ladder's in a vector.
        self.width = 2 if toml["numbers"] == "float64" else 1
        self.profiles = (folder / toml["profiles"]).resolve()
        self.peers_folder = folder / "peers"
        # The module that says what the data are, if the programs take any (data/mnist.py).
        self.data_file = (folder / toml["data"]).resolve()

    def chosen_by(self, option):
        """What chooses the ladder on a command line: " --study NAME", or "" for the main one."""
        return "" if self is ladders()[0] else f" {option}{self.name}"

    def column(self, option):
        """The column of a row that has an option's value."""
        return self.toml["columns"].get(option, option.replace("-", "_"))

    def work(self, row, phase, what):
        """The "operations" or "bytes" of a row's run in a phase, by [work]. None if not known."""
        expression = self.toml["work"].get(phase, {}).get(what)
        return self.evaluate(expression, row) if expression else None

    def operations(self, row, phases=None):
        """Those of a row's run, in all phases or in these, as far as they are known."""
        known = [phase for phase in phases or self.phases
                 if self.toml["work"].get(phase, {}).get("operations")]
        return sum(self.work(row, phase, "operations") for phase in known)

    def units(self, row):
        """How many a row's run has of what the ladder's `unit` names, such as batches."""
        return self.evaluate(self.toml["units"], row)

    def evaluate(self, expression, row):
        """The value of an expression of ladder.toml for a row, or for each row of a frame."""
        import pandas  # what only builds or runs a stage does without

        columns = {name: pandas.to_numeric(row[name])
                   for name in re.findall(r"[a-z]\w*", expression) if name in row}
        try:
            return pandas.eval(expression, local_dict=columns, global_dict={}, engine="python")
        except (NameError, SyntaxError) as error:
            fail(f"{self.file.relative_to(ROOT)}: found '{expression}', expected numbers and "
                 f"columns: {error}")

    def options(self, table):
        """{option: value} of a run: those in this table of ladder.toml, then those in [compare],
        then a middle value of each other axis. HIDDEN=256 on make's command line changes any."""
        chosen = {axis["option"]: axis["values"][len(axis["values"]) // 2]
                  for axis in reversed(self.axes)}
        chosen |= self.toml["compare"] | self.toml.get(table, {})
        told = {option: given(option) for option in (*chosen, *self.settings, "runs")}
        return chosen | {option: value for option, value in told.items() if value}

    @property
    def data_module(self):
        return about(self.data_file)

    def describe_data(self, folder):
        """The data's kind, and a checksum of the labels: Fashion-MNIST is of MNIST's kind."""
        labels = b"".join(path.read_bytes() for path in sorted(Path(folder).iterdir())
                          if re.search(r"labels|\.csv", path.name))
        return f"{self.data_module.kind({*os.listdir(folder)})}, labels {zlib.crc32(labels):08x}"

    @functools.cached_property
    def data(self):
        """The words that say where the data are, if the programs take any."""
        return ["--data", str(locate(self.data_file))] if self.toml["data"] else []

    def words(self, options):
        """The words of a program's command line: these options, and the data if it takes any."""
        return [*self.data, *self.words_of(options)]

    def words_of(self, options):
        """Those of the options. One that is true or false in [settings] has no value. "runs" is
        none of them: it says how often the program runs."""
        words = []
        for option, value in options.items():
            if isinstance(self.settings.get(option), bool):
                words += [f"--{option}"] if int(value) else []
            elif option != "runs":
                words += [f"--{option}", str(value)]
        return words

    @functools.cached_property
    def stages(self):
        """All stages and steps, in the order in which they are read."""
        found = [Stage(self, source) for place in ("", "[0-9][0-9].*/")
                 for source in self.folder.glob(f"[0-9][0-9]*/{place}{self.toml['program']}.c*")
                 if source.suffix in (".c", ".cu") and source.with_name("Makefile").exists()]
        found.sort(key=lambda stage: stage.place)
        names = [stage.name for stage in found]
        for stage in found:
            if not STAGE_NAME.fullmatch(stage.name):  # make's lists take the names
                fail(f"found the folder {str(stage.folder.relative_to(ROOT))!r}, expected a name "
                     "such as 20_mine or 20.1_mine, in small letters")
        if self.toml["baseline"] not in ("", *names):
            fail(f"{self.file.relative_to(ROOT)}: baseline: found '{self.toml['baseline']}', "
                 f"expected a stage: {' '.join(names)}")
        return found

    @functools.cached_property
    def peers(self):
        return [Stage(self, source) for source in sorted(self.peers_folder.glob("peer_*"))
                if source.suffix in (".c", ".cu", ".py")]

    def skips(self, name):
        """What a stage or peer leaves out of the operations that its rows count, or how many digits
        it has of their factors, or ""."""
        return next((each.declared("SKIPS") or each.declared("DIGITS")
                     for each in (*self.stages, *self.peers) if each.name == name), "")

    def select(self, wanted, option="STAGE", among=None):
        """The stages whose names are, or begin with, what is wanted: 01 means all of 01's."""
        among = among or self.stages
        found = [stage for stage in among if wanted and stage.name.startswith(wanted)]
        if not found:
            names = " ".join(stage.short for stage in among)
            fail(f"{option}: found '{wanted}', expected one of: {names}")
        return found

    def find(self, wanted, option="STAGE", among=None):
        """The one stage of this name or number, 01 or 01.2, or of a beginning that is its own."""
        found = self.select(wanted, option, among)
        found = [stage for stage in found if wanted in (stage.name, stage.number)] or found
        if len(found) > 1:
            fail(f"{option}: found '{wanted}', expected more of a name of: "
                 f"{' '.join(stage.name for stage in found)}")
        return found[0]


@functools.cache
def ladders():
    """All ladders: those in the root, of which the first is the main one, and the studies."""
    files = [*sorted(ROOT.glob("*/ladder.toml")), *sorted(ROOT.glob("studies/*/ladder.toml"))]
    return [Ladder(file.parent) for file in files]


def find_ladder(wanted, option="STUDY"):
    """The ladder of this name. Without a name, the main one."""
    names = [ladder.name for ladder in ladders()]
    if wanted and wanted not in names:
        fail(f"{option}: found '{wanted}', expected one of: {' '.join(names)}")
    return ladders()[names.index(wanted) if wanted else 0]


def main():
    command, *words = sys.argv[1:]
    names = [word for word in words if not word.startswith("--")]
    found = [find_ladder(name) for name in names] or ladders()
    if command == "stages":
        found = [stage for ladder in found for stage in ladder.stages
                 if not (stage.is_cuda and "--cpu" in words)]
    print(*(each.folder.relative_to(ROOT) for each in found), sep="\n")
