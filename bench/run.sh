#!/usr/bin/env bash
# Builds the benchmark programs, runs them, prints the medians and writes them as JSON, a file for each
# program, to report/results/<machine>/bench. `make bench` calls this script. It reads from the
# environment or make's command line:
#
#     FILTER=regex    runs only the benchmarks whose names match; prints their results, but does not
#                     write them, so that they never replace complete results
#     RESULTS=dir     writes there instead, even with FILTER
#     REPETITIONS=3   runs of each benchmark; the median counts
#     MIN_TIME=0.1    seconds that a run of a benchmark takes at least
set -euo pipefail
root=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export LC_ALL=C
# As in run_all.sh, so that the threads behave as they do in the tables.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-20000}
# `make -j` does not share its jobs with a script, and a make that starts here would warn of them.
MAKEFLAGS=$(sed -E 's/(^| )(-j|--jobserver)[^ ]*//g' <<<"${MAKEFLAGS:-}")

# keep_medians <JSON: without the host's name and paths, because results are for sharing.
keep_medians() {
    /usr/bin/python3 -c 'if True:
        import json, sys
        found = json.load(sys.stdin)
        for name in "host_name", "executable":
            found["context"].pop(name, None)
        found["benchmarks"] = [each for each in found["benchmarks"]
                               if each["aggregate_name"] == "median"]
        json.dump(found, sys.stdout, indent=1)
        print()'
}

filter=${FILTER:-.} ran='' written=''
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
results=${RESULTS:-$root/report/results/$("$root/harness/machine.sh" --name)/bench}
make -s --no-print-directory -C "$root/bench"
for name in $(make -s --no-print-directory -C "$root/bench" list); do
    json=$scratch/$name.json status=0
    "$root/bench/build/$name" --benchmark_filter="$filter" \
        --benchmark_repetitions="${REPETITIONS:-3}" --benchmark_min_time="${MIN_TIME:-0.1}" \
        --benchmark_report_aggregates_only=true --benchmark_out="$json" \
        --benchmark_out_format=json 2>"$scratch/$name.messages" |
        sed -u -E '/_(mean|stddev|cv) /d; s/_median / /' || status=$?
    ((status != 77)) || continue # the GPU is gone
    # An error of one benchmark does not show in the exit status.
    if ((status)) || grep -q '"error_occurred": true' "$json"; then
        cat "$scratch/$name.messages" >&2
        echo "bench: $name failed, see above; its results are not written" >&2
        exit 1
    fi
    [[ -s $json ]] || continue # no name matches
    ran=1
    if [[ ${RESULTS:-} || ! ${FILTER:-} ]]; then
        mkdir -p "$results"
        keep_medians <"$json" >"$results/$name.json"
        written=$results
    fi
done
[[ $ran ]] || {
    echo "FILTER: found '$filter', which no benchmark matches; expected part of a name such as" \
        "ceilings/read/memory" >&2
    exit 2
}
# Prints warnings such as that of a clock rate that is not fixed. Debian's library is a debug build,
# but this has no effect here: the library does no work while the clock runs.
grep -hF WARNING "$scratch"/*.messages | grep -v 'built as DEBUG' | sort -u >&2 || true
[[ ! $written ]] || echo "Written to ${written#"$root"/}" >&2
