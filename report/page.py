"""The report as one page for a browser: index.html. It needs no network and no other file.

template.html has its frame, page.css its looks, plots.js its plots, page.js what else answers to
the reader. The rest is written here: the result, the numbers that plots.js draws, the tables, and
the stages with their diffs and profiles. Without scripts, all machines, the plots of the ladders
and the diffs are there. They stand in <noscript>, where a browser with scripts does not look: a
diff costs nothing until page.js opens it.
"""

import base64
import functools
import json
import os
import re
import subprocess
import tempfile
import zlib
from html import escape, unescape
from itertools import groupby
from pathlib import Path
from string import Template
from urllib.parse import unquote, urlsplit

import cards
import diffs
import ladders
import plots
import view
import samples
from cards import cell
from view import HERE, read

ROOT = HERE.parent
FOLDED = "The prediction", "Measured"  # a reader predicts first
THEME = {plots.INK: "--ink", plots.GROUND: "--ground", plots.GRID: "--line"}
COLUMNS = 7  # of the ladder


class Machine:
    """The results of one folder, of all ladders."""

    def __init__(self, folder, name):
        self.folder, self.ladders = folder, {}
        self.is_quick = folder.name.endswith("-quick")
        self.is_here = folder.name.removesuffix("-quick") == name
        self.key = escape(ladders.printable(folder.name))

    def title(self):
        names = dict.fromkeys(view.machine(groups[0].folder) for groups in self.ladders.values())
        return next(iter(names))

    def badges(self):
        return [text for text, holds in (("this machine", self.is_here),
                                         ("a quick look", self.is_quick)) if holds]

    def heading(self):
        marks = "".join(f" <b class=badge>{text}</b>" for text in self.badges())
        return escape(self.title()) + marks


def machines(everything, shown):
    """All machines. This one comes first, then the one that the READMEs are about."""
    name = subprocess.run(["report/machine.sh", "--name"], capture_output=True, check=False,
                          encoding="utf-8", errors="replace").stdout.strip()
    found = {}
    for ladder, results_ in everything.items():
        for groups in results_:
            folder = groups[0].folder.parent
            found.setdefault(folder, Machine(folder, name)).ladders[ladder] = groups
    first = shown and shown[0].folder.parent
    return sorted(found.values(), key=lambda each: (
        not each.is_here, each.is_quick, each.folder != first, each.folder))


# --- Markdown to HTML ---

def pandoc(pieces):
    """Turns pieces of GitHub's Markdown into HTML, with one start of pandoc. No piece affects
    another."""
    with tempfile.TemporaryDirectory() as folder:
        files, mark = [], Path(folder, "mark.md")
        mark.write_text("<!-- piece -->\n", encoding="utf-8")
        for number, piece in enumerate(pieces):
            files += [Path(folder, f"{number}.md"), mark]
            files[-2].write_text(piece + "\n", encoding="utf-8")
        # pandoc 3 puts each file into a <div> with the file's name.
        plain = Path(folder, "plain.lua")
        plain.write_text("function Div(div) return div.content end\n", encoding="utf-8")
        try:
            text = subprocess.run(
                ["pandoc", "--from=gfm", "--to=html", "--no-highlight", "--wrap=preserve",
                 "--file-scope", "--shift-heading-level-by=1", "--lua-filter", plain, *files],
                capture_output=True, check=True, encoding="utf-8").stdout
        except FileNotFoundError:
            ladders.fail("found no pandoc in PATH (Debian's package pandoc)", 1)
        except subprocess.CalledProcessError as error:
            ladders.fail(f"pandoc: {error.stderr}", 1)
    return text.split("<!-- piece -->\n")[:len(pieces)]


def embedded(path, text, label):
    """An SVG that this run has drawn as a part of the page. Its colours follow the page's. Its ids
    are its own, by a path that no other one has."""
    prefix = f"i{zlib.crc32(os.fsencode(path.relative_to(ROOT))):x}"
    text = re.sub(r"^.*?(?=<svg)", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r"#[0-9a-f]{6}\b", lambda match: f"var({THEME[match[0]]})"
                  if match[0] in THEME else match[0], text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)


