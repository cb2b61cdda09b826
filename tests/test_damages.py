"""Tests what reads folders of results that others have sent: tables, report, headline, class and
--resume, on made-up results in a made-up repository. A file that cannot be read as what it should
be is left out with one line that names it. Everything else is shown, and shown as it is.

FULL=1 tries 100 random damages instead of 10, and all signs instead of a third of them. DAMAGES
and SEED choose others.
"""

import json
import math
import os
import random
import re
import shutil
import signal
import sys
from pathlib import Path
from string import punctuation
from types import SimpleNamespace

import pytest
from look import REPOSITORY, Page, imported
from programs import FULL

DAMAGES = int(os.environ.get("DAMAGES") or (100 if FULL else 10))
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
axes = [{option = "kind", name = "Kind", values = ["dense", "other"]},
    {option = "hidden", name = "hidden units", values = [8, 64]}]
settings = {epochs = 2}
step = {kind = "other", hidden = 8}
work.forward = {operations = ["epochs hidden 2"], bytes = ["epochs hidden 4"]}
work.backward = {operations = ["epochs hidden 4"], bytes = ["epochs hidden 4"]}
measures = [{column = "train_s", title = "Training time", unit = "s"},
    {column = "test_accuracy", title = "Test accuracy"}]
"""
HEADER = ("stage,device,threads,kind,hidden,epochs,dataset,load_s,setup_s,train_s,forward_s,"
          "backward_s,final_loss,test_accuracy,epoch_s,samples_per_s,best_test_accuracy,gflops,"
          "peak_rss_mib,peak_vram_mib,sweep,round")
SECONDS = {"00_serial": 4, "01_fast": 1, "peer_one": 2}
BLOCK = "<!-- table: begin -->\n<!-- table: end -->\n"
MARKED = "# Title\n\n" + "".join(BLOCK.replace("table", name)
                                 for name in ("table", "ladder", "epochs"))


def row(stage, kind="dense", hidden=8, factor=1.0, epochs=2, dataset="drawn", number=1):
    seconds = SECONDS[stage] * hidden * factor * epochs / 2
    phases = "," if stage.startswith("peer") else f"{seconds / 4},{seconds / 2}"
    return (f"{stage},cpu,{1 + (stage == '01_fast')},{kind},{hidden},{epochs},{dataset},0.1,0.2,"
            f"{seconds},{phases},0.5,0.9,{seconds / 2},{1000 / seconds},0.9,"
            f"{40 / SECONDS[stage]},10,,1,{number}")


def rows_of(stages=SECONDS, kinds=("dense", "other"), hiddens=(8, 64)):
    return [row(stage, kind, hidden, factor, number=number)
            for number, factor in ((1, 1), (2, 1.02)) for kind in kinds for hidden in hiddens
            for stage in stages]


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


def make_results(machine, rows=None, **others):
    """A folder of results with all files that are read."""
    files = {
        "stages/runs.csv": [HEADER, *(rows_of() if rows is None else rows)],
        "stages/growth/runs.csv": [HEADER, *(
            row(stage, hidden=hidden, epochs=epochs) for stage in SECONDS
            for hidden, epochs in ((8, 1), (64, 1), (8, 2), (8, 4)))],
        "stages/epochs.csv": [
            "stage,device,threads,kind,hidden,epochs,dataset,run,epoch,epoch_s,samples_per_s,"
            "test_accuracy", *(f"00_serial,cpu,1,other,8,2,drawn,1,{epoch},{epoch},5,0.5"
                               for epoch in (1, 2))],
        "stages/steps/runs.csv": [HEADER, *(rows_of(hiddens=(8,)) if rows is None else ())],
        "stages/sweeps.csv": sweeps("A processor, 2 cores"),
        "stages/programs.csv": programs("a reason"),
        "bench/ceilings.json": [json.dumps({"benchmarks": [
            {"name": f"ceilings/{name}/real_time/threads:{threads}", "run_type": "iteration",
             what: rate} for name, what, rate in (("multiply_add", "flops", 2e11), (
                 "read/memory", "bytes_read", 1e10)) for threads in (1, 2)]})]} | others
    for name, lines in files.items():
        (machine / name).parent.mkdir(parents=True, exist_ok=True)
        (machine / name).write_text("\n".join([*lines, ""]), encoding="utf-8")
    return machine


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A repository of one ladder, and the harness and the report, imported from it."""
    tree = tmp_path_factory.mktemp("tree")
    for part in ("harness/*.*", "report/*.*", "report/templates/*"):
        for path in REPOSITORY.glob(part):
            (tree / path.relative_to(REPOSITORY)).parent.mkdir(exist_ok=True)
            shutil.copy(path, tree / path.relative_to(REPOSITORY))
    for stage in ("00_serial", "01_fast", "02_absent"):
        (tree / "stages" / stage).mkdir(parents=True)
        (tree / "stages" / stage / "Makefile").write_text("MOVE = a move\n")
        (tree / "stages" / stage / "README.md").write_text(f"# {stage}: a move\n\n{BLOCK}\n")
        (tree / "stages" / stage / "train.c").write_text("int main(void) { return 0; }\n")
    (tree / "stages/ladder.toml").write_text(LADDER)
    (tree / "stages/README.md").write_text(MARKED)
    (tree / "stages/peers").mkdir()
    (tree / "stages/peers/peer_one.py").touch()
    before = Path.cwd()
    with imported(tree) as site:
        os.chdir(tree)
        yield site
    os.chdir(before)


