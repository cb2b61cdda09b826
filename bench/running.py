"""Runs programs, and ends them and what they have started."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time

import psutil

from bench.base import ENDS

TOO_SLOW = 124  # the exit status of timeout(1)
GRACE_S = 2     # between SIGTERM and SIGKILL


def ends_within(process, seconds):
    """Whether a program ends within so many seconds. Popen.wait(seconds) looks every 50 ms only,
    and an interrupt that comes as it takes its lock leaves it locked: the next wait() hangs."""
    with open(os.pidfd_open(process.pid), "rb", 0) as file:
        return bool(select.select([file], [], [], seconds)[0])


def members(session):
    """The processes of a session. mpirun gives each process a group of its own."""
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):  # it has just ended
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                yield process.pid


def end_all(process, grace):
    """Ends a program that leads a session, and what it has started, after so many seconds."""
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


@contextlib.contextmanager
def held_back():
    """Holds signals back while a program starts: before that, there is none to end. (It inherits
    blocked ones, and a preexec_fn costs twenty milliseconds.)"""
    came = []
    before = {number: signal.signal(number, lambda number, _: came.append(number))
              for number in ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


def own_words(text, status=0):
    """What a program has written, without what Open MPI 5 adds: blocks that it failed, and warnings
    as it ends. Where it fails without a word, they are all there is."""
    added = r"^(-{50,}\n(.*\n)*?-{50,}|\[warn\] Epoll .*|\[\S+\] PMIX ERROR: .*)\n"
    return re.sub(added, "", text, flags=re.MULTILINE) or (text if status else "")


def run(command, limit=None, keep="stderr", grace=GRACE_S, **options):
    """(exit status, what it wrote, seconds): runs a program to its end, or for `limit` seconds, and
    then the status is TOO_SLOW. Its "stdout", "stderr", "both" or nothing, "", is kept. What it has
    started ends with it. A signal that ends Python ends it first."""
    clock = time.monotonic()
    process = None
    # No pipe: what the program started could hold it open. No file either: a disk may be full.
    with open(os.memfd_create("kept"), "w+b", 0) as kept:
        try:
            with held_back():
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, start_new_session=True,
                    stdout={"": None, "stderr": subprocess.DEVNULL}.get(keep, kept),
                    stderr=kept if keep in ("stderr", "both") else None, **options)
            is_late = not ends_within(process, limit)
        except OSError as error:
            return 127, f"cannot start {command[0]}: {error.strerror}", 0
        finally:
            seconds = time.monotonic() - clock
            if process:
                end_all(process, grace)
        kept.seek(0)
        status = TOO_SLOW if is_late else process.returncode
        text = own_words(kept.read().decode(errors="replace"), status)
        return status, text.rstrip("\n"), seconds


def output(command, **options):
    """What a program prints. If it fails, it has said why, and Python ends, too."""
    status, text, _ = run(command, keep="stdout", **options)
    if status == 127:
        print(text, file=sys.stderr)
    if status:
        sys.exit(2 if status == 2 else 1)
    return text


def reason(said, name):
    """The last line that a program of this name has said: why it failed."""
    return said.rpartition("\n")[2].removeprefix(f"{name}: ")
