"""What the tests of the pages share: the report, imported from a repository, what a page says line
by line, and a browser that looks at it."""

import contextlib
import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

for module in ("jinja2", "matplotlib", "pandas", "pygments"):
    pytest.importorskip(module)
for tool in ("git", "pandoc"):
    if not shutil.which(tool):
        pytest.skip(f"found no {tool}", allow_module_level=True)

REPOSITORY = Path(__file__).resolve().parent.parent


class Site:
    """A repository whose report is called in this process."""

    def __init__(self, root):
        self.root = root
        for name in ("harness.ladders", "harness.rows", "harness.sweep", *(
                f"report.{each}" for each in ("class", "diffs", "page", "plots", "samples",
                                              "tables", "view", "write"))):
            setattr(self, name.partition(".")[2], importlib.import_module(name))

    def call(self, module, *words):
        """(exit status, lines on standard error) of a program's main(), as in a new process."""
        self.rows.or_nothing.cache_clear()
        self.rows.left_out.clear()
        said, before, status = io.StringIO(), (sys.argv, Path.cwd()), 0
        sys.argv = [module, *map(str, words)]
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                getattr(self, module).main()
            except SystemExit as error:
                status = error.code
            finally:
                sys.argv = before[0]
                os.chdir(before[1])
        return status, said.getvalue().splitlines()


@contextlib.contextmanager
def imported(root):
    """The harness and the report of a repository."""
    def take_out():
        names = [name for name in sys.modules if name.partition(".")[0] in ("harness", "report")]
        return {name: sys.modules.pop(name) for name in names}

    before = take_out()
    sys.path.insert(0, str(root))
    try:
        yield Site(root)
    finally:
        sys.path.remove(str(root))
        take_out()
        sys.modules.update(before)


WIDTHS = 390, 768, 1440
COLLECT = """addEventListener("message", ({data}) => document.body.append(Object.assign(
  document.createElement("pre"), {textContent: `FRAME ${JSON.stringify(data)}`})));"""
OPEN = {"meta", "link", "img", "input", "col", "br", "hr", "li", "p", "tr", "td", "th", "option"}
LINES = {"p", "li", "summary", "h1", "h2", "h3", "h4", "tr", "section", "div"}


class Page(HTMLParser):
    """What a page says: {"LADDER/MACHINE" or the name of a section: lines}. A row of a table is
    "| a | b |". Also its ids, and where it leads to."""

    def __init__(self, html):
        super().__init__()
        self.html, self.lines = html, defaultdict(list)
        self.section, self.place, self.text, self.row, self.tag = "", "", "", [], ""
        self.tags, self.ids, self.links, self.attributes = set(), [], [], set()
        self.opened = []
        self.feed(html)
        self.close()
        assert not self.opened, self.opened
        self.text = " ".join(line for lines in self.lines.values() for line in lines)

    def end_line(self):
        text, self.text = " ".join(self.text.split()), ""
        if text:
            self.lines[self.place].append(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tag = tag
        self.tags.add(tag)
        self.opened += [tag] * (tag not in OPEN)
        self.attributes |= attributes.keys()
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [(name, attributes[name]) for name in ("href", "src", "srcset")
                       if name in attributes]
        if tag in LINES:
            self.end_line()
        if tag == "tr":
            self.row = []
        if tag == "section":
            self.section = self.place = attributes.get("id", "")
        if "data-machine" in attributes and tag == "div":
            self.place = f"{self.section}/{attributes['data-machine']}"

    def handle_data(self, data):
        if self.tag not in ("script", "style"):
            self.text += data

    def handle_endtag(self, tag):
        self.tag = ""
        if tag not in OPEN:
            assert self.opened and self.opened.pop() == tag, tag
        if tag in ("th", "td"):
            self.row.append(" ".join(self.text.split()))
            self.text = ""
        elif tag == "tr":
            self.lines[self.place].append(f"| {' | '.join(self.row)} |")
        elif tag in LINES:
            self.end_line()

    def part(self, name):
        """The HTML of a section."""
        return re.search(rf'<section[^>]* id="{re.escape(name)}">.*?</section>', self.html,
                         re.DOTALL)[0]


def look_at(page, count, script, folder):
    """Opens a page in a browser at three widths, with look.js and a script that calls answer(count)
    once. It must find no faults and the right count, and the browser must have nothing to say."""
    browser = next(filter(None, map(shutil.which, (
        "chromium", "chromium-browser", "google-chrome"))), None)
    if not browser:
        pytest.skip("found no chromium")
    look = (REPOSITORY / "tests/look.js").read_text()
    (folder / "page.html").write_text(f"{page.read_text()}<script>{look}{script}</script>")
    frames = "".join(f"<iframe src=page.html width={width} height=900></iframe>"
                     for width in WIDTHS)
    (folder / "frames.html").write_text(f"<body><script>{COLLECT}</script>{frames}")
    answer = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--enable-logging=stderr", f"--user-data-dir={folder}/browser",
         "--virtual-time-budget=20000", "--dump-dom", f"file://{folder}/frames.html"],
        env={**os.environ, "HOME": str(folder)}, capture_output=True, encoding="utf-8",
        timeout=100, check=True)
    found = [json.loads(unescape(text))
             for text in re.findall("FRAME ([^$]*?)</pre>", answer.stdout)]
    assert sorted(found) == [[width, count, []] for width in WIDTHS], found
    assert "CONSOLE" not in answer.stderr, answer.stderr
