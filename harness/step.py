"""Takes a reader through the stages of a ladder. make calls it, with STUDY for the ladder.

    step.py step STUDY STAGE       shows a stage: parts of its README, the diff against the stage
                                   before, and the times of both on this machine
    step.py diff STUDY STAGE       shows what a stage changed, with colours and a pager where git
                                   uses them
    step.py asm STUDY STAGE [FUNCTION]
                                   shows the instructions of a stage, or of a function in it, each
                                   under the line of the source that it comes from
    step.py new STUDY FROM NAME    makes your own stage from a copy of another, builds and tests it
"""

import os
import re
import shutil
import signal
import subprocess
import sys

from harness import ladders
from harness.ladders import fail

# The parts of a stage's README that a reader sees, in this order.
SECTIONS = "The idea", "Predict before you measure", "The prediction", "What the profile shows"


def run(*words, expected=(0,)):
    """Runs a command. Any other exit status ends the program. Returns the status."""
    status = subprocess.run(words, cwd=ladders.ROOT, check=False).returncode
    if status not in expected:
        sys.exit(status if status > 0 else 128 - status)
    return status


def show_diff(stage, before):
    # git exits with 1 if the files differ, and by a signal if the reader of its pipe stops early.
    run("git", "diff", "--no-index", "--histogram", "--function-context",
        *(str(each.source.relative_to(ladders.ROOT)) for each in (before, stage)),
        expected=(0, 1, -signal.SIGPIPE))


def diff(ladder, stage):
    stage = ladder.find(stage)
    if not stage.before:
        fail(f"STAGE: found '{stage.name}', the first stage; expected a later one")
    show_diff(stage, stage.before)


def output(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, **options)
    if done.returncode:
        sys.exit(1)  # it has said why
    return done.stdout


def kernels(stage):
    """(functions, heading, instructions) for each kernel."""
    if not shutil.which("cuobjdump"):
        fail("found no cuobjdump (the CUDA toolkit) in PATH: it shows a kernel's instructions", 77)
    text = output("c++filt", "-p", input=output("cuobjdump", "-sass", stage.program))
    text = re.sub(r"\s*/\* 0x[0-9a-f]+ \*/", "", text)  # the instructions as numbers
    parts = re.split(r"^\s*Function : (.*)\n", text, flags=re.MULTILINE)
    for name, text in zip(parts[1::2], parts[2::2]):
        yield [name.split("<")[0]], name, text


def instructions(stage):
    """(functions, heading, instruction) for each instruction that comes from the stage's source.
    It is in the first of the functions, which was inlined into the others."""
    source = stage.source.read_text(encoding="utf-8").split("\n")
    here = re.compile(rf".*/{stage.name}/{stage.source.name}:(\d+)")
    intel = ("-M", "intel") if os.uname().machine == "x86_64" else ()
    listing = output("objdump", "-dl", "--inlines", "--no-show-raw-insn", *intel, stage.program)
    name = place = ""
    # Above an instruction, objdump prints its function and line if they are others than before. It
    # always prints which functions that one was inlined into.
    for head, text in re.findall(r"((?:.*\n)*?)( +[0-9a-f]+:\t.*)\n", listing):
        if found := re.search(r"^([\w.]+)\(\):\n(/.*:\d+)?", head, re.MULTILINE):
            name, place = found[1], found[2] or ""
        elif found := re.search(r"^/.*:\d+", head, re.MULTILINE):
            place = found[0]
        callers = re.findall(r"^inlined by (.*) \((.*)\)$", head, re.MULTILINE)
        own = {function.split(".")[0]: int(found[1])
               for where, function in ((place, name), *callers) if (found := here.match(where))}
        if own:
            function, line = next(iter(own.items()))
            yield own, f"{function}, {line}: {source[line - 1].strip()}", text


def asm(ladder, stage, function=""):
    stage = ladder.find(stage)
    run(*stage.build, "-s")
    if not stage.program.exists():
        sys.exit(77)  # make has said why
    functions, shown = {}, None
    for within, place, text in (kernels if stage.is_cuda else instructions)(stage):
        functions.update(dict.fromkeys(within))
        if function in ("", *within):
            print(*([] if place == shown else [place]), text, sep="\n")
            shown = place
    if not shown:
        fail(f"FUNCTION: found '{function}', expected one of: {' '.join(functions)}")


def heading(text):
    print(f"\033[1m{text}\033[m\n" if sys.stdout.isatty() else f"{text}\n")


