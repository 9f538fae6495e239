#!/usr/bin/env bash
# What can be checked of the CUDA device without a GPU: it compiles for every architecture without warnings, no kernel
# spills registers or needs more of them than cuda/register_limits.txt allows, the program links, and starts where there
# is no driver.
#   scripts/cuda_gates.sh [build folder]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
say() { echo "cuda gates: $*" >&2; }

cmake -S . -B "$build" -DSKRULL_CUDA=ON -DSKRULL_CUDA_REPORT=ON -DSKRULL_WERROR=ON >/dev/null
find "$build/cuda" -name '*.cu.o' -delete  # what ptxas says comes with compiling
report="$build/cuda/ptxas.txt"
cmake --build "$build" --target skrull_accelerator >"$report" 2>&1 || { tail -50 "$report" >&2; say "failed to compile"; exit 1; }
cmake --build "$build" --target skrull >/dev/null

# "Compiling entry function 'name' for 'sm_80'", then its spills, then its registers: a line for each, names as people
# write them.
awk '
  /Compiling entry function/ { split($0, quoted, "\047"); name = quoted[2]; architecture = quoted[4] }
  /bytes spill stores/ { spills = $0 !~ / 0 bytes spill stores, 0 bytes spill loads/ }
  match($0, /Used [0-9]+ registers/) { print substr($0, RSTART + 5) + 0 "\t" spills "\t" architecture "\t" name }
  ' "$report" | c++filt | sed 's/skrull:://g; s/(anonymous namespace):://g' >"$build/cuda/kernels.txt"
awk -F '\t' -v limits=cuda/register_limits.txt '
  BEGIN {
    while ((getline line <limits) > 0) {
      if (line ~ /^#/ || match(line, /  +[0-9]+ /) == 0) continue
      pattern[++patterns] = substr(line, 1, RSTART - 1)
      most[patterns] = substr(line, RSTART, RLENGTH) + 0
    }
  }
  {
    kernel = $4
    sub(/^void /, "", kernel)
    sub(/\(.*/, "", kernel)
    if ($2) { print "spills registers: " kernel " for " $3; bad = 1 }
    for (i = 1; i <= patterns && kernel !~ "^(" pattern[i] ")$"; ++i);
    used[i] = 1
    if ($1 > most[i]) { print kernel " for " $3 " needs " $1 " registers, at most " most[i] + 0 " by " limits; bad = 1 }
    if ($1 > largest) { largest = $1; of = kernel " for " $3 }
  }
  END {
    if (NR == 0) { print "ptxas said nothing about kernels"; exit 1 }
    for (i = 1; i <= patterns; ++i) if (!used[i]) { print limits ": no kernel for " pattern[i]; bad = 1 }
    print NR " kernels, " (bad ? "NOT as they should be" : "none spills") ", at most " largest " registers (" of ")"
    exit bad
  }' "$build/cuda/kernels.txt" >&2 || { say "failed"; exit 1; }

program="$build/skrull"
if ldd "$program" | grep -q 'libcuda\.so'; then
  say "$program needs libcuda.so, which only machines with a driver have"
  exit 1
fi
"$program" --version >/dev/null

# Without a GPU: one line that says why, exit code 2. With one there is nothing to see here.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0
"$program" train model_name_or_path="$folder" output_dir="$folder/out" dataset="$folder/none.jsonl" device=cuda \
  >"$folder/log" 2>&1 || status=$?
if grep -q "no GPU to compute on" "$folder/log"; then
  [[ $status -eq 2 ]] || { say "device=cuda without a GPU ended with $status, not 2"; cat "$folder/log" >&2; exit 1; }
  say "without a GPU: $(grep -m1 'no GPU to compute on' "$folder/log")"
elif ! command -v nvidia-smi >/dev/null; then
  say "device=cuda without a GPU did not say so:"
  cat "$folder/log" >&2
  exit 1
fi
say "all passed"
