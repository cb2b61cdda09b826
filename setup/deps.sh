#!/usr/bin/env bash
# Installs the missing packages of packages.txt, on Debian and Ubuntu, as root or with a sudo that
# asks for no password. Otherwise it prints the one command to type and exits with 1. If nothing is
# missing, it prints nothing.
#
#     setup/deps.sh [GROUP]    installs what the stages and run_all.sh need (the group `run`), and
#                              what GROUP needs; without GROUP, it installs all groups
#
# With OFFLINE=1 it installs nothing, and only names what it has not found.
#
# This is a script and not a rule of the Makefile, because it also installs make.
set -euo pipefail
trap 'exit 130' INT
python=$("$(dirname "${BASH_SOURCE[0]}")/python.sh")
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")"

# Returns whether $1, from the third column of packages.txt, is there.
is_there() {
    case $1 in
    import:*) "$python" -c "from importlib.util import find_spec
exit(not find_spec('${1#import:}'))" ;;
    /*) compgen -G "$1" ;;
    # cmocka.h needs these headers before it.
    *.h) printf '#include <%s>\n' stdarg.h stddef.h stdint.h setjmp.h "$1" | gcc -E -x c - ;;
    *) command -v "$1" ;;
    esac >/dev/null 2>&1
}

# Returns whether the package lists have the package. A new machine has no lists.
is_listed() {
    [[ $(apt-cache madison "$1" 2>/dev/null) ]]
}

# Sets which packages are missing, and which of these are needed. A release that does not have an
# optional package lacks it. Another Python than Debian's has modules of its own.
find_missing() {
    local group package probe
    missing=() needed=() lacking=() modules=()
    while read -r group package probe; do
        [[ $group != fetch || ${MNIST_DIR-}${OFFLINE-} ]] || group=run
        [[ ! $wanted || $group == run || $group == "$wanted" ]] || continue
        is_there "$probe" && continue
        if [[ $probe == import:* && ($python != /usr/bin/python3 || ! $apt) ]]; then
            modules+=("${package#python3-}")
        elif [[ $package == *\? ]] && is_listed apt && ! is_listed "${package%\?}"; then
            lacking+=("${package%\?}")
        else
            missing+=("${package%\?}")
            [[ $package == *\? ]] || needed+=("$package")
        fi
    done < <(grep -v -e '^#' -e '^$' packages.txt)
}

# Installs what is missing, unless that needs a password.
install_missing() {
    [[ $(id -u) != 0 ]] || sudo=()
    [[ ! ${sudo[*]} ]] || sudo -n true 2>/dev/null || return 0
    [[ ! ${OFFLINE-} ]] || return 0
    echo "Installing ${missing[*]}" >&2
    # A new machine has no package lists, and an old one has stale ones.
    "${sudo[@]}" apt-get update -qq >&2 || return 0
    find_missing
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends "${missing[@]}" </dev/null >&2 || return 0
    find_missing
}

sudo=(sudo)
wanted=${1:-}
[[ ! $wanted ]] || grep -q "^$wanted " packages.txt || {
    echo "deps.sh: found '$wanted', expected a group of packages.txt" >&2
    exit 2
}
apt=$(command -v apt-get || true)
find_missing
((${#missing[@]} == 0)) || [[ ! $apt ]] || install_missing
((${#lacking[@]} == 0)) || echo "Left out, not in this release: ${lacking[*]}" >&2
if ((${#modules[@]})) && [[ ! ${OFFLINE-} ]]; then
    echo "Needed, and not installed. Type: $python -m pip install ${modules[*]}" >&2
    exit 1
fi
((${#missing[@]} + ${#modules[@]})) || exit 0
if [[ ${OFFLINE-} || ! $apt ]]; then
    # This system may have other names, and a library may lie elsewhere: let the build find out.
    echo "Not found:" "${missing[@]}" "${modules[@]}" >&2
    exit 0
fi
what="Needed, and not installed"
((${#needed[@]})) || what="Left out, not installed"
echo "$what: ${missing[*]}. Type:" "${sudo[@]}" \
    "sh -c 'apt-get update && apt-get install -y ${missing[*]}'" >&2
[[ ${needed[*]} != *python3-* ]] ||
    echo 'Without root, for what is Python: pip install -r setup/requirements.txt in a virtual' \
        'environment or conda, and export PYTHON=its/bin/python: see setup/README.md' >&2
exit $((${#needed[@]} > 0))
