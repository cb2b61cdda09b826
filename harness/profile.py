"""Profiles stages: with gperftools where a CPU stage's time and memory go, by function and by line;
with Nsight Compute how a CUDA stage's kernels use the GPU, and with Nsight Systems, if it is there,
when the GPU has none to run. Without a GPU, counts.py counts what they do. README.md says how to
read the results.

    profile.py [STAGE ...]    (01, or 01_vectorized; all CPU stages if none is named)
    profile.py --committed    (the CPU stages of all ladders that have a profile in the repository,
                              which is replaced)
    profile.py --gpu [STAGE ...]

Writes profiles/mine/<stage>/{cpu.txt,lines.txt,flame.svg,stacks.txt,heap.txt}, or kernels.txt,
gaps.txt and timeline.nsys-rep, or counts.csv. git ignores profiles/mine. Reads from the environment
or make's command line:

    STUDY=name       the stages of a study; writes to its own folder profiles/mine/
    CPU_SECONDS=6    least CPU time to sample, if the run has epochs, iterations or seconds
    RESULTS=dir      writes the folders of the stages there instead; RESULTS=profiles changes
                     those that are committed
    HIDDEN=256 ...   the options of the run; [profile] in ladder.toml has their values

A stage is profiled as it is timed: the binary is the same, optimised, and nothing is added to its
source. Two preloaded libraries do the work on the CPU.

Exit status: 0; 1 a stage or a tool failed; 2 no such stage, or a wrong value; 77 no tool.
"""

import csv
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import groupby, pairwise
from pathlib import Path

from harness import counts, flamegraph, ladders
from harness.compare import build
from harness.counts import run
from harness.ladders import ROOT, fail

METRICS = (
    "gpu__time_duration.sum",
    # percent of the peak rate of the multiprocessors, of the memory system, of the device memory
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    # active warps: as measured, and as registers and shared memory allow
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__maximum_warps_per_active_cycle_pct",
    "launch__registers_per_thread",
    # additional accesses because of bank conflicts, out of all accesses to shared memory
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
)

# In a library without a symbol table, an address gets the name of the exported function before it.
# Most often this name is wrong, so the library's replaces it. GOMP_parallel is right.
NAMES = ((r"GOMP_parallel@@.*", "GOMP_parallel"), (r".*@@G?OMP_.*", "libgomp"),
         (r".*@@ZLIB_.*", "zlib"), (r"0x[0-9a-f]+|^[0-9a-f]{16}$", "unknown"),
         (r"<[0-9a-f]+>|@@.*", ""), (r"\[inline\]", " (inline)"))
# A stage may be started as several processes. Each of them writes a profile of its own, and what
# starts them none. $1 is the variable with the profile's path.
OF_EACH_PROCESS = 'profile=$1.$$; shift; exec env "$profile" "$@"'
LENGTHS = "epochs", "iterations", "seconds"  # options that make a run longer
# The C library's functions that call main or a thread's first function.
STARTUP = re.compile("_start|__libc_start_[a-z_]+|(__)?clone3?|start_thread")


def pprof(*words):
    return run("google-pprof", *words).stdout


def machine(*keys):
    """The lines that harness/machine.sh has on them."""
    return [line for line in run("harness/machine.sh").stdout.splitlines()
            if line.split(":")[0] in keys]


def title(stage, options, *more):
    return ", ".join([stage.name, *(f"{name} {value}" for name, value in options.items()), *more])


