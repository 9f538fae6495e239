#pragma once
// The architecture, as a Hugging Face config.json of Qwen2ForCausalLM describes it.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "skrull/core/dtype.h"
#include "skrull/schedule/model_shape.h"

namespace skrull {

struct Qwen2Config {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;  ///< hidden_size / num_heads unless the file says otherwise
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  DType stored_dtype = DType::float32;  ///< torch_dtype
  std::vector<std::int64_t> eos_token_ids;

  std::int64_t query_size() const { return num_heads * head_dim; }
  std::int64_t key_value_size() const { return num_kv_heads * head_dim; }
  /// Width of the fused query, key, value projection.
  std::int64_t qkv_size() const { return query_size() + 2 * key_value_size(); }
  std::int64_t parameter_count() const;
  /// The sizes that the scheduler plans by.
  ModelShape shape() const {
    return {hidden_size, num_layers, num_heads, num_kv_heads, head_dim, intermediate_size, vocab_size};
  }
  /// Forward + backward matrix FLOPs of packed sequences: 3 x (linear layers and head per token + causal attention per
  /// sequence, 2 nq d S (S + 1) per layer forward; its backward is counted 2x). The usual model-FLOPs convention:
  /// recomputation does not count.
  double training_flops(const std::vector<std::int64_t>& lengths) const;
};

/// Reads <folder>/config.json. Throws InvalidInput naming file and key for a missing, mistyped or unsupported value
/// (another model_type, use_sliding_window, a rope_scaling other than null/default, an activation other than silu).
Qwen2Config load_qwen2_config(const std::filesystem::path& folder);

}  // namespace skrull
