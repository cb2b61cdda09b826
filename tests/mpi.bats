#!/usr/bin/env bats
# Tests what only 07_mpi has: processes. All run on this machine. What differs between machines is
# given to each process as its working directory.
# shellcheck disable=SC2154 # helpers.bash sets them
load helpers

setup_file() {
    command -v mpicc >/dev/null || skip 'found no mpicc (libopenmpi-dev)'
    make -s -C "$BATS_TEST_DIRNAME/../stages/00_serial"
    make -s -C "$BATS_TEST_DIRNAME/../stages/07_mpi"
    make -s -C "$BATS_TEST_DIRNAME" build/many_processors.so
}

mpirun=$BATS_TEST_DIRNAME/../harness/mpirun.sh

# processes COUNT [PROGRAM]: makes $train start 07_mpi, or a program, as so many processes.
processes() {
    train=$dir/07_mpi/train
    mkdir -p "$dir/07_mpi"
    printf '#!/bin/sh\nPROCESSES=%s exec "%s" "%s" "$@"\n' "$1" "$mpirun" \
        "${2:-$stages/07_mpi/train}" >"$train"
    chmod +x "$train"
}

# weights FILE [OPTION...]: trains for 25 epochs of two batches.
weights() {
    succeeds --epochs 25 --save-weights "$dir/$1" "${@:2}"
}

# are_close FILE OTHER: the bound is that of the reference.
are_close() {
    PATH=/usr/bin:$PATH python3 - "$dir/$1" "$dir/$2" <<'END'
import sys
import numpy as np
a, b = (np.fromfile(name, np.float32) for name in sys.argv[1:])
assert a.size == b.size and np.linalg.norm(a - b) <= 5e-5 * np.linalg.norm(b), np.linalg.norm(a - b)
END
}

# With one hidden unit there is one slice, and all processes but one have none.
@test "the weights of 00_serial, from 1, 2, 3 and 5 processes, also where there are fewer slices" {
    for hidden in 1 100; do
        train=$stages/00_serial/train weights right --hidden $hidden
        for count in 1 2 3 5; do
            processes $count
            weights found --hidden $hidden
            are_close found right
        done
    done
}

@test "--threads counts the threads of all processes, and the row says how many there were" {
    export LD_PRELOAD=$BATS_TEST_DIRNAME/build/many_processors.so
    [[ $LD_PRELOAD != *[\ :]* ]] || skip 'the path has a sign that LD_PRELOAD reads'
    train=$stages/00_serial/train weights right --hidden 100
    processes 3
    for threads in 1 2 5; do
        weights found --hidden 100 --threads $threads --csv "$dir/rows.csv"
        are_close found right
    done
    [[ $(tail -n +2 "$dir/rows.csv" | cut -d, -f1-3 | xargs) == '07_mpi,cpu,1 07_mpi,cpu,2 07_mpi,cpu,5' ]]
}

# The phases and the memory of a row are those of process 0. These weights have 60 MiB.
@test "where there are fewer threads than processes, process 0 has work" {
    for count in 2 3; do
        processes $count
        succeeds --hidden 20000 --threads 1 --epochs 1 --csv "$dir/rows.csv"
    done
    awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) if ($i == "peak_rss_mib") at = i }
             NR > 1 && $at < 60 { exit 1 }' "$dir/rows.csv"
}

@test "one process writes: an epoch, a result and a row are there once" {
    processes 3
    succeeds --csv "$dir/rows.csv"
    [[ $(wc -l <"$dir/rows.csv") == 2 ]]
    [[ $(grep -c '^epoch' "$dir/output") == 2 && $(grep -c '^07_mpi: hidden 3' "$dir/output") == 1 ]]
}

@test "a file gets whole lines, though mpirun gives each program a terminal" {
    processes 2
    succeeds
    tail -n 1 "$dir/output" | grep -q '^07_mpi: hidden 3.* accuracy [0-9.]*$'
    [[ $(grep -c "^    " "$dir/output") == 0 ]]
}

@test "wrong options: one line and exit status 2, from all processes together" {
    processes 3
    fails 2 "^--hidden: found '0', expected a whole number from 1 to" --hidden 0
    fails 2 "^07_mpi: found 'stray', expected options only: see --help" stray
    fails 2 "^--csv: cannot write $dir/no/rows.csv: No such file" --csv "$dir/no/rows.csv"
    fails 2 "^$dir/nowhere: No such file or directory" --data "$dir/nowhere"
    for option in help columns; do
        succeeds --$option
        "$stages/00_serial/train" --$option >"$dir/once"
        [[ $(wc -l <"$dir/output") == $(wc -l <"$dir/once") ]]
    done
}

