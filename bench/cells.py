"""Which cells a sweep has. A cell is {option: value}: a place on the axes, and the settings."""

import itertools

from bench.stage import options_of


def cells(ladder, kind, given=None, is_quick=False):
    """All cells, in the order in which they are run. What is given wins."""
    given = given or {}
    toml = ladder.toml
    base = {"steps": toml["rungs"], "growth": toml["growth"].get("base")}.get(kind) or {}
    known = ladder.settings | base | (toml["quick"] if is_quick else {}) | given
    settings = {option: known[option] for option in ladder.settings}
    axes = values_of(ladder, base, given, is_quick)
    places = [*itertools.product(*axes.values())]
    if kind == "steps" and not given.keys() & axes.keys():
        places = base.get("cells") or [places[0], places[-1]]
    if kind != "growth":
        places = most_telling_first(ladder, places)
    found = [settings | dict(zip(axes, place)) for place in places]
    return changed(ladder, found) if kind == "growth" else found


def most_telling_first(ladder, places):
    """The headline's places before others, and the large before the small: time may be short."""
    headline = [tuple(place) for place in ladder.toml["headline"]]
    return sorted(reversed(places), key=lambda place: tuple(place) not in headline)


def changed(ladder, cells):
    """The cells of --growth, in which one option changes at a time."""
    changes = [{}]
    for option, values in ladder.toml["growth"]["values"].items():
        changes += [{option: value} for value in values]
    return [cell | change for cell in cells for change in changes]


def values_of(ladder, base, given, is_quick):
    """{option of an axis: its values}: those given, or that of the base, or all."""
    found = {}
    for axis in ladder.axes:
        option = axis["option"]
        usual = (is_quick and axis["quick"]) or axis["values"]
        found[option] = given.get(option) or ([base[option]] if option in base else usual)
    return found


def asked(ladder, stages, first):
    """(cell, names) of the steps whose pages ask about a CELL: theirs, that of the one before, and
    the libraries for a GPU beside its steps. What it leaves out is as in `first`."""
    axes = {axis["option"] for axis in ladder.axes}
    libraries = {stage.name for stage in stages if stage.is_peer and stage.is_gpu}
    for stage in stages:
        options = options_of(stage.declared("CELL"))
        if stage.before:
            beside = libraries if stage.is_gpu else set()
            yield (first | {axis: int(options[axis]) for axis in axes & options.keys()},
                   {stage.before.name, stage.name} | beside)
