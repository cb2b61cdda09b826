"""Checks whether a stage is right, and how fast it is: `make check STAGE=20_mine [STUDY=NAME]`.

The tests of a stage (testing.py) stop at the first mistake, and say in plain words what is wrong
with the first updates of weights. Then its time is compared with its origin's, in a cell that is
tested first. Without a GPU, a CUDA stage runs on a simulated device, without a time. With one and
without, it runs there once more under the sanitizers, and followed access by access. RUNS=0 only
asks whether the stage is right. bench/README.md explains TARGET, PHASE and KEY.
"""

import contextlib
import json
import random
import re

from bench import compare, counts, host, ladders, pairs
from bench.base import ROOT, fail
from bench.options import given, take
from bench.testing import AS_IT_IS, CELL_SEEDS, Differs, Skipped, Tester, Wrong, make

KEY_SEEDS = 3  # of a drawn case: see Tester.test_seeds()
# They find more than a wrong result, and the second what a GPU may hide: a lost update.
BUILDS = {"SANITIZE=1": ".sanitized.sim", "COUNT=1": ".counted.sim"}


def build(stage, *flags, suffix=".sim"):
    """Builds a stage for this machine, or with flags for the simulated device. Returns the
    program's path. Without nvcc there is none for the GPU, even if there is a GPU."""
    if not flags and (not stage.is_cuda or host.has_gpu()):
        make(str(stage.folder.relative_to(ROOT)))
        if not stage.is_cuda or stage.program.exists():
            return stage.program
    make("-C", stage.folder, "sim", *flags)
    return stage.program.with_suffix(suffix)


def draw(ladder, key, options):
    """(cases, their seeds, options of the timed cell) that a key draws. A number of an option in
    `drawn` becomes one between itself and so many times itself."""
    tests, source = ladder.toml["tests"], random.Random(key)
    tests = {"sizes": [""], "drawn": {}, **tests, **tests.get("check", {})}
    drawn = tests["drawn"]

    def number(text, option):
        return str(source.randint(*sorted((int(text), max(1, round(int(text) * drawn[option]))))))

    def other(text):
        return re.sub(rf"--({'|'.join(drawn)}) (\S+)", lambda found: f"--{found[1]} " + re.sub(
            r"\d+", lambda each: number(each[0], found[1]), found[2]), text)

    cases = [other(f"{source.choice(tests['sizes'])} {case}".strip()) for case in tests["cases"]]
    seeds = [source.randrange(1, 2**31) for _ in range(KEY_SEEDS)]
    samples = next(iter(drawn))
    value = (ladder.settings | options)[samples]
    options = {**options, samples: other(f"--{samples} {value}").split()[1]}
    return cases, seeds, options | {"seed": seeds[0]} if "seed" in ladder.settings else options


def tests_of(stage, path, options, cases, seeds):
    """Yields the tests of a stage, each as (a tester, its method, the arguments)."""
    tester = Tester(stage, "check", path)
    yield from ((tester, tester.test, test) for test in tester.pairs())
    yield from ((tester, tester.test_seeds, (case, seeds)) for case in cases)
    if cases or not tester.simulated:
        tester = Tester(stage, "cell", path, options)
        yield tester, tester.test_seeds, (tester.case, CELL_SEEDS)
    for flag, suffix in BUILDS.items() if stage.is_cuda else ():
        tester = Tester(stage, "gpu", build(stage, flag, suffix=suffix))
        yield from ((tester, tester.test, test) for test in tester.pairs())


def run_tests(stage, path, options, cases, seeds):
    """Tests a stage up to its first mistake. Returns how many tests it were."""
    count = 0
    for tester, test, arguments in tests_of(stage, path, options, cases, seeds):
        count += 1
        try:
            test(*arguments)
        except Wrong as wrong:
            wrong.tester, wrong.case = tester, arguments[0]
            raise
    return count


def explain(stage, wrong):
    """Prints what is wrong. Of a CUDA stage, another of BUILDS may say where."""
    print(f"{stage.name}: WRONG {wrong}")
    if isinstance(wrong, Differs):
        with contextlib.suppress(Wrong):
            wrong.explain()
    for flag, suffix in BUILDS.items() if stage.is_cuda and wrong.tester else ():
        if wrong.tester.path.name.endswith(suffix):
            continue
        wrong.tester.command = [str(build(stage, flag, suffix=suffix))]
        wrong.tester.environment["SIM_UNSET"] = "1"
        said = wrong.tester.run(wrong.case, AS_IT_IS).error
        if said and said not in str(wrong):
            print(f"{flag} says: {said}")
            break


def count_launches(stage, path):
    """How many kernels a CUDA stage launches in the first case of the selection `gpu`."""
    tester = Tester(stage, "gpu", path)
    run = " ".join(tester.options(tester.pairs()[0][0]))
    found = counts.count(stage, [{"cell": "", "run": run}])
    return int(found["launches"][found["blocks"] > 0].sum())


