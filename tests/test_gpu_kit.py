"""Rehearses a quarter of an hour with a GPU: `make gpu-kit`, run.sh, `make gpu-results`, on the
simulated device and without what may not be there: a network, packages, make, a compiler. FULL=1
has the programs of all ladders. What only a GPU can show is skipped by name."""

import csv
import io
import os
import re
import shutil
import signal
import subprocess
import tarfile
from types import SimpleNamespace

import numpy as np
import pytest
from programs import FULL, ROOT, built, make, run, script

from bench import host, ladders, reference, rows, testing
from bench.record import Record
from report import blocks, group, view
from setup.gpu import results

pytestmark = pytest.mark.xdist_group("kit")  # one worker makes it
PARTS = ["calibrate", "weights", "sanitize", "steps", "grid", "peers", "counters", "studies", "cpu"]
OTHER = [stage for ladder in ladders.ladders()[1:] for stage in ladder.stages if stage.is_cuda][-1:]
FEW = ",".join(["stages/03_cuda_unified", "stages/02_openmp/02.1_parallel_for",
                *(str(stage.folder.relative_to(ROOT)) for stage in OTHER)])
GPU = "NVIDIA H100 80GB HBM3"
NVIDIA_SMI = f"""case "$*" in
-L) echo 'GPU 0: {GPU}' ;;
*-lms*) while echo 1980, 2619, 350.1, 50; do sleep 0.2; done ;;
*=name,*) echo '{GPU}, 81559 MiB, 580.159.04' ;;
*=name*) echo '{GPU}' ;;
esac"""
# The first program under memcheck has a fault.
SANITIZER = """tool=$2; shift 4
case $tool$1 in
memcheck*03.1*) printf '=========\\n========= Invalid __global__ write of 4 bytes\\n'; exit 9 ;;
esac
exec "$@" """
COUNTERS = """while [ "${1#-}" != "$1" ]; do shift; done
"$@" || exit
echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
echo '"0","nothing(int)","gpu__time_duration.sum","ns","1,234"'
echo '"1","nothing(int)","gpu__time_duration.sum","ns","1,236"'"""
# Takes away what that machine may lack, in a mount and a network namespace of its own.
ALONE = """mount -t tmpfs tmpfs /usr/lib/python3/dist-packages
for tool in make gcc cc g++ c++ clang nvcc curl; do
    path=$(command -v $tool) && mount --bind /dev/null "$(readlink -f "$path")"
done
! gcc --version 2>/dev/null && ! make --version 2>/dev/null || exit 99
exec "$@" """


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    make("-C", "bench/machine", "build/calibrate.sim")  # not side by side with another test's
    folder = tmp_path_factory.mktemp("kit") / "the kit"
    run(["make", "-s", "gpu-kit", f"DIR={folder}", "SIM=1", f"ONLY={'' if FULL else FEW}"],
        cwd=ROOT, MNIST_DIR=os.environ.get("MNIST_DIR"), OFFLINE="1")
    assert {path.name for path in folder.iterdir()} == {"run.sh", "kit.tgz"}
    return folder


@pytest.fixture(scope="module")
def fakes(tmp_path_factory):
    if run(["unshare", "--map-root-user", "--mount", "--net", "true"], None).returncode:
        pytest.skip("may not make namespaces (unshare)")
    folder = tmp_path_factory.mktemp("fakes")
    script(folder / "nvidia-smi", NVIDIA_SMI)
    return folder


def start(kit, fakes, out, *words, **variables):
    """Starts run.sh on a machine that has nothing. Its log is a pipe."""
    return subprocess.Popen(
        ["unshare", "--map-root-user", "--mount", "--net", "sh", "-c", ALONE, "sh", "bash",
         kit / "run.sh", out, *words], stdout=subprocess.PIPE, text=True, start_new_session=True,
        env={"PATH": f"{fakes}:/usr/bin:/bin", "SIM_NAME": GPU, **variables})


def come_home(results, *sources, status=0):
    return run(["make", "-s", "gpu-results", f"FROM={' '.join(map(str, sources))}",
                f"RESULTS={results}"], status, cwd=ROOT).stdout


def shown(results):
    """(the tables of the main ladder, the programs that have rows)"""
    ladder, folder = ladders.find_ladder(""), next(results.iterdir()) / "stages"
    found = view.read(folder, ladder)
    if not found:
        return "", set()
    tables = [block(found, ROOT) for block in (blocks.headline, blocks.ladder, blocks.paper)]
    return "\n".join(tables), {*rows.read_texts(folder / "runs.csv", [])["stage"]}


