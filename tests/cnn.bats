#!/usr/bin/env bats
# Tests of studies/cnn beside those that every ladder has: images with ties, black images, units that
# are off, --pad, --normalize, and the rows of --epochs-csv.

load helpers

setup_file() {
    cd "$BATS_TEST_DIRNAME/.." || return
    make -s -C tests build/cnn/reference || return
    for stage in $(harness/ladders.py stages --cpu cnn); do
        make -s -C "$stage" || return
    done
}

root=$BATS_TEST_DIRNAME/..
reference=$BATS_TEST_DIRNAME/build/cnn/reference
train=${TRAIN:-$root/studies/cnn/00_serial/train}

# Runs the stage on the data set for at most a minute. Options that come later win.
run_train() {
    status=0
    timeout 60 "$train" --data "$data" --train 6 --test 4 --batch 4 --epochs 2 "$@" \
        >"$dir/output" 2>"$dir/error" || status=$?
}

# Calls a function with each CPU stage as $train.
for_stages() {
    for stage in ${TRAIN:-$(cd "$root" && harness/ladders.py stages --cpu cnn)}; do
        train=$root/$stage/train
        [[ -z ${TRAIN:-} ]] || train=$TRAIN
        echo "$train"
        "$@"
    done
}

# write_images FOLDER EXPRESSION: writes a data set whose image s has the pixels of an expression of
# s, y and x: numpy arrays.
write_images() {
    mkdir -p "$1"
    /usr/bin/python3 - "$@" <<'END'
import sys
from pathlib import Path
import numpy as np
folder, expression = Path(sys.argv[1]), sys.argv[2]
for name, count in (("train", 6), ("t10k", 4)):
    s, y, x = np.ogrid[:count, :28, :28]
    pixels = np.broadcast_to(eval(expression), (count, 28, 28)).astype(np.uint8)
    for kind, values in (("images-idx3", pixels), ("labels-idx1", np.arange(count) * 3 % 10)):
        header = np.array([0x800 + values.ndim, *values.shape], ">u4")
        (folder / f"{name}-{kind}-ubyte").write_bytes(
            header.tobytes() + values.astype(np.uint8).tobytes())
END
}

# parts FOUND EXPECTED: for each part of the weights, prints its name, the distance between the two
# files over the norm of what is expected, and that norm. FOUND has float32, EXPECTED float64 if it
# is longer.
parts() {
    /usr/bin/python3 - "$@" <<'END'
import sys
import numpy as np
found = np.fromfile(sys.argv[1], np.float32)
expected = np.fromfile(sys.argv[2], np.float32)
if expected.size != found.size:
    expected = expected.view(np.float64)
assert found.size == expected.size == 53866 and np.isfinite(found).all()
first = 0
for name, size in (("W1", 72), ("b1", 8), ("W2", 1152), ("b2", 16), ("W3", 51200), ("b3", 128),
                   ("W4", 1280), ("b4", 10)):
    a, b = found[first:first + size], expected[first:first + size]
    norm = np.linalg.norm(b)
    print(name, f"{np.linalg.norm(a - b) / (norm or 1):.9f} {norm:.9f}")
    first += size
END
}

# same_as_reference OPTION...: the stage's weights are those of the reference, to rounding.
same_as_reference() {
    "$reference" --data "$data" --train 6 --test 4 --batch 4 --epochs 2 "$@" \
        --save-weights "$dir/expected" >/dev/null
    succeeds "$@" --save-weights "$dir/found"
    parts "$dir/found" "$dir/expected" | tee "$dir/parts"
    awk '!($2 < 2e-5) { exit 1 }' "$dir/parts"
}

@test "the reference's gradients are central differences of its loss" {
    "$reference" --data "$data" --train 3 --check-gradients
    "$reference" --data "$data" --train 2 --check-gradients --normalize --seed 5
}

@test "ties: of equal values in a pool, one takes the gradient" {
    # Without texture, all four values are equal. With stripes, they are in pairs.
    for image in '40 * s + 50' '200 * (y % 2) + 9 * s' '250 * (x % 2) + s' \
        '255 * ((x + y + s) % 2)' '255 * (y > 3 * s + 6)'; do
        write_images "$data" "$image"
        for_stages same_as_reference --learning-rate 0.05 --epochs 4
        [[ ! ${FULL:-} ]] || for_stages same_as_reference --learning-rate 0.05 --normalize
    done
}

