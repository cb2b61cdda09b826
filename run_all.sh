#!/usr/bin/env bash
# The main job: trains every stage over a grid of hidden sizes and batch sizes. Prints and writes
# the speedup tables. `./run_all.sh --help` lists the options.
#
# A stage appends its own row to runs.csv when a run is finished. Only this file records what has
# been done, so --resume leaves out the runs that it holds.
set -euo pipefail

help() {
    cat <<'END'
Usage: ./run_all.sh [option ...]

Builds the stages, finds the data and trains every stage over a grid of hidden sizes and batch
sizes. Writes report/results/<machine>/stages/{runs.csv,machine.txt,tables.txt}. Ctrl-C keeps every
finished run, and --resume goes on from there.

  --stages LIST    names of stages, or how they begin: 00,02 (all stages)
  --peers          also train what you might use instead, from OpenBLAS to JAX: see bench/peers
  --hidden LIST    hidden units (32,64,128,256)
  --batch LIST     samples in a batch (32,64,128)
  --epochs N       passes over the training set (5)
  --repeats N      runs of which the median counts (3); a run over 5 s is not repeated
  --threads N      threads, for stages that can use several (as many as the machine has)
  --quick          a look in under a minute: 1 epoch, hidden 32,256, batch 32,128; a run over
                   0.5 s is not repeated; results go to report/results/<machine>-quick/stages
  --data DIR       MNIST ($MNIST_DIR, data/mnist, a download, or else a synthetic set)
  --output DIR     where the results go, instead of report/results/<machine>/stages
  --resume         keep earlier runs and do the missing ones; without it, earlier results move to
                   a folder beside the new ones, named after their date
  --help           print this help

Exit status: 0; 1 a stage failed; 2 wrong options or data; 130 or 143 interrupted.
END
}

fail() {
    echo "run_all.sh: $*" >&2
    exit 2
}

system=$(uname -s)
[[ $system == Linux ]] || fail "needs Linux, found $system: see INSTALL.md"

# Prints a path as an absolute one, because the script goes to its own directory.
absolute() {
    case $1 in
    /*) echo "$1" ;;
    *) echo "$PWD/$1" ;;
    esac
}

# --- options ---

command=("$0" "$@") # to print when interrupted
stages_wanted='' peers='' hiddens='' batches='' epochs='' repeats='' quick='' data='' output='' resume=''

# Sets the variable $1 to the path $value.
set_path() {
    [[ $value ]] || fail "$option: found '', expected a directory"
    printf -v "$1" '%s' "$(absolute "$value")"
}

# Sets the variable $1 to the comma-separated numbers of $value, as words.
set_numbers() {
    [[ $value =~ ^[1-9][0-9]{0,6}(,[1-9][0-9]{0,6})*$ ]] ||
        fail "$option: found '$value', expected whole numbers from 1, such as 32,256"
    printf -v "$1" '%s' "${value//,/ }"
}

set_number() {
    [[ $value =~ ^[1-9][0-9]{0,6}$ ]] ||
        fail "$option: found '$value', expected a whole number from 1"
    printf -v "$1" '%s' "$value"
}

while (($#)); do
    option=$1 value=''
    shift
    case $option in
    --help | -h)
        help
        exit
        ;;
    --quick) quick=1 && continue ;;
    --resume) resume=1 && continue ;;
    --peers) peers=1 && continue ;;
    --stages | --hidden | --batch | --epochs | --repeats | --threads | --data | --output)
        (($#)) || fail "$option: expected a value after it"
        value=$1
        shift
        ;;
    --*=*)
        value=${option#*=}
        option=${option%%=*}
        ;;
    esac
    case $option in
    --stages)
        [[ $value ]] || fail "$option: found '', expected names such as 00,02"
        stages_wanted=$value
        ;;
    --hidden) set_numbers hiddens ;;
    --batch) set_numbers batches ;;
    --epochs) set_number epochs ;;
    --repeats) set_number repeats ;;
    --threads) set_number OMP_NUM_THREADS && export OMP_NUM_THREADS ;;
    --data) set_path data ;;
    --output) set_path output ;;
    *) fail "unknown option '$option'; see ./run_all.sh --help" ;;
    esac
done

# A run that takes longer than this is not repeated: its noise is small in comparison.
slow_ms=5000
if [[ $quick ]]; then
    slow_ms=500
    hiddens=${hiddens:-32 256}
    batches=${batches:-32 128}
    epochs=${epochs:-1}
fi
hiddens=${hiddens:-32 64 128 256}
batches=${batches:-32 64 128}
epochs=${epochs:-5}
repeats=${repeats:-3}

if [[ ${MNIST_DIR:-} ]]; then
    MNIST_DIR=$(absolute "$MNIST_DIR")
    export MNIST_DIR
fi
export LC_ALL=C # a decimal point, not a comma
# GCC's OpenMP lets a thread spin at a barrier for about a millisecond before it sleeps. That is far
# longer than a batch. Each batch loses that time while another process holds the core that the late
# thread needs. On a quiet machine, less than a hundredth of it costs nothing.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-2000}
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")"

# As in the Makefile: nvcc passes the folder's path to a shell in double quotes.
folder=$(pwd -P)
case $folder in
*[\"\`]* | *\$[\(\{]*)
    fail "found the folder $folder: nvcc cannot read a path with any of \" \` \$( \${"
    ;;
esac

# --- the stages, the data, the machine ---

# The program of each stage.
declare -A programs=()

# Sets `stages` to the directories that --stages asks for, in the order of their names.
find_stages() {
    local all=() wanted=() want stage found chosen=' '
    for stage in stages/[0-9][0-9]_*/Makefile; do
        [[ -e $stage ]] || fail "found no stages in $PWD/stages"
        all+=("$(basename "${stage%/Makefile}")")
    done
    IFS=, read -ra wanted <<<"$stages_wanted"
    for want in "${wanted[@]}"; do
        found=''
        for stage in "${all[@]}"; do
            [[ $stage != "$want"* ]] || found+="$stage "
        done
        [[ $want && $found ]] || fail "--stages: found '$want', expected some of: ${all[*]}"
        chosen+=$found
    done
    stages=()
    for stage in "${all[@]}"; do
        if [[ ! $stages_wanted || $chosen == *" $stage "* ]]; then
            stages+=("$stage")
            programs[$stage]=stages/$stage/train
        fi
    done
}

