"""What a ladder.toml may say. stages/ladder.toml explains the keys.

A shape is a set of types; a tuple of values, of which one has to be there; a list of one shape; or
a table {key: shape}, where a key with a ! has to be there, and * stands for all other keys.
"""

import difflib
import re

TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "text",
         dict: "a table", list: "a list"}
FLAG, WHOLE, NUMBER, TEXT, VALUE = {bool}, {int}, {int, float}, {str}, {bool, int, float, str}
TERMS = [TEXT]
DEFAULTS = {"axes": [], "settings": {}, "phases": [], "columns": {}, "measures": [], "work": {},
            "quick": {}, "rungs": {}, "growth": {}, "compare": {}, "step": {}, "check": {},
            "profile": {}, "counts": [], "save": "save", "results": {}, "data": "",
            "profiles": "profiles", "epochs": "", "baseline": "", "numbers": "float32",
            "bound": "arithmetic", "unit": "ms a run", "units": ["1"]}
CASES = {"sizes": [TEXT], "cases": [TEXT], "twice": [TEXT], "options": TEXT, "last": TEXT,
         "run_only": [TEXT], "all_threads": [TEXT], "threads": FLAG, "real_data": FLAG}
SELECTIONS = ("check", "wide", "builds", "sanitized", "simulated", "simulated_wide", "order_1",
              "order_2", "order_3", "gpu", "cell", "peers", "long", "longer")
FIRST = {  # the others' shapes depend on these
    "axes": [{"option!": TEXT, "name!": TEXT, "values!": [VALUE], "quick": [VALUE]}],
    "settings": {"*": VALUE}, "phases": [TEXT], "columns": {"*": TEXT}}
# What a program or run_all.sh takes itself.
TAKEN = ("all", "csv", "data", "gpu", "growth", "help", "output", "peers", "quick", "quiet",
         "repeats", "resume", "runs", "save", "stages", "steps", "study", "threads")


def shape_of(toml):
    """The shape of a ladder.toml in which FIRST is right."""
    of_axes = {axis["option"]: axis["values"][0] for axis in toml["axes"]}
    options = {option: NUMBER if type(value) is float else {type(value)}
               for option, value in (of_axes | toml["settings"]).items()}
    run = {**options, "runs": WHOLE}
    return {
        **FIRST, "columns": dict.fromkeys(options, TEXT), "title!": TEXT, "program!": TEXT,
        "time!": TEXT, "baseline": TEXT, "epochs": TEXT, "save": TEXT, "data": TEXT,
        "profiles": TEXT, "unit": TEXT, "units": TERMS, "heading": TEXT,
        "numbers": ("float32", "float64"), "bound": ("arithmetic", "memory"),
        "headline": [[VALUE]], "paper": {"cite!": TEXT, "file": TEXT, "settings": options},
        "quick": options, "rungs": {**options, "cells": [[VALUE]]}, "compare": run, "step": run,
        "check": run, "profile": run, "counts": [{"cell!": TEXT, "run!": TEXT, "less": TEXT}],
        "datasets": {"*": TEXT},
        "growth": {"base!": options, "values!": {option: [kind] for option, kind in
                                                 options.items()}},
        "work": dict.fromkeys(toml["phases"], {"operations": TERMS, "bytes": TERMS}),
        "results": {"*": TERMS},
        "measures": [{"column!": TEXT, "title!": TEXT, "unit": TEXT,
                      "better": ("lower", "higher")}],
        "tests": {**CASES, **dict.fromkeys(SELECTIONS, CASES), "cases!": [TEXT],
                  "updates": [TEXT], "drawn": {"*": NUMBER},
                  "changed_lines": WHOLE}}


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
    kind = type(shape) if isinstance(shape, (dict, list)) else None
    if isinstance(shape, tuple) and value not in shape:
        wrong(place, repr(value), f"one of: {' '.join(shape)}")
    if isinstance(shape, set) and type(value) not in shape or kind and type(value) is not kind:
        found = TYPES[type(value)] if isinstance(value, (dict, list)) else repr(value)
        wrong(place, found, TYPES[kind] if kind else
              " or ".join(words for each, words in TYPES.items() if each in shape))
    for number, item in enumerate(value if kind is list else ()):
        match(item, shape[0], f"{place}[{number}]")
    if kind is dict:
        known = {key.rstrip("!"): key for key in shape}
        for key, item in value.items():
            if key not in known and "*" not in known:
                wrong(place, f"the key '{key}'", nearest(key, known))
            match(item, shape[known.get(key, "*")], f"{place}.{key}".lstrip("."))
        for key in shape:
            if key.endswith("!") and key[:-1] not in value:
                wrong(f"{place}.{key[:-1]}".lstrip("."), "nothing", "this key")


def check(given):
    """What a ladder.toml says, and DEFAULTS. A ValueError says what is wrong first."""
    toml = DEFAULTS | given
    match({key: toml[key] for key in FIRST}, FIRST)
    options = [*(axis["option"] for axis in toml["axes"]), *toml["settings"]]
    for axis in toml["axes"]:
        match([*axis["values"], *axis.get("quick", [])], [{type(axis["values"][0])}], "axes")
    for number, option in enumerate(options):
        if option in (*TAKEN, *options[:number]) or not re.fullmatch("[a-z][a-z0-9-]*", option):
            wrong("option", f"'{option}'", "small letters, digits and -, a name that is there only "
                  f"once, and none of: {' '.join(TAKEN)}")
    match(given, shape_of(toml))
    if not toml["time"].endswith("_s"):
        wrong("time", f"'{toml['time']}'", "a column that ends in _s")
    if toml["unit"].split()[:1] not in (["s"], ["ms"], ["µs"]):
        wrong("unit", f"'{toml['unit']}'", "s, ms or µs of what, such as 'µs a batch'")
    columns = [toml["columns"].get(option, option.replace("-", "_")) for option in options]
    terms = [term for work in toml["work"].values() for part in work.values() for term in part]
    for term in (*terms, *toml["units"], *(
            term for found in toml["results"].values() for term in found)):
        for word in term.split():
            if not re.fullmatch(rf"/?({'|'.join([*columns, *toml['results']])}|[0-9.]+)", word):
                wrong("work, units or results", f"'{word}' in '{term}'",
                      f"numbers and columns: {' '.join(columns)}")
    return toml