black_images() {
    succeeds --epochs 0 --save-weights "$dir/initial"
    same_as_reference --learning-rate 0.5
    parts "$dir/found" "$dir/initial" >"$dir/moved"
    cat "$dir/moved"
    # All sums are zero, where the ReLU's gradient is zero: no more than b4 learns.
    [ "$(awk '$2 > 0 { printf "%s ", $1 }' "$dir/moved")" = 'b4 ' ]
}

@test "black images: only the last bias learns" {
    write_images "$data" '0 * s'
    for_stages black_images
}

dead_units() {
    for epochs in 3 6; do
        same_as_reference --learning-rate 5 --momentum 0 --batch 6 --epochs $epochs
        mv "$dir/found" "$dir/found$epochs"
    done
    parts "$dir/found6" "$dir/found3" | tee "$dir/moved"
    # The first steps have turned off all units of the convolutions. The others have their biases.
    [ "$(awk '$2 == 0 { printf "%s ", $1 }' "$dir/moved")" = 'W1 b1 W2 b2 W3 ' ]
}

@test "units that are off for all images learn nothing" {
    write_images "$data" '(31 * x + 17 * y * (s + 1)) % 256'
    for_stages dead_units
}

padded() {
    succeeds --train 5 --batch 8 --pad --epochs 3 --save-weights "$dir/padded" --csv "$dir/rows.csv"
    data=$dir/written succeeds --train 8 --batch 8 --epochs 3 --save-weights "$dir/written.weights"
    cmp "$dir/padded" "$dir/written.weights"
    [[ $(tail -n 1 "$dir/rows.csv") == *,1,1,5,4,mnist,* ]] # pad, seed, train and test samples
}

@test "--pad continues the training set with its first images, also beyond one round" {
    mkdir "$dir/written"
    cp "$data"/t10k* "$dir/written"
    image() { tail -c +$((17 + 784 * $1)) "$data/train-images-idx3-ubyte" | head -c 784; }
    {
        images 8 | head -c 16
        for s in 0 1 2 3 4 0 1 2; do image $s; done
    } >"$dir/written/train-images-idx3-ubyte"
    labels 3 1 4 1 5 3 1 4 >"$dir/written/train-labels-idx1-ubyte"
    for_stages padded
    # 13 samples out of 5, and a batch that is full already
    for options in '--train 5 --batch 13' '--train 6 --batch 3' '--train 5 --batch 1'; do
        # shellcheck disable=SC2086 # several words
        for_stages same_as_reference --pad $options
    done
}

@test "--pad leaves the test set as it is" {
    # Black images are all taken for the same class, which is the first label. It is that of one test
    # image in four, and of two in six.
    write_images "$data" '0 * s'
    succeeds --batch 6 --pad --epochs 1
    grep -q 'accuracy 0.2500$' "$dir/output"
}

# column FILE NAME: prints a column of a file of rows.
column() {
    python3 -c 'import csv, sys
for row in csv.DictReader(open(sys.argv[1])): print(row[sys.argv[2]])' "$1" "$2"
}

@test "--normalize is for both sets" {
    cp "$data/train-images-idx3-ubyte" "$data/t10k-images-idx3-ubyte"
    cp "$data/train-labels-idx1-ubyte" "$data/t10k-labels-idx1-ubyte"
    for seed in {1..20}; do # the accuracies are sixths, and many are zero
        succeeds --test 6 --normalize --epochs 1 --learning-rate 1e-30 --seed "$seed" --csv "$dir/rows.csv"
    done
    diff <(column "$dir/rows.csv" train_accuracy) <(column "$dir/rows.csv" test_accuracy)
    [ "$(column "$dir/rows.csv" test_accuracy | sort -u | wc -l)" -gt 1 ]
}

