# Tests what this study has of its own: its data, how they are fetched, drawn and read, and the
# gradient of its reference.

bats_require_minimum_version 1.5.0

root=$BATS_TEST_DIRNAME/../../..
study=$BATS_TEST_DIRNAME/..
DRAWN_SHA256=634c8e8d74fa53627b98a223a9ba3f9d0601494dda420106e4a358231f01560c # train.csv and test.csv

setup_file() {
    unset MAKEFLAGS
    mkdir -p "$BATS_FILE_TMPDIR"/{data,a/b/data}
    cp "$root"/data/{Makefile,*.sh} "$BATS_FILE_TMPDIR/data"
    cp "$study"/data/{Makefile,synthesize.c,galaxy.set} "$BATS_FILE_TMPDIR/a/b/data"
    make -s -C "$BATS_FILE_TMPDIR/a/b/data"
    "$BATS_FILE_TMPDIR/a/b/data/synthesize" "$BATS_FILE_TMPDIR/drawn"
    make -s -C "$study/00_serial"
}

setup() {
    given=${GALAXY_DIR-}
    unset GALAXY_DIR GALAXY_MIRRORS OFFLINE MAKEFLAGS
    data=$BATS_FILE_TMPDIR/data home=$BATS_FILE_TMPDIR/a/b/data drawn=$BATS_FILE_TMPDIR/drawn
    train=$study/00_serial/train set=$home/galaxy.set
    cd "$BATS_TEST_TMPDIR" || return
}

# Writes six galaxies to train on and three to test, without noise: label, 1024 pixels.
make_galaxies() { # directory
    mkdir -p "$1"
    for label in 0 1 2 2 1 0; do
        seq -s, 1024 | awk -F, -v label=$label \
            '{ printf label; for (i = 1; i <= NF; ++i) printf ",%d", ($i * (label + 3)) % 256; print "" }'
    done >"$1/train.csv"
    head -n 3 "$1/train.csv" >"$1/test.csv"
}

