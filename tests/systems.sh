#!/usr/bin/env bash
# Types what a newcomer types (./run_all.sh --quick, make test) into a fresh Debian 12 and a fresh
# Debian 13, and prints how each ended: `make test-systems`, some 15 minutes each.
#
# debootstrap makes each system in a temporary folder, with git, make and a clone of what is
# committed. It may read the data that MNIST_DIR and its like name. tests/build/systems/RELEASE.log
# is what was printed there. Exit status: 0; 1 a command failed; 77 the systems cannot be made here.
set -euo pipefail
root=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=$root/tests/build/systems

skip() {
    echo "systems.sh: skipped: $1" >&2
    exit 77
}

# in_fresh RELEASE FOLDER: makes the system and runs the commands. It has namespaces of its own, so
# nothing stays mounted, and nothing runs on, however it ends.
in_fresh() {
    local release=$1 system=$2 log=$logs/$1.log name command start status failed=0
    local given=(HOME=/root TERM=xterm LANG=C.UTF-8)
    debootstrap --variant=minbase --include=git,make "$release" "$system" \
        ${MIRROR:+"$MIRROR"} >"$log" 2>&1 || skip "$release: $(tail -n 1 "$log")"
    git clone --quiet "$root" "$system/root/ladder"
    cp /etc/resolv.conf /etc/hosts "$system/etc"
    mount -t proc proc "$system/proc"
    mount -t sysfs -o ro sysfs "$system/sys"
    mount -t tmpfs tmpfs "$system/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=666,gid=5 devpts "$system/dev/pts"
    ln -sf pts/ptmx "$system/dev/ptmx"
    for name in "$root"/data/*.set "$root"/studies/*/data/*.set; do
        name=$(basename "$name" .set) name=${name^^}_DIR
        [[ ${!name-} ]] || continue
        mkdir -p "$system${!name}"
        mount --bind -o ro "${!name}" "$system${!name}"
        given+=("$name=${!name}")
    done
    for name in FULL http_proxy https_proxy no_proxy; do
        [[ ! ${!name-} ]] || given+=("$name=${!name}")
    done
    for command in './run_all.sh --quick' 'make test'; do
        start=$SECONDS status=0
        chroot "$system" env -i "${given[@]}" bash -lc "cd /root/ladder && $command" \
            >>"$log" 2>&1 || status=$? failed=1
        echo "$release: $command: exit status $status, $((SECONDS - start)) s: $(tail -n 1 "$log")"
    done
    exit "$failed"
}

[[ ${1-} != --in-fresh ]] || in_fresh "$2" "$3"
[[ $(id -u) == 0 ]] || skip 'needs root, to make a Debian system'
command -v debootstrap >/dev/null || skip 'found no debootstrap (the Debian package debootstrap)'
unshare --mount --pid --fork true 2>/dev/null || skip 'may not make namespaces (unshare)'
mkdir -p "$logs"
scratch=$(mktemp -d)
trap 'rm -rf --one-file-system "$scratch"' EXIT
failed=0
for release in bookworm trixie; do
    status=0
    unshare --mount --pid --fork --kill-child "$0" --in-fresh "$release" "$scratch/$release" ||
        status=$?
    ((status != 77)) || exit 77
    ((status == 0)) || failed=1
    rm -rf --one-file-system "${scratch:?}/$release"
done
exit $failed
