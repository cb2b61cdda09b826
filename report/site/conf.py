"""`make site`: a page for each README. The site adds an order in which they are read, each stage's
diff, solutions and source, a page of a CUDA stage's accesses to memory, and pages or downloads
behind the links to folders and files."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
import pandas

from bench import counts, options
from bench.base import ROOT
from bench.ladders import ladders
from bench.stage import git_diff
from report import frames, lanes, tables, words

options.read([])

project = html_title = "One network, made fast step by step"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["**.md"]
exclude_patterns = [".*", "**/.*", "**/build", "**/env", "**/SOLUTIONS.md", "report/site"]
myst_heading_anchors = 4
smartquotes = False
highlight_language = "text"  # of a fence without one; commands, which are indented, have "none"
html_theme = "furo"
# Of the styles that Debian 12 has, the two with enough contrast.
pygments_style, pygments_dark_style = "xcode", "github-dark"
html_static_path, html_css_files = ["style.css", "race.js"], ["style.css"]
html_js_files = [("race.js", {"defer": "defer"})]
html_copy_source = html_use_index = html_show_copyright = False

# Folders and pages in the order in which they are read. What is not here comes last.
ORDER = ["stages", "NETWORK", "PAPER", "ASSEMBLY", "peers", "profiles", "studies",
         "course", "TERMS", "assignments", "setup", "bench", "machine", "tests", "sim", "report",
         "data", "CONTRIBUTING"]
# Where the repository is, such as https://github.com/OWNER/NAME/blob/main. Without it, files that
# are no pages are downloads, and folders without a README have no link.
LINKS = options.given("LINKS")
# An image, which stays as it is, or a link's text, path and heading.
LINK = re.compile(r"!\[[^]]*\]\([^)]*\)|\[((?:[^][]|\[[^]]*\])*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
# The section that answers a page's question.
ANSWER = "## The arithmetic"
# {README: stage}, in the order in which they are read.
STAGES = {stage.folder / "README.md": stage for ladder in ladders() for stage in ladder.stages}


# {stage: the page of its accesses to memory}
LOOKS = {}


def contents(page, pages):
    """The pages whose nearest README above is this page, as the list of all pages has them."""
    def above(other):
        folder = other.parent if other.name != "README.md" else other.parent.parent
        return next(top / "README.md" for top in (folder, *folder.parents)
                    if top / "README.md" in pages)

    def place(other):
        if other in STAGES:
            return -1, list(STAGES).index(other)
        name = other.stem if other.name != "README.md" else other.parent.name
        return ORDER.index(name) if name in ORDER else len(ORDER), str(other)

    return sorted((other for other in pages - {ROOT / "README.md"} if above(other) == page),
                  key=place)


@functools.cache
def order(page, pages):
    """This page and those below it, as they are read: a stage comes after the steps to it."""
    before, after = [], []
    for other in contents(page, pages):
        both = [each for each in STAGES if each in (page, other)]
        part = before if both == [other, page] else after
        part += order(other, pages)
    return [*before, page, *after]


def all_pages(app):
    return frozenset(Path(app.env.doc2path(name)) for name in app.env.found_docs)


def lead(page, match):
    """A link as Sphinx can follow it. Where nothing is, it stays as it is, and is warned of."""
    text, path, heading = match.groups(default="")
    target = Path(os.path.normpath(page.parent / path))
    stage = STAGES.get(target.parent / "README.md")
    if stage and target.name in ("SOLUTIONS.md", stage.source.name):
        part = "solutions" if target.suffix == ".md" else "source"
        return f"[{text}]({os.path.dirname(path) or '.'}/README.md#{part})"
    if not path or not target.exists() or target.suffix == ".md":
        return match[0]
    if (target / "README.md").exists():
        return f"[{text}]({path.rstrip('/')}/README.md{heading})"
    if LINKS:
        return f"[{text}]({LINKS}/{target.relative_to(ROOT)}{heading})"
    return match[0] if target.is_file() else text


def read(app, name, source):
    """Adds to a page's text what only the site has."""
    page = Path(app.env.doc2path(name))
    pages = all_pages(app)
    text = parts(STAGES[page], source[0]) if page in STAGES else [source[0]]
    if page == ROOT / "README.md":
        text += [steps()]
    text = [LINK.sub(lambda match: lead(page, match), part) for part in text]
    below = [os.path.relpath(other, page.parent) for other in contents(page, pages)]
    if below:
        text += ["\n".join(["```{toctree}\n:hidden:\n", *below, "```"])]
    source[0] = "\n\n".join(text)


