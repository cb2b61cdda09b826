#!/usr/bin/env python3
"""Turns what was measured into pages: `make report`.

Reads results/MACHINE/LADDER/runs.csv and the files beside it: machine.txt, epochs.csv, growth.csv,
and tables.txt, which says why a stage did not run. Reads also results/MACHINE/bench/*.json, the
papers' figures, the stages' READMEs and profiles. Writes a folder of plots beside each runs.csv,
README.md, the tables of measurements in the other READMEs, and index.html, which needs no other
file. Runs each ladder's pictures.py. A second run changes nothing.
"""

import base64
import html
import os
import re
import subprocess
import sys
from pathlib import Path
from string import Template
from urllib.parse import unquote, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "harness"))
import ladders
import rows
import tables
from tables import markdown as md

try:
    import plots
except ImportError as error:
    sys.exit(f"report.py: {error}, for {sys.executable} (Debian's package python3-matplotlib)")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAPER = "*paper:* "


def read(path):
    return rows.read(path) if path.exists() else ""


def find_results(ladder):
    """A ladder's results, machine by machine: the groups of its runs. A quick look (-quick) is no
    result. Results that were moved aside lie deeper."""
    paths = sorted((HERE / "results").glob(f"*/{ladder.name}/runs.csv"))
    return list(filter(None, (tables.read_groups(path, ladder) for path in paths
                              if not path.parent.parent.name.endswith("-quick"))))


def read_paper(ladder):
    """The figures of the ladder's paper. Their speedup is over the paper's own baseline."""
    file = ladder.toml.get("paper", {}).get("file")
    needed = ["stage", *(ladder.column(axis["option"]) for axis in ladder.axes)]
    return tables.Group(ladder, {}, rows.read_rows(ladder.folder / file, ladder, needed)
                        if file else [])


# --- Markdown ---

def absent(group):
    """The stages that have no runs in the group. Steps are not missed."""
    return [stage for stage in group.ladder.stages
            if not stage.is_step and stage.name not in {name for name, _ in group.lines}]


def measure_table(group, paper, measure):
    """The table of one measure: for each page a row for each line and, below it, the paper's
    figures."""
    axes = group.ladder.axes
    found = []
    lines = group.lines_of(measure) + [(stage.name, 0) for stage in absent(group)]
    lines += [line for line in paper.lines if line[0] not in dict(lines) and line != group.baseline
              and any(paper.median(measure, line, cell) for cell in group.cells)]
    for page in group.pages:
        if page:
            found.append([f"**{axes[0]['option']} {page[0]}**"] + [""] * len(group.columns))
        for line in sorted(lines):
            ours = ("".join(group.texts(measure, line, page + column, spreads=True))
                    for column in group.columns)
            found.append([md(tables.label(line)), *ours])
            theirs = [paper.median(measure, (line[0], 0), page + column)
                      for column in group.columns]
            if any(theirs):
                found.append([PAPER + md(line[0]), *(f"*{group.number(measure, number)}*"
                                                     for number in theirs)])
    heads = [str(column[0]) if column else "each run" for column in group.columns]
    return tables.markdown_table([axes[-1]["name"] if axes else "", *heads], found)


def draw_blocks(group):
    """Writes the plots that READMEs show: that of the whole ladder, for light pages and for dark
    ones, and that of the epochs."""
    for name, figure in (("ladder", plots.ladder(group)),
                         ("ladder-dark", plots.ladder(group, dark=True)),
                         ("epochs", plots.epochs(group.without_steps()))):
        path = group.folder / "plots" / f"{name}.svg"
        if figure:
            plots.save(figure, path)
        else:
            path.unlink(missing_ok=True)


def draw(group):
    """Writes the other plots of some runs. Returns their part of README.md."""
    folder = group.folder / "plots"
    wanted = [
        (plots.time, group.time_name().capitalize(), "Both axes are logarithmic.",
         "no axis of numbers"),
        (plots.phases, "Phases", f"A bar is the {group.time_name()}, with the part of each phase.",
         "no times of the phases"),
        (plots.roofline, "Roofline",
         "Each mark is a whole run. The lines are the most that the machine can do: multiply-adds "
         "in registers, and reading from each level of memory with all threads.",
         "no work known, or no results of `make bench`"),
        (plots.growth, "How the cost grows",
         "In each panel one thing varies. The panel's title has the values of the others. A point "
         "that would take too long is left out.", "no growth.csv"),
        (plots.learning, "How it learns",
         "All stages compute the same function, so their losses lie on top of each other. They "
         "differ in the time that they take.", "no losses in growth.csv"),
    ]
    parts, reasons = [], []
    for plot, title, text, reason in wanted:
        figure, path = plot(group), folder / f"{plot.__name__}.svg"
        if figure:
            plots.save(figure, path)
            parts.append(f"#### {title}\n\n{text}\n\n![{title}: {md(tables.machine(group.folder))}]"
                         f"({tables.url(path.relative_to(HERE))})\n")
        else:
            path.unlink(missing_ok=True)  # the results that it showed may be gone
            reasons.append(f"{title} ({reason})")
    return parts + (["Not drawn:\n", *(f"- {reason}" for reason in reasons), ""] if reasons else [])


