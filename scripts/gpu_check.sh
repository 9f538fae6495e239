#!/usr/bin/env bash
# Checks and measures this program on the GPUs of a machine, in under eight minutes, and writes a report:
#   scripts/gpu_check.sh [--out FOLDER] [--device cuda|cpu] [--quick]
# Needs nothing but the built program: build/skrull beside this script, or bin/skrull of an unpacked gpu bundle
# (scripts/gpu_bundle.sh). FOLDER (default gpu-check) gets report.md, report.json and the log of every step. --device cpu
# tries the script itself where there is no GPU; --quick leaves most measurements out.
# Exit code 0 when every check passed; 1 when one failed; 2 when there is nothing to check on.
set -uo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"

out=gpu-check
device=cuda
quick=no
while [[ $# -gt 0 ]]; do
  case "$1" in
    --out) out="$2"; shift 2 ;;
    --device) device="$2"; shift 2 ;;
    --quick) quick=yes; shift ;;
    *) sed -n '2,8s/^# //p' "$0" >&2; exit 2 ;;
  esac
done

if [[ -x $here/bin/skrull ]]; then
  # shellcheck source=/dev/null
  source "$here/environment.sh"
  skrull="$here/bin/skrull"
else
  skrull="$here/build/skrull"
fi
[[ -x $skrull ]] || { echo "gpu_check: no program at $skrull; run scripts/build.sh -DSKRULL_CUDA=ON" >&2; exit 2; }
mkdir -p "$out"
out="$(cd "$out" && pwd)"
rm -rf "${out:?}"/{json,log,runs,report.md,report.json}
mkdir -p "$out"/{json,log,runs}

gpus=0
[[ $device == cuda ]] && gpus="$(nvidia-smi --list-gpus 2>/dev/null | wc -l)"
if [[ $device == cuda && $gpus -eq 0 ]]; then
  echo "gpu_check: nvidia-smi lists no GPU here" >&2
  exit 2
fi

failed=0
rows=()   # of the table: name|result|seconds|what it showed
missing=()  # what could not be tested
begin=$SECONDS
time_limit=450
[[ $device == cpu ]] && time_limit=3600  # nobody waits for a GPU

row() { rows+=("$1|$2|$3|$4"); printf '%-34s %-8s %4s s  %s\n' "$1" "$2" "$3" "$4" >&2; }
ok() { row "$1" ok "$took" "$2"; }
fail() { row "$1" FAILED "$took" "$2"; failed=1; }

# step NAME SECONDS COMMAND...: whether it succeeded; a row of the table, or a line of what could not be tested, says why
# it did not. Its last line of standard output goes to json/NAME.json, standard error to log/NAME.log.
step() {
  local name="$1" limit="$2" left=$((time_limit - SECONDS + begin))
  shift 2
  [[ $device == cpu ]] && limit=$((10 * limit))
  local allowed=$((limit < left ? limit : left)) start=$SECONDS code=124
  if [[ $left -ge 5 ]]; then
    timeout --kill-after=5 "$allowed" "$@" >"$out/log/$name.out" 2>"$out/log/$name.log"
    code=$?
    tail -n 1 "$out/log/$name.out" | grep '^{' >"$out/json/$name.json" || rm -f "$out/json/$name.json"
  fi
  took=$((SECONDS - start))
  [[ $code -eq 0 ]] && return 0
  if [[ ($code -eq 124 || $code -eq 137) && $allowed -lt $limit ]]; then
    missing+=("$name: the time was up")
  elif [[ $code -eq 124 || $code -eq 137 ]]; then
    fail "$name" "took longer than $limit s: $(last_words "$name")"
  else
    fail "$name" "$(last_words "$name")"
  fi
  return 1
}

# value FILE KEY: the number behind the first "KEY": of a line of JSON.
value() { grep -o "\"$2\":[-+0-9.eE]*" "$1" 2>/dev/null | head -n 1 | cut -d: -f2; }
last_words() { tail -n 1 "$out/log/$1.log" | cut -c1-160; }
ranks() {  # ranks N COMMAND...
  local count="$1"
  shift
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe mpirun -np "$count" "$@"
}
export -f ranks

