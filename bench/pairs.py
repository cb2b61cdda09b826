"""How many times as fast is one program as another? bench/README.md explains it."""

import math
from statistics import median
from typing import NamedTuple

CONFIDENCE = 0.99
FEWEST = 8  # fewer pairs give no interval of that confidence


def interval(values, confidence=CONFIDENCE):
    """(low, high): with at least that confidence, it holds the median of the distribution that the
    values come from. With too few values for that, it is their range.

    This is the interval of the sign test. Whatever the distribution, a value is as likely to lie
    below its median as above. So the number of values below it is binomial. At each end of the
    sorted list, values are left out as long as it is improbable that the median lies among them.
    A few runs that took much too long do not widen it.
    """
    n, left_out = len(values), 0
    improbable = 1 / 2**n
    while improbable <= (1 - confidence) / 2:
        left_out += 1
        improbable += math.comb(n, left_out) / 2**n
    values, first = sorted(values), max(left_out, 1) - 1
    return values[first], values[-1 - first]


def digits(ratio):
    """Three digits, and three decimals near 1, where they make the difference."""
    decimals = max(0, 2 - math.floor(math.log10(ratio)))
    if 0.9 <= ratio < 1.1:
        decimals = 3
    return f"{ratio:.{decimals}f}"


class Ratio(NamedTuple):
    """How many times as fast, with its interval, from so many pairs of runs."""
    median: float
    low: float
    high: float
    pairs: int

    @property
    def is_seen(self):
        """Whether there is a difference: one pair says nothing, and 1 is not in the interval."""
        return self.pairs > 1 and not self.low <= 1 <= self.high

    @property
    def short(self):
        """1.36×, or no difference seen."""
        if self.pairs > 1 and not self.is_seen:
            return "no difference seen"
        return f"{digits(self.median)}×"

    @property
    def cell(self):
        """1.36×, or the interval, where 1 is in it: 0.98 to 1.02; or 13.2× in one round."""
        if self.pairs == 1:
            return f"{digits(self.median)}× in one round"
        return self.short if self.is_seen else self.interval[1:-1]

    @property
    def interval(self):
        return f"({digits(self.low)} to {digits(self.high)})"

    @property
    def text(self):
        """1.36× (1.33 to 1.39), no difference seen (0.98 to 1.02), 13.2× in one round."""
        return f"{self.short} {'in one round' if self.pairs == 1 else self.interval}"


def ratio(times, others):
    """The Ratio of what took `times` over what took `others`, round by round, or None."""
    found = [other / time for time, other in zip(times, others, strict=True)]
    return Ratio(median(found), *interval(found), len(found)) if found else None
