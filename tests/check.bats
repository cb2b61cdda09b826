#!/usr/bin/env bats
# Tests `make check`: it finds mistakes that are made in a copy of a stage, and says what they are.

setup() {
    repository=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
    dir=$(mktemp -d -t "a b'c\$d(e#f:g=h[i].XXXXXX") # the commands work in any path
    unset MAKEFLAGS
}

teardown() {
    rm -rf "$dir"
}

# Goes to a copy that a test may change.
clean_copy() {
    "$repository/tests/clean_copy.sh" "$dir"
    cd "$dir" || return
    MNIST_DIR=$(OFFLINE=1 "$repository/data/locate.sh" 2>/dev/null)
    export MNIST_DIR
}

# plant FROM SED: makes 20_mine from a stage, with a mistake. The sed command has to change something.
plant() {
    local origin
    origin=$(basename stages/"$1"_*)
    rm -rf stages/20_mine
    cp -r "stages/$origin" stages/20_mine
    rm -f stages/20_mine/train stages/20_mine/train.sim
    echo "ORIGIN = $origin" >>stages/20_mine/Makefile
    sed -i "$2" stages/20_mine/train.c*
    ! cmp -s "stages/$origin"/train.c* stages/20_mine/train.c*
}

# finds FROM SED ROWS TEXT: `make check` has to find exactly these rows of its table wrong, and to
# say the text. The accuracy may follow.
finds() {
    plant "$1" "$2"
    run make -s check STAGE=20_mine
    rows=$(awk '$3 == "WRONG" && $1 != "test_accuracy" { printf "%s ", $1 }' <<<"$output")
    if [[ $status == 0 || $output == *learning-rate\ below* || $rows != "${3:+$3 }" || $output != *"$4"* ]]; then
        echo "$2: exit status $status, found '$rows', expected '$3' and '$4' in:"
        echo "$output"
        return 1
    fi
}

@test "make check names the mistake" {
    clean_copy
    finds 01 '/bias2 -= learning_rate/d' b2 'b2 did not move.'
    run tests/stages.py builds stages/20_mine
    [[ $status == 1 && $output == *'WRONG stages/20_mine '*'the first that differs is W1[0]['* ]]
    # The initial weights have to be equal to the bit: -0 is not 0.
    finds 00 's/ = draw_weight(&generator, PIXELS)/&, network.bias1[0] = -0.0f/' b1 \
        'WRONG (--hidden 33 --batch 8 --train 8 --epochs 0'
    # Of the five vectors of AVX2, three make a tile, and then two.
    ! grep -qw avx2 /proc/cpuinfo || MARCH=x86-64-v3 finds 01 \
        's/backward_panels(network, batch, learning_rate, v, 2)/(void)v/' W1 '][24..32] did not move.'
    # The largest size of the tests has 100 units, the cell that is timed 128.
    TRAIN=640 finds 01 '/static void backward(/,/^}/s/vectors = network->vectors;/vectors = network->hidden > 100 ? 1 : network->vectors;/' \
        'W1 b1 W2' '..127] did not move.'
    finds 00 '/static void backward(/,/^}/s/s < n/s < n \&\& s < 130/' 'W1 b1 W2 b2' '--batch 202 --train 202'
    finds 00 's/float max = z\[0\]/float max = 0/; s/max = z\[o\] > max ? z\[o\] : max/max = 0/' '' \
        '--learning-rate 25: its loss is not a number'
    finds 01 's/.* = batch->samples, vectors = .*/&if (n == 128) abort();/' '' \
        '--batch 128 --train 165 --epochs 25 --seed 19: ended by a signal: Aborted'
    # A race: other weights are wrong in every run.
    plant 02 '/pragma omp barrier/d'
    run make -s check STAGE=20_mine
    [[ $status != 0 && $output == *'20_mine: '*WRONG* ]]
    [[ ${FULL:-} ]] || return 0
    finds 01 's/, db1 = {0};/; static vec kept[64]; vec db1 = kept[v];/
              s/bias1\[v\] -= learning_rate \* db1;/&kept[v] = db1;/' b1 \
        'The step of b1 is 1 × the right one + 1 × that of the one before'
    finds 01 's|dz\[s\] /= (float)n|dz[s] /= (float)network->stride|' 'W1 b1 W2 b2' \
        'The step of b2 is 0.53125 times the right one: divided by 32, not 17?'
    finds 01 's/k < PIXELS; k += rows/k < PIXELS - rows; k += rows/' W1 \
        '..783][0..32] did not move.'
    finds 01 's/return logf(sum)/return 0 * logf(-1)/' '' \
        'the arithmetic is wrong, not an option'
    finds 01 's/(vec_mask)da & (a\[s\] > 0)/(vec_mask)da/' 'W1 b1' 'Only W1 and b1 depend on da'
    finds 01 's|\*z = e / sum|*z = e|' 'W1 b1 W2 b2' 'The loss is right'
}

