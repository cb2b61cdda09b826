"""What a ladder.toml may say, each key with its type. stages/ladder.toml explains them."""

import difflib

DEFAULTS = {"axes": [], "settings": {}, "phases": [], "columns": {}, "measures": [], "work": {},
            "quick": {}, "rungs": {}, "cluster": [], "growth": {}, "compare": {}, "step": {},
            "check": {}, "profile": {}, "counts": [], "kit": {}, "save": "save", "results": {},
            "data": "", "clock": [], "profiles": "profiles", "epochs": "", "baseline": "",
            "numbers": "float32", "unit": "ms a run", "units": ["1"]}
# The keys of [tests], and what they are without one. Each of its selections may replace them.
CASES = {"sizes": [""], "cases": [], "twice": [], "options": "", "last": "", "run_only": [],
         "all_threads": [], "threads": True, "real_data": False}
KIT = {"cases": [], "sanitized": [], "peers": [], "counted": [], "cpu": [], "threads": []}
SELECTIONS = ("check", "wide", "builds", "sanitized", "simulated", "simulated_wide", "order_1",
              "order_2", "order_3", "gpu", "cell", "peers", "epoch", "long")
# The others that it may have, and those in tables. An empty table or list may have anything.
SHAPE = DEFAULTS | {
    "title": "", "program": "", "time": "", "heading": "", "headline": [], "paper": {},
    "datasets": {}, "growth": {"base": {}, "values": {}},
    "axes": [{"option": "", "name": "", "values": [], "quick": []}],
    "measures": [{"column": "", "title": "", "unit": ""}],
    "counts": [{"cell": "", "run": "", "less": ""}],
    "kit": KIT,
    "tests": {**CASES, **{name: CASES | {"items": 1} for name in SELECTIONS},
              "updates": [], "drawn": {}, "changed_lines": 1}}
REQUIRED = {"": ("title", "program", "time"), "axes": ("option", "name", "values"),
            "measures": ("column", "title"), "counts": ("cell", "run"), "tests": ("cases",),
            "growth": ("values",)}
# What a program or run_all.sh takes itself.
TAKEN = ("csv", "data", "growth", "help", "kind", "output", "peers", "quick", "quiet", "repeats",
         "resume", "runs", "save", "stages", "steps", "study", "threads")
TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "text",
         dict: "a table", list: "a list"}


def wrong(place, found, expected):
    raise ValueError(f"{place}: found {found}, expected {expected}".removeprefix(": "))


def nearest(wanted, names, short=()):
    """What is expected in the place of a wrong name: what is near to it, or any, in short."""
    near = difflib.get_close_matches(wanted, [*names, *short], cutoff=0.61)
    return " or ".join(f"'{name}'" for name in near) or "one of: " + " ".join(short or names)


def compare(place, found, shape):
    """Compares a value's type with that of its shape, and so on what is in a table or a list."""
    kind = type(shape)
    if type(found) is not kind and (kind, type(found)) != (float, int):
        wrong(place, repr(found), TYPES[kind])
    if kind is list and shape:
        for each in found:
            compare(place, each, shape[0])
    if kind is dict and shape:
        for key, value in found.items():
            if key not in shape:
                wrong(place, f"the key '{key}'", nearest(key, shape))
            compare(f"{place}.{key}".lstrip("."), value, shape[key])
        for key in REQUIRED.get(place, ()):
            if not found.get(key):
                wrong(f"{place}.{key}".lstrip("."), "nothing", "this key")


def check(given):
    """What a ladder.toml says, and DEFAULTS. A ValueError says what is wrong first."""
    compare("", given, SHAPE)
    toml = DEFAULTS | given
    toml["kit"] = KIT | toml["kit"]
    options = {axis["option"]: axis["values"][0] for axis in toml["axes"]} | toml["settings"]
    for option in options.keys() & TAKEN:
        wrong("option", f"'{option}'", f"none of: {' '.join(TAKEN)}")
    runs = ("quick", "rungs", "compare", "step", "check", "profile")
    compare("", given, SHAPE | dict.fromkeys(runs, options | {"runs": 1, "cells": []}) | {
        "work": {phase: {"operations": [], "bytes": []} for phase in toml["work"]},
        "growth": {"base": options, "values": {option: [] for option in options}},
        "columns": dict.fromkeys(options, "")})
    if not toml["time"].endswith("_s"):
        wrong("time", f"'{toml['time']}'", "a column that ends in _s")
    if toml["numbers"] not in ("float32", "float64"):
        wrong("numbers", f"'{toml['numbers']}'", "float32 or float64")
    if toml["unit"].partition(" ")[0] not in ("s", "ms", "µs"):
        wrong("unit", f"'{toml['unit']}'", "s, ms or µs of what, such as 'µs a batch'")
    return toml