def finish(text, folder, about):
    """Makes links relative to report/, pictures a part of the page, and tables ones that can be
    read aloud. `folder` is where the Markdown lies."""

    def relink(match):
        target = unescape(match[1])
        if urlsplit(target).scheme:
            return match[0]
        path = os.path.normpath(folder / target)
        if path in stage_ids():
            return f'href="#{stage_ids()[path]}"'
        return "" if target.startswith("#") else f'href="{escape(os.path.relpath(path, HERE))}"'

    def embed(match):
        picture = base64.b64encode(read(folder / unquote(unescape(match[1]))).encode()).decode()
        return f'src="data:image/svg+xml;base64,{picture}"'

    text = re.sub(r'(<h\d[^>]*) id="[^"]*"', r"\1", text)
    text = re.sub(r'src="([^":]+\.svg)"', embed, re.sub(r'href="([^"]*)"', relink, text))
    heading, parts = about, []
    for part in re.split(r"(<h\d[^>]*>.*?</h\d>|<table>)", text, flags=re.DOTALL):
        if part.startswith("<h"):
            heading = f"{about}: {re.sub('<[^>]*>', '', part)}"
        elif part == "<table>":
            part = ('<div class="scroll" tabindex="0"><table><caption class="unseen">'
                    f"{heading}</caption>")
        parts.append(part)
    text = "".join(parts).replace("</table>", "</table></div>")
    text = re.sub(r"<th\b", '<th scope="col"', text)
    text = re.sub(r"(<tr[^>]*>\s*)<td([^>]*)>(.*?)</td>", r'\1<th scope="row"\2>\3</th>', text,
                  flags=re.DOTALL)
    return re.sub(r"<td([^>]*)>([^<]*~[^<]*)</td>", r'<td class="noisy"\1>\2</td>', text)


# --- results ---

def link(stage):
    return f'<a href="#{identity(stage)}">{escape(stage.name)}</a>'


def identity(stage):
    return escape(f"{stage.ladder.name}-{stage.name}")


@functools.cache
def stage_ids():
    """{folder: identity} of all stages: a link to a stage leads to its place on the page."""
    return {str(stage.folder): identity(stage) for ladder in ladders.ladders()
            for stage in ladder.stages}


def move(stage):
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(view.move(stage), quote=False))


def changed(stage):
    """How many lines a stage changed, as a link to its diff."""
    return (f'<a href="#diff-{identity(stage)}">{sum(view.changed_lines(stage))}</a>'
            if stage.before else "")


def quoted(words):
    """Prose of a ladder.toml, with its emphasis."""
    return re.sub(r"\*(.+?)\*", r"<cite>\1</cite>", escape(words))


def ladder_html(group):
    """The whole ladder in one cell: a line for each stage and step. Those without a time share a
    line."""
    at = view.ladder_cell(group)
    rungs = group.rungs(at)
    over = f"over {escape(view.label(group.baseline))}" if group.baseline else "speedup"
    names = [escape(group.title(group.ladder.time)), "over the line above", over,
             "part of the ceiling", "changed lines", "the move"]
    lines = []
    for has_time, part in groupby(rungs.items(), lambda item: item[1][0] is not None):
        part = list(part)
        if not has_time:
            notes = view.share_reasons(f"{stage.name}: {view.why_not(group, stage)}"
                                         for stage, _ in part)
            first, last = part[0][0].name, part[-1][0].name
            names_ = first if first == last else f"{first} to {last}"
            why = f"{len(notes)} reasons" if notes[1:] else notes[0].partition(": ")[2]
            listed = "".join(f"<li>{link(stage)}: {move(stage)}" + (
                f" ({changed(stage)} lines)" if stage.before else "") for stage, _ in part)
            reasons = "".join(f"<p>{escape(note)}</p>" for note in notes if notes[1:])
            lines.append(f"<tr class=absent><td colspan={COLUMNS}><details><summary>"
                         f"{escape(names_)}, {view.plural(len(part), 'stage')} without a time: "
                         f"{escape(why)}</summary><ul>{listed}</ul>{reasons}</details></td></tr>")
            continue
        for stage, (line, above) in part:
            time, *compared, share = group.summary(line, (above, group.baseline), at)
            texts = [time, *(compared if stage.before else ["", ""]), share]
            parts = 0, 0, 0, group.part_of_ceiling(line, at)
            cells = "".join(map(cell, texts, parts, names))
            lines.append(
                f"<tr{' class=step' if stage.is_step else ''}><th scope=row>"
                f'<i class=key style="--key:{plots.place(stage.name)[1]}"></i>{link(stage)}'
                f"{escape(view.label(line)[len(stage.name):])}</th>{cells}"
                f'<td data-name="{names[4]}">{changed(stage)}</td>'
                f"<td class=move>{move(stage)}</td></tr>")
    heads = "".join(f"<th scope=col>{name}</th>" for name in ["stage", *names])
    shown = [line for line, _ in rungs.values() if line]
    others = [f"{stage.name} is compared with {stage.before.name} instead."
              for above, stage in zip(group.ladder.stages, group.ladder.stages[1:])
              if stage.before != above]
    text = " ".join(filter(None, [
        "The first ratio compares with the nearest line above that has a time.", *others,
        view.ceiling_in_words(group, shown), view.skips_in_words(group, shown)]))
    conditions = "; ".join(([view.cell_name(group.ladder, at)] if at else [])
                           + [group.conditions(" ".join(lines))])
    return (f"<p>{escape(conditions)}.</p>\n"
            f'<div class=scroll tabindex=0><table class=ladder><caption class=unseen>The ladder: '
            f"{escape(view.machine(group.folder))}</caption>\n<thead><tr>{heads}</tr></thead>\n"
            f"<tbody>{chr(10).join(lines)}</tbody></table></div>\n"
            f"<p class=small>{escape(text)}</p>\n")


