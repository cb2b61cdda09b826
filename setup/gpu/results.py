"""Takes in what a kit's run.sh has brought back: make gpu-results FROM=OUT

The rows of programs that are right go to report/results/MACHINE/LADDER, as those of a sweep, the
GPU's ceilings to bench/gpu.csv there, and what Nsight Compute counted to counters.csv. A program
that is wrong gets no row, and programs.csv says why. FROM may name several folders. The same call
again changes nothing. RESULTS=dir is another folder than report/results, where a committed
MACHINE stays as it is: RESULTS=report/results renews it.
"""

import io
import re
import signal
import subprocess
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pandas

from bench import faults, ladders, process, reference, rows, testing
from bench.base import ROOT, fail
from bench.items import compare_all
from bench.options import given
from bench.record import Record
from setup.gpu.plan import TIMED, TOOLS

# What run.sh keeps of a larger file, in bytes: the end of so many, and of all.
LARGE = 3 << 19
PIECE = 1 << 18
RUNS = "id", "status", "began", "load", "microseconds"  # the columns of runs.tsv
CLOCKS = "SM MHz", "memory MHz", "W", "°C"  # those of clocks.csv
KINDS = "steps", "grid"
CUT_OFF = process.TOO_SLOW, 128 + signal.SIGTERM, 128 + signal.SIGKILL  # by run.sh
FOUND = 9  # the exit status of compute-sanitizer that has found something
FINDING = r"^=+ ((?:Error: |Invalid |Uninitialized |Barrier error |Race ).*)"
OUTCOMES = "not compared", "ran", "wrong"  # of a program's runs, the last counts


class Call:
    """What one call of run.sh has brought back, in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.kit = self.described("kit.txt")
        self.machine = self.described("machine.txt")
        plan = pandas.read_csv(folder / "plan.tsv", sep="\t", dtype=str, keep_default_na=False)
        self.planned = Counter(plan["part"])
        runs = plan.merge(on="id", right=pandas.read_csv(
            folder / "runs.tsv", sep="\t", names=RUNS, dtype={"id": str, "load": str}))
        runs["ladder"] = runs["ladder"].map(ladders.find_ladder)
        runs["path"] = [folder / "rows" / f"{name}.csv" for name in runs["id"]]
        runs["said"] = [(folder / "said" / name).read_text(errors="replace").strip()
                        for name in runs["id"]]
        self.runs = [*runs.itertuples()]
        self.built = {(run.ladder, run.program): (run.sources, run.flags) for run in self.runs}

    def described(self, name):
        """{key: value} of a file of such lines."""
        return dict(re.findall("^(.+?): (.*)", rows.read(self.folder / name), re.MULTILINE))

    def sweep(self, ladder):
        """{key: value} of its sweeps: the machine's and, of what was built, the kit's."""
        built = {key: self.kit.get(key, "") for key in ("compiler", "nvcc", "revision")}
        return self.machine | built | {
            "built for": f"{self.machine['march']}, {self.kit['CUDA_ARCH']}",
            "variables": " ".join([*TIMED, self.machine.get("variables", "")]).strip(),
            "data": self.kit.get(f"data of {ladder.name}", ""), "clocks": self.clocks()}

    def clocks(self):
        """The GPU's clocks and power meanwhile: median, least and most."""
        logged = pandas.read_csv(self.folder / "clocks.csv", names=CLOCKS, on_bad_lines="skip")
        logged = logged.apply(pandas.to_numeric, errors="coerce").dropna(axis="columns", how="all")
        return "; ".join(f"{name} {values.median():g} ({values.min():g} to {values.max():g})"
                         for name, values in logged.items())


def failure(run):
    last = process.reason(run.said, run.program)
    return f"exit status {run.status}: {last}".removesuffix(": ")