@pytest.fixture
def results(tree):
    yield tree.root / "report/results"
    shutil.rmtree(tree.root / "report/results", ignore_errors=True)


class TooLong(BaseException):
    pass


def call(tree, module, *words, limit=LIMIT_S):
    """(exit status, lines on standard error) of a program. It fails where the program takes too
    long. An error of another kind than the program's own is the test's failure."""
    def stop(*_):
        raise TooLong(f"{module} takes longer than {limit} s")
    timers = (signal.SIGPROF, signal.ITIMER_PROF, limit), (signal.SIGALRM, signal.ITIMER_REAL,
                                                           12 * limit)
    for number, timer, seconds in timers:
        signal.signal(number, stop)
        signal.setitimer(timer, seconds)
    try:
        status, said = tree.call(module, *words)
    finally:
        for _, timer, _ in timers:
            signal.setitimer(timer, 0)
    assert status in (None, 0, 1, 2), status
    return status or 0, said


def of_markdown(tree, *texts):
    """The pages that GitHub would make of texts in Markdown."""
    return [Page(text) for text in tree.page.pandoc(texts)]


def words(text):
    return " ".join(text.split())


def check_page(page, healthy):
    """What is damaged changes what a page says, and not what it consists of."""
    assert page.tags <= healthy.tags, page.tags - healthy.tags
    assert page.attributes <= healthy.attributes, page.attributes - healthy.attributes
    assert page.html.count("<script") == healthy.html.count("<script")
    bad = [target for _, target in page.links if "evil" in (target or "").partition("data:")[0]
           and not re.match("(../)?(report/)?results/", target)]
    assert not bad, bad


def test_what_is_written_replaces_files_only(tree, tmp_path):
    """Written beside and renamed: a pipe, a folder and a loop stay what they are."""
    runs = make_results(tmp_path / "lab") / "stages/runs.csv"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to("pipe")
    kinds = {path.name: os.lstat(path).st_mode for path in tmp_path.iterdir()}
    for name in {*kinds} - {"lab"}:
        for option in ("--output", "--update"):
            status, said = call(tree, "tables", option, tmp_path / name, runs)
            assert status == 2 and len(said) == 1, (name, said)
    assert {path.name: os.lstat(path).st_mode for path in tmp_path.iterdir()} == kinds
    (tmp_path / "old").write_text("old")
    (tmp_path / "to_old").symlink_to("old")
    assert call(tree, "tables", "--output", tmp_path / "to_old", runs) == (0, [])
    assert "Training" in (tmp_path / "old").read_text() and (tmp_path / "to_old").is_symlink()


