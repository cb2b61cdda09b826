"""Prints what a part of report/index.html says, line by line, for the tests: a table's row as
"| a | b |", and each other element that has text.

    page_lines.py LADDER/MACHINE    the ladder's results on a machine, by the names of their folders
"""

import sys
from html.parser import HTMLParser
from pathlib import Path

LINES = {"p", "li", "summary", "h1", "h2", "h3", "h4", "tr"}


class Lines(HTMLParser):
    def __init__(self, wanted):
        super().__init__()
        self.wanted, self.ladder, self.inside, self.text, self.row = wanted, "", False, "", []

    def end_line(self):
        text, self.text = " ".join(self.text.split()), ""
        if self.inside and text:
            print(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag in LINES:
            self.end_line()
        if tag == "tr":
            self.row = []
        if tag == "section":
            self.ladder, self.inside = attributes["id"], False
        if "data-machine" in attributes:
            self.inside = self.wanted == f"{self.ladder}/{attributes['data-machine']}"

    def handle_data(self, data):
        self.text += data

    def handle_endtag(self, tag):
        if tag in ("th", "td"):
            self.row.append(" ".join(self.text.split()))
            self.text = ""
        elif tag == "tr" and self.inside:
            print(f"| {' | '.join(self.row)} |")
        elif tag in LINES:
            self.end_line()


Lines(sys.argv[1]).feed(Path("report/index.html").read_text(encoding="utf-8"))
