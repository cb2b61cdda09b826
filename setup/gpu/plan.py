"""What a kit runs on a machine with a GPU, in the order of its worth: see kit.py.

[kit] in ladder.toml names what is special. All else follows from the axes, [rungs] and [tests].
"""

import itertools
from typing import NamedTuple

import bench.cells
from bench import ladders, reference
from bench.base import ROOT
from bench.options import given
from bench.stage import BINDING, SPINNING, Stage

# The columns of plan.tsv. run.sh reads those before `program`. A run's kind is that of a sweep, a
# tool of compute-sanitizer, or "counters". Or it has a case: what the reference is told, too.
COLUMNS = "id", "part", "ladder", "command", "program", "kind", "round", "case", "sources", "flags"
IS_SIMULATED = bool(given("SIM"))
ROUNDS = {"steps": 8, "grid": 3}  # as far as there is time
TOOLS = "memcheck", "racecheck", "synccheck", "initcheck"
NCU = ("ncu", "--csv", "--print-units=base", "--clock-control=none", "--cache-control=none",
       "--metrics=gpu__time_duration.sum,lts__t_bytes.sum,dram__bytes.sum,"
       "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum,"
       "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum,"
       "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum,"
       "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum")
# What stands before a command. run.sh has put cuBLAS into the last one's folder.
TIMED = ["WARMUP_S=0.1"]
COMPARED = ["WARMUP_S=0"]
OF_PEERS = [*TIMED, "LD_LIBRARY_PATH=cublas"]


class Run(NamedTuple):
    """A line of the plan, before it has a name."""
    part: str
    stage: Stage
    words: list
    before: list = TIMED
    kind: str = ""
    number: int = 0  # of its round
    case: str = ""
    archive: str = ""  # of what it saves: there are several, for their size

    def line(self, name, flags):
        """Its columns. Its files have this name."""
        stage = self.stage
        ladder = stage.ladder
        folder = "kit/gpu" if stage.is_gpu else "cpu"
        program = [f"{folder}/{ladder.name}/{stage.name}"]
        if stage.source.suffix == ".py":
            program = ["python3", f"kit/{stage.source.relative_to(ROOT)}"]
        command = ["env", *self.before, *program, *self.words, "--quiet", "--csv",
                   f"rows/{name}.csv"]
        if self.case and ladder.save:
            command += [f"--{ladder.save}", f"weights/{self.archive}/{name}"]
        return (name, self.part, ladder.name, " ".join(map(str, command)), stage.name,
                self.kind, self.number, self.case, stage.sources, flags)


def chosen(stages):
    wanted = tuple(given("ONLY").split(","))
    return [stage for stage in stages if str(stage.folder.relative_to(ROOT)).startswith(wanted)]


def cuda(ladder):
    return chosen(stage for stage in ladder.stages if stage.is_cuda)


def named(ladder, key):
    return chosen(ladder.find(name, f"[kit] {key}", [*ladder.stages, *ladder.peers])
                  for name in ladder.toml["kit"][key])


def data(ladder, folder):
    return ["--data", f"kit/{folder}/{ladder.data_file.stem}"] if ladder.toml["data"] else []


def compared(part, stages, cases=(), before=COMPARED):
    """Runs on the tests' data: of these cases, or of so many that each size and case is in them."""
    selection = "order_1" if IS_SIMULATED else "stages"
    for stage in stages:
        tests = reference.selected(stage.ladder, selection)
        every = [case for case, twice in reference.pairs(tests, 99) if twice is not None]
        for number, case in enumerate(cases or every, 1):
            words = f"{tests['options']} {case} {tests['last']}"
            yield Run(part, stage, [*data(stage.ladder, "drawn"), words], before, case=words,
                      archive=f"case{number}" if cases else "others")


def cells(ladder, kind):
    """The cells of a sweep of this kind. The simulated device has one, a small one."""
    found = bench.cells.cells(ladder, kind)
    if IS_SIMULATED:
        small = {"epochs": 1, "iterations": 1, "train": 64, "test": 16}
        found = [found[0] | {key: small[key] for key in found[0].keys() & small}]
    return found


def timed(part, kind, ladder, stages, places=(), before=TIMED):
    """Rounds of runs. In each, the programs of a cell run one after another."""
    rounds = 1 if IS_SIMULATED else ROUNDS[kind]
    for number, cell, stage in itertools.product(
            range(1, 1 + rounds), places or cells(ladder, kind), stages):
        words = [*data(ladder, "data"), *ladder.words_of(cell)]
        yield Run(part, stage, words, before, kind, number)


def on_processors(ladder):
    """Runs of the CPU's stages with several numbers of threads. The baseline is slow: one run."""
    stages = named(ladder, "cpu")
    yield from compared("cpu", stages, ladder.toml["kit"]["cases"][:1])
    for run in timed("cpu", "steps", ladder, stages):
        if run.number > 1 and run.stage.name == ladder.toml["baseline"]:
            continue
        counts = ladder.toml["kit"]["threads"] if run.stage.declared("OPENMP") else [1]
        for count in counts:
            variables = SPINNING | BINDING | {"OMP_NUM_THREADS": count}
            yield run._replace(before=[f"{name}={text}" for name, text in variables.items()])


def sanitized(stages, tools):
    """A small run of each under each of some tools."""
    for tool, stage in itertools.product(tools, stages):
        case = reference.pairs(reference.selected(stage.ladder, "gpu"))[0][0]
        command = [*COMPARED, "compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
        for run in compared("sanitize", [stage], [case], command):
            yield run._replace(case="", kind=tool)


def of_peers(ladder):
    """Runs of peers in the cells of the steps, with the settings of the grid."""
    peers = named(ladder, "peers")
    places = [cell | ladder.settings for cell in cells(ladder, "steps")]
    yield from compared("peers", peers, ladder.toml["kit"]["cases"][1:2], OF_PEERS)
    yield from timed("peers", "grid", ladder, peers, places, OF_PEERS)


def plan():
    main, *studies = ladders.ladders()
    every = cuda(main)
    first = named(main, "sanitized")
    others = [stage for ladder in studies for stage in cuda(ladder)]
    yield from compared("weights", every, [] if IS_SIMULATED else main.toml["kit"]["cases"])
    yield from compared("weights", others)
    yield from sanitized(first, TOOLS)
    yield from sanitized([stage for stage in every + others if stage not in first], TOOLS[:2])
    yield from timed("steps", "steps", main, every)
    yield from timed("grid", "grid", main, [stage for stage in every if not stage.is_step])
    if not IS_SIMULATED:
        yield from of_peers(main)
    for stage in named(main, "counted"):
        words = [*data(main, "data"), main.toml["counts"][-1]["run"]]
        yield Run("counters", stage, words, [*COMPARED, *NCU], "counters")
    rounds = [run for ladder in studies for run in timed("studies", "steps", ladder, cuda(ladder))]
    yield from sorted(rounds, key=lambda run: run.number)  # one of all studies first
    yield from on_processors(main)
