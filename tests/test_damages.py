"""Tests what reads folders of results that others have sent: tables, report, headline, class and
--resume, on made-up results in a made-up repository. A file that cannot be read as what it should
be is left out with one line that names it. Everything else is shown, and shown as it is.

FULL=1 tries 1,000 random damages. DAMAGES and SEED choose others.
"""

import contextlib
import importlib
import io
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import sys
import time
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from string import punctuation
from types import SimpleNamespace

import pytest
from look import imported

pytest.importorskip("matplotlib")
pytest.importorskip("pygments")
if not shutil.which("pandoc"):
    pytest.skip("found no pandoc", allow_module_level=True)

REPOSITORY = Path(__file__).resolve().parent.parent
DAMAGES = int(os.environ.get("DAMAGES") or (1000 if os.environ.get("FULL") else 100))
SEED = int(os.environ.get("SEED") or 1)
BATCH = 25  # folders of one report
LIMIT_S = 10  # of processor time, for one reader of one folder

LADDER = """\
title = "A ladder"
program = "train"
time = "train_s"
baseline = "00_serial"
epochs = "epochs-csv"
phases = ["forward", "backward"]
[[axes]]
option = "kind"
name = "Kind"
values = ["dense", "other"]
[[axes]]
option = "hidden"
name = "hidden units"
values = [8, 64]
[settings]
epochs = 2
seed = 1
[step]
kind = "other"
hidden = 8
[work.forward]
operations = ["epochs hidden 2"]
bytes = ["epochs hidden 4"]
[work.backward]
operations = ["epochs hidden 4"]
bytes = ["epochs hidden 4"]
[[measures]]
column = "train_s"
title = "Training time"
unit = "s"
[[measures]]
column = "forward_s"
title = "Forward time"
unit = "s"
[[measures]]
column = "test_accuracy"
title = "Test accuracy"
"""
PLAIN = """\
title = "One cell"
program = "run"
time = "time_s"
baseline = "00_plain"
[[measures]]
column = "time_s"
title = "Time"
unit = "s"
"""
HEADER = ("stage,device,threads,kind,hidden,epochs,seed,dataset,load_s,setup_s,train_s,forward_s,"
          "backward_s,final_loss,test_accuracy,epoch_s,samples_per_s,best_test_accuracy,gflops,"
          "peak_rss_mib,peak_vram_mib,sweep,round")
SECONDS = {"00_serial": 4, "01_fast": 1, "peer_one": 2}
BLOCK = "<!-- table: begin -->\n<!-- table: end -->\n"
MARKED = "# Title\n\n" + "".join(BLOCK.replace("table", name)
                                 for name in ("table", "ladder", "epochs"))


def row(stage, kind="dense", hidden=8, factor=1.0, epochs=2, dataset="drawn", threads=2,
        number=1):
    seconds = SECONDS[stage] * hidden * factor * epochs / 2
    phases = "," if stage.startswith("peer") else f"{seconds / 4},{seconds / 2}"
    return (f"{stage},cpu,{threads if stage == '01_fast' else 1},{kind},{hidden},{epochs},1,"
            f"{dataset},0.1,0.2,{seconds},{phases},0.5,0.9,{seconds / 2},{1000 / seconds},0.9,"
            f"{40 / SECONDS[stage]},10,,1,{number}")


def rows_of(stages=SECONDS, kinds=("dense", "other"), hiddens=(8, 64)):
    return [row(stage, kind, hidden, factor, number=number)
            for number, factor in ((1, 1), (2, 1.02)) for kind in kinds for hidden in hiddens
            for stage in stages]


def benchmarks(**rates):
    return json.dumps({"context": {"num_cpus": 2}, "benchmarks": [
        {"name": f"ceilings/{name}/real_time/threads:{threads}", "run_type": "iteration",
         "flops" if name == "multiply_add" else "bytes_read": rate}
        for name, rate in (rates or {"multiply_add": 2e11, "read/memory": 1e10}).items()
        for threads in (1, 2)]})


def in_quotes(text):
    return '"' + text.replace('"', '""') + '"'


def sweeps(cpu, **fields):
    """The lines of a sweeps.csv."""
    return ["sweep,key,value", *(f"1,{key},{in_quotes(text)}" for key, text in {
        "cpu": cpu, "gpu": "none", "compiler": "gcc 12", "threads": "2", "revision": "abc",
        "others": "3.5", "began": "2026-01-01 00:00 UTC", **fields}.items())]


def programs(reason):
    """The lines of a programs.csv."""
    return ["sweep,program,outcome,reason,sources,flags", "1,01_fast,ran,,0123456789ab,-O3",
            f"1,02_absent,does not build,{in_quotes(reason)},,"]


def make_results(machine, rows=None):
    """A folder of results with all files that are read."""
    ladder = machine / "stages"
    (machine / "bench").mkdir(parents=True)
    ladder.mkdir()
    files = {
        "runs.csv": [HEADER, *(rows_of() if rows is None else rows)],
        "growth/runs.csv": [HEADER, *(row(stage, hidden=hidden, epochs=epochs) for stage in SECONDS
                                 for hidden, epochs in ((8, 1), (64, 1), (8, 2), (8, 4)))],
        "epochs.csv": ["stage,device,threads,kind,hidden,epochs,seed,dataset,run,epoch,epoch_s,"
                       "samples_per_s,test_accuracy",
                       *(f"00_serial,cpu,1,other,8,2,1,drawn,1,{epoch},{epoch},5,0.5"
                         for epoch in (1, 2))],
        "steps/runs.csv": [HEADER, *(rows_of(hiddens=(8,)) if rows is None else ())],
        "sweeps.csv": sweeps("A processor, 2 cores"), "programs.csv": programs("a reason"),
        "steps/programs.csv": programs("a reason")}
    for name, lines in files.items():
        (ladder / name).parent.mkdir(exist_ok=True)
        (ladder / name).write_text("\n".join([*lines, ""]), encoding="utf-8")
    (machine / "bench/ceilings.json").write_text(benchmarks(), encoding="utf-8")
    return machine


