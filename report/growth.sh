#!/usr/bin/env bash
# Measures how a stage's cost grows, and how it learns. Runs one epoch over a range of training
# images, hidden units, batch sizes and threads, and one to five epochs. The rest is set below.
# Writes the stages' own rows to report/results/<machine>/stages/growth.csv, which `make report` plots.
# Takes a few minutes on two cores.
#
#     report/growth.sh [FILE]    writes there instead
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C
# As in run_all.sh, so that the threads behave as they do in the tables.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-2000}

# GROWTH_LIMIT, in seconds: if a point should take longer, judging by the one before, it and those
# beyond it are left out. The textbook at 4,096 hidden units takes minutes and shows nothing new.
limit_ms=$((${GROWTH_LIMIT:-20} * 1000))
# A point is run up to `repeats` times, while a run takes less than repeat_ms.
repeats=3 repeat_ms=1000

hidden=64 batch=64 images=37800 epochs=1

fail() {
    echo "growth.sh: $*" >&2
    exit 1
}

# run STAGE OPTION...: trains once. Sets `ms` to the training time; returns the exit status.
run() {
    local stage=$1 status=0
    shift
    "stages/$stage/train" --data "$data" --csv "$rows" --quiet --hidden $hidden --batch $batch \
        --train $images --epochs $epochs "$@" >/dev/null 2>"$errors" || status=$?
    if ((status == 0)); then
        [[ -s $file.new ]] || head -n 1 "$rows" >"$file.new"
        tail -n 1 "$rows" >>"$file.new"
        ms=$(tail -n 1 "$rows" | awk -F, '{ printf "%.0f", 1000 * $14 }')
    elif ((status != 2 && status != 77)); then
        fail "$stage $*: exit status $status: $(tail -n 1 "$errors")"
    fi
    return $status
}

# sweep STAGE OPTION VALUE...: trains once or several times for each value, in rising order.
sweep() {
    local stage=$1 option=$2 value i previous='' expected ms=0
    shift 2
    for value; do
        # Time grows about in proportion to the value, but not to the batch size.
        expected=$ms
        [[ ! $previous || $option == --batch ]] || expected=$((ms * value / previous))
        ((expected <= limit_ms)) || return 0
        for ((i = 0; i < repeats; ++i)); do
            # Status 2: the stage has no threads. Status 77: there is no GPU.
            run "$stage" "$option" "$value" || return 0
            ((ms < repeat_ms)) || break
        done
        previous=$value
    done
}

# Prints 1, 2, 4, ... and all. The other sweeps use all.
thread_counts() {
    local count all
    all=$(nproc)
    for ((count = 1; count < all; count *= 2)); do
        echo $count
    done
    echo "$all"
}

./deps.sh run
data=$(data/locate.sh)
file=${1:-report/results/$(report/machine.sh --name)/stages/growth.csv}
mkdir -p "$(dirname "$file")"
rows=$(mktemp) errors=$(mktemp)
trap 'rm -f "$rows" "$errors" "$file.new"' EXIT
: >"$file.new"

for directory in stages/[0-9][0-9]_*; do
    stage=${directory#stages/}
    [[ -e $directory/Makefile ]] || continue
    make --silent --no-print-directory "$directory" >&2
    [[ -x $directory/train ]] || continue
    echo "growth.sh: $stage" >&2
    sweep "$stage" --train 1000 2000 4000 8000 16000 32000 60000
    sweep "$stage" --hidden 16 32 64 128 256 512 1024 2048 4096
    sweep "$stage" --batch 1 4 16 64 256 1024 4096
    sweep "$stage" --epochs 1 2 3 4 5
    # shellcheck disable=SC2046 # a list of numbers
    sweep "$stage" --threads $(thread_counts)
done
[[ -s $file.new ]] || fail 'no stage ran'
mv "$file.new" "$file" # the file is complete or unchanged
echo "Written to $file" >&2
