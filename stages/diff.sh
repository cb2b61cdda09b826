#!/usr/bin/env bash
# What a stage changed against the one before it: `make diff STAGE=02`. Coloured and paged where git
# would do so.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."

pair=$(stages/before.sh "${1:-}")
read -r stage before <<<"$pair"
[[ $before ]] || {
    echo "found STAGE='$1', which is the first: there is none before it" >&2
    exit 2
}
# git exits with 1 where the files differ, and by a signal where the reader of a pipe has enough.
status=0
git diff --no-index --histogram --function-context "stages/$before"/train.c* "stages/$stage"/train.c* ||
    status=$?
((status == 0 || status == 1 || status == 141))
