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

@test "the row has the list as one field, which a CSV reader understands" {
    train=$mlp/00_serial/train
    succeeds --hidden 5,4 --csv "$dir/rows.csv"
    succeeds --hidden 5 --csv "$dir/rows.csv"
    run python3 -c 'import csv, sys
for row in csv.DictReader(open(sys.argv[1])): print(row["hidden"], row["batch"], row["epochs"])' \
        "$dir/rows.csv"
    [ "$output" = $'5,4 4 2\n5 4 2' ]
}

@test "the report has the paper's figures beside runs of 40 epochs at its learning rate, and no others" {
    /usr/bin/python3 -c 'import matplotlib, pygments' 2>/dev/null || skip 'found no matplotlib or no pygments'
    train=$mlp/00_serial/train
    for settings in '2 0.1' '40 0.001'; do
        succeeds --hidden 128,128 --batch 128 --epochs "${settings% *}" --learning-rate "${settings#* }" \
            --csv "$dir/rows.csv"
    done
    sed -i 's/,6,4,/,60000,10000,/' "$dir/rows.csv"
    /usr/bin/python3 - "$dir/rows.csv" "$BATS_TEST_DIRNAME/.." <<'END'
import sys
from pathlib import Path
sys.path[:0] = [f"{sys.argv[2]}/harness", f"{sys.argv[2]}/report"]
sys.dont_write_bytecode = True
import ladders, page, results, tables
ladder = ladders.find_ladder("mlp")
two, forty = (page.tables_html(group, results.read_paper(ladder))
              for group in tables.read_groups(Path(sys.argv[1]), ladder))
assert "2 epochs" in two and "paper" not in two, two
assert "40 epochs" in forty and "paper: peer_cupy</th><td>0.35" in forty, forty
END
}
