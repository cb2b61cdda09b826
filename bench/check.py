"""Checks whether a stage is right, and how fast it is: `make check STAGE=20_mine [STUDY=NAME]`.

The tests (testing.py) stop at the first mistake. bench/README.md explains the options.
"""

import contextlib
import json
import random
import re
from functools import partial

from bench import compare, counts, host, ladders, measuring, pairs, reference, screen
from bench.base import fail
from bench.options import given, take
from bench.testing import AS_IT_IS, CELL_SEEDS, Differs, Skipped, Tester, Wrong
from bench.process import make

KEY_SEEDS = 3  # of a drawn case
# They find more than a wrong result, and the second what a GPU may hide: a lost update.
BUILDS = {"SANITIZE=1": ".sanitized.sim", "COUNT=1": ".counted.sim"}


def build(stage, *flags, suffix=".sim"):
    """The path of the program that it builds: for this machine, or for the simulated device."""
    if not flags and (not stage.is_cuda or host.has_gpu()):
        make(*stage.build)
        if not stage.is_cuda or stage.program.exists():
            return stage.program
    make("-C", stage.folder, "sim", *flags)
    return stage.program.with_suffix(suffix)


def draw(ladder, key, options):
    """(cases, their seeds, options of the timed cell) that a key draws. A number of an option in
    `drawn` becomes one between itself and so many times itself."""
    tests = {"drawn": {}, **reference.selected(ladder, "check")}
    drawn = tests["drawn"]
    source = random.Random(key)

    def number(times, found):
        ends = sorted([int(found[0]), max(1, round(int(found[0]) * times))])
        return str(source.randint(*ends))

    def other(text):
        words = text.split()
        for place, word in enumerate(words):
            if times := drawn.get(word.removeprefix("--")):
                words[place + 1] = re.sub(r"\d+", partial(number, times), words[place + 1])
        return " ".join(words)

    cases = [other(f"{source.choice(tests['sizes'])} {case}") for case in tests["cases"]]
    seeds = [source.randrange(1, 2**31) for _ in range(KEY_SEEDS)]
    options = dict(options)
    if drawn:
        samples = next(iter(drawn))
        value = options.get(samples, ladder.settings.get(samples))
        options[samples] = other(f"--{samples} {value}").split()[1]
    return cases, seeds, options


def tests_of(stage, path, options, cases, seeds):
    """Yields the tests of a stage, each as (a tester, its method, the arguments)."""
    tester = Tester(stage, "check", path)
    yield from ((tester, tester.test, test) for test in tester.pairs())
    yield from ((tester, tester.test_seeds, (case, seeds)) for case in cases)
    if "epoch" in stage.ladder.toml["tests"] and not tester.simulated:
        late = Tester(stage, "epoch", path)
        yield from ((late, late.test, test) for test in late.pairs())
    if cases or not tester.simulated:
        tester = Tester(stage, "cell", path, options)
        yield tester, tester.test_seeds, (tester.case, CELL_SEEDS)
    if stage.is_cuda:
        for flag, suffix in BUILDS.items():
            tester = Tester(stage, "gpu", build(stage, flag, suffix=suffix))
            tester.environment.pop("SIM_MEMORY", None)  # an assignment's, for smaller networks
            yield from ((tester, tester.test, test) for test in tester.pairs())


def run_tests(stage, path, options, cases, seeds):
    """Tests a stage up to its first mistake. Returns how many tests it were."""
    count = 0
    with screen.Bar() as bar:
        for tester, test, arguments in tests_of(stage, path, options, cases, seeds):
            count += 1
            bar.say(f"test {count}: {stage.name} {arguments[0]}")
            try:
                test(*arguments)
            except Wrong as wrong:
                wrong.tester = tester
                wrong.case = arguments[0]
                raise
    return count


def explain(stage, wrong):
    """Prints what is wrong. Of a CUDA stage, another of BUILDS may say where."""
    print(f"{stage.name}: WRONG {wrong}")
    if isinstance(wrong, Differs):
        with contextlib.suppress(Wrong):
            wrong.explain()
    if not stage.is_cuda or not wrong.tester:
        return
    wrong.tester.environment["SIM_UNSET"] = "1"
    for flag, suffix in BUILDS.items():
        if not wrong.tester.path.name.endswith(suffix):
            wrong.tester.command = [str(build(stage, flag, suffix=suffix))]
            said = wrong.tester.run(wrong.case, AS_IT_IS).error
            if said and said not in str(wrong):
                print(f"{flag} says: {said}")
                return


def count_launches(stage):
    """How many kernels a CUDA stage launches in the first case of the selection `gpu`, with one
    image to test."""
    tests = reference.selected(stage.ladder, "gpu")
    one = "--test 1" if "test" in stage.ladder.settings else ""
    run = f"{tests['options']} {reference.pairs(tests)[0][0]} {tests['last']} {one}"
    found = counts.count(stage, [{"cell": "", "run": run}])
    return int(found["launches"][found["blocks"] > 0].sum())


