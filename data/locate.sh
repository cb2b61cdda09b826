#!/usr/bin/env bash
# Usage: locate.sh [DIR [SET]]
# Prints the directory that holds the data of SET to use: mnist or galaxy (mnist). It is the first of
# these that exists:
#   DIR, $MNIST_DIR       if given, or $GALAXY_DIR; then it must hold data
#   data/SET              from an earlier download, or copied there by hand
#   a download            by data/fetch.sh into data/SET, unless OFFLINE=1 is in the environment
#   data/synthetic        a stand-in, drawn by data/synthesize; or data/galaxy/synthetic
# Everything else goes to standard error. Exit status: 0; 1 if even the stand-in cannot be made; 2 if
# a given directory holds no data.
set -euo pipefail

fail() {
    echo "locate.sh: $2" >&2
    exit "$1"
}

here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
set=${2:-mnist}
case $set in
mnist)
    files=({train,t10k}-{images-idx3,labels-idx1}-ubyte)
    expected="MNIST's four files or train.csv" images=digits drawer=synthesize
    synthetic=$here/synthetic
    ;;
galaxy)
    files=({train,test}.csv)
    expected="train.csv and test.csv" images=galaxies drawer=galaxy/synthesize
    synthetic=$here/galaxy/synthetic
    ;;
*) fail 2 "found the set '$set', expected mnist or galaxy" ;;
esac
variable=${set^^}_DIR

# has_data DIR: returns whether DIR has the set's files, raw or gzipped, or Kaggle's train.csv.
has_data() {
    local name
    [[ $set != mnist || (! -e $1/train.csv && ! -e $1/train.csv.gz) ]] || return 0
    for name in "${files[@]}"; do
        [[ -e $1/$name || -e $1/$name.gz ]] || return 1
    done
}

# use_given WHAT DIR: prints DIR and exits. The user asked for DIR, so it fails if DIR has no data.
use_given() {
    [[ -d $2 ]] || fail 2 "$1: found no directory '$2', expected the one that holds ${set/mnist/MNIST}"
    has_data "$2" || fail 2 "$1: found no data in '$2', expected $expected"
    echo "$2"
    exit
}

case ${1-} in
-h | --help) sed -n '1d; /^set/q; s/^# \{0,1\}//p' "$0" && exit ;;
-*) fail 2 "found '$1', expected a directory: see --help" ;;
esac
[[ $# -le 2 ]] || fail 2 "found '$3', expected a directory and a set at most: see --help"
[[ -z ${1-} ]] || use_given DIR "$1"
[[ -z ${!variable-} ]] || use_given "$variable" "${!variable}"

status=0 why="the download failed"
if ! has_data "$here/$set"; then
    if [[ ${OFFLINE:-0} != 0 ]]; then
        status=1 why="OFFLINE is set"
    else
        "$here/fetch.sh" "$here/$set" "$set" >&2 || status=$?
        # A user who interrupts a download does not ask for other data.
        [[ $status -le 128 ]] || exit "$status"
    fi
fi
if [[ $status -eq 0 ]]; then
    echo "$here/$set"
    exit
fi

if ! has_data "$synthetic"; then
    # If a make has called this script, its flags must not apply here.
    MAKEFLAGS='' make -s -C "$here" "$drawer" >&2 || fail 1 "$why, and data/$drawer does not build"
    "$here/$drawer" "$synthetic" >&2 || fail 1 "$why, and data/$drawer failed"
fi
echo "locate.sh: using the synthetic $images: no ${set/mnist/MNIST} in $here/$set, and $why" >&2
echo "$synthetic"
