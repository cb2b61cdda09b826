#!/usr/bin/env bash
# Types what a newcomer types (./run_all.sh --quick, make test) into a fresh Debian 12 and a fresh
# Debian 13, and prints how they differ: `make test-systems`, some 15 minutes each.
#
#     systems.sh [RELEASE ...]    (bookworm trixie)
#
# debootstrap makes each system in a temporary folder. It has git, make and a clone of what is
# committed, and may read the data that MNIST_DIR and its like name. tests/build/systems/RELEASE.log is
# what was printed there.
#
# Exit status: 0; 1 a command failed; 77 the systems cannot be made here.
set -euo pipefail
root=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=$root/tests/build/systems
[[ $# -gt 0 ]] || set -- bookworm trixie

# in_fresh RELEASE FOLDER: makes the system and runs the commands. It has namespaces of its own, so
# nothing stays mounted, and nothing runs on, however it ends.
in_fresh() {
    local release=$1 system=$2 mirror variable folder command start status failed=0
    local given=(HOME=/root TERM=xterm LANG=C.UTF-8)
    exec 3>&1 >"$logs/$release.log" 2>&1
    # shellcheck disable=SC2016 # apt-get replaces these
    mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' | sed -n 's/^Debian //p' | sed 1q)
    debootstrap --variant=minbase --include=git,make "$release" "$system" \
        "${mirror:-http://deb.debian.org/debian}" || exit 77
    git clone --quiet "$root" "$system/root/ladder"
    cp /etc/resolv.conf /etc/hosts "$system/etc"
    mount -t proc proc "$system/proc"
    mount -t sysfs -o ro sysfs "$system/sys"
    mount -t tmpfs tmpfs "$system/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=666,gid=5 devpts "$system/dev/pts"
    ln -sf pts/ptmx "$system/dev/ptmx"
    for variable in "$root"/data/*.set "$root"/studies/*/data/*.set; do
        variable=${variable##*/} variable=${variable%.set} variable=${variable^^}_DIR
        [[ ${!variable-} ]] || continue
        folder=$(realpath "${!variable}")
        mkdir -p "$system$folder"
        mount --bind -o ro "$folder" "$system$folder"
        given+=("$variable=$folder")
    done
    for variable in FULL http_proxy https_proxy no_proxy; do
        [[ ! ${!variable-} ]] || given+=("$variable=${!variable}")
    done
    for command in './run_all.sh --quick' 'make test'; do
        start=$SECONDS status=0
        # A script's background commands inherit that SIGINT is ignored.
        chroot "$system" env -i --default-signal "${given[@]}" bash -lc "cd /root/ladder && $command" ||
            status=$? failed=1
        echo "$release: $command: exit status $status, $((SECONDS - start)) s" >&3
    done
    exit "$failed"
}

[[ $1 != --in-fresh ]] || in_fresh "$2" "$3"

skip() {
    echo "systems.sh: skipped: $1" >&2
    exit 77
}

# Prints what did not pass and what was skipped, in words that do not change from run to run.
remarks() {
    sed -nE 's/ \([0-9]+ s\)//; s/^(WRONG [^ ]+).*/\1/; s/^(not ok|ok) [0-9]+ /\1 /
        /^(not ok|ok .* # skip|skipped|not fuzzed|WRONG|.*: left out|\[  FAILED|make.*\*\*\*)/p' \
        "$logs/$1.log" | cut -c-160 | sort -u
}

[[ $(id -u) == 0 ]] || skip 'needs root, to make a Debian system'
command -v debootstrap >/dev/null || skip 'found no debootstrap (the Debian package debootstrap)'
unshare --mount --pid --fork true 2>/dev/null || skip 'may not make namespaces (unshare)'
mkdir -p "$logs"
scratch=$(mktemp -d) running=''
# The first process of a namespace takes all others with it.
trap '[[ ! $running ]] || { pkill -KILL -P "$running" && wait "$running"; } || true
    rm -rf --one-file-system "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
failed=0
for release; do
    status=0
    unshare --mount --pid --fork --kill-child "$0" --in-fresh "$release" "$scratch/$release" 2>/dev/null &
    running=$!
    wait "$running" || status=$?
    running=''
    ((status != 77)) || skip "$release: $(tail -n 1 "$logs/$release.log")"
    ((status == 0)) || failed=1
    rm -rf --one-file-system "${scratch:?}/$release"
done
for release; do
    remarks "$release" | grep -E '^(not ok|WRONG|\[  FAILED|make)' | sed "s/^/$release: /" || true
done
for release in "${@:2}"; do
    echo "What $release skips or fails (+), and $1 does not, or the other way round (-):"
    diff -U0 <(remarks "$1") <(remarks "$release") | sed 1,2d | grep -v '^@@' || echo nothing
done
exit $failed
