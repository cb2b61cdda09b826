#!/usr/bin/env bash
# Profiles CPU stages with gperftools: where the time goes, by function and by line, and what they
# allocate. README.md says how to read the results.
#
#     profiles/profile.sh [STAGE ...]    (01, or 01_vectorized; all CPU stages if none is named)
#
# Runs each stage once for the heap, and for the time until a run takes long enough. Writes
# profiles/<stage>/{cpu.txt,lines.txt,cpu.svg,flame.svg,heap.txt}. It reads from the environment or
# make's command line:
#
#     STUDY=name       the stages of a study; writes to its own folder profiles/
#     CPU_SECONDS=6    least CPU time to sample, if the run has an option epochs or seconds to raise
#     RESULTS=dir      writes the folders of the stages there instead
#     HIDDEN=256 ...   the options of the run; [profile] in ladder.toml has their values
#
# A stage is profiled as it is timed: the binary is the same, optimised, and nothing is added to its
# source. Two preloaded libraries do the work.
#
# Exit status: 0; 1 a stage or a tool failed; 2 no such stage, or a wrong value.
set -euo pipefail
export LC_ALL=C # a decimal point, not a comma

fail() {
    echo "profile.sh: ${*:2}" >&2
    exit "$1"
}

study=${STUDY:-} seconds=${CPU_SECONDS:-6} output=''
[[ $seconds =~ ^[1-9][0-9]{0,5}$ ]] ||
    fail 2 "CPU_SECONDS: found '$seconds', expected a whole number from 1"
[[ ! ${RESULTS:-} ]] || output=$(mkdir -p "$RESULTS" && CDPATH='' cd "$RESULTS" && pwd)
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
folders=$(harness/ladders.py stages --cpu -- "$study" "$@")

./deps.sh profile
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

words=$(harness/ladders.py options "$study" profile)
mapfile -t options <<<"$words"
# The option that makes a run longer, and the others, such as ", hidden 256, batch 64".
length=$(grep -m 1 -xE -e '--(epochs|seconds)' <<<"$words") || true
shown=$(paste -d ' ' - - <<<"$words" | sed -nE '/^--(data|epochs|seconds) /d; s/^--/, /p' | tr -d '\n')

# As in run_all.sh, so that the threads behave as they do in the tables.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-2000}
# A thread's timer can fire only at a tick of the kernel. Most kernels tick 250 times a second, so a
# higher frequency gives no more samples.
export CPUPROFILE_FREQUENCY=250

# The linker finds libprofiler, and threads.so then loads it. So no path is needed.
"${CC:-gcc}" -shared -fPIC -O2 -Wall -Wextra -o "$work/threads.so" profiles/threads.c \
    -lprofiler -ldl

# Runs google-pprof, and shows its standard error only if it fails.
pprof() {
    google-pprof "$@" 2>"$work/errors" || {
        cat "$work/errors" >&2
        return 1
    }
}

# run_program LENGTH VARIABLE=VALUE...: runs the stage with the variables in its environment. Leaves
# its row in $work/row.csv.
run_program() {
    rm -f "$work/row.csv"
    env "${@:2}" "$binary" "${options[@]}" ${length:+"$length" "$1"} --csv "$work/row.csv" --quiet \
        >/dev/null 2>"$work/errors"
}

stage_failed() {
    cat "$work/errors" >&2
    fail 1 "$stage failed"
}

# Prints the row's value in a column.
row_field() {
    awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; ++i) if ($i == name) column = i }
        NR == 2 { print $column }' "$work/row.csv"
}

# Prints what every profile begins with.
describe_run() {
    echo "$stage$shown${length:+, ${length#--} $count}, $(row_field dataset)," \
        "threads $(row_field threads)"
    report/machine.sh | grep -E '^(cpu|compiler): '
}

