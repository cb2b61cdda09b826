"""Takes a reader through the stages of a ladder: make's step, diff, new-stage, new-study, export"""

import os
import re
import shutil
import signal
import sys
from pathlib import Path
from statistics import median

from bench import host, ladders, measuring, pairs, rounds, screen
from bench.base import ROOT, fail
from bench.options import given
from bench.stage import STAGE_NAME, git_diff

SCALES = {"s": 1, "ms": 1e3, "µs": 1e6}
LESS = "FRSX-Psq leaves the diff, space shows more$"  # git's options, and a prompt


def show_diff(ladder):
    stage = ladder.find(given("STAGE"))
    diff(stage, ladder.find(given("FROM"), "FROM") if given("FROM") else stage.before)


def diff(stage, before):
    if not before:
        fail(f"STAGE: found '{stage.name}', the first stage; expected a later one")
    folder = stage.ladder.folder  # from there, paths are short
    sources = [each.source.relative_to(folder) for each in (before, stage)]
    status = git_diff(sources, "-U5", cwd=folder,
                      env={"LESS": LESS} | dict(os.environ)).returncode
    # git exits with 1 if they differ, and by a signal if the reader of its pipe stops early.
    if status not in (0, 1, -signal.SIGPIPE):
        sys.exit(max(status, 1))


def unit_of(ladder, question):
    """What a question's answer is given in, of what, and the column that has it. Where nothing is
    asked, it is the ladder's time."""
    usual, _, of_what = ladder.toml["unit"].partition(" ")
    column = f"{question.column}_s" if question.column else ladder.time
    return question.unit or usual, of_what, column


def in_words(ladder, question):
    """What a question asks: times as fast; ms a batch, setup, at hidden 32, batch 32."""
    unit, of_what, column = unit_of(ladder, question)
    said = "times as fast" if unit == "×" else f"{unit} {of_what}"
    said += f", {question.column}" if column != ladder.time else ""
    return said + (f", at {question.cell}" if question.cell else "")


def measured(ladder, question, sides):
    """What the runs of two stages say, round by round, or those of the first stage."""
    unit, _, column = unit_of(ladder, question)
    times = [[row[column] for row in side] for side in sides]
    if unit == "×":
        return pairs.ratio(times[1], times[0]).text
    return time_of(ladder, question, sides[-1][0] | {column: median(times[-1])})


def time_of(ladder, question, row):
    """The time in a row, in the question's unit."""
    unit, of_what, column = unit_of(ladder, question)
    return f"{SCALES[unit] * row[column] / ladder.units(row):.4g} {unit} {of_what}"


def read_page(stage):
    """{heading: text} of its README, and its title as "". Without the record's tables, comments and
    the paths of links, which nobody can follow on a terminal. A picture is what it shows, and its
    path."""
    text = stage.read("README.md") or f"# {stage.name}\n"
    text = re.sub(r"<!-- table: begin -->.*<!-- table: end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^\|[-:| ]+\n|<!--[^>]*-->", "", text, flags=re.MULTILINE)
    folder = stage.folder.relative_to(ROOT)
    text = re.sub(r"^!\[(.*)\]\((.*)\)$",
                  lambda found: f"Picture: {found[1]}\n    {os.path.normpath(folder / found[2])}",
                  text, flags=re.MULTILINE)
    text = re.sub(r"\[([^][]*)\]\((?!https?:)[^)]*\)", r"\1", text)
    title, *parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    return {"": title.split("\n")[0]} | dict(zip(parts[::2], parts[1::2]))


def measure(stage):
    """What runs on this machine say: beside the stage before, where there is one."""
    if stage.is_cuda and not host.has_gpu():
        fail("found no GPU (nvidia-smi lists none)", 77)
    ladder, question = stage.ladder, stage.question
    options = measuring.read_options(ladder, "step")
    options |= {name: value for name, value in question.options.items() if not given(name)}
    why = ""
    if stage.before:
        sides, why = rounds.compare_in_cell((stage.before, stage), options)
    else:
        measuring.build(stage)
        with screen.Bar() as bar:
            bar.say(f"runs {stage.name}")
            sides = [[measuring.run(stage, ladder.words(options))]]
    return measured(ladder, question, sides) + (", but disturbed" if why else "")


def step(ladder):
    stage = ladder.find(given("STAGE"))
    page = read_page(stage)
    print(f"{page['']}\n")
    show(page, "The idea")
    show(page, "Predict")
    answer = ask(stage)
    if stage.before:
        print(f"## The diff against {stage.before.name}\n")
        diff(stage, stage.before)
    show(page, "What the diff shows", "The arithmetic")
    show_answers(stage, answer)
    show(page, "Measured, and why")
    show_ways_on(stage, page)


def show(page, *names):
    """Prints the parts of a page that have these headings."""
    for name in names:
        if name in page:
            print(f"## {name}\n")
            screen.markdown(page[name])


def ask(stage):
    """A reader's answer, if there is one at a terminal."""
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        return ""
    asked = "Your answer?"
    if stage.question.unit:
        asked = f"How many {in_words(stage.ladder, stage.question)}?"
    answer = "?"
    while answer and not re.fullmatch(r"[\d,]*\.?\d+", answer):
        print(f"{asked} (a number, or Enter to skip) ", end="", flush=True)
        answer = sys.stdin.readline().strip()
    return answer


