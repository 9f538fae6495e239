# A small training for the tests of this folder, which source this file. They run from the project's folder in a process
# namespace of their own where that is allowed, so that nothing they started outlives them.

PATH=$PATH:/usr/sbin:/sbin # of the daemons, of ip
skipped=77 # ctest: SKIP_RETURN_CODE

skip() {
  echo "skipped: $1"
  exit $skipped
}

# enter_own_processes [OPTION OF UNSHARE...] TEST: runs the test again, alone.
enter_own_processes() {
  [[ -z ${SKRULL_TEST_ALONE:-} ]] || return 0
  export SKRULL_TEST_ALONE=1
  if unshare --pid --fork --mount-proc "${@:1:$#-1}" true 2>/dev/null; then
    exec unshare --pid --fork --kill-child --mount-proc "$@"
  fi
}

# set_up_training: the folder $work, removed at the end, and the options of a training of a few seconds.
set_up_training() {
  work=$(mktemp -d)
  trap 'tear_down; rm -rf "$work"' EXIT
  export SKRULL=${SKRULL:-$PWD/build/skrull} SKRULL_CACHE=$work/cache OMP_WAIT_POLICY=passive
  export OMP_NUM_THREADS=1 # another number of threads rounds otherwise: a host has more cores for one rank than for two
  scripts/random_rows.sh 60 >"$work/rows.jsonl"
  training=(model_name_or_path=tests/data/model/tied_mha_d16 dataset="$work/rows.jsonl" save_dtype=bfloat16
    global_batch_size=6 max_steps=600 learning_rate=0.002 val_size=6 eval_steps=40 save_steps=50 save_total_limit=2)
}
tear_down() { :; }

fail() {
  echo "FAILED: $1"
  local log
  for log in "$work"/*.log; do
    echo "--- the end of $log"
    tail -n 12 "$log"
  done
  exit 1
}
passed() { echo "ok: $1"; }

# wait_until SECONDS WHAT COMMAND...: until the command succeeds; the test fails when that takes longer.
wait_until() {
  local end=$((SECONDS + $1))
  until "${@:3}"; do
    ((SECONDS < end)) || fail "$2: not within $1 s"
    sleep 0.1
  done
}

# has_steps OUTPUT COUNT: that many rows of metrics.
has_steps() { [[ -s $work/$1/metrics.jsonl ]] && (($(wc -l <"$work/$1/metrics.jsonl") >= $2)); }

last_loss() { grep -o '"loss":[^,}]*' "$work/$1/metrics.jsonl" | tail -1; }

# expect_log OUTPUT TEXT
expect_log() { grep -qF -- "$2" "$work/$1.log" || fail "the log of $1 lacks \"$2\""; }

# expect_same_model OUTPUT: bit for bit that of the run that was never interrupted, and the same last loss.
expect_same_model() {
  cmp "$work/whole/model.safetensors" "$work/$1/model.safetensors" || fail "$1 ends with other weights than whole"
  [[ $(last_loss "$1") == "$(last_loss whole)" ]] || fail "last loss $(last_loss "$1"), without interruption $(last_loss whole)"
}
