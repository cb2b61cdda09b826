#!/usr/bin/env bats
# How things are built: wherever the repository lies, in a clean copy.
# shellcheck disable=SC2016 # names of folders, with signs that the shell would read

setup() {
    repository=$BATS_TEST_DIRNAME/..
    dir=$(mktemp -d)
    unset MAKEFLAGS NVCC
}

teardown() {
    rm -rf "$dir"
}

# Goes to a clean copy in a folder of this name.
clean_copy() {
    "$repository/tests/clean_copy.sh" "$dir/$1"
    cd "$dir/$1" || return
}

# Its commands run in such a path in ladder.bats, and those of the READMEs in check-readmes.
@test "a path with signs that make and the shell read: every compiler, and preloading" {
    clean_copy 'a b'\''c$d(e#f:g=h[i];j%k&l\m'
    make -s -C stages/02_openmp
    make -s -C stages/03_cuda_unified sim
    if command -v nvcc; then
        make -s -C stages/03_cuda_unified CUDA_ARCH=sm_75
    fi
    make -s -C bench/peers peer_openblas
    make -s -C tests build/test_stages build/many_processors.so
    tests/build/test_stages 7 stages/02_openmp/train
}

@test "a path that nvcc cannot read: one line, from make and from run_all.sh" {
    for name in 'a"b' 'a`b' 'a$(b' 'a${b'; do
        mkdir "$dir/$name"
        cp "$repository"/{Makefile,run_all.sh} "$dir/$name"
        for command in 'make --no-print-directory' ./run_all.sh; do
            cd "$dir/$name"
            run $command
            [[ $status == 2 && ${#lines[@]} == 1 ]]
            [[ $output == *"needs a path without any of \" \` \$( \${ which nvcc cannot read: found $PWD"* ]]
        done
    done
}