check() { step "$@" && ok "$1" ""; }  # check NAME SECONDS COMMAND...

# measure NAME SECONDS SHOWN COMMAND...: SHOWN is what the row says, each {KEY} replaced by that value of the result.
measure() {
  local name="$1" limit="$2" shown="$3"
  shift 3
  step "$name" "$limit" "$@" || return
  while [[ $shown =~ \{([a-z_]+)\} ]]; do
    shown="${shown//"${BASH_REMATCH[0]}"/$(value "$out/json/$name.json" "${BASH_REMATCH[1]}" | awk '{ printf ($1 >= 1000 ? "%d" : "%.4g"), $1 }')}"
  done
  ok "$name" "$shown"
}

# As many tokens as fit must fill the memory to within 5%, without running out.
fill_memory() {  # fill_memory NAME SECONDS COMMAND...
  step "$@" || return
  local result="$out/json/$1.json" share
  share="$(value "$result" filled_share)"
  local shown
  shown="$(awk -v share="$share" 'BEGIN { printf "%.1f%% of the free memory", 100 * share }'), $(value "$result" tokens) tokens"
  if awk -v share="$share" 'BEGIN { exit !(share >= 0.95) }'; then ok "$1" "$shown"; else fail "$1" "$shown, expected 95%"; fi
}

# -- The machine, and every operation against its definition.
[[ $device == cuda ]] && nvidia-smi >"$out/log/nvidia-smi.out" 2>&1
check doctor 60 "$skrull" doctor --json
check self-test 150 "$skrull" doctor --self-test --device "$device" --json

# -- cuDNN against native, each against the definition of attention, where the device has both: cuDNN's backward with and
# without a fixed order of its sums. Which of them it computes, the device says.
attention_tests=("$skrull" doctor --self-test --device "$device" --operations "attention_forward,attention_backward" --json)
engine_of() { grep -o "attention[^,\"]* by cuDNN" "$out/json/$1.json" 2>/dev/null | head -n 1; }
if [[ $device == cuda ]] && grep -qs '"part":"cuDNN","state":"ok"' "$out/json/doctor.json"; then
  check attention-native 60 "${attention_tests[@]}" --attention-engine native
  for order in deterministic nondeterministic; do
    name="attention-cudnn-$order"
    options=(--attention-engine cudnn)
    [[ $order == nondeterministic ]] && options+=(--nondeterministic-attention)
    step "$name" 90 "${attention_tests[@]}" "${options[@]}" || continue
    problem="$(grep -m 1 "failed its check" "$out/log/$name.log")"
    if [[ -z $problem ]]; then ok "$name" "$(engine_of "$name")"; else fail "$name" "${problem:0:160}"; fi
  done
else
  missing+=("cuDNN against native: this build or this machine has no cuDNN; attention is native alone")
fi

# -- The same losses as on the CPU: one rank, rings, sharded state, the optimizer on the host.
cat >"$out/runs/config.json" <<'JSON'
{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 128, "intermediate_size": 320,
 "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 997,
 "max_position_embeddings": 4096, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "hidden_act": "silu",
 "initializer_range": 0.05, "tie_word_embeddings": true, "torch_dtype": "float32", "eos_token_id": 0}
JSON
awk 'BEGIN {
  srand(7)
  for (row = 0; row < 48; ++row) {
    length_of_row = row % 12 == 0 ? 700 + int(rand() * 300) : 20 + int(rand() * 120)
    printf "{\"input_ids\": ["
    token = int(rand() * 997)
    for (i = 0; i < length_of_row; ++i) {
      token = rand() < 0.8 ? (token * 5 + 3) % 997 : int(rand() * 997)
      printf "%s%d", (i > 0 ? ", " : ""), token
    }
    print "]}"
  }
}' >"$out/runs/rows.jsonl"
training=(train "model_name_or_path=$out/runs" init=random "dataset=$out/runs/rows.jsonl" max_steps=10 global_batch_size=12
  learning_rate=0.002 lr_scheduler_type=constant logging_steps=1 bucket_tokens=1200 overwrite_output_dir=true)

