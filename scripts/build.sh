#!/usr/bin/env bash
# Sets up the machine and builds build/skrull. Arguments go to cmake, e.g. scripts/build.sh -DSKRULL_NATIVE_ARCH=OFF
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
cmake --preset release "$@" >/dev/null
cmake --build build
