"""The container, built on a bare Debian, and opened as an editor does. FULL=1, as root."""

import json
import shutil

import pytest
from programs import ROOT, commit, copy, needs_full, run

FOLDER = ROOT / ".devcontainer"


@pytest.fixture
def buildah(tmp_path):
    """Runs buildah, with images of its own."""
    for tool in "buildah", "mmdebstrap":
        if not shutil.which(tool):
            pytest.skip(f"found no {tool}")
    if run("unshare --mount true", None).returncode:
        pytest.skip("may not mount: is no root, or in a container itself")
    options = "buildah", "--root", tmp_path / "images", "--runroot", tmp_path / "run"
    yield lambda words: run([*options, *words.split()], cwd=FOLDER, BUILDAH_ISOLATION="chroot")
    run([*options, "rm", "--all"])
    run([*options, "rmi", "--all"])


@needs_full
def test_an_editor_opens_a_fork(buildah, tmp_path):
    """It builds the container and mounts the fork. `./run_all.sh --quick` then needs nothing more,
    and git knows the fork, although that is another user's."""
    fork, base = copy(tmp_path / "fork"), tmp_path / "base.tar"
    revision = commit(fork)
    run(["chmod", "-R", "a+w", fork])
    # What debian:12 is, without a registry of images.
    if run(f"timeout 120 mmdebstrap --variant=minbase bookworm {base}", None).returncode:
        pytest.skip("mmdebstrap reached no mirror of Debian, or does not trust it")
    buildah("from --name base scratch")
    buildah(f"add base {base}")
    base.unlink()
    buildah("commit base docker.io/library/debian:12")
    opened = json.loads((FOLDER / "devcontainer.json").read_text())
    build, user = opened["build"], opened["remoteUser"]
    buildah(f"build --pull-never -t ladder -f {build['dockerfile']} {build['context']}")
    buildah("from --pull-never --name ladder ladder")
    buildah(f"run --user {user} --env OFFLINE=1 -v {fork}:/workspaces/fork "
            "--workingdir /workspaces/fork ladder ./run_all.sh --quick")
    sweeps, = fork.glob("report/results/*-quick/stages/sweeps.csv")
    assert f"1,revision,{revision}\n" in sweeps.read_text()
