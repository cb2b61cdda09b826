#!/usr/bin/python3
"""Grades what a student hands in: KEY=word course/assignments/autograde.py ASSIGNMENT train.c

It builds and runs a program that nobody has read, so start it in a container that you throw away.
Puts the source into a fresh checkout of this repository, beside the stage that the assignment
starts from, and runs `make check` with the assignment's target. Prints what that prints, and its
line of JSON with the points. The exit status is that of make.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent


def main():
    name, source = sys.argv[1:]
    if not os.environ.get("KEY"):
        sys.exit("KEY: found none, expected a word that students do not know")
    toml = tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))
    variables = {"STAGE": "20_handed_in", "TARGET": toml.get("target", ""),
                 "KEY": os.environ["KEY"], **toml["variables"]}
    with tempfile.TemporaryDirectory() as fresh:
        subprocess.run(["git", "clone", "-q", HERE.parents[1], fresh], check=True)
        stage = Path(fresh, "stages", variables["STAGE"])
        shutil.copytree(stage.with_name(toml["start"]), stage)
        shutil.copyfile(source, next(stage.glob("train.c*")))
        with open(stage / "Makefile", "a", encoding="utf-8") as makefile:
            makefile.write(f"ORIGIN = {toml['start']}\n")
        checked = subprocess.run(
            ["make", "-s", "check", *(f"{option}={value}" for option, value in variables.items())],
            cwd=fresh, stdout=subprocess.PIPE, text=True, check=False)
    *lines, last = checked.stdout.splitlines() or [""]
    row = {"verdict": f"not checked: {last}"}
    if last.startswith("{"):
        row = json.loads(last)
    points = 0
    if row["verdict"] in ("right", "reached", "MISSED", "undecided"):
        points = toml["right"]
    if "reached" in row:
        points += float(np.interp(row["reached"], *zip(*toml["points"])))
    if points and row.get("launches", 99) <= toml.get("launches", 0):
        points += toml["points"]
    print(*lines, json.dumps({"assignment": name, **row, "points": round(points, 1)}), sep="\n")
    sys.exit(checked.returncode)


if __name__ == "__main__":
    main()
