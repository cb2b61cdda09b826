"""The report as one page for a browser: index.html. It needs no network and no other file.

templates/page.html.j2 says what is on it, page.css how it looks, plots.js draws the plots, and
page.js does what else answers to the reader. What they need is gathered here: the machines, the
numbers that plots.js draws, and the READMEs and diffs as HTML. A diff stands in <noscript>, where a
browser with scripts does not look: it costs nothing until page.js opens it.
"""

import base64
import functools
import json
import os
import re
import subprocess
import zlib
from html import escape, unescape
from itertools import groupby
from urllib.parse import unquote, urlsplit

from markupsafe import Markup

from harness import ladders, rows
from report import diffs, plots, render, samples, view
from report.view import HERE, read

ROOT = HERE.parent
FOLDED = "The prediction", "Measured"  # a reader predicts first
SHOWN = "What the diff shows"  # the diff stands below it
PIECE = "<!-- piece -->"


class Machine:
    """The results of one folder, of all ladders."""

    def __init__(self, folder, name):
        self.folder, self.ladders = folder, {}
        self.is_quick = folder.name.endswith("-quick")
        self.is_here = folder.name.removesuffix("-quick") == name
        self.key = ladders.printable(folder.name)
        self.badges = ["this machine"] * self.is_here + ["a quick look"] * self.is_quick

    @property
    def title(self):
        return view.machine(next(iter(self.ladders.values()))[0].folder)


def machines(everything, shown):
    """All machines. This one comes first, then the one that the READMEs are about."""
    name = subprocess.run(["harness/machine.sh", "--name"], capture_output=True, check=False,
                          encoding="utf-8", errors="replace").stdout.strip()
    found = {}
    for ladder, results_ in everything.items():
        for groups in results_:
            folder = groups[0].home
            found.setdefault(folder, Machine(folder, name)).ladders[ladder] = groups
    first = shown and shown[0].home
    return sorted(found.values(), key=lambda each: (
        not each.is_here, each.is_quick, each.folder != first, each.folder))


# --- Markdown to HTML ---

def pandoc(pieces):
    """Turns pieces of GitHub's Markdown into HTML, with one start of pandoc."""
    try:
        text = subprocess.run(
            ["pandoc", "--from=gfm-gfm_auto_identifiers", "--to=html", "--no-highlight",
             "--wrap=preserve", "--shift-heading-level-by=1"], capture_output=True, check=True,
            encoding="utf-8", input=f"\n\n{PIECE}\n\n".join(pieces)).stdout
    except FileNotFoundError:
        ladders.fail("found no pandoc in PATH (Debian's package pandoc)", 1)
    except subprocess.CalledProcessError as error:
        ladders.fail(f"pandoc: {error.stderr}", 1)
    return text.split(f"{PIECE}\n")


def picture(path):
    """An SVG as an address, so that it is a part of the page. No script of it runs."""
    return f"data:image/svg+xml;base64,{base64.b64encode(read(path).encode()).decode()}"


def finish(text, folder):
    """Makes links relative to report/, and pictures a part of the page. `folder` is where the
    Markdown lies."""

    def relink(match):
        target = unescape(match[1])
        if urlsplit(target).scheme:
            return match[0]
        path = os.path.normpath(folder / target)
        if path in stage_ids():
            return f'href="#{stage_ids()[path]}"'
        return "" if target.startswith("#") else f'href="{escape(os.path.relpath(path, HERE))}"'

    text = re.sub(r'href="([^"]*)"', relink, text)
    text = re.sub(r'src="([^":]+\.svg)"', lambda match: (
        f'src="{picture(folder / unquote(unescape(match[1])))}"'), text)
    return Markup(re.sub("<table>.*?</table>", r"<div class=scroll tabindex=0>\g<0></div>", text,
                         flags=re.DOTALL))


def marked(text, mark, tag):
    """A text whose parts between these marks have this element."""
    return Markup(re.sub(f"{mark}(.+?){mark}", rf"<{tag}>\1</{tag}>", escape(text, quote=False)))


# --- results ---

