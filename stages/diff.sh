#!/usr/bin/env bash
# Shows what a stage changed against the stage before it: `make diff STAGE=02`. Uses colours and a
# pager where git does.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."

pair=$(stages/before.sh "${1:-}")
read -r stage before <<<"$pair"
[[ $before ]] || {
    echo "found STAGE='$1', the first stage; expected a later stage" >&2
    exit 2
}
# git exits with 1 if the files differ, and by a signal if the reader of its pipe stops early.
status=0
git diff --no-index --histogram --function-context "stages/$before"/train.c* "stages/$stage"/train.c* ||
    status=$?
((status == 0 || status == 1 || status == 141))
