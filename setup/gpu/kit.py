"""Makes what a machine with a GPU needs for a quarter of an hour: `make gpu-kit`.

There is perhaps no compiler, no package and no network there, so the programs are built here. The
kit is run.sh and kit.tgz, with the programs, the data and a plan (plan.py). Options:

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
import tempfile
from pathlib import Path

import pandas

from bench import host, reference, rows, testing
from bench.base import ROOT, fail
from bench.counts import toolkit
from bench.options import given
from bench.process import output as run
from setup.gpu import plan

ARCHITECTURE = given("CUDA_ARCH", "sm_90")
MARCHES = "x86-64-v3", "x86-64-v4"  # run.sh looks at the processor
# What may not be on that machine is linked statically. A CUDA program opens the driver's library,
# which one with a static C library cannot.
STATIC = "LDLIBS=-static -lz -lm"
CUDA = f"CUDA_ARCH={ARCHITECTURE}", "LDLIBS=-l:libz.a -lm"


def build(stage, folder, *variables):
    """Builds a program into a folder. Returns its flags, or None where a library is not here."""
    if stage.source.suffix == ".py":
        return ""
    output = made = folder / stage.ladder.name / stage.name
    output.parent.mkdir(parents=True, exist_ok=True)
    command = ["make", "-s", "-C", stage.folder, f"OUTPUT={output}", *variables]
    if stage.is_peer:
        command += ["-B", stage.name]
    elif stage.is_cuda and plan.IS_SIMULATED:
        command.append("sim")
        made = Path(f"{output}.sim")
    if "left out" in run(command):
        return None
    made.replace(output)
    run(["strip", "--strip-debug", output])
    flags = Path(f"{made}.flags")
    return rows.read(flags).strip() if flags.exists() else ""


def build_all(kit, stages):
    todo = []
    for stage in stages:
        if stage.is_gpu:
            todo.append((stage, kit / "gpu", *CUDA))
        else:
            static = f"{stage.name}_LIBS=-static {stage.declared('LIBS')}"  # of a peer
            todo += [(stage, kit / march, f"MARCH={march}", STATIC, static) for march in MARCHES]
    with concurrent.futures.ThreadPoolExecutor(host.processors()) as pool:
        found = pool.map(lambda words: build(*words), todo)
    return {stage: flags for (stage, *_), flags in zip(todo, found) if flags is not None}


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


def describe(kit, used):
    """Puts into the kit what its programs are, their data, and the header of their rows."""
    about = [run(["bench/machine.sh"]) + "\n", f"CUDA_ARCH: {ARCHITECTURE}\n"]
    for ladder in used:
        program = next(path for folder in ("gpu", MARCHES[0])
                       for path in sorted(kit.glob(f"{folder}/{ladder.name}/*")))
        header = run([program, "--columns"]).splitlines()[-1]
        rows.write(kit / "columns" / ladder.name, f"{header}\n")
        if ladder.toml["data"]:
            copy_data(kit, ladder)
            about.append(f"data of {ladder.name}: {ladder.describe_data(ladder.data[1])}\n")
    rows.write(kit / "kit.txt", "".join(about))
    shutil.copy2(ROOT / "bench/machine.sh", kit)


def fill(kit, runs):
    """Puts all but Python's programs into the kit."""
    flags = build_all(kit, dict.fromkeys(each.stage for each in runs))
    lines = [each.line(f"{number:04}", flags[each.stage])
             for number, each in enumerate(runs) if each.stage in flags]
    pandas.DataFrame(lines, columns=plan.COLUMNS).to_csv(kit / "plan.tsv", sep="\t", index=False)
    describe(kit, dict.fromkeys(stage.ladder for stage in flags))
    calibrate = "calibrate.sim" if plan.IS_SIMULATED else "calibrate"
    march = "native" if plan.IS_SIMULATED else MARCHES[0]
    run(["make", "-s", "-C", "bench/machine", f"build/{calibrate}", CUDA[0], f"MARCH={march}"])
    shutil.copy2(ROOT / "bench/machine/build" / calibrate, kit / "calibrate")


def needed_glibc(kit):
    """The C library's version that the CUDA programs need: that of this machine, or older."""
    found = [int(version) for path in kit.glob("gpu/*/*")
             for version in re.findall(rb"GLIBC_2\.(\d+)", path.read_bytes())]
    return f"2.{max(found, default=0)}"


def main():
    if not plan.IS_SIMULATED and not toolkit(os.environ.get("NVCC") or "nvcc"):
        fail("found no nvcc; setup/README.md says how to get one without a GPU")
    runs = [*plan.plan()]
    if not runs:
        fail("ONLY: expected the beginning of a stage's folder")
    # In the stages' Makefiles, SIM is something else.
    os.environ |= {"MAKEFLAGS": "", "MARCH": MARCHES[0]}
    output = Path(given("DIR", "gpu-kit")).absolute()
    if output.exists() and os.listdir(output) and not (output / "run.sh").exists():
        fail(f"DIR: found other files in '{output}', expected a new folder or a kit")
    output.mkdir(parents=True, exist_ok=True)
    shutil.copy2(ROOT / "setup/gpu/run.sh", output)
    scripts = [path.relative_to(ROOT) for path in ROOT.glob("*/peers/*.py")]
    with tempfile.TemporaryDirectory() as kit:
        fill(Path(kit), runs)
        glibc = needed_glibc(Path(kit))
        run(["tar", "-czf", output / "kit.tgz", "-C", kit, ".", "-C", ROOT, *scripts])
        about = rows.read(Path(kit, "kit.txt"))
    size = (output / "kit.tgz").stat().st_size / 2**20
    print(*re.findall("^data of .*", about, re.MULTILINE), sep="\n")
    print(f"{output}: {len(runs)} runs, {size:.0f} MiB. On the machine with the GPU, which needs "
          f"glibc {glibc}: bash run.sh OUT, 8 minutes. Then here: make gpu-results FROM=OUT")
