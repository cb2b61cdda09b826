"""Takes a reader through the stages of a ladder. make calls it, with STUDY for the ladder.

    step.py step STUDY STAGE       shows a stage: parts of its README, the diff against the stage
                                   before, and the times of both on this machine
    step.py diff STUDY STAGE       shows what a stage changed, with colours and a pager where git
                                   uses them
    step.py new STUDY FROM NAME    makes your own stage from a copy of another, builds and tests it;
                                   with RUNS=8, it compares the times, too
    step.py study STUDY NAME       makes a study of your own from a copy of the smallest one
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from statistics import median

from harness import ladders, rows, running
from harness.ladders import fail

# The parts of a stage's README that a reader sees, in this order.
SECTIONS = ("The idea", "Predict before you measure", "What the diff shows", "The arithmetic",
            "The prediction", "What the profile shows")
COLOURLESS = ["--no-color"] * bool(os.environ.get("NO_COLOR"))  # git does not know the variable


def run(*words, expected=(0,)):
    """Runs a command. Any other exit status ends the program. Returns the status."""
    status = subprocess.run(words, cwd=ladders.ROOT, check=False).returncode
    if status not in expected:
        sys.exit(status if status > 0 else 128 - status)
    return status


def show_diff(stage, before):
    # git exits with 1 if the files differ, and by a signal if the reader of its pipe stops early.
    run("git", "diff", "--no-index", "--histogram", "--function-context", *COLOURLESS,
        *(str(each.source.relative_to(ladders.ROOT)) for each in (before, stage)),
        expected=(0, 1, -signal.SIGPIPE))


def diff(ladder, stage):
    stage = ladder.find(stage)
    if not stage.before:
        fail(f"STAGE: found '{stage.name}', the first stage; expected a later one")
    show_diff(stage, stage.before)


def heading(text):
    bold = sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not COLOURLESS
    print(f"\033[1m{text}\033[m\n" if bold else f"{text}\n")


def flow(text):
    """Markdown for a terminal: paragraphs and items of lists in lines of its width."""
    return text if not sys.stdout.isatty() else re.sub(
        r"^(?![ |]).+(?:\n(?!- |\d+\. |\|| {4}).+)*", lambda found: ladders.fill(
            " ".join(found[0].split()), sys.stdout, "  " * found[0].startswith("- ")), text,
        flags=re.MULTILINE)


def ask(unit, what, before):
    """The reader's answer, which is asked for on a terminal: (number, whether it is a factor), or
    None."""
    factor = f", or how many times as fast as {before.name}, such as 2x" if before else ""
    while sys.stdin.isatty() and sys.stdout.isatty():
        print(f"Your answer: {what} in {unit}{factor}? Press Enter to go on: ", end="", flush=True)
        words = sys.stdin.readline().strip()
        found = re.fullmatch(r"(\d*\.?\d+)(x|×|)", words.replace(",", ""))
        if not words or (found and float(found[1]) and (before or not found[2])):
            print()
            return words and (float(found[1]), bool(found[2]))
        print(f"Found '{words}', expected a number such as 350.")
    return None


def ceilings(ladder, threads):
    """{"flops" or what `make bench` measures: how many a second}, of this machine with so many
    threads. The first is measured now. The others were, if `make bench` has been run."""
    name = subprocess.run([ladders.ROOT / "harness/machine.sh", "--name"], stdout=subprocess.PIPE,
                          text=True, check=True).stdout.strip()
    file = ladders.ROOT / "report/results" / name / "bench/ceilings.json"
    found = rows.read_ceilings(file) if file.exists() else ()
    return {what: rate for what, count, rate in found if count == threads} | {
        "flops": 1e9 * running.rate(threads) / ladder.width}


def show_answers(stage, column, terms, answer, sides, made_for):
    """Prints the time that the terms predict, the reader's and the measured one, in the ladder's
    unit. `sides` are the rows of the stage before, if there is one, and of the stage. In
    the terms, a time is in seconds, and `before` is the time of the stage before."""
    ladder, row = stage.ladder, sides[-1][0]
    unit, units = ladder.toml["unit"], ladder.sum_of(ladder.toml["units"], row)
    times = [median(each[column] for each in side) / units for side in sides]
    before, measured = times[0], times[-1]
    scale = {"s": 1, "ms": 1e3, "µs": 1e6}[unit.split()[0]]
    known = ceilings(ladder, row["threads"] or 1) if terms else {}
    words = re.findall(r"[A-Za-z]\w*", " ".join(terms))
    used = {word: known[word] for word in words if word in known}
    missing = [word for word in words if word not in {"before", *row, *known}]
    predicted = terms and not missing and ladder.sum_of(terms, row | known | {"before": before})
    answered = answer and (before / answer[0] if answer[1] else answer[0] / scale)
    head = f"{column.removesuffix('_s')}, {unit}"
    print(f"\n{head:24}    predicted  your answer     measured\n{stage.name:24}", end="")
    for time in (predicted, answered, measured):
        print(f"{float(f'{scale * time:.3g}'):13,.9g}" if time else f"{'-':>13}", end="")
    print("\n")
    ladders.show("; ".join([
        f"Predicted for this machine: {column} = {' + '.join(terms)}",
        *(f"{word}: {rate / 1e9:.3g} billion a second" for word, rate in used.items())])
        if predicted else f"The prediction above {made_for}."
        + f" For this one, it needs {' and '.join(missing)} of `make bench`." * bool(missing))


def step(ladder, stage):
    from harness import compare  # needs numpy, and a diff does not

    stage = ladder.find(stage)
    before = stage.before
    readme = stage.folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else f"# {stage.name}\n"
    pictures = re.findall(r"^!\[.*\]\((.*)\)$", text, re.MULTILINE)
    declared = re.search(r"<!-- predicted: (\w+) = (.*) -->", text)
    column, terms = (declared[1], declared[2].split(" + ")) if declared else (ladder.time, [])
    text = re.sub(r"^!\[.*\)\n|^\|[-:| ]+\n|^<!--.*?-->\n|<!--.*?-->", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^][]*)\]\([^)]*\)", r"\1", text)
    title, *parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    contents = dict(zip(parts[::2], parts[1::2]))
    idea, question, *explanation, profile = SECTIONS

    def section(name):
        if name in contents:
            heading(name)
            print(flow(contents[name].strip("\n")), end="\n\n")

    heading(title.split("\n")[0].removeprefix("# "))
    section(idea)
    for picture in pictures:
        print(f"picture: {(stage.folder / picture).relative_to(ladders.ROOT)}\n")
    section(question)
    answer = ask(ladder.toml["unit"], column.removesuffix("_s"), before)
    if before:
        heading(f"The diff against {before.name}")
        show_diff(stage, before)
        print()
    for name in explanation:
        section(name)
    options = compare.read_options(ladder, "step")
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
    sides = []
    if stage.program.exists():
        try:
            for other in reversed(others):
                sides = compare.compare_in_cell((other, stage), options)[0]
            sides = sides or [[compare.run(stage, ladder.words(options))]]
        except ladders.Failure as failure:
            if failure.code != 77:
                raise
    if sides:
        named = re.search("reference machine|EPYC of family [0-9]+|H100",
                          contents.get(explanation[-1], ""))
        show_answers(stage, column, terms, answer, sides,
                     f"is for the {named[0]}" if named else "names no machine")
    print()
    section(profile)
    if stage.is_cuda and not sides:
        ladders.show(f"{stage.name} cannot run here. `make check STAGE={stage.name}"
                     f"{ladder.chosen_by('STUDY=')}` tests it on a simulated device, and "
                     "`make sim` builds it for one.")


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
    ladders.show(f"Made from {origin.name}: {' '.join(made)}")
    # Nobody has to know yet how fast a copy is.
    run("make", "--no-print-directory", "check", f"STUDY={ladder.name}", f"STAGE={name}",
        f"RUNS={os.environ.get('RUNS') or 0}")


def study(_, name):
    folder, smallest = ladders.ROOT / "studies" / name, ladders.ROOT / "tests/pi"
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        fail(f"NAME: found '{name}', expected small letters, digits and _, such as heat")
    if name in {ladder.name for ladder in ladders.ladders()} or folder.exists():
        fail(f"NAME: found '{name}', expected another name: there is a ladder of this one")
    shutil.copytree(smallest, folder, ignore=shutil.ignore_patterns("build", "run", "*.flags"))
    ladders.show(f"Made studies/{name}: two stages that sum a series to pi. Replace the work in "
                 "run.[ch], reference.c and the stages, and say so in ladder.toml. CONTRIBUTING.md "
                 "explains them.")
    run("make", "--no-print-directory", "check", f"STUDY={name}", "STAGE=01", "RUNS=0")


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader may stop early
    sys.stdout.reconfigure(line_buffering=True)  # in order with what git and make print
    commands = {"step": (step, 2), "diff": (diff, 2), "new": (new, 3), "study": (study, 2)}
    command, *words = sys.argv[1:] or [""]
    function, count = commands.get(command, (None, -1))
    if len(words) != count:
        fail(f"found '{' '.join(sys.argv[1:])}', expected: step STUDY STAGE, diff STUDY STAGE, "
             "new STUDY FROM NAME, or study STUDY NAME")
    function(ladders.find_ladder(words[0]), *words[1:])
