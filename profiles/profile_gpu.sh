#!/usr/bin/env bash
# Profiles the kernels of a CUDA stage with Nsight Compute. Writes into profiles/<stage>/kernels.txt
# each kernel's time, its share of the GPU's peak arithmetic and memory rates, its occupancy and its
# bank conflicts.
#
#     profiles/profile_gpu.sh STAGE    (05, or 05_cuda_shared_tiling)
#
# Exit status: 0; 1 the stage or ncu failed; 2 no such stage; 77 no GPU or no ncu.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
    echo "profile_gpu.sh: ${*:2}" >&2
    exit "$1"
}

stage=''
all=(stages/[0-9][0-9]_*/train.cu)
all=("${all[@]#stages/}")
all=("${all[@]%/train.cu}")
for candidate in "${all[@]}"; do
    [[ $candidate != "${1:-}" && $candidate != "${1:-}"_* ]] || stage=$candidate
done
[[ $# == 1 && $stage ]] || fail 2 "found stage '${*:-}', expected one of: ${all[*]}"

# The toolkit's folder is often not in PATH.
PATH=$PATH:/usr/local/cuda/bin
nvidia-smi -L 2>/dev/null | grep -q '^GPU' || fail 77 "found no GPU (nvidia-smi lists none)"
command -v ncu >/dev/null ||
    fail 77 "found no ncu; install NVIDIA's package nsight-compute, or the CUDA toolkit"

hidden=256 batch=64
metrics=(
    gpu__time_duration.sum
    # percent of the peak rate of the multiprocessors, of the memory system, of the device memory
    sm__throughput.avg.pct_of_peak_sustained_elapsed
    gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed
    dram__throughput.avg.pct_of_peak_sustained_elapsed
    # active warps: as measured, and as registers and shared memory allow
    sm__warps_active.avg.pct_of_peak_sustained_active
    sm__maximum_warps_per_active_cycle_pct
    launch__registers_per_thread
    # additional accesses because of bank conflicts, out of all accesses to shared memory
    l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum
    l1tex__data_pipe_lsu_wavefronts_mem_shared.sum
)

data=$(data/locate.sh)
make -s "stages/$stage"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# ncu runs each kernel several times at a fixed clock rate, so a time here is longer than in
# training. Compare the kernels only with each other. The first launches warm up and are left out.
ncu --launch-skip 100 --launch-count 200 --print-summary per-kernel \
    --metrics "$(IFS=,; echo "${metrics[*]}")" \
    "stages/$stage/train" --data "$data" --hidden "$hidden" --batch "$batch" --epochs 1 --quiet \
    >"$work/ncu.txt" 2>&1 || {
    # Most often this is ERR_NVGPUCTRPERM: the driver may keep its counters for root.
    grep -E 'ERROR|rror:' "$work/ncu.txt" >&2 || tail -n 5 "$work/ncu.txt" >&2
    fail 1 "ncu failed on $stage"
}
mkdir -p "profiles/$stage"
{
    echo "$stage, hidden $hidden, batch $batch, 200 launches"
    report/machine.sh | grep -E '^(gpu|nvcc): '
    echo
    # ncu's own messages, with process ids and paths, begin with ==.
    text=$(grep -v '^==' "$work/ncu.txt")
    echo "${text//"$PWD/"/}"
} >"profiles/$stage/kernels.txt"
echo "$stage: written to profiles/$stage/kernels.txt" >&2
