#!/usr/bin/env bats
# Tests `make class` on made-up results of students.

bats_require_minimum_version 1.5.0
load look

setup() {
    repository=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
    dir=$(mktemp -d)
    class=$dir/class
    unset MAKEFLAGS
}

teardown() {
    chmod -R u+rwx "$dir"
    rm -rf "$dir"
}

# machine FOLDER TIME [GFLOPS [EPOCHS]]: results of the main ladder, in which 02_openmp takes TIME and
# has so many GFLOP/s of the 200 that are its ceiling. Without GFLOPS there is no ceiling.
machine() {
    local folder=$class/$1 epochs=${4:-5}
    mkdir -p "$folder/stages"
    echo "cpu: A <CPU> & more" >"$folder/stages/machine.txt"
    {
        echo stage,device,threads,hidden,batch,epochs,learning_rate,seed,train_samples,test_samples,dataset,load_s,setup_s,train_s,forward_s,backward_s,final_loss,test_accuracy,gflops,peak_rss_mib,peak_vram_mib
        while read -r stage time gflops; do
            for hidden in 32 256; do
                echo "$stage,cpu,1,$hidden,128,$epochs,0.1,1,37800,4200,mnist,0.1,0.1,$time,0.1,0.1,0.3,0.9,$gflops,100,"
            done
        done
    } >"$folder/stages/runs.csv" <<END
00_serial $2 1
02_openmp $(($2 / 10)) ${3:-1}
06_sparse $(($2 / 20)) 240
20_mine $(($2 / 5)) 5
peer_numpy 1 150
END
    [[ ! ${3:-} ]] || {
        mkdir "$folder/bench"
        echo '{"benchmarks": [{"name": "ceilings/multiply_add/real_time/threads:1",
            "run_type": "iteration", "flops": 2e11}]}' >"$folder/bench/ceilings.json"
    }
}

# The page as lines of text.
words() {
    sed '/<style>/,/<\/style>/d; s/<b>\|<\/b>\|<\/\?code>//g; s/<[^>]*>/ /g; s/  */ /g; s/^ //; s/ $//' \
        "$class/class.html"
}

make_class() {
    run make -s -C "$repository" class "DIR=$class"
    echo "$output"
}

