"""Tests what is shown of results. First, that the tables and plots of the committed records have
what these records say, by arithmetic of this file's own. Then on a made-up ladder of three stages,
whose expected numbers are worked out by hand."""

import csv
import json
import re
from statistics import median

import pytest
from programs import ROOT, script

from bench import ladders, rows, stage

matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("tabulate")

from report import frames, look, pages, plots, roofline, tables, terminal  # noqa: E402

CPU = ROOT / "report/results/amd-epyc-family-26-model-2-2-cores"
GPU = ROOT / "report/results/intel-xeon-family-6-model-207-16-cores-nvidia-h200"
SMALL, LARGE = {"hidden": "32", "batch": "32"}, {"hidden": "256", "batch": "128"}


# --- the committed records ---


def lines_of(home, kind, **values):
    """The rows of the main ladder's record as they are in the file, of sweeps of a kind, with these
    values."""
    with (home / "stages/sweeps.csv").open() as file:
        sweeps = {line["sweep"] for line in csv.DictReader(file)
                  if line["key"] == "kind" and line["value"] == kind}
    with (home / "stages/runs.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["sweep"] in sweeps and all(
            row[name] == value for name, value in values.items())]


def time_of(home, kind, column="train_s", **values):
    """The median of the undisturbed runs."""
    found = lines_of(home, kind, **values)
    rates = {}
    for row in lines_of(home, kind):
        rates[row["threads"]] = max(rates.get(row["threads"], 0), float(row["rate"] or 0))
    quiet = [row for row in found if float(row["others"] or 0) <= 10
             and float(row["rate"] or 1e9) >= 0.9 * rates[row["threads"]]]
    return median(float(row[column]) for row in quiet or found)


def digits(text):
    return float(re.sub("[×,% ]", "", text))


def machine(which):
    return frames.Machine(frames.reference(which), ladders.find_ladder(""))


def test_the_first_screen_has_the_speedups_of_one_machine():
    table = tables.front_table(machine("gpu")).set_index("")
    base = time_of(GPU, "steps", stage="00_serial", **LARGE)
    for name, threads in (("01_vectorized", "1"), ("02_openmp", "16"), ("06_sparse", "16"),
                          ("08_cuda_graphs", ""), ("10_cuda_persistent", "")):
        runs = [float(row["train_s"]) / int(row["epochs"]) for kind in ("steps", "grid")
                for row in lines_of(GPU, kind, stage=name, threads=threads, **LARGE)]
        assert digits(table.loc[name, "ms an epoch"]) == pytest.approx(1e3 * median(runs), rel=5e-3)
        assert digits(table.loc[name, "speedup"]) == pytest.approx(base / median(runs), rel=6e-3)
        assert table.loc[name, "threads"] == threads
    assert digits(table.loc["08_cuda_graphs", "speedup"]) == 5029
    assert table.loc["00_serial", "speedup"] == "1" and "cuBLAS" in table.index
    assert not {"07_mpi", "11_mpi_lookahead"} & {*table.index}
    small = time_of(GPU, "steps", stage="00_serial", **SMALL)
    own = [float(row["train_s"]) / int(row["epochs"]) for kind in ("steps", "grid")
           for row in lines_of(GPU, kind, stage="08_cuda_graphs", **SMALL)]
    assert digits(table.loc["08_cuda_graphs", "speedup at hidden 32, batch 32"]) == pytest.approx(
        small / median(own), rel=6e-3)
    assert table.loc["02_openmp", "speedup at hidden 32, batch 32"] == "109×, 8 threads"
    frame, cells, _ = tables.front(machine("gpu"))
    assert "08_cuda_graphs is 5,029 times as fast as 00_serial" in plots.answer(
        frame, cells[-1], machine("gpu"))
    # 64,961 GFLOP/s are the GPU's peak.
    rate = median(float(row["gflops"]) for kind in ("steps", "grid")
                  for row in lines_of(GPU, kind, stage="08_cuda_graphs", **LARGE))
    assert table.loc["08_cuda_graphs", "share of peak"] == f"{100 * rate / 64961.2:.0f} %"


@pytest.mark.parametrize(("which", "home", "name", "before", "threads"), [
    ("cpu", CPU, "01.2_register_tile", "01.1_loop_order", "1"),
    ("cpu", CPU, "02_openmp", "02.3_own_samples", "2"),
    ("gpu", GPU, "08.2_fused_update", "08.1_fused_output", "")])
