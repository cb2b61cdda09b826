#!/usr/bin/env bash
# Checks whether a stage is right, and how fast it is: `make check STAGE=06_mine`. After 50 batches,
# as in `make test`, and here also after one, its weights have to be those of the float64 reference.
# Its time is compared with its origin's. Without a GPU, a CUDA stage runs on a simulated device.
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
    # Without nvcc there is no program for the GPU, even if there is a GPU.
    if [[ -e $train.cu ]] && { [[ ! -x $train ]] || ! has_gpu; }; then
        make --no-print-directory -s -C "stages/$1" sim
        train+=.sim
    fi
}

pair=$(stages/before.sh "${1:-}")
read -r stage before <<<"$pair"
# The origin limits how long a run may take, but only if both run on the same kind of device.
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
    echo "Its speed is not known: a simulated device's times mean nothing."
elif [[ $before ]]; then
    status=0
    { said=$(bench/compare.py --train 6400 --runs 20 -- "$before" "$stage" 2>&1 >&3) || status=$?; } 3>&1
    # The origin ran first, at the same learning rate.
    if [[ $said == *"$stage: the loss became"* ]]; then
        said=${said/: try a --learning-rate*/, but not in $before: the arithmetic is wrong, not the learning rate}
    fi
    [[ ! $said ]] || echo "$said" >&2
    exit $status
fi
