"""What a command was told: STAGE=01 HIDDEN=256, on make's command line or in the first words of
`python3 -m bench compare A=00 B=01`. A variable of the environment says nothing."""

import itertools
import os
import re

GIVEN = {}  # {name: value}


def read(words):
    """Fills GIVEN. Returns the words after the options."""
    # make names what its command line sets in MAKEFLAGS, and has put the values into variables. The
    # files of its jobs in there are closed in Python, and a make that starts from here would warn.
    flags = os.environ.get("MAKEFLAGS", "").partition("-- ")[2]
    os.environ["MAKEFLAGS"] = f"-- {flags}" if flags else ""
    for word in re.findall(r"(?:\\.|\S)+", flags):
        name = word.partition("=")[0].rstrip(":?+!")
        GIVEN[name] = os.environ.get(name, "")
    found = [*itertools.takewhile(re.compile("[A-Z][A-Z_]*=").match, words)]
    GIVEN.update(word.split("=", 1) for word in found)
    return words[len(found):]


def given(name, otherwise=""):
    """The value of an option, if it is not empty. That of --learning-rate is LEARNING_RATE."""
    return GIVEN.get(name.upper().replace("-", "_")) or otherwise
