"""Where the repository is, how a program ends, and how a text becomes a value."""

import re
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# {kind of a value: (its text, what it is)}. Digits are ASCII: Python also takes 4_0, ٤٠ and blanks.
KINDS = {int: ("[-+0-9]+", "a whole number"), float: ("[-+.0-9Ee]+", "a number"),
         bool: ("[01]", "0 or 1"), str: (".+", "text")}
ENDS = signal.SIGHUP, signal.SIGINT, signal.SIGTERM


class Interrupted(SystemExit):
    """One of ENDS has ended the program. Its code is the exit status, 130 after a Ctrl-C."""


def fail(message, status=2):
    """Ends the program with one line, also where a value in it has several."""
    print(f"{Path(sys.argv[0]).name}: {message}".replace("\n", "?"), file=sys.stderr)
    sys.exit(status)


def value(where, text, kind, least=None, most=sys.float_info.max):
    """The value of a text of one of KINDS, or of a list, as [kind], or the end of the program."""
    if isinstance(kind, list):
        return [value(where, part, kind[0], least, most) for part in text.split(",")]
    pattern, expected = KINDS[kind]
    try:
        if not re.fullmatch(pattern, text):
            raise ValueError
        found = int(text) if kind is bool else kind(text)
        if least is not None and not least <= found <= most:
            raise ValueError
    except ValueError:
        if least is not None:
            expected += f" from {least}" + (f" to {most}" if isinstance(most, int) else "")
        fail(f"{where}: found '{text}', expected {expected}")
    return found
