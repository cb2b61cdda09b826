#!/usr/bin/env bash
# Copies the checkout without its built files, but with its uncommitted changes, so that a test can
# change the copy: tests/clean_copy.sh DIRECTORY. Fails outside a git checkout.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "$1"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [[ ! -f $file ]] || printf '%s\0' "$file" # git still lists a file that was just deleted
done | xargs -0 cp --parents --target-directory "$1"