@pytest.fixture(scope="module")
def calls(kit, fakes, tmp_path_factory):
    """{part: a copy of what was there when it had ended, as if the machine was gone then}"""
    folder = tmp_path_factory.mktemp("calls")
    process, found = start(kit, fakes, folder / "out", LIMIT="2000"), {}
    for line in process.stdout:
        if part := re.search(r" ends: (\w+)", line):
            found[part[1]] = shutil.copytree(folder / "out", folder / part[1])
    assert process.wait() == 0 and [*found] == PARTS
    return found


def test_a_call_that_is_cut_off_after_any_part(calls, tmp_path):
    """Each time the archive is whole, and the tables have what there is."""
    counts = []
    for part, out in calls.items():
        said = come_home(tmp_path / part, out)
        tables, programs = shown(tmp_path / part)
        counts.append(int(re.search(r", (\d+) rows taken", said)[1]))
        assert all(f"/{name})" in tables for name in programs if not group.is_peer([name]))
        has_steps = PARTS.index(part) >= PARTS.index("steps")
        assert ("03.1_one_block" in programs) == has_steps
        assert (GPU in tables) == has_steps
    assert counts == sorted(counts) and counts[-1] > counts[PARTS.index("studies")] > 0
    machine = next((tmp_path / "cpu").iterdir())
    assert machine.name.endswith("cores-nvidia-h100-80gb-hbm3")
    assert "not found" not in (machine / "stages/runs.csv").read_text()
    sweep = Record(machine / "stages").sweeps[1]
    assert sweep["kind"] == "steps" and sweep["variables"].startswith("WARMUP_S=0.1")
    assert sweep["gpu"].startswith(GPU) and sweep["clocks"].startswith("SM MHz 1980 (1980 to 1980)")
    assert sweep["revision"] == run("bench/machine.sh", cwd=ROOT).stdout.partition(
        "revision: ")[2].partition("\n")[0]
    assert (machine / "bench/gpu.csv").read_text().startswith("what,unit,value,least,most\nlaunch,")
    assert all((machine / stage.ladder.name / "runs.csv").exists() for stage in OTHER)


def test_the_same_again_changes_nothing_and_a_second_call_adds(calls, kit, fakes, tmp_path):
    second = start(kit, fakes, tmp_path / "second", "grid")
    second.communicate()
    come_home(tmp_path / "results", calls["steps"], tmp_path / "second")
    assert set(shown(tmp_path / "results")[1]) >= {"03.1_one_block", "03_cuda_unified"}
    sweeps = Record(next((tmp_path / "results").iterdir()) / "stages").sweeps
    assert [known["kind"] for known in sweeps.values()] == ["steps", "grid"]
    files = {path: path.read_text() for path in (tmp_path / "results").rglob("*.csv")}
    come_home(tmp_path / "results", tmp_path / "second")
    assert files == {path: path.read_text() for path in files}
    # The times of earlier sources go.
    record = next((tmp_path / "results").iterdir()) / "stages"
    sources = ladders.find_ladder("").find("03_cuda_unified").sources
    text = (record / "programs.csv").read_text()
    (record / "programs.csv").write_text(text.replace(sources, "earlier"))
    come_home(tmp_path / "results", tmp_path / "second")
    frame = rows.read_texts(record / "runs.csv", [])
    assert {*frame["sweep"][frame["stage"] == "03_cuda_unified"]} == {"2"}


def test_a_signal_and_a_limit(kit, fakes, tmp_path):
    """It ends what it has started, and packs what there is."""
    process = start(kit, fakes, tmp_path / "out", "steps")
    for line in process.stdout:
        if "begins: steps" in line:
            os.killpg(process.pid, signal.SIGTERM)
    assert process.wait() == 143
    with tarfile.open(tmp_path / "out/results.tgz") as archive:
        assert "./plan.tsv" in archive.getnames()
    process = start(kit, fakes, tmp_path / "short", "cpu", "steps", LIMIT="6")
    process.communicate()
    assert process.wait() == 0 and (tmp_path / "short/results.tgz").exists()


