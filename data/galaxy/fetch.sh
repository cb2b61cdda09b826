#!/usr/bin/env bash
# Usage: fetch.sh [DIR]
# Downloads the galaxies into DIR (data/galaxy) and verifies them: see ../fetch.sh.
set -euo pipefail
exec "$(dirname "$0")/../fetch.sh" "${1-}" galaxy
