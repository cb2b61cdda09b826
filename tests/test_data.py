"""Tests synthesize and locate.sh, which downloads, in a copy of data/."""

import gzip
import hashlib
import http.server
import os
import shutil
import signal
import subprocess
import threading

import pytest
from programs import ROOT, hear_interrupts, run, script

NAMES = [f"{kind}-ubyte" for kind in (
    "train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")]
# The checksums of the four files, one after another, of --seed 1 and of --train 500 --test 100.
SYNTHETIC = "bb88c25c6b68bc058fb2f079b49867ef8d46619ea264858e4acba52a377d6a30"
SMALL = "08f9b84ef0496c36e9529081c49495a732acbbcaa14eaeafb138392a2292ccb7"

# A set of two small files, so that no test downloads or draws 70,000 digits.
FILES = {"one.gz": gzip.compress(b"one", mtime=0), "two": b"two"}
ABOUT = f"""NAME, FILES, IMAGES, ALONE = "Stars", "the stars' two files", "stars", ["all.csv"]
SHA256 = { {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()} }
MIRRORS = ["http://127.0.0.1:1"]
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A copy of data/, where its program is built."""
    copied = tmp_path_factory.mktemp("data")
    for name in "Makefile", "glyphs.h", "synthesize.c":
        shutil.copy(ROOT / "data" / name, copied)
    run(["make", "-s", "-C", copied])
    return copied


class Sky:
    """A repository with the data of the stars, whose stand-in notes that it was drawn."""

    def __init__(self, root):
        self.home = root / "sky"
        for name in "bench", "setup":
            shutil.copytree(ROOT / name, root / name,
                            ignore=shutil.ignore_patterns("build", "env", "__pycache__"))
        self.home.mkdir()
        (root / "data").mkdir()
        for name in "locate.py", "locate.sh":
            shutil.copy(ROOT / "data" / name, root / "data")
        (self.home / "stars.py").write_text(ABOUT)
        (self.home / "Makefile").write_text("synthesize: ;\n")
        script(self.home / "synthesize", 'mkdir "$1" && echo x >>"$(dirname "$1")/drawn"')
        self.command = [root / "data/locate.sh", "", self.home / "stars.py"]
        self.stars, self.failed = self.home / "stars", self.home / "stars/FAILED"

    def locate(self, given="", status=0, **variables):
        self.command[1] = given
        return run(self.command, status, cwd=self.home,
                   **{"OFFLINE": None, "no_proxy": "*", **variables})


@pytest.fixture
def sky(tmp_path):
    return Sky(tmp_path)


@pytest.fixture
def mirrors(tmp_path):
    """A server of mirrors: right, wrong, and slow, which never ends. It counts its requests."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            server.count += 1
            _, mirror, name = self.path.split("/")
            self.send_response(200 if mirror in ("right", "wrong", "slow") else 404)
            self.end_headers()
            self.wfile.write({"right": FILES.get(name, b"")}.get(mirror, b"x"))
            if mirror == "slow":
                self.wfile.flush()
                ended.wait()

        def log_message(self, *_):
            pass

    ended = threading.Event()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.count, server.url = 0, f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever).start()
    yield server
    ended.set()
    server.shutdown()
    server.server_close()


def says(ended, words):
    """The command has to say in one line on standard error why, with these words."""
    assert ended.stderr.count("\n") == 1 and words in ended.stderr, ended.stderr


def sum_of(folder):
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in NAMES)).hexdigest()


def test_a_download_goes_past_mirrors_that_are_gone_or_wrong(sky, mirrors):
    wrong = f"http://127.0.0.1:1 {mirrors.url}/gone {mirrors.url}/wrong"
    right = f"{mirrors.url}/right/"
    said = sky.locate(STARS_MIRRORS=wrong)
    assert said.stdout == f"{sky.home}/synthetic\n"
    assert os.listdir(sky.stars) == ["FAILED"]
    reasons = sky.failed.read_text()
    assert all(mirror in reasons for mirror in wrong.split()) and "wrong content" in reasons
    assert f"Using the synthetic stars: no Stars in {sky.stars}, and the" in said.stderr
    assert str(sky.failed) in said.stderr
    # It is not tried again before somebody asks for it.
    count = mirrors.count
    assert sky.locate(STARS_MIRRORS=right).stderr.startswith("Using the synthetic stars")
    assert mirrors.count == count and (sky.home / "drawn").read_text() == "x\n"
    sky.failed.unlink()
    assert sky.locate(STARS_MIRRORS=f"{wrong} {right}").stdout == f"{sky.stars}\n"
    assert {path.name: path.read_bytes() for path in sky.stars.iterdir()} == FILES
    assert sky.locate(STARS_MIRRORS=wrong).stderr == ""


def test_an_interrupted_download_leaves_nothing_and_nothing_is_drawn(sky, mirrors):
    with subprocess.Popen(sky.command, cwd=sky.home, stderr=subprocess.PIPE, text=True, env={
            **os.environ, "STARS_MIRRORS": f"{mirrors.url}/slow", "OFFLINE": "0",
            "no_proxy": "*"}, preexec_fn=hear_interrupts) as process:
        assert "Downloading" in process.stderr.readline()
        while not mirrors.count:
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(600) == 130 and "Traceback" not in process.stderr.read()
    assert os.listdir(sky.stars) == [] and not (sky.home / "synthetic").exists()


def test_without_a_network_or_pooch(sky):
    (sky.home.parent / "pooch.py").write_text("raise ImportError")
    said = sky.locate(OFFLINE="1")
    assert said.stdout == f"{sky.home}/synthetic\n" and said.stderr == (
        f"Using the synthetic stars: no Stars in {sky.stars}, and OFFLINE is set\n")
    sky.locate()
    assert sky.failed.read_text() == "found no pooch (python3-pooch)\n"


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
    says(run(["bash", "-c", f"ulimit -f 100; exec {draw} --train 500 {out}"], 1),
         f"{out}/train-images-idx3-ubyte: File too large")
    assert sum_of(out) == before and len(os.listdir(out)) == 5
    (tmp_path / "real").mkdir()
    (tmp_path / "real/t10k-images-idx3-ubyte.gz").touch()
    says(run([draw, tmp_path / "real"], 2), "real: holds another data set")
    says(run([draw, "--test", "ten", out], 2), "--test: found 'ten', expected a whole number")


def test_locate_takes_what_was_given_then_the_variable_then_an_earlier_download(sky):
    for name, files in {"given": FILES, "variable": FILES, "stars": FILES,
                        "alone": ["all.csv.gz"]}.items():
        for file in files:
            script(sky.home / name / file, "")
    for given, variable, expected in (("given", "variable", "given"), ("", "variable", "variable"),
                                      ("alone", "", "alone"), ("", "", sky.stars)):
        said = sky.locate(given, STARS_DIR=variable)
        assert said.stdout == f"{expected}\n" and said.stderr == ""
    os.remove(sky.home / "given/two")
    says(sky.locate("given", 2),
         "DIR: found no data in 'given', expected the stars' two files or all.csv")
    says(sky.locate("", 2, STARS_DIR="x"), "STARS_DIR: found no directory 'x'")
