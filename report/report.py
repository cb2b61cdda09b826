#!/usr/bin/env python3
"""Turns what was measured into pages: `make report`.

Reads results/*/runs.csv and the files beside it: machine.txt, bench/*.json, growth.csv, and
tables.txt, which says why a stage did not run. Reads also paper.csv, the stages' READMEs and
profiles. Writes a folder of plots beside each runs.csv, README.md, the tables of measurements in
the other READMEs, and index.html, which needs no other file. A second run changes nothing.
"""

import base64
import csv
import functools
import html
import os
import re
import subprocess
import sys
from pathlib import Path
from string import Template
from urllib.parse import unquote, urlsplit

import tables
from tables import markdown as md

try:
    import plots
except ImportError as error:
    sys.exit(f"report.py: {error}, for {sys.executable} (Debian's package python3-matplotlib)")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MEASURES = "train_s", "forward_s", "backward_s", "test_accuracy", "speedup"
PAPER = "*paper:* "


class Machine:
    """A machine is a folder of results."""

    def __init__(self, folder):
        self.folder = folder
        self.name = folder.name
        self.title = tables.machine(folder / "runs.csv")
        self.groups = tables.read_groups(folder / "runs.csv")
        self.growth = []
        if (folder / "growth.csv").exists():
            groups = tables.read_groups(folder / "growth.csv")
            self.growth = [run for group in groups for cell in group.cells.values() for run in cell
                           if group.settings["dataset"] == groups[0].settings["dataset"]
                           and run["epochs"] and run["train_s"] and run["final_loss"] is not None]

    def fields(self):
        """What machine.txt says: {key: value}."""
        text = read(self.folder / "machine.txt")
        return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)

    def why_not(self, stage):
        """Why the stage has no rows here, as far as the machine's files say."""
        for line in read(self.folder / "tables.txt").splitlines():
            if line.startswith(f"{stage}: "):
                return line.split(": ", 1)[1]
        if (ROOT / "stages" / stage / "train.cu").exists() and self.fields().get("gpu") == "none":
            return "no GPU in this machine"
        return "not run"

    @functools.cached_property
    def benchmarks(self):
        return tables.read_benchmarks(self.folder)


def read(path):
    return tables.read(path) if path.exists() else ""


def find_machines():
    """The machines that have results. A quick look (-quick) is no result. Results that were moved
    aside lie deeper."""
    return [machine for machine in (Machine(path.parent)
                                    for path in sorted((HERE / "results").glob("*/runs.csv"))
                                    if not path.parent.name.endswith("-quick"))
            if machine.groups]


def find_stages():
    return sorted(path.parent.name for path in ROOT.glob("stages/[0-9][0-9]_*/Makefile"))


def read_paper():
    """{(batch, stage, hidden): {measure: number}}, with the speedup over the paper's own serial."""
    with open(HERE / "paper.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    paper = {(int(row["batch"]), row["stage"], int(row["hidden"])):
             {name: float(row[name]) for name in MEASURES if name in row} for row in rows}
    for (batch, stage, hidden), numbers in paper.items():
        if stage != "00_serial":
            numbers["speedup"] = paper[batch, "00_serial", hidden]["train_s"] / numbers["train_s"]
    return paper


# --- Markdown ---

def markdown_table(heads, rows):
    """The cells are Markdown."""
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def format_number(measure, number):
    if number is None:
        return "-"
    if measure == "test_accuracy":
        return f"{number:.4f}"
    return tables.three_digits(number) + ("×" if measure == "speedup" else "")


def format_cell(group, measure, cell):
    """The median of the cell, and half the range of its runs."""
    if measure == "speedup":
        return format_number(measure, group.speedup(cell))
    median = group.median(measure, cell)
    text = format_number(measure, median)
    values = [run[measure] for run in group.cells.get(cell, ())]
    if measure != "test_accuracy" and median and len(values) > 1:
        text += f" ±{100 * (max(values) - min(values)) / 2 / median:.0f}%"
    return text


def absent(group, stages):
    """The stages that have no runs in the group."""
    return [stage for stage in stages if stage not in {name for name, _ in group.lines}]


