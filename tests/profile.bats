#!/usr/bin/env bats
# Tests `make profile` in a copy of the repository: what it writes about a stage that a student added, and
# what it asks of Nsight Compute, which is a fake here.
# shellcheck disable=SC2016 # the fakes are scripts in single quotes

setup() {
    repository=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
    tree=$(mktemp -d -t 'a b=c.XXXXXX') # a path that pprof and env would stumble over
    mkdir "$tree"/{stages,bin}
    cp "$repository"/stages/training* "$tree/stages"
    grep -v ^baseline "$repository/stages/ladder.toml" >"$tree/stages/ladder.toml"
    ln -s "$repository/data" "$tree/data"
    cp -r "$repository"/{common,harness,Makefile,deps.sh,packages.txt} "$tree"
    cd "$tree" || return
    export OFFLINE=1 # without MNIST, the drawn digits will do
    unset MAKEFLAGS STUDY MNIST_DIR OMP_NUM_THREADS CC NVCC
}

teardown() {
    rm -rf "$tree"
}

fake() {
    printf '#!/usr/bin/env bash\n%s\n' "$2" >"bin/$1"
    chmod +x "bin/$1"
    PATH=$tree/bin:$PATH
}

need_gperftools() {
    command -v google-pprof || skip "found no google-pprof (packages.txt)"
    gcc -E -include gperftools/profiler.h -x c /dev/null >/dev/null ||
        skip 'found no gperftools/profiler.h (libgoogle-perftools-dev)'
}

