"""Tests report/index.html and the plots, on made-up results in a made-up repository: a ladder of
two axes with all that a page can show, a study of one cell with notes and profiles, and a new
one."""

import csv
import itertools
import json
import math
import re
import shutil
import subprocess

import pytest
from look import REPOSITORY, Page, imported, look_at

pytestmark = pytest.mark.usefixtures("default_limits")

STUDY = """
title = "The study"
program = "run"
time = "time_s"
baseline = "00_plain"
measures = [{column = "time_s", title = "Training time", unit = "s"}]
"""
MAIN = STUDY.replace("study", "main ladder").replace(
    "}]", '}, {column = "forward_s", title = "Forward time", unit = "s"}]') + """
epochs = "epochs-csv"
phases = ["forward", "backward"]
paper = {cite = "*The <b> paper*, by nobody", file = "paper.csv"}
axes = [{option = "batch", name = "Batch size", values = [32, 128]},
    {option = "hidden", name = "Hidden units", values = [32, 256]}]
settings = {epochs = 3}
step = {batch = 128, hidden = 256}
work.forward = {operations = ["epochs hidden 2"], bytes = ["epochs hidden 4"]}
work.backward = {operations = ["epochs hidden 4"], bytes = ["epochs hidden 4"]}
"""
PLAIN = """\
static float add(const float *x, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i)
        sum += x[i];
    return sum;
}

int main(void) {
    printf("%f\\n", add((float[]){1, 2}, 2));
    return 0;
}
"""
FAST = PLAIN
for old, new in (("float sum = 0;", "float lanes[2] = {0};"), ("sum += x[i]", "lanes[0] += x[i]"),
                 ("return sum;", "return lanes[0] + lanes[1];"), (", add(", ", scale(add("),
                 ("2));", "2)));"),
                 ("int main", "static float scale(float value) {\n    return 2 * value;\n}\n\n"
                  "int main")):
    FAST = FAST.replace(old, new)
BLOCKS = "".join(f"<!-- {name}: begin -->\n<!-- {name}: end -->\n" for name in (
    "table", "ladder", "epochs"))