def measure_table(group, paper, stages, measure):
    """The table of one measure: for each batch size a row for each stage and, below it, the paper's
    figures."""
    rows = []
    lines = sorted(group.lines_of(measure) + [(stage, 0) for stage in absent(group, stages)])
    for batch in group.batches:
        rows.append([f"**batch {batch}**"] + [""] * len(group.hiddens))
        for line in lines:
            ours = (format_cell(group, measure, (batch, line, hidden)) for hidden in group.hiddens)
            rows.append([md(tables.label(line)), *ours])
            theirs = [paper.get((batch, line[0], hidden), {}).get(measure)
                      for hidden in group.hiddens]
            if any(theirs):
                rows.append([PAPER + md(line[0]), *(f"*{format_number(measure, number)}*"
                                                    for number in theirs)])
    return markdown_table(["hidden units", *map(str, group.hiddens)], rows)


def draw(machine, plot_folder):
    """Writes the machine's plots. Returns [(title, file or None, text below the title)]."""
    group = machine.groups[0]
    benchmarks = machine.benchmarks
    for name, dark in (("ladder", False), ("ladder-dark", True)):
        figure = plots.ladder(group, tables.headline_lines(group), tables.corners_of(group)[-1],
                              tables.read_ceilings(benchmarks), dark)
        if figure:
            plots.save(figure, plot_folder / f"{name}.svg")
    no_bench, no_growth = "no results of `make bench` here", "no results of `report/growth.sh` here"
    wanted = [
        ("Training time", "time", plots.training_time(group), "Both axes are logarithmic.", ""),
        ("Speedup", "speedup", plots.speedup(group),
         f"Each cell is compared with the same cell of "
         f"{md(tables.label(group.baseline or ('', 0)))}.",
         "nothing to compare with 00_serial"),
        ("Forward and backward", "phases", plots.phases(group),
         "Backward includes the update of the weights.", "no times of the phases"),
        ("Roofline", "roofline",
         plots.roofline(group, tables.read_ceilings(benchmarks),
                        plots.read_intensities(benchmarks)),
         "Each mark is a whole training. The lines are the most that the machine can do: "
         "multiply-adds in registers, and reading from each level of memory with all threads.",
         no_bench),
        ("How the cost grows", "growth", plots.growth(machine.growth),
         "The time is that of one epoch. In each panel one thing varies. The panel's title has the "
         "values of the others. A point that would take too long is left out.", no_growth),
        ("How it learns", "learning", plots.learning(machine.growth),
         "All stages compute the same function, so their losses lie on top of each other. They "
         "differ in the time that they take.", no_growth),
    ]
    result = []
    for title, name, figure, text, why_not in wanted:
        path = plot_folder / f"{name}.svg"
        if figure:
            plots.save(figure, path)
            result.append((title, path, text))
        else:
            path.unlink(missing_ok=True)  # the results that it showed may be gone
            result.append((title, None, f"Not drawn: {why_not}."))
    return result


def against_peers(group):
    """How many times as fast as the fastest peer the fastest stage is: sentences for the CPU, and
    for a GPU."""
    sentences = []
    for where, on_cpu in (("On the CPU", True), ("On the GPU", False)):
        clause = group.against_peers(on_cpu)
        if clause:
            peers = sorted({line[0] for line in group.lines if line[0].startswith("peer_")
                            and group.is_on_cpu(line) == on_cpu})
            sentences.append(f"{where}, {clause} The peers are "
                             f"{tables.listing([md(peer) for peer in peers])}.")
    return " ".join(sentences)


def machine_section(machine, paper, stages):
    """The machine's part of README.md."""
    folder = f"results/{tables.url(machine.name)}"
    fields = machine.fields()
    facts = "; ".join(fields[key] for key in ("compiler", "revision", "date") if key in fields)
    parts = [f"## {md(machine.title)}\n",
             f"[{md(machine.name)}]({folder}): [every run]({folder}/runs.csv), "
             f"[the machine]({folder}/machine.txt){f' ({md(facts)})' if facts else ''}.\n"]
    for title, path, text in draw(machine, machine.folder / "plots"):
        parts.append(f"### {title}\n\n{text}\n")
        if path:
            parts.append(f"![{title}: {md(machine.title)}]({folder}/plots/{path.name})\n")
    for group in machine.groups:
        # The paper's figures are for runs of this length only.
        length = group.settings["epochs"], group.settings["train_samples"]
        theirs = paper if length == (5, 37800) else {}
        baseline = md(tables.label(group.baseline or ("", 0)))
        parts.append(f"### Tables\n\n{md(group.heading())}; {md(group.repeats())}, ± half the "
                     "range of a cell's runs.\n")
        parts += [f"- {md(stage)}: {md(machine.why_not(stage))}"
                  for stage in absent(group, stages)] + [""]
        if against_peers(group):
            parts.append(against_peers(group) + "\n")
        for measure in MEASURES:
            if measure == "speedup" and not group.baseline:
                continue
            title = tables.MEASURES[measure].format(baseline=baseline)
            parts.append(f"#### {title}\n\n{measure_table(group, theirs, stages, measure)}")
    return "\n".join(parts)


