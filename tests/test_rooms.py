"""A ladder is a closed room: without a study's folder everything else works, and no file names it.
FULL=1 tries it without each of them, and not only without all of them."""

import re
import shutil
import sys

import pytest
from programs import FULL, copy, run, write_data

from bench import ladders

STUDIES = [ladder.name for ladder in ladders.ladders() if ladder.folder.parent.name == "studies"]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
# What was measured, and what is built.
NOT_SEARCHED = re.compile(r"report/results/|.*(__pycache__|/build)/|.*\.(o|sim|flags)$")


def texts(root):
    """{path: text} of what a reader may read."""
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_file() and not NOT_SEARCHED.match(name) and b"\0" not in path.read_bytes():
            yield name, path.read_text(errors="replace")


def names_of(root, study):
    """The lines that name a study. A name may be a word of English, so in a page only a link, a
    command or code counts."""
    word = re.compile(rf"\b{study}\b|\b{study.upper()}_(DIR|MIRRORS)\b")
    in_page = re.compile(rf"studies/{study}\b|\]\({study}\b|(STUDY=|--study ){study}\b|`{study}[`/]"
                         rf"|\[{study}[]/]|\b{study}/\d\d")
    return [f"{name}:{number}: {line.strip()[:99]}" for name, text in texts(root)
            for number, line in enumerate(text.splitlines(), 1)
            if (in_page if name.endswith(".md") else word).search(line)]


def dead_links(root):
    """The links of pages that lead nowhere."""
    return [f"{name}: {target}" for name, text in texts(root) if name.endswith(".md")
            for target in LINK.findall(re.sub(r"(?s)```.*?```|`[^`\n]*`|^    .*?$", "", text))
            if not ((root / name).parent / target).exists()]


@pytest.mark.parametrize("gone", [STUDIES, *([each] for each in STUDIES if FULL)], ids="-".join)
def test_without_a_study_everything_else_works(tmp_path, gone):
    root = copy(tmp_path / "copy")
    for study in gone:
        shutil.rmtree(root / "studies" / study)
    write_data(tmp_path / "digits")

    def does(command):
        ended = run(command, cwd=root, NVCC="no-nvcc", MNIST_DIR=tmp_path / "digits")
        return ended.stdout + ended.stderr

    left = [str(ladder.folder.relative_to(ladders.ROOT)) for ladder in ladders.ladders()
            if ladder.name not in gone]
    assert does(f"{sys.executable} -m bench ladders ladders").split() == left
    for command in "make -n", "make -n clean", "make -C tests -n test":
        said = does(command)
        assert not re.search(rf"\b({'|'.join(gone)})\b", said), command
    # A module's compiler stays before /usr/bin.
    assert re.search('PATH="(.*?)"', said)[1] == "$PWD/tests/build/bin:$PATH"
    does("./run_all.sh --stages 00 --hidden 8 --batch 4 --train 6 --test 4 --repeats 1")
    pytest.importorskip("matplotlib")
    if FULL and gone == STUDIES:
        does("make report")
    # On a machine of the reference it writes the list of the studies, too.
    does([sys.executable, "-c", "from report.pages import *; folder = ROOT / 'studies'; "
          "update(folder / 'README.md', 'table', lambda: list_ladders(folder))"])
    assert [line for study in gone for line in names_of(root, study)] == []
    assert dead_links(root) == []


def test_a_name_is_found(tmp_path):
    """What the test above looks for, planted."""
    for name, line in {"code.py": 'if ladder.name == "wave":', "a.sh": "cd $WAVE_DIR",
                       "b.md": "See [it](studies/wave)", "c.md": "A wave is no study."}.items():
        (tmp_path / name).write_text(f"\n{line}\n")
    found = names_of(tmp_path, "wave")
    assert sorted(line.split(":")[0] for line in found) == ["a.sh", "b.md", "code.py"]
    assert dead_links(tmp_path) == ["b.md: studies/wave"]