def test_a_ladders_table_has_the_ratio_of_runs_of_one_round(which, home, name, before, threads):
    on_gpu = which == "gpu"
    found = tables.steps(machine(which), on_gpu, ROOT / "stages")
    assert [tables.MOVE in frame for frame in found.values()] == [True, False]
    only = {each.number for each in ladders.find_ladder("").stages if each.is_gpu == on_gpu}
    for cell in (SMALL, LARGE):
        frame = found[f"hidden {cell['hidden']}, batch {cell['batch']}"].set_index("")
        assert {re.match(r"\[([\d.]+)\]", each)[1] for each in frame.index} <= only
        row = frame.loc[frame.index.str.startswith(f"[{name.split('_')[0]}]")].iloc[0]
        own, other = ({(each["sweep"], each["round"]): float(each["train_s"])
                       for each in lines_of(home, "steps", stage=stage, threads=threads, **cell)}
                      for stage in (name, before))
        ratio = median(other[place] / own[place] for place in own if place in other)
        shown = row["gain"]
        if "to" in shown:  # 1 is in its interval
            low, high = map(float, shown.split(" to "))
            assert low <= 1 <= high and low <= ratio <= high
        else:
            assert digits(shown) == pytest.approx(ratio, rel=6e-3)
        time = time_of(home, "steps", stage=name, threads=threads, **cell)
        unit = 1e3 if "time (ms)" in row else 1
        assert digits(row[f"time ({'ms' if unit > 1 else 's'})"]) == pytest.approx(
            unit * time, rel=6e-3)


def test_a_stages_grid():
    cpu = machine("cpu")
    frame, _ = tables.grid_table(cpu, cpu.ladder.find("02"))
    own = time_of(CPU, "grid", stage="02_openmp", epochs="5", learning_rate="0.1", **LARGE)
    base = time_of(CPU, "grid", stage="00_serial", epochs="5", **LARGE)
    cell = frame.set_index("hidden").loc["256", "batch 128"]
    time, gain, share = re.fullmatch(r"(\S+) s, (\S+)×, (\d+) %", cell).groups()
    assert float(time) == pytest.approx(own, rel=5e-3)
    assert digits(gain) == pytest.approx(base / own, rel=5e-3)
    rate = time_of(CPU, "grid", "gflops", stage="02_openmp", epochs="5", learning_rate="0.1",
                   **LARGE)
    assert int(share) == pytest.approx(100 * rate / (cpu.peaks[2] / 1e9), abs=0.6)


def test_a_stage_that_names_times_has_them_beside_those_of_the_one_before():
    gpu = machine("gpu")
    frame, _ = tables.times_table(gpu, gpu.ladder.find("04"))
    assert [*frame["stage"]] == ["03", "04", "03", "04"]
    for cell, (_, row) in zip((SMALL, SMALL, LARGE, LARGE), frame.iterrows()):
        name = gpu.ladder.find(row["stage"]).name
        for column in "setup_s", "warmup_s", "train_s":
            own = 1e3 * time_of(GPU, "steps", column, stage=name, **cell)
            assert digits(row[f"`{column}` (ms)"]) == pytest.approx(own, rel=6e-3)
    assert tables.times_table(gpu, gpu.ladder.find("03"))[0].empty


def test_how_the_time_grows():
    curve = plots.growth_curve(machine("cpu"), "train_samples", "train_s")
    for name, count in (("01_vectorized", "1000"), ("06_sparse", "60000")):
        expected = time_of(CPU, "growth", stage=name, train_samples=count, epochs="1", hidden="64",
                           batch="64", threads="1" if name[1] == "1" else "2")
        assert curve[name, float(count)] == pytest.approx(expected, rel=1e-3)


def test_no_axis_has_two_points_and_the_growth_is_said_in_words():
    assert [*plots.growth_curves(machine("cpu"))] == ["train_samples", "hidden", "batch", "epochs"]
    least, most = (time_of(CPU, "growth", stage="06_sparse", train_samples=count, epochs="1",
                           hidden="64", batch="64", threads="2") for count in ("1000", "60000"))
    assert plots.of_growth(machine("cpu")).startswith(
        f"06_sparse is {most / least:.1f} times as slow with 60 times the training samples, ")
    assert " times as fast with 4,096 times the batch size" in plots.of_growth(machine("cpu"))


