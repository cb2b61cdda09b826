"""Tests what is shown of results, on a made-up ladder of three stages and a handful of rows. The
expected numbers are worked out by hand."""

import json

import pytest
from programs import script

from bench import compilers, ladders, options, rows, stage
from report import blocks, makes, terminal, view, write

LADDER = """\
title = "A ladder"
program = "train"
time = "train_s"
baseline = "00_plain"
heading = "{epochs} epochs of {images} images"
phases = []
headline = [[1, 8], [1, 64]]
[paper]
cite = "*A Paper*"
machine = "on its machine"
[[axes]]
option = "batch"
name = "Batch size"
values = [1, 2]
[[axes]]
option = "hidden"
name = "hidden units"
values = [8, 64]
[settings]
epochs = 5
images = 37800
[[measures]]
column = "train_s"
title = "Training time"
unit = "s"
[[measures]]
column = "test_accuracy"
title = "Test accuracy"
"""
ROW = {"stage": "00_plain", "device": "cpu", "threads": 1, "batch": 1, "hidden": 8, "epochs": 5,
       "images": 37800, "dataset": "mnist", "setup_s": 0, "train_s": 1, "test_accuracy": 0.9,
       "gflops": 2, "sweep": 1, "round": 1, "others": 0, "rate": 100}


def runs(stage, *times, **values):
    """A row for each of the times, each in a round of its own."""
    return [{**ROW, "stage": stage, "train_s": time, "round": number, **values}
            for number, time in enumerate(times, 1)]


def write_csv(path, lines):
    lines = [",".join(lines[0]), *(",".join(map(str, line.values())) for line in lines)]
    script(path, "").write_text("\n".join([*lines, ""]))


class Lab:
    def __init__(self, root):
        self.root, self.folder = root, root / "machine/stages"

    def write(self, *parts, **kinds):
        """Writes rows, and sweeps of these kinds: steps=2."""
        write_csv(self.folder / "runs.csv", [row for part in parts for row in part])
        write_csv(self.folder / "sweeps.csv", [
            {"sweep": sweep, "key": key, "value": value}
            for kind, sweep in {"grid": 1, **kinds}.items()
            for key, value in {"cpu": "An Example", "kind": kind}.items()])

    def programs(self, *found):
        write_csv(self.folder / "programs.csv", [
            dict(zip(rows.PROGRAMS, (1, *each, "-O3"))) for each in found])

    @property
    def results(self):
        ladders.ladders.cache_clear()  # as in a new process: a source may have changed
        return view.Results(self.folder, ladders.find_ladder(""))

    def lines(self, block=blocks.headline):
        """The lines of a block, or of the tables of a terminal, with one blank between words."""
        text = (block(self.results, ("grid", "steps")) if block is terminal.terminal else
                block(self.results, self.root))
        return [" ".join(line.split()) for line in text.split("\n")]

    def stage(self, name):
        results = self.results
        return blocks.measured(results, results.ladder.find(name))


@pytest.fixture
def lab(tmp_path, monkeypatch):
    for name in ("00_plain", "01_fast/01.1_step", "01_fast", "02_gone"):
        script(tmp_path / "stages" / name / "train.c", "").write_text(f"int n = {name[1]};\n")
        (tmp_path / "stages" / name / "Makefile").touch()
        (tmp_path / "stages" / name / "README.md").write_text(f"# {name}: a move\n")
    (tmp_path / "stages/ladder.toml").write_text(LADDER)
    for module in (ladders, stage, write):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    ladders.ladders.cache_clear()
    yield Lab(tmp_path)
    ladders.ladders.cache_clear()


