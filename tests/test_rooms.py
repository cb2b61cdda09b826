"""A ladder is a closed room: without a study's folder everything else works, and no file names it.
FULL=1 tries everything without each of them, and not only without all of them: it builds what is
left and tests a stage of each ladder. Without all, it also writes the page of all results."""

import os
import re
import shutil
from pathlib import Path

import pytest
from programs import FULL, copy, run, write_data

from harness import ladders

STUDIES = [ladder.name for ladder in ladders.ladders() if ladder.folder.parent.name == "studies"]
# What may name a study: what was measured of it, and what is built.
NOT_SEARCHED = re.compile(r"report/results/|.*(__pycache__|/build)/|.*\.(o|sim|flags|pyc)$|digits/")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def files(root):
    """{path: text} of what a reader may read."""
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names):
            if not NOT_SEARCHED.match(str(path.relative_to(root))):
                data = path.read_bytes()
                if b"\0" not in data:
                    yield path, data.decode(errors="replace")


def names_of(root, study):
    """The lines that name a study. A name may be a word of English, so in a page only a link, a
    command or code counts."""
    word = re.compile(rf"\b{study}\b|\b{study.upper()}_(DIR|MIRRORS)\b")
    in_page = re.compile(rf"studies/{study}\b|\]\({study}\b|(STUDY=|--study ){study}\b|`{study}[`/]"
                         rf"|\[{study}[]/]|\b{study}/\d\d|#{study}\b")
    return [f"{path.relative_to(root)}:{number}: {line.strip()[:99]}"
            for path, text in files(root)
            for number, line in enumerate(text.splitlines(), 1)
            if (in_page if path.suffix in (".md", ".html") else word).search(line)]


def dead_links(root):
    """The links of pages that lead nowhere."""
    return [f"{path.relative_to(root)}: {target}" for path, text in files(root)
            if path.suffix == ".md"
            for target in LINK.findall(re.sub(r"(?s)```.*?```|`[^`\n]*`|^    .*?$", "", text))
            if not (path.parent / target).exists()]


def test_every_link_leads_somewhere(tmp_path):
    assert dead_links(copy(tmp_path / "copy")) == []


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy, of which each test takes some studies away and puts them back."""
    root = copy(tmp_path_factory.mktemp("rooms") / "copy")
    (root / "report/results").rename(root.with_name("results"))  # pages and plots take their time
    (root / "report/results").mkdir()
    write_data(root.with_name("digits"))
    return root


@pytest.mark.parametrize("gone", [*([each] for each in STUDIES), STUDIES], ids="-".join)
def test_without_a_study(checkout, tmp_path, gone):
    for study in gone:
        shutil.move(checkout / "studies" / study, tmp_path)
    try:
        works_without(checkout, gone)
    finally:
        for study in gone:
            shutil.move(tmp_path / study, checkout / "studies")


def works_without(root, gone):
    def does(command, **variables):
        ended = run(command, cwd=root, NVCC="no-nvcc", MNIST_DIR=root.with_name("digits"),
                    **variables)
        return ended.stdout + ended.stderr

    left = [ladder.name for ladder in ladders.ladders() if ladder.name not in gone]
    assert does("harness/start.py ladders ladders").split() == left
    everything, with_results = FULL or len(left) == 1, FULL and len(left) == 1
    if with_results:
        shutil.rmtree(root / "report/results")
        root.with_name("results").rename(root / "report/results")
    if everything:
        for command in ("harness/start.py ladders stages", "make -n", "make -n clean",
                        f"make -C tests -n test FULL={FULL or ''}"):
            assert not re.search(rf"\b({'|'.join(gone)})\b", does(command)), command
        does("./run_all.sh --quick --stages 00 --hidden 8 --batch 4 --train 6 --test 4 --repeats 1")
    if FULL:
        does("make -j2")
        for ladder in left:
            does(f"make -s -C harness build/{ladder}/reference build/many_processors.so")
            stage = does(f"harness/start.py ladders stages {ladder} 00")
            does(f"harness/start.py verify builds {stage}")
    pytest.importorskip("matplotlib")
    pytest.importorskip("pygments")
    does("make report" if everything else
         ["/usr/bin/python3", "-c", "from report import write; write.update_front(None)"])
    assert [line for study in gone for line in names_of(root, study)] == []
    assert [each for each in dead_links(root)
            if with_results or "report/results/" not in each] == []


def test_a_name_is_found(tmp_path):
    """What test_without_a_study() looks for, planted."""
    lines = {"code.py": 'if ladder.name == "wave":', "Makefile": "check-wave: build/wave",
             "a.sh": "cd $WAVE_DIR", "b.md": "See [it](studies/wave)", "c.md": "type `wave/00`",
             "d.html": '<a href="#wave">', "e.md": "A wave is no study.", "f.py": "waves = 3",
             "report/results/g.csv": "wave"}
    for name, line in lines.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"\n{line}\n")
    found = names_of(tmp_path, "wave")
    assert sorted(line.split(":")[0] for line in found) == [
        "Makefile", "a.sh", "b.md", "c.md", "code.py", "d.html"]
    assert dead_links(tmp_path) == ["b.md: studies/wave"]