@test "a threaded stage: functions, lines, flame graph, heap" {
    need_gperftools
    mkdir stages/07_mine
    cp "$repository"/stages/02_openmp/{Makefile,train.c} stages/07_mine
    CPU_SECONDS=1 harness/start.py profile 07 >said
    # The functions of cpu.txt's first lines.
    grep -qE "^07_mine: most time in $(sed -nE '/%/ { s/.*% //; s/[()]/./g; p; q }' \
        profiles/mine/07_mine/cpu.txt) [0-9]+%, .*lines.txt.*flame.svg" said
    cd profiles/mine/07_mine
    cat cpu.txt heap.txt

    # Each thread was sampled, at most 250 times in a second of its time. On a busy machine, where no
    # thread runs for long, it is less.
    read -r total cpu main others < <(sed -nE \
        's/^samples: ([0-9]+) of ([0-9.]+) s .* main thread ([0-9]+), other threads ([0-9]+)$/\1 \2 \3 \4/p' cpu.txt)
    awk -v n="$total" -v s="$cpu" 'BEGIN { exit !(n > 20 * s && n < 280 * s) }'
    [ $((main + others)) -eq "$total" ]
    [[ $(nproc) == 1 ]] || ((others > total / 10))

    # Self samples add up. The products are among the first, inlined or not, and have lines.
    [ "$(awk '/%.*%/ { sum += $1 } END { print sum }' cpu.txt)" -eq "$total" ]
    grep '%.*%' cpu.txt | head -n 8 | grep -qE ' (forward|backward)'
    grep -qE '^function: (forward|backward).*, stages/07_mine/train.c$' lines.txt
    grep -qE '^ *[0-9]+ +[0-9.]+% +[0-9]+  .*(\+|-)= ' lines.txt
    # The other product is below it. All lines are those of the source.
    awk -v n="$total" '/^other lines/ { others = 1 } others && /%/ { sum += $1 }
        END { exit !(sum > n / 10) }' lines.txt
    sed -nE 's/^ *[0-9]+ +[0-9.]+% +([0-9]+)  /\1 /p' lines.txt | while read -r number line; do
        [ "$(sed -nE "$number { s/^ *//; s/ *\$//; p }" "$repository/stages/02_openmp/train.c")" = "$line" ]
    done

    # The weights and the images.
    grep -qE '^peak: 1[0-9]{2}\.[0-9] MiB' heap.txt
    # The use over time: up to the peak, and down to next to nothing.
    [ "$(grep -cE '^ +[0-9]+\.[0-9]{2} +[0-9]+\.[0-9]{3}$' heap.txt)" -ge 3 ]
    grep -E '^ +[0-9]+\.[0-9]{2} +[0-9]+\.[0-9]{3}$' heap.txt | sort -csnk1,1
    grep -qE '^ +[0-9]+\.[0-9]{2} +1[0-9]{2}\.[0-9]{3}$' heap.txt
    grep -qE '^ +[0-9]+\.[0-9]{2} +0\.[0-9]{3}$' heap.txt
    grep -qE '^ +0\.766  stages/07_mine/train.c:[0-9]+ .*weights1' heap.txt

    for title in "all: $total samples, 100.0 %<" 'main: ' forward backward; do
        grep -q "<title>$title" flame.svg
    done

    # The stacks are the same samples.
    [ "$(awk '{ sum += $NF } END { print sum }' stacks.txt)" -eq "$total" ]
    grep -qE '^([^;]+;)*(forward|backward)[^;]* [0-9]+$' stacks.txt
    # speedscope takes a file for stacks if each line ends with a space and a number, and the Firefox
    # Profiler if the first line does.
    run grep -vE '^[^;]+(;[^;]+)* [1-9][0-9]*$' stacks.txt
    [ "$status" -eq 1 ]
    [ ! "$(sed 's/ [0-9]*$//' stacks.txt | uniq -d)" ]

    # No file names a path of this machine.
    run grep -rF -e "$tree" -e "$repository" -e /tmp/ -e /usr/ -e /lib/ -e /home/ .
    [ "$status" -eq 1 ]
}

@test "a study: its option grows until there are enough samples, its results go to its folder" {
    need_gperftools
    mkdir -p studies/fake/00_only stages/07_mine
    touch stages/07_mine/{train.c,Makefile}
    printf '%s\n' 'title = "Fake"' 'program = "run"' 'time = "time_s"' '[profile]' 'samples = 30' \
        'seconds = 1' '[settings]' 'seconds = 0.1' '[[axes]]' 'option = "samples"' 'name = "Samples"' 'values = [20]' \
        >studies/fake/ladder.toml
    printf 'run: run.c\n\tgcc -O2 -g -o run "$$PWD/run.c"\n' >studies/fake/00_only/Makefile
    cat >studies/fake/00_only/run.c <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static __attribute__((noinline)) long work(double seconds) {
    long sum = 0;
    while (clock() < seconds * CLOCKS_PER_SEC)
        for (int i = 0; i < 10000; ++i)
            sum += i ^ sum;
    return sum;
}

// --samples 30 --seconds 1 [--seconds N] --csv FILE --quiet: works for N / 10 seconds.
int main(int argc, char **argv) {
    volatile long result = work(atof(argv[argc - 4]) / 10);
    FILE *csv = fopen(argv[argc - 2], "w");
    fprintf(csv, "threads,dataset\n1,drawn\n");
    return fclose(csv) + 0 * result;
}
END
    STUDY=fake CPU_SECONDS=1 harness/start.py profile
    cd studies/fake/profiles/mine/00_only
    grep -qE '^00_only, samples 30, seconds 1[0-9], drawn, threads 1$' cpu.txt
    read -r total cpu < <(sed -nE 's/^samples: ([0-9]+) of ([0-9.]+) s .*/\1 \2/p' cpu.txt)
    awk -v n="$total" -v s="$cpu" 'BEGIN { exit !(s >= 1 && s < 2 && n > 20 * s && n < 280 * s) }'
    awk -v n="$total" '$NF == "work" { found = $1 } END { exit !(found > 0.5 * n) }' cpu.txt
    grep -q '^function: work, studies/fake/00_only/run.c$' lines.txt

    # Of all ladders, those that have a committed profile get another one. 07_mine has none.
    cd "$tree"
    mkdir studies/fake/profiles/00_only
    CPU_SECONDS=1 harness/start.py profile --committed
    [ "$(ls studies/fake/profiles/00_only)" = "$(ls studies/fake/profiles/mine/00_only)" ]
    [ ! -e profiles/07_mine ]
}

@test "a stage that is not there, or a wrong value" {
    mkdir stages/0{7,8}_mine
    touch stages/0{7,8}_mine/{train.c,Makefile}
    for wrong in 9 0 mine --what; do
        run harness/start.py profile $wrong
        [ "$status" -eq 2 ]
        [ "${#lines[@]}" -eq 1 ]
    done
    CPU_SECONDS=0 run harness/start.py profile
    [[ $status == 2 && $output == "profile: CPU_SECONDS: found '0', expected a whole number from 1" ]]
    run make profile STAGE=9
    [[ $output == *"STAGE: found '9', expected one of: 07_mine 08_mine"* ]]
    run make profile STUDY=none
    [[ $output == *"STUDY: found 'none', expected one of: stages"* ]]
}

@test "a stage that fails: what it said, and 1" {
    need_gperftools
    mkdir stages/07_mine
    touch stages/07_mine/train.c
    printf 'train:\n\tprintf "#!/bin/sh\\necho broken >&2; exit 3\\n" >train; chmod +x train\n' \
        >stages/07_mine/Makefile
    run harness/start.py profile 07
    [ "$status" -eq 1 ]
    [[ $output == *$'broken\nprofile: 07_mine failed' ]]
}

@test "the GPU: ncu's table" {
    mkdir stages/08_gpu
    touch stages/08_gpu/train{.cu,}
    echo 'train:' >stages/08_gpu/Makefile
    cp -r stages/08_gpu stages/09_gpu
    fake nvidia-smi '[[ $1 != -L ]] && echo "A GPU, 8 GiB, 1.0" || echo "GPU 0: a GPU"'
    fake nvcc 'echo release 12'
    fake ncu 'echo "$*" >ncu.log; echo "==PROF== $PWD/train"; echo "forward_tile 1.5 us"'
    run make profile-gpu STAGE=08
    [ "$status" -eq 0 ]
    grep -q -- '--metrics gpu__time_duration.sum,.* stages/08_gpu/train ' ncu.log
    grep -qx 'forward_tile 1.5 us' profiles/mine/08_gpu/kernels.txt
    grep -qx 'gpu: A GPU, 8 GiB, 1.0' profiles/mine/08_gpu/kernels.txt
    grep -q -- '--cache-control none --clock-control none' ncu.log
    run grep "$tree" profiles/mine/08_gpu/kernels.txt
    [ "$status" -eq 1 ]

    fake ncu 'echo "==ERROR== ERR_NVGPUCTRPERM - no permission"; exit 1'
    run harness/start.py profile --gpu 08_gpu
    [ "$status" -eq 1 ]
    [[ $output == *ERR_NVGPUCTRPERM* ]]
    for wrong in 0 07; do
        run harness/start.py profile --gpu "$wrong"
        [ "$status" -eq 2 ]
    done
}

# Twelve kernels of 2 us. In the last third of them, each comes 3 us after the one before has ended.
@test "the GPU: the gaps between kernels, from a timeline" {
    mkdir stages/08_gpu
    touch stages/08_gpu/train{.cu,}
    echo 'train:' >stages/08_gpu/Makefile
    fake nvidia-smi '[[ $1 != -L ]] && echo "A GPU, 8 GiB, 1.0" || echo "GPU 0: a GPU"'
    fake nvcc 'echo release 12'
    fake ncu 'echo "$*" >ncu.log'
    if ! command -v nsys >/dev/null; then
        run harness/start.py profile --gpu 08
        [ "$status" -eq 0 ]
        [[ $output == *'08_gpu: found no nsys'* && -e profiles/mine/08_gpu/kernels.txt ]]
    fi

    fake nsys 'echo "$*" >>nsys.log
        [[ $1 == stats ]] || exit 0
        echo "Processing [timeline.sqlite] with [cuda_gpu_trace.py]..."
        echo "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,Name"
        echo "500,100,1,,,,,[CUDA memcpy Host-to-Device]"
        for i in {0..7}; do echo "$((i * 100000 + 1000)),2000,2,1,1,1,32,\"f(int, int)\""; done
        for i in 0 1 2 3; do echo "$((i * 5000 + 1000000)),2000,2,1,1,1,32,\"f(int, int)\""; done'
    run harness/start.py profile --gpu 08
    [ "$status" -eq 0 ]
    grep -q -- 'profile --trace=cuda .*stages/08_gpu/train ' nsys.log
    cat profiles/mine/08_gpu/gaps.txt
    grep -qx 'kernels: 4 in 0.017 ms, 4.25 us from one to the next' profiles/mine/08_gpu/gaps.txt
    grep -qx 'without a kernel: 52.9% of this time' profiles/mine/08_gpu/gaps.txt
    grep -q '^gap before a kernel: median 3.00 us, half of them from 3.00 to 3.00 us, longest 3.0' \
        profiles/mine/08_gpu/gaps.txt
    grep -qx 'gpu: A GPU, 8 GiB, 1.0' profiles/mine/08_gpu/gaps.txt
    rm bin/ncu profiles/mine/08_gpu/*
    if ! command -v ncu >/dev/null; then
        run harness/start.py profile --gpu 08
        [ "$status" -eq 0 ]
        [[ $output == *'08_gpu: found no ncu'* && -e profiles/mine/08_gpu/gaps.txt ]]
    fi
    run grep -r "$tree" profiles/mine/08_gpu/gaps.txt
    [ "$status" -eq 1 ]
}
