"""Which cells a sweep of a ladder has: those of its grid, of the steps, or of the growth.

A cell is {option: value}: a place on the ladder's axes, and its settings.
"""

import itertools


def base_of(ladder, kind):
    """What ladder.toml says of sweeps of this kind."""
    return {"steps": ladder.toml["rungs"], "growth": ladder.toml["growth"].get("base", {})}.get(
        kind, {})


def settings_of(ladder, kind, given, is_quick):
    """The settings of all cells. Those that are given win."""
    known = ladder.settings | base_of(ladder, kind)
    if is_quick:
        known |= ladder.toml["quick"]
    known |= given
    return {option: known[option] for option in ladder.settings}


def places(ladder, kind, given, is_quick):
    """The values of the axes, in their order, of each cell."""
    base, values = base_of(ladder, kind), []
    for axis in ladder.axes:
        option, known = axis["option"], axis["values"]
        if is_quick:
            known = axis.get("quick", known)
        if option in base:
            known = [base[option]]
        values.append(given.get(option) or known)
    grid = [*itertools.product(*values)]
    if kind == "steps" and not given.keys() & {axis["option"] for axis in ladder.axes}:
        return base.get("cells") or [grid[0], grid[-1]]
    return grid


def cells(ladder, kind, given=None, is_quick=False):
    """All cells, in the order in which they are run."""
    given, axes = given or {}, [axis["option"] for axis in ladder.axes]
    settings = settings_of(ladder, kind, given, is_quick)
    found = [settings | dict(zip(axes, place)) for place in places(ladder, kind, given, is_quick)]
    if kind == "growth":  # one option changes at a time
        values = ladder.toml["growth"]["values"]
        changes = [{}, *({option: value} for option in values for value in values[option])]
        found = [cell | change for cell in found for change in changes]
    return found
