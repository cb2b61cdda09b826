#!/usr/bin/env bats
# Tests what only 06_sparse has: --rebuild, and data with no zeros or with nothing else.
# shellcheck disable=SC2154 # helpers.bash sets them
load ../../tests/helpers

setup_file() {
    make -s -C "$BATS_TEST_DIRNAME/../00_serial"
    make -s -C "$BATS_TEST_DIRNAME/../06_sparse"
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
    weights 00_serial full
    weights 06_sparse full.06
    {
        head -c 1200 "$data/train-images-idx3-ubyte"
        head -c $((16 + 6 * 784 - 1200)) /dev/zero
    } >"$dir/zeros" # but for one image and a half
    mv "$dir/zeros" "$data/train-images-idx3-ubyte"
    for batch in 1 4 6; do
        weights 00_serial some --batch $batch
        weights 06_sparse some.06 --batch $batch
        for name in full some; do
            paste <(floats "$dir/$name") <(floats "$dir/$name.06") |
                awk '{ a += $1 ^ 2; d += ($1 - $2) ^ 2 } NF != 2 { exit 1 }
                    END { exit !(a && d <= 5e-5 ^ 2 * a) }'
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

@test "--rebuild is an option of this stage alone, and a row does not know of it" {
    "$stages/06_sparse/train" --help | grep -q -- --rebuild
    run "$stages/00_serial/train" --rebuild
    [[ $status == 2 && $output == *"unrecognized option '--rebuild'"* ]]
    train=$stages/06_sparse/train fails 2 '^--rebuild: found --csv' --rebuild --csv "$dir/rows.csv"
    [[ ! -e $dir/rows.csv ]]
}
