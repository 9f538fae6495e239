#!/usr/bin/env bash
# What can be checked of the CUDA device without a GPU: it compiles for every architecture without warnings, no kernel
# spills registers or needs more of them than its limit, the program links, and starts where there is no driver.
#   scripts/cuda_gates.sh [build folder]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
most_registers=255
say() { echo "cuda gates: $*" >&2; }

cmake -S . -B "$build" -DSKRULL_CUDA=ON -DSKRULL_CUDA_REPORT=ON -DSKRULL_WERROR=ON >/dev/null
find "$build/cuda" -name '*.cu.o' -delete  # what ptxas says comes with compiling
report="$build/cuda/ptxas.txt"
cmake --build "$build" --target skrull_accelerator >"$report" 2>&1 || { tail -50 "$report" >&2; say "failed to compile"; exit 1; }
cmake --build "$build" --target skrull >/dev/null

# "Compiling entry function 'name' for 'sm_80'", then its spills, then its registers.
awk -v most="$most_registers" '
  /Compiling entry function/ { split($0, quoted, "\047"); kernel = quoted[2] " for " quoted[4]; kernels++ }
  /spill stores/ { if ($0 !~ / 0 bytes spill stores, 0 bytes spill loads/) { print "spills: " kernel ": " $0; bad = 1 } }
  match($0, /Used [0-9]+ registers/) {
    registers = substr($0, RSTART + 5) + 0
    if (registers > largest) { largest = registers; of = kernel }
    if (registers > most) { print "more than " most " registers: " kernel ": " registers; bad = 1 }
  }
  END {
    if (kernels == 0) { print "ptxas said nothing about kernels"; exit 1 }
    print kernels " kernels, " (bad ? "NOT as they should be" : "none spills") ", at most " largest " registers (" of ")"
    exit bad
  }' "$report" >&2 || { say "failed"; exit 1; }

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
