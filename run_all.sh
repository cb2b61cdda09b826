#!/usr/bin/env bash
# The main job: runs every stage of a ladder over a grid, and prints and writes the speedup tables.
# `./run_all.sh --help` lists the options. This file installs what is missing and hands over to
# bench/sweep.py.
set -euo pipefail
trap 'exit 130' INT # also if the command that runs does not end by it

fail() {
    echo "run_all.sh: $*" >&2
    exit 2
}

system=$(uname -s)
[[ $system == Linux ]] || fail "needs Linux, found $system: see setup/README.md"

# As in the Makefile: nvcc passes the folder's path to a shell in double quotes.
folder=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
case $folder in
*[\"\`]* | *\$[\(\{]*)
    fail "found the folder $folder: nvcc cannot read a path with any of \" \` \$( \${"
    ;;
esac

"$folder/setup/deps.sh" run
# A Ctrl-C waits until Python has started: see bench/__main__.py. Python is named by its path, because
# env takes a path with = for a variable.
PYTHON=$("$folder/setup/python.sh")
export PYTHON
exec env --block-signal=INT "$PYTHON" "$folder/bench" report.run_all "$@"