run_train() { # --option... : with one message and no result row
    run --separate-stderr -2 "$train" --train 6 --test 3 --hidden 2 --iterations 2 --csv rows.csv "$@"
    [[ -z $output && ${#stderr_lines[@]} == 1 && ! -e rows.csv ]]
}

@test "draws the same galaxies everywhere, and calls them synthetic" {
    sum=$(cat "$drawn"/{train,test}.csv | sha256sum)
    [[ $sum == "$DRAWN_SHA256  -" ]]
    run -0 "$train" --data "$drawn" --hidden 1 --iterations 0 --csv rows.csv
    [[ $(tail -n 1 rows.csv) == *,2700,675,synthetic,* ]]
    run --separate-stderr -2 "$home/synthesize" --help
    [[ $stderr == "synthesize: found '--help', expected a directory at most" ]]
    run --separate-stderr -1 "$home/synthesize" nowhere/at/all
    [[ ${#stderr_lines[@]} == 1 && $stderr == *"No such file"* ]]
    run --separate-stderr -1 bash -c "ulimit -f 100; exec '$home/synthesize' full"
    [[ $stderr == 'synthesize: full/test.csv: File too large' && $(ls -A full) == SYNTHETIC ]]
    mkdir pipe
    mkfifo pipe/test.csv
    run --separate-stderr -1 "$home/synthesize" pipe
    [[ $stderr == 'synthesize: pipe/test.csv: File exists' && -p pipe/test.csv ]]
}

@test "fetches and verifies, and leaves nothing wrong behind" {
    [[ -n $given && -d $given ]] || skip "no galaxies in \$GALAXY_DIR"
    mkdir mirror wrong
    for name in train test; do
        gzip -dcf "$given/$name".csv* >mirror/$name.csv
        sed '7s/,0,/,1,/; 7s/$/0/' mirror/$name.csv >wrong/$name.csv
    done
    GALAXY_MIRRORS=file://$PWD/wrong run --separate-stderr -1 "$data/fetch.sh" out "$set"
    [[ $stderr == *": wrong content); copy the galaxies' train.csv and test.csv into out, or"* ]]
    [[ -z $(ls -A out) ]]
    GALAXY_MIRRORS="file://$PWD/wrong file://$PWD/mirror" run -0 "$data/fetch.sh" out "$set"
    cmp mirror/train.csv out/train.csv
    run -0 "$data/fetch.sh" out "$set"
    [[ -z $output ]]
}

@test "without a network it says so in one line, and draws" {
    GALAXY_MIRRORS=file:///nowhere run --separate-stderr -1 "$data/fetch.sh" out "$set"
    [[ ${#stderr_lines[@]} == 1 && $stderr == *"or draw a stand-in with $home/synthesize" ]]
    GALAXY_MIRRORS=file:///nowhere run --separate-stderr -0 "$data/locate.sh" "" "$set"
    [[ $output == "$home/synthetic" && $stderr == *"using the synthetic galaxies: "* ]]
    cmp "$drawn/train.csv" "$home/synthetic/train.csv"
}

@test "locate takes the directory that was given, then \$GALAXY_DIR" {
    make_galaxies one
    GALAXY_DIR=$PWD/one run -0 "$data/locate.sh" "" "$set"
    [[ $output == "$PWD/one" ]]
    gzip one/*.csv
    GALAXY_DIR=nowhere run -0 "$data/locate.sh" one "$set"
    [[ $output == one ]]
    rm one/test.csv.gz
    run --separate-stderr -2 "$data/locate.sh" one "$set"
    [[ $stderr == "locate.sh: DIR: found no data in 'one', expected the galaxies' train.csv and test.csv" ]]
    run --separate-stderr -2 "$data/locate.sh" one stars.set
    [[ $stderr == "locate.sh: found no file 'stars.set', expected one such as data/mnist.set" ]]
}

@test "raw and gzipped files give the same result" {
    make_galaxies galaxies
    options=(--train 6 --test 3 --hidden 2 --iterations 2 --quiet)
    "$train" --data galaxies "${options[@]}" --save-weights raw
    gzip galaxies/*.csv
    GALAXY_DIR=galaxies "$train" "${options[@]}" --save-weights zipped
    cmp raw zipped
    sed 's/$/\r/' <(gzip -dc galaxies/train.csv.gz) >galaxies/train.csv # goes before the other
    "$train" --data galaxies "${options[@]}" --save-weights returns
    cmp raw returns
}

@test "files that are wrong give one line with the row, what was found and expected" {
    make_galaxies good
    file=bad/train.csv
    while IFS='|' read -r change message; do
        rm -rf bad
        cp -r good bad
        eval "$change"
        run_train --data bad
        [[ $stderr == "$message" ]] || { echo "$change: $stderr"; false; }
    done <<'END'
rm $file|bad/train.csv: No such file or directory; expected the galaxies: see studies/galaxy/README.md
rm $file; mkdir $file|bad/train.csv: found a directory, expected a file
: >$file|bad/train.csv: found 0 rows, expected the 6 of --train
sed -i 6d $file|bad/train.csv: found 5 rows, expected the 6 of --train
sed -i '4s/^./3/' $file|bad/train.csv: row 4: found '3', expected a label: 0, 1 or 2
sed -i '4s/^.//' $file|bad/train.csv: row 4: found '', expected a label: 0, 1 or 2
sed -i '2s/,8,/,256,/' $file|bad/train.csv: row 2: found '256', expected 1024 pixels, each a whole number from 0 to 255
sed -i '2s/,8,/,-8,/' $file|bad/train.csv: row 2: found '-8', expected 1024 pixels, each a whole number from 0 to 255
sed -i '2s/,8,/,8.5,/' $file|bad/train.csv: row 2: found '8.5', expected 1024 pixels, each a whole number from 0 to 255
sed -i '2s/,8,/,,/' $file|bad/train.csv: row 2: found '', expected 1024 pixels, each a whole number from 0 to 255
sed -i '3s/,[^,]*$//' $file|bad/train.csv: row 3: found 1023 pixels, expected 1024
sed -i '3s/$/,7/' $file|bad/train.csv: row 3: found more than 1024 pixels, expected 1024
sed -i '3s/$/,7,100,100,100,100,100/; s/,[0-9],/,100,/g' $file|bad/train.csv: row 3: found more than 1024 pixels, expected 1024
sed -i '3s/.*//' $file|bad/train.csv: row 3: found '', expected a label: 0, 1 or 2
sed -i '$s/^./x/' bad/test.csv|bad/test.csv: row 3: found 'x', expected a label: 0, 1 or 2
gzip $file; truncate -s 200 $file.gz|bad/train.csv.gz: row 1: damaged or truncated gzip file: unexpected end of file
END
}

@test "a file is checked to its end, behind the rows that are used" {
    make_galaxies galaxies
    sed -i '6s/^./9/' galaxies/train.csv
    run_train --data galaxies --train 2
    [[ $stderr == "galaxies/train.csv: row 6: found '9', expected a label: 0, 1 or 2" ]]
}

@test "the gradient of the reference is that of central differences" {
    make_galaxies galaxies
    make -s -C "$root/harness" build/galaxy/reference
    options=(--data galaxies --train 6 --test 3 --hidden 2 --lambda 2.5 --differences)
    error=$("$root/harness/build/galaxy/reference" "${options[@]}")
    awk -v error="$error" 'BEGIN { exit !(error < 1e-8) }'
    # Another λ in the gradient than in the cost has to show.
    sed 's|+= problem->lambda / samples|+= 1.01 * problem->lambda / samples|' \
        "$study/reference.c" >wrong.c
    gcc -std=gnu11 -O2 -D_GNU_SOURCE -o wrong wrong.c -lz -lm
    awk -v error="$(./wrong "${options[@]}")" 'BEGIN { exit !(error > 1e-6) }'
}

# The device has the memory that the row names, and then a byte less.
@test "peak_vram_mib is what a run on the simulated device needs, the minimizer included" {
    make_galaxies galaxies
    options=(--data galaxies --train 6 --test 3 --hidden 2 --iterations 2 --quiet)
    for stage in 04_cuda 05_cuda_resident; do
        train=$root/tests/build/galaxy/$stage.sim
        make -s -C "$root/tests" "build/galaxy/$stage.sim"
        rm -f rows.csv
        "$train" "${options[@]}" --csv rows.csv
        bytes=$(awk -F, 'END { printf "%.0f", $NF * 1048576 }' rows.csv)
        SIM_MEMORY=$bytes "$train" "${options[@]}"
        SIM_MEMORY=$((bytes - 1)) run --separate-stderr -1 "$train" "${options[@]}"
        [[ $stderr == "$stage: out of device memory: "* ]]
    done
}
