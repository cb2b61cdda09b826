"""Tests fetch.sh, synthesize and locate.sh, in a copy of data/."""

import gzip
import hashlib
import os
import shutil
import signal
import subprocess

import pytest
from programs import ROOT, run, script

NAMES = [f"{kind}-ubyte" for kind in (
    "train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")]
# The checksums of the four files, one after another, of --seed 1 and of --train 500 --test 100.
SYNTHETIC = "bb88c25c6b68bc058fb2f079b49867ef8d46619ea264858e4acba52a377d6a30"
SMALL = "08f9b84ef0496c36e9529081c49495a732acbbcaa14eaeafb138392a2292ccb7"

# A set of two small files, so that no test downloads or draws 70,000 digits.
SET = """NAME=Stars FILES="the stars' two files" IMAGES=stars ALONE=all.csv SUFFIX=.gz
declare -Ar SHA256=([one]={} [two]={})
MIRRORS=http://127.0.0.1:1
""".format(*(hashlib.sha256(name.encode()).hexdigest() for name in ("one", "two")))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A copy of data/, where its program is built."""
    copied = tmp_path_factory.mktemp("data")
    for name in "Makefile", "glyphs.h", "synthesize.c", "fetch.sh", "locate.sh", "mnist.set":
        shutil.copy(ROOT / "data" / name, copied)
    run(["make", "-s", "-C", copied])
    return copied


@pytest.fixture
def stars(tmp_path, monkeypatch):
    """The set, in the working directory, where a program draws a stand-in and notes that it did."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OFFLINE", raising=False)
    (tmp_path / "stars.set").write_text(SET)
    (tmp_path / "Makefile").write_text("synthesize: ;\n")
    script(tmp_path / "synthesize", 'mkdir "$1" && touch "$1/one" "$1/two" && echo x >>drawn')
    return tmp_path / "stars.set"


def mirror(name, **files):
    """A mirror with these files, in a new folder. Returns its URL."""
    os.mkdir(name)
    for file, text in files.items():
        with gzip.open(f"{name}/{file}.gz", "wt") as stream:
            stream.write(text)
    return f"file://{os.path.abspath(name)}"


def fails(command, status, *words, **variables):
    """The command has to say in one line on standard error why, with all of these words."""
    said = run(command, status, **variables).stderr
    assert said.count("\n") == 1 and all(word in said for word in words), said


def sum_of(folder):
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in NAMES)).hexdigest()


def test_fetch_goes_past_mirrors_that_are_gone_or_wrong_and_keeps_what_is_right(data, stars):
    right, wrong = mirror("right", one="one", two="two"), mirror("wrong", one="x", two="y")
    fetch = [data / "fetch.sh", "out", stars]
    for mirrors in f"file:///nowhere {wrong}", f"http://127.0.0.1:1 {wrong}":
        fails(fetch, 1, *mirrors.split(), "wrong content); copy the stars' two files into out, or "
              f"draw a stand-in with {stars.parent}/synth", STARS_MIRRORS=mirrors, no_proxy="*")
        assert os.listdir("out") == []
    run(fetch, STARS_MIRRORS=f"file:///nowhere {wrong} {right}/")
    assert sorted(os.listdir("out")) == ["one.gz", "two.gz"]
    # A raw file is accepted, and a damaged one is not.
    run("gunzip out/one.gz")
    os.truncate("out/two.gz", 9)
    assert run(fetch, STARS_MIRRORS=right).stdout == f"fetching {right}/two.gz\n"
    assert gzip.open("out/two.gz").read() == b"two"
    assert sorted(os.listdir("out")) == ["one", "two.gz"]
    assert run(fetch, STARS_MIRRORS=wrong).stdout == ""


def test_fetch_says_in_one_line_what_is_in_its_way(data, stars, tmp_path):
    fetch = data / "fetch.sh"
    os.mkdir("mine")
    (tmp_path / "mine/two").write_text("mine")
    fails([fetch, "mine", stars], 1, "mine/two: found other content than expected")
    assert (tmp_path / "mine/two").read_text() == "mine"
    fails([fetch, "mine/two/out", stars], 1, "mine/two/out: cannot write there")
    for tool in "bash", "dirname":
        os.symlink(shutil.which(tool), tool)
    fails([fetch, "out", stars], 1, "found no curl", PATH=tmp_path)


# It writes half a file, says so where fetch.sh says what it does, and never ends by itself.
CURL = """while [ "$1" != --output ]; do shift; done
echo half >"$2"; echo begun; exec tail -f /dev/null"""