epochs_file() {
    rm -f "$dir"/{rows,epochs}.csv
    for seed in 1 3; do # with seed 3, the first epoch is the best in the test
        succeeds --epochs 3 --seed $seed --csv "$dir/rows.csv" --epochs-csv "$dir/epochs.csv" \
            --batch 2 --learning-rate 0.2 --momentum 0
    done
    head -n 1 "$dir/epochs.csv" | diff - <(echo stage,device,threads,batch,learning_rate,momentum,normalize,pad,seed,train_samples,test_samples,dataset,run,epoch,epoch_s,loss,train_accuracy,test_accuracy,samples_per_s,rss_mib,vram_mib)
    python3 - "$dir" <<'END'
import csv, sys
rows, epochs = (list(csv.DictReader(open(f"{sys.argv[1]}/{name}.csv"))) for name in ("rows", "epochs"))
assert len(rows) == 2 and len(epochs) == 6
assert float(rows[1]["best_test_accuracy"]) > float(rows[1]["test_accuracy"])
assert [row["epoch"] for row in epochs] == ["1", "2", "3"] * 2
assert len({row["run"] for row in epochs[:3]}) == len({row["run"] for row in epochs[3:]}) == 1
assert epochs[0]["run"] != epochs[3]["run"]
for run, mine in zip(rows, (epochs[:3], epochs[3:])):
    for name in mine[0]:
        if name in run and name not in ("epoch_s", "train_accuracy", "test_accuracy", "samples_per_s"):
            assert {row[name] for row in mine} == {run[name]}, name
    seconds = [float(row["epoch_s"]) for row in mine]
    assert abs(sum(seconds) - float(run["train_s"])) < 1e-8
    assert abs(sum(seconds) / 3 - float(run["epoch_s"])) < 1e-8
    assert abs(18 / sum(seconds) / float(run["samples_per_s"]) - 1) < 1e-6
    assert mine[-1]["loss"] == run["final_loss"]
    assert mine[-1]["train_accuracy"] == run["train_accuracy"]
    assert mine[-1]["test_accuracy"] == run["test_accuracy"]
    assert max(float(row["test_accuracy"]) for row in mine) == float(run["best_test_accuracy"])
    assert len({row["loss"] for row in mine}) == 3
    for row in mine:
        assert abs(6 / float(row["epoch_s"]) / float(row["samples_per_s"]) - 1) < 1e-6
        assert 1 < float(row["rss_mib"]) <= float(run["peak_rss_mib"]) + 1
        assert row["vram_mib"] == ""
END
}

@test "--epochs-csv: a row for each epoch, which fits the row of the run" {
    for_stages epochs_file
}

evaluation_is_not_timed() {
    rm -f "$dir"/{rows,epochs}.csv
    succeeds --train 1 --batch 1 --epochs 30 --csv "$dir/rows.csv" --epochs-csv "$dir/epochs.csv"
    # Four test images take longer than one that is trained on.
    awk -v run="$(column "$dir/rows.csv" train_s) $(column "$dir/rows.csv" forward_s) $(column "$dir/rows.csv" backward_s)" \
        'BEGIN { split(run, s, " "); print run; exit !(s[2] + s[3] > 0.75 * s[1]) }'
}

@test "an epoch's time is that of its batches, without the test" {
    for_stages evaluation_is_not_timed
}

@test "the first epoch's loss is that of the initial weights, batch by batch" {
    succeeds --train 4 --batch 4 --epochs 1 --epochs-csv "$dir/epochs.csv" --learning-rate 1e-9
    succeeds --train 4 --batch 4 --epochs 1 --epochs-csv "$dir/epochs.csv" --learning-rate 0.1
    [ "$(column "$dir/epochs.csv" loss | uniq | wc -l)" = 1 ]
    [ "$(column "$dir/epochs.csv" train_accuracy | uniq | wc -l)" = 1 ]
}

@test "--epochs-csv: what cannot be its file is one line, before the run" {
    fails 2 "^--epochs-csv: found $dir/rows.csv, the same file as --csv; expected another" \
        --csv "$dir/rows.csv" --epochs-csv "$dir/rows.csv"
    fails 2 "^--epochs-csv: found $dir/weights, the same file as --save-weights; expected another" \
        --save-weights "$dir/weights" --epochs-csv "$dir/weights"
    fails 2 "^--epochs-csv: cannot write $dir/none/epochs.csv: No such file" --epochs-csv "$dir/none/epochs.csv"
    succeeds --csv "$dir/rows.csv"
    fails 2 "^--epochs-csv: $dir/rows.csv begins with other columns" --epochs-csv "$dir/rows.csv"
    fails 1 '^--epochs-csv: cannot write /dev/full: No space left' --epochs-csv /dev/full
    succeeds --epochs 0 --epochs-csv "$dir/epochs.csv"
    [ ! -e "$dir/epochs.csv" ]
    succeeds --epochs-columns --epochs-csv "$dir/epochs.csv"
    succeeds --epochs 1 --epochs-csv "$dir/epochs.csv"
    head -n 1 "$dir/epochs.csv" | diff - <("$train" --epochs-columns)
}

