"""Runs the commands of every README as they are written there, to their end, on small sizes.

A command is a line of an indented block. If lines of the block begin with "$ ", only those are
commands, and the other lines show what the command prints. There, any number stands for any other
number, and ... for anything. "(gdb) ..." is typed into the command before it. In a paragraph,
`./run_all.sh ...` is a command too, and so is a `make` that is given a variable.

All run from the root of a clean copy of the checkout, whose path has a space. FULL=1 also runs
those that are not quick, but for those on the pages of stages and studies, which stand on the pages
above with other names.
"""

import re
import shutil
from pathlib import Path

import pytest
from programs import FULL, ROOT, copy, run, told

from bench import ladders

# Not quick, or for a stage that such a command makes.
LONG = re.compile(r"make( \w+=\S+)*( deps)?$|\b(new-stage|check|compare|step|profile|bench|"
                  r"report|gpu|site|peers|sim|sweep|tests|mkdir|sed|EXTRA|run_all|cluster)\b|"
                  r"=20|/20_")
# This is a part of it; it downloads gigabytes; it asks git for the files, and a copy has no git.
OWN_PAGE = re.compile(r"(stages|studies/\w+)/\d\d|studies/\w+/")
NOT_RUN = "make test", "make test FULL=1", "make peers", "make lint"
# A command may fail only if something is missing, and its last lines say so.
EXCUSES = (r".*(Needed, and not installed|not installed: |has no \w+; expected Python|no GPU|"
           r"has no product of|no usable CUDA device|found no (\S*nvcc|ncu|mpirun)|"
           r"gdb: .*not found).*")
# The folder of a stage, or of a step in it, or another one of a ladder.
FOLDER = r"\b(?:stages|studies/\w+)/[\w.]+(?:/\d\d\.[\w.]+)?"
INLINE = re.compile(r"`((?:\./run_all\.sh|make [^`]*[A-Z]+=)[^`]*)`")
# The smallest sizes: of a ladder's options, and of what measures.
SMALL = {"hidden": 8, "batch": 32, "train": 64, "test": 10, "samples": 64, "triplets": 64,
         "features": 8, "seconds": 0, "iterations": 2}
VARIABLES = {"BENCHMARK_MIN_TIME": 0.001, "BENCHMARK_REPETITIONS": 1, **told(
    RUNS=2, CPU_SECONDS=1, EPOCHS=1,
    **{name.upper(): value for name, value in SMALL.items()})}


def blocks(text):
    """The indented blocks, and each command within a paragraph as its own block, in order."""
    for part in re.split(r"\n\s*\n", text):
        lines = part.strip("\n").splitlines()
        if all(line.startswith("    ") for line in lines):
            yield [line[4:] for line in lines]
        elif not lines[0].startswith("    "):
            yield from ([command] for command in INLINE.findall(" ".join(part.split())))


def commands(text):
    """[(command, text typed into it, lines that it shows)]."""
    found = []
    for lines in blocks(text):
        prompts = any(line.startswith("$ ") for line in lines)
        for line in "\n".join(lines).replace("\\\n", " ").splitlines():
            if line.startswith("(gdb) "):
                found[-1][1] += f"{line[6:]}\n"
            elif prompts and not line.startswith("$ "):
                found[-1][2].append(line)
            else:
                found.append([line.removeprefix("$ "), "", []])
    return [(" ".join(re.sub(r"\s+# .*", "", line).split()), typed, shown)
            for line, typed, shown in found]


