#pragma once
// A parameter table small enough to follow by hand, with a block of every kind.

#include "skrull/model/parameter_table.h"

namespace skrull::test {

inline Qwen2Config small_config(bool tied) {
  Qwen2Config config;
  config.vocab_size = 11;
  config.hidden_size = 6;
  config.intermediate_size = 5;
  config.num_layers = 2;
  config.num_heads = 3;
  config.num_kv_heads = 1;
  config.head_dim = 2;
  config.tie_word_embeddings = tied;
  return config;
}

inline ParameterTable small_table(bool tied = false) {
  return ParameterTable(small_config(tied));
}

}  // namespace skrull::test
