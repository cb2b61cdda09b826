"""Takes in what a kit's run.sh has brought back: make gpu-results FROM=OUT

It compares the results that programs saved with the references, and reads what compute-sanitizer
said. The rows of programs that are right go to report/results/MACHINE/LADDER, as those of a sweep,
the GPU's ceilings to bench/gpu.csv there, and what Nsight Compute counted to counters.csv. A
program that is wrong gets no row, and programs.csv says why. FROM may name several folders. A later
call adds to an earlier one, and the same one again changes nothing. RESULTS=dir is another folder
than report/results.
"""

import csv
import functools
import io
import re
import signal
import subprocess
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pandas

from bench import faults, ladders, reference, rows, running, testing
from bench.base import ROOT, fail
from bench.items import compare_all
from bench.options import given
from bench.record import Record
from setup.gpu.plan import TOOLS

# What run.sh keeps of a larger file, in bytes: two pieces.
LARGE, PIECE, FIRST_ENDS = 1 << 20, 1 << 18, 3 << 19
RUNS = "id", "status", "began", "load", "microseconds"  # the columns of runs.tsv
KINDS = "steps", "grid"
CUT_OFF = running.TOO_SLOW, 128 + signal.SIGTERM, 128 + signal.SIGKILL  # by run.sh
FOUND = 9  # the exit status of compute-sanitizer that has found something
FINDING = r"^=+ ((?:Error: |Invalid |Uninitialized |Barrier error |Race ).*)"
OUTCOMES = "wrong", "ran", "not compared"  # of a program's runs, the first counts


def read_text(path):
    """What a file says. It may not be there, or be cut off."""
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


class Call:
    """What one call of run.sh has brought back, in a folder."""

    def __init__(self, folder):
        self.folder, known = folder, {ladder.name: ladder for ladder in ladders.ladders()}
        self.kit, self.machine = (
            dict(re.findall("^(.+?): (.*)", read_text(folder / name), re.MULTILINE))
            for name in ("kit.txt", "machine.txt"))
        plan, built = (pandas.read_csv(folder / name, sep="\t", dtype=str, keep_default_na=False)
                       for name in ("plan.tsv", "built.tsv"))
        self.built = {(line.ladder, line.program): (line.sources, line.flags)
                      for line in built.itertuples()}
        self.planned = Counter(plan["part"])
        runs = pandas.read_csv(io.StringIO(read_text(folder / "runs.tsv")), sep="\t", names=RUNS,
                               dtype={"id": str, "load": str})
        runs = plan[plan["ladder"].isin(known)].merge(runs, on="id")
        self.runs = [*runs.assign(ladder=runs["ladder"].map(known)).itertuples()]

    def said(self, run):
        """What a program has written to the terminal."""
        return read_text(self.folder / "said" / run.id).strip()

    def failure(self, run):
        """Why a run failed, in words."""
        last = running.reason(self.said(run), run.program)
        return ": ".join(filter(None, [f"exit status {run.status}", last]))

    def sweep(self, ladder):
        """{key: value} of its sweeps: the machine's and, of what was built, the kit's."""
        return {key: text for key, text in self.machine.items() if key not in ("name", "march")} | {
            **{key: self.kit.get(key, "") for key in ("compiler", "nvcc", "revision")},
            "built for": f"{self.machine.get('march')}, {self.kit.get('CUDA_ARCH')}",
            "data": self.kit.get(f"data of {ladder.name}", ""), "clocks": self.clocks}

    @functools.cached_property
    def clocks(self):
        """The GPU's clocks and power meanwhile: median, least and most."""
        logged = pandas.read_csv(io.StringIO(read_text(self.folder / "clocks.csv")), names=[
            "SM MHz", "memory MHz", "W", "°C"], on_bad_lines="skip")
        logged = logged.apply(pandas.to_numeric, errors="coerce").dropna(axis="columns", how="all")
        return "; ".join(f"{name} {values.median():g} ({values.min():g} to {values.max():g})"
                         for name, values in logged.items())


# --- is it right? ---

def expected_of(run):
    """What the reference prints and saves with a run's options."""
    words = run.command.split()
    words = words[next(place for place, word in enumerate(words) if word.startswith("--")):]
    words.remove("--quiet")
    for name in {"--csv", f"--{run.ladder.save}", "--data"} & {*words}:
        del words[words.index(name):words.index(name) + 2]
    if run.ladder.toml["data"]:
        words += ["--data", str(reference.drawn_data(run.ladder, testing.DRAWN))]
    return reference.expect(run.ladder, *words)


