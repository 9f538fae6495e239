#!/usr/bin/env bash
# clang-format over every source and clang-tidy over those that differ from a base: scripts/lint.sh [BASE]
# Without BASE every source is checked by clang-tidy. Needs a configured build/ for its compile commands.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t sources < <(git ls-files '*.cpp' '*.h' '*.cu')
clang-format --dry-run --Werror "${sources[@]}"

if [[ $# -gt 0 ]]; then
  mapfile -t changed < <(git diff --name-only --diff-filter=d "$1" -- 'src/*.cpp')
else
  mapfile -t changed < <(git ls-files 'src/*.cpp')
fi
[[ ${#changed[@]} -eq 0 ]] && exit 0
printf '%s\n' "${changed[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p build
