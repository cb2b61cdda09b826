#!/usr/bin/env bats
# Tests run_all.sh, the Makefile, deps.sh and report/ in a copy of the repository. Its stages are
# scripts that only pretend to train. The tests ask which runs are made and what becomes of their
# rows.
# shellcheck disable=SC2016 # the fakes are scripts in single quotes

setup() {
    repository=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
    tree=$(mktemp -d)
    export TMPDIR=$tree # for the file that run_all.sh cannot remove when it is killed
    mkdir "$tree"/{data,stages,report,digits}
    cp "$repository"/{run_all.sh,deps.sh,packages.txt,Makefile} "$tree"
    cp -r "$repository/harness" "$tree"
    sed -i 's/^ROUNDING_S = .*/ROUNDING_S = 1e9/' "$tree/harness/running.py" # the stages take no time
    mkdir "$tree/tests"
    echo 'def check_cell(*_): pass' >"$tree/tests/stages.py"
    cp "$repository/report/machine.sh" "$tree/report"
    grep -v ^baseline "$repository/stages/ladder.toml" >"$tree/stages/ladder.toml"
    touch "$tree/digits/train-images-idx3-ubyte"
    printf '#!/bin/sh\necho "${1:-$PWD/digits}"\n' >"$tree/data/locate.sh"
    chmod +x "$tree/data/locate.sh"
    cd "$tree" || return
    digits_given=${MNIST_DIR:-}
    unset OMP_NUM_THREADS OMP_THREAD_LIMIT OMP_PLACES OMP_PROC_BIND MNIST_DIR MAKEFLAGS NVCC \
        DEBIAN_FRONTEND MARCH
    make_stage 00_one
    make_stage 01_two
    results=$tree/results
    runs=$results/runs.csv
}

teardown() {
    rm -rf "$tree"
}

