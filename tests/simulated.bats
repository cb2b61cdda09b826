# Tests the CUDA stages on the simulated device, beyond what stages.py asks of every program. If
# there is nvcc, tests also that they compile for a real device without a warning.
load helpers

# Runs "$@" for each CUDA stage, with its name in $stage and its simulated build in $train. Steps
# have one for FULL=1 only. The command must return 1 by itself, because bash does not stop at an
# error there. `ladder` says of which ladder.
for_each_cuda_stage() {
    local source folder=${ladder:-stages}
    for source in "$BATS_TEST_DIRNAME/../$folder"/[0-9][0-9]*/train.cu; do
        stage=$(basename "${source%/train.cu}")
        [[ ${FULL:-} || $stage != [0-9][0-9].* ]] || continue
        train=$BATS_TEST_DIRNAME/build/${folder#studies/}/$stage.sim
        "$@" || {
            echo "$stage"
            return 1
        }
    done
}

# The kernels of a stage: from each __global__ to the brace that ends it.
kernels() {
    sed -n '/^__global__/,/^}/p' "$stages/$1/train.cu"
}

same_for_every_order() {
    local seed
    for seed in 0 1 2 3; do
        SIM_SEED=$seed succeeds --hidden 70 --save-weights "$dir/$seed.weights" &&
            cmp "$dir/0.weights" "$dir/$seed.weights" || return 1
    done
}

@test "every order of threads and blocks gives the same bytes" {
    for_each_cuda_stage same_for_every_order
}

# hidden 70 is more than one or three multiprocessors of the device can keep in shared memory.
same_on_every_device() {
    local multiprocessors
    for multiprocessors in 1 3 16; do
        SIM_MULTIPROCESSORS=$multiprocessors \
            succeeds --hidden 70 --save-weights "$dir/$multiprocessors.weights" &&
            cmp "$dir/1.weights" "$dir/$multiprocessors.weights" || return 1
    done
}

@test "every number of multiprocessors gives the same bytes" {
    for_each_cuda_stage same_on_every_device
}

is_labelled() {
    rm -f "$dir/rows.csv"
    succeeds --csv "$dir/rows.csv" && head -n 1 "$dir/output" | grep -q simulated &&
        tail -n 1 "$dir/rows.csv" | grep -q "^$stage,simulated," &&
        python3 "$stages/../harness/tables.py" "$dir/rows.csv" | grep -qx 'no finished runs'
}

@test "a simulated run says so, on its first line and in its row, and is in no table" {
    for_each_cuda_stage is_labelled
}

# The six images are two batches, so three epochs are six.
takes_its_times() {
    rm -f "$dir"/*.csv
    succeeds --epochs 3 --save-weights "$dir/simulated.weights" --csv "$dir/simulated.csv" &&
        ! grep -qE '^forward|, forward ' "$dir/output" &&
        SIM_NAME=GPU succeeds --epochs 3 --save-weights "$dir/gpu.weights" --csv "$dir/gpu.csv" &&
        grep -qE '^forward +[0-9.]+ s in 6 batches' "$dir/output" &&
        grep -qE '^backward +[0-9.]+ s in 6 batches' "$dir/output" &&
        cmp "$dir/simulated.weights" "$dir/gpu.weights" &&
        python3 - "$dir/simulated.csv" "$dir/gpu.csv" <<'END'
import csv, sys
simulated, gpu = (next(csv.DictReader(open(path))) for path in sys.argv[1:])
times = "warmup_s", "forward_s", "backward_s"
assert not any(simulated[name] for name in times), simulated
assert all(float(gpu[name]) > 0 for name in times), gpu
assert simulated["final_loss"] == gpu["final_loss"]
assert simulated["test_accuracy"] == gpu["test_accuracy"]
END
}

@test "two epochs before the timed ones give warmup_s and the phases, and change no weight" {
    for_each_cuda_stage takes_its_times
    ladder=studies/mlp for_each_cuda_stage takes_its_times
}

trains_nothing() {
    rm -f "$dir/rows.csv"
    SIM_NAME=GPU succeeds --epochs 0 --csv "$dir/rows.csv" &&
        tail -n 1 "$dir/rows.csv" | grep -qE '(,[0-9]+\.[0-9]{9}){2},,[0-9]+\.[0-9]{9},,,,[0-9.]+,0,'
}

@test "--epochs 0: no epoch is run to take a time either" {
    for_each_cuda_stage trains_nothing
}

# The device has the memory that the row names, and then a little less.
needs_its_peak() {
    rm -f "$dir/rows.csv"
    succeeds --hidden 70 --csv "$dir/rows.csv" &&
        bytes=$(awk -F, 'END { printf "%.0f", $NF * 1048576 }' "$dir/rows.csv") &&
        SIM_MEMORY=$bytes succeeds --hidden 70 &&
        SIM_MEMORY=$((bytes - 1)) fails 1 "^$stage: out of device memory: " --hidden 70
}

@test "peak_vram_mib is what a run needs, and no byte more" {
    for_each_cuda_stage needs_its_peak
    ladder=studies/mlp for_each_cuda_stage needs_its_peak
}

ends_without_device() {
    SIM_DEVICES=0 fails 77 "^$stage: no usable CUDA device: .*; try \`make sim\` or \`make check\`"
}

@test "no device: status 77 and the driver's reason" {
    for_each_cuda_stage ends_without_device
}

# A clock that a test preloads passes three seconds at each look. The host looks once an epoch, so it
# does not know how long the first one took.
@test "after a slow epoch, a terminal shows how long the next should take" {
    command -v script >/dev/null || skip 'found no script (bsdutils)'
    gcc -shared -fPIC -o "$dir/clock.so" "$BATS_TEST_DIRNAME/fake_clock.c"
    printf '%q ' env LOOK=12 "LD_PRELOAD=$dir/clock.so" \
        "$BATS_TEST_DIRNAME/build/stages/04_cuda_device_mem.sim" --data "$data" --train 6 --test 4 \
        --hidden 3 --epochs 4 >"$dir/command"
    script -qec "$(<"$dir/command")" /dev/null </dev/null | tr '\r' '\n' >"$dir/drawn"
    diff - <(grep '^epoch' "$dir/drawn" | sed 's/loss .*/loss/') <<'END'
epoch 1 of 4: loss
epoch 2 of 4: loss
epoch 3 of 4: about 3 s left, 6 s left in all
epoch 3 of 4: loss
epoch 4 of 4: about 3 s left
epoch 4 of 4: loss
END
}

# 784 × 1000 weights are 3 MiB.
ends_without_memory() {
    SIM_MEMORY=2000000 fails 1 \
        "^$stage: out of device memory: asked for [0-9.]+ MiB, [0-9.]+ MiB of 1.9 MiB are free" \
        --hidden 1000
}

@test "too little device memory: how much was asked for, how much is free" {
    for_each_cuda_stage ends_without_memory
}

@test "04 differs from 03 by its memory, not by its kernels" {
    [[ $(kernels 03_cuda_unified | wc -l) -gt 50 ]]
    diff <(kernels 03_cuda_unified) <(kernels 04_cuda_device_mem)
}

compiles_without_warning() {
    # One architecture: `make` has compiled for all of them.
    make -s -C "$stages/$stage" OUTPUT="$dir/train" CUDA_ARCH=sm_75 EXTRA='-Werror all-warnings'
}

# The command line gives what a reader would type at the stop.
@test "the gdb command of README.md stops in a thread that has work, and shows its sum" {
    command -v gdb >/dev/null || skip "found no gdb"
    "$BATS_TEST_DIRNAME/clean_copy.sh" "$dir/copy"
    cd "$dir/copy"
    awk -v RS= '/^ .*gdb /' README.md | sed "s/ --args/ -batch -ex 'print sum'&/" >"$dir/commands"
    make -s -C data
    data/synthesize --train 100 --test 100 "$dir/digits"
    MNIST_DIR=$dir/digits bash -e "$dir/commands" 2>&1 | tee "$dir/output"
    grep -qE '^[0-9]+\s+sum \+= ' "$dir/output"
    grep -qxE '\$1 = -?[0-9.]+(e-[0-9]+)?' "$dir/output"
}

@test "nvcc compiles every CUDA stage, warnings being errors" {
    command -v nvcc >/dev/null || skip "found no nvcc"
    [[ ${FULL:-} ]] || skip "FULL=1 runs it; make has compiled them"
    for_each_cuda_stage compiles_without_warning
}
