#!/usr/bin/env bash
# Sets up the machine, builds, and runs the main job on a small example, with two ranks on the CPU: trains a small
# Qwen2.5-architecture model from scratch to look up names in short and long texts, evaluates it on texts it has not
# seen, and shows a few of its answers. Arguments are options of the training, e.g. scripts/quickstart.sh max_steps=20
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh

say() { printf '\n\033[1m%s\033[0m\n' "$1" >&2; }
data=configs/quickstart
output=runs/quickstart

say "Training on two ranks ($data/quickstart.json; the loss falls in two steps, as the model learns to look up names)"
scripts/mpirun.sh -np 2 build/skrull train $data/quickstart.json output_dir=$output overwrite_output_dir=true "$@"

say "Loss on held-out texts"
build/skrull eval $data/quickstart.json model_name_or_path=$output init=pretrained eval_dataset=$data/held_out.jsonl \
  output_dir=$output-eval

say "Answers to 100 held-out questions"
build/skrull generate --model $output --messages $data/questions.jsonl --max-new-tokens 16 --json > $output/answers.json

say "A question to the trained model:"
build/skrull generate --model $output --max-new-tokens 16 --messages $data/example.json