losses() { grep -o '"loss":[-+0-9.eE]*' "$out/runs/$1/metrics.jsonl" | cut -d: -f2; }
# The largest relative distance between the losses of two runs, and whether it is at most LIMIT.
compare() {
  paste <(losses "$1") <(losses "$2") | awk -v limit="$3" '
    NF != 2 { bad = 1 }
    { d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= worst)) worst = d; ++n }
    END { printf "%.1e", worst; exit n < 10 || bad || !(worst <= limit) }'
}
same_losses() {  # same_losses NAME REFERENCE LIMIT RANKS OPTIONS...
  local name="$1" reference="$2" limit="$3" count="$4"
  shift 4
  local command=("$skrull" "${training[@]}" "output_dir=$out/runs/$name" "$@")
  if [[ $count -gt 1 ]] && ! command -v mpirun >/dev/null; then
    missing+=("$name: there is no mpirun")
    return
  fi
  [[ $count -gt 1 ]] && command=(bash -c 'ranks "$@"' ranks "$count" "${command[@]}")
  step "$name" 90 "${command[@]}" || return
  local distance
  if distance="$(compare "$name" "$reference" "$limit")"; then
    ok "$name" "losses within $distance of $reference"
  else
    fail "$name" "losses differ by $distance from $reference, expected at most $limit"
  fi
}
if check cpu-reference 60 "$skrull" "${training[@]}" "output_dir=$out/runs/cpu-reference" device=cpu; then
  same_losses train-fp32 cpu-reference 1e-4 1 "device=$device"
  same_losses train-fp32-again train-fp32 0 1 "device=$device"
  same_losses train-bf16 cpu-reference 2e-2 1 "device=$device" compute_dtype=bfloat16
  if [[ $device == cuda ]]; then
    same_losses train-bf16-native cpu-reference 2e-2 1 "device=$device" compute_dtype=bfloat16 attention_engine=native
    same_losses train-bf16-nondeterministic train-bf16-native 1e-2 1 "device=$device" compute_dtype=bfloat16 \
      deterministic_attention=false
  fi
  same_losses train-offload train-fp32 1e-5 1 "device=$device" offload_optimizer=cpu
  same_losses train-2-ranks-ring cpu-reference 1e-4 2 "device=$device" context_parallel_size=2 bucket_tokens=600
  same_losses train-2-ranks-zero3 cpu-reference 1e-4 2 "device=$device" zero_stage=3
  same_losses train-4-ranks-ring-zero3 cpu-reference 1e-4 4 "device=$device" context_parallel_size=2 zero_stage=3 bucket_tokens=600
fi
if [[ $device == cuda && $gpus -lt 2 ]]; then
  missing+=("NCCL between GPUs: this machine has one; its ranks shared it and talked through host memory")
fi

