#!/usr/bin/env bash
# What an hour on a machine with a GPU is for, in the order of its worth. `make gpu` calls this
# script:
#
#     gpu.sh [PART ...]    the parts, by name (all)
#
# Each part has a time limit, and all of them take under 25 minutes. What a part has done by then is
# kept, and the next one begins. SWEEP='--hidden 32' adds options for run_all.sh.
#
# Exit status: 0; 1 a part failed; 2 no such part; 77 no GPU. A part whose time runs out has not
# failed.
set -uo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
unset MAKEFLAGS MAKELEVEL # each part calls make for itself
PATH=$PATH:/usr/local/cuda/bin
read -ra sweep <<<"${SWEEP:-}"
running='' failed=0 summary=''
trap 'kill "$running"; wait "$running"; exit 130' INT TERM

# part SECONDS COMMAND...: a command of the part $name.
part() {
    local start=$SECONDS status=0 how=failed
    echo "--- $name: at most $1 s"
    timeout --kill-after=10 "$@" &
    running=$!
    wait "$running" || status=$?
    case $status in
    0) how='done' ;;
    124 | 137) how='time ran out, what it has done is kept' ;;
    *) failed=1 ;;
    esac
    summary+="$name: $((SECONDS - start)) s, $how"$'\n'
}

names=(build test once steps grid bench profile report)
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
for name in "${@:-${names[@]}}"; do
    case $name in
    build)
        # shellcheck disable=SC2016 # bash expands it
        part 180 bash -c 'make --jobs="$(nproc)" --keep-going all || status=1
            for folder in */peers bench; do make --keep-going -C "$folder" || status=1; done
            exit ${status:-0}'
        ;;
    test) part 240 make test-gpu ;;
    # Each stage for a GPU once in each cell: from here on there are tables.
    once) part 120 ./run_all.sh --gpu --repeats 1 "${sweep[@]}" ;;
    # Each step against the one before.
    steps) part 360 ./run_all.sh --gpu --steps --resume "${sweep[@]}" ;;
    grid) part 240 ./run_all.sh --gpu --peers --resume "${sweep[@]}" ;;
    bench) part 90 make bench ;;
    profile)
        # shellcheck disable=SC2016 # bash expands it
        part 180 bash -c 'for stage in $(/usr/bin/python3 -m harness ladders stages --cuda ""); do
            [[ $stage == *.* ]] || make profile-gpu RESULTS=profiles STAGE="${stage#*/}" || status=1
        done; exit ${status:-0}'
        ;;
    report) part 60 make report ;;
    esac
done
printf -- '---\n%s' "$summary"
exit $failed
