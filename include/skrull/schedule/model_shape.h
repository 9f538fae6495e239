#pragma once
// What the scheduler has to know of a model: its sizes, and the FLOPs that follow from them.

#include <array>
#include <cstdint>

namespace skrull {

/// Sizes of a Qwen2-style decoder, under the names of a plan file.
struct ModelShape {
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;

  bool operator==(const ModelShape&) const = default;

  /// Forward FLOPs of one token in one layer's matrix products: 2 (h nq d + 2 h nkv d + nq d h + 3 h f).
  double linear_flops_per_token() const {
    const std::int64_t attention = num_attention_heads * head_dim;
    const std::int64_t key_value = num_key_value_heads * head_dim;
    return 2.0 * static_cast<double>(hidden_size) *
           static_cast<double>(2 * attention + 2 * key_value + 3 * intermediate_size);
  }
  /// Forward FLOPs of one token in the head: 2 h V.
  double head_flops_per_token() const {
    return 2.0 * static_cast<double>(hidden_size) * static_cast<double>(vocab_size);
  }
  /// Weights of one layer's matrix products.
  double layer_parameters() const { return linear_flops_per_token() / 2.0; }
  /// Weights of embedding and head; they are one below the size of a 7B model (hidden size 3584).
  double embedding_parameters() const { return head_flops_per_token() / 2.0 * (hidden_size < 3584 ? 1.0 : 2.0); }
  /// Forward FLOPs of attention in one layer per query-key pair: 4 nq d (scores and weighted values, 2 each).
  double attention_flops_per_pair() const { return 4.0 * static_cast<double>(num_attention_heads * head_dim); }
  /// Elements of one token's keys and values in one layer: 2 nkv d.
  std::int64_t key_value_elements_per_token() const { return 2 * num_key_value_heads * head_dim; }
};

/// The members of ModelShape under their names in files.
struct NamedModelSize {
  const char* name;
  std::int64_t ModelShape::*member;
};
inline constexpr std::array model_sizes{
    NamedModelSize{"hidden_size", &ModelShape::hidden_size},
    NamedModelSize{"num_layers", &ModelShape::num_layers},
    NamedModelSize{"num_attention_heads", &ModelShape::num_attention_heads},
    NamedModelSize{"num_key_value_heads", &ModelShape::num_key_value_heads},
    NamedModelSize{"head_dim", &ModelShape::head_dim},
    NamedModelSize{"intermediate_size", &ModelShape::intermediate_size},
    NamedModelSize{"vocab_size", &ModelShape::vocab_size},
};

}  // namespace skrull
