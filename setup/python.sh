#!/usr/bin/env bash
# Prints the path of the Python that runs what is Python here: $PYTHON, or else the first of
# Debian's and the one in PATH that has what all commands need. Where neither has, Debian's: deps.sh
# says what it lacks, and may install it.
for python in "${PYTHON:-/usr/bin/python3}" "${PYTHON:-python3}"; do
    if "$python" -c 'from importlib.util import find_spec as found
exit(not all(map(found, ("pandas", "psutil", "rich", "tomllib"))))' 2>/dev/null; then
        python=$(command -v "$python")
        [[ $python == /* ]] || python=$PWD/$python
        echo "$python"
        exit
    fi
done
echo "${PYTHON:-/usr/bin/python3}"