def read_target(stage, target, phase):
    """The number of a target. What is wrong with one ends the check before it has begun."""
    if phase not in ("", *stage.ladder.phases):
        fail(f"PHASE: found '{phase}', expected one of: {' '.join(stage.ladder.phases)}")
    known = {}
    if stage.before:
        known["x"] = "1.2x (as fast as its origin)"
    # Nobody knows how many multiply-adds bound the others.
    work = stage.ladder.toml["work"]
    if not stage.is_cuda and (phase in work or (work and not phase)):
        known["%"] = "50% (of the ceiling)"
    found = re.fullmatch(r"([0-9]*\.?[0-9]+)([%x])", target)
    if not found or not float(found[1]) or found[2] not in known:
        fail(f"TARGET: found '{target}', expected for {stage.name} such as "
             f"{' or '.join(known.values()) or 'none'}")
    return float(found[1])


def judge(stage, target, phase, options, key):
    """Compares the stage's time with its origin's, and with a target. Returns what it found."""
    before = stage.before or stage
    compare.build(before)
    (origins, own), why = compare.compare((before, stage), options, shows=not key)
    check_clock(stage, options, own)
    if not target:
        return {"verdict": "right"}
    if why:
        print(f"{stage.name}: TARGET={target} not judged: {why}")
        return {"verdict": "not judged", "why": why}
    name = phase or stage.ladder.time.removesuffix("_s")
    column = f"{name}_s"
    around = 0
    if key and not phase:
        # By the clock outside, whatever the programs say: all of a run, without the least that the
        # origin takes beside what it times.
        around = min(row["program_s"] - row[column] for row in origins)
        column = "program_s"
    wanted = spent(origins, column, around)
    says = f"{name} is {{}} times as fast as {before.name}"
    if target.endswith("%"):
        wanted = [100 * seconds_of_work(stage, phase, row) for row in own]
        says = f"{name} reaches {{}} % of the ceiling"
    times = spent(own, column, around)
    if min(times + wanted) <= 0:
        fail("TARGET: found runs that are too short for it", 1)
    return verdict_on(stage, target, phase, pairs.ratio(times, wanted), says)


def spent(rows, column, around):
    """The seconds of a column without those around. A phase may have nothing to do."""
    return [(row[column] or 0) - around for row in rows]


def check_clock(stage, options, rows):
    if fault := measuring.slow_clock(stage, options, rows[0], partial(measuring.measure, stage)):
        fail(f"{stage.name}: {fault}", 1)


def verdict_on(stage, target, phase, ratio, says):
    """Prints whether a ratio reaches the target, and returns it. What is shown counts."""
    reached, low, high = map(pairs.digits, ratio[:3])
    aim = read_target(stage, target, phase)
    verdict = "undecided"
    if float(low) >= aim:
        verdict = "reached"
    elif float(high) < aim:
        verdict = "MISSED"
    said = f"{stage.name}: TARGET={target} {verdict}: {says.format(reached)} {ratio.interval}"
    if verdict != "reached":
        said += f", of which all has to reach {target}"
    screen.tell(said)
    return {"verdict": verdict, "reached": float(reached), "low": float(low), "high": float(high)}


def seconds_of_work(stage, phase, row):
    """What a run's operations take at the rate that was measured with it."""
    operations = stage.ladder.operations(row, [phase] if phase else None)
    return operations * stage.ladder.width / (row["rate"] * 1e9)


def check_stage(stage, target, phase, key, result):
    """Tests a stage, and times it. Returns the exit status. `result` gets what is found."""
    if target or phase:
        read_target(stage, target, phase)
    options = compare.read_options(stage.ladder, "check")
    cases = []
    seeds = []
    if key:
        cases, seeds, options = draw(stage.ladder, key, options)
    path = build(stage)
    make("-C", "bench", f"build/{stage.ladder.name}/reference", "build/many_processors.so")
    try:
        result["tests"] = run_tests(stage, path, options, cases, seeds)
        if key and stage.is_cuda:
            result["launches"] = count_launches(stage)
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
    if int(options["runs"]) and (target or stage.before):
        result |= judge(stage, target, phase, options, key)
    elif target:
        print(f"{stage.name}: TARGET={target} not judged: RUNS=0 times nothing")
        result["verdict"] = "not judged"
    return int(result["verdict"] not in ("right", "reached"))


def main():
    key = take("KEY")  # a program that is checked sees none
    stage = ladders.find_ladder(given("STUDY")).find(given("STAGE"))
    result = {"stage": stage.name, "verdict": "not checked", "tests": 0, "target": given("TARGET")}
    status = check_stage(stage, given("TARGET"), given("PHASE"), key, result)
    if key:
        print(json.dumps(result))
    return status
