"""Makes the slides of the course, a deck for each session of COURSE.md: `make slides`.

A deck follows the session's plan. A row of the plan that has an *Ask* is a slide with that
question. A row may name stages, `<!-- slides: 01.1 02 -->`, each of which has a slide with
its idea, one with its picture, one with its question, and one with its gain, where it was measured;
or a section of a page, `<!-- slides: harness/README.md#How two are compared -->`, whose paragraphs
are a slide each; or `<!-- slides: studies -->`, and each study has one. The texts, pictures and
figures are those of the READMEs. Writes slides/session_N.html, which needs no other file, and
session_N.pdf.
"""

import os
import re
import subprocess
import sys

from harness import ladders, step
from harness.ladders import ROOT, fail
from report import figures, write

OUT = ROOT / "slides"
WORDS = 60  # of a slide's text: whole sentences
MARK = re.compile(r"<!-- slides: (.*?) -->")
CELLS = "hidden 256, batch 128", "hidden 32, batch 32"


def brief(text):
    """The first sentences of a text."""
    text, kept = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).strip(), ""
    for sentence in re.split(r"(?<=[.?!])\s+(?=[A-Z`*\d])(?![^(]*\))", text):
        if (kept and len(f"{kept} {sentence}".split()) > WORDS) or sentence.endswith(":"):
            break
        kept = f"{kept} {sentence}".strip()
    return kept


def section(text, name):
    """[paragraphs] of a section: no tables, pictures or code."""
    found = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return [part for part in re.split(r"\n\s*\n", found[1].strip("\n") if found else "")
            if part and not re.match(r"!\[|\||    |```|\d\. |- ", part)]


def plain(text, folder):
    """A text whose links are words, and whose pictures are seen from the root."""
    text = re.sub(r"!\[(.*?)\]\((.*?)\)", rf"![\1]({folder}/\2)", text)
    return re.sub(r"(?<!!)\[([^]]*)\]\([^)]*\)", r"\1", text)


class Deck:
    def __init__(self, results):
        self.results, self.slides = results, []

    def add(self, title, text):
        self.slides.append(f"# {title}\n\n{text}\n")

    def add_page(self, name):
        path, _, heading = name.partition("#")
        text = (ROOT / path).read_text(encoding="utf-8")
        for paragraph in section(text, heading):
            self.add(heading, plain(brief(paragraph), ""))

    def add_stage(self, name):
        """Its idea, its question, and its gain over the stage before it."""
        study, _, wanted = name.rpartition("/")
        ladder = ladders.find_ladder(study, "COURSE.md: slides")
        stage = ladder.find(wanted, "COURSE.md: slides")
        folder = stage.folder.relative_to(ROOT)
        text = (stage.folder / "README.md").read_text(encoding="utf-8")
        title, idea, ask = text.split("\n")[0].removeprefix("# "), *(
            section(text, name) for name in step.SECTIONS[:2])
        picture = re.search(r"^!\[.*\]\(.*\)$", text, re.MULTILINE)
        self.add(title, plain(brief(" ".join(idea)), folder))
        if picture:
            self.add(title, plain(picture[0], folder))
        if ask:
            self.add(f"{stage.name}: write down your answer", plain(brief(" ".join(ask)), folder))
        # The chapter's last stage has gained what all its steps have.
        before = [stage.before, next(each for each in ladder.stages
                                     if each.name[:2] == stage.name[:2]).before]
        lines = []
        for other in dict.fromkeys(filter(None, before[:1 + (not stage.is_step)])) or [None]:
            for cell in CELLS if ladder is ladders.ladders()[0] else ("",):
                found = figures.written(", ".join(filter(None, (
                    f"{stage.name} over {other.name}" if other else f"ceiling of {stage.name}",
                    cell))), "COURSE.md", ladder, *self.results)
                if found != figures.NOTHING:
                    lines.append(f"- {cell}{': ' * bool(cell)}{found} "
                                 + (f"over {other.name}" if other else "of the ceiling"))
        if lines:
            self.add(f"{stage.name}: measured", "\n".join(lines))

    def add_session(self, title, text):
        goals = re.search(r"\*Goals\.\* (.*?)\n\n", text, re.DOTALL)
        self.add(title, goals[1] if goals else "")
        for row in text.split("\n"):
            asked = re.search(r"^\| *\d+ \| (.*?)\*Ask\*: (.*?) \|", plain(MARK.sub("", row), ""))
            if asked:
                what = asked[1].strip(" .;:") or "write down your answer"
                self.add(*(text[0].upper() + text[1:] for text in (what, asked[2].strip())))
            marked = MARK.search(row)
            if marked and marked[1] == "studies":
                for ladder in ladders.ladders()[1:]:
                    readme = (ladder.stages[0].folder / "README.md").read_text(encoding="utf-8")
                    self.add(ladder.toml["title"], plain(brief(" ".join(
                        section(readme, step.SECTIONS[0]))), ""))
            elif marked and "#" in marked[1]:
                self.add_page(marked[1])
            elif marked:
                for name in marked[1].split():
                    self.add_stage(name)
        quiz = re.search(r"\*Quiz\.\* (.*?)\n\n", text, re.DOTALL)
        for question, answer in re.findall(r"\(\w\) (.*?) \*(.*?)\*", " ".join(
                quiz[1].split()) if quiz else ""):
            self.add("Quiz", f"{question}\n\n[*{answer}*]{{.incremental}}")


def convert(name, title, text):
    """Writes a deck as HTML and as PDF."""
    for kind, words in (("html", ["--to=dzslides", "--self-contained"]),
                        ("pdf", ["--to=html5", "--pdf-engine=weasyprint"])):
        done = subprocess.run(
            ["pandoc", "--from=markdown-smart", "--section-divs", "--slide-level=1", *words,
             f"--css={write.HERE / 'slides.css'}", "--metadata", f"pagetitle={title}",
             f"--output={OUT / name}.{kind}"], input=text, text=True, cwd=ROOT, check=False)
        if done.returncode:
            fail(f"pandoc could not write slides/{name}.{kind}", 1)


def main():
    os.chdir(ROOT)
    OUT.mkdir(exist_ok=True)
    results = write.results()
    course = (ROOT / "COURSE.md").read_text(encoding="utf-8")
    sessions = re.findall(r"^### (\d)\. (.*)\n((?:(?!^##).*\n)*)", course, re.MULTILINE)
    for number, title, text in sessions:
        deck = Deck(results)
        deck.add_session(f"{number}. {title}", text)
        convert(f"session_{number}", title, "\n".join(deck.slides))
        print(f"slides/session_{number}.html and .pdf: {len(deck.slides)} slides", file=sys.stderr)
