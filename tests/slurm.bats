#!/usr/bin/env bats
# Tests run_all.sbatch on a Slurm of one node. test_mpi.py tests what else 07_mpi has.
# shellcheck disable=SC2154 # helpers.bash sets them
load helpers

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
    command -v mpicc >/dev/null || skip 'found no mpicc (libopenmpi-dev)'
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
