"""The site: every README has its place in it, and every stage's page its source and diff."""

import html
import re
import runpy
import shutil
import sys

import pytest
from programs import ROOT, needs_full, run

from bench import ladders

for package in ("furo", "myst_parser"):
    pytest.importorskip(package)


@needs_full
def test_pages_are_read_in_order_and_have_their_diff(tmp_path):
    run(f"{sys.executable} -m sphinx -q -W -j auto -c report/site . {tmp_path}", cwd=ROOT)
    page, order = tmp_path / "README.html", []
    while page:
        order += [str(page.parent.relative_to(tmp_path))] * (page.name == "README.html")
        following = re.search('<link rel="next"[^>]* href="([^"]*)"', page.read_text())
        page = following and (page.parent / following[1]).resolve()
    stages = [stage for ladder in ladders.ladders() for stage in ladder.stages]
    folders = [str(stage.folder.relative_to(ROOT)) for stage in stages]
    assert [folder for folder in order if folder in folders] == folders
    for stage, folder in zip(stages, folders):
        page = (tmp_path / folder / "README.html").read_text()
        is_below = stage.is_step and (stage.folder.parent / "README.md").exists()
        # In the list of all pages, a chapter's steps are below it, and a study below the studies.
        level = max(map(int, re.findall("toctree-l([1-9]) current", page)))
        assert level == 2 + is_below + bool(stage.ladder.chosen_by("of "))
        assert page.count("<summary>Solution") == (stage.folder / "SOLUTIONS.md").exists()
        text = html.unescape(re.sub("<.*?>", "", page))
        assert stage.source.read_text().strip() in text
        if stage.before:  # the answers are below what is asked, and folded
            assert page.index('id="diff"') < page.index("<summary>The answer")
            assert f"--- {stage.before.source.relative_to(ROOT)}\n+++ " in text
            assert f"\n+++ {folder}/" in text
        looks = re.findall('href="(look.html)"', page)  # linked from the diff, where it can be made
        if stage.is_cuda and stage.ladder.toml["counts"] and shutil.which("eu-addr2line"):
            assert looks == ["look.html"] * bool(stage.before)
            assert "<noscript>\n<svg" in (tmp_path / folder / "look.html").read_text()
        else:
            assert not looks


    style, script = ((tmp_path / "_static" / name).read_text()
                     for name in ("styles/furo.css", "scripts/furo.js"))
    assert "@import" not in style and "prefers-color-scheme" in style
    assert not re.search("^import ", script, re.MULTILINE)


def test_links_lead_to_pages():
    site = runpy.run_path(str(ROOT / "report/site/conf.py"))
    stage = ladders.ladders()[0].stages[0].source.relative_to(ROOT)
    for link, led in (("[a](sim)", "[a](sim/README.md)"), ("[a](sim#b)", "[a](sim/README.md#b)"),
                      (f"[a [b]]({stage})", f"[a [b]]({stage.parent}/README.md#source)"),
                      ("[a](common)", "a"), ("[a](none)",) * 2, ("![a](data)",) * 2):
        assert site["LINK"].sub(lambda match: site["lead"](ROOT / "README.md", match), link) == led


def test_the_race_finds_its_table_and_steps():
    head = re.search("HEAD = '(.*)'", (ROOT / "report/site/race.js").read_text())[1]
    page = (ROOT / "README.md").read_text()
    row = next(line for line in page.splitlines() if head in line)
    assert [cell.strip() for cell in row.split("|")[1:5]] == ["", "speedup", head, "the move"]
    steps = runpy.run_path(str(ROOT / "report/site/conf.py"))["steps"]()
    for number in re.findall(r"^\| \[(\d\d)_", page, re.MULTILINE):
        assert re.search(rf"^- \[{number}\]\(stages/.*?\) \w", steps, re.MULTILINE)