def results_section(groups, paper):
    """A machine's part of a ladder's section in README.md."""
    first, ladder = groups[0].without_steps(), groups[0].ladder
    folder = tables.url(first.folder.relative_to(HERE))
    fields = tables.machine_fields(first.folder)
    facts = "; ".join(fields[key] for key in ("compiler", "revision", "date") if key in fields)
    parts = [f"### {md(tables.machine(first.folder))}\n",
             f"[{md(first.folder.parent.name)}]({folder}): [every run]({folder}/runs.csv), "
             f"[the machine]({folder}/machine.txt){f' ({md(facts)})' if facts else ''}.\n"]
    draw_blocks(groups[0])
    epochs = tables.epochs(groups, HERE)
    parts += ["#### The ladder\n", tables.ladder(groups, HERE) + "\n", *draw(first),
              *([f"#### Epoch by epoch\n\n{epochs}\n"] if epochs else [])]
    none = tables.Group(ladder, {}, [])
    for group in (group.without_steps() for group in groups):
        # The paper's figures are for runs with the ladder's own settings only, or with those that
        # the paper's replace.
        theirs = ladder.settings | ladder.toml.get("paper", {}).get("settings", {})
        usual = all(group.settings[ladder.column(option)] == value
                    for option, value in theirs.items())
        measured = [f"##### {group.title(measure)}\n\n"
                    + measure_table(group, paper if usual else none, measure)
                    for measure in group.measures if group.lines_of(measure)]
        parts.append(f"#### Tables\n\n{md(group.conditions(''.join(measured)))}.\n")
        notes = [f"{stage.name}: {tables.why_not(group, stage)}" for stage in absent(group)]
        parts += [f"- {md(note)}" for note in tables.share_reasons(notes)] + [""]
        sentences = group.against_peers(), group.against_peers(on_cpu=False)
        parts += [f"{sentence}\n" for sentence in sentences if sentence]
        parts += measured
    return "\n".join(parts)


INTRODUCTION = """\
<!-- Written by `make report`, which overwrites any change made here. -->
# Report

This page has what [`run_all.sh`](../run_all.sh) and `make bench` have measured, machine by machine.
`make report` writes it. [index.html](index.html) has the same in one page, with the stages, their
diffs and their profiles. Every number comes from a file in [results](results), and every ratio is
between numbers of one machine.

Rows in italics are figures of a paper, each for the paper's version of the same step. They were
measured on other machines with other code. Their speedups are over the paper's own baseline.
"""


def ladder_section(ladder, found):
    """A ladder's part of README.md, with all machines."""
    parts = [f"## {md(ladder.title)}\n"]
    paper = ladder.toml.get("paper", {})
    folder = tables.url(os.path.relpath(ladder.folder, HERE))
    if paper:
        parts.append(f"The paper is {paper['cite']}" + (
            f". It has [these figures]({folder}/{tables.url(paper['file'])})" if "file" in paper
            else "") + ".\n")
    if not found:
        study = "" if ladder.name == ladders.MAIN else f" --study {ladder.name}"
        parts.append(f"No results yet: `./run_all.sh{study}` writes some.\n")
    figures = read_paper(ladder)
    return "\n".join(parts + [results_section(groups, figures) for groups in found])


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

    text = re.sub("<source[^>]*>", "", text)  # for dark pages, and this one is light

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
    if not stage.before:
        return ""
    answer = subprocess.run(["harness/step.py", "diff", stage.ladder.name, stage.name],
                            capture_output=True, encoding="utf-8", errors="replace", check=True)
    kinds = {"+": "added", "-": "removed", "@": "place"}
    lines = answer.stdout.splitlines()
    added, removed = tables.changed_lines(stage)
    start = next((i for i, line in enumerate(lines) if line.startswith("@@")), 0)
    spans = (f'<span class="{kinds.get(line[:1], "")}">{html.escape(line)}</span>'
             for line in lines[start:])
    return (f"<details><summary>The diff against {stage.before.name}: {added} lines added, "
            f"{removed} removed</summary>\n"
            f'<pre class="diff">{"".join(spans)}</pre></details>\n')


def profile_html(stage):
    """The flame graph. It stands in the page itself, so that its tooltips work."""
    is_main = stage.ladder.name == ladders.MAIN
    folder = ROOT / "profiles" / ("" if is_main else stage.ladder.name) / stage.name
    flame = read(folder / "flame.svg")
    if not flame:
        return ""
    flame = re.sub(r"^.*?(?=<svg)", "", flame, flags=re.DOTALL)
    link = tables.url(os.path.relpath(folder, HERE))
    return f'<h3>Profile</h3>\n<p><a href="{link}">All of it</a></p>\n{flame}\n'


