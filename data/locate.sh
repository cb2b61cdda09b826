#!/usr/bin/env bash
# Usage: locate.sh [DIR]
# Prints the directory that holds the data to use. It is the first of these that exists:
#   DIR, $MNIST_DIR       if given; then it must hold data
#   data/mnist            from an earlier download, or copied there by hand
#   a download            by data/fetch.sh into data/mnist, unless OFFLINE=1 is in the environment
#   data/synthetic        a stand-in, drawn by data/synthesize
# Everything else goes to standard error. Exit status: 0; 1 if even the stand-in cannot be made; 2 if
# a given directory holds no data.
set -euo pipefail

fail() {
    echo "locate.sh: $2" >&2
    exit "$1"
}

# has_data DIR: returns whether DIR has the four IDX files, raw or gzipped, or Kaggle's train.csv.
has_data() {
    local name
    [[ ! -e $1/train.csv && ! -e $1/train.csv.gz ]] || return 0
    for name in {train,t10k}-{images-idx3,labels-idx1}-ubyte; do
        [[ -e $1/$name || -e $1/$name.gz ]] || return 1
    done
}

# use_given WHAT DIR: prints DIR and exits. The user asked for DIR, so it fails if DIR has no data.
use_given() {
    [[ -d $2 ]] || fail 2 "$1: found no directory '$2', expected the one that holds MNIST"
    has_data "$2" || fail 2 "$1: found no data in '$2', expected MNIST's four files or train.csv"
    echo "$2"
    exit
}

case ${1-} in
-h | --help) sed -n '1d; /^set/q; s/^# \{0,1\}//p' "$0" && exit ;;
-*) fail 2 "found '$1', expected a directory: see --help" ;;
esac
[[ $# -le 1 ]] || fail 2 "found '$2', expected one directory at most: see --help"
[[ -z ${1-} ]] || use_given DIR "$1"
[[ -z ${MNIST_DIR-} ]] || use_given MNIST_DIR "$MNIST_DIR"

here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
status=0 why="the download failed"
if ! has_data "$here/mnist"; then
    if [[ ${OFFLINE:-0} != 0 ]]; then
        status=1 why="OFFLINE is set"
    else
        "$here/fetch.sh" "$here/mnist" >&2 || status=$?
        # A user who interrupts a download does not ask for other data.
        [[ $status -le 128 ]] || exit "$status"
    fi
fi
if [[ $status -eq 0 ]]; then
    echo "$here/mnist"
    exit
fi

if ! has_data "$here/synthetic"; then
    # If a make has called this script, its flags must not apply here.
    MAKEFLAGS='' make -s -C "$here" synthesize >&2 || fail 1 "$why, and data/synthesize does not build"
    "$here/synthesize" "$here/synthetic" >&2 || fail 1 "$why, and data/synthesize failed"
fi
echo "locate.sh: using the synthetic digits: no MNIST in $here/mnist, and $why" >&2
echo "$here/synthetic"
