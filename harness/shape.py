"""What a ladder.toml may say. stages/ladder.toml explains the keys.

A shape is one of these:

    Kind              a value: what is expected in words, and a test for it
    [shape]           a list of such values, and not an empty one; [shape, ...] may be empty
    (shape, ...)      a list of exactly these
    {key: shape}      a table with these keys, of which those with a ! have to be there; a Kind as a
                      key stands for all keys that it accepts
"""

import difflib
import re
import shlex
from collections import Counter


class Kind:
    def __init__(self, expected, accepts):
        self.expected, self.accepts = expected, accepts


def matching(expected, pattern, *others):
    """Text that matches the pattern, and is none of the others."""
    return Kind(f"{expected}{', and none of: ' if others else ''}{' '.join(others)}",
                lambda value: type(value) is str and re.fullmatch(pattern, value)
                and value not in others)


def name(*others):
    return matching("a name of small letters, digits and _", "[a-z][a-z0-9_]*", *others)


def option(*others):
    return matching("an option of small letters, digits and -", "[a-z][a-z0-9-]*", *others)


def one_of(*values):
    return Kind(f"one of: {' '.join(map(str, values))}", lambda value: value in values)


def whole(least):
    return Kind(f"a whole number from {least}",
                lambda value: type(value) is int and least <= value < 2**64)


def is_words(value):
    try:
        return type(value) is str and value.isprintable() and shlex.split(value) is not None
    except ValueError:  # a quotation without its end
        return False


NAME, OPTION = name(), option()
TEXT = Kind("text", lambda value: type(value) is str and value.strip()
            and " ".join(value.split()).isprintable())
WORDS = Kind("the words of a command line", is_words)
WORD = matching("a word", r"\w[\w.,+-]*")
PATH = matching("a path of letters, digits and ._+-/", r"[\w.+/-]+")
FLAG = Kind("true or false", lambda value: type(value) is bool)
NUMBER = Kind("a number, not below 0", lambda value: type(value) in (int, float)
              and (value == 0 or 1e-100 < value < 1e100))
VALUE = Kind("a number, not below 0, or a word",
             lambda value: NUMBER.accepts(value) or WORD.accepts(value))
SETTING = Kind("a number, not below 0, a word, true or false",
               lambda value: VALUE.accepts(value) or FLAG.accepts(value))
# Other columns that are no numbers, and other options that a program or run_all.sh has.
COLUMNS = ("stage", "device", "threads", "dataset", "sweep", "round", "began", "load", "others",
           "rate")
OPTIONS = (*COLUMNS, "all", "csv", "data", "gpu", "growth", "help", "output", "peers", "quick",
           "quiet", "repeats", "resume", "runs", "save", "stages", "steps", "study")

# What the shape of the rest depends on.
FIRST = {
    "axes": [{"option!": option(*OPTIONS), "name!": TEXT, "values!": [VALUE], "quick": [VALUE]},
             ...],
    "settings": {option(*OPTIONS): SETTING}, "phases": [NAME, ...],
    "columns": {OPTION: name(*COLUMNS)}}
DEFAULTS = {"axes": [], "settings": {}, "phases": [], "columns": {}, "measures": [], "work": {},
            "quick": {}, "rungs": {}, "growth": {}, "compare": {}, "step": {}, "check": {},
            "profile": {}, "counts": [],
            "save": "save", "results": {}, "data": "", "profiles": "profiles", "epochs": "", "baseline": "",
            "numbers": "float32", "bound": "arithmetic", "unit": "ms a run", "units": ["1"]}
CASES = {"sizes": [WORDS], "cases": [WORDS], "twice": [WORDS, ...], "options": WORDS, "last": WORDS,
         "run_only": [WORDS, ...], "all_threads": [WORDS, ...], "threads": FLAG, "real_data": FLAG}
SELECTIONS = {selection: CASES for selection in (
    "check", "wide", "builds", "sanitized", "simulated", "simulated_wide", "order_1", "order_2",
    "order_3", "gpu", "cell", "peers", "long", "longer")}


