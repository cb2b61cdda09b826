"""What a ladder.toml may say. stages/ladder.toml explains the keys.

Each key is here with a value of its type. A ValueError says what is wrong first: where, what was
found there and what was expected.
"""

import difflib

DEFAULTS = {"axes": [], "settings": {}, "phases": [], "columns": {}, "measures": [], "work": {},
            "quick": {}, "rungs": {}, "growth": {}, "compare": {}, "step": {}, "check": {},
            "profile": {}, "counts": [], "save": "save", "results": {}, "data": "",
            "profiles": "profiles", "epochs": "", "baseline": "", "numbers": "float32",
            "unit": "ms a run", "units": ["1"]}
REQUIRED = {"title": "", "program": "", "time": ""}
OPTIONAL = {"heading": "", "headline": [], "paper": {}, "datasets": {}, "tests": {}}
CASES = {"sizes": [], "cases": [], "twice": [], "options": "", "last": "", "run_only": [],
         "all_threads": [], "threads": True, "real_data": True}
SELECTIONS = ("check", "wide", "builds", "sanitized", "simulated", "simulated_wide", "order_1",
              "order_2", "order_3", "gpu", "cell", "peers", "long", "longer")
# What a table has, or each of a list of tables: the keys that have to be there, and the others.
TABLES = {"axes": ({"option": "", "name": "", "values": []}, {"quick": []}),
          "measures": ({"column": "", "title": ""}, {"unit": "", "better": ""}),
          "counts": ({"cell": "", "run": ""}, {"less": ""}),
          "growth": ({}, {"base": {}, "values": {}}),
          "tests": ({}, {**CASES, **{name: {} for name in SELECTIONS}, "updates": [],
                         "drawn": {}, "changed_lines": 1})}
ONE_OF = {"numbers": ("float32", "float64"), "better": ("lower", "higher")}
# What a program or run_all.sh takes itself.
TAKEN = ("csv", "data", "gpu", "growth", "help", "output", "peers", "quick", "quiet", "repeats",
         "resume", "runs", "save", "stages", "steps", "study", "threads")
TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "text",
         dict: "a table", list: "a list"}


def wrong(place, found, expected):
    raise ValueError(f"{place}: found {found}, expected {expected}".removeprefix(": "))


def nearest(wanted, names):
    """What is expected in the place of a wrong name: what is near to it, or any that is no step."""
    near = difflib.get_close_matches(wanted, names, cutoff=0.61)
    return " or ".join(f"'{name}'" for name in near) or "one of: " + " ".join(
        name for name in names if "." not in name)


def compare(place, table, required, optional):
    """Compares the keys of a table, and the types of their values, with what may be there."""
    known = required | optional
    if not isinstance(table, dict):
        wrong(place, repr(table), TYPES[dict])
    for key, value in table.items():
        if key not in known:
            wrong(place, f"the key '{key}'", nearest(key, known))
        where, kind = f"{place}.{key}".lstrip("."), type(known[key])
        if type(value) is not kind and (kind, type(value)) != (float, int):
            wrong(where, repr(value), TYPES[kind])
        if value not in ONE_OF.get(key, [value]):
            wrong(where, repr(value), f"one of: {' '.join(ONE_OF[key])}")
    for key in required:
        if not table.get(key):
            wrong(f"{place}.{key}".lstrip("."), "nothing", "this key")


def check(given):
    """What a ladder.toml says, and DEFAULTS. A ValueError says what is wrong first."""
    compare("", given, REQUIRED, DEFAULTS | OPTIONAL)
    toml = DEFAULTS | given
    for name, keys in TABLES.items():
        found = toml.get(name, {})
        for table in found if isinstance(found, list) else [found]:
            compare(name, table, *keys)
    options = {axis["option"]: axis["values"][0] for axis in toml["axes"]} | toml["settings"]
    for option in options.keys() & TAKEN:
        wrong("option", f"'{option}'", f"none of: {' '.join(TAKEN)}")
    lists = {option: [] for option in options}
    for place, table, keys in (
            *((name, toml[name], options | {"runs": 1, "cells": []}) for name in (
                "quick", "rungs", "compare", "step", "check", "profile")),
            *((f"tests.{name}", toml.get("tests", {}).get(name, {}), CASES) for name in SELECTIONS),
            *((f"work.{phase}", work, {"operations": [], "bytes": []})
              for phase, work in toml["work"].items()),
            ("growth.base", toml["growth"].get("base", {}), options),
            ("growth.values", toml["growth"].get("values", {}), lists),
            ("columns", toml["columns"], dict.fromkeys(options, ""))):
        compare(place, table, {}, keys)
    if not toml["time"].endswith("_s"):
        wrong("time", f"'{toml['time']}'", "a column that ends in _s")
    if toml["unit"].split()[0] not in ("s", "ms", "µs"):
        wrong("unit", f"'{toml['unit']}'", "s, ms or µs of what, such as 'µs a batch'")
    return toml