@pytest.mark.parametrize("ceilings", [True, False])
@pytest.mark.parametrize("stages", [("01_fast", "peer_one"), ("01_fast",), ("peer_one",),
                                    ("00_serial",), ()], ids=str)
def test_a_ladder_is_drawn_with_what_there_is(tree, results, stages, ceilings):
    machine = make_results(results / "lab", rows_of(stages))
    if not ceilings:
        shutil.rmtree(machine / "bench")
    readme = tree.root / "shown.md"
    readme.write_text(MARKED)
    status, said = call(tree, "tables", "--update", readme, machine / "stages/runs.csv")
    assert (status, len(said)) == ((0, 0) if stages else (2, 1)), said
    text = readme.read_text()
    assert all(f"| {stage}" in text for stage in stages)
    assert ("Peak is what" in text) == (bool(stages) and ceilings)
    assert call(tree, "write")[0] == 0
    page = Page((tree.root / "report/index.html").read_text())
    assert ("stages/lab" in page.lines) == bool(stages)


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


def test_text_is_shown_as_it_is(tree, results):
    """Each text stands in every field that is shown: in Markdown that pandoc reads, in the page,
    and in the page of a class."""
    make_results(results / "healthy")
    readme, fields, texts = tree.root / "shown.md", {}, []
    for number, sign in enumerate(SIGNS[::1 if FULL else 3]):
        # A dot makes a stage a step, which the headline leaves out.
        stage, data, kind = f"07_{sign}".replace(".", "")[:100], sign[:100], sign[:100]
        lines = [row(name, in_quotes(kind), dataset=in_quotes(data))
                 for name in ("00_serial", "01_fast")]
        lines[1] = lines[1].replace("01_fast", in_quotes(stage), 1)
        machine = make_results(
            results / f"{number:02} {sign}".replace("/", "")[:80], lines, **{
                "stages/sweeps.csv": sweeps(f"c {sign}", gpu=f"g {sign}", compiler=sign,
                                            revision=sign, began=sign),
                "stages/programs.csv": programs(sign)})
        shutil.rmtree(machine / "stages/steps")
        fields[machine.name] = stage, data, kind, f"c {sign}; g {sign}", f"02_absent: {sign}"
        readme.write_text(MARKED)
        for _ in range(2):  # the second time between the same markers
            assert call(tree, "tables", "--update", readme, machine / "stages/runs.csv") == (0, [])
        texts.append(readme.read_text())
        assert all(texts[-1].count(f"<!-- {name}: {which} -->") == 1
                   for name in ("table", "ladder", "epochs") for which in ("begin", "end")), sign
    for found, page in zip(fields.values(), of_markdown(tree, *texts)):
        assert not page.tags & {"script", "b", "em", "strong", "del", "code", "img"}
        check_page(page, page)
        for field in found:
            assert words(field) in words(page.text), (field, page.text)
    status, said = call(tree, "write", limit=300)
    assert status == 0 and len(said) == 1, said
    page = Page((tree.root / "report/index.html").read_text())
    status, said = call(tree, "class", results, limit=100)
    class_page = Page((results / "class.html").read_text())
    assert status == 0 and len(said) == 1
    assert page.html.count("<script") == 2 and class_page.html.count("<script") == 0
    for name, found in fields.items():
        for where, expected in ((page, found), (class_page, (*found[:4], name))):
            for text in expected:
                assert words(text) in words(where.text), text
    for each in (page, class_page):
        assert not any(target.startswith(("http://evil", "https://evil", "x", "mailto", "http://www"))
                       for _, target in each.links)