def test_a_cell_has_the_median_the_speedup_and_the_share_of_peak(lab):
    # The medians are 4.1 and 0.25, and the highest rate of one thread is that after a run.
    lab.write(runs("00_plain", 4, 4.5, 4.1, rate=25),
              runs("01_fast", 0.25, 0.3, 0.2, threads=2, gflops=8, rate=30),
              runs("00_plain", 50, hidden=64, rate=25))
    script(lab.folder.parent / "bench/ceilings.json", "").write_text(json.dumps({"benchmarks": [
        {"run_name": f"ceilings/multiply_add/real_time/threads:{threads}", "flops": 2e10 * threads,
         "aggregate_name": name} for threads in (1, 2) for name in ("mean", "median")]}))
    lines = lab.lines()
    assert "| [00_plain](stages/00_plain) | a move | 1 | 4.10, 8.0 % | 50.0, 8.0 % |" in lines
    assert "| [01_fast](stages/01_fast) | a move | 2 | \\~0.250, 16.4×, 20 % | - |" in lines
    assert ("MNIST: 5 epochs of 37,800 images; medians of 1 to 3 runs; ~: a run is 10 % off the "
            "median; on An Example ([all runs](machine/stages/runs.csv)). Peak is what multiply-"
            "adds alone reach: 25.0 GFLOP/s on 1 thread, 40.0 GFLOP/s on 2 threads.") in lines[-3]
    assert "| 8 | \\~0.250, 16.4×, 20 % |" in lab.stage("01_fast")


def test_a_small_cell_may_have_fewer_threads(lab):
    lab.write(runs("00_plain", 4), runs("00_plain", 40, hidden=64), runs("01_fast", 2),
              runs("01_fast", 10, hidden=64, threads=2))
    assert ("| [01_fast](stages/01_fast) | a move | 2 | 2.00, 2.00× | 10.0, 4.00× |"
            ) in lab.lines()


def test_a_step_is_compared_with_the_line_above_in_the_cells_of_the_steps(lab):
    lab.write(runs("00_plain", 8), runs("00_plain", 4, 4, sweep=2),
              runs("01.1_step", 2, 1, sweep=2), runs("01_fast", 1.9, 1.2, sweep=2), steps=2)
    assert "| hidden 8, batch 1 | \\~1.50 | 3.00× (2.00 to 4.00) | - |" in lab.stage("01.1")
    assert "over 00" in lab.stage("01.1") and "| 8 | 8.00 |" in lab.stage("00_plain")
    ladder = lab.lines(blocks.ladder)
    assert ("| [01.1](stages/01_fast/01.1_step) | a move | 1 | \\~1.50 | \\~3.00× | - | 2 |"
            ) in ladder
    # 2 / 1.9 is 1.05, and 1 / 1.2 is 0.83: 1 lies between.
    assert "| [01](stages/01_fast) | a move | 1 | \\~1.55 | ≈ 1 | - | 0 |" in ladder
    # A cell that the baseline does not have is some step's own: other pages have no place for it.
    lab.write(runs("00_plain", 8), runs("00_plain", 4, sweep=2), runs("01.1_step", 2, sweep=2),
              runs("01.1_step", 3, 3, hidden=64, sweep=2),
              runs("01_fast", 1, 1, hidden=64, sweep=2), steps=2)
    assert "hidden 64" not in " ".join([*lab.lines(blocks.ladder), *lab.stage("01.1")])
    assert "hidden 64, batch 1 | 3.00×" in " ".join(lab.lines(makes.block))


def test_other_makes_have_a_column_in_the_cell_of_the_reference_machine(lab):
    lab.write(*(runs(stage, time, time, hidden=hidden) for stage, time, hidden in (
        ("00_plain", 4, 8), ("01.1_step", 2, 8), ("00_plain", 8, 64), ("01.1_step", 2, 64))))
    record = makes.record(lab.results).to_csv(index=False).replace("4.0", "3.0")
    script(lab.root / "other/stages/steps.csv", "").write_text(record.replace(",,An", ",old,An"))
    assert "01.1_step) | hidden 64, batch 1 | 4.00× | 3.00× Δ |" in " ".join(lab.lines(makes.block))
    assert lab.lines(makes.of_compilers) == ["Not measured yet."]
    row = dict.fromkeys([*compilers.COLUMNS, "gcc"], "x") | {"program": "01_fast", "clang": 1.5}
    write_csv(lab.root / "other/compilers.csv", [row])
    assert "| [01_fast](stages/01_fast), x Δ | x | 1.5 |" in lab.lines(makes.of_compilers)


