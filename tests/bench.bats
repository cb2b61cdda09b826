#!/usr/bin/env bats
# Tests bench/ in short runs: its programs measure what they say, and compare finds a difference only
# where there is one.
# shellcheck disable=SC2016 # the fakes are scripts in single quotes

setup() {
    repository=$BATS_TEST_DIRNAME/..
    bench=$repository/bench
    dir=$(mktemp -d)
    export OFFLINE=1 # without MNIST, the drawn digits will do
    unset MAKEFLAGS FILTER
}

needs_library() {
    g++ -E -include benchmark/benchmark.h -x c++ /dev/null >/dev/null 2>&1 ||
        skip "found no g++ or no libbenchmark-dev"
}

teardown() {
    rm -rf "$dir"
}

@test "the programs build" {
    needs_library
    make -s -C "$bench"
}

@test "the ceiling of more threads is printed, without the library of benchmarks" {
    make -s -C "$repository/harness" build/ceiling
    for threads in 1 3; do
        [[ $("$repository/harness/build/ceiling" $threads) =~ ^[1-9][.0-9]*e\+1[0-9]$ ]]
    done
}

@test "the GPU's programs compile" {
    [[ ${FULL:-} ]] || skip 'FULL=1 runs it'
    needs_library
    nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || skip "found no nvcc"
    cd "$bench"
    for source in gpu_*.cu; do
        "$nvcc" -I.. '-DSTAGE="bench"' -std=c++17 -gencode=arch=compute_75,code=sm_75 \
            -gencode=arch=compute_90,code=sm_90 -Xcompiler -Wall,-Wextra,-Werror -Werror all-warnings -c -o "$dir/object" "$source"
    done
}

# The kernel as a function of the host. It is run for 4000 rounds, for 4001 and so on. is_wanted()
# sees the total of each run.
@test "the GPU's multiply-adds never come to rest, and stay finite" {
    {
        cat <<'END'
#include <cstdio>
enum { PAIRS = 4 };
static int ROUNDS;
static struct { unsigned x; } threadIdx = {3};
static bool is_wanted(float value) { printf("%.9g\n", value); return false; }
END
        sed -n '/^__global__ void multiply_adds/,/^}/p' "$bench/gpu_ceilings.cu" |
            sed 's/^__global__/static/; /#pragma/d'
        factor=$(sed -nE 's/.*multiply_adds<<<.*>>>\(([^,]*),.*/\1/p' "$bench/gpu_ceilings.cu")
        echo "int main() { for (ROUNDS = 4000; ROUNDS < 4020; ++ROUNDS) multiply_adds($factor, nullptr); }"
    } >"$dir/loop.cpp"
    g++ -o "$dir/loop" "$dir/loop.cpp"
    "$dir/loop" >"$dir/totals"
    cat "$dir/totals"
    [ "$(sort -u "$dir/totals" | wc -l)" -eq 20 ]
    run grep -E 'nan|inf|e\+' "$dir/totals"
    [ "$status" -eq 1 ]
}

