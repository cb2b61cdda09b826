#!/usr/bin/env bats
# Tests that a ladder is a folder: what harness/ladders.py finds, and that everything works on a
# ladder of which no line stands elsewhere.

setup() {
    repository=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
    dir=$(mktemp -d -t "a b'c\$d(e#f:g=h[i].XXXXXX") # the commands work in any path
    unset MAKEFLAGS
}

teardown() {
    rm -rf "$dir"
}

# Makes the stages NAME.c or NAME.cu in the folder of a ladder.
make_stages() {
    local ladder=$1 stage
    mkdir -p "$ladder"
    cp "$repository/tests/pi/ladder.toml" "$ladder"
    for stage in "${@:2}"; do
        mkdir "$ladder/${stage%.c*}"
        touch "$ladder/${stage%.c*}"/{Makefile,"run.${stage##*.}"}
    done
}

# Goes to a repository with two ladders, of which the second has steps.
make_ladders() {
    mkdir "$dir/harness"
    cp "$repository"/harness/{interrupts,ladders,shape,step}.py "$dir/harness"
    cd "$dir" || return
    make_stages stages 00_serial.c 02_gpu.cu
    make_stages studies/other 00_serial.c 01_vectorized.c 01.2_wide.c 01.1_order.c 02_gpu.cu 02_gpu_too.cu
    mkdir -p studies/{no_ladder/00_serial,other/peers,other/03_no_source} stages/04_no_makefile
    touch studies/other/03_no_source/Makefile stages/04_no_makefile/run.c
}

# finds WORDS ARGUMENT...: harness/ladders.py prints these words.
finds() {
    diff <(xargs -n 1 <<<"$1") <(harness/ladders.py "${@:2}" | xargs -n 1)
}

# fails MESSAGE ARGUMENT...: harness/ladders.py ends with 2 and this message.
fails() {
    run harness/ladders.py "${@:2}"
    [[ $status == 2 && $output == "ladders.py: $1" ]] || {
        echo "exit status $status, expected 2 and '$1', found '$output'"
        return 1
    }
}

@test "ladders and stages are found in the order in which they are read" {
    make_ladders
    finds 'stages other' ladders
    finds 'stages/00_serial stages/02_gpu' stages stages
    other=studies/other
    finds "$other/00_serial $other/01.1_order $other/01.2_wide $other/01_vectorized $other/02_gpu
        $other/02_gpu_too" stages other
    finds "stages/00_serial $other/00_serial $other/01.1_order $other/01.2_wide
        $other/01_vectorized" stages --cpu
    finds "$other/02_gpu $other/02_gpu_too" stages --cuda other
}

@test "a stage is found by its name, its number, or a beginning that is its own" {
    make_ladders
    other=studies/other
    finds 'stages/00_serial' stages '' 00
    finds 'stages/02_gpu' stages stages 02_gpu
    for wanted in 01 01_v 01_vectorized; do
        finds "$other/01_vectorized" stages other $wanted
    done
    finds "$other/01.2_wide $other/02_gpu" stages other 01.2 02_gpu
}

# before STAGE: prints what a stage of the second ladder is compared with.
before() {
    PYTHONPATH=harness python3 -c '
import ladders, sys
print(ladders.find_ladder("other").find(sys.argv[1]).before.name)' "$1"
}

@test "a stage is compared with the one before it, or with its origin" {
    make_ladders
    [[ $(before 01) == 01.2_wide && $(before 01.2) == 01.1_order && $(before 02_gpu) == 01_vectorized ]]
    echo 'ORIGIN = 00_serial' >studies/other/02_gpu/Makefile
    [[ $(before 02_gpu) == 00_serial ]]
}

