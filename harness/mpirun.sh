#!/usr/bin/env bash
# Starts a program as several processes, with mpirun. A stage's Makefile names this script as its
# RUN.
#
#     mpirun.sh PROGRAM [OPTION ...]        as many processes as PROCESSES says. Without it, as many
#                                           as Slurm has started tasks for, and at least 2
#     mpirun.sh -n 3 ... PROGRAM [...]      as mpirun's options say
#
# Open MPI 4 and 5 read the variables below, and what the environment has already wins. Other MPIs do
# not know them.
set -euo pipefail

settings=(
    # In a container you are root, which mpirun refuses.
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # There may be more processes than cores.
    OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    # A process has several threads. Bound to one core, they would share it.
    OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
    # A program that fails has said why. mpirun would add some twenty lines.
    OMPI_MCA_orte_execute_quiet=1 PRTE_MCA_prte_execute_quiet=1
    # A container may forbid that a process reads the memory of another.
    OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma
)
for setting in "${settings[@]}"; do
    [[ -v ${setting%%=*} ]] || export "${setting?}"
done
# OpenMP counts the cores from the first one, in each process. So all would be bound to the same.
export OMP_PROC_BIND=false

command -v mpirun >/dev/null || {
    echo 'mpirun.sh: found no mpirun (openmpi-bin) in PATH' >&2
    exit 77
}
# mpirun gives a program a terminal of its own, wherever its output goes. Lines for a file or a pipe
# must not be folded, and have no progress: this is what the programs do on a dumb terminal.
[[ -t 1 ]] || export TERM=dumb
if [[ ${1:-} != -* ]]; then
    # mpirun would say nothing of these: see the settings above.
    [[ -f ${1:-} && -x $1 ]] || command -v -- "${1:-}" >/dev/null || {
        echo "mpirun.sh: found no program '${1:-}', expected one that is built and its options" >&2
        exit 2
    }
    processes=${PROCESSES:-$((${SLURM_NTASKS:-1} > 1 ? SLURM_NTASKS : 2))}
    [[ $processes =~ ^[1-9][0-9]*$ ]] || {
        echo "mpirun.sh: PROCESSES: found '$processes', expected a whole number from 1" >&2
        exit 2
    }
    set -- -n "$processes" "$@"
fi
exec mpirun "$@"