def test_a_ratio_is_never_from_other_rounds_or_sweeps(lab):
    lab.write(runs("00_plain", 4, 8), runs("01_fast", 1, 1, sweep=2))
    assert "×" not in " ".join(lab.lines(blocks.ladder))
    # Round 2 of sweep 1 is the only one that has both. The medians' ratio would be 6.
    lab.write(runs("00_plain", 4, 8), runs("01_fast", 1, sweep=2), runs("01_fast", 1, round=2))
    assert "| 1.00 | 8.00× once |" in " ".join(lab.lines(blocks.ladder))


def test_disturbed_runs_count_only_where_a_cell_has_no_others(lab):
    lab.write(runs("00_plain", 4, 4), runs("01_fast", 1), runs("01_fast", 9, round=2, rate=80),
              runs("peer_one", 2, 2, others=50))
    text = "\n".join(lab.lines(terminal.terminal))
    assert "01_fast 1.00\n" in text and "peer_one !2.00\n" in text and "00_plain 4.00\n" in text
    text = " ".join(text.split())
    assert "medians of 1 to 2 runs, 1 disturbed left out" in text
    assert "!: all its runs were on a busy machine" in text


def test_a_program_that_was_edited_since_is_marked(lab):
    lab.write(runs("00_plain", 4), runs("01_fast", 1))
    sources = {stage.name: stage.sources for stage in lab.results.ladder.stages}
    lab.programs(*((name, "ran", "", sources[name]) for name in ("00_plain", "01_fast")))
    with (lab.root / "stages/01_fast/train.c").open("a") as file:
        file.write("// A comment changes nothing that is measured.\n")
    assert "Δ" not in " ".join(lab.lines()) and "earlier" not in lab.stage("01_fast")
    with (lab.root / "stages/01_fast/train.c").open("a") as file:
        file.write("int edited;\n")
    assert "| [01_fast](stages/01_fast) Δ | a move | 1 | 1.00, 4.00× |" in lab.lines()
    assert "Δ: its sources have changed since" in " ".join(lab.lines())
    assert "one run of each of earlier sources." in lab.stage("01_fast").lower()
    assert "earlier" not in lab.stage("00_plain")


def test_a_stage_without_runs_says_why(lab):
    lab.write(runs("00_plain", 4))
    lab.programs(("02_gone", "no device", "found no GPU", ""))
    assert lab.stage("02_gone") == "No machine has run it: found no GPU."
    assert lab.stage("01.1") == "No machine has run it yet."
    assert "No machine has run [02_gone](stages/02_gone): found no GPU." in lab.lines(blocks.ladder)
    assert "02_gone: no device: found no GPU" in lab.lines(terminal.terminal)


def test_the_fastest_stage_against_the_fastest_peer_in_each_cell(lab):
    # At 8: 2 of the peer over 1. At 64: 7 over 14.
    lab.write(runs("00_plain", 1), runs("peer_one", 2),
              runs("00_plain", 14, hidden=64), runs("peer_one", 7, hidden=64))
    assert ("the fastest stage is 1.00 times (0.50 to 2.00 in 2 cells) as fast as the fastest "
            "peer.") in " ".join(lab.lines())
    # What leaves operations out counts by itself.
    (lab.root / "stages/01_fast/Makefile").write_text("SKIPS = zeros\n")
    lab.write(runs("00_plain", 1, 1), runs("peer_one", 2, 3), runs("01_fast", 0.25, 0.5))
    assert ("the fastest dense stage is 2.50 times as fast as the fastest dense peer. Without "
            "multiplications by zero, the fastest is 3.00 times as fast as that."
            ) in " ".join(lab.lines())
    lab.write(runs("00_plain", 1, 1), runs("01_fast", 2, 4))  # it may be slower
    assert "the fastest is 0.38 times as fast as that" in " ".join(lab.lines())