INTRODUCTION = """\
<!-- Written by `make report`, which overwrites any change made here. -->
# Report

This page has what [`run_all.sh`](../run_all.sh), `make bench` and [`report/growth.sh`](growth.sh)
have measured, machine by machine. `make report` writes it. [index.html](index.html) has the same in
one page, with the stages, their diffs and their profiles. Every number comes from a file in
[results](results), and every ratio is between numbers of one machine.

Rows in italics are figures of the paper: Jonathan Yin and Oliver Ye, *MNIST Digit Classification
using a GPU-accelerated Neural Network* ([paper.csv](paper.csv)). Each is for the paper's version of
the same step: serial on a CPU, then CUDA with unified memory, with device memory, with
shared-memory tiles. They were measured on other machines with other code. Their speedups are over
the paper's own serial version.
"""


def readme(machines, paper, stages):
    parts = [INTRODUCTION]
    if len(machines) > 1:
        parts += [f"- {md(f'{machine.title} ({machine.name})')}" for machine in machines] + [""]
    if not machines:
        parts.append("No results yet: `./run_all.sh` writes some.\n")
    return "\n".join(parts + [machine_section(machine, paper, stages) for machine in machines])


# --- HTML ---

def to_html(markdown, folder, prefix="", shift=0):
    """Turns GitHub's Markdown into HTML. Links become relative to report/, and pictures a part of
    the page. `folder` is where the Markdown lies."""
    try:
        text = subprocess.run(
            ["pandoc", "--from=gfm", "--to=html", "--no-highlight", "--wrap=preserve",
             f"--id-prefix={prefix}", f"--shift-heading-level-by={shift}"],
            input=markdown, capture_output=True, check=True, encoding="utf-8").stdout
    except FileNotFoundError:
        sys.exit("report.py: found no pandoc in PATH (Debian's package pandoc)")
    except subprocess.CalledProcessError as error:
        sys.exit(f"report.py: pandoc: {error.stderr.strip()}")

    def relink(match):
        target = html.unescape(match[1])
        if urlsplit(target).scheme or target.startswith("#"):
            return match[0]
        return f'href="{html.escape(os.path.relpath(folder / target, HERE))}"'

    def embed(match):
        path = folder / unquote(html.unescape(match[1]))
        picture = base64.b64encode(read(path).encode()).decode()
        return f'src="data:image/svg+xml;base64,{picture}"'

    return re.sub(r'src="([^":]+\.svg)"', embed, re.sub(r'href="([^"]*)"', relink, text))


