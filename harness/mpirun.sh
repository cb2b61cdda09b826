#!/usr/bin/env bash
# Starts a program as several processes, with mpirun. A stage's Makefile names this script as its
# RUN.
#
#     mpirun.sh PROGRAM [OPTION ...]        as many processes as PROCESSES says. Without it, as many
#                                           as Slurm has started tasks for, and at least 2
#     mpirun.sh -n 3 ... PROGRAM [...]      as mpirun's options say
#
# Open MPI 4 and 5 read the variables below, and what the environment has already wins. MPICH needs
# none of them.
set -euo pipefail

settings=(
    # In a container you are root, which mpirun refuses.
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # There may be more processes than cores.
    OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    # A process has several threads. Bound to one core, they would share it.
    OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
    # A container may forbid that a process reads the memory of another.
    OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma
)
# On one machine the processes share memory, and need no network. Open MPI 5 complains of some that it
# finds. Shared memory has another name in 4, so this names all others. Other machines come from
# Slurm, from a file or from an option.
if [[ ${SLURM_JOB_NUM_NODES:-1} == 1 && ! $(compgen -e) =~ hostfile|HOSTFILE|NODEFILE &&
    ! (${1:-} == -* && " $* " =~ host|machinefile|" -H ") ]]; then
    settings+=('OMPI_MCA_btl=^tcp,uct,openib,ofi')
fi
for setting in "${settings[@]}"; do
    [[ -v ${setting%%=*} ]] || export "${setting?}"
done
# OpenMP counts the cores from the first one, in each process. So all would be bound to the same.
export OMP_PROC_BIND=false

# Copies to standard error what the programs say there. What MPI says lies between lines of dashes, or
# begins with [machine:process], or with [warn] from its libevent. It is kept until the exit status
# comes, as the last line. If the run has failed and no program has said why, then MPI's first block
# is the reason, or else its first line. Open MPI 4 may lose all of them: beside other load, mpirun
# cannot unpack what a process sent it. Then it says so in a line that names show_help.c.
separate() {
    local mpi='^\[([^]]*([:@]|\]\[)|warn\])' blank='^[[:space:]]*$'
    local line signal words kept='' is_block='' block='' reason='' first='' lost='' said=''
    set +e
    trap '' HUP INT PIPE TERM
    while IFS= read -r line && [[ $line != $'\1'* ]]; do
        if [[ $line =~ ^[[:space:]]*-{60,}$ ]]; then
            [[ ! $is_block || $reason || $block == *'terminated normally'* ]] || reason=$block
            [[ $is_block ]] && is_block='' || is_block=1
            block=
        elif [[ $is_block ]]; then
            block+=" $line"
        elif [[ $line =~ $mpi ]]; then
            [[ $first || $line == *ERROR_LOG* ]] || first=$line
            [[ $line != *show_help.c* ]] || lost='MPI lost its own message, which another run may show'
        elif [[ ! $line =~ $blank ]]; then
            said=1
            printf '%s\n' "$line" >&2
            continue
        fi
        [[ $line =~ $blank ]] || kept+=$line$'\n'
    done
    if [[ $line == $'\1'0 ]]; then
        printf '%s' "$kept" >&2
    elif [[ $line == $'\1'* && ! $said ]]; then
        line=${line#?}
        if ((line > 128)) && signal=$(kill -l "$line" 2>/dev/null); then
            first="a process ended with SIG$signal"
        fi
        read -ra words <<<"${reason:-${first:-${block:-$lost}}}" # without the ends of its lines
        line="mpirun ended with status $line: ${words[*]}"
        line=${line%%. *}
        echo "mpirun.sh: ${line%: }" >&2
    fi
}

# Ends mpirun and all that comes from it, after a second and a half the hard way: while it starts
# many processes, mpirun does not listen. They are in groups of their own.
# shellcheck disable=SC2317 # the traps call it
end() {
    local children started=("$!")
    trap '' HUP INT TERM
    for ((i = 0; i < ${#started[@]}; ++i)); do
        read -ra children < <(cat "/proc/${started[i]}/task/"*/children 2>/dev/null) || true
        started+=("${children[@]}")
    done
    kill -TERM "${started[0]}" 2>/dev/null || true
    for ((i = 0; i < 15; ++i)); do
        kill -0 "${started[@]}" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "${started[@]}" 2>/dev/null || true
    trap - "$1"
    kill -"$1" $$
}

command -v mpirun >/dev/null || {
    echo 'mpirun.sh: found no mpirun (openmpi-bin) in PATH' >&2
    exit 77
}
# mpirun gives a program a terminal of its own, wherever its output goes. Lines for a file or a pipe
# must not be folded, and have no progress: this is what the programs do on a dumb terminal.
[[ -t 1 ]] || export TERM=dumb
if [[ ${1:-} != -* ]]; then
    [[ -f ${1:-} && -x $1 ]] || command -v -- "${1:-}" >/dev/null || {
        echo "mpirun.sh: found no program '${1:-}', expected one that is built and its options" >&2
        exit 2
    }
    # A process that waits keeps its core busy. So with many more than cores, none gets far: a
    # thousand on two cores do not start within ten minutes.
    tasks=${SLURM_NTASKS:-1} most=$((16 * $(getconf _NPROCESSORS_ONLN)))
    processes=${PROCESSES:-$((tasks > 1 ? tasks : 2))}
    ((most > tasks)) || most=$tasks
    if [[ ! $processes =~ ^[1-9][0-9]{0,8}$ ]] || ((processes > most)); then
        echo "mpirun.sh: PROCESSES: found '$processes', expected a whole number from 1 to $most" >&2
        exit 2
    fi
    set -- -n "$processes" "$@"
fi
exec 3> >(separate)
separator=$! status=0
trap 'end HUP' HUP
trap 'end INT' INT
trap 'end TERM' TERM
{ # bash would tell of a signal that ended mpirun
    mpirun "$@" <&0 2>&3 3>&- &
    wait $! || status=$?
} 2>/dev/null
printf '\n\1%d\n' "$status" >&3
wait "$separator"
exit "$status"
