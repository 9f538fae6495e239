#!/usr/bin/env bash
# Does a test fail when a stream no longer waits for an event? Takes the waits of src/parallel and of the CUDA device out
# of a copy of the sources, one at a time, and runs the tests of the device that the CPU plays. Prints a row for each
# wait; exit code 1 when one is not missed. Takes some minutes to build, then up to a few for each wait.
#   scripts/drop_waits.sh [regular expression of places, e.g. optimizer.cpp:154]
set -euo pipefail
cd "$(dirname "$0")/.."
export only=${1:-.} OMP_WAIT_POLICY=passive
copy=$PWD/build-waits/source
build=$PWD/build-waits/build
programs=(test_simt_parallel test_simt_training test_simt_device)
runs=("test_simt_parallel [state]" test_simt_device "test_simt_parallel ~[state]" test_simt_training) # the quickest first

rm -rf "$copy"
mkdir -p "$copy" "$build"
git ls-files -z | tar --null --files-from=- --create | tar --extract --touch --directory "$copy"
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
cmake -S "$copy" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSKRULL_CUDA=OFF "${launcher[@]}" >/dev/null
make_programs() { cmake --build "$build" --target "${programs[@]}" >"$build/log" 2>&1 </dev/null; }
make_programs || { tail -30 "$build/log"; exit 1; }

# missed_by: the first test case that fails.
missed_by() {
  local run
  for run in "${runs[@]}"; do
    # shellcheck disable=SC2086 # a program and its test cases
    if ! (cd "$build/tests" && timeout 600 "$copy/scripts/mpirun.sh" -np 2 ./$run >"$build/log" 2>&1 </dev/null); then
      sed 's/\x1b\[[0-9;]*m//g' "$build/log" | grep -m 1 -A 1 -xE -- '-{79}' | tail -1 # as Catch2 writes it
      return
    fi
  done
  return 1
}

if result=$(missed_by); then
  echo "drop_waits: with all waits, this fails: $result" >&2
  exit 2
fi

# A wait stands in a line of its own.
waits() {
  grep -nE '^ +([a-z_]+(\(\)|_)?(\.|->))*wait(_for|_for_communication|_for_parameters|_until_summed)?\(.*\);( *//.*)?$' "$@" |
    grep -v benchmark | cut -d: -f1,2 | grep -E -- "$only"
}

kept=0
while IFS=: read -r file line; do
  text=$(sed -n "${line}s/^ *//p" "$file")
  cp "$file" "$copy/$file"
  sed -i "${line}s/.*//" "$copy/$file"
  if ! make_programs; then
    result="does not compile without it"
  elif ! result=$(missed_by); then
    result="NOT MISSED"
    kept=1
  fi
  printf '| %s:%s | `%s` | %s |\n' "${file##*/}" "$line" "$text" "$result"
  cp "$file" "$copy/$file"
done < <(waits src/parallel/*.cpp cuda/device/cuda_device.cpp)
exit $kept
