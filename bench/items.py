"""Which parts of what a run has computed are wrong, and how. See stages/reference.c."""

import dataclasses
import math

import numpy as np

UNSET = ("look first for memory that is read before it is set, or before its stream has been "
         "waited for, because the simulated device fills it with NaNs")


@dataclasses.dataclass
class Item:
    """A result of a run beside the reference's: a column of the row, or a part of what it saved."""
    name: str
    error: float
    right: bool
    found: float  # the column's value, or the first wrong element's
    expected: float
    element: str = ""  # the first wrong element: W1[783][32]
    slice: slice = None  # where a part lies in the file
    wrong: np.ndarray = None  # rows × columns: which elements of a part are wrong


def magnitude(kind, values):
    return np.sqrt(np.square(values).mean()) if kind == "norm" else np.abs(values).max()


def distance(kind, found, expected):
    """The relative error. Where only zeros are expected, only zeros may be found."""
    absolute = magnitude(kind, found - expected)
    return absolute and absolute / magnitude(kind, expected)


# All comparisons are such that a NaN is wrong.
def compare_column(name, row, value, relative, absolute):
    found = float(row.get(name) or math.nan)
    value = float(value)
    error = abs(found / value - 1) if value else abs(found)
    right = abs(found - value) <= float(relative) * abs(value) + float(absolute)
    return Item(name, error, right, found, value)


def compare_part(name, found, expected, kind, bound):
    error = distance(kind, found, expected)
    wrong = ~(np.abs(found - expected) <= bound * magnitude(kind, expected))
    right = error <= bound
    if bound == 0:
        wrong = found.view(np.uint32) != expected.astype(np.float32).view(np.uint32)
        right = not wrong.any()
    place = np.unravel_index(np.argmax(wrong) if wrong.any() else wrong.size - 1, wrong.shape)
    element = name + "".join(f"[{i}]" for i in place[len(found) == 1:])
    return Item(name, error, right, found[place], expected[place], element, wrong=wrong)


def compare_all(run, lines, values):
    """The Items, in the order of the lines that the reference has printed, and their values."""
    items = []
    first = 0  # of the part's numbers
    for kind, name, *words in lines:
        if kind == "result":
            items.append(compare_column(name, run.row, *words))
        elif kind == "part":
            shape = int(words[0]), int(words[1])
            place = slice(first, first + math.prod(shape))
            first = place.stop
            items.append(compare_part(name, run.values[place].reshape(shape),
                                      values[place].reshape(shape), words[2], float(words[3])))
            items[-1].slice = place
        elif all(item.right for item in items):
            error = distance(name, run.values, values)
            bound = float(words[0])
            items.append(Item(kind, error, error <= bound, error, bound))
    return items


@np.errstate(all="ignore")
def explain_update(item, found, states, count, size):
    """What a wrong part's last update, by `count` of `size` items, is in words, or "". `states` are
    what is expected: before the first update, and after each."""
    rows, columns = np.nonzero(item.wrong)
    box = slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1)
    name = item.name
    if item.wrong[box].shape != item.wrong.shape:
        name += "".join(f"[{each.start}..{each.stop - 1}]" for each in box[len(item.wrong) == 1:])
    found, *states = (each[item.slice].reshape(item.wrong.shape)[box].ravel()
                      for each in (found, *states))
    first, before, after = [states[0], *states][-3:]
    found = found - before
    right = after - before
    earlier = before - first
    norm = np.linalg.norm
    if norm(found) <= 0.01 * norm(right):
        return f"{name} did not move."
    # So many times the right one and the one before it, by least squares. A few elements fit any.
    (times, again), *_ = np.linalg.lstsq(np.stack([right, earlier], axis=1), found, rcond=None)
    left = found - times * right - again * earlier
    if found.size < 5 or not norm(left) <= 0.01 * norm(found - right):
        return ""
    if abs(again) > 0.01:
        cause = f" + {again:.5g} times the one before: is its gradient set to zero?"
    elif any(each != 1 and math.isclose(times, each, rel_tol=0.001)
             for each in (count, count / size)):
        cause = f": is it divided by {count}?"
    else:
        cause = "."
    return f"The update of {name} is {times:.5g} times the right one{cause}"
