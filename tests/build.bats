#!/usr/bin/env bats
# Tests that make builds in any folder, with other flags, and with several goals at once. Also tests
# that scripts find their folder.
# shellcheck disable=SC2016 # names of folders, with signs that the shell would read

setup() {
    repository=$BATS_TEST_DIRNAME/..
    dir=$(mktemp -d)
    unset MAKEFLAGS MAKELEVEL NVCC
}

teardown() {
    rm -rf "$dir"
}

# Goes to a clean copy in a folder of this name.
clean_copy() {
    "$repository/tests/clean_copy.sh" "$dir/$1"
    cd "$dir/$1" || return
}

# test_ladder.py runs its commands in such a path, and check-readmes those of the READMEs.
@test "every compiler and preloading work in a path with signs that make and the shell interpret" {
    clean_copy 'a b'\''c$d(e#f:g=h[i];j%k&l\m'
    make -s -C stages/02_openmp
    make -s -C stages/03_cuda_unified sim
    if [[ ${FULL:-} ]] && PATH=$PATH:/usr/local/cuda/bin command -v nvcc; then
        make -s -C stages/03_cuda_unified CUDA_ARCH=sm_75
    fi
    make -s -C stages/peers peer_openblas
    make -s -C harness build/stages/reference build/many_processors.so
    harness/start.py verify builds stages/02_openmp
}

@test "a path that nvcc cannot read: one line, from make and from run_all.sh" {
    for name in 'a"b' 'a`b' 'a$(b' 'a${b'; do
        mkdir "$dir/$name"
        cp "$repository"/{Makefile,run_all.sh} "$dir/$name"
        for command in 'make --no-print-directory' ./run_all.sh; do
            cd "$dir/$name"
            run $command
            [[ $status == 2 && ${#lines[@]} == 1 ]]
            [[ $output == *"found the folder $PWD: nvcc cannot read a path with any of \" \` \$( \${"* ]]
        done
    done
}

@test "a value of any variable is text: make and the shell run nothing in it, and one line says so" {
    cd "$repository"
    export OFFLINE=1 STAGE=01 A=00 B=01 FROM=00 NAME=20_mine ASSIGNMENT=loop_order # what a target asks for besides the value
    value="x'; touch $dir/run; '\$(shell touch $dir/run)\`touch $dir/run\`\"; touch $dir/run; \""
    while IFS='=' read -r target name; do
        echo "make $target $name"
        run make --no-print-directory "$target" "$name=$value"
        echo "$output"
        [[ $status == 2 && ${lines[-2]} == *"x';"* && ${lines[-1]} == 'make: *** ['* ]]
        [[ ! -e $dir/run ]]
    done < <(make help | awk '{ for (i = 2; i <= NF; ++i) if ($i ~ /^\[?[A-Z]+=/) {
        gsub(/^\[|=.*/, "", $i); if ($i != "FULL" && $i != "ALL") print $1 "=" $i } }')
    for name in OUTPUT SOURCE; do
        run make -s -C stages/00_serial "$name=x';>$dir/run;'"
        [[ $status == 2 && $output == *"00_serial: found '"*"', expected names without spaces and '"* ]]
        [[ ! -e $dir/run ]]
    done
    run make "a';>$dir/run;'" "b\`>$dir/run\`"
    [[ $status == 2 && ! -e $dir/run ]]
}

# builds_anew_for_flags FILE VARIABLE=... ARGUMENT...: make with these arguments builds FILE again
# if the variable has another flag than last time. Otherwise make does nothing and prints nothing.
builds_anew_for_flags() {
    local file=$1 variable=$2 first
    shift 2
    make -s "$@" "$variable -O0 -DQUOTED='\"a b\"'"
    first=$(stat -c %y "$file")
    [[ -z $(make "$@" "$variable -O0 -DQUOTED='\"a b\"'" --no-print-directory) ]] &&
        [[ $(stat -c %y "$file") == "$first" ]] &&
        make -s "$@" "$variable -O0" &&
        [[ $(stat -c %y "$file") != "$first" ]]
}

@test "other flags, or another compiler, build again; the same do not" {
    clean_copy copy
    printf '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; : >"$2"\n' >compiler
    chmod +x compiler
    fake=../../compiler
    builds_anew_for_flags stages/00_serial/train CC=$fake -C stages/00_serial
    builds_anew_for_flags stages/02_openmp/train EXTRA= -C stages/02_openmp CC=$fake
    builds_anew_for_flags stages/03_cuda_unified/train NVCCFLAGS= -C stages/03_cuda_unified CC=$fake NVCC=$fake
    builds_anew_for_flags stages/03_cuda_unified/train.sim EXTRA= -C stages/03_cuda_unified sim CC=$fake CXX=$fake
    builds_anew_for_flags bench/build/common.o CFLAGS= -C bench build/common.o
    make -s -C stages/peers peer_openblas
    [[ ! -e stages/peers/peer_openblas ]] ||
        builds_anew_for_flags stages/peers/peer_openblas CFLAGS= -C stages/peers peer_openblas
}

@test "MARCH from the environment or from make's command line: every CPU program is built for it" {
    clean_copy copy
    for folder in stages/00_serial bench stages/peers; do
        make -n -C "$folder" MARCH=some-level | grep -q -- -march=some-level
        MARCH=some-level make -n -C "$folder" | grep -q -- -march=some-level
        run grep -e -march=native "$folder/Makefile"
        [[ $status == 1 ]]
    done
}

@test "systems.sh without root: one line, and status 77" {
    printf '#!/bin/sh\necho 1000\n' >"$dir/id"
    chmod +x "$dir/id"
    PATH=$dir:$PATH run "$repository/tests/systems.sh"
    [[ $status == 77 && $output == 'systems.sh: skipped: needs root, to make a Debian system' ]]
}

@test "flags that do not compile: the next make fails again" {
    clean_copy copy
    make -s -C stages/00_serial EXTRA=-O0
    for _ in 1 2; do
        run make -s -C stages/00_serial EXTRA=--no-such-flag
        [[ $status != 0 ]]
    done
}

@test "a program is named like its stage's one source file; no other number of them is accepted" {
    clean_copy copy
    mv stages/00_serial/train.c stages/00_serial/run.c
    make -s -C stages/00_serial
    [[ $(stages/00_serial/run --columns) == stage,* ]]
    for folder in 00_serial 03_cuda_unified; do
        touch stages/$folder/mine.c{,u}
        run make -s -C stages/$folder
        [[ $status == 2 && $output == *"$folder: found '"*"', expected one source file."* ]]
        rm stages/$folder/*.c*
        run make -s -C stages/$folder
        [[ $status == 2 && $output == *"$folder: found '', expected one source file."* ]]
    done
}

@test "several goals and -j: stages are built side by side, and nothing twice at once" {
    mkdir -p "$dir"/{stages/00_one,stages/01_two,tests}
    cd "$dir"
    cp -r "$repository"/{Makefile,harness} .
    grep -v ^baseline "$repository/stages/ladder.toml" >stages/ladder.toml
    touch stages/{00_one,01_two}/train.c
    printf '#!/bin/sh\n' >deps.sh
    chmod +x deps.sh
    printf 'train:\n\tmkdir busy && sleep 0.3 && rmdir busy && touch train\n' >stages/00_one/Makefile
    printf 'train:\n\ttimeout 9 sh -c "until [ -e ../00_one/busy ]; do :; done" && touch train\n' \
        >stages/01_two/Makefile
    printf 'test:\n\t$(MAKE) -C .. all\n' >tests/Makefile
    make -s -j8 all test
    [[ -e stages/00_one/train && -e stages/01_two/train ]]
}

@test "two stages build the simulated device at once; make clean removes what was built, and nothing else" {
    [[ ${FULL:-} ]] || skip 'FULL=1 runs it'
    clean_copy copy
    find . -type f -not -path '*__pycache__*' | sort >"$dir/before"
    make -s -C stages/03_cuda_unified sim &
    make -s -C stages/04_cuda_device_mem sim
    wait $!
    make -s -C harness build/ceiling
    [[ -x stages/03_cuda_unified/train.sim && -x stages/04_cuda_device_mem/train.sim ]]
    make -s clean
    find . -type f -not -path '*__pycache__*' | sort | diff "$dir/before" -
}

@test "make on a machine without python3 installs it first" {
    mkdir -p "$dir"/{stages/00_one,harness}
    cd "$dir"
    cp "$repository/Makefile" .
    printf 'train:\n\ttouch train\n' >stages/00_one/Makefile
    printf '#!/bin/sh\n[ -e installed ] && echo stages/00_one\n' >harness/start.py
    printf '#!/bin/sh\n[ "$1" = run ] && touch installed\n' >deps.sh
    chmod +x harness/start.py deps.sh
    make -s
    [[ -e stages/00_one/train ]]
}

@test "an exported CDPATH: no script prints where it goes" {
    clean_copy copy
    mkdir data/mnist
    touch data/mnist/train.csv
    unset MNIST_DIR
    export CDPATH=.
    [[ $(harness/start.py ladders stages '' 02) == stages/02_openmp ]]
    [[ $(harness/start.py step diff '' 01 | head -n 1) == 'diff --git '* ]]
    [[ $(data/locate.sh) == "$PWD/data/mnist" ]]
    [[ $(harness/machine.sh --name) =~ ^[a-z0-9-]+$ ]]
    MNIST_MIRRORS=file:///nowhere run data/fetch.sh
    [[ $output == *"copy MNIST's four files into $PWD/data/mnist, or"* ]]
    for command in 'env FILTER=none bench/run.sh' 'harness/start.py profile no_stage' \
        'harness/start.py profile --gpu no_stage' 'harness/start.py step step stages no_stage' 'harness/start.py step new stages no_stage 20_mine' \
        'harness/start.py check no_stage'; do
        run $command
        [[ $status == 2 && $output == *found*expected* ]]
        [[ $output != *"$PWD"* ]]
    done
}