# make_stage NAME [COMMANDS]: a stage that runs the commands and appends a row, with $train_s as its
# training time.
make_stage() {
    mkdir -p "stages/$1"
    touch "stages/$1/train.c"
    printf 'train: train.sh\n\tcp $< $@\n\tchmod +x $@\n' >"stages/$1/Makefile"
    {
        echo '#!/usr/bin/env bash'
        echo "stage=$1 train_s=0.4 load_s=0.1 dataset=mnist"
        cat <<'END'
echo "$0 $*" >>calls
while (($#)); do
    case $1 in
    --quiet) shift ;;
    --*) name=${1#--} && declare "${name//-/_}=$2" && shift 2 ;;
    esac
done
[[ ! -e $data/SYNTHETIC ]] || dataset=synthetic
END
        echo "${2:-}"
        cat <<'END'
[[ -s $csv ]] || echo stage,device,threads,hidden,batch,epochs,learning_rate,seed,train_samples,test_samples,dataset,load_s,setup_s,train_s,forward_s,backward_s,final_loss,test_accuracy,gflops,peak_rss_mib,peak_vram_mib >>"$csv"
echo "$stage,cpu,${OMP_NUM_THREADS:-1},$hidden,$batch,$epochs,$learning_rate,$seed,$train,$test,$dataset,$load_s,0.01,$train_s,0.1,0.15,0.3,0.91,1.5,100.0," >>"$csv"
END
    } >"stages/$1/train.sh"
}

# The columns that say which run a row is: stage, hidden, batch, epochs.
keys() {
    cut -d, -f1,4-6 "$1"
}

row_count() {
    if [[ -e $runs ]]; then tail -n +2 "$runs" | wc -l; else echo 0; fi
}

wait_for_rows() {
    for _ in {1..500}; do
        (($(row_count) < $1)) || return 0
        sleep 0.02
    done
    false
}

# --- the sweep ---

@test "the defaults are the papers' grid, five epochs, every stage, three runs" {
    run ./run_all.sh --output results
    [ "$status" -eq 0 ]
    [ "$(row_count)" -eq 72 ]
    [ "$(keys "$runs" | sort | uniq -c | sort -u -n | awk '{ print $1 }' | sort -u | paste -sd' ')" = '1 3' ]
    [ "$(tail -n +2 "$runs" | cut -d, -f4 | sort -nu | paste -sd' ')" = '32 64 128 256' ]
    [ "$(tail -n +2 "$runs" | cut -d, -f5 | sort -nu | paste -sd' ')" = '32 64 128' ]
    [ "$(tail -n +2 "$runs" | cut -d, -f6 | sort -nu)" = 5 ]
    grep -q '^flags of 00_one: ' results/machine.txt
    grep -qx 'Batch size 128' results/tables.txt
}

@test "results go to a folder named after the machine, a quick look to one of its own" {
    run ./run_all.sh --quick
    [ "$status" -eq 0 ]
    run ./run_all.sh --hidden 8 --batch 8 --repeats 1
    [ "$status" -eq 0 ]
    machine=report/results/$(report/machine.sh --name)
    [ "$(keys "$machine-quick/stages/runs.csv" | sort -u | sed 1q)" = 00_one,256,128,1 ]
    [ "$(wc -l <"$machine-quick/stages/runs.csv")" -eq 25 ]
    [ "$(wc -l <"$machine/stages/runs.csv")" -eq 3 ]
}

@test "the stages of a cell run side by side, its repeats a pass apart" {
    run ./run_all.sh --output results --hidden 8,16 --batch 4 --repeats 2 --epochs 1
    [ "$(tail -n +2 "$runs" | cut -d, -f1,4 | paste -sd' ')" = \
        "00_one,8 01_two,8 00_one,16 01_two,16 00_one,8 01_two,8 00_one,16 01_two,16" ]
}

@test "a slow run is not repeated" {
    make_stage 00_one 'train_s=30.5'
    run ./run_all.sh --output results --hidden 8 --batch 4
    [ "$(tail -n +2 "$runs" | cut -d, -f1 | paste -sd' ')" = '00_one 01_two 01_two 01_two' ]
    make_stage 00_one 'train_s=0.6'
    touch -d '1 second' stages/00_one/train.sh # newer than what was built of the first
    run ./run_all.sh --output results --quick --hidden 8 --batch 4
    [ "$(tail -n +2 "$runs" | cut -d, -f1 | paste -sd' ')" = '00_one 01_two 01_two 01_two' ]
}

# times_of NAME: the times of a stage's runs.
times_of() {
    awk -F, -v stage="$1" '$1 == stage { printf " %s", $14 }' "$runs"
}

@test "a cell is run until a second has been timed, long runs twice or once" {
    make_stage 00_one 'train_s=0.06'
    make_stage 01_two 'train_s=0.25'
    make_stage 02_three 'train_s=0.4'
    make_stage 03_four 'train_s=5.5'
    make_stage 04_five 'train_s=20.5'
    run ./run_all.sh --output results --hidden 8 --batch 4
    counts() { tail -n +2 "$runs" | cut -d, -f1 | sort | uniq -c | awk '{ printf " %s", $1 }'; }
    [ "$(counts)" = ' 12 4 3 2 1' ]
    [[ $output != *'What else was running'* ]]
    run ./run_all.sh --output results --hidden 8 --batch 4 --resume
    [ "$(counts)" = ' 12 4 3 2 1' ]
    run ./run_all.sh --output results --hidden 8 --batch 4 --repeats 2
    [ "$(counts)" = ' 2 2 2 2 2' ]
}

@test "on a GPU, short runs go on until a second has been timed, up to a limit" {
    sed -i 's/\(MOST_GPU_REPEATS, .* = .*\), 250, /\1, 45, /' harness/sweep.py # or it takes long
    for stage in '00_one 0.026' '01_two 0.004' '02_three 0.3'; do
        make_stage "${stage% *}" "train_s=${stage#* }"
        sed -i 's/,cpu,/,GPU,/' "stages/${stage% *}/train.sh"
    done
    run ./run_all.sh --output results --hidden 8 --batch 4
    [ "$(tail -n +2 "$runs" | cut -d, -f1 | sort | uniq -c | awk '{ printf " %s", $1 }')" = ' 39 45 4' ]
    [ "$(times_of 00_one | tr ' ' '\n' | awk '{ sum += $1 } END { print (sum >= 1) }')" = 1 ]
}

# A stage whose runs take the times that are given, one after another, the last ones again and again.
make_varying() {
    make_stage "$1" "times=(${*:2})
        n=\$(grep -c '^$1,' \"\$csv\")
        train_s=\${times[n < \${#times[@]} ? n : \${#times[@]} - 1]}"
}

@test "a noisy cell is run again, up to three times more, and the last line asks why" {
    make_varying 00_one 0.6 0.4
    make_varying 01_two 0.4 0.8 0.4 0.8 0.4 0.8 0.4
    make_varying 02_three 0.4 0.42 0.38
    run ./run_all.sh --output results --hidden 8 --batch 4
    [ "$status" -eq 0 ]
    [ "$(times_of 00_one)" = ' 0.6 0.4 0.4 0.4 0.4 0.4' ]
    [ "$(times_of 01_two)" = ' 0.4 0.8 0.4 0.8 0.4 0.8' ]
    [ "$(times_of 02_three)" = ' 0.4 0.42 0.38' ]
    [ "${lines[-1]}" = 'In 2 of 3 cells, a run is more than 10 % from the median. What else was running?' ]
    run ./run_all.sh --output results --hidden 8 --batch 4 --repeats 3
    [ "$(row_count)" -eq 9 ]
}

@test "steps run if they are asked for" {
    make_stage 01.1_step
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1
    [ "$(keys "$runs" | cut -d, -f1 | paste -sd' ')" = 'stage 00_one 01_two' ]
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 --steps
    [ "$(keys "$runs" | cut -d, -f1 | paste -sd' ')" = 'stage 00_one 01.1_step 01_two' ]
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 --stages 01
    [ "$(keys "$runs" | cut -d, -f1 | paste -sd' ')" = 'stage 01.1_step 01_two' ]
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 --stages 01.1,00
    [ "$(keys "$runs" | cut -d, -f1 | paste -sd' ')" = 'stage 00_one 01.1_step' ]
}

@test "what does not compute the same is marked, and its times count for nothing where they cannot be right" {
    sed -i 's/^ROUNDING_S = .*/ROUNDING_S = 0.55/' harness/running.py # of the fakes that are right
    make_stage 01_two 'loss=0.3; ((hidden == 8)) || loss=0.32'
    sed -i 's/0.3,0.91/$loss,0.91/' stages/01_two/train.sh
    make_stage 02_three train_s=0.2
    sed -i 's/0.1,0.15,/0.4,0.4,/' stages/02_three/train.sh
    make_stage 03_four train_s=40
    run ./run_all.sh --output results --hidden 8,16 --batch 4 --repeats 1
    [ "$status" -eq 1 ]
    [ "$(row_count)" -eq 4 ]
    grep -qx '  01_two  *0.400  *0.400≠' results/tables.txt
    grep -qF '≠ marks results' results/tables.txt
    grep -qx '01_two: does not compute the same at hidden 16, batch 4: final_loss is 0.32, and 0.3 in most others' results/tables.txt
    grep -qx '02_three: failed at hidden 8, batch 4: forward_s + backward_s is 0.8 s, more than train_s, 0.2 s' results/tables.txt
    grep -qx "03_four: failed at hidden 8, batch 4: load_s + setup_s + train_s is 40.11 s, more than the whole run by the harness's clock, 0.[0-9]* s" results/tables.txt
}

# make_study: the ladder studies/pi. It has one axis and no data.
make_study() {
    mkdir -p studies/pi/00_sum
    cat >studies/pi/ladder.toml <<'END'
title = "Pi"
program = "run"
time = "time_s"
baseline = "00_sum"
[[axes]]
option = "terms"
name = "terms"
values = [1000, 4000]
quick = [100]
[settings]
digits = 3
[[measures]]
column = "time_s"
title = "Time"
unit = "s"
better = "lower"
END
    touch studies/pi/00_sum/run.c
    printf 'run:\n' >studies/pi/00_sum/Makefile
    cat >studies/pi/00_sum/run <<'END'
#!/usr/bin/env bash
echo "$*" >>calls
while (($#)); do
    case $1 in
    --quiet) shift ;;
    --*) declare "${1#--}=$2" && shift 2 ;;
    esac
done
[[ -s $csv ]] || echo stage,device,threads,terms,digits,dataset,load_s,setup_s,time_s,pi,gflops,peak_rss_mib,peak_vram_mib >"$csv"
echo "00_sum,cpu,1,$terms,$digits,drawn,,0.01,0.4,3.14,1.5,100.0," >>"$csv"
END
    chmod +x studies/pi/00_sum/run
}

@test "a study has its own options, its own results and no data" {
    make_study
    printf '#!/bin/sh\nexit 1\n' >data/locate.sh
    run ./run_all.sh --study pi --repeats 1
    [ "$status" -eq 0 ]
    folder=report/results/$(report/machine.sh --name)/pi
    [ "$(tail -n +2 "$folder/runs.csv" | cut -d, -f1,4,5 | paste -sd' ')" = \
        '00_sum,1000,3 00_sum,4000,3' ]
    [[ $output == *'00_sum, terms 4000, run 1; 1 to go, about 2 s'* ]]
    [[ $output == *"Written to $tree/$folder: runs.csv, machine.txt, tables.txt; \`make report\` draws them"* ]]
    grep -q '^flags of 00_sum: ' "$folder/machine.txt"
    run grep 00_one "$folder/machine.txt"
    [ "$status" -eq 1 ]
    ./run_all.sh --study pi --repeats 1 --terms 7,8 --digits 9 --output results
    [ "$(tail -n +2 results/runs.csv | cut -d, -f1,4,5 | paste -sd' ')" = '00_sum,7,9 00_sum,8,9' ]
    # This is an option of the other ladder.
    run ./run_all.sh --study pi --hidden 8
    [[ $status == 2 && $output == *"unknown option '--hidden'"* ]]
    run ./run_all.sh --study nonsense
    [[ $status == 2 && $output == "run_all.sh: --study: found 'nonsense', expected one of: stages pi" ]]
}

@test "a ladder without axes has one cell; a setting that is true or false is an option without a value" {
    make_study
    sed -i '/^\[\[axes\]\]/,/^quick/d; s/^digits = 3$/&\nterms = 50\nexact = false/' studies/pi/ladder.toml
    sed -i 's/^    --quiet) shift ;;/&\n    --exact) exact=1; shift ;;/
        s/digits,dataset/digits,exact,dataset/; s/\$digits,drawn/$digits,${exact:-0},drawn/' \
        studies/pi/00_sum/run
    for options in '' --exact '--terms 60'; do
        # shellcheck disable=SC2086 # several words
        run ./run_all.sh --study pi --repeats 2 --output results --resume $options
        [ "$status" -eq 0 ]
    done
    [ "$(tail -n +2 "$runs" | cut -d, -f1,4-6 | paste -sd' ')" = \
        '00_sum,50,3,0 00_sum,50,3,0 00_sum,50,3,1 00_sum,50,3,1 00_sum,60,3,0 00_sum,60,3,0' ]
    # One program's words are the other's, but for the flag.
    [ "$(sed 's/ --csv.*//' calls | uniq | paste -sd';')" = \
        '--digits 3 --terms 50;--digits 3 --terms 50 --exact;--digits 3 --terms 60' ]
    [[ $output == *'00_sum, run 1; '* ]]
    [ "$(grep -c '^  00_sum  *0.400 +0%$' results/tables.txt)" -eq 3 ] # settings that differ share no table
    run ./run_all.sh --study pi --help
    [[ $output == *'--exact'*'(off)'* ]]
    run python3 -c 'import sys; sys.path.insert(0, "harness"); import ladders
ladder = ladders.find_ladder("pi")
print(ladder.words(ladder.options("compare")))'
    [ "$output" = '[]' ]
}

@test "all ladders run one after the other, and one that fails does not stop the next" {
    make_study
    make_stage 00_one 'exit 3'
    run ./run_all.sh --all --quick --repeats 1 --output results
    [ "$status" -eq 1 ]
    [ "$(keys results/stages/runs.csv | cut -d, -f1 | sort -u | paste -sd' ')" = '01_two stage' ]
    [ "$(tail -n +2 results/pi/runs.csv | cut -d, -f4)" = 100 ]
}

@test "a stage that a student adds is picked up, a directory without a Makefile is not" {
    make_stage 07_mine
    mkdir stages/08_leftover
    run ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1
    [ "$status" -eq 0 ]
    [ "$(tail -n +2 "$runs" | cut -d, -f1 | paste -sd' ')" = '00_one 01_two 07_mine' ]
    grep -q '^  07_mine  *0.400$' results/tables.txt
}

@test "options choose stages, sizes, threads and data, with = or without" {
    mkdir other && touch other/train-images-idx3-ubyte
    run ./run_all.sh --stages=01 --hidden=8,9 --batch 4 --epochs=2 --repeats=1 --threads=3 \
        --data other --output results
    [ "$status" -eq 0 ]
    [ "$(tail -n +2 "$runs" | cut -d, -f1,3-6 | paste -sd' ')" = '01_two,3,8,4,2 01_two,3,9,4,2' ]
    [ "$(grep -c -- "--data $tree/other " calls)" -eq 2 ]
    grep -qx 'threads: 3' results/machine.txt
}

# threads_of STAGE [FILE]: how many runs have which hidden size and number of threads.
threads_of() {
    awk -F, -v stage="$1" '$1 == stage { print $4 ":" $3 }' "${2:-$runs}" | sort -V | uniq -c |
        awk '{ printf " %sx%s", $1, $2 }'
}

@test "a list of threads: each number for stages that use so many, one run for the others" {
    make_stage 00_one 'OMP_NUM_THREADS=1'
    # It can use two threads, or five with more hidden units.
    make_stage 02_three 'most=$((hidden == 8 ? 2 : 5))
        ((OMP_NUM_THREADS < most)) || OMP_NUM_THREADS=$most'
    options=(--hidden='8,16' --batch 4 --repeats 2 --output results)
    OMP_NUM_THREADS=3 run ./run_all.sh "${options[@]}" --threads 1,8,4,2,2
    [ "$status" -eq 0 ]
    [[ $output == *$'\n02_three, hidden 16, batch 4, threads 4, run 2; 3 to go, about 2 s\n'* ]]
    all_threads() {
        [ "$(threads_of 00_one)" = ' 2x8:1 2x16:1' ]
        [ "$(threads_of 01_two)" = ' 2x8:1 2x8:2 2x8:4 2x8:8 2x16:1 2x16:2 2x16:4 2x16:8' ]
        [ "$(threads_of 02_three)" = ' 2x8:1 2x8:2 2x16:1 2x16:2 2x16:4 2x16:5' ]
        [ "$(row_count)" -eq 32 ]
    }
    all_threads
    grep -qx 'threads: 1,2,4,8' results/machine.txt
    run grep OMP_NUM_THREADS results/machine.txt
    [ "$status" -eq 1 ]
    # Wherever it stopped, the same runs are made in the end, and no more.
    cp "$runs" whole
    for lines in 8 33; do
        head -n $lines whole >"$runs"
        ./run_all.sh "${options[@]}" --threads 8,4,2,1 --resume
        all_threads
    done
    run ./run_all.sh "${options[@]}" --threads 1,8 --resume
    [ "$status" -eq 2 ]
    [[ $output == *' was not made with 1,8 threads: expected the same --threads, or another --output' ]]
    # A stage that uses another number each time is a mistake, and the sweep ends.
    make_stage 02_three '((OMP_NUM_THREADS == 8)) || OMP_NUM_THREADS=1'
    touch -d '1 second' stages/02_three/train.sh
    run ./run_all.sh "${options[@]}" --threads 1,2,8 --stages 02 --hidden 8
    [ "$status" -eq 1 ]
    grep -qx '02_three: failed at hidden 8, batch 4, threads 2: its row has other options or threads' \
        results/tables.txt
}

@test "threads are bound where a program uses OpenMP itself, unless the environment says otherwise" {
    for stage in 00_one 01_two 02_three; do
        make_stage $stage 'env | grep "^G\?OMP_" | sort | paste -sd" " >"openmp.$stage"'
        [[ $stage == 00_one ]] || echo '#include <omp.h>' >stages/$stage/train.c
    done
    echo 'RUN = env' >>stages/02_three/Makefile # stands for mpirun, which places its processes
    mkdir -p bench/peers
    printf 'peer_%%:\n\t@:\nversions:\n\t@echo peers: none\n' >bench/peers/Makefile
    cp stages/01_two/train.sh bench/peers/peer_one
    chmod +x bench/peers/peer_one
    sed -i s/stage=01_two/stage=peer_one/ bench/peers/peer_one
    sed s/stage=peer_one/stage=peer_two/ bench/peers/peer_one >bench/peers/peer_two
    chmod +x bench/peers/peer_two
    echo '#include <omp.h>' >bench/peers/peer_one.c
    touch bench/peers/peer_two.c
    options=(--output results --hidden 8 --batch 4 --repeats 1)
    bound='GOMP_SPINCOUNT=2000 OMP_PLACES=cores OMP_PROC_BIND=true'
    ./run_all.sh "${options[@]}" --peers
    for program in 00_one=GOMP_SPINCOUNT=2000 "01_two=$bound" 02_three=GOMP_SPINCOUNT=2000 \
        "peer_one=$bound" peer_two=GOMP_SPINCOUNT=2000; do
        [ "$(cat "openmp.${program%%=*}")" = "${program#*=}" ]
    done
    grep -qx "OpenMP variables: $bound" results/machine.txt
    rm openmp.*
    RUNS=8 LEARNING_RATE=1 SEED=1 TRAIN=1 TEST=1 harness/compare.py 00 01
    [ "$(cat openmp.01_two)" = "$bound" ]
    for chosen in OMP_PLACES=threads OMP_PROC_BIND=false GOMP_CPU_AFFINITY=0; do
        env "$chosen" GOMP_SPINCOUNT=9 ./run_all.sh "${options[@]}" --stages 01
        [ "$(tr ' ' '\n' <openmp.01_two)" = "$(printf '%s\n' "$chosen" GOMP_SPINCOUNT=9 | sort)" ]
    done
}

@test "paths are relative to where it is called" {
    mkdir elsewhere && cd ./elsewhere
    run ../run_all.sh --output here --data ../digits --hidden 8 --batch 4 --repeats 1
    [ "$status" -eq 0 ]
    [ -s here/runs.csv ]
}

@test "data in a folder whose name is a pattern" {
    mv digits '[digits]'
    run ./run_all.sh --data '[digits]' --output results --hidden 8 --batch 4 --repeats 1
    [[ $status == 0 && $output == *"Data: $tree/[digits] (mnist)"* ]]
}

@test "progress says what runs, what is left and how long it takes" {
    run ./run_all.sh --output results --hidden 1000 --batch 4 --repeats 2
    [[ $output == *"00_one, hidden 1000, batch 4, run 1; 4 to go, time not known yet"* ]]
    [[ $output == *"00_one, hidden 1000, batch 4, run 2; 2 to go, about 1 s"* ]]
    # Hidden 2000 and 4000 at 10 s for each 1000, and 5 s for each to load.
    rm -r results
    make_stage 00_one 'train_s=10 load_s=5'
    run ./run_all.sh --stages 00 --output results --hidden 1000,2000,4000 --batch 4 --repeats 1
    [[ $output == *"00_one, hidden 2000, batch 4, run 1; 2 to go, about 70 s"* ]]
}

@test "on a terminal there is a bar, without python3-rich there are lines" {
    command="$tree/run_all.sh --output $results --hidden 8 --batch 4 --repeats 2"
    mkdir broken
    echo 'raise ImportError' >broken/rich.py
    PYTHONPATH=$tree/broken script -qec "$command" /dev/null >screen </dev/null
    grep -qx $'00_one, hidden 8, batch 4, run 1; 4 to go, time not known yet\r' screen
    PATH=/usr/bin:$PATH python3 -c 'import rich' || skip 'no python3-rich'
    script -qec "$command" /dev/null >screen </dev/null
    # The bar is one line, rewritten, and it is gone when the tables come.
    grep -q $'\e\\[2K00_one, hidden 8, batch 4, run 1 .*4 to go, time not known yet\r\e\\[2K01_two' screen
    grep -q '01_two, hidden 8, batch 4, run 2 .* 1 to go, about 1 s' screen
    [ "$(grep -c 'to go' screen)" -eq 1 ]
}

# --- interruption ---

@test "a run that is killed half-way and resumed gives the rows of one that was not" {
    make_stage 01_two '[ ! -e hold ] || (($(wc -l <"$csv") < 6)) || exec sleep 60'
    options=(--hidden='8,16' --batch='4,8' --repeats=2)
    ./run_all.sh "${options[@]}" --output whole
    for signal in INT TERM; do
        touch hold
        env --default-signal=INT ./run_all.sh "${options[@]}" --output results >out 2>&1 &
        wait_for_rows 5
        sleep 0.1
        kill -"$signal" $!
        status=0
        wait $! || status=$?
        [ "$status" -eq $((128 + $(kill -l "$signal"))) ]
        rows=$(row_count)
        ((rows == 5))
        rm hold
        grep -q 'Training time' out
        grep -q -- '^Interrupted; to go on: ./run_all.sh --hidden=8,16 --batch=4,8 .*--output results --resume$' out
        first=$(cat "$runs")
        ./run_all.sh "${options[@]}" --output results --resume
        [[ $(cat "$runs") == "$first"* ]]
        diff <(keys whole/runs.csv) <(keys "$runs")
        [ "$(awk -F, '{ print NF }' "$runs" | sort -u)" -eq 21 ]
        rm -r results
    done
}

@test "Ctrl-C ends every program without a word, however early it comes" {
    # At the start of Python, which only run_all.sh can know of; in the imports; in main().
    interrupt='import os, signal; os.kill(os.getpid(), signal.SIGINT)'
    mkdir start imports
    echo "$interrupt" >start/sitecustomize.py
    echo "$interrupt" >imports/argparse.py
    printf '%s\n' 'import sys; sys.path.insert(0, "harness")' 'import interrupts, tempfile' \
        'def main():' '    with tempfile.TemporaryDirectory(dir="left"):' "        $interrupt" \
        'interrupts.start(main)' >main.py
    mkdir left
    for where in start imports left; do
        programs=(./run_all.sh)
        [[ $where != imports ]] || programs+=("$repository"/{harness/{compare,ladders,step,tables}.py,tests/{check,stages}.py,report/{report,class}.py,profiles/profile.py})
        [[ $where != left ]] || programs=('python3 main.py')
        for program in "${programs[@]}"; do
            # shellcheck disable=SC2086 # several words
            PYTHONPATH=$where run env --default-signal=INT $program
            echo "$program, $where: exit status $status, $output"
            [[ $status == 130 && ! $output ]]
        done
    done
    [[ ! $(ls left) ]]
    env --ignore-signal=INT python3 main.py # as nohup and a script's background do
    # deps.sh has ended well although it was interrupted, too.
    printf '#!/bin/sh\nkill -INT $PPID\n' >deps.sh
    run env --default-signal=INT ./run_all.sh --output results
    [[ $status == 130 && ! -e results ]]
}

@test "an interrupted run takes its stage with it" {
    make_stage 01_two 'echo $$ >pid; trap "sleep 0.2; exit 1" TERM; for _ in {1..400}; do sleep 0.05; done'
    ./run_all.sh --output results &
    while [ ! -s pid ]; do sleep 0.02; done
    kill $!
    wait $! || true
    run kill -0 "$(cat pid)"
    [ "$status" -ne 0 ]
    [ "$(row_count)" -eq 1 ]
}

@test "a sweep that is interrupted while it builds keeps its rows and says how to go on" {
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1
    printf 'train:\n\ttouch building; sleep 60\n' >stages/01_two/Makefile
    rm stages/01_two/train
    ./run_all.sh --output results --hidden 8,9 --batch 4 --resume >out 2>&1 &
    while [ ! -e stages/01_two/building ]; do sleep 0.02; done
    kill $!
    status=0
    wait $! || status=$?
    cat out
    [ "$status" -eq 143 ]
    grep -q '^  01_two  *0.400$' out
    grep -qx -- 'Interrupted; to go on: ./run_all.sh --output results --hidden 8,9 --batch 4 --resume' out
}

@test "two sweeps do not write to one folder, nor does a second wait for ever" {
    make_stage 00_one 'touch started; while [ ! -e go ]; do sleep 0.02; done'
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 &
    while [ ! -e started ]; do sleep 0.02; done
    # The first one is killed, but the stage that it was running goes on.
    kill -KILL $!
    wait $! || true
    run ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 --resume
    [ "$status" -eq 2 ]
    [[ $output == *"another run_all.sh is writing there"* ]]
    touch go
    flock results true
    run ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 --resume
    [ "$status" -eq 0 ]
    [ "$(keys "$runs" | tail -n +2 | paste -sd' ')" = '00_one,8,4,5 01_two,8,4,5' ]
}

@test "earlier results are moved aside, never overwritten" {
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1
    cp "$runs" first.csv
    touch -d '2024-02-03 04:05:06' "$runs"
    run ./run_all.sh --output results --hidden 16 --batch 4 --repeats 1
    [ "$status" -eq 0 ]
    cmp first.csv results/2024-02-03_040506/runs.csv
    [ -s results/2024-02-03_040506/machine.txt ]
    [ -s results/2024-02-03_040506/tables.txt ]
    [ "$(tail -n +2 "$runs" | cut -d, -f4 | sort -u)" = 16 ]
}

@test "earlier results of the same second are moved to a folder each" {
    for hidden in 8 9 10; do
        run ./run_all.sh --output results --hidden $hidden --batch 4 --repeats 1 --stages 00
        [ "$status" -eq 0 ]
        touch -d '2024-02-03 04:05:06' "$runs"
    done
    [ "$(cut -d, -f4 results/2024-*/runs.csv | sort -n | paste -sd' ')" = 'hidden hidden 8 9' ]
    [ -s results/2024-02-03_040506/tables.txt ]
}

@test "resuming counts only the rows of the same sweep" {
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 --resume
    [ "$(row_count)" -eq 2 ]
    grep -q '^resumed: ' results/machine.txt
    # What is not as before is said, once.
    [ "$(grep -c '^compiler: ' results/machine.txt)" -eq 1 ]
    sed -i 's/^compiler: .*/compiler: an older one/' results/machine.txt
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 --resume --epochs 7
    [ "$(row_count)" -eq 4 ]
    for setting in '--train 100' '--learning-rate 0.2' '--seed 2'; do
        before=$(row_count)
        # shellcheck disable=SC2086 # two words
        ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 --resume $setting
        [ "$(row_count)" -eq $((before + 2)) ]
    done
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 --resume
    [ "$(row_count)" -eq 10 ]
    touch digits/SYNTHETIC
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 --resume
    [ "$(row_count)" -eq 12 ]
    [ "$(grep -c '^compiler: ' results/machine.txt)" -eq 2 ]
    run ./run_all.sh --output results --resume --threads 17
    [ "$status" -eq 2 ]
    [[ $output == *"expected the same --threads"* ]]
    [ "$(row_count)" -eq 12 ]
    printf '00_one,cpu,1,8' >>"$runs"
    run ./run_all.sh --output results --resume
    [ "$status" -eq 2 ]
    [[ $output == *"runs.csv: line 14: ends within a row; delete that row to resume"* ]]
}

@test "Kaggle's CSV is a data set of its own, also beside a file SYNTHETIC" {
    rm digits/*
    touch digits/train.csv digits/SYNTHETIC
    make_stage 00_one dataset=csv # as common/data.c has it
    run ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 --stages 00
    [ "$status" -eq 0 ]
    [ "$(row_count)" -eq 1 ]
}

@test "resuming on other data of the same name is refused, whether gzipped or not" {
    sweep=(./run_all.sh --output results --hidden 8 --batch 4 --repeats)
    echo one >digits/train-labels-idx1-ubyte
    "${sweep[@]}" 1
    gzip digits/train-labels-idx1-ubyte
    "${sweep[@]}" 2 --resume
    [ "$(row_count)" -eq 4 ]
    echo other | gzip >digits/train-labels-idx1-ubyte.gz
    run "${sweep[@]}" 3 --resume
    [ "$status" -eq 2 ]
    [ "$output" = "run_all.sh: --resume: $results has runs on other files of 'mnist': expected the same --data, or another --output" ]
    [ "$(row_count)" -eq 4 ]
    touch digits/SYNTHETIC
    "${sweep[@]}" 1 --resume
}

# --- epochs ---

# Gives the ladder a file of epochs, and makes a stage that writes its two epochs there. It runs the
# commands after each.
make_epochs() {
    grep -q '^epochs = "' stages/ladder.toml || sed -i '/^program/a epochs = "epochs-csv"' stages/ladder.toml
    make_stage "$1" 'for epoch in 1 2; do
        if [[ ${epochs_csv:-} ]]; then
            [[ -s $epochs_csv ]] || echo stage,device,threads,hidden,batch,learning_rate,seed,train_samples,test_samples,dataset,run,epoch,epoch_s,loss,train_accuracy,test_accuracy,samples_per_s,rss_mib,vram_mib >>"$epochs_csv"
            echo "$stage,cpu,1,$hidden,$batch,$learning_rate,$seed,$train,$test,$dataset,$$,$epoch,0.2,0.3,0.9,0.91,1000,100.0," >>"$epochs_csv"
        fi
        '"${2:-true}"'
    done'
    touch -d "${3:-now}" "stages/$1/train.sh"
}

# The columns of results/epochs.csv that say which epoch a row is: stage, hidden, epoch.
epochs() {
    tail -n +2 "${1:-results/epochs.csv}" | cut -d, -f1,4,12 | paste -sd' '
}

@test "epochs have a file beside the rows, which goes with them" {
    make_epochs 00_one
    make_epochs 01_two
    options=(--batch 4 --epochs 2 --repeats 1)
    run ./run_all.sh "${options[@]}" --hidden 8 --output results
    [ "$status" -eq 0 ]
    [[ $output == *"Written to $results: runs.csv, epochs.csv, machine.txt, tables.txt"* ]]
    [ "$(epochs)" = '00_one,8,1 00_one,8,2 01_two,8,1 01_two,8,2' ]
    # Resuming makes the missing runs only.
    ./run_all.sh "${options[@]}" --hidden 8,9 --output results --resume
    [ "$(epochs)" = '00_one,8,1 00_one,8,2 01_two,8,1 01_two,8,2 00_one,9,1 00_one,9,2 01_two,9,1 01_two,9,2' ]
    # A new sweep moves both files aside.
    touch -d '2024-02-03 04:05:06' "$runs"
    ./run_all.sh "${options[@]}" --hidden 7 --output results --stages 00
    [ "$(epochs)" = '00_one,7,1 00_one,7,2' ]
    [ "$(wc -l <results/2024-02-03_040506/epochs.csv)" -eq 9 ]
    # Even if no run has ended.
    : >"$runs"
    touch -d '2024-02-03 04:05:07' results/epochs.csv
    ./run_all.sh "${options[@]}" --hidden 6 --output results --stages 00
    [ "$(epochs)" = '00_one,6,1 00_one,6,2' ]
    [ "$(epochs results/2024-02-03_040507/epochs.csv)" = '00_one,7,1 00_one,7,2' ]
    # A quick look has a file of its own, and growth has none.
    ./run_all.sh "${options[@]}" --hidden 5 --quick --stages 00
    [ "$(epochs "report/results/$(report/machine.sh --name)-quick/stages/epochs.csv")" = '00_one,5,1 00_one,5,2' ]
    sed -i '/^\[growth/,$d' stages/ladder.toml
    printf '[growth.base]\nhidden = 4\nbatch = 4\n[growth.values]\nhidden = [4]\n' >>stages/ladder.toml
    ./run_all.sh --growth --output results
    [ -s results/growth.csv ]
    [ "$(epochs)" = '00_one,6,1 00_one,6,2' ]
}

@test "the epochs of a run without a row are taken back, whether it failed or was stopped" {
    make_epochs 00_one
    make_epochs 01_two '[ ! -e hold ] || { touch held; exec sleep 60; }'
    options=(--hidden 8 --batch 4 --epochs 2 --repeats 2 --output results)
    for signal in INT TERM; do
        rm -rf held results
        touch hold
        env --default-signal=INT ./run_all.sh "${options[@]}" &
        while [ ! -e held ]; do sleep 0.02; done
        [ "$(epochs)" = '00_one,8,1 00_one,8,2 01_two,8,1' ]
        kill -"$signal" $!
        wait $! || true
        [ "$(epochs)" = '00_one,8,1 00_one,8,2' ]
        rm hold
        ./run_all.sh "${options[@]}" --resume
        [ "$(epochs)" = '00_one,8,1 00_one,8,2 01_two,8,1 01_two,8,2 00_one,8,1 00_one,8,2 01_two,8,1 01_two,8,2' ]
    done
    # The first run of all fails after an epoch. The next one writes the header.
    make_epochs 00_one 'echo "the loss became nan" >&2; exit 1' '1 second'
    run ./run_all.sh "${options[@]}" --repeats 1
    [ "$status" -eq 1 ]
    grep -qx '00_one: failed at hidden 8, batch 4: exit status 1: the loss became nan' results/tables.txt
    [ "$(epochs)" = '01_two,8,1 01_two,8,2' ]
    [ "$(head -n 1 results/epochs.csv | cut -d, -f12)" = epoch ]
}

@test "epochs that cannot be read are refused before the sweep" {
    make_epochs 00_one
    options=(--hidden 8 --batch 4 --epochs 2 --repeats 1 --output results --stages 00)
    ./run_all.sh "${options[@]}"
    cp results/epochs.csv whole
    rm calls
    while IFS='|' read -r script message; do
        sed "$script" whole >results/epochs.csv
        run ./run_all.sh "${options[@]}" --repeats 2 --resume
        echo "$output"
        [ "$status" -eq 2 ]
        [ "$output" = "run_all.sh: $results/epochs.csv: line $message" ]
        [ ! -e calls ]
    done <<'END'
3s/,0.2,/,nan,/|3: epoch_s: found 'nan', expected a number, not below 0
2s/,0.91,/,,/|2: test_accuracy: found '', expected a number
1s/,run,/,name,/|1: found no column 'run', expected the header of --csv
2s/,100.0,$//|2: found 17 columns, expected 19
END
    head -c -9 whole >results/epochs.csv
    run ./run_all.sh "${options[@]}" --repeats 2 --resume
    [ "$output" = "run_all.sh: $results/epochs.csv: line 3: ends within a row; delete that row to resume" ]
    [ "$status" -eq 2 ]
    [ ! -e calls ]
    # Without --resume, they are moved aside as they are.
    ./run_all.sh "${options[@]}"
    cmp <(head -c -9 whole) results/2*/epochs.csv
    [ "$(epochs)" = '00_one,8,1 00_one,8,2' ]
}

# --- stages that do not work ---

@test "a stage without its device is left out, with the reason below the tables" {
    make_stage 01_two 'echo "01_two: no CUDA-capable device is detected; try a line" >&2; exit 77'
    make_stage 02_three
    run ./run_all.sh --output results --hidden 8,16 --batch 4 --repeats 2
    [ "$status" -eq 0 ]
    [ "$(tail -n +2 "$runs" | cut -d, -f1 | sort | uniq -c | awk '{ print $1, $2 }' | paste -sd' ')" = \
        '4 00_one 4 02_three' ]
    [ "$(grep -c 01_two/train calls)" -eq 1 ]
    grep -qx '01_two: did not run: no CUDA-capable device is detected' results/tables.txt
    # A sweep that goes on without the stage keeps the reason. One that has the stage finds its own.
    run ./run_all.sh --output results --hidden 8,16 --batch 4 --repeats 2 --resume --stages 02
    grep -qx '01_two: did not run: no CUDA-capable device is detected' results/tables.txt
    make_stage 01_two
    run ./run_all.sh --output results --hidden 8,16 --batch 4 --repeats 2 --resume --stages 01
    [ "$status" -eq 0 ]
    run ! grep '01_two: did not run' results/tables.txt
}

@test "a reason that several stages share is said once" {
    for stage in 02_three 03_four; do
        make_stage $stage "echo '$stage: no CUDA-capable device is detected' >&2; exit 77"
    done
    run ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1
    [ "$(grep -c 'no CUDA-capable device' <<<"$output")" -eq 2 ]
    grep -qx '02_three, 03_four: did not run: no CUDA-capable device is detected' results/tables.txt
}

@test "a stage that fails does not stop the others, and fails the sweep" {
    make_stage 00_one '((hidden < 16)) || { echo "out of memory" >&2; exit 1; }'
    run ./run_all.sh --output results --hidden 8,16 --batch 4 --repeats 1
    [ "$status" -eq 1 ]
    [ "$(keys "$runs" | tail -n +2 | paste -sd' ')" = '00_one,8,4,5 01_two,8,4,5 01_two,16,4,5' ]
    grep -qx '00_one: failed at hidden 16, batch 4: exit status 1: out of memory' results/tables.txt
    # When it is mended, its runs are made.
    make_stage 00_one
    touch -d '1 second' stages/00_one/train.sh
    run ./run_all.sh --output results --hidden 8,16 --batch 4 --repeats 1 --resume
    [ "$status" -eq 0 ]
    [ "$(row_count)" -eq 4 ]
    # Damaged data are no failed run.
    make_stage 01_two 'echo "truncated" >&2; exit 2'
    touch -d '2 seconds' stages/01_two/train.sh
    run ./run_all.sh --output results --hidden 17 --batch 4 --repeats 1 --resume
    [ "$status" -eq 2 ]
}

@test "a stage that crashes, writes nothing or does not build is reported" {
    make_stage 00_one 'kill -SEGV $$'
    make_stage 01_two 'exit 0'
    make_stage 02_three
    printf 'train:\n\techo "train.c:1: error: expected ;" >&2; false\n' >stages/02_three/Makefile
    run ./run_all.sh --output results --hidden 8 --batch 4
    [ "$status" -eq 1 ]
    grep -qx '00_one: failed at hidden 8, batch 4: killed by signal 11.*' results/tables.txt
    grep -qx '01_two: failed at hidden 8, batch 4: wrote no row to its --csv' results/tables.txt
    grep -q '^02_three: does not build: .*train.c:1: error: expected ;' results/tables.txt
    grep -qx 'no finished runs' results/tables.txt
}

@test "a CUDA stage is left out where there is no nvcc" {
    make_stage 03_cuda
    mv stages/03_cuda/train.c{,u}
    NVCC=no-such-nvcc run ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1
    [ "$status" -eq 0 ]
    grep -qx '03_cuda: did not run: left out, found no no-such-nvcc (the CUDA toolkit) in PATH' \
        results/tables.txt
    NVCC=no-such-nvcc run make
    [ "$status" -eq 0 ]
    [ ! -e stages/03_cuda/train ]
}

@test "the note on a stage that does not build has the reason, not what follows from it" {
    compiled() { # NAME SOURCE [FLAG]
        mkdir "stages/$1"
        echo "$2" >"stages/$1/train.c"
        printf 'train: train.c\n\tgcc -Werror=return-type -o $@ $< %s\n' "${3:-}" >"stages/$1/Makefile"
    }
    compiled 02_undeclared 'int main(void) { return x; }'
    compiled 03_undefined 'int f(void); int main(void) { return f(); }'
    compiled 04_library 'int main(void) { return 0; }' -lno_such_library
    compiled 05_compiler 'int main(void) { return 0; }'
    sed -i 's/gcc/no-such-compiler/' stages/05_compiler/Makefile
    run ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1
    [ "$status" -eq 1 ]
    cat results/tables.txt
    grep -qx '02_undeclared: does not build: train.c:1:25: error: .x. undeclared .*' results/tables.txt
    grep -qx '03_undefined: does not build: .*undefined reference to .f.' results/tables.txt
    grep -qx '04_library: does not build: .*cannot find -lno_such_library.*' results/tables.txt
    grep -qx '05_compiler: does not build: .*no-such-compiler: No such file.*' results/tables.txt
    run grep "$tree" results/tables.txt
    [ "$status" -eq 1 ]
}

@test "a folder that cannot be written to is refused in one line" {
    touch file
    for folder in /proc file/results file; do
        run ./run_all.sh --output $folder --hidden 8 --batch 4 --repeats 1
        echo "$status: $output"
        [ "$status" -eq 2 ]
        [ "${#lines[@]}" -eq 1 ]
        [[ $output == "run_all.sh: "*": cannot write there; name another directory with --output" ]]
    done
    [ ! -e calls ]
}

@test "rows that cannot be read are refused before the sweep, and the tables stay" {
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1
    cp results/tables.txt before
    cp "$runs" rows
    rm calls
    while IFS='|' read -r row message; do
        { cat rows && echo "$row"; } >"$runs"
        run ./run_all.sh --output results --hidden 16 --batch 4 --repeats 1 --resume
        echo "$output"
        [ "$status" -eq 2 ]
        [ "$output" = "run_all.sh: $runs: line 4: $message" ]
        cmp results/tables.txt before
        [ ! -e calls ]
        [ ! -e evaluated ]
    done <<END
00_one,cpu,1,8,4,5,0.1,1,37800,4200,mnist,0.1,0.01,nan,0,0,0.3,0.9,1,100,|train_s: found 'nan', expected a number, not below 0
00_one,cpu,1,0,4,5,0.1,1,37800,4200,mnist,0.1,0.01,1,0,0,0.3,0.9,1,100,|hidden: found '0', expected a whole number from 1
00_one,cpu,1,a[\$(touch evaluated)],4,5,0.1,1,37800,4200,mnist,0.1,0.01,1,0,0,0.3,0.9,1,100,|hidden: found 'a[\$(touch evaluated)]', expected a whole number from 1
00_one,cpu,1,8,4,5,0.1,1,37800,4200,mnist,x[\$(touch evaluated)],0.01,1,0,0,0.3,0.9,1,100,|load_s: found 'x[\$(touch evaluated)]', expected a number, not below 0
00_one,cpu,1,8|found 4 columns, expected 21
END
}

@test "a disk that fills up: exit status 1, and the tables stay" {
    # Only the tables with the reasons below them are longer than 4 KiB.
    printf '#!/bin/sh\nprintf "threads: 1\\nrevision: x\\ndate: y\\n"\n' >report/machine.sh
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1
    cp results/tables.txt before
    for stage in {10..59}_fake; do
        mkdir "stages/$stage"
        echo train: >"stages/$stage/Makefile"
        touch "stages/$stage/train.c"
        printf '#!/bin/sh\necho %070d >&2\nexit 77\n' "${stage%_*}" >"stages/$stage/train"
        chmod +x "stages/$stage/train"
    done
    run bash -c 'ulimit -f 4; ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 --resume'
    [ "$status" -eq 1 ]
    [ "${lines[-1]}" = "tables.py: $results/tables.txt: cannot write: File too large" ]
    cmp results/tables.txt before
    [ "$(find results -type f | wc -l)" -eq 3 ] # no part of a file
}

@test "a disk without room for machine.txt: one line that names the folder" {
    printf '#!/bin/sh\nprintf "threads: 1\nrevision: x\ndate: y\nlong: %%03000d\n" $LONG\n' \
        >report/machine.sh
    LONG=1 ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1
    export LONG=2 # the lines of both runs are longer than 4 KiB
    run bash -c 'ulimit -f 4; ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 --resume'
    [ "$status" -eq 1 ]
    [ "${lines[-1]}" = "run_all.sh: $results: File too large" ]
}

@test "what is no file where a sweep writes one is refused before the sweep" {
    mkdir results
    for name in runs.csv machine.txt tables.txt; do
        ln -s $name results/$name
        run ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1
        [ "$status" -eq 2 ]
        [ "$output" = "run_all.sh: $results/$name: cannot write: Too many levels of symbolic links" ]
        rm results/$name
        mkfifo results/$name
        run timeout 60 ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 --resume
        [ "$status" -eq 2 ]
        [ "$output" = "run_all.sh: $results/$name: found a pipe, expected a file" ]
        rm results/$name
    done
}

# --- peers ---

@test "no variable of the environment changes a peer" {
    mkdir -p bench/peers
    printf 'peer_one:\nversions:\n\t@echo peers: none\n' >bench/peers/Makefile
    printf '#!/bin/sh\nenv >seen\necho "not installed" >&2\nexit 77\n' >bench/peers/peer_one.py
    chmod +x bench/peers/peer_one.py
    cleared=(ATEN_CPU_CAPABILITY BLIS_ARCH_TYPE CUBLAS_WORKSPACE_CONFIG CUDA_LAUNCH_BLOCKING
        DNNL_MAX_CPU_ISA JAX_ENABLE_X64 KMP_BLOCKTIME LIBXSMM_TARGET MKL_NUM_THREADS
        NPY_DISABLE_CPU_FEATURES NUMBA_DISABLE_JIT NVIDIA_TF32_OVERRIDE ONEDNN_MAX_CPU_ISA
        ONEDNN_DEFAULT_FPMATH_MODE OPENBLAS_CORETYPE
        TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCHINDUCTOR_MAX_AUTOTUNE XLA_FLAGS)
    run env "${cleared[@]/%/=1}" OMP_PLACES=cores KEPT=1 \
        ./run_all.sh --peers --output results --hidden 8 --batch 4 --repeats 1
    [ "$status" -eq 0 ]
    grep -qx KEPT=1 seen
    grep -qx OMP_PLACES=cores seen # machine.txt has it
    for name in "${cleared[@]}"; do
        run grep "^$name=" seen
        [ "$status" -eq 1 ]
    done
    [ "$(uname -m)" = x86_64 ] || return 0
    # Without AVX-512 for the stages, the libraries do without it, too.
    MARCH=x86-64-v3 ./run_all.sh --peers --output results --hidden 8 --batch 4 --repeats 1
    grep -qx OPENBLAS_CORETYPE=Haswell seen
    grep -qx LIBXSMM_TARGET=hsw seen
}

@test "--gpu: only stages and peers for a GPU" {
    make_stage 03_cuda
    mv stages/03_cuda/train.c{,u}
    mkdir -p bench/peers
    printf 'peer_%%:\n\t@:\nversions:\n\t@echo peers: none\n' >bench/peers/Makefile
    for peer in one 'two on a GPU'; do
        printf '#!/usr/bin/env python3\n"""Peer %s, eager. No GPU."""\nimport sys\nsys.exit(77)\n' \
            "$peer" >"bench/peers/peer_${peer%% *}.py"
    done
    chmod +x bench/peers/*.py
    NVCC=true run ./run_all.sh --gpu --peers --output results --hidden 8 --batch 4 --repeats 1
    echo "$output"
    [ "$(tail -n +2 "$runs" | cut -d, -f1)" = 03_cuda ]
    grep -q '^peer_two: did not run' results/tables.txt
    run grep peer_one results/tables.txt
    [ "$status" -eq 1 ]
}

# --- growth ---

@test "growth: a short point three times, a long one once, none beyond the limit" {
    sed -i '/^\[growth/,$d' stages/ladder.toml
    cat >>stages/ladder.toml <<'END'
[growth.base]
hidden = 64
batch = 64
epochs = 1
[growth.values]
hidden = [1, 2, 64, 128, 256, 512, 1024]
epochs = [1, 2, 3, 4, 5]
batch = [1, 4096]
END
    # An epoch with 64 hidden units takes five seconds.
    make_stage 00_one 'train_s=$((5 * hidden * epochs * 100 / 64))e-2; ((${threads:-1} == 1)) || exit 2'
    make_stage 01_two 'exit 77'
    ./run_all.sh --growth --output results
    [ "$(tail -n +2 results/growth.csv | cut -d, -f4-6 | uniq -c | awk '{ print $1 "x" $2 }' |
        paste -sd' ')" = "3x1,64,1 3x2,64,1 1x64,64,1 1x128,64,1 1x256,64,1 1x64,64,1 1x64,64,2 \
1x64,64,3 1x64,64,4 1x64,1,1 1x64,4096,1 1x64,64,1" ]
    # A failing stage leaves the results as they were.
    make_stage 00_one 'exit 1'
    touch -d '1 second' stages/00_one/train.sh
    cp results/growth.csv before
    run ./run_all.sh --growth --output results
    [ "$status" -eq 1 ]
    [ "${lines[-1]}" = 'run_all.sh: 00_one --hidden 1: exit status 1' ]
    cmp results/growth.csv before
}

# --- wrong options ---

@test "a wrong option is one line and exit status 2" {
    while IFS='|' read -r arguments message; do
        # shellcheck disable=SC2086 # several words
        run ./run_all.sh $arguments
        echo "$arguments: $status: $output"
        [ "$status" -eq 2 ]
        [ "${#lines[@]}" -eq 1 ]
        [[ $output == *"$message"* ]]
    done <<'END'
--nonsense|unknown option '--nonsense'
--quick=1|--quick: ignored explicit argument '1'
results|unknown option 'results'
--hidden|--hidden: expected one argument
--hidden 0|--hidden: found '0'
--hidden 32,|--hidden: found '32,'
--hidden=32;64|--hidden: found '32;64'
--batch -1|--batch: found '-1'
--batch=|--batch: found ''
--hidden 3_2|--hidden: found '3_2'
--hidden ٣٢|--hidden: found '٣٢'
--learning-rate 0_1|--learning-rate: found '0_1'
--threads 1,1_0|--threads: found '1,1_0'
--epochs abc|--epochs: found 'abc'
--epochs 1,2|--epochs: found '1,2'
--repeats 1.5|--repeats: found '1.5'
--threads 0|--threads: found '0', expected a whole number from 1, or several, such as
--threads 1,,2|--threads: found '1,,2'
--threads 1,2,|--threads: found '1,2,'
--threads 2-4|--threads: found '2-4'
--threads 1,0|--threads: found '1,0'
--threads=|--threads: found ''
--stages 00,09|--stages: found '09', expected one of: 00_one 01_two
--stages ,|--stages: found ','
--stages=|--stages: found ''
--output=|--output: found '', expected a directory
--data=|--data: found '', expected a directory
END
    [ ! -e calls ]
}

@test "--help names every option" {
    run ./run_all.sh --help
    [ "$status" -eq 0 ]
    for option in study all stages steps peers gpu hidden batch epochs repeats threads quick data \
        output resume growth; do
        [[ $output == *"  --$option "* ]]
    done
}

# --- the machine ---

@test "a description of the machine names neither host nor user" {
    run report/machine.sh
    [ "$status" -eq 0 ]
    [[ $output != *"$(uname -n)"* ]]
    [[ $output != *"$HOME"* && $output != *"$tree"* ]]
    [[ $(report/machine.sh --name) =~ ^[a-z0-9]+(-[a-z0-9]+)*$ ]]
}

@test "MARCH: what is built for another instruction set has results of its own, which name it" {
    grep -q '^built for: [a-z0-9.+-]*, [A-Z0-9-]*$' <(report/machine.sh)
    [ "$(uname -m)" = x86_64 ] || skip 'the levels are those of x86-64'
    machine=report/results/$(report/machine.sh --name)
    export MARCH=x86-64-v2
    ./run_all.sh --hidden 8 --batch 4 --repeats 1
    [ ! -e "$machine" ]
    grep -qx 'built for: x86-64-v2, SSE2' "$machine-x86-64-v2/stages/machine.txt"
    grep -q '^cpu: .*, built for x86-64-v2$' "$machine-x86-64-v2/stages/machine.txt"
    MARCH=x86-64-v9 run ./run_all.sh --hidden 8 --batch 4 --repeats 1
    [ "$status" -eq 2 ]
    [ "$output" = "MARCH: found 'x86-64-v9', which gcc does not take; expected such as x86-64-v3" ]
}

# The state is that of the moment: each call of the fake is a degree warmer.
fake_gpu() {
    mkdir bin
    cat >bin/nvidia-smi <<'END'
#!/bin/sh
case $* in
-L) echo 'GPU 0: Fake GPU' ;;
*=name*) echo 'Fake GPU, 80 GiB, 570.1' ;;
*=clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,temperature.gpu*)
    echo >>calls_of_nvidia
    echo "345 MHz, 1980 MHz, 2619 MHz, 71.20 W, 700.00 W, $(wc -l <calls_of_nvidia)"
    echo '1 MHz, 1 MHz, 1 MHz, 1 W, 1 W, 99' ;;
*) exit 2 ;;
esac
END
    chmod +x bin/nvidia-smi
    export PATH=$tree/bin:$PATH
}

@test "the GPU's clocks, power and temperature before and after the sweep" {
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1
    run grep '^gpu [ab]' results/machine.txt
    [ "$status" -eq 1 ]
    fake_gpu
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1
    state='345 MHz of 1980 MHz, memory 2619 MHz, power 71.20 W of 700.00 W'
    [ "$(grep '^gpu' results/machine.txt)" = "gpu: Fake GPU, 80 GiB, 570.1
gpu before: $state, temperature 1 C
gpu after: $state, temperature 2 C" ]
}

@test "an interrupted sweep still says how the GPU was after it" {
    fake_gpu
    make_stage 01_two 'exec sleep 60'
    ./run_all.sh --output results --hidden 8 --batch 4 --repeats 1 &
    wait_for_rows 1
    kill $!
    wait $! || true
    grep -q '^gpu after: 345 MHz' results/machine.txt
}

@test "a processor that is named for its whole line is told by family and model" {
    printf '#!/bin/sh\n[ "$1" ] || printf "%%s\\n" "CPU family: 25" "Model: 17" "Model name: $NAME"\n' \
        >"$BATS_TEST_TMPDIR/lscpu"
    chmod +x "$BATS_TEST_TMPDIR/lscpu"
    export PATH=$BATS_TEST_TMPDIR:$PATH
    [[ $(NAME='AMD EPYC' report/machine.sh --name) == amd-epyc-family-25-model-17-*-cores* ]]
    [[ $(NAME='AMD EPYC 9654' report/machine.sh --name) == amd-epyc-9654-*-cores* ]]
}

# --- make ---

@test "make builds every stage, make help lists the targets" {
    run make
    [ "$status" -eq 0 ]
    [ -x stages/00_one/train ]
    [ -x stages/01_two/train ]
    run make help
    for target in all test deps diff headline clean help; do
        grep -qE "^$target +[a-z]" <<<"$output"
    done
}

@test "make diff compares a stage with the one before it" {
    printf 'int same;\nint old;\n' >stages/00_one/train.c
    printf 'int same;\nint new;\n' >stages/01_two/train.c
    make_stage 05_gpu
    rm stages/05_gpu/train.c
    printf 'int same;\nint gpu;\n' >stages/05_gpu/train.cu
    for stage in 01 01_two; do
        run make diff STAGE=$stage
        [ "$status" -eq 0 ]
        grep -qx -- '-int old;' <<<"$output"
        grep -qx -- '+int new;' <<<"$output"
        grep -qx ' int same;' <<<"$output"
    done
    run make diff STAGE=05
    grep -qx -- '-int new;' <<<"$output"
    grep -qx -- '+int gpu;' <<<"$output"
    for stage in '' 02 1; do
        run make diff STAGE=$stage
        [ "$status" -ne 0 ]
        [[ $output == *"STAGE: found '$stage', expected one of: 00_one 01_two 05_gpu"* ]]
    done
    run make diff STAGE=00
    [ "$status" -ne 0 ]
    [[ $output == *"STAGE: found '00_one', the first stage; expected a later one"* ]]
    # This stage says what it is a copy of.
    printf 'ORIGIN = 00_one\n' >>stages/05_gpu/Makefile
    make diff STAGE=05 | grep -x -- '-int old;'
    # A terminal gets colours, a pipe gets none.
    TERM=xterm PAGER=cat script -qec "make -C $tree diff STAGE=01" /dev/null >screen </dev/null
    grep -q $'\e\\[' screen
    [[ $(make diff STAGE=01 | cat) != *$'\e'* ]]
}

# --- deps ---

# Only fakes and what deps.sh itself needs are in PATH, so that nothing can be installed here.
fake_system() {
    mkdir bin
    for tool in bash env grep gcc dirname cat touch chmod; do
        ln -s "$(command -v $tool)" bin
    done
    fake id "echo $1"
    cat >packages.txt <<'END'
# a comment

run   there   bash
run   wanted  wanted-command
test  tested  no_such_header.h
END
}

fake() {
    printf '#!/usr/bin/env bash\n%s\n' "$2" >"bin/$1"
    chmod +x "bin/$1"
}

# An apt-get that knows packages after `update`, and installs the command of the wanted package.
fake_apt() {
    fake apt-cache '[[ ! -e lists || $2 == lacking ]] || echo "$2 | 1.0"'
    fake apt-get 'echo "apt-get $* ($DEBIAN_FRONTEND)" >>apt.log
        case $1 in
        update) touch lists ;;
        install) [ -e lists ] && touch bin/wanted-command && chmod +x bin/wanted-command ;;
        esac'
}

@test "deps: says nothing when everything is there" {
    fake_system 1000
    echo 'run there bash' >packages.txt
    run env PATH="$PWD/bin" ./deps.sh
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

@test "deps: root gets what is missing, after an update of the lists where that is needed" {
    fake_system 0
    fake_apt
    run env PATH="$PWD/bin" ./deps.sh run
    [ "$status" -eq 0 ]
    diff - apt.log <<'END'
apt-get update -qq ()
apt-get install -y -qq --no-install-recommends wanted (noninteractive)
END
}

@test "deps: with sudo that needs no password, it installs by sudo" {
    fake_system 1000
    fake_apt
    touch lists
    fake sudo 'echo "sudo $*" >>sudo.log; [[ $1 != -n ]] || shift; [[ $1 == true ]] || exec "$@"'
    run env PATH="$PWD/bin" ./deps.sh run
    [ "$status" -eq 0 ]
    grep -q '^sudo env DEBIAN_FRONTEND=noninteractive apt-get install .* wanted$' sudo.log
    [ "$(wc -l <apt.log)" -eq 1 ]
}

@test "deps: others are told the one command" {
    fake_system 1000
    fake_apt
    fake sudo 'exit 1'
    run env PATH="$PWD/bin" ./deps.sh
    [ "$status" -eq 1 ]
    [ "$output" = "Needed, and not installed: wanted tested. Type: sudo sh -c 'apt-get update && apt-get install -y wanted tested'" ]
    [ ! -e apt.log ]
    rm bin/sudo
    run env PATH="$PWD/bin" ./deps.sh run
    [ "$output" = "Needed, and not installed: wanted. Type: su -c 'apt-get update && apt-get install -y wanted'" ]
}

@test "deps: an installation that fails ends with the command" {
    fake_system 0
    fake_apt
    fake apt-get 'echo "E: no network" >&2; exit 100'
    run env PATH="$PWD/bin" ./deps.sh run
    [ "$status" -eq 1 ]
    [ "${lines[-1]}" = "Needed, and not installed: wanted. Type: sh -c 'apt-get update && apt-get install -y wanted'" ]
}

@test "deps: an optional package that the release does not have is left out with a line" {
    for user in 0 1000; do
        rm -rf bin lists apt.log
        fake_system $user
        fake_apt
        fake sudo 'exit 1'
        echo 'run  lacking?  no-such-command' >>packages.txt
        ((user == 0)) || touch lists # nobody who may update them
        run env PATH="$PWD/bin" ./deps.sh run
        echo "$output"
        [ "${lines[-1]}" = 'Left out, not in this release: lacking' ]
        if ((user == 0)); then
            [ "$status" -eq 0 ]
            [ "$(tail -n 1 apt.log)" = 'apt-get install -y -qq --no-install-recommends wanted (noninteractive)' ]
        else
            [ "$status" -eq 1 ]
            [ "${lines[0]}" = "Needed, and not installed: wanted. Type: sudo sh -c 'apt-get update && apt-get install -y wanted'" ]
        fi
    done
    # If nothing else is missing, nothing is installed.
    : >bin/wanted-command && chmod +x bin/wanted-command
    run env PATH="$PWD/bin" ./deps.sh run
    [ "$status" -eq 0 ]
    [ "$output" = 'Left out, not in this release: lacking' ]
    [ ! -e apt.log ]
    # A release that has it gets it.
    sed -i 's/lacking/other/' packages.txt
    run env PATH="$PWD/bin" ./deps.sh run
    [ "$status" -eq 1 ]
    [ "$output" = "Needed, and not installed: other. Type: sudo sh -c 'apt-get update && apt-get install -y other'" ]
}

@test "deps: without apt-get it names what is missing and goes on" {
    fake_system 1000
    run env PATH="$PWD/bin" ./deps.sh run
    [ "$status" -eq 0 ]
    [ "$output" = "Needed, and not found: wanted (Debian's names; there is no apt-get here)" ]
}

# --- for real ---

# find_digits: sets $digits, or skips the test.
find_digits() {
    for digits in "${digits_given:-none}" "$repository"/data/{mnist,synthetic}; do
        ! compgen -G "$digits/t10k-labels-idx1-ubyte*" >/dev/null || return 0
    done
    skip 'no digits in $MNIST_DIR or data/'
}

# copy_stage NAME: it replaces those that pretend.
copy_stage() {
    rm -r stages
    mkdir -p "stages/$1"
    cp "$repository"/stages/*.[ch] stages
    grep -v ^baseline "$repository/stages/ladder.toml" >stages/ladder.toml
    cp -r "$repository/common" .
    cp "$repository/stages/$1"/{Makefile,train.c} "stages/$1"
}

@test "the first stage trains under run_all.sh on the digits there are" {
    find_digits
    copy_stage 00_serial
    run ./run_all.sh --data "$digits" --output results --hidden 2 --batch 128 --epochs 1 --repeats 2
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(row_count)" -eq 2 ]
    grep -q '^  00_serial  *0\.[0-9]* [-+~]' results/tables.txt
}

@test "a quota on processor time, as a container has, limits the threads" {
    # Of control groups of version 2 and 1, with a group above; seen from within a container; none.
    mkdir -p top/{a/b,cpu/docker/x}
    echo '0::/a/b' >two
    printf '%s\n' '12:cpuset:/' '4:cpu,cpuacct:/docker/x' '0::/elsewhere' >one
    echo '0::/../outside' >within
    echo 'max 100000' >top/a/b/cpu.max
    quotas() {
        python3 -c 'import sys; sys.path.insert(0, "harness"); import ladders; from pathlib import Path
print(*(ladders.quota(Path(groups), Path("top").absolute()) for groups in ("two", "one", "within", "missing")))'
    }
    [ "$(quotas)" = 'None None None None' ]
    echo '450000 100000' >top/a/b/cpu.max
    echo -1 | tee top/cpu/cpu.cfs_quota_us >top/cpu/docker/x/cpu.cfs_quota_us
    echo 50000 | tee top/cpu/cpu.cfs_period_us >top/cpu/docker/x/cpu.cfs_period_us
    [ "$(quotas)" = '4 None None None' ]
    echo '300000 100000' >top/a/cpu.max
    echo 25000 >top/cpu/docker/x/cpu.cfs_quota_us
    [ "$(quotas)" = '3 1 None None' ]
    echo '1600000 100000' >top/cpu.max
    [ "$(quotas)" = '3 1 16 None' ]
    # The sweep takes it, if nothing else is said.
    sed -i 's/^def processors/quota = lambda: 3\nos.sched_getaffinity = lambda _: range(8)\n\n&/' \
        harness/ladders.py
    options=(--output results --hidden 8 --batch 4 --repeats 1 --stages 01)
    ./run_all.sh "${options[@]}"
    [ "$(threads_of 01_two)" = ' 1x8:3' ]
    grep -qx 'threads: 3' results/machine.txt
    ./run_all.sh "${options[@]}" --threads 5
    [ "$(threads_of 01_two)" = ' 1x8:5' ]
    OMP_NUM_THREADS=4 ./run_all.sh "${options[@]}"
    [ "$(threads_of 01_two)" = ' 1x8:4' ]
    sed -i 's/lambda: 3$/lambda: 9/' harness/ladders.py
    ./run_all.sh "${options[@]}"
    [ "$(threads_of 01_two)" = ' 1x8:1' ] # what a fake says without a number
}

@test "each thread has a core of its own, among those that the sweep may use" {
    command -v taskset >/dev/null || skip 'found no taskset (util-linux)'
    find_digits
    copy_stage 02_openmp
    read -ra cpus < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)))')
    export OMP_DISPLAY_AFFINITY=true OMP_AFFINITY_FORMAT='thread %n of %N on %A'
    sweep() { # taskset's words
        run taskset "$@" ./run_all.sh --data "$digits" --output results --threads 1,2,4 \
            --hidden 256 --batch 32 --epochs 1 --train 64 --test 8 --repeats 1
        echo "$output"
        [ "$status" -eq 0 ]
    }
    # A mask of one core has one thread there, whatever --threads says.
    for cpu in "${cpus[0]}" "${cpus[-1]}"; do
        sweep -c "$cpu"
        [ "$(threads_of 02_openmp)" = ' 1x256:1' ]
    done
    cores=$(for cpu in "${cpus[@]}"; do
        cat "/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list"
    done | sort -u | wc -l)
    ((cores > 1)) || skip 'one core'
    # A mask of 32 bits may have more than there are cores.
    sweep ffffffff
    [ "$(threads_of 02_openmp | cut -c 1-16)" = ' 1x256:1 1x256:2' ]
    [ "$(grep -c '^thread [01] of 2 on' <<<"$output")" -eq 2 ]
    [ "$(grep '^thread [01] of 2 on' <<<"$output" | cut -d' ' -f6 | sort -u | wc -l)" -eq 2 ]
}

@test "another system than Linux: one line, from make and from run_all.sh" {
    mkdir bin
    printf '#!/bin/sh\necho Darwin\n' >bin/uname
    chmod +x bin/uname
    PATH=$PWD/bin:$PATH run make --no-print-directory
    [ "$status" -ne 0 ]
    [[ $output == *'needs Linux, found Darwin'* && ${#lines[@]} == 1 ]]
    PATH=$PWD/bin:$PATH run ./run_all.sh
    [ "$status" -eq 2 ]
    [[ $output == *'needs Linux, found Darwin'* && ${#lines[@]} == 1 ]]
}