def test_a_growth_curve_has_the_fastest_and_the_slowest_library():
    times = {"01_a": (9, 9), "peer_b": (1, 4), "peer_c": (2, 3), "peer_d": (3, 2)}
    curve = plots.pandas.Series({(name, x): time for name, each in times.items()
                                 for x, time in enumerate(each)})
    assert {*plots.without_middle(curve).index.get_level_values(0)} == {"01_a", "peer_b", "peer_d"}


def test_the_accuracy_over_time():
    _, found = plots.over_epochs(machine("cpu"))
    assert {*found.index} == {(hidden, epochs) for hidden in (32, 64, 128, 256)
                              for epochs in (1, 2, 5, 10, 20, 40)}
    for hidden, epochs in found.index:
        for column in "train_s", "test_accuracy":
            expected = time_of(CPU, "grid", column, stage="02_openmp", hidden=str(hidden),
                               batch="64", epochs=str(epochs), learning_rate="0.1")
            assert found.at[(hidden, epochs), column] == pytest.approx(expected, rel=1e-3)


def test_a_colour_means_cpu_gpu_or_library():
    ladder = ladders.find_ladder("")
    names = "02_openmp", "05.2_split_sum", "peer_cublas"
    assert [look.colour(ladder, name) for name in names] == [look.CPU, look.GPU, look.LIBRARY]
    bars = plots.front(machine("gpu")).axes[0].patches
    assert {matplotlib.colors.to_hex(bar.get_facecolor()) for bar in bars} == {*look.KINDS}


def test_the_points_of_the_roofline():
    """A forward phase of 02 at hidden 256, batch 128: 2·(784 + 10) operations a unit and sample."""
    cpu = machine("cpu")
    runs = cpu.of("steps")
    found = frames.best(cpu, frames.cells(cpu, runs))
    top = max(cpu.peaks.values()) / 1e9
    points = {name: (x, y) for (x, phase), column in roofline.columns(
        cpu, found, (128, 256), top).items() if phase == "forward" for y, name in column}
    seconds = time_of(CPU, "steps", "forward_s", stage="02_openmp", **LARGE)
    assert points["02_openmp"][1] == pytest.approx(
        37800 * 256 * 1588 / seconds / 1e9, rel=1e-3)
    moved = 37800 * (3177 + 4 * 256) + 37800 / 128 * (3180 * 256 + 40)
    assert points["02_openmp"][0] == pytest.approx(37800 * 256 * 1588 / moved, rel=1e-3)
    assert not {"06_sparse", "07_mpi", "12.1_bytes"} & {*points}  # they do other work


def test_the_roofs_are_those_that_were_measured():
    with (CPU / "bench/ceilings.json").open() as file:
        measured = {each["run_name"]: each for each in json.load(file)["benchmarks"]}
    axis = roofline.roofline(machine("cpu")).axes[0]
    level = {round(float(line.get_ydata()[0]), 1) for line in axis.lines
             if len({*line.get_ydata()}) == 1}
    for threads in (1, 2):
        rate = measured[f"ceilings/multiply_add/real_time/threads:{threads}"]["flops"]
        assert round(rate / 1e9, 1) in level
    slanted = [line.get_ydata()[0] / line.get_xdata()[0] for line in axis.lines
               if len({*line.get_ydata()}) > 1]
    rate = next(each["bytes_read"] for name, each in measured.items()
                if "/read/L1/" in name and name.endswith("threads:1"))
    assert pytest.approx(rate / 1e9, rel=1e-3) in slanted


# --- a made-up ladder ---