def step(ladder, stage):
    stage = ladder.find(stage)
    before = stage.before
    readme = stage.folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else f"# {stage.name}\n"
    text = re.sub(r"^!\[.*\)\n|^\|[-:| ]+\n|^<!--.*?-->\n|<!--.*?-->", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^][]*)\]\([^)]*\)", r"\1", text)
    title, *parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    contents = dict(zip(parts[::2], parts[1::2]))
    idea, question, prediction, profile = SECTIONS

    def section(name):
        if name in contents:
            heading(name)
            print(contents[name].strip("\n"), end="\n\n")

    heading(title.split("\n")[0].removeprefix("# "))
    section(idea)
    section(question)
    if sys.stdin.isatty() and sys.stdout.isatty():
        print("Your answer? Press Enter to go on: ", end="", flush=True)
        sys.stdin.readline()
        print()
    if before:
        heading(f"The diff against {before.name}")
        show_diff(stage, before)
        print()
    section(prediction)
    options = ladder.options("step")
    shown = [f"{name} {value}" for name, value in options.items() if name != "runs"]
    heading(f"On this machine: {', '.join(shown)}")
    others = [before] if before else []
    if not stage.is_step and before and before.name.startswith(f"{stage.name[:2]}."):
        # Its README is about all of the steps.
        first = next(each for each in ladder.stages if each.name[:2] == stage.name[:2])
        others += [first.before] if first.before else []
    for each in (*others, stage):
        if not each.program.exists():
            print(f"Building {each.name}")
        run(*each.build, "-s")  # says so if it leaves the stage out
    can_run = stage.program.exists()
    for other in others if can_run else []:
        can_run = run("harness/start.py", "compare", "--study", ladder.name, "--table",
                      "step", "--", other.name, stage.name, expected=(0, 77)) == 0
    if not others and can_run:
        run(*stage.command, *ladder.words(options), "--quiet")
    print()
    section(profile)
    if stage.is_cuda and not can_run:
        print(f"{stage.name} cannot run here. `make check STAGE={stage.name}"
              f"{ladder.chosen_by('STUDY=')}` tests it on a simulated\ndevice, and `make sim` "
              "builds it for one.")


def new(ladder, origin, name):
    origin = ladder.find(origin, "FROM")
    if not ladders.STAGE_NAME.fullmatch(name):
        fail(f"NAME: found '{name}', expected two digits, an underscore and a word, such as "
             "20_mine")
    number, title = name.split("_", 1)
    for folder in ladder.folder.iterdir():
        if folder.name.startswith(f"{number}_"):
            fail(f"NAME: found '{name}', expected another number: "
                 f"{folder.relative_to(ladders.ROOT)} has this one")
    folder = ladder.folder / name
    folder.mkdir()
    first, rest = origin.source.read_text(encoding="utf-8").split("\n", 1)
    was = origin.name.split("_")[0]
    (folder / origin.source.name).write_text(
        first.replace(f"Stage {was}", f"Stage {number}, from {origin.name}") + "\n" + rest,
        encoding="utf-8")
    comment = "# What `make diff`, `step` and `check` compare this stage with."
    makefile = (origin.folder / "Makefile").read_text(encoding="utf-8")
    kept = re.sub(rf"^(MOVE.*|ORIGIN.*|{re.escape(comment)})\n", "", makefile, flags=re.MULTILINE)
    move = title.replace("_", " ")
    (folder / "Makefile").write_text(
        f"MOVE = {move}\n{comment}\nORIGIN = {origin.name}\n{kept}", encoding="utf-8")
    (folder / "README.md").write_text(
        f"# {name}: {move}\n"
        + "".join(f"\n## {section}\n\n(Not written yet.)\n" for section in SECTIONS),
        encoding="utf-8")
    made = sorted(str(path.relative_to(ladders.ROOT)) for path in folder.iterdir())
    print(f"Made from {origin.name}: {' '.join(made)}")
    run("make", "--no-print-directory", "check", f"STUDY={ladder.name}", f"STAGE={name}")


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader may stop early
    sys.stdout.reconfigure(line_buffering=True)  # in order with what git and make print
    commands = {function.__name__: function for function in (step, diff, asm, new)}
    command, *words = sys.argv[1:] or [""]
    numbers = {"step": (2,), "diff": (2,), "asm": (2, 3), "new": (3,)}
    if len(words) not in numbers.get(command, ()):
        fail(f"found '{' '.join(sys.argv[1:])}', expected: step STUDY STAGE, diff STUDY STAGE, asm "
             "STUDY STAGE [FUNCTION], or new STUDY FROM NAME")
    commands[command](ladders.find_ladder(words[0]), *words[1:])
