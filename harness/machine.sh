#!/usr/bin/env bash
# Describes the machine, the tools and the sources that results are measured with, as `key: value`
# lines. It names neither the host nor the user, because results are for sharing.
#
#     machine.sh [LADDER]    the lines, with the compiler's flags of each stage (of all ladders)
#     machine.sh --name      the name of the folder for the machine's results
#     machine.sh --gpu       the first GPU's clocks, power limit and temperature now
#
# MARCH in the environment is part of the machine's name, because make builds for it.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C

cpu_info=$(lscpu 2>/dev/null || true)
march=${MARCH:-native} other=''
if [[ $march != native ]]; then
    gcc -march="$march" -E -x c /dev/null &>/dev/null || {
        echo "MARCH: found '$march', which gcc does not take; expected such as x86-64-v3" >&2
        exit 2
    }
    other=", built for $march"
fi

# Prints the first value that lscpu gives for a key.
cpu_field() {
    sed -nE "s/^ *$1: *//p" <<<"$cpu_info" | sed 1q
}

# Prints a line for each GPU. Without a driver, nvidia-smi may print its error on standard output.
gpus() {
    local answer
    if answer=$(nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null); then
        echo "$answer"
    fi
}

if [[ ${1:-} == --gpu ]]; then
    gpus clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,temperature.gpu | sed -nE \
        '1s/(.*), (.*), (.*), (.*), (.*), (.*)/\1 of \2, memory \3, power \4 of \5, temperature \6 C/p'
    exit
fi
# Shortens "Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz" to Intel Xeon Platinum 8488C. A virtual
# machine may say only "AMD EPYC", the name of many processors. Then this adds family and model.
cpu=$(cpu_field 'Model name' |
    sed -E 's/\((R|TM)\)//g; s/ *@.*//; s/ +[0-9]+-Core//; s/ +(CPU|Processor)\>//g')
[[ ! $cpu || $cpu =~ [0-9] ]] || cpu+=" family $(cpu_field 'CPU family') model $(cpu_field 'Model')"
cpu=${cpu:-$(uname -m)}
# Cores, not hardware threads.
cores=$(lscpu -p=CORE,SOCKET 2>/dev/null | grep -v '^#' | sort -u | wc -l || true)
((cores)) || cores=$(nproc --all)
if [[ ${1:-} == --name ]]; then
    echo "$cpu $cores cores $(gpus name | sed 1q) ${other#, built for }" |
        tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9]+/-/g; s/^-|-$//g'
    exit
fi

# The widest vectors that the stages are built for, as in their sources.
macros=$(gcc -march="$march" -dM -E -x c /dev/null)
for vectors in AVX512F AVX2 AVX ARM_NEON SSE2 none; do
    [[ $macros != *"__${vectors}__ 1"* && $macros != *"__$vectors 1"* ]] || break
done
vectors=${vectors/512F/-512} vectors=${vectors#ARM_}
built=$(gcc -march="$march" -Q --help=target |
    sed -nE 's/^ *-march=(ARCH)?[[:space:]]+//p' | sed 1q)
revision=$(git rev-parse --short HEAD 2>/dev/null) &&
    changes=$(git status --porcelain -- . ':!report/results') || revision=unknown changes=''
echo "cpu: $cpu, $cores cores, $(nproc --all) hardware threads$other"
echo "caches:$(sed -nE 's/^ *(L1d|L2|L3) cache: */ \1 /p' <<<"$cpu_info" | paste -sd,)"
echo "built for: $built, $vectors"
echo "memory: $(awk '/^MemTotal/ { printf "%.1f GiB", $2 / 2^20 }' /proc/meminfo)"
echo "gpu: $(gpus name,memory.total,driver_version | paste -sd';' | sed 's/^$/none/')"
echo "system: $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release), $(uname -srm)"
echo "compiler: $(gcc --version | sed 1q)"
PATH=$PATH:/usr/local/cuda/bin
if command -v nvcc >/dev/null; then
    echo "nvcc: $(nvcc --version | sed -n 's/.*release //p')"
fi
for stage in $(/usr/bin/python3 -m harness ladders stages "$@"); do
    # shellcheck disable=SC2016 # make expands these
    echo "flags of ${stage##*/}: $(make -s --no-print-directory -C "$stage" flags --eval \
        'flags: ; @echo $(if $(NVCCFLAGS),$(NVCC) $(NVCCFLAGS),$(CC) $(CFLAGS)) $(EXTRA) $(LDLIBS)')"
done
# OpenMP will choose as many threads as nproc prints: both read OMP_NUM_THREADS.
echo "threads: $(nproc)"
echo "OpenMP variables: $(env | grep -E '^G?OMP_' | sort | paste -sd' ' | sed 's/^$/none/')"
echo "revision: $revision${changes:+, with uncommitted changes}"
echo "began: $(date -u '+%Y-%m-%d %H:%M UTC')"
