"""Runs programs, and says which of their rows count."""

import contextlib
import functools
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench import ladders
from bench import rows as results

TOO_SLOW = 124  # the exit status of timeout(1)
GRACE_S = 2     # between SIGTERM and SIGKILL
# A row's times have nine decimals, and one of them may be the sum of a million laps.
ROUNDING_S = 1e-5


def leave(number, _):
    """Ends Python. Another signal, which make passes on, must not come up in end_all()."""
    for each in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def ends_within(process, seconds):
    """Whether a program ends within so many seconds. Popen.wait(seconds) looks every 50 ms only,
    and an interrupt that comes as it takes its lock leaves it locked: the next wait() hangs."""
    with open(os.pidfd_open(process.pid), "rb", 0) as file:
        return bool(select.select([file], [], [], seconds)[0])


def members(session):
    """The processes of a session. mpirun gives each process a group of its own."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            state, _, _, its_session = path.read_bytes().rpartition(b")")[2].split()[:4]
            if int(its_session) == session and state != b"Z":
                yield int(path.parent.name)


def end_all(process, grace):
    """Ends a program that leads a session, and what it has started. All have as many seconds to end
    by themselves."""
    if not ends_within(process, 0):
        os.killpg(process.pid, signal.SIGTERM)
        clock = time.monotonic()
        while [*members(process.pid)] and time.monotonic() < clock + grace:
            time.sleep(0.01)
        for member in members(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def hold_back(*numbers):
    """Holds signals back until the function is called that this returns: before that, there is no
    process to end. The process itself gets them. (A preexec_fn that lets it would cost a copy of
    Python's page tables, twenty milliseconds.)"""
    came, before = [], {}
    for number in numbers:
        if signal.getsignal(number) != signal.SIG_IGN:  # as in the background of a script
            before[number] = signal.signal(number, lambda number, _: came.append(number))

    def release():
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)

    return release


def own_words(text):
    """What a program has written, without the blocks in which Open MPI 5 adds that it failed. If
    there is nothing else, they say why no program began."""
    return re.sub(r"^-{50,}\n(.*\n)*?-{50,}\n", "", text, flags=re.MULTILINE) or text