# Adds the peers to the stages. From here on they are stages, and only their build differs.
find_peers() {
    local source stage program
    for source in bench/peers/peer_*; do
        case $source in
        *.c | *.cu) program=${source%.*} ;;
        *.py) program=$source ;;
        *) continue ;;
        esac
        stage=$(basename "${source%.*}")
        stages+=("$stage")
        programs[$stage]=$program
    done
}

# Why a stage is left out of the sweep, or of its rest: a line for each, printed below the tables.
declare -A notes=()
failed=''

# Prints the line of make's output that says why it failed: the compiler's first error, or what the
# linker missed. "ld returned 1 exit status" and "Error 1" only follow from it.
build_failure() {
    local log
    log=$(grep -vE '^collect2: error|error: linker command|^make.*\] Error [0-9]+$' <<<"$1") ||
        log=$1
    log=$(grep -m 1 -E '\b(error|fatal) *:|undefined reference|cannot find -l' <<<"$log" ||
        tail -n 1 <<<"$log")
    echo "${log//"$PWD/"/}"
}

build_stages() {
    local stage log target
    echo "Building: ${stages[*]}" >&2
    for stage in "${stages[@]}"; do
        target=("stages/$stage")
        [[ $stage != peer_* ]] || target=(-C bench/peers "$stage")
        if ! log=$(make --no-print-directory "${target[@]}" 2>&1); then
            echo "$log" >&2
            notes[$stage]="does not build: $(build_failure "$log")"
            failed=1
        elif [[ $log == *"$stage: left out"* ]]; then
            notes[$stage]="did not run: ${log#*: }"
        fi
    done
}

# Prints the name that the rows give to this data.
dataset_name() {
    if [[ -e $data/SYNTHETIC ]]; then
        echo synthetic
    elif [[ -e $data/train-images-idx3-ubyte || -e $data/train-images-idx3-ubyte.gz ]]; then
        echo mnist
    else
        echo csv
    fi
}

# Prints the value of a line of machine.txt.
machine_field() {
    sed -n "s/^$1: //p" <<<"$machine"
}

