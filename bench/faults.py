"""Whether a row counts: was the machine disturbed, and is its result that of the others?"""

from collections import defaultdict

from bench import rows
from bench.host import OTHERS

# A run is disturbed if multiply-adds ran at less than RATE percent of the machine's best after it,
# or if other programs used more than OTHERS percent of the processors meanwhile.
RATE = 90


def best_rates(runs):
    """{threads: the best rate of multiply-adds that these runs know}. A run is a dict."""
    best = {}
    for row in runs:
        best[row["threads"]] = max(row.get("rate") or 0, best.get(row["threads"], 0))
    return best


def is_disturbed(row, best):
    """Whether a run was disturbed, by how the machine was: never by the run's own time."""
    if (row.get("others") or 0) > OTHERS:
        return True
    return bool(row.get("rate")) and row["rate"] < RATE / 100 * best.get(row["threads"], 0)


def difference(row, expected, ladder):
    """(column, found, expected) of the first result of a row that is further from the expected
    row's than rounding explains, or None: by [results] in ladder.toml, or else 1 %."""
    known = {*rows.TEXTS, *rows.RECORD, "threads", *rows.parameters(ladder)}
    for column, value in row.items():
        other = expected.get(column)
        if column in known or None in (value, other) or column.endswith(rows.SIZES):
            continue
        larger = max(abs(value), abs(other))
        if column in ladder.toml["results"]:
            allowed = ladder.toml["results"][column]
            bound = ladder.evaluate(allowed, {**row, column: larger})
        else:
            bound = 0.01 * larger
        if not abs(value - other) <= bound:
            return column, value, other
    return None


def strays(runs, ladder):
    """{(stage, cell): words} of the stages and peers that do not compute the same as the others.
    What is expected of a cell is what its baseline has: the times are compared with the baseline's,
    and it is the plainest program. Without it, what most agree with is expected."""
    found = {}
    cells = defaultdict(list)
    for row in runs:
        cells[tuple(row[ladder.column(axis["option"])] for axis in ladder.axes)].append(row)
    for cell, of_cell in cells.items():
        one_each = {row["stage"]: row for row in of_cell}
        whose = ladder.toml["baseline"]
        expected = one_each.get(whose)
        if not expected:
            whose = "most others"
            expected = min(one_each.values(), key=lambda one: sum(
                bool(difference(other, one, ladder)) for other in one_each.values()))
        for row in of_cell:
            if differs := difference(row, expected, ladder):
                column, value, other = differs
                found.setdefault((row["stage"], cell),
                                 f"{column} is {value:g}, and {other:g} in {whose}")
    return found
