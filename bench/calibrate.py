"""The record of the machine's ceilings, and those of its GPU: see bench/machine/README.md."""

import csv
import functools
import json
import os
import sys
from pathlib import Path

from bench import process, rows
from bench.base import ROOT
from bench.options import given

GPU = "gpu/"     # how the names of a GPU's ceilings begin
LIMIT_S = 120    # of 15
REPETITIONS = 9  # calibrate.cu's


@functools.cache
def results():
    folder = given("RESULTS") or (
        ROOT / "report/results" / process.output(["bench/machine.sh", "--name"]) / "bench")
    return Path(folder, "ceilings.json")


def is_gpus(benchmark):
    return benchmark["run_name"].startswith(GPU)


def save(found):
    """Writes what Google Benchmark has found, or its like of a GPU. What is known of the other
    device stays."""
    path = results()
    known = json.loads(rows.read(path)) if path.exists() else {}
    context = found.get("context") or known.get("context") or {"caches": []}
    new = found["benchmarks"]
    kept = [each for each in known.get("benchmarks", []) if is_gpus(each) != is_gpus(new[0])]
    both = sorted(kept + new, key=is_gpus)
    text = json.dumps({"context": context, "benchmarks": both}, indent=1, ensure_ascii=False)
    rows.write(path, text + "\n")
    print(f"Written to {os.path.relpath(path, ROOT)}", file=sys.stderr)


def benchmark(row):
    """A row of calibrate.cu as Google Benchmark would write it, with its own unit and range."""
    name = f"{GPU}{row['what']}"
    return {
        "name": f"{name}_median", "run_name": name, "run_type": "aggregate",
        "repetitions": REPETITIONS, "aggregate_name": "median",
        "value": float(row["value"]), "unit": row["unit"],
        "least": float(row["least"]), "most": float(row["most"]),
    }


def measure_gpu():
    """Measures the GPU, prints what it finds, and saves it. Returns the exit status."""
    process.make("-C", "bench/machine", "build/calibrate")
    ended = process.run([ROOT / "bench/machine/build/calibrate"], LIMIT_S)
    lines = [line for line in ended.out.splitlines() if line.count(",") == 4]
    found = [benchmark(row) for row in csv.DictReader(lines)]
    for each in found:
        print(f"{each['run_name']:57}{each['value']:10.5g} {each['unit']}")
    if found:
        save({"benchmarks": found})
    if ended.status:  # what it had measured until then is right
        print(f"calibrate: exit status {ended.status}: {ended.err}", file=sys.stderr)
    return int(ended.status != 0)