def shape_of(toml):
    """The shape of a ladder.toml in which FIRST is right."""

    def like(value, least=0):
        return {bool: FLAG, int: whole(least), float: NUMBER, str: WORD}[type(value)]

    def columns(values, *kinds):
        return [toml["columns"].get(option, option.replace("-", "_"))
                for option, value in values.items() if type(value) in kinds]

    of_axes = {axis["option"]: axis["values"][0] for axis in toml["axes"]}
    settings = {option: like(value) for option, value in toml["settings"].items()}
    options = {option: like(value, 1) for option, value in of_axes.items()} | settings
    run = {**options, "runs": whole(1)}
    counted = {option: [kind] for option, kind in options.items() if kind not in (FLAG, WORD)}
    shown = [*columns(toml["settings"], bool, int, float, str), "dataset"]
    factors = columns(of_axes | toml["settings"], int, float)

    def term(number, *more):
        factor = f"/?({'|'.join([number, *map(re.escape, [*factors, *more])])})"
        return matching("numbers and columns, such as 'epochs 4 /batch', with these columns: "
                        + " ".join([*factors, *more]), f"{factor}( {factor})*")

    whole_term = term("[1-9][0-9]{0,17}")
    results = toml["results"] if isinstance(toml["results"], dict) else {}
    texts = columns(of_axes | toml["settings"], str)
    return {
        **FIRST, "columns": dict.fromkeys(options, name(*COLUMNS)),
        "axes": tuple({**FIRST["axes"][0], "values!": [kind], "quick": [kind]}
                      for kind in map(options.get, of_axes)),
        "title!": TEXT, "program!": NAME, "baseline": TEXT, "epochs": OPTION,
        "time!": matching("a column that ends in _s", "[a-z][a-z0-9_]*_s"),
        "unit": matching("s, ms or µs of what, such as 'µs a batch'", r"(s|ms|µs) \w[\w ]*"),
        "units": [whole_term], "save": matching(f'{OPTION.expected}, or ""', "([a-z][a-z0-9-]*)?"),
        "data": PATH, "profiles": PATH, "numbers": one_of("float32", "float64"),
        "bound": one_of("arithmetic", "memory"),
        "heading": Kind(f"text, and in braces only: {' '.join(shown)}", lambda value: (
            TEXT.accepts(value)
            and {*re.findall(r"\{[^{}]*\}|[{}]", value)} <= {f"{{{each}}}" for each in shown})),
        "headline": [tuple(one_of(*axis["values"]) for axis in toml["axes"])],
        "paper": {"cite!": TEXT, "file": PATH, "settings": settings},
        "quick": settings, "compare": run,
        "rungs": {**settings, "cells": [tuple(map(options.get, of_axes))]},
        "step": run, "check": run, "profile": run,
        "counts": [{"cell!": TEXT, "run!": WORDS, "less": WORDS}, ...],
        "datasets": {NAME: TEXT}, "growth": {"base!": options, "values!": counted},
        "work": {phase: {"operations": [whole_term], "bytes": [whole_term]}
                 for phase in toml["phases"]},
        "results": {column: [term(r"[1-9][0-9]{0,8}|0\.[0-9]{0,8}[1-9]", column)]
                    for column in results},
        "measures": [{"column!": name(*COLUMNS, *texts), "title!": TEXT, "unit": TEXT,
                      "better": one_of("lower", "higher")}, ...],
        "tests": {**CASES, **SELECTIONS, "cases!": [WORDS], "updates": (OPTION,) * 3,
                  "hints": {TEXT: TEXT}, "drawn": {OPTION: NUMBER}, "changed_lines": whole(1)}}


def shown(value):
    """A value of any size, in a line."""
    if isinstance(value, (dict, list)):
        return f"{'a' if value else 'an empty'} {'table' if isinstance(value, dict) else 'list'}"
    if type(value) is int and abs(value) > 2**64:
        return "a number of more than 64 bits"
    text = repr(value) if isinstance(value, str) else str(value).lower()
    return text if len(text) < 60 else f"{text[:56]}..."


def wrong(place, found, expected):
    raise ValueError(f"{place}{': ' if place else ''}found {found}, expected {expected}")


def nearest(wanted, names):
    """What is expected in the place of a wrong name: what is near to it, or any that is no step."""
    words = {word: name for name in names for word in (name, *name.split("_", 1))}
    near = dict.fromkeys(words[word] for word in difflib.get_close_matches(
        wanted[:60], words, cutoff=0.65))
    steps = [name for name in names if "." in name]
    return " or ".join(f"'{name}'" for name in near) or "one of: " + " ".join(
        name for name in names if name not in steps) + "".join(
        f", or a step such as {name}" for name in steps[:1])


def match(value, shape, place=""):
    """Compares a value with its shape. A ValueError says what is wrong first."""
    if isinstance(shape, Kind):
        if not shape.accepts(value):
            wrong(place, shown(value), shape.expected)
    elif isinstance(shape, dict):
        match_table(value, shape, place)
    else:
        exact = isinstance(shape, tuple)
        if not isinstance(value, list) or (len(value) != len(shape) if exact else
                                           not value and ... not in shape):
            item = shape[0] if shape else None
            wrong(place, shown(value), f"a list of {len(shape)}" if exact else
                  f"a list, each {item.expected}" if isinstance(item, Kind) else
                  f"tables, each below [[{place}]]")
        for number, item in enumerate(value):
            match(item, shape[number if exact else 0], f"{place}[{number}]")


def match_table(value, shape, place):
    if not isinstance(value, dict):
        wrong(place, shown(value), "a table")
    known = {key.rstrip("!"): part for key, part in shape.items() if isinstance(key, str)}
    others = next((key for key in shape if isinstance(key, Kind)), Kind("", lambda key: False))
    for key in value:
        if key not in known and not others.accepts(key):
            wrong(place, f"the key {shown(key)}", others.expected or nearest(key, known))
    for key, part in known.items():
        inner = f"{place}.{key}" if place else key
        if key in value:
            match(value[key], part, inner)
        elif f"{key}!" in shape:
            wrong(inner, "nothing", part.expected if isinstance(part, Kind) else
                  "a table" if isinstance(part, dict) else "a list")
    for key in value:
        if key not in known:
            match(value[key], shape[others], f"{place}.{key}")


def check(given):
    """What a ladder.toml says, and DEFAULTS. A ValueError says what is wrong first."""
    toml = DEFAULTS | given
    match({key: toml[key] for key in FIRST}, FIRST)
    if len(toml["axes"]) > 2:
        wrong("axes", f"{len(toml['axes'])} tables", "two at most")
    options = [axis["option"] for axis in toml["axes"]] + [*toml["settings"]]
    columns = [toml["columns"].get(option, option.replace("-", "_")) for option in options]
    for place, names in (("axes", options), ("phases", toml["phases"]), ("columns", columns)):
        for name, times in Counter(names).most_common(1):
            if times > 1:
                wrong(place, f"'{name}' twice", "each once")
    match(given, shape_of(toml))
    tests = toml.get("tests", {"cases": []})
    for cases in (tests["cases"], tests.get("check", tests).get("cases", [])):
        for case in cases:
            for option in tests.get("updates", ()):
                if not re.search(rf"--{option} [0-9]", case):
                    wrong("tests.cases", shown(case), f"--{option} N, which tests.updates has")
    return toml