@test "make check of a CUDA stage: out of bounds, and memory that is not set" {
    [[ $(nvidia-smi -L 2>/dev/null) != GPU* ]] || skip 'found a GPU'
    clean_copy
    sed -i '/^twice = /d; /tests.check/,/sizes/s/^sizes.*/sizes = ["--hidden 33"]\ncases = ["--batch 3 --train 7 --epochs 1 --seed 5"]\ntwice = ["--batch 3 --train 7 --epochs 1 --seed 5"]/' \
        stages/ladder.toml
    export NVCC=no-nvcc
    finds 03 's/if (i < count)/(void)count;/' '' 'train.cu:173: update: kernel update, block ('
    finds 03 's/^        d_bias\[o\] = sum;//' 'b1 b2' 'look first for memory that is read before it is set'
}

@test "how programs are run, which rows count, and the words for a mistake" {
    /usr/bin/python3 "$repository/tests/test_verdicts.py"
}

@test "make check stops a stage that hangs, in proportion to its origin" {
    clean_copy
    SECONDS=0
    finds 02 's/^#pragma omp barrier/if (slice->thread == 0) {\n&\n}/' '' \
        'hangs, or takes over 5 s where 02_openmp takes 0.'
    ((SECONDS < 60))

    rm -r stages/20_mine
    make -s stages/01_vectorized
    # One run is slow: it takes 0.5 s in the origin and 5.5 s in the copy. That is allowed.
    for stage in 20_after_0 21_after_5; do
        mkdir "stages/$stage"
        touch "stages/$stage/train.c"
        echo 'train:' >"stages/$stage/Makefile"
        printf '#!/bin/sh\ncase "$*" in *"--train 49 "*) sleep %s.5 ;; esac\nexec "%s" "$@"\n' \
            "${stage##*_}" '${0%/*/*}/01_vectorized/train' >"stages/$stage/train"
        chmod +x "stages/$stage/train"
    done
    sed -i '/tests.check/,/sizes/s/^sizes.*/sizes = ["--hidden 33"]/' stages/ladder.toml
    RUNS=8 TRAIN=640 make -s check STAGE=21 >output
    grep -q 'right, [0-9]* tests' output
}

@test "a program that had to be stopped is not run again" {
    clean_copy
    make -s -C tests build/stages/reference
    # It ends with the exit status of timeout(1), without the ten minutes.
    printf '#!/bin/sh\necho >>"${0%%/*}/runs"\nexit 124\n' >hangs
    chmod +x hangs
    run tests/stages.py builds ./hangs
    [[ $status == 1 && $output == *'hangs: had to be stopped'*'not run: it had to be stopped before'* ]]
    (($(wc -l <"$dir/runs") == 2)) # the first is the probe
}

@test "make check blames the learning rate only if the origin diverges, too" {
    clean_copy
    # The loss becomes NaN only after more batches than the tests train.
    finds 01 's/double loss = 0;/static int calls; double loss = ++calls > 90 ? NAN : 0;/' '' \
        'the loss became nan, but not in 01_vectorized: the arithmetic is wrong'
}

@test "make check compiles nothing for a GPU if there is none" {
    [[ $(nvidia-smi -L 2>/dev/null) != GPU* ]] || skip 'found a GPU'
    clean_copy
    local tools=$BATS_TEST_TMPDIR # PATH takes no colon
    printf '#!/bin/sh\ntouch %s\n' "$tools/nvcc_was_run" >"$tools/nvcc"
    printf '#!/bin/sh\necho for the simulated device >&2\nexit 1\n' >"$tools/g++"
    chmod +x "$tools"/{nvcc,g++}
    PATH=$tools:$PATH finds 04 '1s/$/ (a copy)/' '' 'for the simulated device'
    [[ ! -e $tools/nvcc_was_run ]]
}

