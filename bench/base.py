"""What everything in bench/ begins with: where the repository is, how a program ends, and how a
text becomes a value."""

import math
import re
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# {kind of a value: (its text, what it is)}. Digits are ASCII: Python also takes 4_0, ٤٠ and blanks.
KINDS = {int: ("[-+0-9]+", "a whole number"), float: ("[-+.0-9Ee]+", "a number"),
         bool: ("[01]", "0 or 1"), str: (".+", "text")}


ENDS = signal.SIGHUP, signal.SIGINT, signal.SIGTERM  # what ends a program


def leave(number, _):
    """Ends Python by a signal. Another one, which make passes on, must not come while it ends what
    it has started."""
    for each in ENDS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def fail(message, status=2):
    """Ends the program with one line."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(status)


def value(where, text, kind, least=None):
    """The value of a text, of one of KINDS. What is wrong ends the program."""
    pattern, expected = KINDS[kind]
    try:
        if not re.fullmatch(pattern, text):
            raise ValueError
        found = int(text) if kind is bool else kind(text)
        if (least is not None and found < least) or (kind is float and not math.isfinite(found)):
            raise ValueError
    except ValueError:
        if least is not None:
            expected += f" from {least}"
        fail(f"{where}: found '{text}', expected {expected}")
    return found
