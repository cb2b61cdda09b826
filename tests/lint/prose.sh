#!/usr/bin/env bash
# Prints what is measurably wrong with the prose of Markdown pages, sentences of over 40 words and doubled
# words: tests/lint/prose.sh PAGE... The exit status is 1 if it finds any. test_rooms.py finds dead links.
set -euo pipefail
lint=$(dirname "${BASH_SOURCE[0]}")
words=40

status=0
for page; do
    text=$(pandoc --from=gfm --to=plain --wrap=none --lua-filter="$lint/prose.lua" "$page")
    faults=$(
        # GNU style begins a sentence with "(stdin):LINE: ". LINE is not a line of the page.
        style --print-long "$words" <<<"$text" | sed -n "s/^(stdin):[0-9]*: /over $words words: /p"
        # A word such as CODE stands for something, and may stand twice.
        grep -oP '\b(?![A-Z]{3})(?i:([a-z]+) \1)\b' <<<"$text" | sed 's/^/doubled: /'
    ) || true
    while IFS= read -r fault; do
        [[ ! $fault ]] || { echo "$page: $fault" && status=1; }
    done <<<"$faults"
done
exit "$status"
