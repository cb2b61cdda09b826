#!/usr/bin/env bats
# Tests what the programs draw on a terminal while an epoch runs. script(1) is the terminal.
bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    gcc -shared -fPIC -o "$BATS_FILE_TMPDIR/clock.so" "$BATS_TEST_DIRNAME/fake_clock.c"
}

# on_terminal [OPTION...]: runs the stage on a terminal, where a batch takes half a second. $dir/screen
# has what stands there in the end, and $dir/drawn each line that stood there for a time. The terminal
# has $columns columns, and TERM is $kind.
on_terminal() {
    command -v script >/dev/null || skip 'found no script (bsdutils)'
    printf '%q ' env "TERM=${kind:-xterm}" "LD_PRELOAD=$BATS_FILE_TMPDIR/clock.so" "$train" \
        --data "$data" --train 6 --test 4 --batch 1 --epochs 3 "$@" >"$dir/command"
    script -qec "stty cols ${columns:-0}; $(<"$dir/command")" /dev/null </dev/null >"$dir/output"
    tr '\r' '\n' <"$dir/output" >"$dir/drawn"
    python3 - "$dir/output" >"$dir/screen" <<'END'
import sys
with open(sys.argv[1], newline="") as file:
    lines, column = [""], 0
    for sign in file.read():
        if sign == "\n":
            lines, column = [*lines, ""], 0
        elif sign == "\r":
            column = 0
        else:
            lines[-1] = lines[-1][:column] + sign + lines[-1][column + 1:]
            column += 1
print(*(line.rstrip() for line in lines), sep="\n", end="")
END
    cat "$dir/drawn"
}

@test "an epoch of more than two seconds: how far it is, and the time left" {
    for train in "$stages"/{00_serial,02_openmp}/train "$stages"/../studies/mlp/02_openmp/train; do
        on_terminal --hidden 3 --threads 1
        # Six batches take three seconds. The first line comes after two, the next a second later.
        grep -qx 'epoch 1 of 3: 67 %, 1 s left, 7 s left in all' "$dir/drawn"
        grep -qx 'epoch 1 of 3: 100 %, 0 s left, 6 s left in all' "$dir/drawn"
        # From the second epoch on, the first line comes at once.
        grep -qx 'epoch 2 of 3: about 3 s left, 6 s left in all' "$dir/drawn"
        grep -qx 'epoch 3 of 3: about 3 s left' "$dir/drawn"
        [[ $(grep -c ' left' "$dir/drawn") -lt 15 ]]
        # Nothing of it stays.
        [[ $(grep -c '^epoch . of 3: loss [0-9.]*$' "$dir/screen") == 3 ]]
        run ! grep ' left' "$dir/screen"
    done
}

@test "the progress goes before a message that ends the run" {
    train=$stages/../studies/cnn/00_serial/train
    on_terminal --learning-rate 3e38 || true
    grep -qx 'epoch 1 of 3: 67 %, 1 s left, .* left in all' "$dir/drawn"
    grep -q '^00_serial: the loss became' "$dir/screen"
}

@test "no progress in a fast epoch, with --quiet, or in a file" {
    on_terminal --hidden 3 --train 3
    run ! grep ' left' "$dir/drawn"
    on_terminal --hidden 3 --quiet
    [[ $(grep -vc '^    ' "$dir/screen") == 1 ]]
    LD_PRELOAD=$BATS_FILE_TMPDIR/clock.so "$train" --data "$data" --train 6 --test 4 --hidden 3 \
        --batch 1 --epochs 3 >"$dir/output"
    run ! grep $' left\|\r' "$dir/output"
}

@test "a line that is too long for the terminal goes on in the next" {
    shape() { sed -z 's/\n    / /g; s/[0-9.]\+/N/g; s/  */ /g' "$1"; }
    for columns in 0 50; do # a terminal that does not know its width counts as one of 80
        for program in stages/02_openmp studies/mlp/00_serial studies/cnn/00_serial; do
            train=$stages/../$program/train
            on_terminal --threads 1
            [[ $(wc -L <"$dir/screen") -le $((columns ? columns : 80)) ]]
            [[ $(grep -c '^    [^ ]' "$dir/screen") -ge 3 ]]
            # Together, the parts are the lines that a file gets.
            "$train" --data "$data" --train 6 --test 4 --batch 1 --epochs 3 --threads 1 >"$dir/file"
            diff <(shape "$dir/screen") <(shape "$dir/file")
            run ! grep '[^,:]$' <(grep -B 1 '^    ' "$dir/screen" | grep '^[^ -]')
        done
    done
}

@test "a dumb terminal gets the lines that a file gets" {
    kind=dumb on_terminal --hidden 3
    run ! grep ' left\|^    ' "$dir/drawn"
}
