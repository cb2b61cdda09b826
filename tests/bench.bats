#!/usr/bin/env bats
# Tests bench/ in short runs: its programs measure what they say, and compare finds a difference only
# where there is one.
# shellcheck disable=SC2016 # the fakes are scripts in single quotes

setup() {
    bench=$BATS_TEST_DIRNAME/../bench
    dir=$(mktemp -d)
    unset MAKEFLAGS FILTER
}

needs_library() {
    g++ -E -include benchmark/benchmark.h -x c++ /dev/null >/dev/null 2>&1 ||
        skip "found no g++ or no libbenchmark-dev"
}

teardown() {
    rm -rf "$dir"
}

run_bench() {
    FILTER=$1 RESULTS=$dir/results MIN_TIME=0.001 REPETITIONS=2 "$bench/run.sh" >"$dir/output"
}

# check PROGRAM EXPRESSION: it holds for every single run in the program's JSON. `b` is the run.
check() {
    python3 - "$dir/results/$1.json" "$2" <<'END'
import json, sys
runs = [b for b in json.load(open(sys.argv[1]))["benchmarks"] if b["run_type"] == "iteration"]
assert runs, "no runs"
for b in runs:
    assert eval(sys.argv[2]), b
END
}

@test "the programs build" {
    needs_library
    make -s -C "$bench"
}

@test "the GPU's programs compile" {
    needs_library
    nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || skip "found no nvcc"
    cd "$bench"
    for source in gpu_*.cu; do
        "$nvcc" -I.. '-DSTAGE="bench"' -std=c++17 -arch=sm_75 \
            -Xcompiler -Wall,-Wextra,-Werror -Werror all-warnings -c -o "$dir/object" "$source"
    done
}

@test "only the ceilings are written, without host or path" {
    needs_library
    run_bench 'ceilings/(multiply_add|read/L[12]|barrier|parallel)'
    [[ $(ls "$dir/results") == ceilings.json ]]
    check ceilings 'b["real_time"] > 0 and b.get("flops", 1) > 0 and b.get("bytes_read", 1) > 0'
    run grep -E 'host_name|executable|/home|/root' "$dir/results/ceilings.json"
    [[ $status == 1 ]]
}

@test "each step computes the right product" {
    needs_library
    run_bench '^steps/'
    check steps '0 < b["percent_of_ceiling"] < 150'
    [[ $(grep -c ^steps/ "$dir/output") == 7 ]]
}

@test "every stage: both phases, with counters that follow from each other" {
    needs_library
    run_bench '/hidden:32/batch:128'
    for source in "$bench"/../stages/[0-9][0-9]_*/train.c; do
        stage=$(basename "$(dirname "$source")")
        check "$stage" 'b["name"].startswith("'"$stage"'/")'
        check "$stage" '"error_occurred" not in b and b["percent_of_ceiling"] > 0'
        # Forward and backward of 128 samples, with two operations for each multiply-add.
        check "$stage" 'abs(b["flops"] * b["real_time"] * 1e-6 / (2 * 128 * 32 *
            (794 if "forward" in b["name"] else 804)) - 1) < 1e-6'
        check "$stage" 'abs(b["flops_per_byte"] * b["bytes"] / (b["flops"] * b["real_time"] * 1e-6)
            - 1) < 1e-6'
        [[ $(grep -c "^$stage/" "$dir/output") == 2 ]]
    done
}

@test "a filter that no benchmark matches: one line" {
    needs_library
    FILTER=nothing_of_that_name run "$bench/run.sh"
    [[ $status == 2 && ${#lines[@]} == 1 && ${lines[0]} == *nothing_of_that_name* ]]
}

@test "compare: the statistics" {
    python3 "$BATS_TEST_DIRNAME/test_compare.py"
}

# Makes a copy of what compare needs, with two stages that only pretend to train.
make_fakes() {
    mkdir -p "$dir/bench" "$dir/data"
    cp "$bench/compare.py" "$dir/bench"
    printf '#!/bin/sh\necho "$PWD/digits"\n' >"$dir/data/locate.sh"
    chmod +x "$dir/data/locate.sh"
    make_fake 00_slow 0.20 0.5
    make_fake 01_fast 0.10 0.5
    make_fake 02_wrong 0.10 0.7
}

# make_fake STAGE SECONDS LOSS
make_fake() {
    mkdir -p "$dir/stages/$1"
    printf 'train:;\n' >"$dir/stages/$1/Makefile"
    cat >"$dir/stages/$1/train" <<END
#!/bin/bash
echo "$1 \$*" >>"$dir/calls"
while [[ \$1 != --csv ]]; do shift; done
row=\$(awk -v n="\$(wc -l <"$dir/calls")" 'BEGIN {
    srand(n); t = $2 * (1 + 0.01 * rand()); print t "," t / 2 "," t / 2 }')
printf '%s\n' train_s,forward_s,backward_s,final_loss,dataset "\$row,$3,mnist" >"\$2"
END
    chmod +x "$dir/stages/$1/train"
}

@test "compare: the two in turn, each first in half of the pairs, with the options" {
    make_fakes
    "$dir/bench/compare.py" 00 01_fast --runs 8 --hidden 7 >"$dir/output"
    grep -q '^The difference is real: 01_fast is [12]\.[09][0-9]* times as fast as 00_slow' \
        "$dir/output"
    [[ $(cut -c 1-2 "$dir/calls" | tail -n +3 | paste -sd' ') == \
        "00 01 01 00 00 01 01 00 00 01 01 00 00 01 01 00" ]]
    [[ $(grep -c -- '--hidden 7 --batch 64 --epochs 1' "$dir/calls") == 18 ]]
}

@test "compare: a stage against itself, and one that computes something else" {
    make_fakes
    "$dir/bench/compare.py" 01 01 --runs 8 >"$dir/output"
    grep -q '^No difference' "$dir/output"
    "$dir/bench/compare.py" 01 02 --runs 8 >"$dir/output"
    grep -q '^But the two do not compute the same' "$dir/output"
}

@test "compare: an error is one line" {
    make_fakes
    run "$dir/bench/compare.py" 01 7
    [[ $status == 2 && ${#lines[@]} == 1 && ${lines[0]} == *"B: found '7'"* ]]
    run "$dir/bench/compare.py" 01 01 --runs 7
    [[ $status == 2 && ${#lines[@]} == 1 && ${lines[0]} == *"RUNS: found '7'"* ]]
    printf '#!/bin/sh\necho no usable device >&2\nexit 77\n' >"$dir/stages/01_fast/train"
    run "$dir/bench/compare.py" 00 01
    [[ $status == 77 && ${#lines[@]} == 1 && ${lines[0]} == *"no usable device" ]]
}