def run(command, limit=None, keep="stderr", grace=GRACE_S, **options):
    """(exit status, what it wrote, seconds): runs a program to its end, or for `limit` seconds, and
    then the status is TOO_SLOW. It keeps its "stdout", its "stderr" or "both". With "stdout",
    errors go to the terminal, and with "" all. Whatever the program has started ends with it. No
    signal of the terminal reaches it, so those that would end Python end the program first."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, leave)
    # Not a pipe: what the program has started could hold it open.
    with tempfile.TemporaryFile() as kept:
        clock = time.monotonic()
        release = hold_back(signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, start_new_session=True,
                stdout={"": None, "stderr": subprocess.DEVNULL}.get(keep, kept),
                stderr=kept if keep in ("stderr", "both") else None, **options)
        except OSError as error:
            release()
            return 127, f"cannot start {command[0]}: {error.strerror}", 0
        try:
            release()
            is_late = not ends_within(process, limit)
        finally:
            seconds = time.monotonic() - clock
            end_all(process, grace)
        kept.seek(0)
        return (TOO_SLOW if is_late else process.returncode,
                own_words(kept.read().decode(errors="replace")).rstrip("\n"), seconds)


@functools.cache
def ceiling():
    """The program that measures multiply-adds. It is built if it has to be."""
    folder = str(ladders.ROOT / "bench/machine")
    status, errors, _ = run(["make", "--no-print-directory", "-s", "-C", folder, "build/ceiling"],
                            keep="both")
    if status:
        ladders.fail(f"bench/machine/ceiling.c does not build: {errors}", 1)
    return f"{folder}/build/ceiling"


def rate(threads):
    """GFLOP/s of multiply-adds alone on so many threads, as the machine is now. Takes some 20
    milliseconds."""
    status, text, _ = run([ceiling(), str(threads)], keep="stdout")
    if status:
        ladders.fail(f"bench/machine/build/ceiling: exit status {status}", 1)
    return float(text) / 1e9


def measure(stage, words, environment=None, **options):
    """(row, status, errors, text): runs a stage or a peer once. The row has the record of how the
    machine was, see RECORD in rows.py, without a rate on a GPU, and the seconds that the whole
    program took. `text` is the row as the program wrote it. Without a row, `status` is the exit
    status, or None where the row is missing or cannot be right, and the last line of `errors` says
    why."""
    began, load, others = time.strftime("%FT%TZ", time.gmtime()), os.getloadavg()[0], watch_others()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "row.csv")
        status, errors, seconds = run([*stage.command, *words, "--quiet", "--csv", str(path)],
                                      env=environment or stage.environment, **options)
        disturbed = round(others(), 1)
        if status:
            return None, status, errors, ""
        found = path.exists() and results.records(results.read_rows(path, stage.ladder))
        if not found:
            return None, None, "wrote no row to its --csv", ""
        row = found[-1]
        if fault := clock_fault(row, stage.ladder, seconds):
            return None, None, f"its times cannot be right: {fault}", ""
        # Only now it is known how many threads it has used.
        row["rate"] = round(rate(row["threads"] or 1), 1) if row["device"] == "cpu" else None
        return row | {"began": began, "load": round(load, 2), "others": disturbed,
                      "program_s": seconds}, 0, errors, results.read(path)


def reason(said, name):
    """The last line that a program of this name has said: why it failed."""
    return said.rpartition("\n")[2].removeprefix(f"{name}: ")


def processor_seconds():
    """(all, own): for how many seconds the processors that we may use have been busy, and how much
    of that was this program with the runs that have ended. What a hypervisor takes is busy, too."""
    busy = 0
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        name, *times = line.split()
        if name[:3] == "cpu" and name[3:] and int(name[3:]) in os.sched_getaffinity(0):
            busy += sum(map(int, times[:3] + times[5:8]))  # not idle, nor waiting for a disk
    return busy / os.sysconf("SC_CLK_TCK"), sum(os.times()[:4])


def watch_others():
    """Begins to watch the other programs. Returns a function that says how many percent of the
    processors they have used since then."""
    (busy, own), clock = processor_seconds(), time.monotonic()
    count = len(os.sched_getaffinity(0))
    tick = count / os.sysconf("SC_CLK_TCK")  # the kernel counts whole ones, ours perhaps as others'

    def used():
        all_now, own_now = processor_seconds()
        others = max(0, all_now - busy - (own_now - own) - tick)
        return 100 * others / count / (time.monotonic() - clock)

    return used


def why_busy(used):
    """Why times say little if other programs have used so many percent of the processors, or ""."""
    return (f"other programs used {used:.0f} % of the processors meanwhile; close them, or wait"
            if used > results.OTHERS else "")


def clock_fault(row, ladder, seconds):
    """What is wrong with the times of a row whose program ran for so many seconds by our own clock,
    or "". A GPU's phases are no part of its time: they are those of another epoch, which events
    make slower."""
    phases = [f"{phase}_s" for phase in ladder.phases if row.get(f"{phase}_s")]
    parts = [name for name in ("load_s", "setup_s", "warmup_s", ladder.time) if row.get(name)]
    for names, whole, limit in (
            (phases if row["device"] == "cpu" else [], ladder.time, row[ladder.time]),
            (parts, "the whole run by the clock outside", seconds)):
        found = sum(row[name] for name in names)
        if found > limit + ROUNDING_S:
            return f"{' + '.join(names)} is {found:.4g} s, more than {whole}, {limit:.4g} s"
    return ""


def difference(row, expected, ladder):
    """(column, found, expected) of the first result that is further from the expected one than
    rounding explains, or None. Both are rows, and their results are what they computed, not how
    long it took. [results] in ladder.toml says how far that is, or else 1 %."""
    known = {*results.TEXTS, *results.RECORD, "threads", *results.parameters(ladder)}
    for column, value in row.items():
        other = expected.get(column)
        if column in known or None in (value, other) or column.endswith(("_s", "_mib", "gflops")):
            continue
        larger = max(abs(value), abs(other))
        terms = ladder.toml["results"].get(column)
        limit = ladder.sum_of(terms, {**row, column: larger}) if terms else 0.01 * larger
        if not abs(value - other) <= limit:
            return column, value, other
    return None


def strays(runs, ladder):
    """{(stage, cell): words} of the stages and peers that do not compute the same as the others.
    What is expected of a cell is what its baseline has: the times are compared with the baseline's,
    and it is the plainest program. Without it, what most agree with is expected."""
    cells, found, baseline = defaultdict(list), {}, ladder.toml["baseline"]
    for row in runs:
        cells[tuple(row[ladder.column(axis["option"])] for axis in ladder.axes)].append(row)
    for cell, rows in cells.items():
        one_each = {row["stage"]: row for row in rows}
        expected = one_each.get(baseline) or min(one_each.values(), key=lambda one: sum(
            bool(difference(other, one, ladder)) for other in one_each.values()))
        for row in rows:
            column, value, other = difference(row, expected, ladder) or ("", 0, 0)
            if column:
                found.setdefault((row["stage"], cell), f"{column} is {value:g}, and {other:g} in "
                                 + (baseline if baseline in one_each else "most others"))
    return found