# Writes "samples file:line" (for the heap, bytes) for this repository's lines into $work/lines, the
# largest first. $1 is the column of pprof's table: 1 for what a line costs by itself, 4 to include
# what it calls. The path before the ladder's folder or common/ is left out: the stage was built
# there.
by_line() {
    local column=$1
    shift
    pprof --text --lines "$@" |
        awk -v column="$column" -v place="/($ladder(/[^/]+)?|common)/[^/]+:[0-9]+\$" '
            match($0, place) {
                sum[substr($0, RSTART + 1)] += $column
            }
            END { for (line in sum) print sum[line], line }' |
        sort -k1,1nr -k2,2V >"$work/lines"
}

# --- time ---

profile_cpu() {
    local elapsed user system used
    local TIMEFORMAT='%R %U %S'
    # Makes the run longer until it takes the time asked for. It takes a bit too long, because loading
    # the data takes time only once.
    while
        { time run_program "$count" LD_PRELOAD="$work/threads.so" CPUPROFILE="$work/cpu.prof" \
            CPUPROFILE_PER_THREAD_TIMERS=1; } 2>"$work/time" || stage_failed
        read -r elapsed user system <"$work/time"
        used=$(awk -v u="$user" -v s="$system" 'BEGIN { printf "%.2f", u + s }')
        [[ $length ]] && awk -v used="$used" -v want="$seconds" 'BEGIN { exit used >= want }'
    do
        count=$(awk -v n="$count" -v used="$used" -v want="$seconds" \
            'BEGIN { print int(1.2 * n * want / (used + 0.01)) + 1 }')
    done

    # In a library without a symbol table, an address gets the name of the exported function before
    # it. Most often this name is wrong, so the library's replaces it. GOMP_parallel is right.
    pprof --raw "$binary" "$work/cpu.prof" | sed -E '1,/^--- profile/ {
        s/GOMP_parallel@@GOMP_[0-9.]+/GOMP_parallel/
        s/[^ -]+@@G?OMP_[0-9.]+/libgomp/
        s/[^ -]+@@ZLIB_[0-9.]+/zlib/
        s/^(0x[0-9a-f]+) 0x[0-9a-f]+$/\1 unknown/
        s/<[0-9a-f]+>//g
        s|^binary=.*|binary='"$stage"'|
    }' >"$work/cpu.raw"

    # Leaves out the C library's functions that call main or a thread's first function.
    local startup='_start|__libc_start_[a-z_]+|(__)?clone3?|start_thread'
    pprof --collapsed "$work/cpu.raw" |
        awk '/^[^;]*(_start|main)/ { main += $NF } { all += $NF }
            END { printf "main thread %d, other threads %d\n", main, all - main }' >"$work/split"
    pprof --collapsed "$work/cpu.raw" |
        sed -E ":a; s/^($startup);//; ta; :b; s/;(zlib|libgomp);\\1/;\\1/; tb" >"$work/stacks"
    pprof --text "$work/cpu.raw" | grep -vE " ($startup)\$" >"$work/flat"
    {
        describe_run
        echo "samples: $(awk '/^Total/ { print $2 }' "$work/flat") of $used s of CPU time" \
            "in $elapsed s; $(<"$work/split")"
        echo
        echo 'self: samples in the function itself; total: in it or in what it calls'
        echo
        echo '    self  share so far    total  share function'
        tail -n +2 "$work/flat"
    } >"$folder/cpu.txt"

    annotate_hottest >"$folder/lines.txt"

    # Leaves out calls that tell a reader nothing: startup, and a library's calls of itself, whose
    # functions now have one name. Makes thin lines thick enough to be seen.
    pprof --dot --nodefraction=0.01 "$work/cpu.raw" | awk -v startup="^($startup)\\\\\\\\n" '
        match($0, /label="/) { name = substr($0, RSTART + 7) }
        /^N[0-9]+ \[/ && name ~ startup { gone[$1]; next }
        /^N[0-9]+ \[/ && name ~ /^(zlib|libgomp)\\n/ { library[$1] }
        $2 == "->" && ($1 in gone || $3 in gone || ($1 == $3 && $1 in library)) { next }
        { gsub(/setlinewidth\(0\.[0-9]+\)/, "setlinewidth(0.5)"); print }' |
        sed -E 's/^Legend \[shape=box,fontsize=24/Legend [fontsize=14/
            s/(-> .*label=)([0-9]+)/\1"   \2"/' |
        dot -Tsvg >"$folder/cpu.svg"
    python3 profiles/flamegraph.py "$stage$shown" <"$work/stacks" \
        >"$folder/flame.svg"
}

# Prints the stage's function with the most samples, with each line's samples beside it.
annotate_hottest() {
    local name place='' file=$source
    by_line 1 "$binary" "$work/cpu.prof"
    # Takes the first function that the file defines, in the order of the samples. What GCC splits
    # off a function has its name and a suffix.
    while read -r name; do
        place=$(grep -nE "^([A-Za-z].*[ *])?${name%%.*}\(" "$file" | grep -v ';$' | head -n 1) || continue
        break
    done < <(awk 'NR > 1 && $1 > 0 { print $6 }' "$work/flat")
    describe_run
    echo "function: ${place:+${name%%.*}, }$file"
    [[ $place ]] || return 0
    echo
    echo 'samples   share   line'
    awk -v total="$(awk '/^Total/ { print $2 }' "$work/flat")" -v file="$file" \
        -v first="${place%%:*}" '
        NR == FNR { split($2, at, ":"); if (at[1] == file) samples[at[2]] = $1; next }
        FNR < first { next }
        FNR in samples {
            printf "%7d  %5.1f%%  %5d  %s\n", samples[FNR], 100 * samples[FNR] / total, FNR, $0
        }
        !(FNR in samples) { printf "%16s  %5d  %s\n", "", FNR, $0 }
        /^}/ { exit }' "$work/lines" "$file" | sed 's/ *$//'
}

# --- heap ---

# Prints the MiB of each line that allocates, or calls what does, beside its source.
allocating_lines() {
    local bytes place file line
    while read -r bytes place; do
        file=${place%:*} line=${place##*:}
        printf '%10.3f  %-33s %s\n' "$(awk -v b="$bytes" 'BEGIN { print b / 2^20 }')" "$place" \
            "$(sed -n "${line}s/^ *//p" "$file")"
    done < <(head -n 40 "$work/lines")
}

profile_heap() {
    local peak last
    # Writes a dump whenever the use is 1 KiB above its earlier peak. The largest dump is the peak.
    run_program 1 LD_PRELOAD=libtcmalloc.so HEAPPROFILE="$work/heap" \
        HEAP_PROFILE_INUSE_INTERVAL=1024 || stage_failed
    # A dump begins with "heap profile: <objects in use>: <bytes> [<all objects>: <all bytes>] @".
    peak=$(awk 'FNR == 1 && $4 + 0 >= most { most = $4 + 0; file = FILENAME } END { print file }' \
        "$work"/heap.*.heap)
    last=$(printf '%s\n' "$work"/heap.*.heap | tail -n 1)
    {
        describe_run
        awk 'NR == 1 { printf "peak: %.1f MiB in use at once\n", $4 / 2^20 }' "$peak"
        head -n 1 "$last" | tr -d '[]:' | awk '{
            printf "in all: %d allocations, %.1f MiB; in use at the end: %.3f MiB\n",
                $5, $6 / 2^20, $4 / 2^20 }'
        echo
        echo 'MiB in use at the peak, by the line that allocates them; its callers count them, too'
        echo
        by_line 4 --inuse_space --show_bytes "$binary" "$peak"
        allocating_lines
    } >"$folder/heap.txt"
}

for place in $folders; do
    stage=${place##*/}
    make -s "$place"
    source=$(echo "$place"/*.c)
    # pprof accepts no program's path with a space, and env accepts none with an equals sign.
    binary=$work/program
    cp "${source%.c}" "$binary"
    ladder=${place%/*}
    folder=${output:-$root/$ladder/profiles}/$stage
    [[ $ladder == */* || $output ]] || folder=$root/profiles/$stage # the main ladder's
    mkdir -p "$folder"
    rm -f "$work"/*.heap
    count=1
    echo "$stage: heap" >&2
    profile_heap
    echo "$stage: time" >&2
    profile_cpu
    echo "$stage: written to ${folder#"$root"/}" >&2
done
