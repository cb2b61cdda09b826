"""Says more of what is wrong with a program: where it begins, and what may be the cause."""

import re

import numpy as np

from bench import screen
from bench.items import UNSET, explain_update


def explain(program, case, start, run, items):
    """Prints what is wrong. First after the first updates, before everything that follows from a
    mistake is wrong as well. What one leaves behind shows only in the second one. A wrong number of
    items shows only in a short one."""
    for first, second, size in first_updates(program, case):
        cases = short_cases(program, case, first, second)
        early, compared, right = program.compare(cases[-1], start)
        if not right:
            what = f"WRONG after the first {program.tests['updates'][2]}"
            if second:
                what += f" and a second one of {second}, and right before"
            states = [program.expected(each)[1] for each in cases]
            words = [explain_update(item, early.values, states, second or first, size)
                     for item in compared if item.slice and not item.right]
            show(program, cases[-1], start, early, compared, what, words)
            return
    show(program, case, start, run, items, "WRONG")


def first_updates(program, case):
    """(items of a case's first update, of the second, of a whole batch): the second has none, a
    whole batch, or as few as the last of an epoch."""
    if "updates" not in program.tests:
        return []
    rounds, count, size = (int((re.search(rf"--{name} (\d+)", case) or [0, 0])[1])
                           for name in program.tests["updates"])
    first = min(size, count)
    seconds = dict.fromkeys((0, size, max(count - size, 0) % size)) if rounds else ()
    return [(first, second, size) for second in seconds if first + second <= program.items]


def short_cases(program, case, first, second):
    """The case cut down: before the first update, after it, and after the second, if there is
    one."""
    rounds, samples, _ = program.tests["updates"]
    totals = [(0, first), (1, first)]
    if second:
        totals.append((1, first + second))
    return [re.sub(rf"--{samples} \d+", f"--{samples} {total}",
                   re.sub(rf"--{rounds} \d+", f"--{rounds} {number}", case))
            for number, total in totals]


def show(program, case, start, run, items, what, words=()):
    """Prints a table, and what may be the cause: `words` say what is wrong with the parts."""
    width = max(len(item.name) for item in items)
    print(f"{program.stage.name}: {what} ({case}{start})")
    print(f"\n{'':{width}}    error         first wrong         found     expected")
    for item in items:
        verdict = "right"
        if not item.right:
            verdict = f"WRONG   {item.element:12} {item.found:12.6g} {item.expected:12.6g}"
        print(f"{item.name:{width}}  {item.error:7.1e}  {verdict}")
    print()
    for line in filter(None, causes(program, case, start, run, items, words)):
        screen.tell(line)


def causes(program, case, start, run, items, words):
    """What may be the cause: how the program was started, memory that is not set, a race, `words`.
    """
    if start.threads > 1:
        yield "With 1 thread it is right: look at what the threads share."
    if start.multiprocessors:
        yield "On 16 multiprocessors it is right: look at what depends on the grid."
    if program.is_simulated and run.values is not None and np.isnan(run.values).any():
        yield f"There are NaNs: {UNSET}."
    elif any(program.differs_again(case, start, run, order) for order in (1, 2, 3)):
        yield "Another run gives another result: a race, or memory that is not set."
    elif all(item.right for item in items if item.slice):
        yield within_bounds(items)
    else:
        yield from words


def within_bounds(items):
    """What may be the cause where the parts are right, and a result is not, or ""."""
    parts = [item for item in items if item.slice]
    if not parts:
        return ""
    wrong = " and ".join(item.name for item in items if not item.right)
    furthest = max(parts, key=lambda item: item.error).name
    return (f"All that it saves is within the bounds, but not {wrong}. So that is computed wrong, "
            "or an update is wrong by so little that only this shows it: look at that of "
            f"{furthest}, which is furthest off.")
