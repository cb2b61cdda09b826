#!/usr/bin/env bash
# The main job: runs every stage of a ladder over a grid, and prints and writes the speedup tables.
# `./run_all.sh --help` lists the options. This file installs what is missing, and starts Python.
set -euo pipefail

[[ $(uname -s) == Linux ]] || {
    echo "run_all.sh: needs Linux, found $(uname -s): see setup/README.md" >&2
    exit 2
}
folder=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
"$folder/setup/deps.sh" run
PYTHON=$("$folder/setup/python.sh")
export PYTHON
exec "$PYTHON" "$folder/bench" report.run_all "$@"