def read_saved(call, run, lines, expected):
    """(what a run saved, what the reference printed, what it saved): of a large file the pieces
    that run.sh keeps, and then the bound is that of all parts together."""
    path = next(call.folder.glob(f"weights/*/{run.id}"), None)
    found = np.fromfile(path, np.float32) if path else np.empty(0)
    if expected.size * 4 > LARGE and found.size == 2 * PIECE // 4:
        end, size = FIRST_ENDS // 4, PIECE // 4
        expected = np.concatenate([expected[end - size:end], expected[-size:]])
        bound = next(words[1] for words in lines if words[0] == "total")
        lines = [words for words in lines if words[0] == "result"]
        lines.append(["part", "weights", "1", str(expected.size), "norm", bound])
    return found, lines, expected


def compare(call, run):
    """(outcome, reason) of a run whose result was saved."""
    if run.status:
        return "not compared" if run.status in CUT_OFF else "wrong", call.failure(run)
    (lines, expected), found = expected_of(run), None
    if expected is not None:
        found, lines, expected = read_saved(call, run, lines, expected)
        if found.size != expected.size:
            return "wrong", f"saved {found.size} numbers, expected {expected.size}"
    with open(call.folder / "rows" / f"{run.id}.csv", newline="", encoding="utf-8") as file:
        row = next(csv.DictReader(file), {})
    with np.errstate(all="ignore"):
        items = compare_all(testing.Run(0, "", found, row), lines, expected)
    return next((("wrong", f"{item.element or item.name} is {item.found:.9g}, expected "
                  f"{item.expected:.9g}, with {run.case}") for item in items if not item.right),
                ("ran", ""))


def read_sanitizer(call, run):
    """(outcome, reason) of a run under compute-sanitizer."""
    said = re.search(FINDING, call.said(run), re.MULTILINE)
    if run.status == FOUND or said:
        return "wrong", f"{run.kind}: {said[1] if said else call.failure(run)}"
    return ("not run", call.failure(run)) if run.status else ("clean", "")


def judge(call):
    """({(ladder, program): (outcome, reason)}, {what runs of compute-sanitizer came to: count})"""
    found, sanitized = defaultdict(dict), Counter()
    for run in call.runs:
        if run.case:
            found[run.ladder, run.program].setdefault(*compare(call, run))
        elif run.kind in TOOLS:
            outcome, reason = read_sanitizer(call, run)
            sanitized[reason if outcome == "not run" else outcome] += 1
            if outcome == "wrong":
                found[run.ladder, run.program].setdefault(outcome, reason)
    return {program: next((outcome, its[outcome]) for outcome in OUTCOMES if outcome in its)
            for program, its in found.items()}, sanitized


# --- the record ---

def read_row(call, run):
    """((the text of a run's row, what was noted of it), the row, why it does not count)"""
    path = call.folder / f"rows/{run.id}.csv"
    if run.status:
        return None, None, call.failure(run)
    row = rows.records(rows.read_rows(path, run.ladder))[-1]
    fault = faults.clock_fault(row, run.ladder, run.microseconds / 1e6)
    noted = dict.fromkeys(rows.RECORD, "") | {
        "round": run.round, "began": run.began, "load": run.load}
    return (rows.read(path), noted), row, fault and f"its times cannot be right: {fault}"


def timed(call, ladder, is_right):
    """({kind: ([(text, noted)], [row])} of the programs that are right, {program: (outcome,
    reason)})"""
    found, outcomes = defaultdict(lambda: ([], [])), {}
    for run in call.runs:
        if run.ladder != ladder or run.kind not in KINDS or run.status in CUT_OFF:
            continue
        if is_right(run.program):
            texts, row, fault = read_row(call, run)
            if fault:
                outcomes[run.program] = "failed", fault
                continue
            outcomes.setdefault(run.program, ("ran", ""))
            for each, what in zip(found[run.kind], (texts, row)):
                each.append(what)
    for _, each in found.values():
        for (name, cell), words in faults.strays(each, ladder).items():
            outcomes[name] = "differs", f"at {cell}: {words}"
    return found, outcomes


