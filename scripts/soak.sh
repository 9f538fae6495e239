#!/usr/bin/env bash
# Kills a random rank of a training at a random moment, again and again: scripts/soak.sh [KILLS [RANKS [SIGNAL]]]
# After every kill the newest checkpoint must be valid and the next start must continue; a run that came to its end must
# have the weights of an uninterrupted one, bit for bit. SIGNAL (9): TERM or USR1 try the orderly stop in the same way.
set -euo pipefail
cd "$(dirname "$0")/.."
kills=${1:-20} ranks=${2:-2} signal=${3:-9}
program=${SKRULL:-build/skrull}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SKRULL_CACHE=$work/cache OMP_WAIT_POLICY=passive
RANDOM=${SOAK_SEED:-1}

scripts/random_rows.sh 60 >"$work/rows.jsonl"

# start OUTPUT: the training in the background; each rank leaves its process id.
start() {
  rm -f "$work"/pid-*
  scripts/mpirun.sh -np "$ranks" bash -c "echo \$\$ >$work/pid-\$OMPI_COMM_WORLD_RANK; exec $program train \"\$@\"" train \
    model_name_or_path=tests/data/model/tied_mha_d16 dataset="$work/rows.jsonl" output_dir="$work/$1" \
    save_dtype=bfloat16 global_batch_size=6 num_train_epochs=24 learning_rate=0.002 val_size=6 eval_steps=5 save_steps=2 \
    save_total_limit=2 resume_from_checkpoint=auto >"$work/out" 2>"$work/log" &
  job=$!
}
fail() {
  echo "soak: $1" >&2
  cat "$work/log" >&2
  exit 1
}
check_weights() { cmp -s "$work/whole/model.safetensors" "$work/run/model.safetensors" || fail "other weights than an uninterrupted run"; }

begin=$(date +%s%N)
start whole
wait "$job" || fail "the uninterrupted run failed"
duration_ms=$((($(date +%s%N) - begin) / 1000000))

killed=0 finished=0 continued=0
while ((killed < kills)); do
  start run
  delay_ms=$((RANDOM * 32768 % duration_ms + RANDOM % duration_ms))
  sleep "$(printf '%d.%03d' $((delay_ms % duration_ms / 1000)) $((delay_ms % duration_ms % 1000)))"
  victim=$((RANDOM % ranks))
  if [[ -s $work/pid-$victim ]] && kill -"$signal" "$(cat "$work/pid-$victim")" 2>/dev/null; then killed=$((killed + 1)); fi
  code=0
  wait "$job" || code=$?
  grep -q 'continuing after step' "$work/log" && continued=$((continued + 1))
  if ((code == 0)); then
    check_weights
    finished=$((finished + 1))
    rm -rf "$work/run"
  elif ((code != 75 && code != 128 + 9)); then
    fail "exit code $code"
  elif compgen -G "$work/run/checkpoint-*" >/dev/null; then
    "$program" inspect "$work/run" >"$work/inspected" || fail "the newest checkpoint is damaged"
    ! compgen -G "$work/run/*.set-aside" >/dev/null || fail "a checkpoint was passed over"
  fi
done
start run
wait "$job" || fail "the last start failed"
check_weights
echo "soak: $killed of $kills kills survived, $continued starts continued at a checkpoint, $((finished + 1)) runs ended with the right weights"