NOTES = """\
# 01_fast: two `sums` | at once

## The prediction

A guess.

## What the diff shows

New function: `scale`.

- The sums are `lanes` in `add`.

## Measured

<!-- table: begin -->
<!-- table: end -->

See [the first](../00_plain), [a file](run.c) and ![a picture](picture.svg).
"""
SECONDS = {"00_plain": 4, "01_fast": 0.5, "peer_one": 1}


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def write_rows(root, path, rows):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    with (root / path).open("w", newline="") as file:
        writer = csv.DictWriter(file, dict.fromkeys(name for row in rows for name in row),
                                lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def row(stage, seconds, batch=32, hidden=32, epochs=3, number=1, threads=1, **others):
    """A run of the main ladder, in the round of this number."""
    is_peer = stage.startswith("peer")
    return {"stage": stage, "device": "cpu", "threads": threads, "batch": batch, "hidden": hidden,
            "epochs": epochs, "dataset": "drawn", "setup_s": 0.001, "time_s": seconds,
            "forward_s": None if is_peer else seconds / 4,
            "backward_s": None if is_peer else seconds * 3 / 4, "gflops": 100,
            "epoch_s": seconds / 3, "samples_per_s": 60 / seconds if seconds else None,
            "test_accuracy": 0.97, "best_test_accuracy": 0.975,
            "final_loss": 1 / epochs if epochs else None, "peak_rss_mib": 12,
            "peak_vram_mib": None, "sweep": 1, "round": number, "rate": 100, **others}


def make_results(root):
    """A machine with everything, one with a single stage whose times are in ms, a quick look."""
    full = []
    for stage, seconds in SECONDS.items():
        for batch, hidden in ((32, 32), (32, 256), (128, 32), (128, 256)):
            spread = 10 if (stage, hidden) == ("01_fast", 256) else 1
            rate = 50 if (stage, batch, hidden) == ("peer_one", 32, 32) else 100  # disturbed
            full += [row(stage, seconds * hidden / 32 * (1 + spread * off), batch, hidden,
                         number=number, rate=rate)
                     for number, off in enumerate((-0.05, 0, 0.08), 1)]
    write_rows(root, "full/stages/runs.csv", full)
    for folder in ("full/stages", "full/stages/steps", "full/noted"):
        write(root, f"{folder}/sweeps.csv", "sweep,key,value\n1,cpu,A & B <1>\n1,compiler,gcc\n")
    for folder, sources in (("full/stages", "0123456789ab"), ("full/stages/steps", "")):
        write(root, f"{folder}/programs.csv", "sweep,program,outcome,reason,sources,flags\n"
              f"1,02_gpu,did not run,no <device> | here,,\n1,01_fast,ran,,{sources},\n")
    # 01.1 is four times as fast as the line above, and the next one is as fast as that.
    write_rows(root, "full/stages/steps/runs.csv", [
        row(stage, seconds * hidden / 32 * (1 + spread * (-1) ** number * number), batch, hidden,
            number=number, epochs=1)
        for batch, hidden in ((32, 32), (128, 256)) for number in range(1, 10)
        for stage, seconds, spread in (("00_plain", 4, 0), ("01.1_loops", 1, 0.001),
                                       ("01_fast", 1, 0.002))])
    write_rows(root, "full/stages/growth/runs.csv", [
        row(stage, seconds * epochs * hidden / 32, hidden=hidden, epochs=epochs)
        for stage, seconds in SECONDS.items()
        for hidden, epochs in ((16, 1), (32, 1), (64, 1), (128, 1), (32, 2), (32, 3))])
    # The last runs were stopped, and are the simulated device's.
    write_rows(root, "full/stages/epochs.csv", [
        {"stage": stage, "device": device, "threads": 1, "batch": 128, "hidden": 256, "epochs": 3,
         "dataset": "drawn", "run": run, "epoch": epoch, "epoch_s": 2 + epoch / 8,
         "test_accuracy": 0.9 + epoch / 50, "samples_per_s": 60}
        for run, (stage, device, epochs) in enumerate((
            ("00_plain", "cpu", (3, 1, 2)), ("01_fast", "cpu", (1, 2, 3)), ("01_fast", "cpu", (1,)),
            ("peer_one", "simulated", (1, 2, 3)))) for epoch in epochs])
    write(root, "full/bench/all.json", json.dumps({"benchmarks": [
        {"name": f"ceilings/{name}/real_time/threads:1", "run_type": "iteration", what: rate}
        for name, what, rate in (("multiply_add", "flops", 2e11),
                                 ("read/memory", "bytes_read", 2e10))]}))
    write_rows(root, "alone/stages/runs.csv", [row("01_fast", 0.0005, 128, 256)])
    write(root, "alone/stages/sweeps.csv", "sweep,key,value\n1,cpu,Alone\n")
    write_rows(root, "full-quick/stages/runs.csv", [row("00_plain", 4)])
    write(root, "full-quick/stages/sweeps.csv", "sweep,key,value\n1,cpu,QUICK\n")
    write_rows(root, "full/stages/2026-01-01_000000/runs.csv", [row("00_plain", 777)])
    write_rows(root, "full/noted/runs.csv", [
        {"stage": stage, "device": "cpu", "threads": 1, "dataset": "drawn", "time_s": seconds,
         "gflops": 1, "sweep": 1, "round": 1}
        for stage, seconds in (("00_plain", 2), ("01_fast", 0.5))])


def make_profiles(folder):
    """Two profiles, of which one is the reader's own. A line has moved since its profile."""
    for name, lines in (
            ("00_plain", "function: add, run.c\n\nsamples   share   line\n"
             "                      3      for (int i = 0; i < n; ++i)\n"
             "    700   70.0%       6          sum += x[i];\n"),
            ("mine/01_fast", "    250   25.0%       4          lanes[0] += x[i];\n"
             "      1    0.1%       9      return 2 * value;\n")):
        write(folder, f"{name}/lines.txt", lines)
        write(folder, f"{name}/stacks.txt", "main;add 700\nmain;show 300\n")
        write(folder, f"{name}/flame.svg", '<svg xmlns="http://www.w3.org/2000/svg"/>')


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The repository, with its page."""
    root = tmp_path_factory.mktemp("repository")
    for part in ("harness/*.*", "report/*.*", "report/templates/*"):
        for path in REPOSITORY.glob(part):
            (root / path.relative_to(REPOSITORY)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / path.relative_to(REPOSITORY))
    (root / "report/index.html").unlink(missing_ok=True)
    for ladder, toml, stages in (
            ("stages", MAIN, ("00_plain", "01.1_loops", "01_fast", "02_gpu")),
            ("studies/noted", STUDY, ("00_plain", "01_fast")),
            ("studies/new", STUDY.replace("The", "A new"), ("00_plain",))):
        write(root, f"{ladder}/ladder.toml", toml)
        write(root, f"{ladder}/README.md", BLOCKS)
        for stage in stages:
            source = "run.cu" if stage == "02_gpu" else "run.c"
            write(root, f"{ladder}/{stage}/{source}", FAST if stage == "01_fast" else PLAIN)
            write(root, f"{ladder}/{stage}/README.md", NOTES if stage == "01_fast" else
                  f"# {stage}: a `move`\n\n{BLOCKS}")
            write(root, f"{ladder}/{stage}/Makefile",
                      ("MOVE = two sums | at once\n" if stage == "01_fast"
                       else "MOVE = a `move`\n") + "DEVICE = gpu\n" * (stage == "02_gpu"))
    write(root, "README.md", "<!-- front: begin -->\n<!-- front: end -->\n")
    write(root, "stages/README.md", f"{BLOCKS}[results](../report/results/full/stages)\n")
    write(root, "stages/peers/peer_one.py", "")
    write(root, "stages/paper.csv", "stage,batch,hidden,time_s\n00_plain,32,32,53.7\n"
          "00_plain,32,256,641\npeer_paper,32,32,2\n")
    for ladder in ("stages", "studies/noted"):
        write(root, f"{ladder}/01_fast/picture.svg", '<svg xmlns="http://www.w3.org/2000/svg"/>')
    write(root, "studies/noted/pictures.py", "def main(): pass\n")
    make_profiles(root / "studies/noted/profiles")
    make_results(root / "report/results")
    with imported(root) as site:
        assert site.call("write") == (0, [
            "Written: report/index.html, and what the READMEs show"])
        shutil.copytree(root, root.with_name("untouched"), symlinks=True)
        yield site


@pytest.fixture
def site(made):
    """The repository, for a test that changes it."""
    yield made
    shutil.rmtree(made.root)
    shutil.copytree(made.root.with_name("untouched"), made.root, symlinks=True)


@pytest.fixture(scope="module")
def page(made):
    return read(made)


def read(site):
    return Page((site.root / "report/index.html").read_text())


def group_of(site, machine="full"):
    ladder = site.ladders.find_ladder("")
    return site.view.read_groups(site.root / f"report/results/{machine}/stages/runs.csv", ladder)[0]


# --- results ---

def test_tables(page):
    """Medians with their range, ratios of pairs of runs, signs, and the paper's figures."""
    lines = page.lines["stages/full"]
    for line in (
            "| 00_plain | 4.00 (3.80 to 4.32) | 32.0 (30.4 to 34.6) |",
            "| paper: 00_plain | 53.7 | 641 |",
            "| paper: peer_paper | 2.00 | - |",
            "| 00_plain | 1.00 (0.950 to 1.08) | 8.00 (7.60 to 8.64) |",  # forward
            "| peer_one | ↓1.00 (0.950 to 1.08) | 8.00 (7.60 to 8.64) |",
            "| 01_fast Δ | 0.500 (0.475 to 0.540) | ~4.00 (2.00 to 7.20) |",
            "| 01_fast Δ | 8.00× (8.00 to 8.00) | 8.00× (4.80 to 15.2) |",
            "02_gpu: no <device> | here"):
        assert line in lines, line
    # A peer that cannot tell the phases apart is not in the tables of the phases.
    assert not [line for line in lines if line.startswith("| peer_one | - ")]
    legend = " ".join(lines)
    for sign in ("Δ: its sources", "~: a run is more than 10 %", "↓: in all runs", "same round"):
        assert sign in legend, sign
    assert "On the CPU, the fastest stage is " in legend
    # That machine has no 00_plain, so it has no ratio, not even with another machine's run.
    alone = page.lines["stages/alone"]
    assert "| 01_fast | 0.500 |" in alone and "×" not in " ".join(alone)
    # A quick look says what it is, and has the machine's ceilings. Earlier results are not shown.
    quick = page.lines["stages/full-quick"]
    assert quick[0] == "QUICK a quick look" and quick[1].startswith("This is a quick look")
    assert "| 00_plain | 4.00 s |  |  | 50 % |  | a move |" in quick
    assert "777" not in page.html


def test_ladders(page):
    """A section for each ladder, from its own columns; also one that nobody has run."""
    assert page.lines["noted"][0] == "The study"
    noted = page.lines["noted/full"]
    assert noted[2].startswith("random numbers; one run of each;")  # there is no cell to name
    assert "|  | each run |" in noted and "| 01_fast | 0.500 |" in noted
    assert "| 01_fast | 4.00× once |" in noted
    assert ("No results of QUICK a quick look: ./run_all.sh --study new writes some."
            in page.lines["new/full-quick"])
    assert "<cite>The &lt;b&gt; paper</cite>, by nobody" in page.html
    assert "No results yet:" not in page.html


def test_whole_ladder(made, page):
    """The steps' results, in each of their cells: all stages and steps, and ratios with their
    intervals. The picture has the larger cell, and no machine but the shown one has one."""
    lines = page.lines["stages/full"]
    for first, times, cell in (
            (3, ("4.00 s (4.00 to 4.00)", "0.999 s (0.991 to 1.01)", "0.998 s (0.982 to 1.02)"),
             "32 hidden, batch 32"),
            (11, ("32.0 s (32.0 to 32.0)", "7.99 s (7.93 to 8.06)", "7.98 s (7.86 to 8.13)"),
             "256 hidden, batch 128")):
        assert lines[first].startswith(f"{cell}; random numbers: epochs 1; medians of 9 runs; ")
        assert lines[first + 2:first + 8] == [
            "| stage | Training time (s) | over the line above | over 00_plain "
            "| share of peak | changed lines | the move |",
            f"| 00_plain | {times[0]} |  |  | 50 % |  | a move |",
            f"| 01.1_loops | {times[1]} | 4.00× (3.97 to 4.04) | 4.00× (3.97 to 4.04) | 50 % | 0 "
            "| a move |",
            f"| 01_fast | {times[2]} | no difference seen (0.992 to 1.009) | 4.01× (3.94 to 4.07) "
            "| 50 % | 12 | two sums | at once |",
            "02_gpu, 1 stage without a time: no <device> | here",
            "| 02_gpu: a move (12 lines) |"]
    # Without such results, it is the cell of `make step`.
    assert page.lines["stages/alone"][2].startswith("256 hidden, batch 128; random numbers: ")
    plots = made.root / "report/results/full/stages/plots"
    picture = (plots / "ladder.svg").read_text()
    assert all(f">{text}</text>" in picture for text in (
        "7.98 s, no difference seen", "(0.992 to 1.009)", "7.99 s, 4.00×", "(3.97 to 4.04)"))
    assert "@media (prefers-color-scheme: dark)" in picture and "02_gpu" not in picture
    assert sorted(path.name for path in made.root.glob("report/results/*/stages/plots/*")) == [
        "epochs.svg", "ladder.svg", "stages.svg"]
    assert "01_fast" in (plots / "stages.svg").read_text() and "01.1" not in (
        plots / "stages.svg").read_text()


def test_epochs(made, page):
    """A run in a line, with those that did not run; a picture of the runs that were not stopped."""
    assert "Epoch by epoch" in page.lines["stages/full"]
    assert "Epoch by epoch" not in page.lines["noted/full"]
    for line in ("| 01_fast Δ | ~1.33 | ~4.00 | ~0.0150 | 97.00 | 97.50 | 12.0 |",
                 "| 02_gpu |  |  |  |  |  |  |"):
        assert line in page.lines["stages/full"]
    picture = (made.root / "report/results/full/stages/plots/epochs.svg").read_text()
    assert all(f">{text}</text>" in picture for text in ("01_fast", "test accuracy (%)", "0.00750"))
    found = {line[0]: [[run["epoch_s"] for run in runs] for runs in each]
             for (line, _), each in group_of(made).epochs.items()}
    assert found == {stage: [[2.125, 2.25, 2.375]] for stage in ("00_plain", "01_fast")}


def test_threads(made):
    """How many times as fast as one thread, where there are several numbers."""
    times = {("00_plain", 1): {32: 9, 256: 99}, ("01_fast", 1): {32: 4, 256: 8},
             ("01_fast", 2): {32: 2.5, 256: 4}, ("01_fast", 16): {256: 1}, ("peer_one", 2): {32: 5}}

    def drawn():
        return {panel["title"]: {line["name"]: line["points"] for line in panel["series"]}
                for panel in made.plots.threads(made.view.Group(made.ladders.find_ladder(""), {}, [
                    row(stage, seconds, hidden=hidden, threads=threads)
                    for (stage, threads), cells in times.items()
                    for hidden, seconds in cells.items()]))}

    assert drawn() == {"32 hidden, batch 32": {"01_fast": [(1, 1), (2, 1.6)]},
                       "256 hidden, batch 32": {"01_fast": [(1, 1), (2, 2), (16, 8)]}}
    del times["01_fast", 1]
    assert drawn() == {}


def test_growth_and_learning(made):
    """Along one option at a time: an epoch's time, the loss and the accuracy."""
    group = group_of(made)
    growth, = made.plots.growth(group)
    assert growth["x"]["label"] == "hidden units" and growth["y"]["label"] == "time per epoch (s)"
    assert {line["name"]: line["points"] for line in growth["series"]} == {
        stage: [(hidden, seconds * hidden / 32) for hidden in (16, 32, 64, 128)]
        for stage, seconds in SECONDS.items()}
    loss, accuracy = ({line["name"]: line["points"] for line in panel["series"]}
                      for panel in made.plots.learning(group))
    assert loss["00_plain"] == [(1, 1), (2, 0.5), (3, pytest.approx(1 / 3))]
    assert accuracy["01_fast"] == [(0.5, 97), (1, 97), (1.5, 97)]


def test_numbers_of_the_plots(made):
    """plots.js gets times and ratios as text. It divides none but those of two machines."""
    numbers = made.page.numbers(group_of(made))
    fast = next(line for line in numbers["lines"] if line["stage"] == "01_fast")
    place = numbers["cells"].index((32, 256))
    expected = {"text": "~4.00 s (2.00 to 7.20)", "above": "00_plain", "count": 3,
                "gain": "8.00× (4.80 to 15.2)", "time": 4, "low": 2, "high": 7.2, "peak": 2}
    assert {name: fast["runs"][place][name] for name in expected} == expected
    assert "~: a run is more than 10 %" in numbers["heading"]
    assert "above" not in str(numbers["figures"]) and numbers["settings"] == ["drawn", 3]
    assert [line["kind"] for line in numbers["lines"]] == ["stage", "stage", "peer"]
    assert [line["kind"] for line in numbers["steps"]["lines"]] == ["stage", "step", "stage"]
    assert numbers["steps"]["settings"] == ["drawn", 1]


def test_a_machine_with_steps_only(site):
    results = site.root / "report/results"
    shutil.copytree(results / "full/noted", results / "other/noted/steps")
    assert site.call("write")[0] == 0
    lines = read(site).lines["noted/other"]
    assert lines[0] == "A & B <1>" and "| 01_fast | 4.00× once |" in lines


# How a colour, in linear RGB, is seen without one kind of cone (Machado, Oliveira and Fernandes,
# IEEE TVCG 15(6), 2009, severity 1).
SEEN = {"all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
        "protanope": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
                      (-0.003882, -0.048116, 1.051998)),
        "deuteranope": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
                        (-0.011820, 0.042940, 0.968881))}
XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))


def times(matrix, vector):
    return [sum(a * b for a, b in zip(line, vector)) for line in matrix]


def linear(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def lab(colour, seen):
    """CIELAB of a colour, as somebody sees it."""
    rgb = [min(1, max(0, part)) for part in times(seen, linear(colour))]
    x, y, z = (part / white for part, white in zip(times(XYZ, rgb), map(sum, XYZ)))
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116
               for part in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_colours():
    """Lines of a plot can be told apart by who lacks a kind of cone, and so can a diff's sides and
    phases that lie side by side. All lines stand out from the page, light and dark."""
    style = (REPOSITORY / "report/page.css").read_text()
    schemes = [dict(re.findall(r"--([\w-]+): (#\w{6})", text))
               for text in re.findall(r":root \{(.*?)\}", style, re.DOTALL)[:2]]
    phases = re.findall("#[0-9a-f]{6}", re.search(
        "^PHASES = .*", (REPOSITORY / "report/plots.py").read_text(), re.MULTILINE)[0])
    for scheme in schemes:
        lines = [scheme[f"c{i}"] for i in range(6)]
        for kind, seen in SEEN.items():
            for least, pairs in ((25, itertools.combinations(lines, 2)),
                                 (10, itertools.pairwise(phases)),
                                 (10, [[scheme[f"{part}{side}"] for side in ("old", "new")]
                                       for part in ("", "mark-")])):
                for pair in pairs:
                    far = math.dist(*(lab(colour, seen) for colour in pair))
                    assert far >= least, (kind, pair, far)
        ground, *own = (0.05 + times(XYZ, linear(each))[1] for each in (scheme["ground"], *lines))
        assert all(max(each, ground) / min(each, ground) >= 3 for each in own)


# --- all of the page ---

def test_the_page_may_lie_elsewhere(site, monkeypatch):
    (site.root / "report/results/alone").rename(site.root / "report/results/a <b> (1)")
    monkeypatch.setenv("LINKS", "https://example.org/x")
    assert site.call("write")[0] == 0
    links = {target for kind, target in read(site).links if kind == "href"}
    assert {"https://example.org/x/report/results/a%20%3Cb%3E%20%281%29/stages/runs.csv",
            "https://example.org/x/stages/01_fast/run.c"} < links
    assert all(target.startswith(("#", "https://", "data:")) for target in links), links


def test_runs_of_no_epochs_and_of_no_time(site):
    results = site.root / "report/results"
    for name in ("stages", "stages/growth"):
        write_rows(results, f"full/{name}/runs.csv", [
            row(stage, 0 if stage != "peer_one" else 1, epochs=0)
            | {"gflops": 0} for stage in SECONDS])
    assert site.call("write")[0] == 0
    assert "| 00_plain | 0 |" in read(site).lines["stages/full"]


def test_a_full_disk(site):
    """One line, and the page stays."""
    write(site.root, "report/results/alone/stages/sweeps.csv", "sweep,key,value\n1,cpu,Other\n")
    before = read(site).html
    answer = subprocess.run("ulimit -f 100; harness/start.py report.write", cwd=site.root,
                            shell=True, capture_output=True, encoding="utf-8", check=False)
    assert answer.returncode == 1 and len(answer.stderr.splitlines()) == 1
    assert answer.stderr.endswith("index.html: cannot write: File too large\n"), answer.stderr
    assert read(site).html == before and not [*site.root.rglob("*.new")]


def test_a_second_run_changes_nothing(site):
    def files():
        return {path: path.read_bytes() for path in site.root.rglob("*")
                if path.is_file() and "__pycache__" not in path.parts and path.name != "said"}
    before = files()
    assert site.call("write")[0] == 0
    assert files() == before
    for name, markers, lines in ("README.md", "front", 8), ("stages/README.md", "table", 12):
        path = site.root / name
        assert site.view.has_markers(path, markers) and len(path.read_text().splitlines()) > lines
    # A script that draws the moves ends it.
    write(site.root, "studies/noted/pictures.py", 'def main(): exit("no constant")')
    assert site.call("write")[0] == "write: studies/noted/pictures.py failed"


def test_links(made, page):
    """Each leads somewhere, and the page needs no other file."""
    assert len({*page.ids}) == len(page.ids)
    assert not page.tags & {"iframe", "object"} and "srcset" not in page.attributes
    links = [target for kind, target in page.links if kind == "href"]
    assert all(target.startswith("data:") for kind, target in page.links if kind != "href")
    assert {"#noted-00_plain", "../studies/noted/01_fast/run.c"} < {*links} and len(links) > 20
    for target in links:
        assert target.startswith(("https:", "data:")) or (
            target[1:] in page.ids if target[0] == "#" else
            (made.root / "report" / target).exists()), target


# --- stages ---

def test_a_stage(page):
    """The diff stands below the part that is about it. What answers a question is folded."""
    section = page.part("noted-01_fast")
    assert section.index("What the diff shows") < section.index("<details id=") < section.index(
        "<summary><h3>Measured</h3></summary>")
    assert section.count("<details class=folded>") == 3  # the gain, the prediction, the measurement
    assert page.lines["noted-01_fast"][:3] == [
        "01_fast: two sums | at once", "← 00_plain · the ladder",
        "12 changed lines against 00_plain."]
    for name, line in (
            ("noted", "each run | 2.00 s | 0.500 s | 4.00× once | 0.5 % | 0.5 %"),
            ("stages", "256 hidden, batch 128 | 7.99 s (7.93 to 8.06) | 7.98 s (7.86 to 8.13) "
             "| no difference seen (0.992 to 1.009) | 50 % | 50 %")):
        assert f"| {line} |" in page.lines[f"{name}-01_fast"]
    assert "flame.svg, lines.txt, stacks.txt. This profile is your own. speedscope and" in (
        " ".join(page.lines["noted-01_fast"]))
    # A line that is alike stands beside its own, and what differs in it is marked.
    assert ("4<td class=old>        <mark>sum</mark> += x[i];<td" in section and
            "4<td class=new>        <mark>lanes[<i class=m>0</i>]</mark> += x[i];" in section)


def test_white_space(made, tmp_path):
    """A line that has only moved to the right can be passed over. So can an empty one."""
    sources = [tmp_path / name for name in ("old.c", "new.c")]
    sources[0].write_text("int a;\nint b;\nint c;\n")
    sources[1].write_text("int a;\n\n    int b;\nint d;\n")
    rows = re.findall("<tr( class=blank)?><td>", made.diffs.table(*sources))
    assert rows == [" class=blank", " class=blank", ""]


def test_samples_of_lines(site, page):
    """A diff has those of each line, where there is a profile of its code."""
    section = page.part("noted-01_fast")
    assert '<table class="diff heated">' in section
    for cell in (  # the first has moved: it is the nearest of the same text
            'style="--heat:0.700" data-heat="70.0 %" data-tip="700 samples">4<td class=old>',
            'style="--heat:0.250" data-heat="25.0 %" data-tip="250 samples">4<td class=new>',
            'style="--heat:0.001" data-heat="0.1 %" data-tip="1 samples">9<td class=new>'):
        assert cell in section
    assert section.count("data-heat") == 3 and "the profile of 00_plain</a> and" in section
    assert "<table class=diff>" in page.part("stages-01_fast")
    # Without a profile of its code, there is no column.
    path = site.root / "studies/noted/profiles/mine/01_fast/lines.txt"
    path.write_text(path.read_text().replace("lanes[0]", "lanes[1]"))
    site.rows.or_nothing.cache_clear()
    plain, fast = site.ladders.find_ladder("noted").stages
    assert site.samples.of_lines(plain) == {4: (0.7, "700 samples")}
    assert site.samples.of_lines(fast) is None


def test_pictures_are_what_their_script_draws(tmp_path):
    """From the sizes in the sources. A page on a telephone is 360 pixels wide, and so they are."""
    for part in ("bench/peers", "harness", "common", "stages"):
        shutil.copytree(REPOSITORY / part, tmp_path / part, ignore=shutil.ignore_patterns(
            "__pycache__", "picture.svg", "build", "env"))
    draw = [tmp_path / "harness/start.py", "stages.pictures"]
    subprocess.run(draw, check=True)
    pictures, committed = ({path.parent.name: path.read_text()
                            for path in root.glob("stages/*/picture.svg")}
                           for root in (tmp_path, REPOSITORY))
    assert pictures and pictures == committed
    sizes = re.findall(r"font(?:-size)?: (\d+)", "".join(pictures.values()))
    assert min(map(int, sizes)) >= 11
    source = tmp_path / "stages/01.3_register_tile/train.c"
    source.write_text(re.sub(r"\bTILE_ROWS = \d+", "TILE_ROWS = PIXELS", source.read_text()))
    answer = subprocess.run(draw, capture_output=True, encoding="utf-8", check=False)
    assert answer.returncode == 2 and answer.stderr.endswith(
        "found no number for TILE_ROWS, expected 'TILE_ROWS = ...'\n")


def test_in_a_browser(made, tmp_path):
    """Three widths, no message, no overlap, no sideways scrolling; the plots and menus answer."""
    script = (REPOSITORY / "tests/look_at_page.js").read_text()
    look_at(made.root / "report/index.html", 7, script, tmp_path)