@test "--momentum takes a number from 0 to below 1" {
    for momentum in 0 0.5 0.999; do
        succeeds --momentum $momentum
    done
    for momentum in 1 1.5 99; do
        fails 2 "^--momentum: found '$momentum', expected a number below 1" --momentum $momentum
    done
    for momentum in '' -0.1 x nan inf; do
        fails 2 "^--momentum: found '$momentum', expected a number from 0" --momentum "$momentum"
    done
}

@test "a loss that is not finite ends the run in its epoch, and saves nothing" {
    fails 1 '_[a-z]+: the loss became -?(nan|inf) in epoch [0-9]+: try a --learning-rate below 3e\+38' \
        --learning-rate 3e38 --epochs 9 --csv "$dir/rows.csv" --save-weights "$dir/weights" \
        --epochs-csv "$dir/epochs.csv"
    [ ! -e "$dir/rows.csv" ] && [ ! -e "$dir/weights" ]
}

# Takes rows of a run on the simulated device and of one that it made as on a GPU. Prints the bytes
# of device memory.
compare_rows() {
    python3 - "$1" <<'END'
import csv, sys
simulated, gpu = csv.DictReader(open(sys.argv[1]))
times = "warmup_s", "forward_s", "backward_s"
assert not any(simulated[name] for name in times), simulated
assert all(float(gpu[name]) > 0 for name in times), gpu
for name in "final_loss", "train_accuracy", "test_accuracy", "peak_vram_mib":
    assert simulated[name] == gpu[name], name
print(round(float(gpu["peak_vram_mib"]) * 2**20))
END
}

# The six images are two batches, so two epochs are four.
@test "CUDA stages: no order of threads and no epoch before the clock changes a byte" {
    for stage in $(cd "$root" && harness/ladders.py stages --cuda cnn); do
        stage=$(basename "$stage")
        make -s -C "$BATS_TEST_DIRNAME" "build/cnn/$stage.sim"
        train=$BATS_TEST_DIRNAME/build/cnn/$stage.sim
        echo "$train"
        for seed in 0 1 2 3; do
            SIM_SEED=$seed succeeds --save-weights "$dir/$seed.weights"
            cmp "$dir/0.weights" "$dir/$seed.weights"
        done
        rm -f "$dir/rows.csv"
        succeeds --csv "$dir/rows.csv"
        (! grep -qE '^forward|, forward ' "$dir/output")
        SIM_NAME=GPU succeeds --csv "$dir/rows.csv" --save-weights "$dir/gpu.weights"
        grep -qE '^forward +[0-9.]+ s in 4 batches' "$dir/output"
        cmp "$dir/0.weights" "$dir/gpu.weights"
        # A device with so much memory is enough, and one with a byte less is not.
        bytes=$(compare_rows "$dir/rows.csv")
        SIM_MEMORY=$bytes succeeds
        SIM_MEMORY=$((bytes - 1)) fails 1 "^$stage: out of device memory: "
    done
}

@test "CUDA stages: ties, black images, units that are off" {
    for stage in $(cd "$root" && harness/ladders.py stages --cuda cnn); do
        train=build/cnn/$(basename "$stage").sim
        make -s -C "$BATS_TEST_DIRNAME" "$train"
        train=$BATS_TEST_DIRNAME/$train
        echo "$train"
        write_images "$data" '255 * ((x + y + s) % 2)'
        same_as_reference --learning-rate 0.05
        write_images "$data" '200 * (y % 2) + 9 * s'
        same_as_reference --learning-rate 0.05 --normalize
        write_images "$data" '0 * s'
        black_images
        write_images "$data" '(31 * x + 17 * y * (s + 1)) % 256'
        dead_units
    done
}