# Prepares the folder of the results and locks it: two sweeps at once would measure each other. A
# running stage inherits the lock's descriptor. So the lock holds until the stage ends, even if
# run_all.sh was killed.
open_results() {
    local aside base n
    output=${output:-report/results/$(report/machine.sh --name)${quick:+-quick}/stages}
    runs=$output/runs.csv
    { mkdir -p "$output" && [[ -r $output ]] && : >>"$runs"; } 2>/dev/null ||
        fail "$output: cannot write there; name another directory with --output"
    exec 9<"$output"
    flock --nonblock 9 || fail "$output: another run_all.sh is writing there"
    if [[ -s $runs && ! $resume ]]; then
        base=$output/$(date -r "$runs" +%Y-%m-%d_%H%M%S)
        aside=$base
        for ((n = 2; ; ++n)); do
            [[ -e $aside ]] || break
            aside=$base-$n
        done
        mkdir "$aside"
        for file in runs.csv machine.txt tables.txt; do
            [[ ! -e $output/$file ]] || mv "$output/$file" "$aside"
        done
        echo "Earlier results moved to $aside" >&2
    fi
    touch "$runs"
    if [[ ! -s $runs || ! -e $output/machine.txt ]]; then
        echo "$machine" >"$output/machine.txt"
        return
    fi
    [[ ! $(tail -c 1 "$runs") ]] || fail "$runs: ends within a row; delete that row to resume"
    python3 harness/tables.py "$runs" >/dev/null # refuses bad rows now, and not after the sweep
    # The rows may not show --threads: a serial stage always has one thread.
    grep -qx "threads: $(machine_field threads)" "$output/machine.txt" ||
        fail "--resume: $output has $(grep '^threads: ' "$output/machine.txt"), found" \
            "$(machine_field threads): expected the same --threads, or another --output"
    echo "resumed: $(machine_field date), revision $(machine_field revision)" \
        >>"$output/machine.txt"
}

# --- the sweep ---

# What the rows so far show. A cell is "stage hidden batch".
declare -A runs_done=() first_ms=()        # by cell; the first run's training time
declare -A train_ms=()                     # by "stage hidden", the last run's
declare -A overhead_ms=() last_hidden=()   # by stage, the last run's

# Records a row of runs.csv, unless it belongs to another sweep or is the header.
record_row() {
    local stage hidden batch row_epochs row_dataset load setup train cell _
    IFS=, read -r stage _ _ hidden batch row_epochs _ _ _ _ row_dataset load setup train _ <<<"$1"
    [[ $row_epochs == "$epochs" && $row_dataset == "$dataset" ]] || return 0
    cell="$stage $hidden $batch"
    printf -v load '%.0f' "${load}e3"
    printf -v setup '%.0f' "${setup}e3"
    printf -v train '%.0f' "${train}e3"
    runs_done[$cell]=$((${runs_done[$cell]:-0} + 1))
    first_ms[$cell]=${first_ms[$cell]:-$train}
    train_ms["$stage $hidden"]=$train
    overhead_ms[$stage]=$((load + setup))
    last_hidden[$stage]=$hidden
}

# Sets expected_ms to the training time that a run should take, from the same stage's runs so far.
# If none had this hidden size, scales the last in proportion. With no run so far, it is empty.
expect() {
    local stage=$1 hidden=$2 last=${last_hidden[$1]:-}
    expected_ms=${train_ms["$stage $hidden"]:-}
    if [[ ! $expected_ms && $last ]]; then
        expected_ms=$((${train_ms["$stage $last"]} * hidden / last))
    fi
}

# Returns whether a run of the plan is still needed, as far as the rows so far show.
is_wanted() {
    local repeat=$1 stage=$2 hidden=$3 batch=$4 first
    local cell="$stage $hidden $batch"
    [[ ! ${notes[$stage]:-} ]] && ((${runs_done[$cell]:-0} < repeat)) || return 1
    ((repeat > 1)) || return 0
    first=${first_ms[$cell]:-}
    if [[ ! $first ]]; then
        expect "$stage" "$hidden"
        first=${expected_ms:-0}
    fi
    ((first <= slow_ms))
}

# Sets the order of the sweep. The stages of a cell run one after another, because they are compared
# with each other. The repeats of a cell are a whole pass apart. So a minute in which the machine is
# busy spoils one run of three, and the median drops it. After one pass, the tables are complete.
make_plan() {
    local repeat hidden batch stage
    plan=()
    for ((repeat = 1; repeat <= repeats; ++repeat)); do
        for batch in $batches; do
            for hidden in $hiddens; do
                for stage in "${stages[@]}"; do
                    plan+=("$repeat $stage $hidden $batch")
                done
            done
        done
    done
}

# Prints milliseconds as, for example, "12 min".
duration() {
    local seconds=$((($1 + 500) / 1000))
    if ((seconds < 100)); then
        echo "$seconds s"
    elif ((seconds < 6000)); then
        echo "$(((seconds + 30) / 60)) min"
    else
        echo "$((seconds / 3600)) h $((seconds % 3600 / 60)) min"
    fi
}

