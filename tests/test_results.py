"""Tests good input in each of its forms, and what a run prints and writes."""

import gzip
import re
import shutil

import pytest
from programs import Trainer, built, csv_lines, run, write_data

from bench import ladders

HEADER = ("stage,device,threads,hidden,batch,epochs,learning_rate,seed,train_samples,test_samples,"
          "dataset,load_s,setup_s,warmup_s,train_s,forward_s,backward_s,final_loss,test_accuracy,"
          "gflops,peak_rss_mib,peak_vram_mib\n")
NUMBER = r"[0-9]+(\.[0-9]+)?"


@pytest.fixture
def serial(tmp_path):
    return Trainer(tmp_path, built(ladders.find_ladder("").stages[0]))


def zip_files(data, pattern="*"):
    for file in [*data.glob(pattern)]:
        (data / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()


def write_csv(data, end="\n", last="\n"):
    (data / "train-images-idx3-ubyte").unlink()
    (data / "train.csv").write_text(end.join(csv_lines()) + last, newline="")


@pytest.mark.parametrize("change", [
    zip_files,
    lambda data: zip_files(data, "train-images*"),
    lambda data: (data / "train.csv").write_text("nonsense"),  # IDX is preferred
    write_csv,
    lambda data: write_csv(data, "\r\n", ""),
    lambda data: write_csv(data, "\n\n"),
    lambda data: (write_csv(data), zip_files(data)),
])
def test_all_forms_of_the_images_give_the_same_weights(serial, change):
    before = serial.weights()
    change(serial.folder / "data")
    assert serial.weights("--csv rows.csv") == before
    assert serial.rows()[0]["dataset"] == (
        "csv" if not [*(serial.folder / "data").glob("train-images*")] else "mnist")


def test_train_takes_the_first_images(serial):
    four, six = serial.weights("--train 4"), serial.weights()
    labels = serial.folder / "data/train-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:-2] + bytes(2))
    assert serial.weights("--train 4") == four != six != serial.weights()


def test_where_the_data_are(serial):
    """--data goes before MNIST_DIR, and that before the repository's data/mnist, wherever the
    repository has been moved. A file beside the data says that they are drawn."""
    before = serial.weights(MNIST_DIR="nowhere")
    del serial.options[:2]
    assert serial.weights(MNIST_DIR="data") == before
    (serial.folder / "studies/name").mkdir(parents=True)
    serial.program = shutil.copy(serial.program, serial.folder / "studies/name/train")
    serial.fails(2, f"^{re.escape(str(serial.folder))}/data/mnist/train-images.*: No such file")
    write_data(serial.folder / "data/mnist")
    (serial.folder / "data/mnist/SYNTHETIC").touch()
    assert ", synthetic: " in serial.succeeds("--csv rows.csv --quiet")
    assert [row["dataset"] for row in serial.rows()] == ["synthetic"]


def test_the_row(serial):
    assert serial.succeeds("--columns --csv rows.csv") == HEADER
    assert not (serial.folder / "rows.csv").exists()
    serial.succeeds("--csv rows.csv --hidden 200 --epochs 20 --learning-rate 0.25 "
                    f"--seed {2**64 - 1}")
    serial.succeeds("--csv rows.csv --epochs 0")
    header, line, _ = (serial.folder / "rows.csv").read_text().splitlines(keepends=True)
    assert header == HEADER
    assert re.fullmatch(r"00_serial,cpu,1,200,4,20,0.25,18446744073709551615,6,4,mnist"
                        r"(,\d+\.\d{9}){2},(,\d+\.\d{9}){3}(,[0-9.]+){4},\n", line)
    row, untrained = serial.rows()
    seconds, forward, backward, rate = (float(row[column]) for column in (
        "train_s", "forward_s", "backward_s", "gflops"))
    assert rate == pytest.approx(6 * 20 * (4 * 784 * 200 + 6 * 200 * 10) / seconds / 1e9, 0.01)
    assert forward > 0 and backward > 0 and forward + backward < seconds + 2e-6
    assert untrained["final_loss"] == "" and untrained["gflops"] == "0"


def test_a_header_stands_above_the_first_row_also_in_a_pipe(serial):
    piped = ["sh", "-c", '"$@" --quiet --csv /dev/stdout | cat', "sh"]  # a pipe is never read
    ended = run([*piped, serial.program, *serial.options], cwd=serial.folder)
    assert ended.stdout.startswith(HEADER)


def test_what_is_printed(serial):
    lines = serial.succeeds().splitlines()
    assert [re.sub(NUMBER, "N", line) for line in lines[:2]] == ["epoch N of N: loss N"] * 2
    last, = serial.succeeds("--quiet").splitlines()
    assert re.sub(NUMBER, "N", last) == re.sub(NUMBER, "N", lines[-1])
    options = {*re.findall("--([a-z-]+)", serial.succeeds("--help"))}
    assert options >= {"data", "hidden", "batch", "epochs", "learning-rate", "seed", "train",
                       "test", "threads", "csv", "columns", "save-weights", "quiet", "help"}
