#pragma once
// Every tensor of the model, declared once. Whoever allocates, initialises, loads, saves, shards or counts walks this
// table.

#include <cstdint>
#include <string>
#include <vector>

#include "skrull/core/tensor.h"
#include "skrull/model/qwen2_config.h"

namespace skrull {

enum class ParameterInit { normal, ones, zeros };

/// One Hugging Face tensor: a slice of its block's flat buffer.
struct ParameterSpec {
  std::string name;       ///< "model.layers.0.self_attn.q_proj.weight"
  std::int64_t rows = 0;  ///< 1 for a vector
  std::int64_t cols = 0;
  bool is_vector = false;  ///< one-dimensional on disk
  int block = 0;
  std::int64_t offset = 0;  ///< elements from the start of the block's buffer
  ParameterInit init = ParameterInit::normal;
  bool weight_decay = true;  ///< matrices; not biases and norm weights
  std::int64_t elements() const { return rows * cols; }
};

/// Blocks in the order of the forward pass: embedding, one per transformer layer, final norm, head (absent when tied:
/// the embedding's block is acquired a second time and is ready only after the embedding's backward). Query, key and
/// value weights stand back to back, so that the fused projection is one [nq d + 2 nkv d, h] matrix of the block;
/// likewise gate and up.
class ParameterTable {
 public:
  explicit ParameterTable(const Qwen2Config& config);

  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  int block_count() const { return static_cast<int>(block_elements_.size()); }
  std::int64_t block_elements(int block) const { return block_elements_.at(static_cast<std::size_t>(block)); }
  std::int64_t total_elements() const;

  int embedding_block() const { return 0; }
  int layer_block(std::int64_t layer) const { return 1 + static_cast<int>(layer); }
  /// -1 when it is not a layer's.
  std::int64_t layer_of(int block) const { return block >= 1 && block < final_norm_block_ ? block - 1 : -1; }
  int final_norm_block() const { return final_norm_block_; }
  int head_block() const { return head_block_; }  ///< the embedding's block when tied

  /// Parameters of one block, by offset.
  std::vector<ParameterSpec> parameters_of(int block) const;
  /// Throws RunFailure when there is no such name.
  const ParameterSpec& find(const std::string& name) const;

 private:
  std::vector<ParameterSpec> parameters_;
  std::vector<std::int64_t> block_elements_;
  int final_norm_block_ = 0;
  int head_block_ = 0;
};

/// The part of a block's flat buffer (1 x n, contiguous) that holds `parameter`, as rows x cols.
template <class Void>
BasicTensorView<Void> slice_parameter(const BasicTensorView<Void>& block, const ParameterSpec& parameter) {
  return block.slice_cols(parameter.offset, parameter.elements()).reshape(parameter.rows, parameter.cols);
}

}  // namespace skrull
