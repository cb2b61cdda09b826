#!/usr/bin/env bash
# Prints what the pages of these chapters ask before they measure, with room for answers. Without a
# chapter, it is of all:
#
#     course/worksheet.sh 01 02 | lpr
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")/../stages"

for chapter in "${@:-}"; do
    for folder in "$chapter"*_*/; do
        sed -E 's/\[([^][]*)\]\([^)]*\)/\1/g' "$folder"[0-9]*/README.md "$folder"README*.md |
            awk '/^# / { title = substr($0, 3) }
                 asked && /^## / { print "Predicted: ____________  Measured: ____________  Why:\n" }
                 /^## / { asked = /^## Predict/; if (asked) print title; next }
                 asked'
    done
done
