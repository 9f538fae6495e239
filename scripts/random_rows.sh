#!/usr/bin/env bash
# Rows of 2 to 41 random token ids below 97, the vocabulary of the models in tests/data/model: scripts/random_rows.sh COUNT
awk -v rows="$1" 'BEGIN { srand(1); for (row = 0; row < rows; ++row) { line = ""; count = 2 + int(rand() * 40)
  for (i = 0; i < count; ++i) line = line (i ? "," : "") int(rand() * 97); print "{\"input_ids\":[" line "]}" } }'