@test "make check TARGET: reached or missed, in one line, of the whole run or of a phase" {
    clean_copy
    make -s stages/00_serial
    cp -r stages/00_serial stages/20_mine
    sed -i '/tests.check/,/sizes/s/^sizes.*/sizes = ["--hidden 1"]\ncases = ["--batch 3 --train 74 --epochs 2 --seed 5"]/' \
        stages/ladder.toml
    sed -i 's/^twice = .*/twice = []/' stages/ladder.toml
    export RUNS=8 HIDDEN=1 TRAIN=640
    echo 'ORIGIN = 00_serial' >>stages/20_mine/Makefile
    run make -s check STAGE=20 TARGET=99x PHASE=backward
    [[ $status == 2 && $output == *"20_mine: TARGET=99x MISSED: backward is "*" times as fast as 00_serial ("*" to "*")"* ]]
    run make -s check STAGE=20 TARGET=900%
    [[ $status == 2 && $output == *'20_mine: TARGET=900% MISSED: train reaches '[0-9]*' % of the ceiling'* ]]
    make -s check STAGE=20 TARGET=0.01x >output
    grep -q '^20_mine: TARGET=0.01x reached: train is [01].* times as fast as 00_serial (.* to .*)$' output
    make -s check STAGE=20 TARGET=.0001% PHASE=forward | grep -q 'TARGET=.0001% reached: forward reaches'
}

@test "the part of the ceiling: of as many threads as the stage uses" {
    clean_copy
    PYTHONPATH=tests:harness RUNS=8 /usr/bin/python3 - <<'END'
import check, compare
class Program(compare.ladders.Stage):
    command = ["sh", "-c", '[ "$GOMP_SPINCOUNT $OMP_PLACES" = "2000 cores" ] && exit 3']
program = compare.ladders.find_ladder("").find("02_")
program.__class__ = Program
try:
    compare.run(program, [])
except SystemExit as end:
    assert end.code == 3 # or its threads would wait as they do in no table
check.running.rate = lambda threads: threads
options = compare.read_options(compare.ladders.find_ladder(""), "check")
compare.run = lambda *words: {"gflops": 0.5, "threads": 2.0, "epochs": 2, "train_samples": 10,
                              "hidden": 5, "batch": 4, "forward_s": 0.001, "backward_s": 0.002}
stage = check.ladders.find_ladder("").find("00")
for phase, part in ("", 25), ("forward", 100 * 158.8e6 / 2e9), ("backward", 100 * 80.4e6 / 2e9):
    assert abs(check.part_of_ceiling(stage, phase, options)[0].median - part) < 1e-9, phase
END
}

@test "make check TARGET: what cannot be asked for is one line" {
    clean_copy
    while read -r stage target phase message; do
        run tests/check.py "$stage" '' "$target" "$phase"
        echo "$output"
        [[ $status == 2 && ${#lines[@]} == 1 && $output == "check.py: $message"* ]]
    done <<'END'
01 50 forward TARGET: found '50', expected such as 50% (of the ceiling) or 1.2x (as fast as its origin)
01 0% forward TARGET: found '0%', expected such as 50%
01 ٥٠% forward TARGET: found '٥٠%', expected such as 50%
01 50% fwd PHASE: found 'fwd', expected one of: forward backward
00 1.2x forward TARGET: found '1.2x', expected such as 50%: 00_serial is the first stage, so it has no origin
04 50% forward TARGET: found '50%', expected such as 1.2x: 04_cuda_device_mem is a CUDA stage
END
    sed -i '/^\[work.forward/,/^]/d' stages/ladder.toml
    run tests/check.py 01 '' 50% forward
    [[ $status == 2 && $output == *'stages/ladder.toml has no [work.forward]' ]]
}

@test "make check TARGET of a CUDA stage: no speed without a GPU" {
    [[ $(nvidia-smi -L 2>/dev/null) != GPU* ]] || skip 'found a GPU'
    clean_copy
    sed -i '/tests.check/,/sizes/s/^sizes.*/sizes = ["--hidden 1"]\ncases = ["--batch 3 --train 74 --epochs 2 --seed 5"]/' \
        stages/ladder.toml
    NVCC=no-nvcc run make -s check STAGE=04 TARGET=1.2x
    [[ $status != 0 && $output == *'Its speed is not known'*'Error 77' ]]
}
