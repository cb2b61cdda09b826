"""Which cells a sweep has. A cell is {option: value}: a place on the axes, and the settings."""

import itertools


def cells(ladder, kind, given=None, is_quick=False):
    """All cells, in the order in which they are run. What is given wins."""
    given = given or {}
    base = base_of(ladder, kind)
    known = ladder.settings | base
    if is_quick:
        known |= ladder.toml["quick"]
    known |= given
    settings = {option: known[option] for option in ladder.settings}
    axes = values_of(ladder, base, given, is_quick)
    places = [*itertools.product(*axes.values())]
    if kind == "steps" and not given.keys() & axes.keys():
        places = base.get("cells") or [places[0], places[-1]]
    if kind != "growth":
        places = most_telling_first(ladder, places)
    found = [settings | dict(zip(axes, place)) for place in places]
    return changed(ladder, found) if kind == "growth" else found


def base_of(ladder, kind):
    """What a kind of sweep sets."""
    return {
        "grid": {}, "steps": ladder.toml["rungs"], "growth": ladder.toml["growth"].get("base", {}),
    }[kind]


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
        known = axis["values"]
        if is_quick:
            known = axis["quick"] or known
        if axis["option"] in base:
            known = [base[axis["option"]]]
        found[axis["option"]] = given.get(axis["option"]) or known
    return found


def asked(ladder, stages, first):
    """(cell, names) of the steps whose pages ask about a CELL: theirs, and that of the one before.
    What it leaves out is as in `first`."""
    axes = {axis["option"] for axis in ladder.axes}
    for stage in stages:
        options = stage.question.options
        if stage.before:
            yield (first | {axis: int(options[axis]) for axis in axes & options.keys()},
                   {stage.before.name, stage.name})
