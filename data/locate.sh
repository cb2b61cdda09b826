#!/usr/bin/env bash
# Usage: locate.sh [DIR [SET]]
# Prints the directory that holds the data to use. SET is a file that says what they are (mnist.set).
# It is the first of these that exists:
#   DIR, $MNIST_DIR       if given; then it must hold data
#   mnist                 beside SET, from an earlier download, or copied there by hand
#   a download            by fetch.sh into mnist, unless OFFLINE=1 is in the environment
#   synthetic             beside SET, a stand-in, drawn by synthesize
# Everything else goes to standard error. Exit status: 0; 1 if even the stand-in cannot be made; 2 if
# a given directory holds no data.
set -euo pipefail

fail() {
    echo "locate.sh: $2" >&2
    exit "$1"
}

here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
set=${2:-$here/mnist.set}
[[ -f $set ]] || fail 2 "found no file '$set', expected one such as data/mnist.set"
# shellcheck source=/dev/null
source "$set"
home=$(CDPATH='' cd "$(dirname "$set")" && pwd)
set=$(basename "$set" .set)
data=$home/$set synthetic=$home/synthetic
variable=${set^^}_DIR

# has_data DIR: returns whether DIR has the set's files, raw or gzipped, or the one that is enough.
has_data() {
    local name
    [[ ! $ALONE || (! -e $1/$ALONE && ! -e $1/$ALONE.gz) ]] || return 0
    for name in "${!SHA256[@]}"; do
        [[ -e $1/$name || -e $1/$name.gz ]] || return 1
    done
}

# use_given WHAT DIR: prints DIR and exits. The user asked for DIR, so it fails if DIR has no data.
use_given() {
    [[ -d $2 ]] || fail 2 "$1: found no directory '$2', expected the one that holds $NAME"
    has_data "$2" || fail 2 "$1: found no data in '$2', expected $FILES${ALONE:+ or $ALONE}"
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
if ! has_data "$data"; then
    if [[ ${OFFLINE:-0} != 0 ]]; then
        status=1 why="OFFLINE is set"
    else
        "$here/fetch.sh" "$data" "${2-}" >&2 || status=$?
        # A user who interrupts a download does not ask for other data.
        [[ $status -le 128 ]] || exit "$status"
    fi
fi
if [[ $status -eq 0 ]]; then
    echo "$data"
    exit
fi

if ! has_data "$synthetic"; then
    # If a make has called this script, its flags must not apply here.
    MAKEFLAGS='' make -s -C "$home" synthesize >&2 || fail 1 "$why, and $home/synthesize does not build"
    "$home/synthesize" "$synthetic" >&2 || fail 1 "$why, and $home/synthesize failed"
fi
echo "locate.sh: using the synthetic $IMAGES: no $NAME in $data, and $why" >&2
echo "$synthetic"