def test_what_moves_a_cursor_is_not_shown(tree, tmp_path):
    machine = make_results(tmp_path / "lab", **{
        "stages/sweeps.csv": sweeps(CONTROLS), "stages/programs.csv": programs(CONTROLS)})
    readme, out, runs = tmp_path / "README.md", tmp_path / "out", machine / "stages/runs.csv"
    readme.write_text(MARKED)
    for option, path in (("--output", out), ("--update", readme)):
        assert call(tree, "tables", option, path, runs) == (0, [])
        text = path.read_text()
        assert "a\ufffd" in text and text.replace("\n", "").isprintable(), path
    # A stage has no such name, and what says so has none either.
    name = CONTROLS.replace("\0", "")
    runs.write_text("\n".join([HEADER, row("01_fast").replace("fast", name), ""]))
    status, said = call(tree, "tables", runs)
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
           "stages/epochs.csv", "stages/sweeps.csv", "stages/programs.csv",
           *["bench/ceilings.json"] * 2]
KINDS = {  # what stands in the place of a file
    "pipe": os.mkfifo, "folder": os.mkdir, "absent": lambda path: None,
    "huge": lambda path: (path.touch(), os.truncate(path, 1 << 40)),
    "linked pipe": lambda path: (os.mkfifo(path.with_name("a pipe")), path.symlink_to("a pipe")),
    "loop": lambda path: path.symlink_to(path.name), **{
        target: lambda path, target=target: path.symlink_to(target)
        for target in ("/dev/zero", "/proc/self/mem", "nothing")}}
ENCODINGS = {
    "utf-16": lambda text: text.decode().encode("utf-16"),
    "bom": lambda text: b"\xef\xbb\xbf" + text,
    "crlf": lambda text: text.replace(b"\n", b"\r\n"), "empty": lambda text: b""}


class Damage:
    """A random damage of a file in a folder, made by a seed."""

    def __init__(self, seed, folder):
        self.random = random.Random(seed)
        self.path = folder / self.random.choice(RESULTS)
        kinds = [self.bytes, self.word, self.kind, self.encoding, self.lines]
        kinds += 4 * [self.json if self.path.suffix == ".json" else self.table]
        how = self.random.choice(kinds)
        self.what = f"{self.path.relative_to(folder)}: {how.__name__}: {ascii(how())[:100]}"

    def bytes(self):
        data = bytearray(self.path.read_bytes())
        start = self.random.randrange(len(data) + 1)
        end = min(len(data), start + self.random.randrange(40))
        new = self.random.choice((b"", data[start:end] * 2, self.random.randbytes(5)))
        data[start:self.random.choice((end, end, len(data)))] = new
        self.path.write_bytes(data)
        return start, end, bytes(new)

    def word(self):
        """A word in the place of another."""
        text, word = self.path.read_text(), self.random.choice(WORDS)
        start, end = self.random.choice([
            match.span() for match in re.finditer(r"[^\s,:;\"{}\[\]]+", text)])
        self.path.write_bytes((text[:start] + word + text[end:]).encode(errors="surrogatepass"))
        return text[start:end], word

    def kind(self):
        kind = self.random.choice([*KINDS])
        self.path.unlink()
        KINDS[kind](self.path)
        return kind

    def encoding(self):
        encoding = self.random.choice([*ENCODINGS])
        self.path.write_bytes(ENCODINGS[encoding](self.path.read_bytes()))
        return encoding

    def lines(self):
        """Lines that are many, or long, or lost."""
        lines = self.path.read_bytes().splitlines(keepends=True)
        place, what = self.random.randrange(len(lines)), self.random.choice((
            "many", "long", "lost"))
        if what == "many":
            lines[place:place] = [lines[place]] * 1000
        elif what == "long":
            lines[place] = lines[place].rstrip(b"\n") * 10000 + b"\n"
        else:
            lines = [line for line in lines if self.random.random() < 0.7]
        self.path.write_bytes(b"".join(lines))
        return what, place

    def table(self):
        """Other fields, columns and rows."""
        rows = [line.split(",") for line in self.path.read_text().split("\n")]
        line = self.random.randrange(len(rows))
        column, word = self.random.randrange(len(rows[line])), self.random.choice(WORDS)
        what = self.random.choice(("field", "field", "values", "column", "stage", "swap"))
        if what == "field":
            rows[line][column] = word
        elif what == "stage":
            rows = rows[:1] + [row_ for row_ in rows[1:] if row_[0] == rows[line][0]]
        for row_ in rows[what != "column":]:
            if what in ("values", "column"):
                row_[column:column + 1] = [word] * (what == "values")
            elif what == "swap":
                self.random.shuffle(row_)
        self.path.write_bytes("\n".join(map(",".join, rows)).encode(errors="surrogatepass"))
        return what, line, column, word

    def json(self):
        """Another value."""
        data = {"all": json.loads(self.path.read_text())}
        places = [(data, "all")]
        for node, key in places:
            below = node[key]
            places += [(below, each) for each in (
                below if isinstance(below, dict) else
                range(len(below)) if isinstance(below, list) else ())]
        node, key = self.random.choice(places)
        node[key] = self.random.choice(VALUES)
        self.path.write_text(json.dumps(data["all"]))
        return key, node[key]


