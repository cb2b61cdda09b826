"""Makes what a machine with a GPU needs for a quarter of an hour: `make gpu-kit`.

There is perhaps no compiler, no make, no package and no network there, and each second counts. So
the programs are built here, for a GPU that this machine need not have. The kit is two files:
kit.tgz with the programs, the data and a plan (plan.py), and run.sh. What that brings back is read
by results.py. Options on make's command line:

    DIR=gpu-kit        the folder
    CUDA_ARCH=sm_90    the GPU's architecture: sm_90 is an H100 or H200, sm_75 a T4
    SIM=1              for the simulated device, to rehearse it all, with small runs
    ONLY=stages/03     only the stages in folders that begin so, with commas between
"""

import concurrent.futures
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas

from bench import counts, host, ladders, reference, rows, testing
from bench.base import ROOT, fail
from bench.options import given
from setup.gpu import plan
from setup.gpu.plan import IS_SIMULATED

BUILT = "ladder", "program", "sources", "flags"  # the columns of built.tsv
ARCHITECTURE = given("CUDA_ARCH", "sm_90")
MARCHES = "x86-64-v3", "x86-64-v4"  # run.sh looks at the processor
# What may not be on that machine is linked statically. A CUDA program opens the driver's library,
# which one with a static C library cannot.
STATIC, STATIC_ZLIB = "LDLIBS=-static -lz -lm", "LDLIBS=-l:libz.a -lm"
# How CUDA programs are built.
CUDA = () if IS_SIMULATED else (f"CUDA_ARCH={ARCHITECTURE}", f"MARCH={MARCHES[0]}", STATIC_ZLIB)
# A device of another name than "simulated" is taken for a GPU, and measured as long as one.
CALIBRATE_SIM = "#!/bin/sh\nexec env -u SIM_NAME kit/calibrate.sim \"$@\"\n"


def run(*words):
    """(exit status, what it says). Unlike running.run(), threads may call it."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, cwd=ROOT, check=False)
    return done.returncode, done.stdout.rstrip("\n")


def build(stage, folder, *variables):
    """Builds a program into a folder. Returns (its line of BUILT, or None, and what went wrong)."""
    output = folder / stage.ladder.name / stage.name
    output.parent.mkdir(parents=True, exist_ok=True)
    made, goal, flags = output, [], ""
    if stage.is_peer:
        goal = ["-B", stage.name]
    elif stage.is_cuda and IS_SIMULATED:
        made, goal = output.with_name(f"{stage.name}.sim"), ["sim"]
    status, said = run("make", "-s", "-C", stage.folder, f"OUTPUT={output}", *variables, *goal)
    if "left out" in said:  # a library is not here
        return None, ""
    if status:
        return None, f"{stage.name}: {said}"
    made.replace(output)
    run("strip", "--strip-debug", output)
    file = Path(f"{made}.flags")
    if file.exists():
        flags = rows.read(file).strip()
        file.unlink()
    return (stage.ladder.name, stage.name, stage.sources, flags), ""


def build_all(kit, stages):
    """Builds all programs. Returns the lines of BUILT, and what went wrong."""
    todo = []
    for stage in stages:
        if stage.is_gpu:
            todo.append((stage, kit / "gpu", *CUDA))
        else:
            static = f"{stage.name}_LIBS=-static {stage.declared('LIBS')}"  # of a peer
            todo += [(stage, kit / march, f"MARCH={march}", STATIC, static) for march in MARCHES]
    with concurrent.futures.ThreadPoolExecutor(host.processors()) as pool:
        done = [*pool.map(lambda words: build(*words), todo)]
    return [line for line, _ in done if line], [why for _, why in done if why]


def build_calibrator(kit):
    """Builds what measures the GPU. Returns what went wrong."""
    name = "calibrate.sim" if IS_SIMULATED else "calibrate"
    status, said = run("make", "-s", "-C", "bench/machine", f"build/{name}", *CUDA[:2])
    if status:
        return [said]
    shutil.copy2(ROOT / "bench/machine/build" / name, kit / name)
    if IS_SIMULATED:
        rows.write(kit / "calibrate", CALIBRATE_SIM)
        (kit / "calibrate").chmod(0o755)
    return []


def copy_data(kit, ladder):
    """Puts the data of a ladder into the kit, unpacked, and the small set that tests draw."""
    folder = kit / "data" / ladder.data_file.stem
    if folder.exists():  # another ladder's, too
        return
    folder.mkdir(parents=True)
    for path in filter(Path.is_file, Path(ladder.data[1]).iterdir()):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            (folder / path.name.removesuffix(".gz")).write_bytes(file.read())
    shutil.copytree(reference.drawn_data(ladder, testing.DRAWN), kit / "drawn" / folder.name)


def write_table(path, columns, lines):
    rows.write(path, pandas.DataFrame(lines, columns=columns).to_csv(sep="\t", index=False))


def describe(kit, used):
    """Puts into the kit what its programs are, their data, and the header of each ladder's rows."""
    (kit / "columns").mkdir()
    about = [run("bench/machine.sh")[1], f"CUDA_ARCH: {ARCHITECTURE}"]
    for ladder in used:
        program = next(path for folder in ("gpu", MARCHES[0])
                       for path in kit.glob(f"{folder}/{ladder.name}/[0-9]*"))
        header = re.search(r"^stage,.*", run(program, "--columns")[1], re.MULTILINE)
        rows.write(kit / "columns" / ladder.name, f"{header[0]}\n")
        if ladder.toml["data"]:
            copy_data(kit, ladder)
            about.append(f"data of {ladder.name}: {ladder.describe_data(ladder.data[1])}")
    rows.write(kit / "kit.txt", "\n".join(about) + "\n")
    shutil.copy2(ROOT / "bench/machine.sh", kit)


