#!/usr/bin/env bash
# Runs on a machine with a GPU what the plan in kit.tgz lists: run.sh OUT [PART ...]
#
# It needs the driver, and of the system what every Debian and Ubuntu has. Some parts use more, if
# it is there: compute-sanitizer, ncu, cuBLAS, and PyTorch and JAX in the first python3 of PATH. No
# setting of the GPU is changed. Each part has a time limit, and all have LIMIT=480 seconds. After
# each part, OUT/results.tgz and OUT/weights-*.tgz have what there is, also if this is killed in the
# next one. A second call may name the parts to repeat, with another OUT.
#
# Exit status: 0; 2 wrong arguments; 77 no GPU; 130 or 143 interrupted.
set -u
shopt -s nullglob
export LC_ALL=C
parts=(calibrate weights sanitize steps grid peers counters studies cpu)
declare -A seconds=([calibrate]=15 [weights]=60 [sanitize]=60 [steps]=130 [grid]=60 [peers]=60
    [counters]=40 [studies]=30 [cpu]=200)
declare -A at_once=([weights]=6 [sanitize]=6)
# Of a larger result only two pieces are kept, because not much may come back: the end of so many
# bytes, and of all. results.py knows them.
large=$((3 << 19))
piece=$((1 << 18))

fail() {
    echo "run.sh: $2" >&2
    exit "$1"
}

say() {
    printf '%4d s  %s\n' "$SECONDS" "$*" | tee -a log.txt
}

# Writes an archive: it gets its name when it is whole. What still grows is no error.
pack() {
    tar -czf "$out/.new" "${@:2}" 2>/dev/null
    mv "$out/.new" "$out/$1.tgz"
}

keep() {
    local path
    while read -r path; do
        { head -c "$large" "$path" | tail -c "$piece" && tail -c "$piece" "$path"; } >pieces
        mv pieces "$path"
    done < <(find weights -type f -size "+${large}c")
    for path in weights/*/; do
        pack "weights-$(basename "$path")" "$path"
    done
    pack results --exclude=./weights --exclude=./kit --exclude=./cublas .
}

# Ends what still runs, and this script. timeout passes the signal on to its program.
stop() {
    trap '' INT TERM HUP
    # shellcheck disable=SC2046 # numbers
    kill $(cat pids) 2>/dev/null
    wait
    keep
    cd / && rm -rf "$work"
    exit "$1"
}

# Runs a command of the plan. What it says is in said/NAME. runs.tsv gets its name, its exit status,
# when it began, the load, and for how many microseconds it ran.
run() {
    local name=$1 limit=$2 load began start stopped status
    shift 2
    read -r load _ </proc/loadavg
    began=$(date -u +%FT%TZ) start=$EPOCHREALTIME
    timeout --kill-after=3 "$limit" "$@" >"said/$name" 2>&1 </dev/null &
    echo $! >>pids
    wait $!
    status=$? stopped=$EPOCHREALTIME
    printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$status" "$began" "$load" \
        $((${stopped/./} - ${start/./})) >>runs.tsv
}

# Runs the plan's lines of a part, while there is time. A run may take 60 s.
run_lines() {
    local name its_part ladder command left _
    while IFS=$'\t' read -r name its_part ladder command _; do
        [[ $its_part == "$1" ]] || continue
        while (($(jobs -pr | wc -l) >= ${at_once[$1]:-1})); do
            wait -n
        done
        left=$((part_end - SECONDS))
        ((left > 2)) || break
        cp "kit/columns/$ladder" "rows/$name.csv"
        # shellcheck disable=SC2086 # its words have no blanks
        run "$name" "$((left < 60 ? left : 60))" $command &
    done <kit/plan.tsv
    wait
}

# Clocks are logged from here on, and a context is held, so that later ones come quickly. Describes
# the machine, and finds cuBLAS.
prepare() {
    local march=x86-64-v3
    timeout "$limit" nvidia-smi -lms 200 --format=csv,noheader,nounits \
        --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu >clocks.csv 2>&1 &
    kit/calibrate --hold "$limit" 2>errors.txt &
    jobs -p >pids
    disown -a
    ! /lib64/ld-linux-x86-64.so.2 --help | grep -q 'x86-64-v4 (supported' || march=x86-64-v4
    ln -s "kit/$march" cpu
    unset CC MARCH # nothing is built here
    { bash kit/machine.sh; printf '%s: %s\n' began "$(date -u '+%F %T UTC')" march "$march" \
        name "$(bash kit/machine.sh --name)"; } >machine.txt 2>>errors.txt
    { nvidia-smi -q; nvcc --version; lscpu; python3 --version; } >details.txt 2>&1
    timeout 10 find /usr/local/cuda*/ /usr/lib /opt -name 'libcublas*.so.1?' \
        -exec ln -s {} cublas/ \; 2>/dev/null
}

[[ ${1-} && ${1-} != -* ]] || fail 2 "OUT: found '${1-}', expected a folder for what comes back"
limit=${LIMIT:-480}
[[ $limit =~ ^[1-9][0-9]*$ ]] || fail 2 "LIMIT: found '$limit', expected seconds"
for part in "${@:2}"; do
    [[ -v "seconds[$part]" ]] || fail 2 "PART: found '$part', expected one of: ${parts[*]}"
done
here=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1" && out=$(CDPATH='' cd "$1" && pwd)
[[ ${out-} && -w $out ]] || fail 2 "OUT: cannot write to '$1'"
[[ ! -e $out/results.tgz ]] || fail 2 "OUT: found results in '$1', expected a new folder"
PATH=$PATH:/usr/local/cuda/bin
nvidia-smi -L 2>/dev/null | grep -q '^GPU' || fail 77 'found no GPU (nvidia-smi lists none)'
work=$(mktemp -d) && cd "$work" || exit
mkdir kit rows said weights cublas
tar -xzf "$here/kit.tgz" -C kit || fail 2 "found no whole kit.tgz beside this script"
cp kit/plan.tsv kit/kit.txt .
touch machine.txt calibration.csv runs.tsv
trap 'stop 130' INT
trap 'stop 143' TERM HUP
end=$((limit - 5))
sed -n 's,.* \(weights/[^/]*\)/.*,\1,p' plan.tsv | sort -u | xargs -r mkdir -p
prepare
shift
for part in "${@:-${parts[@]}}"; do
    part_end=$((SECONDS + seconds[$part]))
    part_end=$((part_end < end ? part_end : end))
    say "begins: $part"
    if [[ $part == calibrate ]] && ((part_end > SECONDS)); then
        # The simulated device is measured briefly only if it has no GPU's name.
        timeout "$((part_end - SECONDS))" env -u SIM_NAME kit/calibrate \
            >calibration.csv 2>>errors.txt
    else
        run_lines "$part"
    fi
    keep
    say "ends: $part"
done
ls -l "$out"
stop 0
