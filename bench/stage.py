"""A program of a ladder: a stage, or a peer that the stages are compared with."""

import contextlib
import functools
import hashlib
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from bench.base import ROOT

OWN = "20"  # the first number of a reader's own stages
STAGE_NAME = re.compile(r"[0-9][0-9](\.[0-9])?_[a-z0-9_]+")

# GCC's OpenMP lets a thread spin at a barrier for milliseconds before it sleeps. Each batch loses
# them while another process holds the late thread's core. A tenth is enough on a quiet machine:
# with a hundredth, threads slept in every batch on an Ice Lake, those of libraries too.
SPINNING = {"GOMP_SPINCOUNT": "20000"}
# A thread stays on one core, and two share a core only if there are more threads than cores.
BINDING = {"OMP_PLACES": "cores", "OMP_PROC_BIND": "true"}


# What changes nothing that is timed: comments, what is said of an error, and in a Makefile what is
# only read.
COMMENT = {
    "C": re.compile(r'//[^\n]*|/\*.*?\*/|report_error\((?:"(?:\\.|[^"\\])*"|[^";])*\)', re.DOTALL),
    "Makefile": re.compile(r"#[^\n]*|^(?:PREDICTED|CELL|TIMES|\w+_TITLE) *=[^\n]*", re.MULTILINE),
    "Python": re.compile(r"#[^\n]*"),
}


def bare(path):
    """The text of a source without comments and white space."""
    language = "Makefile" if path.name == "Makefile" else "Python"
    if path.suffix in (".c", ".cu", ".h", ".cuh"):
        language = "C"
    text = path.read_text(encoding="utf-8", errors="replace")
    return "".join(COMMENT[language].sub("", text).split())


def git_diff(sources, *options, cwd=ROOT, **how):
    """What git's diff of two sources ended as."""
    return subprocess.run(["git", "diff", "--no-index", "--histogram", *options, *sources],
                          cwd=cwd, text=True, check=False, **how)


