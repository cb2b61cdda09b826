"""What the profiles of the CPU stages say (stages/profiles/README.md): how many samples a line of a
source has, and the flame graphs of a ladder's stages on one scale of time."""

import functools
import re
from collections import defaultdict, namedtuple

from harness import flamegraph, rows
from harness.ladders import fail

# A line of lines.txt that has samples: how many, their part of all, the line's number and text.
LINE = re.compile(r"^ *(\d{1,12}) +(\d{1,3}\.\d)% +(\d{1,9})  (.*)$", re.MULTILINE)
HEAD = re.compile(r"[^,\n]*, (.*)\ncpu: (.*)\n.*\nsamples: \d+ of ([\d.]+) s .* in ([\d.]+) s;")
LENGTH = re.compile(r", (epoch|iteration|second)s ([\d.]+)")
STACK = re.compile(r"(\S.*) ([1-9]\d{0,11})")  # names;of;functions samples
MOST_STACKS, DEEPEST = 10_000, 100

# `alike` is what the profiles on one scale share. The times are those of an epoch or an iteration.
Profile = namedtuple("Profile", "stage folder alike unit cpu_s clock_s stacks")


@functools.cache
def text_of(path):
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def folder(stage):
    """Where a stage's profile is, or None. The reader's own goes before the repository's."""
    home = stage.ladder.profiles
    return next((each for each in (home / "mine" / stage.name, home / stage.name)
                 if any(each.glob("*.txt"))), None)


def of_lines(stage):
    """{number of a line: (part of the samples, words)}. A line that has moved since the profile was
    taken is the nearest one of the same text. None without a profile, or with one of other code."""
    found, source = {}, defaultdict(list)
    for place, line in enumerate(text_of(stage.source).split("\n"), 1):
        source[line.rstrip()].append(place)
    where = folder(stage)
    text = where and rows.or_nothing(rows.read, where / "lines.txt")
    for count, part, number, line in LINE.findall(text or ""):
        if line not in source:
            return None
        found[min(source[line], key=lambda place: abs(place - int(number)))] = (
            float(part) / 100, f"{count} samples")
    return found or None


def read_head(path):
    """(options, processor, unit, its number, seconds of CPU time, seconds) of a cpu.txt."""
    head = HEAD.match("\n".join(rows.read_lines(path)))
    try:
        options, cpu, *times = head.groups()
        length = LENGTH.search(f", {options}")
        unit, count = length.groups() if length else ("", "1")
        numbers = (rows.number(text, float, rows.SMALLEST, "") for text in (count, *times))
        return options, cpu, unit, *numbers
    except (AttributeError, ValueError):
        fail(f"{path}: expected what `make profile` writes")


def read_stacks(path):
    """[(names of functions, samples)] of a stacks.txt."""
    found = [STACK.fullmatch(line) for line in rows.read_lines(path)]
    if not found or len(found) > MOST_STACKS or not all(
            match and match[1].count(";") < DEEPEST for match in found):
        fail(f"{path}: expected what `make profile` writes")
    return [(match[1].split(";"), int(match[2])) for match in found]


@functools.cache
def profiles(ladder):
    """A Profile of each stage that has one of its time."""
    found = []
    for stage in ladder.stages:
        where = folder(stage)
        head = where and rows.or_nothing(read_head, where / "cpu.txt")
        stacks = where and rows.or_nothing(read_stacks, where / "stacks.txt")
        if head and stacks:
            options, cpu, unit, count, *times = head
            options = re.sub(", threads .*", "", LENGTH.sub("", f", {options}"))[2:]
            found.append(Profile(stage, where, f"{options}; {cpu}", unit,
                                 *(time / count for time in times), stacks))
    return found


def flames(ladder):
    """[(what they share, unit, the longest CPU time, [Profile])]: the flame graphs of a ladder, as
    they share a scale. The longest time is None where there is nothing to compare."""
    groups = {}
    for each in profiles(ladder):
        groups.setdefault((each.alike, each.unit), []).append(each)
    return [(alike, unit, max(each.cpu_s for each in group)
             if group[1:] and unit not in ("", "second") else None, group)
            for (alike, unit), group in groups.items()]


def draw(profile):
    return flamegraph.draw(profile.stage.name, profile.stacks)
