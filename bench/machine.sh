#!/usr/bin/env bash
# Describes the machine, the tools and the sources that results are measured with, as `key: value`
# lines. It names neither the host nor the user, because results are for sharing.
# With --name, it prints only the name of the folder for the machine's results.
# MARCH and CC in the environment are part of the machine's name, because make builds with them.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C

cpu_info=$(lscpu 2>/dev/null || true)
compiler=${CC:-gcc}
march=${MARCH:-native}
other=${march#native}

# Prints the first value that lscpu gives for a key.
cpu_field() {
    sed -nE "s/^ *$1: *//p" <<<"$cpu_info" | sed 1q
}

# Prints a line for each GPU. Without a driver, nvidia-smi may print its error on standard output.
gpus() {
    nvidia-smi -L 2>/dev/null | grep -q ^GPU && nvidia-smi --query-gpu="$1" --format=csv,noheader
}

# Shortens "Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz" to Intel Xeon Platinum 8488C. A virtual
# machine may say only "AMD EPYC", the name of many processors. Then this adds family and model.
cpu=$(cpu_field 'Model name' |
    sed -E 's/^-$//; s/\((R|TM)\)//g; s/ *@.*//; s/ +[0-9]+-Core//; s/ +(CPU|Processor)\>//g')
[[ ! $cpu || $cpu =~ [0-9] ]] || cpu+=" family $(cpu_field 'CPU family') model $(cpu_field 'Model')"
cpu=${cpu:-$(uname -m)}
# Cores, not hardware threads.
cores=$(lscpu -p=CORE,SOCKET 2>/dev/null | grep -v '^#' | sort -u | wc -l || true)
((cores)) || cores=$(nproc --all)
if [[ ${1:-} == --name ]]; then
    [[ $compiler == gcc ]] || other+=" ${compiler##*/}"
    name=$(echo "$cpu $cores cores $(gpus name | sed 1q) $other" |
        tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9]+/-/g; s/^-|-$//g')
    # Committed results stay as they are, also where another machine of the same make runs. Without
    # git, nobody can say which are.
    committed=$(git ls-files "report/results/$name" 2>/dev/null) || committed=perhaps
    [[ ! $committed ]] || name+=-own
    echo "$name"
    exit
fi

revision=$(git rev-parse --short HEAD 2>/dev/null) &&
    changes=$(git status --porcelain -- . ':!report/results') ||
    revision=${REVISION:-unknown} changes=''
echo "cpu: $cpu, $cores cores, $(nproc --all) hardware threads${other:+, built for $other}"
echo "caches:$(sed -nE 's/^ *(L1d|L2|L3) cache: */ \1 /p' <<<"$cpu_info" | paste -sd,)"
echo "built for: $($compiler -march="$march" -### -E -x c /dev/null 2>&1 |
    sed -nE '/cc1/s/.*(-march=|-target-cpu" ")([a-z0-9.+_-]+).*/\2/p' | sed 1q)"
echo "memory: $(awk '/^MemTotal/ { printf "%.1f GiB", $2 / 2^20 }' /proc/meminfo)"
echo "gpu: $(gpus name,memory.total,driver_version | paste -sd';' | sed 's/^$/none/')"
# Idle, a GPU is not what it is after an hour of work.
echo "gpu now: $(gpus clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,temperature.gpu |
    sed 1q)"
echo "system: $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release), $(uname -srm)"
echo "compiler: $($compiler --version | sed 1q)"
PATH=$PATH:/usr/local/cuda/bin
! command -v nvcc >/dev/null || echo "nvcc: $(nvcc --version | sed -n 's/.*release //p')"
# OpenMP will choose as many threads as nproc prints: both read OMP_NUM_THREADS.
echo "threads: $(nproc)"
# Those of OpenMP, and those that change a library's kernels. Paths may name the user. A container
# with CUDA says what it is in variables.
libraries='ATEN|BLIS|CUBLAS|CUDA|DNNL|JAX|LIBXSMM|MKL|NPY|NUMBA|NVIDIA|ONEDNN|OPENBLAS|TORCH|XLA'
variables="^(G?OMP|KMP|$libraries)_|^(PROCESSES|WARMUP_S)="
container='^(CUDA_VERSION|NVIDIA_(DRIVER|PRODUCT|REQUIRE|VISIBLE)_|TORCH_CUDA_ARCH_LIST)|/'
echo "variables: $(env | grep -E "$variables" | grep -Ev "$container" | sort | paste -sd' ')"
echo "revision: $revision${changes:+, with uncommitted changes}"
echo "began: $(date -u '+%Y-%m-%d %H:%M UTC')"