def identity(stage):
    return f"{stage.ladder.name}-{stage.name}"


@functools.cache
def stage_ids():
    """{folder: identity} of all stages: a link to a stage leads to its place on the page."""
    return {str(stage.folder): escape(identity(stage)) for ladder in ladders.ladders()
            for stage in ladder.stages}


def rungs(group, at):
    """The ladder in one cell: [(its stages that follow each other, as in Group.rungs(), and why
    they have no time)]. Those with a time have no reasons."""
    for has_time, part in groupby(group.rungs(at).items(), lambda rung: rung[1][0] is not None):
        part = list(part)
        yield part, [] if has_time else view.share_reasons(
            f"{stage.name}: {view.why_not(group, stage)}" for stage, _ in part)


def epochs(groups):
    """The table of epochs. The plot that stands above it in a README is left out."""
    text = re.sub(r"^!\[.*\n", "", view.epochs(groups, HERE), flags=re.MULTILINE)
    return finish(pandoc([text])[0], HERE) if text else ""


def brief(value):
    """A measured number in as many digits as a plot or a ratio needs."""
    return value and float(f"{value:.6g}")


def runs_of(whole):
    """What plots.js draws of the runs of a group, cell by cell. They may be compared with another
    machine's of the same settings."""
    ladder, lines = whole.ladder, []
    rungs_of = [{line: above for line, above in whole.rungs(cell).values() if line}
                for cell in whole.cells]
    intensities = plots.intensities_of(whole)
    for line in whole.lines:
        runs = {}
        for at, cell in enumerate(whole.cells):
            values, above = whole.values(ladder.time, line, cell), rungs_of[at].get(line)
            if values:
                time, part = whole.time(line, cell), whole.part_of_ceiling(line, cell)
                seconds = time, min(values), max(values), time * (part or 0)
                runs[at] = dict(zip(("time", "low", "high", "peak"), (
                    brief(whole.scale * each) for each in seconds))) | {
                    "text": whole.ranged(ladder.time, line, cell), "count": len(values),
                    "above": above and whole.label(above),
                    "gain": render.ratio(whole, line, above, cell),
                    "phases": [brief(whole.scale * (whole.median(f"{name}_s", line, cell) or 0))
                               for name in ladder.phases],
                    "gflops": brief(whole.median("gflops", line, cell))}
        if runs:
            lines.append({
                "name": whole.label(line), "short": whole.short_label(line), "stage": line[0],
                "kind": "peer" if view.is_peer(line) else "step" if view.is_step(line) else "stage",
                "threads": line[1] or 1, "cpu": whole.is_on_cpu(line), "mark": whole.mark(line),
                "skips": whole.ladder.skips(line[0]), "runs": runs})
    return {"cells": whole.cells, "start": view.ladder_cell(whole), "lines": lines,
            "unit": whole.unit, "scale": whole.scale, "settings": [*whole.settings.values()],
            "heading": whole.conditions(" ".join(  # of the signs that the chart shows
                f"{line['short']} {run['text'].partition(' (')[0]}"
                for line in lines for run in line["runs"].values())),
            "intensities": [brief(intensities.get(each)) for each in whole.cells]}


def numbers(everything):
    """What plots.js draws of a group: its runs, those of all stages and steps, its roofs, and the
    figures with fixed axes."""
    group = everything.with_most_threads().without_steps()
    ladder, roofs, steps = group.ladder, plots.roofs(group), everything.steps
    figures = ("Threads", plots.threads(everything.without_steps())), (
        "Epoch by epoch", plots.epochs(group)), ("How the cost grows", plots.growth(group)), (
        "How it learns", plots.learning(group))
    return runs_of(everything.with_most_threads()) | {
        "steps": runs_of(steps.with_most_threads()) if steps not in (None, everything) else None,
        "axes": [{"option": axis["option"], "name": axis["name"]} for axis in ladder.axes],
        "time": group.time_name(), "phases": ladder.phases,
        "phaseColours": plots.PHASES[:len(ladder.phases)],
        "roofs": [[label, [[brief(x), brief(y / 1e9)] for x, y in points]]
                  for label, points in roofs],
        "note": f"A flat roof is the rate of multiply-adds alone. A slanted one is what a cache or "
                f"memory sends to {roofs[0][0].partition(', ')[2]}. What stays in a cache is "
                "sent once, so a mark may lie above the roof of the memory."
                if roofs else "",
        "figures": [{"title": title, "panels": found} for title, found in figures if found]}