@test "a run that fails: one line and exit status 1" {
    processes 2
    fails 1 '^07_mpi: the loss became -?(nan|inf): try a --learning-rate below' \
        --learning-rate 1e30 --epochs 5 --save-weights "$dir/weights"
    [[ ! -e $dir/weights ]]
    mkdir "$dir/closed"
    ln -s /dev/full "$dir/full.csv"
    fails 1 "^--csv: cannot write $dir/full.csv" --csv "$dir/full.csv"
}

# by_rank COMMAND COMMAND [PROGRAM]: a program whose processes run the first command in process 0, and
# the second in the next one. (Open MPI 5.0.7 crashes where mpirun gets two programs.)
by_rank() {
    printf '#!/bin/bash\nif ((${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}} == 0)); then %s; else %s; fi\n' "$@" \
        >"$dir/by_rank"
    chmod +x "$dir/by_rank"
}

# on_two_machines: runs with the data of the directory a in process 0, and with those of b in the
# next one.
on_two_machines() {
    by_rank "cd '$dir/a'" "cd '$dir/b'"
    printf 'exec "%s" "$@"\n' "$(realpath "$stages/07_mpi/train")" >>"$dir/by_rank"
    processes 2 "$dir/by_rank"
    data=digits "$@"
}

@test "other files on another machine are noticed, and the line says where" {
    make_idx "$dir/a/digits"
    make_idx "$dir/b/digits"
    on_two_machines succeeds
    labels 2 7 1 9 >"$dir/b/digits/t10k-labels-idx1-ubyte"
    on_two_machines fails 2 \
        "^process 1 on [^:]+: --data: found other images or labels in digits than process 0 has; expected"
    make_idx "$dir/b/digits"
    printf '\001' | dd of="$dir/b/digits/train-images-idx3-ubyte" bs=1 seek=900 conv=notrunc status=none
    on_two_machines fails 2 '^process 1 on [^:]+: --data: found other images or labels'
    rm "$dir/b/digits/train-labels-idx1-ubyte"
    on_two_machines fails 2 '^process 1 on [^:]+: digits/train-labels-idx1-ubyte: not found'
    rm "$dir/a/digits/train-labels-idx1-ubyte" # both fail: one line
    on_two_machines fails 2 '^digits/train-labels-idx1-ubyte: not found'
}

@test "a process that dies ends the others, with one line" {
    local run="exec '$stages/07_mpi/train' --data '$data' --train 6 --test 4"
    by_rank "$run" 'kill -9 $$'
    status=0
    timeout 60 "$mpirun" "$dir/by_rank" >/dev/null 2>"$dir/error" || status=$?
    cat "$dir/error"
    [[ $status != 0 && $status != 124 && $(<"$dir/error") == "mpirun.sh: mpirun ended with status $status"* ]]
    by_rank "$run --hidden 300000" "ulimit -v 600000; $run --hidden 300000"
    status=0
    timeout 60 "$mpirun" "$dir/by_rank" >/dev/null 2>"$dir/error" || status=$?
    cat "$dir/error"
    [[ $status == 1 && $(wc -l <"$dir/error") == 1 ]]
    grep -q '^07_mpi: out of memory: asked for ' "$dir/error"
}

@test "MPI that does not start: one line, with its reason" {
    mpirun --version | grep -q 'Open MPI' || skip 'found another MPI than Open MPI'
    processes 2
    OMPI_MCA_btl=self run_train
    cat "$dir/error"
    [[ $status != 0 && $(wc -l <"$dir/error") == 1 ]]
    grep -qE '^mpirun.sh: mpirun ended with status [0-9]+: .*(unable to reach|unreachable|MPI_Init)' "$dir/error"
}

# fake_mpirun COMMAND: puts an mpirun of one command first in PATH.
fake_mpirun() {
    mkdir -p "$dir/bin"
    printf '#!/bin/bash\n%s\n' "$1" >"$dir/bin/mpirun"
    chmod +x "$dir/bin/mpirun"
    PATH=$dir/bin:$PATH
}

# says STATUS EXPECTED LINE...: what mpirun.sh says where mpirun says these lines and ends so.
says() {
    fake_mpirun "printf '%s\n' \"\${@:4}\" >&2; exit $1"
    run "$mpirun" -n 2 true "${@:3}"
    [[ $status == "$1" && $output == "$2" ]]
}

