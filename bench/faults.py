"""What is wrong with a row: times that cannot be right, or results that others do not have."""

from collections import defaultdict

from bench import rows as results

# A row's times have nine decimals, and one of them may be the sum of a million laps.
ROUNDING_S = 1e-5


def clock_fault(row, ladder, seconds):
    """What is wrong with the times of a row whose program ran for so many seconds by our own clock,
    or "". A GPU's phases are no part of its time: they are those of another epoch, which events
    make slower."""
    phases = [f"{phase}_s" for phase in ladder.phases if row.get(f"{phase}_s")]
    parts = [name for name in ("load_s", "setup_s", "warmup_s", ladder.time) if row.get(name)]
    for names, whole, limit in (
            (phases if row["device"] == "cpu" else [], ladder.time, row[ladder.time]),
            (parts, "the whole run by the clock outside", seconds)):
        found = sum(row[name] for name in names)
        if found > limit + ROUNDING_S:
            return f"{' + '.join(names)} is {found:.4g} s, more than {whole}, {limit:.4g} s"
    return ""


def difference(row, expected, ladder):
    """(column, found, expected) of the first result that is further from the expected one than
    rounding explains, or None. Both are rows, and their results are what they computed, not how
    long it took. [results] in ladder.toml says how far that is, or else 1 %."""
    known = {*results.TEXTS, *results.RECORD, "threads", *results.parameters(ladder)}
    for column, value in row.items():
        other = expected.get(column)
        if column in known or None in (value, other) or column.endswith(("_s", "_mib", "gflops")):
            continue
        larger = max(abs(value), abs(other))
        terms = ladder.toml["results"].get(column)
        limit = ladder.sum_of(terms, {**row, column: larger}) if terms else 0.01 * larger
        if not abs(value - other) <= limit:
            return column, value, other
    return None


def strays(runs, ladder):
    """{(stage, cell): words} of the stages and peers that do not compute the same as the others.
    What is expected of a cell is what its baseline has: the times are compared with the baseline's,
    and it is the plainest program. Without it, what most agree with is expected."""
    cells, found, baseline = defaultdict(list), {}, ladder.toml["baseline"]
    for row in runs:
        cells[tuple(row[ladder.column(axis["option"])] for axis in ladder.axes)].append(row)
    for cell, rows in cells.items():
        one_each = {row["stage"]: row for row in rows}
        expected = one_each.get(baseline) or min(one_each.values(), key=lambda one: sum(
            bool(difference(other, one, ladder)) for other in one_each.values()))
        for row in rows:
            column, value, other = difference(row, expected, ladder) or ("", 0, 0)
            if column:
                found.setdefault((row["stage"], cell), f"{column} is {value:g}, and {other:g} in "
                                 + (baseline if baseline in one_each else "most others"))
    return found
