# Tests good input in each of its forms, and what a run prints and writes.
load helpers

header=stage,device,threads,hidden,batch,epochs,learning_rate,seed,train_samples,test_samples
header+=,dataset,load_s,setup_s,warmup_s,train_s,forward_s,backward_s,final_loss,test_accuracy,gflops
header+=,peak_rss_mib,peak_vram_mib

# weights NAME [OPTION...]: trains, and keeps the weights as NAME.weights.
weights() {
    succeeds --save-weights "$dir/$1.weights" "${@:2}"
}

same() {
    cmp "$dir/$1.weights" "$dir/$2.weights"
}

# The value of a column in the last row of rows.csv.
column() {
    local names values
    IFS=, read -ra names <<<"$header"
    IFS=, read -ra values < <(tail -n 1 "$dir/rows.csv")
    for i in "${!names[@]}"; do
        [[ ${names[i]} != "$1" ]] || echo "${values[i]}"
    done
}

@test "raw and gzipped IDX give the same weights" {
    weights raw
    gzip "$data"/*
    weights gzipped
    same raw gzipped
}

@test "some files raw, some gzipped" {
    weights raw
    gzip "$data/train-images-idx3-ubyte"
    weights mixed
    same raw mixed
}

@test "CSV and IDX of the same images give the same weights" {
    weights idx
    make_csv "$data" "$dir/csv"
    data=$dir/csv weights csv --csv "$dir/rows.csv"
    same idx csv
    [[ $(column dataset) == csv ]]
}

@test "CSV: gzipped, with CRLF, without the last newline, with blank lines" {
    weights idx
    for change in 's/$/\r/' '$!s/$/\n/'; do
        make_csv "$data" "$dir/csv"
        sed -i "$change" "$dir/csv/train.csv"
        data=$dir/csv weights changed
        same idx changed
    done
    truncate -s -1 "$dir/csv/train.csv"
    data=$dir/csv weights changed
    same idx changed
    gzip "$dir/csv/train.csv"
    data=$dir/csv weights gzipped
    same idx gzipped
}

@test "bytes after the end of gzipped data are ignored, as gzip does" {
    weights raw
    gzip "$data"/*
    for file in "$data"/*; do
        echo garbage >>"$file"
    done
    weights followed
    same raw followed
}

@test "IDX is preferred to a CSV beside it" {
    weights idx
    echo nonsense >"$data/train.csv"
    weights both
    same idx both
}

@test "--train and --test take the first images" {
    weights four --train 4
    labels 3 1 4 1 0 0 >"$data/train-labels-idx1-ubyte"
    weights other --train 4
    same four other
    weights six
    run same four six
    [[ $status == 1 ]]
}

@test "MNIST_DIR says where the data is, --data overrules it" {
    weights data
    MNIST_DIR=$data "$train" --train 6 --test 4 --hidden 3 --batch 4 --epochs 2 \
        --save-weights "$dir/environment.weights"
    same data environment
    MNIST_DIR=$dir/nowhere weights both
    same data both
}

@test "a SYNTHETIC file beside the data labels the results" {
    succeeds --csv "$dir/rows.csv"
    [[ $(column dataset) == mnist ]]
    touch "$data/SYNTHETIC"
    succeeds --csv "$dir/rows.csv"
    [[ $(column dataset) == synthetic ]]
    tail -n 1 "$dir/output" | grep -q synthetic
}

@test "the row: its columns, and the options in them" {
    succeeds --csv "$dir/rows.csv" --learning-rate 0.25 --seed 18446744073709551615
    [[ $(wc -l <"$dir/rows.csv") == 2 ]]
    [[ $(head -n 1 "$dir/rows.csv") == "$header" ]]
    expected='^[0-9]{2}_[a-z_]+,[^,]+,[0-9]*,3,4,2,0.25,18446744073709551615,6,4,mnist'
    expected+='(,[0-9]+\.[0-9]{9}){2},(,[0-9]+\.[0-9]{9}){3}(,[0-9.]+){4},[0-9.]*$'
    tail -n 1 "$dir/rows.csv" | grep -qE "$expected"
}

@test "--columns prints the header of the rows, and nothing else happens" {
    succeeds --columns --csv "$dir/rows.csv"
    [[ $(<"$dir/output") == "$header" && ! -e $dir/rows.csv ]]
}

@test "the rate follows from the training time, and the phases are within it" {
    succeeds --csv "$dir/rows.csv" --hidden 200 --epochs 20
    # 20 epochs of 6 samples, with 4 · 784 · 200 + 6 · 200 · 10 operations each.
    awk -v train="$(column train_s)" -v forward="$(column forward_s)" \
        -v backward="$(column backward_s)" -v rate="$(column gflops)" 'BEGIN {
            expected = 6 * 20 * 639200 / train / 1e9
            exit !(rate > 0.99 * expected && rate < 1.01 * expected &&
                   forward > 0 && backward > 0 && forward + backward < train + 2e-6) }'
}

@test "rows are appended under one header" {
    for i in 1 2 3; do
        succeeds --csv "$dir/rows.csv" --seed $i
    done
    [[ $(wc -l <"$dir/rows.csv") == 4 ]]
    [[ $(grep -c ^stage, "$dir/rows.csv") == 1 ]]
    [[ $(column seed) == 3 ]]
}

@test "rows can be written to a pipe" {
    timeout 10 "$train" --data "$data" --train 6 --test 4 --quiet --csv /dev/stdout |
        cat >"$dir/rows.csv"
    [[ $(head -n 1 "$dir/rows.csv") == "$header" ]]
}

@test "a run waits while another writes its row, and then writes no second header" {
    exec 9>>"$dir/rows.csv"
    flock 9
    "$train" --data "$data" --train 6 --test 4 --csv "$dir/rows.csv" >"$dir/output" 9>&- &
    sleep 0.5
    [[ ! -s $dir/rows.csv ]]
    echo "$header" >&9
    exec 9>&-
    wait
    [[ $(wc -l <"$dir/rows.csv") == 2 ]]
}

@test "runs that end at once write whole rows under one header" {
    for i in {1..20}; do
        "$train" --data "$data" --train 6 --test 4 --hidden 3 --seed "$i" \
            --csv "$dir/rows.csv" >"$dir/output.$i" &
    done
    wait
    [[ $(wc -l <"$dir/rows.csv") == 21 ]]
    [[ $(head -n 1 "$dir/rows.csv") == "$header" ]]
    [[ $(tail -n +2 "$dir/rows.csv" | cut -d, -f8 | sort -n | xargs) == $(echo {1..20}) ]]
    [[ $(tr -d '\n' <"$dir/rows.csv" | tr -dc , | wc -c) == $((21 * 21)) ]]
}

@test "--epochs 0: no loss, no rate, and the accuracy of the initial weights" {
    succeeds --epochs 0 --csv "$dir/rows.csv"
    [[ -z $(column final_loss) ]]
    [[ $(column gflops) == 0 ]]
    [[ $(column test_accuracy) =~ ^0(\.[0-9]+)?$|^1$ ]]
}

@test "--quiet prints the result line and nothing else" {
    succeeds
    [[ $(grep -c '^epoch [12] of 2: loss ' "$dir/output") == 2 ]]
    tail -n 1 "$dir/output" | sed 's/[0-9]*\.[0-9]*/N/g' >"$dir/last"
    succeeds --quiet
    [[ $(wc -l <"$dir/output") == 1 ]]
    sed 's/[0-9]*\.[0-9]*/N/g' "$dir/output" | cmp - "$dir/last"
}

@test "--help lists every option" {
    succeeds --help
    for option in data hidden batch epochs learning-rate seed train test threads csv columns \
        save-weights quiet; do
        grep -q -- "--$option" "$dir/output"
    done
}

@test "no directory given, nor MNIST_DIR: data/mnist of the repository, wherever that has been moved" {
    mkdir -p "$dir/stages/00" "$dir/studies/name/00" "$dir/data"
    cp "$train" "$dir/stages/00/train"
    cp "$train" "$dir/studies/name/00/run"
    error=$("$dir/stages/00/train" 2>&1 >/dev/null) || [[ $? == 2 ]]
    [[ $error == "$(realpath "$dir")/data/mnist: No such file or directory; expected "* ]]
    make_idx "$dir/data/mnist"
    "$dir/stages/00/train" --train 6 --test 4
    "$dir/studies/name/00/run" --train 6 --test 4
    tr -s ' \n' ' ' < <("$train" --help) | grep -q "the repository's data/mnist"
}