@test "what MPI says is kept apart from what a program says" {
    local rule ours='07_mpi: --hidden: found 0'
    rule=$(printf -- '-%.0s' {1..74})
    local -a banner=("$rule" 'prterun detected that one or more processes' 'failed.  Stop.' "$rule" ' ')
    says 2 "$ours" "$ours" '[warn] Epoll MOD(4) on fd 22 failed.' "${banner[@]}"
    says 2 "$ours" '[vm][[36,1],0][btl_tcp.c:266:f] unreachable' "$ours" '[vm:07] *** reported' "${banner[@]}"
    says 1 'mpirun.sh: mpirun ended with status 1: [vm:07] *** An error occurred in MPI_Init' \
        '[vm:07] [[1,0],0] ORTE_ERROR_LOG' '[vm:07] *** An error occurred in MPI_Init' '[vm:07] *** reported'
    says 1 'mpirun.sh: mpirun ended with status 1: prterun detected that one or more processes failed' \
        '[vm:07] [[1,0],0] ORTE_ERROR_LOG' "$rule" 'Primary job  terminated normally' "$rule" "${banner[@]}"
    says 255 'mpirun.sh: mpirun ended with status 255: [proxy:0@vm] launch.c: no such file' \
        '[proxy:0@vm] launch.c: no such file'
    says 139 'mpirun.sh: mpirun ended with status 139: a process ended with SIGSEGV'
    says 3 'mpirun.sh: mpirun ended with status 3'
    fake_mpirun 'kill -SEGV $$'
    run "$mpirun" true
    [[ $output == 'mpirun.sh: mpirun ended with status 139: a process ended with SIGSEGV' ]]
    says 0 "$rule"$'\n'"A warning."$'\n'"$rule" "$rule" 'A warning.' "$rule" # a run that succeeds
}

@test "processes on one machine use no network, those on several do" {
    fake_mpirun 'btl=${OMPI_MCA_btl-all}; echo "${btl%%,*}"'
    [[ $("$mpirun" true) == ^tcp && $("$mpirun" -n 2 true --hidden 3) == ^tcp ]]
    [[ $(SLURM_JOB_NUM_NODES=1 "$mpirun" true) == ^tcp && $(OMPI_MCA_btl=ofi "$mpirun" true) == ofi ]]
    [[ $(SLURM_JOB_NUM_NODES=2 "$mpirun" true) == all && $("$mpirun" --host a,b true) == all ]]
    [[ $("$mpirun" -H a,b true) == all && $(OMPI_MCA_orte_default_hostfile=f "$mpirun" true) == all ]]
}

@test "SIGTERM ends all, also an mpirun that does not listen" {
    fake_mpirun "trap '' TERM; sleep 100 & echo \$\$ \$! >'$dir/pids'; wait"
    status=0
    timeout --kill-after=5 1 "$mpirun" true || status=$?
    [[ $status == 124 ]]
    for pid in $(<"$dir/pids"); do
        [[ ! -e /proc/$pid ]] || grep -q '^State:.*zombie' "/proc/$pid/status"
    done
}

@test "without mpicc the stage is left out, with the reason, and its tests are skipped" {
    "$BATS_TEST_DIRNAME/clean_copy.sh" "$dir/copy"
    cd "$dir/copy"
    run make stages/07_mpi NEEDS=no-such-mpicc --no-print-directory
    [[ $status == 0 && $output == '07_mpi: left out, found no no-such-mpicc in PATH' ]]
    sed -i 's/^NEEDS.*/NEEDS = no-such-mpicc/' stages/07_mpi/Makefile
    tests/stages.py sanitized stages/07_mpi >output
    grep -qx 'skipped stages/07_mpi: not built on this machine' output
    ./run_all.sh --stages 00,07 --quick --hidden 32 --batch 32 --repeats 1 --train 64 --test 10 \
        --data "$data" --output results >output 2>&1 || true
    grep -q '07_mpi: did not run: left out, found no no-such-mpicc in PATH' results/tables.txt
}

@test "mpirun.sh without a program or a number of processes: one line and exit status 2" {
    run "$mpirun" "$dir/train"
    [[ $status == 2 && $output == "mpirun.sh: found no program '$dir/train', expected one that is built"* ]]
    run "$mpirun"
    [[ $status == 2 && $output == "mpirun.sh: found no program '', expected"* ]]
    for count in 0 -1 x 1.5 99999 99999999999999999999; do
        PROCESSES=$count run "$mpirun" true
        [[ $status == 2 && $output == "mpirun.sh: PROCESSES: found '$count', expected a whole number from 1 to "* ]]
    done
}

@test "make CC=clang: mpicc calls clang" {
    command -v clang >/dev/null || skip 'found no clang'
    make -s -C "$stages/07_mpi" CC=clang OUTPUT="$dir/train"
    strings -a "$dir/train" | grep -q 'clang version'
    train=$dir/train
    succeeds
}