class Resume:
    """What --resume reads, before it runs anything."""

    def __init__(self, tree):
        self.sweep = tree.sweep

    def main(self):
        options, found = self.sweep.parse(sys.argv[1:])
        sweep = self.sweep.Sweep(found[0], options, SimpleNamespace(say=print), None)
        sweep.describe = lambda: ({"threads": "2", "others": "0"}, {})
        sweep.open_folder()
        try:
            sweep.open_results()
        finally:
            os.close(sweep.lock)


def test_random_damages(tree, results):
    """DAMAGES folders of results, each damaged by its own seed. No reader ends in a traceback,
    takes long, says what is wrong in more than a line, or changes what a page consists of."""
    tree.resume, readme, out = Resume(tree), tree.root / "shown.md", tree.root / "out"
    pages = tree.root / "report/index.html", results / "class.html"
    healthy = make_results(results / "healthy")
    readme.write_text(MARKED)
    call(tree, "tables", "--update", readme, healthy / "stages/runs.csv")
    of_readme, = of_markdown(tree, readme.read_text())
    (results / "empty").mkdir()  # which a class leaves out
    shutil.rmtree(make_results(results / "no bench", rows_of(("01_fast",))) / "bench")
    call(tree, "write")
    call(tree, "class", results)
    before = [Page(path.read_text()) for path in pages]
    for start in range(SEED, SEED + DAMAGES, BATCH):
        shutil.rmtree(results)
        make_results(results / "healthy")
        texts, damages = [], {}
        for seed in range(start, min(start + BATCH, SEED + DAMAGES)):
            # The rows of each are its own, because a class leaves out those that are a copy.
            machine = make_results(results / f"seed {seed}", [
                *rows_of(), row("01_fast", factor=1 + seed / 1e6)])
            damages[seed] = damage = Damage(seed, machine).what
            runs = machine / "stages/runs.csv"
            readme.write_text(MARKED)
            out.write_text("")
            for words_ in (("tables", "--output", out, runs), ("tables", "--update", readme, runs),
                           ("resume", "--resume", "--output", machine / "stages")):
                try:
                    status, said = call(tree, *words_)
                except BaseException as error:
                    raise AssertionError(f"seed {seed}: {damage}: {words_[0]}") from error
                assert (status in (0, 2) and bool(said) >= (status == 2) and all(
                    line.isprintable() and len(line) < 1000 and machine.name in line
                    for line in said)), (seed, damage, status, said)
            assert out.read_text().replace("\n", "").isprintable() or not out.read_text()
            texts.append(readme.read_text())
        for (seed, damage), text, page in zip(damages.items(), texts, of_markdown(tree, *texts)):
            assert all(text.count(f"<!-- {name}: {which} -->") == 1 for which in ("begin", "end")
                       for name in ("table", "ladder", "epochs")), (seed, damage)
            check_page(page, of_readme)
        for words_ in (("write",), ("class", results)):
            try:
                status, said = call(tree, *words_, limit=LIMIT_S + BATCH)
            except BaseException as error:
                raise AssertionError(f"{words_[0]}, in one of {damages}") from error
            assert status == 0 and all(re.search("seed [0-9]+|^Written", line)
                                       for line in said), (said, damages)
        for path, page in zip(pages, before):
            check_page(Page(path.read_text()), page)
