#!/usr/bin/env bash
# Prints each sentence of Markdown pages that has over 25 words or a phrase of prose.rules:
# tests/lint/prose.sh PAGE... The exit status is 1 if it finds any.
set -euo pipefail
lint=$(dirname "${BASH_SOURCE[0]}")
words=25

# GNU style and diction begin a sentence with "(stdin):LINE: ". LINE is not a line of the page.
found() {
    sed -n 's/^(stdin):[0-9]*: //p'
}

status=0
for page; do
    text=$(pandoc --from=gfm --to=plain --wrap=none --lua-filter="$lint/prose.lua" "$page")
    faults=$(
        style --print-long "$words" <<<"$text" | found | sed "s/^/over $words words: /"
        diction --no-default-file --ignore-double-words --suggest --file "$lint/prose.rules" <<<"$text" | found
    )
    while IFS= read -r fault; do
        [[ ! $fault ]] || { echo "$page: $fault" && status=1; }
    done <<<"$faults"
done
exit "$status"