def needed_glibc(kit):
    """The C library's version that the CUDA programs need: that of this machine, or older."""
    found = {tuple(map(int, version.split(b"."))) for path in kit.glob("gpu/*/*")
             for version in re.findall(rb"GLIBC_(\d+\.\d+)", path.read_bytes())}
    return ".".join(map(str, max(found, default=(0, 0))))


def fill(kit, runs):
    """Puts all but Python's programs into the kit. Returns what went wrong."""
    stages = dict.fromkeys(run.stage for run in runs)
    scripts = {stage for stage in stages if stage.source.suffix == ".py"}
    built, wrong = build_all(kit, [stage for stage in stages if stage not in scripts])
    is_there = {line[:2] for line in built} | {
        (stage.ladder.name, stage.name) for stage in scripts}
    write_table(kit / "plan.tsv", plan.COLUMNS, [
        each.line(f"{number:04}") for number, each in enumerate(runs)
        if (each.stage.ladder.name, each.stage.name) in is_there])
    write_table(kit / "built.tsv", BUILT, built)
    describe(kit, dict.fromkeys(stage.ladder for stage in stages))
    return wrong + build_calibrator(kit)


def folder():
    """The kit's folder. What is no kit stays as it is."""
    output = Path(given("DIR", "gpu-kit")).absolute()
    if output.exists() and os.listdir(output) and not (output / "run.sh").exists():
        fail(f"DIR: found other files in '{output}', expected a new folder or a kit")
    output.mkdir(parents=True, exist_ok=True)
    return output


def main():
    if not IS_SIMULATED and not counts.toolkit(os.environ.get("NVCC") or "nvcc"):
        fail("found no nvcc; setup/README.md says how to get one without a GPU")
    runs = [*plan.plan()] or fail("ONLY: expected the beginning of a stage's folder")
    # In the stages' Makefiles, SIM is something else.
    os.environ |= {"MAKEFLAGS": "", "MARCH": MARCHES[0]}
    output = folder()
    shutil.copy2(ROOT / "setup/gpu/run.sh", output / "run.sh")
    scripts = [path.relative_to(ROOT) for peers in (
        ladders.ladders()[0].peers_folder, ROOT / "bench/peers") for path in peers.glob("*.py")]
    with tempfile.TemporaryDirectory() as kit:
        wrong = fill(Path(kit), runs)
        glibc = needed_glibc(Path(kit))
        status, said = run("tar", "-czf", output / "kit.tgz", "-C", kit, ".", "-C", ROOT, *scripts)
    if status:
        wrong.append(said)
    for why in wrong:
        print(why, file=sys.stderr)
    size = (output / "kit.tgz").stat().st_size / 2**20
    print(f"{output}: {len(runs)} runs, {size:.0f} MiB. On the machine with the GPU, which needs "
          f"glibc {glibc}: bash run.sh OUT, 8 minutes. Then here: make gpu-results FROM=OUT")
    return 1 if wrong else 0