def test_fetch_interrupted_leaves_nothing_and_killed_what_the_next_one_removes(data, stars):
    def start(**variables):
        return subprocess.Popen([data / "fetch.sh", "out", stars], stdout=subprocess.PIPE,
                                text=True, start_new_session=True, env=os.environ | variables)

    script(stars.parent / "bin/curl", CURL)
    for number in signal.SIGTERM, signal.SIGKILL:
        process = start(PATH=f"{stars.parent}/bin:{os.environ['PATH']}")
        assert "begun\n" in process.stdout and len(os.listdir("out/.fetch")) == 2
        if number == signal.SIGTERM:
            process.terminate()
            assert process.wait(600) == 143 and os.listdir("out") == []
    other = start(STARS_MIRRORS="file:///nowhere")
    assert other.stdout.readline() == "waiting for another download into out\n"
    assert os.listdir("out") == [".fetch"]
    os.killpg(process.pid, signal.SIGKILL)
    assert other.wait(600) == 1 and os.listdir("out") == []


def test_synthesize_draws_the_same_bytes_everywhere(data, tmp_path):
    run([data / "synthesize"])
    assert sum_of(data / "synthetic") == SYNTHETIC  # beside the program
    assert "not MNIST" in (data / "synthetic/SYNTHETIC").read_text()
    for compiler in "gcc -O3 -march=native", "clang -O2":
        if shutil.which(compiler.split()[0]):
            run(f"{compiler} -ffp-contract=off -o {tmp_path}/other {data}/synthesize.c -lm")
            run([tmp_path / "other", "--train", "500", "--test", "100", tmp_path / "out"])
            assert sum_of(tmp_path / "out") == SMALL
    run([data / "synthesize", "--seed", "2", "--train", "500", "--test", "100", tmp_path / "out"])
    assert sum_of(tmp_path / "out") != SMALL


def test_synthesize_leaves_what_was_there_where_it_fails(data, tmp_path):
    draw, out = data / "synthesize", tmp_path / "out"
    run([draw, "--train", "10", "--test", "10", out])
    before = sum_of(out)
    fails(["bash", "-c", f"ulimit -f 100; exec {draw} --train 500 {out}"], 1,
          f"{out}/train-images-idx3-ubyte: File too large")
    assert sum_of(out) == before and len(os.listdir(out)) == 5
    (tmp_path / "real").mkdir()
    (tmp_path / "real/t10k-images-idx3-ubyte.gz").touch()
    fails([draw, tmp_path / "real"], 2, "real: holds another data set")
    fails([draw, "--test", "ten", out], 2, "--test: found 'ten', expected a whole number")


def test_locate_takes_what_was_given_then_the_variable_then_an_earlier_download(data, stars):
    for name in "given", "variable", "stars":
        mirror(name, one="", two="")
    mirror("alone", **{"all.csv": ""})
    for given, variable, expected in (
            ("given", "variable", "given"), ("", "variable", "variable"), ("alone", "", "alone"),
            ("", "", stars.parent / "stars")):
        ended = run([data / "locate.sh", given, stars], STARS_DIR=variable)
        assert ended.stdout == f"{expected}\n" and ended.stderr == ""
    os.remove("given/two.gz")
    fails([data / "locate.sh", "given", stars], 2, "DIR: found no data in 'given', expected the st")
    fails([data / "locate.sh", "", stars], 2, "STARS_DIR: found no directory 'x'", STARS_DIR="x")


def test_locate_downloads_or_else_draws_once(data, stars):
    locate, home = [data / "locate.sh", "", stars], stars.parent
    for offline, why in (0, "the download failed"), (1, "OFFLINE is set"):
        ended = run(locate, STARS_MIRRORS="file:///nowhere", OFFLINE=offline)
        assert ended.stdout == f"{home}/synthetic\n"
        assert f"using the synthetic stars: no Stars in {home}/stars, and {why}" in ended.stderr
    assert (home / "drawn").read_text() == "x\n"
    right = mirror("right", one="one", two="two")
    assert run(locate, STARS_MIRRORS=right).stdout == f"{home}/stars\n"


def test_locate_does_not_draw_after_an_interruption(data, stars):
    shutil.copy(data / "locate.sh", "locate.sh")
    script(stars.parent / "fetch.sh", "exit 143")
    assert run(["./locate.sh", "", stars], 143).stdout == "" and not os.path.exists("drawn")
