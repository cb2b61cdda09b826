"""Takes a reader through the stages of a ladder: make's step, diff, new-stage, new-study, export"""

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from statistics import median

from bench import ladders, running
from bench.base import ROOT, fail
from bench.options import given
from bench.stage import STAGE_NAME

WIDTH = 100  # of a source's lines: .clang-format


def show_diff(ladder):
    stage = ladder.find(given("STAGE"))
    before = stage.before
    if given("FROM"):
        before = ladder.find(given("FROM"), "FROM")
    diff(stage, before)


def diff(stage, before):
    if not before:
        fail(f"STAGE: found '{stage.name}', the first stage; expected a later one")
    # git exits with 1 if the files differ, and by a signal if the reader of its pipe stops early.
    status = subprocess.run(
        ["git", "diff", "--no-index", "--histogram", "-U5",
         *(str(each.source.relative_to(ROOT)) for each in (before, stage))],
        cwd=ROOT, check=False).returncode
    if status not in (0, 1, -signal.SIGPIPE):
        sys.exit(max(status, 1))


def show_answers(ladder, answer, runs):
    """Prints the reader's answer beside the measured times, in the ladder's unit, or in ms where
    that has many digits."""
    unit, _, of_what = ladder.toml["unit"].partition(" ")
    scale = {"s": 1, "ms": 1e3, "µs": 1e6}[unit]
    each = 1 / ladder.sum_of(ladder.toml["units"], runs[0])
    if unit == "µs" and scale * each * runs[0][ladder.time] >= 10000:
        unit = "ms"
        scale = 1e3
    print(f"\n{unit} {of_what}\n{'your answer':13}{answer:>12}")
    for column in (ladder.time, *(f"{phase}_s" for phase in ladder.phases)):
        times = [row[column] for row in runs]
        if all(times):
            print(f"{column.removesuffix('_s'):13}{scale * each * median(times):12.4g}")


def step(ladder):
    from bench import compare  # needs numpy, and a diff does not

    stage = ladder.find(given("STAGE"))
    readme = stage.folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else f"# {stage.name}\n"
    shown = re.sub(r"^!\[.*\)\n|^\|[-:| ]+\n|^<!--.*?-->\n|<!--.*?-->", "", text,
                   flags=re.MULTILINE)
    shown = re.sub(r"\[([^][]*)\]\([^)]*\)", r"\1", shown)
    title, *parts = re.split(r"^## (.*)\n", shown, flags=re.MULTILINE)
    contents = dict(zip(parts[::2], parts[1::2]))

    def show(*names):
        for name in names:
            if name in contents:
                print(f"## {name}\n\n{contents[name].strip()}\n")

    print(title.split("\n")[0] + "\n")
    show("The idea")
    for picture in re.findall(r"^!\[.*\]\((.*)\)$", text, re.MULTILINE):
        print(f"picture: {(stage.folder / picture).relative_to(ROOT)}\n")
    show("Predict before you measure")
    answer = "-"
    if sys.stdin.isatty() and sys.stdout.isatty():
        answer = input("Your answer? Press Enter to go on: ") or "-"
    if stage.before:
        print(f"## The diff against {stage.before.name}\n")
        diff(stage, stage.before)
    show("What the diff shows", "The arithmetic", "The prediction")
    options = compare.read_options(ladder, "step")
    print("## On this machine\n")
    try:
        if stage.before:
            (_, runs), _ = compare.compare_in_cell((stage.before, stage), options)
        else:
            compare.build(stage)
            runs = [compare.run(stage, ladder.words(options))]
        show_answers(ladder, answer, runs)
    except SystemExit as ended:  # it has said why
        if ended.code != 77:
            raise
        print(f"`make check STAGE={stage.name}{ladder.chosen_by('STUDY=')}` tests {stage.name} on "
              "a simulated device.")
    show("The roof", "What the profile shows")
    if "Exercises" in contents:
        print(f"Exercises: {readme.relative_to(ROOT)}")
    later = ladder.stages[ladder.stages.index(stage) + 1:]
    if later:
        print(f"Next: make step{ladder.chosen_by('STUDY=')} STAGE={later[0].number}")


def new(ladder):
    origin = ladder.find(given("FROM"), "FROM")
    taken = {stage.number for stage in ladder.stages}
    free = next(f"{number}_mine" for number in range(20, 100) if str(number) not in taken)
    name = given("NAME", free)
    number, _, move = name.partition("_")
    if number in taken or not STAGE_NAME.fullmatch(name):
        fail(f"NAME: found '{name}', expected two digits that no stage has, an underscore and a "
             f"word, such as {free}")
    folder = ladder.folder / name
    if "." in number:  # a step lies in its stage's folder, if there is one
        for stage in ladder.stages:
            if stage.name.startswith(f"{number[:2]}_"):
                folder = stage.folder / name
    folder.mkdir()
    source = origin.source.read_text(encoding="utf-8").replace(
        f"Stage {origin.number}", f"Stage {number}", 1)
    about = re.match("(// .*\n)*", source)[0]
    if about.find("\n") > WIDTH:  # the number has grown
        source = textwrap.fill(about.replace("\n// ", " "), WIDTH,
                               subsequent_indent="// ") + "\n" + source[len(about):]
    (folder / origin.source.name).write_text(source, encoding="utf-8")
    makefile = (origin.folder / "Makefile").read_text(encoding="utf-8").replace(
        os.path.relpath(ROOT, origin.folder), os.path.relpath(ROOT, folder))
    makefile = re.sub("^ORIGIN *=.*\n", "", makefile, flags=re.MULTILINE)
    (folder / "Makefile").write_text(
        "# What `make diff`, `step` and `check` compare it with.\n"
        f"ORIGIN = {origin.name}\n{makefile}", encoding="utf-8")
    (folder / "README.md").write_text(f"# {name}: {move}\n", encoding="utf-8")
    place = folder.relative_to(ROOT)
    print(f"Made {place} from {origin.name}. To throw it away: rm -r {place}")
    # Nobody has to know yet how fast a copy is.
    return make("check", f"STUDY={ladder.name}", f"STAGE={name}", f"RUNS={given('RUNS', '0')}")


def study(_):
    name = given("NAME")
    folder = ROOT / "studies" / name
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or folder.exists():
        fail(f"NAME: found '{name}', expected small letters, digits and _, and a name that no "
             "study has, such as heat")
    shutil.copytree(ROOT / "tests/pi", folder,
                    ignore=shutil.ignore_patterns("build", "run", "*.flags"))
    print(f"Made studies/{name}: two stages that sum a series to pi. CONTRIBUTING.md says "
          "what to replace.")
    return make("check", f"STUDY={name}", "STAGE=01", "RUNS=0")


def export(ladder):
    stage = ladder.find(given("STAGE"))
    folder = Path(given("DIR")).resolve()
    if folder.exists():
        fail(f"DIR: found '{given('DIR')}', expected a new folder")
    return make("-C", stage.folder, "export", f"DIR={folder}")


def make(*words):
    # Ctrl-C ends it and what it has started, and then this program: no check goes on alone.
    status, *_ = running.run(["make", "--no-print-directory", *words], cwd=ROOT,
                             keep="", grace=2 * running.GRACE_S)  # it ends its own first
    return status if status >= 0 else 128 - status


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader may stop early
    commands = {"step": step, "diff": show_diff, "new": new, "export": export, "study": study}
    return commands[sys.argv[1]](ladders.find_ladder(given("STUDY")))