# Prints what runs now and what is left from plan[$1] on. On a terminal it replaces its last line.
show_progress() {
    local run repeat stage hidden batch left=0 left_ms=0 unknown='' time line
    for run in "${plan[@]:$1}"; do
        # shellcheck disable=SC2086 # four words
        is_wanted $run || continue
        read -r repeat stage hidden batch <<<"$run"
        expect "$stage" "$hidden"
        left=$((left + 1))
        left_ms=$((left_ms + ${expected_ms:-0} + ${overhead_ms[$stage]:-0}))
        [[ $expected_ms ]] || unknown=1
    done
    time="about $(duration $left_ms)"
    [[ ! $unknown ]] || time='time not known yet'
    read -r repeat stage hidden batch <<<"${plan[$1]}"
    line="$stage, hidden $hidden, batch $batch, run $repeat; $left to go, $time"
    if [[ -t 2 ]]; then
        printf '\r\e[K%s' "${line:0:79}" >&2
    else
        echo "$line" >&2
    fi
}

clear_progress() {
    [[ ! -t 2 ]] || printf '\r\e[K' >&2
}

# Runs a stage once, in the background: bash handles a signal while it waits, but not while a
# command runs in the foreground.
run_stage() {
    local stage=$1 hidden=$2 batch=$3 status=0 rows reason
    rows=$(wc -l <"$runs")
    "${programs[$stage]}" --data "$data" --hidden "$hidden" --batch "$batch" --epochs "$epochs" \
        --csv "$runs" --quiet >/dev/null 2>"$errors" &
    wait $! || status=$?
    if [[ -s $errors ]]; then
        clear_progress
        cat "$errors" >&2
    fi
    reason=$(tail -n 1 "$errors")
    reason=${reason#"$stage: "}
    if ((status == 0)) && (($(wc -l <"$runs") > rows)); then
        record_row "$(tail -n 1 "$runs")"
        return
    elif ((status == 77)); then
        notes[$stage]="did not run: $reason"
        return
    elif ((status > 128)); then
        reason="killed by signal $((status - 128))${reason:+: $reason}"
    elif ((status == 0)); then
        reason='wrote no row to its --csv'
    else
        reason="exit status $status${reason:+: $reason}"
    fi
    notes[$stage]="failed at hidden $hidden, batch $batch: $reason"
    failed=1
}

sweep() {
    local i repeat stage hidden batch
    while IFS= read -r row; do
        record_row "$row"
    done <"$runs"
    make_plan
    for ((i = 0; i < ${#plan[@]}; ++i)); do
        read -r repeat stage hidden batch <<<"${plan[i]}"
        is_wanted "$repeat" "$stage" "$hidden" "$batch" || continue
        show_progress "$i"
        run_stage "$stage" "$hidden" "$batch"
    done
    clear_progress
}

print_tables() {
    local stage arguments=()
    for stage in "${stages[@]}"; do
        [[ ! ${notes[$stage]:-} ]] || arguments+=(--note "$stage: ${notes[$stage]}")
    done
    python3 harness/tables.py "${arguments[@]}" --output "$output/tables.txt" "$runs" || return
    cat "$output/tables.txt"
    echo "Written to $output: runs.csv, machine.txt, tables.txt" >&2
}

# Ends the running stage, prints the tables so far and says how to go on. $1: the signal's number.
interrupted() {
    trap '' HUP INT TERM
    # shellcheck disable=SC2046 # a list of processes
    kill $(jobs -p) 2>/dev/null || true
    wait
    clear_progress
    print_tables || true
    [[ $resume ]] || command+=(--resume)
    again=$(printf ' %q' "${command[@]}")
    echo "Interrupted; to go on:${again//\\,/,}" >&2 # %q escapes commas without need
    exit $((128 + $1))
}

find_stages
./deps.sh run
data=$(data/locate.sh ${data:+"$data"})
dataset=$(dataset_name)
machine=$(report/machine.sh)
if [[ $peers ]]; then
    # Each library has to choose its kernels itself. A variable left in the environment can halve a
    # peer's speed or its precision, and machine.txt does not show it.
    unset "${!BLIS_@}" "${!CUBLAS_@}" "${!DNNL_@}" "${!JAX_@}" "${!KMP_@}" "${!LIBXSMM_@}" \
        "${!MKL_@}" "${!NPY_@}" "${!NUMBA_@}" "${!ONEDNN_@}" "${!OPENBLAS_@}" "${!TORCH@}" \
        ATEN_CPU_CAPABILITY CUDA_LAUNCH_BLOCKING NVIDIA_TF32_OVERRIDE XLA_FLAGS
    find_peers
    machine+=$'\n'$(make --silent --no-print-directory -C bench/peers versions)
fi
open_results
echo "Data: $data ($dataset)" >&2
build_stages

errors=$(mktemp) # a stage's standard error
trap 'rm -f "$errors"' EXIT
trap 'interrupted 1' HUP
trap 'interrupted 2' INT
trap 'interrupted 15' TERM
sweep
print_tables
[[ ! $failed ]] || exit 1
