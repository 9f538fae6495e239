#!/usr/bin/env bash
# Sets up the machine, builds, and runs every test. Arguments go to ctest, e.g. scripts/test.sh -L mpi
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh
code=0
ctest --test-dir build --output-on-failure --no-tests=error "$@" || code=$?
grep '^skipped: ' build/Testing/Temporary/LastTest.log >&2 || true # ctest does not say why
exit "$code"
