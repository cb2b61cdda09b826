"""Tests `make class` on made-up results of students."""

import csv
import shutil
import subprocess

import pytest
from look import REPOSITORY, Page, imported, look_at

CEILINGS = ('{"benchmarks": [{"name": "ceilings/multiply_add/real_time/threads:1", '
            '"run_type": "iteration", "flops": 2e11}]}')


@pytest.fixture(scope="module")
def site():
    with imported(REPOSITORY) as site:
        yield site


def machine(folder, seconds, gflops=None, epochs=5, slow="20_mine"):
    """Results of the main ladder, in which 00_serial takes so long, and 02_openmp has so many
    GFLOP/s of the 200 that are its peak. Without them, there is no peak."""
    (folder / "stages").mkdir(parents=True)
    (folder / "stages/sweeps.csv").write_text("sweep,key,value\n1,cpu,A <CPU> & more\n")
    stages = {"00_serial": (seconds, 1), "02_openmp": (seconds / 10, gflops or 1),
              "06_sparse": (seconds / 20, 240), slow: (seconds / 5, 5), "peer_numpy": (1, 150)}
    rows = [{"stage": stage, "device": "cpu", "threads": 1, "hidden": hidden, "batch": 128,
             "epochs": epochs, "learning_rate": 0.1, "seed": 1, "train_samples": 37800,
             "test_samples": 4200, "dataset": "mnist", "load_s": 0.1, "setup_s": 0.1,
             "train_s": factor * time, "forward_s": 0.1, "backward_s": 0.1, "final_loss": 0.3,
             "test_accuracy": 0.9, "gflops": rate, "peak_rss_mib": 100, "peak_vram_mib": "",
             "sweep": 1, "round": number}
            for stage, (time, rate) in stages.items() for hidden in (32, 256)
            for number, factor in enumerate((1, 0.99, 1.02), 1)]
    with (folder / "stages/runs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    if gflops:
        (folder / "bench").mkdir()
        (folder / "bench/ceilings.json").write_text(CEILINGS)
    return folder


def edit(path, change):
    path.write_text(change(path.read_text()))


def test_ladders_beside_each_other(site, tmp_path):
    """Who is nearest to peak, and a card for each machine."""
    machine(tmp_path / "ann & <b>bo/laptop", 100, 50)
    machine(tmp_path / "carl/report/results/lab", 40, 150)
    machine(tmp_path / "carl/report/results/home-quick", 20, 100, epochs=1)
    dora = machine(tmp_path / "dora/lab", 60)
    # A study too, and results of another sweep and of the steps, which lie deeper.
    for name in ("2026-01-01_000000", "steps"):
        (dora / "stages" / name).mkdir()
        shutil.copy(dora / "stages/runs.csv", dora / "stages" / name)
    studies = {path.parent.name for path in REPOSITORY.glob("studies/*/ladder.toml")}
    results = (each for each in REPOSITORY.glob("report/results/*/*") if each.name in studies)
    for study in [*results][:1]:
        shutil.copytree(study, dora / study.name)
    answer = subprocess.run(["make", "-s", "-C", REPOSITORY, "class", f"DIR={tmp_path}"],
                            capture_output=True, encoding="utf-8", check=True)
    assert answer.stderr == f"Written to {tmp_path}/class.html: 4 folders\n"
    page = Page((tmp_path / "class.html").read_text())
    lines = page.lines[""]
    assert "carl/lab is nearest to peak: 02_openmp reaches 75 % of it." in lines
    # 06 leaves out operations that its rate counts, so it is not compared, and no peer is.
    first = lines.index("carl/lab is nearest to peak: 02_openmp reaches 75 % of it.")
    ratio = "10.0× (10.0 to 10.0) over 00_serial"
    assert lines[first + 1:first + 6] == [
        f"carl/lab: 75 %, 02_openmp in 4.00 s (3.96 to 4.08), {ratio}",
        f"carl/home-quick: 50 %, 02_openmp in 2.00 s (1.98 to 2.04), {ratio} "
        "(a quick look) (other settings than most)",
        f"ann & <b>bo: 25 %, 02_openmp in 10.0 s (9.90 to 10.2), {ratio}",
        "Stages of their own",
        "carl/lab: 2.5 %, 20_mine in 8.00 s (7.92 to 8.16)"]
    assert lines[first + 8:first + 9] == [
        "dora: no peak, which make bench measures."]
    # All cards have the same stages: also one that only the students have.
    assert sum(line.startswith("| 20_mine |") for line in lines) == 4
    assert "| 06_sparse | 2.00 s (1.98 to 2.04) | 20.0× (20.0 to 20.0) | 120 %† |" in lines
    assert "| 00_serial | 20.0 s (19.8 to 20.4) |  | 0.5 % |" in lines
    assert any(line.startswith("A <CPU> & more; 256 hidden, batch 128; MNIST: 1 epoch of 37,800")
               for line in lines)
    assert "† 06_sparse leaves out" in page.html and "in brackets: the range" in page.html
    assert "The mean of outer products of triplets of features" in lines
    for text in ("peer_numpy", "Left out", "<b>bo", "<CPU>"):
        assert text not in page.html


def test_what_cannot_be_is_marked(site, tmp_path):
    """A rate above the ceiling, and an accuracy of guessing. Own stages have a rank too."""
    for name in ("ann", "bob"):
        machine(tmp_path / name, 100, 50, slow=f"20_{name}")
    machine(tmp_path / "eve", 90, 232)
    machine(tmp_path / "fay", 80, 60, slow="21_fay")
    edit(tmp_path / "fay/stages/runs.csv", lambda text: "\n".join(
        line.replace(",0.9,", ",0.1,") if line.startswith("21") else line
        for line in text.splitlines()) + "\n")
    site.call("class", tmp_path)
    lines = Page((tmp_path / "class.html").read_text()).lines[""]
    assert "fay is nearest to peak: 02_openmp reaches 30 % of it." in lines
    assert "Not ranked: eve, 02_openmp: 116 % of peak cannot be." in lines
    assert "Not ranked: fay, 21_fay: its test_accuracy is 0.1, and 0.9 in most others." in lines
    first = lines.index("Stages of their own")
    assert [line.split(":")[0] for line in lines[first + 1:first + 4]] == ["ann", "bob", "eve"]


def test_what_cannot_be_read_is_left_out(site, tmp_path):
    for name in ("ann", "torn <i>", "empty", "other", "unreadable", "zebra"):
        machine(tmp_path / name, 100 if name in ("ann", "torn <i>") else 20, 50)
    shutil.copytree(tmp_path / "ann", tmp_path / "zweimal")
    edit(tmp_path / "torn <i>/stages/runs.csv", lambda text: text[:text.rindex(",100,")] + "\n")
    edit(tmp_path / "zebra/bench/ceilings.json", lambda text: "{")
    edit(tmp_path / "empty/stages/runs.csv", lambda text: text.partition("\n")[0] + "\n")
    (tmp_path / "unreadable/stages/runs.csv").unlink()
    (tmp_path / "unreadable/stages/runs.csv").mkdir()
    (tmp_path / "other/stages").rename(tmp_path / "other/quantum")
    (tmp_path / "nothing").mkdir()
    (tmp_path / "results.zip").touch()
    status, said = site.call("class", tmp_path)
    assert not status and said[-1].endswith(": 2 folders")
    expected = {
        "empty/stages: found no finished runs",
        "nothing: found no runs.csv in it",
        "results.zip: found no runs.csv in it",
        "torn <i>/stages/runs.csv: line 31: found 19 columns, expected 23",
        "unreadable/stages/runs.csv: cannot read: Is a directory",
        "zebra/bench/ceilings.json: expected the JSON of Google Benchmark; run `make bench` again",
        "zweimal/stages: has the same rows as ann"}
    others = {line.removeprefix("class: ") for line in said[:-1]} - expected
    assert len(said) == 9 and len(others) == 1
    assert others.pop().startswith("other/quantum: found no ladder of this name")
    page = Page((tmp_path / "class.html").read_text())
    assert expected <= {*page.lines[""]} and "i" not in page.tags
    # A second run reads no page of the first.
    site.call("class", tmp_path)
    assert (tmp_path / "class.html").read_text() == page.html


def test_no_folder_no_results_no_page(site, tmp_path):
    """One line says what is wrong."""
    for folder in ("", tmp_path / "none"):
        status, said = site.call("class", folder)
        assert status == 2 and len(said) == 1
        assert said[0].startswith(f"class: DIR: found '{folder}', expected a folder")
    (tmp_path / "class").mkdir()
    assert site.call("class", tmp_path / "class") == (2, [
        f"class: {tmp_path}/class: found no results; expected copies of report/results in it"])
    machine(tmp_path / "class/ann", 100, 50)
    (tmp_path / "class/class.html").mkdir()
    assert site.call("class", tmp_path / "class") == (2, [
        f"class: {tmp_path}/class/class.html: found a folder, expected a file"])


def test_in_a_browser(site, tmp_path):
    """Light, dark and printed, all can be read."""
    machine(tmp_path / "class" / ("a" * 60), 100, 50)
    machine(tmp_path / "class/bob/laptop", 64, 100,
            slow="20_a_stage_whose_name_is_rather_too_long_for_this")
    site.call("class", tmp_path / "class")
    look_at(tmp_path / "class/class.html", 2, """
addEventListener("load", () => {
  const readable = (name) => { look(name); contrast(name); };
  readable("light");
  inMedium("dark", readable);
  inMedium("print", readable);
  expect("all tables have a caption and heads", all("table").every((table) =>
    table.caption && all("th:not([scope])", table).length === 0));
  answer(all("article").length);
});
""", tmp_path)
