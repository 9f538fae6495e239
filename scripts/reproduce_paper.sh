#!/usr/bin/env bash
# Builds, then predicts what the Skrull paper measures: speed-ups at its settings, its ablation, its sweeps of batch and
# bucket size. Writes the tables and pictures of docs/scheduling.md and prints the tables. Needs no GPU and no data; takes
# some minutes. Arguments go to scripts/paper_report.py, e.g. scripts/reproduce_paper.sh --batches 5
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh
python3 scripts/paper_report.py "$@"
