#!/usr/bin/env bash
# Starts a program as several processes, with mpirun. A stage's Makefile names this script as its
# RUN.
#
#     mpirun.sh PROGRAM [OPTION ...]        as many processes as PROCESSES says. Without it, as many
#                                           as Slurm has started tasks for, and at least 2
#     mpirun.sh -n 3 ... PROGRAM [...]      as mpirun's options say
#
# Open MPI 4 and 5 read these variables; what is set already wins. MPICH needs none of them.
set -euo pipefail

settings=(
    # In a container you are root, which mpirun refuses.
    {OMPI,PRTE}_ALLOW_RUN_AS_ROOT=1 {OMPI,PRTE}_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # A program that fails says why. Open MPI 4 then adds no twenty lines; 5 adds its eight all the
    # same. 0 shows what they have to say.
    OMPI_MCA_orte_execute_quiet=1 PRTE_MCA_prte_execute_quiet=1
    # There may be more processes than cores. Without `slot`, Open MPI 5 fills one node only.
    OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe
    # A process has several threads. Bound to one core, they would share it.
    OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
    # A container may forbid that a process reads the memory of another.
    OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma
    # Open MPI loses memory as it ends: 279 lines of AddressSanitizer, and none of them is the
    # program's. bench/leaks_of_mpi.c looks for the program's.
    ASAN_OPTIONS=detect_leaks=0
    # OpenMP counts the cores from the first one, in each process: all would be bound to the same.
    OMP_PROC_BIND=false
)
# On one machine the processes share memory, and Open MPI 5 complains of some networks that it finds.
[[ ${SLURM_JOB_NUM_NODES:-1} != 1 || " $*" == *host* ]] ||
    settings+=('OMPI_MCA_btl=^tcp,uct,openib,ofi')
for setting in "${settings[@]}"; do
    [[ -v ${setting%%=*} ]] || export "${setting?}"
done
# mpirun gives a program a terminal of its own, wherever its output goes. On a dumb one, programs do
# not fold lines and show no progress.
[[ -t 1 ]] || export TERM=dumb
if [[ ${1:-} != -* ]]; then
    command -v -- "${1:-}" >/dev/null || { echo "mpirun.sh: found no program '${1:-}'" >&2; exit 2; }
    [[ ${PROCESSES-1} =~ ^[1-9][0-9]*$ ]] || {
        echo "mpirun.sh: PROCESSES: found '$PROCESSES', expected a whole number from 1" >&2
        exit 2
    }
    tasks=${SLURM_NTASKS:-1}
    set -- -n "${PROCESSES:-$((tasks > 1 ? tasks : 2))}" "$@"
fi
exec mpirun "$@"
