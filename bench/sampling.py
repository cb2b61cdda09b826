"""Runs a CPU stage under gperftools, which notes every few milliseconds where it is."""

import csv
import os
import re
import signal
from pathlib import Path

from bench.base import ROOT, fail
from bench.process import ending, output, reason, run

# The signal handler of gperftools ended one program in fourteen with a segmentation fault, on an
# Emerald Rapids. The next run goes well.
TRIES = 4

# A stage may be started as several processes. Each of them writes a profile of its own, and what
# starts them none. $0 is the variable with the profile's path.
OF_EACH_PROCESS = 'export "$0=$1.$$"; shift; exec env "$@"'


def pprof(*words):
    """What google-pprof prints, with the source's lines, and no path of this machine."""
    def shown(place):
        path = Path(os.path.normpath(place[1]))
        if not path.is_relative_to(ROOT):
            return f"{path.name}:{place[2]}"
        line = path.read_text(encoding="utf-8").splitlines()[int(place[2]) - 1]
        return f"{path.relative_to(ROOT)}:{place[2]}  {line.strip()}"

    return re.sub(r"(\.?/.*):(\d+)$", shown, output(["google-pprof", *words]), flags=re.MULTILINE)


def sample(stage, options, work, variable, **environment):
    """(seconds, CPU time, row): runs the stage. The variable names the profile to be written."""
    command = [*stage.command[:-1], "sh", "-c", OF_EACH_PROCESS, variable, work / "profile",
               *(f"{name}={value}" for name, value in environment.items()), work / "program",
               *stage.ladder.words(options), "--csv", work / "row.csv", "--quiet"]
    for _ in range(TRIES):
        for path in work.glob("*.*"):
            path.unlink()
        before = os.times()
        ended = run(command, env=stage.environment, cwd=ROOT)
        if ended.status != -signal.SIGSEGV:
            break
    if ended.status:
        fail(f"{stage.name}: {reason(ended.err, stage.name) or ending(ended.status)}", 1)
    _, _, user, system, elapsed = (y - x for x, y in zip(before, os.times()))
    with (work / "row.csv").open(encoding="utf-8") as file:
        return elapsed, user + system, next(csv.DictReader(file))


def sample_cpu(stage, options, work, seconds):
    """(its profile, how long it took) of the program in work, in so many seconds or more."""
    # The linker finds libprofiler, and the library then loads it. So no path is needed.
    output([os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-O2", "-o", work / "threads",
            "bench/threads.c", "-lprofiler", "-ldl"])
    length = stage.ladder.toml["clock"]  # the option that makes a run longer
    # Makes the run longer until it takes the time asked for. A thread's timer can fire only at a
    # tick of the kernel. Most tick 250 times a second: a higher frequency gives no more samples.
    while True:
        elapsed, used, row = sample(stage, options, work, "CPUPROFILE", CPUPROFILE_FREQUENCY=250,
                                    CPUPROFILE_PER_THREAD_TIMERS=1, LD_PRELOAD=work / "threads")
        if used >= seconds or not length:
            break
        now = float(options.get(length, stage.ladder.settings.get(length)))
        options[length] = int(1.2 * now * seconds / (used + 0.01)) + 1
    # pprof cannot add up processes: each has the program at another address. This is the busiest.
    return (max(work.glob("profile.*"), key=lambda path: path.stat().st_size),
            f"threads: {row['threads']}, {used:.2f} s of CPU time in {elapsed:.2f} s")
