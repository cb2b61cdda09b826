#!/usr/bin/env bash
# Prints a stage's name, and the name of the stage that it is compared with. This is its origin, if
# its Makefile names it (`ORIGIN = ...`, which `make new-stage` writes), or else the stage before it
# by number. The first stage is compared with none.
#
#     stages/before.sh 02      02_openmp 01_vectorized
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")"

wanted=${1:-} before='' all=()
for makefile in [0-9][0-9]_*/Makefile; do
    stage=${makefile%/Makefile}
    if [[ $stage == "$wanted" || $stage == "$wanted"_* ]]; then
        origin=$(sed -n 's/^ORIGIN *:\?= *//p' "$makefile")
        echo "$stage ${origin:-$before}"
        exit
    fi
    all+=("$stage")
    before=$stage
done
echo "found STAGE='$wanted', expected one of: ${all[*]}" >&2
exit 2
