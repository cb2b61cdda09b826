#!/usr/bin/env bash
# What an hour on a machine with a GPU is for, in the order of its worth: `make gpu` runs all parts,
# and `gpu.sh PART ...` those of these names. Each has a time limit, and all of them take under 25
# minutes. What a part has done by then is kept, and the next one begins. SWEEP='--hidden 32' adds
# options for run_all.sh.
#
# Exit status: 0; 1 a part failed, but not for want of time; 2 no such part; 77 no GPU.
set -uo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
unset MAKEFLAGS MAKELEVEL # each part calls make for itself
PATH=$PATH:/usr/local/cuda/bin
names=(build test once steps grid profile report)
# The most seconds of a part, and its command.
# shellcheck disable=SC2016 # bash -c expands these
declare -A parts=(
    [build]='180 status=0; make --jobs="$(nproc)" --keep-going all || status=1
        for folder in */peers; do make --keep-going -C "$folder" || status=1; done
        exit $status'
    [test]='240 make test-gpu'
    [once]="120 ./run_all.sh --gpu --repeats 1 ${SWEEP:-}" # from here on there are tables
    [steps]="360 ./run_all.sh --gpu --steps --resume ${SWEEP:-}" # each against the one before
    [grid]="240 ./run_all.sh --gpu --peers --resume ${SWEEP:-}"
    [profile]='180 status=0
        for stage in $("$(harness/python.sh)" -m harness ladders stages --cuda ""); do
        [[ $stage == *.* ]] || make profile-gpu RESULTS=profiles STAGE="${stage##*/}" || status=1
        done; exit $status'
    [report]='60 make report')
for name in "$@"; do
    [[ " ${names[*]} " == *" $name "* ]] || {
        echo "gpu.sh: PART: found '$name', expected one of: ${names[*]}" >&2
        exit 2
    }
done
nvidia-smi -L 2>/dev/null | grep -q '^GPU' || {
    echo 'gpu.sh: found no GPU (nvidia-smi lists none)' >&2
    exit 77
}
running='' failed=0 summary=''
trap 'kill "$running"; wait "$running"; exit 130' INT TERM
for name in "${@:-${names[@]}}"; do
    limit=${parts[$name]%% *} start=$SECONDS status=0
    echo "--- $name: at most $limit s"
    timeout --kill-after=10 "$limit" bash -c "${parts[$name]#* }" &
    running=$!
    wait "$running" || status=$?
    case $status in
    0) how='done' ;;
    124 | 137) how='time ran out, what it has done is kept' ;;
    *) how=failed failed=1 ;;
    esac
    summary+="$name: $((SECONDS - start)) s, $how"$'\n'
done
printf -- '---\n%s' "$summary"
exit $failed