def tables_html(group, paper):
    """A table for each measure, each below a line that opens it."""
    paper, found = view.paper_for(group, paper), []
    for measure in (each for each in group.measures if group.lines_of(each)):
        lines = []
        for kind, name, cells in view.table(group, paper, measure):
            if kind == "page":
                lines.append(f"<tr class=page><th scope=rowgroup colspan={len(group.columns) + 1}>"
                             f"{escape(name)}</th></tr>")
            else:
                prefix = "paper: " if kind == "paper" else ""
                lines.append(f"<tr class={kind}><th scope=row>{prefix}{escape(name)}</th>"
                             f"{''.join(map(cell, cells))}</tr>")
        heads = "".join(f"<th scope=col>{escape(head)}</th>" for head in view.heads(group))
        title = escape(group.title(measure))
        found.append(
            f"<details{'' if found else ' open'}><summary>{title}</summary>\n"
            f"<div class=scroll tabindex=0><table><caption class=unseen>{title}</caption>\n"
            f"<thead><tr>{heads}</tr></thead>\n<tbody>{chr(10).join(lines)}</tbody></table></div>"
            "</details>\n")
    text = "".join(found)
    notes = "".join(f"<li>{escape(reason)}</li>" for reason in view.reasons(group))
    return (f"<h4>Tables</h4>\n<p>{escape(group.conditions(text))}.</p>\n"
            f"{f'<ul>{notes}</ul>' if notes else ''}{text}")


def numbers(everything):
    """What plots.js draws of a group: its runs, its roofs, and the figures with fixed axes."""
    whole = everything.with_most_threads()
    group = whole.without_steps()
    ladder, at = whole.ladder, view.ladder_cell(whole)
    above = {line: other for line, other in whole.rungs(at).values() if line}
    intensities, lines = plots.intensities_of(group), []
    for line, look in plots.styles(whole.lines).items():
        ceiling, runs = whole.ceiling(line), {}
        for number, cell_ in enumerate(whole.cells):
            times = whole.values(ladder.time, line, cell_)
            if times:
                runs[number] = {
                    "times": [whole.scale * time for time in times],
                    "time": whole.scale * whole.time(line, cell_),
                    "phases": [whole.scale * (whole.median(f"{name}_s", line, cell_) or 0)
                               for name in ladder.phases],
                    "noisy": whole.is_noisy(ladder.time, line, cell_),
                    "gflops": whole.median("gflops", line, cell_)}
        if runs:
            lines.append({
                "name": view.label(line), "stage": line[0], "colour": look["color"],
                "shape": plots.MARKERS.index(look["marker"]), "peer": view.is_peer(line),
                "all": line in group.lines, "rung": line in above or view.is_peer(line),
                "above": above.get(line) and view.label(above[line]),
                "cpu": whole.is_on_cpu(line), "mark": whole.mark(line),
                "ceiling": ceiling and ceiling / 1e9, "runs": runs})
    roofs = plots.roofs(group)
    figures = ("Threads", plots.threads(everything.without_steps())), (
        "Epoch by epoch", plots.epochs(group)), ("How the cost grows", plots.growth(group)), (
        "How it learns", plots.learning(group))
    return {
        "axes": [{"option": axis["option"], "name": axis["name"]} for axis in ladder.axes],
        "cells": whole.cells, "start": at, "lines": lines, "time": whole.time_name(),
        "unit": whole.unit, "limit": view.LIMIT, "phases": ladder.phases,
        "phaseColours": plots.PHASES[:len(ladder.phases)],
        "intensities": [intensities.get(each) for each in whole.cells],
        "roofs": [[label, [[x, y / 1e9] for x, y in points]] for label, points in roofs],
        "note": f"A flat roof is the rate of multiply-adds alone. A slanted one is what a cache or "
                f"memory sends to {roofs[0][0].partition(', ')[2]}. {plots.above_memory(group)}"
                if roofs else "",
        "figures": [{"title": title, "panels": found} for title, figure in figures
                    if (found := plots.panels(figure))]}