def read_target(stage, target, phase):
    """The number of a target. What is wrong with one ends the check before it has begun."""
    ladder, found = stage.ladder, re.fullmatch(r"([0-9]*\.?[0-9]+)([%x])", target)
    if phase not in ("", *ladder.phases):
        fail(f"PHASE: found '{phase}', expected one of: {' '.join(ladder.phases)}")
    known = {"x": "1.2x (as fast as its origin)"} if stage.before else {}
    # Nobody knows how many multiply-adds bound the others.
    if not stage.is_cuda and (phase in ladder.toml["work"] if phase else ladder.toml["work"]):
        known["%"] = "50% (of the ceiling)"
    if not found or not float(found[1]) or found[2] not in known:
        fail(f"TARGET: found '{target}', expected for {stage.name} such as "
                     f"{' or '.join(known.values()) or 'none'}")
    return float(found[1])


def judge(stage, target, phase, options, key):
    """Compares the stage's time with its origin's, and with a target. Returns the "verdict" and,
    with a target, what is "reached", from "low" to "high"."""
    before, column = stage.before or stage, f"{phase}_s" if phase else stage.ladder.time
    for each in (before, stage):
        compare.build(each)
    sides, why = compare.compare((before, stage), options)
    if not target:
        return {"verdict": "right"}
    if why:
        print(f"{stage.name}: TARGET={target} not judged: {why}")
        return {"verdict": "not judged"}
    wanted, times = ([row[column] for row in side] for side in sides)
    if key and not phase:
        wanted, times = by_the_clock_outside(sides, column)
    says = f"is {{}} times as fast as {before.name}"
    if target.endswith("%"):
        says = "reaches {} % of the ceiling"
        wanted = [100 * seconds_of_work(stage, phase, row) for row in sides[1]]
    if min(times + wanted) <= 0:
        fail("TARGET: found runs that are too short for it", 1)
    found = pairs.ratio(times, wanted)
    what = f"{column.removesuffix('_s')} {says.format(pairs.digits(found.median))}"
    return verdict_on(stage, target, read_target(stage, target, phase), what, found)


def by_the_clock_outside(sides, column):
    """The times of both sides, whatever the programs say: all of a run, without the least that the
    origin takes beside what it times."""
    around = min(row["program_s"] - row[column] for row in sides[0])
    return ([row["program_s"] - around for row in side] for side in sides)


def verdict_on(stage, target, aim, what, found):
    """Prints whether a ratio is at least the aim, and returns it. What is shown counts."""
    reached, low, high = (float(pairs.digits(each)) for each in found[:3])
    verdict, hint = "undecided", "; more RUNS narrow it"
    if low >= aim:
        verdict, hint = "reached", ""
    elif high < aim:
        verdict, hint = "MISSED", ""
    print(f"{stage.name}: TARGET={target} {verdict}: {what} {found.interval}{hint}")
    return {"verdict": verdict, "reached": reached, "low": low, "high": high}


def seconds_of_work(stage, phase, row):
    """What a run's operations take at the rate of multiply-adds alone that was measured with it, on
    as many threads as it uses."""
    return sum(stage.ladder.work(row, each, "operations") or 0
               for each in ([phase] if phase else stage.ladder.phases)) / (
                   row["rate"] * 1e9 / stage.ladder.width)


def check_stage(stage, target, phase, key, result):
    """Tests a stage, and times it. Returns the exit status. `result` gets what is found."""
    if target or phase:
        read_target(stage, target, phase)
    options, cases, seeds = compare.read_options(stage.ladder, "check"), [], []
    if key:
        cases, seeds, options = draw(stage.ladder, key, options)
    path = build(stage)
    make("-C", "bench", f"build/{stage.ladder.name}/reference", "build/many_processors.so")
    try:
        result["tests"] = run_tests(stage, path, options, cases, seeds)
        if key and stage.is_cuda:
            result["launches"] = count_launches(stage, path)
            if not result["launches"]:
                raise Wrong("launches no kernel")
    except Skipped as why:
        print(f"{stage.name}: NOT CHECKED {why}")
        return 1
    except Wrong as wrong:
        result["verdict"] = "wrong"
        explain(stage, wrong)
        return 1
    print(f"{stage.name}: right, {result['tests']} tests")
    result["verdict"] = "right"
    if path != stage.program:
        print("Its speed is not known: a simulated device's times mean nothing.")
        return 77 if target else 0
    if options["runs"] == "0":
        result["verdict"] = "not judged" if target else "right"
    elif target or stage.before:
        result |= judge(stage, target, phase, options, key)
    return int(result["verdict"] not in ("right", "reached"))


def main():
    key = take("KEY")  # a program that is checked sees none
    stage = ladders.find_ladder(given("STUDY")).find(given("STAGE"))
    result = {"stage": stage.name, "verdict": "not checked", "tests": 0, "target": given("TARGET")}
    status = check_stage(stage, given("TARGET"), given("PHASE"), key, result)
    if key:
        print(json.dumps(result))
    return status
