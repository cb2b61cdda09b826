#!/usr/bin/env bash
# Profiles the kernels of a CUDA stage with Nsight Compute. Writes each kernel's time, its share of
# the GPU's peak arithmetic and memory rates, its occupancy and its bank conflicts into
# profiles/<stage>/kernels.txt, or for a study into studies/<study>/profiles/<stage>.
#
#     [STUDY=name] profiles/profile_gpu.sh STAGE    (05, or 05_cuda_shared_tiling)
#
# Exit status: 0; 1 the stage or ncu failed; 2 no such stage; 77 no GPU or no ncu.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
    echo "profile_gpu.sh: ${*:2}" >&2
    exit "$1"
}

place=$(harness/ladders.py stages --cuda -- "${STUDY:-}" "${1:-}")
stage=${place##*/} ladder=${place%/*}
folder=profiles/$stage # the main ladder's
[[ $ladder != */* ]] || folder=$ladder/profiles/$stage

# The toolkit's folder is often not in PATH.
PATH=$PATH:/usr/local/cuda/bin
nvidia-smi -L 2>/dev/null | grep -q '^GPU' || fail 77 "found no GPU (nvidia-smi lists none)"
command -v ncu >/dev/null ||
    fail 77 "found no ncu; install NVIDIA's package nsight-compute, or the CUDA toolkit"

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

words=$(harness/ladders.py options "${STUDY:-}" profile)
mapfile -t options <<<"$words"
# Such as ", hidden 256, batch 64".
shown=$(paste -d ' ' - - <<<"$words" | sed -n '/^--data /d; s/^--/, /p' | tr -d '\n')
# A program that trains launches its kernels again and again. The first launches warm up.
skip=0
! grep -qx -e --epochs <<<"$words" || skip=100
make -s "$place"
program=$(echo "$place"/*.cu)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# ncu runs each kernel several times at a fixed clock rate, so a time here is longer than in a run
# of the stage. Compare the kernels only with each other.
ncu --launch-skip $skip --launch-count 200 --print-summary per-kernel \
    --metrics "$(IFS=,; echo "${metrics[*]}")" "${program%.cu}" "${options[@]}" --quiet \
    >"$work/ncu.txt" 2>&1 || {
    # Most often this is ERR_NVGPUCTRPERM: the driver may keep its counters for root.
    grep -E 'ERROR|rror:' "$work/ncu.txt" >&2 || tail -n 5 "$work/ncu.txt" >&2
    fail 1 "ncu failed on $stage"
}
mkdir -p "$folder"
{
    echo "$stage$shown, 200 launches at most"
    report/machine.sh | grep -E '^(gpu|nvcc): '
    echo
    # ncu's own messages, with process ids and paths, begin with ==.
    text=$(grep -v '^==' "$work/ncu.txt")
    echo "${text//"$PWD/"/}"
} >"$folder/kernels.txt"
echo "$stage: written to $folder/kernels.txt" >&2