def make_profile(folder):
    folder.mkdir(parents=True)
    (folder / "cpu.txt").write_text(
        "00_serial, hidden 8, epochs 2, drawn, threads 1\ncpu: A processor\ncompiler: gcc\n"
        "samples: 9 of 4.00 s of CPU time in 4.000 s; main thread 9, other threads 0\n")
    (folder / "lines.txt").write_text("      9  100.0%       1  int main(void) { return 0; }\n")
    (folder / "stacks.txt").write_text("main;add 7\nmain;show 2\n")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A repository of two made-up ladders, and the harness and the report, imported from it."""
    tree = tmp_path_factory.mktemp("tree")
    for part in ("harness/*.*", "report/*.*", "report/templates/*"):
        for path in REPOSITORY.glob(part):
            (tree / path.relative_to(REPOSITORY)).parent.mkdir(exist_ok=True)
            shutil.copy(path, tree / path.relative_to(REPOSITORY))
    for name, text, program, stages in (
            ("stages", LADDER, "train", ("00_serial", "01_fast", "02_absent")),
            ("studies/plain", PLAIN, "run", ("00_plain", "01_fast"))):
        for stage in stages:
            (tree / name / stage).mkdir(parents=True)
            (tree / name / stage / "Makefile").write_text("MOVE = a move\n")
            (tree / name / stage / "README.md").write_text(f"# {stage}: a move\n\n{BLOCK}\n")
            (tree / name / stage / f"{program}.c").write_text("int main(void) { return 0; }\n")
        (tree / name / "ladder.toml").write_text(text)
        (tree / name / "README.md").write_text(MARKED)
    (tree / "stages/peers").mkdir()
    (tree / "stages/peers/peer_one.py").touch()
    make_profile(tree / "stages/profiles/00_serial")
    before = Path.cwd()
    with imported(tree):
        yield SimpleNamespace(path=tree, **{
            name.partition(".")[2].replace("class", "class_"): importlib.import_module(name)
            for name in ("harness.ladders", "harness.rows", "harness.sweep", *(
                f"report.{each}" for each in ("view", "tables", "samples", "plots", "diffs", "page",
                                              "write", "class")))})
    os.chdir(before)


def forget(tree):
    """As in a new process."""
    tree.rows.or_nothing.cache_clear()
    tree.samples.profiles.cache_clear()
    tree.rows.left_out.clear()


class TooLong(BaseException):
    pass


def call(tree, name, main, *words, limit=LIMIT_S):
    """(exit status, lines on standard error) of a program's main(). It fails where the program
    takes too long. An error of another kind than the program's own is the test's failure."""
    def stop(number, _):
        raise TooLong(f"{name} takes longer than {limit} s")
    forget(tree)
    os.chdir(tree.path)
    said, argv, status = io.StringIO(), sys.argv, 0
    sys.argv = [name, *map(str, words)]
    for number, timer, seconds in ((signal.SIGPROF, signal.ITIMER_PROF, limit),
                                   (signal.SIGALRM, signal.ITIMER_REAL, 12 * limit)):
        signal.signal(number, stop)
        signal.setitimer(timer, seconds)
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            main()
    except SystemExit as error:
        status = error.code or 0
    finally:
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)
        sys.argv = argv
    assert status in (0, 1, 2), status
    return status, said.getvalue().splitlines()


# --- what a page consists of ---

VOID = {"meta", "link", "img", "input", "col", "br", "source", "hr"}
# What the pages leave open.
OPEN = {"li", "p", "tr", "td", "th", "col", "option"}


class Page(HTMLParser):
    """The elements of a page, its text, and where it leads to."""

    def __init__(self, text):
        super().__init__()
        self.kinds, self.scripts, self.text, self.targets, self.opened = set(), 0, "", [], []
        self.feed(text)
        self.close()
        assert not self.opened, self.opened

    def handle_starttag(self, tag, attributes):
        self.kinds.add((tag, *sorted(name for name, _ in attributes)))
        self.scripts += tag == "script"
        self.targets += [value for name, value in attributes if name in ("href", "src", "srcset")]
        if tag not in VOID | OPEN:
            self.opened.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.kinds.add((tag, *sorted(name for name, _ in attributes)))

    def handle_endtag(self, tag):
        if tag not in VOID | OPEN:
            assert self.opened and self.opened.pop() == tag, tag

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        self.kinds.add(("comment", data.strip()))


def of_markdown(tree, *texts):
    """The pages that GitHub would make of texts in Markdown."""
    return [Page(text) for text in tree.page.pandoc(texts)]


def words(text):
    return " ".join(text.split())


def check_page(page, healthy):
    """What is damaged changes what a page says, and not what it consists of."""
    strange = {kind for kind in page.kinds - healthy.kinds
               if kind[0] in ("comment", "script", "style", "img", "a", "b")
               or any(name.startswith("on") for name in kind[1:])
               or kind[0] not in {known[0] for known in healthy.kinds}}
    assert not strange, strange
    assert page.scripts == healthy.scripts
    bad = [target for target in page.targets if "evil" in (target or "").partition("data:")[0]
           and not target.startswith(("results/", "../report/results/"))]
    assert not bad, bad


# --- what is written where ---

def test_what_is_written_replaces_files_only(tree, tmp_path):
    """Written beside and renamed: a device, a pipe, a folder and a loop stay what they are."""
    write, text = tree.rows.write, "text\n"
    device = tmp_path / "device"
    made = True
    try:
        os.mknod(device, 0o600 | 0o020000, os.makedev(1, 3))  # as /dev/null
    except PermissionError:
        made = False
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for name in (*["device"] * made, "pipe", "folder"):
        (tmp_path / f"to_{name}").symlink_to(name)
    kinds = {path.name: os.lstat(path).st_mode for path in tmp_path.iterdir()}
    for name in kinds:
        said = io.StringIO()
        with contextlib.redirect_stderr(said), pytest.raises(SystemExit) as raised:
            write(tmp_path / name, text)
        assert raised.value.code == 2 and name.removeprefix("to_") in said.getvalue()
        assert said.getvalue().count("\n") == 1
    assert {path.name: os.lstat(path).st_mode for path in tmp_path.iterdir()} == kinds
    # A file, a new name, a link to either, and a name that is as long as it may be.
    (tmp_path / "old").write_text("old")
    (tmp_path / "to_old").symlink_to("old")
    (tmp_path / "to_new").symlink_to("new")
    for name, target in (("to_old", "old"), ("to_new", "new"), ("n" * 255, "n" * 255)):
        write(tmp_path / name, text)
        assert (tmp_path / target).read_text() == text
    assert (tmp_path / "to_old").is_symlink() and (tmp_path / "to_new").is_symlink()
    # What another has put at the name of the file beside it is not written to.
    (tmp_path / f".{os.getpid()}.new").symlink_to("old")
    write(tmp_path / "other", "other")
    assert (tmp_path / "old").read_text() == text


def test_programs_refuse_what_is_no_file(tree, tmp_path):
    make_results(tmp_path / "lab")
    runs, pipe = tmp_path / "lab/stages/runs.csv", tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for option in ("--output", "--update"):
        for path in (pipe, tmp_path / "link"):
            status, said = call(tree, "tables", tree.tables.main, option, path, runs)
            assert status == 2 and len(said) == 1 and "found a pipe, expected a file" in said[0]
    assert pipe.is_fifo()


# --- what is no file, or not what it should be ---

STRANGE = {  # {name: (file, what to make of it; the words that name it)}
    "pipe": ("bench/ceilings.json", os.mkfifo, "found a pipe, expected a file"),
    "linked pipe": ("stages/sweeps.csv", lambda path: (
        os.mkfifo(path.with_name("pipe")), path.symlink_to("pipe")), "found a pipe"),
    "endless": ("stages/growth/runs.csv", lambda path: path.symlink_to("/dev/zero"),
                "found a device"),
    "large": ("stages/epochs.csv", lambda path: (path.touch(), os.truncate(path, 1 << 40)),
              "found more than 32 MiB"),
    "loop": ("stages/programs.csv", lambda path: path.symlink_to(path.name), "symbolic links"),
    "folder": ("stages/runs.csv", os.mkdir, "Is a directory"),
    "latin": ("stages/sweeps.csv", b"cpu: \xe4\n", "line 1: byte 6: found 0xe4, expected UTF-8"),
    "long line": ("stages/sweeps.csv", b"1,cpu," + 5000 * b"x", "found 5006 characters"),
    "header": ("stages/programs.csv", b"program,reason\n", "expected 'sweep,program,outcome"),
    "columns": ("stages/programs.csv", b"sweep,program,outcome,reason,sources,flags\n1,x\n",
                "found 2 columns, expected 6"),
    "busy": ("stages/sweeps.csv", "\n".join(sweeps("A processor", others="many")).encode(),
             "others: found 'many', expected a number"),
    "no steps": ("stages/steps/runs.csv", b"a,b\n", "found no column 'stage'"),
    "shape": ("bench/ceilings.json", b'{"benchmarks": [{"name": 1}]}', "expected the JSON"),
    "no level": ("bench/ceilings.json", benchmarks(read=1).encode(), "expected the JSON"),
    "digits": ("bench/ceilings.json", benchmarks(read=10**400).encode(), "expected the JSON"),
    "nan": ("bench/ceilings.json", benchmarks(multiply_add=math.nan).encode(), "expected the JSON"),
    "deep": ("bench/ceilings.json", 100_000 * b"[" + 100_000 * b"]", "expected the JSON"),
    "hidden": ("stages/runs.csv", row("01_fast", hidden=10 ** 50), "line 2: hidden: found '1000"),
    "name": ("stages/runs.csv", row("01_fast").replace("fast", "x" * 100_000), "line 2: stage: "),
    "underscore": ("stages/runs.csv", row("01_fast").replace(",8,", ",4_0,"), "found '4_0'"),
    "tiny": ("stages/runs.csv", row("01_fast", factor=1e-40), "line 2: train_s: found '8e-40'"),
    "many": ("stages/runs.csv", "\n".join([HEADER, *(
        row("01_fast", hidden=hidden) for hidden in range(1, 500)), ""]), "found 499 cells"),
}


def test_a_strange_file_is_left_out_by_name(tree):
    results = tree.path / "report/results"
    make_results(results / os.fsdecode(b"healthy \xff\x1b[1m"))
    for number, (name, (file, content, _)) in enumerate(STRANGE.items()):
        path = make_results(results / name, [*rows_of(), row("01_fast", factor=2 + number)]) / file
        path.unlink()
        if isinstance(content, str):
            path.write_text(content if "\n" in content else f"{HEADER}\n{content}\n")
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            content(path)
    for program, main, arguments, page in (
            ("write", tree.write.main, (), tree.path / "report/index.html"),
            ("class", tree.class_.main, (results,), results / "class.html")):
        status, said = call(tree, program, main, *arguments, limit=60)
        text = page.read_text()
        for name, (file, _, why) in STRANGE.items():
            lines = [line for line in said if f"{name}/{file}: " in line and why in line]
            # A class has no use for some of the files.
            assert len(lines) == (program == "write" or (name != "busy" and file in (
                "stages/runs.csv", "stages/sweeps.csv", "stages/programs.csv",
                "bench/ceilings.json"))), (name, said)
            is_shown = f'data-machine="{name}"' in text or f"<h3>{name}</h3>" in text
            assert is_shown == (file != "stages/runs.csv"), name
        assert status == 0 and len(said) <= len(STRANGE) + 1
        assert 'data-machine="healthy ' in text or "<h3>healthy \ufffd\ufffd[1m</h3>" in text
    # A sweep would lose what is in the files, so it does not go on.
    for name, (file, *_) in STRANGE.items():
        status, said = resume(tree, results / name)
        stops = file.count("/") == 1 and file.startswith("stages/") and name != "busy"
        assert (status, len(said)) == ((2, 1) if stops else (0, 0)), (name, status, said)
    shutil.rmtree(results)


EVIL = "<svg xmlns='http://www.w3.org/2000/svg'></noscript><script>boo()</script></svg>"


def test_no_picture_but_the_own_is_embedded(tree):
    results, profile = tree.path / "report/results", tree.path / "stages/profiles/mine/00_serial"
    plots = make_results(results / "lab") / "stages/plots"
    plots.mkdir()
    victim = tree.path / "victim"
    victim.write_text("text")
    for name in ("x", "ladder", "threads"):
        (plots / f"{name}.svg").write_text(EVIL)
    (plots / "epochs.svg").symlink_to(victim)
    (make_results(results / "other") / "stages/plots").write_text(EVIL)
    (make_results(results / "lab-quick") / "stages/plots").mkdir()
    (results / "lab-quick/stages/plots/time.svg").write_text(EVIL)
    make_profile(profile)
    (profile / "flame.svg").write_text(EVIL)
    (profile / "stacks.txt").write_text("main;<script>boo()</script>;operator&& 9\n")
    (profile.parents[1] / "00_serial/stacks.txt").rename(profile.parents[1] / "00_serial/other")
    status, said = call(tree, "write", tree.write.main, limit=60)
    text = (tree.path / "report/index.html").read_text()
    page = Page(text)
    assert status == 0 and page.scripts == 2 and "</noscript><script>boo" not in text
    assert victim.read_text() == "text" and not (plots / "epochs.svg").is_symlink()
    assert ">Phases<" not in text and "Training time" in text
    assert text.count('aria-label="ladder: ') == 3 and "<title>&lt;script&gt;boo()" in text
    # A profile that is damaged has no flame graph, and its line names it.
    for name, old, new in (("stacks.txt", " 9", ""), ("stacks.txt", " 9", " 0"),
                           ("stacks.txt", "main", ";".join("a" * 200)), ("cpu.txt", "cpu", "x"),
                           ("cpu.txt", "4.00 s", "4.0.0 s"), ("cpu.txt", "epochs 2", "epochs 0")):
        healthy = (profile / name).read_text()
        (profile / name).write_text(healthy.replace(old, new))
        status, said = call(tree, "x", lambda: print(tree.samples.flames(
            tree.ladders.find_ladder(""))))
        assert status == 0 and [f"00_serial/{name}: expected" in line for line in said] == [True]
        (profile / name).write_text(healthy)
    shutil.rmtree(profile.parent)
    other = profile.parents[1] / "00_serial/other"
    other.rename(other.with_name("stacks.txt"))
    shutil.rmtree(results)


# --- a ladder without one of its parts ---

WITHOUT = {
    "all": (SECONDS, ("dense", "other"), (8, 64)),
    "baseline": (("01_fast", "peer_one"), ("dense", "other"), (8, 64)),
    "baseline and peers": (("01_fast",), ("dense", "other"), (8, 64)),
    "peers": (("00_serial", "01_fast"), ("dense", "other"), (8, 64)),
    "all but peers": (("peer_one",), ("dense", "other"), (8, 64)),
    "all but the baseline": (("00_serial",), ("dense", "other"), (8, 64)),
    "first cell": (SECONDS, ("other",), (64,)),
    "any": ((), (), ()),
}


def test_a_ladder_is_drawn_with_what_there_is(tree):
    results = tree.path / "report/results"
    for name, (stages, kinds, hiddens) in WITHOUT.items():
        for ceilings in (True, False):
            rows = rows_of(stages, kinds, hiddens)
            if name == "first cell":
                rows += rows_of(("01_fast",), ("dense",), (8,))
            machine = make_results(results / f"without {name}{'' if ceilings else ', no bench'}",
                                   rows)
            if not ceilings:
                shutil.rmtree(machine / "bench")
            runs = machine / "stages/runs.csv"
            assert call(tree, "tables", tree.tables.main, "--output", machine / "out", runs) == (
                0, [])
            readme = machine / "README.md"
            readme.write_text(MARKED)
            status, said = call(tree, "tables", tree.tables.main, "--update", readme, runs)
            assert (status, len(said)) == ((0, 0) if rows else (2, 1)), said
            text = readme.read_text()
            for stage in stages:
                assert text.count(f"| {stage}") >= 1, (name, text)
            assert ("The ceiling is" in text) == (bool(rows) and ceilings), name
    plain = results / "plain/plain"
    plain.mkdir(parents=True)
    (plain / "runs.csv").write_text(
        "stage,device,threads,dataset,time_s,gflops\n01_fast,cpu,1,drawn,0.5,1\n")
    (results / "plain/bench").mkdir()
    (results / "plain/bench/all.json").write_text(benchmarks())
    status, said = call(tree, "write", tree.write.main, limit=120)
    assert status == 0 and len(said) == 1, said
    page = Page((tree.path / "report/index.html").read_text())
    for name in set(WITHOUT) - {"any"}:
        assert f'"without {name}"' in (tree.path / "report/index.html").read_text()
    assert page.scripts == 2
    status, said = call(tree, "class", tree.class_.main, results, limit=60)
    assert status == 0 and all(re.search("same rows|no finished|no ladder|expected a folder", line)
                               for line in said[:-1]), said
    shutil.rmtree(results)


# --- all signs in all fields ---

SIGNS = [
    punctuation, " ".join(punctuation), " ".join(sign * 3 for sign in punctuation),
    " ".join(sign * 2 + "a" + sign * 2 for sign in punctuation),
    "a <!-- table: end --> b", "x](http://evil/a.png) y", "![x](http://evil/a.png)", "[x]: http://evil",
    "http://evil.example/x?y=1&z=2 www.evil.example evil@example.org https://evil", "<b>x</b>",
    "</noscript><script>boo()</script>", '"><img src=x onerror=boo()>', "' onmouseover='boo()",
    "<https://evil>", "&lt;b&gt; &#60; &amp;amp; &copy", "# x", "## x ##", "- x", "+ x", "* x",
    "1. x", "12) x", "=== x", "--- | ---", "| x | y |", ":---: | :---:", "`x` ``y`` ```z",
    "> x", "$x$ $$y$$ \\(z\\)", "~x~ ~~y~~ ~~~", "*x* **y** _z_ __w__ a_b_c", ":rocket: :+1: a:b:c",
    "12:30:05", "[^1] [^1]: x",
    "\\a \\\\ \\| \\` \\<", "${title} $style %s {0} {title}", "<br> <br/> </td></tr></table>",
    "<![CDATA[x]]> <?x?> <!x>", "a | b \\| c", "- [ ] x", "Ünïcödé 名前 ±†×",
]
# Text that no terminal and no page is to get. What it becomes is shown.
CONTROLS = "a\x1b[31mb\x07\x9bc\u202ed\u2066e\u200bf\x00g\x7fh\ufeffi\u00adj"


def test_text_is_shown_as_it_is(tree):
    """Each text stands in every field that is shown: in Markdown that pandoc reads, in the page,
    and in the page of a class."""
    results, fields = tree.path / "report/results", {}
    for number, sign in enumerate(SIGNS):
        machine = make_results(results / f"{number:02} {sign}".replace("/", "")[:80])
        # A dot makes a stage a step, which the headline leaves out.
        stage, data, kind = f"07_{sign}".replace(".", "")[:100], sign[:100], sign[:100]
        quoted = [*map(in_quotes, (stage, data, kind))]
        lines = [row(name, quoted[2], dataset=quoted[1]) for name in ("00_serial", "01_fast")]
        lines[1] = lines[1].replace("01_fast", quoted[0], 1)
        (machine / "stages/runs.csv").write_text("\n".join([HEADER, *lines, ""]))
        shutil.rmtree(machine / "stages/steps")
        (machine / "stages/sweeps.csv").write_text("\n".join(sweeps(
            f"c {sign}", gpu=f"g {sign}", compiler=sign, revision=sign, began=sign)))
        (machine / "stages/programs.csv").write_text("\n".join(programs(sign)))
        fields[machine.name] = stage, data, kind, f"c {sign}; g {sign}", f"02_absent: {sign}"
        readme = tree.path / "shown.md"
        readme.write_text(MARKED)
        for _ in range(2):  # the second time between the same markers
            assert call(tree, "tables", tree.tables.main, "--update", readme,
                        machine / "stages/runs.csv") == (0, [])
        text = readme.read_text()
        assert all(text.count(f"<!-- {name}: {which} -->") == 1
                   for name in ("table", "ladder", "epochs") for which in ("begin", "end")), sign
        page, = of_markdown(tree, text)
        assert not page.kinds & {(tag,) for tag in ("script", "b", "em", "strong", "del", "code")}
        assert ("img", "alt", "src") not in page.kinds and not any(
            "evil" in target for target in page.targets if "report/results" not in target), sign
        for field in (stage, data, kind, *fields[machine.name][3:]):
            assert words(field) in words(page.text), (sign, field, words(page.text))
    status, said = call(tree, "write", tree.write.main, limit=300)
    assert status == 0 and len(said) == 1, said
    page = Page((tree.path / "report/index.html").read_text())
    status, said = call(tree, "class", tree.class_.main, results, limit=100)
    class_page = Page((results / "class.html").read_text())
    assert status == 0 and len(said) == 1 and page.scripts == 2 and class_page.scripts == 0
    for name, texts in fields.items():
        for where, expected in ((page, texts), (class_page, (*texts[:4], name))):
            for text in expected:
                assert words(text) in words(where.text), text
    for each in (page, class_page):
        assert not any(kind[0] in ("script", "b") and kind not in {
            ("b",), ("script",), ("script", "id", "type")} for kind in each.kinds)
        assert not any(target.startswith(("http://evil", "https://evil", "x", "mailto", "http://www"))
                       for target in each.targets)
    shutil.rmtree(results)


def test_what_moves_a_cursor_is_not_shown(tree, tmp_path):
    machine = make_results(tmp_path / "lab")
    for part in (machine / "stages", machine / "stages/steps"):
        (part / "sweeps.csv").write_text("\n".join(sweeps(CONTROLS)))
        (part / "programs.csv").write_text("\n".join(programs(CONTROLS)))
    readme, out = tmp_path / "README.md", tmp_path / "out"
    readme.write_text(MARKED)
    runs = machine / "stages/runs.csv"
    assert call(tree, "tables", tree.tables.main, "--output", out, runs) == (0, [])
    assert call(tree, "tables", tree.tables.main, "--update", readme, runs) == (0, [])
    for path in (readme, out):
        text = path.read_text()
        assert "a\ufffd" in text
        assert all(sign.isprintable() for sign in text.replace("\n", "")), path
    # A stage has no such name, and what says so has none either.
    name = CONTROLS.replace("\0", "")
    runs.write_text("\n".join([HEADER, row("01_fast").replace("fast", name), ""]))
    status, said = call(tree, "tables", tree.tables.main, runs)
    assert status == 2 and len(said) == 1 and said[0].isprintable()
    assert "line 2: stage: found '01_a\ufffd[31mb" in said[0]


# --- random damages ---

WORDS = [*SIGNS, CONTROLS, "", " ", "nan", "-nan", "inf", "-1", "0", "1e999", "1e-999", "1e99",
         "-0.0", "4_0", "٣", "0x10", "1,5", "9" * 50, "9" * 400, "9" * 5000, "1" + "0" * 50, "1e50",
         "1e30", str(2**63), str(2**64 - 1), str(2**64), "x" * 99, "x" * 101, "x" * 100_000,
         "01_fast", "00_serial", "02_absent", "peer_x", "simulated", "cuda", "{}", "[]", "null",
         '"', '""', ",", "\n", "\r\n", "\t", "\0", "\ud800", "[" * 100_000, '{"a":' * 100_000]
VALUES = [None, True, [], {}, "x", "", -1, 0, 1e308, 1e-308, math.nan, math.inf, 10**400, 10**30,
          [[]], {"benchmarks": []}, "ceilings/read", "ceilings/multiply_add/threads:99999999999",
          "ceilings/read/<b>x</b>/threads:1", SIGNS[4]]
RESULTS = [*["stages/runs.csv"] * 4, "stages/steps/runs.csv", "stages/growth/runs.csv",
           "stages/epochs.csv", "stages/sweeps.csv", "stages/programs.csv", "bench/ceilings.json",
           "bench/ceilings.json"]


class Damage:
    """A random damage of a file in a folder, made by a seed."""

    def __init__(self, seed, folder, names):
        self.random, self.words = random.Random(seed), []
        self.path = folder / self.random.choice(names)
        kinds = [self.bytes, self.words_, self.kind, self.sizes]
        if self.path.suffix == ".csv":
            kinds += [self.table] * 4
        if self.path.suffix == ".json":
            kinds += [self.tree] * 4
        if self.path.suffix == ".toml":
            kinds = [self.bytes, self.words_, self.sizes, *[self.toml] * 8]
        for _ in range(self.random.choice((1, 1, 2, 3))):
            if (self.path.is_file() and not self.path.is_symlink()
                    and self.path.stat().st_size < 1 << 26):
                self.random.choice(kinds)()

    def __str__(self):
        return f"{self.path.parent.name}/{self.path.name}: {', '.join(self.words)}"

    def did(self, *what):
        self.words.append(ascii(" ".join(map(str, what)))[:100])

    def bytes(self):
        data = bytearray(self.path.read_bytes())
        for _ in range(self.random.choice((1, 1, 5, 50))):
            start = self.random.randrange(len(data) + 1)
            end = self.random.randrange(start, min(len(data), start + 40) + 1)
            what = self.random.choice(("cut", "change", "insert", "double", "drop", "flip"))
            self.did(what, start, end)
            if what == "cut":
                del data[start:]
            elif what == "change":
                data[start:end] = self.random.randbytes(end - start)
            elif what == "insert":
                data[start:start] = self.random.randbytes(5)
            elif what == "double":
                data[start:start] = data[start:end]
            elif what == "drop":
                del data[start:end]
            elif data[start:]:
                data[start] ^= 1 << self.random.randrange(8)
        self.path.write_bytes(data)

    def words_(self):
        """A word in the place of another."""
        text = self.path.read_text(errors="replace")
        places = [match.span() for match in re.finditer(r"[^\s,:;\"{}\[\]]+", text)] or [(0, 0)]
        start, end = self.random.choice(places)
        word = self.random.choice(WORDS)
        self.did("word", text[start:end][:40], word)
        self.path.write_bytes((text[:start] + word + text[end:]).encode(errors="surrogatepass"))

    def kind(self):
        """Something else than a file, or a file of another encoding."""
        text, folder = self.path.read_bytes(), self.path.parent
        what = self.random.choice((
            "pipe", "folder", "zero", "loop", "two", "dangling", "linked pipe", "socket", "huge",
            "utf-16", "bom", "crlf", "absent", "empty", "link", "unending", "closed"))
        self.did(what)
        self.path.unlink()
        if what == "pipe":
            os.mkfifo(self.path)
        elif what == "folder":
            self.path.mkdir()
        elif what == "socket":
            os.chdir(folder)  # its name is a short one
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(self.path.name)
        elif what == "huge":
            self.path.touch()
            os.truncate(self.path, 1 << 40)
        elif what == "linked pipe":
            os.mkfifo(folder / "a pipe")
            self.path.symlink_to("a pipe")
        elif what == "link":
            (folder / "a file").write_bytes(text)
            self.path.symlink_to("a file")
        elif what == "two":
            (folder / "a link").symlink_to(self.path.name)
            self.path.symlink_to("a link")
        elif what in ("zero", "loop", "dangling", "unending"):
            self.path.symlink_to({"zero": "/dev/zero", "loop": self.path.name,
                                  "dangling": "nothing", "unending": "/proc/self/mem"}[what])
        elif what != "absent":
            self.path.write_bytes({
                "utf-16": lambda: text.decode(errors="replace").encode("utf-16"),
                "bom": lambda: b"\xef\xbb\xbf" + text, "empty": lambda: b"",
                "crlf": lambda: text.replace(b"\n", b"\r\n"), "closed": lambda: text}[what]())
            if what == "closed":
                self.path.chmod(0)

    def sizes(self):
        """Lines that are many, or long, or lost."""
        lines = self.path.read_bytes().splitlines(keepends=True) or [b""]
        what = self.random.choice(("many", "long", "lost", "mixed"))
        place = self.random.randrange(len(lines))
        self.did("lines", what, place)
        if what == "many":
            lines[place:place] = [lines[place]] * self.random.choice((10, 1000))
        elif what == "long":
            lines[place] = lines[place].rstrip(b"\n") * 10000 + b"\n"
        elif what == "lost":
            lines = [line for line in lines if self.random.random() < 0.7]
        else:
            self.random.shuffle(lines)
        self.path.write_bytes(b"".join(lines))

    def table(self):
        """Other fields, columns and rows."""
        rows = [line.split(",") for line in self.path.read_text(errors="replace").split("\n")]
        line = self.random.randrange(len(rows))
        column = self.random.randrange(len(rows[line]))
        what = self.random.choice(("field",) * 6 + ("values",) * 3
                                  + ("column", "twice", "stage", "swap"))
        word = self.random.choice(WORDS)
        self.did(what, line, column, word)
        if what == "field":
            rows[line][column] = word
        elif what == "values":
            for row_ in rows[1:]:
                row_[column:column + 1] = [word]
        elif what == "column":
            for row_ in rows:
                del row_[column:column + 1]
        elif what == "twice":
            for row_ in rows:
                row_.append(row_[min(column, len(row_) - 1)])
        elif what == "stage":
            rows = rows[:1] + [row_ for row_ in rows[1:] if row_[0] == rows[line][0]]
        else:
            for row_ in rows[1:]:
                self.random.shuffle(row_)
        self.path.write_bytes("\n".join(map(",".join, rows)).encode(errors="surrogatepass"))

    def tree(self):
        """Another value in the JSON."""
        try:
            data = json.loads(self.path.read_text())
        except (ValueError, RecursionError):
            return
        places = []

        def visit(node):
            for key in (node if isinstance(node, dict) else
                        range(len(node)) if isinstance(node, list) else ()):
                places.append((node, key))
                visit(node[key])
        visit(data)
        value = self.random.choice(VALUES)
        if places and self.random.random() < 0.95:
            node, key = self.random.choice(places)
            self.did("value of", key, str(value)[:60])
            node[key] = value
        else:
            self.did("all is", str(value)[:60])
            data = value
        self.path.write_text(json.dumps(data))


    def toml(self):
        """Another key, value or table, or none."""
        lines = self.path.read_text(errors="replace").split("\n")
        place, other = self.random.randrange(len(lines)), self.random.randrange(len(lines))
        what = self.random.choice(("drop", "value", "value", "key", "move", "table"))
        key, _, value = lines[place].partition(" = ")
        if what == "drop":
            del lines[place]
        elif what == "value" and value:
            new = self.random.choice((
                '"x"', '""', "1", "-1", "0", "1.5", "true", "nan", "1979-05-27", "[]", "{}",
                "[[1]]", '["x"]', "[1, 2]", '"{typo}"', '"a/b"'))
            lines[place] = f"{key} = {new}"
        elif what == "key" and value:
            lines[place] = f"{key}s = {value}"
        elif what == "move":
            lines[place], lines[other] = lines[other], lines[place]
        elif what == "table":
            lines[place] = lines[place].replace("[[", "[").replace("]]", "]")
        self.did(what, place, lines[place:place + 1])
        self.path.write_text("\n".join(lines))


def resume(tree, machine):
    """What --resume reads, before it runs anything."""
    def main():
        options, found = tree.sweep.parse(["--resume", "--output", str(machine / "stages")])
        sweep = tree.sweep.Sweep(found[0], options, SimpleNamespace(say=lambda text: None))
        sweep.describe = lambda: ({"threads": "2", "others": "0"}, {})
        sweep.open_folder()
        try:
            sweep.open_results()
        finally:
            os.close(sweep.lock)
    return call(tree, "run_all.sh", main)


def names_the_file(said, folder):
    """Whether each line is one, short, printable, and says which file it is about."""
    return all(line.isprintable() and len(line) < 1000 and folder.name in line for line in said)


def test_random_damages(tree):
    """DAMAGES folders of results, each damaged by its own seed. No reader ends in a traceback,
    takes long, says what is wrong in more than a line, or changes what a page consists of."""
    results, slowest, ends = tree.path / "report/results", (0, ""), Counter()
    healthy = make_results(results / "healthy")
    (results / "empty").mkdir()  # which a class leaves out
    shutil.rmtree(make_results(results / "no bench", rows_of(("01_fast",))) / "bench")
    readme = tree.path / "shown.md"
    readme.write_text(MARKED)
    call(tree, "tables", tree.tables.main, "--update", readme, healthy / "stages/runs.csv")
    of_readme, = of_markdown(tree, readme.read_text())
    call(tree, "write", tree.write.main)
    of_page = Page((tree.path / "report/index.html").read_text())
    call(tree, "class", tree.class_.main, results)
    of_class = Page((results / "class.html").read_text())
    for start in range(SEED, SEED + DAMAGES, BATCH):
        shutil.rmtree(results)
        make_results(results / "healthy")
        texts, damages = [], {}
        for seed in range(start, min(start + BATCH, SEED + DAMAGES)):
            # The rows of each are its own, because a class leaves out those that are a copy.
            machine = make_results(results / f"seed {seed}", [
                *rows_of(), row("01_fast", factor=1 + seed / 1e6)])
            damages[seed] = damage = Damage(seed, machine, RESULTS)
            runs = machine / "stages/runs.csv"
            readme.write_text(MARKED)
            (tree.path / "out").write_text("")
            began = time.process_time()
            try:
                for name, (status, said) in {
                        "tables": call(tree, "tables", tree.tables.main, "--output",
                                       tree.path / "out", runs),
                        "headline": call(tree, "tables", tree.tables.main, "--update", readme,
                                         runs),
                        "resume": resume(tree, machine)}.items():
                    ends[name, status, bool(said)] += 1
                    assert status in (0, 2) and names_the_file(said, machine), (name, status, said)
                    assert status == 0 or len(said) >= 1, (name, status)
                text = (tree.path / "out").read_text()
                assert all(sign.isprintable() for sign in text.replace("\n", ""))
            except BaseException as error:
                raise AssertionError(f"seed {seed}: {damage}: {error!r}") from error
            slowest = max(slowest, (time.process_time() - began, f"seed {seed}: {damage}"))
            texts.append(readme.read_text())
        for seed, text, page in zip(damages, texts, of_markdown(tree, *texts)):
            assert all(text.count(f"<!-- {name}: {which} -->") == 1 for which in ("begin", "end")
                       for name in ("table", "ladder", "epochs")), f"seed {seed}: {damages[seed]}"
            check_page(page, of_readme)
        about = "\n".join(f"seed {seed}: {damage}" for seed, damage in damages.items())
        try:
            for name, main, words_ in (("write", tree.write.main, ()),
                                       ("class", tree.class_.main, (results,))):
                began = time.process_time()
                status, said = call(tree, name, main, *words_, limit=LIMIT_S + BATCH)
                slowest = max(slowest, ((time.process_time() - began) / BATCH, f"{name}, of each"))
                assert status == 0, said
                assert all(re.search("seed [0-9]+|^Written", line) for line in said), said
                left_out = {int(number) for line in said[:-1]
                            for number in re.findall("seed ([0-9]+)", line)}
                ends[name, "left out"] += len(left_out)
                ends[name, "whole"] += len(damages) - len(left_out)
            check_page(Page((tree.path / "report/index.html").read_text()), of_page)
            check_page(Page((results / "class.html").read_text()), of_class)
        except BaseException as error:
            raise AssertionError(f"{error!r}, in one of\n{about}") from error
    print(f"{DAMAGES} damages from seed {SEED}; slowest: {slowest[0]:.1f} s, {slowest[1]}")
    print(*(f"{count:6} {' '.join(map(str, end))}" for end, count in sorted(ends.items(), key=str)),
          sep="\n")
    shutil.rmtree(results)


def test_random_damages_of_ladders(tree):
    """DAMAGES ladder.toml, each damaged by its own seed: one line and exit status 2, or the tables
    of a ladder that may look otherwise."""
    results, ends, wrong = make_results(tree.path / "lab"), Counter(), []
    folder = tree.path / "studies/damaged"
    shutil.copytree(tree.path / "stages", folder)

    def show():
        damaged = tree.ladders.Ladder(folder)
        groups = tree.view.read_groups(results / "stages/runs.csv", damaged)
        tree.view.table_text(results / "stages/runs.csv", groups)
        for block in tree.view.BLOCKS.values() if groups else ():
            block(groups, tree.path)
        for plot in (tree.plots.ladder, tree.plots.threads, tree.plots.growth):
            tree.plots.panels(plot(groups[0]))

    for seed in range(SEED, SEED + DAMAGES):
        (folder / "ladder.toml").write_text(LADDER)
        damage = Damage(seed, folder, ["ladder.toml"])
        try:
            status, said = call(tree, "tables.py", show)
            assert (status, len(said)) in ((0, 0), (2, 1)) and all(
                len(line) < 1000 and line.isprintable() for line in said), (status, said)
            ends[status] += 1
        except Exception as error:
            wrong.append(f"seed {seed}: {damage}: {error!r}")
    print(f"{DAMAGES} damages of ladders: {dict(ends)}; {len(wrong)} wrong")
    shutil.rmtree(folder)
    shutil.rmtree(results)
    assert not wrong, "\n".join(wrong)