@test "what is not found is named in one line, with what there is" {
    make_ladders
    all='00_serial 01.1_order 01.2_wide 01_vectorized 02_gpu 02_gpu_too'
    fails "STAGE: found '03', expected one of: $all" stages other 03
    fails "STAGE: found '', expected one of: $all" stages other ''
    fails "STAGE: found '02', expected more of a name of: 02_gpu 02_gpu_too" stages other 02
    for words in '' step 'diff other' 'new other 00' 'asm other 00 forward more' 'setp other 00'; do
        # shellcheck disable=SC2086 # several words
        run harness/step.py $words
        [[ $status == 2 && $output == "step.py: found '$words', expected: step STUDY STAGE, "* && ${#lines[@]} == 1 ]]
    done
    run harness/step.py new '' x 20_mine
    [[ $status == 2 && $output == "step.py: FROM: found 'x', expected one of: 00_serial 02_gpu" ]]
    fails "STUDY: found 'third', expected one of: stages other" stages third
    echo 'ORIGIN = 77_gone' >studies/other/02_gpu/Makefile
    run harness/step.py diff other 02_gpu
    [[ $status == 2 && $output == "step.py: ORIGIN in studies/other/02_gpu/Makefile: found '77_gone', expected one of: $all" ]]
    sed -i '/^time/d' studies/other/ladder.toml
    fails "studies/other/ladder.toml: time: found nothing, expected a column that ends in _s; see stages/ladder.toml" ladders
    rm -r studies/other stages/0*
    fails 'found no stages in stages' stages
}

@test "a mistake in a ladder.toml or in the name of a folder is one line" {
    python3 "$BATS_TEST_DIRNAME/test_ladder_toml.py"
}

@test "a third ladder is a folder: it is built, tested, swept, tabled, compared and drawn" {
    "$repository/tests/clean_copy.sh" "$dir"
    cd "$dir"
    mkdir -p studies
    cp -r tests/pi studies/
    export NVCC=no-nvcc

    [[ $(make -n) == *' studies/pi/01_unrolled'* ]]
    make studies/pi/{00_serial,01_unrolled}
    [[ -x studies/pi/00_serial/run && -x studies/pi/01_unrolled/run ]]
    make -s -C tests build/{pi/reference,many_processors.so,pi/01_unrolled.sanitized}
    tests/stages.py stages studies/pi/0* | grep -qx '8 tests, all right'
    tests/stages.py sanitized tests/build/pi/01_unrolled.sanitized
    [[ $(FULL=1 make -C tests -n check-sanitized) == *build/pi/00_serial.sanitized* ]]

    ./run_all.sh --study pi --quick >output
    grep -q '^  01_unrolled ' output
    results=$(echo report/results/*-quick/pi)
    head -n 1 "$results/runs.csv" | grep -q '^stage,device,threads,terms,dataset,'
    (($(wc -l <"$results/runs.csv") >= 1 + 2 * 2))
    python3 harness/tables.py "$results/runs.csv" | grep -q '^  01_unrolled '

    make -s compare STUDY=pi A=00 B=01 RUNS=8 TERMS=100000 >output
    grep -q '^median  *00_serial  *01_unrolled' output
    for target in step diff; do
        make -s "$target" STUDY=pi STAGE=01 >output
        grep -qx '+    double sums\[4\] = {0};' output
    done
    make -s new-stage STUDY=pi FROM=01 NAME=02_mine >output
    grep -qx '02_mine: right, 5 tests' output
    sed -i 's/2\.0 \* k + 1/2.0 * k + 3/' studies/pi/02_mine/run.c
    run make -s check STUDY=pi STAGE=02_mine
    [[ $status != 0 && $output == *'02_mine: WRONG (--terms 1)'*'WRONG '*' 1.33333 '*' 4'* ]]
    rm -r studies/pi/02_mine

    if command -v pandoc && PATH=/usr/bin:$PATH python3 -c 'import matplotlib, pygments' 2>/dev/null; then
        # A quick look is in the page.
        make -s report 2>written
        grep -q "index.html (with .*this machine's quick look)" written
        grep -q 'Pi, by Leibniz' report/index.html
        grep -q 'This is a quick look' report/index.html
        [[ ${FULL:-} ]] || return 0
        mv "${results%/pi}" "${results%-quick/pi}-test"
        make -s report
        compgen -G 'report/results/*-test/pi/plots/*.svg'
    fi
}
