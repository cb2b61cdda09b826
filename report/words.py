"""How numbers, links, names and captions are written, in READMEs and in a terminal."""

import math
import os
from numbers import Integral

# What options and columns are called.
NAMES = {"batch": "batch size", "hidden": "hidden units", "train_samples": "training samples"}
DATASETS = {"mnist": "MNIST", "csv": "train.csv", "synthetic": "Synthetic digits, not MNIST",
            "drawn": "Random numbers"}


def three_digits(value):
    """0.0971, 3.96, 71.8, 641, 1,203."""
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"


def percent(part):
    """0.9 %, 12 %."""
    return f"{100 * part:.{1 if part < 0.1 else 0}f} %"


def times(value):
    """1.36×, 22.6×, 5,029×."""
    return f"{three_digits(value)}×"


def known(value, words):
    """A number in words, or nothing where there is none."""
    return words(value) if value == value and value is not None else ""


def link(text, path, folder):
    return f"[{text}]({os.path.relpath(path, folder)})"


def listed(names):
    """a, b and c."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def name_of(column):
    """An option or a column in words."""
    return NAMES.get(column, column.replace("_", " "))


def cell_name(ladder, cell):
    """A cell in words: hidden 32, batch 64."""
    return ", ".join(f"{axis['option']} {value}" for axis, value in reversed(
        [*zip(ladder.axes, cell)])) or "each run"


def heading(ladder, runs):
    """The data and the settings that runs have in common, in words."""
    settings = {ladder.column(option): runs[ladder.column(option)].iloc[0]
                for option in ladder.settings}
    listed_settings = ", ".join(f"{option} {{{ladder.column(option)}}}"
                                for option in ladder.settings)
    text = ladder.toml.get("heading", listed_settings).format(**{
        name: f"{value:,}" if isinstance(value, Integral) else value
        for name, value in settings.items()}).replace("1 epochs", "1 epoch")
    return ": ".join(filter(None, [dataset(ladder, runs["dataset"].mode()[0]), text]))


def dataset(ladder, name):
    name = (DATASETS | ladder.toml.get("datasets", {})).get(name, name)
    return name[:1].upper() + name[1:]


def other_data(machine, runs):
    """A sentence that names the programs of which a run or more had other data than most, or ""."""
    other = runs[runs["dataset"] != runs["dataset"].mode()[0]]
    if other.empty:
        return ""
    kinds = sorted({dataset(machine.ladder, name) for name in other["dataset"]})
    return f"The runs of {listed(names_of(machine, other))} had other data: {listed(kinds)}."


def names_of(machine, runs):
    """What tables call the programs of some runs: a stage's number, a library's name."""
    names = {*runs["stage"]}
    return [each.title if each.is_peer else each.number
            for each in [*machine.ladder.stages, *machine.ladder.peers] if each.name in names]


def repeats(found):
    """How many runs the numbers of a frame of cells are of."""
    least, most = found["runs"].min(), found["runs"].max()
    if most == 1:
        return "one run of each"
    return f"medians of {most} runs" if least == most else f"medians of {least} to {most} runs"


def origin(machine, runs):
    """Which machine, revision and day runs are of."""
    revisions = listed(dict.fromkeys(runs["revision"].replace("", "unknown"))).replace(
        ", with uncommitted changes", " (with changes)")
    days = dict.fromkeys(filter(None, runs["day"]))
    return f"{machine.name}; revision {revisions}" + (f" of {listed(days)}" if days else "")


def peaks(machine, found):
    """What 100 % of peak is on the threads of a frame of cells."""
    names = {0: "the GPU", 1: "1 thread"}
    used = found[found["share"].notna()].index.get_level_values("threads")
    said = [f"{three_digits(rate / 1e9)} GFLOP/s on {names.get(threads, f'{threads} threads')}"
            for threads, rate in sorted(machine.peaks.items()) if threads in used]
    lacking = {threads for threads in found.index.get_level_values("threads")
               if threads not in machine.peaks}
    if said and lacking:
        said.append("not measured on the CPU" if 0 not in lacking else "not measured on the GPU")
    return f"Peak is what multiply-adds alone reach: {', '.join(said)}." if said else ""


def changed(machine, runs):
    """A sentence that names the programs whose sources are others now, or ""."""
    names = names_of(machine, runs[runs["changed"] == True])  # noqa: E712 - or not known
    return f"The sources of {listed(names)} have changed since." if names else ""


def disturbed(runs, counted):
    """How many runs do not count, as the machine was busy, and how many do although it was, because
    their cells have no others; or ""."""
    left_out = len(runs) - len(counted)
    kept = int(counted["disturbed"].sum())
    said = f", {left_out} disturbed left out" if left_out else ""
    return said + (f", {kept} runs on a busy machine" if kept else "")


def absent(machine, is_asked):
    """A line for each reason why programs that are asked about have no time."""
    reasons = {}
    for each in [*machine.ladder.stages, *machine.ladder.peers]:
        if is_asked(each) and each.name not in {*machine.runs["stage"]}:
            outcome, why = machine.outcomes.get(
                each.name, (f"not measured yet on {machine.name}", ""))
            reason = ": ".join(filter(None, [outcome, why.rstrip(".")]))
            reasons.setdefault(reason, []).append(each.title if each.is_peer else each.number)
    return [f"{listed(names)}: {reason}." for reason, names in reasons.items()]
