#!/usr/bin/env bash
# What Containerfile and ladder.def put into a bare Debian.
set -euo pipefail
"$(dirname "${BASH_SOURCE[0]}")/deps.sh"
rm -rf /var/lib/apt/lists/*
# The checkout that is mounted may be another user's.
git config --system --add safe.directory '*'