@test "RUN: the words before the program, with a script found from the stage's folder" {
    cd "$dir"
    PYTHONPATH=$BATS_TEST_DIRNAME/../harness python3 - <<'END'
import ladders
stage = ladders.find_ladder("").find("07_mpi")
script, program = stage.command
assert script == str(ladders.ROOT / "harness/mpirun.sh"), script
assert program == str(stage.program)
END
}

@test "make compare and make profile start it as processes" {
    [[ ${FULL:-} ]] || skip 'FULL=1 runs it'
    command -v google-pprof >/dev/null || skip 'found no google-pprof (packages.txt)'
    dir=$(mktemp -d -t "a b'c\$d(e#f:g=h[i].XXXXXX") # in any path
    "$BATS_TEST_DIRNAME/clean_copy.sh" "$dir"
    cd "$dir"
    MNIST_DIR=$(OFFLINE=1 data/locate.sh 2>/dev/null)
    export MNIST_DIR
    make -s compare A=02 B=07 RUNS=8 HIDDEN=32 TRAIN=640 >output
    grep -q '^median  *02_openmp  *07_mpi' output
    make -s profile STAGE=07 RESULTS=results CPU_SECONDS=1 HIDDEN=256
    # The functions of both processes have names: nearly all samples are from main().
    read -r main others < <(sed -nE 's/^samples: .* main thread ([0-9]+), other threads ([0-9]+)$/\1 \2/p' \
        results/07_mpi/cpu.txt)
    ((main > 100 && others < main / 5))
    grep -qE '^peak: [0-9]+\.[0-9] MiB' results/07_mpi/heap.txt
}

# Starts a Slurm of one node, as the user who runs the test. Its files are in $dir/slurm.
start_slurm() {
    slurm=$dir/slurm
    local name port=$((20000 + $$ % 20000))
    name=$(hostname -s)
    export SLURM_CONF=$slurm/slurm.conf
    mkdir "$slurm" "$slurm"/{state,spool}
    head -c 1024 /dev/urandom >"$slurm/munge.key"
    chmod 400 "$slurm/munge.key"
    cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=$name(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$slurm/munge.socket
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
NodeName=$name NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
END
    munged --force --key-file="$slurm/munge.key" --socket="$slurm/munge.socket" \
        --pid-file="$slurm/munged.pid" --log-file="$slurm/munged.log" \
        --seed-file="$slurm/munged.seed" 2>"$slurm/munged.errors" || return
    slurmctld -D 2>"$slurm/slurmctld.errors" 3>&- &
    slurmd -D -N "$name" 2>"$slurm/slurmd.errors" 3>&- &
    for ((i = 0; i < 100; ++i)); do
        [[ $(sinfo --noheader --format=%T 2>/dev/null) != idle ]] || return 0
        sleep 0.2
    done
    return 1
}

stop_slurm() {
    local file
    for file in "$slurm"/*.pid; do
        [[ ! -e $file ]] || kill "$(cat "$file")" || true
    done
    wait
}

@test "run_all.sbatch on a Slurm of one node" {
    [[ ${FULL:-} ]] || skip 'FULL=1 runs it'
    for command in munged slurmctld slurmd sbatch; do
        PATH=$PATH:/usr/sbin command -v $command >/dev/null ||
            skip "found no $command (the packages munge, slurmctld, slurmd and slurm-client)"
    done
    PATH=$PATH:/usr/sbin
    "$BATS_TEST_DIRNAME/clean_copy.sh" "$dir/copy"
    cd "$dir/copy"
    start_slurm || {
        tail -n 3 "$slurm"/*.errors
        stop_slurm
        skip 'Slurm does not start here'
    }
    local options=(--hidden 32 --batch 32 --repeats 1 --train 6 --test 4 --data "$data")
    status=0
    {
        sbatch --wait run_all.sbatch --stages 02_openmp,07_mpi "${options[@]}" --output "$dir/results" &&
            sbatch --wait run_all.sbatch sh -c 'echo "job $SLURM_JOB_ID"' &&
            ! sbatch --wait run_all.sbatch --no-such-option
    } || status=$?
    stop_slurm
    tail -n 30 run_all-*.txt
    [[ $status == 0 && $(cut -d, -f1 "$dir/results/runs.csv" | xargs) == 'stage 02_openmp 07_mpi' ]]
    grep -qx 'job 2' run_all-2.txt
    grep -q "unknown option '--no-such-option'" run_all-3.txt
}
