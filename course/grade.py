"""Grades what an assignment asks for, as assignments/README.md says: `make check ASSIGNMENT=name`.
A check that ends with another line than that of the points gives none."""

import os
import secrets
import tomllib
from pathlib import Path

import numpy as np

from bench import check, ladders, shape
from bench.base import fail
from bench.options import GIVEN, given, take
from bench.stage import OWN, bare

FILES = {path.stem: path for path in Path(__file__).parent.glob("assignments/*.toml")}


def find(ladder, start):
    """The stage that is graded: STAGE, or the only one of one's own that was made from `start`."""
    own = [stage for stage in ladder.stages if stage.number >= OWN and stage.before == start]
    if not own:
        fail(f"STAGE: found none of your own, expected one from `make new-stage FROM={start.name}`")
    if len(own) == 1 and not given("STAGE"):
        return own[0]
    return ladder.find(given("STAGE"), "STAGE", own)


def points(toml, result):
    """The points for what check_stage() has found."""
    if result["verdict"] in ("wrong", "not checked"):
        return 0
    reached = result.get("reached", result.get("launches"))
    if reached is None or "points" not in toml:
        return toml["right"]
    return toml["right"] + float(np.interp(reached, *zip(*toml["points"])))


def main():
    name = given("ASSIGNMENT")
    if name not in FILES:
        fail(f"ASSIGNMENT: found '{name}', expected {shape.nearest(name, sorted(FILES))}")
    toml = tomllib.loads(FILES[name].read_text(encoding="utf-8"))
    most = toml["right"] + max(number for _, number in toml.get("points", [(0, 0)]))
    ladder = ladders.find_ladder("")
    stage = find(ladder, ladder.find(toml["start"]))
    for other in ladder.stages:
        if other.number < OWN and bare(other.source) == bare(stage.source):
            print(f"{name}: 0 of {most} points: the source is that of {other.name}")
            return 1
    options = {option: str(value) for option, value in toml["variables"].items()}
    GIVEN.update(options)
    os.environ.update(options)
    result = {"verdict": "not checked"}
    key = take("KEY") or secrets.token_hex(8)
    status = check.check_stage(stage, toml.get("target", ""), "", key, result)
    said = f"{name}: {points(toml, result):.3g} of {most} points"
    if result["verdict"] == "not judged":
        said += f" so far, none for speed: {result.get('why', 'RUNS=0')}"
    print(said)
    return status
