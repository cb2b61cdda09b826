"""The machine that we run on: what it has, how busy it is, and how fast it is now."""

import functools
import os
import re
import time

import psutil

from bench import process
from bench.base import ROOT

OTHERS = 10  # percent of the processors that other programs may use without disturbing a run


def has_gpu():
    """Whether the machine has a GPU. Without a driver, nvidia-smi may print its error instead."""
    return bool(re.search("^GPU", process.run(["nvidia-smi", "-L"]).out, re.MULTILINE))


@functools.cache
def ceiling():
    """The program that measures multiply-adds. It is built if it has to be."""
    process.make("-C", "bench/machine", "build/ceiling")
    return ROOT / "bench/machine/build/ceiling"


def rate(threads):
    """GFLOP/s of multiply-adds alone on so many threads, now. Takes some 20 milliseconds."""
    return float(process.output([ceiling(), threads])) / 1e9


def processor_seconds():
    """(all, own): the seconds for which the processors that we may use have been busy, what a
    hypervisor takes included, and those of this program with the runs that have ended."""
    found = psutil.cpu_times(percpu=True)
    mine = os.sched_getaffinity(0)
    if len(mine) < len(found):  # else all, whatever their numbers
        found = [times for number, times in enumerate(found) if number in mine]
    # Not idle, nor waiting for a disk. A guest's time is the user's, too.
    return sum(each.user + each.nice + each.system + each.irq + each.softirq + each.steal
               for each in found), sum(os.times()[:4])


def watch_others():
    """Returns a function that says how many percent of the processors others used since then."""
    busy, own = processor_seconds()
    clock = time.monotonic()
    count = len(os.sched_getaffinity(0))
    tick = count / os.sysconf("SC_CLK_TCK")  # the kernel counts whole ones, ours perhaps as others'

    def used():
        all_now, own_now = processor_seconds()
        others = max(0, all_now - busy - (own_now - own) - tick)
        return 100 * others / count / (time.monotonic() - clock)

    return used


def why_busy(used):
    """Why times say little if other programs have used so many percent of the processors, or ""."""
    if used <= OTHERS:
        return ""
    return f"other programs used {used:.0f} % of the processors meanwhile; close them, or wait"
