#!/usr/bin/env bash
# Takes a reader one step up the ladder: `make step STAGE=01`. Prints parts of the stage's README,
# and the diff against the stage before. Times both stages on this machine, to compare with the
# README's prediction.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The READMEs predict this cell. The training set is so small that 00_serial takes a second.
cell=(--hidden 256 --batch 128 --epochs 1 --train 3200)

pair=$(stages/before.sh "${1:-}")
read -r stage before <<<"$pair"
readme=stages/$stage/README.md

bold=$(tput bold 2>/dev/null || true) plain=$(tput sgr0 2>/dev/null || true)
[[ -t 1 ]] || bold='' plain=''

heading() {
    printf '%s%s%s\n\n' "$bold" "$1" "$plain"
}

# Prints a section of the README under its heading.
section() {
    heading "$1"
    awk -v heading="## $1" '/^## / { inside = $0 == heading; getline; next } inside' "$readme"
}

heading "$(sed -n 's/^# //p' "$readme")"
section 'The idea'
section 'Predict before you measure'
if [[ $before ]]; then
    heading "make diff STAGE=$stage"
    stages/diff.sh "$stage"
    echo
fi

section 'The prediction'
heading "On this machine: ${cell[*]}"
for name in $before $stage; do
    make --no-print-directory "stages/$name" # says so if it leaves the stage out
done
if [[ -x stages/$stage/train && $before ]]; then
    bench/compare.py "${cell[@]}" --runs 20 -- "$before" "$stage" || (($? == 77))
elif [[ -x stages/$stage/train ]]; then
    data=$(data/locate.sh)
    "stages/$stage/train" --data "$data" "${cell[@]}" --quiet
fi
echo
section 'What the profile shows'
