#!/usr/bin/env bash
# Is a stage right, and how fast: `make check STAGE=06_mine`. Right is what `make test` asks of every
# stage, the weights of the float64 reference after 50 batches; how fast is beside the stage that it
# came from. A CUDA stage is checked on a simulated device where there is no GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

pair=$(stages/before.sh "${1:-}")
read -r stage before <<<"$pair"
train=stages/$stage/train
make --no-print-directory "stages/$stage"
if [[ -e $train.cu ]] && { [[ ! -x $train ]] || ! nvidia-smi -L >/dev/null 2>&1; }; then
    make --no-print-directory -s -C "stages/$stage" sim
    train+=.sim
fi

make --no-print-directory -s -C tests build build/test_stages build/many_processors.so
status=0
report=$(tests/build/test_stages 1,7,33,100 "$train" 2>&1) || status=$?
# Of all that cmocka prints: how many passed, the first that failed and why.
passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' <<<"$report")
failed=$(sed -n 's/^\[  FAILED  \] .*: \(.*, .*\)/\1/p' <<<"$report" | head -n 1)
why=$(grep -m 1 -F "$train, " <<<"$report") || why=$(tail -n 1 <<<"$report")
if ((status)); then
    printf '%s: WRONG with %s\n%s\n' "$stage" "$failed" "${why#*"$train"*: }"
    exit 1
elif ((!passed)); then
    echo "$stage: not checked: $(sed -n 's/^\[  SKIPPED \] //p' <<<"$report" | head -n 1)"
    exit 1
fi
echo "$stage: right, $passed tests"

if [[ $train == *.sim ]]; then
    echo "How fast is not known: a simulated device's times mean nothing."
elif [[ $before ]]; then
    bench/compare.py --train 6400 --runs 20 -- "$before" "$stage"
fi
