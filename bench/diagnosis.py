"""Says more of what is wrong with a program: where it begins, and what may be the cause."""

import re

import numpy as np

from bench.items import explain_update
from bench.testing import UNSET


def explain(program, case, start, run, items):
    """Prints what is wrong. First after the first updates, before everything that follows from a
    mistake is wrong as well. What one leaves behind shows only in the second one. A wrong number of
    items shows only in a short one."""
    names = rounds, samples, size = program.tests.get("updates", ["", "", ""])
    times, count, most = (int((re.search(rf"--{name} (\d+)", case) or [0, 0])[1])
                          for name in names)
    first = min(most, count)
    for second in dict.fromkeys((0, most, max(count - most, 0) % most)) if times else ():
        if first + second > program.items:
            continue
        # Before the first update, after it, and after the second.
        totals = (0, first), (1, first), *([(1, first + second)] if second else [])
        cases = [re.sub(rf"--{samples} \d+", f"--{samples} {total}",
                        re.sub(rf"--{rounds} \d+", f"--{rounds} {number}", case))
                 for number, total in totals]
        early, compared, right = program.compare(cases[-1], start)
        if not right:
            states = [program.expected(each)[1] for each in cases]
            what = f"WRONG after the first {size}"
            if second:
                what += f" and a second one of {second}, and right before"
            show(program, cases[-1], start, early, compared, what,
                 [explain_update(item, early.values, states, second or first, most)
                  for item in compared if item.slice and not item.right])
            return
    show(program, case, start, run, items, "WRONG")


def show(program, case, start, run, items, what, words=()):
    """Prints a table, and what may be the cause: memory that is not set, a race, or `words`."""
    width = max(len(item.name) for item in items)
    print(f"{program.stage.name}: {what} ({case}{start})")
    print(f"\n{'':{width}}    error         first wrong         found     expected")
    for item in items:
        verdict = "right"
        if not item.right:
            verdict = f"WRONG   {item.element:12} {item.found:12.6g} {item.expected:12.6g}"
        print(f"{item.name:{width}}  {item.error:7.1e}  {verdict}")
    print()
    if program.is_simulated and run.values is not None and np.isnan(run.values).any():
        words = [f"There are NaNs: {UNSET}."]
    elif any(program.differs_again(case, start, run, order) for order in (1, 2, 3)):
        words = ["Another run gives another result: a race, or memory that is not set."]
    if start.threads > 1:
        words = ["With 1 thread it is right: look at what the threads share.", *words]
    for line in filter(None, words):
        print(line)