def test_a_quick_look_says_what_to_type_next(lab):
    lab.folder = lab.root / "machine-quick/stages"
    lab.write(runs("00_plain", 100, hidden=64))
    assert "Type next: make step STAGE=01.1" in lab.lines(terminal.terminal)


def test_the_papers_figures_stand_below_ours(lab):
    (lab.root / "stages/paper.csv").write_text(
        "stage,batch,hidden,train_s\n00_plain,1,8,60\n02_gone,1,8,2.5\n02_gone,1,9,1\n")
    lab.write(runs("00_plain", 4), runs("01_fast", 2))
    lines = lab.lines(terminal.terminal)
    ours = lines.index("01_fast 2.00")
    assert lines[ours + 1:ours + 3] == ["00_plain, the paper 60.0", "02_gone, the paper 2.50"]
    assert [line for line in lines if "×" in line] == ["01_fast 2.00×", "02_gone, the paper 24.0×"]
    assert "The paper is A Paper; on its machine." in lines
    lab.write(runs("00_plain", 4, epochs=1))  # other settings
    assert not [line for line in lab.lines(terminal.terminal) if "paper" in line]


@pytest.mark.parametrize(("file", "edit", "said"), [
    ("runs.csv", ("800,mnist", "800x,mnist"), "line 2: images: found '37800x', expected a number"),
    ("runs.csv", (",2,0,100", ",2,0,100,7"), "cannot read: Expected 16 fields in line 3, saw 17"),
    ("runs.csv", ("train_s", "x_s"), "line 1: found no column 'train_s', expected the header"),
    ("sweeps.csv", ("1,kind", "one,kind"), "line 3: sweep: found 'one', expected a number"),
])
def test_a_damaged_file_is_one_line(lab, capsys, file, edit, said):
    lab.write(runs("00_plain", 4, 4))
    path = lab.folder / file
    path.write_text(path.read_text().replace(*edit, 1))
    with pytest.raises(SystemExit) as end:
        lab.lines()
    assert end.value.code == 2 and f"{path}: {said}" in " ".join(capsys.readouterr().err.split())


def test_readmes_and_plots_are_written_once(lab, monkeypatch):
    lab.write(runs("00_plain", 4), runs("01_fast", 1, 2, sweep=2), runs("00_plain", 3, 3, sweep=2),
              steps=2)
    readme = lab.root / "stages/README.md"
    readme.write_text("above\n<!-- ladder: begin -->\nold\n<!-- ladder: end -->\nbelow\n")
    monkeypatch.setattr(write, "own_machine", lambda: None)
    monkeypatch.setattr(view, "reference", lambda ladder: view.read(lab.folder, ladder))
    monkeypatch.setattr(write.figures, "pages", dict)
    write.main()
    files = [readme, *(lab.folder / "plots").iterdir()]
    first = [path.read_bytes() for path in files]
    assert first[0].startswith(b"above\n<!-- ladder: begin -->\n![") and b"| \\~1.50 |" in first[0]
    assert first[0].endswith(b"\n<!-- ladder: end -->\nbelow\n") and len(first) == 3
    write.main()
    assert first == [path.read_bytes() for path in files]


def test_a_machine_of_ones_own_has_a_page_and_changes_no_readme(lab, monkeypatch):
    lab.folder = lab.root / "results/mine/stages"
    lab.write(runs("00_plain", 4), runs("01_fast", 1))
    script(lab.root / "results/reference", "").write_text("another\n")
    monkeypatch.setattr(view, "HERE", lab.root)
    monkeypatch.setattr(write.counts, "run", lambda *_: "mine\n")
    write.main()
    page = (lab.root / "results/mine/README.md").read_text()
    assert "| [01_fast](../../stages/01_fast) | a move | 1 | 1.00, 4.00× |" in page
    assert "stages/plots/ladder.svg" in page and not (lab.root / "README.md").exists()
    (lab.root / "results/mine").rename(lab.root / "results/mine-quick")
    assert write.own_machine() == lab.root / "results/mine-quick"
    monkeypatch.setitem(options.GIVEN, "REFERENCE", "mine")
    assert write.own_machine() is None