# --- stages ---

def sections(stages):
    """[(stage, its README's title, [(heading, text)] of it as HTML, the part that its diff stands
    below)]."""
    texts = pandoc([read(stage.folder / "README.md") or f"# {view.markdown(stage.name)}"
                    for stage in stages])
    for stage, text in zip(stages, texts):
        name, end, rest = finish(text, stage.folder).partition(Markup("</h2>"))
        first, *others = map(Markup, re.split("<h3>(.*?)</h3>", rest if end else name))
        parts = [("", first), *zip(others[::2], others[1::2])]
        yield stage, name + end if end else "", parts, next(
            (i for i, (title, _) in enumerate(parts) if title == SHOWN), len(parts) - 1)


def neighbours(stage):
    """The stages before and after it in the order of its ladder, or None."""
    stages = [None, *stage.ladder.stages, None]
    at = stages.index(stage)
    return stages[at - 1], stages[at + 1]


@functools.cache
def rungs_of(group):
    """[(group, cell, its rungs)] of the cells that show the whole ladder."""
    whole, cells = plots.whole_ladder(group)
    return [(whole, at, whole.rungs(at)) for at in cells]


def gains(machine, stage):
    """(group, (the stage's line, the one above it), cell) in each cell that shows the ladder."""
    cells = rungs_of(machine.ladders[stage.ladder][0]) if stage.ladder in machine.ladders else []
    return [(whole, found[stage], at) for whole, at, found in cells if found[stage][0]]


def packed(value):
    """What page.js unpacks. Stages are alike, so it takes a tenth of the room."""
    return base64.b64encode(zlib.compress(json.dumps(value).encode(), 9)).decode()


def diff(stage):
    """(the stages that have a profile of their lines, the diff against the one before)"""
    both = stage.before, stage
    found = tuple(map(samples.of_lines, both))
    return [each for each, lines in zip(both, found) if lines], Markup(
        diffs.table(*(each.source for each in both), found))


def write(everything, shown):
    """Writes index.html. Returns words on what of this machine is in it."""
    found, stages = machines(everything, shown), [
        stage for ladder in everything for stage in ladder.stages]
    # The numbers of a machine's plots of a ladder, in the order of the page.
    places = {(ladder, machine): number for number, (ladder, machine) in enumerate(
        (ladder, machine) for ladder in everything for machine in found
        if ladder in machine.ladders)}
    text = render.page(
        "page.html.j2", title="One network, made fast step by step", everything=everything,
        machines=found, sections=sections(stages), places=places,
        data={"sets": [numbers(machine.ladders[ladder][0]) for ladder, machine in places],
              "sources": packed({identity(stage): samples.text_of(stage.source)
                                 for stage in stages if stage.before})},
        script=Markup(read(HERE / "plots.js") + read(HERE / "page.js")),
        folded=FOLDED, main=next(iter(everything)).name, plots=plots, root=ROOT, samples=samples,
        identity=identity, rungs=rungs, gains=gains, neighbours=neighbours, epochs=epochs,
        diff_of=diff, marked=marked, code=lambda text: marked(text, "`", "code"),
        relative=lambda path: view.url(os.path.relpath(path, HERE)))
    base = os.environ.get("LINKS")  # where the repository is, if the page lies elsewhere
    if base:
        text = re.sub(r'href="(?![#\w]*:|#)([^"]*)"', lambda match: (
            f'href="{base}/{os.path.normpath(f"report/{match[1]}")}"'), text)
    rows.write(HERE / "index.html", text)
    own = [f"this machine's {'quick look' if machine.is_quick else 'results'}"
           for machine in found if machine.is_here]
    return f" (with {view.listing(own)})" if own else ""
