"""A measured figure is written by `make report`, not by hand.

A figure is a number with a unit of time or of a rate (3 ms, 80 GFLOP/s), a ratio (1.2×, 1.2 times
as fast, 3 % longer), or an interval (0.9 to 1.1). In a README it stands between the marks of
report/figures.py or in a block that `make report` writes. Only code, and sections whose heading is
"The idea", "Exercise(s)" or names a prediction or arithmetic, may have typed ones.
"""

import re

import pytest
from programs import ROOT, run

from bench import ladders
from report import blocks, figures, view

HEAD = ("stage,device,threads,hidden,batch,epochs,learning_rate,seed,train_samples,test_samples,"
        "dataset,train_s,forward_s,backward_s,test_accuracy,gflops,sweep,round\n")
PREDICTIONS = re.compile(r"#+ (The idea$|Exercises?$|.*\b(predict|arithmetic))", re.I | re.M)
GENERATED = re.compile(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", re.DOTALL)
CODE = re.compile(r"^ *```.*?^ *```|(?<=\n\n)(?: {4}[^\n]*\n)+(?=\n|\Z)|`[^`]+`", re.DOTALL | re.M)
NUMBER = r"\d[\d.,]*(?:\s+to\s+\d[\d.,]*)?"
FIGURE = re.compile("|".join((
    rf"{NUMBER}\s*(?:[mµun]?s|min|minutes?|seconds?|[GT]?FLOP/s|[GMT]B/s)(?![\w/])",
    rf"{NUMBER}×",
    rf"{NUMBER}\s+times\s+(?:as|that|faster|slower|longer)\b",
    r"\d\.\d+\s+times\b",
    rf"{NUMBER}\s*%\s+(?:faster|slower|longer|shorter|less|more|of\s+(?:the|its)\s+(?:time|ceiling))",
    r"\d\.\d+\s+to\s+\d\.\d+")))
# setup/README.md has the time limits of `make gpu`, and .github/ has forms.
PAGES = [path for path in figures.pages() if path.parent.name not in ("setup", ".github")]


def typed(text):
    """The figures that a page has outside of marks, blocks, code and predictions, with lines."""
    for pattern in (GENERATED, figures.MARK, CODE):
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    # A prediction leaves its lines alone, so that the others keep their numbers.
    text = "".join(re.sub(r"[^\n]", " ", section) if PREDICTIONS.match(section) else section
                   for section in re.split(r"^(?=#+ )", text, flags=re.M))
    return [f"line {1 + text.count(chr(10), 0, found.start())}: {found[0]}"
            for found in FIGURE.finditer(text)]


def test_no_page_has_a_typed_figure():
    assert {str(page.relative_to(ROOT)): found for page in PAGES
            if (found := typed(page.read_text(encoding="utf-8")))} == {}


def test_no_page_with_marks_is_left_out():
    listed = run("git ls-files --cached --others --exclude-standard *.md", cwd=ROOT).stdout.split()
    marked = {page for page in map(ROOT.joinpath, listed) if figures.MARK.search(page.read_text())}
    assert marked and marked <= {*figures.pages()}


@pytest.mark.parametrize("text", [
    "gains 1.2×", "takes 3.4 ms", "is 1.5 times as fast", "1.4 and 1.2 times", "3 % longer",
    "80 GFLOP/s", "65 % of\nthe ceiling", "no difference (0.98 to 1.02)"])
def test_typed_figures_are_found(text):
    page = f"# 01_stage: a move\n\n## The idea\n\n5 ms\n\n## Measured\n\nIt {text}.\n"
    assert [found[:8] for found in typed(page)] == ["line 9: "]


@pytest.mark.parametrize("text", [
    "takes <!-- measured: 01 -->1.43 s<!-- end -->", "has 3 × 3 numbers", "runs 30 times",
    "has 1.34 MB", "says `train 1.4 s`:\n\n    took 3 s\n\n", "```\n3 s\n```\n",
    "\n\n## The prediction\n\n3 ms\n", "<!-- table: begin -->\n| 3.4 s |\n<!-- table: end -->"])
def test_other_numbers_may_be_typed(text):
    assert typed(f"# 01_stage: a move\n\n## Measured\n\nIt {text}\n") == []


@pytest.fixture
def update(tmp_path, monkeypatch):
    """Writes the marks of a text from made-up rows, and returns the text."""
    ladder = ladders.find_ladder("")
    settings = "5,0.1,1,37800,4200,mnist"
    (tmp_path / "runs.csv").write_text(
        HEAD + "".join(
            f"{stage},cpu,{threads},{hidden},{batch},{settings},{time},{time / 4},{time / 2},1,9,"
            "1,1\n"
            for stage, threads, time in (("00_serial", 1, 12), ("01_vectorized", 1, 3),
                                         ("02_openmp", 1, 3), ("02_openmp", 2, 1.5))
            for hidden, batch in ((32, 32), (256, 128))), encoding="utf-8")
    monkeypatch.setattr(figures, "ROOT", tmp_path)

    def run(text):
        path = tmp_path / "README.md"
        path.write_text(text, encoding="utf-8")
        figures.update(path, ladder, {ladder: view.read(tmp_path, ladder)})
        return path.read_text(encoding="utf-8")

    return run


@pytest.mark.parametrize("mark, figure", [
    ("01", "3.00 s"), ("02", "1.50 s"), ("01, hidden 32, batch 32", "3.00 s"),
    ("01 over 00", "4.00× once"), ("forward_s of 01", "0.750 s"),
    ("backward_s of 01\nover 00", "4.00× once"),
    ("test_accuracy of 00", "100.00 %"), ("01, epochs 5", "3.00 s"),
    ("01, epochs 4", "(not measured)"), ("01, hidden 64", "(not measured)"),
    ("03 over 00", "(not measured)")])
def test_a_mark_is_filled(update, mark, figure):
    text = update(f"It takes <!-- measured: {mark} -->old<!-- end -->. <!-- other -->\n")
    assert text == f"It takes <!-- measured: {mark} -->{figure}<!-- end -->. <!-- other -->\n"
    assert update(text) == text


@pytest.mark.parametrize("text, said", [
    ("a <!-- measured: 44 --><!-- end -->", "found '44', expected"),
    ("a <!-- measured: width of 01 --><!-- end -->", "found 'width', expected a column"),
    ("a <!-- measured: 01, width 3 --><!-- end -->", "found 'width', expected an option of st"),
    ("a <!-- measured: 01, hidden x --><!-- end -->", "hidden: found 'x', expected a whole"),
    ("a <!-- measured: 01 than 00 --><!-- end -->", "found '01 than 00', expected [COLUMN ")])
def test_a_wrong_mark_ends_with_a_line(update, capsys, text, said):
    with pytest.raises(SystemExit) as end:
        update(f"# Title\n\n{text}\n")
    output = capsys.readouterr().err
    assert end.value.code == 2 and f": README.md: line 3: {said}" in output
    assert output.count("\n") == 1


def test_a_gpus_time_stands_beside_its_prediction(tmp_path, monkeypatch):
    """In the cells that it ran: five epochs of 1,182 batches of 32, in 591 ms."""
    ladder, folder = ladders.find_ladder(""), tmp_path / "results/a_gpu/stages"
    folder.mkdir(parents=True)
    (folder / "runs.csv").write_text(
        HEAD + "03_cuda_unified,a GPU,,32,32,5,0.1,1,37800,4200,mnist,0.591,0.2,0.3,1,9,1,1\n")
    monkeypatch.setattr(view, "HERE", tmp_path)
    table = blocks.predictions(view.read(folder, ladder), ROOT)
    line, = (line for line in table.split("\n") if line.startswith("| [03_cuda_unified]"))
    found = [cell.strip() for cell in line.split("|")[2:-1]]
    assert found == [found[0], "100", f"{100 / float(found[0]):.2f}×", found[3], "", ""]
