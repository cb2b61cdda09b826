"""What a ladder.toml may say. Each of its tables is a class here, with the default of each key.
stages/ladder.toml explains them."""

from dataclasses import asdict, dataclass, field, fields

OPTIONS = "quick", "rungs", "compare", "step", "check", "profile"  # tables of {option: value}


class Table:
    """A table. A TypeError says what is wrong with it: a key that is missing or not known, too."""

    def __post_init__(self):
        for each in fields(self):
            found = getattr(self, each.name)
            if not isinstance(found, each.type):
                raise TypeError(f"{each.name}: found {found!r}, expected {each.type.__name__}")


@dataclass
class Axis(Table):
    option: str
    name: str
    values: list
    quick: list = field(default_factory=list)


@dataclass
class Measure(Table):
    column: str
    title: str
    unit: str = ""


@dataclass
class Count(Table):
    cell: str
    run: str
    less: str = ""


@dataclass
class Work(Table):
    operations: str = ""
    bytes: str = ""


@dataclass
class Growth(Table):
    values: dict
    base: dict = field(default_factory=dict)


@dataclass
class Cases(Table):
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


@dataclass
class Toml(Table):
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
        super().__post_init__()
        self.axes = [Axis(**each) for each in self.axes]
        self.measures = [Measure(**each) for each in self.measures]
        self.counts = [Count(**each) for each in self.counts]
        self.work = {phase: Work(**each) for phase, each in self.work.items()}
        self.growth = self.growth and Growth(**self.growth)
        selections = {key: each for key, each in self.tests.items() if isinstance(each, dict)}
        Tests(**{key: each for key, each in self.tests.items() if key not in selections})
        for selection in selections.values():
            Cases(**selection)

    def check_options(self):
        known = [*(axis.option for axis in self.axes), *self.settings, "runs", "cells"]
        for table in OPTIONS:
            for option in getattr(self, table):
                if option not in known:
                    raise TypeError(f"{table}: found '{option}', expected an option of the ladder")


def check(given):
    """What a ladder.toml says, with what it leaves out."""
    toml = Toml(**given)
    toml.check_options()
    return asdict(toml)
