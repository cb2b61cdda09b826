#!/usr/bin/env bash
# Makes your own stage from a copy of another: `make new-stage FROM=01_vectorized NAME=06_mine`.
# Builds and tests it at once. No file lists the stages, so every command now includes it.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
    echo "$*" >&2
    exit 2
}

name=${2:-}
origin=$(stages/before.sh "${1:-}" 2>&1) || fail "${origin/found STAGE=/found FROM=}"
origin=${origin%% *}
[[ $name =~ ^[0-9][0-9]_[a-z0-9_]+$ ]] ||
    fail "found NAME='$name', expected two digits, an underscore and a word, such as 06_mine"
for taken in stages/"${name%%_*}"_*; do
    [[ ! -e $taken ]] || fail "found NAME='$name', expected another number: $taken has this one"
done

title=${name#*_}
mkdir "stages/$name"
cp "stages/$origin"/train.c* "stages/$name"
sed -i "1s/Stage ${origin%%_*}/Stage ${name%%_*}, from $origin/" "stages/$name"/train.c*
{
    echo "# What \`make diff\`, \`step\` and \`check\` compare this stage with."
    echo "ORIGIN = $origin"
    grep -v -e '^ORIGIN' -e '^# What .make diff' "stages/$origin/Makefile"
} >"stages/$name/Makefile"
{
    echo "# $name: ${title//_/ }"
    for section in 'The idea' 'Predict before you measure' 'The prediction' 'What the profile shows'; do
        printf '\n## %s\n\n(Not written yet.)\n' "$section"
    done
} >"stages/$name/README.md"

echo "Made from $origin: $(echo "stages/$name"/*)"
make --no-print-directory check STAGE="$name"