def show_ways_on(stage, page):
    if "Exercises" in page:
        print(f"Exercises: {(stage.folder / 'README.md').relative_to(ROOT)}")
    ladder = stage.ladder
    later = ladder.stages[ladder.stages.index(stage) + 1:]
    if later:
        print(f"Next: make step{ladder.chosen_by('STUDY=')} STAGE={later[0].number}")


def recorded(stage):
    """(What the pages' machine with a GPU has measured of a stage, as text; the answer)"""
    from report import frames, tables  # takes half a second, and most steps do not need it

    machine = frames.Machine(frames.reference("gpu"), stage.ladder)
    if stage.name not in {*machine.runs["stage"]}:
        return "", "no runs yet"
    table, _ = tables.step_table(machine, stage)
    return (f"Recorded, {machine.name}:\n{table.to_string(index=False)}\n",
            recorded_answer(machine, stage) or "no runs of both yet")


def recorded_answer(machine, stage):
    """What a machine's record answers to a stage's question, or "" without the runs for it."""
    from report import frames

    ladder, question = stage.ladder, stage.question
    options = ladder.options("step") | question.options
    cell = tuple(int(options[axis["option"]]) for axis in ladder.axes)
    runs = machine.of(machine.best_kind)
    found = frames.best(machine, frames.cells(machine, runs))
    unit, _, column = unit_of(ladder, question)
    shown = [stage, stage.before] if unit == "×" else [stage]
    if not all((each.name, cell) in found for each in shown):
        return ""
    if unit != "×":
        return time_of(ladder, question, found[stage.name, cell])
    ends = [(each.name, found[each.name, cell]["threads"]) for each in shown]
    ratio = frames.ratio(machine, runs, *ends, cell, column)
    return ratio.text if ratio else ""


def show_answers(stage, answer):
    """Prints the reader's, the page's and this machine's or the record's, a line each."""
    print("## On this machine\n")
    question = stage.question
    found = {"you": answer, "predicted": question.predicted}
    try:
        found["measured"] = measure(stage)
    except SystemExit as ended:  # it has said why
        if ended.code != 77:
            raise
        if stage.is_cuda:
            print(f"`make check STAGE={stage.name}{stage.ladder.chosen_by('STUDY=')}` tests "
                  f"{stage.name} on a simulated device.\n")
            table, found["recorded"] = recorded(stage)
            print(table)
    said = in_words(stage.ladder, question) if question.unit else ""
    print(f"\n{said[:1].upper()}{said[1:]}")
    for name, value in found.items():
        if value:
            print(f"{name:11}{value}")
    print()


def folder_of(ladder, name):
    """Where a new stage lies. A step lies in its stage's folder, if there is one."""
    number = name.split("_")[0]
    chapters = [stage.folder for stage in ladder.stages
                if "." in number and stage.name.startswith(f"{number[:2]}_")]
    return (chapters or [ladder.folder])[-1] / name


def copy_makefile(origin, folder):
    """The text of a stage's Makefile in another folder, without what its page says."""
    text = origin.read("Makefile").replace(os.path.relpath(ROOT, origin.folder),
                                           os.path.relpath(ROOT, folder))
    of_origin = r"^(# What `make diff.*\n)?(ORIGIN|PREDICTED|CELL|TIMES) *=.*\n"
    text = re.sub(of_origin, "", text, flags=re.MULTILINE)
    return ("# What `make diff`, `step` and `check` compare it with.\n"
            f"ORIGIN = {origin.name}\n{text}")


def new(ladder):
    origin = ladder.find(given("FROM"), "FROM")
    name = given("NAME")
    number, _, move = name.partition("_")
    is_taken = number in [stage.number for stage in ladder.stages]
    if is_taken or not STAGE_NAME.fullmatch(name):
        fail(f"NAME: found '{name}', expected two digits that no stage has, an underscore and a "
             "word, such as 20_mine")
    folder = folder_of(ladder, name)
    folder.mkdir()
    source = origin.source.read_text(encoding="utf-8").replace(
        f"Stage {origin.number}", f"Stage {number}", 1)
    for file, text in ((origin.source.name, source),
                       ("Makefile", copy_makefile(origin, folder)),
                       ("README.md", f"# {name}: {move}\n")):
        (folder / file).write_text(text, encoding="utf-8")
    place = folder.relative_to(ROOT)
    print(f"Made {place} from {origin.name}. To throw it away: rm -r {place}")
    # Nobody has to know yet how fast a copy is.
    make("check", f"STUDY={ladder.name}", f"STAGE={name}", f"RUNS={given('RUNS', '0')}")


def study(_):
    name = given("NAME")
    folder = ROOT / "studies" / name
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or folder.exists() or (ROOT / name).exists():
        fail(f"NAME: found '{name}', expected small letters, digits and _, and a name that no "
             "study has, such as heat")
    shutil.copytree(ROOT / "tests/pi", folder,
                    ignore=shutil.ignore_patterns("build", "run", "*.flags"))
    print(f"Made studies/{name}: two stages that sum a series to pi. CONTRIBUTING.md says "
          "what to replace.")
    make("check", f"STUDY={name}", "STAGE=01", "RUNS=0")


def export(ladder):
    stage = ladder.find(given("STAGE"))
    make("-C", str(stage.folder), "export", f"DIR={Path(given('DIR')).resolve()}")


def make(*words):
    """Goes on as make."""
    sys.stdout.flush()
    os.chdir(ROOT)
    os.execvp("make", ["make", "--no-print-directory", *words])


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader may stop early
    commands = {"step": step, "diff": show_diff, "export": export, "new-stage": new,
                "new-study": study}
    commands[sys.argv[1]](ladders.find_ladder(given("STUDY")))
