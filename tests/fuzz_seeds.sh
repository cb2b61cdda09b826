#!/usr/bin/env bash
# Writes the inputs that fuzz_loader starts from into the directory $1: each form of valid input.
set -euo pipefail

images() {
    printf '\0\0\10\3\0\0\0\2\0\0\0\34\0\0\0\34'
    head -c 1568 <(seq 1000 9999)
}
labels() {
    printf '\0\0\10\1\0\0\0\2\3\7'
}
rows() {
    echo label,pixel0,pixel1
    for label in 5 0 9; do
        echo "$label$(printf ',%d' {0..255} {0..255} {0..255} {0..15})"
    done
}

mkdir -p "$1"
for content in images labels rows; do
    kind=${content::1}
    { printf %s "${kind/r/c}"; $content; } >"$1/$content"
    { printf %s "${kind/r/c}"; $content | gzip -n; } >"$1/$content.gz"
done