def static(group):
    """The plots that READMEs show, for a page without scripts."""
    figures = {"ladder": plots.ladder(group), "epochs": plots.epochs(group.without_steps())}
    label = view.machine(group.folder)
    return "".join(f"<figure>{embedded(group.folder / name, plots.svg(figure), f'{name}: {label}')}"
                   "</figure>\n" for name, figure in figures.items() if figure)


def machine_html(machine, ladder, paper, sets, is_first):
    """A machine's part of a ladder. `sets` gets the numbers of its plots."""
    groups = machine.ladders.get(ladder)
    if not groups:
        study = escape(ladder.chosen_by("--study "))
        return (f'<div data-machine="{machine.key}"><p>No results of {machine.heading()}: '
                f"<code>./run_all.sh{study}</code> writes some.</p></div>\n")
    first = groups[0]
    folder = view.url(first.folder.relative_to(HERE))
    sets.append(numbers(first))
    result = view.result(groups)
    epochs = view.epochs(groups, HERE)
    epochs = re.sub(r"^!\[.*\n", "", epochs, flags=re.MULTILINE)
    return "".join([
        f'<div data-machine="{machine.key}">\n',
        f"<h{3 - is_first}>{machine.heading()}</h{3 - is_first}>\n",
        "<p class=quick>This is a quick look: few cells, few runs, short runs. It is no result.</p>"
        if machine.is_quick else "",
        f"<p class=lead>{escape(result)}</p>\n" if result else "", ladder_html(first),
        f'<p class=small><a href="{folder}/runs.csv">Every run</a>, '
        f'<a href="{folder}/sweeps.csv">the machine</a> '
        f"({escape(view.facts(first.folder))}).</p>\n",
        f'<div class=plots data-set="{len(sets) - 1}"></div>\n',
        f"<noscript>{static(first)}</noscript>\n",
        f"<h4>Epoch by epoch</h4>\n{finish(pandoc([epochs])[0], HERE, 'Epochs')}" if epochs else "",
        *(tables_html(group.without_steps(), paper) for group in groups), "</div>\n"])


def beside(found, ladder):
    """All machines beside each other."""
    found = [(machine.heading(), cards.conditions(machine.ladders[ladder][0]),
              machine.ladders[ladder][0]) for machine in found if ladder in machine.ladders]
    return f"<div data-machine=all>{cards.beside(found, peers=True)}</div>\n" if found else ""


def ladder_section(ladder, found, sets):
    """A ladder's results, with all machines. The first thing on the page is the main ladder's."""
    is_first, paper = ladder.name == ladders.MAIN, ladder.toml.get("paper", {})
    figures = view.read_paper(ladder)
    cite = f"<p>The paper is {quoted(paper['cite'])}. Rows marked <i>paper</i> are its figures, " \
           "from other machines and other code.</p>\n" if paper else ""
    title = "" if is_first else f"<h2>{escape(ladder.title)}</h2>\n"
    return "".join([f'<section id="{escape(ladder.name)}">\n', title,
                    *(machine_html(machine, ladder, figures, sets, is_first) for machine in found),
                    beside(found, ladder),
                    "" if found else "<p>No results yet: <code>./run_all.sh</code> writes some.",
                    samples.flames(ladder, f"h{3 - is_first}", embedded, link), cite,
                    "</section>\n"])


# --- stages ---

