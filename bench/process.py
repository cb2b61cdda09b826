"""Runs programs. Each has a session of its own, and ends with all that it has started: when it is
done, after its time, or when Python ends (Ctrl-C)."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).resolve().parent.parent
TOO_SLOW = 124      # the exit status of timeout(1)
NOT_STARTED = 127   # a shell's, where there is no such program
GRACE_S = 2         # between SIGTERM and SIGKILL


class Ended(NamedTuple):
    status: int     # below 0, the signal that has ended it
    out: str        # what it wrote to standard output
    err: str        # and to standard error
    seconds: float


def ends_within(process, seconds):
    """Whether a program ends within so many seconds. Popen.wait() would look every 50 ms only."""
    with open(os.pidfd_open(process.pid), "rb", 0) as file:
        return bool(select.select([file], [], [], seconds)[0])


def members(session):
    """The processes of a session. mpirun gives each process a group of its own."""
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):  # it has just ended
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                yield process.pid


def end(process):
    """Ends a program that leads a session, and what it has started."""
    try:
        if not ends_within(process, 0):
            os.killpg(process.pid, signal.SIGTERM)
            clock = time.monotonic()
            while [*members(process.pid)] and time.monotonic() < clock + GRACE_S:
                time.sleep(0.01)
            for member in members(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def started(command, **options):
    """A program that runs, as a Popen. It is ended however the block is left."""
    try:
        process = subprocess.Popen([*map(str, command)], start_new_session=True, **options)
    except SystemExit:  # Ctrl-C came while it started
        for child in psutil.Process().children():
            if os.getsid(child.pid) == child.pid:
                end(child)
        raise
    try:
        yield process
    finally:
        end(process)


def memory(text=""):
    """A file without a disk, which may be full. A pipe would stay open as long as anything that the
    program has started."""
    file = open(os.memfd_create("bench"), "w+b", 0)  # noqa: SIM115 - the caller closes it
    file.write(text.encode())
    file.seek(0)
    return file


def content(file):
    """What a file has. Control characters are shown as in \\x1b: they could hide a verdict."""
    file.seek(0)
    text = file.read().decode(errors="replace").rstrip("\n")
    return re.sub(r"[^\n\t -~\xa0-\U0010ffff]", lambda found: repr(found[0])[1:-1], text)


def own_words(text, status=0):
    """What a program has written, without what Open MPI 5 adds: blocks that it failed, and warnings
    as it ends. Where it fails without a word, they are all there is."""
    added = r"^(-{50,}\n(.*\n)*?-{50,}|\[warn\] Epoll .*|\[\S+\] PMIX ERROR: .*)(\n|\Z)"
    return re.sub(added, "", text, flags=re.MULTILINE) or (text if status else "")


def run(command, limit=None, text="", **options):
    """Runs a program on a text to its end, or for `limit` seconds: then the status is TOO_SLOW.
    With stdout=None or stderr=None, it writes that where Python does."""
    clock = time.monotonic()
    with memory(text) as stdin, memory() as out, memory() as err:
        try:
            with started(command, **{"stdin": stdin, "stdout": out, "stderr": err} | options
                         ) as process:
                is_late = not ends_within(process, limit)
                seconds = time.monotonic() - clock
        except OSError as error:
            return Ended(NOT_STARTED, "", f"cannot start {command[0]}: {error.strerror}", 0)
        status = TOO_SLOW if is_late else process.returncode
        return Ended(status, content(out), own_words(content(err), status), seconds)


def ending(status):
    """How a program has ended, for people."""
    if status < 0:
        return f"ended by a signal: {signal.strsignal(-status)}"
    return f"exit status {status}"


def output(command, text="", **options):
    """What a program prints. If it fails, Python ends, with what it has said."""
    ended = run(command, text=text, cwd=options.pop("cwd", ROOT), **options)
    if ended.status:
        said = ended.err or ended.out or f"{command[0]}: {ending(ended.status)}"
        print(said, file=sys.stderr)
        sys.exit(2 if ended.status == 2 else 1)
    return ended.out


def make(*words):
    """Makes something. What make says is for people: 2 is standard error."""
    command = ["make", "--no-print-directory", "-s", *words]
    status = run(command, cwd=ROOT, stdout=2, stderr=None).status
    if status:
        sys.exit(status if status > 0 else 128 - status)


def reason(said, name):
    """The last line that a program of this name has said: why it failed."""
    return said.rpartition("\n")[2].removeprefix(f"{name}: ")