def test_what_is_wrong_has_no_time(kit, fakes, calls, tmp_path):
    """A finding of compute-sanitizer, and weights that differ in one number."""
    for name, commands in (("compute-sanitizer", SANITIZER), ("ncu", COUNTERS)):
        script(tmp_path / "fakes" / name, commands)
    shutil.copy(fakes / "nvidia-smi", tmp_path / "fakes")
    start(kit, tmp_path / "fakes", tmp_path / "out", "weights", "sanitize", "steps", "counters"
          ).communicate()
    with tarfile.open(tmp_path / "out/results.tgz") as archive:
        plan = [*csv.DictReader(io.TextIOWrapper(archive.extractfile("./plan.tsv")),
                                dialect="excel-tab")]
    wrong = next(line["id"] for line in plan
                 if line["case"] and line["program"] == "03.2_grid" and line["part"] == "weights")
    for path in (tmp_path / "out").glob("weights-*.tgz"):
        with tarfile.open(path) as archive:
            archive.extractall(tmp_path / "unpacked")
    file = next((tmp_path / "unpacked").rglob(wrong))
    file.write_bytes(bytes(4) + file.read_bytes()[4:])
    for path in (tmp_path / "out").glob("weights-*.tgz"):
        run(["tar", "-czf", path, f"weights/{path.stem.removeprefix('weights-')}"],
            cwd=tmp_path / "unpacked")
    said = come_home(tmp_path / "results", tmp_path / "out", status=2)
    assert "stages/03.1_one_block: wrong: memcheck: Invalid __global__ write" in said
    assert "stages/03.2_grid: wrong: W1[0][0] is 0, expected " in said
    tables, programs = shown(tmp_path / "results")
    assert not {"03.1_one_block", "03.2_grid"} & programs and "03_cuda_unified" in programs
    assert "03.2_grid): WRONG, so its times are left out: W1[0][0] is 0" in tables
    counters = (next((tmp_path / "results").iterdir()) / "counters.csv").read_text()
    assert "03.2_grid,nothing(int),1235,2" in counters
    # It was right in another call, or its times alone come again: that changes nothing.
    come_home(tmp_path / "mixed", calls["steps"], tmp_path / "out", status=2)
    assert "03.2_grid" not in shown(tmp_path / "mixed")[1]
    start(kit, fakes, tmp_path / "times", "steps").communicate()
    come_home(tmp_path / "mixed", tmp_path / "times")
    assert "03.2_grid" not in shown(tmp_path / "mixed")[1]


def test_a_large_result_comes_home_in_two_pieces(tmp_path):
    """As run.sh cuts it, which the small runs of a rehearsal never need."""
    ladder = ladders.find_ladder("")
    case = f"{ladder.toml['tests']['options']} {ladder.toml['kit']['cases'][-1]}"
    path = tmp_path / "row.csv"
    saved = tmp_path / "weights/case4/0001"
    saved.parent.mkdir(parents=True)
    make("-C", "bench", "build/stages/reference")
    run([built(ladder.find("01")), "--data", reference.drawn_data(ladder, testing.DRAWN),
         *case.split(), "--csv", path, "--save-weights", saved])
    text = (ROOT / "setup/gpu/run.sh").read_text()
    sizes, keep = (re.search(pattern, text, re.M | re.S)[0]
                   for pattern in ("^large=.*?\npiece=.*?\n", r"^keep\(\) {.*?^}\n"))
    run(["bash", "-c", f"pack() {{ :; }}\n{sizes}{keep}keep"], cwd=tmp_path)
    call = SimpleNamespace(folder=tmp_path)
    one = SimpleNamespace(id="0001", ladder=ladder, case=case, path=path, status=0)
    assert saved.stat().st_size == 2 * results.PIECE
    assert results.compare(call, one) == ("ran", "")
    values = np.fromfile(saved, np.float32)
    values[1000] = 1
    values.tofile(saved)
    assert results.compare(call, one)[1].startswith("saved[1000] is 1, expected ")
    lines, _ = results.cut([["part", "A", "1", "9", "largest", "0.1"]], np.zeros(results.LARGE))
    assert lines[-1][-2:] == ["largest", "0.1"]  # of a single part, which has no total


def test_wrong_words_and_no_gpu(kit, fakes, tmp_path):
    for words, status, said in (
            ("", 2, "OUT: found '', expected a folder"),
            ("out nonsense", 2, "PART: found 'nonsense', expected one of: calibrate weights "),
            ("out", 77, "found no GPU (nvidia-smi lists none)")):
        path = fakes if status == 2 else "/nowhere"
        assert said in run(["bash", kit / "run.sh", *words.split()], status, cwd=tmp_path,
                           PATH=f"{path}:/usr/bin:/bin").stderr
    run(["make", "-s", "gpu-kit", "DIR=stages"], 2, cwd=ROOT)
    run(["make", "-s", "gpu-results", "FROM=/"], 2, cwd=ROOT)


def test_on_a_gpu(tmp_path):
    if not host.has_gpu():
        pytest.skip("only a GPU shows: times, clocks, the barrier of a cluster, cuBLAS, "
                    "compute-sanitizer, Nsight Compute")
    run(["make", "-s", "gpu-kit", f"DIR={tmp_path}/kit", "CUDA_ARCH=native"], cwd=ROOT)
    run(["bash", tmp_path / "kit/run.sh", tmp_path / "out", "calibrate", "weights", "steps"])
    assert "programs are right" in come_home(tmp_path / "results", tmp_path / "out")