@test "a filter that no benchmark matches: one line, also under make -j" {
    needs_library
    FILTER=nothing_of_that_name MAKEFLAGS='s -j2 --jobserver-auth=98,99' run "$bench/run.sh"
    [[ $status == 2 && ${#lines[@]} == 1 && ${lines[0]} == *nothing_of_that_name* ]]
}

# Makes a copy of what compare needs, with stages that only pretend to train.
make_fakes() {
    mkdir -p "$dir/data" "$dir/stages/peers"
    cp -r "$repository/harness" "$repository/Makefile" "$dir"
    # shellcheck disable=SC2016 # make expands these
    printf '%s\n' 'build/ceiling:; mkdir build; printf "#!/bin/sh\necho 1e9\n" >$@; chmod +x $@' >"$dir/harness/Makefile"
    rm -rf "$dir/harness/build"
    sed -i 's/^ROUNDING_S = .*/ROUNDING_S = 1e9/' "$dir/harness/running.py" # they take no time
    echo 'def check_cell(*_): pass' >"$dir/harness/verify.py"
    grep -v ^baseline "$repository/stages/ladder.toml" >"$dir/stages/ladder.toml"
    cp "$repository/data/"mnist.{set,py} "$dir/data"
    printf '#!/bin/sh\necho "$PWD/digits"\n' >"$dir/data/locate.sh"
    chmod +x "$dir/data/locate.sh"
    make_fake 00_slow 0.20 0.5
    make_fake 01_fast 0.10 0.5
    make_fake 02_wrong 0.10 0.7
}

# make_fake STAGE SECONDS LOSS [NOISE]
make_fake() {
    mkdir -p "$dir/stages/$1"
    printf 'train: train.c\n\tcp train.c train && chmod +x train\n' >"$dir/stages/$1/Makefile"
    cat >"$dir/stages/$1/train.c" <<END
#!/bin/bash
echo "$1 \$*" >>"$dir/calls"
while [[ \$1 != --csv ]]; do shift; done
row=\$(awk -v n="\$(wc -l <"$dir/calls")" 'BEGIN {
    srand(n); t = $2 * (1 + ${4:-0.01} * rand()); print t "," t / 2 "," t / 2 }')
columns=stage,device,threads,hidden,batch,epochs,learning_rate,seed,train_samples,test_samples
printf '%s\n' \$columns,dataset,train_s,forward_s,backward_s,final_loss,test_accuracy,gflops \
    "$1,cpu,1,7,64,1,0.1,1,60,10,mnist,\$row,$3,0.9,1" >"\$2"
END
}

@test "compare: the two in turn, each first in half of the pairs, with the options" {
    make_fakes
    RUNS=8 HIDDEN=7 "$dir/harness/start.py" compare 00 01_fast >"$dir/output"
    grep -q '^01_fast is [12]\.[09][0-9]*× ([12].* to 2.*) as fast as 00_slow, from 8 pairs' "$dir/output"
    [[ $(grep -c '^\(program\|processor\)  *[0-9.]* ms  *[0-9.]* ms' "$dir/output") == 2 ]]
    RUNS=4 HIDDEN=7 "$dir/harness/start.py" compare 00 01_fast >"$dir/few"
    grep -q 'range of only 4 pairs: it misses the true ratio in 12.5 of 100 cases' "$dir/few"
    head -n 18 "$dir/calls" >"$dir/first" && mv "$dir/first" "$dir/calls"
    [[ $(cut -c 1-2 "$dir/calls" | tail -n +3 | paste -sd' ') == \
        "00 01 01 00 00 01 01 00 00 01 01 00 00 01 01 00" ]]
    [[ $(grep -c -- '--hidden 7 --batch 64 --epochs 1' "$dir/calls") == 18 ]]
}

@test "compare: make passes any option of the ladder on" {
    make_fakes
    printf '#!/bin/sh\n' >"$dir/deps.sh"
    chmod +x "$dir/deps.sh"
    make -s -C "$dir" compare A=00 B=01 RUNS=8 HIDDEN=7 LEARNING_RATE=0.5 >"$dir/output"
    [[ $(grep -c -- '--hidden 7 --batch 64 --epochs 1 --learning-rate 0.5 --quiet' "$dir/calls") == 18 ]]
    grep -q '^hidden 7, batch 64, epochs 1, learning-rate 0.5, 8 runs of each in turn' "$dir/output"
}

@test "compare: a stage against itself, and one that computes something else" {
    make_fakes
    RUNS=8 "$dir/harness/start.py" compare 01 01 >"$dir/output"
    grep -q '^8 pairs of runs: no difference seen (0.9.* to 1.0.*)\.$' "$dir/output"
    run "$dir/harness/start.py" compare 01 02
    [[ $status == 1 && $output != *'difference'* ]]
    [[ ${lines[-1]} == 'compare: the two do not compute the same, so their times are not compared: final_loss is 0.5 in 01_fast and 0.7 in 02_wrong.'* ]]
}

@test "compare: times that cannot be right" {
    make_fakes
    sed -i 's/^ROUNDING_S = .*/ROUNDING_S = 1/' "$dir/harness/running.py"
    make_fake 01_fast 1000 0.5
    run "$dir/harness/start.py" compare 00 01
    [[ $status == 1 && ${#lines[@]} == 1 ]]
    [[ $output =~ ^"compare: 01_fast: its times cannot be right: train_s is "1[0-9.e+]+" s, more than the whole run by the harness's clock, 0."[0-9]+" s"$ ]]
}

@test "compare: a stage against a peer" {
    make_fakes
    printf '%s\n\t%s\n' 'peer_here: peer_here.c' 'cp $< $@ && chmod +x $@' \
        peer_gone: '@echo "$@: left out, not installed: no library"' >"$dir/stages/peers/Makefile"
    sed s/01_fast/peer_here/ "$dir/stages/01_fast/train.c" >"$dir/stages/peers/peer_here.c"
    touch "$dir/stages/peers/peer_gone.c"
    RUNS=8 "$dir/harness/start.py" compare 00 peer_here >"$dir/output"
    grep -q '^peer_here is [12]\..*× (.*) as fast as 00_slow' "$dir/output"
    run "$dir/harness/start.py" compare peer_gone 00
    [[ $status == 77 && ${lines[0]} == 'peer_gone: left out, not installed: no library' ]]
    [[ ${#lines[@]} == 2 && ${lines[1]} == *'peer_gone cannot run here: see above' ]]
}

@test "compare: no verdict on a busy machine" {
    make_fakes
    timeout 60 sh -c 'while :; do :; done' 3>&- &
    timeout 60 sh -c 'while :; do :; done' 3>&- &
    OTHERS='' RUNS=8 "$dir/harness/start.py" compare 01 00 >"$dir/output"
    kill %1 %2
    cat "$dir/output"
    grep -q '^No verdict: other programs used [1-9][0-9]* % of the processors meanwhile; close them' "$dir/output"
    OTHERS=x run "$dir/harness/start.py" compare 01 00
    [[ $status == 2 && $output == "compare: OTHERS: found 'x', expected a whole number from 0" ]]
}

@test "compare: a round in which the machine was slower is made again" {
    make_fakes
    # Every third time, the machine has two thirds of its rate. What the programs take is the same.
    # shellcheck disable=SC2016
    printf '%s\n' 'build/ceiling: ; mkdir build; cp slow $@; chmod +x $@' >"$dir/harness/Makefile"
    # shellcheck disable=SC2016
    printf '%s\n' '#!/bin/bash' 'echo >>"$0.calls"; n=$(wc -l <"$0.calls")' \
        '((n % 3 == 0 && n < LIMIT)) && echo 6e9 || echo 9e9' >"$dir/harness/slow"
    RATE='' LIMIT=9 RUNS=8 "$dir/harness/start.py" compare 01 00 >"$dir/output"
    grep -q ', 8 runs of each in turn' "$dir/output"
    [[ $(wc -l <"$dir/harness/build/ceiling.calls") == 20 ]] # two of ten rounds were disturbed
    RATE='' LIMIT=999 RUNS=8 "$dir/harness/start.py" compare 01 00 >"$dir/output"
    grep -q '^No verdict: the machine was disturbed in 8 of 12 rounds' "$dir/output"
}

@test "compare: an error is one line" {
    make_fakes
    run "$dir/harness/start.py" compare 01 7
    [[ $status == 2 && ${#lines[@]} == 1 && ${lines[0]} == *"B: found '7'"* ]]
    run "$dir/harness/start.py" compare 01 02 --study no_such
    [[ $status == 2 && ${#lines[@]} == 1 && ${lines[0]} == *"STUDY: found 'no_such'"* ]]
    for runs in 1 1_0 ١٠ ' 10' x; do
        RUNS=$runs run "$dir/harness/start.py" compare 01 01
        [[ $status == 2 && $output == "compare: RUNS: found '$runs', expected a whole number from 2" ]]
    done
    printf '#!/bin/sh\necho no usable device >&2\nexit 77\n' >"$dir/stages/01_fast/train.c"
    run "$dir/harness/start.py" compare 00 01
    [[ $status == 77 && ${#lines[@]} == 1 && ${lines[0]} == *"no usable device" ]]
}