def numbers_markdown(found, stage):
    """The stage's times, rates and speedups, by machine: the part of its README that is written
    here. Of a step, it is the cells of the headline, below those of the stage before."""
    parts = []
    for group, *_ in found:
        lines = [line for line in group.lines if line[0] == stage.name]
        if not lines:
            parts.append(md(f"{tables.machine(group.folder)}: {tables.why_not(group, stage)}.")
                         + "\n")
        for line in lines:
            if stage.is_step:
                cells, heads = tables.headline_cells(group), [""]
                heads += [tables.cell_name(group.ladder, cell) for cell in cells]
                above = group.rungs(cells[-1])[stage][1]
                shown = [each for each in (above, line) if each]
                table = [[md(tables.label(each)),
                          *(tables.cell_text(group, each, cell) for cell in cells)]
                         for each in shown]
                table += [["times as fast", *(group.ratio_text(line, above, cell)
                                              for cell in cells)]] if above else []
            else:
                options = [axis["option"] for axis in group.ladder.axes]
                shown, cells, heads = [line], group.cells, [md(tables.label(line))]
                heads += [f"{options[0]} {page[0]}" if page else "each run" for page in group.pages]
                table = [[f"{options[-1]} {column[0]}" if column else "",
                          *(tables.cell_text(group, line, page + column, rate=True)
                            for page in group.pages)] for column in group.columns]
            text = (f"{tables.machine(group.folder)}; {group.conditions(str(table))}. "
                    + tables.cell_in_words(group, shown, cells, rate=not stage.is_step))
            parts += [md(text) + "\n", tables.markdown_table(heads, table)]
    return "\n".join(parts)


def identity(stage):
    return f"{stage.ladder.name}-{stage.name}"


def stage_section(stage):
    source = os.path.relpath(stage.source, ROOT)
    return (f'<section class="stage" id="{html.escape(identity(stage))}">\n'
            + to_html(read(stage.folder / "README.md") or f"# {md(stage.name)}", stage.folder,
                      f"{identity(stage)}-", 1)
            + f'<p>Source: <a href="../{tables.url(source)}">{html.escape(source)}</a></p>\n'
            + diff_html(stage) + profile_html(stage) + "</section>\n")


def page(found, markdown):
    lists = ("\n".join([f"{html.escape(ladder.name)}:", *(
        f'<a href="#{tables.url(identity(stage))}">{html.escape(stage.name)}</a>'
        for stage in ladder.stages)]) for ladder in found)
    return Template(read(HERE / "template.html")).substitute(
        title="One network, made fast step by step: report",
        navigation='<a href="#report">Report</a>\n<a href="../README.md">The repository</a><br>\n'
                   + "<br>\n".join(lists),
        body=to_html(markdown, HERE)
             + "".join(stage_section(stage) for ladder in found for stage in ladder.stages))


def update_readmes(ladder, found):
    """Writes the headline and the ladder into the ladder's READMEs, and its numbers into each
    stage's README. The first README of the main ladder is the repository's. The headline stays
    about the same machine. If it has none yet, it is about the first."""
    pages = [ROOT / "README.md"] if ladder.name == ladders.MAIN else []
    pages.append(ladder.folder / "README.md")
    named = re.search(r"\([^()]*\breport/results/([^/)]+)", read(pages[0]))
    shown = next((groups for groups in found if named and
                  tables.url(groups[0].folder.parent.name) == named[1]), (found or [None])[0])
    for path in pages if shown else []:
        for name, text in tables.BLOCKS.items():
            if tables.has_markers(path, name):
                tables.update(path, text(shown, path.parent), name)
    for stage in ladder.stages:
        text = stage.folder / "README.md"
        if tables.has_markers(text):
            tables.update(text, numbers_markdown(found, stage) or "No results yet.\n")


def draw_moves(ladder):
    """Runs the ladder's pictures.py, which draws picture.svg for stages that have a picture."""
    script = ladder.folder / "pictures.py"
    if script.exists() and subprocess.run([sys.executable, script], check=False).returncode:
        sys.exit(f"report.py: {script.relative_to(ROOT)} failed")


def main():
    os.chdir(ROOT)
    found = {ladder: find_results(ladder) for ladder in ladders.ladders()}
    markdown = "\n".join([INTRODUCTION, *(ladder_section(*item) for item in found.items())])
    tables.write(HERE / "README.md", markdown)
    for ladder, results in found.items():
        draw_moves(ladder)
        update_readmes(ladder, results)
    tables.write(HERE / "index.html", page(found, markdown))
    print("Written to report: README.md, index.html and the plots in results", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"report.py: {error}")
