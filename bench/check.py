"""Checks whether a stage is right, and how fast it is: `make check STAGE=20_mine [STUDY=NAME]`.

The tests (testing.py) stop at the first mistake. bench/README.md explains the options.
"""

import contextlib
import dataclasses
import re

from bench import diagnosis, host, ladders, measuring, pairs, process, rounds, screen, testing
from bench.base import fail
from bench.options import given

NOT_HERE = 77


def build(stage, *flags, suffix=".sim"):
    """The path of the program that it builds: for this machine, or for the simulated device."""
    if not flags and (not stage.is_cuda or host.has_gpu()):
        process.make(*stage.build)
        if not stage.is_cuda or stage.program.exists():
            return stage.program
    process.make("-C", stage.folder, *(["sim"] if stage.is_cuda else []), *flags)
    return stage.program.with_suffix(suffix)


def builds(stage):
    """(selection, flag, suffix) of the builds that find more than a wrong result: memory that is
    touched outside of an array or never freed, and a lost update, which a GPU may hide."""
    if stage.is_cuda:
        return [("gpu", "SANITIZE=1", ".sanitized.sim"), ("gpu", "COUNT=1", ".counted.sim")]
    return [("sanitized", "SANITIZE=1", ".sanitized")]


def tests_of(stage, path, options):
    """Yields the tests of a stage, each as (a Tester, a test, its arguments)."""
    program = testing.tester(stage, "check", path)
    yield from ((program, testing.test, pair) for pair in program.pairs())
    for selection in ["large"] if program.is_simulated else ["large", "epoch"]:
        if selection in stage.ladder.toml["tests"]:
            other = testing.tester(stage, selection, path)
            yield from ((other, testing.test, pair) for pair in other.pairs())
    if not program.is_simulated:
        program, case = testing.cell_tester(stage, options, [*stage.command[:-1], path])
        yield program, testing.test_seeds, [case]
    for selection, flag, suffix in builds(stage):
        program = testing.tester(stage, selection, build(stage, flag, suffix=suffix))
        yield from ((program, testing.test, pair) for pair in program.pairs())


def run_tests(stage, path, options):
    """Tests a stage up to its first mistake, which it prints. Returns whether there is none."""
    count = 0
    with screen.Bar() as bar:
        for program, test, arguments in tests_of(stage, path, options):
            count += 1
            bar.say(f"test {count}: {stage.name} {arguments[0]}")
            try:
                test(program, *arguments)
            except testing.Wrong as wrong:
                bar.stop()
                explain(stage, program, wrong)
                return False
    print(f"{stage.name}: right, {count} tests")
    return True


def explain(stage, program, wrong):
    """Prints what is wrong. Another build, started as this one was, may say where."""
    print(f"{stage.name}: WRONG {wrong}")
    if isinstance(wrong, testing.Differs):
        with contextlib.suppress(testing.Wrong):
            diagnosis.explain(program, wrong.case, wrong.start, *wrong.found)
    for _, flag, suffix in builds(stage):
        if not program.path.name.endswith(suffix):
            other = dataclasses.replace(
                program, command=(*program.command[:-1], str(build(stage, flag, suffix=suffix))),
                environment=program.environment | {"SIM_UNSET": "1"})
            said = other.run(wrong.case, wrong.start).error
            if said and said not in str(wrong):
                print(f"{flag} says: {said}")
                return


def read_target(stage, target, phase):
    """The number of a target. What is wrong with one ends the check before it has begun."""
    if phase not in ("", *stage.ladder.phases):
        fail(f"PHASE: found '{phase}', expected one of: {' '.join(stage.ladder.phases)}")
    known = "x" if stage.before else ""
    # Nobody knows how many multiply-adds bound the others.
    work = stage.ladder.toml["work"]
    if not stage.is_cuda and (phase in work or (work and not phase)):
        known += "%"
    found = re.fullmatch(r"([0-9]*\.?[0-9]+)([%x])", target)
    if not found or not float(found[1]) or found[2] not in known:
        units = " or ".join(known) or "nothing"
        fail(f"TARGET: found '{target}', expected for {stage.name} a number and {units}")
    return float(found[1])


def judge(stage, target, phase, options):
    """Compares the stage's time with its origin's, and with a target. Returns the exit status."""
    before = stage.before or stage
    measuring.build(before)
    (origins, own), why = rounds.compare((before, stage), options)
    if not target:
        return 0
    if why:
        print(f"{stage.name}: TARGET={target} not judged: {why}")
        return 1
    name = phase or stage.ladder.time.removesuffix("_s")
    times, wanted = ([row[f"{name}_s"] or 0 for row in each] for each in (own, origins))
    says = f"{name} is {{}} times as fast as {before.name}"
    if target.endswith("%"):
        wanted = [100 * seconds_of_work(stage, phase, row) for row in own]
        says = f"{name} reaches {{}} % of the ceiling"
    if min(times + wanted) <= 0:  # a phase may have nothing to do
        fail("TARGET: found runs that are too short for it", 1)
    return verdict_on(stage, target, read_target(stage, target, phase),
                      pairs.ratio(times, wanted), says)


def verdict_on(stage, target, aim, ratio, says):
    """Prints whether a ratio reaches the target. Returns the exit status. What is shown counts."""
    reached, low, high = map(pairs.digits, ratio[:3])
    verdict = "undecided"
    if float(low) >= aim:
        verdict = "reached"
    elif float(high) < aim:
        verdict = "MISSED"
    said = f"{stage.name}: TARGET={target} {verdict}: {says.format(reached)} {ratio.interval}"
    if verdict != "reached":
        said += f", of which all has to reach {target}"
    screen.tell(said)
    return int(verdict != "reached")


def seconds_of_work(stage, phase, row):
    """What a run's operations take at the rate that was measured with it."""
    operations = stage.ladder.operations(row, [phase] if phase else None)
    return operations * stage.ladder.width / (row["rate"] * 1e9)


def main():
    stage = ladders.find_ladder(given("STUDY")).find(given("STAGE"))
    target = given("TARGET")
    phase = given("PHASE")
    if target or phase:
        read_target(stage, target, phase)
    options = measuring.read_options(stage.ladder, "check")
    path = build(stage)
    process.make("-C", "bench", f"build/{stage.ladder.name}/reference", "build/many_processors.so")
    try:
        if not run_tests(stage, path, options):
            return 1
    except testing.Skipped as why:
        print(f"{stage.name}: NOT CHECKED {why}")
        return 1
    if path != stage.program:
        print("Its speed is not known: a simulated device's times mean nothing.")
        return NOT_HERE if target else 0
    if int(options["runs"]) and (target or stage.before):
        return judge(stage, target, phase, options)
    if target:
        print(f"{stage.name}: TARGET={target} not judged: RUNS=0 times nothing")
    return int(bool(target))
