"""Whether the times of a row can be right, by the clock outside and by other runs."""

import math

# A row's times have nine decimals, and one of them may be the sum of a million laps.
ROUNDING_S = 1e-5
# So much work is added to a run, or a longer one has none, to hold its clock against that outside.
# What the program does beside its work (it starts, reads, evaluates) is the same in both, but for
# noise. On a busy machine that part is noisy. The work is not: both clocks see the same of it.
CLOCK_S = 1.0
NOISE_S = 0.05
NOISE = 0.05        # of the work
BESIDE = 0.1        # of the rest
BESIDE_BUSY = 0.5


def clock_fault(row, stage, seconds):
    """What is wrong with the times of a row whose program ran for so many seconds by our clock, or
    "". A GPU's phases are no part of its time: they are another epoch's, which events slow down."""
    ladder = stage.ladder
    if row["device"] == "cpu" and row.get("warmup_s") and not stage.is_peer:
        return f"warmup_s is {row['warmup_s']:.4g} s, and a stage for the CPU does not warm up"
    sums = [(["load_s", "setup_s", "warmup_s", ladder.time],
             "the whole run by the clock outside", seconds)]
    if row["device"] == "cpu":
        phases = [f"{phase}_s" for phase in ladder.phases]
        sums.insert(0, (phases, ladder.time, row[ladder.time]))
    for columns, whole, limit in sums:
        names = [name for name in columns if row.get(name)]
        found = sum(row[name] for name in names)
        if found > limit + ROUNDING_S:
            return f"{' + '.join(names)} is {found:.4g} s, more than {whole}, {limit:.4g} s"
    return ""


def first_fault(found, stage, seconds):
    """The first fault of the rows of one process. A row has the process's time less that of the
    others' work."""
    time_of = stage.ladder.time
    beside = seconds - sum(row[time_of] for row in found)
    faults = (clock_fault(row, stage, beside + row[time_of]) for row in found)
    return next(filter(None, faults), "")


def worked(row, ladder):
    """The seconds that a run has worked by its own clock. A program with an option --seconds
    repeats a pass for so long, and its time is that of one."""
    return max(row[ladder.time], row.get("seconds") or 0)


def other_work(row, ladder):
    """The value of the option that `clock` in ladder.toml names, for a run with other work than
    this row's: none where that is long, or CLOCK_S more. A GPU warms up only for some work."""
    value = row[ladder.column(ladder.toml["clock"])]
    seconds = worked(row, ladder)
    if row["device"] == "cpu" and seconds >= CLOCK_S:
        return 0
    return value + max(1, math.ceil(CLOCK_S * value / max(seconds, 1e-4)))


def wrong_clock(other, timed, ladder, is_busy):
    """What is wrong with the clock of a program, or "": a run with other work takes longer or
    shorter outside than by the program's own time. The timed row that fits best is enough, as a
    busy machine disturbs some."""
    differences = [(other["program_s"] - row["program_s"],
                    worked(other, ladder) - worked(row, ladder)) for row in timed]
    outside, own = min(differences, key=lambda each: abs(each[0] - each[1]))
    beside = min(row["program_s"] - worked(row, ladder) for row in (*timed, other))
    noise = max(NOISE_S, NOISE * abs(own)) + (BESIDE_BUSY if is_busy else BESIDE) * beside
    if other.get("seconds"):  # the last pass goes beyond them
        noise += other[ladder.time]
    if abs(outside - own) <= noise:
        return ""
    return (f"its clock is wrong: what takes {abs(outside):.2f} s takes {abs(own):.2f} s by "
            f"{ladder.time}")
