#!/usr/bin/env bash
# Is a stage right, and how fast: `make check STAGE=06_mine`. Right is what `make test` asks of every
# stage, the weights of the float64 reference after 50 batches, and before that after one; how fast is
# beside the stage that it came from. A CUDA stage is checked on a simulated device where there is no
# GPU.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."

has_gpu() {
    nvidia-smi -L 2>/dev/null | grep -q '^GPU'
}

# Builds a stage and sets `train` to its program.
build() {
    train=stages/$1/train
    if [[ ! -e $train.cu ]] || has_gpu; then
        make --no-print-directory -s "stages/$1"
    fi
    # Without nvcc there is none, GPU or not.
    if [[ -e $train.cu ]] && { [[ ! -x $train ]] || ! has_gpu; }; then
        make --no-print-directory -s -C "stages/$1" sim
        train+=.sim
    fi
}

pair=$(stages/before.sh "${1:-}")
read -r stage before <<<"$pair"
# How long its runs may take, an origin on another kind of device does not tell.
origin=''
if [[ $before && -e stages/$stage/train.c && -e stages/$before/train.c ]] ||
    [[ $before && -e stages/$stage/train.cu && -e stages/$before/train.cu ]]; then
    build "$before"
    origin=$train
fi
build "$stage"

make --no-print-directory -s -C tests build build/test_stages build/many_processors.so
tests/build/test_stages -c "$origin" 33,1,7,100 "$train"

if [[ $train == *.sim ]]; then
    echo "How fast is not known: a simulated device's times mean nothing."
elif [[ $before ]]; then
    status=0
    { said=$(bench/compare.py --train 6400 --runs 20 -- "$before" "$stage" 2>&1 >&3) || status=$?; } 3>&1
    # The origin was run first, at the same learning rate.
    if [[ $said == *"$stage: the loss became"* ]]; then
        said=${said/: try a --learning-rate*/, that of $before did not: the arithmetic is wrong, not the learning rate}
    fi
    [[ ! $said ]] || echo "$said" >&2
    exit $status
fi
