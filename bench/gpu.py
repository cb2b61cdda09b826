"""Says whether the programs for a GPU are right on this machine's, and how fast: `make gpu`.

LIMIT=480 is the seconds for all of it. RUNS=1, HIDDEN=32 and so on: how often a program runs, and
its options, as elsewhere. First come the ceilings, then sweeps with --check and --limit, the most
telling first. All is then in report/results/<machine>.
"""

import contextlib
import os
import sys
import time
from pathlib import Path

from bench import calibrate, host, ladders, process
from bench.base import ROOT, fail, value
from bench.options import given
from bench.stage import processors

LIMIT_S = 480
LONGEST_S = 3600  # that a context is held
FIRST_PART = 0.6  # of the time is for the first sweep


def held(seconds):
    """Holds a context of the GPU. Without one, each program waits for the driver."""
    program = ROOT / "bench/machine/build/calibrate"
    if not program.exists():
        return contextlib.nullcontext()
    return process.started([program, "--hold", min(seconds + 1, LONGEST_S)])


def options_of(ladder):
    """What make's command line says of the runs."""
    names = [*(axis["option"] for axis in ladder.axes), *ladder.settings]
    found = [f"--{name}={given(name)}" for name in names
             if given(name) and not isinstance(ladder.settings.get(name), bool)]
    if given("RUNS"):
        found.append(f"--repeats={given('RUNS')}")
    return found


def sweeps():
    """(ladder, stages, options of run_all.sh) of each: all programs of the main ladder for a GPU
    beside the processor's stages and the peers, its stages for a GPU at all sizes, the studies'."""
    main, *studies = ladders.ladders()
    threads = ",".join(str(2**n) for n in range(processors().bit_length()))
    beside = [stage for stage in main.stages if stage.is_gpu or not stage.is_step]
    yield main, beside, ["--steps", "--peers", f"--threads={threads}"]
    yield main, [stage for stage in beside if stage.is_gpu and not stage.is_step], []
    for study in studies:
        yield study, [stage for stage in study.stages if stage.is_gpu], ["--steps"]


def sweep(ladder, stages, words, seconds):
    """Makes a sweep. Returns its exit status."""
    names = ",".join(stage.name for stage in stages)
    study = ladder.chosen_by("--study=").split()
    command = [ROOT / "run_all.sh", *study, f"--stages={names}", *words, "--check",
               f"--limit={max(0, seconds):.0f}", *options_of(ladder)]
    return process.run(command, stdout=None, stderr=None).status


def main():
    limit = value("LIMIT", given("LIMIT", str(LIMIT_S)), float, 0)
    ends = time.monotonic() + limit
    if not host.has_gpu():
        fail("found no GPU (nvidia-smi lists none)", 77)
    # Python's programs take this one: it may be in no path.
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    os.environ.setdefault("WARMUP_S", "0.1")
    status = calibrate.measure_gpu()
    # All side by side: each sweep would build its own, and nvcc takes ten seconds for a program.
    process.run(["make", "-s", "--keep-going", f"-j{processors()}", "all"], cwd=ROOT)
    with held(limit):
        todo = [each for each in sweeps() if each[1]]
        for number, each in enumerate(todo):
            left = ends - time.monotonic()
            part = FIRST_PART if number == 0 else 1 / (len(todo) - number)
            status = max(status, sweep(*each, part * left))
    return status