def parts(stage, text):
    """A stage's page: its README with the diff and folded answers, its solutions, its source."""
    if stage.ladder.chosen_by("of "):  # titles and the search tell a study's stages apart
        text = text.replace(": ", f", {stage.ladder.name}: ", 1)
    found = []
    for part in re.split("^(?=## )", text, flags=re.MULTILINE):
        head, _, body = part.partition("\n")
        found += [f"{head}\n\n{folded('The answer', body)}" if head == ANSWER else part]
        if head == "## Predict" and stage.before:
            found += ["## Diff", diff(stage)]
            if stage in LOOKS:
                found += ['<a href="look.html">What a warp asks of memory, before and after</a>']
    solutions = stage.folder / "SOLUTIONS.md"
    if solutions.exists():
        head, _, body = solutions.read_text(encoding="utf-8").partition("\n")
        found += ["## Solutions", folded(head.removeprefix("# "), body)]
    return [*found, f"## Source\n\n```{{literalinclude}} {stage.source.name}\n"
            f":language: {stage.source.suffix[1:]}\n```", f"```{{index}} {stage.number}\n```"]


def steps():
    """Each step's move, gain and hottest line or kernel, as tables and profiles have them: a list,
    of which race.js puts a chapter's beside its bar."""
    ladder = ladders()[0]
    found = [tables.steps(frames.Machine(frames.reference(which), ladder), which == "gpu", ROOT)
             for which in ("cpu", "gpu")]
    cell, *_ = found[0]  # the table that says what the moves are
    rows = pandas.concat([each[cell] for each in found]).fillna("")
    stages = {stage.number: stage for stage in ladder.stages}
    said = [f"- {name} {move}{f': **{by}**' * bool(by)}{hottest(stages[name[1:].split(']')[0]])}"
            for name, move, by in rows[["", tables.MOVE, "gain"]].itertuples(index=False)]
    title = f"Each step: its move, its gain with {cell}, and what takes most"
    return folded(title, "\n".join(said)).replace("<details>", '<details class="steps">')


def hottest(stage):
    """The line with the most samples of a CPU stage that has a profile, or the kernel with the most
    cycles of a CUDA stage."""
    path, counted = stage.ladder.profiles / stage.name / "lines.txt", counts.read(stage)
    if path.exists():
        found = re.search(r"(\d+)\.\d% .*? stages/\S+  (.*)", path.read_text(encoding="utf-8"))
        return f"; {found[1]} % in `{found[2]}`"
    if counted.empty:
        return ""
    cycles = counted[counted["cell"] == counted["cell"].iloc[-1]].groupby("kernel")["busiest"].sum()
    share = words.percent(cycles.max() / cycles.sum())
    return f"; {share} of the cycles of loads and stores in `{cycles.idxmax()}`"


def diff(stage):
    sources = [each.source.relative_to(ROOT) for each in (stage.before, stage)]
    found = git_diff(sources, "--no-prefix", stdout=subprocess.PIPE).stdout
    _, head, lines = found.partition("--- ")
    return f"```diff\n{head}{lines}```"


def folded(title, text):
    """Markdown that a click opens."""
    return f"<details>\n<summary>{title}</summary>\n\n{text}\n\n</details>"


def adapt(app, name, template, context, tree):
    """Opens the list of all pages only where the page is in it: the whole one would be most of each
    page, and most of the time to build it. Leads from page to page in the order of reading, and
    from the first page to the first stage."""
    page = Path(app.env.doc2path(name))
    pages = order(ROOT / "README.md", all_pages(app))
    if page in pages:
        at = pages.index(page)
        following = [next(iter(STAGES))] if not at else pages[at + 1:at + 2]
        for which, others in (("prev", pages[:at][-1:]), ("next", following)):
            context[which] = None
            for other in map(app.env.path2doc, map(str, others)):
                context[which] = {"link": context["pathto"](other),
                                  "title": app.env.titles[other].astext()}
    whole = context["toctree"]
    context["toctree"] = lambda **options: whole(**options | {"collapse": True})


def look(app):
    """Traces the stages, before Sphinx reads pages in processes of its own."""
    LOOKS.update(lanes.pages(STAGES.values()))


def finish(app, error):
    """Makes the page that a folder leads to, and those of accesses to memory."""
    if not error:
        out = Path(app.outdir)
        bundle(out / "_static")
        (out / "index.html").write_bytes((out / "README.html").read_bytes())
        for stage, text in LOOKS.items():
            (out / stage.folder.relative_to(ROOT) / "look.html").write_text(text, encoding="utf-8")


def bundle(static):
    """What furo's authors do before they publish it, and Debian 12 leaves to a web server of its
    own: no style is asked for that is not there, a script is in the one that imports it, and its
    dark colours are those of a dark system, too."""
    style, script = static / "styles/furo.css", static / "scripts/furo.js"
    text = re.sub(r"@import url\(/[^)]*\);", "", style.read_text(encoding="utf-8"))
    if "prefers-color-scheme" not in text:
        colours = re.search(r'body\[data-theme="dark"\] ({[^}]*})', text)[1]
        text += ("@media screen and (prefers-color-scheme: dark) { "
                 f'body:not([data-theme="light"]) {colours} }}')
    style.write_text(text, encoding="utf-8")
    text = re.sub(r'^import \w+ from "\./(.*)";', lambda found: (
        script.parent / found[1]).read_text(encoding="utf-8"), script.read_text(encoding="utf-8"))
    script.write_text(text, encoding="utf-8")


def setup(app):
    app.connect("builder-inited", look)
    app.connect("source-read", read)
    app.connect("html-page-context", adapt, priority=100)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
