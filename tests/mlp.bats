#!/usr/bin/env bats
# Tests of studies/mlp beside those that every ladder has: one hidden layer is the main ladder's
# network, and --hidden takes a list.

load helpers

setup_file() {
    cd "$BATS_TEST_DIRNAME/.." || return
    for stage in stages/{00_serial,01_vectorized,02_openmp} studies/mlp/{00_serial,01_vectorized,02_openmp}; do
        make -s -C "$stage" || return
    done
}

mlp=$BATS_TEST_DIRNAME/../studies/mlp

# Prints the largest distance between the floats of two files.
distance() {
    [ "$(stat -c %s "$1")" = "$(stat -c %s "$2")" ]
    paste <(od -An -v -tf4 -w4 "$1") <(od -An -v -tf4 -w4 "$2") |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d } END { printf "%.9f", most }'
}

@test "with one hidden layer, the stages compute the main ladder's weights to rounding" {
    for stage in 00_serial 01_vectorized 02_openmp; do
        for hidden in 256 33; do
            for program in "$stages" "$mlp"; do
                "$program/$stage/train" --data "$data" --train 6 --test 4 --batch 4 --epochs 3 \
                    --hidden "$hidden" --learning-rate 0.1 --seed 7 --quiet \
                    --save-weights "$dir/$(basename "$program")"
            done
            found=$(distance "$dir/stages" "$dir/mlp")
            echo "$stage, $hidden units: $found apart"
            awk -v found="$found" 'BEGIN { exit !(found < 1e-5) }'
        done
    done
}

@test "--hidden takes one to eight widths, and anything else is one line" {
    train=$mlp/00_serial/train
    for list in 1 3,2 8,7,6,5,4,3,2,1; do
        succeeds --hidden "$list"
        grep -q "hidden $list, batch" "$dir/output"
    done
    for list in '' 0 '3,' ,3 3,,3 3,0 -3 3,-3 3x 3,x 3.5 '3, 3' 100000001 1,1,1,1,1,1,1,1,1 \
        99999999999999999999; do
        fails 2 "^--hidden: found '$list', expected the units of one to 8 layers" --hidden "$list"
    done
}

@test "the row has the list as one field, in quotes" {
    train=$mlp/00_serial/train
    succeeds --hidden 5,4 --csv "$dir/rows.csv"
    succeeds --hidden 5 --csv "$dir/rows.csv"
    [ "$(cut -d, -f4-7 "$dir/rows.csv" | paste -sd' ')" = 'hidden,batch,epochs,learning_rate "5,4",4,2 5,4,2,0.1' ]
}
