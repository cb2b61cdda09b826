#!/usr/bin/env bats
# Tests `make gpu`: what it runs, in which order, and what becomes of a part that fails or runs out
# of time. First with fakes, then with real stages, for which the simulated device takes the place of
# nvcc and of a GPU.
# shellcheck disable=SC2016 # the fakes are scripts in single quotes

setup() {
    repository=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
    tree=$(mktemp -d)
    mkdir -p "$tree"/{bin,stages/peers}
    cp "$repository/Makefile" "$tree"
    cp -r "$repository/harness" "$tree"
    cd "$tree" || return
    unset MAKEFLAGS MNIST_DIR NVCC RESULTS PART LIMIT SWEEP OMP_NUM_THREADS CUDA_ARCH
    export OFFLINE=1
    fake nvidia-smi '[[ $1 == -L ]] && echo "GPU 0: A GPU" || echo "A GPU, 8 GiB, 1.0, 1, 1, 1"'
}

teardown() {
    rm -rf "$tree"
}

fake() {
    printf '#!/usr/bin/env bash\n%s\n' "$2" >"bin/$1"
    chmod +x "bin/$1"
    PATH=$tree/bin:$PATH
}

# fake_parts [COMMANDS]: stages that cannot be built, and a run_all.sh that runs the commands.
fake_parts() {
    for stage in 03_a 03.1_step 04_b; do
        mkdir "stages/$stage"
        touch "stages/$stage/"{Makefile,train.cu}
    done
    grep -v ^baseline "$repository/stages/ladder.toml" >stages/ladder.toml
    fake make 'echo "${RESULTS:+RESULTS=$RESULTS }make $*" >>calls; [[ $* != "${FAILING:-}" ]]'
    printf '#!/usr/bin/env bash\necho "run_all.sh $*" >>calls\n%s\n' "${1:-}" >run_all.sh
    chmod +x run_all.sh
}

@test "all parts in the order of their worth, the steps without a profile" {
    fake_parts
    SWEEP='--hidden 32' run harness/gpu.sh
    echo "$output"
    [ "$status" -eq 0 ]
    diff calls - <<END
make --jobs=$(nproc) --keep-going all
make --keep-going -C stages/peers
make -C bench
make test-gpu
run_all.sh --gpu --repeats 1 --hidden 32
run_all.sh --gpu --steps --resume --hidden 32
run_all.sh --gpu --peers --resume --hidden 32
make bench
RESULTS=profiles make profile-gpu STAGE=03_a
RESULTS=profiles make profile-gpu STAGE=04_b
make report
END
    [[ ${lines[-1]} =~ ^'part 8, report: '[0-9]+' s, done'$ ]]
}

@test "the limits of the parts: none over nine minutes, all under 25" {
    fake_parts
    run harness/gpu.sh
    limits=$(sed -nE 's/^--- part .*: at most ([0-9]+) s$/\1/p' <<<"$output")
    [ "$(wc -l <<<"$limits")" -eq 8 ]
    awk '$1 > 540 { exit 1 } { sum += $1 } END { exit !(sum < 25 * 60) }' <<<"$limits"
}

@test "PART names the parts" {
    fake_parts
    run harness/gpu.sh 2 report
    [ "$status" -eq 0 ]
    [ "$(paste -sd' ' calls)" = 'make test-gpu make report' ]
    rm calls
    run /usr/bin/make gpu PART=once # not bin/make, which only writes down what it should do
    [ "$status" -eq 0 ]
    [ "$(<calls)" = 'run_all.sh --gpu --repeats 1' ]
    run harness/gpu.sh 9
    [ "$status" -eq 2 ]
    [ "$output" = "gpu.sh: PART: found '9', expected 1 to 8, or one of: build test once steps grid bench profile report" ]
}

@test "a part that fails does not stop the next" {
    fake_parts
    FAILING=test-gpu run harness/gpu.sh 2 6
    [ "$status" -eq 1 ]
    [[ $output == *'part 2, test: '*' s, failed'* && ${lines[-1]} == 'part 6, bench: '*' s, done' ]]
}

@test "a part whose time runs out may end what it does, and the next begins" {
    fake_parts 'trap "sleep 0.5; echo kept >>calls; exit 143" TERM
        for _ in {1..600}; do sleep 0.1; done'
    LIMIT=1 run harness/gpu.sh 3 8
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(paste -sd, calls)" = 'run_all.sh --gpu --repeats 1,kept,make report' ]
    [[ $output == *'part 3, once: '*' s, time ran out, what it has done is kept'* ]]
}

@test "a signal ends the part and the rest" {
    fake_parts 'trap "sleep 0.5; echo kept >>calls; exit 143" TERM; touch started
        for _ in {1..600}; do sleep 0.1; done'
    harness/gpu.sh 3 8 3>&- &
    for _ in {1..100}; do [ ! -e started ] || break; sleep 0.1; done
    kill $!
    status=0
    wait $! || status=$?
    [ "$status" -eq 130 ]
    [ "$(paste -sd, calls)" = 'run_all.sh --gpu --repeats 1,kept' ]
}

@test "without a GPU: one line, and 77" {
    fake_parts
    fake nvidia-smi 'exit 9'
    run harness/gpu.sh
    [ "$status" -eq 77 ]
    [ "$output" = 'gpu.sh: found no GPU (nvidia-smi lists none)' ]
    [ ! -e calls ]
}

# nvcc for stages only. What else it compiles says that the GPU is gone.
@test "with the simulated device: rows and tables, also of a part that is cut short" {
    [[ ${FULL:-} ]] || skip 'FULL=1 runs it'
    "$BATS_TEST_DIRNAME/clean_copy.sh" "$tree/copy" || skip 'found no git checkout'
    fake nvcc '
[[ $* != *--version* ]] || { echo "Cuda compilation tools, release 13.0, V13"; exit; }
while [[ $1 != -o ]]; do shift; done
if [[ -e ../ladder.toml && $PWD != */peers ]]; then
    make -s sim OUTPUT="$2.fake" && mv "$2.fake.sim" "$2"
else
    printf "#!/bin/sh\nexit 77\n" >"$2" && chmod +x "$2"
fi'
    cd copy
    rm -rf studies stages/peers/peer_*.py stages/0[1245]* stages/0[3].* stages/0[6-9]* stages/1*
    make -s -C data
    data/synthesize --train 64 --test 20 "$tree/digits"
    export MNIST_DIR=$tree/digits SIM_NAME='A GPU' OFFLINE=1
    SWEEP='--hidden 8,9 --batch 16 --epochs 1 --train 64 --test 20'
    export SWEEP
    LIMIT=240 run make gpu PART='build once'
    echo "$output"
    [ "$status" -eq 0 ]
    results=$(echo report/results/*-a-gpu*/stages)
    [ "$(cut -d, -f1,2,4 "$results/runs.csv" | paste -sd' ')" = \
        'stage,device,hidden 03_cuda_unified,A GPU,8 03_cuda_unified,A GPU,9' ]
    grep -q '^1,gpu before,' "$results/sweeps.csv"
    grep -q '^1,gpu after,' "$results/sweeps.csv"
    grep -q '^ *03_cuda_unified' "$results/tables.txt"
    LIMIT=9 run make gpu PART='grid report'
    echo "$output"
    [[ $output == *'part 5, grid: '* && $output == *'part 8, report: '* ]]
    (($(wc -l <"$results/runs.csv") > 5)) # more repeats, of both cells
    grep -q '^2,began,' "$results/sweeps.csv"
    grep -q '^ *03_cuda_unified' "$results/tables.txt"
}