class Profile:
    """The profile of a CPU stage, in the folder `work`."""

    def __init__(self, stage, options, work, folder):
        self.stage, self.options, self.work, self.folder = stage, dict(options), work, folder
        self.length = next((name for name in LENGTHS if name in options), None)
        # pprof accepts no program's path with a space.
        self.binary = shutil.copy(stage.program, work / stage.name)

    def run(self, **environment):
        """(seconds, seconds of CPU time): runs the stage. LD_PRELOAD is for the stage only."""
        results = self.work / "row.csv"
        for path in (results, *self.work.glob("cpu.prof*")):
            path.unlink(missing_ok=True)
        words = [self.binary, *self.stage.ladder.words(self.options), "--csv", results, "--quiet"]
        start = self.stage.command[:-1]
        if start:
            names = sorted(environment, key=lambda name: not name.endswith("PROFILE"))
            words = [*start, "sh", "-c", OF_EACH_PROCESS, "sh",
                     *(f"{name}={environment.pop(name)}" for name in names), *words]
        before = os.times()
        run(*words, **{**self.stage.environment, **environment})
        _, _, user, system, elapsed = (y - x for x, y in zip(before, os.times()))
        with results.open(encoding="utf-8") as file:
            self.row = next(csv.DictReader(file))
        return elapsed, user + system

    def write(self, name, *lines):
        """Writes a text, after what every one begins with."""
        about = title(self.stage, self.options, self.row["dataset"],
                      f"threads {self.row['threads']}")
        (self.folder / name).write_text(
            "\n".join([about, *machine("cpu", "compiler"), *lines, ""]), encoding="utf-8")

    def by_line(self, column, *words):
        """{(file, line): samples, or bytes}: this repository's lines. The column of pprof's table
        is 0 for what a line costs by itself, 3 to include what it calls. The path before the
        ladder's folder or common/ is left out: the stage was built there."""
        ladder, found = self.stage.ladder.folder.relative_to(ROOT), Counter()
        for text in pprof("--text", "--lines", *words).splitlines():
            place = re.search(rf"/((?:{ladder}(?:/[^/]+)?|common)/[^/]+):([0-9]+)$", text)
            if place:
                found[place[1], int(place[2])] += int(text.split()[column])
        return found

    # --- time ---

    def time(self, seconds):
        """Returns in which functions most of the time goes, in words."""
        profile, threads = self.work / "cpu.prof", self.work / "threads.so"
        # The linker finds libprofiler, and threads.so then loads it. So no path is needed.
        run(os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-O2", "-o", threads,
            "harness/threads.c", "-lprofiler", "-ldl")
        # Makes the run longer until it takes the time asked for. It takes a bit too long, because
        # loading the data takes time only once.
        # A thread's timer can fire only at a tick of the kernel. Most kernels tick 250 times a
        # second, so a higher frequency gives no more samples.
        while True:
            elapsed, used = self.run(LD_PRELOAD=threads, CPUPROFILE=profile,
                                     CPUPROFILE_PER_THREAD_TIMERS="1", CPUPROFILE_FREQUENCY="250")
            if used >= seconds or not self.length:
                break
            count = 1.2 * float(self.options[self.length]) * seconds / (used + 0.01)
            self.options[self.length] = int(count) + 1
        profiles = sorted(self.work.glob("cpu.prof*"))
        main_thread, stacks = self.stacks(profiles)
        own, whole = Counter(), Counter()
        for names, count in stacks:
            own[names[-1]] += count
            whole.update(dict.fromkeys(names, count))
        total, so_far, table = own.total(), 0, []
        for name in sorted(whole, key=lambda name: (-own[name], name)):
            so_far += own[name]
            table.append(f"{own[name]:8} {own[name] / total:6.1%} {so_far / total:6.1%} "
                         f"{whole[name]:8} {whole[name] / total:6.1%} {name}")
        self.write("cpu.txt", f"samples: {total} of {used:.2f} s of CPU time in {elapsed:.3f} s; "
                   f"main thread {main_thread}, other threads {total - main_thread}", "",
                   "self: samples in the function itself; total: in it or in what it calls", "",
                   "    self  share so far    total  share function", *table)
        self.write("lines.txt", *self.lines(profiles, own))
        (self.folder / "flame.svg").write_text(flamegraph.draw(
            title(self.stage, self.options), stacks), encoding="utf-8")
        same = Counter()  # pprof tells apart what differs only in the instruction
        for names, count in stacks:
            same[";".join(names)] += count
        (self.folder / "stacks.txt").write_text("".join(
            f"{names} {count}\n" for names, count in sorted(same.items())), encoding="utf-8")
        return ", ".join(f"{name} {count / total:.0%}" for name, count in own.most_common(3))

    def stacks(self, profiles):
        """(samples of the main thread, [(names, from the outermost function; samples)]). Leaves out
        what tells a reader nothing: startup, and a library's calls of itself, whose functions now
        have one name."""
        main_thread, found = 0, []
        # pprof could add them up, but each process has the program at another address.
        text = "".join(pprof("--collapsed", self.binary, profile) for profile in profiles)
        for line in text.splitlines():
            text, count = line.rsplit(None, 1)
            names = text.split(";")
            if re.search("_start|main", names[0]):
                main_thread += int(count)
            for pattern, name in NAMES:
                names = [re.sub(pattern, name, each) for each in names]
            while len(names) > 1 and STARTUP.fullmatch(names[0]):
                del names[0]
            found.append(([name for name, _ in groupby(names)], int(count)))
        return main_thread, found

    def lines(self, profiles, own):
        """The stage's function with the most samples, with each line's samples beside it. Then the
        other lines of the source that have any."""
        file = str(self.stage.source.relative_to(ROOT))
        source = self.stage.source.read_text(encoding="utf-8").splitlines()
        # Takes the first function that the file defines, in the order of the samples. What GCC
        # splits off a function has its name and a suffix.
        for text, _ in own.most_common():
            name = re.split("[. ]", text)[0]
            defines = re.compile(rf"([A-Za-z].*[ *])?{re.escape(name)}\(.*(?<!;)")
            first = next((n for n, line in enumerate(source) if defines.fullmatch(line)), None)
            if first is not None:
                break
        else:
            return [f"function: {file}"]
        hottest = range(first + 1, source.index("}", first) + 2)
        found = sum((self.by_line(0, self.binary, profile) for profile in profiles), Counter())

        def line(number):
            samples = found[file, number]
            share = f"{samples:7}  {samples / own.total():6.1%}" if samples else ""
            return f"{share:16}  {number:5}  {source[number - 1]}".rstrip()

        others = sorted(number for (path, number), samples in found.items()
                        if samples and path == file and number not in hottest)
        return [f"function: {name}, {file}", "", "samples   share   line", *map(line, hottest),
                *(["", "other lines of the file that have samples", ""] if others else []),
                *map(line, others)]

    # --- heap ---

    def heap(self):
        # Writes a dump whenever the use is 1 KiB above its earlier peak. The largest is the peak.
        # If there are several processes, one is enough.
        self.run(LD_PRELOAD="libtcmalloc.so", HEAPPROFILE=self.work / "heap",
                 HEAP_PROFILE_INUSE_INTERVAL="1024")
        dumps = []  # (bytes in use, objects and bytes allocated so far, file)
        paths = sorted(self.work.glob("heap.*.heap"))
        process = paths[0].name.rsplit(".", 2)[0]
        for path in paths:
            if path.name.rsplit(".", 2)[0] != process:
                break
            with path.open(encoding="utf-8") as file:
                dumps.append((*map(int, re.findall(r"\d+", file.readline())[1:4]), path))
        peak, *_, path = max(dumps)
        at_end, count, in_all, _ = dumps[-1]
        start = dumps[0][-1].stat().st_mtime
        growth = [f"{path.stat().st_mtime - start:10.2f}  {in_use / 2**20:10.3f}"
                  for place, (in_use, *_, path) in enumerate(dumps)
                  if place % (len(dumps) // 10 + 1) == 0 or in_use == peak or path == dumps[-1][-1]]
        lines = []
        found = self.by_line(3, "--inuse_space", "--show_bytes", self.binary, path)
        for (file, line), size in sorted(found.items(), key=lambda item: (-item[1], item[0]))[:40]:
            text = Path(file).read_text(encoding="utf-8").splitlines()[line - 1].lstrip(" ")
            lines.append(f"{size / 2**20:10.3f}  {f'{file}:{line}':33} {text}")
        self.write("heap.txt", f"peak: {peak / 2**20:.1f} MiB in use at once",
                   f"in all: {count} allocations, {in_all / 2**20:.1f} MiB; "
                   f"in use at the end: {at_end / 2**20:.3f} MiB", "",
                   "seconds since the first allocation, and MiB in use then: on the way to the "
                   "peak, and at the end", "", *growth, "",
                   "MiB in use at the peak, by the line that allocates them; its callers count "
                   "them, too", "", *lines)


def profile_gpu(stage, options, folder):
    # ncu runs each kernel several times, so the first launches need no warm-up. By default it
    # flushes the caches before each run and holds the clock at its base rate. In a run of the
    # stage, a kernel finds in the cache what the one before it has left, and the clock is higher.
    done = subprocess.run(
        ["ncu", "--cache-control", "none", "--clock-control", "none", "--launch-count", "200",
         "--print-summary", "per-kernel", "--metrics", ",".join(METRICS),
         stage.program.relative_to(ROOT), *stage.ladder.words(options), "--quiet"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    lines = done.stdout.replace(f"{ROOT}/", "").splitlines()
    if done.returncode:
        # Most often this is ERR_NVGPUCTRPERM: the driver may keep its counters for root.
        print(*([line for line in lines if re.search("ERROR|rror:", line)] or lines[-5:]),
              sep="\n", file=sys.stderr)
        fail(f"ncu failed on {stage.name}", 1)
    # ncu's own messages, with process ids and paths, begin with ==.
    tables = [line for line in lines if not line.startswith("==")]
    (folder / "kernels.txt").write_text(
        "\n".join([title(stage, options, "200 launches at most"), *machine("gpu", "nvcc"), "",
                   *tables, ""]), encoding="utf-8")


def timeline(stage, options, folder):
    """Records when each kernel runs, and writes how long the GPU waits between two."""
    report = folder / "timeline.nsys-rep"
    run("nsys", "profile", "--trace=cuda", "--cuda-graph-trace=node", "--sample=none",
        "--cpuctxsw=none", "--force-overwrite=true", f"--output={report}", stage.program,
        *stage.ladder.words(options), "--quiet", WARMUP_S="0")
    table = run("nsys", "stats", "--report=cuda_gpu_trace", "--format=csv", "--quiet",
                "--force-export=true", report).stdout
    report.with_suffix(".sqlite").unlink(missing_ok=True)
    # Copies have a size, kernels a grid. Times are in nanoseconds.
    lines = [line for line in table.splitlines() if line.count(",") > 5]
    kernels = sorted((int(row["Start (ns)"]), int(row["Duration (ns)"]))
                     for row in csv.DictReader(lines) if row["GrdX"])
    # A run of one epoch has two before it, to warm up and to time the phases. An epoch may be one
    # launch.
    last = kernels[-max(3, len(kernels) // 3):]
    if len(last) < 3:
        fail(f"{stage.name}: found {len(last)} kernels in the timeline, expected 3 or more", 1)
    gaps = [max(0, start - sum(before)) for before, (start, _) in pairwise(last)]
    whole = sum(last[-1]) - last[0][0]
    low, median, high = statistics.quantiles(gaps, n=4)
    (folder / "gaps.txt").write_text("\n".join([
        title(stage, options, "the last third of the launches"), *machine("gpu", "nvcc"), "",
        f"kernels: {len(last)} in {whole / 1e6:.3f} ms, "
        f"{whole / 1e3 / len(last):.2f} us from one to the next",
        f"without a kernel: {sum(gaps) / whole:.1%} of this time",
        f"gap before a kernel: median {median / 1e3:.2f} us, half of them from {low / 1e3:.2f} to "
        f"{high / 1e3:.2f} us, longest {max(gaps) / 1e3:.1f} us", ""]), encoding="utf-8")


def main():
    gpu = sys.argv[1:2] == ["--gpu"]
    seconds = ladders.whole(os.environ.get("CPU_SECONDS") or "6", 1, "CPU_SECONDS")
    output = os.environ.get("RESULTS")
    if sys.argv[1:] == ["--committed"]:
        stages = [(stage, ladder.profiles) for ladder in ladders.ladders()
                  for stage in ladder.stages
                  if not stage.is_cuda and (ladder.profiles / stage.name).is_dir()]
    else:
        ladder = ladders.find_ladder(os.environ.get("STUDY"))
        among = [stage for stage in ladder.stages if stage.is_cuda == gpu]
        names = sys.argv[2:] if gpu else sys.argv[1:]
        output = Path(output).resolve() if output else ladder.profiles / "mine"
        stages = [(stage, output) for stage in [ladder.find(name, among=among) for name in names]
                  or among]
    os.chdir(ROOT)
    os.environ["LC_ALL"] = "C"  # a decimal point, not a comma
    if gpu:
        os.environ["PATH"] += ":/usr/local/cuda/bin"  # the toolkit's folder is often not there
        tools = [tool for tool in ("nsys", "ncu") if shutil.which(tool)]
        if ladders.has_gpu() and not tools:
            fail("found no ncu and no nsys; install NVIDIA's packages nsight-compute and "
                 "nsight-systems, or the CUDA toolkit", 77)
    elif subprocess.run(["./deps.sh", "profile"], check=False).returncode:
        sys.exit(1)
    for stage, output in stages:
        options = stage.ladder.options("profile")
        options.pop("runs", None)
        folder, most = output / stage.name, ""
        if gpu and not ladders.has_gpu():
            found = counts.count(stage)
            print(f"{stage.name}: {'counted on the simulated device' if found else 'no kernel'}",
                  *counts.text(found), "", sep="\n")
            if found:
                folder.mkdir(parents=True, exist_ok=True)
                counts.write(found, folder / "counts.csv")
            continue
        build(stage)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as work:
            if gpu:
                for tool, take in (("nsys", timeline), ("ncu", profile_gpu)):
                    if tool in tools:
                        take(stage, options, folder)
                    else:
                        print(f"{stage.name}: found no {tool}", file=sys.stderr)
            else:
                profile = Profile(stage, options, Path(work), folder)
                print(f"{stage.name}: heap", file=sys.stderr)
                profile.heap()
                print(f"{stage.name}: time", file=sys.stderr)
                most = profile.time(seconds)
        print(f"{stage.name}: written to {os.path.relpath(folder)}", file=sys.stderr)
        if most:
            ladders.show(f"{stage.name}: most time in {most}. Open next: lines.txt there, line by "
                         "line; then flame.svg in a browser, who calls what.")
