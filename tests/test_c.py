"""The tests in C: of common/ and of the reference, and of the loader with broken data."""

import shutil
import subprocess

import pytest
from programs import FULL, TESTS, make, run


@pytest.mark.parametrize("name", ["test_common", "test_reference"])
def test_in_c(name):
    make("-C", "tests", f"build/{name}")
    run([TESTS / "build" / name])


@pytest.fixture
def inputs(tmp_path):
    """Each form of valid input, and what the fuzzer found once."""
    run([TESTS / "fuzz_seeds.sh", tmp_path / "seeds"])
    for path in (TESTS / "fuzz_corpus").iterdir():
        shutil.copy(path, tmp_path / "seeds")
    return tmp_path / "seeds"


def test_what_the_fuzzer_found_once(inputs):
    make("-C", "tests", "build/fuzz_replay")
    run([TESTS / "build/fuzz_replay", *inputs.iterdir()])


def test_the_loader_under_libfuzzer(inputs, tmp_path):
    tried = subprocess.run(["clang", "-fsanitize=fuzzer", "-x", "c", "-", "-o", "/dev/null"],
                           input=b"int LLVMFuzzerTestOneInput(void) { return 0; }", check=False,
                           capture_output=True) if shutil.which("clang") else None
    if not tried or tried.returncode:
        pytest.skip("found no clang with libFuzzer")
    make("-C", "tests", "build/fuzz_loader")
    (tmp_path / "corpus").mkdir()
    run([TESTS / "build/fuzz_loader", f"-runs={200000 if FULL else 20000}", "-max_len=10000",
         f"-artifact_prefix={tmp_path}/", tmp_path / "corpus", inputs])