def cut(lines, expected):
    """(lines, numbers) of the pieces of a large file. Their bound is that of all parts together, or
    of the only one."""
    bound = [words[-2:] for words in lines if words[0] in ("part", "total")][-1]
    pieces = [expected[:LARGE // 4][-PIECE // 4:], expected[-PIECE // 4:]]
    part = ["part", "saved", "1", str(PIECE // 2), *bound]
    return [*(words for words in lines if words[0] == "result"), part], np.concatenate(pieces)


def compare(call, run):
    """(outcome, reason) of a run whose result was saved."""
    if run.status:
        return "not compared" if run.status in CUT_OFF else "wrong", failure(run)
    words = run.case.split()
    if run.ladder.toml["data"]:
        words += ["--data", str(reference.drawn_data(run.ladder, testing.DRAWN))]
    lines, expected = reference.expect(run.ladder, *words)
    found = None
    if expected is not None:
        path = next(call.folder.glob(f"weights/*/{run.id}"), None)
        if not path:
            return "not compared", "its weights did not come home"
        found = np.fromfile(path, np.float32)
        if expected.size * 4 > LARGE:
            lines, expected = cut(lines, expected)
        if found.size != expected.size:
            return "wrong", f"saved {found.size} numbers, expected {expected.size}"
    row = rows.read_texts(run.path, []).to_dict("records")[-1]
    with np.errstate(all="ignore"):
        items = compare_all(testing.Run(0, "", found, row), lines, expected)
    for item in items:
        if not item.right:
            return "wrong", (f"{item.element or item.name} is {item.found:.9g}, expected "
                             f"{item.expected:.9g}, with {run.case}")
    return "ran", ""


def read_sanitizer(run):
    """(outcome, reason) of a run under compute-sanitizer."""
    said = re.search(FINDING, run.said, re.MULTILINE)
    if said:
        return "wrong", f"{run.kind}: {said[1]}"
    if run.status == FOUND:
        return "wrong", f"{run.kind}: {failure(run)}"
    return ("not run", failure(run)) if run.status else ("clean", "")


def judge(call):
    """({ladder: {program: (outcome, reason)}}, {what runs of compute-sanitizer came to: count})"""
    found = []
    sanitized = Counter()
    for run in call.runs:
        if run.case:
            found.append((run, compare(call, run)))
        elif run.kind in TOOLS:
            outcome, reason = read_sanitizer(run)
            sanitized[reason or outcome] += 1
            if outcome == "wrong":
                found.append((run, (outcome, reason)))
    verdicts = defaultdict(dict)
    for run, said in sorted(found, key=lambda each: OUTCOMES.index(each[1][0])):
        verdicts[run.ladder][run.program] = said
    return verdicts, sanitized


def timed(call, ladder, programs):
    """({kind: [(run, row)]} of these programs, {program: (outcome, reason)})"""
    found = {}
    outcomes = {}
    for run in call.runs:
        if run.ladder != ladder or run.program not in programs or run.kind not in KINDS:
            continue
        if run.status:
            if run.status not in CUT_OFF:
                outcomes[run.program] = "failed", failure(run)
            continue
        row = rows.records(rows.read_rows(run.path, ladder))[-1]
        fault = faults.clock_fault(row, ladder, run.microseconds / 1e6)
        if fault:
            outcomes[run.program] = "failed", f"its times cannot be right: {fault}"
        else:
            outcomes.setdefault(run.program, ("ran", ""))
            found.setdefault(run.kind, []).append((run, row))
    for taken in found.values():
        for (name, cell), words in faults.strays([row for _, row in taken], ladder).items():
            outcomes[name] = "differs", f"at {cell}: {words}"
    return found, outcomes


def right(record, outcomes):
    """The programs that are right, as this call shows or one before."""
    known = {line["program"]: line["outcome"] for line in record.programs}
    known |= {name: outcome for name, (outcome, _) in outcomes.items()}
    return {name for name, outcome in known.items() if outcome in ("ran", "failed", "differs")}


def forget(record, found, outcomes):
    """Takes out the times of programs that are wrong, and of earlier sources of what has others."""
    record.remove("stage", [name for name, (outcome, _) in outcomes.items() if outcome == "wrong"])
    sources = {line["program"]: line["sources"] for line in record.programs}
    record.remove("stage", [run.program for taken in found.values() for run, _ in taken
                            if sources.get(run.program, run.sources) != run.sources])


def take(call, ladder, outcomes, home):
    """Adds what a call says of a ladder to its results. Returns how many rows there are."""
    record = Record(home / ladder.name)
    # The same call may have been taken in before.
    record.remove("sweep", [number for number, known in record.sweeps.items()
                            if known.get("began") == call.machine["began"]])
    found, more = timed(call, ladder, right(record, outcomes))
    outcomes |= more
    forget(record, found, outcomes)
    if outcomes and not found:  # a sweep without a row says what was wrong
        found = {KINDS[0]: []}
    for kind, taken in found.items():
        number = record.begin({"kind": kind} | call.sweep(ladder))
        record.note_programs(number, [(name, *said, *call.built[ladder, name])
                                      for name, said in sorted(outcomes.items())])
        for run, _ in taken:
            noted = dict.fromkeys(rows.RECORD, "") | {
                "sweep": number, "round": run.round, "began": run.began, "load": run.load}
            record.add_run({"runs.csv": rows.read(run.path)}, noted)
    return sum(map(len, found.values()))


def take_counters(call, path):
    """Writes what Nsight Compute counted, if so: for each kernel, the median of its launches."""
    frames = []
    for run in call.runs:
        lines = re.findall('^".*', run.said, re.MULTILINE)
        if run.kind == "counters" and lines:
            frame = pandas.read_csv(io.StringIO("\n".join(lines)), thousands=",")
            frames.append(frame.assign(program=run.program))
    if not frames:
        return
    found = pandas.concat(frames).pivot_table(
        index=["program", "Kernel Name"], columns="Metric Name", values="Metric Value",
        aggfunc=["count", "median"], sort=False)
    found = found["median"].assign(launches=found["count"].max(axis=1)).reset_index()
    if path.exists():
        earlier = pandas.read_csv(path)
        found = pandas.concat([earlier[~earlier["program"].isin(found["program"])], found])
    rows.write(path, found.to_csv(index=False))


def home_of(call):
    """The folder of the machine's results. One that is committed stays, as in bench/machine.sh."""
    home = Path(given("RESULTS") or ROOT / "report/results", call.machine["name"])
    committed = subprocess.run(["git", "ls-files", home], cwd=ROOT, capture_output=True,
                               check=False).stdout
    if committed and not given("RESULTS"):
        home = home.with_name(f"{home.name}-own")
    return home


def take_all(call):
    """Takes in a call, and says what it brought. Returns the exit status."""
    verdicts, sanitized = judge(call)
    home = home_of(call)
    count = sum(take(call, ladder, verdicts[ladder], home) for ladder in ladders.ladders())
    calibration = re.findall(r"^\w+,.*\n", rows.read(call.folder / "calibration.csv"), re.MULTILINE)
    if calibration:
        rows.write(home / "bench/gpu.csv", "".join(calibration))
    take_counters(call, home / "counters.csv")
    done = Counter(run.part for run in call.runs)
    parts = [f"{done[part]} of {planned} runs of {part}" for part, planned in call.planned.items()]
    tools = [f"{number} {what}" for what, number in sanitized.items()]
    wrong = [(f"{ladder.name}/{name}", *said) for ladder, outcomes in verdicts.items()
             for name, said in outcomes.items() if said[0] != "ran"]
    count_right = sum(map(len, verdicts.values())) - len(wrong)
    print(f"{home.name}, of {call.kit['revision']}: {', '.join(parts)}")
    print(f"{len(calibration)} lines of calibration; compute-sanitizer: {'; '.join(tools)}")
    print(f"{count_right} programs are right, {count} rows taken")
    for said in wrong:
        print(": ".join(said))
    return int(any(outcome == "wrong" for _, outcome, _ in wrong))


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
                process.make("-C", "bench", f"build/{ladder.name}/reference")
            status = max(status, take_all(call))
    return status