def choose():
    """{README: its commands to run}. What stands on several pages runs once, but for what makes a
    stage or a study, which the page's other commands need."""
    listed = run("git ls-files --cached --others --exclude-standard [!.]*.md", None,
                 cwd=ROOT).stdout
    chosen, seen = {}, []
    for readme in sorted(path for path in listed.split() if (ROOT / path).exists()):
        for each in commands((ROOT / readme).read_text()):
            is_wanted = each not in seen or each[0].startswith("make new-")
            is_run = (FULL and not OWN_PAGE.match(readme)) or not LONG.search(each[0])
            if is_wanted and is_run:
                chosen.setdefault(readme, []).append(each)
                seen.append(each)
    return chosen


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """The copy, and the environment of its commands: the data, and a compiler if there is a GPU. A
    stage that is built here is not built again there."""
    root = copy(tmp_path_factory.mktemp("readmes") / "a bé")
    for ladder in ladders.ladders():
        programs = (stage.program for stage in ladder.stages)
        for path in (*ladder.folder.glob("build/*.o"),  # in the order in which make builds them
                     *(path for each in programs for path in (Path(f"{each}.flags"), each))):
            if path.exists():
                (root / path.relative_to(ROOT)).parent.mkdir(exist_ok=True)
                shutil.copy(path, root / path.relative_to(ROOT))
    variables = VARIABLES | ({} if shutil.which("nvidia-smi") else {"NVCC": "no-nvcc"})
    for ladder in ladders.ladders():
        if ladder.toml["data"]:
            variables[f"{ladder.data_file.stem.upper()}_DIR"] = ladder.data[1]
    return root, variables


def on_small_sizes(command):
    """The command, with options after those that it has. No target depends on the machine."""
    study = re.search(r"(?:--study |studies/)(\w+)", command)
    name = study[1] if study else ladders.find_ladder("").name
    known = {option for ladder in ladders.ladders() if ladder.name == name  # none of a new one
             for option in (*ladder.settings, *(axis["option"] for axis in ladder.axes))}
    options = "".join(f" --{name} {value}" for name, value in SMALL.items()
                      if name in known and f"--{name} " not in command)
    if re.match(r"(\w+=\S+ )*\./run_all\.sh", command):
        return f"{command}{options} --repeats 1"
    if command.startswith("python3 -m bench ") and "--draw" not in command:
        return f"{command} --runs 1"
    if command.startswith("make new-stage"):
        return f"{command} RUNS=0"  # it begins with a check
    if re.search(r"/(train|run)(\.\S+)? |/peers/\w+\.py", command):
        return command + options
    return re.sub(r"TARGET=\S+([%x])", r"TARGET=0.01\1", command)


def missing_line(shown, output):
    """The first shown line that the output lacks, in this order. None if it has all lines."""
    def pattern(line):
        line = re.sub(r"-?\d[\d.,]*", "\0", re.sub(r"\s+", " ", line.strip()))
        return re.escape(line).replace("\0", r"-?\d[\d.,]*").replace(r"\.\.\.", ".*")

    lines = iter(re.sub(r"[ \t]+", " ", line.strip()) for line in output.splitlines())
    return next((line for line in shown if line.strip() != "..." and not any(
        re.fullmatch(pattern(line), other) for other in lines)), None)


CHOSEN = choose()


def judge(root, variables, command, typed, shown):
    """Runs a command. It may fail only where something is missing, and prints what is shown."""
    if command in NOT_RUN:
        return
    for folder, sim in re.findall(rf"({FOLDER})/(?:train|run)(\.sim)? ", command):
        run(["make", "-s", "-C", root / folder, *[sim[1:]] * bool(sim)])  # as readers have by then
    line = on_small_sizes(command) + (f" <<'END'\n{typed}END" if typed else "")
    ended = run(["bash", "-c", line], None, cwd=root, FULL=None, **variables)
    output = ended.stdout + ended.stderr
    if ended.returncode and re.search(EXCUSES, "\n".join(output.splitlines()[-3:])):
        return
    wrong = ended.returncode or missing_line(shown, output)
    assert not wrong, f"{line}: exit status or line not printed: {wrong}\n{output[-2000:]}"


# One worker of pytest-xdist has the copy.
@pytest.mark.xdist_group("readmes")
@pytest.mark.parametrize("readme", CHOSEN)
def test_the_commands_of(checkout, readme):
    root, variables = checkout
    try:
        for each in CHOSEN[readme]:
            judge(root, variables, *each)
    finally:
        for name in re.findall(r"make new-.*NAME=(\w+)", (ROOT / readme).read_text()):
            for made in (*root.glob(f"*/{name}"), *root.glob(f"*/*/{name}")):
                shutil.rmtree(made)  # the next README makes its own