def take(call, ladder, verdicts, home):
    """Adds what a call says of a ladder to its results, and what the rows show to the verdicts.
    Returns how many rows there are."""
    record = Record(home / ladder.name)
    # The same call may have been taken in before.
    record.remove("sweep", [number for number, known in record.sweeps.items()
                            if known.get("began") == call.machine.get("began")])
    earlier = {line["program"]: line["outcome"] for line in record.programs}
    outcomes = {name: verdict for (its, name), verdict in verdicts.items() if its == ladder}

    def is_right(name):
        """As this call shows, or one before."""
        return outcomes.get(name, [earlier.get(name)])[0] in ("ran", "failed", "differs")

    found, more = timed(call, ladder, is_right)
    outcomes |= more
    verdicts |= {(ladder, name): said for name, said in more.items()}
    record.remove("stage", [name for name, (outcome, _) in outcomes.items() if outcome == "wrong"])
    # Without a time there is a sweep, too: it says what was wrong.
    for kind in found or KINDS[:1] if outcomes else ():
        number = record.begin({"kind": kind} | call.sweep(ladder))
        record.note_programs(number, [
            (name, *outcome, *call.built.get((ladder.name, name), ("", "")))
            for name, outcome in sorted(outcomes.items())])
        for text, noted in found[kind][0]:
            record.add_run({"runs.csv": text}, noted | {"sweep": number})
    return sum(len(each) for _, each in found.values())


def counters(call):
    """What Nsight Compute counted: for each kernel, the median of its launches. None without it."""
    frames = []
    for run in call.runs:
        lines = re.findall('^".*', call.said(run), re.MULTILINE) if run.kind == "counters" else []
        if lines:
            frame = pandas.read_csv(io.StringIO("\n".join(lines)), thousands=",")
            frames.append(frame.assign(program=run.program))
    if not frames:
        return None
    found = pandas.concat(frames).pivot_table(
        index=["program", "Kernel Name"], columns="Metric Name", values="Metric Value",
        aggfunc=["count", "median"], sort=False)
    return found["median"].assign(launches=found["count"].max(axis=1))


def take_all(call):
    """Takes in a call, and says what it brought. Returns the exit status."""
    verdicts, sanitized = judge(call)
    home = Path(given("RESULTS") or ROOT / "report/results", call.machine["name"])
    count = sum(take(call, ladder, verdicts, home) for ladder in ladders.ladders())
    calibration = re.findall(r"^\w+,.*\n", read_text(call.folder / "calibration.csv"), re.MULTILINE)
    if calibration:
        (home / "bench").mkdir(parents=True, exist_ok=True)
        rows.write(home / "bench/gpu.csv", "".join(calibration))
    if (counted := counters(call)) is not None:
        rows.write(home / "counters.csv", counted.to_csv())
    done = Counter(run.part for run in call.runs)
    wrong = {program: said for program, said in verdicts.items() if said[0] != "ran"}
    print(f"{home.name}, of {call.kit.get('revision')}: " + ", ".join(
        f"{done[part]} of {planned} runs of {part}" for part, planned in call.planned.items()))
    print(f"{len(calibration)} lines of calibration; compute-sanitizer: "
          + "; ".join(f"{number} {what}" for what, number in sanitized.items()))
    print(f"{len(verdicts) - len(wrong)} programs are right, {count} rows taken")
    for (ladder, name), said in wrong.items():
        print(f"{ladder.name}/{name}: {': '.join(said)}")
    return int(any(outcome == "wrong" for outcome, _ in wrong.values()))


def main():
    status = 0
    for source in given("FROM").split() or [""]:
        archives = sorted(Path(source).glob("*.tgz"))
        if Path(source, "results.tgz") not in archives:
            fail(f"FROM: found no results.tgz in '{source}', expected what run.sh has written")
        with tempfile.TemporaryDirectory() as folder:
            for path in archives:
                if subprocess.run(["tar", "-xzf", path, "-C", folder], check=False).returncode:
                    fail(f"{path}: cannot be unpacked; leave it out, or copy it again")
            call = Call(Path(folder))
            if "name" not in call.machine:
                fail(f"{source}: found no name of the machine, which run.sh notes first")
            for ladder in {run.ladder for run in call.runs}:
                testing.make("-C", "bench", f"build/{ladder.name}/reference")
            status = max(status, take_all(call))
    return status