def profile_html(stage):
    """Links to the files of a profile, and to its flame graph."""
    folder = samples.folder(stage)
    if not folder:
        return ""
    files = ", ".join(
        f'<a href="{view.url(os.path.relpath(path, HERE))}">{escape(path.name)}</a>'
        for path in sorted(folder.iterdir()) if path.suffix in (".svg", ".txt"))
    own = " This profile is your own." if folder.parent.name == "mine" else ""
    stacks = (' <a href="https://www.speedscope.app">speedscope</a> and the <a href='
              '"https://profiler.firefox.com">Firefox Profiler</a> open stacks.txt.'
              if (folder / "stacks.txt").exists() else "")
    has_flame = stage in (each.stage for each in samples.profiles(stage.ladder))
    beside = (f' <a href="#{escape(stage.ladder.name)}-profiles">The flame graph</a> is beside '
              "those of other stages." if has_flame else "")
    return f"<h3>Profile</h3>\n<p>{files}.{own}{beside}{stacks}</p>\n"


def diff_html(stage, part=""):
    """The diff of a stage, behind a line that opens it. The points of the README's part stand at
    their places in the diff. While it is open, they are not in the part, too."""
    if not stage.before:
        return part
    both = stage.before, stage
    found = tuple(map(samples.of_lines, both))
    table, placed = diffs.table(*(each.source for each in both), diffs.points(part), found)
    names = " and ".join(
        f'<a href="{view.url(os.path.relpath(samples.folder(each) / "lines.txt", HERE))}">the '
        f"profile of {escape(each.name)}</a>" for each, lines in zip(both, found) if lines)
    words = (f"<p class=small>The percentage at a line's number is its part of the samples in "
             f"{names}.</p>\n" if names else "")
    added, removed = view.changed_lines(stage)
    return (f'{diffs.marked(part, placed)}<details id="diff-{identity(stage)}"><summary>The diff '
            f"against {escape(stage.before.name)}: {added} lines added, {removed} removed"
            f"</summary>\n<noscript>{words}{table}</noscript></details>\n")


def stage_section(stage, text):
    """A stage's README with its diff. What answers its question is folded."""
    parts, has_diff = [], False
    for part in re.split(r"(?=<h3>)", finish(text, stage.folder, stage.name)):
        title = re.match("<h3>(.*?)</h3>", part)
        if title and title[1] in FOLDED:
            part = f"<details class=folded><summary>{title[0]}</summary>{part[title.end():]}" \
                   "</details>\n"
        if title and title[1] == "What the diff shows":
            part, has_diff = diff_html(stage, part), True
        parts.append(part)
    source = os.path.relpath(stage.source, HERE)
    return (f'<section class="stage" id="{identity(stage)}">\n' + "".join(parts)
            + ("" if has_diff else diff_html(stage))
            + f'<p>Source: <a href="{view.url(source)}">'
            f"{escape(os.path.relpath(stage.source, ROOT))}</a></p>\n{profile_html(stage)}"
            "</section>\n")


def contents(found):
    """The list of all ladders and stages."""
    return "".join(
        f'<details{" open" if ladder.name == ladders.MAIN else ""}><summary>'
        f'<a href="#{escape(ladder.name)}">{escape(ladder.title)}</a></summary><ul>' + "".join(
            f"<li{' class=step' if stage.is_step else ''}>{link(stage)}"
            for stage in ladder.stages) + "</ul></details>\n" for ladder in found)


def write(everything, shown):
    """Writes index.html. Returns words on what of this machine is in it."""
    found, sets = machines(everything, shown), []
    stages = [stage for ladder in everything for stage in ladder.stages]
    texts = pandoc([read(stage.folder / "README.md") or f"# {view.markdown(stage.name)}"
                    for stage in stages])
    options = [f'<option value="{machine.key}">'
               f"{escape(', '.join([machine.title(), *machine.badges()]))}</option>"
               for machine in found] + (["<option value=all>all, side by side</option>"]
                                        if found[1:] else [])
    sections = [ladder_section(ladder, found, sets) for ladder in everything]
    data = json.dumps(sets, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    text = Template(read(HERE / "template.html")).substitute(
        title="One network, made fast step by step", style=read(HERE / "page.css"),
        script=read(HERE / "plots.js") + read(HERE / "page.js"), data=data,
        contents=contents(everything),
        machines="".join(options), results="".join(sections),
        stages="".join(map(stage_section, stages, texts)))
    base = os.environ.get("LINKS")  # where the repository is, if the page lies elsewhere
    if base:
        text = re.sub(r'href="(?![#\w]*:|#)([^"]*)"', lambda match: (
            f'href="{base}/{os.path.normpath(f"report/{match[1]}")}"'), text)
    view.write(HERE / "index.html", text)
    own = [f"this machine's {'quick look' if machine.is_quick else 'results'}"
           for machine in found if machine.is_here]
    return f" (with {view.listing(own)})" if own else ""
