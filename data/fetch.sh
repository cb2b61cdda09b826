#!/usr/bin/env bash
# Usage: fetch.sh [DIR [SET]]
# Downloads the files that SET names (mnist.set) into DIR, a folder of SET's name beside it, and
# verifies the SHA-256 of their content. A file gets its name only when its content is right. Keeps
# files that are already there and right.
#
# MNIST_MIRRORS in the environment replaces the mirrors: base URLs separated by spaces.
# Exit status: 0 if all files are there and right, else 1.
set -euo pipefail

fail() {
    echo "fetch.sh: $*" >&2
    exit 1
}

# is_right FILE NAME: returns whether FILE, raw or gzipped, has the content of the file NAME.
is_right() {
    local sum
    sum=$(gzip -dcf -- "$1" 2>/dev/null | sha256sum) && [[ $sum == "${SHA256[$2]}  -" ]]
}

# await COMMAND...: runs it in the background, because bash runs a trap only after the command in
# the foreground has ended.
await() {
    local status=0
    "$@" &
    child=$!
    wait "$child" || status=$?
    child=""
    return "$status"
}

# download URL FILE LOG: tries once, because the next mirror is the retry. With no network, two
# mirrors fail within 20 s. curl does not hold the lock: it may live on where this script is killed.
download() {
    await curl --fail --silent --show-error --location --output "$2" --connect-timeout 8 \
        --speed-limit 1000 --speed-time 10 --max-time 300 "$1" 2>"$3" {lock}>&-
}

# fetch NAME: takes the file from the first mirror that has it right.
fetch() {
    local mirror url reasons=""
    for mirror in "${mirrors[@]}"; do
        url=${mirror%/}/$1$SUFFIX
        echo "fetching $url"
        if ! download "$url" "$partial/$1$SUFFIX" "$partial/log"; then
            reasons+="${reasons:+; }$url: $(tail -n 1 "$partial/log")"
        elif ! is_right "$partial/$1$SUFFIX" "$1"; then
            reasons+="${reasons:+; }$url: wrong content"
        else
            mv -f -- "$partial/$1$SUFFIX" "$directory/$1$SUFFIX"
            return
        fi
    done
    fail "cannot fetch $1 ($reasons); copy $FILES into $directory, or draw a" \
        "stand-in with $STAND_IN"
}

cleanup() {
    [[ -z $child ]] || { kill "$child" 2>/dev/null && wait "$child"; } || true
    [[ -z $partial ]] || rm -rf -- "$partial"
}

case ${1-} in
-h | --help) sed -n '1d; /^set/q; s/^# \{0,1\}//p' "$0" && exit ;;
-*) fail "found '$1', expected a directory: see --help" ;;
esac
[[ $# -le 2 ]] || fail "found '$3', expected a directory and a set at most: see --help"

set=${2:-$(CDPATH='' cd "$(dirname "$0")" && pwd)/mnist.set}
[[ -f $set ]] || fail "found no file '$set', expected one such as data/mnist.set"
# shellcheck source=data/mnist.set
source "$set"
name=${set##*/} name=${name%.set}
sources=${name^^}_MIRRORS
read -rd '' -a mirrors <<<"${!sources:-$MIRRORS}" || true
directory=${1:-${set%.set}}
readonly STAND_IN=${set%/*}/synthesize
partial=""
child=""
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Sets `missing` to the files that are absent or wrong.
find_missing() {
    local name
    missing=()
    for name in "${!SHA256[@]}"; do
        # The loader prefers a raw file, so a wrong raw file would hide a right one beside it.
        if [[ -e $directory/$name ]]; then
            is_right "$directory/$name" "$name" ||
                fail "$directory/$name: found other content than expected; move the file away, or" \
                    "name another directory"
        elif [[ ! -e $directory/$name.gz ]] || ! is_right "$directory/$name.gz" "$name"; then
            missing+=("$name")
        fi
    done
}

find_missing
[[ ${#missing[@]} -gt 0 ]] || exit 0

command -v curl >/dev/null || fail "found no curl; install it, or draw a stand-in with $STAND_IN"
# Only one download runs in a directory at a time.
{ mkdir -p -- "$directory" && exec {lock}<"$directory"; } 2>/dev/null ||
    fail "$directory: cannot write there; name another directory"
if ! flock --nonblock "$lock"; then
    echo "waiting for another download into $directory"
    await flock "$lock" || fail "$directory: cannot be locked; name another directory"
    find_missing
fi
partial=$directory/.fetch # of one that was killed, too
mkdir -p -- "$partial"
for name in "${missing[@]}"; do
    fetch "$name"
done
