#!/usr/bin/env bash
# Copies what a clean checkout would hold, with the changes that are not committed yet, so that a
# test can do with it what it likes: tests/clean_copy.sh DIRECTORY. Fails outside of a git checkout.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "$1"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [[ ! -f $file ]] || printf '%s\0' "$file" # deleted, and not committed so
done | xargs -0 cp --parents --target-directory "$1"
