"""Runs the tests that are programs in C: cmocka's, and the loader under libFuzzer."""

import gzip
import subprocess
from pathlib import Path

import pytest
from programs import FULL, TESTS, csv_lines, images, make, run

SEEDS = {"i": bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28]) + images(2).tobytes(),
         "l": bytes([0, 0, 8, 1, 0, 0, 0, 2, 3, 7]),
         "c": "\n".join(csv_lines()[:6]).encode()}


@pytest.fixture
def seeds(tmp_path):
    """The inputs that fuzz_loader starts from: each form of valid input."""
    for kind, content in SEEDS.items():
        (tmp_path / kind).write_bytes(kind.encode() + content)
        (tmp_path / f"{kind}.gz").write_bytes(kind.encode() + gzip.compress(content))
    return tmp_path


@pytest.mark.skipif(not Path("/usr/include/cmocka.h").exists(), reason="found no cmocka.h")
@pytest.mark.parametrize("name", ["test_common", "test_reference"])
def test_cmocka(name):
    make("-C", "tests", f"build/{name}")
    run([TESTS / "build" / name])


def test_fuzzer_finds_nothing_that_it_found_once(seeds):
    make("-C", "tests", "build/fuzz_replay")
    inputs = [*seeds.iterdir(), *(TESTS / "fuzz_corpus").iterdir()]
    assert f"{len(inputs)} inputs hold" in run([TESTS / "build/fuzz_replay", *inputs]).stdout


def test_fuzzer_finds_nothing(seeds):
    probe = "echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | clang -fsanitize=fuzzer"
    if subprocess.run(f"{probe} -x c -o /dev/null -", shell=True, capture_output=True).returncode:
        pytest.skip("found no clang with libFuzzer")
    make("-C", "tests", "build/fuzz_loader")
    found = run([TESTS / "build/fuzz_loader", f"-runs={50000 if FULL else 5000}", "-max_len=10000",
                 f"-artifact_prefix={TESTS}/build/", seeds, TESTS / "fuzz_corpus"])
    assert "Done" in found.stderr
