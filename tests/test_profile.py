"""Tests `make profile` and `make asm` on a study of its own, in a path with a space."""

import re
import shutil
import sys
from pathlib import Path

import pytest
from programs import ROOT, run, script

needs_pprof = pytest.mark.skipif(not shutil.which("google-pprof"), reason="found no google-pprof")
LADDER = """title = "Fake"\nprogram = "run"\ntime = "time_s"\nclock = "seconds"
[profile]\nsamples = 30\nseconds = 1\n[settings]\nseconds = 0.1
[[axes]]\noption = "samples"\nname = "Samples"\nvalues = [20]\n"""
# --samples 30 --seconds 1 [--seconds N] --csv FILE --quiet: works for N / 10 seconds of each of two
# threads.
PROGRAM = r"""#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static __attribute__((noinline)) long work(double seconds) {
    long sum = 0;
    while (clock() < 2 * seconds * CLOCKS_PER_SEC)
        for (int i = 0; i < 10000; ++i)
            sum += i ^ sum; // the hot line
    return sum;
}
int main(int argc, char **argv) {
    long sum = 0, *kept = calloc(1 << 20, 8); // eight MiB
#pragma omp parallel num_threads(2) reduction(+ : sum)
    sum += work(atof(argv[argc - 4]) / 10);
    FILE *csv = fopen(argv[argc - 2], "w");
    fprintf(csv, "threads,dataset,sum\n2,drawn,%ld\n", sum + kept[sum & 7]);
    return fclose(csv);
}
"""


@pytest.fixture
def tree(checkout):
    for name, rule in (("00_only", 'run: run.c\n\tgcc -O2 -g -fopenmp -o run "$$PWD/run.c"\n'),
                       ("01_broken", "run: ;\n")):
        folder = checkout.root / "studies/fake" / name
        script(folder / "run", "echo broken >&2; exit 3")
        (folder / "Makefile").write_text(rule)
        (folder / "run.c").write_text(PROGRAM)
    checkout.write("studies/fake/ladder.toml", LADDER)
    return lambda words, status=0: run(f"{sys.executable} -m bench {words} STUDY=fake", status)


@needs_pprof
def test_a_stage_of_a_study(tree):
    """The run grows until there are enough samples, of both threads."""
    line = PROGRAM[:PROGRAM.index("sum += i")].count("\n") + 1
    tree("profile CPU_SECONDS=1 STAGE=00")
    folder = Path("studies/fake/profiles/mine/00_only")
    cpu, lines, heap, graph = ((folder / name).read_text() for name in (
        "cpu.txt", "lines.txt", "heap.txt", "graph.svg"))
    assert re.match(r"00_only, samples 30, seconds (1\d|[2-9])", cpu) and "\ncpu: " in cpu
    total, own, whole = (int(re.search(pattern, cpu, re.M)[1]) for pattern in (
        r"^Total: (\d+) samples", r"^ +(\d+) .* work$", r" (\d+) +[0-9.]+% main$"))
    assert own > total / 2 > 0 and whole < 0.9 * total
    assert f"work studies/fake/00_only/run.c:{line}  sum += i ^ sum; // the hot line\n" in lines
    assert re.search(r"^ +8\.0 .* studies/fake/00_only/run.c:\d+  .*// eight MiB$", heap, re.M)
    assert "<svg" in graph and not any(
        str(path) in text for text in (cpu, lines, heap) for path in (Path.cwd(), ROOT, "/usr/"))


def test_asm(tree):
    shown = tree("asm STAGE=00 FUNCTION=work").stdout
    assert re.search(r"<work>:\n(.*\n)+ +sum \+= i \^ sum; // the hot line\n +[0-9a-f]+:\t", shown)
    assert {"main", "work"} < {*tree("asm STAGE=00").stdout.split()}
    said = tree("asm STAGE=00 FUNCTION=nothing", 2).stderr
    assert re.search("FUNCTION: found 'nothing', expected one of: .*work", said)


def test_what_cannot_be_profiled_is_said(tree):
    for wrong in "9", "--what":
        assert tree(f"profile STAGE={wrong}", 2).stderr.count("\n") == 1
    said = tree("profile STAGE=00 CPU_SECONDS=0", 2).stderr
    assert said == "profile: CPU_SECONDS: found '0', expected a whole number from 1\n"
    if shutil.which("google-pprof"):
        assert tree("profile STAGE=01", 1).stderr.endswith("broken\n")
