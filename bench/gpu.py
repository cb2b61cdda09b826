"""Says whether the programs for a GPU are right on this machine's, and how fast: `make gpu`.

LIMIT=480 is the seconds for all of it. RUNS=1, HIDDEN=32 and so on: how often a program runs, and
its options, as elsewhere. What is needed most comes first: whether the programs are right, of which
those that no record has measured come first, the ceilings, the times, and then what Nsight Compute
counts and compute-sanitizer finds. All is then in report/results/<machine>.
"""

import contextlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import calibrate, counts, host, ladders, process, rows, testing
from bench.base import ROOT, fail, value
from bench.options import given
from bench.record import Record
from bench.stage import processors

LIMIT_S = 480
LONGEST_S = 3600  # that a context is held
CHECK_S = 60      # that a run of a check may take, of 1
CHECKS = 4        # side by side
# Parts of the time that is left: that of the first sweep, and what comes behind all sweeps.
FIRST_PART = 0.6
BEHIND_PART = 0.25
TOOLS = "memcheck", "racecheck", "initcheck", "synccheck"  # of compute-sanitizer


def held(seconds):
    """Holds a context of the GPU. Without one, each program waits for the driver."""
    program = ROOT / "bench/machine/build/calibrate"
    if not program.exists():
        return contextlib.nullcontext()
    return process.started([program, "--hold", min(seconds + 1, LONGEST_S)])


def record():
    """The machine's, of all ladders."""
    return Record(calibrate.results().parents[1])


def newest_first():
    """All programs of the ladders for a GPU. Those come first that no record has measured as they
    are."""
    measured = {line["sources"] for path in ROOT.glob("report/results/*/*/programs.csv")
                for line in rows.read_record(path, rows.PROGRAMS) if line["outcome"] == "ran"}
    found = [stage for ladder in ladders.ladders() for stage in ladder.stages if stage.is_gpu]
    return sorted(found, key=lambda stage: stage.sources in measured)


# --- are they right? ---

def verdict(stage, tool, ends):
    """(verdict, why) of a program: it is compared with the reference in few cases, perhaps under a
    tool of compute-sanitizer."""
    under = [counts.toolkit("compute-sanitizer"), "--tool", tool, "--error-exitcode", "1"]
    try:
        program = testing.tester(stage, "gpu", under=under if tool else (), limit=CHECK_S)
        for pair in program.pairs():
            if time.monotonic() > ends:
                return "cut off", ""
            testing.test(program, *pair)
    except testing.Wrong as wrong:
        return "wrong", str(wrong)
    except testing.Skipped as why:
        return "left out", str(why)
    return "right", ""


def check(stages, tool, ends):
    """Checks programs side by side, and notes what is found. Returns those that are right."""
    with ThreadPoolExecutor(CHECKS) as pool:
        found = [*pool.map(lambda stage: verdict(stage, tool, ends), stages)]
    for stage, words in zip(stages, found):
        if words[0] != "right":
            print(f"{stage.name}: {': '.join(filter(None, [tool, *words]))}", flush=True)
    record().add("checks.csv", ["ladder", "program", "against", "verdict", "reason", "sources"], *(
        (stage.ladder.name, stage.name, tool or "reference", *words, stage.sources)
        for stage, words in zip(stages, found)))
    return [stage for stage, words in zip(stages, found) if words[0] == "right"]


# --- how fast? ---

def options_of(ladder):
    """What make's command line says of the runs."""
    names = [*(axis["option"] for axis in ladder.axes), *ladder.settings]
    found = [f"--{name}={given(name)}" for name in names
             if given(name) and not isinstance(ladder.settings.get(name), bool)]
    if given("RUNS"):
        found.append(f"--repeats={given('RUNS')}")
    return found


def among(right, ladder):
    return [stage for stage in right if stage.ladder is ladder]


def sweeps(right):
    """(ladder, stages, options of run_all.sh) of each: all programs of the main ladder for a GPU
    and the peers, then the processor's stages; its stages for a GPU at all sizes; the studies' and
    their peers; how the time grows, with images in the caches and not, of what has threads."""
    main, *studies = ladders.ladders()
    threads = ",".join(str(2**n) for n in range(processors().bit_length()))
    own = among(right, main)
    beside = [stage for stage in main.stages if not stage.is_gpu and not stage.is_step]
    yield main, own + beside, ["--steps", "--peers", f"--threads={threads}"]
    yield main, [stage for stage in own if not stage.is_step], []
    for study in studies:
        yield study, among(right, study), ["--steps", "--peers"]
    threaded = [stage for stage in beside if stage.declared("OPENMP")]
    yield main, threaded, ["--growth"]


def sweep(ladder, stages, words, seconds):
    """Makes a sweep. Returns its exit status."""
    names = ",".join(stage.name for stage in stages)
    study = ladder.chosen_by("--study=").split()
    command = [ROOT / "run_all.sh", *study, f"--stages={names}", *words,
               f"--limit={max(0, seconds):.0f}", *options_of(ladder)]
    return process.run(command, stdout=None, stderr=None).status


def count(stages, ends):
    """Adds what Nsight Compute counts, for as long as there is time."""
    for stage in stages:
        for cell, run in counts.runs(stage):
            if time.monotonic() > ends:
                return
            record().add("counters.csv", counts.COUNTERS, *counts.counters(stage, cell, run))


def main():
    limit = value("LIMIT", given("LIMIT", str(LIMIT_S)), float, 0)
    ends = time.monotonic() + limit
    if not host.has_gpu():
        fail("found no GPU (nvidia-smi lists none)", 77)
    # Python's programs take this one: it may be in no path.
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    os.environ.setdefault("WARMUP_S", "0.1")
    # All side by side: each sweep would build its own, and nvcc takes ten seconds for a program.
    process.run(["make", "-s", "--keep-going", f"-j{processors()}", "all"], cwd=ROOT)
    stages = newest_first()
    process.make("-C", "bench", "build/many_processors.so", *{
        f"build/{stage.ladder.name}/reference" for stage in stages})
    with held(limit):
        right = check(stages, "", ends)
        status = int(len(right) < len(stages))
        status = max(status, calibrate.measure_gpu())
        behind = BEHIND_PART * (ends - time.monotonic())
        todo = [each for each in sweeps(right) if each[1]]
        for number, each in enumerate(todo):
            left = ends - behind - time.monotonic()
            part = FIRST_PART if number == 0 else 1 / (len(todo) - number)
            status = max(status, sweep(*each, part * left))
        if counts.toolkit("ncu"):
            count(right, ends - behind / 2)
        if counts.toolkit("compute-sanitizer"):
            for tool in TOOLS:
                status = max(status, int(len(check(right, tool, ends)) < len(right)))
    return status
