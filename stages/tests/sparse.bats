#!/usr/bin/env bats
# Tests what only 06 and its steps have: --rebuild, and data with no zeros or with nothing else.
# shellcheck disable=SC2154 # helpers.bash sets them
load ../../tests/helpers

setup_file() {
    for stage in "$BATS_TEST_DIRNAME"/../{00_serial,06*}; do
        make -s -C "$stage"
    done
}

# weights STAGE FILE [OPTION...]: trains for 25 epochs of two batches.
weights() {
    train=$stages/$1/train succeeds --hidden 33 --epochs 25 --save-weights "$dir/$2" "${@:3}"
}

floats() {
    od -An -v -tf4 -w4 "$1"
}

# The bound is that of the reference.
@test "the weights of 00_serial, from images without zeros and from images of zeros" {
    [[ $(tail -c +17 "$data/train-images-idx3-ubyte" | tr -d '\0' | wc -c) == $((6 * 784)) ]]
    for zeros in '' yes; do
        if [[ $zeros ]]; then # but for one image and a half
            {
                head -c 1200 "$data/train-images-idx3-ubyte"
                head -c $((16 + 6 * 784 - 1200)) /dev/zero
            } >"$dir/zeros"
            mv "$dir/zeros" "$data/train-images-idx3-ubyte"
        fi
        for batch in 1 4 6; do
            weights 00_serial expected --batch $batch
            for stage in "$stages"/06*; do
                weights "${stage##*/}" found --batch $batch
                paste <(floats "$dir/expected") <(floats "$dir/found") |
                    awk '{ a += $1 ^ 2; d += ($1 - $2) ^ 2 } NF != 2 { exit 1 }
                        END { exit !(a && d <= 5e-5 ^ 2 * a) }'
            done
        done
    done
}

@test "--rebuild makes the same lists, so the weights are the same to the bit" {
    for options in '' '--batch 1' '--batch 6 --hidden 100' '--threads 1'; do
        # shellcheck disable=SC2086 # several options
        weights 06_sparse once $options
        # shellcheck disable=SC2086
        weights 06_sparse anew --rebuild $options
        cmp "$dir/once" "$dir/anew"
    done
}

@test "a batch has as many samples as 16 bits can name" {
    train=$stages/06_sparse/train fails 2 '^06_sparse: --batch: found 65537, expected at most 65536$' \
        --train 65537 --batch 65537
}

@test "--rebuild is an option of this stage alone, and a row does not know of it" {
    "$stages/06_sparse/train" --help | grep -q -- --rebuild
    run "$stages/00_serial/train" --rebuild
    [[ $status == 2 && $output == *"unrecognized option '--rebuild'"* ]]
    train=$stages/06_sparse/train fails 2 '^--rebuild: found --csv' --rebuild --csv "$dir/rows.csv"
    [[ ! -e $dir/rows.csv ]]
}
