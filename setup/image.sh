#!/usr/bin/env bash
# What Containerfile and ladder.def put into a bare Debian.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
apt-get update
apt-get install -y --no-install-recommends ca-certificates git make
# The first must work. The second brings benchmarks, profiles and the report, as far as the
# processor has packages for them.
./deps.sh test
./deps.sh || true
git config --system --add safe.directory '*'
rm -rf /var/lib/apt/lists/*
