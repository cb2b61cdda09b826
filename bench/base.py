"""What everything in bench/ begins with: where the repository is, how a program ends, and how a
text becomes a value."""

import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def fail(message, status=2):
    """Ends the program with one line."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(status)


def number(text, kind, least=None):
    """The value of a text: an int, a float, 0 or 1 for bool, or any text but an empty one for str.
    A ValueError says what was expected."""
    what = {int: "a whole number", float: "a number", bool: "0 or 1", str: "text"}[kind]
    expected = what if least is None else f"{what} from {least}"
    # Digits are ASCII: Python also takes 4_0, ٤٠ and blanks.
    pattern = {str: ".+", bool: "[01]"}.get(kind, "[-+.0-9Ee]+")
    try:
        value = (int if kind is bool else kind)(re.fullmatch(pattern, text)[0])
        if (least is not None and value < least) or (kind is float and not math.isfinite(value)):
            raise ValueError
    except (TypeError, ValueError):  # TypeError: no match
        raise ValueError(expected) from None
    return value


def value(where, text, kind, least=None):
    """The value of a text, as number() reads it. What is wrong ends the program."""
    try:
        return number(text, kind, least)
    except ValueError as expected:
        return fail(f"{where}: found '{text}', expected {expected}")
