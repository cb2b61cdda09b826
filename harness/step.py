#!/usr/bin/python3
"""Takes a reader through the stages of a ladder. make calls it, with STUDY for the ladder.

    step.py step STUDY STAGE       shows a stage: parts of its README, the diff against the stage
                                   before, and the times of both on this machine
    step.py diff STUDY STAGE       shows what a stage changed, with colours and a pager where git
                                   uses them
    step.py new STUDY FROM NAME    makes your own stage from a copy of another, builds and tests it
"""

import re
import signal
import subprocess
import sys

import ladders
from ladders import fail

# The parts of a stage's README that a reader sees, in this order.
SECTIONS = "The idea", "Predict before you measure", "The prediction", "What the profile shows"


def run(*words, expected=(0,)):
    status = subprocess.run(words, cwd=ladders.ROOT, check=False).returncode
    if status not in expected:
        sys.exit(status if status > 0 else 128 - status)


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


def heading(text):
    print(f"\033[1m{text}\033[m\n" if sys.stdout.isatty() else f"{text}\n")


def step(ladder, stage):
    stage = ladder.find(stage)
    before = stage.before
    text = (stage.folder / "README.md").read_text(encoding="utf-8")
    title, *parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    contents = dict(zip(parts[::2], parts[1::2]))
    idea, question, prediction, profile = SECTIONS

    def section(name):
        heading(name)
        print(contents.get(name, "").strip("\n"), end="\n\n")

    heading(title.split("\n")[0].removeprefix("# "))
    section(idea)
    section(question)
    if before:
        heading(f"The diff against {before.name}")
        show_diff(stage, before)
        print()
    section(prediction)
    options = ladder.options("step")
    shown = [f"{name} {value}" for name, value in options.items() if name != "runs"]
    heading(f"On this machine: {', '.join(shown)}")
    for each in filter(None, (before, stage)):
        run(*each.build)  # says so if it leaves the stage out
    if stage.program.exists() and before:
        run(sys.executable, "harness/compare.py", "--study", ladder.name, "--table", "step", "--",
            before.name, stage.name, expected=(0, 77))
    elif stage.program.exists():
        run(*stage.command, *ladder.words(options), "--quiet")
    print()
    section(profile)


def new(ladder, origin, name):
    origin = ladder.find(origin, "FROM")
    if not ladders.STAGE_NAME.fullmatch(name):
        fail(f"NAME: found '{name}', expected two digits, an underscore and a word, such as "
             "06_mine")
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
    kept = re.sub(rf"^(ORIGIN.*|{re.escape(comment)})\n", "", makefile, flags=re.MULTILINE)
    (folder / "Makefile").write_text(f"{comment}\nORIGIN = {origin.name}\n{kept}", encoding="utf-8")
    (folder / "README.md").write_text(
        f"# {name}: {title.replace('_', ' ')}\n"
        + "".join(f"\n## {section}\n\n(Not written yet.)\n" for section in SECTIONS),
        encoding="utf-8")
    made = sorted(str(path.relative_to(ladders.ROOT)) for path in folder.iterdir())
    print(f"Made from {origin.name}: {' '.join(made)}")
    run("make", "--no-print-directory", "check", f"STUDY={ladder.name}", f"STAGE={name}")


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader may stop early
    sys.stdout.reconfigure(line_buffering=True)  # in order with what git and make print
    commands = {function.__name__: function for function in (step, diff, new)}
    command, study, *arguments = sys.argv[1:]
    commands[command](ladders.find_ladder(study), *arguments)


if __name__ == "__main__":
    main()