LADDER = """\
title = "A ladder"
program = "train"
time = "train_s"
baseline = "00_plain"
heading = "{epochs} epochs of {images} images"
phases = []
headline = [[1, 8], [1, 64]]
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
       "images": 37800, "dataset": "mnist", "setup_s": 7, "train_s": 1, "test_accuracy": 0.9,
       "gflops": 2, "sweep": 1, "round": 1, "others": 0, "rate": 100}


def runs(name, *times, **values):
    """A row for each of the times, each in a round of its own."""
    return [{**ROW, "stage": name, "train_s": time, "round": number, **values}
            for number, time in enumerate(times, 1)]


def write_csv(path, lines):
    lines = [",".join(lines[0]), *(",".join(map(str, line.values())) for line in lines)]
    script(path, "").write_text("\n".join([*lines, ""]))


class Lab:
    """The results of one machine, below a root of their own."""

    def __init__(self, root, name="machine"):
        self.root = root
        self.home = root / name
        self.folder = self.home / "stages"

    def write(self, *parts, **kinds):
        """Writes rows, and sweeps of these kinds: steps=2."""
        write_csv(self.folder / "runs.csv", [row for part in parts for row in part])
        write_csv(self.folder / "sweeps.csv", [
            {"sweep": sweep, "key": key, "value": value}
            for kind, sweep in {"grid": 1, **kinds}.items()
            for key, value in {"cpu": "An Example", "kind": kind, "revision": "abc",
                               "began": "2026-01-02 03:04 UTC"}.items()])

    def programs(self, *found):
        write_csv(self.folder / "programs.csv", [
            dict(zip(rows.PROGRAMS, (1, *each, "-O3"))) for each in found])

    @property
    def machine(self):
        ladders.ladders.cache_clear()  # as in a new process: a source may have changed
        return frames.Machine(self.home, ladders.find_ladder(""))

    def stage(self, number):
        machine = self.machine
        return pages.stage(machine, machine.ladder.find(number))

    @property
    def ladder(self):
        return words(pages.ladder([(self.machine, False)], self.root))

    @property
    def text(self):
        return words(terminal.text(self.machine, ["grid", "steps"]))


def words(text):
    """A text with one blank between words."""
    return " ".join(text.split())


@pytest.fixture
def lab(tmp_path, monkeypatch):
    for name in ("00_plain", "01_fast/01.1_step", "01_fast", "02_gone"):
        script(tmp_path / "stages" / name / "train.c", "").write_text(f"int n = {name[1]};\n")
        (tmp_path / "stages" / name / "Makefile").touch()
        (tmp_path / "stages" / name / "README.md").write_text(f"# {name}: a move\n")
    (tmp_path / "stages/ladder.toml").write_text(LADDER)
    for module in (ladders, stage, pages):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(frames, "RESULTS", tmp_path)
    ladders.ladders.cache_clear()
    yield Lab(tmp_path)
    ladders.ladders.cache_clear()


def test_a_cell_has_the_median_the_speedup_and_the_share_of_peak(lab):
    # The medians are 4.1 and 0.25, and the highest rate of one thread is that after a run.
    lab.write(runs("00_plain", 4, 4.5, 4.1, rate=25),
              runs("01_fast", 0.25, 0.3, 0.2, threads=2, gflops=8, rate=30),
              runs("00_plain", 50, hidden=64, rate=25))
    script(lab.home / "bench/ceilings.json", "").write_text(json.dumps({"benchmarks": [
        {"run_name": f"ceilings/multiply_add/real_time/threads:{threads}", "flops": 2e10 * threads,
         "aggregate_name": name} for threads in (1, 2) for name in ("mean", "median")]}))
    found = words(lab.stage("01_fast"))
    assert "| 8 | 0.250 s, 16.4×, 20 % |" in found
    assert ("A cell has the time, the speedup over 00_plain and the share of peak. MNIST: 5 epochs "
            "of 37,800 images; medians of 3 runs; An Example; revision abc of 2026-01-02") in found
    assert "Peak is what multiply-adds alone reach: 40.0 GFLOP/s on 2 threads." in found
    assert "| 64 | 50.0 s, 8.0 % |" in words(lab.stage("00_plain"))


def test_the_fastest_number_of_threads_is_shown(lab):
    lab.write(runs("00_plain", 4), runs("01_fast", 3, threads=2), runs("01_fast", 2, threads=4),
              runs("01_fast", 2.5, threads=8))
    frame = tables.front_table(lab.machine).set_index("")
    assert [*frame.loc["01_fast", ["threads", "ms an epoch", "speedup"]]] == ["4", "400", "2.00×"]


def test_a_step_is_compared_with_the_row_above(lab):
    lab.write(runs("00_plain", 8), runs("00_plain", 4, 4, sweep=2),
              runs("01.1_step", 2, 1, sweep=2), runs("01_fast", 1.9, 1.2, sweep=2), steps=2)
    found = words(lab.stage("01.1"))
    assert "over 00" in found and "| hidden 8, batch 1 | 1.50 | 3.00× (2.00 to 4.00) |" in found
    assert "| [01.1](stages/01_fast/01.1_step) | a move | 1.50 | 3.00× |" in lab.ladder
    # 2 / 1.9 is 1.05, and 1 / 1.2 is 0.83: 1 lies between.
    assert "| [01](stages/01_fast) | a move | 1.55 | 0.833 to 1.053 |" in lab.ladder


def test_a_ratio_is_never_from_other_rounds_or_sweeps(lab):
    lab.write(runs("00_plain", 4, 8), runs("01_fast", 1, 1, sweep=2))
    assert "×" not in lab.ladder
    # Round 2 of sweep 1 is the only one that has both. The medians' ratio would be 6.
    lab.write(runs("00_plain", 4, 8), runs("01_fast", 1, sweep=2), runs("01_fast", 1, round=2))
    assert "| 1.00 | 8.00× in one round |" in lab.ladder


def test_changed_lines_stand_beside_the_gain_of_one_move_only(lab):
    lab.write(runs("00_plain", 4, 4), runs("01.1_step", 2, 2), runs("01_fast", 1, 1))
    assert "| 1.00 | 2.00× | 0 |" in lab.ladder
    lab.write(runs("00_plain", 4, 4), runs("01_fast", 1, 1))
    assert "| 1.00 | 4.00× |" in lab.ladder and "changed lines" not in lab.ladder


def test_disturbed_runs_count_only_where_a_cell_has_no_others(lab):
    lab.write(runs("00_plain", 4, 4), runs("01_fast", 1), runs("01_fast", 9, round=2, rate=80),
              runs("01.1_step", 2, 2, others=50))
    assert "01.1_step 2.00 01_fast 1.00" in lab.text
    # The first line says it, and no cell.
    assert lab.text.startswith(
        "An Example; busy during 2 of 5 runs, so times are too long ")
    assert "1 disturbed left out, 2 runs on a busy machine" in lab.ladder
    lab.write(runs("00_plain", 4, 4), runs("01_fast", 1), runs("01_fast", 9, round=2, rate=80))
    assert "busy" not in lab.text


def test_a_sentence_names_the_programs_that_were_edited_since(lab):
    lab.write(runs("00_plain", 4), runs("01_fast", 1))
    sources = {each.name: each.sources for each in lab.machine.ladder.stages}
    lab.programs(*((name, "ran", "", sources[name]) for name in ("00_plain", "01_fast")))
    with (lab.root / "stages/01_fast/train.c").open("a") as file:
        file.write("// A comment changes nothing that is measured.\n")
    assert "have changed" not in lab.ladder
    with (lab.root / "stages/01_fast/train.c").open("a") as file:
        file.write("int edited;\n")
    assert "The sources of 01 have changed since." in lab.ladder
    assert "have changed" not in lab.stage("00_plain")


def test_a_sentence_names_runs_on_other_data(lab):
    lab.write(runs("00_plain", 4, 4), runs("01_fast", 1, 1), runs("01.1_step", 1, dataset="drawn"),
              runs("01_fast", 2, 2, hidden=64), runs("01_fast", 2, hidden=64, dataset="drawn"))
    assert "The runs of 01.1 and 01 had other data: Random numbers." in lab.ladder
    lab.write(runs("00_plain", 4), runs("01_fast", 1))
    assert "Random" not in lab.ladder


def test_a_stage_without_runs_says_why(lab):
    lab.write(runs("00_plain", 4))
    lab.programs(("02_gone", "left out", "found no GPU", ""), ("01_fast", "cut off", "", ""))
    assert lab.stage("02_gone") == "02: left out: found no GPU."
    assert lab.stage("01.1") == f"01.1: not measured yet on {lab.machine.name}."
    assert "02: left out: found no GPU." in lab.ladder
    assert "02: left out: found no GPU." in lab.text and "01: cut off." in lab.text


def test_a_quick_look_is_short_and_says_what_to_type_next(lab):
    lab.home = lab.root / "machine-quick"
    lab.folder = lab.home / "stages"
    lab.write(runs("00_plain", 100, hidden=64))
    assert "Type next: make step STAGE=01.1" in lab.text
    assert "Training time" in lab.text and "Test accuracy" not in lab.text


def test_the_papers_figures_stand_below_ours(lab):
    (lab.root / "stages/paper.csv").write_text(
        "stage,batch,hidden,train_s\n00_plain,1,8,60\n02_gone,1,8,2.5\n")
    lab.write(runs("00_plain", 4), runs("01_fast", 2))
    assert "01_fast 2.00 00_plain, the paper 60.0 02_gone, the paper 2.50" in lab.text
    assert "02_gone, the paper 24.0×" in lab.text and "01_fast 2.00×" in lab.text
    lab.write(runs("00_plain", 4, epochs=1))  # other settings
    assert "the paper" not in lab.text


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
        assert lab.ladder
    assert end.value.code == 2 and f"{path}: {said}" in " ".join(capsys.readouterr().err.split())


def test_readmes_and_plots_are_written_once_and_no_table_has_two_machines(lab, monkeypatch):
    lab.write(runs("00_plain", 4), runs("01_fast", 1, 2, sweep=2), runs("00_plain", 3, 3, sweep=2),
              steps=2)
    other = Lab(lab.root, "other")
    other.write(runs("00_plain", 30), runs("02_gone", 0.5, device="An Accelerator", threads=""))
    script(lab.root / "reference", "").write_text("cpu machine\ngpu other\n")
    (lab.root / "stages/02_gone/Makefile").write_text("DEVICE = gpu\n")
    readme = lab.root / "stages/README.md"
    readme.write_text("above\n<!-- ladder: begin -->\nold\n<!-- ladder: end -->\nbelow\n")
    front = lab.root / "README.md"
    front.write_text("<!-- front: begin -->\n<!-- front: end -->\n")
    monkeypatch.setattr(pages, "own_machine", lambda: None)
    ladders.ladders.cache_clear()
    pages.main()
    files = [readme, front, *lab.root.glob("*/stages/plots/*")]
    first = [path.read_bytes() for path in files]
    above, below = words(first[0].decode()).split("machine/stages/runs.csv")
    assert above.startswith("above <!-- ladder: begin --> ![") and "| 1.50 |" in above
    assert below.endswith("<!-- ladder: end --> below") and "| 0.500 |" in below
    assert "0.500" not in above and "1.50" not in below
    assert "| 60.0× |" in words(first[1].decode())  # 30 / 0.5, and not 4 / 0.5
    assert {path.name for path in files[2:]} == {"cpu.svg", "gpu.svg", "front.svg"}
    pages.main()
    assert first == [path.read_bytes() for path in files]


def test_a_machine_of_ones_own_has_a_page_and_changes_no_readme(lab, monkeypatch):
    lab.write(runs("00_plain", 4), runs("01_fast", 1))
    Lab(lab.root, "other").write(runs("00_plain", 4))
    script(lab.root / "reference", "").write_text("cpu other\ngpu other\n")
    monkeypatch.setattr(pages.process, "output", lambda *_, **__: "machine\n")
    ladders.ladders.cache_clear()
    pages.main()
    page = words((lab.home / "README.md").read_text())
    assert "| [01_fast](../stages/01_fast) | 4.00× | 200 | a move | 1 |" in page
    assert "stages/plots/cpu.svg" in page and not (lab.root / "README.md").exists()
    lab.write(runs("01_fast", 1))  # the baseline has not run
    ladders.ladders.cache_clear()
    pages.main()
    assert "no speedup is known" in (lab.home / "README.md").read_text()
    lab.home.rename(lab.root / "machine-quick")
    assert pages.own_machine() == lab.root / "machine-quick"


def test_a_reference_that_is_not_there_is_one_line(lab, capsys):
    script(lab.root / "reference", "").write_text("cpu machine\n")
    for which in ("cpu", "gpu"):  # no folder, no line
        with pytest.raises(SystemExit):
            frames.reference(which)
        assert f"found no line '{which} MACHINE'" in capsys.readouterr().err


@pytest.mark.parametrize("markers", ["begin", "end begin", "begin begin end"])
def test_markers_that_are_wrong_are_one_line(lab, capsys, markers):
    page = lab.root / "README.md"
    page.write_text("\n".join(f"<!-- table: {each} -->" for each in markers.split()))
    with pytest.raises(SystemExit):
        pages.update(page, "table", str)
    assert "README.md: expected '<!-- table: begin -->' and, below it" in capsys.readouterr().err


@pytest.mark.parametrize("path", ROOT.glob("report/results/*/*/programs.csv"),
                         ids=lambda path: "/".join(path.parts[-3:-1]))
def test_what_a_record_says_ran_has_rows(path):
    """In that sweep. What had no time for all its cells is cut off, and may have some."""
    programs = rows.read_texts(path, rows.PROGRAMS)
    ran = programs[programs["outcome"] == "ran"]
    made = set()
    if (runs := path.with_name("runs.csv")).exists():
        made = {*rows.read_texts(runs, ["sweep", "stage"])[["sweep", "stage"]].itertuples(False)}
    assert {*ran[["sweep", "program"]].itertuples(False)} <= made