def processors():
    """How many processors the programs may use: those of our mask (taskset), or fewer by a
    container's quota, of which OpenMP does not know: all threads stand still once it is used up."""
    count = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):  # no such file; "max"
        paid, period = map(int, Path("/sys/fs/cgroup/cpu.max").read_text(encoding="utf-8").split())
        count = max(1, min(count, paid // period))
    return count


def options_of(cell):
    """A cell in words, as {option: its value, in words}."""
    return dict(re.findall(r"([\w-]+) (\w+)", cell))


class Question(NamedTuple):
    """What a stage's page asks: a ratio over the stage before, or a time, of a column without its
    _s, in a cell. Where nothing here can answer it, all of these are empty."""
    predicted: str = ""
    unit: str = ""
    column: str = ""
    cell: str = ""

    @property
    def options(self):
        return options_of(self.cell)


class Stage:
    def __init__(self, ladder, source):
        self.ladder = ladder
        self.source = source
        self.folder = source.parent
        self.is_peer = source.stem.startswith("peer_")
        self.name = source.stem if self.is_peer else self.folder.name
        self.number = self.name.split("_")[0]  # 01.1 of 01.1_loop_order
        self.short = self.name if self.is_peer else self.number
        self.is_cuda = source.suffix == ".cu"
        self.is_step = "." in self.name
        self.program = source if source.suffix == ".py" else source.with_suffix("")
        # The words with which make builds it, from the root of the repository. Where the machine
        # cannot, there is no program then, and make prints "NAME: left out, " and the reason.
        self.build = [str(self.folder.relative_to(ROOT))]
        if self.is_peer:
            self.build = ["-C", str(self.folder), self.name]

    def read(self, name):
        """The text of a file of its folder, or "" where it is not there."""
        path = self.folder / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def declared(self, name):
        """What its own Makefile declares in this variable, or "": CONTRIBUTING.md lists them."""
        name = f"{self.name}_{name}" if self.is_peer else name
        found = re.findall(rf"^{name} *= *(.*)", self.read("Makefile"), re.MULTILINE)
        return found[-1] if found else ""

    @functools.cached_property
    def move(self):
        """Its one idea in a few words: what its README's title says after a colon, or ""."""
        return self.read("README.md").partition("\n")[0].partition(": ")[2]

    @property
    def title(self):
        """What tables call it: a stage by its name, a peer by its library's."""
        return self.declared("TITLE") if self.is_peer else self.name

    @property
    def question(self):
        """What its page asks, as its Makefile says it: PREDICTED = 17 × train, hidden 32, batch 32,
        for example. Without a cell there, it is that of CELL."""
        number, _, cell = self.declared("PREDICTED").partition(", ")
        return Question(*number.split(), cell=cell or self.declared("CELL"))

    @property
    def digits(self):
        """How many binary digits its products have of a factor, or 0 for all."""
        return int(self.declared("DIGITS") or 0)

    @property
    def is_gpu(self):
        return self.is_cuda or self.declared("DEVICE") == "gpu"

    @property
    def command(self):
        """The words that start the program. RUN in a stage's Makefile goes before its name. If it
        begins with a dot, it names a script, as seen from the stage's folder."""
        words = self.declared("RUN").split()
        if words and words[0].startswith("."):
            words[0] = str((self.folder / words[0]).resolve())
        return [*words, str(self.program)]

    @property
    def environment(self):
        """The environment that the program is started in. Variables that are set stay as they are,
        but for those of OpenBLAS: a system may have chosen older kernels for all its programs.
        Threads are bound where the program uses OpenMP itself. That of a library would bind the
        first thread before main, and other libraries' threads would start on the same core. With
        RUN, all processes would begin at the same core."""
        found = dict(SPINNING)
        chosen = os.environ.keys() & {*BINDING, "GOMP_CPU_AFFINITY"}
        if not chosen and not self.declared("RUN") and self.declared("OPENMP"):
            found |= BINDING
        if processors() < len(os.sched_getaffinity(0)):
            found["OMP_NUM_THREADS"] = str(processors())
        return found | {name: value for name, value in os.environ.items()
                        if not name.startswith("OPENBLAS_")}

    @functools.cached_property
    def sources(self):
        """A hash of its source and its Makefile, and of all that they include or import of the
        repository, without comments and white space: has it changed since it was measured? The
        .c files in common/ read options and data and write results: none of that is timed."""
        found = {}
        left = [self.source, self.folder / "Makefile"]
        for path in left:
            if path in found or not path.is_file():
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            found[path] = bare(path)
            for name in re.findall(r'^(?:#include "|import |from )([\w./]+)', text, re.MULTILINE):
                suffixes = [".h", ".cuh", ".c", ".py", ".pyx"]
                if name.startswith("common/"):
                    suffixes.remove(".c")
                left += [(folder / name).with_suffix(suffix) for suffix in suffixes
                         for folder in (path.parent, ROOT, ROOT / "bench/peers")]
        return hashlib.sha256("\n".join(map(found.get, sorted(found))).encode()).hexdigest()[:12]

    @property
    def place(self):
        """What sorts the stages: their names. But a step that begins at its folder's stage, or
        begins anew and is not the first, comes after it."""
        chapter, origin = self.folder.parent.name, self.declared("ORIGIN")
        later = origin == chapter or (origin and self.is_step and self.number[-1] > "1")
        return (chapter if later else "") + self.name

    @property
    def before(self):
        """The stage that it is compared with: its Makefile's ORIGIN, or the one before, or None."""
        if origin := self.declared("ORIGIN"):
            return self.ladder.find(origin, f"ORIGIN in {self.folder.relative_to(ROOT)}/Makefile")
        place = 0 if self.is_peer else self.ladder.stages.index(self)
        return self.ladder.stages[place - 1] if place else None