@test "the ladders of a class beside each other, and who is nearest to the ceiling" {
    machine 'ann & <b>bo/laptop' 100 50
    machine carl/report/results/lab 40 150
    machine carl/report/results/home-quick 20 100 1
    machine dora/lab 60
    # A study too, and results that were moved aside.
    mkdir "$class/dora/lab/tensor_mean" "$class/dora/lab/stages/2026-01-01_000000"
    cp "$class"/dora/lab/stages/{,2026-01-01_000000/}runs.csv
    cp "$repository"/report/results/*/tensor_mean/runs.csv "$class/dora/lab/tensor_mean"
    make_class
    [[ $status == 0 && $output == "Written to $class/class.html: 4 folders" ]]
    words >"$dir/words"
    cat "$dir/words"
    grep -qxF 'carl/lab is nearest to the ceiling: 02_openmp reaches 75 % of it.' "$dir/words"
    # 06 leaves out operations that its rate counts, so it is not compared, and no peer is.
    diff - <(sed -n '/is nearest/,/no ceiling/{ / in /p; /no ceiling/p }' "$dir/words" | head -n 4) <<'END'
carl/lab: 75 %, 02_openmp in 4.00 s, 10.0× over 00_serial
carl/home-quick: 50 %, 02_openmp in 2.00 s, 10.0× over 00_serial
ann &amp; &lt;b&gt;bo: 25 %, 02_openmp in 10.0 s, 10.0× over 00_serial
dora: no ceiling, which make bench measures.
END
    # A card for each machine, all with the same stages: also one that only the students have.
    [[ $(grep -c '^20_mine' "$dir/words") == 4 ]]
    grep -qx '06_sparse 2.00 20.0× 120 %†' "$dir/words"
    grep -q '^00_serial 20.0 *0.5 %$' "$dir/words"
    grep -q 'A &lt;CPU&gt; &amp; more; 256 hidden, batch 128; MNIST: 1 epoch of 37,800 images' "$dir/words"
    grep -q '† 06_sparse leaves out' "$dir/words"
    grep -qx 'The mean of outer products of triplets of features' "$dir/words"
    run ! grep 'peer_numpy\|Left out\|<b>bo\|<CPU>' "$class/class.html"
}

@test "what cannot be read is left out, with a line that says why" {
    machine ann 100 50
    machine 'torn <i>' 100 50
    sed -i '$s/,100,$//' "$class/torn <i>/stages/runs.csv"
    machine broken-bench 30 50
    echo '{' >"$class/broken-bench/bench/ceilings.json"
    machine unreadable 20
    rm "$class/unreadable/stages/runs.csv"
    mkdir "$class/unreadable/stages/runs.csv"
    machine other 10
    mv "$class/other/stages" "$class/other/quantum"
    machine empty 10
    sed -i 1q "$class/empty/stages/runs.csv"
    cp -r "$class/ann" "$class/zweimal"
    mkdir "$class/nothing"
    touch "$class/results.zip"
    make_class
    [[ $status == 0 && ${lines[-1]} == *': 2 folders' ]]
    while read -r line; do
        grep -qxF "class.py: $line" <<<"$output"
        grep -qxF "<li>$(sed 's/</\&lt;/; s/>/\&gt;/' <<<"$line")" "$class/class.html"
    done <<'END'
broken-bench/bench/ceilings.json: expected the JSON of Google Benchmark; run `make bench` again
empty/stages: found no finished runs
nothing: found no runs.csv in it
results.zip: expected a folder
torn <i>/stages/runs.csv: line 11: found 19 columns, expected 21
unreadable/stages/runs.csv: cannot read: Is a directory
zweimal/stages: has the same rows as ann
END
    grep -q '^class.py: other/quantum: found no ladder of this name; expected one of: stages ' <<<"$output"
    [[ ${#lines[@]} == 9 ]]
    # A second run reads no page of the first.
    cp "$class/class.html" "$dir/before"
    make_class
    cmp "$class/class.html" "$dir/before"
}

@test "a folder that may not be read is left out" {
    machine ann 100 50
    machine bob 50 50
    # Root may read all, so another user runs this, in a copy that any user can read.
    cp --parents -t "$dir" "$repository"/{harness/*.py,report/*.*,stages/ladder.toml} \
        "$repository"/stages/00_serial/{Makefile,train.c}
    chmod -R a+rwX "$dir"
    chmod 0 "$class/bob/stages"
    as=()
    [[ $(id -u) != 0 ]] || as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    run "${as[@]}" "$dir$repository/report/class.py" "$class"
    echo "$output"
    [[ $status == 0 && ${lines[0]} == 'class.py: bob/stages: cannot read: Permission denied' ]]
}

@test "a browser: three widths, light, dark and printed: all can be read, and no message" {
    machine "$(printf 'a%.0s' {1..60})" 100 50
    machine bob/laptop 64 100
    sed -i 's/20_mine/20_a_stage_whose_name_is_rather_too_long_for_this/' "$class"/bob/*/stages/runs.csv
    make_class
    look_at "$class/class.html" 2 <<'END'
addEventListener("load", () => {
  const readable = (name) => { look(name); contrast(name); };
  readable("light");
  inMedium("dark", readable);
  inMedium("print", readable);
  expect("all tables have a caption and heads", all("table").every((table) =>
    table.caption && all("th:not([scope])", table).length === 0));
  answer(all("article").length);
});
END
}

@test "no folder, no results, or a page that cannot be written: one line" {
    for class in '' "$dir/none"; do
        make_class
        [[ $output == "class.py: DIR: found '$class', expected a folder"* && $status == 2 ]]
    done
    class=$dir/class
    mkdir "$class"
    make_class
    [[ $status == 2 && ${lines[0]} == "class.py: $class: found no results; expected copies of report/results in it" ]]
    machine ann 100 50
    mkdir "$class/class.html"
    run "$repository/report/class.py" "$class"
    [[ $status == 2 && ${lines[-1]} == "class.py: $class/class.html: found a folder, expected a file" ]]
}
