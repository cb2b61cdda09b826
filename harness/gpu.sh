#!/usr/bin/env bash
# What an hour on a machine with a GPU is for, in the order of its worth. `make gpu` calls this
# script:
#
#     gpu.sh [PART ...]    the parts, by number or name (all)
#
# Each part has a time limit, and all of them take under 25 minutes. What a part has done by then is
# kept, and the next one begins. It reads from the environment or make's command line:
#
#     LIMIT=60               seconds that each part may take, instead of its own limit
#     SWEEP='--hidden 32'    more options for run_all.sh
#
# Exit status: 0; 1 a part failed; 2 no such part; 77 no GPU. A part whose time runs out has not
# failed.
set -uo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
unset MAKEFLAGS MAKELEVEL # each part calls make for itself
PATH=$PATH:/usr/local/cuda/bin

NAMES=(build test once steps grid bench profile report)
LIMITS=(180 240 120 360 240 90 180 60)

# timeout(1) starts this script again with the name of a part. It waits for what it started. So
# where a part is one command, that command takes the script's place.
if [[ ${1:-} == --part ]]; then
    read -ra sweep <<<"${SWEEP:-}"
    status=0
    case $2 in
    build)
        make --jobs="$(nproc)" --keep-going all || status=1
        for peers in */peers; do
            make --keep-going -C "$peers" || status=1
        done
        make -C bench || status=1
        ;;
    test) exec make test-gpu ;;
    # Each stage for a GPU once in each cell: from here on there are tables.
    once) exec ./run_all.sh --gpu --repeats 1 "${sweep[@]}" ;;
    # Each step against the one before.
    steps) exec ./run_all.sh --gpu --steps --resume "${sweep[@]}" ;;
    grid) exec ./run_all.sh --gpu --peers --resume "${sweep[@]}" ;;
    bench) exec make bench ;;
    profile)
        for stage in $(/usr/bin/python3 -m harness ladders stages --cuda ''); do
            ladder=${stage%%/*} stage=${stage#*/}
            [[ $stage == *.* ]] || RESULTS=$ladder/profiles make profile-gpu STAGE="$stage" || status=1
        done
        ;;
    report) exec make report ;;
    esac
    exit $status
fi

chosen=()
for wanted in "${@:-}"; do
    before=${#chosen[@]}
    for i in "${!NAMES[@]}"; do
        [[ $wanted && $wanted != "${NAMES[i]}" && $wanted != "$((i + 1))" ]] || chosen+=("$i")
    done
    ((${#chosen[@]} > before)) || {
        echo "gpu.sh: PART: found '$wanted', expected 1 to ${#NAMES[@]}, or one of: ${NAMES[*]}" >&2
        exit 2
    }
done
nvidia-smi -L 2>/dev/null | grep -q '^GPU' || {
    echo 'gpu.sh: found no GPU (nvidia-smi lists none)' >&2
    exit 77
}

running=
trap 'kill "$running"; wait "$running"; exit 130' INT TERM
failed=0 summary=
for i in "${chosen[@]}"; do
    limit=${LIMIT:-${LIMITS[i]}} start=$SECONDS status=0
    echo "--- part $((i + 1)), ${NAMES[i]}: at most $limit s"
    timeout --kill-after=10 "$limit" harness/gpu.sh --part "${NAMES[i]}" &
    running=$!
    wait "$running" || status=$?
    case $status in
    0) how='done' ;;
    124 | 137) how='time ran out, what it has done is kept' ;;
    *) how=failed failed=1 ;;
    esac
    summary+="part $((i + 1)), ${NAMES[i]}: $((SECONDS - start)) s, $how"$'\n'
done
printf -- '---\n%s' "$summary"
exit $failed
