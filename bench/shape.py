"""What a ladder.toml may say. Each of its tables is a class here, with the default of each key.
stages/ladder.toml explains them."""

import difflib
from dataclasses import MISSING, asdict, dataclass, field, fields

# What a program or run_all.sh takes itself, so that no option of a ladder has such a name.
TAKEN = ("check", "csv", "data", "growth", "help", "kind", "limit", "output", "peers", "quick",
         "quiet", "repeats", "resume", "runs", "save", "stages", "steps", "study", "threads")
# The tables in [tests].
SELECTIONS = ("check", "wide", "builds", "sanitized", "simulated", "simulated_wide", "order_1",
              "order_2", "order_3", "gpu", "cell", "peers", "epoch", "long")
TYPES = {bool: "true or false", int: "a whole number", str: "text", dict: "a table",
         list: "a list"}


def nearest(wanted, names, short=()):
    """What is expected in the place of a wrong name: what is near to it, or any, in short."""
    near = difflib.get_close_matches(wanted, [*names, *short], cutoff=0.61)
    return " or ".join(f"'{name}'" for name in near) or "one of: " + " ".join(short or names)


def wrong(place, found, expected):
    raise ValueError(f"{place}: found {found}, expected {expected}".removeprefix(": "))


def check_keys(place, given, known):
    for key in given:
        if key not in known:
            wrong(place, f"the key '{key}'", nearest(key, known))


def read(kind, given, place=""):
    """A table of a ladder.toml as an object of this class. A ValueError says what is wrong."""
    known = {each.name: each for each in fields(kind)}
    check_keys(place, given, known)
    for name, each in known.items():
        its_place = f"{place}.{name}".removeprefix(".")
        is_required = each.default is MISSING and each.default_factory is MISSING
        if is_required and not given.get(name):
            wrong(its_place, "nothing", "this key")
        if name in given and not isinstance(given[name], each.type):
            wrong(its_place, repr(given[name]), TYPES[each.type])
    return kind(**given)


@dataclass
class Axis:
    option: str
    name: str
    values: list
    quick: list = field(default_factory=list)

    def __post_init__(self):
        self.quick = self.quick or self.values


@dataclass
class Measure:
    column: str
    title: str
    unit: str = ""


@dataclass
class Count:
    cell: str
    run: str
    less: str = ""


@dataclass
class Work:
    operations: str = ""
    bytes: str = ""


@dataclass
class Growth:
    values: dict
    base: dict = field(default_factory=dict)


@dataclass
class Cases:
    """A selection of [tests]. What it does not say is as in [tests]."""
    sizes: list = field(default_factory=lambda: [""])
    cases: list = field(default_factory=list)
    twice: list = field(default_factory=list)
    options: str = ""
    last: str = ""
    run_only: list = field(default_factory=list)
    all_threads: list = field(default_factory=list)
    threads: bool = True
    real_data: bool = False
    items: int = 0


@dataclass
class Tests(Cases):
    updates: list = field(default_factory=list)
    changed_lines: int = 0


CASES = asdict(Cases())


def read_tests(given):
    """Those of [tests], with its selections, which are tables in it."""
    selections = {name: value for name, value in given.items() if isinstance(value, dict)}
    read(Tests, {name: value for name, value in given.items() if name not in selections}, "tests")
    if not given.get("cases"):
        wrong("tests.cases", "nothing", "this key")
    check_keys("tests", selections, SELECTIONS)
    for name, selection in selections.items():
        read(Cases, selection, f"tests.{name}")


@dataclass
class Toml:
    """A whole ladder.toml."""
    title: str
    program: str
    time: str
    save: str = "save"
    data: str = ""
    profiles: str = "profiles"
    clock: str = ""
    epochs: str = ""
    unit: str = "ms a run"
    units: str = "1"
    baseline: str = ""
    numbers: str = "float32"
    heading: str = ""
    headline: list = field(default_factory=list)
    phases: list = field(default_factory=list)
    cluster: list = field(default_factory=list)
    paper: dict = field(default_factory=dict)
    datasets: dict = field(default_factory=dict)
    axes: list = field(default_factory=list)
    settings: dict = field(default_factory=dict)
    columns: dict = field(default_factory=dict)
    measures: list = field(default_factory=list)
    work: dict = field(default_factory=dict)
    results: dict = field(default_factory=dict)
    counts: list = field(default_factory=list)
    growth: dict = field(default_factory=dict)
    tests: dict = field(default_factory=dict)
    # What runs have, as {option: value}.
    quick: dict = field(default_factory=dict)
    rungs: dict = field(default_factory=dict)
    compare: dict = field(default_factory=dict)
    step: dict = field(default_factory=dict)
    check: dict = field(default_factory=dict)
    profile: dict = field(default_factory=dict)

    def __post_init__(self):
        self.axes = [read(Axis, each, "axes") for each in self.axes]
        self.measures = [read(Measure, each, "measures") for each in self.measures]
        self.counts = [read(Count, each, "counts") for each in self.counts]
        self.work = {phase: read(Work, each, f"work.{phase}") for phase, each in self.work.items()}
        if self.growth:
            self.growth = read(Growth, self.growth, "growth")
        if self.tests:
            read_tests(self.tests)

    def check_options(self):
        options = [*(axis.option for axis in self.axes), *self.settings]
        for option in options:
            if option in TAKEN:
                wrong("option", f"'{option}'", f"none of: {' '.join(TAKEN)}")
        for table in ("quick", "rungs", "compare", "step", "check", "profile"):
            check_keys(table, getattr(self, table), [*options, "runs", "cells"])
        check_keys("columns", self.columns, options)

    def check_words(self):
        if not self.time.endswith("_s"):
            wrong("time", f"'{self.time}'", "a column that ends in _s")
        if self.numbers not in ("float32", "float64"):
            wrong("numbers", f"'{self.numbers}'", "float32 or float64")
        if self.unit.partition(" ")[0] not in ("s", "ms", "µs"):
            wrong("unit", f"'{self.unit}'", "s, ms or µs of what, such as 'µs a batch'")


def check(given):
    """What a ladder.toml says, with what it leaves out. A ValueError says what is wrong first."""
    toml = read(Toml, given)
    toml.check_options()
    toml.check_words()
    return asdict(toml)
