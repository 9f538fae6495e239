#!/usr/bin/env bash
# Sets up the machine, builds, and runs every test. Arguments go to ctest, e.g. scripts/test.sh -L mpi
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh
ctest --test-dir build --output-on-failure --no-tests=error "$@"