# -- Speed. One JSON object each.
bench=("$skrull" bench)
common=(--device "$device" --compute-dtype bfloat16 --json)
ops_shown="{gigabytes_per_second} GB/s of a plain copy"
attention_shown="{ratio} of the products' rate; forward {forward_gflops}, backward {backward_gflops} GFLOP/s"
step_shown="{model_flops_utilization} of the peak (MFU), {tokens_per_second} tokens/s"
if [[ $quick == no ]]; then
  measure ops-0.5b 60 "$ops_shown" "${bench[@]}" ops --model 0.5b --tokens 8192 --seconds 0.02 "${common[@]}"
  measure ops-7b 60 "$ops_shown" "${bench[@]}" ops --model 7b --tokens 8192 --seconds 0.02 "${common[@]}"
  for length in 1024 4096 16384 65536 131072; do
    measure "attention-7b-$length" 40 "$attention_shown" "${bench[@]}" attention --model 7b --length "$length" \
      --seconds 0.05 "${common[@]}"
  done
  if [[ $device == cuda ]]; then
    measure attention-7b-16384-native 40 "$attention_shown" "${bench[@]}" attention --model 7b --length 16384 --seconds 0.05 \
      --attention-engine native "${common[@]}"
    measure attention-7b-16384-nondeterministic 40 "$attention_shown" "${bench[@]}" attention --model 7b --length 16384 \
      --seconds 0.05 --nondeterministic-attention "${common[@]}"
  fi
  measure attention-0.5b-16384 40 "$attention_shown" "${bench[@]}" attention --model 0.5b --length 16384 --seconds 0.05 \
    "${common[@]}"
  measure step-0.5b 60 "$step_shown" "${bench[@]}" step --model 0.5b --tokens 32768 "${common[@]}"
  measure step-1.5b 60 "$step_shown" "${bench[@]}" step --model 1.5b --tokens 16384 "${common[@]}"
  measure step-7b-8-layers 60 "$step_shown" "${bench[@]}" step --model 7b --layers 8 --tokens 16384 "${common[@]}"
  # The tokens that fit are the longest context too; as one sequence they would take minutes.
  fill_memory full-memory-1.5b 90 "${bench[@]}" step --model 1.5b --fill-memory --longest 8192 --steps 1 "${common[@]}"
  fill_memory full-memory-0.5b-recompute 90 "${bench[@]}" step --model 0.5b --fill-memory --longest 8192 --recompute \
    --steps 1 "${common[@]}"
  profile=("$skrull" profile --device "$device" --compute-dtype bfloat16 --output "$out/machine.profile.json" --overwrite
    --json)
  [[ $gpus -gt 1 ]] && profile=(bash -c 'ranks "$@"' ranks "$gpus" "${profile[@]}")
  measure profile 120 "{rounds} rounds" "${profile[@]}"
else
  measure step-small 60 "$step_shown" "${bench[@]}" step --model 0.5b --layers 2 --tokens 256 --steps 1 "${common[@]}"
fi

# -- The report.
{
  printf '{"device":"%s","gpus":%d,"seconds":%d,"passed":%s' "$device" "$gpus" "$((SECONDS - begin))" \
    "$([[ $failed -eq 0 ]] && echo true || echo false)"
  for file in "$out"/json/*.json; do
    [[ -e $file ]] && printf ',"%s":%s' "$(basename "$file" .json)" "$(cat "$file")"
  done
  printf '}\n'
} >"$out/report.json"
{
  echo "# GPU check"
  echo
  echo "$(date -u +%Y-%m-%d), $(((SECONDS - begin))) s, \`$("$skrull" --version 2>/dev/null | head -n 1)\`"
  echo
  if [[ $device == cuda ]]; then
    echo '```'
    nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv
    echo '```'
    echo
  fi
  echo "| step | result | seconds | shows |"
  echo "| --- | --- | ---: | --- |"
  for one in "${rows[@]}"; do IFS='|' read -r a b c d <<<"$one"; echo "| $a | $b | $c | ${d//|/ } |"; done
  echo
  if [[ ${#missing[@]} -gt 0 ]]; then
    echo "Not tested here:"
    echo
    printf -- '- %s\n' "${missing[@]}"
    echo
  fi
  for file in "$out"/json/*.json; do
    [[ -e $file ]] || continue
    printf '<details><summary>%s</summary>\n\n```json\n' "$(basename "$file" .json)"
    cat "$file"
    printf '```\n\n</details>\n'
  done
} >"$out/report.md"
rm -rf "$out/runs"

printf '\n%s of %s steps ok in %s s; report: %s\n' "$(printf '%s\n' "${rows[@]}" | grep -c '|ok|')" "${#rows[@]}" \
  "$((SECONDS - begin))" "$out/report.md"
[[ ${#missing[@]} -gt 0 ]] && printf 'not tested: %s\n' "${missing[@]}"
exit $failed