def diff_html(stage):
    """What the stage changed against the one before, in colours. Empty for the first stage."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    answer = subprocess.run(["make", "--silent", "--no-print-directory", "diff", f"STAGE={stage}"],
                            cwd=ROOT, env=environment, capture_output=True, encoding="utf-8",
                            errors="replace", check=False)
    if answer.returncode:
        return ""
    kinds = {"+": "added", "-": "removed", "@": "place"}
    lines = answer.stdout.splitlines()
    changed = {kind: sum(line.startswith(kind) and not line.startswith(kind * 3) for line in lines)
               for kind in "+-"}
    start = next((i for i, line in enumerate(lines) if line.startswith("@@")), 0)
    spans = (f'<span class="{kinds.get(line[:1], "")}">{html.escape(line)}</span>'
             for line in lines[start:])
    return (f"<details><summary>The diff against the stage before: {changed['+']} lines added, "
            f"{changed['-']} removed</summary>\n"
            f'<pre class="diff">{"".join(spans)}</pre></details>\n')


def profile_html(stage):
    """The flame graph. It stands in the page itself, so that its tooltips work."""
    folder = ROOT / "profiles" / stage
    flame = read(folder / "flame.svg")
    if not flame:
        return ""
    flame = re.sub(r"^.*?(?=<svg)", "", flame, flags=re.DOTALL)
    links = ", ".join(f'<a href="../profiles/{tables.url(stage)}/{tables.url(path.name)}">'
                      f"{html.escape(path.name)}</a>" for path in sorted(folder.iterdir()))
    return f"<h3>Profile</h3>\n<p>{links}</p>\n{flame}\n"


def format_summary(group, cell, ceilings):
    """The time of a cell, its rate, the part of the ceiling and the speedup."""
    if not group.cells.get(cell):
        return "-"
    texts = [f"{format_number('train_s', group.median('train_s', cell))} s",
             f"{tables.three_digits(group.median('gflops', cell))} GFLOP/s"]
    part = group.part_of_ceiling(cell, ceilings)
    if part:
        texts.append(tables.percent(part))
    if cell[1] != group.baseline and group.speedup(cell):
        texts.append(format_cell(group, "speedup", cell))
    return ", ".join(texts)


def numbers_markdown(machines, stage):
    """The stage's training times, rates and speedups, by machine: the part of its README that is
    written here."""
    parts = []
    for machine in machines:
        group = machine.groups[0]
        ceilings = tables.read_ceilings(machine.benchmarks)
        if stage in absent(group, [stage]):
            parts.append(md(f"{machine.title}: {machine.why_not(stage)}.") + "\n")
        for line in group.lines:
            if line[0] != stage:
                continue
            ceiling = group.ceiling(line, ceilings)
            rows = [[f"hidden {hidden}", *(format_summary(group, (batch, line, hidden), ceilings)
                                           for batch in group.batches)]
                    for hidden in group.hiddens]
            what = ["the training time", "the operations a second"]
            explanation = ""
            if ceiling:
                what.append("their part of the ceiling")
                explanation = (f" The ceiling is {tables.three_digits(ceiling / 1e9)} GFLOP/s: "
                               "multiply-adds alone on as many cores.")
            if group.baseline and line != group.baseline:
                what.append(f"the speedup over {tables.label(group.baseline)}")
            parts.append(md(f"{machine.title}; {group.heading()}; {group.repeats()}. A cell has "
                            f"{tables.listing(what)}.{explanation}") + "\n")
            parts.append(markdown_table([md(tables.label(line)),
                                         *(f"batch {batch}" for batch in group.batches)], rows))
    return "\n".join(parts)


def stage_section(machines, stage):
    folder = ROOT / "stages" / stage
    source = next((name for name in ("train.c", "train.cu") if (folder / name).exists()), "")
    return (f'<section class="stage" id="{html.escape(stage)}">\n'
            + to_html(read(folder / "README.md") or f"# {md(stage)}", folder, f"{stage}-", 1)
            + f'<p>Source: <a href="../stages/{tables.url(stage)}/{source}">'
            f"stages/{html.escape(stage)}/{source}</a></p>\n"
            + diff_html(stage) + profile_html(stage) + "</section>\n")


def page(machines, stages, markdown):
    links = "\n".join(f'<a href="#{tables.url(stage)}">{html.escape(stage)}</a>'
                      for stage in stages)
    return Template(read(HERE / "template.html")).substitute(
        title="One network, made fast step by step: report",
        navigation='<a href="#report">Report</a>\n'
                   f'{links}\n<a href="../README.md">The repository</a>',
        body=to_html(markdown, HERE) + "".join(stage_section(machines, stage) for stage in stages))


def update_readmes(machines, stages):
    """Writes the headline into the repository's README, and its numbers into each stage's README.
    The headline stays about the same machine. If it has none yet, it is about the first."""
    def wants_it(text):
        return tables.MARKERS[0] in read(text)

    if machines and wants_it(ROOT / "README.md"):
        named = re.search(r"\(report/results/([^/)]+)", read(ROOT / "README.md"))
        shown = next((machine for machine in machines
                      if named and tables.url(machine.name) == named[1]), machines[0])
        runs = shown.folder.relative_to(ROOT) / "runs.csv"
        tables.update(ROOT / "README.md", tables.headline(runs, shown.groups))
    for stage in stages:
        text = ROOT / "stages" / stage / "README.md"
        if wants_it(text):
            tables.update(text, numbers_markdown(machines, stage) or "No results yet.\n")


def main():
    os.chdir(ROOT)
    machines, stages, paper = find_machines(), find_stages(), read_paper()
    markdown = readme(machines, paper, stages)
    tables.write(HERE / "README.md", markdown)
    update_readmes(machines, stages)
    tables.write(HERE / "index.html", page(machines, stages, markdown))
    print("Written to report: README.md, index.html"
          + "".join(f", results/{machine.name}/plots" for machine in machines), file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"report.py: {error}")
