#!/usr/bin/env bash
# Installs what is missing of packages.txt, on Debian and Ubuntu, if it may: as root or with a sudo
# that asks for no password. Otherwise it prints the one command to type and exits with 1. Silent
# when everything is there.
#
#     ./deps.sh [GROUP]    what the stages and run_all.sh need (the group `run`) and what GROUP
#                          needs besides; all without it
#
# A script and not a rule of the Makefile, because make is one of the things it installs.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")"

# Whether the thing in the third column of packages.txt is there.
is_there() {
    case $1 in
    /*) compgen -G "$1" ;;
    # cmocka.h wants these before it.
    *.h) printf '#include <%s>\n' stdarg.h stddef.h stdint.h setjmp.h "$1" | gcc -E -x c - ;;
    *) command -v "$1" ;;
    esac >/dev/null 2>&1
}

find_missing() {
    missing=()
    while read -r group package probe; do
        [[ ! $wanted || $group == run || $group == "$wanted" ]] || continue
        is_there "$probe" || missing+=("$package")
    done < <(grep -v -e '^#' -e '^$' packages.txt)
}

# Leaves out what this release does not have under that name; if it is needed, it is missed below.
install_missing() {
    local package packages=()
    for package in "${missing[@]}"; do
        apt-cache show "$package" >/dev/null 2>&1 && packages+=("$package")
    done
    ((${#packages[@]})) && "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${packages[@]}" </dev/null >&2
}

wanted=${1:-}
[[ ! $wanted ]] || grep -q "^$wanted " packages.txt || {
    echo "deps.sh: found '$wanted', expected a group of packages.txt" >&2
    exit 2
}
find_missing
((${#missing[@]})) || exit 0

if ! command -v apt-get >/dev/null; then
    # The names may differ here and a library may lie where it is not looked for: let the build
    # find out.
    echo "Needed, and not found: ${missing[*]} (Debian's names; there is no apt-get here)" >&2
    exit 0
fi

# Whoever may not install is told how, with whatever makes root here.
sudo=() by_hand='sh -c'
if [[ $(id -u) != 0 ]]; then
    sudo=(sudo)
    by_hand='sudo sh -c'
    command -v sudo >/dev/null || by_hand='su -c'
fi

if [[ $(id -u) == 0 ]] || sudo -n true 2>/dev/null; then
    echo "Installing ${missing[*]}" >&2
    # A fresh machine has no package lists, an old one has stale ones: its complaints do not matter.
    install_missing 2>/dev/null ||
        { "${sudo[@]}" apt-get update -qq >&2 && install_missing; } || true
    find_missing
    ((${#missing[@]})) || exit 0
fi
echo "Needed, and not installed: ${missing[*]}. Type:" \
    "$by_hand 'apt-get update && apt-get install -y ${missing[*]}'" >&2
exit 1