def test_the_reference_machine(lab, monkeypatch, capsys):
    monkeypatch.setattr(view, "HERE", lab.root)
    lab.folder = lab.root / "results/machine/stages"
    lab.write(runs("00_plain", 4))
    monkeypatch.setitem(options.GIVEN, "REFERENCE", "machine")
    assert view.reference(ladders.find_ladder("")).folder == lab.folder
    monkeypatch.setitem(options.GIVEN, "REFERENCE", "none")
    with pytest.raises(SystemExit):
        view.reference(ladders.find_ladder(""))
    assert "REFERENCE: found 'none', expected a folder of report/results" in capsys.readouterr().err


@pytest.mark.parametrize("markers", ["begin", "end begin", "begin begin end"])
def test_markers_that_are_wrong_are_one_line(lab, capsys, markers):
    page = lab.root / "README.md"
    page.write_text("\n".join(f"<!-- table: {each} -->" for each in markers.split()))
    with pytest.raises(SystemExit):
        blocks.update(page, "table", str)
    assert "README.md: expected '<!-- table: begin -->' and, below it" in capsys.readouterr().err


def test_the_gpu_of_another_machine_stands_beside_with_no_ratio_between_them(lab):
    """A program that is wrong there has no time, and the table says why."""
    lab.write(runs("00_plain", 4), runs("01_fast", 2))
    gpu = Lab(lab.root)
    gpu.folder = lab.root / "other/stages"
    gpu.write(runs("01.1_step", 1, device="An Accelerator"), runs("00_plain", 3),
              runs("02_gone", 0.5, device="An Accelerator"))
    write_csv(gpu.folder / "sweeps.csv", [
        {"sweep": 1, "key": key, "value": value} for key, value in {
            "cpu": "Its Processor", "gpu": "An Accelerator", "kind": "grid"}.items()])
    lab.programs(("02_gone", "no device", "found no GPU", ""))
    script(gpu.folder.parent / "bench/ceilings.json", "").write_text(
        '{"benchmarks": [{"run_name": "gpu/fma", "value": 50, "unit": "GFLOP/s"}]}')
    gpu.programs(("01.1_step", "wrong", "b1[0] is {0}", ""))
    results = view.Results(lab.folder, ladders.find_ladder(""), gpu.folder)
    group, cell = results.grid, (1, 8)
    assert group.time(("00_plain", 1), cell) == 4  # of this machine
    assert group.ratio(("02_gone", 1), ("00_plain", 1), cell) is None
    assert group.speedup(("02_gone", 1), cell).text == "-"
    assert group.speedup(("01_fast", 1), cell).text == "2.00×"
    assert group.rungs(cell)[results.ladder.find("02")] == (("02_gone", 1), None)
    table = blocks.headline(results, lab.root)
    assert "| [02_gone](stages/02_gone) | a move | 1 | 0.500, 4.0 % |" in table
    assert ("on An Example, and the [GPU's rows](other/stages/runs.csv) on An Accelerator ("
            ) in table
    # As taken in, a wrong program has no rows.
    gpu.write(runs("02_gone", 0.5, device="An Accelerator"))
    results = view.Results(lab.folder, ladders.find_ladder(""), gpu.folder)
    assert ("[01.1_step](stages/01_fast/01.1_step): WRONG, so its times are left out: b1[0] is {0}."
            in blocks.headline(results, lab.root) + blocks.ladder(results, lab.root))
    assert blocks.measured(results, results.ladder.find("01.1")) == (
        "WRONG, so its times are left out: b1[0] is {0}.")
